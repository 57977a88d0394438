//! The request and the answer of [`Backend::reschedule`](super::Backend::reschedule).

use super::{Next, Occurrence, State};
use crate::time::Time;
use std::time::Duration;

/// A batch of plans of one node, and what stored schedules to look for.
///
/// `Copy`, so that one whose answer was lost is asked again with the same claims.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Reschedule<'a> {
    /// The node that asks: an id that no other process has, ever.
    pub node: &'a str,
    /// Whose clock decides.
    pub now: Now,
    /// What to do, one plan a job; at most one plan for a name.
    pub plans: &'a [Plan<'a>],
    /// Stored schedules to look for; only where the backend has [`Schedules`](super::Schedules).
    pub find: Option<Find<'a>>,
}

impl<'a> Reschedule<'a> {
    /// A request that finds nothing beside its plans.
    pub fn new(node: &'a str, now: Now, plans: &'a [Plan<'a>]) -> Self {
        Self { node, now, plans, find: None }
    }

    /// Looks for stored schedules as well.
    #[must_use]
    pub fn find(mut self, find: Find<'a>) -> Self {
        self.find = Some(find);
        self
    }
}

/// Whose clock decides what is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Now {
    /// The store's own, read inside the deciding operation. A store without a clock takes the
    /// node's, and so never reads one itself.
    Store {
        /// The node's wall clock.
        node: Time,
    },
    /// This instant: for tests, and for tools that replay.
    At(Time),
}

impl Now {
    /// The instant that came with the request: the answer for a store that has no clock.
    pub fn here(self) -> Time {
        match self {
            Now::Store { node } => node,
            Now::At(at) => at,
        }
    }
}

/// Records to look for: of these kinds, wanting attention before `until`, at most `limit`. The
/// empty kind is that of jobs in code: of these only what their nodes cannot know by heart, such as
/// a manual trigger (see [`Record::notice_at`](crate::record::Record::notice_at)).
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Find<'a> {
    /// The kinds that the node can run.
    pub kinds: &'a [&'a str],
    /// A little ahead of now, so that the node can work out its move before the time.
    pub until: Time,
    /// At most so many; the earliest first.
    pub limit: usize,
    /// May pass over so many of each kind, the earliest, and passes over no other: other nodes are
    /// at those. Whoever asks so looks again without it before it believes that nothing is due.
    pub skip: usize,
}

impl<'a> Find<'a> {
    /// Looks for records of these kinds that want attention before `until`, at most `limit`.
    pub fn new(kinds: &'a [&'a str], until: Time, limit: usize) -> Self {
        Self { kinds, until, limit, skip: 0 }
    }

    /// May pass over so many of each kind, the earliest.
    #[must_use]
    pub fn skipping(mut self, skip: usize) -> Self {
        self.skip = skip;
        self
    }
}

/// One thing to do with one job's record.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Plan<'a> {
    /// The job.
    pub name: &'a str,
    /// What to do.
    pub act: Act<'a>,
}

impl<'a> Plan<'a> {
    /// Does `act` with the record of `name`.
    pub fn new(name: &'a str, act: Act<'a>) -> Self {
        Self { name, act }
    }
}

/// What to do with a record. Whatever a backend does not know or cannot win it answers with
/// [`Answer::State`], unchanged.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Act<'a> {
    /// Changes nothing.
    Look,
    /// Creates the record if the name is free.
    Register {
        /// What the job is, as text.
        definition: &'a str,
        /// The version that the user's build declares; 0 if none.
        version: u64,
        /// The first occurrence; `None` if there is none.
        first: Option<Next>,
    },
    /// Replaces the definition, if the record still is of this edition and its version is not
    /// higher. A due occurrence that the new cursor passes over is recorded as missed.
    Redefine {
        /// The edition that was read.
        edition: i64,
        /// The new definition.
        definition: &'a str,
        /// The version that the user's build declares; 0 if none.
        version: u64,
        /// The next occurrence under it; later than the last one that was started.
        next: Option<Next>,
    },
    /// Wins an occurrence for this node.
    Take(Take),
    /// Moves the cursor without starting anything.
    Skip(Skip),
    /// Records as lost the at-most-once runs whose node kept silent beyond its mark.
    Reap,
}

/// Wins an occurrence, if nothing of the job was won or changed since it was read, its head is the
/// expected one, and that is due.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Take {
    /// A random number for this attempt to win; the same when it is asked again.
    pub claim: u128,
    /// The record's fence that was read. Every win and every change of the definition leaves a
    /// higher one, so that a take which the network delivers late, when its run was given back or
    /// is to be tried again, does not win once more for a node that no longer waits for it.
    pub fence: i64,
    /// The head that was read.
    pub expected: Occurrence,
    /// The occurrence to start: the expected one, or a later one of the same schedule when
    /// `passed` says what becomes of those before it. Not after the store's now.
    pub start: Occurrence,
    /// What is passed over from `expected` up to `start`.
    pub passed: Option<Passed>,
    /// Refused after this instant.
    pub fresh_until: Option<Time>,
    /// When the cursor moves on, and what keeps others away meanwhile.
    pub deliver: Deliver,
}

impl Take {
    /// Takes the expected occurrence itself.
    pub fn new(claim: u128, fence: i64, expected: Occurrence, deliver: Deliver) -> Self {
        let start = expected.clone();
        Self { claim, fence, expected, start, passed: None, fresh_until: None, deliver }
    }

    /// Starts a later occurrence and passes over those before it.
    #[must_use]
    pub fn starting(mut self, start: Occurrence, passed: Passed) -> Self {
        self.start = start;
        self.passed = Some(passed);
        self
    }

    /// The whole condition of a store that is at-most-once only, on what it has read.
    pub fn wins(&self, fence: i64, cursor: Option<Next>, now: Time) -> bool {
        self.fence == fence
            && self.expected.trigger.is_none()
            && cursor.is_some_and(|next| next.at == self.expected.at && next.due_at <= now)
            && self.is_sound(now)
    }

    /// What must hold whatever is in the record: a started occurrence is not in the future, and
    /// the cursor goes to a later one. In the store, because `next_at` is the user's code.
    pub(crate) fn is_sound(&self, now: Time) -> bool {
        let forward = match &self.deliver {
            Deliver::AtMostOnce { then: Cursor::To(Some(next)), .. } => next.at > self.start.at,
            _ => true,
        };
        // Nothing is passed over in silence, and nothing is said to be that is not.
        let accounted = match self.passed {
            None => self.start == self.expected,
            Some(passed) => {
                self.start.trigger.is_none()
                    && self.expected.trigger.is_none()
                    && (self.expected.at..self.start.at).contains(&passed.last)
            }
        };
        let fresh = self.fresh_until.is_none_or(|until| now <= until);
        forward && accounted && fresh && self.start.at <= now
    }
}

/// When the cursor moves on, and what keeps others away meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deliver {
    /// The cursor moves in the same step: a run that dies is lost, and is not run again.
    AtMostOnce {
        /// Where the cursor goes; `Keep` for what is not the cursor's occurrence, and only then.
        then: Cursor,
        /// The mark that stays in the record while the run lives; `None` on a backend without
        /// [`Leases`](super::Leases).
        mark: Option<Mark>,
    },
    /// The cursor stays on the occurrence until it is finished: a run that dies is run again.
    AtLeastOnce {
        /// The occurrence is this node's for so long, unless extended.
        lease: Duration,
    },
}

/// What stays in the record while an at-most-once run lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Silent for so long, the run counts as lost.
    pub lasts: Duration,
    /// Whether the run may start beside others of the same job.
    pub beside: Beside,
}

/// Whether a run may start beside others of the same job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beside {
    /// It may.
    Others,
    /// Only if no other has a mark that is alive.
    None,
}

/// Where the cursor goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cursor {
    /// It stays.
    Keep,
    /// To the next occurrence; `None` is the end of the schedule.
    To(Option<Next>),
}

/// Moves the cursor without starting anything, if the record still is of this edition and its
/// head is the expected one and due.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Skip {
    /// The edition that was read.
    pub edition: i64,
    /// The cursor that was read.
    pub expected: Time,
    /// What becomes of the instants from `expected` up to the new cursor.
    pub passed: Passed,
    /// The new cursor; later than `expected`.
    pub then: Option<Next>,
}

impl Skip {
    /// Moves the cursor from `expected` to `then`.
    pub fn new(edition: i64, expected: Time, passed: Passed, then: Option<Next>) -> Self {
        Self { edition, expected, passed, then }
    }
}

/// Instants that are passed over: recorded once, with their number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passed {
    /// How many; `None` if counting them would have cost too much.
    pub count: Option<u64>,
    /// The last of them.
    pub last: Time,
    /// Skipped because the one before was still running; otherwise missed.
    pub overlap: bool,
}

/// What came of a request.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Rescheduled {
    /// The instant that decided.
    pub now: Time,
    /// `answers[i]` belongs to `plans[i]`.
    pub answers: Vec<Answer>,
    /// The stored schedules that were looked for, the earliest first.
    pub found: Vec<State>,
    /// When the next stored schedule of the kinds asked for wants attention, beyond those found.
    pub next_due: Option<Time>,
}

impl Rescheduled {
    /// The answers to the plans, and nothing found.
    pub fn new(now: Time, answers: Vec<Answer>) -> Self {
        Self { now, answers, found: Vec::new(), next_due: None }
    }

    /// With stored schedules.
    #[must_use]
    pub fn found(mut self, found: Vec<State>, next_due: Option<Time>) -> Self {
        self.found = found;
        self.next_due = next_due;
        self
    }
}

/// What came of one plan.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// There is no such job, and the store remembers none.
    Absent,
    /// The job was deleted.
    Gone,
    /// The occurrence is this node's.
    Taken(Taken),
    /// The record as it is, after what was done or instead of what could not be.
    State(Box<State>),
}

/// An occurrence that was won.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Taken {
    /// What to run.
    pub run: Occurrence,
    /// A number of the job's that grows with every take.
    pub fence: i64,
    /// Which attempt at this occurrence, from 1.
    pub attempt: u32,
    /// Which life of the name: changes when a deleted job is created again.
    pub incarnation: i64,
    /// The end of the lease or mark; `None` without one.
    pub until: Option<Time>,
}

impl Taken {
    /// An occurrence that was won without a lease or mark, at the first attempt.
    pub fn new(run: Occurrence, fence: i64, incarnation: i64) -> Self {
        Self { run, fence, attempt: 1, incarnation, until: None }
    }
}
