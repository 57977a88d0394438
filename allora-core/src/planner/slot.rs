//! What a node knows of one job.

use crate::{
    backend::{Next, Occurrence, State},
    job::Entry,
    time::Time,
};
use std::sync::Arc;

/// One job of this node.
pub(crate) struct Slot {
    pub(crate) name: Arc<str>,
    pub(crate) entry: Entry,
    pub(crate) phase: Phase,
    /// The claim of a take whose answer was lost: the next take asks with it again.
    pub(crate) claim: Option<u128>,
    /// The latest wake-up in the queue; earlier entries are stale.
    pub(crate) wake_at: Option<Time>,
    /// It is in the list of errands.
    pub(crate) listed: bool,
}

/// How far this node has come with a job.
#[derive(Debug)]
pub(crate) enum Phase {
    /// To be registered.
    New,
    /// The store has another definition, of this edition.
    Redefine { edition: i64, after: Time },
    /// In agreement with the store.
    Known(Known),
    /// To be looked at.
    Stale,
    /// Left alone until the scheduler is restarted.
    Off,
}

/// The truth as it was last heard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Known {
    pub(crate) edition: i64,
    pub(crate) head: Option<Occurrence>,
    pub(crate) due_at: Option<Time>,
    pub(crate) cursor: Option<Next>,
    pub(crate) started: u64,
    pub(crate) paused: bool,
    /// Fence and end of the runs that nobody has ended.
    pub(crate) marks: Vec<(i64, Time)>,
}

impl Known {
    pub(crate) fn of(state: &State) -> Self {
        let marks = state.holds.iter().filter(|held| !held.at_least_once);
        Self {
            edition: state.edition,
            head: state.head.clone(),
            due_at: state.due_at,
            cursor: state.cursor,
            started: state.counters.started,
            paused: state.paused.is_some(),
            marks: marks.map(|held| (held.fence, held.until)).collect(),
        }
    }

    /// Whether what runs next is the schedule's next occurrence.
    pub(crate) fn head_is_cursor(&self) -> bool {
        match (&self.head, self.cursor) {
            (Some(head), Some(next)) => head.trigger.is_none() && head.at == next.at,
            _ => false,
        }
    }

    /// When somebody should look at it.
    pub(crate) fn wants_attention(&self) -> Option<Time> {
        self.due_at.into_iter().chain(self.next_mark()).min()
    }

    /// The cursor has moved there, and nothing else is known to be waiting.
    pub(crate) fn go_to(&mut self, next: Option<Next>) {
        self.cursor = next;
        self.head = next.map(|next| Occurrence::from(next.at));
        self.due_at = next.map(|next| next.due_at);
    }

    /// When the next mark of a run ends.
    pub(crate) fn next_mark(&self) -> Option<Time> {
        self.marks.iter().map(|(_, until)| *until).min()
    }
}
