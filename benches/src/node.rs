//! The load: nodes that claim and complete occurrences as fast as they can, on any store.

#![expect(clippy::disallowed_methods, reason = "it measures the clocks' passing")]
#![expect(clippy::unwrap_used, reason = "a benchmark that cannot go on says so")]

use allora_core::{
    Backend, Time,
    backend::{
        Action, Batch, Claim, Completion, Cursor, DueQuery, JobState, NewSchedule, NextRun,
        Operation, Reply, Sharing, TimeSource,
    },
    time::whole_millis,
};
use chrono::TimeDelta;
use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant, SystemTime},
};

/// The kind of the stored schedules that it finds.
pub const KIND: &str = "bench";
const STEP: Duration = Duration::from_secs(1);
const LASTS: Duration = Duration::from_secs(60);

/// The delivery of occurrences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// The claim moves the cursor.
    AtMostOnce,
    /// The completion moves it.
    AtLeastOnce,
}

/// The work of one node.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Occurrences that it claimed.
    pub claimed: u64,
    /// Times that all jobs of the node were tried.
    pub rounds: u64,
    /// In calls that claim.
    pub claiming: Duration,
    /// In calls that complete.
    pub completing: Duration,
    /// In all calls.
    pub whole: Duration,
}

impl Tally {
    /// Claims per second, while it claims.
    pub fn claims(&self) -> f64 {
        self.claimed as f64 / self.claiming.as_secs_f64()
    }

    /// Completions per second, while it completes.
    pub fn completions(&self) -> f64 {
        self.claimed as f64 / self.completing.as_secs_f64()
    }

    /// Claims with their completions per second.
    pub fn both(&self) -> f64 {
        self.claimed as f64 / self.whole.as_secs_f64()
    }
}

#[derive(Debug)]
struct Job {
    name: String,
    fence: i64,
    next: Time,
}

/// A node with jobs of its own.
#[derive(Debug)]
pub struct Node<B> {
    store: B,
    id: String,
    jobs: Vec<Job>,
}

impl<B: Backend> Node<B> {
    /// Reads the cursors of its jobs.
    pub async fn new(store: B, id: &str, names: &[String]) -> Self {
        let reads: Vec<Operation<'_>> = names.iter().map(|name| Operation::read(name)).collect();
        let replies = apply(&store, id, &reads).await;
        let job = |reply: Reply| match reply {
            Reply::State(state) => Job::of(*state),
            other => panic!("a job that was prepared is missing: {other:?}"),
        };
        Self { store, id: id.to_owned(), jobs: replies.into_iter().map(job).collect() }
    }

    /// Claims and completes all its jobs, again and again.
    pub async fn work(&mut self, delivery: Delivery, lasts: Duration) -> Tally {
        let begun = Instant::now();
        let mut tally = Tally::default();
        while begun.elapsed() < lasts {
            self.round(delivery, &mut tally).await;
        }
        tally.whole = begun.elapsed();
        tally
    }

    /// Claims and completes all its jobs once.
    pub async fn round(&mut self, delivery: Delivery, tally: &mut Tally) {
        let claims: Vec<Operation<'_>> = self.jobs.iter().map(|job| job.claim(delivery)).collect();
        let begun = Instant::now();
        let replies = apply(&self.store, &self.id, &claims).await;
        tally.claiming += begun.elapsed();
        tally.rounds += 1;
        let mut completions = Vec::new();
        let mut moved = Vec::with_capacity(self.jobs.len());
        for (job, reply) in self.jobs.iter().zip(&replies) {
            moved.push(match reply {
                Reply::Claimed(claimed) => {
                    tally.claimed += 1;
                    completions.push(job.complete(delivery, claimed.fence));
                    (job.next + STEP, claimed.fence)
                }
                Reply::State(state) => (state.next.unwrap().scheduled_at, state.fence),
                other => panic!("a job is missing: {other:?}"),
            });
        }
        if !completions.is_empty() {
            let begun = Instant::now();
            let replies = apply(&self.store, &self.id, &completions).await;
            tally.completing += begun.elapsed();
            assert!(replies.iter().all(Reply::is_accepted), "{replies:?}");
        }
        for (job, (next, fence)) in self.jobs.iter_mut().zip(moved) {
            (job.next, job.fence) = (next, fence);
        }
    }

    /// As [`work`](Self::work) at least once, with what is found in the store.
    pub async fn work_on_found(&mut self, limit: usize, lasts: Duration) -> (Tally, f64) {
        let begun = Instant::now();
        let (mut tally, mut finding, mut found) = (Tally::default(), Duration::ZERO, 0);
        while begun.elapsed() < lasts {
            let find_begun = Instant::now();
            let query = DueQuery::new(&[KIND], SystemTime::now().into(), limit).node(&self.id);
            let due = self.store.queries().unwrap().find_due(query, now()).await.unwrap();
            finding += find_begun.elapsed();
            found += due.found.len();
            self.jobs = due.found.into_iter().map(Job::of).collect();
            self.round(Delivery::AtLeastOnce, &mut tally).await;
        }
        tally.whole = begun.elapsed();
        (tally, found as f64 / finding.as_secs_f64())
    }
}

impl Job {
    fn of(state: JobState) -> Self {
        let next = state.next.unwrap().scheduled_at;
        Self { name: state.name, fence: state.fence, next }
    }

    fn then(&self) -> Cursor {
        Cursor::To(Some((self.next + STEP).into()))
    }

    fn claim(&self, delivery: Delivery) -> Operation<'_> {
        static CLAIM_ID: AtomicU64 = AtomicU64::new(1);
        let id = CLAIM_ID.fetch_add(1, Ordering::Relaxed).into();
        let (fence, next) = (self.fence, self.next.into());
        let claim = match delivery {
            Delivery::AtMostOnce => {
                Claim::at_most_once(id, fence, next, self.then(), LASTS, Sharing::Shared)
            }
            Delivery::AtLeastOnce => Claim::at_least_once(id, fence, next, LASTS),
        };
        Operation::claim(&self.name, claim)
    }

    fn complete(&self, delivery: Delivery, fence: i64) -> Operation<'_> {
        let then = match delivery {
            Delivery::AtMostOnce => Cursor::Keep,
            Delivery::AtLeastOnce => self.then(),
        };
        Operation::complete(&self.name, fence, then, Completion::Succeeded)
    }
}

/// Registers jobs in code that have been due every second for ten years.
pub async fn register(store: &impl Backend, names: &[String]) {
    let first = whole_millis(Time::from(SystemTime::now()) - TimeDelta::days(3_650));
    let (definition, first) = ("every 1s", Some(NextRun::from(first)));
    let register = |name| Operation::new(name, Action::Register { definition, version: 0, first });
    let operations: Vec<Operation<'_>> = names.iter().map(|name| register(name)).collect();
    apply(store, "prepares", &operations).await;
}

/// Creates stored schedules of [`KIND`] with these first occurrences.
pub async fn create(store: &impl Backend, names: &[String], first: Time, data: &[u8]) {
    let new = NewSchedule::new(KIND, "every 1s", Some(first.into())).data(data);
    let create = |name| Operation::new(name, Action::Create(new));
    let operations: Vec<Operation<'_>> = names.iter().map(|name| create(name)).collect();
    let replies = apply(store, "prepares", &operations).await;
    assert!(replies.iter().all(|reply| matches!(reply, Reply::State(_))), "{replies:?}");
}

async fn apply(store: &impl Backend, node: &str, operations: &[Operation<'_>]) -> Vec<Reply> {
    let applied = store.reschedule(Batch::new(node, now(), operations)).await.unwrap();
    applied.replies.into_iter().map(Result::unwrap).collect()
}

/// The store's clock decides, where it has one.
pub fn now() -> TimeSource {
    TimeSource::Store { fallback: SystemTime::now().into() }
}
