//! An exhaustive search of the protocol: the functions of the product, in every order of messages.
//!
//! The large searches go depth first and keep one way, not the front of all ways; the shortest way to a violation is
//! found by [`explore`]. Servers are interchangeable, so states that differ in their order are one
//! (`cluster/order.rs`), as are those that differ in what nobody reads any more (`cluster/unread.rs`). Three rules of
//! partial-order reduction stand in `cluster/next.rs`.
//!
//! A message that was sent can be delivered at any time, any number of times, also after its sender
//! has given up. Its answer arrives at once or never: an answer that arrives late is one that
//! arrives at once at a sender who waits. Visited states are kept as hashes of 64 bits.

mod change;
mod cluster;
mod search;
mod setting;

use super::ballot::Ballot;
use allora_conformance::explore::{Explored, explore, is_large};
use change::{Changes, Clock};
use cluster::{Action, Cluster, Goal};
use search::{Found, Shortest, search};
use setting::{Defect, Setting};

/// The number of states after which a search ends that would take more than a quarter of an hour.
const MOST: usize = 12_000_000;

/// One ballot for each of two proposers.
const SHORT: &[&[u64]] = &[&[1], &[2]];

/// Checks that every state is sound, and that each of the goals is reached.
fn holds(setting: &Setting, goals: &[Goal]) {
    let Found { states, steps, depth, violation, reached, whole } = search(setting);
    if let Some(violation) = violation {
        panic!("{setting:?}: after {states} states: {violation}");
    }
    for goal in goals {
        assert!(reached.contains(goal), "{setting:?}: {goal:?} is not reached in {states} states");
    }
    assert!(whole || setting.most < usize::MAX);
    let explored = Explored { states, depth, is_whole: whole, steps, ..Explored::default() };
    explored.note("quorum", &setting.bounds());
}

/// Checks that the search finds a violation without this rule.
fn breaks(defect: Defect, setting: &Setting) {
    let setting = Setting { defect: Some(defect), ..setting.clone() };
    let Found { states, violation, .. } = search(&setting);
    assert!(violation.is_some(), "{states} states of {setting:?}, and no violation");
    if is_large() {
        explore(&mut Shortest::new(&setting), MOST).note("quorum", &format!("{defect:?}"));
    }
}

#[test]
fn lost_answers_and_take_overs() {
    let goals = [Goal::Completed, Goal::CompletedAfterTakeOver];
    holds(&Setting { rounds: &[&[1], &[2, 3]], ..Setting::QUICK }, &goals);
}

#[test]
fn lost_answers_at_most_once() {
    holds(&Setting { leases: false, ..Setting::QUICK }, &[Goal::Granted]);
}

/// A read that believes any value that a majority has accepted shows a value that is lost later.
/// Server 0 has copied a value that only server 1 had accepted. Before it forgot, server 0 had promised
/// a higher ballot.
#[test]
fn a_read_that_is_not_at_rest_is_missed() {
    let ballots = [1, 2].map(|round| Ballot { round, proposer: round - 1 });
    let prepare = |p: usize, at| Action::Prepare { ballot: ballots[p], at, answered: true };
    let accept = |sent, at| Action::Accept { sent, at, answered: true };
    let way = [
        [Action::Begin(0), Action::Begin(1)].to_vec(),
        [prepare(0, 1), prepare(0, 2), prepare(1, 2), prepare(1, 0)].to_vec(),
        [Action::Decide(0, Clock::Due), Action::Decide(1, Clock::Due), accept(0, 1)].to_vec(),
        [Action::Lose(0), Action::BeginRejoin(0, 0), Action::Hear(0, 1)].to_vec(),
        [1, 2].map(|at| Action::Note { sent: 0, at, answered: true }).to_vec(),
        [Action::Hear(0, 1), Action::Hear(0, 2), Action::Rejoin(0)].to_vec(),
        [Action::Peek(0, 0), Action::Peek(0, 1), accept(1, 2), accept(1, 0)].to_vec(),
    ];
    let mut way = way.concat();
    way.insert(12, Action::Hear(0, 2));
    let sound = Setting { reads: 1, rounds: SHORT, ..Setting::LOSS };
    let broken = Setting { defect: Some(Defect::UnstableRead), ..sound.clone() };
    let go = |setting: &Setting| {
        let mut changes = Changes::new(setting.leases, true);
        let mut cluster = Cluster::new(setting);
        way.iter().map(|action| cluster.act(*action, setting, &mut changes)).collect::<Vec<_>>()
    };
    let reads = |seen: &[Result<Option<Goal>, String>]| seen.contains(&Ok(Some(Goal::ReadGrant)));
    let (good, bad) = (go(&sound), go(&broken));
    assert!(good.iter().all(Result::is_ok) && !reads(&good), "{good:?}");
    assert!(reads(&bad) && bad.last().is_some_and(Result::is_err), "{bad:?}");
}

#[test]
fn reads_without_a_ballot() {
    holds(&Setting { reads: 1, rounds: SHORT, ..Setting::QUICK }, &[Goal::ReadGrant]);
}

#[test]
fn a_server_that_forgets_and_rejoins() {
    let goals = [Goal::Rejoined, Goal::GrantedAfterLoss];
    holds(&Setting { rounds: SHORT, ..Setting::LOSS }, &goals);
}

/// A server whose data was copied votes on, and one that has got the copy back does not.
#[test]
fn a_server_that_is_copied_and_then_follows_its_copy() {
    let copied = Setting { losses: 0, copies: 1, rounds: SHORT, ..Setting::LOSS };
    let stays = Setting { copies: 2, rejoins: 0, most: 400_000, ..copied.clone() };
    holds(&stays, &[Goal::Copied, Goal::Granted]);
    holds(&copied, &[Goal::Rejoined, Goal::GrantedAfterLoss]);
}

#[test]
fn a_server_whose_incarnation_is_outdated_by_a_late_message() {
    let late = Setting { late_note: true, rejoins: 1, rounds: SHORT, ..Setting::LOSS };
    holds(&Setting { losses: 0, ..late.clone() }, &[Goal::Raised, Goal::Granted]);
    holds(&Setting { rejoins: 2, most: 400_000, ..late }, &[Goal::Raised, Goal::Rejoined]);
}

/// Two nodes let server 0 rejoin. The one that was overtaken has read the incarnation that the other
/// one stored, and stores the next one when the server is a member again. The server is of no use
/// until its incarnation is raised.
#[test]
fn two_nodes_that_let_a_server_rejoin_do_not_leave_it_outdated() {
    let setting = Setting { rejoins: 3, rounds: SHORT, ..Setting::LOSS };
    let mut changes = Changes::new(setting.leases, true);
    let mut cluster = Cluster::new(&setting);
    let mut go = |cluster: &mut Cluster, actions: &[Action]| {
        for action in actions {
            cluster.act(*action, &setting, &mut changes).unwrap();
        }
    };
    let note = |sent, at| Action::Note { sent, at, answered: true };
    let race = [
        [Action::Lose(0), Action::BeginRejoin(0, 0), Action::BeginRejoin(1, 0)].to_vec(),
        [Action::Hear(1, 1), Action::Hear(1, 2), note(0, 1), note(0, 2)].to_vec(),
        [Action::Hear(0, 1), Action::Hear(0, 2)].to_vec(),
        [Action::Hear(1, 1), Action::Hear(1, 2), Action::Rejoin(1)].to_vec(),
    ];
    go(&mut cluster, &race.concat());
    assert!(!cluster.is_outdated(0));
    go(&mut cluster, &[note(1, 1), note(1, 2)]);
    assert!(cluster.is_outdated(0));
    let raise = [
        [Action::BeginRaise(2, 0), Action::Hear(2, 1), Action::Hear(2, 2)].to_vec(),
        [note(1, 1), note(1, 2), Action::Raise { sent: 0 }].to_vec(),
    ];
    go(&mut cluster, &raise.concat());
    assert!(!cluster.is_outdated(0));
}

/// The search finds a violation without any one of the rules.
#[test]
fn without_any_of_its_rules_the_protocol_breaks() {
    let once = Setting { leases: false, rounds: SHORT, ..Setting::QUICK };
    breaks(Defect::PromiseNotKept, &once);
    breaks(Defect::NoMajority, &once);
    let again = Setting { rounds: &[&[1, 2], &[3]], ..once.clone() };
    breaks(Defect::ReadNotWrittenBack, &again);
    breaks(Defect::FenceNotCompared, &Setting::QUICK);
    let loss = Setting { rounds: SHORT, ..Setting::LOSS };
    breaks(Defect::EmptyVotes, &loss);
    breaks(Defect::CopyVotes, &Setting { losses: 0, copies: 1, rejoins: 0, ..loss.clone() });
    breaks(Defect::OldPromisesCount, &loss);
    breaks(Defect::OldVotesCount, &loss);
    breaks(Defect::RejoinedByOne, &loss);
    breaks(Defect::PromisesNotCopied, &loss);
    breaks(Defect::ReadBeforeNoted, &loss);
}

/// Minutes each: `cargo xtask model`, or with `ALLORA_TEST_LONG=1`.
mod larger {
    use super::*;

    const TWICE: &[&[u64]] = &[&[1, 3], &[2, 4]];
    const LOSS: &[Goal] = &[Goal::Rejoined, Goal::GrantedAfterLoss];

    fn holds_too(setting: &Setting, goals: &[Goal]) {
        if is_large() || std::env::var_os("ALLORA_TEST_LONG").is_some() {
            holds(setting, goals);
        }
    }

    #[test]
    fn two_ballots_each() {
        let once = Setting { rounds: TWICE, leases: false, ..Setting::QUICK };
        holds_too(&once, &[Goal::Granted]);
        let leased = Setting { rounds: TWICE, ..Setting::QUICK };
        holds_too(&leased, &[Goal::CompletedAfterTakeOver]);
    }

    #[test]
    fn a_loss_and_three_ballots() {
        const THREE: &[&[&[u64]]] = &[&[&[1, 3], &[2]], &[&[1], &[2, 3]], &[&[1, 2], &[3]]];
        for rounds in THREE {
            holds_too(&Setting { rounds, ..Setting::LOSS }, LOSS);
        }
    }

    #[test]
    fn two_losses() {
        let twice = Setting { rounds: SHORT, losses: 2, rejoins: 2, ..Setting::LOSS };
        holds_too(&twice, LOSS);
    }

    #[test]
    fn five_servers_and_a_loss() {
        let five = Setting { n: 5, rounds: SHORT, ..Setting::LOSS };
        holds_too(&five, &[Goal::Granted]);
    }

    #[test]
    fn an_outdated_incarnation_and_a_loss() {
        let late = Setting { late_note: true, rejoins: 2, rounds: SHORT, ..Setting::LOSS };
        holds_too(&Setting { most: MOST, ..late }, &[Goal::Raised, Goal::GrantedAfterLoss]);
    }

    #[test]
    fn leases_and_a_loss() {
        let leased = Setting { leases: true, ..Setting::LOSS };
        holds_too(&leased, &[Goal::CompletedAfterLoss]);
    }

    #[test]
    fn five_servers() {
        let five = Setting { n: 5, rounds: SHORT, leases: false, ..Setting::QUICK };
        holds_too(&five, &[Goal::Granted]);
    }

    #[test]
    fn a_loss_and_a_read() {
        let reads = Setting { rounds: SHORT, reads: 1, ..Setting::LOSS };
        holds_too(&reads, &[Goal::ReadGrant, Goal::Rejoined]);
    }
}
