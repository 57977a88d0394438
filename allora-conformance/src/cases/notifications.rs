//! Notifications from the store. They may be lost or wrong; without load, a healthy store delivers
//! them.

use crate::cluster::*;
use allora_core::backend::Replan;
use allora_core::{
    Time,
    backend::{Action, CancelScope, Notification},
};
use futures::{StreamExt, future::Either, stream::BoxStream};
use std::{thread, time::Duration};

/// Time after which a notification counts as lost. Not a promise: only so that a test ends.
const PATIENCE: Duration = Duration::from_secs(60);

/// Waits for a notification that makes a node read `name` by `due` at the latest.
async fn heard(
    notifications: &mut BoxStream<'static, Notification>,
    name: &str,
    due: Option<Time>,
) {
    let (late, mut timeout) = futures::channel::oneshot::channel();
    // A runtime's timer is the fixture's; a thread works for all.
    drop(thread::spawn(move || {
        thread::park_timeout(PATIENCE);
        late.send(()).ok();
    }));
    loop {
        match futures::future::select(notifications.next(), timeout).await {
            Either::Left((Some(notification), rest)) => {
                let right = match &notification {
                    Notification::Changed => true,
                    Notification::Job(job) | Notification::Cancel(job) => job == name,
                    Notification::DueAt(at) => due.is_some_and(|due| *at <= due),
                    _ => false,
                };
                if right {
                    return;
                }
                timeout = rest;
            }
            Either::Left((None, _)) => panic!("the notifications ended before one about {name:?}"),
            Either::Right(_) => panic!("no notification about {name:?} within {PATIENCE:?}"),
        }
    }
}

pub(super) async fn a_created_schedule_notifies(w: &Cluster) {
    let other = w.join("other").await;
    let mut notifications = fine(other.notifier().subscribe().await);
    w.node().add(t(0), "job", "mail", t(60)).await;
    heard(&mut notifications, "job", Some(t(60))).await;
}

pub(super) async fn a_trigger_notifies(w: &Cluster) {
    w.node().register(t(0), "job", t(60)).await;
    let other = w.join("other").await;
    let mut notifications = fine(other.notifier().subscribe().await);
    w.node().trigger(t(30), "job", "id").await;
    heard(&mut notifications, "job", Some(t(30))).await;
}

pub(super) async fn an_edit_a_resumption_and_a_deletion_notify(w: &Cluster) {
    let seen = w.node().add(t(0), "job", "mail", t(600)).await;
    let other = w.join("other").await;
    let plan = Replan::new(seen.next, Some(t(30).into()));
    let definition = Some(("every 1s", plan));
    let edit = edit(seen.generation, None, definition, None);
    let mut notifications = fine(other.notifier().subscribe().await);
    fine(w.node().modify(t(1), "job", edit).await);
    heard(&mut notifications, "job", Some(t(30))).await;
    w.node().pause(t(2), "job").await;
    let mut notifications = fine(other.notifier().subscribe().await);
    w.node().resume(t(3), "job").await;
    heard(&mut notifications, "job", Some(t(30))).await;
    let mut notifications = fine(other.notifier().subscribe().await);
    w.node().delete(t(4), "job").await;
    heard(&mut notifications, "job", None).await;
}

pub(super) async fn a_release_notifies(w: &Cluster) {
    w.node().register(t(0), "job", t(60)).await;
    let run = won(w.node().lease(t(60), "job", 1).await);
    let other = w.join("other").await;
    let mut notifications = fine(other.notifier().subscribe().await);
    w.node().end(t(61), "job", run.fence, RunAction::Release).await;
    heard(&mut notifications, "job", Some(t(61))).await;
}

pub(super) async fn every_node_is_notified(w: &Cluster) {
    let (one, two) = (w.join("one").await, w.join("two").await);
    let mut first = fine(one.notifier().subscribe().await);
    let mut second = fine(two.notifier().subscribe().await);
    w.node().add(t(0), "job", "mail", t(60)).await;
    heard(&mut first, "job", Some(t(60))).await;
    heard(&mut second, "job", Some(t(60))).await;
}

pub(super) async fn a_cancellation_notifies(w: &Cluster) {
    let other = w.join("other").await;
    for name in ["cancelled", "deleted"] {
        w.node().register(t(0), name, t(60)).await;
        let run = won(w.node().lease(t(60), name, 1).await);
        let mut notifications = fine(other.notifier().subscribe().await);
        if name == "deleted" {
            w.node().delete(t(61), name).await;
        } else {
            let cancel = Action::Cancel(CancelScope::Run(run.fence));
            fine(w.node().modify(t(61), name, cancel).await);
        }
        heard(&mut notifications, name, None).await;
    }
}
