//! The mark: a record in which one node tells the others with the same jobs in code that it has
//! checked all of these jobs.
//!
//! It is a hint, as the registry is. A node that does not believe it reads the jobs itself, and no
//! claim depends on it.

use crate::{
    name::MARK,
    registry::name_hash,
    time::{Time, from_millis},
};
use std::{fmt::Write, sync::Arc};

/// The number of marks in a store. Nodes whose jobs share one do not believe each other's.
const MARKS: u64 = 64;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    /// The latest due time for which everything is claimed, or held back by its own policy.
    pub(super) until: Time,
    /// The first time after that at which a run must be looked after, or a policy holds back no more.
    /// The schedules' own times are not among these: every node knows them.
    pub(super) next: Option<Time>,
    /// The hash of the jobs and of the generations of their definitions, as the node knows them.
    pub(super) view: u64,
    /// The hashes of the names of the jobs that the node does not vouch for.
    pub(super) except: Vec<u32>,
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
