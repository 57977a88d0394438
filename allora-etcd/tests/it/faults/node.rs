//! Nodes in processes of their own, the test binary run once more, and how they are judged.

use super::{members::Members, patiently};
use crate::stores::{now, patient, pause, runtime};
use allora_conformance::{
    faults::{Diary, LEAST, Node, ONCE},
    history::{Claims, Event, Outcome, Violation, What},
};
use allora_core::{Backend, backend::Past, runtime::Tokio};
use allora_etcd::Etcd;
use std::{ops::Deref, time::Duration};

/// How long a run is believed to live; a node's lease in etcd cannot be shorter than 15 s.
const LEASE: Duration = Duration::from_secs(3);

/// Between two occurrences of a job, where a test needs no other.
const PERIOD: Duration = Duration::from_millis(100);

/// The nodes of one test, what they do, and what they wrote down.
pub(super) struct Fleet {
    folder: tempfile::TempDir,
    urls: Vec<String>,
    diary: Diary,
    pub(super) nodes: Vec<Node>,
}

impl Deref for Fleet {
    type Target = Diary;

    fn deref(&self) -> &Diary {
        &self.diary
    }
}

impl Fleet {
    /// Nodes that will reach the members so.
    pub(super) fn new(urls: Vec<String>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let diary = Diary::new(folder.path().join("log"), PERIOD);
        Self { folder, urls, diary, nodes: Vec::new() }
    }

    /// With so long between two occurrences of a job.
    pub(super) fn every(mut self, period: Duration) -> Self {
        self.diary = Diary::new(self.folder.path().join("log"), period);
        self
    }

    /// Starts a node whose runs take so long.
    pub(super) fn start(&mut self, work: Duration) {
        let values = [
            ("URLS", self.urls.join(",")),
            ("LOG", self.path().display().to_string()),
            ("PERIOD", self.period().as_millis().to_string()),
            ("WORK", work.as_millis().to_string()),
        ];
        self.nodes.push(Node::start("faults::node::a_node_runs_and_stops", &values));
    }

    /// Waits for so many more ends of runs.
    pub(super) async fn more_ends(&self, more: usize) {
        for job in [LEAST, ONCE] {
            let before = self.ends(job);
            patiently("runs go on", async || self.ends(job) >= before + more).await;
        }
    }

    /// What the store remembers of a job.
    pub(super) async fn past(&self, job: &str) -> Vec<Past> {
        let store = patient(Etcd::builder().history(50_000));
        let store = store.connect(self.urls.clone()).await.unwrap();
        store.history().unwrap().past(Some(job), None, 50_000).await.unwrap()
    }

    /// Stops the nodes and judges what they wrote down: every nominal instant up to the last that
    /// was taken ran as it should, or is recorded as lost or as passed over. What they gave back or
    /// left open, one more node gets time to run or to record as lost.
    pub(super) async fn judge(mut self) -> Vec<Past> {
        self.nodes.drain(..).for_each(Node::stop);
        let mut remembered = Vec::new();
        let mut until = Vec::new();
        for job in [LEAST, ONCE] {
            let past = self.past(job).await;
            until.push((job, self.last_taken(job, &past)));
            remembered.extend(past);
        }
        self.start(Duration::ZERO);
        // The dead nodes' leases in etcd have to end, and their runs to be looked at after that.
        let end = now() + Duration::from_secs(90);
        loop {
            let mut found = Vec::new();
            for (job, until) in &until {
                let past = self.past(job).await;
                found.extend(self.violations(job, &past, *until));
            }
            let open = |violation: &Violation| matches!(violation, Violation::Unsettled { .. });
            if !found.iter().any(open) || now() >= end {
                assert_eq!(found, [], "as the nodes were stopped: {:#?}", self.about(&found));
                break;
            }
            pause(500).await;
        }
        self.nodes.drain(..).for_each(Node::stop);
        remembered
    }

    /// What was written down around the first of what was found.
    fn about(&self, found: &[Violation]) -> Vec<Event> {
        let said = format!("{:?}", found.first());
        let named = |event: &Event| match event.what {
            What::Claim(Claims { occurrence, .. })
            | What::Start { occurrence, .. }
            | What::End { occurrence, .. }
            | What::Lost { occurrence, .. } => said.contains(&occurrence.to_string()),
            What::Extend { fence, .. } => said.contains(&fence.to_string()),
            _ => false,
        };
        self.log().into_iter().filter(named).collect()
    }
}

/// Without its environment, a test of itself; with it, the node that the other tests start.
#[test]
fn a_node_runs_and_stops() {
    if let Some([urls, log, period, work]) = Node::told(["URLS", "LOG", "PERIOD", "WORK"]) {
        let urls = urls.split(',').map(str::to_owned).collect();
        let ms = |text: String| Duration::from_millis(text.parse().unwrap());
        runtime().block_on(node(urls, Diary::new(log, ms(period)), ms(work)));
        return;
    }
    runtime().block_on(async {
        let Some(members) = Members::start(1, &[]).await else { return };
        let mut fleet = Fleet::new(members.urls());
        fleet.start(Duration::ZERO);
        fleet.more_ends(3).await;
        fleet.nodes.drain(..).for_each(Node::stop);
        assert_eq!((fleet.said("Ready"), fleet.said("Stopped")), (1, 1));
        let finished =
            |event: &Event| matches!(event.what, What::End { outcome: Outcome::Ran, .. });
        assert!(fleet.log().iter().any(finished));
        fleet.judge().await;
    });
}

async fn node(urls: Vec<String>, diary: Diary, work: Duration) {
    // A store that is just being changed may need a second try, as a deployment would.
    let mut store = None;
    patiently("a node connects", async || {
        store = Etcd::builder().history(50_000).connect(urls.clone()).await.ok();
        store.is_some()
    })
    .await;
    let scheduler = diary
        .scheduler(store.unwrap(), Tokio::current().unwrap(), LEASE, work)
        .slots(1_000)
        .grace(Duration::from_secs(2))
        .build()
        .unwrap();
    scheduler.run_until(Node::to_stop()).await;
}
