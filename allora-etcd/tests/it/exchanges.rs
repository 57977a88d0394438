//! The number of exchanges with etcd that a batch needs: each waits for the members' disks.

use crate::{
    faults::members::Members,
    stores::{patient, patiently, runtime},
};
use allora_core::{
    Backend, Time,
    backend::{
        Action, Batch, Claim, Completion, Cursor, NewSchedule, Operation, Reply, TimeSource,
    },
    time::from_millis,
};
use allora_etcd::Etcd;
use std::time::Duration;

const LEASE: Duration = Duration::from_secs(30);

fn at(seconds: i64) -> Time {
    from_millis(1_893_456_000_000 + seconds * 1_000).unwrap()
}

/// A node, and the member that counts what it sends.
struct Node<'a> {
    members: &'a Members,
    store: Etcd,
    id: &'static str,
}

impl<'a> Node<'a> {
    async fn join(members: &'a Members, id: &'static str) -> Self {
        let store = patient(Etcd::builder()).connect(members.urls()).await.unwrap();
        Self { members, store, id }
    }

    /// Applies a batch, which must need this number of exchanges.
    async fn apply(&self, exchanges: u64, operations: &[Operation<'_>]) -> Vec<Reply> {
        let before = self.members.transactions(0);
        let time = TimeSource::Store { fallback: at(60) };
        let applied = self.store.reschedule(Batch::new(self.id, time, operations)).await.unwrap();
        let counted = self.members.transactions(0) - before;
        assert_eq!(counted, exchanges, "{operations:?}");
        applied.replies.into_iter().map(Result::unwrap).collect()
    }
}

fn register(name: &str) -> Operation<'_> {
    let first = Some(at(60).into());
    Operation::new(name, Action::Register { definition: "every 1m", version: 0, first })
}

/// Claims the occurrence of this minute as it is in a state.
fn claim<'a>(claim_id: u128, state: &'a Reply, minute: i64) -> Operation<'a> {
    let Reply::State(state) = state else { panic!("{state:?}") };
    let expected = at(60 * minute).into();
    Operation::claim(&state.name, Claim::at_least_once(claim_id, state.fence, expected, LEASE))
}

/// Completes a claimed run, so that the next occurrence is at this minute.
fn complete<'a>(name: &'a str, claimed: &Reply, minute: i64) -> Operation<'a> {
    let Reply::Claimed(claimed) = claimed else { panic!("{claimed:?}") };
    let then = Cursor::To(Some(at(60 * minute).into()));
    Operation::complete(name, claimed.fence, then, Completion::Succeeded)
}

#[test]
fn a_claim_needs_one_exchange_and_nothing_needs_more_than_it_must() {
    runtime().block_on(async {
        let Some(members) = Members::start(1, &[]).await else { return };
        let (one, other) = (Node::join(&members, "one").await, Node::join(&members, "other").await);
        let names: Vec<String> = (0..300).map(|i| format!("job {i}")).collect();
        // 63 records are read by one exchange, and about 120 written.
        let all: Vec<Operation<'_>> = names.iter().map(|name| register(name)).collect();
        let states = one.apply(5 + 3, &all).await;
        let known = one.apply(1, &[Operation::read(&names[0]), register(&names[1])]).await;
        assert_eq!(known, states[..2], "nothing has changed");
        // The session costs one of the two; after that the cache saves the read.
        one.apply(2, &[claim(1, &states[0], 1)]).await;
        let claims: Vec<Operation<'_>> =
            states[1..101].iter().map(|state| claim(2, state, 1)).collect();
        let claimed = one.apply(1, &claims).await;
        let done: Vec<Operation<'_>> = names[1..101]
            .iter()
            .zip(&claimed)
            .map(|(name, claimed)| complete(name, claimed, 2))
            .collect();
        assert!(one.apply(1, &done).await.iter().all(Reply::is_accepted));
        let claims: Vec<Operation<'_>> =
            states[101..].iter().map(|state| claim(3, state, 1)).collect();
        one.apply(2, &claims).await;
        // A repeated completion changes nothing: that is read.
        assert!(one.apply(1, &done[..1]).await[0].is_accepted());

        let fresh = ["a", "b", "c"].map(register);
        let states = one.apply(2, &fresh).await;
        // Claims and reads in one batch: the reads share one exchange, the writes another.
        let mixed = [claim(4, &states[0], 1), Operation::read("b"), register("d")];
        one.apply(2, &mixed).await;
        // Another node's write is not in the cache: a claim on it is read, and lost by the same
        // exchange if it was sent.
        let seen = other.apply(1, &[Operation::read("b"), Operation::read("c")]).await;
        let claimed = other.apply(2, &[claim(5, &seen[0], 1)]).await;
        let lost = one.apply(1, &[claim(6, &states[1], 1)]).await.remove(0);
        assert_eq!(lost.state().unwrap().leases.len(), 1);
        other.apply(1, &[complete("b", &claimed[0], 2)]).await;
    });
}

#[test]
fn a_claim_that_the_cache_cannot_decide_shares_the_commit_of_the_others() {
    runtime().block_on(async {
        let Some(members) = Members::start(1, &[]).await else { return };
        let (one, other) = (Node::join(&members, "one").await, Node::join(&members, "other").await);
        let states = one.apply(2, &["a", "b", "c"].map(register)).await;
        let claimed = one.apply(2, &[claim(1, &states[2], 1)]).await;
        // The other node claims "b" and releases it. The first node's claim names the current fence,
        // as a planner that was notified does.
        let seen = other.apply(1, &[Operation::read("b")]).await;
        let run = other.apply(2, &[claim(2, &seen[0], 1)]).await;
        let release = Operation::new("b", Action::Release { fence: fence_of(&run[0]) });
        other.apply(1, &[release]).await;
        let seen = other.apply(1, &[Operation::read("b")]).await;
        let batch = [claim(3, &states[0], 1), claim(4, &seen[0], 1), complete("c", &claimed[0], 2)];
        let replies = one.apply(2, &batch).await;
        let [Reply::Claimed(_), Reply::Claimed(b), Reply::Accepted] = &replies[..] else {
            panic!("{replies:?}")
        };
        assert_eq!(b.attempt, 1, "it was released");
    });
}

#[test]
fn a_schedule_is_created_and_deleted_by_a_read_and_a_write() {
    runtime().block_on(async {
        let Some(members) = Members::start(1, &[]).await else { return };
        let node = Node::join(&members, "one").await;
        let new = NewSchedule::new("mail", "x", Some(at(60).into())).data(b"data");
        let created = node.apply(2, &[Operation::new("stored", Action::Create(new))]).await;
        assert!(matches!(created[..], [Reply::State(_)]));
        // A remembered id has a key of its own, which one more exchange reads.
        let retention = std::time::Duration::ZERO;
        let trigger = Action::Trigger { id: "once", scheduled_at: None, retention, data: None };
        node.apply(2, &[Operation::new("stored", trigger)]).await;
        let before = members.transactions(0);
        let delete = [Operation::new("stored", Action::Delete)];
        let time = TimeSource::Store { fallback: at(60) };
        let batch = Batch::new(node.id, time, &delete);
        let deleted = node.store.reschedule(batch).await.unwrap().single().unwrap();
        assert_eq!(deleted, Reply::Deleted);
        // The others look for old tombstones and other schedules of the kind, and delay no reply.
        let sent = async || members.transactions(0) - before == 5;
        patiently("the store is tidied", sent).await;
    });
}

fn fence_of(claimed: &Reply) -> i64 {
    let Reply::Claimed(claimed) = claimed else { panic!("{claimed:?}") };
    claimed.fence
}
