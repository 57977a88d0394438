//! Two nodes, a client, and the requests between them and the store.

use super::{
    books::{Books, Checked},
    breaks,
    defects::Defect,
    holds,
    job::{ActiveRun, Change, Job, LEASE, Policy, after, place_of},
    store::{CarriedOut, Request, Slot, Store},
};
use crate::backend::{Action, Reply};
use allora_conformance::explore::{Model, is_large};
use std::rc::Rc;

/// The bounds of a search.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    policy: Policy,
    /// Ticks that pass at any time. Later ones pass when nothing else can happen.
    ticks: u8,
    /// Lost replies, late copies of requests, crashes, and releases.
    faults: u8,
    /// Changes by a client, of these kinds.
    changes: u8,
    kinds: &'static [Change],
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct World {
    ticks: u8,
    slot: Slot,
    nodes: [Node; 2],
    /// Requests that may arrive, and for whose replies nobody waits.
    late: Vec<Request>,
    faults: u8,
    changes: u8,
    books: Books,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Node {
    run: Option<ActiveRun>,
    /// The request for whose reply it waits.
    asks: Option<Request>,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Tick,
    /// A node reads the record, and decides on a request.
    Decide(usize),
    /// A node's request arrives.
    Arrive(usize, Fate),
    /// A node dies. Its request may arrive yet.
    Crash(usize),
    Extend(usize),
    Succeed(usize),
    Fail(usize),
    /// A request arrives for whose reply nobody waits.
    Late(usize),
    Change(Change),
}

/// The fate of a request that arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Answered,
    /// It is answered, and a copy of it arrives later.
    Copied,
    /// The reply is lost, and the node sends the request again.
    ReplyLost,
    /// The node is stopping when it gets the reply, and releases what it has claimed.
    Stopping,
}

struct Fleet {
    bounds: Bounds,
    store: Store,
}

impl Fleet {
    fn new(bounds: Bounds, defect: Option<Defect>) -> Self {
        Self { bounds, store: Store::new(Job::new(bounds.policy), defect) }
    }

    /// The request of a node that reads the record. Its claim has the first id that nothing has.
    fn decide(&mut self, world: &World) -> Option<Request> {
        let record = self.store.record(world.slot)?;
        let sent = world.nodes.iter().filter_map(|node| node.asks).chain(world.late.clone());
        let claims = sent.filter_map(|request| match self.store.sent(request) {
            Action::Claim(claim) => Some(claim.claim_id),
            _ => None,
        });
        let held = record.leases.iter().chain(&record.lost).map(|lease| lease.claim_id);
        let known: Vec<u128> = claims.chain(held).collect();
        let claim_id = (1..).find(|id| !known.contains(id)).unwrap();
        self.store.decide(world.slot, world.ticks, claim_id)
    }

    fn carry_out(&mut self, world: &mut World, request: Request) -> Result<Rc<CarriedOut>, String> {
        let step = self.store.carry_out(world.slot, world.ticks, request);
        world.books.note(&step)?;
        world.slot = step.slot;
        Ok(step)
    }

    fn arrive(&mut self, world: &mut World, n: usize, fate: Fate) -> Checked {
        let Node { run, asks } = world.nodes[n].clone();
        let request = asks.unwrap();
        let step = self.carry_out(world, request)?;
        world.faults -= u8::from(fate != Fate::Answered);
        if fate == Fate::ReplyLost {
            return Ok(());
        }
        world.late.extend((fate == Fate::Copied).then_some(request));
        let mut heard = Node::default();
        match (&step.sent, step.reply.as_ref().ok(), run) {
            (Action::Claim(_), Some(Reply::Claimed(claimed)), _) => {
                let (fence, until, attempt) = (claimed.fence, claimed.until, claimed.attempt);
                if fate == Fate::Stopping {
                    heard.asks = Some(self.store.request(Action::Release { fence }));
                } else {
                    world.books.begins(place_of(&claimed.occurrence).unwrap())?;
                    let occurrence = claimed.occurrence.clone();
                    heard.run = Some(ActiveRun { fence, until, attempt, occurrence });
                }
            }
            (_, Some(Reply::Extended(until)), Some(run)) => {
                heard.run = Some(ActiveRun { until: *until, ..run });
            }
            _ => {}
        }
        world.nodes[n] = heard;
        Ok(())
    }

    /// A client reads the record, and changes it at once. An edit arrives at any time.
    fn change(&mut self, world: &mut World, change: Change) -> Checked {
        let read = self.store.read(world.slot, world.ticks);
        let sent = self.store.job.change(change, read.as_ref(), after(world.ticks));
        let Some(sent) = sent else { return Ok(()) };
        let (is_edit, request) = (matches!(sent, Action::Modify(_)), self.store.request(sent));
        world.changes -= 1;
        if is_edit {
            world.late.push(request);
            return Ok(());
        }
        self.carry_out(world, request).map(drop)
    }

    fn is_idle(&mut self, world: &World) -> bool {
        world.nodes.iter().all(|node| *node == Node::default()) && self.decide(world).is_none()
    }

    fn has_work(&self, world: &World) -> bool {
        let live = self.store.record(world.slot).filter(|record| record.is_live());
        live.is_some_and(|record| record.head().is_some() || !record.leases.is_empty())
    }
}

impl Model for Fleet {
    type State = World;
    type Action = Step;

    fn first(&mut self) -> World {
        let Bounds { policy, faults, changes, .. } = self.bounds;
        let (slot, books) = (self.store.slot(None), Books::new(policy, |_| false));
        let (nodes, late) = (Default::default(), Vec::new());
        let mut world = World { ticks: 0, slot, nodes, late, faults, changes: changes + 1, books };
        self.change(&mut world, Change::Create).unwrap();
        world
    }

    fn actions(&mut self, world: &World) -> Vec<Step> {
        let mut steps = Vec::new();
        let waits = self.has_work(world) && self.is_idle(world);
        steps.extend((world.ticks < self.bounds.ticks || waits).then_some(Step::Tick));
        for (n, node) in world.nodes.iter().enumerate() {
            match (node.asks, &node.run) {
                (None, None) => {
                    steps.extend(self.decide(world).map(|_| Step::Decide(n)));
                    continue;
                }
                (Some(request), _) => {
                    steps.push(Step::Arrive(n, Fate::Answered));
                    if world.faults > 0 {
                        let is_claim = matches!(self.store.sent(request), Action::Claim(_));
                        steps.extend([Fate::Copied, Fate::ReplyLost].map(|it| Step::Arrive(n, it)));
                        steps.extend(is_claim.then_some(Step::Arrive(n, Fate::Stopping)));
                    }
                }
                (None, Some(run)) => {
                    steps.extend([Step::Succeed(n), Step::Fail(n)]);
                    let ends_soon = run.until <= after(world.ticks + 1);
                    steps.extend(ends_soon.then_some(Step::Extend(n)));
                }
            }
            steps.extend((world.faults > 0).then_some(Step::Crash(n)));
        }
        steps.extend((0..world.late.len()).map(Step::Late));
        if world.changes > 0 {
            steps.extend(self.bounds.kinds.iter().copied().map(Step::Change));
        }
        steps
    }

    fn act(&mut self, world: &mut World, step: &Step) -> Checked {
        match *step {
            Step::Tick => {
                world.ticks += 1;
                world.books.pass(after(world.ticks));
            }
            Step::Decide(n) => world.nodes[n].asks = self.decide(world),
            Step::Arrive(n, fate) => self.arrive(world, n, fate)?,
            Step::Crash(n) => {
                world.faults -= 1;
                world.late.extend(std::mem::take(&mut world.nodes[n]).asks);
            }
            Step::Extend(n) | Step::Succeed(n) | Step::Fail(n) => {
                let run = world.nodes[n].run.as_ref().unwrap();
                let action = match step {
                    Step::Extend(_) => Action::Extend { fence: run.fence, duration: LEASE },
                    step => {
                        let succeeded = matches!(step, Step::Succeed(_));
                        self.store.job.end(run, succeeded, after(world.ticks))
                    }
                };
                world.nodes[n].asks = Some(self.store.request(action));
            }
            Step::Late(i) => {
                let request = world.late.remove(i);
                self.carry_out(world, request)?;
            }
            Step::Change(change) => self.change(world, change)?,
        }
        if self.is_at_rest(world) { world.books.close() } else { Ok(()) }
    }

    /// The nodes are alike.
    fn canonical(&mut self, mut world: World) -> World {
        world.nodes.sort();
        world.late.sort_unstable();
        world
    }

    fn is_at_rest(&mut self, world: &World) -> bool {
        !self.has_work(world) && self.is_idle(world)
    }
}

const ALL: &[Change] = &[
    Change::Pause,
    Change::Trigger,
    Change::Edit,
    Change::EditAndSkip,
    Change::Delete,
    Change::Create,
];
const LEASED: Bounds =
    Bounds { policy: Policy::AtLeastOnce, ticks: 3, faults: 1, changes: 0, kinds: ALL };

fn all_hold(ticks: u8, faults: u8, changes: u8) {
    for policy in [Policy::AtLeastOnce, Policy::AtMostOnce, Policy::Overlapping] {
        let bounds = Bounds { policy, ticks, faults, changes, kinds: ALL };
        let what = format!("{policy:?}, {ticks} ticks, {faults} faults, {changes} changes");
        holds("record", &what, &mut Fleet::new(bounds, None));
    }
}

#[test]
fn two_nodes_and_a_fault_share_three_instants() {
    all_hold(3, 1, 0);
}

#[test]
fn two_nodes_share_three_instants_while_a_client_changes_the_job() {
    all_hold(3, 0, 1);
}

/// Minutes: `cargo xtask model`.
#[test]
fn larger_worlds_of_the_record() {
    if is_large() {
        all_hold(3, 1, 1);
        all_hold(4, 2, 0);
        all_hold(4, 0, 2);
    }
}

#[test]
fn every_rule_of_the_record_is_missed() {
    let once = Bounds { policy: Policy::AtMostOnce, ..LEASED };
    let changed = |kinds| Bounds { changes: 2, kinds, faults: 0, ..LEASED };
    let pauses = changed(&[Change::Pause]);
    let recreates = changed(&[Change::Delete, Change::Create]);
    let edits = changed(&[Change::Edit, Change::EditAndSkip]);
    let cases = [
        (Defect::FenceNotComparedAtTheEnd, LEASED, "the end of an outdated run was accepted"),
        (Defect::FenceNotComparedAtAnExtension, LEASED, "the lease of an outdated run"),
        (Defect::FenceNotComparedAtAClaim, LEASED, "that was made before the last one"),
        (Defect::ClaimRepeatedWithoutItsId, LEASED, "the repetition of a granted claim"),
        (Defect::EndNotRemembered, LEASED, "was refused when it was repeated"),
        (Defect::CursorFromNow, LEASED, "an occurrence has no end"),
        (Defect::CursorNotMovedByTheEnd, LEASED, "an occurrence has no end"),
        (Defect::CursorNotMovedByTheClaim, once, "an end was refused while the lease lasts"),
        (Defect::LeaseNotRespected, LEASED, "beside a lease that lasts"),
        (Defect::ExpiredNotOffered, LEASED, "no state without work can be reached"),
        (Defect::LossNotRecorded, once, "an occurrence has no end"),
        (Defect::PauseNotRespected, pauses, "a paused schedule was claimed"),
        (Defect::TombstoneForgotten, recreates, "an end was refused while the lease lasts"),
        (Defect::EditNotCompared, edits, "the cursor moved back"),
    ];
    for (defect, bounds, violated) in cases {
        let violation = breaks("record", &defect, &mut Fleet::new(bounds, Some(defect)));
        assert!(violation.contains(violated), "{defect:?}: {violation}");
    }
}
