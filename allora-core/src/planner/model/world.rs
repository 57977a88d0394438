//! One job, two nodes, a client, and the requests between them and the store.

use super::{
    books::Books,
    breaks, holds,
    job::{Change, Defect, Delivery, End, LEASE, Sent, Setting, time},
};
use crate::{
    backend::{Claimed, Cursor, Outcome, Reply},
    job::{CheckedSchedule, Progress, Redefinition},
    planner::job::{
        decide::{Claimant, Decision, decide},
        known::Known,
    },
    record::{HistoryBuffer, Record, codec},
    time::Time,
};
use allora_conformance::explore::{Model, is_large};
use std::collections::HashMap;

/// A record, or its absence, by its number.
type Slot = usize;
/// A request, by its number.
type Request = usize;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct World {
    /// Ticks of ten seconds.
    now: u8,
    slot: Slot,
    nodes: [Node; 2],
    /// Requests that their senders do not wait for any more, and that may arrive yet.
    late: Vec<Request>,
    /// An edit that was planned.
    edit: Option<Request>,
    faults: u8,
    changes: u8,
    claims: u8,
    books: Books,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Node {
    Idle,
    Asks(Request),
    Runs { fence: i64, until: Time, then: Request, attempt: u32 },
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Action {
    Tick,
    /// A node decides what to send.
    Decide(usize),
    /// A node's request is carried out and answered.
    Answer(usize),
    /// The same, and a copy of it stays on its way.
    AnswerAndCopy(usize),
    /// It is carried out, and the reply is lost.
    LoseReply(usize),
    /// The claim is granted to a node that is stopping.
    AnswerAndRelease(usize),
    Crash(usize),
    Extend(usize),
    Succeed(usize),
    Fail(usize),
    /// A request arrives for which nobody waits.
    Late(usize),
    Change(Change),
    /// An edit arrives that was planned before.
    Edit,
    Resume,
    /// Nothing is left to do.
    Close,
}

/// The search's memory of records, requests and decisions.
pub(super) struct Job {
    setting: Setting,
    records: Vec<Option<Record>>,
    numbers: HashMap<Vec<u8>, Slot>,
    sent: Vec<Sent>,
    requests: HashMap<String, Request>,
    decisions: HashMap<(Slot, u8, u8), Option<Request>>,
}

impl Job {
    pub(super) fn new(setting: Setting) -> Self {
        Self {
            setting,
            records: Vec::new(),
            numbers: HashMap::new(),
            sent: Vec::new(),
            requests: HashMap::new(),
            decisions: HashMap::new(),
        }
    }

    /// The number of a record, without what no decision depends on.
    fn slot(&mut self, mut record: Option<Record>) -> Slot {
        if let Some(record) = &mut record {
            record.counters = Default::default();
            record.last = None;
            for lease in record.leases.iter_mut().chain(&mut record.lost) {
                lease.started_at = lease.occurrence.scheduled_at;
                lease.due_at = lease.occurrence.scheduled_at;
            }
        }
        let key = record.as_ref().map(codec::encode).unwrap_or_default();
        let new = self.records.len();
        let slot = *self.numbers.entry(key).or_insert(new);
        if slot == new {
            self.records.push(record);
        }
        slot
    }

    fn request(&mut self, sent: Sent) -> Request {
        let new = self.sent.len();
        let request = *self.requests.entry(format!("{sent:?}")).or_insert(new);
        if request == new {
            self.sent.push(sent);
        }
        request
    }

    fn is_edited(&self, record: &Record) -> bool {
        record.definition == self.setting.spec(true).definition()
    }

    /// The operation that a node sends that has just read this record.
    fn decide(&mut self, slot: Slot, tick: u8, id: u8) -> Option<Request> {
        if let Some(decided) = self.decisions.get(&(slot, tick, id)) {
            return *decided;
        }
        let record = self.records[slot].clone().filter(Record::is_live);
        let sent = record.and_then(|record| {
            let (state, now) = (record.state("job"), now(tick));
            let spec = self.setting.spec(self.is_edited(&record));
            let claimant = Claimant {
                claim_id: u128::from(id) + 1,
                lost_after: LEASE,
                extra_attempts: 1,
                cursor_went_last: false,
                waits_since: None,
                key_is_held: true,
            };
            let known = Known::of(&state, now);
            Some(match decide("job", &spec, &known, None, now, claimant).unwrap() {
                Decision::Claim { claim, then } => Sent::Claim { id, claim, then },
                Decision::Advance(advance) => Sent::Advance(advance),
                Decision::GiveUp(given_up) => Sent::GiveUp(given_up),
                Decision::Reap => Sent::Reap,
                _ => return None,
            })
        });
        let decided = sent.map(|sent| self.request(sent));
        self.decisions.insert((slot, tick, id), decided);
        decided
    }

    /// Carries a request out.
    fn carry_out(&mut self, world: &mut World, request: Request) -> Result<Option<Reply>, String> {
        let sent = self.sent[request].clone();
        let before = self.records[world.slot].clone();
        let (mut after, now) = (before.clone(), now(world.now));
        let mut history = HistoryBuffer::kept();
        let defect = self.setting.defect;
        let reply = sent.apply(&mut after, now, defect, &mut history).ok();
        let books = &mut world.books;
        let answered = reply.as_ref();
        match &sent {
            Sent::Claim { id, .. } => match answered {
                Some(Reply::Claimed(claimed)) => {
                    let is_shared = self.setting.delivery == Delivery::Shared;
                    books.granted(*id, claimed, before.as_ref(), now, is_shared)?;
                }
                _ => books.not_granted(*id, before.as_ref())?,
            },
            Sent::End { fence, .. } => {
                let is_accepted = matches!(answered, Some(Reply::Accepted));
                books.answered(*fence, before.as_ref(), true, is_accepted)?;
            }
            Sent::Extend { fence } => {
                let is_accepted = answered.is_some_and(|reply| reply.extended().is_some());
                books.answered(*fence, before.as_ref(), false, is_accepted)?;
            }
            Sent::Edit { .. } if answered.is_some() => books.edited(world.now),
            Sent::Create { .. } if answered.is_some() => books.created(world.now),
            Sent::Delete if answered.is_some() => books.deleted(),
            Sent::Trigger if answered.is_some() => books.triggered = true,
            _ => {}
        }
        let is_move = !matches!(sent, Sent::Edit { .. } | Sent::Create { .. } | Sent::Delete);
        if let (true, Some(before), Some(after)) = (is_move, &before, &after) {
            Books::moved(before, after)?;
        }
        let was_edited = before.as_ref().is_some_and(|record| self.is_edited(record));
        for entry in history.take() {
            if defect == Some(Defect::LossNotRecorded) && entry.outcome == Outcome::Lost {
                continue;
            }
            books.entered(&entry, &self.setting, was_edited, after.as_ref(), now)?;
        }
        world.slot = self.slot(after);
        Ok(reply)
    }

    /// A node has the reply to its request.
    fn hear(
        &mut self,
        world: &mut World,
        n: usize,
        reply: Option<Reply>,
        is_stopping: bool,
    ) -> Result<(), String> {
        let Node::Asks(request) = world.nodes[n] else { return Ok(()) };
        world.nodes[n] = Node::Idle;
        let Some(Reply::Claimed(claimed)) = reply else { return Ok(()) };
        let Sent::Claim { claim, then, .. } = &self.sent[request] else { return Ok(()) };
        let (on_expiry, then) = (claim.lease.on_expiry, *then);
        let Claimed { fence, until, attempt, .. } = claimed;
        let released = self.request(Sent::End { fence, then, end: End::Released });
        if is_stopping {
            world.nodes[n] = Node::Asks(released);
            return Ok(());
        }
        let record = self.records[world.slot].as_ref();
        let incarnation = record.map_or(0, |record| record.incarnation);
        world.books.begins(&claimed, on_expiry, incarnation)?;
        world.nodes[n] = Node::Runs { fence, until, then: released, attempt };
        self.are_alone(world)
    }

    /// Two nodes never hold leases that last, unless their runs may overlap.
    fn are_alone(&self, world: &World) -> Result<(), String> {
        let now = now(world.now);
        let holds = |node: &&Node| matches!(node, Node::Runs { until, .. } if *until > now);
        let both = world.nodes.iter().filter(holds).count() == 2;
        match both && self.setting.delivery != Delivery::Shared {
            true => Err("both nodes hold leases that last".into()),
            false => Ok(()),
        }
    }

    fn change(&mut self, world: &mut World, change: Change) -> Result<(), String> {
        world.changes -= 1;
        let tick = world.now;
        let sent = match change {
            Change::Pause => Sent::Pause,
            Change::Trigger => Sent::Trigger,
            Change::Delete => Sent::Delete,
            Change::Recreate => self.creation(tick),
            Change::Edit => {
                let record = self.records[world.slot].as_ref().unwrap();
                let (former, new) = (self.setting.spec(false), self.setting.spec(true));
                let redefinition = Redefinition {
                    former: Some(CheckedSchedule::of("job", &former)),
                    new: CheckedSchedule::of("job", &new),
                    same_schedule: false,
                    skip: false,
                    progress: Progress::of(&record.state("job")),
                    now: now(tick),
                };
                let plan = redefinition.plan().unwrap();
                let (generation, definition) = (record.generation, new.definition());
                let sent = Sent::Edit { generation, definition, plan };
                world.edit = Some(self.request(sent));
                return Ok(());
            }
        };
        let request = self.request(sent);
        self.carry_out(world, request).map(drop)
    }

    fn creation(&self, tick: u8) -> Sent {
        let spec = self.setting.spec(false);
        let first = CheckedSchedule::of("job", &spec).following(now(tick), 0).unwrap();
        Sent::Create { definition: spec.definition(), first }
    }

    fn live<'a>(&'a self, world: &World) -> Option<&'a Record> {
        self.records[world.slot].as_ref().filter(|record| record.is_live())
    }

    fn is_idle(&mut self, world: &World) -> bool {
        let decided = self.decide(world.slot, world.now, world.claims);
        world.nodes == [Node::Idle, Node::Idle] && world.edit.is_none() && decided.is_none()
    }

    fn has_no_work(&self, world: &World) -> bool {
        self.live(world).is_none_or(|record| {
            record.head().is_none() && record.leases.is_empty() && record.paused.is_none()
        })
    }
}

fn now(tick: u8) -> Time {
    time(i64::from(tick) * 10)
}

impl Model for Job {
    type State = World;
    type Action = Action;

    fn first(&mut self) -> World {
        let creation = self.creation(0);
        let mut world = World {
            now: 0,
            slot: self.slot(None),
            nodes: [Node::Idle, Node::Idle],
            late: Vec::new(),
            edit: None,
            faults: self.setting.faults,
            changes: self.setting.changes,
            claims: 0,
            books: Books::default(),
        };
        let request = self.request(creation);
        self.carry_out(&mut world, request).unwrap();
        world
    }

    fn actions(&mut self, world: &World) -> Vec<Action> {
        let mut actions = Vec::new();
        let decided = self.decide(world.slot, world.now, world.claims);
        let is_idle = self.is_idle(world);
        let has_no_work = self.has_no_work(world);
        if world.now < self.setting.ticks || (is_idle && !has_no_work) {
            actions.push(Action::Tick);
        }
        if is_idle && has_no_work {
            actions.push(Action::Close);
        }
        for (n, node) in world.nodes.iter().enumerate() {
            match node {
                Node::Idle => actions.extend(decided.map(|_| Action::Decide(n))),
                Node::Asks(request) => {
                    actions.push(Action::Answer(n));
                    if world.faults > 0 {
                        if matches!(self.sent[*request], Sent::Claim { .. }) {
                            actions.push(Action::AnswerAndRelease(n));
                        }
                        actions.extend([Action::AnswerAndCopy(n), Action::LoseReply(n)]);
                    }
                }
                Node::Runs { until, .. } => {
                    actions.extend([Action::Succeed(n), Action::Fail(n)]);
                    if *until <= now(world.now + 1) {
                        actions.push(Action::Extend(n));
                    }
                }
            }
            if world.faults > 0 && *node != Node::Idle {
                actions.push(Action::Crash(n));
            }
        }
        actions.extend((0..world.late.len()).map(Action::Late));
        actions.extend(world.edit.map(|_| Action::Edit));
        let live = self.live(world);
        if live.is_some_and(|record| record.paused.is_some()) {
            actions.push(Action::Resume);
        }
        let may = |change: &&Change| match change {
            Change::Recreate => live.is_none(),
            Change::Edit => {
                world.edit.is_none() && live.is_some_and(|record| !self.is_edited(record))
            }
            Change::Pause => live.is_some_and(|record| record.paused.is_none()),
            Change::Trigger | Change::Delete => live.is_some(),
        };
        if world.changes > 0 {
            actions.extend(self.setting.kinds.iter().filter(may).copied().map(Action::Change));
        }
        actions
    }

    fn act(&mut self, world: &mut World, action: &Action) -> Result<(), String> {
        match *action {
            Action::Tick => world.now += 1,
            Action::Close => return world.books.close(&self.setting),
            Action::Decide(n) => {
                if let Some(request) = self.decide(world.slot, world.now, world.claims) {
                    let is_claim = matches!(self.sent[request], Sent::Claim { .. });
                    world.claims += u8::from(is_claim);
                    world.nodes[n] = Node::Asks(request);
                }
            }
            Action::Answer(n) | Action::AnswerAndRelease(n) | Action::AnswerAndCopy(n) => {
                let Node::Asks(request) = world.nodes[n] else { return Ok(()) };
                let reply = self.carry_out(world, request)?;
                world.faults -= u8::from(!matches!(action, Action::Answer(_)));
                if matches!(action, Action::AnswerAndCopy(_)) {
                    world.late.push(request);
                }
                let is_stopping = matches!(action, Action::AnswerAndRelease(_));
                self.hear(world, n, reply, is_stopping)?;
            }
            Action::LoseReply(n) => {
                let Node::Asks(request) = world.nodes[n] else { return Ok(()) };
                world.faults -= 1;
                self.carry_out(world, request)?;
            }
            Action::Crash(n) => {
                world.faults -= 1;
                if let Node::Asks(request) = world.nodes[n] {
                    world.late.push(request);
                }
                world.nodes[n] = Node::Idle;
            }
            Action::Extend(n) => {
                let Node::Runs { fence, .. } = world.nodes[n] else { return Ok(()) };
                let request = self.request(Sent::Extend { fence });
                let reply = self.carry_out(world, request)?;
                match (reply, &mut world.nodes[n]) {
                    (Some(Reply::Extended(to)), Node::Runs { until, .. }) => *until = to,
                    // It is cancelled, and says so.
                    (Some(Reply::CancelRequested(_)), node) => {
                        let then = Cursor::Keep;
                        let end = End::Failed;
                        *node = Node::Asks(self.request(Sent::End { fence, then, end }));
                    }
                    (_, node) => *node = Node::Idle,
                }
                self.are_alone(world)?;
            }
            Action::Succeed(n) | Action::Fail(n) => {
                let Node::Runs { fence, then, attempt, .. } = world.nodes[n] else { return Ok(()) };
                let Sent::End { then, .. } = self.sent[then] else { return Ok(()) };
                let leased = self.setting.delivery == Delivery::AtLeastOnce;
                let end = match (action, leased, attempt) {
                    (Action::Succeed(_), ..) => End::Succeeded,
                    (_, false, _) => End::Failed,
                    (_, true, 1) => End::Retried(world.now),
                    (_, true, _) => End::Dead,
                };
                world.nodes[n] = Node::Asks(self.request(Sent::End { fence, then, end }));
            }
            Action::Late(i) => {
                let request = world.late.remove(i);
                self.carry_out(world, request)?;
            }
            Action::Change(change) => self.change(world, change)?,
            Action::Edit => {
                if let Some(request) = world.edit.take() {
                    self.carry_out(world, request)?;
                }
            }
            Action::Resume => {
                let request = self.request(Sent::Resume);
                self.carry_out(world, request)?;
            }
        }
        // A grant that cannot come again is forgotten.
        let ids = world.nodes.iter().filter_map(|node| match node {
            Node::Asks(request) => Some(*request),
            _ => None,
        });
        let ids: Vec<u8> = ids
            .chain(world.late.iter().copied())
            .filter_map(|request| match self.sent[request] {
                Sent::Claim { id, .. } => Some(id),
                _ => None,
            })
            .collect();
        world.books.grants.retain(|(id, _)| ids.contains(id));
        Ok(())
    }

    /// The nodes are alike.
    fn canonical(&mut self, mut world: World) -> World {
        world.nodes.sort();
        world.late.sort_unstable();
        world
    }

    fn is_at_rest(&mut self, world: &World) -> bool {
        self.is_idle(world) && self.has_no_work(world)
    }
}

const LEASED: Setting = Setting {
    delivery: Delivery::AtLeastOnce,
    faults: 1,
    changes: 0,
    kinds: Change::ALL,
    ticks: 4,
    defect: None,
};
const ONCE: Setting = Setting { delivery: Delivery::AtMostOnce, ..LEASED };

fn all_hold(faults: u8, changes: u8) {
    for delivery in [Delivery::AtLeastOnce, Delivery::AtMostOnce, Delivery::Shared] {
        let setting = Setting { delivery, faults, changes, ..LEASED };
        let what = format!("{delivery:?}, {faults} faults, {changes} changes by a client");
        holds("record", &what, &mut Job::new(setting));
    }
}

#[test]
fn two_nodes_and_a_fault_share_three_instants() {
    all_hold(1, 0);
}

#[test]
fn two_nodes_share_three_instants_while_a_client_changes_the_job() {
    all_hold(0, 1);
}

/// Minutes: `cargo xtask model`.
#[test]
fn larger_worlds_of_the_record() {
    if is_large() {
        all_hold(1, 1);
        all_hold(2, 0);
        all_hold(0, 2);
    }
}

#[test]
fn every_rule_of_the_record_is_missed() {
    let changed = |changes, kinds| Setting { changes, kinds, faults: 0, ..LEASED };
    let cases = [
        (Defect::FenceNotComparedAtTheEnd, LEASED),
        (Defect::FenceNotComparedAtAnExtension, LEASED),
        (Defect::FenceNotComparedAtAClaim, LEASED),
        (Defect::ClaimRepeatedWithoutItsId, LEASED),
        (Defect::EndNotRemembered, LEASED),
        (Defect::CursorFromNow, LEASED),
        (Defect::CursorNotMoved, LEASED),
        (Defect::ClaimWithoutCursor, ONCE),
        (Defect::LeaseNotRespected, LEASED),
        (Defect::ExpiredNotOffered, LEASED),
        (Defect::LossNotRecorded, ONCE),
        (Defect::PauseNotRespected, changed(1, &[Change::Pause])),
        (Defect::TombstoneForgotten, changed(2, &[Change::Delete, Change::Recreate])),
        (Defect::EditNotCompared, changed(1, &[Change::Edit])),
    ];
    for (defect, setting) in cases {
        let setting = Setting { defect: Some(defect), ..setting };
        breaks("record", &defect, &mut Job::new(setting));
    }
}
