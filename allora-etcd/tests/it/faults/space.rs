//! A member that has used up its space.

use super::{members::Members, node::Fleet, patiently};
use crate::stores::runtime;
use allora_etcd::etcd_client::{
    AlarmAction, AlarmOptions, AlarmType, CompactionOptions, DeleteOptions,
};
use std::time::Duration;

#[test]
fn a_member_without_space_is_waited_for() {
    runtime().block_on(async {
        let Some(members) = Members::start(1, &["--quota-backend-bytes=16777216"]).await else {
            return;
        };
        let mut fleet = Fleet::new(members.urls());
        fleet.start(Duration::ZERO);
        fleet.more_ends(5).await;
        let mut client = members.client(0).await;
        let mut number = 0;
        // The alarm is raised by the write that does not fit any more.
        while client.put(format!("z/{number}"), vec![b'x'; 1 << 20], None).await.is_ok() {
            number += 1;
        }
        patiently("the node notices", async || fleet.said("StoreDown") > 0).await;
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
        fleet.more_ends(10).await;
        fleet.judge().await;
    });
}
