//! The measurements of a report, in the order in which each round makes them.

use std::fmt;

/// The size of a report.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Size {
    pub(super) is_quick: bool,
    /// The number of schedules of the sustained load.
    pub(super) sustained: u64,
}

impl Size {
    pub(super) const QUICK: Self = Self { is_quick: true, sustained: 20_000 };
    pub(super) const FULL: Self = Self { is_quick: false, sustained: 100_000 };

    /// The default number of rounds.
    pub(super) fn rounds(self) -> u32 {
        if self.is_quick { 1 } else { 5 }
    }

    /// The numbers of other stored schedules. None are measured beside the most, because their rates
    /// are compared.
    pub(super) fn stored(self) -> &'static [u64] {
        if self.is_quick { &[1_000, 0, 100_000] } else { &[1_000, 10_000, 100_000, 0, 1_000_000] }
    }

    /// The number of other stored schedules that the target is about.
    pub(super) fn most_stored(self) -> u64 {
        self.stored().iter().copied().max().unwrap_or_default()
    }

    /// The number of jobs in memory that are due once a year.
    pub(super) fn idle(self) -> u64 {
        if self.is_quick { 100_000 } else { 1_000_000 }
    }

    pub(super) fn seconds_of_lateness(self) -> u64 {
        if self.is_quick { 4 } else { 8 }
    }

    pub(super) fn seconds_of_timers(self) -> u64 {
        if self.is_quick { 4 } else { 8 }
    }
}

/// The program that makes a measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Program {
    /// `benches/benches/measure`.
    Measure,
    /// `benches/benches/scheduling`.
    Scheduling,
    /// `benches/peers`.
    Peers,
}

/// One measurement.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Cell {
    pub(super) program: Program,
    /// The words after the program's name.
    pub(super) words: Vec<String>,
    /// The store whose server it needs; `memory` and `sqlite` have none.
    pub(super) store: &'static str,
    /// Later rounds do not make it.
    most_rounds: u32,
}

impl Cell {
    fn new(program: Program, store: &'static str, words: &[&dyn fmt::Display]) -> Self {
        let words = words.iter().map(|word| word.to_string()).collect();
        Self { program, words, store, most_rounds: LONG_ROUNDS }
    }

    /// A rate, which varies more from round to round, and takes a few seconds.
    fn rate(store: &'static str, words: &[&dyn fmt::Display]) -> Self {
        Self { most_rounds: u32::MAX, ..Self::new(Program::Measure, store, words) }
    }

    /// The text by which its figures are found.
    pub(super) fn key(&self) -> String {
        match self.program {
            Program::Measure => self.words.join(" "),
            Program::Scheduling => format!("timers {}", self.words.join(" ")),
            Program::Peers => format!("peers {}", self.words.join(" ")),
        }
    }

    /// True if the round, counted from 0, makes it.
    pub(super) fn is_in(&self, round: u32) -> bool {
        round < self.most_rounds
    }
}

/// The stores with a raw limit, a peer and all numbers of nodes.
pub(super) const MAIN: [&str; 2] = ["postgres", "redis"];
/// The stores that are measured with one node and with four.
pub(super) const OTHERS: [&str; 3] = ["mysql", "sqlite", "etcd"];
pub(super) const NODES: [u64; 4] = [1, 2, 4, 8];
pub(super) const ONE_AND_FOUR: [u64; 2] = [1, 4];
pub(super) const BURSTS: [u64; 2] = [1_000, 7_000];
/// The batch, which is the concurrency of a worker, with the number of schedules that is run by it.
pub(super) const BATCHES: [(u64, u64); 4] = [(1, 200), (10, 1_000), (100, 4_000), (1_000, 7_000)];
/// The concurrency of a worker, unless the batch is what is asked about.
pub(super) const BATCH: u64 = 1_000;
pub(super) const LATE_NODES: u64 = 3;
/// The jobs in code at the instant for which a node was killed.
pub(super) const KILLED_JOBS: u64 = 100;
/// The stored schedules that are listed and reconciled.
pub(super) const LISTED: u64 = 100_000;
/// The jobs in memory that are due at one instant.
pub(super) const TIMERS: [u64; 2] = [10_000, 100_000];
pub(super) const SCHEDULERS: [&str; 2] = ["bare-heap-loop", "allora"];
/// The task queues that have one store.
pub(super) const QUEUES: [&str; 2] = ["graphile_worker", "fang"];
/// Their store, and that of the schedules that tick on several processes.
pub(super) const QUEUE_STORE: &str = "postgres";
/// Schedules that are due every second: by words of `benches/benches/measure`, and by a peer.
const TICKING: [&str; 3] = ["tick-jobs", "tick-schedules", "durare"];
/// The numbers of these schedules. On a loaded machine the peer did not keep up with the larger one.
const TICKING_SCHEDULES: [u64; 2] = [100, 1_000];
const TICKING_SECONDS: u64 = 10;
/// Losses and duplicates are counted, not timed, and each of these measurements takes 15 s.
const TICKING_ROUNDS: u32 = 1;
/// Each of the other measurements that are no rate of allora takes up to half a minute.
const LONG_ROUNDS: u32 = 3;

/// All measurements on these stores.
pub(super) fn cells(size: Size, stores: &[String], with_peers: bool) -> Vec<Cell> {
    let has = |store: &str| stores.iter().any(|known| known == store);
    let mut cells = Vec::new();
    for store in MAIN.into_iter().filter(|store| has(store)) {
        main_store(size, store, with_peers, &mut cells);
    }
    for store in OTHERS.into_iter().filter(|store| has(store)) {
        for nodes in ONE_AND_FOUR {
            cells.push(workers(store, nodes, BURSTS[1], BATCH));
            cells.push(with_history(store, nodes, BURSTS[1]));
        }
    }
    for store in MAIN.into_iter().chain(OTHERS).filter(|store| has(store)) {
        let seconds = size.seconds_of_lateness();
        let words: [&dyn fmt::Display; 4] = [&"late", &store, &LATE_NODES, &seconds];
        cells.push(Cell::new(Program::Measure, store, &words));
        let words: [&dyn fmt::Display; 3] = [&"lists", &store, &LISTED];
        cells.push(Cell::new(Program::Measure, store, &words));
    }
    for (load, jobs) in timers(size).into_iter().filter(|_| has("memory")) {
        for scheduler in SCHEDULERS {
            let seconds = size.seconds_of_timers();
            let words: [&dyn fmt::Display; 4] = [&scheduler, &load, &jobs, &seconds];
            cells.push(Cell::new(Program::Scheduling, "memory", &words));
        }
    }
    if with_peers && has(QUEUE_STORE) {
        cells.extend(queues(size));
        cells.extend(ticking().iter().map(Ticking::cell));
    }
    cells
}

/// The bursts that a queue with one store works off.
pub(super) fn queue_loads(size: Size, queue: &str) -> Vec<u64> {
    match queue {
        // Each of its fetches sorts all tasks that wait: more of them take minutes.
        "fang" => vec![BURSTS[0]],
        _ => vec![BURSTS[1], size.sustained],
    }
}

fn queues(size: Size) -> impl Iterator<Item = Cell> {
    let cell = |queue: &str, nodes: u64, count: u64| {
        Cell::new(Program::Peers, QUEUE_STORE, &[&queue, &nodes, &count])
    };
    let of = move |queue, count| ONE_AND_FOUR.map(|nodes| cell(queue, nodes, count));
    let loads = move |queue| queue_loads(size, queue).into_iter();
    QUEUES.into_iter().flat_map(move |queue| loads(queue).flat_map(move |n| of(queue, n)))
}

/// Schedules that are due every second on three processes, one of which may be killed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ticking {
    pub(super) system: &'static str,
    pub(super) schedules: u64,
    pub(super) is_killed: bool,
}

/// All of these measurements.
pub(super) fn ticking() -> Vec<Ticking> {
    let of = |is_killed, schedules| TICKING.map(|system| Ticking { system, schedules, is_killed });
    let sizes = |is_killed| TICKING_SCHEDULES.into_iter().flat_map(move |n| of(is_killed, n));
    [false, true].into_iter().flat_map(sizes).collect()
}

impl Ticking {
    pub(super) fn cell(&self) -> Cell {
        let killed = u64::from(self.is_killed);
        let numbers: [&dyn fmt::Display; 3] = [&self.schedules, &TICKING_SECONDS, &killed];
        let cell = if self.system.starts_with("tick-") {
            let words = [&[&self.system as &dyn fmt::Display, &QUEUE_STORE][..], &numbers].concat();
            Cell::new(Program::Measure, QUEUE_STORE, &words)
        } else {
            let words = [&[&self.system as &dyn fmt::Display][..], &numbers].concat();
            Cell::new(Program::Peers, QUEUE_STORE, &words)
        };
        Cell { most_rounds: TICKING_ROUNDS, ..cell }
    }
}

/// The loads in memory: all jobs at one instant every second, and all once a year.
pub(super) fn timers(size: Size) -> [(&'static str, u64); 3] {
    let [few, many] = TIMERS.map(|jobs| ("at-once", jobs));
    [few, many, ("idle", size.idle())]
}

fn main_store(size: Size, store: &'static str, with_peers: bool, cells: &mut Vec<Cell>) {
    for nodes in NODES {
        for count in BURSTS {
            cells.push(workers(store, nodes, count, BATCH));
            if with_peers && ONE_AND_FOUR.contains(&nodes) {
                cells.push(Cell::new(Program::Peers, store, &[&store, &nodes, &count]));
            }
        }
        if !size.is_quick || ONE_AND_FOUR.contains(&nodes) {
            cells.push(workers(store, nodes, size.sustained, BATCH));
        }
        if ONE_AND_FOUR.contains(&nodes) {
            cells.push(with_history(store, nodes, size.sustained));
            cells.push(raw(store, nodes, size.sustained, BATCH));
            // More tasks than this at once stop the peer on Redis.
            if with_peers && store == "postgres" {
                let words: [&dyn fmt::Display; 3] = [&store, &nodes, &size.sustained];
                cells.push(Cell::new(Program::Peers, store, &words));
            }
        }
    }
    for (batch, count) in BATCHES {
        if batch != BATCH {
            cells.push(workers(store, 1, count, batch));
        }
        cells.push(raw(store, 1, count, batch));
    }
    for stored in size.stored() {
        let words: [&dyn fmt::Display; 4] = [&"stored", &store, stored, &BURSTS[1]];
        cells.push(Cell::rate(store, &words));
    }
    let words: [&dyn fmt::Display; 3] = [&"killed", &store, &KILLED_JOBS];
    cells.push(Cell::new(Program::Measure, store, &words));
}

fn workers(store: &'static str, nodes: u64, count: u64, batch: u64) -> Cell {
    let words: [&dyn fmt::Display; 5] = [&"workers", &store, &nodes, &count, &batch];
    Cell::rate(store, &words)
}

/// The same on a store that keeps a history; measured behind it, because the two are compared.
fn with_history(store: &'static str, nodes: u64, count: u64) -> Cell {
    let words: [&dyn fmt::Display; 5] = [&"workers-history", &store, &nodes, &count, &BATCH];
    Cell::rate(store, &words)
}

fn raw(store: &'static str, connections: u64, count: u64, batch: u64) -> Cell {
    let words: [&dyn fmt::Display; 5] = [&"raw", &store, &connections, &count, &batch];
    Cell::rate(store, &words)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn all() -> Vec<String> {
        crate::stores::STORES.iter().map(|store| (*store).to_owned()).collect()
    }

    #[test]
    fn no_measurement_is_made_twice_in_a_round() {
        for size in [Size::QUICK, Size::FULL] {
            let cells = cells(size, &all(), true);
            let keys: HashSet<String> = cells.iter().map(Cell::key).collect();
            assert_eq!(keys.len(), cells.len());
        }
    }

    #[test]
    fn only_the_stores_that_were_asked_for_are_measured() {
        let cells = cells(Size::QUICK, &["redis".to_owned()], false);
        assert!(!cells.is_empty());
        assert!(cells.iter().all(|cell| cell.store == "redis" && cell.program == Program::Measure));
    }

    #[test]
    fn the_rate_with_no_other_schedules_is_measured_next_to_that_with_the_most() {
        for size in [Size::QUICK, Size::FULL] {
            let cells = cells(size, &["redis".to_owned()], false);
            let [none, most] = [0, size.most_stored()].map(|stored| {
                let key = format!("stored redis {stored} {}", BURSTS[1]);
                cells.iter().position(|cell| cell.key() == key).unwrap()
            });
            assert_eq!(none + 1, most);
        }
    }

    #[test]
    fn every_round_measures_the_rates_and_the_first_one_everything() {
        let cells = cells(Size::FULL, &all(), true);
        assert!(cells.iter().all(|cell| cell.is_in(0)));
        for cell in &cells {
            let is_rate =
                ["workers", "workers-history", "raw", "stored"].contains(&&*cell.words[0]);
            assert_eq!(cell.is_in(Size::FULL.rounds() - 1), is_rate, "{}", cell.key());
        }
    }
}
