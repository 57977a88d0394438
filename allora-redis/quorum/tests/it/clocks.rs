//! Servers with wrong clocks: a proxy changes the time that they report.

#![expect(clippy::disallowed_methods, reason = "servers' clocks are compared with real time")]

use super::{runtime, server::Server, servers};
use allora_core::{
    Time,
    backend::{Action, Applied, Backend, Batch, Claim, Operation, Reply, TimeSource},
    time::whole_millis,
};
use allora_redis_quorum::RedisQuorum;
use chrono::TimeDelta;
use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    thread,
    time::{Duration, Instant, SystemTime},
};

const HOUR: i64 = 3_600;

/// A proxy to the server on which its clock is this many seconds fast. It runs until the process
/// ends.
fn skewed(url: &str, seconds: i64) -> String {
    let server = url.trim_start_matches("redis://").to_owned();
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let Ok(server) = TcpStream::connect(&server) else { continue };
            let (from, to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
            thread::spawn(move || pass(from, to, 0));
            thread::spawn(move || pass(server, client, seconds));
        }
    });
    format!("redis://127.0.0.1:{port}")
}

fn pass(mut from: TcpStream, mut to: TcpStream, seconds: i64) {
    let mut bytes = [0; 65_536];
    while let Ok(read @ 1..) = from.read(&mut bytes) {
        if seconds != 0 {
            skew(&mut bytes[..read], seconds);
        }
        if to.write_all(&bytes[..read]).is_err() {
            break;
        }
    }
}

/// The seconds of a clock are the only text of ten digits that a server says.
fn skew(answer: &mut [u8], seconds: i64) {
    const HEAD: &[u8] = b"$10\r\n";
    let mut at = 0;
    while let Some(found) = answer[at..].windows(HEAD.len()).position(|part| part == HEAD) {
        at += found + HEAD.len();
        let Some(digits) = answer.get_mut(at..at + 10) else { return };
        let told = std::str::from_utf8(digits).ok().and_then(|told| told.parse::<i64>().ok());
        if let Some(told) = told {
            digits.copy_from_slice((told + seconds).to_string().as_bytes());
        }
    }
}

fn wall() -> Time {
    SystemTime::now().into()
}

/// A node that sees each server's clock this many seconds fast.
async fn node(servers: &[Server], skews: [i64; 3]) -> RedisQuorum {
    let lines = servers.iter().zip(skews);
    let urls: Vec<String> = lines.map(|(server, skew)| skewed(&server.url(), skew)).collect();
    let name = |server: &Server| format!("{}/0", server.url().trim_start_matches("redis://"));
    let builder = RedisQuorum::builder().names(servers.iter().map(name));
    super::patient(builder.deadline(Duration::from_secs(1)), &urls).await.unwrap()
}

async fn ask(node: &RedisQuorum, action: Action<'_>) -> Applied {
    let operations = [Operation::new("job", action)];
    let time = TimeSource::Store { fallback: wall() };
    node.reschedule(Batch::new("node", time, &operations)).await.unwrap()
}

/// The difference between the clock that decides and this machine's, in minutes.
async fn off(node: &RedisQuorum) -> i64 {
    let now = ask(node, Action::Read).await.now;
    ((now - wall()).num_seconds() as f64 / 60.0).round() as i64
}

async fn register(node: &RedisQuorum, at: Time) {
    let first = Some(whole_millis(at).into());
    ask(node, Action::Register { definition: "once", version: 0, first }).await.single().unwrap();
}

/// Claims what the job offers, leased for ten minutes, if it is due.
async fn claim(node: &RedisQuorum) -> Reply {
    let Reply::State(seen) = ask(node, Action::Read).await.single().unwrap() else { panic!() };
    let lease = Duration::from_secs(600);
    let claim = Claim::at_least_once(1, seen.fence, seen.head.unwrap(), lease);
    ask(node, Action::Claim(claim)).await.single().unwrap()
}

#[test]
fn a_clock_of_three_that_is_an_hour_fast_makes_nothing_early() {
    runtime().block_on(async {
        let Some(servers) = servers(3).await else { return };
        let node = node(&servers, [0, HOUR, 0]).await;
        register(&node, wall() + TimeDelta::minutes(30)).await;
        for _ in 0..20 {
            assert_eq!(off(&node).await, 0);
            let early = claim(&node).await;
            assert!(matches!(early, Reply::State(_)), "{early:?}");
        }
    });
}

/// Of two that answer in time the slower one decides: late rather than early. All three answer
/// sooner or later.
#[test]
fn a_clock_of_three_that_is_an_hour_slow_makes_nothing_late() {
    runtime().block_on(async {
        let Some(servers) = servers(3).await else { return };
        let node = node(&servers, [-HOUR, 0, 0]).await;
        register(&node, wall() - TimeDelta::minutes(30)).await;
        let end = Instant::now() + Duration::from_secs(60);
        let claimed = loop {
            match claim(&node).await {
                Reply::Claimed(claimed) => break claimed,
                other => assert!(Instant::now() < end, "{other:?}"),
            }
        };
        let lasts = (claimed.until - wall()).num_minutes();
        assert!((5..=10).contains(&lasts), "{lasts} minutes");
    });
}

/// The control for the other tests: they would see this if these lines changed nothing, or if any
/// one clock decided.
#[test]
fn two_clocks_of_three_that_are_an_hour_fast_decide() {
    runtime().block_on(async {
        let Some(servers) = servers(3).await else { return };
        let node = node(&servers, [HOUR, HOUR, 0]).await;
        let end = Instant::now() + Duration::from_secs(60);
        while off(&node).await != 60 {
            assert!(Instant::now() < end, "the right one decides");
        }
    });
}
