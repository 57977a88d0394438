//! The meaning of replies in a setting: the product's, without the rule that is removed.

use super::{Defect, Setting, Value, small};
use crate::{
    ballot::Ballot,
    proposer::{self, Reply},
    register::{MOST, Register},
};

impl Setting {
    pub(super) fn has(&self, defect: Defect) -> bool {
        self.defect == Some(defect)
    }

    pub(super) fn ballot(&self, p: usize, i: usize) -> Ballot {
        Ballot { round: self.rounds[p][i], proposer: p as u64 }
    }

    pub(super) fn whose(&self, ballot: Ballot) -> (usize, usize) {
        let p = usize::from(small(ballot.proposer as usize));
        let i = self.rounds[p].iter().position(|round| *round == ballot.round);
        (p, i.expect("a round of this proposer"))
    }

    pub(super) fn quorum(&self) -> usize {
        proposer::majority(self.n) - usize::from(self.has(Defect::NoMajority))
    }

    pub(super) fn rejoin_quorum(&self) -> usize {
        if self.has(Defect::RejoinedByOne) { 1 } else { proposer::majority(self.n) }
    }

    pub(super) fn prepared(
        &self,
        replies: &[Reply<Register<Value>>],
        ballot: Ballot,
    ) -> Option<Option<Value>> {
        let replies = self.responses(replies, Defect::OldPromisesCount);
        Some(proposer::prepared(&replies, ballot, self.quorum())?.copied())
    }

    pub(super) fn committed(&self, replies: &[Reply<Option<Ballot>>], ballot: Ballot) -> bool {
        let replies = self.responses(replies, Defect::OldVotesCount);
        proposer::committed(&replies, ballot, self.quorum())
    }

    pub(super) fn stable(&self, replies: &[Reply<Register<Value>>]) -> Option<Option<Value>> {
        let mut replies = replies.to_vec();
        if self.has(Defect::UnstableRead) {
            for reply in &mut replies {
                reply.body.promised = reply.body.accepted.map(|(ballot, _)| ballot);
            }
        }
        Some(proposer::stable(&replies, self.quorum())?.copied())
    }

    fn responses<T: Clone>(&self, replies: &[Reply<T>], defect: Defect) -> Vec<Reply<T>> {
        let mut replies = replies.to_vec();
        if self.has(defect) {
            for reply in &mut replies {
                reply.vector.known = [0; MOST];
            }
        }
        replies
    }
}
