//! Which node runs what.

use super::{Seen, add, news, schedules};
use crate::support::{Lab, at, secs};
use allora_core::{
    BoxError, Pattern, Retry, Run, SchedulerBuilder, StoredSchedule,
    backend::{Action, NewSchedule},
};
use std::sync::atomic::Ordering::Relaxed;

/// A builder with a handler that says by which name it was chosen.
fn says(
    b: SchedulerBuilder,
    pattern: impl Into<Pattern>,
    by: &'static str,
    seen: &Seen,
) -> SchedulerBuilder {
    let seen = seen.clone();
    b.kind(pattern, async move |run: Run| seen.tell(format!("{by}: {}", run.kind())))
}

#[test]
fn the_first_pattern_that_matches_runs_it() {
    let lab = Lab::new(1);
    let seen = Seen::default();
    lab.start(|_, b| {
        let b = says(b, "user_task", "exact", &seen);
        let b = says(b, Pattern::regex("^user_.*$").unwrap(), "regex", &seen);
        let b = says(b, Pattern::prefix("system."), "prefix", &seen);
        let b = says(b, Pattern::regex("clean|sweep").unwrap(), "anywhere", &seen);
        says(b, Pattern::any(), "fallback", &seen)
    });
    for kind in
        ["user_task", "user_other", "user_task2", "system.clean", "deep clean", "User_task", "🧾"]
    {
        add(&lab, StoredSchedule::new(format!("a {kind}"), kind, "@every 10s").max_runs(1));
    }
    lab.until(12.0);
    assert_eq!(
        seen.sorted(),
        [
            "anywhere: deep clean",
            "exact: user_task",
            "fallback: User_task",
            "fallback: 🧾",
            "prefix: system.clean",
            "regex: user_other",
            "regex: user_task2",
        ]
    );
}

#[test]
fn unknown_kinds_are_left_to_nodes_that_know_them() {
    let lab = Lab::new(2);
    let (mail, sms) = (Seen::default(), Seen::default());
    let first = lab.start(|_, b| says(b, "mail", "1", &mail));
    for kind in ["mail", "sms"] {
        add(&lab, StoredSchedule::new(kind, kind, "@every 10s"));
    }
    lab.until(25.0);
    assert_eq!(mail.take(), ["1: mail", "1: mail"]);
    let state = lab.state("sms");
    assert_eq!((state.counters.started, state.counters.missed), (0, 0), "it waits");
    assert_eq!(first.news(), ["Ready"]);
    lab.start(|_, b| says(b, "sms", "2", &sms));
    lab.until(32.0);
    assert_eq!(sms.take(), ["2: sms", "2: sms"], "the latest that was missed, and the next");
}

#[test]
fn a_kind_that_nobody_has_heard_of_is_run_at_once_by_a_pattern() {
    let lab = Lab::new(3);
    let seen = Seen::default();
    lab.start(|_, b| says(b, Pattern::any(), "any", &seen).poll_interval(secs(3_600)));
    lab.until(100.0);
    for n in 0..20 {
        // Each of a kind of its own.
        let due = at(100.2 + f64::from(n) / 10.0);
        add(
            &lab,
            StoredSchedule::new(format!("job {n}"), format!("kind {n}"), "@daily")
                .starting(due)
                .schedule(allora_core::at(due)),
        );
    }
    lab.until(104.0);
    assert_eq!(seen.take().len(), 20);
}

/// Found by a seed of the campaign: a search that fails after the kinds were read is repeated when
/// they may not yet be read again.
#[test]
fn a_node_that_may_not_ask_for_the_kinds_yet_waits_and_does_not_spin() {
    let lab = Lab::new(6);
    let seen = Seen::default();
    let member = lab.start(|_, b| says(b, Pattern::any(), "any", &seen).poll_interval(secs(10)));
    lab.until(9.5);
    member.faults.down.store(true, Relaxed);
    lab.until(10.5);
    member.faults.down.store(false, Relaxed);
    let calls = member.faults.calls();
    lab.until(60.0);
    let calls = member.faults.calls() - calls;
    assert!((5..20).contains(&calls), "{calls} calls in 50 s of polls every 10 s");
    add(&lab, StoredSchedule::new("a", "t", "@every 10s"));
    lab.until(71.0);
    assert_eq!(seen.take(), ["any: t"]);
}

#[test]
fn a_node_runs_what_it_is_given_while_it_runs() {
    let lab = Lab::new(4);
    let seen = Seen::default();
    let told = seen.clone();
    lab.start(|_, b| {
        let b = b.poll_interval(secs(3_600));
        b.kind("t", async move |run: Run| told.run(&run))
    });
    lab.until(5.0);
    let client = schedules(&lab);
    add(&lab, StoredSchedule::new("a", "t", "*/10 * * * * *"));
    lab.until(21.0);
    assert_eq!(seen.take(), ["a 10", "a 20"], "without a poll");
    let state = lab.sim.block_on(client.get("a")).unwrap();
    let faster = StoredSchedule::of(&state).unwrap().schedule("*/5 * * * * *");
    lab.sim.block_on(client.modify(&faster)).unwrap();
    lab.until(31.0);
    assert_eq!(seen.take(), ["a 25", "a 30"]);
    lab.sim.block_on(client.pause("a", "enough")).unwrap();
    lab.until(41.0);
    assert_eq!(seen.take(), [""; 0]);
    lab.sim.block_on(client.trigger("a", "now")).unwrap();
    lab.until(42.0);
    assert_eq!(seen.take(), ["a 41"], "a trigger runs also while it is paused");
    lab.sim.block_on(client.resume("a", allora_core::stored::Gap::Missed)).unwrap();
    lab.until(51.0);
    assert_eq!(seen.take(), ["a 45", "a 50"]);
    lab.sim.block_on(client.delete("a")).unwrap();
    lab.until(70.0);
    assert_eq!(seen.take(), [""; 0]);
}

#[test]
fn an_edited_kind_moves_to_another_handler() {
    let lab = Lab::new(5);
    let seen = Seen::default();
    lab.start(|_, b| says(says(b, "mail", "1", &seen), "sms", "2", &seen));
    add(&lab, StoredSchedule::new("a", "mail", "@every 10s"));
    lab.until(11.0);
    let client = schedules(&lab);
    let state = lab.sim.block_on(client.get("a")).unwrap();
    let sms = StoredSchedule::of(&state).unwrap().with_kind("sms");
    let edited = lab.sim.block_on(client.modify(&sms)).unwrap();
    assert_eq!(
        edited.next, state.next,
        "a schedule that is the same continues with its old cursor"
    );
    lab.until(21.0);
    assert_eq!(seen.take(), ["1: mail", "2: sms"]);
}

#[test]
fn one_corrupt_schedule_stops_no_other() {
    let lab = Lab::new(6);
    let seen = Seen::default();
    let node = lab.start(|_, b| says(b, "t", "ran", &seen));
    let corrupt = ["", "* * *", "nonsense; delay 1m", "@v9 future", "* * * * *; at-least-once 1ms"];
    for (i, definition) in corrupt.iter().enumerate() {
        let name = format!("bad {i}");
        let new = NewSchedule::new("t", definition, Some(at(1.0).into()));
        lab.operate(&name, Action::Create(new)).unwrap();
    }
    add(&lab, StoredSchedule::new("good", "t", "*/10 * * * * *"));
    lab.until(60.5);
    assert_eq!(seen.take().len(), 7);
    assert_eq!(news(&node, "job-invalid"), corrupt.len(), "each is complained about once");
    // After the repair it runs, also the occurrence that has come.
    let mended = StoredSchedule::new("bad 0", "t", "*/10 * * * * *");
    let generation = lab.state("bad 0").generation;
    lab.sim.block_on(schedules(&lab).modify(&mended.read_at(generation))).unwrap();
    lab.until(70.5);
    assert_eq!(seen.take().len(), 3);
}

#[test]
fn a_handler_is_given_its_data_as_a_value() {
    let lab = Lab::new(7);
    let seen = Seen::default();
    let told = seen.clone();
    let node = lab.start(|_, b| {
        b.kind("greet", async move |_: Run, (name, times): (String, u8)| {
            told.tell(name.repeat(times.into()));
        })
    });
    add(&lab, StoredSchedule::new("good", "greet", "@every 10s").data(&("ho", 3)).max_runs(1));
    add(&lab, StoredSchedule::new("bad", "greet", "@every 10s").data("nobody").max_runs(1));
    add(&lab, StoredSchedule::new("none", "greet", "@every 10s").max_runs(1));
    lab.until(600.0);
    assert_eq!(seen.take(), ["hohoho"]);
    for name in ["bad", "none"] {
        let state = lab.state(name);
        assert_eq!((state.dead.len(), state.counters.failed), (1, 5), "another build may read it");
        assert!(state.dead[0].error.contains("line 1 column"), "{}", state.dead[0].error);
    }
    assert_eq!(news(&node, "job-invalid"), 0);
}

#[test]
fn a_handler_that_would_never_run_is_refused() {
    let lab = Lab::new(8);
    let seat = lab.seat(lab.sim.node());
    let nothing = async |_: Run| -> Result<(), BoxError> { Ok(()) };
    let built = seat.builder().kind(Pattern::any(), nothing).kind("mail", nothing).build();
    assert!(built.unwrap_err().to_string().contains("\"mail\" would never run"));
    let built = seat.builder().kind("b\nad", nothing).build();
    assert!(built.unwrap_err().to_string().contains("U+000A"));
    assert!(Pattern::regex("(").unwrap_err().to_string().contains("`(`"));
}

#[test]
fn many_schedules_are_shared_by_few_slots() {
    let lab = Lab::new(9);
    let seen = Seen::default();
    for _ in 0..2 {
        let told = seen.clone();
        lab.start(|seat, b| {
            let node = seat.node.clone();
            b.concurrency(50).kind("t", async move |run: Run| {
                use allora_core::Runtime;
                node.sleep_until(node.now() + secs(1)).await;
                told.run(&run);
            })
        });
    }
    let all: Vec<StoredSchedule> =
        (0..3_000).map(|n| StoredSchedule::new(format!("job {n}"), "t", "0 * * * *")).collect();
    let added = lab.sim.block_on(schedules(&lab).add_all(&all)).unwrap();
    assert!(added.iter().all(Result::is_ok));
    // The simulation begins on a full hour.
    lab.until(120.0);
    let ran = seen.sorted();
    assert_eq!(ran.len(), 3_000);
    assert!(ran.windows(2).all(|pair| pair[0] != pair[1]), "each once");
}

/// The largest number of runs at once of the jobs whose names begin so, on one node or on all.
fn most_at_once(lab: &Lab, prefix: &str, node: Option<&str>) -> i32 {
    let mut changes = Vec::new();
    for run in lab.log.entries() {
        if run.name.starts_with(prefix) && node.is_none_or(|node| run.node == node) {
            changes.push((run.began, 1));
            changes.extend(run.ended.map(|(ended, _)| (ended, -1)));
        }
    }
    changes.sort();
    let mut active = 0;
    let counts = changes.into_iter().map(|(_, change)| {
        active += change;
        active
    });
    counts.max().unwrap_or(0)
}

#[test]
fn a_kind_at_its_limit_delays_no_other_and_leaves_the_rest_to_other_nodes() {
    let lab = Lab::new(7);
    let start = |limit| {
        lab.start(|seat, b| {
            b.kind("report", seat.handler(secs(10), |_| Ok(())))
                .kind_concurrency("report", limit)
                .kind(Pattern::prefix("mail."), seat.handler(secs(1), |_| Ok(())))
        })
    };
    let first = start(2);
    for i in 0..30 {
        add(
            &lab,
            StoredSchedule::new(format!("report {i:02}"), "report", "@every 10s").max_runs(1),
        );
        add(&lab, StoredSchedule::new(format!("mail {i:02}"), "mail.daily", "@every 10s"));
    }
    lab.until(25.0);
    let [reports] = &first.handle.health().kind_capacity[..] else { panic!("one limit") };
    assert_eq!((&*reports.kinds, reports.limit, reports.used), ("report", 2, 2));
    assert!(
        first.handle.health().to_string().contains("\ncapacity: 2 of 2 runs of the kind report")
    );
    assert_eq!(lab.log.entries().iter().filter(|run| run.name.starts_with("report")).count(), 4);
    let second = start(5);
    lab.until(75.0);
    let count =
        |prefix: &str| lab.log.entries().iter().filter(|run| run.name.starts_with(prefix)).count();
    assert_eq!((count("report"), count("mail")), (30, 7 * 30));
    let late = lab.log.entries().into_iter().filter(|run| run.name.starts_with("mail"));
    let late = late.map(|run| run.began - run.at).max().unwrap();
    assert!(late < chrono::TimeDelta::milliseconds(100), "{late}");
    assert_eq!(most_at_once(&lab, "report", Some(first.handle.node())), 2);
    assert_eq!(most_at_once(&lab, "report", Some(second.handle.node())), 5);
    assert_eq!(most_at_once(&lab, "report", None), 7, "both nodes work on it");
}

#[test]
fn a_long_queue_behind_a_limit_hides_no_other_kind_and_is_worked_off_without_a_pause() {
    let lab = Lab::new(8);
    let member = lab.start(|seat, b| {
        b.kind("slow", seat.handler(secs(1), |_| Ok(())))
            .kind_concurrency("slow", 50)
            .kind("fast", seat.handler(secs(1), |_| Ok(())))
    });
    for i in 0..2_500 {
        add(&lab, StoredSchedule::new(format!("slow {i:04}"), "slow", "@every 10s").max_runs(1));
    }
    lab.until(15.0);
    add(&lab, StoredSchedule::new("fast", "fast", "@every 10s"));
    lab.until(45.5);
    assert_eq!(lab.ran("fast"), [25.0, 35.0, 45.0]);
    let late = lab.log.of("fast").into_iter().map(|run| run.began - run.at).max().unwrap();
    assert!(late < chrono::TimeDelta::milliseconds(100), "{late}");
    lab.until(62.0);
    let slow = lab.log.entries().iter().filter(|run| run.name.starts_with("slow")).count();
    assert_eq!((slow, most_at_once(&lab, "slow", None)), (2_500, 50));
    assert_eq!(member.handle.health().kind_capacity[0].used, 0);
}

#[test]
fn a_limit_is_at_least_one_and_of_a_handler_that_is_declared() {
    let lab = Lab::new(9);
    let error = |pattern: Pattern, runs| {
        let seat = lab.seat(lab.sim.node());
        let b = seat.builder().kind("mail", async |_: Run| {}).kind_concurrency(pattern, runs);
        b.build().err().map(|error| error.to_string()).unwrap_or_default()
    };
    assert_eq!(error("mail".into(), 1), "");
    assert!(error("mail".into(), 0).contains("`kind_concurrency` of `mail` is 0; use 1 or more"));
    assert!(error(Pattern::prefix("mail"), 3).contains("`mail*`, which has no handler"));
}

/// A handler of a build that can read this data only.
fn reads(b: SchedulerBuilder, good: &'static [u8], version: &str, seen: &Seen) -> SchedulerBuilder {
    let (seen, by) = (seen.clone(), version.to_owned());
    let handler = async move |run: Run| -> Result<(), BoxError> {
        if run.data() != good {
            run.data_does_not_fit("missing field `to`");
            return Err("missing field `to`".into());
        }
        seen.tell(by);
        Ok(())
    };
    b.kind("mail", handler).build_version(version)
}

#[test]
fn data_that_does_not_fit_an_old_build_is_run_by_a_new_one() {
    let mut given_back = 0;
    for seed in 0..8 {
        let lab = Lab::new(40 + seed);
        let seen = Seen::default();
        let old = [(); 2].map(|()| lab.start(|_, b| reads(b, b"old", "v1", &seen)));
        lab.start(|_, b| reads(b, b"new", "v2", &seen));
        // One attempt, with which no old build kills it; and at most once.
        let retried = StoredSchedule::new("once", "mail", "@every 30s").max_runs(4);
        let never = retried.clone().retry(Retry::NEVER).data_bytes("new");
        add(&lab, never);
        add(
            &lab,
            StoredSchedule::new("most", "mail", "@every 30s")
                .at_most_once()
                .max_runs(4)
                .data_bytes("new"),
        );
        lab.until(200.0);
        assert_eq!(seen.sorted(), ["v2"; 8], "seed {seed}");
        for name in ["once", "most"] {
            let counters = lab.state(name).counters;
            assert_eq!((counters.succeeded, counters.failed), (4, 0), "seed {seed}, {name}");
            given_back += lab.story(name).iter().filter(|one| one.starts_with("released")).count();
        }
        for member in &old {
            let health = member.handle.health();
            let told = member.news().iter().filter(|one| *one == "data-mismatch").count();
            assert_eq!(health.with("data-mismatch").count(), told, "seed {seed}");
            if let Some(one) = health.with("data-mismatch").next() {
                let allora_core::Condition::DataMismatch { kind, error, builds, .. } =
                    &one.condition
                else {
                    panic!("{health}")
                };
                assert_eq!((&**kind, &**error), ("mail", "missing field `to`"));
                assert!(builds.contains("v1 here"), "{builds}");
                assert!(!health.is_healthy());
            }
        }
    }
    assert!(given_back > 8, "the old builds had {given_back} of them first");
}

#[test]
fn data_that_fits_no_build_is_retried_by_the_policy_and_runs_when_it_is_repaired() {
    let lab = Lab::new(60);
    let seen = Seen::default();
    let member = lab.start(|_, b| reads(b, b"old", "v1", &seen));
    let stored = StoredSchedule::new("mail", "mail", "@every 3600s").data_bytes("new");
    add(&lab, stored.retry(Retry::up_to(2, secs(5))));
    lab.until(3_700.0);
    assert_eq!(lab.story("mail"), ["released 3600", "retried 3600", "dead 3600"]);
    assert_eq!(member.news(), ["Ready", "data-mismatch"]);
    let runs = lab.past("mail");
    let started: Vec<f64> = runs
        .iter()
        .map(|run| (run.started_at.unwrap() - at(0.0)).num_milliseconds() as f64 / 1_000.0)
        .collect();
    assert!(started[1] >= 3_610.0, "other nodes have it first: {started:?}");
    let client = schedules(&lab);
    let state = lab.sim.block_on(client.get("mail")).unwrap();
    let repaired = StoredSchedule::of(&state).unwrap().data_bytes("old");
    lab.sim.block_on(client.modify(&repaired)).unwrap();
    lab.sim.block_on(client.rerun("mail", &state.dead[0].occurrence)).unwrap();
    lab.until(3_702.0);
    assert_eq!(seen.take(), ["v1"]);
    assert_eq!(member.news(), ["Ready", "data-mismatch", "data-mismatch over"]);
    assert!(member.handle.health().is_healthy(), "{}", member.handle.health());
}
