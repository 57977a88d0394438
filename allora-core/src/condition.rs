//! Conditions: the states in which something does not run, or needs an operator.
//!
//! The table below is the only place that describes them. Events, health, logs, metrics, the records of
//! nodes and the JSON take everything from it.

use crate::time::Time;
use chrono::SecondsFormat;
use std::{fmt, sync::Arc, time::Duration};
use tracing::Level;

mod evidence;

pub(crate) use evidence::one_line;
pub use evidence::{Evidence, FailingPart, KeyHolder, StorePart};

/// The time for which an occurrence is due, and could run, before it is overdue.
pub(crate) const OVERDUE: Duration = Duration::from_secs(60);

/// A condition that a node sees now: a line of [`Health`](crate::Health).
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ActiveCondition {
    /// The condition, with its present evidence.
    pub condition: Condition,
    /// Its beginning, as this node estimates the store's time. For what is overdue, or waits: the time
    /// since which it does.
    pub since: Time,
}

/// Makes the type of one row for each condition: its docs, its name, in brackets the field that it is
/// about (if a node can have several), its code, its level in the log, whether it stops jobs, its
/// evidence, and three texts: the state, its end, and the remedy.
macro_rules! conditions {
    ($(#[$meta:meta])* pub enum Condition; $(
        $(#[doc = $doc:literal])+
        $name:ident $([$about:ident])? $code:literal $level:ident $stops:literal {
            $($(#[doc = $field_doc:literal])+ $field:ident: $type:ty),* $(,)?
        }
        $text:literal
        over $over:literal
        remedy $remedy:literal;
    )*) => {
        $(#[$meta])*
        $(#[doc = concat!(
            "| [`", $code, "`](Self::", stringify!($name), ") |", $($doc,)+ " |", $remedy, " |"
        )])*
        #[derive(Clone, Debug, PartialEq)]
        #[non_exhaustive]
        pub enum Condition {
            $(
                $(#[doc = $doc])+
                #[non_exhaustive]
                $name { $($(#[doc = $field_doc])+ $field: $type),* },
            )*
        }

        /// The conditions without their evidence, in the order in which they are shown.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub(crate) enum Code {
            $($name),*
        }

        impl Code {
            pub(crate) const ALL: &[Code] = &[$(Code::$name),*];

            /// The code of [`Condition::code`].
            pub(crate) fn word(self) -> &'static str {
                match self {
                    $(Code::$name => $code),*
                }
            }
        }

        impl Condition {
            /// The codes of all conditions.
            pub const CODES: &[&str] = &[$($code),*];

            pub(crate) fn kind(&self) -> Code {
                match self {
                    $(Self::$name { .. } => Code::$name),*
                }
            }

            /// The remedy: what to do about it.
            pub fn remedy(&self) -> &'static str {
                match self {
                    $(Self::$name { .. } => $remedy),*
                }
            }

            /// `true` if it keeps jobs from running: a node with such a condition is not
            /// [healthy](crate::Health::is_healthy).
            pub fn stops_jobs(&self) -> bool {
                match self {
                    $(Self::$name { .. } => $stops),*
                }
            }

            /// The evidence, by the names of its fields.
            pub fn evidence(&self) -> Vec<(&'static str, Evidence<'_>)> {
                match self {
                    $(Self::$name { $($field),* } => {
                        vec![$((stringify!($field), Evidence::from($field))),*]
                    })*
                }
            }

            pub(crate) fn level(&self) -> Level {
                match self {
                    $(Self::$name { .. } => Level::$level),*
                }
            }

            /// The name of the field that it is about, and its value: a node can have several such
            /// conditions.
            pub(crate) fn about(&self) -> Option<(&'static str, &str)> {
                match self {
                    $(Self::$name { $($about,)? .. } => {
                        None::<(&'static str, &str)>$(.or(Some((stringify!($about), &**$about))))?
                    })*
                }
            }

            /// The sentence for its end.
            pub(crate) fn over(&self) -> String {
                match self {
                    $(Self::$name { $($field),* } => {
                        $(let $field = Evidence::from($field);)*
                        let _ = ($(&$field,)*);
                        format!($over)
                    })*
                }
            }
        }

        /// One sentence without an end: what is so, with the evidence.
        impl fmt::Display for Condition {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(Self::$name { $($field),* } => {
                        $(let $field = Evidence::from($field);)*
                        let _ = ($(&$field,)*);
                        write!(f, $text)
                    })*
                }
            }
        }
    };
}

conditions! {
    /// A state in which something does not run, or needs an operator, with its evidence and its
    /// remedy.
    ///
    /// It begins and ends, each with an event ([`Event::Began`](crate::Event::Began),
    /// [`Event::Ended`](crate::Event::Ended)), and is a line of [`Health`](crate::Health) in between.
    /// One set of conditions makes all three, so they never contradict each other. The evidence may
    /// change meanwhile, without an event.
    ///
    /// [`code`](Self::code) is its name in logs, metrics and JSON. Codes are never changed or used again.
    /// `Display` writes what is so and the evidence on one line.
    ///
    /// | code | condition | remedy |
    /// |---|---|---|
    pub enum Condition;

    /// The program reports a condition of its own ([`Handle::report`](crate::Handle::report)).
    ProgramReport[what] "program-report" ERROR true {
        /// The condition, with evidence and remedy.
        what: Arc<str>,
    }
    "{what}"
    over "the program does not report it any more: {what}"
    remedy "do what the report says";

    /// The store does not answer, or too slowly.
    StoreDown "store-down" ERROR true {
        /// The parts of the node whose requests have no reply.
        parts: Vec<FailingPart>,
    }
    "requests to the store fail; trying again: {parts}"
    over "requests to the store succeed again"
    remedy "look at the store and the network; the node tries again by itself";

    /// The store answers, and rejects requests.
    StoreRejects "store-rejects" ERROR true {
        /// The parts of the node whose requests are rejected.
        parts: Vec<FailingPart>,
    }
    "the store rejects requests; trying again: {parts}"
    over "the store rejects no requests any more"
    remedy "correct what the error names; waiting does not help";

    /// Due occurrences have waited for 1 s, because this node runs as many jobs as it may. Other nodes
    /// may claim them.
    CapacityFull "capacity-full" WARN true {
        /// The largest number of simultaneous runs.
        concurrency: usize,
    }
    "occurrences are due, and this node has no capacity left: it may run {concurrency} at once"
    over "nothing waits for capacity any more"
    remedy "start more nodes, or set a larger concurrency";

    /// This node cannot run very many due stored schedules. The first 100 have a condition of their
    /// own; all others are only counted. They delay no schedule that can be run.
    SchedulesInvalid "schedules-invalid" ERROR true {
        /// The number of all of them, as of the last search for all that is due.
        count: usize,
        /// One of those that are only counted.
        example: Arc<str>,
    }
    "{count} stored schedules cannot be run by this node, such as {example:?}"
    over "hardly any stored schedules are left that this node cannot run"
    remedy "correct the definitions; `allora list --state unreadable` names the schedules";

    /// The data of stored schedules of a kind does not fit the type of this node's handler. The node
    /// leaves each of them to other nodes first; if it gets the occurrence again, the run fails, and is
    /// tried again by the retry policy. It is over when the data of all of them fits, or none has come
    /// for an hour.
    DataMismatch[kind] "data-mismatch" WARN true {
        /// The kind.
        kind: Arc<str>,
        /// The stored schedule that came last.
        example: Arc<str>,
        /// The error, with line and column.
        error: String,
        /// The versions of the builds that handle the kind
        /// ([`SchedulerBuilder::build_version`](crate::SchedulerBuilder::build_version)), here and on other live nodes.
        builds: String,
    }
    "kind {kind:?}: the data of the stored schedule {example:?} does not fit the handler of this build \
     ({error}; builds: {builds}); other nodes have it first"
    over "the data of the kind {kind:?} fits the handler again"
    remedy "deploy one build on all nodes, or change the type in steps that can read both; then rerun the \
            dead letters";

    /// Stored schedules of a kind have been due for a minute, and no live node has a handler for it.
    KindUnhandled[kind] "kind-unhandled" WARN true {
        /// The kind.
        kind: Arc<str>,
        /// One of its schedules.
        example: Arc<str>,
        /// The time since which this schedule is due.
        due_at: Time,
        /// The number of its schedules that wait; at least that number, if it is 100.
        waiting: usize,
    }
    "no live node handles the kind {kind:?}; {waiting} waiting, such as {example:?}, due since {due_at}"
    over "no stored schedule of the kind {kind:?} is overdue any more"
    remedy "start a node with a handler for the kind";

    /// The programs of live nodes need a label that no live node has.
    LabelUnmatched[label] "label-unmatched" WARN true {
        /// The label.
        label: Arc<str>,
        /// The number of live nodes whose programs need it.
        nodes: usize,
    }
    "no live node has the label {label:?}, and the programs of {nodes} of them need it"
    over "the label {label:?} is not missed any more"
    remedy "start a node with the label";

    /// The record of a job in the store cannot be read. This node reads it again once a minute.
    RecordUnreadable[job] "record-unreadable" ERROR true {
        /// The job.
        job: Arc<str>,
        /// The reason.
        reason: String,
    }
    "job {job:?}: its record cannot be read: {reason}"
    over "job {job:?}: its record can be read again, or is gone"
    remedy "run a build that can read the record, or delete the job and create it again; this node reads it \
            once a minute";

    /// The record of the concurrency key of a job that is due cannot be read. This node reads it again
    /// by itself.
    KeyUnreadable[job] "key-unreadable" ERROR true {
        /// The job.
        job: Arc<str>,
        /// The key.
        key: Arc<str>,
        /// The reason.
        reason: String,
    }
    "job {job:?}: the record of its concurrency key {key:?} cannot be read: {reason}"
    over "job {job:?}: the record of its concurrency key {key:?} can be read again, or is not needed"
    remedy "run a build that can read the record; this node reads it again by itself";

    /// The store has a definition of the job that this node cannot run. It leaves the job to other
    /// nodes, and reads the definition again once a minute. If a due occurrence has waited for a
    /// minute and no live node can run the definition, this node sets its own
    /// ([`Redefined`](crate::Event::Redefined)).
    DefinitionConflict[job] "definition-conflict" WARN true {
        /// The job.
        job: Arc<str>,
        /// The reason.
        reason: String,
    }
    "job {job:?}: this node leaves it to other nodes, because of its definition in the store: {reason}"
    over "job {job:?}: this node can run its definition again"
    remedy "start a node with the build of that definition, or deploy one build on all nodes; if a due \
            occurrence waits for a minute, this node sets its own definition";

    /// This node cannot run the job: its schedule panics or goes back, its name is that of a stored
    /// schedule, or its stored definition cannot be read. It tries again once a minute.
    JobInvalid[job] "job-invalid" ERROR true {
        /// The job.
        job: Arc<str>,
        /// The reason and its remedy.
        reason: String,
    }
    "job {job:?} cannot be run by this node: {reason}"
    over "job {job:?} can be run again, or is gone"
    remedy "correct the schedule, the definition or the name";

    /// The job was deleted in the store. This node does not run it until it is restarted, or another
    /// node has registered the job again.
    JobDeleted[job] "job-deleted" INFO true {
        /// The job.
        job: Arc<str>,
    }
    "job {job:?} was deleted in the store; this node does not run it until it is registered again"
    over "job {job:?} is registered again, or this node does not have it any more"
    remedy "restart the node if the job should exist, or remove it from the program";

    /// The store's clock was ahead of the present, and has left times in the record of the job that its
    /// schedule does not explain. The job waits for them.
    ClockWasAhead[job] "clock-was-ahead" ERROR true {
        /// The job.
        job: Arc<str>,
        /// The time until which it waits.
        until: Time,
    }
    "job {job:?}: the store's clock was ahead, and the job waits until {until}"
    over "job {job:?} does not wait for the time of a clock that was ahead any more"
    remedy "resume the job with `allora reset JOB` or `Schedules::reset`";

    /// A run of a job has held a concurrency key since the store's clock was ahead, and its node has
    /// been silent for half of its lease since the clock was set back. Jobs of this node wait for the
    /// key. This node need not have the job.
    KeyLeft[job] "key-left" ERROR true {
        /// The job.
        job: Arc<str>,
        /// The key.
        key: Arc<str>,
        /// The end of its lease on the key.
        until: Time,
    }
    "job {job:?} holds the concurrency key {key:?} until {until}: the store's clock was ahead when its run \
     began, and its node has been silent since"
    over "job {job:?} does not keep the concurrency key {key:?} any more"
    remedy "free the key with `allora reset JOB` or `Schedules::reset`";

    /// An occurrence of the job has been due for more than a minute, this node can run it, and no node
    /// has claimed it. Not while the store is down or the capacity is full.
    JobOverdue[job] "job-overdue" ERROR true {
        /// The job.
        job: Arc<str>,
        /// The time since which it is due.
        due_at: Time,
    }
    "job {job:?} has been due since {due_at}, and no node has claimed it"
    over "job {job:?} is not overdue any more"
    remedy "look at the store and the capacity of the nodes; if both are sound, report a defect of allora";

    /// So many occurrences of the job have failed in a row that people are told, by its
    /// [`AlertRule`](crate::AlertRule). A node has the condition if it has ended the last of these runs, until
    /// a run succeeds on any node: it reads the job again once a minute.
    JobFailing[job] "job-failing" WARN false {
        /// The job.
        job: Arc<str>,
        /// Their number.
        failures: u32,
    }
    "job {job:?} fails: {failures} occurrences in a row"
    over "job {job:?} has succeeded, or was resumed or deleted"
    remedy "correct the cause; `allora why JOB` has the last error";

    /// The job has paused itself, by its [`Breaker`](crate::Breaker). A node has the condition as that of a job
    /// that fails.
    JobPausedItself[job] "job-paused-itself" WARN false {
        /// The job.
        job: Arc<str>,
        /// The number of occurrences that have failed in a row.
        failures: u32,
    }
    "job {job:?} has paused itself: {failures} occurrences failed in a row"
    over "job {job:?} has succeeded, or was resumed or deleted"
    remedy "correct the cause; `allora trigger JOB` ends the pause if that run succeeds, `allora resume JOB` in \
            any case";

    /// The store sends no notifications to this node. The poll finds what changes.
    NotificationsDown "notifications-down" WARN false {
        /// The error of the subscription, with its causes.
        error: String,
    }
    "the store sends no notifications to this node; polling: {error}"
    over "notifications arrive again"
    remedy "correct what the error names; until then the poll finds changes";

    /// The scheduler has jobs that run at most once, and the store, in its present setup, can lose the
    /// record of their runs.
    DurabilityRisk "durability-risk" WARN false {
        /// The risk and its remedy.
        what: String,
    }
    "the store can lose the record of at-most-once runs: {what}"
    over "the store does not lose the record of at-most-once runs"
    remedy "correct what the text names";

    /// This node's clock differs from the store's by more than 1 s. This does no harm: the scheduler
    /// uses the store's clock.
    ClockSkew "clock-skew" WARN false {
        /// The node's clock minus the store's, in milliseconds.
        offset_ms: i64,
    }
    "this node's clock is {offset_ms} ms ahead of the store's, which is used (below 0: behind it)"
    over "this node's clock and the store's agree again"
    remedy "synchronize the clocks; the store's is used";

    /// A node that this node has seen alive has not written its record for three
    /// [heartbeats](crate::SchedulerBuilder::heartbeat). It has ended, or does not reach the store. Over when it
    /// has written its record again, and after a day.
    NodeDead[node] "node-dead" WARN false {
        /// The node's id.
        node: Arc<str>,
        /// Its last write, by the store's clock.
        last_seen: Time,
    }
    "node {node:?} has died, or does not reach the store; it was last seen at {last_seen}"
    over "node {node:?} is alive again, or forgotten"
    remedy "look at the node, and at its connection to the store";

    /// The store has records of jobs in code that no live build declares. One of the nodes looks for
    /// them, once an hour and when the jobs of the nodes have changed, and it alone has the condition.
    JobsOrphaned "jobs-orphaned" WARN false {
        /// Their number.
        count: usize,
        /// The names of some of them, at most eight.
        examples: Vec<String>,
    }
    "no live build declares {count} of the jobs in code, such as {examples}"
    over "this node sees no orphaned job in code any more"
    remedy "delete the jobs, or deploy the build that declares them";

    /// Live nodes differ where they should agree: in a setting, or by having one name
    /// ([`NodeInfo::disagreements`](crate::NodeInfo::disagreements)).
    NodesDiffer[what] "nodes-differ" WARN false {
        /// The difference and its remedy.
        what: Arc<str>,
    }
    "{what}"
    over "this difference is gone: {what}"
    remedy "give all nodes the same settings, and each a name of its own";

    /// An occurrence is due, and its concurrency key is busy: it waits.
    KeyBusy[job] "key-busy" DEBUG false {
        /// The job.
        job: Arc<str>,
        /// The key.
        key: Arc<str>,
        /// The job's limit of the key's active runs.
        limit: u32,
        /// The time since which it waits.
        since: Time,
        /// The holders of the key when this node last asked for it.
        holders: Vec<KeyHolder>,
    }
    "job {job:?} waits for the concurrency key {key:?}, held by {holders}"
    over "job {job:?} does not wait for the concurrency key {key:?} any more"
    remedy "wait, end the run of a holder with `allora cancel JOB`, or set a larger limit";
}

impl Condition {
    /// Its stable name, such as `kind-unhandled`.
    pub fn code(&self) -> &'static str {
        self.kind().word()
    }

    /// The job that it is about.
    pub fn job(&self) -> Option<&str> {
        self.about().filter(|(what, _)| *what == "job").map(|(_, job)| job)
    }

    /// `true` if it keeps one job from running.
    pub(crate) fn is_problem_of_job(&self) -> bool {
        self.stops_jobs() && self.job().is_some()
    }

    /// The time since which it is so, if the evidence has it.
    pub(crate) fn since(&self) -> Option<Time> {
        match self {
            Self::KindUnhandled { due_at: since, .. }
            | Self::JobOverdue { due_at: since, .. }
            | Self::KeyBusy { since, .. } => Some(*since),
            _ => None,
        }
    }

    /// `true` if every node of the store sees it, so that the records of the nodes need not repeat it.
    pub(crate) fn is_of_all_nodes(&self) -> bool {
        matches!(self, Self::KindUnhandled { .. } | Self::LabelUnmatched { .. })
    }
}

/// An instant as all lines have it: RFC 3339 in UTC.
pub(crate) fn written(at: Time) -> String {
    at.to_rfc3339_opts(SecondsFormat::AutoSi, true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::from_millis;
    use std::collections::BTreeSet;

    fn failing(part: StorePart, error: &str) -> FailingPart {
        let since = from_millis(1_767_225_600_000).unwrap();
        FailingPart { part, since, error: error.to_owned() }
    }

    #[test]
    fn codes_are_words_with_hyphens_and_unique() {
        let codes: BTreeSet<_> = Condition::CODES.iter().copied().collect();
        assert_eq!(codes.len(), Condition::CODES.len());
        let is_plain = |code: &&str| code.bytes().all(|b| b.is_ascii_lowercase() || b == b'-');
        assert!(codes.iter().all(is_plain), "{codes:?}");
    }

    #[test]
    fn a_condition_says_what_is_so_with_its_evidence_and_names_its_job() {
        let until = from_millis(1_767_225_600_000).unwrap();
        let waits = Condition::ClockWasAhead { job: "nightly".into(), until };
        assert_eq!((waits.code(), waits.job()), ("clock-was-ahead", Some("nightly")));
        assert_eq!(
            waits.to_string(),
            "job \"nightly\": the store's clock was ahead, and the job waits until 2026-01-01T00:00:00Z"
        );
        assert!(waits.over().starts_with("job \"nightly\" does not wait"), "{}", waits.over());
        assert!(waits.stops_jobs() && waits.remedy().contains("allora reset JOB"));
        let names: Vec<_> = waits.evidence().into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["job", "until"]);
        assert_eq!(Condition::DurabilityRisk { what: String::new() }.job(), None);
    }

    #[test]
    fn parts_that_fail_for_one_reason_share_it() {
        let parts = [StorePart::Claims, StorePart::Search].map(|part| failing(part, "no reply"));
        let parts = [&parts[..], &[failing(StorePart::Ends, "busy")]].concat();
        assert_eq!(
            Condition::StoreDown { parts }.to_string(),
            "requests to the store fail; trying again: claims, searches: no reply; ends: busy"
        );
    }
}
