//! The server is killed under the nodes and comes back.

use super::{node::fleet, server::Server};
use crate::stores::Db;
use allora_conformance::faults::outages;
use std::time::Duration;

/// A server that dies twice, and stays away for longer than a lease once.
fn an_outage(db: Db) {
    let Some(mut server) = Server::start(db) else { return };
    let fleet = fleet(server.place()).at_work();
    let away = [0, 4].map(Duration::from_secs);
    outages(fleet, &away, &mut server, Server::kill, Server::serve);
}

#[test]
fn nothing_is_lost_or_doubled_when_postgres_is_killed() {
    an_outage(Db::Postgres);
}

#[test]
fn nothing_is_lost_or_doubled_when_mariadb_is_killed() {
    an_outage(Db::MySql);
}
