//! One server that is killed, frozen, emptied, or throws everybody out.

use super::fleet::{Fleet, pause};
use crate::server::{IN_MEMORY, ON_DISK, Server, patiently};
use allora_redis::{Builder, Redis};
use std::time::Duration;

/// Of a server that is on this machine.
fn builder() -> Builder {
    Redis::builder().timeout(Duration::from_secs(2))
}

#[test]
fn nothing_is_lost_or_doubled_when_the_server_is_killed() {
    for history in [0, 100_000] {
        let Some(mut server) = Server::start(ON_DISK) else { return };
        let fleet = Fleet::start(&server.place(), &builder().history(history));
        fleet.more_ends(5);
        for away in [0, 1_000] {
            let (down, up) = (fleet.said("StoreDown"), fleet.said("StoreUp"));
            server.kill();
            patiently("the nodes notice", || fleet.said("StoreDown") > down);
            pause(away);
            server.serve();
            patiently("the nodes are back", || fleet.said("StoreUp") > up);
            fleet.more_ends(10);
        }
        fleet.stop_and_judge();
    }
}

#[test]
fn a_server_that_hangs_delays_and_nothing_else() {
    let Some(server) = Server::start(ON_DISK) else { return };
    let fleet = Fleet::start(&server.place(), &builder());
    fleet.more_ends(5);
    let (down, up) = (fleet.said("StoreDown"), fleet.said("StoreUp"));
    server.signal("-STOP");
    patiently("the nodes notice", || fleet.said("StoreDown") > down);
    // What was sent meanwhile is carried out now, when nobody waits for it any more.
    server.signal("-CONT");
    patiently("the nodes are back", || fleet.said("StoreUp") > up);
    fleet.more_ends(10);
    fleet.stop_and_judge();
}

#[test]
fn a_server_that_pauses_its_clients_or_throws_them_out_is_come_back_to() {
    let Some(server) = Server::start(ON_DISK) else { return };
    let fleet = Fleet::start(&server.place(), &builder());
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
    fleet.stop_and_judge();
}

#[test]
fn a_server_that_was_emptied_is_noticed_and_jobs_in_code_are_registered_again() {
    let Some(server) = Server::start(ON_DISK) else { return };
    let mut fleet = Fleet::start(&server.place(), &builder());
    fleet.more_ends(5);
    server.ask::<()>(&["FLUSHALL"]).unwrap();
    patiently("each node says so", || fleet.said("was emptied") >= 2);
    patiently("jobs in code are registered again", || fleet.said("Reregistered") >= 2);
    fleet.more_ends(5);
    fleet.stop();
}

#[test]
fn a_server_without_persistence_that_restarts_is_an_emptied_one() {
    let Some(mut server) = Server::start(IN_MEMORY) else { return };
    let mut fleet = Fleet::start(&server.place(), &builder().ephemeral());
    assert_eq!(fleet.said("loses everything"), 2, "a warning of each node");
    fleet.more_ends(5);
    server.kill();
    server.serve();
    patiently("each node says so", || fleet.said("was emptied") >= 2);
    fleet.more_ends(5);
    fleet.stop();
}

#[test]
fn a_full_server_is_waited_for() {
    let Some(server) = Server::start(ON_DISK) else { return };
    let fleet = Fleet::start(&server.place(), &builder());
    fleet.more_ends(5);
    let down = fleet.said("StoreDown");
    server.ask::<()>(&["CONFIG", "SET", "maxmemory", "1"]).unwrap();
    patiently("the nodes notice", || fleet.said("StoreDown") > down);
    server.ask::<()>(&["CONFIG", "SET", "maxmemory", "0"]).unwrap();
    fleet.more_ends(10);
    fleet.stop_and_judge();
}
