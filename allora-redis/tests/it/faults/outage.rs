//! One server that is killed, frozen, emptied, or throws everybody out.

use super::node::Settings;
use crate::{
    server::{IN_MEMORY, ON_DISK, Server},
    stores::{pause, runtime, send},
};
use allora_conformance::{environment::patiently, faults::outages};
use allora_core::{
    backend::{Operation, TimeSource},
    time::from_millis,
};
use allora_redis::Redis;
use std::time::Duration;

#[test]
fn nothing_is_lost_or_doubled_when_the_server_is_killed() {
    for history in [0, 100_000] {
        let Some(mut server) = Server::start(ON_DISK) else { return };
        let fleet = Settings { history, ..Settings::of(server.place()) }.at_work();
        let away = [0, 1].map(Duration::from_secs);
        outages(fleet, &away, &mut server, Server::kill, Server::serve);
    }
}

#[test]
fn a_server_that_hangs_only_delays() {
    let Some(server) = Server::start(ON_DISK) else { return };
    let fleet = Settings::of(server.place()).at_work();
    let (down, up) = (fleet.reported("Began(StoreDown"), fleet.reported("Ended(StoreDown"));
    server.signal("-STOP");
    patiently("the nodes notice", || fleet.reported("Began(StoreDown") > down);
    // What was sent meanwhile is carried out now, when nobody waits for it any more.
    server.signal("-CONT");
    patiently("the nodes are back", || fleet.reported("Ended(StoreDown") > up);
    fleet.more_ends(10);
    fleet.judge();
}

#[test]
fn nodes_return_to_a_server_that_pauses_or_disconnects_them() {
    let Some(server) = Server::start(ON_DISK) else { return };
    let fleet = Settings::of(server.place()).at_work();
    for _ in 0..3 {
        fleet.more_ends(3);
        server.ask::<u32>(&["CLIENT", "KILL", "TYPE", "normal"]).unwrap();
        server.ask::<u32>(&["CLIENT", "KILL", "TYPE", "pubsub"]).unwrap();
    }
    fleet.more_ends(3);
    server.ask::<()>(&["CLIENT", "PAUSE", "1500", "ALL"]).unwrap();
    fleet.more_ends(10);
    server.ask::<()>(&["SCRIPT", "FLUSH"]).unwrap();
    fleet.more_ends(5);
    fleet.judge();
}

#[test]
fn a_request_after_the_server_has_closed_an_idle_connection_succeeds() {
    let Some(server) = Server::start(ON_DISK) else { return };
    let clients = || {
        let list = server.ask::<String>(&["CLIENT", "LIST", "TYPE", "normal"]).unwrap();
        list.lines().count()
    };
    let time = TimeSource::Store { fallback: from_millis(1).unwrap() };
    runtime().block_on(async {
        let store = server.place().connect(Redis::builder()).await.unwrap();
        server.ask::<()>(&["CONFIG", "SET", "timeout", "1"]).unwrap();
        for _ in 0..2 {
            send(&store, time, Operation::read("job")).await.unwrap();
            patiently("idle connections are closed", || clients() == 1);
            // The end of the connection arrives.
            pause(100).await;
            send(&store, time, Operation::read("job")).await.unwrap();
        }
    });
}

#[test]
fn a_server_that_was_emptied_is_noticed_and_jobs_in_code_are_registered_again() {
    let Some(server) = Server::start(ON_DISK) else { return };
    let mut fleet = Settings::of(server.place()).at_work();
    server.ask::<()>(&["FLUSHALL"]).unwrap();
    patiently("each node says so", || fleet.reported("was emptied") >= 2);
    patiently("jobs in code are registered again", || fleet.reported("Reregistered") >= 2);
    fleet.more_ends(5);
    fleet.stop();
}

#[test]
fn a_server_without_persistence_that_restarts_is_an_emptied_one() {
    let Some(mut server) = Server::start(IN_MEMORY) else { return };
    let mut fleet = Settings { is_ephemeral: true, ..Settings::of(server.place()) }.at_work();
    assert_eq!(fleet.reported("loses everything"), 2, "a warning of each node");
    fleet.more_ends(5);
    server.kill();
    server.serve();
    patiently("each node says so", || fleet.reported("was emptied") >= 2);
    fleet.more_ends(5);
    fleet.stop();
}

#[test]
fn nodes_wait_for_a_full_server() {
    let Some(server) = Server::start(ON_DISK) else { return };
    let fleet = Settings::of(server.place()).at_work();
    let down = fleet.reported("Began(StoreDown");
    server.ask::<()>(&["CONFIG", "SET", "maxmemory", "1"]).unwrap();
    patiently("the nodes notice", || fleet.reported("Began(StoreDown") > down);
    server.ask::<()>(&["CONFIG", "SET", "maxmemory", "0"]).unwrap();
    fleet.more_ends(10);
    fleet.judge();
}
