//! The load: nodes that take what is due and finish it, as fast as they can.

use allora_core::{
    Backend, Time,
    backend::{
        Act, Answer, Beside, Cursor, Deliver, End, Ended, Ending, Find, Leases, Mark, Now, Plan,
        Reschedule, Settle, Settled, Take,
    },
};
use allora_redis::Redis;
use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant, SystemTime},
};

pub(crate) const KIND: &str = "bench";
const STEP: Duration = Duration::from_secs(1);
const LASTS: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Delivery {
    AtMostOnce,
    AtLeastOnce,
}

/// What a node did.
#[derive(Clone, Copy, Default)]
pub(crate) struct Tally {
    pub(crate) won: u64,
    /// In calls that take.
    pub(crate) taking: Duration,
    pub(crate) whole: Duration,
}

impl Tally {
    /// Takes per second, while it takes.
    pub(crate) fn takes(&self) -> f64 {
        self.won as f64 / self.taking.as_secs_f64()
    }

    /// Takes with their finishes per second.
    pub(crate) fn both(&self) -> f64 {
        self.won as f64 / self.whole.as_secs_f64()
    }
}

struct Job {
    name: String,
    fence: i64,
    next: Time,
}

pub(crate) struct Node {
    redis: Redis,
    id: String,
    jobs: Vec<Job>,
}

impl Node {
    /// Connects, and looks at where its jobs are.
    pub(crate) async fn new(url: &str, id: &str, names: &[String]) -> Self {
        let redis = open(url).await;
        let plans: Vec<Plan<'_>> = names.iter().map(|name| Plan::new(name, Act::Look)).collect();
        let looked = redis.reschedule(Reschedule::new(id, now(), &plans)).await.unwrap();
        let job = |answer: Answer| match answer {
            Answer::State(state) => {
                let next = state.cursor.unwrap().at;
                Job { name: state.name, fence: state.fence, next }
            }
            other => panic!("a job that was prepared is not there: {other:?}"),
        };
        Self { redis, id: id.to_owned(), jobs: looked.answers.into_iter().map(job).collect() }
    }

    /// Takes and finishes all its jobs, again and again.
    pub(crate) async fn work(&mut self, delivery: Delivery, lasts: Duration) -> Tally {
        let begun = Instant::now();
        let mut tally = Tally::default();
        while begun.elapsed() < lasts {
            self.round(delivery, &mut tally).await;
        }
        tally.whole = begun.elapsed();
        tally
    }

    pub(crate) async fn round(&mut self, delivery: Delivery, tally: &mut Tally) {
        let plans: Vec<Plan<'_>> = self.jobs.iter().map(|job| job.take(delivery)).collect();
        let begun = Instant::now();
        let request = Reschedule::new(&self.id, now(), &plans);
        let answers = self.redis.reschedule(request).await.unwrap().answers;
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
            let settled = self.redis.settle(Settle::new(&self.id, now(), &endings)).await.unwrap();
            assert!(settled.iter().all(|one| *one == Settled::Done), "{settled:?}");
        }
        for (job, (next, fence)) in self.jobs.iter_mut().zip(moved) {
            (job.next, job.fence) = (next, fence);
        }
    }

    /// As [`work`](Self::work) at least once, with what is found in the store.
    pub(crate) async fn work_on_found(&mut self, limit: usize, lasts: Duration) -> (Tally, f64) {
        let begun = Instant::now();
        let (mut tally, mut finding, mut found) = (Tally::default(), Duration::ZERO, 0);
        while begun.elapsed() < lasts {
            let find_begun = Instant::now();
            let find = Find::new(&[KIND], SystemTime::now().into(), limit);
            let request = Reschedule::new(&self.id, now(), &[]).find(find);
            let states = self.redis.reschedule(request).await.unwrap().found;
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

pub(crate) async fn open(url: &str) -> Redis {
    Redis::builder().prefix(crate::raw::PREFIX).connect(url).await.unwrap()
}

/// The store's clock decides.
pub(crate) fn now() -> Now {
    Now::Store { node: SystemTime::now().into() }
}
