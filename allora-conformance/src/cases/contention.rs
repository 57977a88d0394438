//! Several nodes at once: each occurrence is claimed once, and none is left out.

use crate::cluster::*;
use allora_core::{
    Time,
    backend::{Action, Claim, Completion, Cursor, JobState, NextRun, Operation, Reply, Sharing},
};
use futures::channel::oneshot;
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// Of how many jobs the occurrences are that the nodes share.
const JOBS: u64 = 100;
/// Number of tries before a node gives up. In each turn one node wins each job, except the jobs
/// that a slow node holds.
const TURNS: u64 = 10_000;

/// One start, as its node saw it: job, nominal instant, fence.
type Start = (usize, Time, i64);

pub(super) async fn two_nodes_claim_each_occurrence_once(w: &Cluster) {
    contend(w, 2, false).await;
}

pub(super) async fn four_nodes_claim_each_occurrence_once(w: &Cluster) {
    contend(w, 4, false).await;
}

pub(super) async fn eight_nodes_claim_each_occurrence_once(w: &Cluster) {
    contend(w, 8, false).await;
}

pub(super) async fn two_nodes_complete_each_leased_occurrence_once(w: &Cluster) {
    contend(w, 2, true).await;
}

pub(super) async fn eight_nodes_complete_each_leased_occurrence_once(w: &Cluster) {
    contend(w, 8, true).await;
}

async fn contend(w: &Cluster, nodes: usize, at_least_once: bool) {
    let names: Arc<[String]> = (0..JOBS).map(|i| format!("job {i}")).collect();
    for name in names.iter() {
        w.node().register(t(0), name, instant(0)).await;
    }
    let each = w.occurrences() / JOBS;
    assert!(each > 0, "at least one occurrence for each of {JOBS} jobs");
    let (mut logs, mut gates) = (Vec::new(), Vec::new());
    for i in 0..nodes {
        let (send, log) = oneshot::channel();
        let (go, gate) = oneshot::channel();
        let racer = Racer {
            node: w.join(&format!("racer-{i}")).await,
            names: names.clone(),
            each,
            at_least_once,
            claims: (i as u128) << 64,
            log: Vec::new(),
        };
        w.start(Box::pin(async move {
            gate.await.expect("the race begins");
            drop(send.send(racer.race().await));
        }));
        logs.push(log);
        gates.push(go);
    }
    for go in gates {
        go.send(()).expect("a racer waits at the start");
    }
    let mut starts = Vec::new();
    for log in logs {
        starts.extend(log.await.expect("the racer panicked; its message is above"));
    }
    judge(&names, each, starts);
    for name in names.iter() {
        let seen = w.node().read(name).await;
        assert_eq!((seen.head.clone(), seen.counters.started), (None, each), "{name}");
        assert_eq!((seen.counters.succeeded, leases(&seen)), (each, vec![]), "{name}");
    }
}

/// Each occurrence once, in order, each under a larger fence.
fn judge(names: &[String], each: u64, starts: Vec<Start>) {
    let mut of_job: BTreeMap<usize, Vec<(i64, Time)>> = BTreeMap::new();
    for (job, at, fence) in starts {
        of_job.entry(job).or_default().push((fence, at));
    }
    for (job, name) in names.iter().enumerate() {
        let mut starts = of_job.remove(&job).unwrap_or_default();
        starts.sort_unstable();
        let expected: Vec<Time> = (0..each).map(instant).collect();
        let by_fence: Vec<Time> = starts.iter().map(|(_, at)| *at).collect();
        assert_eq!(by_fence, expected, "the starts of {name}, by fence");
        assert!(starts.windows(2).all(|pair| pair[0].0 < pair[1].0), "{name}: one fence twice");
    }
}

fn instant(number: u64) -> Time {
    t(60 + number as i64)
}

struct Racer {
    node: Node,
    names: Arc<[String]>,
    /// Number of occurrences of each job.
    each: u64,
    at_least_once: bool,
    claims: u128,
    log: Vec<Start>,
}

impl Racer {
    /// Takes what it can, job by job in batches, until all have come to their end.
    async fn race(mut self) -> Vec<Start> {
        let now = instant(self.each);
        let mut seen: Vec<JobState> = Vec::new();
        for name in self.names.iter() {
            seen.push(self.node.read(name).await);
        }
        // Every turn tries every job: far more turns than it takes.
        for _ in 0..TURNS {
            let open: Vec<usize> = (0..seen.len()).filter(|i| seen[*i].next.is_some()).collect();
            if open.is_empty() {
                return self.log;
            }
            for batch in open.chunks(16) {
                let won = self.claim(now, batch, &mut seen).await;
                self.complete(now, &won).await;
                self.log.extend(won);
            }
        }
        panic!("the occurrences do not end: {} were claimed here", self.log.len());
    }

    /// The one after, until they end.
    fn following(&self, at: Time) -> Option<NextRun> {
        let next = at + chrono::TimeDelta::seconds(1);
        (next < instant(self.each)).then(|| next.into())
    }

    async fn claim(&mut self, now: Time, batch: &[usize], seen: &mut [JobState]) -> Vec<Start> {
        let names = self.names.clone();
        let mut operations = Vec::new();
        for job in batch {
            let action = match &seen[*job].head {
                Some(head) => Action::Claim(self.claim_of(&seen[*job], head.scheduled_at)),
                None => Action::Read,
            };
            operations.push(Operation::new(&names[*job], action));
        }
        let replies = self.node.replies(now, &operations).await;
        let mut won = Vec::new();
        for (job, reply) in batch.iter().zip(replies) {
            match reply {
                Reply::State(state) => seen[*job] = *state,
                Reply::Claimed(claimed) => {
                    won.push((*job, claimed.occurrence.scheduled_at, claimed.fence));
                    let next = self.following(claimed.occurrence.scheduled_at);
                    seen[*job].fence = claimed.fence;
                    seen[*job].next = next;
                    seen[*job].head = next.map(|next| next.scheduled_at.into());
                }
                other => panic!("{:?}: {other:?}", self.names[*job]),
            }
        }
        won
    }

    fn claim_of(&mut self, seen: &JobState, at: Time) -> Claim {
        self.claims += 1;
        // Longer than the race, which is at one instant.
        let lease = Duration::from_secs(3_600);
        if self.at_least_once {
            return Claim::at_least_once(self.claims, seen.fence, at.into(), lease);
        }
        let (then, sharing) = (Cursor::To(self.following(at)), Sharing::Shared);
        Claim::at_most_once(self.claims, seen.fence, at.into(), then, lease, sharing)
    }

    async fn complete(&self, now: Time, won: &[Start]) {
        let complete = |(job, at, fence): &Start| {
            let then = match self.at_least_once {
                true => Cursor::To(self.following(*at)),
                false => Cursor::Keep,
            };
            Operation::complete(&self.names[*job], *fence, then, Completion::Succeeded)
        };
        let operations: Vec<Operation<'_>> = won.iter().map(complete).collect();
        let replies = self.node.replies(now, &operations).await;
        assert!(replies.iter().all(Reply::is_accepted), "{replies:?}");
    }
}
