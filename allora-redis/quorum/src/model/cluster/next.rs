//! The actions that a state allows.

use super::{Action, Clock, Cluster, Defect, Phase, Read, Rejoin, Setting, is_new, small};
use crate::{ballot::Ballot, register::IncarnationVector};

impl Cluster {
    /// The actions that this state allows.
    pub(in super::super) fn actions(&self, setting: &Setting) -> Vec<Action> {
        let mut actions = Vec::new();
        let n = setting.n;
        // Nobody else sees the beginning of a proposer's first ballot: in whatever order it comes, the same
        // states follow. So it goes first.
        let first = self.proposers.iter().position(|proposer| proposer.begun == 0);
        if let Some(p) = first {
            return vec![Action::Begin(small(p))];
        }
        if self.is_over(setting) {
            return actions;
        }
        // Until an empty server rejoins nothing else reads it, and once it may, whatever follows also follows if it
        // does so at once: no message has to be delivered to it.
        let only = |(_, other): &(usize, &Rejoin)| **other != Rejoin::Over;
        let mut open = self.rejoins.iter().enumerate().filter(only);
        if let (Some((a, Rejoin::Scanning { of, replies, .. })), None) = (open.next(), open.next())
            && self.keeps_promises(setting)
            && replies.len() == of.len()
        {
            return vec![Action::Rejoin(small(a))];
        }
        for (p, proposer) in self.proposers.iter().enumerate() {
            let p8 = small(p);
            if proposer.want.is_some() && proposer.begun < setting.rounds[p].len() {
                actions.push(Action::Begin(p8));
            }
            for i in 0..proposer.begun {
                let ballot = setting.ballot(p, i);
                for at in 0..n {
                    let promises = self.promises(at, ballot, false);
                    let may_hear = match &proposer.phase {
                        Phase::Preparing(replies) => i + 1 == proposer.begun && is_new(replies, at),
                        _ => false,
                    };
                    if promises {
                        actions.push(Action::Prepare { ballot, at, answered: false });
                    }
                    if promises && may_hear {
                        actions.push(Action::Prepare { ballot, at, answered: true });
                    }
                }
            }
            if let Phase::Preparing(replies) = &proposer.phase
                && setting.prepared(replies, setting.ballot(p, proposer.begun - 1)).is_some()
            {
                actions.push(Action::Decide(p8, Clock::Due));
                if setting.leases {
                    actions.push(Action::Decide(p8, Clock::Later));
                }
            }
        }
        for (sent, (ballot, _)) in self.accepts.iter().enumerate() {
            for at in 0..n {
                let keeps = !setting.has(Defect::PromiseNotKept);
                if keeps && !self.promises(at, *ballot, true) {
                    continue;
                }
                actions.push(Action::Accept { sent, at, answered: false });
                if self.waits_for(setting, *ballot, at) {
                    actions.push(Action::Accept { sent, at, answered: true });
                }
            }
        }
        if self.losses > 0 {
            actions.extend((0..n).map(Action::Lose));
        }
        if self.copies > 0 {
            actions.extend((0..n).map(Action::Copy));
        }
        actions.extend((0..self.copied.len()).map(|copy| Action::Load { copy }));
        self.rejoin_actions(n, &mut actions);
        for (r, read) in self.reads.iter().enumerate() {
            if let Read::Reading { replies, .. } = read {
                let open = (0..n).filter(|at| is_new(replies, *at));
                let open = open.filter(|at| self.servers[*at].vector.is_some());
                actions.extend(open.map(|at| Action::Peek(small(r), at)));
            }
        }
        actions
    }

    /// True if no proposer and no read waits for anything, and none can begin: whatever happens now, nobody
    /// learns of it.
    fn is_over(&self, setting: &Setting) -> bool {
        let is_done = |(p, proposer): (usize, &super::Proposer)| {
            let is_last = proposer.begun == setting.rounds[p].len();
            matches!(proposer.phase, Phase::Idle) && (proposer.want.is_none() || is_last)
        };
        self.proposers.iter().enumerate().all(is_done)
            && self.reads.iter().all(|read| matches!(read, Read::Over))
    }

    fn rejoin_actions(&self, n: usize, actions: &mut Vec<Action>) {
        for (a, rejoin) in self.rejoins.iter().enumerate() {
            let a8 = small(a);
            let open = |k: usize, responses: &dyn Fn(usize) -> bool| {
                let here =
                    |at: &usize| *at != k && self.servers[*at].vector.is_some() && responses(*at);
                (0..n).filter(here).map(|at| Action::Hear(a8, at)).collect::<Vec<_>>()
            };
            match rejoin {
                Rejoin::Idle => {
                    // They are alike: one begins after the other.
                    let first = self.rejoins[..a].iter().all(|other| *other != Rejoin::Idle);
                    let empty = (0..n).filter(|k| first && self.servers[*k].vector.is_none());
                    actions.extend(empty.map(|k| Action::BeginRejoin(a8, k)));
                    let outdated = (0..n).filter(|k| first && self.is_outdated(*k));
                    actions.extend(outdated.map(|k| Action::BeginRaise(a8, k)));
                }
                Rejoin::Reading { k, replies, .. } => {
                    actions.extend(open(*k, &|at| is_new(replies, at)));
                }
                Rejoin::Scanning { k, of, replies, .. } => {
                    let asked = |at| of.iter().any(|reply| reply.from == at);
                    actions.extend(open(*k, &|at| asked(at) && is_new(replies, at)));
                    if replies.len() == of.len() {
                        actions.push(Action::Rejoin(a8));
                    }
                }
                Rejoin::Noting { .. } | Rejoin::Over => {}
            }
        }
        for (sent, (k, incarnation)) in self.raises.iter().enumerate() {
            let is_lower = |vector: IncarnationVector| vector.incarnation < *incarnation;
            if self.servers[*k].vector.is_some_and(is_lower) {
                actions.push(Action::Raise { sent });
            }
        }
        for (sent, (k, incarnation)) in self.notes.iter().enumerate() {
            for at in (0..n).filter(|at| at != k) {
                actions.push(Action::Note { sent, at, answered: false });
                let waits = |rejoin: &Rejoin| {
                    matches!(rejoin, Rejoin::Noting { k: of, incarnation: new, replies, .. }
                        if of == k && new == incarnation && is_new(replies, at))
                };
                if self.rejoins.iter().any(waits) && self.servers[at].vector.is_some() {
                    actions.push(Action::Note { sent, at, answered: true });
                }
            }
        }
    }

    /// True if a server knows a later incarnation of member `k` than that member has.
    pub(in super::super) fn is_outdated(&self, k: usize) -> bool {
        let vectors = || self.servers.iter().filter_map(|server| server.vector);
        self.servers[k]
            .vector
            .is_some_and(|vector| vectors().any(|v| v.known[k] > vector.incarnation))
    }

    /// True if the message would change something; a refusal tells its reader less than silence.
    pub(super) fn promises(&self, at: usize, ballot: Ballot, again: bool) -> bool {
        let Some((_, register)) = self.servers[at].peek(&()) else { return false };
        register.promised < Some(ballot) || (again && register.promised == Some(ballot))
    }

    fn waits_for(&self, setting: &Setting, ballot: Ballot, at: usize) -> bool {
        let (p, i) = setting.whose(ballot);
        match &self.proposers[p].phase {
            Phase::Accepting { replies, .. } => {
                i + 1 == self.proposers[p].begun && is_new(replies, at)
            }
            _ => false,
        }
    }
}
