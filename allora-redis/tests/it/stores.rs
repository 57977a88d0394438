//! The servers that `cargo xtask test` brings up, and places of their own on them.

use allora_conformance::environment;
use allora_core::{
    Backend, Result, Runtime as _,
    backend::{Batch, JobState, NewSchedule, Operation, Reply, TimeSource},
    runtime::Tokio,
};
use allora_redis::{Redis, RedisBuilder};
use redis::{AsyncCommands, Value, aio::ConnectionLike};
use std::{
    env,
    sync::{
        OnceLock,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};
use tokio::runtime::Runtime;

/// A topology of Redis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Kind {
    One,
    Cluster,
    Sentinel,
}

/// One installation on a server.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) kind: Kind,
    pub(crate) urls: Vec<String>,
    pub(crate) prefix: String,
    pub(crate) shards: u32,
}

impl Kind {
    /// A place that nobody else uses; `None`, with a line that says so, where there is no server.
    pub(crate) fn place(self) -> Option<Place> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let variable = match self {
            Kind::One => "ALLORA_TEST_REDIS_URL",
            Kind::Cluster => "ALLORA_TEST_REDIS_CLUSTER_URLS",
            Kind::Sentinel => "ALLORA_TEST_REDIS_SENTINEL_URLS",
        };
        let urls = environment::address("redis", variable)?;
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        Some(Place {
            kind: self,
            urls: urls.split(',').map(str::to_owned).collect(),
            prefix: format!("t{}_{count}", std::process::id()),
            // As many as make sure that the primaries share them.
            shards: if self == Kind::Cluster { 8 } else { 1 },
        })
    }
}

impl Place {
    pub(crate) async fn connect(&self, builder: RedisBuilder) -> Result<Redis> {
        let builder = builder.prefix(&self.prefix).shards(self.shards);
        let urls = self.urls.iter().map(String::as_str);
        match self.kind {
            Kind::One => builder.connect(&*self.urls[0]).await,
            Kind::Cluster => builder.connect_cluster(urls).await,
            Kind::Sentinel => {
                let master = env::var("ALLORA_TEST_REDIS_SENTINEL_MASTER").unwrap();
                builder.connect_sentinel(urls, &master).await
            }
        }
    }

    pub(crate) async fn open(&self) -> Redis {
        self.connect(Redis::builder()).await.unwrap()
    }

    /// Connections to the servers that hold the data.
    pub(crate) async fn raw(&self) -> Vec<redis::aio::MultiplexedConnection> {
        let mut all = Vec::new();
        for url in &self.urls {
            let mut client = redis::Client::open(&**url).unwrap();
            if self.kind == Kind::Sentinel {
                let master = env::var("ALLORA_TEST_REDIS_SENTINEL_MASTER").unwrap();
                let mut sentinel = client.get_multiplexed_async_connection().await.unwrap();
                let mut ask = redis::cmd("SENTINEL");
                ask.arg("GET-MASTER-ADDR-BY-NAME").arg(master);
                let (host, port): (String, u16) = ask.query_async(&mut sentinel).await.unwrap();
                client = redis::Client::open((host, port)).unwrap();
            }
            all.push(client.get_multiplexed_async_connection().await.unwrap());
            if self.kind == Kind::Sentinel {
                break;
            }
        }
        all
    }

    /// Removes whatever is there.
    pub(crate) async fn clear(&self) {
        for mut server in self.raw().await {
            for pattern in [format!("{{{}}}:*", self.prefix), format!("{{{}:*", self.prefix)] {
                let keys: Vec<Vec<u8>> = {
                    let mut found = server.scan_match::<_, Vec<u8>>(pattern).await.unwrap();
                    let mut keys = Vec::new();
                    while let Some(key) = found.next_item().await {
                        keys.push(key.unwrap());
                    }
                    keys
                };
                for key in keys {
                    let _: Value =
                        server.req_packed_command(redis::cmd("DEL").arg(key)).await.unwrap();
                }
            }
        }
    }
}

/// Sends one operation, and returns its reply.
pub(crate) async fn send(
    store: &dyn Backend,
    time: TimeSource,
    operation: Operation<'_>,
) -> Result<Reply> {
    store.reschedule(Batch::new("n", time, &[operation])).await?.single()
}

/// Creates a stored schedule.
pub(crate) async fn create(
    store: &dyn Backend,
    time: TimeSource,
    name: &str,
    new: NewSchedule<'_>,
) -> JobState {
    let create = Operation::new(name, allora_core::backend::Action::Create(new));
    send(store, time, create).await.unwrap().state().unwrap()
}

/// Lets real time pass: servers have clocks of their own.
pub(crate) async fn pause(ms: u64) {
    let runtime = Tokio::current().unwrap();
    runtime.sleep_until(runtime.now() + Duration::from_millis(ms)).await;
}

/// One runtime for the whole process.
pub(crate) fn runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| Runtime::new().unwrap())
}
