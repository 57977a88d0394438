//! Nodes whose clocks differ by ten minutes: etcd has no clock that could judge between them.

use crate::stores::{Cluster, Single, Three, members, now, patient, patiently, pause, runtime};
use allora_conformance::faults::Skewed;
use allora_core::{
    Backend, CatchUp, Result, Run, Scheduler, Time,
    backend::{
        Action, Batch, Claim, Claimed, Completion, Cursor, DueQuery, HistoryEntry, HistoryQuery,
        JobState, NewSchedule, Operation, Outcome, Reply, Sharing, TimeSource,
    },
    every, job,
    runtime::Tokio,
    time::from_millis,
};
use allora_etcd::{
    Etcd,
    etcd_client::{Client, DeleteOptions},
};
use std::{
    sync::{Arc, Mutex},
    time::Duration,
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
    /// The minutes by which its clock is ahead.
    ahead: i64,
}

fn at(minutes: i64) -> Time {
    from_millis(1_893_456_000_000 + minutes * 60_000).unwrap()
}

impl Place {
    async fn new<C: Cluster>(name: &str) -> Option<Self> {
        let members = members::<C>()?;
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

    /// Removes the node's session, as etcd does when the node's etcd lease ends.
    async fn end_session(&self, node: &Node) {
        let mut kv = self.client().await.kv_client();
        let session = format!("{}/session/{}", self.prefix, node.id);
        let deleted = kv.delete(session, None).await.unwrap();
        assert_eq!(deleted.deleted(), 1, "{} has no session", node.id);
    }
}

impl Node {
    /// Its clock at this minute.
    fn time(&self, minutes: i64) -> TimeSource {
        TimeSource::Store { fallback: self.now(minutes) }
    }

    fn now(&self, minutes: i64) -> Time {
        at(minutes + self.ahead)
    }

    async fn apply(&self, minutes: i64, name: &str, action: Action<'_>) -> Result<Reply> {
        let operations = [Operation::new(name, action)];
        let batch = Batch::new(self.id, self.time(minutes), &operations);
        self.store.reschedule(batch).await?.single()
    }

    async fn read(&self, minutes: i64) -> JobState {
        self.apply(minutes, "job", Action::Read).await.unwrap().state().unwrap()
    }

    /// The occurrence that is offered, with the fence that was read.
    async fn head(&self, minutes: i64) -> (i64, Time) {
        let read = self.read(minutes).await;
        (read.fence, read.head.unwrap().scheduled_at)
    }

    async fn claim(&self, minutes: i64, claim: Claim) -> Result<Claimed, Box<JobState>> {
        match self.apply(minutes, "job", Action::Claim(claim)).await.unwrap() {
            Reply::Claimed(claimed) => Ok(claimed),
            Reply::State(state) => Err(state),
            other => panic!("{other:?}"),
        }
    }

    /// Claims what is offered, at least once.
    async fn lease(&self, minutes: i64, claim_id: u128) -> Result<Claimed, Box<JobState>> {
        let (fence, head) = self.head(minutes).await;
        self.claim(minutes, Claim::at_least_once(claim_id, fence, head.into(), LEASE)).await
    }

    /// The same with a lease of one second.
    async fn lease_for_a_second(&self, minutes: i64, claim_id: u128) {
        let (fence, head) = self.head(minutes).await;
        let lease = Duration::from_secs(1);
        let claim = Claim::at_least_once(claim_id, fence, head.into(), lease);
        self.claim(minutes, claim).await.unwrap();
    }

    /// Claims what is offered, at most once.
    async fn start(&self, minutes: i64, claim_id: u128, next: i64) -> Claimed {
        let (fence, head) = self.head(minutes).await;
        let then = Cursor::To(Some(at(next).into()));
        let claim = Claim::at_most_once(claim_id, fence, head.into(), then, LEASE, Sharing::Shared);
        self.claim(minutes, claim).await.unwrap()
    }

    async fn register(&self, first: i64) {
        let first = Some(at(first).into());
        let register = Action::Register { definition: "every 1m", version: 0, first };
        self.apply(0, "job", register).await.unwrap();
    }

    async fn found(&self, minutes: i64) -> Vec<JobState> {
        let query = DueQuery::new(&["mail"], self.now(minutes), 9).node(self.id);
        let queries = self.store.queries().unwrap();
        queries.find_due(query, self.time(minutes)).await.unwrap().found
    }
}

fn complete(fence: i64, then: i64) -> Action<'static> {
    let then = Cursor::To(Some(at(then).into()));
    Action::Complete { fence, then, completion: Completion::Succeeded }
}

async fn a_run_belongs_to_its_node_while_that_lives(place: &Place) {
    let (right, fast, slow) =
        (place.join("right", 0).await, place.join("fast", 10).await, place.join("slow", -10).await);
    right.register(60).await;
    let run = right.lease(60, 1).await.unwrap();
    // For the fast one, the lease ended nine minutes ago.
    let shown = fast.lease(60, 2).await.unwrap_err();
    assert!(shown.due_at.unwrap() > fast.now(60), "it would be claimed again at once");
    assert_eq!(shown.leases[0].fence, run.fence);
    slow.lease(60, 3).await.unwrap_err();
    fast.lease(69, 4).await.unwrap_err();
    // The end that other nodes were shown is not the one that is stored.
    let stored = right.read(60).await.leases[0].until;
    assert_eq!(stored, at(60) + chrono::TimeDelta::from_std(LEASE).unwrap());
    assert_eq!(right.apply(60, "job", complete(run.fence, 61)).await.unwrap(), Reply::Accepted);
}

async fn a_dead_nodes_run_is_taken_over_by_any_clock(place: &Place) {
    let (fast, slow) = (place.join("fast", 10).await, place.join("slow", -10).await);
    fast.register(60).await;
    let run = fast.lease(60, 1).await.unwrap();
    // By the slow one's clock the lease lasts for twenty minutes more.
    slow.lease(71, 2).await.unwrap_err();
    place.end_session(&fast).await;
    let again = slow.lease(71, 3).await.unwrap();
    assert_eq!((again.occurrence, again.attempt), (run.occurrence, 2));
    assert!(again.fence > run.fence, "{} after {}", again.fence, run.fence);
    // The first node was not dead after all: the fence rejects its run.
    let extend = Action::Extend { fence: run.fence, duration: LEASE };
    assert_eq!(fast.apply(60, "job", extend).await.unwrap(), Reply::LeaseLost);
    assert_eq!(fast.apply(60, "job", complete(run.fence, 61)).await.unwrap(), Reply::LeaseLost);
    assert_eq!(slow.apply(71, "job", complete(again.fence, 62)).await.unwrap(), Reply::Accepted);
    assert_eq!(slow.read(72).await.counters.expired, 1);
}

async fn the_end_of_a_session_alone_ends_no_run(place: &Place) {
    let node = place.join("one", 0).await;
    node.register(60).await;
    let run = node.lease(60, 1).await.unwrap();
    place.end_session(&node).await;
    assert_eq!(node.apply(60, "job", complete(run.fence, 61)).await.unwrap(), Reply::Accepted);
    // A new run needs a session: the commit finds out, and the next batch opens another.
    let (fence, head) = node.head(61).await;
    let claim = Claim::at_least_once(2, fence, head.into(), LEASE);
    let unknown = node.apply(61, "job", Action::Claim(claim.clone())).await.unwrap_err();
    assert_eq!(unknown.kind(), allora_core::ErrorKind::Unavailable);
    node.claim(61, claim).await.unwrap();
    let other = place.join("other", 10).await;
    other.lease(61, 3).await.unwrap_err();
}

async fn a_dead_nodes_lease_is_reaped_by_any_clock(place: &Place) {
    let (fast, slow) = (place.join("fast", 10).await, place.join("slow", -10).await);
    fast.register(60).await;
    let run = fast.start(60, 1, 61).await;
    slow.apply(80, "job", Action::Reap).await.unwrap();
    assert_eq!(slow.read(80).await.leases[0].fence, run.fence);
    place.end_session(&fast).await;
    slow.apply(80, "job", Action::Reap).await.unwrap();
    let read = slow.read(80).await;
    assert_eq!((read.leases.len(), read.counters.lost), (0, 1));
}

async fn fences_grow_whatever_the_clocks_say(place: &Place) {
    let (fast, slow) = (place.join("fast", 10).await, place.join("slow", -10).await);
    let mut last = 0;
    let mut grows = |fence: i64| {
        assert!(fence > last, "{fence} after {last}");
        last = fence;
    };
    fast.register(60).await;
    grows(fast.start(60, 1, 61).await.fence);
    grows(slow.start(80, 2, 62).await.fence);
    grows(fast.start(80, 3, 63).await.fence);
    slow.apply(81, "job", Action::Delete).await.unwrap();
    slow.register(64).await;
    grows(slow.read(90).await.incarnation);
    grows(slow.start(90, 4, 65).await.fence);
    // So long after that even the tombstone is removed; then the clock goes back.
    slow.apply(90, "job", Action::Delete).await.unwrap();
    let other = NewSchedule::new("mail", "x", None);
    slow.apply(90, "other", Action::Create(other)).await.unwrap();
    slow.apply(90 + 8 * 1_440, "other", Action::Delete).await.unwrap();
    let read = async || slow.apply(0, "job", Action::Read).await.unwrap();
    // It is removed beside the batches.
    patiently("the tombstone is removed", async || read().await == Reply::Absent).await;
    slow.register(1).await;
    grows(slow.read(0).await.incarnation);
}

async fn runs_of_a_dead_node_are_found_by_any_clock(place: &Place) {
    let (fast, slow) = (place.join("fast", 10).await, place.join("slow", -10).await);
    let new = NewSchedule::new("mail", "every 1m", Some(at(60).into()));
    fast.apply(0, "job", Action::Create(new)).await.unwrap();
    fast.lease(60, 1).await.unwrap();
    assert_eq!(slow.found(71).await, [], "its node lives");
    assert_eq!(fast.found(60).await, [], "its own, and not overdue");
    assert_eq!(fast.found(61).await.len(), 1, "its own, and overdue");
    place.end_session(&fast).await;
    let found = slow.found(71).await;
    assert_eq!(found.len(), 1);
    assert!(found[0].due_at.unwrap() <= slow.now(71));
    slow.lease(71, 2).await.unwrap();
    // A dead node that has left nothing is removed.
    assert_eq!(slow.found(71).await, []);
    let mut kv = place.client().await.kv_client();
    let node = kv.get(format!("{}/nodes/fast", place.prefix), None).await.unwrap();
    assert_eq!(node.count(), 0);
}

/// The list of nodes is gone with the rest of the store.
async fn an_emptied_store_hides_no_run_of_a_node_that_dies_later(place: &Place) {
    let (gone, other) = (place.join("gone", 0).await, place.join("other", 0).await);
    let new = || NewSchedule::new("mail", "every 1m", Some(at(60).into()));
    gone.apply(0, "job", Action::Create(new())).await.unwrap();
    gone.lease_for_a_second(60, 1).await;
    place.clear().await;
    let mut kv = place.client().await.kv_client();
    let session = || format!("{}/session/gone", place.prefix);
    while kv.get(session(), None).await.unwrap().count() == 0 {
        gone.found(0).await;
        pause(100).await;
    }
    gone.apply(0, "job", Action::Create(new())).await.unwrap();
    gone.lease_for_a_second(60, 2).await;
    place.end_session(&gone).await;
    assert_eq!(other.found(61).await.len(), 1);
}

async fn a_dropped_stores_runs_are_free_when_its_lease_ends(place: &Place) {
    let (gone, other) = (place.join("gone", 10).await, place.join("other", -10).await);
    gone.register(60).await;
    gone.lease_for_a_second(60, 1).await;
    drop(gone);
    let (begun, mut claim_id) = (now(), 2);
    while other.lease(71, claim_id).await.is_err() {
        assert!(begun.elapsed() < Duration::from_secs(60), "the run stays with its node");
        claim_id += 1;
        pause(200).await;
    }
    // The shortest lease is 15 s, from its last renewal on.
    assert!(begun.elapsed() > Duration::from_secs(5), "the session ended too early");
}

/// As after each restart of a member, and after each election.
async fn a_dead_nodes_runs_are_free_although_its_etcd_lease_begins_again(place: &Place) {
    let (gone, other) = (place.join("gone", 0).await, place.join("other", 0).await);
    gone.register(60).await;
    gone.lease_for_a_second(60, 1).await;
    drop(gone);
    let client = place.client().await;
    let session = format!("{}/session/gone", place.prefix);
    let session = client.kv_client().get(session, None).await.unwrap();
    let etcd_lease = session.kvs()[0].lease();
    let (begun, mut claim_id) = (now(), 2);
    while other.lease(61, claim_id).await.is_err() {
        client.lease_client().keep_alive(etcd_lease).await.unwrap();
        assert!(begun.elapsed() < Duration::from_secs(40), "the run stays with its node");
        claim_id += 1;
        pause(500).await;
    }
    // The shortest session lasts 15 s, from its last renewal on.
    assert!(begun.elapsed() > Duration::from_secs(5), "the session ended too early");
}

async fn a_node_that_sends_nothing_loses_its_session(place: &Place) {
    let (silent, other) = (place.join("silent", 0).await, place.join("other", 0).await);
    silent.register(60).await;
    silent.lease_for_a_second(60, 1).await;
    // Its process lives, and its store: only its scheduler is stuck, or gone.
    let (begun, mut claim_id) = (now(), 2);
    while other.lease(61, claim_id).await.is_err() {
        assert!(begun.elapsed() < Duration::from_secs(60), "the run stays with its node");
        claim_id += 1;
        pause(200).await;
    }
}

async fn a_node_that_only_queries_keeps_its_session(place: &Place) {
    let node = place.join("idle", 0).await;
    node.register(60).await;
    node.lease_for_a_second(60, 1).await;
    let mut kv = place.client().await.kv_client();
    // Without the queries it would be closed after less than ten seconds.
    let started = now();
    while started.elapsed() < Duration::from_secs(12) {
        node.found(61).await;
        let session = kv.get(format!("{}/session/idle", place.prefix), None).await.unwrap();
        assert_eq!(session.count(), 1, "after {:?}", started.elapsed());
        pause(1_000).await;
    }
}

/// The runs: the job, the scheduled time, the fence.
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
        .runtime(Skewed(Tokio::current().unwrap(), chrono::TimeDelta::minutes(node.ahead)))
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
    // An occurrence that a stopping node released waits for another: one with the fast clock, because
    // it was released by that.
    let heir = skewed(&all[1], &seen);
    let handle = heir.handle();
    let heir = spawn(heir);
    let begun = now();
    for (name, last) in ["once", "least"].into_iter().zip(last) {
        loop {
            let history = all[0].store.history().unwrap();
            let entries = history.entries(HistoryQuery::new(1_000).name(name)).await.unwrap();
            let lost = entries.iter().filter(|entry| entry.outcome == Outcome::Lost);
            let at = |entry: &HistoryEntry| entry.occurrence.scheduled_at.timestamp_millis();
            let lost: Vec<i64> = lost.map(at).collect();
            let ran = ran_once(&seen, name);
            let mut silent = (ran[0]..=last).step_by(250);
            if silent.all(|at| ran.contains(&at) || lost.contains(&at)) {
                // Nothing was killed, and no answer was lost.
                assert_eq!(lost, [0; 0], "{name}");
                break;
            }
            let silent: Vec<i64> =
                (ran[0]..=last).step_by(250).filter(|at| !ran.contains(at)).collect();
            let what = entries.iter().filter(|entry| silent.contains(&at(entry)));
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
    // At least the fast node has run something, and the others have received its clock.
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
    a_run_belongs_to_its_node_while_that_lives
    a_dead_nodes_run_is_taken_over_by_any_clock
    the_end_of_a_session_alone_ends_no_run
    a_dead_nodes_lease_is_reaped_by_any_clock
    fences_grow_whatever_the_clocks_say
    runs_of_a_dead_node_are_found_by_any_clock
    a_dropped_stores_runs_are_free_when_its_lease_ends
    a_dead_nodes_runs_are_free_although_its_etcd_lease_begins_again
    an_emptied_store_hides_no_run_of_a_node_that_dies_later
    a_node_that_sends_nothing_loses_its_session
    a_node_that_only_queries_keeps_its_session
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
