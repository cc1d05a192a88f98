//! Registers that hold values while a thread is stopped in a loop without a call.
//!
//! Written in assembly, so that the registers are known.

use crate::point::{save_point, until};
use std::{
    arch::asm,
    sync::atomic::{AtomicU32, Ordering::SeqCst},
    thread,
};

/// The programs of this file.
pub const PROGRAMS: &[(&str, fn())] = &[
    ("general_registers", general_registers),
    ("vector_registers", vector_registers),
    ("wide_vector_registers", wide_vector_registers),
    ("floating_point_state", floating_point_state),
];

/// 1: the values are in the registers. 2: the registers may be checked.
static STEP: AtomicU32 = AtomicU32::new(0);

/// Saves while another thread is in the loop of `hold`, which returns the final values of the
/// registers.
fn while_held<T: Send + 'static>(hold: impl FnOnce() -> T + Send + 'static) -> T {
    let thread = thread::spawn(hold);
    until("the values are in place", || STEP.load(SeqCst) == 1);
    save_point();
    STEP.store(2, SeqCst);
    thread.join().expect("it ends")
}

fn step() -> *mut u32 {
    STEP.as_ptr()
}

fn general_registers() {
    let held = while_held(|| {
        let mut found = [0u64; 8];
        // SAFETY: writes `found`, and the step, which is an atomic.
        unsafe {
            asm!(
                "mov r8, 0x1111111111111111", "mov r9, 0x2222222222222222",
                "mov r10, 0x3333333333333333", "mov r11, 0x4444444444444444",
                "mov r12, 0x5555555555555555", "mov r13, 0x6666666666666666",
                "mov r14, 0x7777777777777777", "mov r15, 0x8888888888888888",
                "mov dword ptr [{step}], 1",
                "2:", "cmp dword ptr [{step}], 2", "jne 2b",
                "mov [{to}], r8", "mov [{to} + 8], r9", "mov [{to} + 16], r10",
                "mov [{to} + 24], r11", "mov [{to} + 32], r12", "mov [{to} + 40], r13",
                "mov [{to} + 48], r14", "mov [{to} + 56], r15",
                step = in(reg) step(), to = in(reg) found.as_mut_ptr(),
                out("r8") _, out("r9") _, out("r10") _, out("r11") _,
                out("r12") _, out("r13") _, out("r14") _, out("r15") _,
            );
        }
        found
    });
    for (n, value) in (1u64..).zip(held) {
        assert_eq!(value, n * 0x1111_1111_1111_1111);
    }
}

/// 16 registers of 32 bytes.
fn vector_registers() {
    if !is_x86_feature_detected!("avx2") {
        return println!("note: this processor has no AVX2");
    }
    let values: [u8; 512] = std::array::from_fn(|at| (at * 7 + at / 256) as u8);
    let held = while_held(move || {
        let mut found = [0u8; 512];
        // SAFETY: reads `values`, writes `found` and the step; the processor has the registers.
        unsafe {
            asm!(
                ".irp n, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15",
                "vmovdqu ymm\\n, [{from} + 32 * \\n]",
                ".endr",
                "mov dword ptr [{step}], 1",
                "2:", "cmp dword ptr [{step}], 2", "jne 2b",
                ".irp n, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15",
                "vmovdqu [{to} + 32 * \\n], ymm\\n",
                ".endr",
                "vzeroupper",
                from = in(reg) values.as_ptr(), to = in(reg) found.as_mut_ptr(),
                step = in(reg) step(),
                out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _,
                out("xmm4") _, out("xmm5") _, out("xmm6") _, out("xmm7") _,
                out("xmm8") _, out("xmm9") _, out("xmm10") _, out("xmm11") _,
                out("xmm12") _, out("xmm13") _, out("xmm14") _, out("xmm15") _,
            );
        }
        found
    });
    assert_eq!(held, values);
}

/// 32 registers of 64 bytes, where the processor has them.
fn wide_vector_registers() {
    if !is_x86_feature_detected!("avx512f") {
        save_point();
        return println!("note: this processor has no AVX-512");
    }
    let values: [u8; 2048] = std::array::from_fn(|at| (at * 5 + at / 256) as u8);
    let held = while_held(move || {
        let (mut found, mut mask) = ([0u8; 2048], 0u32);
        // SAFETY: reads `values`, writes `found` and the step; the processor has the registers.
        // Code that is compiled for any processor uses neither the upper registers nor the masks.
        unsafe {
            asm!(
                ".irp n, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15",
                "vmovdqu64 zmm\\n, [{from} + 64 * \\n]",
                ".endr",
                ".irp n, 16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31",
                "vmovdqu64 zmm\\n, [{from} + 64 * \\n]",
                ".endr",
                "mov {mask:e}, 0xa5a5", "kmovw k3, {mask:e}", "xor {mask:e}, {mask:e}",
                "mov dword ptr [{step}], 1",
                "2:", "cmp dword ptr [{step}], 2", "jne 2b",
                ".irp n, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15",
                "vmovdqu64 [{to} + 64 * \\n], zmm\\n",
                ".endr",
                ".irp n, 16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31",
                "vmovdqu64 [{to} + 64 * \\n], zmm\\n",
                ".endr",
                "kmovw {mask:e}, k3",
                "vzeroupper",
                from = in(reg) values.as_ptr(), to = in(reg) found.as_mut_ptr(),
                step = in(reg) step(), mask = inout(reg) mask,
                out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _,
                out("xmm4") _, out("xmm5") _, out("xmm6") _, out("xmm7") _,
                out("xmm8") _, out("xmm9") _, out("xmm10") _, out("xmm11") _,
                out("xmm12") _, out("xmm13") _, out("xmm14") _, out("xmm15") _,
            );
        }
        (found, mask)
    });
    assert_eq!(held, (values, 0xa5a5));
}

/// The rounding mode, and numbers on the x87 stack.
fn floating_point_state() {
    let held = while_held(|| {
        let (control, vector): (u16, u32) = (0x0a7f, 0x9f80 | 0x6000);
        let (mut control_found, mut vector_found) = (0u16, 0u32);
        let (mut one, mut pi) = (0f64, 0f64);
        let (plain, plain_vector): (u16, u32) = (0x037f, 0x1f80);
        // SAFETY: writes its operands; the default settings are restored at its end.
        unsafe {
            asm!(
                "fldcw [{control}]", "ldmxcsr [{vector}]", "fld1", "fldpi",
                "mov dword ptr [{step}], 1",
                "2:", "cmp dword ptr [{step}], 2", "jne 2b",
                "fstp qword ptr [{pi}]", "fstp qword ptr [{one}]",
                "fnstcw [{control_found}]", "stmxcsr [{vector_found}]",
                "fldcw [{plain}]", "ldmxcsr [{plain_vector}]",
                control = in(reg) &raw const control, vector = in(reg) &raw const vector, step = in(reg) step(),
                pi = in(reg) &raw mut pi, one = in(reg) &raw mut one,
                control_found = in(reg) &raw mut control_found,
                vector_found = in(reg) &raw mut vector_found,
                plain = in(reg) &raw const plain, plain_vector = in(reg) &raw const plain_vector,
                out("st(0)") _, out("st(1)") _,
            );
        }
        (control_found, vector_found, one, pi)
    });
    // Rounded up to 53 bits, as the control word says.
    let pi = f64::from_bits(std::f64::consts::PI.to_bits() + 1);
    assert_eq!(held, (0x0a7f, 0xff80, 1.0, pi));
}
