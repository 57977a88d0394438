//! The named calendars that this node knows, and those that it still has to read.

use crate::{
    backend::Reply,
    error::{Error, Result},
    notify::Notify,
    stored::{Definition, Found, Resolved, of_reply},
};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// The number of heartbeats for which a calendar is kept that no schedule in memory uses.
const KEPT: u32 = 240;

/// The number of failed first reads after which its schedules are reported.
const FAILURES: u32 = 3;

/// The calendars by name.
#[derive(Debug, Default)]
pub(in crate::scheduler) struct CalendarCache {
    cached: Mutex<Cached>,
    /// Wakes the reader: a schedule names a calendar that is not read yet, one has changed, or the
    /// scheduler stops.
    pub(in crate::scheduler) wake: Notify,
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
    pub(in crate::scheduler) fn resolve(&self, definition: Definition) -> Resolved {
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
    pub(in crate::scheduler) fn on_change(&self) {
        self.cached().has_changed = true;
        self.notify();
    }

    /// `true` if a notification has said so since the last call.
    pub(in crate::scheduler) fn take_change(&self) -> bool {
        std::mem::take(&mut self.cached().has_changed)
    }

    /// Wakes the reader.
    pub(in crate::scheduler) fn notify(&self) {
        self.wake.notify();
    }

    pub(in crate::scheduler) fn is_empty(&self) -> bool {
        self.cached().entries.is_empty()
    }

    /// The calendars to read: all, those that were not read yet, or only those that were not tried yet.
    pub(in crate::scheduler) fn to_read(&self, scope: Scope) -> Vec<Arc<str>> {
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
    pub(in crate::scheduler) fn forget_unused(&self) {
        self.cached().entries.retain(|_, entry| {
            entry.unused = entry.unused.saturating_add(1);
            entry.is_used()
        });
    }

    /// Applies replies. Returns whether a calendar is new, changed or gone, and the last error.
    pub(in crate::scheduler) fn learn(
        &self,
        names: &[Arc<str>],
        replies: Vec<Result<Reply>>,
    ) -> (bool, Result) {
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

    pub(in crate::scheduler) fn failed(&self, names: &[Arc<str>], error: &Error) {
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
pub(in crate::scheduler) enum Scope {
    /// All that are known.
    All,
    /// Those that were not read yet.
    Unread,
    /// Those that were not tried yet: a failed read waits.
    New,
}
