//! The mutex groups of a node's runs, and what is known of their locks.

use super::notify::Notify;
use crate::{backend::Occurrence, name::MUTEX};
use futures::lock::Mutex as Gate;
use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

/// The groups of this node's runs.
#[derive(Default)]
pub(crate) struct Groups {
    groups: Mutex<HashMap<Arc<str>, Weak<Group>>>,
}

pub(super) struct Group {
    /// The name of the lock's record.
    pub(super) record: Arc<str>,
    /// The gate: one run of this node sends requests for the lock, and the others wait. It guards
    /// the last known record.
    pub(super) gate: Gate<Option<Known>>,
    /// Notified when the lock is released.
    /// Or when the machine has slept.
    pub(super) notify: Notify,
    /// The time, in milliseconds, by which the lock's lease ends earlier than its holder thought.
    jump: AtomicU64,
}

impl Group {
    /// The jump of the clock since the last call.
    pub(super) fn take_jump(&self) -> Option<Duration> {
        let jump = self.jump.swap(0, Ordering::AcqRel);
        (jump > 0).then(|| Duration::from_millis(jump))
    }
}

/// The state of a lock that can be claimed.
#[derive(Clone, Debug)]
pub(super) struct Known {
    pub(super) fence: i64,
    pub(super) head: Occurrence,
}

impl Groups {
    /// The group of this name.
    pub(super) fn of(&self, name: &str) -> Arc<Group> {
        let mut groups = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(group) = groups.get(name).and_then(Weak::upgrade) {
            return group;
        }
        groups.retain(|_, group| group.strong_count() > 0);
        let record: Arc<str> = format!("{MUTEX}{name}").into();
        let (gate, notify, jump) = Default::default();
        let group = Arc::new(Group { record, gate, notify, jump });
        groups.insert(name.into(), Arc::downgrade(&group));
        group
    }

    /// Handles a notification about a job. Returns `true` if it is a group's lock, which is not in
    /// the planner.
    pub(crate) fn on_notification(&self, name: &str) -> bool {
        let Some(group) = name.strip_prefix(MUTEX) else { return false };
        let group = {
            let groups = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
            groups.get(group).and_then(Weak::upgrade)
        };
        if let Some(group) = group {
            group.notify.notify();
        }
        true
    }

    /// The store's clock has jumped: the holders of locks extend them.
    pub(crate) fn on_jump(&self, jump: Duration) {
        let groups: Vec<Arc<Group>> = {
            let groups = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
            groups.values().filter_map(Weak::upgrade).collect()
        };
        let jump = u64::try_from(jump.as_millis()).unwrap_or(u64::MAX / 2);
        for group in groups {
            group.jump.fetch_add(jump, Ordering::AcqRel);
            group.notify.notify();
        }
    }
}
