//! Everything that a planner answers: requests to send, runs to start, events, and states to
//! publish.

use super::{DueRequest, Release, Request, Start, When, job::known::PauseEnd};
use crate::{backend::NextRun, error::Error, event::Event, registry::Ranking, time::Time};
use std::sync::Arc;

/// The effects of the inputs.
#[derive(Default)]
pub(crate) struct Output {
    /// After a tick, the requests to send.
    pub(crate) tick: Tick,
    /// The runs to start.
    pub(crate) starts: Vec<Start>,
    pub(crate) events: Vec<Event>,
    /// The states of jobs to publish.
    pub(crate) planned: Vec<(Arc<str>, PlannedJob)>,
    /// The jobs about which the store has answered again.
    pub(crate) recovered: Vec<Arc<str>>,
    /// The last error, if operations have failed. They are repeated.
    pub(crate) failure: Option<Error>,
    /// The search that begins.
    pub(crate) search: Option<Search>,
    /// The result of the search that was answered.
    pub(crate) found: Option<FoundWork>,
    pub(crate) status: Status,
}

/// The published state of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PlannedJob {
    /// The next occurrence; `None` while it is not known.
    pub(crate) next: Option<NextRun>,
    /// The time since which, or from which, an occurrence can be claimed; `None` if a lease or a
    /// problem of the job holds it back.
    pub(crate) claimable_at: Option<Time>,
    /// The end of the pause, if the schedule is paused.
    pub(crate) paused: Option<PauseEnd>,
}

/// The state of the planner, for the other parts of its claimer.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Status {
    /// The number of runs for which capacity is reserved.
    pub(crate) reserved: usize,
    /// The number of unresolved claims.
    pub(crate) unresolved: usize,
    /// The last operation on some job has failed.
    pub(crate) is_failing: bool,
    /// A query has something to claim: a search would find the same schedules.
    pub(crate) knows_due: bool,
    /// Due schedules are claimed by queries: a search would find the same ones.
    pub(crate) is_claiming_due: bool,
    /// Other nodes have claimed a part of what the last query was for. A search at once would find what
    /// their queries have locked and not yet claimed.
    pub(crate) was_shared: bool,
}

/// The requests to send now.
#[derive(Default)]
pub(crate) struct Tick {
    /// The operations to send.
    pub(crate) requests: Vec<Request>,
    /// The last operations on these jobs failed. What is due else need not wait for this request.
    pub(crate) are_suspects: bool,
    /// The query that finds and claims, to send beside them.
    pub(crate) query: Option<DueRequest>,
    /// The time of the next tick, if nothing happens before. If the capacity is used up, what is due
    /// has no time.
    pub(crate) wake_at: Option<Time>,
    /// Something is due that is not among the requests.
    pub(crate) more: bool,
    /// Something is due, and the node's capacity is used up.
    pub(crate) full: bool,
    /// Stored schedules that are not in memory are due at this time; before everything else, if it is
    /// the earliest of all times.
    pub(crate) search_by: Option<When>,
    /// The limited handlers that have no capacity for what is due. Their kinds need not be searched.
    pub(crate) at_limit: Vec<bool>,
}

/// The planner's part of a search.
#[derive(Clone, Debug)]
pub(crate) struct Search {
    pub(crate) number: u64,
    /// The number of due records that are already in memory, or left to other nodes, by which it must
    /// extend its limit.
    pub(crate) known: usize,
    /// The order by which it prefers this node's own; `None` if it prefers none.
    pub(crate) preferred: Option<Arc<Ranking>>,
}

/// The result of a search.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FoundWork {
    /// It shows something new to do.
    pub(crate) is_new: bool,
    /// The time at which queries begin to claim most of what it has found.
    pub(crate) claimed_at: Option<Time>,
    /// The time at which what is left to other nodes is searched again.
    pub(crate) left_until: Option<Time>,
    /// Other nodes claim the same occurrences.
    pub(crate) is_losing: bool,
}

/// Claims of a node that stops, made or without a reply, that have no run.
#[derive(Default)]
pub(crate) struct Unfinished {
    pub(crate) releases: Vec<Release>,
    /// The queries without a reply, first that which is on its way.
    pub(crate) queries: Vec<DueRequest>,
}
