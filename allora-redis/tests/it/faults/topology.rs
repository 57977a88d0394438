//! Failovers: by sentinels, and in a cluster.

use super::fleet::{Fleet, LEAST, ONCE};
use crate::{
    server::{ON_DISK, Server, free_ports, patiently},
    stores::{Kind, Place},
};
use allora_conformance::history::What;
use allora_redis::Redis;
use std::time::Duration;

/// The ports of a primary, its replica, and three sentinels that have noticed both.
fn watched() -> Option<(Server, Server, Vec<Server>)> {
    let primary = Server::start(ON_DISK)?;
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
    let Some((mut primary, replica, sentinels)) = watched() else { return };
    let urls: Vec<String> = sentinels.iter().map(Server::url).collect();
    let place = Place { kind: Kind::Sentinel, urls, prefix: "allora".into(), shards: 1 };
    // Every take is on the replica before its run starts, so that nothing is forgotten here: there
    // is but one replica, and nobody is cut off.
    let fleet = Fleet::start(&place, &Redis::builder().wait_replicas(1));
    fleet.more_ends(5);
    primary.kill();
    patiently("the replica is the primary", || {
        // It throws its clients out when it changes its role.
        let told = replica.ask::<String>(&["INFO", "replication"]);
        told.is_ok_and(|told| told.contains("role:master"))
    });
    // It has no replica, and `WAIT` is not content: nothing starts.
    primary.serve();
    fleet.more_ends(10);
    fleet.stop_and_judge();
}

#[test]
fn without_replicas_to_confirm_nothing_starts() {
    let Some(server) = Server::start(ON_DISK) else { return };
    let builder = Redis::builder().wait_replicas(1).timeout(Duration::from_secs(1));
    let mut fleet = Fleet::start(&server.place(), &builder);
    patiently("the nodes say why", || fleet.said("0 of 1 replicas") > 0);
    let started = |event: &allora_conformance::history::Event| {
        [LEAST, ONCE].contains(&&*event.job) && matches!(event.what, What::Start { .. })
    };
    fleet.stop();
    assert!(!fleet.log().iter().any(started));
}

#[test]
fn a_cluster_whose_slots_move_goes_on() {
    let [a, b, c, d] = free_ports();
    let arguments = |bus: u16| {
        // A node that gives its last slot away stays a primary.
        let stays = ["--cluster-allow-replica-migration", "no"];
        let words = [&["--cluster-enabled", "yes"], &stays[..], &["--cluster-port"]].concat();
        let mut words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
        words.push(bus.to_string());
        words.extend(ON_DISK.iter().map(|&word| word.to_owned()));
        words
    };
    let start = |port, bus| {
        let words = arguments(bus);
        Server::start_at(port, &words.iter().map(String::as_str).collect::<Vec<_>>())
    };
    let (Some(one), Some(two)) = (start(a, b), start(c, d)) else { return };
    one.ask::<()>(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]).unwrap();
    let (port, bus) = (c.to_string(), d.to_string());
    one.ask::<()>(&["CLUSTER", "MEET", "127.0.0.1", &port, &bus]).unwrap();
    let knows = |server: &Server| {
        let info: String = server.ask(&["CLUSTER", "INFO"]).unwrap();
        info.contains("cluster_state:ok") && info.contains("cluster_known_nodes:2")
    };
    patiently("the nodes of the cluster know each other", || knows(&one) && knows(&two));
    let place = Place {
        kind: Kind::Cluster,
        urls: vec![one.url(), two.url()],
        prefix: "allora".into(),
        shards: 1,
    };
    let fleet = Fleet::start(&place, &Redis::builder());
    fleet.more_ends(5);
    move_slot(&one, &two, "{allora}");
    fleet.more_ends(10);
    move_slot(&two, &one, "{allora}");
    fleet.more_ends(10);
    fleet.stop_and_judge();
}

/// Moves the slot of this key while it is in use, a key at a time.
fn move_slot(from: &Server, to: &Server, key: &str) {
    let slot: u64 = from.ask(&["CLUSTER", "KEYSLOT", key]).unwrap();
    let slot = slot.to_string();
    let id = |server: &Server| server.ask::<String>(&["CLUSTER", "MYID"]).unwrap();
    let (source, target) = (id(from), id(to));
    to.ask::<()>(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &source]).unwrap();
    from.ask::<()>(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &target]).unwrap();
    let port = to.port.to_string();
    loop {
        let keys: Vec<String> = from.ask(&["CLUSTER", "GETKEYSINSLOT", &slot, "1"]).unwrap();
        let Some(key) = keys.first() else { break };
        let moved = from.ask::<()>(&["MIGRATE", "127.0.0.1", &port, key, "0", "5000"]);
        moved.unwrap();
    }
    for server in [to, from] {
        server.ask::<()>(&["CLUSTER", "SETSLOT", &slot, "NODE", &target]).unwrap();
    }
}
