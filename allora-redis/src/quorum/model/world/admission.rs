//! How a server that has forgotten is admitted again.

use super::{Admission, Defect, Goal, Setting, World, insert, insert_sorted, is_new, small};
use crate::quorum::{
    proposer::{self, Reply},
    register::Seal,
};

impl World {
    pub(super) fn hear(&mut self, a: usize, at: usize, setting: &Setting) {
        let Some((seal, register)) = self.servers[at].peek(&()) else { return };
        match &mut self.admissions[a] {
            Admission::Reading { k, replies } => {
                let k = *k;
                insert(replies, at, seal, ());
                if let Some(life) = proposer::next_life(replies, k, setting.admitting()) {
                    if setting.has(Defect::ReadBeforeNoted) {
                        let of = replies.clone();
                        let replies = Vec::new();
                        self.admissions[a] = Admission::Scanning { k, life, of, replies };
                        return;
                    }
                    let replies = Vec::new();
                    self.admissions[a] = Admission::Noting { k, life, replies };
                    insert_sorted(&mut self.notes, (k, life));
                }
            }
            Admission::Scanning { of, replies, .. } => {
                let same = |reply: &Reply<()>| {
                    reply.from == at && reply.seal.incarnation == seal.incarnation
                };
                if of.iter().any(same) {
                    insert(replies, at, seal, register);
                } else {
                    self.admissions[a] = Admission::Over;
                }
            }
            Admission::Idle | Admission::Noting { .. } | Admission::Over => {}
        }
    }

    pub(super) fn noted(&mut self, k: usize, life: u32, at: usize, seal: Seal, setting: &Setting) {
        for admission in &mut self.admissions {
            let Admission::Noting { k: of, life: new, replies } = admission else { continue };
            if (*of, *new) != (k, life) || !is_new(replies, at) {
                continue;
            }
            insert(replies, at, seal, ());
            let of: Vec<Reply<()>> = proposer::trusted(replies).cloned().collect();
            if of.len() >= setting.admitting() {
                *admission = Admission::Scanning { k, life, of, replies: Vec::new() };
            }
        }
    }

    pub(super) fn admit(&mut self, a: usize, setting: &Setting) -> Option<Goal> {
        let Admission::Scanning { k, life, replies, .. } =
            std::mem::replace(&mut self.admissions[a], Admission::Over)
        else {
            return None;
        };
        let counted: Vec<_> = proposer::trusted(&replies).collect();
        if counted.len() < setting.admitting() {
            return None;
        }
        let mut known = proposer::latest(replies.iter().map(|reply| &reply.seal));
        known[k] = known[k].max(life);
        if setting.has(Defect::ReadBeforeNoted) {
            insert_sorted(&mut self.notes, (k, life));
        }
        let token = small(a) as u64 + 1;
        for reply in counted {
            let mut register = reply.body.clone();
            if setting.has(Defect::PromisesNotCopied) {
                register.promised = register.accepted.map(|(ballot, _)| ballot);
            }
            self.servers[k].fill(token, &(), register);
        }
        let admitted = self.servers[k].admit(token, Seal { incarnation: life, known });
        admitted.then_some(Goal::Admitted)
    }
}
