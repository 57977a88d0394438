//! The end of a node: what it has claimed, counted and recorded is taken back.

use crate::support::{Lab, Member, Rates, Seat, ms, secs};
use allora_core::{
    Backend, Condition, Event, Overlap, Run, Runtime, Scheduler, SchedulerBuilder, Time,
    backend::{Action, CancelScope, JobState, Lease, NotRunReason, Outcome, Page},
    every,
    runtime::SimNode,
};
use futures::future::{AbortHandle, BoxFuture, FutureExt, abortable};
use std::{
    sync::{Arc, Mutex, atomic::Ordering::Relaxed},
    time::Instant,
};

/// Jobs of every sort.
fn jobs(seat: &Seat, b: SchedulerBuilder) -> SchedulerBuilder {
    let fails = |_: &Run| Err("no luck".into());
    b.grace(secs(20))
        .heartbeat(secs(2))
        .add("once", seat.job(every(secs(1)), ms(700)))
        .add("alone", seat.job(every(secs(1)), ms(1_700)).overlap(Overlap::Wait))
        .add("leased", seat.job(every(secs(2)), ms(300)).at_least_once(secs(30)))
        .add("broken", seat.work(every(secs(3)), ms(5), fails).at_least_once(secs(30)))
        .add("key 1", seat.job(every(secs(1)), ms(900)).mutex("g"))
        .add("key 2", seat.job(every(secs(2)), ms(900)).at_least_once(secs(30)).mutex("g"))
        .add("here", seat.job(every(secs(1)), ms(400)).on_every_node())
        .add("key here", seat.job(every(secs(1)), ms(500)).on_every_node().mutex("g"))
        .kind("mail", seat.handler(ms(200), |_| Ok(())))
        .kind_concurrency("few", 2)
        .kind("few", seat.handler(ms(800), |_| Ok(())))
}

fn stored(lab: &Lab) {
    for i in 0..10 {
        lab.store(&format!("mail {i}"), "mail", "@every 2s; at-least-once 30s");
        lab.store(&format!("few {i}"), "few", "@every 3s; at-least-once 30s");
        lab.store(&format!("once {i}"), "mail", "@every 3s");
    }
}

/// The records of jobs, of keys and of nodes.
fn records(lab: &Lab) -> Vec<JobState> {
    let queries = Backend::queries(&lab.store).unwrap();
    let all = |prefix: &&str| {
        lab.sim.block_on(queries.list(Page::first(usize::MAX).prefix(prefix))).unwrap()
    };
    ["", "allora:node:", "allora:key:"].iter().flat_map(all).collect()
}

/// The remains of a stopped node.
fn left(lab: &Lab, member: &Member) -> Vec<String> {
    let Some(stopped) = member.stopped() else { return vec!["it has not stopped".into()] };
    let (id, health) = (member.handle.node(), member.handle.health());
    let count = |is: fn(&Event) -> bool| member.events().iter().filter(|event| is(event)).count();
    let begun = count(|event| matches!(event, Event::RunStarted { .. }));
    let ended = count(|event| matches!(event, Event::RunEnded { .. }));
    let counts = [
        ("cancelled", stopped.cancelled),
        ("unrecorded", stopped.unrecorded),
        ("unresolved", stopped.unresolved),
        ("unresolved claims of its health", health.unresolved_claims),
        ("used capacity", health.capacity.used),
        ("used capacity of kinds", health.kind_capacity.iter().map(|kind| kind.used).sum()),
        ("running", member.handle.running()),
        ("runs without an end", begun - ended),
    ];
    let counts = counts.iter().filter(|(_, count)| *count > 0);
    let mut left: Vec<String> = counts.map(|(what, count)| format!("{what}: {count}")).collect();
    for record in records(lab) {
        // The store returns no cancelled lease to a repeated query. It is completed when it ends.
        let is_left = |lease: &Lease| lease.node == *id && !lease.cancel_requested;
        if record.leases.iter().any(is_left) {
            left.push(format!("{}: a lease", record.name));
        }
        if record.name.contains(id) {
            left.push(record.name);
        }
    }
    left
}

/// A node whose way to the store has faults when it is stopped, and none soon after.
fn stopped_in_trouble(seed: u64) -> Vec<String> {
    let lab = Lab::new(seed);
    stored(&lab);
    let concurrency = [3, 10, 1_000][seed as usize % 3];
    let member = lab.start(|seat, b| jobs(seat, b).concurrency(concurrency));
    let clock = lab.clock();
    let draw = |below: u64| clock.random() % below;
    let until = |millis: u64| lab.until(millis as f64 / 1_000.0);
    let stop_at = 3_000 + draw(6_000);
    until(stop_at - draw(2_500));
    let faults = &member.faults;
    let rates = |rates: Rates| faults.set(rates);
    let mut may_lose_the_end = false;
    // Operators and other nodes are there, too.
    let other = (draw(3) == 0).then(|| lab.start(jobs));
    match draw(7) {
        0 => rates(Rates { delay: 800, delay_ms: 600, ..Rates::default() }),
        1 => rates(Rates { lose_reply: 500, ..Rates::default() }),
        2 => {
            may_lose_the_end = true;
            let (delay, delay_ms) = (300, 300);
            let (lose_reply, lose_request) = (200, 200);
            let lossy = Rates { lose_reply, lose_request, delay, delay_ms, ..Rates::default() };
            rates(Rates { refuse: 100, double: 100, ..lossy });
        }
        3 => faults.deaf_to_claims.store(true, Relaxed),
        4 => faults.down.store(true, Relaxed),
        5 => faults.deaf.store(true, Relaxed),
        _ => faults.deaf_to_queries.store(true, Relaxed),
    }
    until(stop_at);
    for name in ["once", "key 1", "leased", "here", "mail 1"] {
        match draw(6) {
            0 => drop(lab.operate(name, Action::Cancel(CancelScope::All))),
            1 => drop(member.handle.remove(name)),
            2 => drop(lab.operate(name, Action::trigger("by hand"))),
            _ => {}
        }
    }
    member.handle.stop();
    if let Some(other) = other {
        other.handle.stop();
    }
    let heal_at = stop_at + draw(3_000);
    until(heal_at);
    // Nothing has kept it from its end, and its record shows by its age that it is dead.
    may_lose_the_end |= member.stopped().is_some();
    rates(Rates::default());
    let switches = [&faults.deaf_to_claims, &faults.down, &faults.deaf, &faults.deaf_to_queries];
    switches.into_iter().for_each(|switch| switch.store(false, Relaxed));
    let ends = (1..300).map(|i| heal_at + 100 * i);
    for end in ends {
        until(end);
        if member.stopped().is_some() {
            break;
        }
    }
    let mut left = left(&lab, &member);
    left.retain(|what| !(may_lose_the_end && what.starts_with("allora:node:")));
    left
}

#[test]
fn a_node_that_stops_in_trouble_leaves_no_lease_no_key_no_record_and_no_count() {
    for seed in 0..150 {
        assert_eq!(stopped_in_trouble(seed), Vec::<String>::new(), "seed {seed}");
    }
}

#[test]
fn a_run_that_a_stop_cuts_off_has_that_reason_and_one_that_loses_its_lease_has_another() {
    let lab = Lab::new(5);
    let member = lab.start(|seat, b| {
        let once = seat.job(every(secs(60)), secs(3_000));
        let alone = seat.job(every(secs(60)), secs(3_000)).overlap(Overlap::Skip);
        let again = seat.job(every(secs(60)), secs(3_000)).at_least_once(secs(30));
        b.add("once", once).add("alone", alone).add("again", again).grace(secs(10))
    });
    let reasons = || -> Vec<(String, &str, Option<NotRunReason>)> {
        let ended = member.events().into_iter().filter_map(|event| match event {
            Event::RunEnded { name, outcome, reason, .. } => {
                Some((name.to_string(), outcome.word(), reason))
            }
            _ => None,
        });
        let mut ended: Vec<_> = ended.collect();
        ended.sort_by(|one, other| one.0.cmp(&other.0));
        ended
    };
    // Longer than the leases: the first of the three may go on.
    lab.until(65.0);
    member.faults.down.store(true, Relaxed);
    lab.until(105.0);
    member.faults.down.store(false, Relaxed);
    let lost = [("again".to_owned(), "interrupted", None), ("alone".to_owned(), "failed", None)];
    assert_eq!(reasons(), lost);
    lab.until(110.0);
    let entry = lab.past("alone").remove(0);
    let says = "dropped: its lease was not extended in time";
    assert_eq!((entry.outcome, entry.reason), (Outcome::Failed(says.into()), None));
    lab.until(125.0);
    member.handle.stop();
    lab.until(140.0);
    let stopped: Vec<_> = reasons().into_iter().filter(|one| one.2.is_some()).collect();
    let cut_off = Some(NotRunReason::Shutdown);
    let once = ("once".to_owned(), "cancelled", cut_off);
    assert_eq!(
        stopped,
        [
            ("again".to_owned(), "interrupted", cut_off),
            ("alone".to_owned(), "cancelled", cut_off),
            once.clone(),
            once,
        ]
    );
    for name in ["once", "alone"] {
        let entry = lab.past(name).pop().unwrap();
        assert_eq!((entry.outcome, entry.reason), (Outcome::Cancelled, cut_off), "{name}");
    }
}

#[test]
fn a_claim_without_a_reply_that_an_operator_cancels_is_completed_by_the_node_that_stops() {
    for is_leased in [false, true] {
        let lab = Lab::new(4);
        let member = lab.start(|seat, b| {
            let job = seat.job(every(secs(10)), ms(5));
            b.add("job", if is_leased { job.at_least_once(secs(30)) } else { job })
        });
        lab.until(9.9);
        member.faults.deaf_to_claims.store(true, Relaxed);
        lab.until(10.5);
        lab.operate("job", Action::Cancel(CancelScope::All)).unwrap();
        member.handle.stop();
        member.faults.deaf_to_claims.store(false, Relaxed);
        lab.until(15.0);
        assert_eq!(left(&lab, &member), Vec::<String>::new());
        assert_eq!(lab.story("job"), ["cancelled 10"]);
    }
}

#[test]
fn a_node_whose_store_rejects_a_part_of_its_requests_removes_its_record() {
    let lab = Lab::new(1);
    let member = lab.start(|seat, b| b.add("job", seat.job(every(secs(10)), ms(5))));
    let other = lab.start(|_, b| b);
    member.faults.refuses_pruning.store(true, Relaxed);
    lab.until(100.0);
    assert!(!member.failing().is_empty());
    member.handle.stop();
    lab.until(300.0);
    assert_eq!(left(&lab, &member), Vec::<String>::new());
    assert!(
        other
            .events()
            .iter()
            .all(|event| !matches!(event, Event::Began(Condition::NodeDead { .. })))
    );
}

#[test]
fn a_node_that_is_stopped_during_its_first_heartbeat_leaves_no_record() {
    for seed in 0..10 {
        let lab = Lab::new(seed);
        let member = lab.start(|seat, b| {
            seat.rates(Rates { delay: 1_000, delay_ms: 400, ..Rates::default() });
            b
        });
        lab.until(0.2);
        member.handle.stop();
        lab.until(10.0);
        assert_eq!(left(&lab, &member), Vec::<String>::new(), "seed {seed}");
    }
}

/// A runtime whose tasks end before the future of the scheduler.
#[derive(Debug)]
struct Ends {
    node: SimNode,
    tasks: Arc<Mutex<Vec<AbortHandle>>>,
}

impl Runtime for Ends {
    fn spawn(&self, task: BoxFuture<'static, ()>) {
        let (task, handle) = abortable(task);
        self.tasks.lock().unwrap().push(handle);
        self.node.spawn(Box::pin(task.map(drop)));
    }

    fn sleep_until(&self, at: Instant) -> BoxFuture<'static, ()> {
        self.node.sleep_until(at)
    }

    fn now(&self) -> Instant {
        self.node.now()
    }

    fn wall(&self) -> Time {
        self.node.wall()
    }

    fn random(&self) -> u64 {
        self.node.random()
    }
}

#[test]
fn claims_on_their_way_are_unresolved_when_the_runtime_ends() {
    let lab = Lab::new(3);
    let seat = lab.seat(lab.sim.node());
    let tasks: Arc<Mutex<Vec<AbortHandle>>> = Arc::default();
    let runtime = Ends { node: seat.node.clone(), tasks: tasks.clone() };
    let jobs = (0..3)
        .fold(seat.builder(), |b, i| b.add(format!("job {i}"), seat.job(every(secs(10)), ms(5))));
    let scheduler: Scheduler = jobs.runtime(runtime).build().unwrap();
    let member = seat.run(scheduler);
    lab.until(9.9);
    member.faults.deaf_to_claims.store(true, Relaxed);
    lab.until(10.5);
    tasks.lock().unwrap().drain(..).for_each(|task| task.abort());
    lab.until(10.6);
    let stopped = member.stopped().unwrap();
    assert_eq!((stopped.unrecorded, stopped.unresolved), (0, 3));
    assert_eq!(lab.state("job 0").leases.len(), 1);
}
