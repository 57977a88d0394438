//! Nodes whose clocks differ by ten minutes: etcd has no clock that could judge between them.

use crate::stores::{Cluster, Single, Three, members, now, patient, pause, runtime};
use allora_core::{
    Backend, CatchUp, Result, Run, Runtime, Scheduler, Time,
    backend::{
        Act, Answer, Beside, Cursor, Deliver, End, Ended, Ending, Find, Mark, NewSchedule, Now,
        Outcome, Plan, Reschedule, Settle, Settled, State, Take, Taken,
    },
    every, job,
    runtime::Tokio,
    time::from_millis,
};
use allora_etcd::{
    Etcd,
    etcd_client::{Client, DeleteOptions},
};
use futures::future::BoxFuture;
use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

const LEASE: Duration = Duration::from_secs(20);

/// A prefix of the test's own, thrown away before and after.
struct Place {
    members: Vec<String>,
    prefix: String,
}

/// One node, with a clock of its own.
struct Node {
    store: Etcd,
    id: &'static str,
    /// How far its clock is ahead, in minutes.
    ahead: i64,
}

fn at(minutes: i64) -> Time {
    from_millis(1_893_456_000_000 + minutes * 60_000).unwrap()
}

impl Place {
    async fn new<C: Cluster>(name: &str) -> Option<Self> {
        let members = crate::stores::or_skip(members::<C>())?;
        let place = Self { members, prefix: format!("k{:x}_{name}", std::process::id()) };
        place.clear().await;
        Some(place)
    }

    async fn clear(&self) {
        let all = DeleteOptions::new().with_prefix();
        let mut kv = self.client().await.kv_client();
        kv.delete(format!("{}/", self.prefix), Some(all)).await.unwrap();
    }

    async fn client(&self) -> Client {
        Client::connect(&self.members, None).await.unwrap()
    }

    async fn join(&self, id: &'static str, ahead: i64) -> Node {
        let builder = patient(Etcd::builder().prefix(&self.prefix).history(1_000));
        Node { store: builder.connect(self.members.clone()).await.unwrap(), id, ahead }
    }

    /// What etcd does when a node's lease ends.
    async fn lapse(&self, node: &Node) {
        let mut kv = self.client().await.kv_client();
        let gone = kv.delete(format!("{}/node/{}", self.prefix, node.id), None).await.unwrap();
        assert_eq!(gone.deleted(), 1, "{} has no mark", node.id);
    }
}

impl Node {
    /// Its clock, when it is so late in truth.
    fn now(&self, minutes: i64) -> Now {
        Now::Store { node: at(minutes + self.ahead) }
    }

    async fn act(&self, minutes: i64, act: Act<'_>) -> Result<Answer> {
        let plans = [Plan::new("job", act)];
        let request = Reschedule::new(self.id, self.now(minutes), &plans);
        Ok(self.store.reschedule(request).await?.answers.remove(0))
    }

    async fn look(&self, minutes: i64) -> State {
        match self.act(minutes, Act::Look).await.unwrap() {
            Answer::State(state) => *state,
            other => panic!("{other:?}"),
        }
    }

    async fn take(&self, minutes: i64, claim: u128, deliver: Deliver) -> Result<Taken, Box<State>> {
        let seen = self.look(minutes).await;
        let take = Take::new(claim, seen.fence, seen.head.unwrap(), deliver);
        match self.act(minutes, Act::Take(take)).await.unwrap() {
            Answer::Taken(taken) => Ok(taken),
            Answer::State(state) => Err(state),
            other => panic!("{other:?}"),
        }
    }

    async fn lease(&self, minutes: i64, claim: u128) -> Result<Taken, Box<State>> {
        self.take(minutes, claim, Deliver::AtLeastOnce { lease: LEASE }).await
    }

    async fn settle(&self, minutes: i64, fence: i64, end: End<'_>) -> Settled {
        let endings = [Ending::new("job", fence, end)];
        let request = Settle::new(self.id, self.now(minutes), &endings);
        self.store.leases_ref().settle(request).await.unwrap()[0]
    }

    async fn register(&self, first: i64) {
        let first = Some(at(first).into());
        self.act(0, Act::Register { definition: "every 1m", version: 0, first }).await.unwrap();
    }

    async fn found(&self, minutes: i64) -> Vec<State> {
        let find = Find::new(&["mail"], self.now(minutes).here(), 9);
        let request = Reschedule::new(self.id, self.now(minutes), &[]).find(find);
        self.store.reschedule(request).await.unwrap().found
    }
}

/// The capability that is always there.
trait HasLeases {
    fn leases_ref(&self) -> &dyn allora_core::backend::Leases;
}

impl HasLeases for Etcd {
    fn leases_ref(&self) -> &dyn allora_core::backend::Leases {
        self.leases().unwrap()
    }
}

fn ran(then: i64) -> End<'static> {
    End::Finish { then: Cursor::To(Some(at(then).into())), outcome: Ended::Ran }
}

async fn a_run_is_its_nodes_while_that_lives(place: &Place) {
    let (right, fast, slow) =
        (place.join("right", 0).await, place.join("fast", 10).await, place.join("slow", -10).await);
    right.register(60).await;
    let run = right.lease(60, 1).await.unwrap();
    // For the fast one, the lease ended nine minutes ago.
    let told = fast.lease(60, 2).await.unwrap_err();
    assert!(told.due_at.unwrap() > fast.now(60).here(), "it would be asked again at once");
    assert_eq!(told.holds[0].fence, run.fence);
    slow.lease(60, 3).await.unwrap_err();
    fast.lease(69, 4).await.unwrap_err();
    // What was shown to others is not what is kept.
    let kept = right.look(60).await.holds[0].until;
    assert_eq!(kept, at(60) + chrono::TimeDelta::from_std(LEASE).unwrap());
    assert_eq!(right.settle(60, run.fence, ran(61)).await, Settled::Done);
}

async fn a_dead_nodes_run_is_taken_over_by_any_clock(place: &Place) {
    let (fast, slow) = (place.join("fast", 10).await, place.join("slow", -10).await);
    fast.register(60).await;
    let run = fast.lease(60, 1).await.unwrap();
    // By the slow one's clock the lease lasts for twenty minutes more.
    slow.lease(71, 2).await.unwrap_err();
    place.lapse(&fast).await;
    let again = slow.lease(71, 3).await.unwrap();
    assert_eq!((again.run, again.attempt), (run.run, 2));
    assert!(again.fence > run.fence, "{} after {}", again.fence, run.fence);
    // The first was not dead after all: it is told, by the fence.
    assert_eq!(fast.settle(60, run.fence, End::Extend { lasts: LEASE }).await, Settled::Lost);
    assert_eq!(fast.settle(60, run.fence, ran(61)).await, Settled::Lost);
    assert_eq!(slow.settle(71, again.fence, ran(62)).await, Settled::Done);
    assert_eq!(slow.look(72).await.counters.abandoned, 1);
}

async fn a_lapsed_mark_alone_takes_nothing_away(place: &Place) {
    let node = place.join("one", 0).await;
    node.register(60).await;
    let run = node.lease(60, 1).await.unwrap();
    place.lapse(&node).await;
    assert_eq!(node.settle(60, run.fence, ran(61)).await, Settled::Done);
    // A new run needs a mark: the node finds out, and makes another.
    let deliver = Deliver::AtLeastOnce { lease: LEASE };
    let seen = node.look(61).await;
    let take = Take::new(2, seen.fence, seen.head.unwrap(), deliver);
    let unknown = node.act(61, Act::Take(take.clone())).await.unwrap_err();
    assert_eq!(unknown.kind(), allora_core::Kind::Unavailable);
    let Answer::Taken(_) = node.act(61, Act::Take(take)).await.unwrap() else {
        panic!("it cannot go on");
    };
    let other = place.join("other", 10).await;
    other.lease(61, 3).await.unwrap_err();
}

async fn a_dead_nodes_mark_is_reaped_by_any_clock(place: &Place) {
    let (fast, slow) = (place.join("fast", 10).await, place.join("slow", -10).await);
    fast.register(60).await;
    let mark = Some(Mark { lasts: LEASE, beside: Beside::None });
    let deliver = Deliver::AtMostOnce { then: Cursor::To(Some(at(61).into())), mark };
    let run = fast.take(60, 1, deliver).await.unwrap();
    slow.act(80, Act::Reap).await.unwrap();
    assert_eq!(slow.look(80).await.holds[0].fence, run.fence);
    place.lapse(&fast).await;
    slow.act(80, Act::Reap).await.unwrap();
    let seen = slow.look(80).await;
    assert_eq!((seen.holds.len(), seen.counters.lost), (0, 1));
}

async fn fences_grow_whatever_the_clocks_say(place: &Place) {
    let (fast, slow) = (place.join("fast", 10).await, place.join("slow", -10).await);
    let mut last = 0;
    let mut grows = |fence: i64| {
        assert!(fence > last, "{fence} after {last}");
        last = fence;
    };
    fast.register(60).await;
    let to = |minutes: i64| Deliver::AtMostOnce {
        then: Cursor::To(Some(at(minutes).into())),
        mark: None,
    };
    grows(fast.take(60, 1, to(61)).await.unwrap().fence);
    grows(slow.take(80, 2, to(62)).await.unwrap().fence);
    grows(fast.take(80, 3, to(63)).await.unwrap().fence);
    let schedules = slow.store.schedules().unwrap();
    schedules.delete("job", slow.now(81)).await.unwrap();
    slow.register(64).await;
    grows(slow.look(90).await.incarnation);
    grows(slow.take(90, 4, to(65)).await.unwrap().fence);
    // So long after that even the tombstone is forgotten; then the clock goes back.
    schedules.delete("job", slow.now(90)).await.unwrap();
    let other = NewSchedule::new("other", "mail", "x", None);
    schedules.add(&[other], slow.now(90)).await.unwrap();
    schedules.delete("other", slow.now(90 + 8 * 1_440)).await.unwrap();
    assert_eq!(slow.act(0, Act::Look).await.unwrap(), Answer::Absent);
    slow.register(1).await;
    grows(slow.look(0).await.incarnation);
}

async fn what_a_dead_node_left_is_found_by_any_clock(place: &Place) {
    let (fast, slow) = (place.join("fast", 10).await, place.join("slow", -10).await);
    let new = NewSchedule::new("job", "mail", "every 1m", Some(at(60).into()));
    fast.store.schedules().unwrap().add(&[new], fast.now(0)).await.unwrap();
    fast.lease(60, 1).await.unwrap();
    assert_eq!(slow.found(71).await, [], "its node lives");
    assert_eq!(fast.found(60).await, [], "its own, and not overdue");
    assert_eq!(fast.found(61).await.len(), 1, "its own, and overdue");
    place.lapse(&fast).await;
    let found = slow.found(71).await;
    assert_eq!(found.len(), 1);
    assert!(found[0].due_at.unwrap() <= slow.now(71).here());
    slow.lease(71, 2).await.unwrap();
    // A node that is gone and left nothing is not asked about for ever.
    assert_eq!(slow.found(71).await, []);
    let mut kv = place.client().await.kv_client();
    let fleet = kv.get(format!("{}/fleet/fast", place.prefix), None).await.unwrap();
    assert_eq!(fleet.count(), 0);
}

async fn a_dropped_stores_runs_are_free_when_its_lease_ends(place: &Place) {
    let (gone, other) = (place.join("gone", 10).await, place.join("other", -10).await);
    gone.register(60).await;
    let promise = Deliver::AtLeastOnce { lease: Duration::from_secs(1) };
    gone.take(60, 1, promise).await.unwrap();
    drop(gone);
    let (begun, mut claim) = (now(), 2);
    while other.lease(71, claim).await.is_err() {
        assert!(begun.elapsed() < Duration::from_secs(60), "nobody lets go");
        claim += 1;
        pause(200).await;
    }
    // The shortest lease is 15 s, from its last renewal on.
    assert!(begun.elapsed() > Duration::from_secs(5), "it was let go of too early");
}

async fn a_node_that_asks_for_nothing_lets_go(place: &Place) {
    let (silent, other) = (place.join("silent", 0).await, place.join("other", 0).await);
    silent.register(60).await;
    let promise = Deliver::AtLeastOnce { lease: Duration::from_secs(1) };
    silent.take(60, 1, promise).await.unwrap();
    // Its process lives, and its store: only its scheduler is stuck, or gone.
    let (begun, mut claim) = (now(), 2);
    while other.lease(61, claim).await.is_err() {
        assert!(begun.elapsed() < Duration::from_secs(60), "nobody lets go");
        claim += 1;
        pause(200).await;
    }
}

/// The runtime of a machine whose clock is wrong.
#[derive(Clone, Debug)]
struct Skewed(Tokio, i64);

impl Runtime for Skewed {
    fn spawn(&self, task: BoxFuture<'static, ()>) {
        self.0.spawn(task);
    }
    fn sleep_until(&self, at: Instant) -> BoxFuture<'static, ()> {
        self.0.sleep_until(at)
    }
    fn now(&self) -> Instant {
        self.0.now()
    }
    fn wall(&self) -> Time {
        self.0.wall() + chrono::TimeDelta::minutes(self.1)
    }
    fn random(&self) -> u64 {
        self.0.random()
    }
}

/// What ran: the job, the instant, the fence.
type Seen = Arc<Mutex<Vec<(String, i64, i64)>>>;

/// A node whose clock is wrong, and which runs a job of each delivery and writes down what it ran.
fn skewed(node: &Node, seen: &Seen) -> Scheduler {
    let seen = seen.clone();
    let work = async move |run: Run| {
        let at = run.scheduled_at().timestamp_millis();
        seen.lock().unwrap().push((run.name().to_owned(), at, run.fence()));
    };
    let all = CatchUp::All { limit: 10_000 };
    let period = every(Duration::from_millis(250));
    Scheduler::builder(node.store.clone())
        .runtime(Skewed(Tokio::current().unwrap(), node.ahead))
        .add("once", job(period.clone(), work.clone()).catch_up(all))
        .add("least", job(period, work).catch_up(all).at_least_once(LEASE))
        .build()
        .unwrap()
}

/// The runs of a job, by instant, each of which ran once.
fn ran_once(seen: &Seen, name: &str) -> Vec<i64> {
    let seen = seen.lock().unwrap();
    let mut runs: Vec<i64> = seen.iter().filter(|run| run.0 == name).map(|run| run.1).collect();
    runs.sort_unstable();
    assert!(runs.windows(2).all(|pair| pair[0] < pair[1]), "{name}: {runs:?}");
    runs
}

async fn three_nodes_of_three_clocks_run_each_occurrence_once(place: &Place) {
    let seen = Seen::default();
    let mut all = Vec::new();
    for ahead in [0, 10, -10] {
        all.push(place.join("", ahead).await);
    }
    let schedulers: Vec<Scheduler> = all.iter().map(|node| skewed(node, &seen)).collect();
    let handles: Vec<_> = schedulers.iter().map(Scheduler::handle).collect();
    let nodes: Vec<_> = schedulers.into_iter().map(spawn).collect();
    let begun = now();
    while seen.lock().unwrap().len() < 200 {
        assert!(begun.elapsed() < Duration::from_secs(240), "{:?}", seen.lock().unwrap().len());
        pause(50).await;
    }
    let skews: Vec<_> = all.iter().map(|node| node.store.skew()).collect();
    handles.iter().for_each(|handle| handle.stop());
    futures::future::join_all(nodes).await;
    let last = ["once", "least"].map(|name| ran_once(&seen, name).pop().unwrap());
    // What a stopping node gave back waits for another: one whose clock is the fast one's, since by
    // that it was given back.
    let heir = skewed(&all[1], &seen);
    let handle = heir.handle();
    let heir = spawn(heir);
    let begun = now();
    for (name, last) in ["once", "least"].into_iter().zip(last) {
        loop {
            let past = all[0].store.history().unwrap().past(Some(name), None, 1_000).await.unwrap();
            let lost = past.iter().filter(|past| past.outcome == Outcome::Lost);
            let lost: Vec<i64> = lost.map(|lost| lost.occurrence.at.timestamp_millis()).collect();
            let ran = ran_once(&seen, name);
            let mut silent = (ran[0]..=last).step_by(250);
            if silent.all(|at| ran.contains(&at) || lost.contains(&at)) {
                // Nothing was killed, and no answer was lost.
                assert_eq!(lost, [0; 0], "{name}");
                break;
            }
            let silent: Vec<i64> =
                (ran[0]..=last).step_by(250).filter(|at| !ran.contains(at)).collect();
            let what =
                past.iter().filter(|past| silent.contains(&past.occurrence.at.timestamp_millis()));
            let waited = begun.elapsed() < Duration::from_secs(60);
            assert!(waited, "{name}: {silent:?} did not run: {:?}", what.collect::<Vec<_>>());
            pause(100).await;
        }
    }
    handle.stop();
    heir.await.unwrap();
    for name in ["once", "least"] {
        let mut runs = seen.lock().unwrap().clone();
        runs.retain(|run| run.0 == name);
        let mut fences: Vec<i64> = runs.iter().map(|run| run.2).collect();
        fences.sort_unstable();
        assert!(fences.windows(2).all(|pair| pair[0] < pair[1]), "{name}: {fences:?}");
    }
    // At least the fast one has run something; whoever heard of it says so.
    assert!(
        skews.iter().flatten().any(|skew| skew.abs() > chrono::TimeDelta::minutes(9)),
        "{skews:?}"
    );
}

/// A scheduler in a task of its own; the answer is its end.
fn spawn(scheduler: Scheduler) -> tokio::task::JoinHandle<()> {
    tokio::runtime::Handle::current().spawn(async move {
        scheduler.run().await;
    })
}

macro_rules! on_each {
    ($($name:ident)*) => {
        mod single {
            $(#[test]
            fn $name() {
                super::on::<super::Single>(stringify!($name), async |place| super::$name(place).await);
            })*
        }
        mod three {
            $(#[test]
            fn $name() {
                super::on::<super::Three>(stringify!($name), async |place| super::$name(place).await);
            })*
        }
    };
}

on_each! {
    a_run_is_its_nodes_while_that_lives
    a_dead_nodes_run_is_taken_over_by_any_clock
    a_lapsed_mark_alone_takes_nothing_away
    a_dead_nodes_mark_is_reaped_by_any_clock
    fences_grow_whatever_the_clocks_say
    what_a_dead_node_left_is_found_by_any_clock
    a_dropped_stores_runs_are_free_when_its_lease_ends
    a_node_that_asks_for_nothing_lets_go
    three_nodes_of_three_clocks_run_each_occurrence_once
}

fn on<C: Cluster>(name: &str, test: impl AsyncFnOnce(&Place)) {
    runtime().block_on(async {
        let name: String = name.chars().take(20).collect();
        if let Some(place) = Place::new::<C>(&format!("{name}_{}", C::VARIABLE.len())).await {
            test(&place).await;
            place.clear().await;
        }
    });
}
