//! Everything that a planner can be told. The other parts of the scheduler leave these inputs for
//! the claimer that owns the planner.

use super::{OnWay, Request, Room, SlotId};
use crate::{
    backend::{Applied, ClaimedDue, Cursor, JobState, Reply},
    job::JobSpec,
    registry::Rankings,
    stored::Router,
    time::Time,
};
use std::{collections::HashSet, sync::Arc, time::Duration};

/// Something that has happened.
pub(crate) enum Input {
    /// The job was added to this node.
    Add(Arc<str>, JobSpec),
    /// The job was removed from this node. Its requests and runs continue.
    Remove(Arc<str>),
    /// The record of this job has changed, or that of a concurrency key.
    Changed(Arc<str>),
    /// A place of the concurrency key with this record, or of any key, may be free.
    KeyFree(Option<Arc<str>>),
    /// The store has replied to an extension or an end of a run.
    Updated(RunUpdate),
    /// The store did not answer an extension or an end of a run of this job, although it answered
    /// others.
    UpdateFailed(Option<SlotId>, Arc<str>),
    /// The runs of these jobs have sent their ends: nothing else is sent about the jobs until one of
    /// these has a reply, or this time comes.
    Hold(HashSet<Arc<str>>, Time),
    /// The order of the nodes has changed.
    Rankings(Rankings),
    /// A named calendar has changed.
    Calendars,
    /// The kinds of handlers have changed.
    Handlers(Arc<Router>),
    /// The store's clock was set back, so that times that are known may be of a clock that was ahead.
    ClockSetBack,
    /// Requests can be sent, with capacity for so many more runs, beside those on their way. `is_told`:
    /// notifications tell what changes in the store.
    Tick { room: Room, on_way: OnWay, is_told: bool },
    /// A request was answered.
    Answered { requests: Vec<Request>, applied: Applied, room: Room },
    /// No reply came to a request.
    Lost(Vec<Request>),
    /// As [`Lost`](Self::Lost), because of the store. `load`: the number of operations that were on
    /// their way with them, if they may have been too much for the store.
    TimedOut { requests: Vec<Request>, load: Option<usize> },
    /// A search begins.
    Search,
    /// A search was answered.
    Found(FoundRecords),
    /// A search has no reply.
    SearchFailed,
    /// A query that claims is over, or a repetition of one whose reply was lost.
    Queried { is_repeated: bool, reply: QueryReply },
}

impl Input {
    /// The job that it is about, if its state is published by its name.
    pub(super) fn job(&self) -> Option<Arc<str>> {
        match self {
            Input::Add(name, _)
            | Input::Remove(name)
            | Input::Changed(name)
            | Input::UpdateFailed(_, name) => Some(name.clone()),
            _ => None,
        }
    }
}

/// A run of this node whose lease was extended, or whose end was sent to the store.
#[derive(Clone, Debug)]
pub(crate) struct RunUpdate {
    /// The job's place when the run was claimed; `None` if a query has claimed it.
    pub(crate) slot: Option<SlotId>,
    pub(crate) name: Arc<str>,
    pub(crate) fence: i64,
    pub(crate) scheduled_at: Time,
    /// The cursor's move by the completion; `None` if the operation was no completion.
    pub(crate) completed: Option<Cursor>,
    /// The longest delay of a start of its job.
    pub(crate) window: Option<Duration>,
    pub(crate) reply: Reply,
}

/// The records that a search has found.
pub(crate) struct FoundRecords {
    pub(crate) states: Vec<JobState>,
    /// The store's time.
    pub(crate) now: Time,
    /// The number of the search.
    pub(crate) number: u64,
    /// Not all that is due is among them.
    pub(crate) is_full: bool,
    /// The number of kinds of stored schedules that it was for; `None` if it was for jobs in code
    /// alone.
    pub(crate) kinds: Option<usize>,
    /// It is no further page of an earlier search.
    pub(crate) is_first: bool,
    /// Neither it nor the pages before it left out anything that was due.
    pub(crate) is_whole: bool,
}

/// The end of a query that claims.
pub(crate) enum QueryReply {
    Claimed(ClaimedDue),
    /// No reply came.
    Lost,
    /// The store has rejected it, and claimed nothing.
    Rejected,
}
