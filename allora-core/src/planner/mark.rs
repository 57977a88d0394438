//! The mark: the record in which one node tells the others with the same jobs in code that it has checked
//! all of them; and the part of the planner's state that is about it.
//!
//! It is a hint, as the registry is. A node that does not believe it reads the jobs itself, and no claim
//! depends on it.

use super::{slot_id::SlotId, wake_up::NOW};
use crate::{
    name::MARK,
    registry::name_hash,
    time::{Time, from_millis, saturating_add},
};
use std::{collections::BTreeSet, fmt::Write, sync::Arc, time::Duration};

/// The number of marks in a store. Nodes whose jobs share one do not believe each other's.
const MARKS: u64 = 64;

/// The shortest time between two reads of the mark. What is due for less than half a second at the first is
/// due for less than 1.5 s at the second.
const PACE: Duration = Duration::from_secs(1);

/// The watch of one node.
#[derive(Default)]
pub(super) struct Watch {
    /// The hash of the names of the jobs in code.
    pub(super) jobs: u64,
    /// The mark as it was read or written last, if it is believed, and the generation of its record.
    pub(super) mark: Option<Mark>,
    pub(super) generation: Option<i64>,
    /// The jobs that are due for half a second by what this node knows, and the time since which each is.
    pub(super) waiting: BTreeSet<(Time, SlotId)>,
    /// The jobs that were planned by their schedules, because the mark vouched for them.
    pub(super) covered: BTreeSet<SlotId>,
    /// The names of these jobs whose next time is not published yet.
    pub(super) planned: Vec<Arc<str>>,
    /// The first time at which a run of one of these must be looked after.
    pub(super) next: Option<Time>,
    /// The time of the next read of the mark, that of the last one, and whether it has no reply yet.
    pub(super) check_at: Option<Time>,
    pub(super) checked_at: Option<Time>,
    pub(super) is_asked: bool,
    pub(super) check: Option<Check>,
    /// The last instant whose place in the order was computed, and this node's delay in it.
    pub(super) delay: Option<(Time, Duration)>,
}

/// A check of all jobs by this node.
pub(super) struct Check {
    pub(super) began_at: Time,
    /// The latest due time of what is checked. Half a second before the check, so that the first three nodes
    /// have had their turn.
    pub(super) until: Time,
    /// The jobs that may have an unclaimed occurrence of before.
    pub(super) open: BTreeSet<SlotId>,
    /// The first time at which a run must be looked after of a job that is not read.
    pub(super) next: Option<Time>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    /// The latest due time for which everything is claimed, or held back by its own policy.
    pub(super) until: Time,
    /// The first time after that at which a run must be looked after, or a policy holds back no more. The
    /// schedules' own times are not among these: every node knows them.
    pub(super) next: Option<Time>,
    /// The hash of the jobs and of the generations of their definitions, as the node knows them.
    pub(super) view: u64,
    /// The hashes of the names of the jobs that the node does not vouch for.
    pub(super) except: Vec<u32>,
}

impl Watch {
    pub(super) fn check_by(&mut self, at: Time) {
        self.check_at = Some(self.check_at.map_or(at, |check_at| check_at.min(at)));
    }

    /// The time of the next read of the mark.
    pub(super) fn due_at(&self) -> Option<Time> {
        let paced = self.checked_at.map_or(NOW, |at| saturating_add(at, PACE));
        self.check_at.filter(|_| !self.is_asked).map(|at| at.max(paced))
    }

    pub(super) fn is_due(&self, now: Time) -> bool {
        self.due_at().is_some_and(|at| at <= now)
    }
}

/// The name of the record for nodes whose jobs have this hash.
pub(super) fn record_of(jobs: u64) -> Arc<str> {
    format!("{MARK}{:02x}", jobs % MARKS).into()
}

impl Mark {
    pub(super) fn text(&self) -> String {
        let mut text = format!("until={} view={:016x}", self.until.timestamp_millis(), self.view);
        if let Some(next) = self.next {
            let _ = write!(text, " next={}", next.timestamp_millis());
        }
        for hash in &self.except {
            let _ = write!(text, " except={hash:08x}");
        }
        text
    }

    /// Reads the text. Fields of a newer build are ignored; `None` if it is none.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let time = |text: &str| from_millis(text.parse().ok()?);
        let (mut until, mut next, mut view, mut except) = (None, None, None, Vec::new());
        for field in text.split(' ') {
            let (key, value) = field.split_once('=')?;
            match key {
                "until" => until = Some(time(value)?),
                "next" => next = Some(time(value)?),
                "view" => view = Some(u64::from_str_radix(value, 16).ok()?),
                "except" => except.push(u32::from_str_radix(value, 16).ok()?),
                _ => {}
            }
        }
        Some(Self { until: until?, next, view: view?, except })
    }

    /// `true` if the node does not vouch for this job.
    pub(super) fn excepts(&self, name: &str) -> bool {
        !self.except.is_empty() && self.except.contains(&name_hash(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_another_text_is_no_mark() {
        let at = |ms| from_millis(ms).unwrap();
        let except = vec![name_hash("a"), 7];
        let mark = Mark { until: at(1_500), next: Some(at(31_000)), view: u64::MAX, except };
        for mark in [Mark { next: None, except: Vec::new(), ..mark.clone() }, mark] {
            assert_eq!(Mark::parse(&mark.text()), Some(mark.clone()));
            assert_eq!(Mark::parse(&(mark.text() + " colour=green")), Some(mark.clone()));
            assert_eq!(mark.excepts("a"), !mark.except.is_empty());
        }
        for other in ["", "until=5", "view=5", "until=x view=5", "until=5 view=5 except=y", "x"] {
            assert_eq!(Mark::parse(other), None, "{other}");
        }
    }
}
