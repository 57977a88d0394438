//! The truth about one job, as a backend tells it.

use crate::time::Time;

/// One nominal instant of a job, or a manual trigger.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Occurrence {
    /// The nominal instant; of a trigger, when it was pulled, or what it stands for.
    pub at: Time,
    /// The trigger's own id.
    pub trigger: Option<String>,
}

impl From<Time> for Occurrence {
    fn from(at: Time) -> Self {
        Self { at, trigger: None }
    }
}

/// A nominal instant, and when it may be taken: the same, or later by delay and spread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Next {
    /// The nominal instant.
    pub at: Time,
    /// When it may be taken.
    pub due_at: Time,
}

impl From<Time> for Next {
    fn from(at: Time) -> Self {
        Self { at, due_at: at }
    }
}

/// The truth about one job.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct State {
    /// The job.
    pub name: String,
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
    /// What runs next: of what a dead or failed run left, the triggers and the cursor, the one
    /// that is due first.
    pub head: Option<Occurrence>,
    /// When the head may be taken.
    pub due_at: Option<Time>,
    /// How often the head was tried before.
    pub attempts: u32,
    /// The next occurrence of the schedule.
    pub cursor: Option<Next>,
    /// The last occurrence of the schedule that was started.
    pub last_started: Option<Time>,
    /// The highest number that was drawn for the job: at least the fence of its last take.
    pub fence: i64,
    /// The runs that nobody has ended.
    pub holds: Vec<Held>,
    /// Whether the schedule is paused; triggers still run.
    pub paused: Option<Pause>,
    /// The occurrences that failed for good, the oldest first; an operator can have them run again.
    pub dead: Vec<DeadLetter>,
    /// Why nobody can run it, if so: a record that cannot be read. Left by an operator only.
    pub parked: Option<String>,
    /// How the last run ended.
    pub last: Option<super::Outcome>,
    /// What has become of its occurrences.
    pub counters: Counters,
}

impl State {
    /// A record that cannot be read: counted, shown, run by nobody, in nobody's way.
    pub fn parked(name: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { parked: Some(reason.into()), ..Self::blank(name.into()) }
    }

    /// A state with the given name and nothing else, for backends that know little.
    pub fn blank(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            kind: String::new(),
            definition: String::new(),
            version: 0,
            incarnation: 0,
            edition: 0,
            data: Vec::new(),
            head: None,
            due_at: None,
            attempts: 0,
            cursor: None,
            last_started: None,
            fence: 0,
            holds: Vec::new(),
            paused: None,
            dead: Vec::new(),
            parked: None,
            last: None,
            counters: Counters::default(),
        }
    }
}

/// A run that nobody has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Held {
    /// The node that runs it.
    pub node: String,
    /// Its fence.
    pub fence: i64,
    /// What is run.
    pub run: Occurrence,
    /// Which attempt.
    pub attempt: u32,
    /// When it counts as dead unless extended.
    pub until: Time,
    /// Whether it is then run again.
    pub at_least_once: bool,
}

/// An at-least-once occurrence that failed at its last attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetter {
    /// What was run.
    pub run: Occurrence,
    /// How often.
    pub attempts: u32,
    /// When the last attempt ended, by the clock that decided.
    pub at: Time,
    /// With what error.
    pub error: String,
}

/// Since when and why a schedule is paused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pause {
    /// Since when.
    pub since: Time,
    /// What the operator said; may be empty.
    pub note: String,
}

/// What has become of a job's occurrences since it was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Occurrences of the schedule that were started; triggers and further attempts not counted.
    pub started: u64,
    /// Runs that ended well.
    pub ran: u64,
    /// Runs that ended with an error, attempts that will be tried again included.
    pub failed: u64,
    /// Runs that were cancelled by a stopping node.
    pub cancelled: u64,
    /// Occurrences passed over because the one before was still running.
    pub skipped: u64,
    /// Occurrences passed over because their time was gone; those not counted are not in it.
    pub missed: u64,
    /// At-most-once runs whose node kept silent.
    pub lost: u64,
    /// At-least-once runs whose node kept silent, and that another node took over.
    pub abandoned: u64,
}
