//! Word from the store. Hints may be lost or wrong; without load, on a store that is well, they come.

use crate::world::*;
use allora_core::{
    Time,
    backend::{Change, Hint},
};
use futures::{StreamExt, future::Either, stream::BoxStream};
use std::{thread, time::Duration};

/// How long a hint may take before it counts as lost. Not a promise: only so that a test ends.
const PATIENCE: Duration = Duration::from_secs(10);

/// Waits for a hint that makes a node look at `name` by `due` at the latest.
async fn heard(hints: &mut BoxStream<'static, Hint>, name: &str, due: Option<Time>) {
    let (late, mut told) = futures::channel::oneshot::channel();
    // A runtime's timer is the fixture's; a thread works for all.
    drop(thread::spawn(move || {
        thread::park_timeout(PATIENCE);
        late.send(()).ok();
    }));
    loop {
        match futures::future::select(hints.next(), told).await {
            Either::Left((Some(hint), rest)) => {
                let right = match &hint {
                    Hint::Look => true,
                    Hint::Job(job) => job == name,
                    Hint::DueAt(at) => due.is_some_and(|due| *at <= due),
                    _ => false,
                };
                if right {
                    return;
                }
                told = rest;
            }
            Either::Left((None, _)) => panic!("the hints ended before one about {name:?} came"),
            Either::Right(_) => panic!("no hint about {name:?} came within {PATIENCE:?}"),
        }
    }
}

pub(super) async fn an_added_schedule_is_told(w: &World) {
    let other = w.join("other").await;
    let mut hints = fine(other.watch().subscribe().await);
    w.node().add(t(0), "job", "mail", t(60)).await;
    heard(&mut hints, "job", Some(t(60))).await;
}

pub(super) async fn a_trigger_is_told(w: &World) {
    w.node().register(t(0), "job", t(60)).await;
    let other = w.join("other").await;
    let mut hints = fine(other.watch().subscribe().await);
    w.node().trigger(t(30), "job", "id").await;
    heard(&mut hints, "job", Some(t(30))).await;
}

pub(super) async fn an_edit_a_resumption_and_a_deletion_are_told(w: &World) {
    let seen = w.node().add(t(0), "job", "mail", t(600)).await;
    let other = w.join("other").await;
    let definition = Some(("every 1s", Some(t(30).into())));
    let edit = Change::Edit { edition: seen.edition, kind: None, definition, data: None };
    let mut hints = fine(other.watch().subscribe().await);
    fine(w.node().modify(t(1), "job", edit).await);
    heard(&mut hints, "job", Some(t(30))).await;
    w.node().pause(t(2), "job").await;
    let mut hints = fine(other.watch().subscribe().await);
    fine(w.node().modify(t(3), "job", Change::Resume { skip: None }).await);
    heard(&mut hints, "job", Some(t(30))).await;
    let mut hints = fine(other.watch().subscribe().await);
    w.node().delete(t(4), "job").await;
    heard(&mut hints, "job", None).await;
}

pub(super) async fn what_is_given_back_is_told(w: &World) {
    w.node().register(t(0), "job", t(60)).await;
    let run = won(w.node().lease(t(60), "job", 1).await);
    let other = w.join("other").await;
    let mut hints = fine(other.watch().subscribe().await);
    w.node().end(t(61), "job", run.fence, allora_core::backend::End::Release).await;
    heard(&mut hints, "job", Some(t(61))).await;
}

pub(super) async fn every_node_is_told(w: &World) {
    let (one, two) = (w.join("one").await, w.join("two").await);
    let mut first = fine(one.watch().subscribe().await);
    let mut second = fine(two.watch().subscribe().await);
    w.node().add(t(0), "job", "mail", t(60)).await;
    heard(&mut first, "job", Some(t(60))).await;
    heard(&mut second, "job", Some(t(60))).await;
}
