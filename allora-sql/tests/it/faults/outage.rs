//! The server is killed under the nodes and comes back.

use super::{node::Fleet, patiently, server::Server};
use crate::stores::Db;
use allora_conformance::faults::Node;
use std::time::Duration;

/// Two nodes and a server that dies twice, and stays away for longer than a lease once.
fn an_outage(db: Db) {
    let Some(mut server) = Server::start(db) else { return };
    let fleet = Fleet::new(server.place(), Duration::from_millis(100));
    let nodes = [0, 20].map(|ms| fleet.start(Duration::from_millis(ms)));
    fleet.more_ends(5);
    for away in [Duration::ZERO, Duration::from_secs(3)] {
        let (down, up) = (fleet.said("StoreDown"), fleet.said("StoreUp"));
        server.kill();
        patiently("the nodes notice", || fleet.said("StoreDown") > down);
        std::thread::sleep(away);
        server.serve();
        patiently("the nodes are back", || fleet.said("StoreUp") > up);
        fleet.more_ends(10);
    }
    nodes.into_iter().for_each(Node::stop);
    fleet.judge();
}

#[test]
fn nothing_is_lost_or_doubled_when_postgres_is_killed() {
    an_outage(Db::Postgres);
}

#[test]
fn nothing_is_lost_or_doubled_when_mariadb_is_killed() {
    an_outage(Db::MySql);
}
