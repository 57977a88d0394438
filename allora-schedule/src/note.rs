//! Notes of a schedule about its instants, for people.

use crate::Time;

/// A note of a schedule about an instant.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Note {
    /// The instant it is about: for a change of the clock, the change.
    pub at: Time,
    /// The reason of the note.
    pub reason: NoteReason,
    /// The same in words.
    pub message: String,
}

impl Note {
    /// A note about an instant.
    pub fn new(at: Time, reason: NoteReason, message: impl Into<String>) -> Self {
        Self { at, reason, message: message.into() }
    }
}

/// The reason for a [`Note`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum NoteReason {
    /// A local time does not exist; it runs at the first instant after the gap.
    Moved,
    /// A local time does not exist; it is left out.
    Skipped,
    /// A local time exists twice; it runs the first time.
    Once,
    /// A local time exists twice; it runs both times.
    Twice,
    /// A calendar excludes it.
    Excluded,
    /// A calendar excludes its day; it runs on another one.
    OtherDay,
    /// The sun does not rise or does not set on these days; there is no occurrence.
    NoSun,
    /// The times after it depend on the end of its run.
    AfterEnd,
    /// Anything else: read the message.
    Other,
}
