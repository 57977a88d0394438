//! The record of changes: who changed what, from what to what.
//!
//! The entry is decided together with the change and by the same function, so a store has nothing to
//! decide: it writes both in one step. Only operations with an [`Author`] have entries. Nodes have none,
//! so a claim or the end of a run costs what it did.
//!
//! The number of an entry is a fence that the change draws. So it never repeats for one job, grows with
//! the store's clock, and orders the entries of all jobs as the history is ordered. A refused change
//! draws one too, because an operator also wants to see what was tried. But a change of a name without
//! a job has no record to write and leaves no entry, and a refused creation is none of the job that has
//! the name.

use super::Record;
use crate::{
    backend::{Action, Author, CancelScope, HistoryCursor, JobState, Occurrence},
    error::{Error, Result},
    name::check_name,
    time::Time,
};
use chrono::SecondsFormat;

/// The largest data, in bytes, that a change keeps of a job. A change of more is recorded without it.
pub const MAX_CHANGE_DATA: usize = 64 << 10;

/// The longest note of an author, in bytes.
pub const MAX_NOTE: usize = 1_024;

/// The number of changes that the record of a job keeps, in a store without a record of all changes:
/// fewer if they are larger than 512 KiB together, but always the last one.
pub const MAX_CHANGES: usize = 20;

/// Their largest size together: each later write of the record carries them.
const MAX_SIZE: usize = 512 << 10;

/// One change of one job by a client, as [`Schedules::changes`](crate::Schedules::changes) shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Change {
    /// The job.
    pub name: String,
    /// A fence that the change has drawn: its number among the changes of the job. It grows, never
    /// repeats, and is the change's time in microseconds, or a little more.
    pub sequence: i64,
    /// The time of the change, by the clock that decided.
    pub at: Time,
    /// The person or program that made it, the way, and the reason. The note of a pause stands here if the author gave none.
    pub author: Author,
    /// The kind of change.
    pub action: ChangeAction,
    /// To what: the id of a trigger, the occurrence of a dead letter, the scope of a cancellation, the
    /// range that was left out, the end of a pause. Empty for the others.
    pub detail: String,
    /// The job before the change: kind, definition, data, cursor, pause, counters and dead letters.
    /// `None` for a creation, and if nothing changed. A definition, data, counters and dead letters that
    /// are the same before and after are empty in both.
    pub before: Option<Box<Record>>,
    /// The job after the change, in the same form; `None` for a deletion, and if nothing changed.
    pub after: Option<Box<Record>>,
    /// The job had, or was given, data of more than [`MAX_CHANGE_DATA`], which is not kept: so the
    /// change cannot be undone.
    pub lacks_data: bool,
    /// Its result.
    pub result: ChangeResult,
}

/// The kind of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum ChangeAction {
    /// Created it.
    Create,
    /// Changed its kind, definition or data.
    Modify,
    /// Deleted it.
    Delete,
    /// Paused it, or changed the note of its pause.
    Pause,
    /// Resumed it.
    Resume,
    /// Left out occurrences.
    Skip,
    /// Triggered a run.
    Trigger,
    /// Had a dead letter run again.
    Rerun,
    /// Removed a dead letter.
    Dismiss,
    /// Recorded that the work of an occurrence is done.
    Mark,
    /// Cancelled runs.
    Cancel,
    /// Started it again under a new incarnation.
    Reset,
}

/// The result of a change.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ChangeResult {
    /// It was made.
    Applied,
    /// The job was so already.
    Unchanged,
    /// It was refused, for this reason.
    Refused(String),
}

impl ChangeAction {
    /// All of them.
    pub const ALL: [Self; 12] = [
        Self::Create,
        Self::Modify,
        Self::Delete,
        Self::Pause,
        Self::Resume,
        Self::Skip,
        Self::Trigger,
        Self::Rerun,
        Self::Dismiss,
        Self::Mark,
        Self::Cancel,
        Self::Reset,
    ];

    /// Those after which a job has another definition, or none.
    pub const DEFINITIONS: [Self; 3] = [Self::Create, Self::Modify, Self::Delete];

    /// Its word, in stores and JSON.
    pub fn word(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Modify => "modify",
            Self::Delete => "delete",
            Self::Pause => "pause",
            Self::Resume => "resume",
            Self::Skip => "skip",
            Self::Trigger => "trigger",
            Self::Rerun => "rerun",
            Self::Dismiss => "dismiss",
            Self::Mark => "mark",
            Self::Cancel => "cancel",
            Self::Reset => "reset",
        }
    }

    /// The one with this word.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|action| action.word() == word)
    }

    /// That of an operation of a client, with its detail; `None` for one that nodes make, or that
    /// changes nothing.
    pub(super) fn of(action: &Action<'_>) -> Option<(Self, String)> {
        let none = String::new();
        Some(match action {
            Action::Create(_) => (Self::Create, none),
            Action::Modify(_) => (Self::Modify, none),
            Action::Delete => (Self::Delete, none),
            Action::Pause { until, .. } => {
                (Self::Pause, until.map_or(none, |until| format!("until {}", instant(until))))
            }
            Action::Resume => (Self::Resume, none),
            Action::Skip(skip) => {
                let (first, last) = (instant(skip.expected), instant(skip.not_run.last));
                let range = if first == last { first } else { format!("{first} to {last}") };
                (Self::Skip, range)
            }
            Action::Trigger { id, scheduled_at: None, .. } => (Self::Trigger, (*id).to_owned()),
            Action::Trigger { id, scheduled_at: Some(at), .. } => {
                (Self::Trigger, format!("{id} for {}", instant(*at)))
            }
            Action::Rerun { occurrence } => (Self::Rerun, told(occurrence)),
            Action::Dismiss { occurrence } => (Self::Dismiss, told(occurrence)),
            Action::MarkSucceeded { occurrence } => (Self::Mark, told(occurrence)),
            Action::Cancel(CancelScope::All) => (Self::Cancel, none),
            Action::Cancel(CancelScope::Run(fence)) => (Self::Cancel, format!("run {fence}")),
            Action::Cancel(CancelScope::Trigger(id)) => (Self::Cancel, format!("trigger {id}")),
            Action::Reset { .. } => (Self::Reset, none),
            _ => return None,
        })
    }
}

impl ChangeResult {
    /// Its word, in stores and JSON.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Applied => "applied",
            Self::Unchanged => "unchanged",
            Self::Refused(_) => "refused",
        }
    }

    /// The reason of a refusal; empty otherwise.
    pub fn error(&self) -> &str {
        match self {
            Self::Refused(error) => error,
            Self::Applied | Self::Unchanged => "",
        }
    }

    /// The one with this word and this reason.
    pub fn from_word(word: &str, error: &str) -> Option<Self> {
        match word {
            "applied" => Some(Self::Applied),
            "unchanged" => Some(Self::Unchanged),
            "refused" => Some(Self::Refused(error.to_owned())),
            _ => None,
        }
    }
}

impl Change {
    /// `true` if it is one of an occurrence of this time.
    pub(crate) fn is_about(&self, at: Time) -> bool {
        self.detail.ends_with(&instant(at))
    }

    /// The change's key: the page after it begins below this.
    pub fn cursor(&self) -> HistoryCursor {
        HistoryCursor { fence: self.sequence, name: self.name.clone() }
    }

    /// The state of the job before the change, as far as that is [kept](Self::before).
    pub fn state_before(&self) -> Option<JobState> {
        self.before.as_ref().map(|record| record.state(&self.name))
    }

    /// The state of the job after the change, as far as that is [kept](Self::after).
    pub fn state_after(&self) -> Option<JobState> {
        self.after.as_ref().map(|record| record.state(&self.name))
    }

    /// An upper bound of its bytes in a store, without the text of its form.
    pub fn size(&self) -> usize {
        let of = |record: &Option<Box<Record>>| {
            record.as_deref().map_or(0, |record| {
                let errors = record.dead.iter().map(|letter| letter.error.len() + 128);
                // Data that is no text is written as digits.
                record.definition.len() + 2 * record.data.len() + errors.sum::<usize>() + 512
            })
        };
        self.author.note.len() + self.result.error().len() + of(&self.before) + of(&self.after)
    }
}

impl Record {
    /// Keeps the last of its changes, and these: for a store without a record of all changes.
    pub(crate) fn keep_changes(&mut self, new: Vec<Change>) {
        if new.is_empty() {
            return;
        }
        self.changes.extend(new);
        let mut size = 0;
        let fitting = self.changes.iter().rev().take(MAX_CHANGES).take_while(|change| {
            size += change.size();
            size <= MAX_SIZE
        });
        let kept = fitting.count().max(1);
        self.changes.drain(..self.changes.len() - kept);
    }
}

impl Author {
    pub(super) fn check(&self) -> Result {
        let named = |what: &str, word: &str| {
            check_name(word).map_err(|error| error.within(format!("the {what} of a change")))
        };
        named("actor", &self.actor)?;
        if !self.via.is_empty() {
            named("way", &self.via)?;
        }
        if self.note.len() > MAX_NOTE {
            let len = self.note.len();
            let long = format!("the note has {len} bytes, at most {MAX_NOTE} are kept; shorten it");
            return Err(Error::invalid(long));
        }
        Ok(())
    }
}

fn told(occurrence: &Occurrence) -> String {
    let at = instant(occurrence.scheduled_at);
    match &occurrence.trigger {
        Some(id) => format!("{id} for {at}"),
        None => at,
    }
}

fn instant(at: Time) -> String {
    at.to_rfc3339_opts(SecondsFormat::AutoSi, true)
}
