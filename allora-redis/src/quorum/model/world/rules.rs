//! What replies mean in a setting: as the product has it, without the rule that is removed.

use super::{Defect, Setting, Value, small};
use crate::quorum::{
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

    fn quorum(&self) -> usize {
        proposer::majority(self.n) - usize::from(self.has(Defect::NoMajority))
    }

    pub(super) fn admitting(&self) -> usize {
        if self.has(Defect::AdmittedByOne) { 1 } else { proposer::majority(self.n) }
    }

    pub(super) fn prepared(
        &self,
        replies: &[Reply<Register<Value>>],
        ballot: Ballot,
    ) -> Option<Option<Value>> {
        let replies = self.heard(replies, Defect::OldPromisesCount);
        Some(proposer::prepared(&replies, ballot, self.quorum())?.copied())
    }

    pub(super) fn committed(&self, replies: &[Reply<Option<Ballot>>], ballot: Ballot) -> bool {
        let replies = self.heard(replies, Defect::OldVotesCount);
        proposer::committed(&replies, ballot, self.quorum())
    }

    pub(super) fn quiet(&self, replies: &[Reply<Register<Value>>]) -> Option<Option<Value>> {
        let mut replies = replies.to_vec();
        if self.has(Defect::UnquietRead) {
            for reply in &mut replies {
                reply.body.promised = reply.body.accepted.map(|(ballot, _)| ballot);
            }
        }
        Some(proposer::quiet(&replies, self.quorum())?.copied())
    }

    fn heard<T: Clone>(&self, replies: &[Reply<T>], defect: Defect) -> Vec<Reply<T>> {
        let mut replies = replies.to_vec();
        if self.has(defect) {
            for reply in &mut replies {
                reply.seal.known = [0; MOST];
            }
        }
        replies
    }
}
