//! Schedules that live in the store: added, changed and removed while everything runs.

use super::{Counters, DeadLetter, Next, Now, Occurrence, Pause, Skip, State};
use crate::{error::Result, time::Time};
use async_trait::async_trait;

/// Stored schedules. Every write checks and changes one record atomically.
///
/// # Promises
/// Each names the cases of the conformance suite that ask for it.
/// 1. *All or nothing.* A change that is refused changes nothing; of two edits of one edition
///    one wins; of a batch each schedule is decided alone. Cases:
///    `stored::an_edit_changes_what_was_read_and_nothing_else`,
///    `stored::an_edit_does_not_go_back_to_what_was_started`,
///    `stored::an_edited_kind_routes_it_elsewhere`, `stored::a_name_that_is_taken_is_refused`,
///    `stored::of_many_that_are_added_each_is_answered_by_position`.
/// 2. *What is stored comes back*: any bytes, up to 1 MiB; more is refused, and so is a bad
///    name. Cases: `names::data_of_any_bytes_comes_back_whole`,
///    `names::too_much_data_is_refused`, `names::a_bad_name_or_kind_is_refused`.
/// 3. *Deleted is gone*, also for what runs; the name is remembered, and begins anew. Cases:
///    `stored::a_deleted_job_is_gone_to_every_plan`,
///    `stored::a_run_of_a_deleted_job_is_told_so_and_moves_nothing`,
///    `stored::a_tombstone_outlives_every_late_writer`.
/// 4. *Lists are ordered* by name as bytes, and what comes and goes does not shift their pages.
///    Cases: `names::names_are_listed_in_the_order_of_their_bytes`,
///    `stored::stored_jobs_and_jobs_in_code_are_listed_page_by_page`.
/// 5. *What wants attention is found*, by kind, the earliest first, and nothing else is. Cases:
///    `stored::what_is_due_is_found_by_kind_the_earliest_first`,
///    `stored::what_is_leased_is_found_again_at_the_leases_end`,
///    `operators::a_trigger_of_a_job_in_code_is_found`,
///    `stored::the_kinds_of_what_can_be_found_are_known`.
/// 6. *A trigger runs once beside the schedule*, and never moves its cursor. Cases:
///    `operators::a_trigger_never_moves_the_cursor`,
///    `operators::the_same_trigger_counts_once_and_two_of_one_millisecond_twice`,
///    `operators::a_trigger_stands_for_the_instant_it_is_given`,
///    `operators::a_silent_trigger_at_a_nominal_instant_is_not_that_instant`.
/// 7. *A pause keeps back the schedule*, begun or not, but neither what runs nor triggers.
///    Cases: `operators::a_paused_schedule_offers_nothing`,
///    `operators::what_failed_is_not_tried_again_while_paused`,
///    `operators::what_runs_goes_on_while_paused`, `operators::triggers_run_while_paused`.
/// 8. *What failed for good is kept*: the last ones, until an operator has them run again, as the
///    same occurrences, or dismisses them. Cases:
///    `operators::what_failed_for_good_is_kept_and_can_be_run_again`,
///    `operators::only_so_many_dead_letters_are_kept`.
/// 9. *What is brought along is there*: a schedule that comes from another store goes on where it
///    was. Cases: `stored::a_schedule_brings_its_past_along`.
#[async_trait]
pub trait Schedules: Send + Sync {
    /// Adds schedules, each decided alone, in their order; answers by position. One call takes any
    /// number: a backend cuts it into requests that its store can bear.
    ///
    /// # Errors
    /// Of one schedule: `AlreadyExists` if the name is taken, `Invalid` for a bad name or kind, too
    /// much data, or a past that does not fit. Of the call: `Unavailable` if the store did not
    /// answer; some may have been added, and asked again they are answered with `AlreadyExists`.
    async fn add(&self, new: &[NewSchedule<'_>], now: Now) -> Result<Vec<Result<State>>>;

    /// The job of this name, stored or in code.
    ///
    /// # Errors
    /// `NotFound`, `Unavailable`.
    async fn get(&self, name: &str) -> Result<State>;

    /// The jobs, stored and in code, ordered by name as bytes.
    ///
    /// # Errors
    /// `Unavailable`.
    async fn list(&self, page: Page<'_>) -> Result<Vec<State>>;

    /// The kinds of which a stored schedule wants attention, now or later, in any order: what nodes
    /// that route by patterns choose from. Kinds of which there is none left may be among them.
    ///
    /// # Errors
    /// `Unavailable`.
    async fn kinds(&self) -> Result<Vec<String>>;

    /// Changes a job; answers with its new state. What runs goes on.
    ///
    /// # Errors
    /// `NotFound`; `AlreadyExists` if the edition is not the one that was read; `Invalid`.
    async fn modify(&self, name: &str, change: Change<'_>, now: Now) -> Result<State>;

    /// Removes a job. Its name is remembered for seven days, so that late writers are refused.
    ///
    /// # Errors
    /// `NotFound`, `Unavailable`.
    async fn delete(&self, name: &str, now: Now) -> Result;
}

/// A schedule to add.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct NewSchedule<'a> {
    /// Its name; see [`check_name`](crate::check_name).
    pub name: &'a str,
    /// What routes it; as a name.
    pub kind: &'a str,
    /// What it is, as text.
    pub definition: &'a str,
    /// Its first occurrence; `None`: only triggers run.
    pub first: Option<Next>,
    /// What its runs are given; at most 1 MiB.
    pub data: &'a [u8],
    /// What it brings along from another store; by default nothing.
    pub carried: Carried<'a>,
}

/// What a schedule brings along when it moves from one store to another.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct Carried<'a> {
    /// The last occurrence that was started; before the first one here.
    pub last_started: Option<Time>,
    /// Whether it is paused.
    pub paused: Option<&'a Pause>,
    /// What has become of its occurrences.
    pub counters: Counters,
    /// What failed for good; of more than [`MAX_DEAD`](crate::record::MAX_DEAD) the last ones.
    pub dead: &'a [DeadLetter],
}

impl<'a> Carried<'a> {
    /// All that can be taken from a state. What was begun there and has not ended is begun anew.
    pub fn of(state: &'a State) -> Self {
        let last = state.last_started;
        let begun = last.is_some_and(|last| state.cursor.is_some_and(|next| next.at <= last));
        let mut counters = state.counters;
        // It will be counted when it is begun anew.
        counters.started = counters.started.saturating_sub(u64::from(begun));
        Self {
            last_started: last.filter(|_| !begun),
            paused: state.paused.as_ref(),
            counters,
            dead: &state.dead,
        }
    }
}

impl<'a> NewSchedule<'a> {
    /// A schedule without data.
    pub fn new(name: &'a str, kind: &'a str, definition: &'a str, first: Option<Next>) -> Self {
        Self { name, kind, definition, first, data: &[], carried: Carried::default() }
    }

    /// With data for its runs.
    #[must_use]
    pub fn data(mut self, data: &'a [u8]) -> Self {
        self.data = data;
        self
    }

    /// Goes on where another store has left it.
    #[must_use]
    pub fn carrying(mut self, carried: Carried<'a>) -> Self {
        self.carried = carried;
        self
    }
}

/// A part of the list.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Page<'a> {
    /// Names after this one; `None` from the beginning.
    pub after: Option<&'a str>,
    /// Names that begin so.
    pub prefix: &'a str,
    /// Of this kind only.
    pub kind: Option<&'a str>,
    /// At most so many, at least 1.
    pub limit: usize,
}

impl<'a> Page<'a> {
    /// The first `limit` jobs.
    pub fn first(limit: usize) -> Self {
        Self { after: None, prefix: "", kind: None, limit }
    }

    /// Those after this name.
    #[must_use]
    pub fn after(mut self, name: &'a str) -> Self {
        self.after = Some(name);
        self
    }

    /// Those whose names begin so.
    #[must_use]
    pub fn prefix(mut self, prefix: &'a str) -> Self {
        self.prefix = prefix;
        self
    }

    /// Those of this kind.
    #[must_use]
    pub fn kind(mut self, kind: &'a str) -> Self {
        self.kind = Some(kind);
        self
    }
}

/// A change of one job.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Change<'a> {
    /// Another kind, another definition or other data. A due occurrence that the new cursor passes over is
    /// recorded as missed.
    Edit {
        /// The edition that was read; another one there is an error, so that two editors do not
        /// overwrite each other.
        edition: i64,
        /// The new kind, if it is another; not for a job in code.
        kind: Option<&'a str>,
        /// The new definition and the next occurrence under it, if it is another.
        definition: Option<(&'a str, Option<Next>)>,
        /// The new data, if it is other data.
        data: Option<&'a [u8]>,
    },
    /// Stops the schedule; triggers still run. Pausing again changes the note only.
    Pause {
        /// Why.
        note: &'a str,
    },
    /// Starts the schedule again.
    Resume {
        /// `Some`: what passed since is recorded, and the cursor moves on, if both are as they were
        /// read; otherwise that is an error. The range begins with the cursor, or, if that was begun,
        /// behind it. `None`: the cursor stays, and the catch-up policy decides.
        skip: Option<Skip>,
    },
    /// One run beside the schedule. The same id again, for the same instant if one is given,
    /// changes nothing as long as the record remembers it: until the run has ended, or, without a
    /// lease or mark, was taken.
    Trigger {
        /// The trigger's own id; as a name.
        id: &'a str,
        /// The instant it stands for, as a backfill has it, at which it is due; `None`: now.
        at: Option<Time>,
    },
    /// Has a dead letter run again, as the same occurrence, its attempts counted anew.
    Rerun {
        /// The dead letter's occurrence.
        run: &'a Occurrence,
    },
    /// Forgets a dead letter.
    Dismiss {
        /// The dead letter's occurrence.
        run: &'a Occurrence,
    },
}
