//! The codes of the answers: one row for each.

use std::fmt;

/// Makes the enum, its words and its table from one row for each code.
macro_rules! codes {
    ($(#[$meta:meta])* pub enum $type:ident; $( $(#[doc = $doc:literal])+ $name:ident $word:literal; )*) => {
        $(#[$meta])*
        $(#[doc = concat!("| [`", $word, "`](Self::", stringify!($name), ") |", $($doc,)+ " |")])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum $type {
            $(
                $(#[doc = $doc])+
                $name,
            )*
        }

        impl $type {
            /// All codes.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// The code in tables and JSON. Codes are never changed or used again.
            pub fn word(self) -> &'static str {
                match self {
                    $(Self::$name => $word),*
                }
            }
        }
    };
}

codes! {
    /// The stable name of a reason in [`Why`](super::Why). A state that is also a [condition](crate::Condition) has its
    /// code.
    ///
    /// | code | meaning |
    /// |---|---|
    pub enum WhyCode;

    /// It runs now.
    Running "running";
    /// No node is live on the store.
    NoLiveNode "no-live-node";
    /// A job in code that no live build declares.
    JobsOrphaned "jobs-orphaned";
    /// No live node handles its kind.
    KindUnhandled "kind-unhandled";
    /// No live node has a label that is needed.
    LabelUnmatched "label-unmatched";
    /// Live nodes have the job, but none of their builds can run its definition in the store.
    DefinitionConflict "definition-conflict";
    /// Live nodes have the job, but their programs do not run it now.
    JobKept "job-kept";
    /// It was started on a node that has died, or does not reach the store.
    NodeDead "node-dead";
    /// Its record cannot be read.
    RecordUnreadable "record-unreadable";
    /// Its definition cannot be read, or needs a calendar that the store lacks.
    JobInvalid "job-invalid";
    /// Its data cannot be used by its kind.
    DataMismatch "data-mismatch";
    /// It waits for a time that a clock which was ahead has left in its record.
    ClockWasAhead "clock-was-ahead";
    /// It is paused.
    Paused "paused";
    /// It has paused itself, because so many occurrences failed in a row.
    PausedItself "paused-itself";
    /// It waits for its concurrency key.
    KeyBusy "key-busy";
    /// All nodes that can run it are full.
    CapacityFull "capacity-full";
    /// It waits for the end of an active run of the same job.
    WaitsForRun "waits-for-run";
    /// An attempt has not succeeded, and the next one waits for its time.
    RetryWaits "retry-waits";
    /// It has been due for more than a minute, and no node has claimed it.
    JobOverdue "job-overdue";
    /// It is due, and will be claimed at any moment.
    Due "due";
    /// Its next occurrence has not come yet.
    Scheduled "scheduled";
    /// It runs after another job.
    RunsAfter "runs-after";
    /// It runs after another job, which does not exist, or does not know of it.
    NothingBefore "nothing-before";
    /// Its schedule has no further occurrence.
    Ended "ended";

    /// It succeeded.
    Succeeded "succeeded";
    /// It succeeded after a run whose node did not report its end.
    Recovered "recovered";
    /// It failed, and is not tried again.
    Failed "failed";
    /// Its attempts are used up: it is a dead letter.
    Dead "dead";
    /// An attempt failed, and another one was to follow.
    Retried "retried";
    /// Its node did not report its end; at most once, so it is not run again.
    Lost "lost";
    /// Its node did not report its end; at least once, so it is run again.
    Expired "expired";
    /// Its run was dropped before it ended, and another attempt was to follow.
    Interrupted "interrupted";
    /// It was given back before it ran.
    Released "released";
    /// An operator cancelled its run.
    Cancelled "cancelled";
    /// Its run was cut off when its node was stopped.
    Shutdown "shutdown";
    /// A later occurrence replaced its run.
    Replaced "replaced";
    /// The job was deleted.
    Deleted "deleted";
    /// It was skipped: the run before it was still active.
    SkippedOverlap "skipped-overlap";
    /// It was skipped: its concurrency key was busy for too long.
    SkippedKey "skipped-key";
    /// It was skipped: a calendar excludes it.
    SkippedCalendar "skipped-calendar";
    /// An operator left it out, or cancelled it before it ran.
    SkippedOperator "skipped-operator";
    /// It was to run after another job, and too many triggers waited already.
    MissedFull "missed-full";
    /// It was to run after another job, in a chain of too many jobs, or a cycle.
    MissedChain "missed-chain";
    /// It was left out when the schedule was resumed or changed.
    MissedChange "missed-change";
    /// It was not claimed in time, and the catch-up policy left it out.
    MissedCatchUp "missed-catch-up";
    /// The run before it stayed active until later occurrences had come due as well.
    MissedBehindRun "missed-behind-run";
    /// It was later than the window allows.
    MissedWindow "missed-window";

    /// The local time was dropped when the clocks changed.
    DroppedByClockChange "dropped-by-clock-change";
    /// The local time did not exist when the clocks changed, and ran at another instant.
    MovedByClockChange "moved-by-clock-change";
    /// A calendar excludes its day, and it ran, or is to run, on another one.
    MovedByCalendar "moved-by-calendar";
    /// Its schedule does not have this time.
    NotScheduled "not-scheduled";
    /// It has not come yet.
    InFuture "in-future";
    /// The job was created later.
    CreatedLater "created-later";
    /// The definition was changed later, and so does not show what the schedule was then.
    ChangedLater "changed-later";
    /// The store keeps no history.
    NoHistory "no-history";
    /// The history begins later.
    BeforeHistory "before-history";
    /// The history has no entry for it.
    NoEntry "no-entry";
}

impl fmt::Display for WhyCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Condition;
    use std::collections::BTreeSet;

    #[test]
    fn codes_are_unique_words_and_those_of_conditions_where_the_state_is_one() {
        let words: BTreeSet<&str> = WhyCode::ALL.iter().map(|code| code.word()).collect();
        assert_eq!(words.len(), WhyCode::ALL.len());
        let shared: Vec<&str> =
            words.iter().copied().filter(|word| Condition::CODES.contains(word)).collect();
        assert_eq!(
            shared,
            [
                "capacity-full",
                "clock-was-ahead",
                "data-mismatch",
                "definition-conflict",
                "job-invalid",
                "job-overdue",
                "jobs-orphaned",
                "key-busy",
                "kind-unhandled",
                "label-unmatched",
                "node-dead",
                "record-unreadable",
            ]
        );
    }
}
