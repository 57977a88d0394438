//! The states of a job in words, the one that does most damage first.

use allora_core::{
    Time,
    backend::{Count, Flag, JobState, MOST_COUNTED},
    stored::ScheduleState,
};
use chrono::TimeDelta;

/// The time for which an occurrence is due, without a lease, until it is overdue.
pub(crate) const OVERDUE: TimeDelta = TimeDelta::minutes(1);

/// A state of a job. Several may hold at once; the first needs a person most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Word {
    /// Its record or its definition cannot be read.
    Unreadable,
    /// It is due for more than a minute, and no node has claimed it.
    Overdue,
    /// It has dead letters.
    Dead,
    /// Its last attempt failed or was lost.
    Failing,
    /// No live node declares it.
    Orphaned,
    /// A run is active.
    Running,
    /// An operator has paused it.
    Paused,
    /// It is due, and its concurrency key is busy.
    KeyWait,
    /// A node claims it at any moment.
    Due,
    /// It waits for its time.
    Waiting,
    /// It has nothing more to run.
    Ended,
}

impl Word {
    pub(crate) const ALL: [Self; 11] = [
        Self::Unreadable,
        Self::Overdue,
        Self::Dead,
        Self::Failing,
        Self::Orphaned,
        Self::Running,
        Self::Paused,
        Self::KeyWait,
        Self::Due,
        Self::Waiting,
        Self::Ended,
    ];

    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Unreadable => "unreadable",
            Self::Overdue => "overdue",
            Self::Dead => "dead",
            Self::Failing => "failing",
            Self::Orphaned => "orphaned",
            Self::Running => "running",
            Self::Paused => "paused",
            Self::KeyWait => "key wait",
            Self::Due => "due",
            Self::Waiting => "waiting",
            Self::Ended => "ended",
        }
    }

    /// The flag by which a store finds and counts the jobs in this state, and perhaps others; `None` if it
    /// has no such flag.
    pub(crate) fn flag(self) -> Option<Flag<'static>> {
        match self {
            Self::Overdue => Some(Flag::Overdue),
            Self::Dead => Some(Flag::Dead),
            Self::Failing => Some(Flag::Failing),
            Self::Orphaned => Some(Flag::Kind("")),
            Self::Running => Some(Flag::Running),
            Self::Paused => Some(Flag::Paused),
            Self::KeyWait | Self::Due => Some(Flag::Due),
            Self::Ended => Some(Flag::Ended),
            // The definition may be what cannot be read.
            Self::Unreadable | Self::Waiting => None,
        }
    }

    pub(crate) fn from_text(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|word| word.text() == text)
    }
}

/// A text of the core with the ids of nodes cut to the part that tells them apart: their label, and four
/// of the 32 digits behind it.
pub(crate) fn short_nodes(text: &str) -> String {
    const DIGITS: usize = 32;
    const KEPT: usize = 4;
    let mut short = String::new();
    let mut rest = text;
    while let Some((head, after)) = rest.split_once('-') {
        short.push_str(head);
        short.push('-');
        let digits = after.bytes().take_while(u8::is_ascii_hexdigit).count();
        rest = after;
        if digits == DIGITS {
            short.push_str(&after[..KEPT]);
            rest = &after[DIGITS..];
        }
    }
    short + rest
}

/// Facts about a job that its own record does not have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Around {
    /// No live node declares it.
    pub(crate) is_orphaned: bool,
    /// Its concurrency key is held by as many runs as it allows.
    pub(crate) is_key_busy: bool,
}

/// The states that hold, at least one, in the order of [`Word`].
pub(crate) fn words(state: &JobState, around: Around, now: Time) -> Vec<Word> {
    let is_claimable = state.leases.is_empty() && !around.is_orphaned;
    let due_for = state.due_at.filter(|_| is_claimable).map(|due_at| now - due_at);
    let is_due = due_for.is_some_and(|due_for| due_for >= TimeDelta::zero());
    let is_free = is_due && !around.is_key_busy;
    let holds = |word: &Word| match word {
        Word::Unreadable => ScheduleState::Broken.holds(state),
        Word::Overdue => is_free && due_for >= Some(OVERDUE),
        Word::Dead => ScheduleState::Dead.holds(state),
        Word::Failing => ScheduleState::Failing.holds(state),
        Word::Orphaned => around.is_orphaned,
        Word::Running => ScheduleState::Running.holds(state),
        Word::Paused => ScheduleState::Paused.holds(state),
        Word::KeyWait => is_due && around.is_key_busy,
        Word::Due => is_free && due_for < Some(OVERDUE),
        Word::Waiting => due_for.is_some_and(|due_for| due_for < TimeDelta::zero()),
        Word::Ended => {
            ScheduleState::Ended.holds(state) && state.due_at.is_none() && !around.is_orphaned
        }
    };
    let mut words: Vec<Word> = Word::ALL.into_iter().filter(holds).collect();
    if words.is_empty() {
        words.push(Word::Ended);
    }
    words
}

/// A count with its noun.
pub(crate) fn counted(count: usize, noun: &str) -> String {
    let digits = grouped(count);
    format!("{digits} {noun}{}", if count == 1 { "" } else { "s" })
}

/// A number of jobs: `12,000`, or `more than 10,000`.
pub(crate) fn number(count: Count) -> String {
    let digits = grouped(usize::try_from(count.number).unwrap_or(usize::MAX));
    match count.number {
        _ if count.is_exact => digits,
        MOST_COUNTED.. => format!("more than {digits}"),
        _ => format!("at least {digits}"),
    }
}

/// A number in groups of three digits: `10,000`.
pub(crate) fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let mut grouped = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::times::at;
    use allora_core::{
        Outcome,
        backend::{DeadLetter, Lease, OnExpiry, Pause},
    };

    const NOW: &str = "2026-10-26T02:00:00Z";

    fn check(change: impl FnOnce(&mut JobState), around: Around, are: &[Word]) {
        let mut state = JobState::empty("report");
        state.definition = "@daily".into();
        change(&mut state);
        assert_eq!(words(&state, around, at(NOW)), are);
    }

    #[test]
    fn a_job_is_due_and_then_overdue() {
        let none = Around::default();
        check(|job| job.due_at = Some(at("2026-10-26T02:00:01Z")), none, &[Word::Waiting]);
        check(|job| job.due_at = Some(at(NOW)), none, &[Word::Due]);
        check(|job| job.due_at = Some(at("2026-10-26T01:59:00Z")), none, &[Word::Overdue]);
        check(|_| {}, none, &[Word::Ended]);
    }

    #[test]
    fn a_job_that_waits_for_its_key_or_has_no_build_is_not_overdue() {
        let due = |job: &mut JobState| job.due_at = Some(at("2026-10-26T01:00:00Z"));
        check(due, Around { is_key_busy: true, ..Around::default() }, &[Word::KeyWait]);
        check(due, Around { is_orphaned: true, ..Around::default() }, &[Word::Orphaned]);
    }

    #[test]
    fn all_states_that_hold_are_named() {
        let all = |job: &mut JobState| {
            let occurrence = allora_core::Occurrence::from(at(NOW));
            let (attempts, died_at, error) = (5, at(NOW), "refused".into());
            job.dead.push(DeadLetter { occurrence: occurrence.clone(), attempts, died_at, error });
            job.last = Some(Outcome::Dead("refused".into()));
            job.paused = Some(Pause { since: at(NOW), until: None, note: String::new() });
            job.leases.push(Lease::new("web-1", 1, 1, occurrence, at(NOW), OnExpiry::Lost));
        };
        let are = [Word::Dead, Word::Failing, Word::Running, Word::Paused];
        check(all, Around::default(), &are);
    }

    #[test]
    fn ids_of_nodes_are_cut_and_nothing_else_is() {
        let id = "web-1-2b63fc2d7f67803db48738fdd885dbbc";
        assert_eq!(short_nodes(&format!("on {id}, a-b")), "on web-1-2b63, a-b");
        for kept in ["web-1", "", "-", "key-2b63fc2d7f67803db48738fdd885dbbc0", "a-€"] {
            assert_eq!(short_nodes(kept), kept);
        }
    }

    #[test]
    fn the_words_are_their_own_texts_and_have_looks() {
        for word in Word::ALL {
            assert_eq!(Word::from_text(word.text()), Some(word));
            assert_eq!(crate::look::look(word.text()).word, word.text());
        }
    }
}
