//! A store that fails: nothing doubles, nothing is lost.

use crate::support::{Faults, Lab, Rates, at, ms, secs};
use allora_conformance::faults::{Hooks, Wrapped};
use allora_core::{
    Backend, Error, ErrorKind, Result, Scheduler,
    backend::{Action, Applied, Batch, Notification, Notifier, Operation},
    every,
};
use async_trait::async_trait;
use futures::stream::BoxStream;
use std::sync::{Arc, atomic::Ordering::Relaxed};

#[test]
fn a_store_that_is_down_is_asked_again_and_nothing_is_lost() {
    let lab = Lab::new(1);
    let member = lab.start(|seat, b| b.add("job", seat.job(every(secs(10)), ms(0))));
    lab.until(15.0);
    member.faults.down.store(true, Relaxed);
    lab.until(45.0);
    member.faults.down.store(false, Relaxed);
    lab.until(55.0);
    assert_eq!(lab.ran("job"), [10., 40., 50.]);
    assert!(lab.log.of("job")[1].began <= at(46.0));
    assert_eq!(
        lab.story("job"),
        ["succeeded 10", "missed 20-30 2", "succeeded 40", "succeeded 50"]
    );
    assert_eq!(member.news(), ["Ready", "store-down", "store-down over", "OccurrencesMissed"]);
}

#[test]
fn a_store_that_is_down_at_the_start_is_waited_for() {
    let lab = Lab::new(2);
    let member = lab.start(|seat, b| {
        seat.faults.down.store(true, Relaxed);
        b.add("job", seat.job(every(secs(10)), ms(0)))
    });
    lab.until(33.0);
    member.faults.down.store(false, Relaxed);
    lab.until(55.0);
    assert_eq!(lab.log.of("job").len(), 2);
    assert_eq!(member.news(), ["store-down", "store-down over", "Ready"]);
    let calls = member.faults.calls();
    assert!(calls < 70, "{calls} calls");
}

#[test]
fn a_refusal_after_an_outage_is_told_too() {
    let lab = Lab::new(3);
    let member = lab.start(|seat, b| b.add("job", seat.job(every(secs(10)), ms(0))));
    lab.until(15.0);
    member.faults.down.store(true, Relaxed);
    lab.until(25.0);
    member.faults.refuses.store(true, Relaxed);
    member.faults.down.store(false, Relaxed);
    lab.until(35.0);
    member.faults.refuses.store(false, Relaxed);
    lab.until(45.0);
    assert_eq!(
        member.news(),
        [
            "Ready",
            "store-down",
            "store-rejects",
            "store-down over",
            "store-rejects over",
            "OccurrencesMissed"
        ],
        "each once"
    );
}

/// Every fault at once, for both kinds of delivery: each instant has one outcome.
#[test]
fn lost_requests_and_replies_neither_double_nor_lose() {
    let mut lost: u64 = 0;
    for seed in 0..20 {
        let lab = Lab::new(seed);
        let members = [(); 2].map(|()| {
            lab.start(|seat, b| {
                seat.rates(Rates {
                    lose_request: 80,
                    lose_reply: 150,
                    refuse: 50,
                    double: 50,
                    linger: 30,
                    delay: 500,
                    delay_ms: 200,
                });
                b.add("once", seat.job(every(secs(5)), ms(700)))
                    .add("leased", seat.job(every(secs(5)), ms(700)).at_least_once(secs(10)))
            })
        });
        lab.until(300.0);
        for member in &members {
            member.faults.set(Rates::default());
        }
        lab.until(360.0);
        lost += members.iter().map(|member| member.faults.lost_claims.load(Relaxed)).sum::<u64>();
        let doubled = members.iter().find_map(|m| m.faults.doubled.lock().unwrap().clone());
        assert_eq!(doubled, None, "seed {seed}");
        let mut times = lab.log.times("once");
        let len = times.len();
        times.sort();
        times.dedup();
        assert_eq!(times.len(), len, "seed {seed}: twice at most once");
        let counters = lab.state("leased").counters;
        let cursor = lab.state("leased").next.unwrap().scheduled_at;
        let passed = (cursor - at(0.0)).num_seconds() as u64 / 5 - 1;
        let counted = counters.succeeded + counters.missed;
        assert!(counted == passed, "seed {seed}: {counted} of {passed}, {counters:?}");
        let counters = lab.state("once").counters;
        let cursor = lab.state("once").next.unwrap().scheduled_at;
        let passed = (cursor - at(0.0)).num_seconds() as u64 / 5 - 1;
        let alive = lab.state("once").leases.len() as u64;
        let counted = counters.succeeded + counters.missed + counters.lost + alive;
        assert!(counted == passed, "seed {seed}: {counted} of {passed}, {counters:?}");
    }
    assert!(lost > 20, "only {lost} answers to takes were lost");
}

#[test]
fn a_lost_answer_is_asked_again_with_its_claim_and_the_run_starts() {
    let lab = Lab::new(3);
    let member = lab.start(|seat, b| b.add("job", seat.job(every(secs(100)), ms(0))));
    lab.until(99.9);
    member.faults.deaf.store(true, Relaxed);
    lab.until(101.5);
    member.faults.deaf.store(false, Relaxed);
    lab.until(110.0);
    assert_eq!(lab.ran("job"), [100.]);
    assert_eq!(lab.story("job"), ["succeeded 100"]);
    assert_eq!(lab.log.of("job").len(), 1);
}

#[test]
fn a_lost_answer_does_not_change_how_often_a_job_runs() {
    let lab = Lab::new(4);
    let member = lab.start(|seat, b| {
        b.add("job", seat.job(every(secs(10)), ms(0)).at_least_once(secs(60)).max_runs(2))
    });
    lab.until(9.9);
    member.faults.deaf.store(true, Relaxed);
    lab.until(25.0);
    member.faults.deaf.store(false, Relaxed);
    lab.until(100.0);
    assert_eq!(lab.ran("job").len(), 2, "{:?}", lab.story("job"));
}

/// A store that says that something is due and never lets anybody take it, and whose hints fail.
#[derive(Debug)]
struct Teasing {
    deaf: bool,
    faults: Arc<Faults>,
}

#[async_trait]
impl Hooks for Teasing {
    async fn reschedule(&self, store: &Arc<dyn Backend>, batch: Batch<'_>) -> Result<Applied> {
        self.faults.calls.fetch_add(1, Relaxed);
        let read =
            |operation: &Operation<'_>| !self.deaf && matches!(operation.action, Action::Claim(_));
        let mut operations = batch.operations.to_vec();
        for operation in operations.iter_mut().filter(|operation| read(operation)) {
            operation.action = Action::Read;
        }
        let mut teased = batch;
        teased.operations = &operations;
        store.reschedule(teased).await
    }

    fn has_notifier(&self) -> bool {
        self.deaf
    }

    async fn subscribe(&self, _: &dyn Notifier) -> Result<BoxStream<'static, Notification>> {
        Err(Error::new(ErrorKind::Unavailable, "nobody may listen here"))
    }
}

fn teased(lab: &Lab, deaf: bool) -> (crate::support::Member, Arc<Faults>) {
    let seat = lab.seat(lab.sim.node());
    let job = seat.job(every(secs(10)), ms(0));
    let faults: Arc<Faults> = Arc::default();
    let store = Wrapped::around(lab.store.clone(), Teasing { deaf, faults: faults.clone() });
    let scheduler =
        Scheduler::builder(store).runtime(seat.node.clone()).add("job", job).build().unwrap();
    (seat.run(scheduler), faults)
}

#[test]
fn a_store_that_stays_due_is_not_pestered_and_does_not_keep_a_scheduler_from_stopping() {
    let lab = Lab::new(5);
    let (member, faults) = teased(&lab, false);
    lab.until(20.0);
    assert!(faults.calls() < 200, "{} calls", faults.calls());
    member.handle.stop();
    lab.until(21.0);
    assert!(member.stopped().is_some());
}

#[test]
fn a_store_without_hints_is_polled() {
    let lab = Lab::new(6);
    teased(&lab, true);
    lab.until(25.0);
    assert_eq!(lab.ran("job"), [10., 20.]);
}

#[test]
fn a_backend_that_only_reschedules_is_enough() {
    let lab = Lab::new(7);
    for _ in 0..2 {
        let seat = lab.seat(lab.sim.node());
        let job = seat.job(every(secs(10)), secs(15));
        let scheduler = Scheduler::builder(crate::support::bare(lab.store.clone()))
            .runtime(seat.node.clone())
            .add("job", job)
            .build()
            .unwrap();
        seat.run(scheduler);
    }
    lab.until(45.0);
    assert_eq!(lab.ran("job"), [10., 20., 30., 40.]);
}
