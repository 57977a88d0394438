//! Each target on its seeds and on mutations of them.

use allora_conformance::mutations;
use allora_fuzz::{TARGETS, Target};

/// The mutations of each target. libFuzzer tries millions: `cargo xtask fuzz`.
const MUTATIONS: usize = 500;

#[test]
fn every_target_keeps_its_promises_on_its_seeds_and_on_mutations_of_them() {
    let failed: Vec<String> = TARGETS.iter().flat_map(failures).collect();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

fn failures(target: &Target) -> Vec<String> {
    let seeds = target.seeds();
    let inputs = mutations(&seeds, 38, seeds.len() + MUTATIONS);
    let fails = |input: &Vec<u8>| std::panic::catch_unwind(|| (target.run)(input)).is_err();
    let shown = |input: Vec<u8>| format!("{}: {:?}", target.name, String::from_utf8_lossy(&input));
    inputs.filter(fails).map(shown).collect()
}
