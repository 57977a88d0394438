//! Concurrency keys: as many runs as the limit says, on all nodes, whatever happens to them.

use crate::support::{Entry, Lab, Member, Over, Rates, at, ms, secs};
use allora_core::{
    Backend, CatchUp, Condition, Event, Scheduler, StoredSchedule, Time, at as once,
    backend::{Action, Page},
    every,
};
use std::{collections::BTreeMap, sync::atomic::Ordering::Relaxed};

/// The record of the key that most of these tests use.
const KEY: &str = "allora:key:g";

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
        let key = lab.state(KEY);
        assert!(key.leases.is_empty() && key.waiters.is_empty(), "seed {seed}: {key:?}");
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
fn what_waits_is_not_claimed_and_its_node_stops_at_once() {
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
        assert!(!stops.events().iter().any(|event| matches!(event, Event::RunStarted { .. })));
        start();
        lab.until(60.0);
        assert_eq!(lab.story("b"), ["succeeded 11"], "at most once: {at_most_once}");
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
        lab.operate(KEY, Action::Delete).unwrap();
        lab.until(60.0);
        assert_eq!(lab.log.of("a")[0].ended.unwrap().1, Over::Dropped);
        assert!(member.news().contains(&"LeaseLost".to_owned()), "{:?}", member.news());
        let story: &[&str] =
            if at_most_once { &["failed 10"] } else { &["interrupted 10", "succeeded 10"] };
        assert_eq!(lab.story("a"), story);
    }
}

#[test]
fn a_run_whose_turn_is_not_confirmed_is_cancelled_before_it_ends() {
    let lab = Lab::new(9);
    let member = lab.start(|seat, b| {
        b.add("a", seat.job(once(at(10.0)), secs(60)).at_least_once(secs(30)).mutex("g"))
    });
    lab.until(12.0);
    *member.faults.mute.lock().unwrap() = Some(KEY.to_owned());
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
    let change = |change| lab.operate(KEY, change).unwrap();
    lab.until(20.0);
    change(Action::Pause { note: "the tapes are away", until: None });
    lab.until(50.0);
    assert!(began(&lab, "b").is_empty());
    change(Action::Resume);
    lab.until(60.0);
    assert_eq!(lab.story("b"), ["succeeded 30"]);
}

#[test]
fn a_group_that_is_paused_until_a_time_waits_until_then() {
    let lab = Lab::new(10);
    one(&lab, "a", 10.0, 5);
    one(&lab, "b", 30.0, 5);
    lab.until(20.0);
    let until = Some(at(50.0));
    lab.operate(KEY, Action::Pause { note: "the tapes are away", until }).unwrap();
    lab.until(49.9);
    assert!(began(&lab, "b").is_empty());
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
        Event::RunStarted { late, .. } => Some(*late),
        _ => None,
    });
    assert_eq!(late.unwrap().as_secs(), 29);
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
        lab.sim.block_on(schedules.add(&StoredSchedule::new(KEY, "t", "@daily"))).unwrap_err();
    assert!(error.to_string().contains("concurrency keys"), "{error}");
    lab.until(109.0);
    assert_eq!(one_at_a_time(&lab, &["a", "b"], "stored").len(), 20);
}

#[test]
fn a_group_costs_nothing_while_nobody_is_in_it() {
    let lab = Lab::new(14);
    let member = one(&lab, "a", 10.0, 1);
    lab.until(100.0);
    let before = member.faults.calls();
    lab.until(600.0);
    // A hundred polls and thirty-four heartbeats.
    assert!(member.faults.calls() - before <= 135, "{} calls", member.faults.calls() - before);
    assert_eq!(lab.state(KEY).due_at, None);
}

/// A key that is held for long is asked for about every two seconds by each node, for all jobs.
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
    assert!((20..100).contains(&calls), "{calls} calls");
}

#[test]
fn a_group_needs_a_name_that_is_a_word() {
    let lab = Lab::new(16);
    let build = |name: &str, group: &str| {
        let seat = lab.seat(lab.sim.node());
        let job = seat.job(every(secs(10)), ms(0)).mutex(group);
        let builder = Scheduler::builder(crate::support::bare(lab.store.clone()));
        let built = builder.runtime(seat.node).add(name, job).build();
        built.map(drop).map_err(|error| error.to_string()).err().unwrap_or_default()
    };
    assert_eq!(build("a", "g"), "");
    assert!(build("a", "g h").contains("without blanks"));
    assert!(build(KEY, "g").contains("reserved for concurrency keys"));
    assert!(build("a", "").contains("empty"));
    assert!(build("a", &"x".repeat(201)).contains("201 bytes"));
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
            let passed = (state.next.unwrap().scheduled_at - at(0.0)).num_seconds() as u64 / 12 - 1;
            assert_eq!(
                counters.succeeded + counters.missed + counters.skipped,
                passed,
                "seed {seed}: {counters:?}"
            );
        }
    }
}

/// The largest number of these runs that were active at the same time.
fn most_at_once(runs: &[Entry]) -> usize {
    let mut changes: Vec<(Time, i32)> = Vec::new();
    for run in runs {
        changes.push((run.began, 1));
        changes.extend(run.ended.map(|(at, _)| (at, -1)));
    }
    // An end goes before a start at the same time.
    changes.sort();
    let mut active = 0;
    let counts = changes.into_iter().map(|(_, change)| {
        active += change;
        active
    });
    counts.max().unwrap_or(0) as usize
}

fn runs_of(lab: &Lab, jobs: &[String]) -> Vec<Entry> {
    jobs.iter().flat_map(|job| lab.log.of(job)).collect()
}

#[test]
fn a_waiting_tenant_does_not_take_the_capacity_of_another() {
    let lab = Lab::new(20);
    lab.start(|seat, b| {
        let b = (0..4).fold(b.concurrency(4), |b, n| {
            b.add(format!("a{n}"), seat.job(once(at(5.0)), secs(60)).mutex("a"))
        });
        b.add("b", seat.job(every(secs(10)), secs(1)).mutex("b").max_runs(8))
    });
    lab.until(100.0);
    assert_eq!(lab.story("b").len(), 8, "{:?}", lab.story("b"));
    for run in lab.log.of("b") {
        assert!(run.began - run.at < chrono::TimeDelta::milliseconds(500), "{run:?}");
    }
}

#[test]
fn as_many_run_as_the_limit_says_in_the_order_of_their_due_times() {
    let lab = Lab::new(21);
    let jobs: Vec<String> = (0..6).map(|n| format!("j{n}")).collect();
    // Each node has all jobs.
    for _ in 0..3 {
        lab.start(|seat, b| {
            jobs.iter().enumerate().fold(b, |b, (n, name)| {
                let first = at(16.0 - n as f64);
                let job = seat.job(once(first), secs(10)).concurrency_key("g", 2);
                b.add(name.clone(), job.at_least_once(secs(10)))
            })
        });
    }
    lab.until(60.0);
    let mut runs = runs_of(&lab, &jobs);
    assert_eq!((runs.len(), most_at_once(&runs)), (6, 2));
    runs.sort_by_key(|run| run.began);
    let order: Vec<&str> = runs.iter().map(|run| &*run.name).collect();
    assert_eq!(order, ["j5", "j4", "j3", "j2", "j1", "j0"]);
}

#[test]
fn of_equal_due_times_the_first_name_goes_first_and_a_waiter_starts_at_once() {
    let lab = Lab::new(22);
    one(&lab, "held", 10.0, 20);
    one(&lab, "c", 12.0, 5);
    one(&lab, "b", 12.0, 5);
    one(&lab, "a", 13.0, 5);
    lab.until(60.0);
    let mut next = at(30.0);
    for job in ["b", "c", "a"] {
        let began = began(&lab, job)[0];
        assert!(
            next <= began && began - next < chrono::TimeDelta::milliseconds(100),
            "{job}: {began}"
        );
        next = lab.log.of(job)[0].ended.unwrap().0;
    }
}

#[test]
fn the_catch_up_policy_decides_about_what_came_due_while_the_key_was_busy() {
    for (policy, story) in [
        (CatchUp::Latest, &["skipped 10-30 3", "succeeded 40"][..]),
        (CatchUp::All { limit: 2 }, &["skipped 10-20 2", "succeeded 30", "succeeded 40"][..]),
    ] {
        let lab = Lab::new(23);
        one(&lab, "held", 5.0, 40);
        lab.start(|seat, b| {
            let job = seat.job(every(secs(10)), ms(10)).mutex("g").catch_up(policy);
            b.add("a", job.max_runs(if policy == CatchUp::Latest { 1 } else { 2 }))
        });
        lab.until(49.0);
        assert_eq!(lab.story("a"), story);
        let reasons = lab.past("a").into_iter().filter_map(|entry| entry.reason);
        assert_eq!(reasons.map(|it| it.word()).collect::<Vec<_>>(), ["concurrency_key"]);
    }
}

#[test]
fn a_window_does_not_count_the_time_of_waiting_also_on_another_node() {
    let lab = Lab::new(24);
    one(&lab, "held", 5.0, 40);
    let start = || {
        lab.start(|seat, b| {
            let job = seat.job(once(at(10.0)), secs(1)).mutex("g");
            b.add("a", job.at_least_once(secs(10)).window(secs(5)))
        })
    };
    let dies = start();
    lab.until(20.0);
    start();
    lab.until(22.0);
    dies.node.crash();
    lab.until(60.0);
    assert_eq!(lab.story("a"), ["succeeded 10"]);
}

#[test]
fn a_window_counts_the_time_before_the_wait() {
    let lab = Lab::new(25);
    let job = |lab: &Lab| {
        lab.start(|seat, b| {
            let job = seat.job(once(at(10.0)), secs(1)).mutex("g");
            b.add("a", job.at_least_once(secs(10)).window(secs(5)))
        })
    };
    job(&lab).node.crash();
    lab.until(1.0);
    let first = job(&lab);
    lab.until(5.0);
    first.node.crash();
    lab.until(30.0);
    job(&lab);
    lab.until(60.0);
    assert_eq!(lab.story("a"), ["missed 10-10 1"]);
    assert!(lab.state(KEY).leases.is_empty());
}

#[test]
fn what_waits_longer_than_it_may_is_skipped() {
    let lab = Lab::new(26);
    one(&lab, "held", 5.0, 50);
    let member = lab.start(|seat, b| {
        let job = seat.job(every(secs(10)), ms(10)).mutex("g");
        b.add("a", job.max_key_wait(secs(25)))
    });
    lab.until(50.0);
    assert_eq!(lab.story("a")[0], "skipped 10-30 3");
    assert!(member.news().contains(&"OccurrencesSkipped".to_owned()), "{:?}", member.news());
    lab.until(56.0);
    assert_eq!(lab.story("a").last().unwrap(), "succeeded 50");
}

#[test]
fn a_job_that_waits_is_shown_with_its_key_and_the_holders() {
    let lab = Lab::new(27);
    one(&lab, "held", 5.0, 30);
    let waits = one(&lab, "a", 10.0, 1);
    lab.until(20.0);
    let health = waits.handle.health();
    let wait = &health.conditions[0];
    let Condition::KeyBusy { job, key, limit, holders, .. } = &wait.condition else {
        panic!("{health}")
    };
    assert_eq!((&**job, &**key, *limit), ("a", "g", 1));
    assert_eq!(holders.iter().map(|it| &*it.job).collect::<Vec<_>>(), ["held"]);
    assert!(wait.since - at(10.0) < chrono::TimeDelta::seconds(1), "{wait:?}");
    assert!(health.is_healthy() && health.capacity.used == 0, "{health}");
    assert!(
        health
            .to_string()
            .contains(": job \"a\" waits for the concurrency key \"g\", held by held on "),
        "{health}"
    );
    assert_eq!(lab.state(KEY).waiters[0].job, "a");
    lab.until(60.0);
    assert!(!waits.has("key-busy"));
    let news: Vec<String> = waits.news().into_iter().filter(|it| it.starts_with("key")).collect();
    assert_eq!(news, ["key-busy", "key-busy over"]);
}

#[test]
fn different_limits_of_one_key_are_reported() {
    let lab = Lab::new(28);
    one(&lab, "held", 5.0, 30);
    let other = lab.start(|seat, b| {
        let job = |limit| seat.job(once(at(10.0)), secs(1)).concurrency_key("g", limit);
        b.add("two", job(2)).add("three", job(3))
    });
    lab.until(20.0);
    // Their own limits have places left, and the key was last held with the limit 2 or 3.
    assert_eq!(lab.story("two").len() + lab.story("three").len(), 2);
    let one = lab.start(|seat, b| b.add("one", seat.job(once(at(21.0)), secs(1)).mutex("g")));
    lab.until(40.0);
    let differ = |event: &Event| match event {
        Event::KeyLimitsDiffer { name, key, limit, other } => {
            Some((name.to_string(), key.to_string(), *limit, *other))
        }
        _ => None,
    };
    let found: Vec<_> = one.events().iter().filter_map(differ).collect();
    assert!(
        matches!(&found[..], [(name, key, 1, 2 | 3)] if name == "one" && key == "g"),
        "{found:?}"
    );
    drop(other);
}

/// Ten tenants whose load is between 3 % and 160 % of what their key allows.
#[test]
fn each_tenant_waits_for_itself_only() {
    let lab = Lab::new(29);
    let jobs = [1, 1, 2, 2, 3, 4, 6, 8, 24, 48];
    for _ in 0..3 {
        lab.start(|seat, b| {
            let mut b = b.concurrency(8);
            for (tenant, count) in jobs.into_iter().enumerate() {
                for n in 0..count {
                    let job = seat.job(every(secs(60)), secs(4));
                    b = b.add(
                        format!("t{tenant}-{n}"),
                        job.concurrency_key(format!("t{tenant}"), 2),
                    );
                }
            }
            b
        });
    }
    lab.until(600.0);
    for (tenant, count) in jobs.into_iter().enumerate() {
        let names: Vec<String> = (0..count).map(|n| format!("t{tenant}-{n}")).collect();
        let runs = runs_of(&lab, &names);
        assert!(most_at_once(&runs) <= 2, "tenant {tenant}");
        let waits = runs.iter().map(|run| (run.began - run.at).num_milliseconds() as f64 / 1_000.0);
        let mut waits: Vec<f64> = waits.collect();
        waits.sort_by(f64::total_cmp);
        let (half, longest) = (waits[waits.len() / 2], waits[waits.len() - 1]);
        let runs_of_each = names.iter().map(|name| lab.log.of(name).len());
        let (fewest, most) = (runs_of_each.clone().min().unwrap(), runs_of_each.max().unwrap());
        let figures = format!(
            "tenant {tenant}: {count} jobs, {} runs ({fewest} to {most} of each), waited {half:.1} s, \
             at most {longest:.1} s",
            runs.len()
        );
        // Two of them run at a time, for 4 s.
        let turns = (count as f64 / 2.0).ceil() - 1.0;
        if count <= 24 {
            assert!(longest <= turns * 4.0 + 3.0, "{figures}");
            // One more is due at the very end.
            assert!(fewest >= 9, "{figures}");
        }
        // By due time and name, in an overload every job has each second turn.
        assert!(2 * fewest + 2 >= most && longest < 100.0, "{figures}");
    }
}

/// Random keys, limits and jobs on one to eight nodes that crash and freeze, with lost, late and
/// doubled requests: never more than the limit, and when the faults end every job has its turn.
#[test]
fn in_random_worlds_no_key_has_too_many_runs_and_every_job_has_its_turn() {
    for seed in 0..30_u64 {
        let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let mut below = move |n: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % n
        };
        let lab = Lab::new(1_000 + seed);
        let limits: BTreeMap<&str, u32> =
            ["x", "y", "z"].map(|key| (key, 1 + below(3) as u32)).into();
        let jobs: Vec<(String, &str, u64, u64, bool)> = (0..4 + below(8))
            .map(|n| {
                let key = ["x", "y", "z"][below(3) as usize];
                (format!("j{n}"), key, 5 + below(20), 200 + below(6_000), below(2) == 0)
            })
            .collect();
        let rates = Rates {
            lose_request: 10 + below(60),
            lose_reply: 10 + below(100),
            refuse: below(50),
            double: below(50),
            linger: below(20),
            delay: below(500),
            delay_ms: 200,
        };
        let start = |rates: Rates| {
            lab.start(|seat, b| {
                seat.rates(rates);
                jobs.iter().fold(b.lost_after(secs(10)), |b, (name, key, period, takes, retry)| {
                    let job = seat.job(every(secs(*period)), ms(*takes));
                    let job = job.concurrency_key(*key, limits[key]);
                    b.add(name.clone(), if *retry { job.at_least_once(secs(10)) } else { job })
                })
            })
        };
        let mut members: Vec<Member> = (0..1 + below(8)).map(|_| start(rates)).collect();
        let mut frozen: Vec<(String, Time, Time)> = Vec::new();
        let mut now = 0.0;
        while now < 300.0 {
            now += 10.0 + below(30) as f64;
            lab.until(now);
            let i = below(members.len() as u64) as usize;
            match below(3) {
                0 => {
                    members.remove(i).node.crash();
                    members.push(start(rates));
                }
                1 => {
                    let (from, node) = (lab.now(), members[i].handle.health().node);
                    members[i].node.pause();
                    now += 1.0 + below(15) as f64;
                    lab.until(now);
                    frozen.push((node, from, lab.now()));
                    members[i].node.resume();
                }
                _ => {}
            }
        }
        members.iter().for_each(|member| member.faults.set(Rates::default()));
        let calm = now + 40.0;
        lab.until(calm + 200.0);
        for (key, limit) in &limits {
            let of_key = jobs.iter().filter(|job| job.1 == *key);
            let names: Vec<String> = of_key.clone().map(|job| job.0.clone()).collect();
            let mut runs = runs_of(&lab, &names);
            for run in &mut runs {
                // A frozen process does nothing. It ends a run whose lease has ended when it wakes.
                let spans = |(node, from, to): &&(String, Time, Time)| {
                    *node == run.node
                        && run.began <= *from
                        && run.ended.is_none_or(|(ended, _)| ended >= *to)
                        && *to - *from >= chrono::TimeDelta::seconds(4)
                };
                if let Some((_, from, _)) = frozen.iter().find(spans) {
                    run.ended = Some((*from, Over::Dropped));
                }
            }
            let most = most_at_once(&runs);
            assert!(most <= *limit as usize, "seed {seed}: {most} of {limit} with {key}");
            // The longest round of all jobs of the key.
            let round: u64 = of_key.map(|job| job.3).sum();
            let round = 25.0 + round as f64 / 1_000.0 + 10.0;
            for name in names {
                let mut began: Vec<Time> = began(&lab, &name);
                began.retain(|began| *began >= at(calm));
                began.push(lab.now());
                let mut last = at(calm);
                for next in began {
                    let gap = (next - last).num_milliseconds() as f64 / 1_000.0;
                    assert!(gap <= round, "seed {seed}: {name} of {key} waits {gap} s of {round}");
                    last = next;
                }
            }
        }
    }
}

#[test]
fn the_record_of_a_key_that_no_job_uses_is_removed_after_a_week_and_its_fences_continue() {
    const DAY: f64 = 86_400.0;
    let lab = Lab::new(31);
    let member = lab.start(|seat, b| {
        let slow = b.heartbeat(secs(240)).poll_interval(secs(600)).lost_after(secs(3_600));
        let twice = seat.job(every(secs(20 * 86_400)), secs(5)).mutex("rare");
        let often = seat.job(every(secs(5 * 86_400)), secs(5)).mutex("often");
        let long = seat.job(once(at(60.0)), secs(12 * 86_400)).mutex("long");
        let of_many = seat.job(once(at(60.0)), secs(5)).mutex("x".repeat(200));
        slow.add("rare", twice).add("often", often).add("long", long).add("many", of_many)
    });
    let keys = || {
        let queries = Backend::queries(&lab.store).unwrap();
        let names = ["allora:key:", "allora:key#"].map(|prefix| {
            let states = lab.sim.block_on(queries.list(Page::first(9).prefix(prefix))).unwrap();
            states.into_iter().map(|state| state.name).collect::<Vec<_>>()
        });
        names.concat()
    };
    lab.until(6.0 * DAY);
    assert_eq!(keys().len(), 3, "{:?}", keys());
    lab.until(9.0 * DAY);
    assert_eq!(keys(), ["allora:key:long", "allora:key:often"], "one is held, one is used");
    lab.until(20.0 * DAY + 60.0);
    let first = lab.state("allora:key:rare").fence;
    lab.until(30.0 * DAY);
    assert_eq!(keys(), ["allora:key:often"]);
    lab.until(40.0 * DAY + 60.0);
    assert!(lab.state("allora:key:rare").fence > first);
    assert!(!member.news().contains(&"Pruned".to_owned()), "{:?}", member.news());
}
