//! Mutex groups: the runs of all jobs of a group, on all nodes, are run one at a time.
//!
//! A group's lock is a record in the store like that of a job, claimed at least once with a lease.
//! So every backend supports it, and it gives the guarantee of a lease: a run that may have lost
//! the lock is cancelled before the lease ends, and the fence identifies late writes. The record is
//! that of a job in code whose cursor moves to the time of the last claim: it is always due, and in
//! no due index.

use super::{
    active_run::{ExitReason, LeaseTimers, RunId, Turn},
    execution::{Report, execute},
    monotonic::later,
    mutex_groups::{Group, Known},
    node::{Node, random},
    store_health::Part,
    store_request::{OP, reschedule, within},
};
use crate::{
    backend::{
        Action, Batch, Claim, Claimed, Completion, Cursor, JobState, NextRun, Operation, Reply,
        TimeSource,
    },
    error::{Error, ErrorKind, Result},
    event::Event,
    run::Run,
    time::{Time, since, whole_millis},
};
use chrono::TimeDelta;
use futures::{
    future::{Either, select},
    lock::MutexGuard as GateGuard,
};
use std::{
    pin::pin,
    sync::Arc,
    time::{Duration, Instant},
};

/// The first wait before a group that is locked is tried again, if no notification comes earlier.
const MIN_BACKOFF: Duration = Duration::from_millis(10);

/// The longest wait. Waits are doubled up to it.
const MAX_BACKOFF: Duration = Duration::from_secs(1);

/// The definition in the lock's record.
const DEFINITION: &str = "mutex group";

/// A claimed run that waits for its group's lock, with the data for its start.
pub(super) struct Waiting {
    pub(super) id: RunId,
    pub(super) run: Run,
    pub(super) job: super::middleware::Next,
    pub(super) group: Arc<str>,
    /// The length of the lock's lease: that of the run's own lease.
    pub(super) duration: Duration,
    /// The lateness of the run when it was claimed.
    pub(super) late: Duration,
    pub(super) won: Instant,
}

/// Waits for the group's lock, runs the job, and releases the lock.
pub(super) async fn in_turn(node: Arc<Node>, waiting: Waiting) {
    let Waiting { id, run, job, group: name, duration, late, won } = waiting;
    let mut report = Report::new(node.clone(), id);
    let group = node.groups.of(&name);
    let gate = match select(group.gate.lock(), run.cancelled()).await {
        Either::Left((gate, _)) => gate,
        Either::Right(_) => return,
    };
    let _turn = InTurn::new(node.clone());
    let mut lock = Lock { node: &node, group: &group, known: gate, duration, mine: Mine::No };
    let locked = lock.acquire(&run).await.and_then(|kept| {
        let late = late + node.runtime.now().saturating_duration_since(won);
        Some((kept, node.begin(id, &run, late)?))
    });
    match locked {
        None => report.end(ExitReason::NotBegun),
        Some((kept, timeout)) => {
            report.dropped_is(ExitReason::Dropped);
            // The guard is polled first, so that a node that was frozen does not continue the run.
            let guard = pin!(lock.keep(kept, id, &run, &name));
            let work = pin!(execute(report, job, run.clone(), timeout));
            if let Either::Left(((), work)) = select(guard, work).await {
                work.await;
            }
        }
    }
    lock.release().await;
}

/// The lock of a group, as one run of this node claims and holds it.
struct Lock<'a> {
    node: &'a Node,
    group: &'a Group,
    known: GateGuard<'a, Option<Known>>,
    duration: Duration,
    mine: Mine,
}

/// This node's claim of the lock.
enum Mine {
    No,
    /// A claim was sent, and its reply is not known.
    Asked(Claim),
    Locked {
        fence: i64,
        then: Cursor,
    },
}

impl Lock<'_> {
    /// Claims the lock, with waits; `None` if the run is cancelled first.
    async fn acquire(&mut self, run: &Run) -> Option<LeaseTimers> {
        let node = self.node;
        let mut wait = MIN_BACKOFF;
        while !run.is_cancelled() {
            match self.ask().await {
                Ok(Some(kept)) if node.runtime.now() < kept.cancel_at => {
                    if let Mine::Locked { fence, .. } = self.mine {
                        run.control().set_mutex_fence(fence);
                    }
                    return Some(kept);
                }
                // The reply came too late.
                Ok(Some(_)) => self.release().await,
                Ok(None) => {}
                Err(error) => node.store_failed(Part::Locks, error),
            }
            let drawn = wait.mul_f64(0.5 + unit(node) / 2.0);
            wait = (wait * 2).min(MAX_BACKOFF);
            let sleep = node.runtime.sleep_until(node.runtime.now() + drawn);
            let notified = pin!(self.group.notify.notified());
            select(sleep, select(run.cancelled(), notified)).await;
        }
        None
    }

    /// Tries to claim the lock once; `None` if it is not free.
    async fn ask(&mut self) -> Result<Option<LeaseTimers>> {
        let mut first = None;
        // At most a read, a registration and a claim, and one more if another node was first.
        for _ in 0..4 {
            let action = match (&self.mine, &*self.known) {
                // The claim is repeated, because its reply was lost.
                (Mine::Asked(claim), _) => Action::Claim(claim.clone()),
                (_, Some(Known { fence, head })) => {
                    let claim_id = random(&*self.node.runtime);
                    let claim = Claim::at_least_once(claim_id, *fence, head.clone(), self.duration);
                    self.mine = Mine::Asked(claim.clone());
                    Action::Claim(claim)
                }
                (_, None) if first.is_some() => {
                    Action::Register { definition: DEFINITION, version: 0, first }
                }
                (_, None) => Action::Read,
            };
            let (reply, now, sent) = self.send(action).await?;
            // A rejected claim of a due occurrence means that another node has claimed it. The
            // fence has changed, so that a late copy of the request cannot succeed.
            self.mine = Mine::No;
            *self.known = None;
            match reply {
                Reply::Claimed(claimed) => return Ok(Some(self.claimed(&claimed, now, sent))),
                Reply::Absent | Reply::Deleted => first = Some(NextRun::from(always_due(now))),
                Reply::State(state) => match Known::of(*state, now)? {
                    None => return Ok(None),
                    known => *self.known = known,
                },
                _ => return Err(unexpected()),
            }
        }
        Ok(None)
    }

    fn claimed(&mut self, claimed: &Claimed, now: Time, sent: Instant) -> LeaseTimers {
        let at =
            (claimed.occurrence.scheduled_at + TimeDelta::milliseconds(1)).max(always_due(now));
        let then = match claimed.occurrence.trigger {
            Some(_) => Cursor::Keep,
            None => Cursor::To(Some(NextRun::from(at))),
        };
        self.mine = Mine::Locked { fence: claimed.fence, then };
        LeaseTimers::new(sent, since(claimed.until, now), self.duration)
    }

    /// Extends the lock while the run is alive, and ends the run in time if no extension is
    /// confirmed. Returns when the run has to end.
    async fn keep(&mut self, mut kept: LeaseTimers, id: RunId, run: &Run, group: &Arc<str>) {
        let node = self.node;
        let (name, fence) = (run.shared_name(), run.fence());
        let mut is_reported = false;
        let mut wait = MIN_BACKOFF;
        let mut ask_at = kept.extend_at;
        self.group.take_jump();
        loop {
            let now = node.runtime.now();
            if let Some(jump) = self.group.take_jump() {
                kept.shorten(jump, now, node.config.store_timeout);
                ask_at = now;
            }
            if now >= kept.drop_at {
                return node.out_of_turn(id, run);
            }
            if now >= kept.cancel_at && !std::mem::replace(&mut is_reported, true) {
                let key = Some(group.clone());
                let (name, continues) = (name.clone(), false);
                node.emit([Event::LeaseRenewalFailed { name, key, fence, continues }]);
                run.control().cancel();
            }
            let limit = if is_reported { kept.drop_at } else { kept.cancel_at };
            if now < ask_at {
                let sleep = node.runtime.sleep_until(ask_at.min(limit));
                select(sleep, pin!(self.group.notify.notified())).await;
                continue;
            }
            let extended = {
                let extend = pin!(self.extend());
                match select(extend, node.runtime.sleep_until(limit)).await {
                    Either::Left((extended, _)) => extended,
                    // A dropped extension is sent again.
                    Either::Right(_) => continue,
                }
            };
            match extended {
                Ok(Reply::Extended(_)) => {
                    kept = LeaseTimers::new(now, self.duration, self.duration);
                    (ask_at, wait) = (kept.extend_at, MIN_BACKOFF);
                }
                Ok(_) => {
                    self.mine = Mine::No;
                    node.emit([Event::LeaseLost { name, key: Some(group.clone()), fence }]);
                    return node.out_of_turn(id, run);
                }
                Err(error) => {
                    node.store_failed(Part::Locks, error);
                    ask_at = node.runtime.now() + wait;
                    wait = (wait * 2).min(MAX_BACKOFF);
                }
            }
        }
    }

    /// Releases the lock, as soon as the store answers.
    async fn release(&mut self) {
        let node = self.node;
        // The lease has ended by then.
        let until = later(node.runtime.now(), 2 * self.duration);
        let mut wait = MIN_BACKOFF;
        loop {
            let sent = match &self.mine {
                Mine::No => return,
                // The claim may have succeeded. Its repetition tells.
                Mine::Asked(claim) => {
                    let asked = self.send(Action::Claim(claim.clone())).await;
                    asked.map(|(reply, now, sent)| {
                        self.mine = Mine::No;
                        *self.known = None;
                        if let Reply::Claimed(claimed) = reply {
                            self.claimed(&claimed, now, sent);
                        }
                    })
                }
                Mine::Locked { fence, then } => {
                    let (fence, then) = (*fence, *then);
                    let completion = Completion::Succeeded;
                    let completed = self.send(Action::Complete { fence, then, completion }).await;
                    completed.map(|(reply, ..)| {
                        self.mine = Mine::No;
                        *self.known = match then {
                            Cursor::To(Some(NextRun { scheduled_at: at, .. }))
                                if reply.is_accepted() =>
                            {
                                Some(Known { fence, head: at.into() })
                            }
                            _ => None,
                        };
                    })
                }
            };
            let Err(error) = sent else { continue };
            node.store_failed(Part::Locks, error);
            let next = node.runtime.now() + wait;
            if next >= until {
                return;
            }
            node.runtime.sleep_until(next).await;
            wait = (wait * 2).min(MAX_BACKOFF);
        }
    }

    async fn extend(&self) -> Result<Reply> {
        let Mine::Locked { fence, .. } = self.mine else { return Ok(Reply::LeaseLost) };
        let (reply, ..) = self.send(Action::Extend { fence, duration: self.duration }).await?;
        Ok(reply)
    }

    /// Sends one operation on the lock's record. Returns the reply, the store's time, and the time
    /// at which the request was sent.
    async fn send(&self, action: Action<'_>) -> Result<(Reply, Time, Instant)> {
        let node = self.node;
        let sent = node.runtime.now();
        let time = TimeSource::Store { fallback: node.runtime.wall() };
        let operations = [Operation::new(&self.group.record, action)];
        let batch = Batch::new(&node.id, time, &operations);
        let applied = within(node, OP, reschedule(&*node.backend, batch)).await?;
        let now = applied.now;
        node.on_contact(sent, now);
        node.store_answered(Part::Locks);
        Ok((applied.single()?, now, sent))
    }
}

impl Known {
    fn of(state: JobState, now: Time) -> Result<Option<Self>> {
        if let Some(reason) = state.unreadable {
            let unreadable = format!("the record of {:?} cannot be read: {reason}", state.name);
            return Err(Error::new(ErrorKind::Other, unreadable).op("mutex"));
        }
        let due = state.due_at.is_some_and(|due_at| due_at <= now);
        let head = state.head.filter(|_| due);
        Ok(head.map(|head| Self { fence: state.fence, head }))
    }
}

impl Node {
    /// Ends a run that has lost the lock.
    fn out_of_turn(&self, id: RunId, run: &Run) {
        if let Some(live) = self.shared().active.get_mut(id) {
            live.turn = Turn::Lost;
        }
        run.control().drop_now();
    }
}

/// Counts a run among those that a stopping scheduler waits for.
struct InTurn(Arc<Node>);

impl InTurn {
    fn new(node: Arc<Node>) -> Self {
        node.shared().in_turn += 1;
        Self(node)
    }
}

impl Drop for InTurn {
    fn drop(&mut self) {
        self.0.shared().in_turn -= 1;
        self.0.supervisor.notify();
    }
}

/// A time slightly in the past: due by every clock, even where each node uses its own.
fn always_due(now: Time) -> Time {
    whole_millis(now - TimeDelta::minutes(1))
}

/// A random number from 0 up to 1.
fn unit(node: &Node) -> f64 {
    (node.runtime.random() >> 11) as f64 / (1u64 << 53) as f64
}

fn unexpected() -> Error {
    let text =
        "the backend returned another reply than a claim or a state; report it to its author";
    Error::new(ErrorKind::Other, text).op("mutex")
}
