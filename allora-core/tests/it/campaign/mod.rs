//! Thousands of small worlds in which much goes wrong, each from a seed: machines that join, leave,
//! crash and sleep, wrong clocks, lost requests and replies, outages, operators. Afterwards the
//! books must balance.
//!
//! A failing seed is replayed by `ALLORA_SEED=… cargo test -p allora-core --test it one_seed`, and what is left of
//! it when it has become small by `ALLORA_WORLD=…` beside. `cargo xtask sim` plays as many hours as you like.

mod books;
mod chains;
mod scenario;
mod shrink;

use scenario::{CROWDED, Totals, play};
use shrink::Cut;
use std::{
    env, fs,
    panic::catch_unwind,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

/// Seeds of the ordinary run, and of the long one (`ALLORA_TEST_LONG=1`).
const FEW: u64 = 300;
const MANY: u64 = 10_000;

/// The failing seeds after which a run ends.
const ENOUGH: usize = 5;

/// The worlds of a run.
#[derive(Default)]
struct Played {
    seen: Totals,
    time: Duration,
    worlds: u64,
    failed: Vec<u64>,
}

/// Seeds from the first, until these many or, with `ALLORA_SIM_HOURS`, so many hours of clusters are played; as many
/// worlds at a time as there are processors.
fn worlds(first: u64, seeds: u64, hours: Option<f64>) -> Played {
    let (next, played) = (AtomicU64::new(first), Mutex::new(Played::default()));
    let work = || {
        loop {
            let seed = next.fetch_add(1, Relaxed);
            let world = catch_unwind(|| play(seed, &Cut::NOTHING));
            let mut all = played.lock().unwrap();
            all.worlds += 1;
            match world {
                Ok(world) => {
                    all.seen.add(&world.coverage);
                    all.time += world.time;
                }
                Err(_) => all.failed.push(seed),
            }
            let is_over = match hours {
                Some(hours) => all.time.as_secs_f64() >= hours * 3_600.0,
                None => next.load(Relaxed) >= first + seeds,
            };
            if is_over || all.failed.len() >= ENOUGH {
                return;
            }
        }
    };
    // The tests of an ordinary run have the other processors.
    let threads = hours.map_or(1, |_| thread::available_parallelism().map_or(1, usize::from));
    thread::scope(|scope| {
        (0..threads).for_each(|_| drop(scope.spawn(work)));
    });
    played.into_inner().unwrap()
}

#[test]
#[expect(clippy::print_stderr, reason = "a chore shows what it did")]
fn whatever_happens_the_books_balance() {
    let long = env::var_os("ALLORA_TEST_LONG").is_some();
    let seeds = if long { MANY } else { FEW };
    let hours = env::var("ALLORA_SIM_HOURS").ok();
    let hours = hours.map(|text| text.parse().expect("ALLORA_SIM_HOURS is a number"));
    let first = if hours.is_some() { seed() } else { 0 };
    let Played { seen, time, worlds, failed } = worlds(first, seeds, hours);
    let small: Vec<String> = failed
        .iter()
        .map(|seed| {
            let least = Cut::smallest(|cut| catch_unwind(|| play(*seed, cut)).is_err());
            format!("ALLORA_SEED={seed} ALLORA_WORLD='{least}' cargo test -p allora-core --all-features --test it one_seed")
        })
        .collect();
    assert!(failed.is_empty(), "replay the smallest failing worlds:\n{}", small.join("\n"));
    let hours = time.as_secs_f64() / 3_600.0;
    eprintln!("{worlds} worlds from seed {first}, {hours:.1} h: {seen:?}");
    if let Some(file) = env::var_os("ALLORA_SIM_RESULT") {
        let (runs, seconds) = (seen.runs(), processor_time());
        let told = format!(
            "{{\"seed\": {first}, \"worlds\": {worlds}, \"hours\": {hours:.1}, \"runs\": {runs}, \
             \"processor_seconds\": {seconds}}}\n"
        );
        fs::write(file, told).unwrap();
    }
    seen.assert_goals(worlds);
}

/// The processor's time of this process in seconds, where the system tells it as Linux does: in hundredths, in the
/// fields 14 and 15; the second, the name, may have blanks.
fn processor_time() -> u64 {
    let told = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after_name = told.rsplit(')').next().unwrap_or_default();
    let ticks = after_name.split_whitespace().skip(11).take(2);
    ticks.filter_map(|ticks| ticks.parse::<u64>().ok()).sum::<u64>() / 100
}

/// The seed of `ALLORA_SEED`, or 0.
fn seed() -> u64 {
    let seed = env::var("ALLORA_SEED").ok();
    seed.map_or(0, |text| text.parse().expect("ALLORA_SEED is a number"))
}

/// The seed of `ALLORA_SEED`, or 0; of it what `ALLORA_WORLD` leaves.
#[test]
fn one_seed() {
    play(seed(), &Cut::of_environment());
}

#[test]
fn a_crowd_shares_requests_and_its_books_balance() {
    play(CROWDED, &Cut::NOTHING);
}

#[test]
fn a_seed_plays_alike_every_time() {
    for seed in (0..FEW).step_by(23) {
        let traces = [0; 2].map(|_| play(seed, &Cut::NOTHING).trace);
        assert_eq!(traces[0], traces[1], "seed {seed}");
    }
}

/// Seeds that have found a defect once.
#[test]
fn seeds_of_the_past() {
    for seed in PAST {
        play(*seed, &Cut::NOTHING);
    }
}

const PAST: &[u64] = &[1_001_632, 1_001_803, 1_000_008_161];
