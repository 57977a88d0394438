//! What users of cron daemons that share a Redis count on, as whole schedulers see it.

use crate::stores::{Kind, Place, runtime};
use allora_core::{Handle, Run, Runtime as _, Scheduler, every, job, runtime::Tokio};
use allora_redis::Redis;
use std::{
    collections::HashSet,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};
use tokio::task::JoinHandle;

const PERIOD: Duration = Duration::from_millis(200);

/// What was run: job, node, occurrence.
type Runs = Arc<Mutex<Vec<(String, String, i64)>>>;

struct Node {
    handle: Handle,
    runs: JoinHandle<()>,
}

impl Node {
    /// With a job of each sort.
    async fn start(place: &Place, runs: &Runs) -> Self {
        let work = |runs: &Runs| {
            let runs = runs.clone();
            async move |run: Run| {
                let at = run.scheduled_at().timestamp_millis();
                runs.lock().unwrap().push((run.name().to_owned(), run.node().to_owned(), at));
            }
        };
        let scheduler = Scheduler::builder(place.connect(Redis::builder()).await.unwrap())
            .runtime(Tokio::current().unwrap())
            .job("one", every(PERIOD), work(runs))
            .add("each", job(every(PERIOD), work(runs)).on_every_node())
            .job("fails", every(PERIOD), async |_: Run| panic!("as jobs do"))
            .build()
            .unwrap();
        let handle = scheduler.handle();
        let runs = runtime().spawn(async move {
            scheduler.run().await;
        });
        Self { handle, runs }
    }

    fn name(&self) -> String {
        self.handle.node().to_owned()
    }

    async fn stop(self) {
        self.handle.stop();
        self.runs.await.unwrap();
    }

    /// As when its machine is lost: it says nothing more to anybody.
    async fn lose(self) {
        self.runs.abort();
        let _ = self.runs.await;
    }
}

/// Occurrences of a job, as often as they ran.
fn of(runs: &Runs, job: &str) -> Vec<i64> {
    runs.lock().unwrap().iter().filter(|run| run.0 == job).map(|run| run.2).collect()
}

async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let runtime = Tokio::current().unwrap();
    let end = runtime.now() + Duration::from_secs(30);
    while !is_so() {
        assert!(runtime.now() < end, "in vain: {what}");
        a_while(20).await;
    }
}

async fn a_while(ms: u64) {
    let runtime = Tokio::current().unwrap();
    let now: Instant = runtime.now();
    runtime.sleep_until(now + Duration::from_millis(ms)).await;
}

fn each_once(runs: &Runs) {
    let ran = of(runs, "one");
    let different: HashSet<i64> = ran.iter().copied().collect();
    assert_eq!(different.len(), ran.len(), "one occurrence ran twice: {ran:?}");
}

fn on_one_server(test: impl AsyncFnOnce(&Place, &Runs)) {
    let Some(place) = Kind::One.place() else { return };
    runtime().block_on(async {
        test(&place, &Runs::default()).await;
        place.clear().await;
    });
}

#[test]
fn whichever_node_is_lost_the_others_go_on() {
    on_one_server(async |place, runs| {
        let mut nodes = Vec::new();
        for _ in 0..3 {
            nodes.push(Node::start(place, runs).await);
        }
        for _ in 0..3 {
            nodes.remove(0).lose().await;
            let before = of(runs, "one").len();
            until("the others go on", || of(runs, "one").len() >= before + 3).await;
            nodes.push(Node::start(place, runs).await);
        }
        for node in nodes {
            node.stop().await;
        }
        each_once(runs);
    });
}

#[test]
fn a_job_for_every_node_runs_on_each_of_them_and_the_others_on_one() {
    on_one_server(async |place, runs| {
        let mut nodes = Vec::new();
        for _ in 0..3 {
            nodes.push(Node::start(place, runs).await);
        }
        let names: HashSet<String> = nodes.iter().map(Node::name).collect();
        assert_eq!(names.len(), 3);
        until("it runs on all three", || {
            let runs = runs.lock().unwrap();
            let on: HashSet<&String> =
                runs.iter().filter(|run| run.0 == "each").map(|run| &run.1).collect();
            on.len() == 3 && on.iter().all(|node| names.contains(*node))
        })
        .await;
        until("the other runs, too", || of(runs, "one").len() > 3).await;
        for node in nodes {
            node.stop().await;
        }
        each_once(runs);
    });
}

#[test]
fn what_was_missed_while_nobody_ran_runs_once_and_then_all_is_as_ever() {
    on_one_server(async |place, runs| {
        let node = Node::start(place, runs).await;
        until("it runs", || of(runs, "one").len() > 2).await;
        node.stop().await;
        let before = of(runs, "one");
        a_while(1_500).await;
        let node = Node::start(place, runs).await;
        until("it goes on", || of(runs, "one").len() > before.len() + 3).await;
        node.stop().await;
        let ran = of(runs, "one");
        let period = i64::try_from(PERIOD.as_millis()).unwrap();
        // What the stopped node gave back runs first.
        let passed_over =
            ran[before.len() - 1..].windows(2).any(|two| two[1] - two[0] >= 5 * period);
        assert!(passed_over, "of many that were missed the latest runs: {ran:?}");
        assert!(ran.iter().all(|at| (at - ran[0]) % period == 0), "it keeps its phase: {ran:?}");
        each_once(runs);
    });
}

#[test]
fn two_prefixes_on_one_server_know_nothing_of_each_other() {
    on_one_server(async |place, runs| {
        let other = Kind::One.place().unwrap();
        let others = Runs::default();
        let (a, b) = (Node::start(place, runs).await, Node::start(&other, &others).await);
        until("both run", || of(runs, "one").len() > 2 && of(&others, "one").len() > 2).await;
        a.stop().await;
        let before = of(&others, "one").len();
        place.clear().await;
        until("the other goes on", || of(&others, "one").len() > before + 2).await;
        b.stop().await;
        for runs in [runs, &others] {
            each_once(runs);
        }
        other.clear().await;
    });
}
