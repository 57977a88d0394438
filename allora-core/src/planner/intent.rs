//! What a turn of the planner asks for, and what came of it.

use super::SlotId;
use crate::{
    backend::{Act, Cursor, Next, Plan, Skip, Take, Taken},
    job::{Entry, Placement},
    time::Time,
};
use std::{sync::Arc, time::Duration};

/// What to do now.
pub(crate) struct Turn {
    /// What to ask the store.
    pub(crate) intents: Vec<Intent>,
    /// When to take the next turn, if nothing happens before.
    pub(crate) wake_at: Option<Time>,
    /// Something is due that was not asked for.
    pub(crate) more: bool,
    /// Something is due, and all slots are taken.
    pub(crate) full: bool,
}

/// One plan on its way to the store.
#[derive(Debug)]
pub(crate) struct Intent {
    pub(super) slot: SlotId,
    pub(crate) name: Arc<str>,
    pub(crate) placement: Placement,
    pub(super) what: What,
}

#[derive(Debug)]
pub(super) enum What {
    Look,
    Register { definition: String, version: u64, first: Option<Next> },
    Redefine { edition: i64, definition: String, version: u64, next: Option<Next> },
    Take { take: Take, then: Cursor, late: Duration },
    Skip(Skip),
    Reap,
}

/// A run to start.
pub(crate) struct Start {
    pub(crate) slot: SlotId,
    pub(crate) name: Arc<str>,
    pub(crate) entry: Entry,
    pub(crate) taken: Taken,
    /// Where its finish moves the cursor.
    pub(crate) then: Cursor,
    pub(crate) late: Duration,
}

impl Intent {
    pub(crate) fn plan(&self) -> Plan<'_> {
        let act = match &self.what {
            What::Look => Act::Look,
            What::Register { definition, version, first } => {
                Act::Register { definition, version: *version, first: *first }
            }
            What::Redefine { edition, definition, version, next } => {
                Act::Redefine { edition: *edition, definition, version: *version, next: *next }
            }
            What::Take { take, .. } => Act::Take(take.clone()),
            What::Skip(skip) => Act::Skip(*skip),
            What::Reap => Act::Reap,
        };
        Plan::new(&self.name, act)
    }

    pub(crate) fn is_take(&self) -> bool {
        matches!(self.what, What::Take { .. })
    }
}
