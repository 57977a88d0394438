//! A job's record and its state machine, as pure functions that every store shares.
//!
//! [`step`], [`settle`], [`create`] and [`change`] are the contract in code: the memory backend
//! runs them under its lock, other backends run them between a read and a compare-and-set, and
//! what is written in SQL or Lua is compared with them.

mod change;
#[cfg(feature = "codec")]
pub mod codec;
mod ledger;
mod settle;
mod step;

pub use change::{MAX_DATA, MAX_DEAD, MAX_TRIGGERS, TOMBSTONE, change, create, delete};
pub use ledger::Ledger;
pub use settle::settle;
pub use step::{MAX_HOLDS, step};

use crate::{
    backend::{Counters, DeadLetter, Held, Next, Occurrence, Outcome, Past, Pause, State},
    time::{Time, whole_millis},
};

/// One job as a store keeps it; the name is the key it is kept under.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Of a stored schedule, the kind that routes it; empty for a job in code.
    pub kind: String,
    /// What the job is, as text.
    pub definition: String,
    /// The version that the build which registered it declared; 0 if none.
    pub version: u64,
    /// Which life of the name.
    pub incarnation: i64,
    /// A number that is new whenever definition or data are.
    pub edition: i64,
    /// The payload of a stored schedule.
    pub data: Vec<u8>,
    /// The next occurrence of the schedule.
    pub cursor: Option<Next>,
    /// The last occurrence of the schedule that was started.
    pub last_started: Option<Time>,
    /// The highest fence that was given out, whatever for.
    pub fence: i64,
    /// The last take that left no hold, so that it can be answered again.
    pub unheld: Option<Unheld>,
    /// The runs that nobody has ended.
    pub holds: Vec<Hold>,
    /// Occurrences to be tried again.
    pub again: Vec<Again>,
    /// Manual triggers that nobody has taken, as they were pulled.
    pub triggers: Vec<Occurrence>,
    /// The occurrences that failed for good, the oldest first.
    pub dead: Vec<DeadLetter>,
    /// Whether the schedule is paused.
    pub paused: Option<Pause>,
    /// When it was deleted: a tombstone, which keeps fence and name.
    pub gone: Option<Time>,
    /// The last ending that was accepted, so that its repetition is answered alike.
    pub ended: Option<Accepted>,
    /// How the last run ended.
    pub last: Option<Outcome>,
    /// What has become of its occurrences.
    pub counters: Counters,
}

/// A run that nobody has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    /// The node that runs it.
    pub node: String,
    /// The claim that won it.
    pub claim: u128,
    /// Its fence.
    pub fence: i64,
    /// What is run.
    pub run: Occurrence,
    /// Which attempt.
    pub attempt: u32,
    /// When it counts as dead unless extended.
    pub until: Time,
    /// Whether it is then run again (a lease) or lost (a mark).
    pub at_least_once: bool,
}

/// An occurrence to be tried again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Again {
    /// What is run.
    pub run: Occurrence,
    /// How often it was tried.
    pub attempts: u32,
    /// Not before.
    pub at: Time,
}

/// An ending that was accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// The fence of the run.
    pub fence: i64,
    /// How it ended.
    pub how: How,
}

/// How a run ended, as far as its repetition is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// By a finish.
    Finished,
    /// To be tried again.
    Retried,
    /// Given back.
    Released,
}

/// A take that left no hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unheld {
    /// The claim that won.
    pub claim: u128,
    /// Its fence.
    pub fence: i64,
    /// What was run.
    pub run: Occurrence,
    /// Which attempt.
    pub attempt: u32,
}

/// Who asks, and when: what a step needs beside the record.
#[derive(Clone, Copy, Debug)]
pub struct At<'a> {
    /// The node that asks.
    pub node: &'a str,
    /// The instant that decides; its microseconds go into fences.
    pub now: Time,
    /// The namespace's floor: no fence at or below it is given out. Kept by the store when it
    /// forgets a tombstone; 0 if it never did.
    pub floor: i64,
}

impl<'a> At<'a> {
    /// `node` asks at `now`, in a store that has forgotten nothing.
    pub fn new(node: &'a str, now: Time) -> Self {
        Self { node, now, floor: 0 }
    }
}

/// What a record offers next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head<'a> {
    /// What may be taken.
    pub run: HeadRun<'a>,
    /// When it may be taken.
    pub due_at: Time,
    /// How often it was tried before.
    pub attempts: u32,
}

/// What a head would run, without copying it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadRun<'a> {
    /// The cursor's occurrence.
    Cursor(Time),
    /// A trigger, or what a dead or failed run left.
    Other(&'a Occurrence),
}

impl HeadRun<'_> {
    /// Whether this is that occurrence.
    pub fn is(&self, run: &Occurrence) -> bool {
        match self {
            HeadRun::Cursor(at) => run.trigger.is_none() && run.at == *at,
            HeadRun::Other(mine) => *mine == run,
        }
    }

    /// A copy of it.
    pub fn occurrence(&self) -> Occurrence {
        match self {
            HeadRun::Cursor(at) => Occurrence::from(*at),
            HeadRun::Other(run) => (*run).clone(),
        }
    }
}

/// The next fence: grows, never repeats, and, by the store's clock in microseconds, stays ahead
/// of what a failover may have forgotten.
///
/// ```
/// use allora_core::record::next_fence;
/// use allora_core::time::from_millis;
///
/// let now = from_millis(1_000).unwrap();
/// assert_eq!(next_fence(7, now), 1_000_000);
/// assert_eq!(next_fence(2_000_000, now), 2_000_001);
/// ```
pub fn next_fence(stored: i64, now: Time) -> i64 {
    now.timestamp_micros().max(stored.saturating_add(1))
}

impl Record {
    /// What the record offers next: of what a dead or failed run left, the earliest trigger and the
    /// cursor, the one that is due first. While a lease is held, that is the held occurrence, due
    /// at the lease's end. Depends on no clock.
    pub fn head(&self) -> Option<Head<'_>> {
        if self.gone.is_some() {
            return None;
        }
        let leased = self.holds.iter().find(|hold| hold.at_least_once);
        if let Some(held) = leased.filter(|held| self.is_offered(&held.run)) {
            let run = HeadRun::Other(&held.run);
            return Some(Head { run, due_at: held.until, attempts: held.attempt });
        }
        // The first of equals is the one that was pulled first.
        let trigger = self.triggers.iter().min_by_key(|run| run.at);
        let trigger =
            trigger.map(|run| Head { run: HeadRun::Other(run), due_at: run.at, attempts: 0 });
        let again = self.again.iter().filter(|again| self.is_offered(&again.run));
        let again = again.min_by_key(|again| again.at).map(|again| Head {
            run: HeadRun::Other(&again.run),
            due_at: again.at,
            attempts: again.attempts,
        });
        let cursor = self.cursor_head().filter(|_| self.paused.is_none());
        // `min_by_key` keeps the first of equals: what was begun goes before what is new.
        let mut head =
            [again, trigger, cursor].into_iter().flatten().min_by_key(|head| head.due_at)?;
        if let Some(held) = leased {
            // Paused: what it runs is not offered again, but a lease is never beside another run.
            head.due_at = head.due_at.max(held.until);
        }
        Some(head)
    }

    /// A pause keeps back what is the schedule's, begun or not; triggers still run.
    fn is_offered(&self, run: &Occurrence) -> bool {
        self.paused.is_none() || run.trigger.is_some()
    }

    /// Whether the cursor is on this occurrence.
    fn is_at_cursor(&self, run: &Occurrence) -> bool {
        run.trigger.is_none() && self.cursor.is_some_and(|next| next.at == run.at)
    }

    /// The cursor, unless its occurrence was begun: then it is held, or waits to be tried again.
    fn cursor_head(&self) -> Option<Head<'_>> {
        let next = self.cursor?;
        let run = HeadRun::Cursor(next.at);
        let begun = self.last_started >= Some(next.at);
        (!begun).then_some(Head { run, due_at: next.due_at, attempts: 0 })
    }

    /// When somebody should look at the record: its head is due, or a mark has run out.
    pub fn wake_at(&self) -> Option<Time> {
        let head = self.head().map(|head| head.due_at);
        let marks = self.holds.iter().filter(|hold| !hold.at_least_once);
        let marks = marks.map(|hold| hold.until).min();
        head.into_iter().chain(marks.filter(|_| self.gone.is_none())).min()
    }

    /// When the store should bring the record to the notice of nodes that look for work. A stored
    /// schedule: whenever somebody should look. A job in code: only when something other than its
    /// schedule runs next, for that its nodes cannot know by heart.
    pub fn notice_at(&self) -> Option<Time> {
        if !self.kind.is_empty() {
            return self.wake_at();
        }
        let unforeseen = !self.triggers.is_empty() || !self.again.is_empty();
        self.head().filter(|_| unforeseen).map(|head| head.due_at)
    }

    /// The record as its readers see it.
    pub fn state(&self, name: &str) -> State {
        let head = self.head();
        State {
            kind: self.kind.clone(),
            definition: self.definition.clone(),
            version: self.version,
            incarnation: self.incarnation,
            edition: self.edition,
            data: self.data.clone(),
            head: head.map(|head| head.run.occurrence()),
            due_at: head.map(|head| head.due_at),
            attempts: head.map_or(0, |head| head.attempts),
            cursor: self.cursor,
            last_started: self.last_started,
            fence: self.fence,
            holds: self.holds.iter().map(Hold::seen).collect(),
            paused: self.paused.clone(),
            dead: self.dead.clone(),
            last: self.last.clone(),
            counters: self.counters,
            ..State::blank(name)
        }
    }

    /// Whether readers see it: not deleted.
    pub fn is_live(&self) -> bool {
        self.gone.is_none()
    }

    fn draw_fence(&mut self, now: Time) -> i64 {
        self.fence = next_fence(self.fence, now);
        self.fence
    }

    /// Records as lost the at-most-once runs whose node kept silent beyond its mark.
    fn reap(&mut self, name: &str, now: Time, ledger: &mut Ledger) {
        let silent = |hold: &Hold| !hold.at_least_once && hold.until <= now;
        if !self.holds.iter().any(silent) {
            return;
        }
        let (lost, alive) = std::mem::take(&mut self.holds).into_iter().partition(silent);
        self.holds = alive;
        let lost: Vec<Hold> = lost;
        for hold in lost {
            self.counters.lost += 1;
            self.last = Some(Outcome::Lost);
            ledger.note(|| hold.past(name, now, Outcome::Lost));
        }
    }
}

impl Hold {
    fn seen(&self) -> Held {
        Held {
            node: self.node.clone(),
            fence: self.fence,
            run: self.run.clone(),
            attempt: self.attempt,
            until: self.until,
            at_least_once: self.at_least_once,
        }
    }

    fn past(&self, name: &str, now: Time, outcome: Outcome) -> Past {
        Past {
            name: name.to_owned(),
            fence: self.fence,
            occurrence: self.run.clone(),
            last: None,
            count: Some(1),
            attempt: self.attempt,
            node: self.node.clone(),
            at: whole_millis(now),
            outcome,
        }
    }
}
