//! The status of one job of a node.

use crate::{
    backend::{NextRun, Outcome},
    run::Run,
    time::Time,
};

/// The status of one job, as its node last knew it, from [`Handle::jobs`](crate::Handle::jobs).
///
/// The node asks the store for nothing: what other nodes have done is known since this node last
/// read the record. [`Schedules::get`](crate::Schedules::get) reads the present state. With the
/// feature `json`, the value is `Serialize`.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct JobStatus {
    /// The name.
    pub name: String,
    /// The kind of a stored schedule; empty for a job in code.
    pub kind: String,
    /// The next occurrence; `None` if it is not known, if the schedule has ended, or while an
    /// at-least-once run is active.
    pub next: Option<NextRun>,
    /// The schedule is paused.
    pub is_paused: bool,
    /// The places where it runs.
    pub running: Vec<Place>,
    /// The outcome of the last run; `None` if it is not known.
    pub last: Option<Outcome>,
    /// The time at which a run on this node last succeeded; `None` if there was none since the node
    /// started.
    pub last_success: Option<Time>,
}

/// A node on which a job runs.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Place {
    /// The node's id.
    pub node: String,
    /// `true` if it is this node.
    pub is_here: bool,
    /// The nominal time of the occurrence.
    pub scheduled_at: Time,
    /// The time at which the run was claimed, if it is known.
    pub since: Option<Time>,
    /// The progress that a run on this node has [set](crate::Run::set_progress).
    pub progress: Option<String>,
}

impl JobStatus {
    /// The status of a stored schedule of which nothing else than this run is known.
    pub(crate) fn of_run(run: &Run, place: Place) -> Self {
        Self {
            name: run.name().to_owned(),
            kind: run.kind().to_owned(),
            next: None,
            is_paused: false,
            running: vec![place],
            last: None,
            last_success: None,
        }
    }
}
