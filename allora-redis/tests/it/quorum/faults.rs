//! Servers that die, forget and hang while nodes work: what the nodes wrote down is judged by the
//! history checker.

#![expect(clippy::disallowed_methods, reason = "these tests wait for other processes")]

use super::{
    ask, join, join_within, look, register, runtime, server::Server, servers, t, take, urls,
};
use allora_conformance::history::{Claims, Event, Law, Outcome, What, check};
use allora_core::{
    Kind,
    backend::{
        Act, Answer, Cursor, Deliver, End, Ended, Ending, Leases, Now, Plan, Settle, Settled, Take,
        Taken,
    },
};
use allora_redis::quorum::RedisQuorum;
use std::{
    collections::HashMap,
    sync::Arc,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::{Duration, Instant},
};

const JOBS: usize = 20;
const NODES: usize = 4;
/// When all happens: everything is due.
const NOW: i64 = 1_000_000;
/// How long a server is waited for: short, so that one that hangs for a while costs little more
/// than being noticed, again and again.
const DEADLINE: Duration = Duration::from_millis(100);

/// One node's part in the race.
struct Racer {
    id: String,
    node: RedisQuorum,
    claim: u128,
    log: Vec<Event>,
    errors: Arc<AtomicU64>,
    is_over: Arc<AtomicBool>,
}

impl Racer {
    /// Takes what it can, and finishes it, until all jobs have come to their end: that is the run
    /// that is finished when the race is over. What has an unknown outcome is asked again, until it
    /// has one.
    async fn race(mut self) -> Vec<Event> {
        let now = t(NOW);
        let names: Vec<String> = (0..JOBS).map(|i| format!("job {i}")).collect();
        let mut open = names.clone();
        while !open.is_empty() {
            for name in std::mem::take(&mut open) {
                let answer = self.until_known(&[Plan::new(&name, Act::Look)]).await;
                let Answer::State(seen) = answer else { panic!("{answer:?}") };
                let Some(head) = seen.head.clone() else { continue };
                open.push(name.clone());
                if !seen.holds.is_empty() {
                    continue;
                }
                self.claim += 1;
                // Longer than the race, which is at one instant.
                let lease = Duration::from_secs(86_400);
                let take = Take::new(self.claim, seen.fence, head, Deliver::AtLeastOnce { lease });
                let answer = self.until_known(&[Plan::new(&name, Act::Take(take))]).await;
                if let Answer::Taken(taken) = answer {
                    self.ran(&name, &taken, now.timestamp_millis()).await;
                }
            }
        }
        self.log
    }

    async fn ran(&mut self, name: &str, taken: &Taken, at: i64) {
        let (occurrence, fence) = (taken.run.at.timestamp_millis(), taken.fence);
        let until = taken.until.map(|until| until.timestamp_millis());
        let claims = Claims { occurrence, fence, attempt: taken.attempt, until };
        self.note(name, at, What::Claim(claims));
        self.note(name, at, What::Start { occurrence, fence });
        let next = taken.run.at + chrono::TimeDelta::seconds(1);
        let goes_on = !self.is_over.load(Ordering::Relaxed);
        let then = Cursor::To(goes_on.then(|| next.into()));
        let end = End::Finish { then, outcome: Ended::Ran };
        let endings = [Ending::new(name, fence, end)];
        let mut is_known = true;
        loop {
            let request = Settle::new(&self.id, Now::At(t(NOW)), &endings);
            match self.node.settle(request).await {
                Ok(settled) => {
                    // The record remembers one ending: after an unknown one, others may have
                    // ended since. The counters below tell that it was not lost.
                    let is_done = settled == [Settled::Done];
                    assert!(is_done || !is_known, "{name} {fence} {settled:?}");
                    break;
                }
                Err(error) => {
                    is_known = false;
                    self.failed(&error).await;
                }
            }
        }
        self.note(name, at, What::End { occurrence, fence, outcome: Outcome::Ran });
    }

    async fn until_known(&self, plan: &[Plan<'_>]) -> Answer {
        loop {
            match ask(&self.node, &self.id, plan, t(NOW)).await {
                Ok(answer) => return answer.answers.into_iter().next().unwrap(),
                Err(error) => self.failed(&error).await,
            }
        }
    }

    async fn failed(&self, error: &allora_core::Error) {
        assert_eq!(error.kind(), Kind::Unavailable, "{error}");
        self.errors.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }

    fn note(&mut self, job: &str, at: i64, what: What) {
        self.log.push(Event { job: job.to_owned(), node: self.id.clone(), at, what });
    }
}

/// Waits until the server votes again. Whoever uses the others notices that it is blank; here
/// that is `node`, also when the race is over.
async fn until_admitted(server: &Server, node: &RedisQuorum) {
    let client = redis::Client::open(server.url()).unwrap();
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        let told = async {
            let mut connection = client.get_multiplexed_async_connection().await?;
            let info: redis::InfoDict = redis::cmd("INFO").query_async(&mut connection).await?;
            let mut run = redis::cmd("HGET");
            run.arg("allora:quorum").arg("m:run");
            let run: Option<String> = run.query_async(&mut connection).await?;
            Ok::<_, redis::RedisError>(run.is_some() && run == info.get("run_id"))
        };
        let _ = ask(node, "keeper", &[Plan::new("job 0", Act::Look)], t(0)).await;
        if told.await.is_ok_and(|is_admitted| is_admitted) {
            return;
        }
        assert!(Instant::now() < end, "it is not admitted again");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The race, while `disturb` does something to the servers: then it is over.
async fn contend(urls: &[String], disturb: impl AsyncFnOnce()) {
    let first = join(urls, "allora").await;
    for i in 0..JOBS {
        register(&first, &format!("job {i}"), 1).await;
    }
    let errors: Arc<AtomicU64> = Arc::default();
    let is_over: Arc<AtomicBool> = Arc::default();
    let mut racers = Vec::new();
    for i in 0..NODES {
        let racer = Racer {
            id: format!("racer-{i}"),
            node: join_within(DEADLINE, urls, "allora").await,
            claim: (i as u128) << 64,
            log: Vec::new(),
            errors: errors.clone(),
            is_over: is_over.clone(),
        };
        racers.push(tokio::spawn(racer.race()));
    }
    disturb().await;
    is_over.store(true, Ordering::Relaxed);
    let mut log = Vec::new();
    for racer in racers {
        log.extend(racer.await.unwrap());
    }
    let mut last: HashMap<&str, i64> = HashMap::new();
    for event in &log {
        if let What::Start { occurrence, .. } = event.what {
            let last = last.entry(&event.job).or_default();
            *last = occurrence.max(*last);
        }
    }
    let following = |job: &str, at: i64| (at < last[job]).then_some(at + 1_000);
    let law = Law::new(&following).until(t(NOW).timestamp_millis()).at_most_once().alone();
    assert_eq!(check(&log, &law), []);
    let starts = log.iter().filter(|event| matches!(event.what, What::Start { .. })).count();
    let mut ran = 0;
    for i in 0..JOBS {
        let name = format!("job {i}");
        let seen = look(&first, &name).await;
        let each = (last[name.as_str()] - t(0).timestamp_millis()) / 1_000;
        assert_eq!((seen.counters.ran, seen.head), (each as u64, None));
        ran += each as usize;
    }
    assert_eq!(starts, ran);
    let errors = errors.load(Ordering::Relaxed);
    assert!(ran > 3 * JOBS, "too little to judge: {ran} runs, {errors} unknown outcomes");
}

#[test]
fn servers_that_are_killed_and_come_back_empty_in_turn_cost_and_double_nothing() {
    runtime().block_on(async {
        let Some(mut servers) = servers(3).await else { return };
        let urls = urls(&servers);
        let node = join(&urls, "allora").await;
        // Each of them, with and without its file, three times.
        contend(&urls, async || {
            for loss in 0..18 {
                let server = &mut servers[loss % 3];
                server.kill();
                tokio::time::sleep(Duration::from_millis(150)).await;
                if loss % 2 == 0 {
                    server.wipe();
                }
                server.serve();
                until_admitted(server, &node).await;
            }
        })
        .await;
    });
}

#[test]
fn servers_that_hang_in_turn_cost_and_double_nothing() {
    runtime().block_on(async {
        let Some(servers) = servers(5).await else { return };
        let urls = urls(&servers);
        // Each two that are not neighbours, five times, longer than they are waited for; the next
        // two hang when these are hardly trusted again.
        contend(&urls, async || {
            for hang in 0..25 {
                let two = [&servers[hang % 5], &servers[(hang + 2) % 5]];
                two.iter().for_each(|server| server.freeze());
                tokio::time::sleep(DEADLINE * 3).await;
                two.iter().for_each(|server| server.thaw());
                tokio::time::sleep(DEADLINE / 2).await;
            }
        })
        .await;
    });
}

#[test]
fn without_a_majority_nothing_is_taken_and_with_it_again_all_goes_on() {
    runtime().block_on(async {
        let Some(mut servers) = servers(3).await else { return };
        let node = join_within(Duration::from_millis(100), &urls(&servers), "allora").await;
        let seen = register(&node, "job", 1).await;
        servers[0].freeze();
        servers[2].kill();
        let plan = [Plan::new("job", Act::Take(take(&seen, 1, 2)))];
        let error = ask(&node, "n", &plan, t(1)).await.unwrap_err();
        assert_eq!(error.kind(), Kind::Unavailable, "{error}");
        servers[0].thaw();
        let end = Instant::now() + Duration::from_secs(30);
        let taken = loop {
            match ask(&node, "n", &plan, t(1)).await {
                Ok(answer) => break answer.answers.into_iter().next(),
                Err(error) => assert!(Instant::now() < end, "{error}"),
            }
        };
        assert!(matches!(taken, Some(Answer::Taken(_))), "{taken:?}");
    });
}

#[test]
fn a_majority_that_forgot_at_once_stops_everything_until_init() {
    runtime().block_on(async {
        let Some(mut servers) = servers(3).await else { return };
        // A call is patient for forty deadlines, and each of those below comes to nothing.
        let node = join_within(Duration::from_millis(100), &urls(&servers), "allora").await;
        register(&node, "job", 1).await;
        for server in &mut servers[..2] {
            server.kill();
            server.wipe();
            server.serve();
        }
        let plan = [Plan::new("job", Act::Look)];
        for _ in 0..3 {
            let error = ask(&node, "n", &plan, t(1)).await.unwrap_err();
            assert!(error.to_string().contains("empty and not admitted"), "{error}");
        }
        assert_eq!(node.init().await.unwrap_err().kind(), Kind::AlreadyExists);
        servers[2].kill();
        servers[2].wipe();
        servers[2].serve();
        let operator = join(&urls(&servers), "allora").await;
        operator.init().await.unwrap();
        // A node that was there before goes on: what it asked in the old life counts for nothing.
        let end = Instant::now() + Duration::from_secs(30);
        let answer = loop {
            match ask(&node, "n", &plan, t(1)).await {
                Ok(answer) => break answer.answers,
                Err(error) => assert!(Instant::now() < end, "{error}"),
            }
        };
        assert_eq!(answer, [Answer::Absent]);
    });
}
