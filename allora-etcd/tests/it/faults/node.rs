//! Nodes in processes of their own (the test binary run once more), and the check of their logs.

use super::{members::Members, patiently};
use crate::stores::{now, patient, pause, runtime};
use allora_conformance::{
    faults::{FaultWorkload, LEAST, Node, ONCE},
    history::{Claims, Event, Outcome, Violation, What},
};
use allora_core::{
    Backend,
    backend::{HistoryEntry, HistoryQuery},
    runtime::Tokio,
};
use allora_etcd::Etcd;
use std::{ops::Deref, time::Duration};

/// The lease of a run. A session in etcd cannot be shorter than 15 s.
const LEASE: Duration = Duration::from_secs(3);

/// The time between two occurrences of a job, unless a test needs another.
const PERIOD: Duration = Duration::from_millis(100);

/// The nodes of one test, with their jobs and their log.
pub(super) struct Fleet {
    folder: tempfile::TempDir,
    urls: Vec<String>,
    workload: FaultWorkload,
    pub(super) nodes: Vec<Node>,
}

impl Deref for Fleet {
    type Target = FaultWorkload;

    fn deref(&self) -> &FaultWorkload {
        &self.workload
    }
}

impl Fleet {
    /// Nodes that will reach the members by these addresses.
    pub(super) fn new(urls: Vec<String>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let workload = FaultWorkload::new(folder.path().join("log"), PERIOD);
        Self { folder, urls, workload, nodes: Vec::new() }
    }

    /// Sets the time between two occurrences of a job.
    pub(super) fn every(mut self, period: Duration) -> Self {
        self.workload = FaultWorkload::new(self.folder.path().join("log"), period);
        self
    }

    /// Starts a node whose runs take this long.
    pub(super) fn start(&mut self, work: Duration) {
        let values = [
            ("URLS", self.urls.join(",")),
            ("LOG", self.path().display().to_string()),
            ("PERIOD", self.period().as_millis().to_string()),
            ("WORK", work.as_millis().to_string()),
        ];
        self.nodes.push(Node::start("faults::node::a_node_runs_and_stops", &values));
    }

    /// Waits for this number of further ends of runs.
    pub(super) async fn more_ends(&self, more: usize) {
        for job in [LEAST, ONCE] {
            let before = self.ends(job);
            patiently("runs go on", async || self.ends(job) >= before + more).await;
        }
    }

    /// The history of a job.
    pub(super) async fn entries(&self, job: &str) -> Vec<HistoryEntry> {
        let store = patient(Etcd::builder().history(50_000));
        let store = store.connect(self.urls.clone()).await.unwrap();
        store.history().unwrap().entries(HistoryQuery::new(50_000).name(job)).await.unwrap()
    }

    /// Stops the nodes and checks their log: every scheduled time up to the last one that was claimed
    /// ran as it should, or is recorded as lost, missed or skipped. One more node gets time to run,
    /// or to record as lost, the occurrences that were released or left open.
    pub(super) async fn judge(mut self) -> Vec<HistoryEntry> {
        self.nodes.drain(..).for_each(Node::stop);
        let mut history = Vec::new();
        let mut until = Vec::new();
        for job in [LEAST, ONCE] {
            let entries = self.entries(job).await;
            until.push((job, self.last_taken(job, &entries)));
            history.extend(entries);
        }
        self.start(Duration::ZERO);
        // The dead nodes' sessions must end, and then their runs must be read.
        let end = now() + Duration::from_secs(90);
        loop {
            let mut found = Vec::new();
            for (job, until) in &until {
                let entries = self.entries(job).await;
                found.extend(self.violations(job, &entries, *until));
            }
            let open = |violation: &Violation| matches!(violation, Violation::Unsettled { .. });
            if !found.iter().any(open) || now() >= end {
                assert_eq!(found, [], "as the nodes were stopped: {:#?}", self.about(&found));
                break;
            }
            pause(500).await;
        }
        self.nodes.drain(..).for_each(Node::stop);
        history
    }

    /// The part of the log around the first violation.
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
        runtime().block_on(node(urls, FaultWorkload::new(log, ms(period)), ms(work)));
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
            |event: &Event| matches!(event.what, What::End { outcome: Outcome::Succeeded, .. });
        assert!(fleet.log().iter().any(finished));
        fleet.judge().await;
    });
}

async fn node(urls: Vec<String>, workload: FaultWorkload, work: Duration) {
    // A store whose members are being stopped may need a second try, as a deployment would.
    let mut store = None;
    patiently("a node connects", async || {
        store = Etcd::builder().history(50_000).connect(urls.clone()).await.ok();
        store.is_some()
    })
    .await;
    let scheduler = workload
        .scheduler(store.unwrap(), Tokio::current().unwrap(), LEASE, work)
        .concurrency(1_000)
        .grace(Duration::from_secs(2))
        .build()
        .unwrap();
    scheduler.run_until(Node::to_stop()).await;
}
