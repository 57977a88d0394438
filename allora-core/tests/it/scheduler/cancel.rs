//! Cancelled runs: by an operator, and by the deletion of their job.

use crate::support::{Lab, Member, Over, Rates, at, secs};
use allora_core::{
    Overlap, Retry, Run, Schedules,
    backend::{Action, CancelScope, HistoryEntry, NotRunReason, Outcome, Reply},
    every, job,
    stored::Gap,
};
use std::sync::atomic::Ordering::Relaxed;

/// The outcome and the reason of a run's entry.
fn end(past: &[HistoryEntry], i: usize) -> (Outcome, Option<NotRunReason>) {
    (past[i].outcome.clone(), past[i].reason)
}

const CANCELLED: (Outcome, Option<NotRunReason>) =
    (Outcome::Cancelled, Some(NotRunReason::Operator));

#[test]
fn a_cancelled_run_ends_at_once_on_another_node_and_is_not_tried_again() {
    for retries in [false, true] {
        let lab = Lab::new(1);
        let work = |lab: &Lab| {
            let log = lab.log.clone();
            let spec = job(every(secs(60)), async move |run: Run| {
                let execution = log.begin(&run);
                run.cancelled().await;
                assert!(run.cancel_requested());
                execution.over(Over::Ran);
            });
            if retries { spec.at_least_once(secs(30)) } else { spec }
        };
        let members = [(); 2].map(|()| lab.start(|_, b| b.add("job", work(&lab))));
        lab.until(62.0);
        // One of them has the run. It may have ended before the second request.
        let requested = |member: &Member| lab.sim.block_on(member.handle.cancel("job")).unwrap();
        assert_eq!(requested(&members[0]), 1);
        assert!(requested(&members[1]) <= 1);
        lab.until(62.5);
        lab.assert_over("job", 0, at(62.0), Over::Ran);
        assert_eq!(members.iter().map(|member| member.handle.running()).sum::<usize>(), 0);
        lab.until(100.0);
        let past = lab.past("job");
        assert_eq!((past.len(), end(&past, 0)), (1, CANCELLED), "{past:?}");
        lab.until(121.0);
        assert_eq!(lab.ran("job"), [60., 120.], "the schedule continues");
        assert_eq!(lab.sim.block_on(members[0].handle.cancel("job")).unwrap(), 1);
        lab.until(125.0);
        assert_eq!(lab.sim.block_on(members[0].handle.cancel("job")).unwrap(), 0);
        assert_eq!(lab.state("job").counters.cancelled, 2);
    }
}

#[test]
fn the_next_occurrence_replaces_a_run_on_any_node_and_waits_for_its_end() {
    // One node, whose only place the run has; and two nodes.
    for nodes in [1, 2] {
        let lab = Lab::new(nodes);
        let start = |_| {
            let log = lab.log.clone();
            let spec = job(every(secs(60)), async move |run: Run| {
                let execution = log.begin(&run);
                run.cancelled().await;
                execution.over(Over::Ran);
            });
            let spec = spec.overlap(Overlap::Replace);
            lab.start(|_, b| b.add("job", spec).concurrency(1))
        };
        let members: Vec<Member> = (0..nodes).map(start).collect();
        lab.until(119.0);
        assert_eq!(lab.ran("job"), [60.], "nothing replaces it before");
        lab.until(200.0);
        assert_eq!(lab.ran("job"), [60., 120., 180.], "{nodes} nodes");
        lab.assert_over("job", 0, at(120.0), Over::Ran);
        let past = lab.past("job");
        let reasons: Vec<_> = (0..past.len()).map(|i| end(&past, i)).collect();
        let by = |second| (Outcome::Cancelled, Some(NotRunReason::Replaced { by: at(second) }));
        assert_eq!(reasons[..2], [by(120.0), by(180.0)]);
        drop(members);
    }
}

#[test]
fn a_run_that_ignores_its_cancellation_is_dropped_after_a_tenth_of_the_grace() {
    let lab = Lab::new(2);
    let member =
        lab.start(|seat, b| b.add("job", seat.job(every(secs(60)), secs(300))).grace(secs(20)));
    lab.until(70.0);
    lab.sim.block_on(member.handle.cancel("job")).unwrap();
    lab.until(80.0);
    lab.assert_over("job", 0, at(72.0), Over::Dropped);
    assert_eq!(end(&lab.past("job"), 0), CANCELLED);
    assert_eq!(lab.story("job"), ["cancelled 60"]);
}

#[test]
fn a_run_learns_of_its_cancellation_by_its_next_extension_without_notifications() {
    let lab = Lab::new(3);
    let member = lab.start(|seat, b| {
        seat.faults.deaf_to_subscriptions.store(true, Relaxed);
        b.add("job", seat.job(every(secs(60)), secs(300)).at_least_once(secs(30))).grace(secs(1))
    });
    lab.until(71.0);
    let cancel = Action::Cancel(CancelScope::All);
    assert!(matches!(lab.operate("job", cancel), Ok(Reply::State(_))));
    lab.until(79.0);
    assert_eq!(member.handle.running(), 1);
    lab.until(82.0);
    assert_eq!(member.handle.running(), 0);
    assert_eq!(lab.story("job"), ["cancelled 60"]);
}

#[test]
fn a_run_learns_of_a_cancellation_that_came_before_the_reply_to_its_claim() {
    let mut begun = 0;
    for (seed, deleted) in (0..20).flat_map(|seed| [(seed, false), (seed, true)]) {
        let lab = Lab::new(seed);
        let member = lab.start(|seat, b| {
            seat.rates(Rates { delay: 1_000, delay_ms: 400, ..Rates::default() });
            let work = seat.job(every(secs(60)), secs(3_000));
            b.add("job", work).lost_after(secs(3_600)).grace(secs(10))
        });
        let mut now = 60.0;
        while lab.state_of("job").is_none_or(|state| state.leases.is_empty()) {
            now += 0.01;
            lab.until(now);
        }
        let action = if deleted { Action::Delete } else { Action::Cancel(CancelScope::All) };
        lab.operate("job", action).unwrap();
        begun += usize::from(lab.log.of("job").is_empty());
        lab.until(now + 6.0);
        assert_eq!(member.handle.running(), 0, "seed {seed}, deleted: {deleted}");
    }
    assert!(begun > 5, "no cancellation came before the reply");
}

#[test]
fn a_cancelled_run_of_a_dead_node_is_recorded_as_cancelled() {
    for (at_least_once, overlap) in
        [(true, Overlap::Wait), (false, Overlap::Wait), (false, Overlap::Allow)]
    {
        for paused in [false, true] {
            let lab = Lab::new(4);
            let spec = |seat: &crate::support::Seat| {
                let spec = seat.job(every(secs(600)), secs(3_000));
                if at_least_once { spec.at_least_once(secs(30)) } else { spec.overlap(overlap) }
            };
            let dead = lab.start(|seat, b| b.add("job", spec(seat)).lost_after(secs(30)));
            lab.until(601.0);
            assert_eq!(dead.handle.running(), 1);
            let other = lab.start(|seat, b| b.add("job", spec(seat)).lost_after(secs(30)));
            lab.until(602.0);
            dead.node.pause();
            assert_eq!(lab.sim.block_on(other.handle.cancel("job")).unwrap(), 1);
            if paused {
                lab.sim.block_on(other.handle.pause("job", "")).unwrap();
            }
            lab.until(660.0);
            let case = format!("{at_least_once} {overlap:?} {paused}");
            let past = lab.past("job");
            assert_eq!((past.len(), end(&past, 0)), (1, CANCELLED), "{case}: {past:?}");
            let counters = lab.state("job").counters;
            assert_eq!((counters.lost, counters.expired, counters.cancelled), (0, 0, 1), "{case}");
            assert_eq!(lab.state("job").dead, []);
            // The node wakes up, and records nothing else.
            dead.node.resume();
            lab.until(700.0);
            assert_eq!((lab.past("job").len(), dead.handle.running()), (1, 0), "{case}");
            if paused {
                lab.sim.block_on(other.handle.resume("job", Gap::CatchUp)).unwrap();
            }
            lab.until(1_201.0);
            assert_eq!(lab.ran("job"), [600., 1_200.], "{case}");
        }
    }
}

#[test]
fn a_failure_that_the_cancellation_overtook_is_not_retried() {
    for seed in 0..20 {
        let lab = Lab::new(seed);
        let member = lab.start(|seat, b| {
            seat.rates(Rates { delay: 1_000, delay_ms: 300, ..Rates::default() });
            let fails = seat.work(every(secs(60)), secs(10), |_| Err("no".into()));
            b.add("job", fails.at_least_once(secs(30)).retry(Retry::up_to(2, secs(20))))
        });
        lab.until(69.8 + 0.02 * seed as f64);
        lab.sim.block_on(member.handle.cancel("job")).unwrap();
        lab.until(110.0);
        let (past, state) = (lab.past("job"), lab.state("job"));
        let is_cancelled = state.counters.cancelled == 1;
        let failed = matches!(past[0].outcome, Outcome::Retried(_));
        assert!(is_cancelled || failed, "seed {seed}: {past:?}");
        if is_cancelled {
            assert_eq!((past.len(), end(&past, 0)), (1, CANCELLED), "seed {seed}: {past:?}");
        }
    }
}

/// A stored schedule that is deleted while it runs, and created again under its name.
fn created_again(overlap: Overlap, takes: u64) -> (Vec<f64>, Vec<f64>) {
    let lab = Lab::new(6);
    let client = Schedules::on(lab.store.clone(), lab.clock()).unwrap();
    let text = match overlap {
        Overlap::Allow => "@every 60s",
        _ => "@every 60s; overlap wait",
    };
    lab.store("job", "mail", text);
    for _ in 0..2 {
        lab.start(|seat, b| {
            let work = seat.handler(secs(takes), |_| Ok(()));
            b.kind("mail", work).grace(secs(20)).lost_after(secs(30))
        });
    }
    lab.until(60.5);
    assert_eq!(lab.log.of("job").len(), 1);
    lab.sim.block_on(client.delete("job")).unwrap();
    lab.store("job", "mail", text);
    lab.sim.block_on(client.trigger("job", "at once")).unwrap();
    lab.until(70.0);
    let second = |time: allora_core::Time| (time - at(0.0)).num_milliseconds() as f64 / 1_000.0;
    let runs = lab.log.of("job");
    let begun = runs.iter().map(|run| second(run.began)).collect();
    let ended = runs.iter().filter_map(|run| Some(second(run.ended?.0))).collect();
    let running = lab.past("job").iter().filter(|past| past.ended_at.is_none()).count();
    assert!(running <= 1, "only the last run is active: {:?}", lab.past("job"));
    let deleted = (Outcome::Cancelled, Some(NotRunReason::Deleted));
    assert_eq!(end(&lab.past("job"), 0), deleted);
    (begun, ended)
}

#[test]
fn a_run_of_the_created_schedule_does_not_overlap_that_of_the_deleted_one() {
    let (begun, ended) = created_again(Overlap::Wait, 1_000);
    // The nodes learn of the deletion at once, and two seconds are a tenth of the grace period.
    assert!((62.4..62.7).contains(&ended[0]), "{ended:?}");
    assert!(begun[1] >= ended[0] && begun[1] < ended[0] + 0.5, "{begun:?} {ended:?}");
}

#[test]
fn a_run_that_may_overlap_starts_at_once_beside_that_of_the_deleted_schedule() {
    let (begun, ended) = created_again(Overlap::Allow, 1_000);
    assert!(begun[1] < 61.0 && begun[1] < ended[0], "{begun:?} {ended:?}");
}

#[test]
fn the_runs_of_deleted_schedules_do_not_stay_active_in_the_history() {
    let lab = Lab::new(7);
    let client = Schedules::on(lab.store.clone(), lab.clock()).unwrap();
    let names: Vec<String> = (0..50).map(|i| format!("job {i}")).collect();
    for name in &names {
        lab.store(name, "mail", "@every 10s");
    }
    let members = [(); 2].map(|()| {
        lab.start(|seat, b| {
            let work = seat.handler(secs(7), |_| Ok(()));
            b.kind("mail", work).concurrency(100).lost_after(secs(30))
        })
    });
    lab.until(35.0);
    members[0].node.pause();
    for name in &names {
        lab.sim.block_on(client.delete(name)).unwrap();
    }
    lab.until(200.0);
    for name in &names {
        let past = lab.past(name);
        assert!(past.len() >= 3 && past.iter().all(HistoryEntry::is_final), "{past:?}");
    }
}

#[test]
fn the_output_that_a_run_has_set_is_in_its_entry() {
    let lab = Lab::new(8);
    lab.start(|_, b| {
        let says = async |run: Run| {
            run.set_output("first");
            run.set_output(format!("attempt {}", run.attempt()));
            if run.attempt() == 1 { Err("no".into()) } else { Ok::<(), allora_core::BoxError>(()) }
        };
        b.add(
            "job",
            job(every(secs(60)), says).at_least_once(secs(30)).retry(Retry::up_to(2, secs(5))),
        )
        .add("silent", job(every(secs(60)), async |_: Run| {}))
    });
    lab.until(100.0);
    let outputs: Vec<_> = lab.past("job").into_iter().map(|past| past.output).collect();
    assert_eq!(outputs, [Some("attempt 1".to_owned()), Some("attempt 2".to_owned())]);
    assert_eq!(lab.past("silent")[0].output, None);
}

/// A job that always fails, and is tried again every 10 s.
fn failing(seat: &crate::support::Seat) -> allora_core::JobSpec {
    seat.work(every(secs(60)), secs(1), |_| Err("no such host".into()))
        .at_least_once(secs(30))
        .retry(Retry::up_to(20, secs(10)).at_most_every(secs(10)))
}

#[test]
fn an_attempt_that_waits_for_its_retry_is_cancelled_and_the_schedule_continues() {
    for paused in [false, true] {
        let lab = Lab::new(6);
        let member = lab.start(|seat, b| b.add("job", failing(seat)));
        lab.until(75.0);
        assert_eq!(lab.ran("job"), [60., 60.], "a retry waits");
        if paused {
            lab.sim.block_on(member.handle.pause("job", "")).unwrap();
        }
        assert_eq!(lab.sim.block_on(member.handle.cancel("job")).unwrap(), 1);
        lab.until(100.0);
        assert_eq!(lab.ran("job"), [60., 60.], "paused: {paused}");
        let past = lab.past("job");
        assert_eq!((past.len(), end(&past, 2)), (3, CANCELLED), "{past:?}");
        assert_eq!((past[2].attempt, past[2].started_at), (2, None));
        if paused {
            lab.sim.block_on(member.handle.resume("job", Gap::CatchUp)).unwrap();
        }
        lab.until(125.0);
        assert_eq!(lab.ran("job"), [60., 60., 120.], "paused: {paused}");
    }
}

#[test]
fn a_trigger_that_waits_for_its_retry_or_for_a_node_is_cancelled() {
    let lab = Lab::new(7);
    let member = lab.start(|seat, b| b.add("job", failing(seat)));
    lab.until(5.0);
    lab.sim.block_on(member.handle.trigger("job", "mine")).unwrap();
    lab.until(10.0);
    let client = Schedules::on(lab.store.clone(), lab.clock()).unwrap();
    lab.store("stored", "nobody", "@every 60s");
    lab.sim.block_on(client.trigger("stored", "yours")).unwrap();
    for name in ["job", "stored"] {
        assert_eq!(lab.sim.block_on(client.cancel(name)).unwrap(), 1, "{name}");
        assert_eq!(lab.sim.block_on(client.cancel(name)).unwrap(), 0, "{name}");
    }
    let wait = client.trigger_and_wait("stored", "yours", secs(1));
    assert_eq!(lab.sim.block_on(wait).unwrap().outcome, Outcome::Cancelled);
    lab.until(55.0);
    assert_eq!(lab.ran("job"), [5.]);
    assert_eq!(lab.story("job"), ["retried 5", "cancelled 5"]);
    assert_eq!(lab.story("stored"), ["cancelled 10"]);
}

#[test]
fn a_waiting_attempt_is_cancelled_beside_the_run_of_a_trigger() {
    let lab = Lab::new(8);
    let member = lab.start(|seat, b| {
        let work = |run: &Run| match run.trigger() {
            Some(_) => Ok(()),
            None => Err("no such host".into()),
        };
        let spec = seat.work(every(secs(60)), secs(8), work).at_least_once(secs(30));
        b.add("job", spec.retry(Retry::up_to(20, secs(20)).at_most_every(secs(20))))
    });
    lab.until(70.0);
    lab.sim.block_on(member.handle.trigger("job", "mine")).unwrap();
    lab.until(72.0);
    assert_eq!(lab.sim.block_on(member.handle.cancel("job")).unwrap(), 2);
    lab.until(119.0);
    assert_eq!(lab.story("job"), ["retried 60", "cancelled 70", "cancelled 60"]);
    lab.until(121.0);
    assert_eq!(lab.ran("job"), [60., 70., 120.]);
}
