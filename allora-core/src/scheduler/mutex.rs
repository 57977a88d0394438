//! Mutex groups: of all runs whose jobs name the same group, on all nodes, one at a time.
//!
//! A group's lock is a record of the store like a job's, taken at least once under a lease. So every
//! backend has it, and it is as sound as a lease: whoever may have lost it is cancelled before the
//! lease ends, and the fence tells those apart who wrote nevertheless. The record is that of a job in
//! code whose cursor goes on to when it was last taken: always due, and so in no due index.

use super::{
    Node, builder,
    execution::{How, Report, execute},
    node::{Kept, LiveId, Stop, Turn, later},
    signal::Signal,
    within,
};
use crate::{
    backend::{
        Act, Answer, Cursor, Deliver, End, Ended, Ending, Next, Now, Occurrence, Plan, Reschedule,
        Settle, Settled, State, Take, Taken,
    },
    error::{Error, Kind, Result},
    event::Event,
    name::MUTEX,
    run::Run,
    time::{Time, since, whole_millis},
};
use chrono::TimeDelta;
use futures::{
    future::{Either, select},
    lock::{Mutex as Gate, MutexGuard as GateGuard},
};
use std::{
    collections::HashMap,
    pin::pin,
    sync::{Arc, Mutex, PoisonError, Weak},
    time::{Duration, Instant},
};

/// The first wait before a group that is taken is asked for again, if no hint comes sooner.
const FIRST_WAIT: Duration = Duration::from_millis(10);

/// Twice as long each time, up to this.
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// What the lock's record says that it is.
const DEFINITION: &str = "mutex group";

/// The groups that runs of this node are in, or wait for.
#[derive(Default)]
pub(crate) struct Groups {
    groups: Mutex<HashMap<Arc<str>, Weak<Group>>>,
}

struct Group {
    /// The name of the lock's record.
    record: Arc<str>,
    /// One run of this node asks the store; the others wait here. With what is known of the record.
    gate: Gate<Option<Known>>,
    /// Rung when somebody has given the lock back.
    bell: Signal,
}

/// What the store has told of a lock that can be taken.
#[derive(Clone, Debug)]
struct Known {
    fence: i64,
    head: Occurrence,
}

impl Groups {
    fn of(&self, name: &str) -> Arc<Group> {
        let mut groups = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(group) = groups.get(name).and_then(Weak::upgrade) {
            return group;
        }
        groups.retain(|_, group| group.strong_count() > 0);
        let record: Arc<str> = format!("{MUTEX}{name}").into();
        let group = Arc::new(Group { record, gate: Gate::default(), bell: Default::default() });
        groups.insert(name.into(), Arc::downgrade(&group));
        group
    }

    /// A job was hinted at; answers whether that is a group's lock, which is no job to look at.
    pub(crate) fn heard_of(&self, name: &str) -> bool {
        let Some(group) = name.strip_prefix(MUTEX) else { return false };
        let groups = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(group) = groups.get(group).and_then(Weak::upgrade) {
            group.bell.ring();
        }
        true
    }
}

/// A run that was won, with what it needs to begin.
pub(super) struct Waiting {
    pub(super) id: LiveId,
    pub(super) run: Run,
    pub(super) job: super::Next,
    pub(super) group: Arc<str>,
    /// How long the group's lock lasts unless extended: as long as the run's own lease or mark.
    pub(super) lasts: Duration,
    pub(super) timeout: Option<Duration>,
    /// How late it was when it was won.
    pub(super) late: Duration,
    pub(super) won: Instant,
}

/// Waits for the run's turn in its group, runs it, and gives the turn back.
pub(super) async fn in_turn(node: Arc<Node>, waiting: Waiting) {
    let Waiting { id, run, job, group: name, lasts, timeout, late, won } = waiting;
    let mut report = Report::new(node.clone(), id, How::NotBegun);
    let group = node.groups.of(&name);
    let gate = match select(group.gate.lock(), run.cancelled()).await {
        Either::Left((gate, _)) => gate,
        Either::Right(_) => return,
    };
    let _turn = InTurn::new(node.clone());
    let mut lock = Lock { node: &node, group: &group, known: gate, lasts, mine: Mine::No };
    match lock.acquire(&run).await.filter(|_| node.may_begin(id, &run)) {
        None => report.end(How::NotBegun),
        Some(kept) => {
            let now = node.runtime.now();
            node.begun(&run, late + now.saturating_duration_since(won));
            report.dropped_is(How::Dropped);
            let timeout = timeout.map(|limit| (limit, node.runtime.sleep_until(later(now, limit))));
            // The guard is polled first, so that a node that was frozen does not run on.
            let guard = pin!(lock.keep(kept, id, &run, &name));
            let work = pin!(execute(report, job, run.clone(), timeout));
            if let Either::Left(((), work)) = select(guard, work).await {
                work.await;
            }
        }
    }
    lock.give_back().await;
}

/// One node's hold on a group's lock, or its way there.
struct Lock<'a> {
    node: &'a Node,
    group: &'a Group,
    known: GateGuard<'a, Option<Known>>,
    lasts: Duration,
    mine: Mine,
}

/// What of the lock is this node's.
enum Mine {
    No,
    /// It was asked for, and the answer is not known.
    Asked(Take),
    Held {
        fence: i64,
        then: Cursor,
    },
}

impl Lock<'_> {
    /// Waits until the lock is this run's; `None` if the run is cancelled before.
    async fn acquire(&mut self, run: &Run) -> Option<Kept> {
        let node = self.node;
        let mut wait = FIRST_WAIT;
        while !run.is_cancelled() {
            match self.ask().await {
                Ok(Some(kept)) if node.runtime.now() < kept.cancel_at => {
                    if let Mine::Held { fence, .. } = self.mine {
                        run.control().set_mutex_fence(fence);
                    }
                    return Some(kept);
                }
                // The answer came too late.
                Ok(Some(_)) => self.give_back().await,
                Ok(None) => {}
                Err(error) => node.store_failed(error),
            }
            let drawn = wait.mul_f64(0.5 + unit(node) / 2.0);
            wait = (wait * 2).min(LONGEST_WAIT);
            let sleep = node.runtime.sleep_until(node.runtime.now() + drawn);
            let bell = pin!(self.group.bell.heard());
            select(sleep, select(run.cancelled(), bell)).await;
        }
        None
    }

    /// Asks for the lock, as far as needed to know whether it can be had; `None` if not now.
    async fn ask(&mut self) -> Result<Option<Kept>> {
        let mut first = None;
        // At most a look, a registration and a take, and one more that another node was before.
        for _ in 0..4 {
            let act = match (&self.mine, &*self.known) {
                // Asked again, for the answer was lost.
                (Mine::Asked(take), _) => Act::Take(take.clone()),
                (_, Some(Known { fence, head })) => {
                    let deliver = Deliver::AtLeastOnce { lease: self.lasts };
                    let claim = builder::random(&*self.node.runtime);
                    let take = Take::new(claim, *fence, head.clone(), deliver);
                    self.mine = Mine::Asked(take.clone());
                    Act::Take(take)
                }
                (_, None) if first.is_some() => {
                    Act::Register { definition: DEFINITION, version: 0, first }
                }
                (_, None) => Act::Look,
            };
            let (answer, now, sent) = self.send(act).await?;
            // What was due and is refused was won by somebody else: its fence is another one now, so
            // that a copy of the request that still is on its way wins nothing.
            self.mine = Mine::No;
            *self.known = None;
            match answer {
                Answer::Taken(taken) => return Ok(Some(self.won(&taken, now, sent))),
                Answer::Absent | Answer::Gone => first = Some(Next::from(always_due(now))),
                Answer::State(state) => match Known::of(*state, now)? {
                    None => return Ok(None),
                    known => *self.known = known,
                },
            }
        }
        Ok(None)
    }

    fn won(&mut self, taken: &Taken, now: Time, sent: Instant) -> Kept {
        let at = (taken.run.at + TimeDelta::milliseconds(1)).max(always_due(now));
        let then = match taken.run.trigger {
            Some(_) => Cursor::Keep,
            None => Cursor::To(Some(Next::from(at))),
        };
        self.mine = Mine::Held { fence: taken.fence, then };
        let left = taken.until.map_or(Duration::ZERO, |until| since(until, now));
        Kept::new(sent, left, self.lasts)
    }

    /// Extends the lock while the run lives, and ends the run in time if that is not confirmed.
    /// Ends when the run has to end.
    async fn keep(&mut self, mut kept: Kept, id: LiveId, run: &Run, group: &Arc<str>) {
        let node = self.node;
        let (name, fence) = (run.shared_name(), run.fence());
        let mut told = false;
        let mut wait = FIRST_WAIT;
        let mut ask_at = kept.extend_at;
        loop {
            let now = node.runtime.now();
            if now >= kept.drop_at {
                return node.out_of_turn(id, run);
            }
            if now >= kept.cancel_at && !std::mem::replace(&mut told, true) {
                let group = group.clone();
                node.emit([Event::MutexUnconfirmed { name: name.clone(), group, fence }]);
                run.control().cancel();
            }
            let limit = if told { kept.drop_at } else { kept.cancel_at };
            if now < ask_at {
                node.runtime.sleep_until(ask_at.min(limit)).await;
                continue;
            }
            let extended = {
                let extend = pin!(self.settle(End::Extend { lasts: self.lasts }));
                match select(extend, node.runtime.sleep_until(limit)).await {
                    Either::Left((extended, _)) => extended,
                    // An extension that is dropped is asked for again.
                    Either::Right(_) => continue,
                }
            };
            match extended {
                Ok(Settled::Until(_)) => {
                    kept = Kept::new(now, self.lasts, self.lasts);
                    (ask_at, wait) = (kept.extend_at, FIRST_WAIT);
                }
                Ok(_) => {
                    self.mine = Mine::No;
                    node.emit([Event::MutexLost { name, group: group.clone(), fence }]);
                    return node.out_of_turn(id, run);
                }
                Err(error) => {
                    node.store_failed(error);
                    ask_at = node.runtime.now() + wait;
                    wait = (wait * 2).min(LONGEST_WAIT);
                }
            }
        }
    }

    /// Lets others have the lock: at once if the store answers, and otherwise as soon as it does.
    async fn give_back(&mut self) {
        let node = self.node;
        // By then the lease has ended by itself.
        let until = later(node.runtime.now(), 2 * self.lasts);
        let mut wait = FIRST_WAIT;
        loop {
            let told = match &self.mine {
                Mine::No => return,
                // Nobody knows whether it is held; asked again, it is.
                Mine::Asked(take) => {
                    let asked = self.send(Act::Take(take.clone())).await;
                    asked.map(|(answer, now, sent)| {
                        self.mine = Mine::No;
                        *self.known = None;
                        if let Answer::Taken(taken) = answer {
                            self.won(&taken, now, sent);
                        }
                    })
                }
                Mine::Held { fence, then } => {
                    let (fence, then) = (*fence, *then);
                    let finish = End::Finish { then, outcome: Ended::Ran };
                    let settled = self.settle(finish).await;
                    settled.map(|settled| {
                        self.mine = Mine::No;
                        *self.known = match then {
                            Cursor::To(Some(Next { at, .. })) if settled == Settled::Done => {
                                Some(Known { fence, head: at.into() })
                            }
                            _ => None,
                        };
                    })
                }
            };
            let Err(error) = told else { continue };
            node.store_failed(error);
            let next = node.runtime.now() + wait;
            if next >= until {
                return;
            }
            node.runtime.sleep_until(next).await;
            wait = (wait * 2).min(LONGEST_WAIT);
        }
    }

    async fn send(&self, act: Act<'_>) -> Result<(Answer, Time, Instant)> {
        let node = self.node;
        let sent = node.runtime.now();
        let now = Now::Store { node: node.runtime.wall() };
        let plans = [Plan::new(&self.group.record, act)];
        let asked = node.backend.reschedule(Reschedule::new(&node.id, now, &plans));
        let answer = within(node, "reschedule", asked).await?;
        node.store_is_up();
        let first = answer.answers.into_iter().next();
        first.map(|first| (first, answer.now, sent)).ok_or_else(|| none("reschedule"))
    }

    async fn settle(&self, end: End<'_>) -> Result<Settled> {
        let node = self.node;
        let (Mine::Held { fence, .. }, Some(leases)) = (&self.mine, node.backend.leases()) else {
            return Ok(Settled::Lost);
        };
        let now = Now::Store { node: node.runtime.wall() };
        let endings = [Ending::new(&self.group.record, *fence, end)];
        let asked = leases.settle(Settle::new(&node.id, now, &endings));
        let answers = within(node, "settle", asked).await?;
        node.store_is_up();
        answers.into_iter().next().ok_or_else(|| none("settle"))
    }
}

impl Known {
    fn of(state: State, now: Time) -> Result<Option<Self>> {
        if let Some(reason) = state.parked {
            let parked = format!("the record of {:?} cannot be read: {reason}", state.name);
            return Err(Error::new(Kind::Other, parked).op("mutex"));
        }
        let due = state.due_at.is_some_and(|due_at| due_at <= now);
        let head = state.head.filter(|_| due);
        Ok(head.map(|head| Self { fence: state.fence, head }))
    }
}

impl Node {
    /// The run has its turn; answers whether it may begin. What stops begins nothing.
    fn may_begin(&self, id: LiveId, run: &Run) -> bool {
        let mut inside = self.inside();
        if inside.stop != Stop::No || run.is_cancelled() {
            return false;
        }
        let live = inside.live.get_mut(id);
        live.map(|live| (live.turn, live.started) = (Turn::Begun, self.runtime.now())).is_some()
    }

    /// The run's turn is over, and it is not.
    fn out_of_turn(&self, id: LiveId, run: &Run) {
        if let Some(live) = self.inside().live.get_mut(id) {
            live.turn = Turn::Lost;
        }
        run.control().drop_now();
    }
}

/// Counts among what a scheduler that stops waits for.
struct InTurn(Arc<Node>);

impl InTurn {
    fn new(node: Arc<Node>) -> Self {
        node.inside().in_turn += 1;
        Self(node)
    }
}

impl Drop for InTurn {
    fn drop(&mut self) {
        self.0.inside().in_turn -= 1;
        self.0.keeper.ring();
    }
}

/// A little ago: due by every clock, also where each node goes by its own.
fn always_due(now: Time) -> Time {
    whole_millis(now - TimeDelta::minutes(1))
}

/// From 0 up to 1.
fn unit(node: &Node) -> f64 {
    (node.runtime.random() >> 11) as f64 / (1u64 << 53) as f64
}

fn none(op: &'static str) -> Error {
    Error::new(Kind::Other, "the backend gave no answer to one plan; report it").op(op)
}
