//! The reader of the named calendars of the stored schedules that this node runs. It reads a
//! calendar when a schedule first names it, and again at each heartbeat and after a notification.
//!
//! Many schedules share a list of holidays, which changes after their next occurrences are planned.
//! So a definition keeps only the name of its calendar. Each node resolves the name, and asks again
//! when an occurrence is due. For one heartbeat, two nodes may have different versions; the one
//! that claims decides.
//!
//! The reader has requests of its own, so no claim, search or end waits for them. A schedule is
//! left alone until its calendar is read. If a calendar cannot be read again, the node keeps the
//! version that it knows.

use super::calendar_cache::Scope;
use crate::{
    backend::Operation,
    error::Result,
    job::Placement,
    planner::Input,
    scheduler::{
        monotonic::later,
        node::{Node, Stop},
        store_request::{MIN_BACKOFF, send},
    },
    stored::{AT_ONCE, record_of},
};
use futures::future::{Either, pending, select};
use std::{pin::pin, sync::Arc, time::Instant};

/// Reads calendars until the scheduler is stopped.
pub(in crate::scheduler) async fn read(node: Arc<Node>) {
    if node.router().is_empty() {
        return;
    }
    let cache = &node.calendars;
    let mut reads_all = false;
    let mut refresh_at = later(node.runtime.now(), node.config.heartbeat);
    let (mut retry_at, mut wait) = (None::<Instant>, MIN_BACKOFF);
    // A record whose read hangs must not keep the others.
    let mut at_once = AT_ONCE;
    while node.shared().stop == Stop::No {
        let now = node.runtime.now();
        reads_all |= cache.take_change();
        if refresh_at <= now {
            refresh_at = later(now, node.config.heartbeat);
            reads_all = true;
            cache.forget_unused();
        }
        let scope = match retry_at.filter(|at| *at > now) {
            Some(_) => Scope::New,
            None if reads_all => Scope::All,
            None => Scope::Unread,
        };
        let names = cache.to_read(scope);
        if names.is_empty() {
            sleep(&node, retry_at.map_or(refresh_at, |at| at.min(refresh_at))).await;
            continue;
        }
        let result = {
            let requests = pin!(read_all(&node, &names, at_once));
            match select(pin!(node.stopped(&cache.wake)), requests).await {
                Either::Left(_) => return,
                Either::Right((result, _)) => result,
            }
        };
        match result {
            Ok(()) if scope == Scope::New => {}
            Ok(()) => (reads_all, retry_at, wait, at_once) = (false, None, MIN_BACKOFF, AT_ONCE),
            // The other parts report a store that does not answer.
            Err(_) => {
                retry_at = Some(later(node.runtime.now(), wait));
                (wait, at_once) = ((wait * 2).min(node.config.heartbeat), 1);
            }
        }
    }
}

/// Reads these calendars, so many in one request. Returns the last error.
async fn read_all(node: &Node, names: &[Arc<str>], at_once: usize) -> Result {
    let mut result = Ok(());
    for names in names.chunks(at_once) {
        let records: Vec<String> = names.iter().map(|name| record_of(name)).collect();
        let reads: Vec<Operation<'_>> =
            records.iter().map(|record| Operation::read(record)).collect();
        match send(node, &reads).await {
            Ok(applied) => {
                let (is_new, learnt) = node.calendars.learn(names, applied.replies);
                if is_new {
                    // It has no destructor of the user.
                    let _ = node.shared().inboxes[Placement::OneNode].push(Input::Calendars);
                    node.claimers[Placement::OneNode].notify();
                }
                result = learnt.and(result);
            }
            Err(error) => {
                node.calendars.failed(names, &error);
                result = Err(error);
            }
        }
    }
    result
}

/// Waits until this time, or until the reader is woken. Without calendars there is nothing to read
/// again.
async fn sleep(node: &Node, until: Instant) {
    let timer = match node.calendars.is_empty() {
        true => Either::Left(pending()),
        false => Either::Right(node.runtime.sleep_until(until)),
    };
    select(timer, pin!(node.calendars.wake.notified())).await;
}
