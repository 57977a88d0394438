//! What a node knows of one job.

use crate::{
    backend::{Next, Occurrence, State},
    job::Entry,
    schedule::stable_hash,
    time::Time,
};
use std::sync::Arc;

/// One job of this node.
pub(crate) struct Slot {
    pub(crate) name: Arc<str>,
    pub(crate) entry: Entry,
    /// Its place in an order of the jobs that is this node's own.
    pub(crate) rank: u32,
    pub(crate) phase: Phase,
    /// The claim of a take whose answer was lost: the next take asks with it again.
    pub(crate) claim: Option<u128>,
    /// The latest wake-up in the queue; earlier entries are stale.
    pub(crate) wake_at: Option<Time>,
    /// It is in the list of errands.
    pub(crate) listed: bool,
    /// The edition of the definition that this node and the store last agreed on.
    pub(crate) agreed: Option<i64>,
    /// A plan for it is on its way to the store.
    pub(crate) asked: bool,
    /// There was word of it meanwhile, which the answer may not know of.
    pub(crate) heard: bool,
    /// The last turn in which a run of it was settled.
    pub(crate) settled_in: u64,
    /// Nobody on this node wants it any more; its place stays, since runs and answers name it.
    pub(crate) removed: bool,
    /// How often in succession the store refused what it then said is due.
    pub(crate) refused: u32,
    /// A stored schedule: known here only as long as it wants attention.
    pub(crate) stored: bool,
    /// It is in the list of those that may want none.
    pub(crate) resting: bool,
}

impl Slot {
    /// `seed`: this node's own.
    pub(crate) fn new(name: Arc<str>, entry: Entry, seed: u64) -> Self {
        Self {
            rank: stable_hash(&[&seed.to_le_bytes(), name.as_bytes()]) as u32,
            name,
            entry,
            phase: Phase::New,
            claim: None,
            wake_at: None,
            listed: false,
            agreed: None,
            asked: false,
            heard: false,
            settled_in: 0,
            removed: false,
            refused: 0,
            stored: false,
            resting: false,
        }
    }
}

/// How far this node has come with a job.
#[derive(Debug)]
pub(crate) enum Phase {
    /// To be registered.
    New,
    /// The store has another definition, of this edition; so many occurrences were started, and
    /// the one of `cursor` was not.
    Redefine { edition: i64, after: Time, cursor: Option<Next>, started: u64 },
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
    /// When it was heard, by the store's clock.
    pub(crate) as_of: Time,
    pub(crate) edition: i64,
    /// The record's fence: with another one, something else is true.
    pub(crate) fence: i64,
    pub(crate) head: Option<Occurrence>,
    pub(crate) due_at: Option<Time>,
    pub(crate) cursor: Option<Next>,
    pub(crate) last_started: Option<Time>,
    pub(crate) started: u64,
    pub(crate) paused: bool,
    /// Fence and end of the runs that nobody has ended.
    pub(crate) marks: Vec<(i64, Time)>,
}

impl Known {
    pub(crate) fn of(state: &State, now: Time) -> Self {
        let marks = state.holds.iter().filter(|held| !held.at_least_once);
        Self {
            as_of: now,
            edition: state.edition,
            fence: state.fence,
            head: state.head.clone(),
            due_at: state.due_at,
            cursor: state.cursor,
            last_started: state.last_started,
            started: state.counters.started,
            paused: state.paused.is_some(),
            marks: marks.map(|held| (held.fence, held.until)).collect(),
        }
    }

    /// Whether what runs next is the schedule's next occurrence: one that nobody has begun, or it
    /// would be what a dead or failed run left, which is run again as it is.
    pub(crate) fn head_is_cursor(&self) -> bool {
        self.head_is_at_cursor() && self.last_started < self.cursor.map(|next| next.at)
    }

    /// Whether what runs next is where the cursor is, begun or not.
    pub(crate) fn head_is_at_cursor(&self) -> bool {
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
