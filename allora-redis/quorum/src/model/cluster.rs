//! One state of the model, and the actions that change it.

use super::{
    change::{Changes, Clock, Got, Value, Want},
    setting::{Defect, Setting},
};
use crate::{
    acceptor::Acceptor,
    ballot::Ballot,
    proposer::Reply,
    register::{IncarnationVector, MOST, Register},
};

mod next;
mod order;
mod rejoin;
mod rules;
mod unread;

/// States that must be reachable, so that a model in which nothing happens does not pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Goal {
    Granted,
    Completed,
    CompletedAfterTakeOver,
    /// A server that had forgotten has rejoined.
    Rejoined,
    /// A server whose incarnation had been outdated counts again.
    Raised,
    /// A replica has copied a server.
    Copied,
    GrantedAfterLoss,
    CompletedAfterLoss,
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
    /// A replica copies the server. Its replication id changes, and it stays full.
    Copy(usize),
    /// The server becomes a replica of one of its copies.
    Load {
        copy: usize,
    },
    BeginRejoin(u8, usize),
    BeginRaise(u8, usize),
    /// A server answers the node that lets another server rejoin, or raises its incarnation.
    Hear(u8, usize),
    Note {
        sent: usize,
        at: usize,
        answered: bool,
    },
    Rejoin(u8),
    Raise {
        sent: usize,
    },
    /// A server is read without a ballot.
    Peek(u8, usize),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Cluster {
    servers: Vec<Acceptor<(), Value>>,
    proposers: Vec<Proposer>,
    rejoins: Vec<Rejoin>,
    reads: Vec<Read>,
    /// Sent, and from then on delivered at any time, any number of times.
    accepts: Vec<(Ballot, Value)>,
    notes: Vec<(usize, u32)>,
    raises: Vec<(usize, u32)>,
    losses: u8,
    /// The number of copies that may be made.
    copies: u8,
    /// The copies, each of the server with this number.
    copied: Vec<(usize, Acceptor<(), Value>)>,
    observed: Observed,
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
    Accepting { got: Got, before: Observed, replies: Vec<Reply<Option<Ballot>>> },
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Rejoin {
    Idle,
    Reading {
        k: usize,
        to: Repair,
        replies: Vec<Reply<()>>,
    },
    Noting {
        k: usize,
        to: Repair,
        incarnation: u32,
        replies: Vec<Reply<()>>,
    },
    Scanning {
        k: usize,
        incarnation: u32,
        of: Vec<Reply<()>>,
        replies: Vec<Reply<Register<Value>>>,
    },
    Over,
}

/// The purpose of storing an incarnation on the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Repair {
    Rejoin,
    Raise,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Read {
    Reading { before: Option<Observed>, replies: Vec<Reply<Register<Value>>> },
    Over,
}

/// The acknowledgements up to now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Observed {
    /// The highest fence, and its owner.
    fence: i64,
    owner: Option<u8>,
    granted: u8,
    completed: bool,
    taken_over: bool,
    lost: bool,
}

impl Observed {
    /// The part that a later outcome is compared with.
    fn compared(self) -> Self {
        let Self { fence, completed, .. } = self;
        Self { fence, completed, ..Self::default() }
    }
}

impl Cluster {
    pub(super) fn new(setting: &Setting) -> Self {
        let mut known = [0; MOST];
        known[..setting.n].fill(1);
        let first = Ballot { round: 0, proposer: 0 };
        let register = Register { promised: Some(first), accepted: Some((first, Changes::FIRST)) };
        let mut server = Acceptor::empty();
        server.registers.insert((), register);
        server.vector = Some(IncarnationVector { incarnation: 1, known });
        let proposer = Proposer { begun: 0, want: Some(Want::Claim), phase: Phase::Idle };
        Self {
            servers: vec![server; setting.n],
            proposers: vec![proposer; setting.rounds.len()],
            rejoins: vec![Rejoin::Idle; setting.rejoins.into()],
            reads: vec![Read::Reading { before: None, replies: Vec::new() }; setting.reads.into()],
            accepts: Vec::new(),
            notes: if setting.late_note { vec![(0, 2)] } else { Vec::new() },
            raises: Vec::new(),
            losses: setting.losses,
            copies: setting.copies,
            copied: Vec::new(),
            observed: Observed::default(),
        }
    }

    /// Carries the action out. An error is a broken promise.
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
                if let (Some((vector, body)), true) = (reply, answered) {
                    let (p, _) = setting.whose(ballot);
                    if let Phase::Preparing(replies) = &mut self.proposers[p].phase {
                        insert(replies, at, vector, body);
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
                if let (Some((vector, body)), true) = (reply, answered)
                    && let Phase::Accepting { got, before, replies } = &mut self.proposers[p].phase
                {
                    insert(replies, at, vector, body);
                    if setting.committed(replies, ballot) {
                        let (got, before) = (*got, *before);
                        return self.told(p, got, before, setting);
                    }
                }
                Ok(None)
            }
            Action::Lose(at) => {
                let vector = self.servers[at].vector.filter(|_| setting.has(Defect::EmptyVotes));
                self.servers[at] = Acceptor { vector, ..Acceptor::empty() };
                self.losses -= 1;
                self.observed.lost = true;
                Ok(None)
            }
            Action::Copy(at) => {
                self.copies -= 1;
                self.copied.push((at, self.servers[at].clone()));
                Ok(Some(Goal::Copied))
            }
            Action::Load { copy } => {
                let (at, copy) = self.copied.swap_remove(copy);
                let vector = copy.vector.filter(|_| setting.has(Defect::CopyVotes));
                self.servers[at].load(copy);
                self.servers[at].vector = vector;
                self.observed.lost = true;
                Ok(None)
            }
            Action::BeginRejoin(a, k) => {
                self.servers[k].draft(u64::from(a) + 1);
                let replies = Vec::new();
                self.rejoins[usize::from(a)] = Rejoin::Reading { k, to: Repair::Rejoin, replies };
                Ok(None)
            }
            Action::BeginRaise(a, k) => {
                let replies = Vec::new();
                self.rejoins[usize::from(a)] = Rejoin::Reading { k, to: Repair::Raise, replies };
                Ok(None)
            }
            Action::Hear(a, at) => {
                self.hear(usize::from(a), at, setting);
                Ok(None)
            }
            Action::Note { sent, at, answered } => {
                let (k, incarnation) = self.notes[sent];
                let vector = self.servers[at].note(k, incarnation).filter(|_| answered);
                if let Some(vector) = vector {
                    self.noted(k, incarnation, at, vector, setting);
                }
                Ok(None)
            }
            Action::Rejoin(a) => Ok(self.rejoin(usize::from(a), setting)),
            Action::Raise { sent } => {
                let (k, incarnation) = self.raises[sent];
                let before = self.servers[k].vector;
                let after = self.servers[k].raise(k, incarnation);
                Ok((before != after).then_some(Goal::Raised))
            }
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
            return self.told(p.into(), got, self.observed, setting);
        }
        let before = self.observed;
        proposer.phase = Phase::Accepting { got, before, replies: Vec::new() };
        insert_sorted(&mut self.accepts, (ballot, new));
        Ok(None)
    }

    /// A proposer learns the outcome of its change.
    fn told(
        &mut self,
        p: usize,
        got: Got,
        before: Observed,
        setting: &Setting,
    ) -> Result<Option<Goal>, String> {
        let proposer = &mut self.proposers[p];
        let want = proposer.want.take();
        proposer.phase = Phase::Idle;
        let me = Some(small(p));
        let observed = &mut self.observed;
        match got {
            Got::Nothing => Ok(None),
            Got::Granted { fence } => {
                if before.completed {
                    return Err(format!("{p} was granted what had been completed"));
                }
                let shared = fence == observed.fence && observed.owner != me;
                if shared || fence < before.fence {
                    return Err(format!("{p} was granted {fence} after {:?}", observed.fence));
                }
                if !setting.leases && observed.granted > 0 {
                    return Err(format!("{p} was granted what another one was granted"));
                }
                observed.granted += 1;
                if fence > observed.fence {
                    (observed.fence, observed.owner) = (fence, me);
                }
                if setting.leases {
                    proposer.want = Some(Want::Complete { fence });
                } else if observed.lost {
                    return Ok(Some(Goal::GrantedAfterLoss));
                }
                Ok(Some(Goal::Granted))
            }
            Got::Ended => {
                if observed.completed {
                    return Err(format!("{p} completed what had been completed"));
                }
                if let Some(Want::Complete { fence }) = want
                    && fence < before.fence
                {
                    return Err(format!("{p} completed {fence} after {}", before.fence));
                }
                observed.completed = true;
                Ok(Some(match (observed.lost, observed.granted) {
                    (true, _) => Goal::CompletedAfterLoss,
                    (false, 2) => Goal::CompletedAfterTakeOver,
                    _ => Goal::Completed,
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
        let Some((vector, register)) = self.servers[at].peek(&()) else { return Ok(None) };
        let now = self.observed;
        let Read::Reading { before, replies } = &mut self.reads[r] else { return Ok(None) };
        let before = *before.get_or_insert(now);
        insert(replies, at, vector, register);
        let Some(value) = setting.stable(replies) else { return Ok(None) };
        self.reads[r] = Read::Over;
        let value = value.unwrap_or(Changes::FIRST);
        let (fence, owner) = (changes.fence(value), changes.holder(value));
        if fence < before.fence || (before.completed && !changes.is_over(value)) {
            return Err(format!("a read saw {fence}, after {before:?}"));
        }
        let Some(owner) = owner else { return Ok(None) };
        let observed = &mut self.observed;
        if fence == observed.fence && observed.owner != Some(owner) {
            return Err(format!("a read saw {fence} with {owner}, not {:?}", observed.owner));
        }
        if fence > observed.fence {
            (observed.fence, observed.owner) = (fence, Some(owner));
        }
        Ok(Some(Goal::ReadGrant))
    }
}

fn is_new<T>(replies: &[Reply<T>], at: usize) -> bool {
    replies.iter().all(|reply| reply.from != at)
}

/// Inserts by the server's number: the order of arrival makes no difference.
fn insert<T>(replies: &mut Vec<Reply<T>>, from: usize, vector: IncarnationVector, body: T) {
    let place = replies.partition_point(|reply| reply.from < from);
    replies.insert(place, Reply { from, vector, body });
}

fn insert_sorted<T: Ord>(sent: &mut Vec<T>, message: T) {
    if let Err(place) = sent.binary_search(&message) {
        sent.insert(place, message);
    }
}

fn small(number: usize) -> u8 {
    u8::try_from(number).expect("a small model")
}
