//! A quorum of real servers: the contract, with all of them and without some; faults.

#![expect(clippy::disallowed_methods, reason = "these tests wait for other processes")]

mod article;
mod clocks;
mod conformance;
mod connect;
mod faults;
mod holders;
mod runtimes;
mod server;

use allora_core::{
    Kind, Time,
    backend::{
        Act, Answer, Backend, Cursor, Deliver, Now, Plan, Reschedule, Rescheduled, State, Take,
    },
    time::from_millis,
};
use allora_redis::quorum::RedisQuorum;
use server::Server;
use std::{
    sync::OnceLock,
    time::{Duration, Instant},
};
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

/// Another node. A machine that runs all tests at once is slow: its servers are given time, and
/// are asked again for a minute.
async fn join(urls: &[String], prefix: &str) -> RedisQuorum {
    join_within(Duration::from_secs(1), urls, prefix).await
}

/// Another node, which gives a server only so long to answer.
async fn join_within(deadline: Duration, urls: &[String], prefix: &str) -> RedisQuorum {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        let builder = RedisQuorum::builder().prefix(prefix).deadline(deadline);
        match builder.connect(urls).await {
            Err(error) if error.kind() == Kind::Unavailable && Instant::now() < end => {}
            node => return node.unwrap(),
        }
    }
}

/// Makes these servers a quorum, whatever they were.
async fn init(urls: &[String], prefix: &str) -> allora_core::Result {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        clear(urls, prefix).await;
        match join(urls, prefix).await.init().await {
            Err(error) if error.kind() == Kind::Unavailable && Instant::now() < end => {}
            done => return done,
        }
    }
}

async fn clear(urls: &[String], prefix: &str) {
    for url in urls {
        let client = redis::Client::open(url.as_str()).unwrap();
        let mut connection = client.get_multiplexed_async_connection().await.unwrap();
        redis::cmd("DEL")
            .arg(format!("{prefix}:quorum"))
            .query_async::<()>(&mut connection)
            .await
            .unwrap();
    }
}

/// Servers of the test's own, made a quorum; `None`, with a line that says so, where Redis is not
/// installed.
async fn servers(n: usize) -> Option<Vec<Server>> {
    let servers: Option<Vec<Server>> = (0..n).map(|_| Server::start()).collect();
    if servers.is_none() {
        assert!(std::env::var_os("CI").is_none(), "redis-server is not installed");
        #[expect(clippy::print_stderr, reason = "a skip is not silent")]
        let () = eprintln!("skipped: redis-server is not installed");
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
    plans: &[Plan<'_>],
    now: Time,
) -> allora_core::Result<Rescheduled> {
    node.reschedule(Reschedule::new(id, Now::At(now), plans)).await
}

/// Registers a job whose first occurrence is at `t(first)`.
async fn register(node: &RedisQuorum, name: &str, first: i64) -> State {
    let first = Some(t(first).into());
    let act = Act::Register { definition: "every 1s", version: 0, first };
    state(ask(node, "operator", &[Plan::new(name, act)], t(0)).await.unwrap())
}

async fn look(node: &RedisQuorum, name: &str) -> State {
    state(ask(node, "operator", &[Plan::new(name, Act::Look)], t(0)).await.unwrap())
}

fn state(answer: Rescheduled) -> State {
    match answer.answers.into_iter().next() {
        Some(Answer::State(state)) => *state,
        other => panic!("no state: {other:?}"),
    }
}

/// Takes what the state offers, at most once; the next occurrence is a second later, up to
/// `t(last)`.
fn take(seen: &State, claim: u128, last: i64) -> Take {
    let head = seen.head.clone().unwrap();
    let next = head.at + chrono::TimeDelta::seconds(1);
    let then = Cursor::To((next <= t(last)).then(|| next.into()));
    Take::new(claim, seen.fence, head, Deliver::AtMostOnce { then, mark: None })
}
