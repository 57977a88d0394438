//! A quorum of real servers: the contract, with all of them and without some; faults.

#![allow(clippy::unwrap_used, reason = "a test may fail")]
#![expect(clippy::disallowed_methods, reason = "these tests wait for other processes")]

mod article;
mod clocks;
mod conformance;
mod connect;
mod faults;
mod holders;
mod operations;
mod runtimes;
mod server;
mod tls;
mod upgrade;

use allora_conformance::environment;
use allora_core::{
    ErrorKind, Result, Time,
    backend::{
        Action, Applied, Backend, Batch, Claim, Cursor, JobState, Operation, Reply, Sharing,
        TimeSource,
    },
    time::from_millis,
};
use allora_redis_quorum::{QuorumBuilder, RedisQuorum};
use server::Server;
use std::{
    sync::OnceLock,
    time::{Duration, Instant},
};
use tokio::runtime::Runtime;

/// False if the tests are restricted to other stores.
fn is_wanted() -> bool {
    environment::is_wanted("redis-quorum")
}

/// The servers that all tests share; none if the environment names none.
fn shared() -> Vec<String> {
    if !is_wanted() {
        return Vec::new();
    }
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

/// Another node. A machine that runs all tests at once is slow: its servers are given time, and
/// are asked again for a minute.
async fn join(urls: &[String], prefix: &str) -> RedisQuorum {
    join_within(Duration::from_secs(1), urls, prefix).await
}

/// Another node, which gives a server only so long to answer.
async fn join_within(deadline: Duration, urls: &[String], prefix: &str) -> RedisQuorum {
    patient(RedisQuorum::builder().prefix(prefix).deadline(deadline), urls).await.unwrap()
}

/// The result of connecting, which is tried again for a minute while too few servers answer.
async fn patient(builder: QuorumBuilder, urls: &[String]) -> Result<RedisQuorum> {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        match builder.clone().connect(urls).await {
            Err(error) if error.kind() == ErrorKind::Unavailable && Instant::now() < end => {}
            done => return done,
        }
    }
}

/// Initialises the quorum. A server that was just started may still be loading its file.
async fn patient_init(node: &RedisQuorum) -> Result {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        match node.init().await {
            Err(error) if error.kind() == ErrorKind::Unavailable && Instant::now() < end => {}
            done => return done,
        }
    }
}

/// Makes these servers a quorum, whatever they were.
async fn init(urls: &[String], prefix: &str) -> Result {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        clear(urls, prefix).await;
        match join(urls, prefix).await.init().await {
            Err(error) if error.kind() == ErrorKind::Unavailable && Instant::now() < end => {}
            done => return done,
        }
    }
}

/// Removes the keys, and goes on trying while a busy machine lets the servers wait.
async fn clear(urls: &[String], prefix: &str) {
    let end = Instant::now() + Duration::from_secs(60);
    for url in urls {
        while let Err(error) = clear_one(url, prefix).await {
            assert!(Instant::now() < end, "{url}: {error}");
        }
    }
}

async fn clear_one(url: &str, prefix: &str) -> redis::RedisResult<()> {
    redis::cmd("DEL").arg(format!("{prefix}:quorum")).query_async(&mut raw(url).await?).await
}

async fn raw(url: &str) -> redis::RedisResult<redis::aio::MultiplexedConnection> {
    redis::Client::open(url)?.get_multiplexed_async_connection().await
}

/// Servers of the test's own, made a quorum; `None`, with a line that says so, where Redis is not
/// installed.
async fn servers(n: usize) -> Option<Vec<Server>> {
    let servers: Option<Vec<Server>> = (0..n).map(|_| Server::start()).collect();
    if servers.is_none() && is_wanted() {
        environment::skip("redis-server is not installed");
    }
    let servers = servers?;
    init(&urls(&servers), "allora").await.unwrap();
    Some(servers)
}

fn urls(servers: &[Server]) -> Vec<String> {
    servers.iter().map(Server::url).collect()
}

/// The instant so many seconds into the tests' day, 2030-01-01.
fn t(seconds: i64) -> Time {
    from_millis((1_893_456_000 + seconds) * 1_000).unwrap()
}

async fn ask(
    node: &RedisQuorum,
    id: &str,
    operations: &[Operation<'_>],
    now: Time,
) -> Result<Applied> {
    node.reschedule(Batch::new(id, TimeSource::Fixed(now), operations)).await
}

/// A request without operations: it reads the clock.
async fn now(node: &RedisQuorum) -> Result<Time> {
    let time = TimeSource::Store { fallback: t(0) };
    Ok(node.reschedule(Batch::new("n", time, &[])).await?.now)
}

/// The reply to one operation.
async fn ask_one(
    node: &RedisQuorum,
    id: &str,
    operation: Operation<'_>,
    now: Time,
) -> Result<Reply> {
    ask(node, id, &[operation], now).await?.single()
}

/// Registers a job whose first occurrence is at `t(first)`.
async fn register(node: &RedisQuorum, name: &str, first: i64) -> JobState {
    let first = Some(t(first).into());
    let action = Action::Register { definition: "every 1s", version: 0, first };
    state(ask_one(node, "operator", Operation::new(name, action), t(0)).await)
}

async fn read(node: &RedisQuorum, name: &str) -> JobState {
    state(ask_one(node, "operator", Operation::read(name), t(0)).await)
}

fn state(reply: Result<Reply>) -> JobState {
    match reply {
        Ok(Reply::State(state)) => *state,
        other => panic!("no state: {other:?}"),
    }
}

/// Claims what the state offers, at most once; the next occurrence is a second later, up to
/// `t(last)`.
fn claim(seen: &JobState, claim_id: u128, last: i64) -> Claim {
    let head = seen.head.clone().unwrap();
    let next = head.scheduled_at + chrono::TimeDelta::seconds(1);
    let then = Cursor::To((next <= t(last)).then(|| next.into()));
    let lease = Duration::from_secs(60);
    Claim::at_most_once(claim_id, seen.fence, head, then, lease, Sharing::Shared)
}
