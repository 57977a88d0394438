//! Nodes that die while they hold a run, and nodes that miss the outcome of theirs.

#![expect(clippy::disallowed_methods, reason = "servers' clocks are compared with real time")]

use super::{ask_one, join, read, register, runtime, servers, t, urls};
use allora_core::{
    Time,
    backend::{
        Action, Backend, Batch, Claim, Claimed, Completion, Cursor, JobState, Operation, Reply,
        TimeSource,
    },
    record::codec,
    time::whole_millis,
};
use allora_redis_quorum::RedisQuorum;
use std::time::{Duration, Instant, SystemTime};

const JOB: &str = "job";

fn leased(seen: &JobState, claim_id: u128, lease: Duration) -> Operation<'static> {
    let head = seen.head.clone().unwrap();
    Operation::claim(JOB, Claim::at_least_once(claim_id, seen.fence, head, lease))
}

fn complete(claimed: &Claimed, next: Option<Time>) -> Operation<'static> {
    let then = Cursor::To(next.map(Into::into));
    Operation::complete(JOB, claimed.fence, then, Completion::Succeeded)
}

/// By the servers' clocks, with as many servers stopped as may be.
#[test]
fn a_dead_holders_run_is_run_again_after_its_lease_and_its_completion_is_refused() {
    runtime().block_on(async {
        for n in [3, 5] {
            let Some(mut servers) = servers(n).await else { return };
            let urls = urls(&servers);
            let (dead, other) = (join(&urls, "allora").await, join(&urls, "allora").await);
            let now = || TimeSource::Store { fallback: SystemTime::now().into() };
            let apply = async |node: &RedisQuorum, id: &str, operation: Operation<'_>| {
                let operations = [operation];
                let applied = node.reschedule(Batch::new(id, now(), &operations)).await;
                applied.unwrap().single().unwrap()
            };
            let first = Some(whole_millis(SystemTime::now().into()).into());
            let register = Action::Register { definition: "once", version: 0, first };
            apply(&dead, "dead", Operation::new(JOB, register)).await;
            servers[n / 2 + 1..].iter_mut().for_each(super::Server::kill);
            let end = Instant::now() + Duration::from_secs(60);
            let claimed = async |node: &RedisQuorum, id: &str, claim_id| loop {
                let reply = apply(node, id, Operation::read(JOB)).await;
                let Reply::State(seen) = reply else { panic!("{reply:?}") };
                let lease = Duration::from_secs(2);
                let claim = seen.head.is_some().then(|| leased(&seen, claim_id, lease));
                if let Some(claim) = claim
                    && let Reply::Claimed(claimed) = apply(node, id, claim).await
                {
                    break claimed;
                }
                assert!(Instant::now() < end, "{seen:?}");
            };
            let before = claimed(&dead, "dead", 1).await;
            let after = claimed(&other, "other", 2).await;
            assert_eq!((before.attempt, after.attempt), (1, 2));
            assert!(after.fence > before.fence && after.occurrence == before.occurrence);
            let told = other.reschedule(Batch::new("other", now(), &[])).await.unwrap().now;
            assert!(told >= before.until, "it was claimed before the lease's end");
            assert_eq!(apply(&dead, "n", complete(&before, None)).await, Reply::LeaseLost);
            assert_eq!(apply(&other, "n", complete(&after, None)).await, Reply::Accepted);
        }
    });
}

/// True if a majority of the servers has a record without a lease. It is no read, which would
/// overtake the node that is being watched.
async fn is_free(urls: &[String]) -> bool {
    let mut free = 0;
    for url in urls {
        let client = redis::Client::open(url.as_str()).unwrap();
        let mut connection = client.get_multiplexed_async_connection().await.unwrap();
        let mut get = redis::cmd("HGET");
        get.arg("allora:quorum").arg(format!("a:{JOB}"));
        let accepted: Vec<u8> = get.query_async(&mut connection).await.unwrap();
        // After the digits of its ballot.
        free += usize::from(codec::decode(&accepted[40..]).unwrap().leases.is_empty());
    }
    free > urls.len() / 2
}

/// A call that is dropped after its message was sent, as by a node that waits no longer.
#[test]
fn a_completion_that_was_dropped_is_accepted_although_other_runs_were_completed_since() {
    runtime().block_on(async {
        let Some(servers) = servers(3).await else { return };
        let urls = urls(&servers);
        let (node, other) = (join(&urls, "allora").await, join(&urls, "allora").await);
        register(&node, JOB, 1).await;
        let hour = Duration::from_secs(3_600);
        let mut dropped = 0;
        for i in 1..=20 {
            let apply = async |node: &RedisQuorum, operation: Operation<'_>| {
                ask_one(node, "n", operation, t(99)).await.unwrap()
            };
            let run = async |node: &RedisQuorum, claim_id| {
                let reply = apply(node, leased(&read(node, JOB).await, claim_id, hour)).await;
                reply.claimed().unwrap()
            };
            let second = chrono::TimeDelta::seconds(1);
            let claimed = run(&node, i).await;
            let end = complete(&claimed, Some(claimed.occurrence.scheduled_at + second));
            let mut call = Box::pin(apply(&node, end.clone()));
            // Its replies are not polled while the test reads what the servers have accepted.
            let is_done = loop {
                if futures::poll!(&mut call).is_ready() {
                    break true;
                }
                if is_free(&urls).await {
                    break false;
                }
            };
            drop(call);
            let since = run(&other, i << 64).await;
            let next = Some(since.occurrence.scheduled_at + second);
            assert_eq!(apply(&other, complete(&since, next)).await, Reply::Accepted);
            if !is_done {
                dropped += 1;
                assert_eq!(apply(&node, end).await, Reply::Accepted);
            }
        }
        assert!(dropped > 0, "every call returned before it was dropped");
    });
}
