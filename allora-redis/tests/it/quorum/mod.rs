//! A quorum of real servers: the contract, with all of them and without some; faults.

mod conformance;
mod server;

use allora_redis::quorum::RedisQuorum;
use std::sync::OnceLock;
use tokio::runtime::Runtime;

/// The servers that all tests share; none if the environment names none.
fn shared() -> Vec<String> {
    match std::env::var("ALLORA_TEST_REDIS_QUORUM_URLS") {
        Ok(urls) => urls.split(',').map(str::to_owned).collect(),
        Err(_) => Vec::new(),
    }
}

/// The runtime of all tests that do not ask for another.
fn runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| Runtime::new().unwrap())
}

/// Another node.
async fn join(urls: &[String], prefix: &str) -> RedisQuorum {
    RedisQuorum::builder().prefix(prefix).connect(urls).await.unwrap()
}
