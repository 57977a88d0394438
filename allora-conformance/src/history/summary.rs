//! The figures of a log: what people ask first.

use super::log::{Claims, Event, What};
use std::collections::{BTreeMap, BTreeSet};

/// The figures of a log. It judges nothing: that is [`check`](super::check()).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Summary {
    /// The occurrences whose code was started, each with its lateness, by their times; both in milliseconds. Of
    /// several starts the first one counts.
    pub started: Vec<(i64, i64)>,
    /// The starts of occurrences that had been started before: at least once, after the death of a node.
    pub again: usize,
    /// The claims of occurrences that another node had claimed before.
    pub taken_over: usize,
    /// The nodes that have claimed something.
    pub nodes: usize,
}

impl Summary {
    /// Of this log.
    pub fn of(log: &[Event]) -> Self {
        let mut starts: BTreeMap<(i64, &str), Vec<i64>> = BTreeMap::new();
        let (mut taken_over, mut nodes) = (BTreeSet::new(), BTreeSet::new());
        for event in log {
            match event.what {
                What::Start { occurrence, .. } => {
                    starts.entry((occurrence, &event.job)).or_default().push(event.at);
                }
                What::Claim(Claims { fence, attempt, .. }) => {
                    nodes.insert(&event.node);
                    if attempt > 1 {
                        taken_over.insert((&event.job, fence));
                    }
                }
                _ => {}
            }
        }
        let mut of = Self { taken_over: taken_over.len(), nodes: nodes.len(), ..Self::default() };
        for ((occurrence, _), at) in starts {
            of.again += at.len() - 1;
            let first = at.into_iter().min().unwrap_or(occurrence);
            of.started.push((occurrence, first - occurrence));
        }
        of
    }

    /// The longest lateness of the occurrences that came due in this time, in milliseconds; `None` if none did.
    pub fn latest(&self, from: i64, to: i64) -> Option<i64> {
        let due = self.started.iter().filter(|(at, _)| (from..to).contains(at));
        due.map(|(_, late)| *late).max()
    }
}

/// The value below which this part of the values lies, of 0 to 1; 0 for no values. They are ordered.
pub fn percentile(ordered: &[i64], part: f64) -> i64 {
    let last = ordered.len().saturating_sub(1);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        clippy::cast_sign_loss,
        reason = "a place among fewer values than a float has whole numbers"
    )]
    let place = (part.clamp(0.0, 1.0) * last as f64).round() as usize;
    ordered.get(place).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_are_counted_once_and_takeovers_by_their_fences() {
        let event = |node: &str, at, what| Event { job: "a".into(), node: node.into(), at, what };
        let claim =
            |fence, attempt| What::Claim(Claims { occurrence: 1_000, fence, attempt, until: None });
        let start = |fence| What::Start { occurrence: 1_000, fence };
        let log = [
            event("x", 1_000, claim(1, 1)),
            event("x", 1_020, start(1)),
            event("y", 4_000, claim(2, 2)),
            event("y", 4_000, claim(2, 2)),
            event("y", 4_010, start(2)),
        ];
        let found = Summary::of(&log);
        let expected = Summary { started: vec![(1_000, 20)], again: 1, taken_over: 1, nodes: 2 };
        assert_eq!(found, expected);
        assert_eq!((found.latest(0, 1_001), found.latest(0, 1_000)), (Some(20), None));
    }

    #[test]
    fn a_percentile_is_one_of_the_values() {
        assert_eq!([0.0, 0.5, 0.99, 1.0].map(|part| percentile(&[1, 2, 3], part)), [1, 2, 3, 3]);
        assert_eq!(percentile(&[], 0.5), 0);
    }
}
