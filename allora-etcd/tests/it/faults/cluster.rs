//! A cluster of three whose members are killed, frozen and cut off.

use super::{
    members::Members,
    node::{Cluster, fleet},
    patiently,
    proxy::Proxy,
};
use crate::stores::{now, pause, runtime};
use allora_conformance::faults::{Fleet, outages};
use allora_core::{
    Backend, ErrorKind, Time,
    backend::{Batch, Operation, Outcome, TimeSource},
};
use allora_etcd::{Etcd, etcd_client::CompactionOptions};
use std::time::Duration;

/// Three members, and two nodes that are at work.
async fn at_work(count: usize) -> Option<(Members, Fleet<Cluster>)> {
    let members = Members::start(count, &[]).await?;
    let fleet = fleet(members.urls()).at_work();
    Some((members, fleet))
}

#[test]
fn the_leader_is_killed_again_and_again() {
    runtime().block_on(async {
        let Some((mut members, fleet)) = at_work(3).await else { return };
        for _ in 0..4 {
            let leader = members.leader().await;
            members.kill(leader);
            fleet.more_ends(10);
            members.serve(leader);
            fleet.more_ends(5);
        }
        fleet.judge();
    });
}

#[test]
fn a_leader_that_hangs_for_nine_seconds_costs_no_run() {
    runtime().block_on(async {
        let Some(members) = Members::start(3, &[]).await else { return };
        // A busy machine may need more than the rest of a shorter lease to elect another leader.
        let fleet = fleet(members.urls()).lease(Duration::from_secs(60)).at_work();
        let leader = members.leader().await;
        members.signal(leader, "-STOP");
        let begun = now();
        fleet.more_ends(10);
        while begun.elapsed() < Duration::from_secs(9) {
            pause(50).await;
        }
        fleet.more_ends(5);
        members.signal(leader, "-CONT");
        fleet.more_ends(10);
        let history = fleet.judge();
        let given_up = [Outcome::Lost, Outcome::Expired];
        assert_eq!(history.iter().find(|entry| given_up.contains(&entry.outcome)), None);
    });
}

#[test]
fn nodes_leave_a_follower_that_hangs() {
    runtime().block_on(async {
        let Some((members, fleet)) = at_work(3).await else { return };
        let leader = members.leader().await;
        for follower in (0..3).filter(|i| *i != leader) {
            members.signal(follower, "-STOP");
            fleet.more_ends(10);
            members.signal(follower, "-CONT");
            fleet.more_ends(5);
        }
        fleet.judge();
    });
}

#[test]
fn nodes_leave_an_unreachable_member_and_return_after_they_were_cut_off() {
    runtime().block_on(async {
        let Some(members) = Members::start(3, &[]).await else { return };
        let mut proxies = Vec::new();
        for i in 0..3 {
            proxies.push(Proxy::to(members.port(i)).await);
        }
        let urls: Vec<String> = proxies.iter().map(Proxy::url).collect();
        let fleet = fleet(urls).at_work();
        for proxy in &proxies {
            proxy.cut(true);
            fleet.more_ends(5);
            proxy.cut(false);
        }
        let down = fleet.reported("Began(StoreDown");
        proxies.iter().for_each(|proxy| proxy.cut(true));
        patiently("the nodes notice", async || fleet.reported("Began(StoreDown") > down).await;
        pause(5_000).await;
        let up = fleet.reported("Ended(StoreDown");
        proxies.iter().for_each(|proxy| proxy.cut(false));
        patiently("the nodes are back", async || fleet.reported("Ended(StoreDown") > up).await;
        fleet.more_ends(10);
        fleet.judge();
    });
}

#[test]
fn all_members_are_killed_and_come_back_with_their_data() {
    runtime().block_on(async {
        for count in [1, 3] {
            let Some((mut members, fleet)) = at_work(count).await else { return };
            let kill = |members: &mut Members| (0..count).for_each(|i| members.kill(i));
            let serve = |members: &mut Members| (0..count).for_each(|i| members.serve(i));
            outages(fleet, &[Duration::ZERO; 2], &mut members, kill, serve);
        }
    });
}

#[test]
fn without_a_majority_the_reply_is_a_quick_unavailable() {
    runtime().block_on(async {
        let Some((mut members, fleet)) = at_work(3).await else { return };
        let store = Etcd::builder().connect(members.urls()).await.unwrap();
        let operations = [Operation::read("missing")];
        let request = Batch::new("n", TimeSource::Fixed(Time::UNIX_EPOCH), &operations);
        patiently("it answers", async || store.reschedule(request).await.is_ok()).await;
        let leader = members.leader().await;
        let gone: Vec<usize> = (0..3).filter(|i| *i != leader).collect();
        gone.iter().for_each(|i| members.kill(*i));
        for _ in 0..5 {
            let begun = now();
            let error = store.reschedule(request).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
            // A call's deadline is one second; the machine may be busy.
            assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
        }
        gone.iter().for_each(|i| members.serve(*i));
        patiently("it answers again", async || store.reschedule(request).await.is_ok()).await;
        fleet.more_ends(10);
        fleet.judge();
    });
}

#[test]
fn compaction_and_defragmentation_disturb_no_node() {
    runtime().block_on(async {
        let Some((members, fleet)) = at_work(3).await else { return };
        for turn in 0..9 {
            let mut client = members.client(turn % 3).await;
            let seen = client.status().await.unwrap().header().unwrap().revision();
            let physical = Some(CompactionOptions::new().with_physical());
            client.compact(seen, physical).await.unwrap();
            client.defragment().await.unwrap();
            fleet.more_ends(3);
        }
        fleet.judge();
    });
}
