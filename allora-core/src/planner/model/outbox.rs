//! Job B runs after job A: ends of A, two nodes that deliver the outbox and may die at each step, and a client that
//! edits, pauses, deletes and creates B meanwhile.

use super::{breaks, holds, job::time};
use crate::{
    backend::{
        Action as Do, Claim, Completion, Cursor, Edit, FollowUp, Follower, NewSchedule, On,
        Operation, Outcome, Replan, Reply,
    },
    error::Result,
    record::{HistoryBuffer, OpContext, Record, apply},
    stored::delivered,
    time::Time,
};
use allora_conformance::explore::{Model, is_large};
use std::{
    fmt::Debug,
    hash::{Hash, Hasher},
    time::Duration,
};

const LEASE: Duration = Duration::from_secs(60);
const AFTER: &str = "@never; after A ended";

/// Two records, and what is on its way. Hashed by its text: records have no hash of their own.
#[derive(Clone, Debug)]
pub(super) struct World {
    a: Option<Record>,
    b: Option<Record>,
    nodes: [Node; 2],
    /// Follow-ups that may arrive once more, after their senders have died or gone on.
    late: Vec<FollowUp>,
    ends: u8,
    faults: u8,
    changes: u8,
    /// Each end of A, the times that B has got a run for it, and whether B has followed A ever since.
    books: Vec<(String, u8, bool)>,
}

impl Hash for World {
    fn hash<H: Hasher>(&self, state: &mut H) {
        format!("{self:?}").hash(state);
    }
}

#[derive(Clone, Debug)]
enum Node {
    Idle,
    /// It has read the outbox, and sends the first that has no reply yet.
    Sends {
        outbox: Vec<FollowUp>,
        followers: Vec<Follower>,
        replies: Vec<Reply>,
    },
    Confirms {
        done: Vec<FollowUp>,
        gone: Vec<Follower>,
    },
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Action {
    /// A's run ends.
    End(Ended),
    /// A's dead letter runs again, and succeeds.
    Rerun,
    Read(usize),
    Send(usize),
    SendAndCopy(usize),
    LoseReply(usize),
    Confirm(usize),
    Crash(usize),
    Late(usize),
    /// B's run is claimed, and succeeds.
    RunB,
    Change(Change),
    Resume,
    Close,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Ended {
    Succeeded,
    Dead,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Change {
    PauseB,
    /// B does not run after A any more, or does again.
    EditB,
    DeleteB,
    CreateB,
    DeleteA,
}

/// A rule that is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Defect {
    /// A node confirms what it reads before it sends it.
    ConfirmedBeforeDelivery,
    /// The end is written before its outbox, and a node dies between the two.
    OutboxNotWrittenWithTheEnd,
    /// The follower forgets what it has received.
    ReceiptNotRemembered,
    /// The follower compares with the last receipt for equality only.
    OlderReceivedAgain,
    /// A confirmation removes whatever the outbox has.
    AllConfirmed,
    /// A deleted follower's tombstone forgets what it has received.
    ReceiptLostWithTheJob,
    /// A job is deleted whatever its outbox has.
    DeletedWithItsOutbox,
}

struct Chained {
    ends: u8,
    faults: u8,
    changes: u8,
    defect: Option<Defect>,
}

impl Chained {
    fn has(&self, defect: Defect) -> bool {
        self.defect == Some(defect)
    }

    fn apply(&self, slot: &mut Option<Record>, name: &str, action: Do<'_>) -> Result<Reply> {
        self.noted(slot, name, action, &mut HistoryBuffer::off())
    }

    fn noted(
        &self,
        slot: &mut Option<Record>,
        name: &str,
        action: Do<'_>,
        history: &mut HistoryBuffer,
    ) -> Result<Reply> {
        apply(slot, &Operation::new(name, action), OpContext::new("", now()), history)
    }

    /// A claims and ends its head.
    fn run(&self, slot: &mut Option<Record>, name: &str, ended: Ended) {
        let record = slot.as_ref().unwrap();
        let head = record.head().unwrap().occurrence.to_occurrence();
        let claim = Claim::at_least_once(1, record.fence, head, LEASE);
        let claimed = self.apply(slot, name, Do::Claim(claim)).unwrap().claimed().unwrap();
        let next = claimed.occurrence.scheduled_at + chrono::TimeDelta::seconds(1);
        let then = match claimed.occurrence.trigger {
            None => Cursor::To(Some(next.into())),
            Some(_) => Cursor::Keep,
        };
        let completion = match ended {
            Ended::Succeeded => Completion::Succeeded,
            Ended::Dead => Completion::Dead("it failed"),
        };
        let fence = claimed.fence;
        let end = self.apply(slot, name, Do::Complete { fence, then, completion }).unwrap();
        assert_eq!(end, Reply::Accepted);
    }

    fn end_a(&self, world: &mut World, ended: Ended) {
        let known = outbox(&world.a).len();
        self.run(&mut world.a, "A", ended);
        let follows = follows(&world.b);
        for up in &outbox(&world.a)[known..] {
            world.books.push((up.id.clone(), 0, follows));
        }
        if self.has(Defect::OutboxNotWrittenWithTheEnd) && world.faults > 0 {
            world.faults -= 1;
            let chain = world.a.as_mut().and_then(|record| record.chain.as_mut()).unwrap();
            chain.outbox.truncate(known);
        }
    }

    /// B is told of an end of A.
    fn tell(&self, world: &mut World, up: &FollowUp) -> Result<Reply, String> {
        let count = |slot: &Option<Record>| slot.as_ref().map_or(0, |it| it.triggers.len());
        if let Some(chain) = world.b.as_mut().and_then(|record| record.chain.as_mut()) {
            let last = chain.received.as_ref().map_or(0, |(_, number)| *number);
            let older = self.has(Defect::OlderReceivedAgain) && up.number < last;
            if older || self.has(Defect::ReceiptNotRemembered) {
                chain.received = None;
            }
        }
        let forgets = [Defect::ReceiptNotRemembered, Defect::OlderReceivedAgain];
        if forgets.iter().any(|defect| self.has(*defect)) {
            world.b.iter_mut().for_each(|record| record.remembered.clear());
        }
        let (before, mut history) = (count(&world.b), HistoryBuffer::kept());
        let action = Do::FollowUp { from: "A", follow_up: up };
        let reply = self.noted(&mut world.b, "B", action, &mut history).unwrap();
        let missed = history.take().into_iter().filter(|it| it.outcome == Outcome::Missed).count();
        let new = count(&world.b) - before + missed;
        let (_, got, _) = world.books.iter_mut().find(|(id, ..)| *id == up.id).unwrap();
        *got += u8::try_from(new).unwrap();
        match *got {
            0 | 1 => Ok(reply),
            _ => Err(format!("B runs twice after {}", up.id)),
        }
    }

    fn change(&self, world: &mut World, change: Change) -> Result<()> {
        world.changes -= 1;
        match change {
            Change::PauseB => {
                self.apply(&mut world.b, "B", Do::Pause { note: "", until: None })?;
            }
            Change::EditB => {
                let follows = follows(&world.b);
                let record = world.b.as_ref().unwrap();
                let definition = if follows { "@never" } else { AFTER };
                let plan = Replan::default();
                let edit =
                    Edit { definition: Some((definition, plan)), ..Edit::of(record.generation) };
                if !follows {
                    self.apply(&mut world.a, "A", Do::Follow { job: "B", on: On::End })?;
                }
                self.apply(&mut world.b, "B", Do::Modify(edit))?;
            }
            Change::DeleteB => {
                self.apply(&mut world.b, "B", Do::Delete)?;
                if self.has(Defect::ReceiptLostWithTheJob)
                    && let Some(record) = &mut world.b
                {
                    record.chain = None;
                }
            }
            Change::CreateB => {
                self.apply(&mut world.a, "A", Do::Follow { job: "B", on: On::End })?;
                let new = NewSchedule::new("kind", AFTER, None);
                self.apply(&mut world.b, "B", Do::Create(new))?;
            }
            Change::DeleteA => {
                if self.has(Defect::DeletedWithItsOutbox)
                    && let Some(chain) = world.a.as_mut().and_then(|it| it.chain.as_mut())
                {
                    chain.outbox.clear();
                }
                self.apply(&mut world.a, "A", Do::Delete)?;
            }
        }
        // An end that is delivered to a job that does not follow starts no run.
        if !follows(&world.b) {
            world.books.iter_mut().for_each(|(_, _, follows)| *follows = false);
        }
        Ok(())
    }

    fn deliver(
        &self,
        world: &mut World,
        n: usize,
        copies: bool,
        loses: bool,
    ) -> Result<(), String> {
        let Node::Sends { outbox, replies, .. } = &world.nodes[n] else { return Ok(()) };
        let up = outbox[replies.len()].clone();
        world.faults -= u8::from(copies || loses);
        let reply = self.tell(world, &up)?;
        if copies {
            world.late.push(up);
        }
        if loses {
            return Ok(());
        }
        let Node::Sends { outbox, followers, replies } = &mut world.nodes[n] else {
            return Ok(());
        };
        replies.push(reply);
        if replies.len() == outbox.len() {
            let replies = std::mem::take(replies).into_iter().map(Ok);
            let (done, gone) = delivered(outbox, replies, followers, now());
            world.nodes[n] = Node::Confirms { done, gone };
        }
        Ok(())
    }
}

fn now() -> Time {
    time(1_000)
}

fn outbox(slot: &Option<Record>) -> Vec<FollowUp> {
    let chain = slot.as_ref().and_then(|record| record.chain.as_deref());
    chain.map(|chain| chain.outbox.clone()).unwrap_or_default()
}

fn follows(slot: &Option<Record>) -> bool {
    slot.as_ref().is_some_and(|record| record.is_live() && record.definition == AFTER)
}

fn live(slot: &Option<Record>) -> Option<&Record> {
    slot.as_ref().filter(|record| record.is_live())
}

impl Model for Chained {
    type State = World;
    type Action = Action;

    fn first(&mut self) -> World {
        let (mut a, mut b) = (None, None);
        let first = Some(time(10).into());
        let create = NewSchedule::new("kind", "every 1s", first);
        self.apply(&mut a, "A", Do::Create(create)).unwrap();
        self.apply(&mut a, "A", Do::Follow { job: "B", on: On::End }).unwrap();
        self.apply(&mut b, "B", Do::Create(NewSchedule::new("kind", AFTER, None))).unwrap();
        World {
            a,
            b,
            nodes: [Node::Idle, Node::Idle],
            late: Vec::new(),
            ends: self.ends,
            faults: self.faults,
            changes: self.changes,
            books: Vec::new(),
        }
    }

    fn actions(&mut self, world: &World) -> Vec<Action> {
        let mut actions = Vec::new();
        let (a, b) = (live(&world.a), live(&world.b));
        if world.ends > 0 && a.is_some() {
            actions.extend([Action::End(Ended::Succeeded), Action::End(Ended::Dead)]);
            actions.extend(a.filter(|a| !a.dead.is_empty()).map(|_| Action::Rerun));
        }
        let is_full = !outbox(&world.a).is_empty();
        for (n, node) in world.nodes.iter().enumerate() {
            match node {
                Node::Idle if is_full => actions.push(Action::Read(n)),
                Node::Idle => continue,
                Node::Sends { .. } => {
                    actions.push(Action::Send(n));
                    if world.faults > 0 {
                        actions.extend([Action::SendAndCopy(n), Action::LoseReply(n)]);
                    }
                }
                Node::Confirms { .. } => actions.push(Action::Confirm(n)),
            }
            if world.faults > 0 {
                actions.push(Action::Crash(n));
            }
        }
        actions.extend((0..world.late.len()).map(Action::Late));
        if b.is_some_and(|b| !b.triggers.is_empty() && b.paused.is_none()) {
            actions.push(Action::RunB);
        }
        if b.is_some_and(|b| b.paused.is_some()) {
            actions.push(Action::Resume);
        }
        if world.changes > 0 {
            if b.is_some() {
                let all = [Change::PauseB, Change::EditB, Change::DeleteB];
                actions.extend(all.map(Action::Change));
            } else {
                actions.push(Action::Change(Change::CreateB));
            }
            actions.extend(a.map(|_| Action::Change(Change::DeleteA)));
        }
        if self.is_at_rest(world) {
            actions.push(Action::Close);
        }
        actions
    }

    fn act(&mut self, world: &mut World, action: &Action) -> Result<(), String> {
        match *action {
            Action::End(ended) => {
                world.ends -= 1;
                self.end_a(world, ended);
            }
            Action::Rerun => {
                world.ends -= 1;
                let letter = world.a.as_ref().unwrap().dead[0].occurrence.clone();
                self.apply(&mut world.a, "A", Do::Rerun { occurrence: &letter }).unwrap();
                self.end_a(world, Ended::Succeeded);
            }
            Action::Read(n) => {
                let read = Do::Confirm { done: &[], gone: &[] };
                let Reply::Outbox(chain) = self.apply(&mut world.a, "A", read).unwrap() else {
                    return Ok(());
                };
                let (outbox, followers) = (chain.outbox, chain.followers);
                if self.has(Defect::ConfirmedBeforeDelivery) {
                    let confirm = Do::Confirm { done: &outbox, gone: &[] };
                    self.apply(&mut world.a, "A", confirm).unwrap();
                }
                world.nodes[n] = Node::Sends { outbox, followers, replies: Vec::new() };
            }
            Action::Send(n) => self.deliver(world, n, false, false)?,
            Action::SendAndCopy(n) => self.deliver(world, n, true, false)?,
            Action::LoseReply(n) => self.deliver(world, n, false, true)?,
            Action::Confirm(n) => {
                let node = std::mem::replace(&mut world.nodes[n], Node::Idle);
                let Node::Confirms { mut done, gone } = node else { return Ok(()) };
                if self.has(Defect::AllConfirmed) {
                    done = outbox(&world.a);
                }
                let confirm = Do::Confirm { done: &done, gone: &gone };
                self.apply(&mut world.a, "A", confirm).unwrap();
            }
            Action::Crash(n) => {
                world.faults -= 1;
                if let Node::Sends { outbox, replies, .. } = &world.nodes[n] {
                    world.late.push(outbox[replies.len()].clone());
                }
                world.nodes[n] = Node::Idle;
            }
            Action::Late(i) => {
                let up = world.late.remove(i);
                self.tell(world, &up)?;
            }
            Action::RunB => self.run(&mut world.b, "B", Ended::Succeeded),
            Action::Change(change) => {
                let before = world.clone();
                if self.change(world, change).is_err() {
                    // A job with an outbox is not deleted.
                    *world = World { changes: world.changes, ..before };
                }
            }
            Action::Resume => {
                self.apply(&mut world.b, "B", Do::Resume).unwrap();
            }
            Action::Close => {
                let lost = world.books.iter().find(|(_, got, follows)| *follows && *got == 0);
                if let Some((id, ..)) = lost {
                    return Err(format!("nothing is left to do, and B has not run after {id}"));
                }
            }
        }
        Ok(())
    }

    /// The nodes are alike.
    fn canonical(&mut self, mut world: World) -> World {
        world.nodes.sort_by_cached_key(|node| format!("{node:?}"));
        world.late.sort_by_key(|up| up.number);
        world
    }

    fn is_at_rest(&mut self, world: &World) -> bool {
        let idle = world.nodes.iter().all(|node| matches!(node, Node::Idle));
        let waits = live(&world.b).is_some_and(|b| !b.triggers.is_empty() || b.paused.is_some());
        idle && !waits && outbox(&world.a).is_empty()
    }
}

fn check(ends: u8, faults: u8, changes: u8) {
    let setting = format!("{ends} ends, {faults} faults, {changes} changes");
    holds("after", &setting, &mut Chained { ends, faults, changes, defect: None });
}

#[test]
fn what_follows_an_end_is_delivered_once() {
    check(2, 1, 0);
    check(1, 1, 1);
}

/// Minutes: `cargo xtask model`.
#[test]
fn larger_worlds_of_the_outbox() {
    if is_large() {
        check(3, 2, 0);
        check(2, 1, 2);
    }
}

#[test]
fn every_rule_of_the_outbox_is_missed() {
    let cases = [
        (Defect::ConfirmedBeforeDelivery, 0),
        (Defect::OutboxNotWrittenWithTheEnd, 0),
        (Defect::ReceiptNotRemembered, 0),
        (Defect::OlderReceivedAgain, 0),
        (Defect::AllConfirmed, 0),
        (Defect::ReceiptLostWithTheJob, 2),
        (Defect::DeletedWithItsOutbox, 1),
    ];
    for (defect, changes) in cases {
        let defect_of = Some(defect);
        breaks("after", &defect, &mut Chained { ends: 2, faults: 1, changes, defect: defect_of });
    }
}
