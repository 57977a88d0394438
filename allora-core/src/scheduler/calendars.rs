//! The named calendars of the stored schedules that this node runs: read when a schedule first names
//! them, and again at each heartbeat and after a notification.
//!
//! Its requests are its own: no claim, search or end waits for them. A schedule whose calendar is not read
//! yet is left alone meanwhile. A calendar that cannot be read again stays as it is known.

use super::{
    inbox::Input,
    monotonic::later,
    node::{Node, Stop},
    notify::Notify,
    store_request::{MIN_BACKOFF, OP, reschedule, within},
};
use crate::{
    backend::{Batch, Operation, Reply, TimeSource},
    error::{Error, Result},
    job::Placement,
    stored::{AT_ONCE, Definition, Found, Resolved, of_reply, record_of},
};
use futures::future::{Either, pending, select};
use std::{
    collections::HashMap,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

/// The number of heartbeats for which a calendar is kept that no schedule in memory uses.
const KEPT: u32 = 240;

/// The number of failed first reads after which its schedules are reported.
const FAILURES: u32 = 3;

/// The calendars by name.
#[derive(Debug, Default)]
pub(super) struct CalendarCache {
    cached: Mutex<Cached>,
    /// Wakes the reader: a schedule names a calendar that is not read yet, one has changed, or the
    /// scheduler stops.
    wake: Notify,
}

#[derive(Debug, Default)]
struct Cached {
    entries: HashMap<Arc<str>, Entry>,
    /// A notification has said that a calendar has changed.
    has_changed: bool,
}

/// One calendar.
#[derive(Debug, Default)]
struct Entry {
    /// The calendar, or the reason why there is none; `None` until it was read.
    found: Option<Found>,
    /// The generation of its record.
    generation: Option<i64>,
    /// The number of failed reads since the last reply, and the last error.
    failures: u32,
    error: String,
    /// The number of heartbeats since a schedule named it.
    unused: u32,
}

impl Entry {
    fn is_used(&self) -> bool {
        let is_held =
            |found: &Found| found.as_ref().is_ok_and(|calendar| Arc::strong_count(calendar) > 1);
        self.unused <= KEPT || self.found.as_ref().is_some_and(is_held)
    }
}

impl CalendarCache {
    /// The definition with its calendars. Those that are not known are read soon.
    pub(super) fn resolve(&self, definition: Definition) -> Resolved {
        let mut found = HashMap::new();
        let mut is_waiting = false;
        {
            let mut cached = self.cached();
            for name in definition.calendars() {
                if !cached.entries.contains_key(name) {
                    cached.entries.insert(name.into(), Entry::default());
                    self.wake.notify();
                }
                let Some(entry) = cached.entries.get_mut(name) else { continue };
                entry.unused = 0;
                match &entry.found {
                    Some(calendar) => drop(found.insert(name.to_owned(), calendar.clone())),
                    None if entry.failures >= FAILURES => {
                        let reason =
                            format!("the calendar {name:?} cannot be read: {}", entry.error);
                        return Resolved::Missing(reason);
                    }
                    None => is_waiting = true,
                }
            }
        }
        if is_waiting {
            return Resolved::Later;
        }
        let of_name = |name: &str| found.get(name).cloned().unwrap_or_else(|| Err(String::new()));
        match definition.with_calendars(of_name) {
            Ok(definition) => Resolved::Ready(Box::new(definition)),
            Err(error) => Resolved::Missing(error.to_string()),
        }
    }

    /// A notification says that a calendar has changed.
    pub(super) fn on_change(&self) {
        self.cached().has_changed = true;
        self.notify();
    }

    /// Wakes the reader.
    pub(super) fn notify(&self) {
        self.wake.notify();
    }

    fn is_empty(&self) -> bool {
        self.cached().entries.is_empty()
    }

    /// The calendars to read: all, those that were not read yet, or only those that were not tried yet.
    fn to_read(&self, scope: Scope) -> Vec<Arc<str>> {
        let is_in = |entry: &Entry| match scope {
            Scope::All => true,
            Scope::Unread => entry.found.is_none(),
            Scope::New => entry.found.is_none() && entry.failures == 0,
        };
        let cached = self.cached();
        let entries = cached.entries.iter().filter(|(_, entry)| is_in(entry));
        entries.map(|(name, _)| name.clone()).collect()
    }

    /// Counts a heartbeat, and forgets the calendars that no schedule uses any more.
    fn forget_unused(&self) {
        self.cached().entries.retain(|_, entry| {
            entry.unused = entry.unused.saturating_add(1);
            entry.is_used()
        });
    }

    /// Applies replies. Returns whether a calendar is new, changed or gone, and the last error.
    fn learn(&self, names: &[Arc<str>], replies: Vec<Result<Reply>>) -> (bool, Result) {
        let (mut is_new, mut result) = (false, Ok(()));
        for (name, reply) in names.iter().zip(replies) {
            let (generation, found) = match reply {
                // Only this one: it stays as it is known.
                Err(error) => {
                    self.failed(std::slice::from_ref(name), &error);
                    result = Err(error);
                    continue;
                }
                Ok(reply) => of_reply(name, &reply),
            };
            let mut cached = self.cached();
            let Some(entry) = cached.entries.get_mut(name) else { continue };
            entry.failures = 0;
            if entry.found.is_none() || entry.generation != generation {
                (entry.found, entry.generation, is_new) = (Some(found), generation, true);
            }
        }
        (is_new, result)
    }

    fn failed(&self, names: &[Arc<str>], error: &Error) {
        let mut cached = self.cached();
        for name in names {
            if let Some(entry) = cached.entries.get_mut(name) {
                entry.failures = entry.failures.saturating_add(1);
                entry.error = error.to_string();
            }
        }
    }

    fn cached(&self) -> MutexGuard<'_, Cached> {
        self.cached.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The calendars to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scope {
    /// All that are known.
    All,
    /// Those that were not read yet.
    Unread,
    /// Those that were not tried yet: a failed read waits.
    New,
}

/// Reads calendars until the scheduler is stopped.
pub(super) async fn read(node: Arc<Node>) {
    if node.router.is_empty() {
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
        reads_all |= std::mem::take(&mut cache.cached().has_changed);
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
            match select(pin!(stopped(&node)), requests).await {
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
        let time = TimeSource::Store { fallback: node.runtime.wall() };
        let batch = Batch::new(&node.id, time, &reads);
        match within(node, OP, reschedule(&*node.backend, batch)).await {
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

/// Waits until this time, or until the reader is woken. Without calendars there is nothing to read again.
async fn sleep(node: &Node, until: Instant) {
    let timer = match node.calendars.is_empty() {
        true => Either::Left(pending()),
        false => Either::Right(node.runtime.sleep_until(until)),
    };
    select(timer, pin!(node.calendars.wake.notified())).await;
}

/// Waits until the scheduler is stopped. What else wakes the reader is found after its requests.
async fn stopped(node: &Node) {
    while node.shared().stop == Stop::No {
        node.calendars.wake.notified().await;
    }
}
