//! Failovers: by sentinels, and in a cluster.

use super::{
    hang::{STORE_TIME, claim},
    node::Settings,
};
use crate::{
    server::{ON_DISK, Server},
    stores::{Kind, Place, create, runtime, send},
};
use allora_conformance::{
    environment::{free_ports, patiently},
    faults::{Fleet, LEAST, ONCE},
};
use allora_core::{
    Backend, ErrorKind,
    backend::{Action, Claim, NewSchedule, Operation, Reply, TimeSource},
    time::from_millis,
};
use allora_redis::Redis;
use chrono::TimeDelta;
use std::time::{Duration, Instant};

/// A primary with further arguments, its replica, and three sentinels that have noticed both.
pub(super) fn watched(arguments: &[&str]) -> Option<(Server, Server, Vec<Server>)> {
    let primary = Server::start(&[ON_DISK, arguments].concat())?;
    let port = primary.port.to_string();
    let replica = Server::start(&[ON_DISK, &["--replicaof", "127.0.0.1", &port]].concat())?;
    let sentinels: Vec<Server> = (0..3)
        .map(|_| {
            let sentinel = Server::start_sentinel(&format!(
                "sentinel monitor allora 127.0.0.1 {port} 2\n\
                 sentinel down-after-milliseconds allora 1000\n\
                 sentinel failover-timeout allora 3000\n"
            ));
            sentinel.unwrap()
        })
        .collect();
    patiently("the sentinels know each other and the replica", || {
        let ready = |sentinel: &Server| {
            let agreed = sentinel.ask::<String>(&["SENTINEL", "CKQUORUM", "allora"]);
            let replicas = sentinel.ask::<Vec<redis::Value>>(&["SENTINEL", "REPLICAS", "allora"]);
            agreed.is_ok_and(|said| said.starts_with("OK 3"))
                && replicas.is_ok_and(|replicas| replicas.len() == 1)
        };
        let follows = replica.ask::<String>(&["INFO", "replication"]);
        sentinels.iter().all(ready)
            && follows.is_ok_and(|told| told.contains("master_link_status:up"))
    });
    Some((primary, replica, sentinels))
}

#[test]
fn nodes_follow_the_sentinels_to_another_primary() {
    let Some((mut primary, replica, sentinels)) = watched(&[]) else { return };
    let urls: Vec<String> = sentinels.iter().map(Server::url).collect();
    let place = Place { kind: Kind::Sentinel, urls, prefix: "allora".into(), shards: 1 };
    // Every take is on the replica before its run starts, so that no take is forgotten here: there
    // is but one replica, and nobody is cut off.
    let mut fleet = Settings { replicas: 1, ..Settings::of(place) }.at_work();
    // It throws its clients out when it changes its role.
    let has_role = |server: &Server, role: &str| {
        let told = server.ask::<String>(&["INFO", "replication"]);
        told.is_ok_and(|told| told.contains(role))
    };
    fleet.fails_over(|| {
        primary.kill();
        patiently("the replica is the primary", || has_role(&replica, "role:master"));
        // It has no replica, and `WAIT` is not content: nothing starts. Until the sentinels make a replica
        // of the one that comes back, it takes ends that it will forget.
        primary.serve();
        patiently("the former primary is a replica", || has_role(&primary, "role:slave"));
    });
    fleet.more_ends(10);
    fleet.judge();
}

/// Two primaries with the same data; most sentinels have not heard of the failover.
#[test]
#[expect(clippy::disallowed_methods, reason = "this test waits for other processes")]
fn a_granted_claim_is_not_denied_by_the_former_primary_while_a_sentinel_is_silent() {
    let Some(former) = Server::start(ON_DISK) else { return };
    let follows = ["--replicaof", "127.0.0.1", &former.port.to_string()];
    let primary = Server::start(&[ON_DISK, &follows].concat()).unwrap();
    let builder = || Redis::builder().timeout(Duration::from_secs(2)).wait_replicas(1);
    runtime().block_on(async {
        let other = former.place().connect(builder()).await.unwrap();
        let first = Some(from_millis(5_000).unwrap().into());
        let register = Action::Register { definition: "once", version: 0, first };
        send(&other, STORE_TIME, Operation::new("a", register)).await.unwrap();
        patiently("the replica has it", || {
            primary.ask::<u32>(&["EXISTS", "{allora}:state"]).is_ok_and(|count| count == 1)
        });
        primary.ask::<()>(&["REPLICAOF", "NO", "ONE"]).unwrap();
        // From now on the sentinels hear nothing of each other.
        let sentinels = [(&primary, 1), (&former, 0), (&former, 0)].map(|(server, epoch)| {
            let port = server.port;
            let settings = format!(
                "sentinel monitor allora 127.0.0.1 {port} 2\nsentinel config-epoch allora {epoch}\n"
            );
            Server::start_sentinel(&settings).unwrap()
        });
        let urls = sentinels.iter().map(Server::url).collect();
        let place = Place { kind: Kind::Sentinel, urls, prefix: "allora".into(), shards: 1 };
        let node = place.connect(builder()).await.unwrap();
        let (ours, theirs) = (
            claim(&node, "a", 1, TimeDelta::minutes(1)).await,
            claim(&other, "a", 2, TimeDelta::minutes(1)).await,
        );
        let claimed = async |store: &Redis, claim: &Claim| {
            send(store, STORE_TIME, Operation::claim("a", claim.clone())).await
        };
        // Each primary grants one, and has no replica that could confirm it.
        for (store, claim) in [(&node, &ours), (&other, &theirs)] {
            let error = claimed(store, claim).await.unwrap_err();
            assert!(error.to_string().contains("0 of 1 replicas"), "{error}");
        }
        let [mut knowing, ..] = sentinels;
        knowing.kill();
        let silent = Instant::now();
        while silent.elapsed() < Duration::from_secs(5) {
            let reply = claimed(&node, &ours).await;
            assert!(reply.is_err(), "after {:?}: {reply:?}", silent.elapsed());
        }
        // They are believed at last: the failover is forgotten.
        let denied = loop {
            match claimed(&node, &ours).await {
                Ok(reply) => break reply,
                Err(error) => assert!(silent.elapsed() < Duration::from_secs(60), "{error}"),
            }
        };
        assert!(matches!(denied, Reply::State(_)), "{denied:?}");
    });
}

#[test]
fn without_replicas_to_confirm_nothing_starts() {
    let Some(server) = Server::start(ON_DISK) else { return };
    let settings = Settings { replicas: 1, ..Settings::of(server.place()) };
    let mut fleet = Fleet::new(settings, Duration::from_millis(100));
    fleet.start(Duration::ZERO);
    patiently("the nodes say why", || fleet.reported("0 of 1 replicas") > 0);
    fleet.stop();
    assert!([LEAST, ONCE].iter().all(|job| fleet.runs(job).0.is_empty()));
}

/// Nodes of a cluster that know each other, with further arguments; each has the slots of its range,
/// if it has one.
pub(super) fn clustered<const N: usize>(
    slots: [Option<(u32, u32)>; N],
    arguments: &[&str],
) -> Option<Vec<Server>> {
    let (ports, buses) = (free_ports::<N>(), free_ports::<N>());
    let nodes = ports.iter().zip(buses).map(|(port, bus)| {
        let bus = bus.to_string();
        let words = ["--cluster-enabled", "yes", "--cluster-port", &bus];
        // A node that gives its last slot away stays a primary.
        let stays = ["--cluster-allow-replica-migration", "no"];
        let fails = ["--cluster-node-timeout", "1000", "--cluster-replica-validity-factor", "0"];
        Server::start_at(*port, &[&words, &stays[..], &fails, ON_DISK, arguments].concat())
    });
    let nodes: Vec<Server> = nodes.collect::<Option<_>>()?;
    for (node, range) in nodes.iter().zip(slots) {
        if let Some((first, last)) = range {
            let (first, last) = (first.to_string(), last.to_string());
            node.ask::<()>(&["CLUSTER", "ADDSLOTSRANGE", &first, &last]).unwrap();
        }
    }
    let meet = || {
        for (port, bus) in ports.iter().zip(buses).skip(1) {
            let (port, bus) = (port.to_string(), bus.to_string());
            nodes[0].ask::<()>(&["CLUSTER", "MEET", "127.0.0.1", &port, &bus]).unwrap();
        }
    };
    let all = format!("cluster_known_nodes:{N}");
    let knows = |node: &Server| {
        let info: String = node.ask(&["CLUSTER", "INFO"]).unwrap();
        info.contains("cluster_state:ok") && info.contains(&all)
    };
    // A node forgets a meeting that takes longer than its time limit, as on a busy machine.
    let mut looks = 0;
    patiently("the nodes of the cluster know each other", || {
        if looks % 100 == 0 {
            meet();
        }
        looks += 1;
        nodes.iter().all(knows)
    });
    Some(nodes)
}

pub(super) fn place(nodes: &[Server]) -> Place {
    let urls = nodes.iter().map(Server::url).collect();
    Place { kind: Kind::Cluster, urls, prefix: "allora".into(), shards: 1 }
}

#[test]
fn nodes_follow_a_cluster_to_the_replica_of_a_killed_primary() {
    // The first node has all slots but two, so that there are three to elect the replica.
    let slots = [Some((0, 16_381)), Some((16_382, 16_382)), Some((16_383, 16_383)), None];
    let Some(mut nodes) = clustered(slots, &[]) else { return };
    let primary = nodes[0].ask::<String>(&["CLUSTER", "MYID"]).unwrap();
    patiently("the last node is a replica", || {
        nodes[3].ask::<()>(&["CLUSTER", "REPLICATE", &primary]).is_ok()
    });
    let told = |node: &Server, what: &str| {
        node.ask::<String>(&["INFO", "replication"]).is_ok_and(|told| told.contains(what))
    };
    patiently("it follows", || told(&nodes[3], "master_link_status:up"));
    // As with sentinels: no take is forgotten, since the only replica has every one.
    let mut fleet = Settings { replicas: 1, ..Settings::of(place(&nodes)) }.at_work();
    fleet.fails_over(|| {
        nodes[0].kill();
        patiently("the replica is the primary", || told(&nodes[3], "role:master"));
        // It comes back as a replica, and until then nothing starts.
        nodes[0].serve();
        patiently("the former primary is a replica", || told(&nodes[0], "role:slave"));
    });
    fleet.more_ends(10);
    assert!(told(&nodes[0], "role:slave"), "the killed one is not primary again");
    fleet.judge();
}

#[test]
fn a_call_while_its_slot_is_in_two_places_waits_until_it_is_in_one() {
    let Some(nodes) = clustered([Some((0, 16_383)), None], &[]) else { return };
    let [one, two] = [&nodes[0], &nodes[1]];
    runtime().block_on(async {
        let builder = Redis::builder().timeout(Duration::from_secs(20));
        let store = place(&nodes).connect(builder).await.unwrap();
        let now = TimeSource::Fixed(from_millis(5_000).unwrap());
        create(&store, now, "a", NewSchedule::new("mail", "def", None)).await;
        let moving = Moving::begin(one, two, "{allora}");
        moving.one_key("{allora}:state");
        let asked = runtime().spawn(async move { store.queries().unwrap().get("a").await });
        let refused = |server: &Server| {
            server.ask::<String>(&["INFO", "errorstats"]).unwrap().contains("errorstat_TRYAGAIN")
        };
        // The runtime has other threads: the call goes on while this one waits.
        patiently("the call fails with TRYAGAIN", || refused(one) || refused(two));
        moving.end();
        assert_eq!(asked.await.unwrap().unwrap().kind, "mail");
    });
}

#[test]
fn jobs_whose_key_has_moved_before_its_slot_are_readable_again_after_the_move() {
    let Some(nodes) = clustered([Some((0, 16_383)), None], &[]) else { return };
    runtime().block_on(async {
        let builder = Redis::builder().timeout(Duration::from_secs(2));
        let store = place(&nodes).connect(builder).await.unwrap();
        let now = TimeSource::Fixed(from_millis(5_000).unwrap());
        create(&store, now, "a", NewSchedule::new("mail", "def", None)).await;
        let moving = Moving::begin(&nodes[0], &nodes[1], "{allora}");
        moving.one_key("{allora}:definitions");
        let mut texts = Vec::new();
        let is_said = |text: &String| text.contains("moving") && text.contains(&nodes[0].url());
        // The last attempt of a call has no reply if its time is over before.
        while !texts.iter().any(is_said) {
            let error = store.queries().unwrap().get("a").await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
            texts.push(error.to_string());
            assert!(texts.len() < 10, "{texts:?}");
        }
        moving.end();
        assert_eq!(store.queries().unwrap().get("a").await.unwrap().kind, "mail");
    });
}

#[test]
fn a_cluster_whose_slots_move_goes_on() {
    let Some(nodes) = clustered([Some((0, 16_383)), None], &[]) else { return };
    let [one, two] = [&nodes[0], &nodes[1]];
    let fleet = Settings::of(place(&nodes)).at_work();
    Moving::begin(one, two, "{allora}").end();
    fleet.more_ends(10);
    Moving::begin(two, one, "{allora}").end();
    fleet.more_ends(10);
    fleet.judge();
}

/// A slot that moves while it is in use, a key at a time.
struct Moving<'a> {
    from: &'a Server,
    to: &'a Server,
    slot: String,
    target: String,
}

impl<'a> Moving<'a> {
    /// Begins to move the slot of this key.
    fn begin(from: &'a Server, to: &'a Server, key: &str) -> Self {
        let slot: u64 = from.ask(&["CLUSTER", "KEYSLOT", key]).unwrap();
        let slot = slot.to_string();
        let id = |server: &Server| server.ask::<String>(&["CLUSTER", "MYID"]).unwrap();
        let (source, target) = (id(from), id(to));
        to.ask::<()>(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &source]).unwrap();
        from.ask::<()>(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &target]).unwrap();
        Self { from, to, slot, target }
    }

    fn one_key(&self, key: &str) {
        let port = self.to.port.to_string();
        let moved = self.from.ask::<()>(&["MIGRATE", "127.0.0.1", &port, key, "0", "30000"]);
        moved.unwrap();
    }

    /// Moves what is left.
    fn end(self) {
        loop {
            let keys = ["CLUSTER", "GETKEYSINSLOT", &self.slot, "1"];
            let keys: Vec<String> = self.from.ask(&keys).unwrap();
            let Some(key) = keys.first() else { break };
            self.one_key(key);
        }
        for server in [self.to, self.from] {
            server.ask::<()>(&["CLUSTER", "SETSLOT", &self.slot, "NODE", &self.target]).unwrap();
        }
    }
}
