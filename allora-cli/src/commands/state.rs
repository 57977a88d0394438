//! The state of a job as one word, and the time that is left until it runs.

use crate::kinds::bad_data;
use allora_core::{Time, backend::JobState, stored::ScheduleState};
use chrono::TimeDelta;

/// The time for which an occurrence is due, without a lease, until it is overdue.
pub(super) const OVERDUE: TimeDelta = TimeDelta::minutes(1);

/// The state of a job, those that need an operator first. Of several, a job has the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Word {
    Unreadable,
    BadData,
    Orphaned,
    Running,
    Paused,
    KeyWait,
    Overdue,
    Dead,
    Due,
    Waiting,
    Ended,
}

impl Word {
    pub(super) fn of(state: &JobState, is_orphaned: bool, waits_for_key: bool, now: Time) -> Self {
        match state.due_at {
            _ if ScheduleState::Broken.holds(state) => Self::Unreadable,
            _ if bad_data(state).is_some() => Self::BadData,
            _ if is_orphaned => Self::Orphaned,
            _ if ScheduleState::Running.holds(state) => Self::Running,
            _ if ScheduleState::Paused.holds(state) => Self::Paused,
            Some(_) if waits_for_key => Self::KeyWait,
            Some(due) if due + OVERDUE <= now => Self::Overdue,
            _ if ScheduleState::Dead.holds(state) => Self::Dead,
            Some(due) if due <= now => Self::Due,
            Some(_) => Self::Waiting,
            None => Self::Ended,
        }
    }

    pub(super) fn text(self) -> &'static str {
        match self {
            Self::Unreadable => "unreadable",
            Self::BadData => "bad_data",
            Self::Orphaned => "orphaned",
            Self::Running => "running",
            Self::Paused => "paused",
            Self::KeyWait => "key_wait",
            Self::Overdue => "overdue",
            Self::Dead => "dead",
            Self::Due => "due",
            Self::Waiting => "waiting",
            Self::Ended => "ended",
        }
    }

    /// True if a node claims the job at its due time, or should have. Of a paused one that is the end of
    /// the pause, or that of a trigger.
    fn is_claimed_when_due(self) -> bool {
        use Word::{Dead, Due, KeyWait, Overdue, Paused, Waiting};
        matches!(self, KeyWait | Overdue | Dead | Due | Waiting | Paused)
    }
}

/// The time until a job in this state runs, in at most two units: `3h 12m`, `5m 0s ago`; `-` if it does
/// not wait for a time.
pub(super) fn left(word: Word, due_at: Option<Time>, now: Time) -> String {
    match due_at.filter(|_| word.is_claimed_when_due()) {
        Some(due) if due > now => spoken(due - now),
        Some(due) => format!("{} ago", spoken(now - due)),
        None => "-".into(),
    }
}

fn spoken(span: TimeDelta) -> String {
    let seconds = span.num_seconds();
    let (minutes, hours, days) = (seconds / 60, seconds / 3_600, seconds / 86_400);
    match seconds {
        ..60 => format!("{seconds}s"),
        60..3_600 => format!("{minutes}m {}s", seconds % 60),
        3_600..86_400 => format!("{hours}h {}m", minutes % 60),
        _ if days < 100 => format!("{days}d {}h", hours % 24),
        _ => ">99d".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::{Word, left};
    use crate::values::instant;

    #[test]
    fn what_is_left_has_two_units() {
        let at = |text: &str| instant(text).unwrap();
        let now = at("2026-03-01T12:00:00Z");
        for (due, is) in [
            ("2026-03-01T12:00:00.999Z", "0s"),
            ("2026-03-01T12:00:59Z", "59s"),
            ("2026-03-01T12:01:05Z", "1m 5s"),
            ("2026-03-01T15:12:59Z", "3h 12m"),
            ("2026-03-04T16:00:00Z", "3d 4h"),
            ("2027-03-01T12:00:00Z", ">99d"),
            ("2026-03-01T12:00:00Z", "0s ago"),
            ("2026-03-01T11:55:00Z", "5m 0s ago"),
        ] {
            assert_eq!(left(Word::Waiting, Some(at(due)), now), is, "{due}");
        }
        assert_eq!(left(Word::Ended, None, now), "-");
        assert_eq!(left(Word::Running, Some(now), now), "-", "that is the end of its lease");
    }
}
