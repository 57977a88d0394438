//! A failing world, made small: with fewer jobs, steps and kinds of faults, as long as it still fails.

use std::{env, fmt};

/// The kinds of what happens to a world, in the order in which their rates are drawn.
const KINDS: [&str; 15] = [
    "lost-requests",
    "lost-replies",
    "refusals",
    "doubled",
    "lingering",
    "delays",
    "long-delays",
    "crashes",
    "pauses",
    "suspensions",
    "clocks",
    "outages",
    "stops",
    "joins",
    "operators",
];

/// No world has as many.
const MOST_STEPS: u64 = 160;

/// The parts of a world that are left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cut {
    pub(super) jobs: usize,
    pub(super) steps: u64,
    /// A bit for each kind that is left out.
    without: u32,
}

impl Cut {
    /// The whole world.
    pub(super) const NOTHING: Self = Self { jobs: usize::MAX, steps: u64::MAX, without: 0 };

    pub(super) fn leaves_out(&self, kind: u32) -> bool {
        self.without & (1 << kind) != 0
    }

    /// As [`Display`](fmt::Display) writes it, from `ALLORA_WORLD`; the whole world if that is not set.
    pub(super) fn of_environment() -> Self {
        let text = env::var("ALLORA_WORLD").unwrap_or_default();
        let mut cut = Self::NOTHING;
        for word in text.split_whitespace() {
            let (name, value) = word.split_once('=').expect("ALLORA_WORLD has words NAME=VALUE");
            match name {
                "jobs" => cut.jobs = value.parse().expect("jobs is a number"),
                "steps" => cut.steps = value.parse().expect("steps is a number"),
                "without" => {
                    for kind in value.split(',') {
                        let place = KINDS.iter().position(|known| *known == kind);
                        cut.without |= 1 << place.expect("one of the kinds");
                    }
                }
                other => panic!("ALLORA_WORLD knows no `{other}`"),
            }
        }
        cut
    }

    /// The smallest world that is found by leaving out one thing after another while it fails.
    pub(super) fn smallest(fails: impl Fn(&Self) -> bool) -> Self {
        let mut least = Self::NOTHING;
        let fewer = (1..4).map(|jobs| Self { jobs, ..least }).find(&fails);
        least = fewer.unwrap_or(least);
        for kind in 0..KINDS.len() {
            let cut = Self { without: least.without | (1 << kind), ..least };
            if fails(&cut) {
                least = cut;
            }
        }
        // The first number of steps after which it fails: nothing that comes later matters.
        let (mut works, mut fails_at) = (0, MOST_STEPS);
        while fails_at - works > 1 {
            let steps = works + (fails_at - works) / 2;
            let cut = Self { steps, ..least };
            if fails(&cut) {
                (fails_at, least) = (steps, cut);
            } else {
                works = steps;
            }
        }
        least
    }
}

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut words = Vec::new();
        if self.jobs < usize::MAX {
            words.push(format!("jobs={}", self.jobs));
        }
        if self.steps < u64::MAX {
            words.push(format!("steps={}", self.steps));
        }
        let without: Vec<&str> = (0..)
            .zip(KINDS)
            .filter(|(kind, _)| self.leaves_out(*kind))
            .map(|(_, name)| name)
            .collect();
        if !without.is_empty() {
            words.push(format!("without={}", without.join(",")));
        }
        write!(f, "{}", words.join(" "))
    }
}

#[test]
fn a_failing_world_becomes_as_small_as_its_cause() {
    // It fails if replies are lost and a machine crashes in the first 37 steps of the second job.
    let fails =
        |cut: &Cut| cut.jobs >= 2 && cut.steps >= 37 && !cut.leaves_out(1) && !cut.leaves_out(7);
    let least = Cut::smallest(fails);
    assert!(fails(&least));
    assert_eq!((least.jobs, least.steps), (2, 37));
    assert_eq!(least.without.count_ones(), 13);
    let words = least.to_string();
    assert!(words.starts_with("jobs=2 steps=37 without=lost-requests,refusals,"), "{words}");
}
