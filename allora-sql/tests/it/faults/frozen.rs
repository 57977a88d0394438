//! A node that is frozen in the middle of a write, as seen by the others.

use super::cut::before;
use crate::{
    calls::{STORE, change, create},
    stores::{Db, Place, on, pause, runtime},
};
use allora_conformance::{
    environment::patiently,
    faults::{Node, Proxy},
};
use allora_core::{
    Runtime as _,
    backend::{Action, NewSchedule},
    runtime::Tokio,
};
use std::time::Duration;

const TEST: &str = "faults::frozen::a_node_writes_until_it_is_frozen";

/// The longest time for which a frozen node may keep others from its record. The machine may be slow.
const LONGEST: Duration = Duration::from_secs(20);

/// In a process of its own: writes one record without end.
#[test]
fn a_node_writes_until_it_is_frozen() {
    let Some([url, prefix]) = Node::values(["URL", "PREFIX"]) else { return };
    runtime().block_on(async {
        let place = Place { url, prefix, folder: None };
        let builder = place.builder().history(1_000).connections(1);
        let sql = builder.connect(&place.url).await.unwrap();
        for i in 0_u64.. {
            let note = i.to_string();
            change(&sql, "a", Action::Pause { note: &note }, STORE).await.unwrap();
        }
    });
}

/// Freezes a node after each number of replies that a write consists of.
async fn others_write_on(place: Place) {
    let direct = place.builder().history(1_000).connect(&place.url).await.unwrap();
    create(&direct, "a", NewSchedule::new("k", "d", None), STORE).await.unwrap();
    let clock = Tokio::current().unwrap();
    for replies in 0..6 {
        let (proxy, through) = before(&place);
        let values = [("URL", through.url.clone()), ("PREFIX", place.prefix.clone())];
        let mut node = Node::start(TEST, &values);
        let paused = async || {
            let state = crate::calls::get(&direct, "a").await.unwrap();
            state.paused.map(|pause| pause.note)
        };
        let first = paused().await;
        while paused().await == first {
            pause(20).await;
        }
        proxy.fall_silent_after(replies);
        tokio::task::block_in_place(|| patiently("the line is silent", || proxy.is_silent()));
        node.signal("-STOP");
        let since = clock.now();
        while let Err(error) = change(&direct, "a", Action::Pause { note: "b" }, STORE).await {
            assert!(clock.now() - since < LONGEST, "after {replies} replies: {error:?}");
        }
        proxy.fall_silent_after(Proxy::NEVER);
        node.kill();
    }
}

mod a_node_that_is_frozen_in_a_write_keeps_no_other_from_its_record {
    use super::*;

    #[test]
    fn postgres() {
        on(Db::Postgres, others_write_on);
    }

    #[test]
    fn mysql() {
        on(Db::MySql, others_write_on);
    }
}
