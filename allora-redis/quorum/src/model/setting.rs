//! The bounds of a search, and the rule that is left out.

/// The bounds of a search.
#[derive(Clone, Debug)]
pub(super) struct Setting {
    /// The number of servers.
    pub(super) n: usize,
    /// The rounds of each proposer's ballots, in the order in which it uses them.
    pub(super) rounds: &'static [&'static [u64]],
    /// Take-overs at any time; otherwise claims at most once.
    pub(super) leases: bool,
    /// The number of times that a server forgets everything.
    pub(super) losses: u8,
    /// The number of times that a replica copies a server, which stays full, and becomes the primary
    /// of that server later.
    pub(super) copies: u8,
    /// A message with server 0's next incarnation, from a node that another one has overtaken, is
    /// still on its way.
    pub(super) late_note: bool,
    /// The number of attempts to let a server rejoin, or to raise its incarnation.
    pub(super) rejoins: u8,
    /// The number of reads without a ballot.
    pub(super) reads: u8,
    /// The rule that is removed from the protocol.
    pub(super) defect: Option<Defect>,
    /// The search ends after so many states.
    pub(super) most: usize,
}

impl Setting {
    pub(super) const QUICK: Self = Self {
        n: 3,
        rounds: &[&[1, 3], &[2]],
        leases: true,
        losses: 0,
        copies: 0,
        late_note: false,
        rejoins: 0,
        reads: 0,
        defect: None,
        most: usize::MAX,
    };

    /// The bounds, for readers.
    pub(super) fn bounds(&self) -> String {
        let Self { n, rounds, leases, losses, copies, late_note, rejoins, reads, .. } = self;
        let delivery = if *leases { "take-overs" } else { "at most once" };
        let more =
            [(*losses, "losses"), (*copies, "copies"), (*rejoins, "rejoins"), (*reads, "reads")];
        let more = more.iter().filter(|(count, _)| *count > 0);
        let mut text = format!("{n} servers, ballots {rounds:?}, {delivery}");
        more.for_each(|(count, what)| text += &format!(", {count} {what}"));
        if *late_note {
            text += ", a late message";
        }
        text
    }

    /// A server forgets, and rejoins.
    pub(super) const LOSS: Self = Self { losses: 1, rejoins: 1, leases: false, ..Self::QUICK };
}

/// A rule that is removed from the protocol. The search must find a violation without it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Defect {
    /// A server accepts ballots below its promise.
    PromiseNotKept,
    /// One server less than a majority.
    NoMajority,
    /// A value that is read and not changed is believed without being written back.
    ReadNotWrittenBack,
    /// An empty server votes.
    EmptyVotes,
    /// A server votes with a copy of its own earlier state.
    CopyVotes,
    /// A server rejoins with the state of one other server.
    RejoinedByOne,
    /// A server rejoins without the promises of the others.
    PromisesNotCopied,
    /// Promises from incarnations that are over count.
    OldPromisesCount,
    /// Acceptances from incarnations that are over count.
    OldVotesCount,
    /// A completion is accepted whatever its fence.
    FenceNotCompared,
    /// The others are read before they store the new incarnation.
    ReadBeforeNoted,
    /// A read believes the value that a majority has accepted, whatever they have promised since.
    UnstableRead,
}
