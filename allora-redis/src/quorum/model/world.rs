//! One state of the model, and what can happen in it.

use super::{
    Setting,
    change::{Changes, Clock, Got, Value, Want},
};
use crate::quorum::{
    acceptor::Acceptor,
    ballot::Ballot,
    proposer::Reply,
    register::{MOST, Register, Seal},
};

mod admission;
mod next;
mod order;
mod rules;

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
