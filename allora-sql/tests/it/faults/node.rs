//! A node in a process of its own: the test binary, run once more.

use super::patiently;
use crate::stores::{Db, Place, patiently_opened, runtime};
use allora_conformance::{
    faults::{FaultWorkload, LEAST, Node, ONCE},
    history::{Event, Outcome, Violation, What},
};
use allora_core::{
    Backend,
    backend::{HistoryEntry, HistoryQuery},
    runtime::Tokio,
};
use std::{
    ops::Deref,
    thread,
    time::{Duration, Instant},
};

/// Time for which a silent node keeps its occurrences.
pub(super) const LEASE: Duration = Duration::from_secs(2);

/// The nodes of one test, what they do, and what they wrote down.
pub(super) struct Fleet {
    pub(super) place: Place,
    diary: FaultWorkload,
    /// Goes away with its fleet.
    _folder: tempfile::TempDir,
}

impl Deref for Fleet {
    type Target = FaultWorkload;

    fn deref(&self) -> &FaultWorkload {
        &self.diary
    }
}

impl Fleet {
    pub(super) fn new(place: Place, period: Duration) -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self {
            place,
            diary: FaultWorkload::new(folder.path().join("log"), period),
            _folder: folder,
        }
    }

    /// Starts a node whose runs take so long.
    pub(super) fn start(&self, work: Duration) -> Node {
        let values = [
            ("URL", self.place.url.clone()),
            ("PREFIX", self.place.prefix.clone()),
            ("LOG", self.path().display().to_string()),
            ("PERIOD", self.period().as_millis().to_string()),
            ("WORK", work.as_millis().to_string()),
        ];
        Node::start("faults::node::a_node_runs_and_stops", &values)
    }

    /// Waits for so many more ends of runs of each job.
    pub(super) fn more_ends(&self, more: usize) {
        for job in [LEAST, ONCE] {
            let before = self.ends(job);
            patiently("runs go on", || self.ends(job) >= before + more);
        }
    }

    /// The store's history of a job.
    pub(super) fn past(&self, job: &str) -> Vec<HistoryEntry> {
        runtime().block_on(async {
            let store = self.place.builder().history(100_000).connect(&self.place.url).await;
            let store = store.unwrap();
            let past = store
                .history()
                .unwrap()
                .entries(HistoryQuery::new(10_000).name(job))
                .await
                .unwrap();
            store.close().await;
            past
        })
    }

    /// Judges the log of nodes that were stopped or killed: every nominal instant up to the last
    /// that was taken must have run correctly, or be recorded as lost, missed or skipped. One more
    /// node gets time to run or to record the occurrences that they left open.
    pub(super) fn judge(&self) {
        let until = [LEAST, ONCE].map(|job| (job, self.last_taken(job, &self.past(job))));
        let last = self.start(Duration::ZERO);
        let end = Instant::now() + Duration::from_secs(30);
        let open = |violation: &Violation| matches!(violation, Violation::Unsettled { .. });
        loop {
            let found = until.map(|(job, until)| self.violations(job, &self.past(job), until));
            let found = found.concat();
            if !found.iter().any(open) || Instant::now() >= end {
                assert_eq!(found, []);
                break;
            }
            thread::sleep(Duration::from_millis(200));
        }
        last.stop();
    }
}

/// Without its environment, a test of itself; with it, the node that the other tests start.
#[test]
fn a_node_runs_and_stops() {
    let names = ["URL", "PREFIX", "LOG", "PERIOD", "WORK"];
    if let Some([url, prefix, log, period, work]) = Node::told(names) {
        let ms = |text: String| Duration::from_millis(text.parse().unwrap());
        runtime().block_on(node(&url, prefix, FaultWorkload::new(log, ms(period)), ms(work)));
        return;
    }
    let Some(place) = Db::Sqlite.place() else { return };
    let fleet = Fleet::new(place, Duration::from_millis(200));
    let node = fleet.start(Duration::ZERO);
    fleet.more_ends(3);
    node.stop();
    assert_eq!((fleet.said("Ready"), fleet.said("Stopped")), (1, 1));
    fleet.judge();
    let finished =
        |event: &Event| matches!(event.what, What::End { outcome: Outcome::Succeeded, .. });
    assert!(fleet.log().iter().any(finished));
}

async fn node(url: &str, prefix: String, diary: FaultWorkload, work: Duration) {
    let builder = allora_sql::Sql::builder().prefix(prefix).history(100_000);
    let store = patiently_opened(builder, url).await;
    let scheduler = diary
        .scheduler(store, Tokio::current().unwrap(), LEASE, work)
        .grace(Duration::from_secs(1))
        .build()
        .unwrap();
    scheduler.run_until(Node::to_stop()).await;
}
