//! Nothing stops a job that can run: failures stay where they are, and user code may call the
//! scheduler.

use crate::support::{Lab, Over, at, ms, secs};
use allora_conformance::faults::{Hooks, Wrapped};
use allora_core::{
    Backend, BoxError, Every, Handle, Job, Overlap, Run, Runtime, Scheduler, StorePart, Time,
    backend::{Action, Applied, Batch},
    every, job,
    runtime::SimNode,
};
use async_trait::async_trait;
use futures::future::BoxFuture;
use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering::Relaxed},
        mpsc,
    },
    time::{Duration, Instant},
};

/// So many seconds, on the full minute and after.
fn grid(seconds: u64) -> Every {
    every(secs(seconds)).phase(Duration::ZERO)
}

/// Every-node jobs of each sort, with the largest lateness of their starts.
#[track_caller]
fn assert_punctual(lab: &Lab, names: &[&str], instants: &[f64], late: Duration) {
    for name in names {
        assert_eq!(lab.ran(name), instants, "{name}");
        for run in lab.log.of(name) {
            let lateness = (run.began - run.at).to_std().unwrap();
            assert!(lateness <= late, "{name} of {} was {lateness:?} late", run.at);
        }
    }
}

#[test]
fn jobs_of_every_node_run_while_the_store_hangs() {
    let lab = Lab::new(1);
    let member = lab.start(|seat, b| {
        b.add("plain", seat.job(every(secs(10)), ms(5)).on_every_node())
            .add("alone", seat.job(every(secs(10)), ms(5)).overlap(Overlap::Skip).on_every_node())
            .add("leased", seat.job(every(secs(10)), ms(5)).at_least_once(secs(3)).on_every_node())
            .add("shared", seat.job(every(secs(10)), ms(5)))
            .add("shared leased", seat.job(every(secs(3)), ms(5)).at_least_once(secs(3)))
    });
    lab.until(12.0);
    member.faults.deaf.store(true, Relaxed);
    lab.until(65.0);
    let all = [10., 20., 30., 40., 50., 60.];
    assert_punctual(&lab, &["plain", "alone", "leased"], &all, ms(20));
}

#[test]
fn jobs_of_every_node_run_when_the_store_hangs_from_the_start() {
    let lab = Lab::new(2);
    lab.start(|seat, b| {
        seat.faults.deaf.store(true, Relaxed);
        b.add("plain", seat.job(grid(10), ms(5)).on_every_node())
            .add("leased", seat.job(grid(10), ms(5)).at_least_once(secs(3)).on_every_node())
    });
    lab.until(35.0);
    assert_punctual(&lab, &["plain", "leased"], &[10., 20., 30.], ms(20));
}

#[test]
fn a_clock_that_was_wrong_before_the_first_reply_does_not_delay_every_node_jobs() {
    let lab = Lab::new(3);
    let node = lab.sim.node();
    node.set_skew(chrono::TimeDelta::hours(1));
    let member = lab.start_on(node, |seat, b| {
        seat.faults.deaf.store(true, Relaxed);
        b.add("job", seat.job(grid(10), ms(0)).on_every_node())
    });
    lab.until(25.0);
    member.faults.deaf.store(false, Relaxed);
    lab.until(27.0);
    let before = lab.ran("job").len();
    lab.until(55.0);
    assert_eq!(lab.ran("job")[before..], [30., 40., 50.]);
}

#[test]
fn a_claim_without_a_reply_is_resolved_before_the_scheduler_ends() {
    for lease in [false, true] {
        let lab = Lab::new(4);
        let member = lab.start(|seat, b| {
            let job = seat.job(every(secs(60)), ms(0));
            b.add("job", if lease { job.at_least_once(secs(30)) } else { job })
        });
        lab.until(59.0);
        member.faults.deaf_to_claims.store(true, Relaxed);
        // One is lost before the stop, and repeated without a reply.
        lab.until(if lease { 62.5 } else { 60.1 });
        member.handle.stop();
        lab.until(66.0);
        assert_eq!(member.stopped(), None);
        member.faults.deaf_to_claims.store(false, Relaxed);
        lab.until(70.0);
        let stopped = member.stopped().unwrap();
        assert_eq!((stopped.cancelled, stopped.unrecorded), (0, 0));
        assert_eq!(lab.story("job"), ["released 60"], "{lease}");
    }
}

#[test]
fn claims_that_stay_unresolved_are_counted() {
    let lab = Lab::new(5);
    let member = lab.start(|seat, b| b.grace(secs(5)).add("job", seat.job(every(secs(60)), ms(0))));
    lab.until(59.0);
    member.faults.deaf_to_claims.store(true, Relaxed);
    lab.until(60.1);
    member.handle.stop();
    lab.until(70.0);
    let stopped = format!("{:?}", member.stopped().unwrap());
    assert!(stopped.contains("unresolved: 1"), "{stopped}");
}

#[test]
fn five_thousand_runs_cost_a_few_extensions_a_second() {
    let lab = Lab::new(6);
    let member = lab.start(|seat, b| {
        let job = || seat.job(every(secs(1_000)), secs(900)).jitter(secs(30));
        (0..5_000).fold(b.concurrency(10_000), |b, n| b.add(format!("job-{n}"), job()))
    });
    lab.until(1_060.0);
    assert_eq!(member.handle.running(), 5_000);
    let before = member.faults.updates.load(Relaxed);
    lab.until(1_090.0);
    let requests = member.faults.updates.load(Relaxed) - before;
    assert!(requests <= 90, "{requests} requests in 30 s");
    lab.until(1_130.0);
    assert_eq!(member.handle.running(), 5_000);
}

#[test]
fn an_extension_that_hangs_delays_no_completion() {
    let lab = Lab::new(7);
    let member = lab.start(|seat, b| {
        b.add("long", seat.job(every(secs(10)), secs(600)).at_least_once(secs(60)))
            .add("short", seat.job(every(secs(1)), ms(5)).at_least_once(secs(30)))
    });
    lab.until(12.5);
    *member.faults.mute.lock().unwrap() = Some("long".to_owned());
    lab.until(65.5);
    let all: Vec<f64> = (1..=65).map(f64::from).collect();
    assert_punctual(&lab, &["short"], &all, ms(20));
}

/// A job in code and a stored schedule, both every second.
fn every_second(
    seat: &crate::support::Seat,
    b: allora_core::SchedulerBuilder,
) -> allora_core::SchedulerBuilder {
    b.add("code", seat.job(grid(1), ms(5))).kind("k", seat.handler(ms(5), |_| Ok(())))
}

#[test]
fn a_search_that_hangs_delays_no_claim() {
    let lab = Lab::new(19);
    lab.store("stored", "k", "@every 1s");
    let member = lab.start(every_second);
    lab.until(12.5);
    member.faults.deaf_to_searches.store(true, Relaxed);
    lab.until(65.5);
    let all: Vec<f64> = (1..=65).map(f64::from).collect();
    assert_punctual(&lab, &["code"], &all, ms(20));
    assert_punctual(&lab, &["stored"], &all, ms(20));
    assert_eq!(member.news(), ["Ready", "store-down"]);
    // A schedule that is added during the outage is found after it.
    lab.store("late", "k", "@every 1s");
    lab.until(70.5);
    assert!(lab.ran("late").is_empty());
    member.faults.deaf_to_searches.store(false, Relaxed);
    lab.until(80.5);
    assert!(lab.ran("late").ends_with(&[77.5, 78.5, 79.5]), "{:?}", lab.ran("late"));
}

#[test]
fn a_subscription_that_hangs_delays_no_claim() {
    let lab = Lab::new(20);
    lab.start(|seat, b| {
        seat.faults.deaf_to_subscriptions.store(true, Relaxed);
        every_second(seat, b)
    });
    lab.until(30.5);
    let all: Vec<f64> = (1..=30).map(f64::from).collect();
    assert_punctual(&lab, &["code"], &all, ms(20));
}

/// A new connection may take longer than the store timeout.
#[test]
fn a_slow_subscription_is_given_more_time_with_each_attempt() {
    let lab = Lab::new(23);
    let member = lab.start(|seat, b| {
        seat.faults.subscription_ms.store(20_000, Relaxed);
        every_second(seat, b)
    });
    lab.until(600.0);
    assert_eq!(member.faults.subscriptions.load(Relaxed), 1);
}

#[test]
fn pruning_that_hangs_delays_no_claim_and_no_end() {
    let lab = Lab::new(21);
    let member = lab.start(|seat, b| {
        seat.faults.deaf_to_pruning.store(true, Relaxed);
        every_second(seat, b)
    });
    lab.until(60.5);
    let all: Vec<f64> = (1..=60).map(f64::from).collect();
    assert_punctual(&lab, &["code"], &all, ms(20));
    assert_eq!(lab.state("code").counters.succeeded, 60);
    assert_eq!(member.news(), ["Ready"]);
    member.faults.deaf_to_pruning.store(false, Relaxed);
    lab.until(121.0);
    let pruned = member.faults.pruned.load(Relaxed);
    assert!((4..=6).contains(&pruned), "{pruned} times in a minute of writes");
    member.handle.remove("code");
    lab.until(200.0);
    let pruned = member.faults.pruned.load(Relaxed);
    lab.until(3_000.0);
    assert_eq!(member.faults.pruned.load(Relaxed), pruned, "nothing was written");
}

#[test]
fn pruning_that_is_refused_is_reported_once_and_tried_again_although_nothing_is_written() {
    let lab = Lab::new(22);
    let member = lab.start(|seat, b| {
        seat.faults.refuses_pruning.store(true, Relaxed);
        every_second(seat, b)
    });
    lab.until(60.5);
    assert_eq!(member.news(), ["Ready", "store-rejects"]);
    let failing = member.failing();
    let parts: Vec<_> = failing.iter().map(|failing| failing.part).collect();
    assert_eq!(parts, [StorePart::Pruning]);
    member.handle.remove("code");
    lab.until(120.0);
    member.faults.refuses_pruning.store(false, Relaxed);
    lab.until(150.0);
    assert_eq!(member.news(), ["Ready", "store-rejects", "store-rejects over"]);
    assert!(member.faults.pruned.load(Relaxed) > 0);
    assert!(member.handle.health().is_healthy());
}

/// Thousands of extensions are due again and again, and each request takes a second.
#[test]
fn extensions_do_not_starve_completions() {
    let lab = Lab::new(8);
    let member = lab.start(|seat, b| {
        let long = || seat.job(every(secs(1_000)), secs(900));
        (0..5_000)
            .fold(b.concurrency(10_000), |b, n| b.add(format!("job-{n}"), long()))
            .add("short", seat.job(every(secs(2)), ms(5)).at_least_once(secs(300)))
    });
    lab.until(1_005.0);
    assert_eq!(member.handle.running(), 5_000);
    // The extensions of all runs take the store three of every ten seconds, without a break.
    *member.faults.per_operation.lock().unwrap() = Duration::from_micros(700);
    lab.until(1_065.0);
    let runs = lab.log.of("short");
    let runs: Vec<_> = runs.iter().filter(|run| run.at > at(1_005.0)).collect();
    assert!(runs.len() >= 29, "{} of 30", runs.len());
    // An end that waits for the extensions delays the next run.
    let late = runs.iter().map(|run| run.began - run.at).max().unwrap();
    assert!(late.num_milliseconds() < 500, "{late}");
}

/// A store whose reply to a claim stops the node's machine, once.
#[derive(Debug)]
struct Freezing(SimNode, AtomicBool);

#[async_trait]
impl Hooks for Freezing {
    async fn reschedule(
        &self,
        store: &Arc<dyn Backend>,
        batch: Batch<'_>,
    ) -> allora_core::Result<Applied> {
        let applied = store.reschedule(batch).await;
        let claims = |action: &Action<'_>| matches!(action, Action::Claim(_));
        if batch.operations.iter().any(|one| claims(&one.action)) && !self.1.swap(true, Relaxed) {
            self.0.pause();
        }
        applied
    }
}

#[test]
fn a_run_whose_lease_ended_before_its_first_poll_does_not_begin() {
    let lab = Lab::new(9);
    let seat = lab.seat(lab.sim.node());
    // A run that shares its job may be extended first, and is alive again then.
    let job = seat.job(every(secs(100)), secs(1)).overlap(Overlap::Wait);
    let freezing = Freezing(seat.node.clone(), false.into());
    let store = Wrapped::around(crate::support::bare(lab.store.clone()), freezing);
    let scheduler =
        Scheduler::builder(store).runtime(seat.node.clone()).add("job", job).build().unwrap();
    let member = seat.run(scheduler);
    lab.until(140.0);
    assert!(lab.log.of("job").is_empty());
    member.node.resume();
    lab.until(150.0);
    // Nothing was begun under the lease that had ended, so that the occurrence could be released.
    assert_eq!(lab.story("job"), ["released 100", "succeeded 100"]);
    assert_eq!(lab.log.of("job").len(), 1);
}

/// A runtime that stops its machine right after the next task was spawned.
#[derive(Debug)]
struct FreezesAtSpawn(SimNode, Arc<AtomicBool>);

impl Runtime for FreezesAtSpawn {
    fn spawn(&self, task: BoxFuture<'static, ()>) {
        self.0.spawn(task);
        if self.1.swap(false, Relaxed) {
            self.0.pause();
        }
    }

    fn sleep_until(&self, at: Instant) -> BoxFuture<'static, ()> {
        self.0.sleep_until(at)
    }

    fn now(&self) -> Instant {
        self.0.now()
    }

    fn wall(&self) -> Time {
        self.0.wall()
    }

    fn random(&self) -> u64 {
        self.0.random()
    }
}

/// The seeds are orders in which the tasks of the node are polled when it wakes up.
#[test]
fn a_run_that_was_spawned_before_its_node_froze_does_not_begin_after_its_lease() {
    for seed in 0..20 {
        let lab = Lab::new(seed);
        let seat = lab.seat(lab.sim.node());
        let job = seat.job(every(secs(100)), secs(1)).overlap(Overlap::Wait);
        let freezes = Arc::new(AtomicBool::new(false));
        let runtime = FreezesAtSpawn(seat.node.clone(), freezes.clone());
        let scheduler = Scheduler::builder(lab.store.clone()).runtime(runtime).add("job", job);
        let member = seat.run(scheduler.build().unwrap());
        lab.until(50.0);
        freezes.store(true, Relaxed);
        lab.until(140.0);
        assert!(!freezes.load(Relaxed) && lab.log.of("job").is_empty());
        member.node.resume();
        lab.until(150.0);
        assert_eq!(lab.story("job"), ["released 100", "succeeded 100"], "seed {seed}");
        assert_eq!(lab.log.of("job").len(), 1, "seed {seed}");
    }
}

#[test]
fn a_dropped_run_is_an_attempt_and_the_last_one_a_dead_letter() {
    let lab = Lab::new(10);
    let long = |seat: &crate::support::Seat| {
        seat.job(every(secs(100)), secs(10_000)).at_least_once(secs(30))
    };
    for n in 1..=4 {
        let member = lab.start(|seat, b| b.grace(secs(1)).add("job", long(seat)));
        lab.until(101.0 + f64::from(n) * 10.0);
        member.handle.stop();
        lab.until(104.0 + f64::from(n) * 10.0);
        assert_eq!(member.stopped().unwrap().cancelled, 1);
    }
    let attempts: Vec<u32> = lab.log.of("job").iter().map(|run| run.attempt).collect();
    assert_eq!(attempts, [1, 2, 3, 4]);
    let story = lab.story("job");
    assert!(!story.iter().any(|entry| entry.starts_with("released")), "{story:?}");
    assert!(story.last().unwrap().starts_with("dead"), "{story:?}");
}

#[test]
fn a_node_that_slept_extends_its_leases_at_the_first_reply() {
    let lab = Lab::new(11);
    let member = lab.start(|seat, b| {
        b.lost_after(secs(300)).add("job", seat.job(every(secs(1_000)), secs(900)))
    });
    lab.until(1_010.0);
    member.node.suspend();
    lab.until(1_410.0);
    member.node.resume();
    lab.until(1_417.0);
    assert!(lab.state("job").leases[0].until > at(1_700.0), "{:?}", lab.state("job").leases);
    assert_eq!(lab.log.of("job")[0].ended, None);
}

#[test]
fn a_node_that_slept_drops_the_runs_of_other_nodes_at_the_first_reply() {
    let lab = Lab::new(12);
    let build = |seat: &crate::support::Seat, b: allora_core::SchedulerBuilder| {
        b.add("job", seat.job(every(secs(1_000)), secs(900)).at_least_once(secs(300)))
    };
    let first = lab.start(build);
    lab.until(1_005.0);
    first.node.suspend();
    lab.start(build);
    lab.until(1_500.0);
    assert_eq!(lab.log.of("job").len(), 2);
    first.node.resume();
    lab.until(1_507.0);
    let (_, over) = lab.log.of("job")[0].ended.unwrap();
    assert_eq!(over, Over::Dropped);
}

/// Calls the handle wherever it can.
struct Caller {
    handle: Arc<OnceLock<Handle>>,
    n: std::sync::atomic::AtomicU64,
}

impl Caller {
    fn call(&self) {
        if let Some(handle) = self.handle.get() {
            handle.running();
            handle.remove("no such job");
        }
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        self.call();
    }
}

#[async_trait]
impl Job for Caller {
    fn next_at(&self, after: Time) -> Option<Time> {
        self.call();
        Some(after + chrono::TimeDelta::seconds(10))
    }

    async fn run(&self, _: Run) -> Result<(), BoxError> {
        self.call();
        Ok(())
    }

    fn definition(&self) -> Option<String> {
        self.call();
        Some(format!("definition {}", self.n.fetch_add(1, Relaxed)))
    }
}

/// Runs the test on a thread of its own: a deadlock fails it.
fn within_half_a_minute(test: impl FnOnce() + Send + 'static) {
    let (done, ended) = mpsc::channel();
    std::thread::spawn(move || {
        test();
        // The test may have given up.
        let _ = done.send(());
    });
    ended.recv_timeout(secs(30)).expect("the test ends");
}

#[test]
fn user_code_may_call_the_handle_everywhere() {
    within_half_a_minute(|| {
        let lab = Lab::new(13);
        let seat = lab.seat(lab.sim.node());
        let handle: Arc<OnceLock<Handle>> = Arc::default();
        let caller = || Caller { handle: handle.clone(), n: Default::default() };
        let scheduler = Scheduler::builder(lab.store.clone())
            .runtime(seat.node.clone())
            .on_event({
                let caller = caller();
                move |_| caller.call()
            })
            .add("shared", caller())
            .add("local", allora_core::JobSpec::from(caller()).on_every_node())
            .add("good", seat.job(every(secs(10)), ms(0)))
            .build()
            .unwrap();
        assert!(handle.set(scheduler.handle()).is_ok());
        let member = seat.run(scheduler);
        lab.until(5.0);
        member.handle.add("added", caller()).unwrap();
        assert!(member.handle.add("added", caller()).is_err());
        lab.until(25.0);
        assert!(member.handle.remove("added") && member.handle.remove("local"));
        lab.until(45.0);
        member.handle.stop();
        lab.until(60.0);
        assert!(member.stopped().is_some());
        assert_eq!(lab.ran("good"), [10., 20., 30., 40.]);
    });
}

#[test]
fn a_removed_job_of_every_node_leaves_nothing() {
    let lab = Lab::new(14);
    let kept = Arc::new(());
    let member = lab.start(|_, b| b);
    let job = || {
        let kept = kept.clone();
        job(every(secs(3_600)), async move |_: Run| drop(kept)).on_every_node()
    };
    for n in 0..1_000 {
        for i in 0..10 {
            member.handle.add(format!("job-{n}-{i}"), job()).unwrap();
        }
        lab.until(f64::from(n) + 0.5);
        for i in 0..10 {
            assert!(member.handle.remove(&format!("job-{n}-{i}")));
        }
    }
    lab.until(1_010.0);
    assert_eq!(Arc::strong_count(&kept), 1);
}

#[test]
fn a_job_of_every_node_that_is_added_again_does_not_run_what_was_due_meanwhile() {
    let lab = Lab::new(15);
    let log = lab.log.clone();
    let clock = lab.clock();
    let job = move || {
        let (log, clock) = (log.clone(), clock.clone());
        job(grid(10), async move |run: Run| {
            let execution = log.begin(&run);
            clock.sleep_until(clock.now() + secs(1)).await;
            execution.over(Over::Ran);
        })
        .on_every_node()
    };
    let member = lab.start(|_, b| b.add("job", job()));
    lab.until(12.0);
    member.handle.remove("job");
    lab.until(35.0);
    member.handle.add("job", job()).unwrap();
    lab.until(39.0);
    assert_eq!(lab.ran("job"), [10.]);
    // And while it runs.
    lab.until(40.5);
    member.handle.remove("job");
    member.handle.add("job", job().at_least_once(secs(5))).unwrap();
    lab.until(61.5);
    assert_eq!(lab.ran("job"), [10., 40., 50., 60.]);
    assert!(lab.log.of("job").iter().all(|run| run.ended.unwrap().1 == Over::Ran));
}

#[test]
fn a_definition_that_changes_at_each_call_is_computed_once() {
    let lab = Lab::new(16);
    let job = Caller { handle: Arc::default(), n: Default::default() };
    let member = lab.start(|_, b| b.add("job", job));
    lab.until(35.0);
    assert_eq!(lab.story("job"), ["succeeded 10", "succeeded 20", "succeeded 30"]);
    assert_eq!(member.news(), ["Ready"]);
    let batches = member.faults.calls();
    assert!(batches < 40, "{batches} requests");
}

#[test]
fn a_node_at_its_capacity_says_so_once_and_when_it_is_over() {
    let lab = Lab::new(17);
    let member = lab.start(|seat, b| {
        b.concurrency(1)
            .add("long", seat.job(allora_core::at(at(10.0)), secs(30)))
            .add("short", seat.job(every(secs(5)), ms(0)).overlap(Overlap::Skip))
    });
    lab.until(70.0);
    assert_eq!(
        member.news(),
        ["Ready", "capacity-full", "capacity-full over", "OccurrencesMissed"]
    );
}

#[test]
fn an_extension_that_hangs_is_one_condition() {
    let lab = Lab::new(18);
    let member = lab.start(|seat, b| {
        b.add("long", seat.job(every(secs(10)), secs(600)).at_least_once(secs(60)))
            .add("short", seat.job(every(secs(1)), ms(5)).at_least_once(secs(30)))
    });
    lab.until(12.5);
    *member.faults.mute.lock().unwrap() = Some("long".to_owned());
    lab.until(55.0);
    *member.faults.mute.lock().unwrap() = None;
    lab.until(70.0);
    assert_eq!(member.news(), ["Ready", "store-down", "store-down over"]);
    assert_eq!(lab.log.of("long").len(), 1);
}
