//! The nodes of the tests, in processes of their own.

use crate::stores::{Db, Place, patiently_opened, runtime};
use allora_conformance::faults::{
    Fleet, NodeStore, a_node_runs_and_stops as runs_and_stops, is_node,
};
use allora_core::{Runtime, backend::HistoryLimits, runtime::Tokio};
use allora_sql::Sql;
use std::{sync::Arc, time::Duration};

impl NodeStore for Place {
    type Store = Sql;
    const TEST: &str = "faults::node::a_node_runs_and_stops";

    fn to_text(&self) -> String {
        format!("{} {}", self.prefix, self.url)
    }

    fn from_text(text: &str) -> Self {
        let (prefix, url) = text.split_once(' ').unwrap();
        Self { url: url.to_owned(), prefix: prefix.to_owned(), folder: None }
    }

    async fn connect(&self) -> Sql {
        let history = HistoryLimits::from(100_000);
        patiently_opened(self.builder().history(history), &self.url).await
    }

    fn block_on<T>(work: impl Future<Output = T>) -> T {
        tokio::task::block_in_place(|| runtime().block_on(work))
    }

    fn runtime() -> Arc<dyn Runtime> {
        Arc::new(Tokio::current().unwrap())
    }
}

/// Nodes on this place whose jobs run five times a second.
pub(super) fn fleet(place: Place) -> Fleet<Place> {
    Fleet::new(place, Duration::from_millis(200))
}

#[test]
fn a_node_runs_and_stops() {
    if !is_node::<Place>()
        && let Some(place) = Db::Sqlite.place()
    {
        runs_and_stops(fleet(place));
    }
}
