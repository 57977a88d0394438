//! An exhaustive search of the protocol: the functions of the product, in every order of messages.
//!
//! Own code and not a model checker from outside: breadth-first search is what is needed of one,
//! and that is short; a checker's traits would be longer than it, and its upkeep ours to watch.
//!
//! A message that was sent can be delivered at any time, any number of times, also after its sender
//! has given up; its answer arrives at once or never. (An answer that arrives late is one that
//! arrives at once at somebody who waits.) Visited states are kept as hashes of 64 bits.

mod change;
mod search;
mod world;

use search::{Found, search};
use world::{Defect, Goal};

/// What is searched.
#[derive(Clone, Debug)]
pub(super) struct Setting {
    /// How many servers.
    n: usize,
    /// Of each proposer, the rounds of its ballots, in the order in which it uses them.
    rounds: &'static [&'static [u64]],
    /// Take-overs at any time; otherwise takes at most once.
    leases: bool,
    /// How often a server forgets all.
    losses: u8,
    /// How often somebody tries to admit a server.
    admissions: u8,
    /// How often somebody reads without a ballot.
    reads: u8,
    /// What is removed from the protocol.
    defect: Option<Defect>,
    /// The search ends after so many states.
    most: usize,
}

impl Setting {
    const QUICK: Self = Self {
        n: 3,
        rounds: &[&[1, 3], &[2]],
        leases: true,
        losses: 0,
        admissions: 0,
        reads: 0,
        defect: None,
        most: usize::MAX,
    };

    /// A server forgets, and is admitted again.
    const LOSS: Self = Self { losses: 1, admissions: 1, leases: false, ..Self::QUICK };
}

fn is_long() -> bool {
    std::env::var_os("ALLORA_TEST_LONG").is_some()
}

/// Every state is sound, and each of the goals is reached by one.
fn holds(setting: &Setting, goals: &[Goal]) {
    let Found { states, violation, reached, whole } = search(setting);
    if let Some(violation) = violation {
        panic!("{setting:?}: after {states} states: {violation}");
    }
    for goal in goals {
        assert!(reached.contains(goal), "{setting:?}: {goal:?} is not reached in {states} states");
    }
    assert!(whole || setting.most < usize::MAX);
    say(&format!("{states} states, {}: {setting:?}", if whole { "all" } else { "cut off" }));
}

/// Without this rule, something goes wrong.
fn breaks(defect: Defect, setting: &Setting) {
    let setting = Setting { defect: Some(defect), ..setting.clone() };
    let Found { states, violation, .. } = search(&setting);
    assert!(violation.is_some(), "{states} states of {setting:?}, and no violation");
    say(&format!("{states} states: {setting:?}"));
}

#[expect(clippy::print_stderr, reason = "how far a search went is what its reader wants to know")]
fn say(line: &str) {
    eprintln!("{line}");
}



#[test]
fn explore() {
    const R: &[&[&[u64]]] = &[&[&[1], &[2]], &[&[2], &[1, 3]], &[&[1, 3], &[2]], &[&[1, 2], &[3]]];
    for defect in [
        Defect::PromiseNotKept, Defect::NoMajority, Defect::ReadNotWrittenBack, Defect::FenceNotCompared, Defect::BlankVotes,
        Defect::OldPromisesCount, Defect::OldVotesCount, Defect::AdmittedByOne, Defect::PromisesNotCopied,
        Defect::ReadBeforeNoted, Defect::UnquietRead,
    ] {
        let loss = !matches!(defect, Defect::PromiseNotKept | Defect::NoMajority | Defect::ReadNotWrittenBack | Defect::FenceNotCompared);
        let reads = u8::from(defect == Defect::UnquietRead);
        let (losses, admissions) = if loss { (1, 1) } else { (0, 0) };
        for rounds in R {
            for leases in [false, true] {
                let setting = Setting { leases, losses, admissions, reads, rounds, defect: Some(defect), most: 700_000, ..Setting::QUICK };
                let Found { states, violation, whole, .. } = search(&setting);
                let steps = violation.as_ref().map(|violation| violation.lines().count());
                say(&format!("{defect:?} {states} {whole} steps {steps:?} leases {leases} losses {losses} reads {reads} {rounds:?}"));
                if let Some(v) = violation { if defect == Defect::UnquietRead { say(&v); } break; }
            }
        }
    }
}
