//! The rejoin of a server that has forgotten, and the raise of an outdated incarnation.

use super::{Cluster, Defect, Goal, Rejoin, Repair, Setting, insert, insert_sorted, is_new, small};
use crate::{
    proposer::{self, Reply},
    register::IncarnationVector,
};

impl Cluster {
    pub(super) fn hear(&mut self, a: usize, at: usize, setting: &Setting) {
        let Some((vector, register)) = self.servers[at].peek(&()) else { return };
        match &mut self.rejoins[a] {
            Rejoin::Reading { k, to, replies } => {
                let (k, to) = (*k, *to);
                insert(replies, at, vector, ());
                let incarnation = match to {
                    Repair::Rejoin => proposer::next_incarnation,
                    Repair::Raise => proposer::latest_incarnation,
                };
                if let Some(incarnation) = incarnation(replies, k, setting.rejoin_quorum()) {
                    if setting.has(Defect::ReadBeforeNoted) {
                        let of = replies.clone();
                        let replies = Vec::new();
                        self.rejoins[a] = Rejoin::Scanning { k, incarnation, of, replies };
                        return;
                    }
                    let replies = Vec::new();
                    self.rejoins[a] = Rejoin::Noting { k, to, incarnation, replies };
                    insert_sorted(&mut self.notes, (k, incarnation));
                }
            }
            Rejoin::Scanning { of, replies, .. } => {
                let same = |reply: &Reply<()>| {
                    reply.from == at && reply.vector.incarnation == vector.incarnation
                };
                if of.iter().any(same) {
                    insert(replies, at, vector, register);
                } else {
                    self.rejoins[a] = Rejoin::Over;
                }
            }
            Rejoin::Idle | Rejoin::Noting { .. } | Rejoin::Over => {}
        }
    }

    pub(super) fn noted(
        &mut self,
        k: usize,
        incarnation: u32,
        at: usize,
        vector: IncarnationVector,
        setting: &Setting,
    ) {
        for rejoin in &mut self.rejoins {
            let Rejoin::Noting { k: of, to, incarnation: new, replies } = rejoin else { continue };
            if (*of, *new) != (k, incarnation) || !is_new(replies, at) {
                continue;
            }
            insert(replies, at, vector, ());
            let of: Vec<Reply<()>> = proposer::trusted(replies).cloned().collect();
            if of.len() < setting.rejoin_quorum() {
                continue;
            }
            *rejoin = match to {
                Repair::Rejoin => Rejoin::Scanning { k, incarnation, of, replies: Vec::new() },
                Repair::Raise => {
                    insert_sorted(&mut self.raises, (k, incarnation));
                    Rejoin::Over
                }
            };
        }
    }

    pub(super) fn rejoin(&mut self, a: usize, setting: &Setting) -> Option<Goal> {
        let Rejoin::Scanning { k, incarnation, replies, .. } =
            std::mem::replace(&mut self.rejoins[a], Rejoin::Over)
        else {
            return None;
        };
        let counted: Vec<_> = proposer::trusted(&replies).collect();
        if counted.len() < setting.rejoin_quorum() {
            return None;
        }
        let mut known = proposer::latest(replies.iter().map(|reply| &reply.vector));
        if known[k] > incarnation {
            return None;
        }
        known[k] = incarnation;
        if setting.has(Defect::ReadBeforeNoted) {
            insert_sorted(&mut self.notes, (k, incarnation));
        }
        let token = small(a) as u64 + 1;
        for reply in counted {
            let mut register = reply.body.clone();
            if setting.has(Defect::PromisesNotCopied) {
                register.promised = register.accepted.map(|(ballot, _)| ballot);
            }
            self.servers[k].fill(token, &(), register);
        }
        let rejoined = self.servers[k].rejoin(token, IncarnationVector { incarnation, known });
        rejoined.then_some(Goal::Rejoined)
    }
}
