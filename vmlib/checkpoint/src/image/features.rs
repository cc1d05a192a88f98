//! The features of x86-64 processors that a program can depend on, by their bits.
//!
//! Left out are bits that no program can depend on: those for the kernel alone (paging, machine
//! checks, virtualisation), those that differ between cores of one host or that a hypervisor sets
//! (hyper-threading, hybrid, the local interrupt controller), those that say that something is
//! turned on (OSXSAVE, OSPKE: the parts of XCR0 tell that), and promises of speed (ERMS, FSRM and
//! the like), without which the same instructions run. Intel's and AMD's manuals agree on all of
//! them. A bit that is neither named nor left out counts: better to refuse one host too many than
//! to let a program run into an instruction that is missing.

use std::fmt;

use crate::raw::format::Cpu;

/// A feature: a bit that CPUID reports.
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
    /// Its usual name, as the kernel or the compilers write it.
    pub fn name(&self) -> Option<&'static str> {
        let mut names = self.register.names.iter();
        names
            .find(|(bit, _)| *bit == self.bit)
            .map(|(_, name)| *name)
    }
}

/// The features that the first one has and the second one lacks.
pub(super) fn missing(had: &Cpu, has: &Cpu) -> Vec<Feature> {
    let mut all = Vec::new();
    for register in &REGISTERS {
        let lost = (register.value)(had) & !(register.value)(has) & !bits(register.ignored);
        let lost = (0..u32::BITS).filter(|bit| lost & (1 << bit) != 0);
        all.extend(lost.map(|bit| Feature { register, bit }));
    }
    all
}

/// Parts of a thread's state, by their bits in XCR0.
pub(super) fn state_name(bit: u32) -> &'static str {
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
    ignored: &'static [u32],
}

impl PartialEq for Register {
    fn eq(&self, other: &Self) -> bool {
        self.label == other.label
    }
}

impl Eq for Register {}

fn bits(list: &[u32]) -> u32 {
    list.iter().fold(0, |bits, bit| bits | 1 << bit)
}

#[rustfmt::skip]
static REGISTERS: [Register; 6] = [
    Register {
        label: "leaf 1 ecx",
        value: |cpu| cpu.leaf_1_ecx,
        names: &[
            (0, "sse3"), (1, "pclmulqdq"), (9, "ssse3"), (12, "fma"), (13, "cx16"),
            (19, "sse4.1"), (20, "sse4.2"), (22, "movbe"), (23, "popcnt"), (25, "aes"),
            (26, "xsave"), (28, "avx"), (29, "f16c"), (30, "rdrand"),
        ],
        ignored: &[2, 3, 4, 5, 6, 7, 8, 10, 11, 14, 15, 16, 17, 18, 21, 24, 27, 31],
    },
    Register {
        label: "leaf 1 edx",
        value: |cpu| cpu.leaf_1_edx,
        names: &[
            (0, "fpu"), (4, "tsc"), (8, "cx8"), (15, "cmov"), (19, "clflush"), (23, "mmx"),
            (24, "fxsr"), (25, "sse"), (26, "sse2"),
        ],
        ignored: &[
            1, 2, 3, 5, 6, 7, 9, 10, 11, 12, 13, 14, 16, 17, 18, 20, 21, 22, 27, 28, 29, 30, 31,
        ],
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
        ignored: &[1, 2, 6, 7, 9, 10, 12, 13, 15, 20, 25],
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
        ignored: &[2, 4, 13, 16, 17, 18, 19, 20, 21, 24, 30, 31],
    },
    Register {
        label: "leaf 7 edx",
        value: |cpu| cpu.leaf_7_edx,
        names: &[
            (2, "avx512_4vnniw"), (3, "avx512_4fmaps"), (5, "uintr"),
            (8, "avx512vp2intersect"), (14, "serialize"), (16, "tsxldtrk"), (20, "ibt"),
            (22, "amx-bf16"), (23, "avx512fp16"), (24, "amx-tile"), (25, "amx-int8"),
        ],
        ignored: &[1, 4, 9, 10, 11, 13, 15, 18, 19, 26, 27, 28, 29, 30, 31],
    },
    Register {
        label: "leaf 7.1 eax",
        value: |cpu| cpu.leaf_7_1_eax,
        names: &[
            (0, "sha512"), (1, "sm3"), (2, "sm4"), (3, "rao-int"), (4, "avxvnni"),
            (5, "avx512bf16"), (7, "cmpccxadd"), (21, "amx-fp16"), (23, "avxifma"),
            (31, "movrs"),
        ],
        ignored: &[6, 8, 10, 11, 12, 17, 18, 19, 20, 22, 26, 27, 30],
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_bit_is_both_named_and_left_out_and_none_is_listed_twice() {
        for register in &REGISTERS {
            let mut seen = 0u32;
            let named = register.names.iter().map(|(bit, _)| bit);
            for bit in named.chain(register.ignored) {
                assert_eq!(seen & (1 << bit), 0, "{} bit {bit}", register.label);
                seen |= 1 << bit;
            }
        }
    }
}
