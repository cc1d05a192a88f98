//! The features of x86-64 processors that a program can depend on, by their CPUID bits.
//!
//! Some bits are hidden, because no program can depend on them:
//!
//! - features for the kernel alone: paging, machine checks, virtualisation, mitigations of flaws;
//! - features that differ between cores of one host or that a hypervisor sets: hyper-threading,
//!   hybrid, the local interrupt controller;
//! - bits that report that something is turned on (OSXSAVE, OSPKE), because the parts of XCR0
//!   report that;
//! - bits that repeat another register;
//! - promises of speed (ERMS, FSRM, prefetching and the like), without which the same instructions
//!   run.
//!
//! The manuals of Intel and AMD agree on all of them. A bit that is neither named nor hidden counts
//! as a feature: refusing a host too many is better than a program that executes a missing
//! instruction.

use crate::raw::records::Cpu;
use core::fmt;

/// A feature: one bit that CPUID reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Feature {
    register: &'static Register,
    bit: u32,
}

impl fmt::Display for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(f, "{name}"),
            None => write!(f, "{} bit {}", self.register.label, self.bit),
        }
    }
}

impl Feature {
    /// The usual name, as the kernel or the compilers write it; `None` for an unknown bit.
    pub fn name(&self) -> Option<&'static str> {
        let mut names = self.register.names.iter();
        names
            .find(|(bit, _)| *bit == self.bit)
            .map(|(_, name)| *name)
    }
}

/// The features that `had` has and `has` lacks.
pub fn missing<'a>(had: &'a Cpu, has: &'a Cpu) -> impl Iterator<Item = Feature> + 'a {
    REGISTERS.iter().flat_map(move |register| {
        let lost = (register.value)(had) & !(register.value)(has) & !register.hidden;
        let lost = (0..u32::BITS).filter(move |bit| lost & (1 << bit) != 0);
        lost.map(move |bit| Feature { register, bit })
    })
}

/// The name of a part of a thread's state, by its bit in XCR0.
pub fn state_name(bit: u32) -> &'static str {
    match bit {
        0 => "x87",
        1 => "sse",
        2 => "avx",
        3 => "bndregs",
        4 => "bndcsr",
        5 => "avx512 opmask",
        6 => "avx512 zmm_hi256",
        7 => "avx512 hi16_zmm",
        9 => "pkru",
        17 => "amx tilecfg",
        18 => "amx tiledata",
        19 => "apx",
        _ => "unnamed",
    }
}

#[derive(Debug)]
struct Register {
    label: &'static str,
    value: fn(&Cpu) -> u32,
    names: &'static [(u32, &'static str)],
    hidden: u32,
}

impl PartialEq for Register {
    fn eq(&self, other: &Self) -> bool {
        self.label == other.label
    }
}

impl Eq for Register {}

const fn bits<const COUNT: usize>(list: [u32; COUNT]) -> u32 {
    let (mut bits, mut at) = (0, 0);
    while at < COUNT {
        bits |= 1 << list[at];
        at += 1;
    }
    bits
}

#[rustfmt::skip]
static REGISTERS: [Register; 11] = [
    Register {
        label: "leaf 1 ecx",
        value: |cpu| cpu.leaf_1_ecx,
        names: &[
            (0, "sse3"), (1, "pclmulqdq"), (9, "ssse3"), (12, "fma"), (13, "cx16"),
            (19, "sse4.1"), (20, "sse4.2"), (22, "movbe"), (23, "popcnt"), (25, "aes"),
            (26, "xsave"), (28, "avx"), (29, "f16c"), (30, "rdrand"),
        ],
        hidden: bits([2, 3, 4, 5, 6, 7, 8, 10, 11, 14, 15, 16, 17, 18, 21, 24, 27, 31]),
    },
    Register {
        label: "leaf 1 edx",
        value: |cpu| cpu.leaf_1_edx,
        names: &[
            (0, "fpu"), (4, "tsc"), (8, "cx8"), (15, "cmov"), (19, "clflush"), (23, "mmx"),
            (24, "fxsr"), (25, "sse"), (26, "sse2"),
        ],
        hidden: bits([
            1, 2, 3, 5, 6, 7, 9, 10, 11, 12, 13, 14, 16, 17, 18, 20, 21, 22, 27, 28, 29, 30, 31,
        ]),
    },
    Register {
        label: "leaf 7 ebx",
        value: |cpu| cpu.leaf_7_ebx,
        names: &[
            (0, "fsgsbase"), (3, "bmi1"), (4, "hle"), (5, "avx2"), (8, "bmi2"), (11, "rtm"),
            (14, "mpx"), (16, "avx512f"), (17, "avx512dq"), (18, "rdseed"), (19, "adx"),
            (21, "avx512ifma"), (23, "clflushopt"), (24, "clwb"), (26, "avx512pf"),
            (27, "avx512er"), (28, "avx512cd"), (29, "sha"), (30, "avx512bw"), (31, "avx512vl"),
        ],
        hidden: bits([1, 2, 6, 7, 9, 10, 12, 13, 15, 20, 25]),
    },
    Register {
        label: "leaf 7 ecx",
        value: |cpu| cpu.leaf_7_ecx,
        names: &[
            (0, "prefetchwt1"), (1, "avx512vbmi"), (3, "pku"), (5, "waitpkg"),
            (6, "avx512vbmi2"), (7, "shstk"), (8, "gfni"), (9, "vaes"), (10, "vpclmulqdq"),
            (11, "avx512vnni"), (12, "avx512bitalg"), (14, "avx512vpopcntdq"), (22, "rdpid"),
            (23, "kl"), (25, "cldemote"), (27, "movdiri"), (28, "movdir64b"), (29, "enqcmd"),
        ],
        hidden: bits([2, 4, 13, 16, 17, 18, 19, 20, 21, 24, 30, 31]),
    },
    Register {
        label: "leaf 7 edx",
        value: |cpu| cpu.leaf_7_edx,
        names: &[
            (2, "avx512_4vnniw"), (3, "avx512_4fmaps"), (5, "uintr"),
            (8, "avx512vp2intersect"), (14, "serialize"), (16, "tsxldtrk"), (20, "ibt"),
            (22, "amx-bf16"), (23, "avx512fp16"), (24, "amx-tile"), (25, "amx-int8"),
        ],
        hidden: bits([1, 4, 9, 10, 11, 13, 15, 18, 19, 26, 27, 28, 29, 30, 31]),
    },
    Register {
        label: "leaf 7.1 eax",
        value: |cpu| cpu.leaf_7_1_eax,
        names: &[
            (0, "sha512"), (1, "sm3"), (2, "sm4"), (3, "rao-int"), (4, "avxvnni"),
            (5, "avx512bf16"), (7, "cmpccxadd"), (21, "amx-fp16"), (23, "avxifma"),
            (31, "movrs"),
        ],
        hidden: bits([6, 8, 10, 11, 12, 17, 18, 19, 20, 22, 26, 27, 30]),
    },
    Register {
        label: "leaf 7.1 edx",
        value: |cpu| cpu.leaf_7_1_edx,
        names: &[
            (4, "avxvnniint8"), (5, "avxneconvert"), (8, "amx-complex"), (10, "avxvnniint16"),
            (13, "utmr"), (15, "user_msr"), (17, "uiret_uif"), (19, "avx10"), (21, "apx_f"),
        ],
        hidden: bits([14, 18, 23]),
    },
    Register {
        label: "leaf 0xd.1 eax",
        value: |cpu| cpu.leaf_d_1_eax,
        names: &[(0, "xsaveopt"), (1, "xsavec"), (2, "xgetbv1")],
        hidden: bits([3, 4]),
    },
    Register {
        label: "leaf 0x80000001 ecx",
        value: |cpu| cpu.leaf_80000001_ecx,
        names: &[
            (0, "lahf_lm"), (5, "lzcnt"), (6, "sse4a"), (7, "misalignsse"), (8, "prfchw"),
            (11, "xop"), (15, "lwp"), (16, "fma4"), (21, "tbm"), (29, "mwaitx"),
        ],
        hidden: bits([1, 2, 3, 4, 9, 10, 12, 13, 17, 19, 22, 23, 24, 26, 27, 28, 30]),
    },
    Register {
        label: "leaf 0x80000001 edx",
        value: |cpu| cpu.leaf_80000001_edx,
        names: &[(11, "syscall"), (27, "rdtscp"), (29, "lm"), (30, "3dnowext"), (31, "3dnow")],
        // AMD repeats leaf 1 here. The features that AMD calls extensions of MMX are part of SSE.
        hidden: bits([
            0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 13, 14, 15, 16, 17, 19, 20, 22, 23, 24, 25, 26,
        ]),
    },
    Register {
        label: "leaf 0x80000008 ebx",
        value: |cpu| cpu.leaf_80000008_ebx,
        names: &[(0, "clzero"), (4, "rdpru"), (8, "mcommit")],
        hidden: bits([
            1, 2, 3, 6, 9, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 23, 24, 25, 26, 27, 28, 29, 30,
            31,
        ]),
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::raw::records::Plain;

    #[test]
    fn no_bit_is_both_named_and_hidden_and_none_is_named_twice() {
        for register in &REGISTERS {
            let mut seen = register.hidden;
            for (bit, name) in register.names {
                assert_eq!(seen & (1 << bit), 0, "{} bit {bit}, {name}", register.label);
                seen |= 1 << bit;
            }
        }
    }

    #[test]
    fn the_registers_are_different_ones() {
        let words: Vec<u32> = (1..).take(Cpu::LEN / 4).collect();
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let cpu = Cpu::from_prefix(&bytes).unwrap();
        let values: Vec<u32> = REGISTERS.iter().map(|one| (one.value)(&cpu)).collect();
        // The registers come first in the record, in this order.
        assert_eq!(values, words[..REGISTERS.len()]);
    }
}
