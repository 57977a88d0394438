//! Servers that die, forget and hang while nodes work. The history checker judges what the nodes
//! recorded.

#![expect(clippy::disallowed_methods, reason = "these tests wait for other processes")]

use super::{
    ask, ask_one, claim, join, join_within, now, patient_init, read, register, runtime,
    server::Server, servers, t, urls,
};
use allora_conformance::environment::patiently_async;
use allora_conformance::history::{Claims, Event, Invariant, Outcome, What, check};
use allora_core::{
    ErrorKind, Scheduler,
    backend::{Action, Claim, Claimed, Completion, Cursor, NewSchedule, Operation, Reply},
};
use allora_redis_quorum::RedisQuorum;
use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

const JOBS: usize = 20;
const NODES: usize = 4;
/// The time of everything: all occurrences are due.
const NOW: i64 = 1_000_000;
/// Time to wait for a server: short, so that a server that hangs for a while costs little more than
/// the repeated detection.
const DEADLINE: Duration = Duration::from_millis(100);

/// One node's part in the race.
struct Racer {
    id: String,
    node: RedisQuorum,
    claim_id: u128,
    log: Vec<Event>,
    errors: Arc<AtomicU64>,
    is_over: Arc<AtomicBool>,
    runs: Arc<AtomicU64>,
}

impl Racer {
    /// Claims and completes what it can, until all jobs have come to their end: that is the run
    /// that is completed when the race is over. An operation with an unknown outcome is sent again,
    /// until it has one.
    async fn race(mut self) -> Vec<Event> {
        let now = t(NOW);
        let names: Vec<String> = (0..JOBS).map(|i| format!("job {i}")).collect();
        let mut open = names.clone();
        while !open.is_empty() {
            for name in std::mem::take(&mut open) {
                let reply = self.until_known(Operation::read(&name)).await;
                let Reply::State(seen) = reply else { panic!("{reply:?}") };
                let Some(head) = seen.head.clone() else { continue };
                open.push(name.clone());
                if !seen.leases.is_empty() {
                    continue;
                }
                self.claim_id += 1;
                // Longer than the race, which is at one instant.
                let lease = Duration::from_secs(86_400);
                let claim = Claim::at_least_once(self.claim_id, seen.fence, head, lease);
                let reply = self.until_known(Operation::claim(&name, claim)).await;
                if let Reply::Claimed(claimed) = reply {
                    self.run(&name, &claimed, now.timestamp_millis()).await;
                }
            }
        }
        self.log
    }

    async fn run(&mut self, name: &str, claimed: &Claimed, at: i64) {
        let (scheduled_at, fence) = (claimed.occurrence.scheduled_at, claimed.fence);
        let occurrence = scheduled_at.timestamp_millis();
        let until = Some(claimed.until.timestamp_millis());
        let claims = Claims { occurrence, fence, attempt: claimed.attempt, until };
        self.note(name, at, What::Claim(claims));
        self.note(name, at, What::Start { occurrence, fence });
        let next = scheduled_at + chrono::TimeDelta::seconds(1);
        let goes_on = !self.is_over.load(Ordering::Relaxed);
        let then = Cursor::To(goes_on.then(|| next.into()));
        let mut is_known = true;
        loop {
            let complete = Operation::complete(name, fence, then, Completion::Succeeded);
            match ask_one(&self.node, &self.id, complete, t(NOW)).await {
                Ok(reply) => {
                    // The record remembers one end: after an unknown one, other runs may have
                    // ended since. The counters below show that it was not lost.
                    assert!(reply.is_accepted() || !is_known, "{name} {fence} {reply:?}");
                    break;
                }
                Err(error) => {
                    is_known = false;
                    self.failed(&error).await;
                }
            }
        }
        self.note(name, at, What::End { occurrence, fence, outcome: Outcome::Succeeded });
        self.runs.fetch_add(1, Ordering::Relaxed);
    }

    async fn until_known(&self, operation: Operation<'_>) -> Reply {
        loop {
            match ask_one(&self.node, &self.id, operation.clone(), t(NOW)).await {
                Ok(reply) => return reply,
                Err(error) => self.failed(&error).await,
            }
        }
    }

    async fn failed(&self, error: &allora_core::Error) {
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        self.errors.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }

    fn note(&mut self, job: &str, at: i64, what: What) {
        self.log.push(Event { job: job.to_owned(), node: self.id.clone(), at, what });
    }
}

/// Waits until the server votes again. A node that uses the others notices that it is empty; here
/// that is `node`, also when the race is over.
async fn until_rejoined(server: &Server, node: &RedisQuorum) {
    let client = redis::Client::open(server.url()).unwrap();
    patiently_async("it rejoins", async || {
        let told = async {
            let mut connection = client.get_multiplexed_async_connection().await?;
            let info: redis::InfoDict = redis::cmd("INFO").query_async(&mut connection).await?;
            let mut run = redis::cmd("HGET");
            run.arg("allora:quorum").arg("m:run");
            let run: Option<String> = run.query_async(&mut connection).await?;
            let process: String = info.get("run_id").unwrap_or_default();
            Ok::<_, redis::RedisError>(run.is_some_and(|run| run.starts_with(&process)))
        };
        let _ = ask(node, "keeper", &[Operation::read("job 0")], t(0)).await;
        told.await.is_ok_and(|is_rejoined| is_rejoined)
    })
    .await;
}

/// The race, while `disturb` does something to the servers, which receives how often it did that:
/// at least `times` times, and until there are enough runs to judge. Then the race is over.
async fn contend(urls: &[String], times: usize, mut disturb: impl AsyncFnMut(usize)) {
    let first = join(urls, "allora").await;
    for i in 0..JOBS {
        register(&first, &format!("job {i}"), 1).await;
    }
    let errors: Arc<AtomicU64> = Arc::default();
    let is_over: Arc<AtomicBool> = Arc::default();
    let runs: Arc<AtomicU64> = Arc::default();
    let mut racers = Vec::new();
    for i in 0..NODES {
        let racer = Racer {
            id: format!("racer-{i}"),
            node: join_within(DEADLINE, urls, "allora").await,
            claim_id: (i as u128) << 64,
            log: Vec::new(),
            errors: errors.clone(),
            is_over: is_over.clone(),
            runs: runs.clone(),
        };
        racers.push(tokio::spawn(racer.race()));
    }
    let end = Instant::now() + Duration::from_secs(240);
    for time in 0.. {
        if time >= times && runs.load(Ordering::Relaxed) > 3 * JOBS as u64 {
            break;
        }
        let errors = errors.load(Ordering::Relaxed);
        assert!(Instant::now() < end, "{runs:?} runs, {errors} unknown outcomes");
        disturb(time).await;
    }
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
    let law = Invariant::new(&following).until(t(NOW).timestamp_millis()).at_most_once().alone();
    assert_eq!(check(&log, &law), []);
    let starts = log.iter().filter(|event| matches!(event.what, What::Start { .. })).count();
    let mut ran = 0;
    for i in 0..JOBS {
        let name = format!("job {i}");
        let seen = read(&first, &name).await;
        let each = (last[name.as_str()] - t(0).timestamp_millis()) / 1_000;
        assert_eq!((seen.counters.succeeded, seen.head), (each as u64, None));
        ran += each as usize;
    }
    assert_eq!(starts, ran);
}

#[test]
fn servers_that_are_killed_and_come_back_empty_in_turn_cost_and_double_nothing() {
    runtime().block_on(async {
        let Some(mut servers) = servers(3).await else { return };
        let urls = urls(&servers);
        let node = join(&urls, "allora").await;
        // Each of them, with and without its file, three times.
        contend(&urls, 18, async |loss| {
            let server = &mut servers[loss % 3];
            server.kill();
            tokio::time::sleep(Duration::from_millis(150)).await;
            if loss % 2 == 0 {
                server.wipe();
            }
            server.serve();
            until_rejoined(server, &node).await;
        })
        .await;
    });
}

#[test]
fn a_call_after_all_servers_have_closed_their_idle_connections_succeeds() {
    runtime().block_on(async {
        let Some(servers) = servers(3).await else { return };
        let node = join(&urls(&servers), "allora").await;
        register(&node, "job", 1).await;
        for server in &servers {
            command(server, &["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
        }
        // The end of the connections arrives.
        tokio::time::sleep(Duration::from_millis(100)).await;
        // Without another try: that takes at least one pause.
        assert!(node.is_initialised().await.unwrap());
    });
}

/// The incarnation by which a server votes; `None` while it is filled.
fn incarnation(server: &Server) -> Option<u32> {
    let mut connection = redis::Client::open(server.url()).unwrap().get_connection().unwrap();
    redis::cmd("HGET").arg("allora:quorum").arg("m:incarnation").query(&mut connection).unwrap()
}

#[test]
fn a_server_that_others_think_outdated_counts_again_before_the_next_one_fails() {
    runtime().block_on(async {
        let Some(mut servers) = servers(3).await else { return };
        let node = join(&urls(&servers), "allora").await;
        let seen = register(&node, "job", 1).await;
        // As a message of a node that was overtaken while it let the server rejoin.
        for other in &servers[..2] {
            let mut connection =
                redis::Client::open(other.url()).unwrap().get_connection().unwrap();
            let mut note = redis::cmd("HSET");
            note.arg("allora:quorum").arg("m:known").arg("1,1,7,0,0");
            note.exec(&mut connection).unwrap();
        }
        patiently_async("its incarnation is raised", async || {
            let _ = ask(&node, "n", &[Operation::read("job")], t(1)).await;
            incarnation(&servers[2]) == Some(7)
        })
        .await;
        servers[0].kill();
        let operations = [Operation::claim("job", claim(&seen, 1, 2))];
        let end = Instant::now() + Duration::from_secs(60);
        let reply = loop {
            match ask(&node, "n", &operations, t(1)).await {
                Ok(applied) => break applied.single().unwrap(),
                Err(error) => assert!(Instant::now() < end, "{error}"),
            }
        };
        assert!(matches!(reply, Reply::Claimed(_)), "{reply:?}");
    });
}

#[test]
fn a_server_with_many_jobs_rejoins_while_many_nodes_notice_that_it_is_empty() {
    const NODES: usize = 24;
    const JOBS: usize = 6_000;
    runtime().block_on(async {
        let Some(mut servers) = servers(3).await else { return };
        let urls = urls(&servers);
        let node = join(&urls, "allora").await;
        let names: Vec<String> = (0..JOBS).map(|i| format!("job {i}")).collect();
        let text = "x".repeat(500);
        for names in names.chunks(500) {
            let create = || Action::Create(NewSchedule::new("mail", &text, None));
            let operations: Vec<_> =
                names.iter().map(|name| Operation::new(name, create())).collect();
            ask(&node, "n", &operations, t(0)).await.unwrap();
        }
        let mut nodes = Vec::new();
        for _ in 0..NODES {
            nodes.push(join(&urls, "allora").await);
        }
        servers[1].kill();
        servers[1].wipe();
        servers[1].serve();
        let is_over: Arc<AtomicBool> = Arc::default();
        let work = nodes.into_iter().map(|node| {
            let is_over = is_over.clone();
            tokio::spawn(async move {
                while !is_over.load(Ordering::Relaxed) {
                    let _ = ask(&node, "n", &[Operation::read("job 0")], t(0)).await;
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            })
        });
        let work: Vec<_> = work.collect();
        until_rejoined(&servers[1], &node).await;
        is_over.store(true, Ordering::Relaxed);
        for node in work {
            node.await.unwrap();
        }
    });
}

#[test]
fn servers_that_hang_in_turn_cost_and_double_nothing() {
    runtime().block_on(async {
        let Some(servers) = servers(5).await else { return };
        let urls = urls(&servers);
        // Each two that are not neighbours, five times, longer than they are waited for; the next
        // two hang when these are hardly trusted again.
        contend(&urls, 25, async |hang| {
            let two = [&servers[hang % 5], &servers[(hang + 2) % 5]];
            two.iter().for_each(|server| server.freeze());
            tokio::time::sleep(DEADLINE * 3).await;
            two.iter().for_each(|server| server.thaw());
            tokio::time::sleep(DEADLINE / 2).await;
        })
        .await;
    });
}

#[test]
fn without_a_majority_nothing_is_claimed_and_with_it_again_all_goes_on() {
    runtime().block_on(async {
        let Some(mut servers) = servers(3).await else { return };
        let node = join_within(Duration::from_millis(100), &urls(&servers), "allora").await;
        let seen = register(&join(&urls(&servers), "allora").await, "job", 1).await;
        servers[0].freeze();
        servers[2].kill();
        let operations = [Operation::claim("job", claim(&seen, 1, 2))];
        let error = ask(&node, "n", &operations, t(1)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        servers[0].thaw();
        let end = Instant::now() + Duration::from_secs(60);
        let reply = loop {
            match ask(&node, "n", &operations, t(1)).await {
                Ok(applied) => break applied.single().unwrap(),
                Err(error) => assert!(Instant::now() < end, "{error}"),
            }
        };
        assert!(matches!(reply, Reply::Claimed(_)), "{reply:?}");
    });
}

#[test]
fn a_majority_that_forgot_at_once_stops_everything_until_init() {
    runtime().block_on(async {
        let Some(mut servers) = servers(3).await else { return };
        // A call ends after forty deadlines, and each of those below fails.
        let node = join_within(Duration::from_millis(100), &urls(&servers), "allora").await;
        register(&join(&urls(&servers), "allora").await, "job", 1).await;
        let reports = Arc::new(Mutex::new(Vec::new()));
        let scheduler = reporting(&urls(&servers), reports.clone()).await;
        let (stop, stopped) = futures::channel::oneshot::channel::<()>();
        let scheduler = runtime().spawn(scheduler.run_until(async { _ = stopped.await }));
        let operations = [Operation::read("job")];
        let end = Instant::now() + Duration::from_secs(60);
        while let Err(error) = ask(&node, "n", &operations, t(1)).await {
            assert!(Instant::now() < end, "{error}");
        }
        for server in &mut servers[..2] {
            server.kill();
            server.wipe();
            server.serve();
        }
        let end = Instant::now() + Duration::from_secs(60);
        let mut refusals = 0;
        while refusals < 3 {
            let error = ask(&node, "n", &operations, t(1)).await.unwrap_err();
            let error_text = error.to_string();
            let is_told = error_text.contains("a majority has lost its data")
                && error_text.contains("call `RedisQuorum::init`, once");
            refusals += usize::from(is_told);
            assert!(Instant::now() < end, "{error}");
        }
        // A scheduler waits for a reply for one second, and must learn the reason within that.
        patiently_async("the scheduler's events say what to do", async || {
            let is_told = |event: &String| {
                event.contains("a majority has lost its data") && event.contains("`allora init`")
            };
            tokio::time::sleep(Duration::from_millis(10)).await;
            reports.lock().unwrap().iter().any(is_told)
        })
        .await;
        drop(stop);
        scheduler.await.unwrap();
        // So does a node that joins.
        let late = join(&urls(&servers), "allora").await;
        for error in [
            late.is_initialised().await.unwrap_err(),
            now(&late).await.unwrap_err(),
            ask(&late, "n", &operations, t(1)).await.unwrap_err(),
        ] {
            assert!(error.to_string().contains("`allora init`"), "{error}");
        }
        let operator = join(&urls(&servers), "allora").await;
        let error = patient_init(&operator).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AlreadyExists);
        servers[2].kill();
        servers[2].wipe();
        servers[2].serve();
        let operator = join(&urls(&servers), "allora").await;
        patient_init(&operator).await.unwrap();
        // A node from before continues: its requests to the old cluster id count for nothing.
        let end = Instant::now() + Duration::from_secs(60);
        let reply = loop {
            match ask(&node, "n", &operations, t(1)).await {
                Ok(applied) => break applied.single().unwrap(),
                Err(error) => assert!(Instant::now() < end, "{error}"),
            }
        };
        assert_eq!(reply, Reply::Absent);
    });
}

/// A scheduler on these servers that writes its events down.
async fn reporting(urls: &[String], reports: Arc<Mutex<Vec<String>>>) -> Scheduler {
    // As a node has it.
    let node = join_within(Duration::from_millis(250), urls, "allora").await;
    let on_event =
        move |event: &allora_core::Event| reports.lock().unwrap().push(event.to_string());
    Scheduler::builder(node).on_event(on_event).build().unwrap()
}

fn command(server: &Server, words: &[&str]) {
    let mut connection = redis::Client::open(server.url()).unwrap().get_connection().unwrap();
    redis::cmd(words[0]).arg(&words[1..]).exec(&mut connection).unwrap();
}

/// The value of a field of a server's replication.
fn replication(server: &Server, field: &str) -> String {
    let mut connection = redis::Client::open(server.url()).unwrap().get_connection().unwrap();
    let info: redis::InfoDict =
        redis::cmd("INFO").arg("replication").query(&mut connection).unwrap();
    info.get(field).unwrap_or_default()
}

/// Lets a server follow another one, until it has its data.
async fn follow(server: &Server, primary: &Server) {
    command(primary, &["CONFIG", "SET", "repl-diskless-sync-delay", "0"]);
    let port = primary.url().rsplit(':').next().unwrap().to_owned();
    command(server, &["REPLICAOF", "127.0.0.1", &port]);
    patiently_async("it follows", async || {
        tokio::time::sleep(Duration::from_millis(10)).await;
        replication(server, "master_link_status") == "up"
    })
    .await;
}

/// Lets a server follow another one, until it has its data, and then stand alone again.
async fn follow_for_a_moment(server: &Server, primary: &Server) {
    follow(server, primary).await;
    command(server, &["REPLICAOF", "NO", "ONE"]);
}

/// The first replica of a server changes its replication id, and so does the end of the backlog after
/// the last one. So `redis-cli --rdb` does both.
#[test]
fn servers_that_are_copied_stay_full() {
    runtime().block_on(async {
        let Some(servers) = servers(3).await else { return };
        let Some(copies) = (0..2).map(|_| Server::start()).collect::<Option<Vec<_>>>() else {
            return;
        };
        let urls = urls(&servers);
        let node = join(&urls, "allora").await;
        register(&node, "job", 1).await;
        let is_over: Arc<AtomicBool> = Arc::default();
        let longest = tokio::spawn({
            let (node, is_over) = (join_within(DEADLINE, &urls, "allora").await, is_over.clone());
            async move {
                let (mut last, mut longest) = (Instant::now(), Duration::ZERO);
                while !is_over.load(Ordering::Relaxed) {
                    if ask(&node, "n", &[Operation::read("job")], t(1)).await.is_ok() {
                        last = Instant::now();
                    }
                    longest = longest.max(last.elapsed());
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                longest
            }
        });
        let two = &servers[..2];
        let ids = || two.iter().map(|server| replication(server, "master_replid"));
        let before: Vec<String> = ids().collect();
        futures::join!(follow(&copies[0], &two[0]), follow(&copies[1], &two[1]));
        let copied: Vec<String> = ids().collect();
        assert!(before.iter().zip(&copied).all(|(before, after)| before != after));
        tokio::time::sleep(Duration::from_millis(300)).await;
        for server in two {
            command(server, &["CONFIG", "SET", "repl-backlog-ttl", "1"]);
        }
        copies.iter().for_each(|copy| command(copy, &["REPLICAOF", "NO", "ONE"]));
        patiently_async("both backlogs are over", async || {
            tokio::time::sleep(Duration::from_millis(10)).await;
            ids().zip(&copied).all(|(after, copied)| after != *copied)
        })
        .await;
        tokio::time::sleep(Duration::from_millis(300)).await;
        is_over.store(true, Ordering::Relaxed);
        let longest = longest.await.unwrap();
        assert!(longest < Duration::from_secs(1), "nothing was answered for {longest:?}");
        assert_eq!(servers.iter().map(incarnation).collect::<Vec<_>>(), [Some(1); 3]);
    });
}

/// The server has its own process and its own hash again, as old as its copy. When the backlog is over,
/// nothing in its `INFO` says so any more, and no node has asked before.
#[test]
fn a_server_that_replication_has_rolled_back_is_empty_when_its_backlog_is_over() {
    runtime().block_on(async {
        let Some(servers) = servers(3).await else { return };
        let Some(copy) = Server::start() else { return };
        let node = join(&urls(&servers), "allora").await;
        register(&node, "early", 1).await;
        follow_for_a_moment(&copy, &servers[0]).await;
        let seen = register(&node, "late", 1).await;
        command(&servers[0], &["CONFIG", "SET", "repl-backlog-ttl", "1"]);
        follow_for_a_moment(&servers[0], &copy).await;
        patiently_async("the backlog is over", async || {
            tokio::time::sleep(Duration::from_millis(10)).await;
            replication(&servers[0], "master_replid2").trim_matches('0').is_empty()
        })
        .await;
        assert_eq!(incarnation(&servers[0]), Some(1), "the test rolls nothing back");
        patiently_async("the server has rejoined", async || {
            let _ = ask(&node, "n", &[Operation::read("late")], t(1)).await;
            incarnation(&servers[0]) == Some(2)
        })
        .await;
        assert_eq!(read(&node, "late").await, seen);
    });
}

#[test]
fn a_server_that_was_a_replica_rejoins_and_its_source_stays_full() {
    runtime().block_on(async {
        let Some(servers) = servers(3).await else { return };
        let node = join(&urls(&servers), "allora").await;
        register(&node, "job", 1).await;
        follow(&servers[1], &servers[0]).await;
        read(&node, "job").await;
        servers[2].freeze();
        let error = node.is_initialised().await.unwrap_err().to_string();
        servers[2].thaw();
        assert!(error.contains("REPLICAOF NO ONE") && !error.contains("allora init"), "{error}");
        command(&servers[1], &["REPLICAOF", "NO", "ONE"]);
        until_rejoined(&servers[1], &node).await;
        assert_eq!(servers.iter().map(incarnation).collect::<Vec<_>>(), [1, 2, 1].map(Some));
    });
}

#[test]
fn a_server_that_replication_has_rolled_back_does_not_vote() {
    runtime().block_on(async {
        let Some(servers) = servers(3).await else { return };
        let Some(copy) = Server::start() else { return };
        let node = join(&urls(&servers), "allora").await;
        register(&node, "early", 1).await;
        follow_for_a_moment(&copy, &servers[0]).await;
        register(&node, "late", 1).await;
        // Its state is the one of its own process, and an old one.
        follow_for_a_moment(&servers[0], &copy).await;
        let client = redis::Client::open(servers[0].url()).unwrap();
        let mut connection = client.get_multiplexed_async_connection().await.unwrap();
        patiently_async("the server has again what it had accepted", async || {
            // A node notices that the server is empty, and lets it rejoin.
            let _ = ask(&node, "n", &[Operation::read("late")], t(1)).await;
            let mut exists = redis::cmd("HEXISTS");
            let exists = exists.arg("allora:quorum").arg("a:late");
            exists.query_async(&mut connection).await.unwrap_or(false)
        })
        .await;
    });
}
