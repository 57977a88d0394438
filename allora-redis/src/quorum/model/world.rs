//! One state of the model, and what can happen in it.

use super::{
    Setting,
    change::{Changes, Clock, Got, Value, Want},
};
use crate::quorum::{
    acceptor::Acceptor,
    ballot::Ballot,
    proposer::{self, Reply},
    register::{MOST, Register, Seal},
};
use std::hash::{DefaultHasher, Hash, Hasher};

/// A rule that is removed from the protocol: each must be missed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Defect {
    /// A server accepts what is below its promise.
    PromiseNotKept,
    /// One server less than a majority.
    NoMajority,
    /// What is read and not changed is trusted without being written back.
    ReadNotWrittenBack,
    /// A server that has forgotten votes at once.
    BlankVotes,
    /// A server is admitted by what one other knows.
    AdmittedByOne,
    /// A server that is admitted does not learn what was promised.
    PromisesNotCopied,
    /// Promises from lives that are over count.
    OldPromisesCount,
    /// What was accepted in lives that are over counts.
    OldVotesCount,
    /// A finish is accepted whatever its fence.
    FenceNotCompared,
    /// The others are read before they are told of the new life.
    ReadBeforeNoted,
    /// A read trusts what a majority has accepted, whatever it has promised since.
    UnquietRead,
}

/// What must be reachable, so that a model in which nothing happens does not pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Goal {
    Granted,
    Finished,
    FinishedAfterTakeOver,
    /// A server that had forgotten was admitted.
    Admitted,
    GrantedAfterLoss,
    FinishedAfterLoss,
    /// A read without a ballot saw a grant.
    ReadGrant,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Action {
    /// A proposer begins its next ballot.
    Begin(u8),
    /// A ballot's first message arrives, and its answer does or does not.
    Prepare {
        ballot: Ballot,
        at: usize,
        answered: bool,
    },
    /// A proposer has enough promises and decides.
    Decide(u8, Clock),
    /// A ballot's second message arrives, and its answer does or does not.
    Accept {
        sent: usize,
        at: usize,
        answered: bool,
    },
    Lose(usize),
    BeginAdmission(u8, usize),
    /// A server answers to whoever admits another.
    Hear(u8, usize),
    Note {
        sent: usize,
        at: usize,
        answered: bool,
    },
    Admit(u8),
    /// A server is read without a ballot.
    Peek(u8, usize),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct World {
    servers: Vec<Acceptor<(), Value>>,
    proposers: Vec<Proposer>,
    admissions: Vec<Admission>,
    reads: Vec<Read>,
    /// Sent, and from then on delivered at any time, any number of times.
    accepts: Vec<(Ballot, Value)>,
    notes: Vec<(usize, u32)>,
    losses: u8,
    witness: Witness,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Proposer {
    begun: usize,
    want: Option<Want>,
    phase: Phase,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Phase {
    Idle,
    Preparing(Vec<Reply<Register<Value>>>),
    Accepting { got: Got, before: Witness, replies: Vec<Reply<Option<Ballot>>> },
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Admission {
    Idle,
    Reading { k: usize, replies: Vec<Reply<()>> },
    Noting { k: usize, life: u32, replies: Vec<Reply<()>> },
    Scanning { k: usize, life: u32, of: Vec<Reply<()>>, replies: Vec<Reply<Register<Value>>> },
    Over,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Read {
    Reading { before: Option<Witness>, replies: Vec<Reply<Register<Value>>> },
    Over,
}

/// What somebody was told, by the time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Witness {
    /// The highest fence, and whose it is.
    fence: i64,
    owner: Option<u8>,
    granted: u8,
    finished: bool,
    taken_over: bool,
    lost: bool,
}

impl World {
    pub(super) fn new(setting: &Setting) -> Self {
        let mut known = [0; MOST];
        known[..setting.n].fill(1);
        let first = Ballot { round: 0, proposer: 0 };
        let register = Register { promised: Some(first), accepted: Some((first, Changes::FIRST)) };
        let mut server = Acceptor::blank();
        server.registers.insert((), register);
        server.seal = Some(Seal { incarnation: 1, known });
        let proposer = Proposer { begun: 0, want: Some(Want::Take), phase: Phase::Idle };
        Self {
            servers: vec![server; setting.n],
            proposers: vec![proposer; setting.rounds.len()],
            admissions: vec![Admission::Idle; setting.admissions.into()],
            reads: vec![Read::Reading { before: None, replies: Vec::new() }; setting.reads.into()],
            accepts: Vec::new(),
            notes: Vec::new(),
            losses: setting.losses,
            witness: Witness::default(),
        }
    }

    /// What can happen next.
    pub(super) fn actions(&self, setting: &Setting) -> Vec<Action> {
        let mut actions = Vec::new();
        let n = setting.n;
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
        self.admission_actions(n, &mut actions);
        for (r, read) in self.reads.iter().enumerate() {
            if let Read::Reading { replies, .. } = read {
                let open = (0..n).filter(|at| is_new(replies, *at));
                let open = open.filter(|at| self.servers[*at].seal.is_some());
                actions.extend(open.map(|at| Action::Peek(small(r), at)));
            }
        }
        actions
    }

    fn admission_actions(&self, n: usize, actions: &mut Vec<Action>) {
        for (a, admission) in self.admissions.iter().enumerate() {
            let a8 = small(a);
            let open = |k: usize, heard: &dyn Fn(usize) -> bool| {
                let here = |at: &usize| *at != k && self.servers[*at].seal.is_some() && heard(*at);
                (0..n).filter(here).map(|at| Action::Hear(a8, at)).collect::<Vec<_>>()
            };
            match admission {
                Admission::Idle => {
                    // They are alike: one begins after the other.
                    let first = self.admissions[..a].iter().all(|other| *other != Admission::Idle);
                    let blank = (0..n).filter(|k| first && self.servers[*k].seal.is_none());
                    actions.extend(blank.map(|k| Action::BeginAdmission(a8, k)));
                }
                Admission::Reading { k, replies } => {
                    actions.extend(open(*k, &|at| is_new(replies, at)));
                }
                Admission::Scanning { k, of, replies, .. } => {
                    let asked = |at| of.iter().any(|reply| reply.from == at);
                    actions.extend(open(*k, &|at| asked(at) && is_new(replies, at)));
                    if replies.len() == of.len() {
                        actions.push(Action::Admit(a8));
                    }
                }
                Admission::Noting { .. } | Admission::Over => {}
            }
        }
        for (sent, (k, life)) in self.notes.iter().enumerate() {
            for at in (0..n).filter(|at| at != k) {
                actions.push(Action::Note { sent, at, answered: false });
                let waits = |admission: &Admission| {
                    matches!(admission, Admission::Noting { k: of, life: new, replies }
                        if of == k && new == life && is_new(replies, at))
                };
                if self.admissions.iter().any(waits) && self.servers[at].seal.is_some() {
                    actions.push(Action::Note { sent, at, answered: true });
                }
            }
        }
    }

    /// Whether the message would do something; a refusal tells its reader less than silence.
    fn promises(&self, at: usize, ballot: Ballot, again: bool) -> bool {
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

    /// The same state with its servers in an order of their own: which is the first makes no
    /// difference.
    pub(super) fn in_order(&self) -> Self {
        let print = |at: usize| {
            let mut hasher = DefaultHasher::new();
            let server = &self.servers[at];
            server.seal.map(|seal| seal.incarnation).hash(&mut hasher);
            (&server.registers, server.draft).hash(&mut hasher);
            for proposer in &self.proposers {
                match &proposer.phase {
                    Phase::Idle => {}
                    Phase::Preparing(replies) => body(replies, at).hash(&mut hasher),
                    Phase::Accepting { replies, .. } => body(replies, at).hash(&mut hasher),
                }
            }
            for admission in &self.admissions {
                match admission {
                    Admission::Idle | Admission::Over => {}
                    Admission::Reading { k, replies } | Admission::Noting { k, replies, .. } => {
                        (*k == at, body(replies, at)).hash(&mut hasher);
                    }
                    Admission::Scanning { k, of, replies, .. } => {
                        (*k == at, body(of, at), body(replies, at)).hash(&mut hasher);
                    }
                }
            }
            for read in &self.reads {
                if let Read::Reading { replies, .. } = read {
                    body(replies, at).hash(&mut hasher);
                }
            }
            hasher.finish()
        };
        let mut order: Vec<usize> = (0..self.servers.len()).collect();
        order.sort_by_cached_key(|at| print(*at));
        let mut places = [0; MOST];
        for (place, at) in order.iter().enumerate() {
            places[*at] = place;
        }
        self.renumbered(&order, &places)
    }

    fn renumbered(&self, order: &[usize], places: &[usize; MOST]) -> Self {
        let mut world = self.clone();
        world.servers = order.iter().map(|at| self.servers[*at].clone()).collect();
        for server in &mut world.servers {
            server.seal.iter_mut().for_each(|seal| renumber_seal(seal, order));
        }
        for proposer in &mut world.proposers {
            match &mut proposer.phase {
                Phase::Idle => {}
                Phase::Preparing(replies) => renumber(replies, order, places),
                Phase::Accepting { replies, .. } => renumber(replies, order, places),
            }
        }
        for admission in &mut world.admissions {
            match admission {
                Admission::Idle | Admission::Over => {}
                Admission::Reading { k, replies } | Admission::Noting { k, replies, .. } => {
                    *k = places[*k];
                    renumber(replies, order, places);
                }
                Admission::Scanning { k, of, replies, .. } => {
                    *k = places[*k];
                    renumber(of, order, places);
                    renumber(replies, order, places);
                }
            }
        }
        for read in &mut world.reads {
            if let Read::Reading { replies, .. } = read {
                renumber(replies, order, places);
            }
        }
        for (k, _) in &mut world.notes {
            *k = places[*k];
        }
        world.notes.sort_unstable();
        world
    }

    /// Lets it happen. An error is a promise that is broken.
    pub(super) fn act(
        &mut self,
        action: Action,
        setting: &Setting,
        changes: &mut Changes,
    ) -> Result<Option<Goal>, String> {
        match action {
            Action::Begin(p) => {
                let proposer = &mut self.proposers[usize::from(p)];
                proposer.begun += 1;
                proposer.phase = Phase::Preparing(Vec::new());
                Ok(None)
            }
            Action::Prepare { ballot, at, answered } => {
                let reply = self.servers[at].prepare(&(), ballot);
                if let (Some((seal, body)), true) = (reply, answered) {
                    let (p, _) = setting.whose(ballot);
                    if let Phase::Preparing(replies) = &mut self.proposers[p].phase {
                        insert(replies, at, seal, body);
                    }
                }
                Ok(None)
            }
            Action::Decide(p, clock) => self.decide(p, clock, setting, changes),
            Action::Accept { sent, at, answered } => {
                let (ballot, value) = self.accepts[sent];
                if setting.has(Defect::PromiseNotKept)
                    && let Some(register) = self.servers[at].registers.get_mut(&())
                {
                    register.promised = register.promised.min(Some(ballot));
                }
                let reply = self.servers[at].accept(&(), ballot, value);
                let (p, _) = setting.whose(ballot);
                if let (Some((seal, body)), true) = (reply, answered)
                    && let Phase::Accepting { got, before, replies } = &mut self.proposers[p].phase
                {
                    insert(replies, at, seal, body);
                    if setting.committed(replies, ballot) {
                        let (got, before) = (*got, *before);
                        return self.told(p, got, before, setting);
                    }
                }
                Ok(None)
            }
            Action::Lose(at) => {
                let seal = self.servers[at].seal.filter(|_| setting.has(Defect::BlankVotes));
                self.servers[at] = Acceptor { seal, ..Acceptor::blank() };
                self.losses -= 1;
                self.witness.lost = true;
                Ok(None)
            }
            Action::BeginAdmission(a, k) => {
                self.servers[k].draft(u64::from(a) + 1);
                self.admissions[usize::from(a)] = Admission::Reading { k, replies: Vec::new() };
                Ok(None)
            }
            Action::Hear(a, at) => {
                self.hear(usize::from(a), at, setting);
                Ok(None)
            }
            Action::Note { sent, at, answered } => {
                let (k, life) = self.notes[sent];
                let seal = self.servers[at].note(k, life).filter(|_| answered);
                if let Some(seal) = seal {
                    self.noted(k, life, at, seal, setting);
                }
                Ok(None)
            }
            Action::Admit(a) => Ok(self.admit(usize::from(a), setting)),
            Action::Peek(r, at) => self.peek(usize::from(r), at, setting, changes),
        }
    }

    fn decide(
        &mut self,
        p: u8,
        clock: Clock,
        setting: &Setting,
        changes: &mut Changes,
    ) -> Result<Option<Goal>, String> {
        let proposer = &mut self.proposers[usize::from(p)];
        let ballot = setting.ballot(p.into(), proposer.begun - 1);
        let (Phase::Preparing(replies), Some(want)) = (&proposer.phase, proposer.want) else {
            return Ok(None);
        };
        let value = setting.prepared(replies, ballot).flatten().unwrap_or(Changes::FIRST);
        let (new, got) = changes.make(value, want, p, clock);
        if new == value && setting.has(Defect::ReadNotWrittenBack) {
            return self.told(p.into(), got, self.witness, setting);
        }
        let before = self.witness;
        proposer.phase = Phase::Accepting { got, before, replies: Vec::new() };
        insert_sorted(&mut self.accepts, (ballot, new));
        Ok(None)
    }

    /// A proposer learns what came of its change.
    fn told(
        &mut self,
        p: usize,
        got: Got,
        before: Witness,
        setting: &Setting,
    ) -> Result<Option<Goal>, String> {
        let proposer = &mut self.proposers[p];
        let want = proposer.want.take();
        proposer.phase = Phase::Idle;
        let me = Some(small(p));
        let witness = &mut self.witness;
        match got {
            Got::Nothing => Ok(None),
            Got::Granted { fence } => {
                if before.finished {
                    return Err(format!("{p} was granted what had been finished"));
                }
                let shared = fence == witness.fence && witness.owner != me;
                if shared || fence < before.fence {
                    return Err(format!("{p} was granted {fence} after {:?}", witness.fence));
                }
                if !setting.leases && witness.granted > 0 {
                    return Err(format!("{p} was granted what another one was granted"));
                }
                witness.granted += 1;
                if fence > witness.fence {
                    (witness.fence, witness.owner) = (fence, me);
                }
                if setting.leases {
                    proposer.want = Some(Want::Finish { fence });
                } else if witness.lost {
                    return Ok(Some(Goal::GrantedAfterLoss));
                }
                Ok(Some(Goal::Granted))
            }
            Got::Ended => {
                if witness.finished {
                    return Err(format!("{p} finished what had been finished"));
                }
                if let Some(Want::Finish { fence }) = want
                    && fence < before.fence
                {
                    return Err(format!("{p} finished with {fence} after {}", before.fence));
                }
                witness.finished = true;
                Ok(Some(match (witness.lost, witness.granted) {
                    (true, _) => Goal::FinishedAfterLoss,
                    (false, 2) => Goal::FinishedAfterTakeOver,
                    _ => Goal::Finished,
                }))
            }
        }
    }

    fn hear(&mut self, a: usize, at: usize, setting: &Setting) {
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

    fn noted(&mut self, k: usize, life: u32, at: usize, seal: Seal, setting: &Setting) {
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

    fn admit(&mut self, a: usize, setting: &Setting) -> Option<Goal> {
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

    fn peek(
        &mut self,
        r: usize,
        at: usize,
        setting: &Setting,
        changes: &Changes,
    ) -> Result<Option<Goal>, String> {
        let Some((seal, register)) = self.servers[at].peek(&()) else { return Ok(None) };
        let now = self.witness;
        let Read::Reading { before, replies } = &mut self.reads[r] else { return Ok(None) };
        let before = *before.get_or_insert(now);
        insert(replies, at, seal, register);
        let Some(value) = setting.quiet(replies) else { return Ok(None) };
        self.reads[r] = Read::Over;
        let value = value.unwrap_or(Changes::FIRST);
        let (fence, owner) = (changes.fence(value), changes.holder(value));
        if fence < before.fence || (before.finished && !changes.is_over(value)) {
            return Err(format!("a read saw {fence}, after {before:?}"));
        }
        let Some(owner) = owner else { return Ok(None) };
        let witness = &mut self.witness;
        if fence == witness.fence && witness.owner != Some(owner) {
            return Err(format!("a read saw {fence} with {owner}, not {:?}", witness.owner));
        }
        if fence > witness.fence {
            (witness.fence, witness.owner) = (fence, Some(owner));
        }
        Ok(Some(Goal::ReadGrant))
    }
}

impl Setting {
    fn has(&self, defect: Defect) -> bool {
        self.defect == Some(defect)
    }

    fn ballot(&self, p: usize, i: usize) -> Ballot {
        Ballot { round: self.rounds[p][i], proposer: p as u64 }
    }

    fn whose(&self, ballot: Ballot) -> (usize, usize) {
        let p = usize::from(small(ballot.proposer as usize));
        let i = self.rounds[p].iter().position(|round| *round == ballot.round);
        (p, i.expect("a round of this proposer"))
    }

    fn quorum(&self) -> usize {
        proposer::majority(self.n) - usize::from(self.has(Defect::NoMajority))
    }

    fn admitting(&self) -> usize {
        if self.has(Defect::AdmittedByOne) { 1 } else { proposer::majority(self.n) }
    }

    fn prepared(
        &self,
        replies: &[Reply<Register<Value>>],
        ballot: Ballot,
    ) -> Option<Option<Value>> {
        let replies = self.heard(replies, Defect::OldPromisesCount);
        Some(proposer::prepared(&replies, ballot, self.quorum())?.copied())
    }

    fn committed(&self, replies: &[Reply<Option<Ballot>>], ballot: Ballot) -> bool {
        let replies = self.heard(replies, Defect::OldVotesCount);
        proposer::committed(&replies, ballot, self.quorum())
    }

    fn quiet(&self, replies: &[Reply<Register<Value>>]) -> Option<Option<Value>> {
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

fn body<T>(replies: &[Reply<T>], at: usize) -> Option<(u32, &T)> {
    let reply = replies.iter().find(|reply| reply.from == at)?;
    Some((reply.seal.incarnation, &reply.body))
}

fn renumber<T>(replies: &mut [Reply<T>], order: &[usize], places: &[usize; MOST]) {
    for reply in replies.iter_mut() {
        reply.from = places[reply.from];
        renumber_seal(&mut reply.seal, order);
    }
    replies.sort_by_key(|reply| reply.from);
}

fn renumber_seal(seal: &mut Seal, order: &[usize]) {
    let known = seal.known;
    for (place, at) in order.iter().enumerate() {
        seal.known[place] = known[*at];
    }
}

fn is_new<T>(replies: &[Reply<T>], at: usize) -> bool {
    replies.iter().all(|reply| reply.from != at)
}

/// In one order, whatever the order of arrival: it makes no difference.
fn insert<T>(replies: &mut Vec<Reply<T>>, from: usize, seal: Seal, body: T) {
    let place = replies.partition_point(|reply| reply.from < from);
    replies.insert(place, Reply { from, seal, body });
}

fn insert_sorted<T: Ord>(sent: &mut Vec<T>, message: T) {
    if let Err(place) = sent.binary_search(&message) {
        sent.insert(place, message);
    }
}

fn small(number: usize) -> u8 {
    u8::try_from(number).expect("a small model")
}
