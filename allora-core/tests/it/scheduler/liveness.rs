//! Nothing stops a job that can run: every belief of a node is checked again.

use crate::support::{Lab, Member, Moody, Seat, at, ms, secs};
use allora_core::{
    JobSpec, SchedulerBuilder,
    backend::{Action, NextRun},
    cron, every,
    record::TOMBSTONE,
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

/// A hundred at-least-once jobs, each every ten seconds.
fn hundred(seat: &Seat, b: SchedulerBuilder, lease: Duration) -> SchedulerBuilder {
    (0..100).fold(b, |b, i| {
        b.add(format!("job-{i}"), seat.job(every(secs(10)), ms(100)).at_least_once(lease))
    })
}

/// Occurrences from 10 s to `until` that did not run, and the longest delay of the others.
fn late(lab: &Lab, jobs: usize, until: u32) -> (usize, Duration) {
    let (mut missed, mut latest) = (0, Duration::ZERO);
    for i in 0..jobs {
        let runs = lab.log.of(&format!("job-{i}"));
        for n in 1..=until / 10 {
            let due = at(10.0 * f64::from(n));
            match runs.iter().find(|run| run.at == due) {
                Some(run) => latest = latest.max((run.began - due).to_std().unwrap_or_default()),
                None => missed += 1,
            }
        }
    }
    (missed, latest)
}

/// The node of three that ran the jobs leaves between runs, by `leave`.
fn leaves_between_runs(leave: fn(&Member)) {
    for (seed, lease, is_silent) in
        [(1, secs(30), false), (2, secs(30), true), (3, secs(3_600), true)]
    {
        let lab = Lab::new(seed);
        let members = [(); 3].map(|()| {
            lab.start(|seat, b| {
                seat.faults.is_silent.store(is_silent, Relaxed);
                hundred(seat, b, lease)
            })
        });
        lab.until(25.0);
        let last = lab.log.of("job-0").last().map(|run| run.node.clone());
        leave(members.iter().find(|member| Some(member.handle.node()) == last.as_deref()).unwrap());
        lab.until(105.0);
        let (missed, latest) = late(&lab, 100, 100);
        assert_eq!(missed, 0, "lease {lease:?}");
        assert!(latest < secs(1), "lease {lease:?}: {latest:?} late");
    }
}

#[test]
fn after_a_clean_stop_between_runs_nothing_is_late() {
    leaves_between_runs(|member| member.handle.stop());
}

#[test]
fn after_a_crash_between_runs_nothing_is_late() {
    leaves_between_runs(|member| member.node.crash());
}

#[test]
fn a_job_that_is_removed_and_added_during_its_run_starts_on_time() {
    for is_silent in [false, true] {
        let lab = Lab::new(4);
        let mut spec: Option<JobSpec> = None;
        let member = lab.start(|seat, b| {
            seat.faults.is_silent.store(is_silent, Relaxed);
            let job = seat.job(every(secs(10)), secs(5)).at_least_once(secs(60));
            spec = Some(job.clone());
            b.add("job", job)
        });
        lab.until(12.0);
        assert!(member.handle.remove("job"));
        member.handle.add("job", spec.unwrap()).unwrap();
        lab.until(45.0);
        assert_eq!(lab.ran("job"), [10., 20., 30., 40.]);
        assert!(lab.log.of("job")[1].began < at(21.0), "{}", lab.log.of("job")[1].began);
    }
}

#[test]
fn a_claim_whose_reply_was_lost_runs_next_at_full_capacity() {
    for seed in 0..20 {
        let lab = Lab::new(seed);
        let three = |seat: &Seat, b: SchedulerBuilder| {
            ["a", "b", "c"].into_iter().fold(b.concurrency(1).lost_after(secs(10)), |b, name| {
                b.add(name, seat.job(every(secs(1_000)), secs(60)))
            })
        };
        let member = lab.start(three);
        lab.until(999.0);
        member.faults.deaf_to_claims.store(true, Relaxed);
        lab.until(1_001.5);
        member.faults.deaf_to_claims.store(false, Relaxed);
        lab.until(1_003.0);
        // It would record as lost what the first node does not run.
        lab.start(three);
        lab.until(1_300.0);
        for name in ["a", "b", "c"] {
            let counters = lab.state(name).counters;
            assert_eq!((counters.succeeded, counters.lost), (1, 0), "seed {seed}: {name}");
        }
    }
}

/// Registers jobs of another service, and triggers each of them.
fn another_service(lab: &Lab, jobs: usize) {
    let first = Some(NextRun::from(at(1e9)));
    for i in 0..jobs {
        let name = format!("other-{i}");
        lab.operate(&name, Action::Register { definition: "other", version: 0, first }).unwrap();
        lab.operate(&name, Action::trigger("now")).unwrap();
    }
}

#[test]
fn due_records_of_another_service_cost_little_and_hide_nothing() {
    for with_kinds in [false, true] {
        let lab = Lab::new(5);
        another_service(&lab, 1_100);
        let member = lab.start(|seat, b| {
            seat.faults.is_silent.store(true, Relaxed);
            let b = b.add("mine", seat.job(every(secs(100_000)), ms(0)));
            if with_kinds { b.kind("t", seat.handler(ms(0), |_| Ok(()))) } else { b }
        });
        lab.until(60.0);
        let calls = member.faults.calls();
        lab.until(120.0);
        let calls = member.faults.calls() - calls;
        // While nothing notifies, three pages each 1.5 s: one of stored schedules, and two of jobs in
        // code.
        assert!(calls < 130, "{calls} requests in a minute");
        // Nothing tells the node.
        lab.operate("mine", Action::trigger("go")).unwrap();
        lab.until(130.0);
        assert_eq!(lab.log.of("mine").len(), 1);
        assert!(lab.log.of("mine")[0].began < at(123.0), "within one poll and a page");
    }
}

#[test]
fn a_deleted_job_stays_deleted_when_its_tombstone_expires() {
    let lab = Lab::new(6);
    let monthly = |seat: &Seat, b: SchedulerBuilder| {
        seat.faults.loses_notifications.store(true, Relaxed);
        let b = b.poll_interval(secs(3_600));
        b.add("job", seat.job(cron("0 0 1 * *").unwrap(), ms(0)))
    };
    let [awake, asleep] = [(); 2].map(|()| lab.start(monthly));
    lab.until(10.0);
    lab.operate("job", Action::Delete).unwrap();
    asleep.node.pause();
    lab.until(TOMBSTONE.as_secs_f64() + 86_400.0);
    asleep.node.resume();
    lab.until(40.0 * 86_400.0);
    assert_eq!(lab.log.of("job").len(), 0, "it came back");
    for member in [awake, asleep] {
        assert!(member.news().contains(&"job-deleted".to_owned()), "{:?}", member.news());
    }
}

#[test]
fn a_job_that_another_node_registers_again_runs_on_every_node() {
    let lab = Lab::new(7);
    let ten = |seat: &Seat, b: SchedulerBuilder| {
        seat.faults.is_silent.store(true, Relaxed);
        b.add("job", seat.job(every(secs(10)), ms(0)))
    };
    let first = lab.start(ten);
    lab.until(15.0);
    lab.operate("job", Action::Delete).unwrap();
    lab.until(25.0);
    let second = lab.start(ten);
    lab.until(45.0);
    second.handle.stop();
    lab.until(200.0);
    let last = lab.log.of("job").last().map(|run| run.at);
    assert!(last >= Some(at(190.0)), "{last:?}");
    assert_eq!(first.news()[..3], ["Ready", "job-deleted", "job-deleted over"]);
}

#[test]
fn a_schedule_that_panicked_for_a_moment_is_tried_again() {
    for (from, until) in [(0.0, 5.0), (15.0, 21.0)] {
        let lab = Lab::new(8);
        let panics = Arc::new(AtomicBool::new(from == 0.0));
        let member = lab.start(|_, b| b.add("job", Moody(panics.clone())));
        lab.until(from);
        panics.store(true, Relaxed);
        lab.until(until);
        panics.store(false, Relaxed);
        lab.until(200.0);
        let last = lab.state("job").last_started;
        assert!(last >= Some(at(190.0)), "{last:?}");
        let of_job = |event: &String| event.starts_with("job");
        let news: Vec<_> = member.news().into_iter().filter(of_job).collect();
        assert_eq!(news, ["job-invalid", "job-invalid over"]);
    }
}

#[test]
fn a_slow_store_serves_every_job_at_its_own_rate() {
    for (per_operation, within) in [(1_200, 60.0), (12_000, 300.0)] {
        let lab = Lab::new(9);
        let member = lab.start(|seat, b| {
            *seat.faults.per_operation.lock().unwrap() = Duration::from_micros(per_operation);
            (0..1_000).fold(b, |b, i| {
                let job = seat.job(every(secs(1_000)), ms(0)).delay(ms(0));
                b.add(format!("job-{i}"), job)
            })
        });
        lab.until(999.0);
        let registered = (0..1_000).filter(|i| lab.state_of(&format!("job-{i}")).is_some());
        assert_eq!(registered.count(), 1_000);
        lab.until(1_000.0 + within);
        let ran = (0..1_000).filter(|i| lab.log.of(&format!("job-{i}")).len() == 1).count();
        assert_eq!(ran, 1_000, "{:?}", member.news());
    }
}

#[test]
fn a_backfill_delays_the_schedule_by_at_most_one_of_its_runs() {
    let lab = Lab::new(10);
    lab.start(|seat, b| b.add("job", seat.job(every(secs(60)), secs(5)).at_least_once(secs(30))));
    lab.until(61.0);
    for i in 0..900 {
        let (id, scheduled_at) = (format!("fill-{i}"), Some(at(-1e6 + f64::from(i))));
        // A record keeps only so many triggers at once.
        let retention = Duration::ZERO;
        if lab
            .operate("job", Action::Trigger { id: &id, scheduled_at, retention, data: None })
            .is_err()
        {
            break;
        }
    }
    lab.until(1_000.0);
    let runs = lab.log.of("job");
    let (own, filled): (Vec<_>, Vec<_>) = runs.iter().partition(|run| run.trigger.is_none());
    assert!(filled.len() > 100, "{}", filled.len());
    let own: Vec<_> = own.iter().filter(|run| run.at >= at(0.0)).collect();
    assert_eq!(own.len(), 16);
    for run in own {
        assert!((run.began - run.at).num_milliseconds() < 5_500, "{run:?}");
    }
}
