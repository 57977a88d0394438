//! The store that is measured, and its server.

use allora_benches::{process, server};
use allora_core::{Backend, backend::HistoryLimits};
use allora_memory::Memory;
use allora_redis::Redis;
use allora_sql::Sql;
use std::{sync::Arc, time::Duration};
use tempfile::TempDir;

pub(crate) const PREFIX: &str = "allora_measure";

/// A store with one name for all of its kind.
pub(crate) type Store = Arc<dyn Backend>;

pub(crate) enum Place {
    Memory(Memory),
    /// The folder of the file.
    Sqlite(TempDir),
    Sql(String),
    Redis(String),
    #[cfg(feature = "etcd")]
    Etcd(Vec<String>),
}

impl Place {
    pub(crate) fn of(store: &str) -> Self {
        let url = |variable: &str| {
            std::env::var(variable).unwrap_or_else(|_| panic!("{variable} is not set"))
        };
        match store {
            "memory" => Self::Memory(Memory::new()),
            "sqlite" => Self::Sqlite(tempfile::tempdir().unwrap()),
            "postgres" => Self::Sql(url("ALLORA_TEST_POSTGRES_URL")),
            "mysql" => Self::Sql(url("ALLORA_TEST_MYSQL_URL")),
            "redis" => Self::Redis(url("ALLORA_TEST_REDIS_URL")),
            #[cfg(feature = "etcd")]
            "etcd" => Self::Etcd(vec![url("ALLORA_TEST_ETCD_URL")]),
            other => panic!("no store is called `{other}`"),
        }
    }

    /// One more node's way to the store.
    pub(crate) async fn open(&self) -> Store {
        self.open_with(0.into()).await
    }

    /// One more node's way to the store, which keeps this history. In memory, all nodes keep that of the
    /// first.
    pub(crate) async fn open_with(&self, history: HistoryLimits) -> Store {
        match self {
            Self::Memory(memory) => Arc::new(memory.clone().with_history(history)),
            Self::Sqlite(folder) => {
                let file = folder.path().join("bench.db");
                open_sql(&format!("sqlite:{}", file.display()), history).await
            }
            Self::Sql(url) => open_sql(url, history).await,
            Self::Redis(url) => {
                let builder = Redis::builder().prefix(PREFIX).history(history);
                Arc::new(builder.connect(&**url).await.unwrap())
            }
            #[cfg(feature = "etcd")]
            Self::Etcd(urls) => {
                let builder = allora_etcd::Etcd::builder().prefix(PREFIX);
                let builder = builder.timeout(Duration::from_secs(10)).history(history);
                Arc::new(builder.connect(urls.clone()).await.unwrap())
            }
        }
    }

    pub(crate) async fn open_all(&self, nodes: usize) -> Vec<Store> {
        self.open_all_with(nodes, 0.into()).await
    }

    pub(crate) async fn open_all_with(&self, nodes: usize, history: HistoryLimits) -> Vec<Store> {
        let mut stores = Vec::new();
        for _ in 0..nodes {
            stores.push(self.open_with(history).await);
        }
        stores
    }

    /// Removes all that a measurement leaves on a server.
    pub(crate) async fn clear(&self) {
        match self {
            Self::Memory(_) | Self::Sqlite(_) => {}
            Self::Sql(url) => server::sql::clear(url, PREFIX).await,
            Self::Redis(url) => server::redis::clear(url, PREFIX).await,
            #[cfg(feature = "etcd")]
            Self::Etcd(urls) => server::etcd::clear(urls, PREFIX).await,
        }
    }
}

async fn open_sql(url: &str, history: HistoryLimits) -> Store {
    let sql: Sql = Sql::builder().prefix(PREFIX).history(history).connect(url).await.unwrap();
    Arc::new(sql)
}

/// The processor time of this process and, if it is known, of the server.
#[derive(Clone, Copy)]
pub(crate) struct Usage {
    client: Duration,
    server: Option<Duration>,
}

impl Usage {
    pub(crate) fn now() -> Self {
        let server = std::env::var("ALLORA_BENCH_SERVER_PID").ok();
        let server = server.map(|pid| process::cpu_of_tree(pid.parse().unwrap()));
        Self { client: process::cpu(), server }
    }

    /// The microseconds of client and server since then, for each of so many occurrences.
    pub(crate) fn each(self, then: Self, count: u64) -> (f64, Option<f64>) {
        let each = |now: Duration, then: Duration| {
            now.saturating_sub(then).as_secs_f64() * 1e6 / count as f64
        };
        let server = self.server.zip(then.server).map(|(now, then)| each(now, then));
        (each(self.client, then.client), server)
    }
}
