//! Mutex groups: one run at a time, on all nodes, whatever happens to them.

use crate::support::{Entry, Lab, Member, Over, Rates, at, ms, secs};
use allora_core::{Event, Scheduler, StoredSchedule, Time, at as once, backend::Action, every};
use std::sync::atomic::Ordering::Relaxed;

/// The record of the group that all these tests use.
const LOCK: &str = "allora:mutex:g";

/// That no two runs of these jobs were at once; answers with the runs, in their order.
#[track_caller]
fn one_at_a_time(lab: &Lab, jobs: &[&str], what: &str) -> Vec<Entry> {
    let mut runs: Vec<Entry> = jobs.iter().flat_map(|job| lab.log.of(job)).collect();
    runs.sort_by_key(|run| run.began);
    for pair in runs.windows(2) {
        let ended = pair[0].ended.map(|(at, _)| at);
        assert!(ended.is_some_and(|ended| ended <= pair[1].began), "{what}: {pair:#?}");
    }
    runs
}

/// A node with one job of the group, that first runs then.
fn one(lab: &Lab, name: &'static str, first: f64, takes: u64) -> Member {
    lab.start(|seat, b| {
        let job = seat.job(once(at(first)), secs(takes));
        b.add(name, job.at_least_once(secs(10)).mutex("g"))
    })
}

fn began(lab: &Lab, job: &str) -> Vec<Time> {
    lab.log.of(job).into_iter().map(|run| run.began).collect()
}

#[test]
fn the_runs_of_a_group_are_one_at_a_time_and_all_of_them_run() {
    for seed in 0..10 {
        let lab = Lab::new(seed);
        for _ in 0..3 {
            lab.start(|seat, b| {
                let job = |takes| seat.job(every(secs(10)), ms(takes)).mutex("g");
                b.add("a", job(2_000))
                    .add("b", job(3_000).at_least_once(secs(10)))
                    .add("c", job(1_500))
                    .add("free", seat.job(every(secs(10)), ms(9_000)))
            });
        }
        lab.until(309.9);
        let runs = one_at_a_time(&lab, &["a", "b", "c"], &format!("seed {seed}"));
        assert_eq!(runs.len(), 3 * 30, "seed {seed}");
        assert!(runs.iter().all(|run| run.ended.unwrap().1 == Over::Ran), "seed {seed}");
        assert!(
            lab.log.of("free").iter().all(|run| run.began - run.at < chrono::TimeDelta::seconds(1))
        );
        let lock = lab.state(LOCK);
        assert_eq!((lock.counters.succeeded, lock.leases.len()), (90, 0), "seed {seed}");
    }
}

#[test]
fn a_turn_that_ends_is_handed_over_at_once() {
    let lab = Lab::new(1);
    let _members = [one(&lab, "a", 10.0, 30), one(&lab, "b", 11.0, 5)];
    lab.until(60.0);
    assert!(began(&lab, "b")[0] <= at(40.1), "{:?}", began(&lab, "b"));
    assert_eq!(lab.story("b"), ["succeeded 11"]);
}

#[test]
fn a_node_that_dies_in_its_turn_delays_the_others_by_the_lease_at_most() {
    let lab = Lab::new(2);
    let dies = one(&lab, "a", 10.0, 30);
    one(&lab, "b", 11.0, 5);
    lab.until(25.0);
    dies.node.crash();
    lab.until(60.0);
    let began = began(&lab, "b")[0];
    assert!(at(25.0) <= began && began <= at(36.0), "{began}");
    assert_eq!(lab.state(LOCK).counters.expired, 1);
}

#[test]
fn a_frozen_node_is_out_of_its_turn_when_it_wakes() {
    let lab = Lab::new(3);
    let frozen = one(&lab, "a", 10.0, 40);
    one(&lab, "b", 11.0, 5);
    lab.until(15.0);
    frozen.node.pause();
    lab.until(45.0);
    let other = lab.log.of("b")[0].clone();
    assert!(other.began <= at(26.5), "{}", other.began);
    frozen.node.resume();
    lab.until(46.0);
    lab.assert_over("a", 0, at(45.0), Over::Dropped);
    // It runs again, in its turn.
    lab.until(90.0);
    assert_eq!(lab.story("a").last().unwrap(), "succeeded 10");
}

#[test]
fn the_fences_of_a_group_grow_with_its_turns() {
    let lab = Lab::new(4);
    let seen = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    for _ in 0..2 {
        lab.start(|seat, b| {
            let job = |grouped: bool| {
                let seen = seen.clone();
                let job = seat.work(every(secs(10)), secs(1), move |run| {
                    assert_eq!(run.mutex_fence().is_some(), grouped);
                    seen.lock().unwrap().extend(run.mutex_fence());
                    Ok(())
                });
                if grouped { job.mutex("g") } else { job }
            };
            b.add("a", job(true)).add("b", job(true)).add("c", job(false))
        });
    }
    lab.until(55.0);
    let seen = seen.lock().unwrap();
    assert!(seen.len() == 10 && seen.is_sorted_by(|a, b| a < b), "{seen:?}");
}

#[test]
fn a_turn_whose_answer_was_lost_is_asked_for_again() {
    let lab = Lab::new(5);
    let _held = one(&lab, "a", 10.0, 10);
    let deaf = one(&lab, "b", 11.0, 5);
    lab.until(19.9);
    deaf.faults.deaf_to_claims.store(true, Relaxed);
    lab.until(22.0);
    deaf.faults.deaf_to_claims.store(false, Relaxed);
    lab.until(60.0);
    let began = began(&lab, "b")[0];
    // A deadline and a wait later; its lease would end at 30 s.
    assert!(at(22.0) <= began && began <= at(25.0), "{began}");
    assert_eq!(lab.state(LOCK).counters.expired, 0);
    assert!(deaf.faults.lost_claims.load(Relaxed) > 0);
}

#[test]
fn a_turn_whose_answer_was_lost_to_a_node_that_stops_is_given_back() {
    let lab = Lab::new(6);
    let _held = one(&lab, "a", 10.0, 10);
    let deaf = one(&lab, "b", 11.0, 5);
    lab.until(19.9);
    deaf.faults.deaf_to_claims.store(true, Relaxed);
    lab.until(20.5);
    one(&lab, "c", 21.0, 5);
    deaf.handle.stop();
    lab.until(23.0);
    assert_eq!(deaf.stopped(), None, "a held lock must be released");
    deaf.faults.deaf_to_claims.store(false, Relaxed);
    lab.until(26.0);
    assert!(deaf.stopped().is_some() && deaf.faults.lost_claims.load(Relaxed) > 0);
    let began = began(&lab, "c")[0];
    assert!(at(23.0) <= began && began <= at(25.0), "{began}");
}

#[test]
fn what_waits_is_given_back_at_once_when_its_node_stops() {
    for at_most_once in [true, false] {
        let lab = Lab::new(7);
        one(&lab, "a", 10.0, 40);
        let start = || {
            lab.start(|seat, b| {
                let job = seat.job(once(at(11.0)), secs(5)).mutex("g");
                b.add("b", if at_most_once { job } else { job.at_least_once(secs(10)) })
            })
        };
        let stops = start();
        lab.until(20.0);
        stops.handle.stop();
        lab.until(20.5);
        assert_eq!(stops.stopped().map(|it| (it.cancelled, it.unrecorded)), Some((0, 0)));
        assert!(!stops.events().iter().any(|event| matches!(event, Event::Started { .. })));
        start();
        lab.until(60.0);
        assert_eq!(lab.story("b"), ["released 11", "succeeded 11"], "at most once: {at_most_once}");
        assert_eq!(lab.log.of("b")[0].attempt, 1);
    }
}

#[test]
fn a_run_whose_turn_is_gone_is_ended() {
    for at_most_once in [true, false] {
        let lab = Lab::new(8);
        let member = lab.start(|seat, b| {
            let job = seat.job(once(at(10.0)), secs(20)).mutex("g");
            b.lost_after(secs(10))
                .add("a", if at_most_once { job } else { job.at_least_once(secs(10)) })
        });
        lab.until(15.0);
        lab.operate(LOCK, Action::Delete).unwrap();
        lab.until(60.0);
        assert_eq!(lab.log.of("a")[0].ended.unwrap().1, Over::Dropped);
        assert!(member.news().contains(&"LeaseLost".to_owned()), "{:?}", member.news());
        let story: &[&str] =
            if at_most_once { &["failed 10"] } else { &["interrupted 10", "succeeded 10"] };
        assert_eq!(lab.story("a"), story);
    }
}

/// Its own lease is confirmed all the time.
#[test]
fn a_run_whose_turn_is_not_confirmed_is_cancelled_before_it_ends() {
    let lab = Lab::new(9);
    let member = lab.start(|seat, b| {
        *seat.faults.mute.lock().unwrap() = Some(LOCK.to_owned());
        b.add("a", seat.job(once(at(10.0)), secs(60)).at_least_once(secs(30)).mutex("g"))
    });
    lab.until(39.0);
    assert!(member.news().contains(&"LeaseRenewalFailed".to_owned()), "{:?}", member.news());
    assert_eq!(lab.log.of("a")[0].ended, None, "asked to end");
    lab.until(45.0);
    lab.assert_over("a", 0, at(40.0), Over::Dropped);
}

#[test]
fn a_paused_group_waits() {
    let lab = Lab::new(10);
    one(&lab, "a", 10.0, 5);
    one(&lab, "b", 30.0, 5);
    let change = |change| lab.operate(LOCK, change).unwrap();
    lab.until(20.0);
    change(Action::Pause { note: "the tapes are away" });
    lab.until(50.0);
    assert!(began(&lab, "b").is_empty());
    change(Action::Resume { skip: None });
    lab.until(60.0);
    assert_eq!(lab.story("b"), ["succeeded 30"]);
}

#[test]
fn the_time_limit_and_the_delay_that_is_told_count_from_when_the_code_begins() {
    let lab = Lab::new(11);
    one(&lab, "a", 10.0, 30);
    let member = lab.start(|seat, b| {
        let job = seat.job(once(at(11.0)), secs(60));
        b.add("b", job.at_least_once(secs(10)).timeout(secs(7)).mutex("g"))
    });
    lab.until(60.0);
    let run = lab.log.of("b")[0].clone();
    assert_eq!((run.ended.unwrap().0 - run.began).num_seconds(), 7);
    let late = member.events().iter().find_map(|event| match event {
        Event::Started { late, .. } => Some(*late),
        _ => None,
    });
    assert_eq!(late.unwrap().as_secs(), 29);
}

#[test]
fn on_every_node_the_nodes_come_one_after_the_other() {
    let lab = Lab::new(12);
    for _ in 0..3 {
        lab.start(|seat, b| {
            b.add("a", seat.job(every(secs(30)), secs(4)).on_every_node().mutex("g"))
        });
    }
    lab.until(59.0);
    assert_eq!(one_at_a_time(&lab, &["a"], "every node").len(), 3);
}

#[test]
fn stored_schedules_and_jobs_in_code_share_groups() {
    let lab = Lab::new(13);
    lab.start(|seat, b| b.add("a", seat.job(every(secs(10)), secs(4)).mutex("g")));
    lab.start(|seat, b| b.kind("t", seat.handler(secs(4), |_| Ok(()))));
    let schedules = allora_core::Schedules::on(lab.store.clone(), lab.clock()).unwrap();
    let stored = StoredSchedule::new("b", "t", "@every 10s").mutex("g");
    lab.sim.block_on(schedules.add(&stored)).unwrap();
    let error =
        lab.sim.block_on(schedules.add(&StoredSchedule::new(LOCK, "t", "@daily"))).unwrap_err();
    assert!(error.to_string().contains("mutex groups"), "{error}");
    lab.until(109.0);
    assert_eq!(one_at_a_time(&lab, &["a", "b"], "stored").len(), 20);
}

/// A record that is always due, and still no node reads it.
#[test]
fn a_group_costs_nothing_while_nobody_is_in_it() {
    let lab = Lab::new(14);
    let member = one(&lab, "a", 10.0, 1);
    lab.until(100.0);
    let before = member.faults.calls();
    lab.until(600.0);
    // A hundred polls and thirty-four heartbeats.
    assert!(member.faults.calls() - before <= 135, "{} calls", member.faults.calls() - before);
    assert!(lab.state(LOCK).due_at.unwrap() < lab.now());
}

/// A group that is held for long is asked for about once a second by each node, not by each run.
#[test]
fn waiting_does_not_pester_the_store() {
    let lab = Lab::new(15);
    one(&lab, "a", 10.0, 100);
    let waits = lab.start(|seat, b| {
        (0..20).fold(b, |b, n| b.add(format!("w{n}"), seat.job(once(at(11.0)), ms(1)).mutex("g")))
    });
    lab.until(30.0);
    let before = waits.faults.calls();
    lab.until(90.0);
    let calls = waits.faults.calls() - before;
    assert!((60..200).contains(&calls), "{calls} calls");
}

#[test]
fn a_group_needs_a_name_that_is_a_word() {
    let lab = Lab::new(16);
    let build = |name: &str, group: &str| {
        let seat = lab.seat(lab.sim.node());
        let job = seat.job(every(secs(10)), ms(0)).mutex(group);
        let builder = Scheduler::builder(crate::support::Bare(lab.store.clone()));
        let built = builder.runtime(seat.node).add(name, job).build();
        built.map(drop).map_err(|error| error.to_string()).err().unwrap_or_default()
    };
    assert_eq!(build("a", "g"), "");
    assert!(build("a", "g h").contains("without blanks"));
    assert!(build(LOCK, "g").contains("reserved for mutex groups"));
}

/// Requests and answers are lost, late and doubled, and nodes crash: never two at once, nothing is
/// lost that is not said to be, and no group stays taken.
#[test]
fn whatever_is_lost_there_are_never_two_at_once() {
    for seed in 0..40 {
        let lab = Lab::new(seed);
        let rates = Rates {
            lose_request: 60,
            lose_reply: 120,
            refuse: 50,
            double: 50,
            linger: 20,
            delay: 500,
            delay_ms: 200,
        };
        let start = || {
            lab.start(|seat, b| {
                seat.rates(rates);
                let job = |ms_: u64| seat.job(every(secs(12)), ms(ms_)).mutex("g");
                b.lost_after(secs(10))
                    .add("a", job(900).at_least_once(secs(10)))
                    .add("b", job(1_700).at_least_once(secs(10)))
                    .add("c", job(700))
            })
        };
        let mut members = vec![start(), start(), start()];
        lab.until(150.0);
        members.remove((seed % 3) as usize).node.crash();
        lab.until(200.0);
        members.push(start());
        lab.until(400.0);
        members.iter().for_each(|member| member.faults.set(Rates::default()));
        lab.until(460.0);
        let runs = one_at_a_time(&lab, &["a", "b", "c"], &format!("seed {seed}"));
        assert!(runs.len() > 60, "seed {seed}: {} runs", runs.len());
        let last = |job: &str| lab.log.of(job).iter().map(|run| run.at).max().unwrap();
        for job in ["a", "b", "c"] {
            assert!(last(job) >= at(444.0), "seed {seed}: {job} stands at {}", last(job));
        }
        for job in ["a", "b"] {
            let (state, counters) = (lab.state(job), lab.state(job).counters);
            let passed =
                (state.cursor.unwrap().scheduled_at - at(0.0)).num_seconds() as u64 / 12 - 1;
            assert_eq!(counters.succeeded + counters.missed, passed, "seed {seed}: {counters:?}");
        }
    }
}
