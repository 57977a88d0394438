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

/// One ballot for each of two proposers.
const SHORT: &[&[u64]] = &[&[1], &[2]];

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
fn reads_without_a_ballot() {
    holds(&Setting { reads: 1, rounds: SHORT, ..Setting::QUICK }, &[Goal::ReadGrant]);
}

#[test]
fn a_server_that_forgets_and_is_admitted_again() {
    let goals = [Goal::Admitted, Goal::GrantedAfterLoss];
    holds(&Setting { rounds: SHORT, ..Setting::LOSS }, &goals);
}

/// Each rule is missed.
#[test]
fn without_any_of_its_rules_the_protocol_breaks() {
    let once = Setting { leases: false, rounds: SHORT, ..Setting::QUICK };
    breaks(Defect::PromiseNotKept, &once);
    breaks(Defect::NoMajority, &once);
    let again = Setting { rounds: &[&[1, 2], &[3]], ..once.clone() };
    breaks(Defect::ReadNotWrittenBack, &again);
    breaks(Defect::FenceNotCompared, &Setting::QUICK);
    let loss = Setting { rounds: SHORT, ..Setting::LOSS };
    breaks(Defect::BlankVotes, &loss);
    breaks(Defect::OldPromisesCount, &loss);
    breaks(Defect::OldVotesCount, &loss);
    breaks(Defect::AdmittedByOne, &loss);
    breaks(Defect::PromisesNotCopied, &loss);
    breaks(Defect::ReadBeforeNoted, &loss);
}

/// Minutes each, and most of an hour together: with `ALLORA_TEST_LONG=1`.
#[test]
fn larger_worlds() {
    if std::env::var_os("ALLORA_TEST_LONG").is_none() {
        return;
    }
    const TWICE: &[&[u64]] = &[&[1, 3], &[2, 4]];
    let granted = [Goal::Granted];
    holds(&Setting { rounds: TWICE, leases: false, ..Setting::QUICK }, &granted);
    holds(&Setting { rounds: TWICE, ..Setting::QUICK }, &[Goal::FinishedAfterTakeOver]);
    let loss = [Goal::Admitted, Goal::GrantedAfterLoss];
    for rounds in [&[&[1, 3][..], &[2]][..], &[&[1], &[2, 3]], &[&[1, 2], &[3]]] {
        holds(&Setting { rounds, ..Setting::LOSS }, &loss);
    }
    let most = 12_000_000;
    let losses = Setting { rounds: SHORT, losses: 2, admissions: 2, most, ..Setting::LOSS };
    holds(&losses, &loss);
    holds(&Setting { leases: true, most, ..Setting::LOSS }, &[Goal::FinishedAfterLoss]);
    holds(&Setting { n: 5, rounds: SHORT, leases: false, most, ..Setting::QUICK }, &granted);
    let reads = Setting { rounds: SHORT, reads: 1, most, ..Setting::LOSS };
    holds(&reads, &[Goal::ReadGrant, Goal::Admitted]);
    breaks(Defect::UnquietRead, &reads);
}
