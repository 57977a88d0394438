//! Nodes that die while they hold a run, and nodes that do not hear what became of theirs.

#![expect(clippy::disallowed_methods, reason = "servers' clocks are compared with real time")]

use super::{ask, join, look, register, runtime, servers, t, urls};
use allora_core::{
    Time,
    backend::{
        Act, Answer, Backend, Cursor, Deliver, End, Ended, Ending, Leases, Now, Plan, Reschedule,
        Settle, Settled, State, Take, Taken,
    },
    record::codec,
    time::whole_millis,
};
use allora_redis::quorum::RedisQuorum;
use std::time::{Duration, Instant, SystemTime};

const JOB: &str = "job";

fn leased(seen: &State, claim: u128, lease: Duration) -> Take {
    Take::new(claim, seen.fence, seen.head.clone().unwrap(), Deliver::AtLeastOnce { lease })
}

fn finish(taken: &Taken, next: Option<Time>) -> [Ending<'static>; 1] {
    let then = Cursor::To(next.map(Into::into));
    [Ending::new(JOB, taken.fence, End::Finish { then, outcome: Ended::Ran })]
}

/// By the servers' clocks, with as many servers stopped as may be.
#[test]
fn a_dead_holders_run_is_run_again_after_its_lease_and_its_finish_is_refused() {
    runtime().block_on(async {
        for n in [3, 5] {
            let Some(mut servers) = servers(n).await else { return };
            let urls = urls(&servers);
            let (dead, other) = (join(&urls, "allora").await, join(&urls, "allora").await);
            let now = || Now::Store { node: SystemTime::now().into() };
            let act = async |node: &RedisQuorum, id: &str, act: Act<'_>| {
                let plans = [Plan::new(JOB, act)];
                let request = Reschedule::new(id, now(), &plans);
                node.reschedule(request).await.unwrap().answers.remove(0)
            };
            let first = Some(whole_millis(SystemTime::now().into()).into());
            act(&dead, "dead", Act::Register { definition: "once", version: 0, first }).await;
            servers[n / 2 + 1..].iter_mut().for_each(super::Server::kill);
            let end = Instant::now() + Duration::from_secs(60);
            let wins = async |node: &RedisQuorum, id: &str, claim| loop {
                let Answer::State(seen) = act(node, id, Act::Look).await else { panic!() };
                let take =
                    seen.head.is_some().then(|| leased(&seen, claim, Duration::from_secs(2)));
                if let Some(take) = take
                    && let Answer::Taken(taken) = act(node, id, Act::Take(take)).await
                {
                    break taken;
                }
                assert!(Instant::now() < end, "{seen:?}");
            };
            let before = wins(&dead, "dead", 1).await;
            let after = wins(&other, "other", 2).await;
            assert_eq!((before.attempt, after.attempt), (1, 2));
            assert!(after.fence > before.fence && after.run == before.run);
            let told = other.reschedule(Reschedule::new("other", now(), &[])).await.unwrap().now;
            assert!(told >= before.until.unwrap(), "it was taken before the lease's end");
            let settle = async |node: &RedisQuorum, taken: &Taken| {
                node.settle(Settle::new("n", now(), &finish(taken, None))).await.unwrap()
            };
            assert_eq!(settle(&dead, &before).await, [Settled::Lost]);
            assert_eq!(settle(&other, &after).await, [Settled::Done]);
        }
    });
}

/// Whether a majority of the servers has a record that nobody holds. It is no look, which would
/// overtake who does not listen.
async fn is_free(urls: &[String]) -> bool {
    let mut free = 0;
    for url in urls {
        let client = redis::Client::open(url.as_str()).unwrap();
        let mut connection = client.get_multiplexed_async_connection().await.unwrap();
        let mut get = redis::cmd("HGET");
        get.arg("allora:quorum").arg(format!("a:{JOB}"));
        let accepted: Vec<u8> = get.query_async(&mut connection).await.unwrap();
        // After the digits of its ballot.
        free += usize::from(codec::decode(&accepted[40..]).unwrap().holds.is_empty());
    }
    free > urls.len() / 2
}

/// A call that is dropped after its message was sent, as by a node that waits no longer.
#[test]
fn a_finish_that_was_given_up_is_known_as_done_although_others_finished_since() {
    runtime().block_on(async {
        let Some(servers) = servers(3).await else { return };
        let urls = urls(&servers);
        let (node, other) = (join(&urls, "allora").await, join(&urls, "allora").await);
        register(&node, JOB, 1).await;
        let hour = Duration::from_secs(3_600);
        let mut given_up = 0;
        for i in 1..=20 {
            let run = async |node: &RedisQuorum, claim| {
                let take = leased(&look(node, JOB).await, claim, hour);
                let plan = [Plan::new(JOB, Act::Take(take))];
                match ask(node, "n", &plan, t(99)).await.unwrap().answers.remove(0) {
                    Answer::Taken(taken) => taken,
                    other => panic!("{other:?}"),
                }
            };
            let settle = async |node: &RedisQuorum, endings: &[Ending<'_>]| {
                node.settle(Settle::new("n", Now::At(t(99)), endings)).await.unwrap()
            };
            let taken = run(&node, i).await;
            let endings = finish(&taken, Some(taken.run.at + chrono::TimeDelta::seconds(1)));
            let mut call = Box::pin(settle(&node, &endings));
            // Nobody hears its answers while it is seen what the servers have accepted.
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
            let next = Some(since.run.at + chrono::TimeDelta::seconds(1));
            assert_eq!(settle(&other, &finish(&since, next)).await, [Settled::Done]);
            if !is_done {
                given_up += 1;
                assert_eq!(settle(&node, &endings).await, [Settled::Done]);
            }
        }
        assert!(given_up > 0, "all of them were answered");
    });
}
