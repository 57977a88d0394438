//! The store that several daemons of a test share: SQLite or PostgreSQL, and what its history says.

use crate::site::{Daemon, Site, patiently, server};
use allora_core::{
    Backend,
    backend::{HistoryEntry, HistoryQuery, JobState, Page},
};
use allora_sql::Sql;
use std::{
    collections::BTreeSet,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

/// A store under a prefix of its own.
pub(crate) struct SharedStore {
    url: String,
    prefix: String,
}

impl SharedStore {
    /// Has the daemons of this site use the store at this address; without one, an SQLite file.
    pub(crate) fn of(site: Site, url: Option<String>) -> (Site, Self) {
        static STORES: AtomicUsize = AtomicUsize::new(0);
        let number = STORES.fetch_add(1, Ordering::Relaxed);
        let prefix = format!("c{:x}_{number}", std::process::id());
        let mut site = site.with(&["--prefix", &prefix]);
        let url = url.unwrap_or_else(|| format!("sqlite:{}", site.path("store.db").display()));
        site.args[1].clone_from(&url);
        (site, Self { url, prefix })
    }

    /// What `read` reads.
    fn read<T>(&self, read: impl AsyncFn(Sql) -> T) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let builder = Sql::builder().history(100_000).prefix(&self.prefix);
            let builder = builder.connect_timeout(Duration::from_secs(60));
            read(builder.connect(&self.url).await.unwrap()).await
        })
    }

    /// The whole history.
    pub(crate) fn past(&self) -> Vec<HistoryEntry> {
        self.read(async |store| {
            store.history().unwrap().entries(HistoryQuery::new(100_000)).await.unwrap()
        })
    }

    /// Stops the daemons, and returns the history. Nothing is left then that a dead daemon held.
    pub(crate) fn stop(&self, daemons: Vec<Daemon>) -> Vec<HistoryEntry> {
        let held = self.running();
        patiently("what was held is accounted for", || self.running().is_disjoint(&held));
        daemons.into_iter().for_each(Daemon::stop_well);
        self.past()
    }
}

impl SharedStore {
    /// The fences of the active runs.
    fn running(&self) -> BTreeSet<i64> {
        let jobs = self
            .read(async |store| store.queries().unwrap().list(Page::first(1_000)).await.unwrap());
        jobs.iter().flat_map(JobState::active_runs).map(|run| run.fence).collect()
    }
}

/// Runs a test on PostgreSQL, where there is one.
pub(crate) fn on_postgres(test: fn(Option<String>)) {
    if let Some(url) = server("postgres", "ALLORA_TEST_POSTGRES_URL") {
        test(Some(url));
    }
}
