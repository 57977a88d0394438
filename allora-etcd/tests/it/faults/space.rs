//! Members that have used up their space, and members whose disk is full.

use super::{members::Members, node::fleet, patiently};
use crate::stores::runtime;
use allora_etcd::etcd_client::{
    AlarmAction, AlarmOptions, AlarmType, CompactionOptions, DeleteOptions,
};
use std::{fs::File, io::Write, time::Duration};

#[test]
fn nodes_wait_for_a_member_without_space() {
    runtime().block_on(async {
        let Some(members) = Members::start(1, &["--quota-backend-bytes=16777216"]).await else {
            return;
        };
        let mut fleet = fleet(members.urls());
        fleet.start(Duration::ZERO);
        fleet.more_ends(5);
        let mut client = members.client(0).await;
        let mut number = 0;
        // The alarm is raised by the write that does not fit any more.
        while client.put(format!("z/{number}"), vec![b'x'; 1 << 20], None).await.is_ok() {
            number += 1;
        }
        patiently("the node notices", async || fleet.reported("Began(StoreDown") > 0).await;
        let all = DeleteOptions::new().with_prefix();
        client.delete("z/", Some(all)).await.unwrap();
        let revision = client.status().await.unwrap().header().unwrap().revision();
        let physical = Some(CompactionOptions::new().with_physical());
        client.compact(revision, physical).await.unwrap();
        client.defragment().await.unwrap();
        let member = client.status().await.unwrap().header().unwrap().member_id();
        let mut of = AlarmOptions::new();
        of.with_member(member);
        client.alarm(AlarmAction::Deactivate, AlarmType::Nospace, Some(of)).await.unwrap();
        fleet.more_ends(10);
        fleet.judge();
    });
}

/// Fills the disk of the first member, and has everybody write until that one ends by itself: the
/// server does, when it cannot write what it has promised to.
async fn fill_up(members: &mut Members) {
    let mut ballast = File::create(members.data(0).join("ballast")).unwrap();
    let piece = vec![0; 1 << 16];
    while ballast.write_all(&piece).is_ok() {}
    let mut clients = Vec::new();
    for i in 0..members.urls().len() {
        clients.push(members.client(i).await);
    }
    let last = clients.len() - 1;
    for number in 0..300 {
        if members.has_ended(0) {
            break;
        }
        let put = clients[last].put(format!("z/{}", number % 8), vec![b'x'; 1 << 20], None);
        // Without an answer, too, it was tried.
        let _ = tokio::time::timeout(Duration::from_secs(5), put).await;
    }
    patiently("the member ends", async || members.has_ended(0)).await;
}

/// Makes room, and starts it again.
fn make_room(members: &mut Members) {
    std::fs::remove_file(members.data(0).join("ballast")).unwrap();
    members.kill(0);
    members.serve(0);
}

#[test]
fn a_cluster_goes_on_when_the_disk_of_one_member_is_full() {
    runtime().block_on(async {
        let Some(mut members) = Members::start_on_small_disk(3).await else { return };
        let fleet = fleet(members.urls()).at_work();
        fill_up(&mut members).await;
        fleet.more_ends(20);
        make_room(&mut members);
        patiently("the member is back", async || members.leader_by(0).await.is_some()).await;
        fleet.more_ends(5);
        fleet.judge();
    });
}

#[test]
fn nodes_wait_for_a_member_whose_disk_was_full() {
    runtime().block_on(async {
        let Some(mut members) = Members::start_on_small_disk(1).await else { return };
        let mut fleet = fleet(members.urls());
        fleet.start(Duration::ZERO);
        fleet.more_ends(5);
        fill_up(&mut members).await;
        patiently("the node notices", async || fleet.reported("Began(StoreDown") > 0).await;
        let up = fleet.reported("Ended(StoreDown");
        make_room(&mut members);
        patiently("the node is back", async || fleet.reported("Ended(StoreDown") > up).await;
        fleet.more_ends(10);
        fleet.judge();
    });
}
