//! Nodes that run two jobs, and how they are judged.

use super::{
    patiently,
    witness::{Log, Witness, wall},
};
use allora_conformance::history::{Claims, Event, Law, What, check};
use allora_core::{
    Backend, CatchUp, Handle, Run, Scheduler,
    backend::{Outcome, Past},
    every, job,
    runtime::Tokio,
};
use allora_etcd::Etcd;
use std::{
    collections::HashSet,
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::task::JoinHandle;

/// At least once.
pub(super) const LEAST: &str = "at-least-once";

/// At most once.
pub(super) const ONCE: &str = "at-most-once";

/// Between two occurrences of a job.
const PERIOD: Duration = Duration::from_millis(100);

/// The nodes of one test, what they do, and what they wrote down.
#[derive(Default)]
pub(super) struct Fleet {
    log: Log,
    said: Arc<Mutex<Vec<String>>>,
    nodes: Vec<(Handle, JoinHandle<()>)>,
}

impl Fleet {
    /// Starts a node that reaches the members so.
    pub(super) async fn start(&mut self, urls: Vec<String>) {
        // A store that is just being changed may need a second try, as a deployment would.
        let mut store = None;
        patiently("a node connects", async || {
            store = Etcd::builder().history(50_000).connect(urls.clone()).await.ok();
            store.is_some()
        })
        .await;
        let runtime = Tokio::current().unwrap();
        let work = {
            let log = self.log.clone();
            async move |run: Run| {
                let occurrence = run.scheduled_at().timestamp_millis();
                let what = What::Start { occurrence, fence: run.fence() };
                log.write(run.name(), run.node(), wall(), what);
            }
        };
        let all = CatchUp::All { limit: 1_000 };
        let lease = Duration::from_secs(3);
        let least = job(every(PERIOD), work.clone()).at_least_once(lease).catch_up(all);
        let once = job(every(PERIOD), work).catch_up(all);
        let said = self.said.clone();
        let scheduler = Scheduler::builder(Witness::new(store.unwrap(), self.log.clone()))
            .runtime(runtime)
            .mark(lease)
            .safety_poll(Duration::from_millis(500))
            .grace(Duration::from_secs(2))
            .add(LEAST, least)
            .add(ONCE, once)
            .on_event(move |event| said.lock().unwrap().push(format!("{event:?}")))
            .build()
            .unwrap();
        let handle = scheduler.handle();
        let running = tokio::runtime::Handle::current().spawn(async move {
            scheduler.run().await;
        });
        self.nodes.push((handle, running));
    }

    /// What nodes said about themselves.
    pub(super) fn said(&self, word: &str) -> usize {
        self.said.lock().unwrap().iter().filter(|line| line.starts_with(word)).count()
    }

    fn ends(&self, job: &str) -> usize {
        let ended = |event: &Event| event.job == job && matches!(event.what, What::End { .. });
        self.log.read().iter().filter(|event| ended(event)).count()
    }

    /// Waits for so many more ends of runs.
    pub(super) async fn more_ends(&self, more: usize) {
        for job in [LEAST, ONCE] {
            let before = self.ends(job);
            patiently("runs go on", async || self.ends(job) >= before + more).await;
        }
    }

    /// Stops the nodes, and judges what they wrote down. Answers with what the store remembers.
    pub(super) async fn judge(self, urls: Vec<String>) -> Vec<Past> {
        self.nodes.iter().for_each(|(handle, _)| handle.stop());
        for (_, running) in self.nodes {
            running.await.unwrap();
        }
        let store = crate::stores::patient(Etcd::builder().history(50_000));
        let store = store.connect(urls).await.unwrap();
        let log = self.log.read();
        let mut remembered = Vec::new();
        for job in [LEAST, ONCE] {
            let mut log: Vec<Event> =
                log.iter().filter(|event| event.job == job).cloned().collect();
            assert!(log.iter().any(|event| matches!(event.what, What::Start { .. })), "{job}");
            let known: HashSet<i64> = claims(&log).map(|claims| claims.fence).collect();
            let past = store.history().unwrap().past(Some(job), None, 50_000).await.unwrap();
            for past in &past {
                let first = past.occurrence.at.timestamp_millis();
                let last = past.last.map_or(first, |last| last.timestamp_millis());
                let what = match past.outcome {
                    Outcome::Lost if known.contains(&past.fence) => {
                        What::Lost { occurrence: first, fence: past.fence }
                    }
                    _ if known.contains(&past.fence) => continue,
                    _ => What::Skip { first, last },
                };
                let at = past.at.timestamp_millis();
                log.push(Event { job: job.into(), node: past.node.clone(), at, what });
            }
            remembered.extend(past);
            let period = i64::try_from(PERIOD.as_millis()).unwrap();
            let following = |_: &str, at| Some(at + period);
            let law = Law::new(&following);
            let law = if job == ONCE { law.at_most_once() } else { law };
            assert_eq!(check(&log, &law), [], "{job}");
        }
        remembered
    }
}

fn claims(log: &[Event]) -> impl Iterator<Item = Claims> {
    log.iter().filter_map(|event| match event.what {
        What::Claim(claims) => Some(claims),
        _ => None,
    })
}
