//! A store that loses every record: what was under way is run again, at least once, and never at most
//! once.

use crate::support::{Lab, Member, Over, Rates, Seat, Switched, at, ms, secs};
use allora_core::{
    Backend, Runtime, SchedulerBuilder, Schedules, StoredSchedule,
    backend::{HistoryEntry, HistoryQuery},
    every,
};
use std::collections::BTreeSet;

const JOBS: usize = 20;

fn start(
    lab: &Lab,
    store: &Switched,
    build: impl FnOnce(&Seat, SchedulerBuilder) -> SchedulerBuilder,
) -> Member {
    let seat = lab.seat(lab.sim.node());
    let builder = build(&seat, seat.builder_on(store.clone()));
    seat.run(builder.build().unwrap())
}

fn new(seed: u64) -> (Lab, Switched) {
    let lab = Lab::new(seed);
    let clock = lab.clock();
    let store = Switched::new(move || clock.wall());
    (lab, store)
}

/// The present history, the oldest entry first.
fn entries(lab: &Lab, store: &Switched) -> Vec<HistoryEntry> {
    let memory = store.memory();
    let entries = Backend::history(&memory).unwrap().entries(HistoryQuery::new(usize::MAX));
    let mut entries = lab.sim.block_on(entries).unwrap();
    entries.reverse();
    entries
}

#[test]
fn at_least_once_runs_under_way_are_run_again_when_the_store_is_emptied() {
    for (nodes, takes) in [(1, 4_000), (3, 4_000), (3, 1_500), (3, 12_000)] {
        for seed in 0..5 {
            let (lab, store) = new(seed);
            for _ in 0..nodes {
                start(&lab, &store, |seat, b| {
                    (0..JOBS).fold(b, |b, n| {
                        let job = seat.job(every(secs(10)).phase(ms(0)), ms(takes));
                        b.add(format!("job{n}"), job.at_least_once(secs(6)))
                    })
                });
            }
            lab.until(51.0);
            store.empty();
            lab.until(120.0);
            let ended = entries(&lab, &store);
            let at_50: BTreeSet<_> = ended
                .iter()
                .filter(|entry| {
                    let covers = entry.last.is_some_and(|last| last >= at(50.0));
                    entry.outcome.is_final()
                        && (entry.occurrence.scheduled_at == at(50.0)
                            || (entry.occurrence.scheduled_at < at(50.0) && covers))
                })
                .map(|entry| entry.name.clone())
                .collect();
            let lost = JOBS - at_50.len();
            assert_eq!(lost, 0, "{lost} of {JOBS} runs were lost: {nodes} nodes, {takes} ms");
        }
    }
}

#[test]
fn no_at_most_once_occurrence_runs_twice_when_the_store_is_emptied() {
    for seed in 0..10 {
        let (lab, store) = new(seed);
        for _ in 0..3 {
            start(&lab, &store, |seat, b| {
                (0..JOBS).fold(b, |b, n| {
                    let job = seat.job(every(secs(10)).phase(ms(0)), ms(3_000));
                    b.add(format!("job{n}"), job)
                })
            });
        }
        lab.until(50.0 + 0.01 * seed as f64);
        store.empty();
        lab.until(119.0);
        for n in 0..JOBS {
            let mut ran = lab.ran(&format!("job{n}"));
            let runs = ran.len();
            ran.sort_by(f64::total_cmp);
            ran.dedup();
            assert_eq!(ran.len(), runs, "job{n}, seed {seed}");
            assert!(ran.ends_with(&[70.0, 80.0, 90.0, 100.0, 110.0]), "job{n}: {ran:?}");
        }
    }
}

#[test]
fn stored_schedules_that_are_gone_with_the_store_are_named() {
    let (lab, store) = new(1);
    let member = start(&lab, &store, |seat, b| b.kind("t", seat.handler(secs(5), |_| Ok(()))));
    let schedules = Schedules::on(store.clone(), lab.clock()).unwrap();
    for name in ["active", "deleted", "resting"] {
        let schedule = if name == "resting" { "@every 1h" } else { "@every 10s" };
        let stored = StoredSchedule::new(name, "t", schedule);
        lab.sim.block_on(schedules.add(&stored)).unwrap();
    }
    lab.until(11.0);
    lab.sim.block_on(schedules.delete("deleted")).unwrap();
    lab.until(21.0);
    store.empty();
    lab.until(60.0);
    let events = member.events();
    let lost: Vec<_> = events
        .iter()
        .filter(|event| matches!(event, allora_core::Event::ScheduleLost { .. }))
        .filter_map(|event| event.job())
        .collect();
    assert_eq!(lost, ["active"]);
}

/// Random worlds: lost replies, delays, runs of any length, and a store that is emptied three times.
#[test]
fn every_walk_through_emptied_stores_accounts_for_what_was_under_way() {
    for seed in 0..30 {
        let (lab, store) = new(seed);
        let dice = lab.sim.node();
        let draw = |below: u64| dice.random() % below;
        for _ in 0..3 {
            start(&lab, &store, |seat, b| {
                let rates = Rates { lose_reply: 50, delay: 300, delay_ms: 300, ..Rates::default() };
                seat.rates(rates);
                (0..6).fold(b, |b, n| {
                    let job = || {
                        let schedule = every(secs(5 + n)).phase(ms(0));
                        seat.job(schedule, ms(700 * n))
                    };
                    b.add(format!("once{n}"), job())
                        .add(format!("leased{n}"), job().at_least_once(secs(6)))
                })
            });
        }
        let mut history = Vec::new();
        let mut second = 20.0;
        for _ in 0..3 {
            second += 10.0 + draw(20_000) as f64 / 1_000.0;
            lab.until(second);
            history.extend(entries(&lab, &store));
            store.empty();
        }
        lab.until(second + 120.0);
        history.extend(entries(&lab, &store));
        for n in 0..6 {
            let once = lab.log.of(&format!("once{n}"));
            let distinct: BTreeSet<_> = once.iter().map(|run| run.at).collect();
            assert_eq!(distinct.len(), once.len(), "seed {seed}: once{n} ran twice");
            let name = format!("leased{n}");
            let runs = lab.log.of(&name);
            let late = at(second + 120.0 - 2.0 * (5 + n) as f64 - 10.0);
            assert!(runs.last().is_some_and(|run| run.at >= late), "seed {seed}: {name} stands");
            for run in &runs {
                let ended = |other: &crate::support::Entry| {
                    other.at == run.at && other.ended.is_none_or(|(_, over)| over == Over::Ran)
                };
                let recorded = |entry: &&HistoryEntry| {
                    let first = entry.occurrence.scheduled_at;
                    entry.name == name
                        && entry.outcome.is_final()
                        && (first..=entry.last.unwrap_or(first)).contains(&run.at)
                };
                assert!(
                    runs.iter().any(ended) || history.iter().any(|entry| recorded(&entry)),
                    "seed {seed}: {name} of {} was lost",
                    run.at
                );
            }
        }
    }
}
