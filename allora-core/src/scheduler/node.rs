//! What the parts of a scheduler share: the planner, the runs, the bells, the news.

use super::{
    Config,
    around::{Around, Next},
    clock::StoreClock,
    execution::{How, Report, execute},
    local::Local,
    mutex::{Groups, Waiting, in_turn},
    signal::Signal,
};
use crate::{
    backend::{Backend, Cursor, End, Ended, Outcome},
    error::Error,
    event::Event,
    job::{Delivery, Entry, Placement, Settings},
    planner::{Planner, SlotId, Start},
    run::{Beats, Control, Decision, Inner, Run},
    runtime::Runtime,
    stored::Router,
    time::{Time, saturating_add, since},
};
use slab::Slab;
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicU8, Ordering},
    },
    time::{Duration, Instant},
};

/// The store answers.
const UP: u8 = 0;
/// It does not.
const DOWN: u8 = 1;
/// It answers, and refuses.
const REFUSES: u8 = 2;

/// A scheduler's inside.
pub(crate) struct Node {
    pub(crate) id: Arc<str>,
    pub(crate) namespace: Arc<str>,
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) runtime: Arc<dyn Runtime>,
    pub(crate) config: Config,
    pub(crate) on_event: Option<OnEvent>,
    /// What runs stored schedules.
    pub(crate) router: Router,
    /// What runs around every run, the outermost first.
    pub(crate) arounds: Arc<[Around]>,
    /// Rung when there may be something to take, or room for it.
    pub(crate) taker: Signal,
    /// Rung when a run has ended or has to be ended.
    pub(crate) keeper: Signal,
    /// The mutex groups of what runs here.
    pub(crate) groups: Groups,
    /// How the last call of the store ended: `UP`, `DOWN` or `REFUSES`.
    store: AtomicU8,
    inside: Mutex<Inside>,
}

pub(crate) type OnEvent = Arc<dyn Fn(&Event) + Send + Sync>;

/// What is behind the lock; no await ever happens under it.
pub(crate) struct Inside {
    pub(crate) planner: Planner,
    pub(crate) local: Local,
    pub(crate) live: Slab<Live>,
    /// Runs whose future has not ended.
    pub(crate) running: usize,
    /// Runs that wait for a group's lock, or have not given it back.
    pub(crate) in_turn: usize,
    /// Something is due, and waits for one of them to end.
    pub(crate) full: bool,
    /// Runs that have ended since the keeper looked.
    pub(crate) ended: Vec<LiveId>,
    /// When the keeper next looks through the runs.
    pub(crate) scan_at: Option<Instant>,
    pub(crate) stop: Stop,
    pub(crate) clock: StoreClock,
}

/// Names a run inside its node.
pub(crate) type LiveId = usize;

/// How far the scheduler is on its way to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stop {
    No,
    /// Takes no more; runs have the grace.
    Graceful,
    /// Runs are ended at once.
    Now,
}

/// A run that has not been settled.
pub(crate) struct Live {
    pub(crate) slot: SlotId,
    pub(crate) started: Instant,
    pub(crate) run: Run,
    pub(crate) entry: Entry,
    /// Its lease or mark, if it has one.
    pub(crate) kept: Option<Kept>,
    /// How it ended, when it has.
    pub(crate) end: Option<Verdict>,
    /// Nobody is waiting for its end: the store has given the occurrence to others.
    pub(crate) lost: bool,
    pub(crate) turn: Turn,
}

/// How far a run is in its mutex group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// It waits, and its code has not begun.
    Waits,
    /// Its code has begun; or there is no group.
    Begun,
    /// Somebody else may have the turn now.
    Lost,
}

/// A lease or mark, by this node's monotonic clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kept {
    pub(crate) lasts: Duration,
    pub(crate) extend_at: Instant,
    /// The run is cancelled unless an extension was confirmed before.
    pub(crate) cancel_at: Instant,
    /// Its future is dropped.
    pub(crate) drop_at: Instant,
}

impl Kept {
    /// A lease or mark of `lasts`, confirmed by a request that was sent at `sent` and leaves
    /// `left` of it.
    pub(crate) fn new(sent: Instant, left: Duration, lasts: Duration) -> Self {
        let margin = (lasts / 10).max(Duration::from_millis(100)).min(left / 2);
        Self {
            lasts,
            extend_at: sent + left.min(lasts / 3),
            cancel_at: sent + (left - margin),
            drop_at: sent + left,
        }
    }
}

/// How a run ended, and what the store is to be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Ran,
    Failed(String),
    Dead(String),
    Cancelled,
    Retry { at: Time, error: String },
    Released,
}

impl Verdict {
    pub(crate) fn end(&self, then: Cursor) -> End<'_> {
        match self {
            Verdict::Ran => End::Finish { then, outcome: Ended::Ran },
            Verdict::Failed(error) => End::Finish { then, outcome: Ended::Failed(error) },
            Verdict::Dead(error) => End::Finish { then, outcome: Ended::Dead(error) },
            Verdict::Cancelled => End::Finish { then, outcome: Ended::Cancelled },
            Verdict::Retry { at, error } => End::Retry { at: *at, error },
            Verdict::Released => End::Release,
        }
    }

    fn outcome(&self) -> Outcome {
        match self {
            Verdict::Ran => Outcome::Ran,
            Verdict::Failed(error) => Outcome::Failed(error.clone()),
            Verdict::Retry { error, .. } => Outcome::Failed(error.clone()),
            Verdict::Dead(error) => Outcome::Dead(error.clone()),
            Verdict::Cancelled => Outcome::Cancelled,
            Verdict::Released => Outcome::Released,
        }
    }
}

impl Inside {
    /// Has the keeper look through the runs at this time at the latest; answers whether that is
    /// news to it.
    pub(crate) fn scan_soon(&mut self, at: Instant) -> bool {
        let sooner = self.scan_at.is_none_or(|scan_at| scan_at > at);
        if sooner {
            self.scan_at = Some(at);
        }
        sooner
    }
}

impl Node {
    pub(crate) fn new(
        id: Arc<str>,
        backend: Arc<dyn Backend>,
        runtime: Arc<dyn Runtime>,
        config: Config,
        planner: Planner,
        on_event: Option<OnEvent>,
        (router, arounds): (Router, Arc<[Around]>),
    ) -> Self {
        let namespace = Arc::from(backend.namespace());
        let inside = Inside {
            planner,
            local: Local::default(),
            live: Slab::new(),
            running: 0,
            in_turn: 0,
            full: false,
            ended: Vec::new(),
            scan_at: None,
            stop: Stop::No,
            clock: StoreClock::new(runtime.wall(), runtime.now()),
        };
        Self {
            id,
            namespace,
            backend,
            runtime,
            config,
            on_event,
            router,
            arounds,
            taker: Signal::default(),
            keeper: Signal::default(),
            groups: Groups::default(),
            store: AtomicU8::new(UP),
            inside: Mutex::new(inside),
        }
    }

    /// User code never runs under the lock unguarded, so that a poisoned one guards sound state.
    pub(crate) fn inside(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The store's time, as well as this node knows it.
    pub(crate) fn now(&self, inside: &Inside) -> Time {
        inside.clock.now(self.runtime.now())
    }

    /// Starts runs that were won: `sent` is when the request was sent that confirmed them, by the
    /// monotonic clock, and `decided` when the store carried it out, by the store's.
    pub(crate) fn start(self: &Arc<Self>, starts: Vec<Start>, sent: Instant, decided: Time) {
        if starts.is_empty() {
            return;
        }
        let now = self.runtime.now();
        let mut begun = Vec::with_capacity(starts.len());
        {
            let mut inside = self.inside();
            for start in starts {
                begun.extend(self.enter(&mut inside, start, sent, decided, now));
            }
        }
        for (id, run, entry, late) in begun {
            let (node, timeout) = (self.clone(), entry.settings.timeout);
            let job = Next::new(self.arounds.clone(), entry.job);
            if let Some(group) = entry.settings.mutex.clone() {
                let lasts = self.lasts(&entry.settings);
                let waiting = Waiting { id, run, job, group, lasts, timeout, late, won: now };
                self.runtime.spawn(Box::pin(in_turn(node, waiting)));
                continue;
            }
            self.begun(&run, late);
            let timeout = timeout.map(|limit| (limit, self.runtime.sleep_until(later(now, limit))));
            let report = Report::new(node, id, How::Dropped);
            self.runtime.spawn(Box::pin(execute(report, job, run, timeout)));
        }
    }

    /// A run's code begins.
    pub(super) fn begun(&self, run: &Run, late: Duration) {
        self.emit([Event::Started {
            name: run.shared_name(),
            scheduled_at: run.scheduled_at(),
            attempt: run.attempt(),
            fence: run.fence(),
            late,
        }]);
    }

    /// How long a lease or mark of this job lasts unless extended.
    fn lasts(&self, settings: &Settings) -> Duration {
        match settings.delivery {
            Delivery::AtLeastOnce { lease } => lease,
            Delivery::AtMostOnce => self.config.mark,
        }
    }

    /// Notes a run among the living; answers with what to spawn, unless it is given back at once.
    fn enter(
        self: &Arc<Self>,
        inside: &mut Inside,
        start: Start,
        sent: Instant,
        decided: Time,
        now: Instant,
    ) -> Option<(LiveId, Run, Entry, Duration)> {
        let Start { slot, name, entry, taken, then, late } = start;
        let lasts = self.lasts(&entry.settings);
        let kept = taken.until.map(|until| Kept::new(sent, since(until, decided), lasts));
        let expired = kept.is_some_and(|kept| now >= kept.cancel_at);
        let data = entry.payload.as_ref().map(|payload| payload.data.clone());
        let run = Run::new(Inner {
            namespace: self.namespace.clone(),
            name,
            node: self.id.clone(),
            taken,
            then,
            data: data.unwrap_or_else(|| self.config.no_data.clone()),
            payload: entry.payload.clone(),
            beats: kept.is_some().then(|| Arc::downgrade(self) as Weak<dyn Beats>),
            can_retry: matches!(entry.settings.delivery, Delivery::AtLeastOnce { .. }),
            control: Control::default(),
        });
        // Neither a run that others may already have taken over nor one that was won while the
        // scheduler was being stopped is started: it is given back. Where nothing is left in the
        // store that could be given back, it is run.
        let refused = expired || (inside.stop != Stop::No && kept.is_some());
        let end = refused.then_some(Verdict::Released);
        let live = Live {
            slot,
            started: now,
            run: run.clone(),
            entry: entry.clone(),
            kept,
            end,
            lost: false,
            turn: if entry.settings.mutex.is_some() { Turn::Waits } else { Turn::Begun },
        };
        let id = inside.live.insert(live);
        let stopping = (inside.stop != Stop::No).then_some(now);
        if let Some(scan_at) = stopping.or(kept.map(|kept| kept.extend_at))
            && inside.scan_soon(scan_at)
        {
            self.keeper.ring();
        }
        if refused {
            inside.ended.push(id);
            self.keeper.ring();
            return None;
        }
        inside.running += 1;
        Some((id, run, entry, late))
    }

    /// A run's future has ended.
    pub(crate) fn run_ended(&self, id: LiveId, how: How) {
        let mono = self.runtime.now();
        let (event, waited_for) = {
            let mut inside = self.inside();
            inside.running -= 1;
            inside.ended.push(id);
            let now = inside.clock.now(mono);
            let waited_for = std::mem::take(&mut inside.full);
            let Some(live) = inside.live.get_mut(id) else { return };
            let begun = !matches!(how, How::NotBegun);
            let verdict = live.verdict(how, now);
            let event = begun.then(|| Event::Ended {
                name: live.run.shared_name(),
                scheduled_at: live.run.scheduled_at(),
                attempt: live.run.attempt(),
                fence: live.run.fence(),
                outcome: verdict.outcome(),
                took: mono.saturating_duration_since(live.started),
            });
            live.end = Some(verdict);
            (event, waited_for)
        };
        self.emit(event);
        self.keeper.ring();
        if waited_for {
            self.taker.ring();
        }
    }

    /// Stops the scheduler, or stops it faster.
    pub(crate) fn stop(&self, how: Stop) {
        let waiting: Vec<Run> = {
            let mut inside = self.inside();
            inside.stop = inside.stop.max(how);
            let waiting = inside.live.iter().filter(|(_, live)| live.turn == Turn::Waits);
            waiting.map(|(_, live)| live.run.clone()).collect()
        };
        // What has not begun is given back at once.
        waiting.iter().for_each(|run| run.control().cancel());
        self.taker.ring();
        self.keeper.ring();
    }

    /// Takes the futures of all runs away.
    pub(crate) fn drop_runs(&self) {
        let runs: Vec<Run> = self.inside().live.iter().map(|(_, live)| live.run.clone()).collect();
        for run in runs {
            run.control().drop_now();
        }
    }

    pub(crate) fn emit(&self, events: impl IntoIterator<Item = Event>) {
        for event in events {
            super::log::log(&event);
            if let Some(on_event) = &self.on_event {
                // The user's code: a panic in it is not the scheduler's end.
                let _ = catch_unwind(AssertUnwindSafe(|| on_event(&event)));
            }
        }
    }

    /// The store has answered.
    pub(crate) fn store_is_up(&self) {
        if self.store.swap(UP, Ordering::AcqRel) != UP {
            self.emit([Event::StoreUp]);
        }
    }

    /// The store has not answered, or refused; each said once until it is otherwise.
    pub(crate) fn store_failed(&self, error: Error) {
        let unavailable = error.kind() == crate::error::Kind::Unavailable;
        let state = if unavailable { DOWN } else { REFUSES };
        if self.store.swap(state, Ordering::AcqRel) == state {
            return;
        }
        let error = Arc::new(error);
        self.emit([if unavailable {
            Event::StoreDown { error }
        } else {
            Event::StoreRefused { error }
        }]);
    }
}

impl Beats for Node {
    fn beat(&self, name: &str, fence: i64) {
        let now = self.runtime.now();
        {
            let mut inside = self.inside();
            let of_run = |live: &&mut Live| live.run.fence() == fence && live.run.name() == name;
            let live = inside.live.iter_mut().map(|(_, live)| live).find(of_run);
            if let Some(kept) = live.and_then(|live| live.kept.as_mut()) {
                kept.extend_at = now;
            }
            inside.scan_soon(now);
        }
        self.keeper.ring();
    }
}

/// `at + by`; a year later if that cannot be told.
pub(crate) fn later(at: Instant, by: Duration) -> Instant {
    at.checked_add(by).unwrap_or_else(|| at + Duration::from_secs(366 * 86_400))
}

/// The longest text of an error that is kept, in bytes.
const MAX_ERROR: usize = 1_024;

impl Live {
    fn verdict(&self, how: How, now: Time) -> Verdict {
        let decided = match how {
            How::Returned(_) => self.run.control().decision(),
            _ => None,
        };
        let gives_up = match decided {
            Some(Decision::Retry { after, error }) => {
                let error = shortened(error);
                return Verdict::Retry { at: saturating_add(now, after), error };
            }
            Some(Decision::Release) => return Verdict::Released,
            Some(Decision::GiveUp) => true,
            None => false,
        };
        let error = match how {
            How::Returned(Ok(())) => return Verdict::Ran,
            How::Dropped => return self.dropped(),
            // As if it had not been won: at most once too, for it has not begun.
            How::NotBegun => return Verdict::Released,
            How::Returned(Err(error)) => error,
            How::Panicked(text) => format!("panicked: {text}"),
            How::TimedOut(limit) => format!("timed out after {limit:?}"),
        };
        let error = shortened(error);
        match self.entry.settings.delivery {
            Delivery::AtMostOnce => Verdict::Failed(error),
            Delivery::AtLeastOnce { .. } => {
                let wait = self.entry.settings.retry.after(self.run.attempt());
                match wait.filter(|_| !gives_up) {
                    Some(wait) => Verdict::Retry { at: saturating_add(now, wait), error },
                    None => Verdict::Dead(error),
                }
            }
        }
    }

    /// At least once, it may run again elsewhere; at most once, it has begun and will not.
    fn dropped(&self) -> Verdict {
        match (self.entry.settings.delivery, self.turn) {
            (Delivery::AtLeastOnce { .. }, _) => Verdict::Released,
            (Delivery::AtMostOnce, Turn::Lost) => {
                Verdict::Failed("dropped: its turn in the mutex group was not confirmed".to_owned())
            }
            (Delivery::AtMostOnce, _) => Verdict::Cancelled,
        }
    }

    pub(crate) fn is_local(&self) -> bool {
        self.entry.settings.placement == Placement::EveryNode
    }
}

fn shortened(mut text: String) -> String {
    if text.len() > MAX_ERROR {
        let end = (0..=MAX_ERROR).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
        text.truncate(end);
        text.push('…');
    }
    text
}
