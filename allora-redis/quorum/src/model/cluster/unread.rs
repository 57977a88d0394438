//! States that differ only in what no later step reads are one.

use super::{Cluster, Defect, Phase, Read, Rejoin, Setting, is_new};
use crate::register::MOST;

impl Cluster {
    /// The same state without what no later step reads.
    pub(in super::super) fn without_unread(mut self, setting: &Setting) -> Self {
        for p in 0..self.proposers.len() {
            if self.is_in_vain(p, setting) {
                self.proposers[p].phase = Phase::Idle;
            }
        }
        if self.keeps_promises(setting) {
            let mut accepts = std::mem::take(&mut self.accepts);
            let may =
                |at: usize, ballot| self.promises(at, ballot, true) || self.may_rejoin(at, setting);
            accepts.retain(|(ballot, _)| (0..self.servers.len()).any(|at| may(at, *ballot)));
            self.accepts = accepts;
        }
        self.end_rejoins(setting);
        for proposer in &mut self.proposers {
            match &mut proposer.phase {
                Phase::Idle => {}
                // Servers that had promised as much do not answer, and nothing else is asked of their promise.
                Phase::Preparing(replies) => {
                    replies.iter_mut().for_each(|reply| reply.body.promised = None);
                }
                Phase::Accepting { before, replies, .. } => {
                    *before = before.compared();
                    replies.iter_mut().for_each(|reply| reply.body = None);
                }
            }
        }
        for read in &mut self.reads {
            if let Read::Reading { before: Some(before), .. } = read {
                *before = before.compared();
            }
        }
        for rejoin in &mut self.rejoins {
            if let Rejoin::Scanning { of, .. } = rejoin {
                of.iter_mut().for_each(|reply| reply.vector.known = [0; MOST]);
            }
        }
        self
    }

    /// Ends the attempts that can change nothing any more, and drops messages with incarnations that everybody knows.
    fn end_rejoins(&mut self, setting: &Setting) {
        for a in 0..self.rejoins.len() {
            // Another attempt fills the server, or has filled it.
            if let Rejoin::Scanning { k, .. } = &self.rejoins[a]
                && self.servers[*k].draft != Some(a as u64 + 1)
                && !setting.has(Defect::ReadBeforeNoted)
            {
                self.rejoins[a] = Rejoin::Over;
            }
        }
        let may_rejoin = (0..self.servers.len()).any(|at| self.may_rejoin(at, setting));
        if !self.keeps_promises(setting) || may_rejoin {
            return;
        }
        let servers = &self.servers;
        let incarnation = |k: usize| servers[k].vector.map_or(u32::MAX, |own| own.incarnation);
        self.raises.retain(|(k, to)| incarnation(*k) < *to);
        let rejoins = &self.rejoins;
        let is_noting = |k, to| {
            let noted = |one: &Rejoin| match one {
                Rejoin::Noting { k, incarnation, .. } => Some((*k, *incarnation)),
                _ => None,
            };
            rejoins.iter().any(|one| noted(one) == Some((k, to)))
        };
        let knows = |at: usize, k: usize, to| {
            at == k || servers[at].vector.is_none_or(|own| own.known[k] >= to)
        };
        self.notes.retain(|(k, to)| {
            is_noting(*k, *to) || !(0..servers.len()).all(|at| knows(at, *k, *to))
        });
        let is_still = self.notes.is_empty() && !(0..servers.len()).any(|k| self.is_outdated(k));
        let begins = |one: &Rejoin| matches!(one, Rejoin::Reading { .. } | Rejoin::Noting { .. });
        if is_still && !self.rejoins.iter().any(begins) {
            self.rejoins.iter_mut().for_each(|one| *one = Rejoin::Over);
        }
    }

    /// True if a proposer waits for more answers than can come: no majority answers its ballot any more.
    fn is_in_vain(&self, p: usize, setting: &Setting) -> bool {
        let proposer = &self.proposers[p];
        let may_come = |at: usize, again| {
            let ballot = setting.ballot(p, proposer.begun - 1);
            self.promises(at, ballot, again) || self.may_rejoin(at, setting)
        };
        let all = 0..self.servers.len();
        let answers = match &proposer.phase {
            Phase::Idle => return false,
            Phase::Preparing(replies) => {
                replies.len()
                    + all.filter(|at| is_new(replies, *at) && may_come(*at, false)).count()
            }
            Phase::Accepting { replies, .. } => {
                replies.len() + all.filter(|at| is_new(replies, *at) && may_come(*at, true)).count()
            }
        };
        self.keeps_promises(setting) && answers < setting.quorum()
    }

    /// True if an empty server may vote later, with what promises ever: an attempt reads the others already, or
    /// those that vote, or may do so before, are enough for one.
    fn may_rejoin(&self, at: usize, setting: &Setting) -> bool {
        let is_filled = |at: usize| {
            let fills = |one: &Rejoin| matches!(one, Rejoin::Scanning { k, .. } if *k == at);
            self.rejoins.iter().any(fills)
        };
        let votes = |at: &usize| self.servers[*at].vector.is_some() || is_filled(*at);
        let voters = (0..self.servers.len()).filter(votes).count();
        let is_tried = self.rejoins.iter().any(|one| *one != Rejoin::Over);
        self.servers[at].vector.is_none()
            && (is_filled(at) || is_tried && voters >= setting.rejoin_quorum())
    }

    /// True if no server that votes will forget what it has promised.
    pub(super) fn keeps_promises(&self, setting: &Setting) -> bool {
        let has_copies = self.copies > 0 || !self.copied.is_empty();
        self.losses == 0 && !has_copies && !setting.has(Defect::PromiseNotKept)
    }
}
