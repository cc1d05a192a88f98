//! Obstacles to a restore on another host.

use vm_image::{
    format::{Facts, Prefix, X86_64},
    inspect::{Host, Obstacle, compare},
};

use crate::made::Made;

#[test]
fn this_host_is_described_correctly() {
    let here = Host::here();
    assert_eq!(here.machine, X86_64);
    // Every processor of this architecture has this feature.
    assert_ne!(here.cpu.leaf_1_edx & (1 << 26), 0);
    assert!(here.page_size >= 4096 && here.page_size.is_power_of_two());
    assert!(!here.kernel.is_empty());
    let avx2 = std::arch::is_x86_feature_detected!("avx2");
    let parts = here.cpu.xcr0 & 6 == 6;
    assert_eq!(avx2, here.cpu.leaf_7_ebx & (1 << 5) != 0 && parts);
}

#[test]
fn an_image_of_this_host_has_no_obstacle() {
    let here = Host::here();
    let mut facts = Made::small().facts;
    facts.cpu = here.cpu;
    let prefix = Prefix::new(here.machine, here.page_size);
    assert_eq!(compare(&prefix, &facts, &here), []);
}

#[test]
fn each_missing_feature_is_named_and_hidden_bits_are_not() {
    let mut here = Host::here();
    (here.machine, here.page_size) = (X86_64, 4096);
    here.cpu = Default::default();
    let mut facts = Made::small().facts;
    // Leaf 1: SSE 4.2 and AVX are features; virtualisation, OSXSAVE and the hypervisor bit are not.
    facts.cpu.leaf_1_ecx = 1 << 20 | 1 << 28 | 1 << 5 | 1 << 27 | 1 << 31;
    facts.cpu.leaf_7_ebx = 1 << 5 | 1 << 16 | 1 << 22;
    facts.cpu.leaf_7_1_eax = 1 << 4;
    facts.cpu.xcr0 = 7 | 1 << 18;
    let names = |facts: &Facts, here: &Host| -> Vec<String> {
        compare(&Prefix::new(X86_64, 4096), facts, here)
            .iter()
            .map(|obstacle| match obstacle {
                Obstacle::Feature(feature) => feature.to_string(),
                Obstacle::State { bit } => format!("state {bit}"),
                other => panic!("{other}"),
            })
            .collect()
    };
    let all = [
        "sse4.2",
        "avx",
        "avx2",
        "avx512f",
        "leaf 7 ebx bit 22",
        "avxvnni",
        "state 0",
        "state 1",
        "state 2",
        "state 18",
    ];
    assert_eq!(names(&facts, &here), all);
    here.cpu = facts.cpu;
    (facts.cpu.xsave_len, facts.cpu.xsave_check) = here.layout.of(facts.cpu.xcr0);
    here.cpu.leaf_7_ebx = u32::MAX;
    here.cpu.leaf_1_ecx &= !(1 << 28);
    assert_eq!(names(&facts, &here), ["avx"]);
}

#[test]
fn other_page_sizes_and_architectures_are_obstacles() {
    let mut here = Host::here();
    (here.machine, here.page_size) = (X86_64, 4096);
    let mut facts = Made::small().facts;
    facts.cpu = here.cpu;
    let found = compare(&Prefix::new(X86_64, 16384), &facts, &here);
    let (image, page) = (16384, 4096);
    assert_eq!(found, [Obstacle::PageSize { image, here: page }]);
    assert_eq!(
        found[0].to_string(),
        "this host has pages of 4096 bytes, the image's had 16384: choose a host, or boot a \
         kernel, with pages of 16384 bytes"
    );
    here.machine = 0;
    let found = compare(&Prefix::new(X86_64, 4096), &facts, &here);
    assert_eq!(found, [Obstacle::OtherArchitecture]);
}

#[test]
fn the_user_of_an_image_decides_who_may_restore_it() {
    let mut here = Host::here();
    let mut facts = Made::small().facts;
    facts.cpu = here.cpu;
    let prefix = Prefix::new(here.machine, here.page_size);
    let mut found = |was: (u32, u32), is: (u32, bool, bool)| {
        (facts.user, facts.group, facts.ordinary) = (was.0, was.0, was.1);
        (
            here.user,
            here.group,
            here.is_ordinary,
            here.may_change_user,
        ) = (is.0, is.0, is.1, is.2);
        compare(&prefix, &facts, &here)
    };
    let (root, user) = ((0, false, true), (1000, true, false));
    assert_eq!(found((0, 0), root), []);
    assert_eq!(found((1000, 0), root), []);
    assert_eq!(found((1000, 1), user), []);
    assert_eq!(found((1001, 1), user), []);
    let (group, here) = (0, 1000);
    assert_eq!(
        found((0, 0), user),
        [Obstacle::User {
            user: 0,
            group,
            here
        }]
    );
    assert_eq!(found((1001, 0), user).len(), 1);
}

#[test]
fn another_layout_of_registers_is_an_obstacle_of_its_own() {
    let here = Host::here();
    let mut facts = Made::small().facts;
    facts.cpu = here.cpu;
    facts.cpu.xsave_check ^= 1;
    let found = compare(&Prefix::new(here.machine, here.page_size), &facts, &here);
    assert_eq!(found, [Obstacle::Layout]);
    let text = found[0].to_string();
    assert!(
        text.contains("keeps the registers of threads at other places"),
        "{text}"
    );
}
