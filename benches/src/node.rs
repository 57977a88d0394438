//! The load: nodes that take what is due and finish it, as fast as they can, on any store.

#![expect(clippy::disallowed_methods, reason = "it measures the clocks' passing")]
#![expect(clippy::unwrap_used, reason = "a benchmark that cannot go on says so")]

use allora_core::{
    Backend, Time,
    backend::{
        Act, Answer, Beside, Cursor, Deliver, End, Ended, Ending, Find, Mark, Now, Plan,
        Reschedule, Settle, Settled, Take,
    },
};
use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant, SystemTime},
};

/// The kind of the stored schedules that it finds.
pub const KIND: &str = "bench";
const STEP: Duration = Duration::from_secs(1);
const LASTS: Duration = Duration::from_secs(60);

/// How occurrences are won.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// The cursor moves when an occurrence is taken.
    AtMostOnce,
    /// It moves when the run is finished.
    AtLeastOnce,
}

/// What a node did.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Occurrences that it won.
    pub won: u64,
    /// In calls that take.
    pub taking: Duration,
    /// In all calls.
    pub whole: Duration,
}

impl Tally {
    /// Takes per second, while it takes.
    pub fn takes(&self) -> f64 {
        self.won as f64 / self.taking.as_secs_f64()
    }

    /// Takes with their finishes per second.
    pub fn both(&self) -> f64 {
        self.won as f64 / self.whole.as_secs_f64()
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
    /// Looks at where its jobs are.
    pub async fn new(store: B, id: &str, names: &[String]) -> Self {
        let plans: Vec<Plan<'_>> = names.iter().map(|name| Plan::new(name, Act::Look)).collect();
        let looked = store.reschedule(Reschedule::new(id, now(), &plans)).await.unwrap();
        let job = |answer: Answer| match answer {
            Answer::State(state) => {
                let next = state.cursor.unwrap().at;
                Job { name: state.name, fence: state.fence, next }
            }
            other => panic!("a job that was prepared is not there: {other:?}"),
        };
        Self { store, id: id.to_owned(), jobs: looked.answers.into_iter().map(job).collect() }
    }

    /// Takes and finishes all its jobs, again and again.
    pub async fn work(&mut self, delivery: Delivery, lasts: Duration) -> Tally {
        let begun = Instant::now();
        let mut tally = Tally::default();
        while begun.elapsed() < lasts {
            self.round(delivery, &mut tally).await;
        }
        tally.whole = begun.elapsed();
        tally
    }

    /// Takes and finishes all its jobs once.
    pub async fn round(&mut self, delivery: Delivery, tally: &mut Tally) {
        let plans: Vec<Plan<'_>> = self.jobs.iter().map(|job| job.take(delivery)).collect();
        let begun = Instant::now();
        let request = Reschedule::new(&self.id, now(), &plans);
        let answers = self.store.reschedule(request).await.unwrap().answers;
        tally.taking += begun.elapsed();
        let mut endings = Vec::new();
        let mut moved = Vec::with_capacity(self.jobs.len());
        for (job, answer) in self.jobs.iter().zip(&answers) {
            moved.push(match answer {
                Answer::Taken(taken) => {
                    tally.won += 1;
                    endings.push(job.finish(delivery, taken.fence));
                    (job.next + STEP, taken.fence)
                }
                Answer::State(state) => (state.cursor.unwrap().at, state.fence),
                other => panic!("a job is gone: {other:?}"),
            });
        }
        if !endings.is_empty() {
            let settle = Settle::new(&self.id, now(), &endings);
            let settled = self.store.leases().unwrap().settle(settle).await.unwrap();
            assert!(settled.iter().all(|one| *one == Settled::Done), "{settled:?}");
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
            let find = Find::new(&[KIND], SystemTime::now().into(), limit);
            let request = Reschedule::new(&self.id, now(), &[]).find(find);
            let states = self.store.reschedule(request).await.unwrap().found;
            finding += find_begun.elapsed();
            found += states.len();
            let job = |state: allora_core::backend::State| {
                let next = state.cursor.unwrap().at;
                Job { name: state.name, fence: state.fence, next }
            };
            self.jobs = states.into_iter().map(job).collect();
            self.round(Delivery::AtLeastOnce, &mut tally).await;
        }
        tally.whole = begun.elapsed();
        (tally, found as f64 / finding.as_secs_f64())
    }
}

impl Job {
    fn then(&self) -> Cursor {
        Cursor::To(Some((self.next + STEP).into()))
    }

    fn take(&self, delivery: Delivery) -> Plan<'_> {
        static CLAIM: AtomicU64 = AtomicU64::new(1);
        let claim = CLAIM.fetch_add(1, Ordering::Relaxed).into();
        let deliver = match delivery {
            // With the mark that every node sets where the store has leases.
            Delivery::AtMostOnce => Deliver::AtMostOnce {
                then: self.then(),
                mark: Some(Mark { lasts: LASTS, beside: Beside::Others }),
            },
            Delivery::AtLeastOnce => Deliver::AtLeastOnce { lease: LASTS },
        };
        let take = Take::new(claim, self.fence, self.next.into(), deliver);
        Plan::new(&self.name, Act::Take(take))
    }

    fn finish(&self, delivery: Delivery, fence: i64) -> Ending<'_> {
        let then = match delivery {
            Delivery::AtMostOnce => Cursor::Keep,
            Delivery::AtLeastOnce => self.then(),
        };
        Ending::new(&self.name, fence, End::Finish { then, outcome: Ended::Ran })
    }
}

/// The store's clock decides, where it has one.
pub fn now() -> Now {
    Now::Store { node: SystemTime::now().into() }
}
