//! The tests of stores, on the memory store, with a damaged record, and behind a bad line.

use allora_conformance::{
    differential,
    faults::{LostReplies, Proxy, lost_replies},
    stores::{
        a_claim_by_the_stores_clock_returns_the_fence_that_ends_it,
        an_unreadable_record_harms_no_other,
        deleted_names_are_forgotten_after_seven_days_and_their_fences_are_not,
        the_stores_clock_decides,
    },
};
use allora_core::{
    Backend, Error, ErrorKind, Result, Time,
    backend::{Action, Applied, Batch, Due, DueQuery, JobState, Operation, Page, TimeSource},
    record::Record,
    store::{Commit, Load, Loaded, Outcome, RecordStore, Snapshot},
};
use allora_memory::Memory;
use async_trait::async_trait;
use futures::executor::block_on;
use std::sync::{
    Arc, Mutex,
    atomic::{AtomicI64, Ordering},
};

/// A clock that is a microsecond later at each look.
fn ticking() -> impl Fn() -> Time + Send + Sync + 'static {
    let clock = AtomicI64::new(1_900_000_000_000_000);
    move || Time::from_timestamp_micros(clock.fetch_add(1, Ordering::Relaxed)).unwrap()
}

#[test]
fn a_store_with_a_clock_passes() {
    block_on(the_stores_clock_decides(&Memory::new().with_clock(ticking())));
    let store = Memory::new().with_clock(ticking());
    block_on(a_claim_by_the_stores_clock_returns_the_fence_that_ends_it(&store));
    block_on(deleted_names_are_forgotten_after_seven_days_and_their_fences_are_not(&Memory::new()));
}

#[test]
#[should_panic(expected = "1970")]
fn a_store_without_a_clock_fails() {
    block_on(the_stores_clock_decides(&Memory::new()));
}

/// A memory store with a record that cannot be read.
#[derive(Clone, Debug, Default)]
struct Damaged {
    memory: Memory,
    damage: Arc<Mutex<Damage>>,
}

#[derive(Debug, Default)]
struct Damage {
    name: Option<String>,
    was_shown: bool,
}

impl Damaged {
    fn is_damaged(&self, name: &str) -> bool {
        self.damage.lock().unwrap().name.as_deref() == Some(name)
    }

    fn shown(
        &self,
        name: String,
        record: Result<Record, String>,
    ) -> (String, Result<Record, String>) {
        let record = if self.is_damaged(&name) { Err("damaged".to_owned()) } else { record };
        (name, record)
    }
}

#[async_trait]
impl RecordStore for Damaged {
    type Version = u64;

    async fn load(&self, load: Load<'_>) -> Result<Snapshot<u64>> {
        let mut snapshot = self.memory.load(load).await?;
        for (name, loaded) in load.names.iter().zip(&mut snapshot.records) {
            if let Ok(loaded) = loaded
                && self.is_damaged(name)
            {
                let fence = loaded.stored().map_or(0, |record| record.fence);
                *loaded = Loaded::unreadable("damaged", fence, loaded.version);
            }
        }
        Ok(snapshot)
    }

    async fn commit(&self, commit: Commit<'_, u64>) -> Result<Vec<Result<Outcome<u64>>>> {
        let names: Vec<&str> = commit.drafts.iter().map(|draft| draft.name).collect();
        if names.into_iter().any(|name| self.is_damaged(name)) {
            self.damage.lock().unwrap().name = None;
        }
        self.memory.commit(commit).await
    }

    async fn scan(
        &self,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<(String, Result<Record, String>)>> {
        let scanned = self.memory.scan(prefix, after, limit).await?;
        Ok(scanned.into_iter().map(|(name, record)| self.shown(name, record)).collect())
    }

    async fn list(&self, page: Page<'_>) -> Result<Vec<(String, Result<Record, String>)>> {
        let listed = RecordStore::list(&self.memory, page).await?;
        Ok(listed.into_iter().map(|(name, record)| self.shown(name, record)).collect())
    }

    async fn find_due(&self, query: DueQuery<'_>, time: TimeSource) -> Result<Due> {
        let mut due = RecordStore::find_due(&self.memory, query, time).await?;
        due.found.retain(|state| !self.is_damaged(&state.name));
        let mut damage = self.damage.lock().unwrap();
        if let Some(name) = damage.name.clone().filter(|_| !damage.was_shown) {
            due.found.insert(0, JobState::unreadable(name, "damaged"));
            damage.was_shown = true;
        }
        Ok(due)
    }
}

#[test]
fn a_store_with_a_damaged_record_passes() {
    let store = Damaged::default();
    block_on(an_unreadable_record_harms_no_other(&store, async |name| {
        store.damage.lock().unwrap().name = Some(name.to_owned());
    }));
}

#[test]
#[should_panic(expected = "shown")]
fn a_store_that_does_not_see_the_damage_fails() {
    block_on(an_unreadable_record_harms_no_other(&Memory::new(), async |_| {}));
}

/// Applies a batch and loses its replies, when it is this batch's turn.
#[derive(Clone, Debug)]
struct BadLine {
    memory: Memory,
    left: Arc<AtomicI64>,
}

#[async_trait]
impl Backend for BadLine {
    async fn reschedule(&self, batch: Batch<'_>) -> Result<Applied> {
        let applied = self.memory.reschedule(batch).await?;
        match self.left.fetch_sub(1, Ordering::Relaxed) {
            0 => Err(Error::new(ErrorKind::Unavailable, "the connection was cut")),
            _ => Ok(applied),
        }
    }
}

#[test]
fn lost_replies_are_counted_and_resolved() {
    let (memory, left) = (Memory::new(), Arc::new(AtomicI64::new(Proxy::NEVER)));
    let node = BadLine { memory: memory.clone(), left: left.clone() };
    let cut_after = |replies| left.store(replies, Ordering::Relaxed);
    let lost = block_on(lost_replies(&memory, &node, "job", &[0, 1, 0], cut_after));
    assert_eq!(lost, LostReplies { claims: 2, completions: 2 });
}

/// Forgets the ids of claims, so that a claim whose reply was lost is rejected.
#[derive(Debug)]
struct Forgetful(BadLine);

#[async_trait]
impl Backend for Forgetful {
    async fn reschedule(&self, batch: Batch<'_>) -> Result<Applied> {
        let operations: Vec<Operation<'_>> = batch.operations.iter().cloned().map(anew).collect();
        self.0.reschedule(Batch::new(batch.node, batch.time, &operations)).await
    }
}

/// The same operation with a claim id that was never used.
fn anew(mut operation: Operation<'_>) -> Operation<'_> {
    static NEXT: AtomicI64 = AtomicI64::new(100);
    if let Action::Claim(claim) = &mut operation.action {
        claim.claim_id = NEXT.fetch_add(1, Ordering::Relaxed).cast_unsigned().into();
    }
    operation
}

#[test]
#[should_panic(expected = "State")]
fn a_store_that_forgets_a_claim_whose_reply_was_lost_fails() {
    let (memory, left) = (Memory::new(), Arc::new(AtomicI64::new(Proxy::NEVER)));
    let node = Forgetful(BadLine { memory: memory.clone(), left: left.clone() });
    let cut_after = |replies| left.store(replies, Ordering::Relaxed);
    block_on(lost_replies(&memory, &node, "job", &[0], cut_after));
}

#[test]
fn two_memory_stores_agree_on_a_long_walk() {
    for seed in differential::seeds() {
        let [ours, theirs] = [(); 2].map(|()| Memory::new().with_history(1_000_000));
        block_on(differential::walk(seed, &ours, &theirs));
    }
}
