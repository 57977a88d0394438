//! Drift, catch-up, overlap, bounds, restarts, fairness and cost.

use crate::support::{Lab, Seat, at, ms, secs};
use allora_core::{
    CatchUp, Event, JobSpec, Overlap, Retry, Schedule, SchedulerBuilder, backend::NotRunReason,
    every,
};
use std::time::Duration;

#[test]
fn every_does_not_drift_in_ten_thousand_occurrences() {
    let lab = Lab::new(1);
    for _ in 0..2 {
        lab.start(|seat, b| b.add("tick", seat.job(every(secs(7)), ms(300))));
    }
    lab.until(70_000.5);
    let expected: Vec<_> = (1..=10_000).map(|n| at(7.0 * f64::from(n))).collect();
    assert_eq!(lab.log.times("tick"), expected);
    let late = lab.log.of("tick").iter().map(|run| run.began - run.at).max().unwrap();
    assert!(late.num_milliseconds() <= 1, "{late}");
    assert_eq!(lab.state("tick").counters.succeeded, 10_000);
}

/// One node is asleep from 65 s to 605 s after the start; the job is due at every full minute.
#[track_caller]
fn asleep(policy: impl FnOnce(JobSpec) -> JobSpec, ran: &[f64], story: &[&str]) {
    let lab = Lab::new(2);
    let member = lab.start(|seat, b| b.add("job", policy(seat.job(every(secs(60)), ms(10)))));
    lab.until(65.0);
    member.node.pause();
    lab.until(605.0);
    member.node.resume();
    lab.until(665.0);
    assert_eq!(lab.ran("job"), ran);
    assert_eq!(lab.story("job"), story);
}

/// Every minute, but not from the second to the fourth.
fn with_a_gap() -> impl Schedule {
    every(secs(60)).phase(Duration::ZERO).blackout(at(120.0), at(300.0))
}

#[test]
fn what_a_calendar_excludes_is_recorded_once_as_a_range() {
    let story = ["succeeded 60", "skipped 120-240 3", "succeeded 300", "succeeded 360"];
    for is_repeated in [false, true] {
        let lab = Lab::new(1);
        // On three nodes, of which each may be the one that claims.
        for _ in 0..3 {
            lab.start(|seat, b| {
                let spec = seat.job(with_a_gap(), ms(10));
                b.add("job", if is_repeated { spec.at_least_once(secs(30)) } else { spec })
            });
        }
        lab.until(365.0);
        assert_eq!(lab.story("job"), story);
        let entry = &lab.past("job")[1];
        assert_eq!(entry.reason, Some(NotRunReason::Calendar));
        // Excluded occurrences are in the history, and in no counter of the record.
        assert_eq!((lab.state("job").counters.started, lab.state("job").counters.skipped), (3, 0));
    }
    // A stored schedule, which the store finds and claims itself.
    let lab = Lab::new(2);
    let text = "@every 1m; blackout 2026-01-01T00:02:00Z/2026-01-01T00:05:00Z; at-least-once 30s";
    lab.store("job", "mail", text);
    lab.start(|seat, b| b.kind("mail", seat.handler(ms(10), |_| Ok(()))));
    lab.until(365.0);
    assert_eq!(lab.story("job"), story);
}

#[test]
fn a_failed_run_is_followed_by_one_entry_of_the_calendar() {
    let lab = Lab::new(1);
    lab.start(|seat, b| {
        let spec = seat.work(with_a_gap(), ms(10), |run| match run.attempt() {
            1 | 2 => Err("not yet".into()),
            _ => Ok(()),
        });
        b.add("job", spec.at_least_once(secs(30)).retry(Retry::up_to(3, secs(1))))
    });
    lab.until(250.0);
    assert_eq!(lab.story("job")[2..], ["succeeded 60", "skipped 120-240 3"]);
}

#[test]
fn what_is_excluded_among_missed_occurrences_is_an_entry_of_its_own() {
    let lab = Lab::new(2);
    let gap = || every(secs(60)).phase(Duration::ZERO).blackout(at(300.0), at(420.0));
    let member = lab.start(|seat, b| {
        let b = b.add("job", seat.job(gap(), ms(10)));
        b.add("never", seat.job(gap(), ms(10)).catch_up(CatchUp::None).window(secs(5)))
    });
    lab.until(65.0);
    member.node.pause();
    lab.until(630.0);
    member.node.resume();
    lab.until(665.0);
    let run =
        ["succeeded 60", "missed 120-540 6", "succeeded 600", "skipped 300-360 2", "succeeded 660"];
    assert_eq!(lab.story("job"), run);
    let none = ["succeeded 60", "missed 120-600 7", "skipped 300-360 2", "succeeded 660"];
    assert_eq!(lab.story("never"), none);
}

#[test]
fn a_node_that_slept_runs_the_latest_and_moves_on() {
    asleep(
        |job| job,
        &[60., 600., 660.],
        &["succeeded 60", "missed 120-540 8", "succeeded 600", "succeeded 660"],
    );
}

#[test]
fn a_node_that_slept_runs_the_last_three_in_order() {
    asleep(
        |job| job.catch_up(CatchUp::All { limit: 3 }),
        &[60., 480., 540., 600., 660.],
        &[
            "succeeded 60",
            "missed 120-420 6",
            "succeeded 480",
            "succeeded 540",
            "succeeded 600",
            "succeeded 660",
        ],
    );
}

#[test]
fn a_node_that_slept_runs_what_the_window_allows() {
    asleep(
        |job| job.catch_up(CatchUp::All { limit: 100 }).window(secs(100)),
        &[60., 540., 600., 660.],
        &["succeeded 60", "missed 120-480 7", "succeeded 540", "succeeded 600", "succeeded 660"],
    );
}

#[test]
fn a_node_that_slept_passes_over_what_is_too_late() {
    asleep(
        |job| job.window(secs(4)),
        &[60., 660.],
        &["succeeded 60", "missed 120-600 9", "succeeded 660"],
    );
    asleep(
        |job| job.catch_up(CatchUp::None).window(secs(4)),
        &[60., 660.],
        &["succeeded 60", "missed 120-600 9", "succeeded 660"],
    );
}

#[test]
fn what_passes_over_a_stored_schedule_is_told_once() {
    let lab = Lab::new(2);
    let declare = || lab.start(|seat, b| b.kind("t", seat.handler(ms(10), |_| Ok(()))));
    lab.store("a", "t", "@every 1m; at-least-once 30s; window 4s");
    let first = declare();
    lab.until(65.0);
    first.handle.stop();
    lab.until(605.0);
    let member = declare();
    lab.until(665.0);
    assert_eq!(lab.story("a"), ["succeeded 60", "missed 120-600 9", "succeeded 660"]);
    let missed = |event: &Event| match event {
        Event::OccurrencesMissed { name, first, last, count, .. } => {
            Some((name.to_string(), *first, *last, *count))
        }
        _ => None,
    };
    let told: Vec<_> = member.events().iter().filter_map(missed).collect();
    assert_eq!(told, [("a".to_owned(), at(120.0), at(600.0), Some(9))]);
}

#[test]
fn what_was_due_while_all_nodes_were_down_runs_after_the_restart() {
    let lab = Lab::new(3);
    let first = lab.start(|seat, b| b.add("job", seat.job(every(secs(60)), ms(0))));
    lab.until(59.0);
    first.handle.stop();
    lab.until(61.0);
    assert!(first.stopped().is_some());
    lab.start(|seat, b| b.add("job", seat.job(every(secs(60)), ms(0))));
    lab.until(125.0);
    assert_eq!(lab.ran("job"), [60., 120.]);
    assert!(lab.log.of("job")[0].began >= at(61.0));
}

#[test]
fn starting_and_stopping_nodes_changes_nobodys_times() {
    let lab = Lab::new(4);
    for n in 0..20 {
        let member = lab.start(|seat, b| b.add("job", seat.job(every(secs(10)), ms(0))));
        lab.until(7.0 * f64::from(n) + 3.0);
        if n % 3 != 0 {
            member.handle.stop();
        }
    }
    lab.until(205.0);
    assert_eq!(lab.ran("job"), (1..=20).map(|n| 10.0 * f64::from(n)).collect::<Vec<_>>());
}

/// A job every 10 s that runs for 25 s, on two nodes.
#[track_caller]
fn overlapping(policy: Overlap, story: &[&str]) {
    let lab = Lab::new(5);
    for _ in 0..2 {
        lab.start(|seat, b| b.add("job", seat.job(every(secs(10)), secs(25)).overlap(policy)));
    }
    lab.until(75.5);
    let mut told = lab.story("job");
    told.retain(|entry| !entry.starts_with("running"));
    assert_eq!(told, story);
}

#[test]
fn overlapping_runs_are_allowed_skipped_or_wait() {
    overlapping(
        Overlap::Allow,
        &["succeeded 10", "succeeded 20", "succeeded 30", "succeeded 40", "succeeded 50"],
    );
    overlapping(
        Overlap::Skip,
        &[
            "succeeded 10",
            "skipped 20-20 1",
            "skipped 30-30 1",
            "succeeded 40",
            "skipped 50-50 1",
            "skipped 60-60 1",
        ],
    );
    overlapping(
        Overlap::Wait,
        &["succeeded 10", "missed 20-20 1", "succeeded 30", "missed 40-50 2"],
    );
}

#[test]
fn delay_and_spread_move_the_start_and_not_the_name() {
    let lab = Lab::new(6);
    lab.start(|seat, b| {
        let job = seat.job(every(secs(60)), ms(0)).delay(secs(5)).jitter(secs(20));
        b.add("job", job)
    });
    lab.until(600.0);
    assert_eq!(lab.ran("job").len(), 9);
    for run in lab.log.of("job") {
        let late = (run.began - run.at).num_milliseconds();
        assert!((5_000..=25_001).contains(&late), "{late}");
    }
}

#[test]
fn a_job_ends_at_its_end_and_after_its_runs() {
    let lab = Lab::new(7);
    for _ in 0..2 {
        lab.start(|seat, b| {
            b.add("bounds", seat.job(every(secs(10)), ms(0)).starting(at(25.0)).ending(at(50.0)))
                .add("three", seat.job(every(secs(10)), ms(0)).max_runs(3))
                .add("leased", seat.job(every(secs(10)), ms(5)).max_runs(3).at_least_once(secs(30)))
        });
    }
    lab.until(200.0);
    assert_eq!(lab.ran("bounds"), [25., 35., 45.]);
    assert_eq!(lab.ran("three"), [10., 20., 30.]);
    assert_eq!(lab.ran("leased"), [10., 20., 30.]);
}

#[test]
fn slots_are_never_exceeded_and_nothing_is_left_behind() {
    let lab = Lab::new(8);
    for _ in 0..2 {
        lab.start(|seat, b| {
            (0..20).fold(b.concurrency(3), |b, n| {
                b.add(format!("job{n}"), seat.job(every(secs(60)), secs(5)))
            })
        });
    }
    lab.until(119.0);
    let runs = lab.log.entries();
    assert_eq!(runs.len(), 20);
    for run in &runs {
        let beside = runs.iter().filter(|other| {
            other.node == run.node
                && other.began <= run.began
                && other.ended.is_none_or(|(end, _)| end > run.began)
        });
        assert!(beside.count() <= 3);
    }
}

#[test]
fn three_nodes_share_the_work() {
    for seed in 0..10 {
        let lab = Lab::new(seed);
        let start = |seat: &Seat, b: SchedulerBuilder| {
            (0..150).fold(b, |b, n| b.add(format!("job{n}"), seat.job(every(secs(30)), ms(100))))
        };
        let members: Vec<_> = (0..3).map(|_| lab.start(start)).collect();
        lab.until(121.0);
        let runs = lab.log.entries();
        assert_eq!(runs.len(), 600);
        for member in &members {
            let share = runs.iter().filter(|run| run.node == member.handle.node()).count();
            assert!((100..=300).contains(&share), "seed {seed}: {share} of 600");
        }
    }
}

#[test]
fn a_thousand_jobs_of_one_instant_are_shared_by_nodes_with_few_slots() {
    let lab = Lab::new(9);
    let members: Vec<_> = (0..3)
        .map(|_| {
            lab.start(|seat, b| {
                (0..300).fold(b.concurrency(10), |b, n| {
                    b.add(format!("job{n}"), seat.job(every(secs(600)), ms(500)))
                })
            })
        })
        .collect();
    lab.until(900.0);
    let runs = lab.log.entries();
    assert_eq!(runs.len(), 300);
    for member in &members {
        let share = runs.iter().filter(|run| run.node == member.handle.node()).count();
        assert!(share >= 50, "{share} of 300");
    }
}

#[test]
fn an_idle_node_makes_its_safety_poll_and_its_heartbeat_and_no_other_call() {
    let lab = Lab::new(10);
    let member = lab.start(|seat, b| {
        (0..1_000).fold(b, |b, n| b.add(format!("job{n}"), seat.job(every(secs(86_400)), ms(0))))
    });
    lab.until(10.0);
    let (calls, steps) = (member.faults.calls(), lab.sim.steps());
    lab.until(1_010.0);
    let calls = member.faults.calls() - calls;
    // The poll is a search, which carries no operation: the heartbeat is a call of its own.
    assert!((200..=268).contains(&calls), "{calls} calls in 200 polls and 67 heartbeats");
    let steps = lab.sim.steps() - steps;
    assert!(steps < 2_000, "{steps} steps for 1 000 idle jobs");
}

#[test]
fn the_cost_follows_what_is_due_and_not_what_is_known() {
    let steps = |known: usize| {
        let lab = Lab::new(11);
        let member = lab.start(|seat, b| {
            let b = b.add("due", seat.job(every(secs(1)), ms(0)));
            (0..known).fold(b, |b, n| b.add(format!("j{n}"), seat.job(every(secs(86_400)), ms(0))))
        });
        lab.until(10.0);
        let before = (lab.sim.steps(), member.faults.calls());
        lab.until(110.0);
        (lab.sim.steps() - before.0, member.faults.calls() - before.1)
    };
    let (few, many) = (steps(1), steps(900));
    assert!(many.0 <= few.0 + few.0 / 10 && many.1 <= few.1 + few.1 / 10, "{few:?} {many:?}");
}

#[test]
fn events_come_in_order() {
    let lab = Lab::new(12);
    let member = lab.start(|seat, b| b.add("job", seat.job(every(secs(10)), ms(5))));
    lab.until(25.0);
    member.handle.stop();
    lab.until(26.0);
    let word = |event: &Event| match event {
        Event::Ready { jobs, .. } => format!("ready {jobs}"),
        Event::RunStarted { fence, .. } => format!("started {fence}"),
        Event::RunEnded { fence, outcome, .. } => format!("{} {fence}", outcome.word()),
        Event::Stopped { cancelled, unrecorded, .. } => {
            format!("stopped {cancelled} {unrecorded}")
        }
        other => format!("{other:?}"),
    };
    let told: Vec<_> = member.events().iter().map(word).collect();
    let runs = lab.log.of("job");
    let (first, second) = (runs[0].fence, runs[1].fence);
    assert_eq!(
        told,
        [
            "ready 1".to_owned(),
            format!("started {first}"),
            format!("succeeded {first}"),
            format!("started {second}"),
            format!("succeeded {second}"),
            "stopped 0 0".to_owned(),
        ]
    );
}

#[test]
fn a_single_time_of_up_to_a_minute_ago_counts_as_now() {
    let lab = Lab::new(51);
    let member = lab.start(|seat, b| b.add("other", seat.job(every(secs(600)), ms(5))));
    lab.until(100.0);
    let seat = lab.seat(lab.sim.node());
    let times =
        [("now", 100.0, 100.1), ("just before", 100.098, 100.2), ("a minute ago", 40.5, 100.3)];
    for (name, time, until) in times {
        member.handle.add(name, seat.job(allora_core::at(at(time)), ms(5))).unwrap();
        lab.until(until);
        assert_eq!(lab.story(name), [format!("succeeded {time}")]);
    }
    let refused = member.handle.add("old", seat.job(allora_core::at(at(40.0)), ms(5))).unwrap_err();
    let says =
        "the job \"old\" would never run: its only time, 2026-01-01T00:00:40.000Z, is more than";
    assert!(refused.to_string().starts_with(says), "{refused}");
    lab.start(|seat, b| b.add("declared", seat.job(allora_core::at(at(60.0)), ms(5))));
    lab.until(101.0);
    assert_eq!(lab.story("declared"), ["succeeded 60"]);
}

#[test]
fn what_runs_when_it_is_created_runs_once_for_all_nodes_and_restarts() {
    let lab = Lab::new(52);
    lab.until(100.0);
    let declare = || {
        let job = |seat: &Seat| seat.job(every(secs(600)).phase(secs(0)), ms(5));
        let old = |seat: &Seat| seat.job(allora_core::at(at(30.0)), ms(5));
        lab.start(|seat, b| {
            b.add("job", job(seat).run_when_created()).add("old", old(seat).run_if_past())
        })
    };
    let first = declare();
    declare();
    lab.until(110.0);
    first.handle.stop();
    lab.until(120.0);
    declare();
    lab.until(601.0);
    let story = lab.story("job");
    let [created, scheduled] = &story[..] else { panic!("{story:?}") };
    assert!(created.starts_with("succeeded 100"), "{created}");
    assert_eq!((&**scheduled, lab.story("old")), ("succeeded 600", vec!["succeeded 30".into()]));
}

#[test]
fn a_single_time_that_has_passed_before_its_job_is_declared_is_missed_once() {
    let lab = Lab::new(52);
    lab.until(100.0);
    let declare = || lab.start(|seat, b| b.add("old", seat.job(allora_core::at(at(30.0)), ms(5))));
    let missed = |member: &crate::support::Member| {
        let is_missed = |event: &&Event| matches!(event, Event::OccurrencesMissed { .. });
        member.events().iter().filter(is_missed).count()
    };
    let first = declare();
    lab.until(200.0);
    assert_eq!((lab.story("old"), missed(&first)), (vec!["missed 30-30 1".to_owned()], 1));
    assert!(first.handle.health().is_healthy(), "{}", first.handle.health());
    let second = declare();
    lab.until(300.0);
    assert_eq!((lab.story("old").len(), missed(&second)), (1, 0));
    // One that was declared in time runs, however late its node starts.
    let early = lab.start(|seat, b| b.add("job", seat.job(allora_core::at(at(400.0)), ms(5))));
    lab.until(310.0);
    early.node.pause();
    lab.until(1_000.0);
    lab.start(|seat, b| b.add("job", seat.job(allora_core::at(at(400.0)), ms(5))));
    lab.until(1_010.0);
    assert_eq!(lab.story("job"), ["succeeded 400"]);
}
