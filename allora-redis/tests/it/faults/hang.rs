//! Servers that hang: they keep their connections, and reply nothing.

#![expect(clippy::disallowed_methods, reason = "these tests wait for other processes")]

use super::{
    node::Settings,
    topology::{clustered, place, watched},
};
use crate::{
    server::{ON_DISK, Server},
    stores::{Kind, Place, create, pause, runtime, send},
};
use allora_conformance::{environment::patiently, faults::Fleet};
use allora_core::{
    Backend, Run, Scheduler, Time,
    backend::{
        Action, Batch, Claim, ClaimKey, Cursor, NewSchedule, Operation, Reply, Sharing, TimeSource,
    },
    every, job,
    time::from_millis,
};
use allora_redis::Redis;
use chrono::TimeDelta;
use std::{
    collections::HashSet,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

fn is_primary(server: &Server) -> bool {
    let info = server.ask::<String>(&["INFO", "replication"]);
    info.is_ok_and(|info| info.contains("role:master"))
}

/// Two nodes at work. Their leases are short: a failover may lose completions, whose leases then end.
fn at_work(place: Place) -> Fleet<Settings> {
    Fleet::new(Settings::of(place), Duration::from_millis(100)).at_work()
}

#[test]
fn nodes_leave_a_primary_that_hangs_when_sentinels_have_replaced_it() {
    let Some((primary, replica, sentinels)) = watched(&[]) else { return };
    let urls: Vec<String> = sentinels.iter().map(Server::url).collect();
    let place = Place { kind: Kind::Sentinel, urls, prefix: "allora".into(), shards: 1 };
    let fleet = at_work(place);
    // The sentinel that is named first hangs, too.
    sentinels[0].signal("-STOP");
    primary.signal("-STOP");
    patiently("the replica is the primary", || is_primary(&replica));
    // The old primary hangs until the end of the test.
    fleet.more_ends(5);
}

#[test]
fn nodes_leave_a_hanging_node_of_a_cluster_when_its_replica_has_replaced_it() {
    let slots = [Some((0, 16_381)), Some((16_382, 16_382)), Some((16_383, 16_383)), None];
    let Some(nodes) = clustered(slots, &[]) else { return };
    follow(&nodes[3], &nodes[0]);
    let fleet = at_work(place(&nodes));
    nodes[0].signal("-STOP");
    patiently("the replica is the primary", || is_primary(&nodes[3]));
    fleet.more_ends(5);
}

/// Makes a node of a cluster the replica of another one.
fn follow(replica: &Server, primary: &Server) {
    let id = primary.ask::<String>(&["CLUSTER", "MYID"]).unwrap();
    patiently("the node becomes a replica", || {
        replica.ask::<()>(&["CLUSTER", "REPLICATE", &id]).is_ok()
    });
    patiently("it follows", || {
        let info = replica.ask::<String>(&["INFO", "replication"]);
        info.is_ok_and(|info| info.contains("master_link_status:up"))
    });
}

#[test]
fn a_store_connects_although_the_first_address_hangs() {
    let slots = [Some((0, 8_191)), Some((8_192, 16_383)), None];
    let Some(nodes) = clustered(slots, &[]) else { return };
    nodes[2].signal("-STOP");
    let mut hanging_first = place(&nodes);
    hanging_first.urls.rotate_right(1);
    runtime().block_on(hanging_first.connect(Redis::builder())).unwrap();
}

#[test]
fn nodes_leave_a_replaced_primary_that_nothing_demotes() {
    let renamed = ["--rename-command", "SLAVEOF", "", "--rename-command", "REPLICAOF", ""];
    let Some((primary, replica, sentinels)) = watched(&renamed) else { return };
    let urls: Vec<String> = sentinels.iter().map(Server::url).collect();
    let place = Place { kind: Kind::Sentinel, urls, prefix: "allora".into(), shards: 1 };
    let fleet = at_work(place);
    patiently("a failover begins", || {
        sentinels[1].ask::<()>(&["SENTINEL", "FAILOVER", "allora"]).is_ok()
    });
    patiently("the replica is the primary", || is_primary(&replica));
    let runs = |server: &Server| {
        let hot: Vec<String> = server.ask(&["HVALS", "{allora}:hot"]).unwrap();
        hot.into_iter().max()
    };
    let before = runs(&replica);
    patiently("runs are claimed on the new primary", || runs(&replica) != before);
    assert!(is_primary(&primary), "nothing has demoted the old primary");
    let left = runs(&primary);
    fleet.more_ends(10);
    assert_eq!(runs(&primary), left, "no node writes to the old primary");
}

#[test]
fn jobs_of_reachable_shards_are_answered_while_another_shard_hangs() {
    let Some(nodes) = clustered(THIRDS, &PARTIAL) else { return };
    runtime().block_on(async {
        let place = Place { shards: 8, ..place(&nodes) };
        let store = place.connect(Redis::builder().timeout(Duration::from_secs(2))).await.unwrap();
        let now = TimeSource::Fixed(from_millis(5_000).unwrap());
        let names: Vec<String> = (0..32).map(|i| format!("job{i}")).collect();
        for name in &names {
            create(&store, now, name, NewSchedule::new("mail", "def", None)).await;
        }
        nodes[1].signal("-STOP");
        let pausing = |name| Operation::new(name, Action::Pause { note: "", until: None });
        let operations: Vec<Operation<'_>> = names.iter().map(|name| pausing(name)).collect();
        for _ in 0..4 {
            // A node gives the whole batch as long as one call.
            let batch = store.reschedule(Batch::new("n", now, &operations));
            let applied = tokio::time::timeout(Duration::from_secs(2), batch).await;
            let replies = applied.expect("the batch is answered in time").unwrap().replies;
            let failed: Vec<_> = replies.iter().filter_map(|reply| reply.as_ref().err()).collect();
            assert!((1..=24).contains(&failed.len()), "{} of 32 failed", failed.len());
            let place = nodes[1].url();
            for error in failed {
                assert!(error.to_string().contains(&place), "{error} does not name {place}");
            }
        }
    });
}

/// The longest time for which a job may stand whose server answers, with its period of 1 s.
const STANDS: Duration = Duration::from_secs(3);

/// The names of the jobs that a node of the cluster has.
fn jobs_of(node: &Server, shards: u32) -> HashSet<String> {
    let hot = |shard| node.ask::<Vec<String>>(&["HKEYS", &format!("{{allora:{shard}}}:hot")]);
    (0..shards).filter_map(|shard| hot(shard).ok()).flatten().collect()
}

/// Runs 36 jobs each second on 12 shards, and stops each of the first three nodes in turn: the jobs of
/// the others go on.
#[track_caller]
fn others_go_on(nodes: &[Server]) {
    let place = Place { shards: 12, ..place(nodes) };
    let starts: Arc<Mutex<Vec<(String, Instant)>>> = Arc::default();
    let store = runtime().block_on(place.connect(Redis::builder())).unwrap();
    let mut scheduler = Scheduler::builder(store);
    for i in 0..36 {
        let starts = starts.clone();
        let run = async move |run: Run| {
            starts.lock().unwrap().push((run.name().to_owned(), Instant::now()));
        };
        scheduler = scheduler.add(format!("job{i}"), job(every(Duration::from_secs(1)), run));
    }
    let (stop, stopped) = futures::channel::oneshot::channel::<()>();
    let scheduler = runtime().block_on(async { scheduler.build().unwrap() });
    let running = runtime().spawn(scheduler.run_until(async { _ = stopped.await }));
    let runs_since = |since: Instant| {
        let starts = starts.lock().unwrap();
        let late = starts.iter().filter(|(_, at)| *at >= since);
        late.map(|(name, _)| name.clone()).collect::<HashSet<_>>()
    };
    patiently("all jobs run", || runs_since(Instant::now() - STANDS).len() == 36);
    for (i, node) in nodes[..3].iter().enumerate() {
        let hanging = jobs_of(node, 12);
        assert!(!hanging.is_empty() && hanging.len() < 36, "server {i} has {hanging:?}");
        let begun = Instant::now();
        node.signal("-STOP");
        let end = begun + Duration::from_secs(8);
        while Instant::now() < end {
            std::thread::sleep(Duration::from_millis(50));
            let ran = runs_since(Instant::now() - STANDS);
            let stand: Vec<usize> = (0..36)
                .filter(|job| !hanging.contains(&format!("job{job}")))
                .filter(|job| !ran.contains(&format!("job{job}")))
                .collect();
            let since = begun.elapsed();
            assert_eq!(stand, [0; 0], "the server {i} has hung for {since:?}");
        }
        node.signal("-CONT");
        patiently("all jobs run again", || runs_since(Instant::now() - STANDS).len() == 36);
    }
    drop(stop);
    runtime().block_on(running).unwrap();
}

const THIRDS: [Option<(u32, u32)>; 3] =
    [Some((0, 5_460)), Some((5_461, 10_922)), Some((10_923, 16_383))];

/// Otherwise every server refuses everything while a slot has none.
const PARTIAL: [&str; 2] = ["--cluster-require-full-coverage", "no"];

#[test]
fn jobs_of_other_servers_stand_for_two_seconds_at_most_whichever_server_hangs() {
    let Some(nodes) = clustered(THIRDS, &PARTIAL) else { return };
    others_go_on(&nodes);
}

#[test]
fn jobs_of_other_servers_stand_for_two_seconds_at_most_until_a_replica_takes_over() {
    let [a, b, c] = THIRDS;
    let Some(nodes) = clustered([a, b, c, None, None, None], &PARTIAL) else { return };
    (0..3).for_each(|i| follow(&nodes[3 + i], &nodes[i]));
    others_go_on(&nodes);
}

/// A claim at most once of what the store offers, which is to be carried out within so long.
pub(super) async fn claim(store: &Redis, name: &str, claim_id: u128, within: TimeDelta) -> Claim {
    let state = send(store, STORE_TIME, Operation::read(name)).await.unwrap().state().unwrap();
    let now = store.reschedule(Batch::new("n", STORE_TIME, &[])).await.unwrap().now;
    let (head, then) = (state.head.unwrap(), Cursor::To(None));
    let lease = Duration::from_secs(60);
    let mut claim =
        Claim::at_most_once(claim_id, state.fence, head, then, lease, Sharing::Exclusive);
    claim.not_after = Some(now + within);
    claim
}

pub(super) const STORE_TIME: TimeSource = TimeSource::Store { fallback: Time::UNIX_EPOCH };

/// One claim is of a cached record, one of a cached record that another node has changed since, and one
/// of a record that must be read first. Each has a connection of its own.
#[test]
fn a_server_that_hung_carries_out_no_claim_whose_time_is_over() {
    let Some(server) = Server::start(ON_DISK) else { return };
    let builder = || Redis::builder().timeout(Duration::from_millis(500)).history(1_000_u64);
    runtime().block_on(async {
        let other = builder().connect(server.url()).await.unwrap();
        let register = async |name: &str| {
            let first = Some(from_millis(5_000).unwrap().into());
            let register = Action::Register { definition: "once", version: 0, first };
            send(&other, STORE_TIME, Operation::new(name, register)).await.unwrap();
        };
        let mut hung = Vec::new();
        for (name, claim_id) in ["cached", "stale", "unknown"].into_iter().zip(1..) {
            let before = format!("before {name}");
            register(&before).await;
            register(name).await;
            let node = builder().connect(server.url()).await.unwrap();
            // The server knows the scripts.
            let claimed = claim(&node, &before, 100 + claim_id, TimeDelta::minutes(1)).await;
            send(&node, STORE_TIME, Operation::claim(&before, claimed)).await.unwrap();
            let reader = if name == "unknown" { &other } else { &node };
            let claim = claim(reader, name, claim_id, TimeDelta::seconds(1)).await;
            hung.push((node, name, claim));
        }
        send(&other, STORE_TIME, Operation::new("stale", Action::Pause { note: "", until: None }))
            .await
            .unwrap();
        let resume = Action::Resume;
        send(&other, STORE_TIME, Operation::new("stale", resume)).await.unwrap();
        server.signal("-STOP");
        let claims = hung.iter().map(async |(node, name, claim)| {
            send(node, STORE_TIME, Operation::claim(name, claim.clone())).await.unwrap_err()
        });
        futures::future::join_all(claims).await;
        pause(1_000).await;
        server.signal("-CONT");
        pause(300).await;
        for (_, name, _) in &hung {
            let state = send(&other, STORE_TIME, Operation::read(name)).await.unwrap();
            assert_eq!(state.state().unwrap().leases, [], "{name}");
        }
        // A repetition has a time of its own, and finds what was carried out whenever it comes.
        for (node, name, claimed) in hung {
            let mut claim = claim(&node, name, claimed.claim_id, TimeDelta::minutes(1)).await;
            let reply = send(&node, STORE_TIME, Operation::claim(name, claim.clone())).await;
            let reply = reply.unwrap();
            assert!(matches!(reply, Reply::Claimed(_)), "{name}: {reply:?}");
            claim.not_after = from_millis(6_000);
            let again = send(&node, STORE_TIME, Operation::claim(name, claim)).await.unwrap();
            assert_eq!(again, reply, "{name}");
        }
    });
}

#[test]
fn a_server_that_hung_gives_no_place_of_a_key_to_a_claim_whose_time_is_over() {
    let Some(server) = Server::start(ON_DISK) else { return };
    let builder = Redis::builder().timeout(Duration::from_millis(500));
    runtime().block_on(async {
        let node = builder.connect(server.url()).await.unwrap();
        let claim = |id, job, until| {
            let claim = ClaimKey::new(id, 2, job, Time::UNIX_EPOCH, Duration::from_secs(60));
            Operation::new("allora:key:k", Action::ClaimKey(claim.not_after(until)))
        };
        // The server knows the scripts.
        let held = send(&node, STORE_TIME, claim(1, "held", None)).await.unwrap();
        let now = node.reschedule(Batch::new("n", STORE_TIME, &[])).await.unwrap().now;
        let soon = Some(now + Duration::from_secs(1));
        server.signal("-STOP");
        send(&node, STORE_TIME, claim(2, "late", soon)).await.unwrap_err();
        pause(1_000).await;
        server.signal("-CONT");
        pause(300).await;
        let read = send(&node, STORE_TIME, Operation::read("allora:key:k")).await.unwrap();
        let state = read.state().unwrap();
        assert_eq!((state.leases.len(), state.waiters.len()), (1, 0), "{state:?}");
        // What was carried out is found whenever its claim comes, and another claim has a time of its
        // own.
        let late = now - Duration::from_secs(60);
        assert_eq!(send(&node, STORE_TIME, claim(1, "held", Some(late))).await.unwrap(), held);
        let reply = send(&node, STORE_TIME, claim(2, "late", None)).await.unwrap();
        assert!(matches!(reply, Reply::Claimed(_)), "{reply:?}");
    });
}

#[test]
fn a_subscription_does_not_wait_for_a_server_that_hangs() {
    let Some(server) = Server::start(ON_DISK) else { return };
    runtime().block_on(async {
        let store = server.place().connect(Redis::builder()).await.unwrap();
        server.signal("-STOP");
        let subscribing = store.notifier().unwrap().subscribe();
        let subscribed = tokio::time::timeout(Duration::from_millis(500), subscribing).await;
        assert!(subscribed.is_ok(), "subscribing waits for the server");
    });
}
