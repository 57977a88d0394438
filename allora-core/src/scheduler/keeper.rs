//! The half of a scheduler that keeps its runs: extends, settles, cancels.

use super::{
    node::{Inside, Kept, Live, LiveId, Node, Stop, Verdict, later},
    taker::{FIRST_WAIT, LONGEST_WAIT},
    within,
};
use crate::{
    backend::{End, Ending, Now, Settle, Settled},
    error::{Error, Kind, Result},
    event::Event,
    record::At,
    run::Run,
};
use futures::future::{Either, select};
use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

/// How many endings one request carries at most.
const BATCH: usize = 1_000;

/// The part of the grace that is left when the runs are asked to end: a tenth, at most this.
const LAST_WORD: Duration = Duration::from_secs(5);

pub(crate) struct Keeper {
    node: Arc<Node>,
    /// No more runs will be started.
    pub(crate) taken: Arc<AtomicBool>,
    /// Ended, and the store has not been told.
    unsettled: Vec<LiveId>,
    wait: Duration,
    /// Something was to be extended and is not.
    overdue: bool,
    stopping: Option<Stopping>,
    cancelled: usize,
}

/// When a stopping scheduler does what.
#[derive(Clone, Copy)]
struct Stopping {
    cancel_at: Instant,
    drop_at: Instant,
    give_up_at: Instant,
}

/// How a scheduler ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stopped {
    /// Runs that were cancelled because the grace was over.
    pub cancelled: usize,
    /// Runs whose end could not be told to the store: at most once they will be recorded as lost,
    /// at least once they will be run again.
    pub unsettled: usize,
}

impl Keeper {
    pub(crate) fn new(node: Arc<Node>) -> Self {
        Self {
            node,
            taken: Arc::default(),
            unsettled: Vec::new(),
            wait: FIRST_WAIT,
            overdue: false,
            stopping: None,
            cancelled: 0,
        }
    }

    /// Keeps runs until the scheduler is stopped and all are settled.
    pub(crate) async fn run(mut self) -> Stopped {
        loop {
            let now = self.node.runtime.now();
            self.look_at_stop(now);
            self.collect();
            let mut extend = self.scan(now);
            self.settle_here(&mut extend);
            if let Some(stopped) = self.is_over(now) {
                return stopped;
            }
            if self.unsettled.is_empty() && extend.is_empty() {
                let give_up = self.stopping.map(|stopping| stopping.give_up_at);
                self.rest(give_up).await;
                continue;
            }
            let node = self.node.clone();
            // What lives first: its lease may end, what has ended can wait.
            let ended = self.unsettled.len().min(BATCH.saturating_sub(extend.len()));
            let extended = extend.len().min(BATCH);
            let told = Told::gather(&node, &extend[..extended], &self.unsettled[..ended]);
            match self.guarding(settle(&node, &told)).await {
                Ok(()) => {
                    self.wait = FIRST_WAIT;
                    self.unsettled.drain(..ended);
                    self.overdue |= extend.len() > extended;
                }
                Err(error) => {
                    node.store_failed(error);
                    let wait = self.wait;
                    self.wait = (wait * 2).min(LONGEST_WAIT);
                    // A store that is down is not asked more often because runs end.
                    self.guarding(node.runtime.sleep_until(node.runtime.now() + wait)).await;
                    self.overdue |= !extend.is_empty();
                }
            }
            if std::mem::take(&mut self.overdue) {
                node.inside().scan_soon(now);
            }
        }
    }

    /// Awaits what may be slow, and meanwhile ends the runs whose time is over.
    async fn guarding<T>(&mut self, slow: impl Future<Output = T>) -> T {
        let mut slow = pin!(slow);
        loop {
            match select(slow, pin!(self.rest(None))).await {
                Either::Left((done, _)) => return done,
                Either::Right(((), rest)) => slow = rest,
            }
            let now = self.node.runtime.now();
            self.look_at_stop(now);
            self.overdue |= !self.scan(now).is_empty();
        }
    }

    fn look_at_stop(&mut self, now: Instant) {
        let stop = self.node.inside().stop;
        let grace = match stop {
            Stop::No => return,
            Stop::Graceful if self.stopping.is_some() => return,
            Stop::Graceful => self.node.config.grace,
            Stop::Now => Duration::ZERO,
        };
        let drop_at = later(now, grace);
        let sooner = self.stopping.is_none_or(|stopping| drop_at < stopping.drop_at);
        if sooner {
            let last_word = (grace / 10).min(LAST_WORD);
            self.stopping = Some(Stopping {
                cancel_at: later(now, grace - last_word),
                drop_at,
                give_up_at: later(drop_at, 2 * self.node.config.deadline),
            });
            self.node.inside().scan_at = Some(now);
        }
    }

    fn collect(&mut self) {
        let mut inside = self.node.inside();
        let ended = std::mem::take(&mut inside.ended);
        for id in ended {
            match inside.live.get(id) {
                // Nothing of it is in the store, or not this node's any more.
                Some(live) if live.kept.is_none() || live.lost => {
                    inside.live.remove(id);
                }
                Some(_) => self.unsettled.push(id),
                None => {}
            }
        }
    }

    /// Jobs that run on every node have their records here.
    fn settle_here(&mut self, extend: &mut Vec<LiveId>) {
        let node = self.node.clone();
        let told = {
            let inside = node.inside();
            let is_here = |id: &LiveId| inside.live.get(*id).is_some_and(Live::is_local);
            let ended: Vec<_> = self.unsettled.extract_if(.., |id| is_here(id)).collect();
            let extend: Vec<_> = extend.extract_if(.., |id| is_here(id)).collect();
            drop(inside);
            Told::gather(&node, &extend, &ended)
        };
        if told.is_empty() {
            return;
        }
        let sent = node.runtime.now();
        let answers = {
            let mut inside = node.inside();
            let at = At::new(&node.id, node.now(&inside));
            told.iter().map(|told| inside.local.settle(&told.ending(), at)).collect()
        };
        answered(&node, &told, answers, sent);
    }

    /// Cancels and drops runs whose time is over; answers with those to extend.
    fn scan(&mut self, now: Instant) -> Vec<LiveId> {
        let node = self.node.clone();
        let mut extend = Vec::new();
        let mut next: Option<Instant> = None;
        let mut wants = |at: Instant| next = Some(next.map_or(at, |next: Instant| next.min(at)));
        let mut events = Vec::new();
        let mut ends: Vec<(Run, bool)> = Vec::new();
        let mut inside = node.inside();
        if inside.scan_at.is_none_or(|at| at > now) {
            return Vec::new();
        }
        for (id, live) in inside.live.iter_mut().filter(|(_, live)| live.end.is_none()) {
            let (mut cancel_at, mut drop_at) = (None, None);
            if let Some(stopping) = self.stopping {
                (cancel_at, drop_at) = (Some(stopping.cancel_at), Some(stopping.drop_at));
            }
            if let Some(kept) = live.kept.filter(|_| !live.lost) {
                if now >= kept.cancel_at && !live.run.is_cancelled() {
                    let (name, fence) = (live.run.shared_name(), live.run.fence());
                    events.push(Event::LeaseUnconfirmed { name, fence });
                }
                cancel_at = Some(cancel_at.map_or(kept.cancel_at, |at| at.min(kept.cancel_at)));
                drop_at = Some(drop_at.map_or(kept.drop_at, |at| at.min(kept.drop_at)));
                if now >= kept.extend_at {
                    extend.push(id);
                } else {
                    wants(kept.extend_at);
                }
            }
            match (cancel_at, drop_at) {
                (_, Some(drop_at)) if now >= drop_at => {
                    if !live.run.control().is_dropped() {
                        // A lease that ends meanwhile ends a run for another reason.
                        let stopped = self.stopping.is_some_and(|stopping| now >= stopping.drop_at);
                        self.cancelled += usize::from(stopped);
                        ends.push((live.run.clone(), true));
                    }
                }
                (Some(cancel_at), drop_at) if now >= cancel_at => {
                    drop_at.into_iter().for_each(&mut wants);
                    if !live.run.is_cancelled() {
                        ends.push((live.run.clone(), false));
                    }
                }
                (cancel_at, _) => cancel_at.into_iter().for_each(&mut wants),
            }
        }
        inside.scan_at = next;
        drop(inside);
        self.node.emit(events);
        for (run, drop) in ends {
            if drop {
                run.control().drop_now();
            } else {
                run.control().cancel();
            }
        }
        extend
    }

    fn is_over(&self, now: Instant) -> Option<Stopped> {
        let stopping = self.stopping?;
        let inside = self.node.inside();
        let idle = inside.live.is_empty() && inside.in_turn == 0;
        let settled = self.taken.load(Ordering::Acquire) && idle;
        let stopped = Stopped { cancelled: self.cancelled, unsettled: inside.live.len() };
        (settled || now >= stopping.give_up_at).then_some(stopped)
    }

    /// Until a run has ended, or its time comes.
    async fn rest(&self, give_up: Option<Instant>) {
        let node = &self.node;
        let scan_at = node.inside().scan_at;
        let Some(at) = scan_at.into_iter().chain(give_up).min() else {
            return node.keeper.heard().await;
        };
        select(node.runtime.sleep_until(at), pin!(node.keeper.heard())).await;
    }
}

/// One round trip for all that ended and all that is to be extended.
async fn settle(node: &Node, told: &[Told]) -> Result {
    let Some(leases) = node.backend.leases() else { return Ok(()) };
    let endings: Vec<Ending<'_>> = told.iter().map(Told::ending).collect();
    let sent = node.runtime.now();
    let now = Now::Store { node: node.runtime.wall() };
    let request = Settle::new(&node.id, now, &endings);
    let answers = within(node, "settle", leases.settle(request)).await?;
    if answers.len() != endings.len() {
        let (given, asked) = (answers.len(), endings.len());
        let wrong = format!("the backend gave {given} answers to {asked} endings; report it");
        return Err(Error::new(Kind::Other, wrong).op("settle"));
    }
    node.store_is_up();
    answered(node, told, answers, sent);
    Ok(())
}

/// Takes in what became of runs: of this node's own records, or the store's.
fn answered(node: &Node, told: &[Told], answers: Vec<Settled>, sent: Instant) {
    let mut events = Vec::new();
    let mut lost = Vec::new();
    let mut alive = Vec::new();
    let roused = {
        let mut inside = node.inside();
        for (told, answer) in told.iter().zip(answers) {
            let event = told.answered(&mut inside, answer, sent);
            lost.extend(event.is_some().then_some(&told.run));
            alive.extend(matches!(answer, Settled::Until(_)).then_some(&told.run));
            events.extend(event);
        }
        inside.planner.is_roused()
    };
    node.emit(events);
    // Wakes the user's code: not under the lock.
    lost.into_iter().for_each(|run| run.control().drop_now());
    alive.into_iter().for_each(|run| run.control().confirm());
    // What is free now may be waited for.
    if roused {
        node.taker.ring();
    }
}

/// What the store is told of one run.
struct Told {
    id: LiveId,
    run: Run,
    /// How it ended; `None`: it lives.
    verdict: Option<Verdict>,
    lasts: Duration,
}

impl Told {
    fn gather(node: &Node, extend: &[LiveId], ended: &[LiveId]) -> Vec<Self> {
        let inside = node.inside();
        // What ended since it was to be extended is told as ended, in its turn.
        let lives = |id: &&LiveId| inside.live.get(**id).is_some_and(|live| live.end.is_none());
        let told = extend.iter().filter(lives).chain(ended).filter_map(|id| {
            let live = inside.live.get(*id)?;
            let lasts = live.kept?.lasts;
            let (run, verdict) = (live.run.clone(), live.end.clone());
            Some(Self { id: *id, run, verdict, lasts })
        });
        told.collect()
    }

    fn ending(&self) -> Ending<'_> {
        let end = match &self.verdict {
            Some(verdict) => verdict.end(self.run.then()),
            None => End::Extend { lasts: self.lasts },
        };
        Ending::new(self.run.name(), self.run.fence(), end)
    }

    fn answered(&self, inside: &mut Inside, answer: Settled, sent: Instant) -> Option<Event> {
        let finished = match &self.verdict {
            Some(verdict) => {
                let live = inside.live.try_remove(self.id)?;
                let finish = matches!(verdict.end(self.run.then()), End::Finish { .. });
                let (fence, at) = (live.run.fence(), live.run.scheduled_at());
                let finished = finish.then_some(self.run.then());
                let run = (fence, at);
                inside.planner.settled(live.slot, self.run.name(), run, answer, finished);
                true
            }
            None => false,
        };
        let (name, fence) = (self.run.shared_name(), self.run.fence());
        match answer {
            Settled::Until(until) => {
                let live = inside.live.get_mut(self.id)?;
                let kept = Kept::new(sent, self.lasts, self.lasts);
                live.kept = Some(kept);
                let (slot, at) = (live.slot, live.run.scheduled_at());
                inside.scan_soon(kept.extend_at);
                let answer = Settled::Until(until);
                inside.planner.settled(slot, self.run.name(), (fence, at), answer, None);
                None
            }
            Settled::Done => None,
            Settled::Lost | Settled::Removed | Settled::Refused if finished => {
                Some(Event::LeaseLost { name, fence })
            }
            Settled::Lost | Settled::Removed | Settled::Refused => {
                let live = inside.live.get_mut(self.id)?;
                live.lost = true;
                let slot = live.slot;
                let run = (fence, self.run.scheduled_at());
                inside.planner.settled(slot, self.run.name(), run, answer, None);
                Some(Event::LeaseLost { name, fence })
            }
        }
    }
}
