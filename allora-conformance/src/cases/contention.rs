//! Several nodes at once: each occurrence is taken once, and none is left out.

use crate::world::*;
use allora_core::{
    Time,
    backend::{Act, Answer, Cursor, Deliver, End, Ended, Ending, Next, Plan, Settled, State, Take},
};
use futures::channel::oneshot;
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// Of how many jobs the occurrences are that the nodes share.
const JOBS: u64 = 100;
/// How often a node tries before it gives up. Somebody wins each job in each turn, except those
/// that a slow node holds.
const TURNS: u64 = 10_000;

/// One start, as its node saw it: job, nominal instant, fence.
type Start = (usize, Time, i64);

pub(super) async fn two_nodes_take_each_occurrence_once(w: &World) {
    contend(w, 2, false).await;
}

pub(super) async fn four_nodes_take_each_occurrence_once(w: &World) {
    contend(w, 4, false).await;
}

pub(super) async fn eight_nodes_take_each_occurrence_once(w: &World) {
    contend(w, 8, false).await;
}

pub(super) async fn two_nodes_finish_each_leased_occurrence_once(w: &World) {
    contend(w, 2, true).await;
}

pub(super) async fn eight_nodes_finish_each_leased_occurrence_once(w: &World) {
    contend(w, 8, true).await;
}

async fn contend(w: &World, nodes: usize, leases: bool) {
    let names: Arc<[String]> = (0..JOBS).map(|i| format!("job {i}")).collect();
    for name in names.iter() {
        w.node().register(t(0), name, instant(0)).await;
    }
    let each = w.occurrences() / JOBS;
    assert!(each > 0, "at least one occurrence for each of {JOBS} jobs");
    let (mut logs, mut gates) = (Vec::new(), Vec::new());
    for i in 0..nodes {
        let (tell, log) = oneshot::channel();
        let (go, gate) = oneshot::channel();
        let racer = Racer {
            node: w.join(&format!("racer-{i}")).await,
            names: names.clone(),
            each,
            leases,
            claims: (i as u128) << 64,
            log: Vec::new(),
        };
        w.start(Box::pin(async move {
            gate.await.expect("the race begins");
            drop(tell.send(racer.race().await));
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
        let seen = w.node().look(name).await;
        assert_eq!((seen.head.clone(), seen.counters.started), (None, each), "{name}");
        assert!(!leases || seen.counters.ran == each, "{name}: {seen:?}");
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
    /// How many occurrences each job has.
    each: u64,
    leases: bool,
    claims: u128,
    log: Vec<Start>,
}

impl Racer {
    /// Takes what it can, job by job in batches, until all have come to their end.
    async fn race(mut self) -> Vec<Start> {
        let now = instant(self.each);
        let mut seen: Vec<State> = Vec::new();
        for name in self.names.iter() {
            seen.push(self.node.look(name).await);
        }
        // Every turn tries every job: far more turns than it takes.
        for _ in 0..TURNS {
            let open: Vec<usize> = (0..seen.len()).filter(|i| seen[*i].cursor.is_some()).collect();
            if open.is_empty() {
                return self.log;
            }
            for batch in open.chunks(16) {
                let won = self.take(now, batch, &mut seen).await;
                if self.leases {
                    self.finish(now, &won).await;
                }
                self.log.extend(won);
            }
        }
        panic!("the occurrences do not end: {} were taken here", self.log.len());
    }

    /// The one after, until they end.
    fn following(&self, at: Time) -> Option<Next> {
        let next = at + chrono::TimeDelta::seconds(1);
        (next < instant(self.each)).then(|| next.into())
    }

    async fn take(&mut self, now: Time, batch: &[usize], seen: &mut [State]) -> Vec<Start> {
        let names = self.names.clone();
        let mut plans = Vec::new();
        for job in batch {
            let act = match &seen[*job].head {
                Some(head) => Act::Take(self.plan(&seen[*job], head.at)),
                None => Act::Look,
            };
            plans.push(Plan::new(&names[*job], act));
        }
        let answers = self.node.ask(now, &plans).await.answers;
        let mut won = Vec::new();
        for (job, answer) in batch.iter().zip(answers) {
            match answer {
                Answer::State(state) => seen[*job] = *state,
                Answer::Taken(taken) => {
                    won.push((*job, taken.run.at, taken.fence));
                    let next = self.following(taken.run.at);
                    seen[*job].fence = taken.fence;
                    seen[*job].cursor = next;
                    seen[*job].head = next.map(|next| next.at.into());
                }
                other => panic!("{:?}: {other:?}", self.names[*job]),
            }
        }
        won
    }

    fn plan(&mut self, seen: &State, at: Time) -> Take {
        self.claims += 1;
        let deliver = if self.leases {
            // Longer than the race, which is at one instant.
            Deliver::AtLeastOnce { lease: Duration::from_secs(3_600) }
        } else {
            Deliver::AtMostOnce { then: Cursor::To(self.following(at)), mark: None }
        };
        Take::new(self.claims, seen.fence, at.into(), deliver)
    }

    async fn finish(&self, now: Time, won: &[Start]) {
        let ending = |(job, at, fence): &Start| {
            let end = End::Finish { then: Cursor::To(self.following(*at)), outcome: Ended::Ran };
            Ending::new(&self.names[*job], *fence, end)
        };
        let endings: Vec<Ending<'_>> = won.iter().map(ending).collect();
        let answers = self.node.settle(now, &endings).await;
        assert!(answers.iter().all(|answer| *answer == Settled::Done), "{answers:?}");
    }
}
