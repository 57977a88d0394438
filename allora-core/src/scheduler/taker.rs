//! The half of a scheduler that wins occurrences: asks the planner, asks the store, sleeps.

use super::{
    node::{Node, Stop},
    within,
};
use crate::{
    backend::{Answer, Find, Hint, Now, Plan, Reschedule, Rescheduled},
    error::{Error, Kind, Result},
    event::Event,
    job::Placement,
    planner::{Intent, Turn},
    record::At,
    time::{Time, saturating_add, since, whole_millis},
};
use chrono::TimeDelta;
use futures::{
    FutureExt, StreamExt,
    future::{Either, pending, select},
    stream::BoxStream,
};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

/// The first wait after a failure of the store; doubled each time up to [`LONGEST_WAIT`].
pub(super) const FIRST_WAIT: Duration = Duration::from_millis(50);
/// The longest wait between two tries to reach the store.
pub(super) const LONGEST_WAIT: Duration = Duration::from_millis(800);

/// How much a store's clock may differ from this node's before it is worth a word.
const CLOCK_OFF: TimeDelta = TimeDelta::seconds(1);

/// A timer that comes so late was held up by something.
const STALLED: Duration = Duration::from_secs(1);

/// How far ahead of their time records are looked for.
const AHEAD: Duration = Duration::from_secs(1);

/// How many records one look finds at most.
const FOUND: usize = 1_000;

pub(crate) struct Taker {
    node: Arc<Node>,
    hints: Option<BoxStream<'static, Hint>>,
    /// When to look for what this node cannot know by heart; `None`: the backend has no such thing.
    find_at: Option<Time>,
    wait: Duration,
    ready: bool,
}

impl Taker {
    pub(crate) fn new(node: Arc<Node>) -> Self {
        Self { node, hints: None, find_at: None, wait: FIRST_WAIT, ready: false }
    }

    /// Wins occurrences until the scheduler is stopped.
    pub(crate) async fn run(mut self) {
        while self.node.inside().stop == Stop::No {
            if let Err(error) = self.turn().await {
                self.node.store_failed(error);
                self.back_off().await;
            }
        }
    }

    async fn turn(&mut self) -> Result {
        self.subscribe().await?;
        if !self.ready {
            self.first_look().await?;
        }
        self.take_hints();
        let (turn, find, now) = self.plan();
        if turn.intents.is_empty() && !find {
            self.sleep(&turn, now).await;
            return Ok(());
        }
        self.ask(turn.intents, find).await
    }

    /// Hints are subscribed to before the first look, so that none is missed.
    async fn subscribe(&mut self) -> Result {
        if self.hints.is_none()
            && let Some(watch) = self.node.backend.watch()
        {
            self.hints = Some(within(&self.node, "watch", watch.subscribe()).await?);
            // What happened before, nobody has told.
            self.find_at = self.find_at.map(|_| Time::MIN_UTC);
        }
        Ok(())
    }

    /// The first contact brings the store's time; only then is anything registered, so that a
    /// wrong node clock does not choose a first run.
    async fn first_look(&mut self) -> Result {
        self.request(&[], None).await?;
        self.ready = true;
        self.find_at = self.node.backend.schedules().map(|_| Time::MIN_UTC);
        let jobs = self.node.inside().planner.len();
        self.node.emit([Event::Ready { node: self.node.id.clone(), jobs }]);
        Ok(())
    }

    fn take_hints(&mut self) {
        while let Some(hints) = &mut self.hints {
            match hints.next().now_or_never() {
                Some(Some(hint)) => self.hear(hint),
                Some(None) => self.hints = None,
                None => return,
            }
        }
    }

    fn hear(&mut self, hint: Hint) {
        let look = match hint {
            Hint::Job(name) => return self.node.inside().planner.heard_of(&name),
            Hint::DueAt(at) => at,
            Hint::Look => Time::MIN_UTC,
        };
        self.find_at = self.find_at.map(|find_at| find_at.min(look));
    }

    fn plan(&self) -> (Turn, bool, Time) {
        let mut events = Vec::new();
        let (turn, find, now) = {
            let mut inside = self.node.inside();
            let now = self.node.now(&inside);
            let room = self.node.config.slots.saturating_sub(inside.running);
            let mut random = || self.node.runtime.random();
            let turn = inside.planner.turn(now, room, &mut random, &mut events);
            (turn, self.find_at.is_some_and(|at| at <= saturating_add(now, AHEAD)), now)
        };
        self.node.emit(events);
        (turn, find, now)
    }

    /// Sleeps until the next turn: something is due, was heard of, or has made room.
    async fn sleep(&mut self, turn: &Turn, now: Time) {
        let node = self.node.clone();
        let poll = saturating_add(now, node.config.poll);
        let wake_at = turn.wake_at.filter(|_| !turn.full);
        let until = [wake_at, self.find_at.map(|at| at - TimeDelta::seconds(1)), Some(poll)];
        let until = until.into_iter().flatten().min().unwrap_or(poll);
        let started = node.runtime.now();
        let wake = started + since(until, now) + self.jitter();
        let hint = match &mut self.hints {
            Some(hints) => hints.next().left_future(),
            None => pending().right_future(),
        };
        let bell = std::pin::pin!(node.taker.heard());
        let news = select(hint, bell);
        let hint = match select(node.runtime.sleep_until(wake), news).await {
            Either::Left(_) => {
                let late = node.runtime.now().saturating_duration_since(wake);
                if late > STALLED {
                    node.emit([Event::Stalled { by: late }]);
                }
                return;
            }
            Either::Right((Either::Left((hint, _)), _)) => hint,
            Either::Right((Either::Right(_), _)) => return,
        };
        match hint {
            Some(hint) => self.hear(hint),
            None => self.hints = None,
        }
    }

    /// A little of this node's own on every wait, more when it is busy: of several nodes whose
    /// timers ring at the same instant, not always the same one is first.
    fn jitter(&self) -> Duration {
        let node = &self.node;
        let longest = node.config.jitter;
        if longest.is_zero() {
            return longest;
        }
        let load = node.inside().running as f64 / node.config.slots.max(1) as f64;
        let drawn = (node.runtime.random() >> 11) as f64 / (1u64 << 53) as f64;
        longest.mul_f64((drawn + load.min(1.0)) / 2.0)
    }

    async fn ask(&mut self, intents: Vec<Intent>, find: bool) -> Result {
        let (local, shared): (Vec<_>, Vec<_>) =
            intents.into_iter().partition(|intent| intent.placement == Placement::EveryNode);
        self.ask_here(local);
        if shared.is_empty() && !find {
            return Ok(());
        }
        let plans: Vec<Plan<'_>> = shared.iter().map(Intent::plan).collect();
        let now = self.node.now(&self.node.inside());
        let find = find.then(|| Find::new(&[""], saturating_add(now, AHEAD), FOUND));
        let asked = self.request(&plans, find).await;
        drop(plans);
        match asked {
            Ok((answer, sent)) => {
                self.wait = FIRST_WAIT;
                self.take_in(shared, answer, sent, find.is_some());
                Ok(())
            }
            Err(error) => {
                let mut inside = self.node.inside();
                let now = self.node.now(&inside);
                inside.planner.unanswered(shared, now);
                Err(error)
            }
        }
    }

    /// Jobs that run on every node have their records here.
    fn ask_here(&self, intents: Vec<Intent>) {
        let node = &self.node;
        let sent = node.runtime.now();
        let now = node.runtime.wall();
        for intent in intents {
            let mut events = Vec::new();
            let start = {
                let mut inside = node.inside();
                let answer =
                    inside.local.step(&intent.name, &intent.plan(), At::new(&node.id, now));
                inside.planner.answered(intent, answer, now, &mut events)
            };
            node.emit(events);
            if let Some(start) = start {
                node.start(start, sent, now);
            }
        }
    }

    /// One round trip; measures the store's clock on the way.
    async fn request(
        &mut self,
        plans: &[Plan<'_>],
        find: Option<Find<'_>>,
    ) -> Result<(Rescheduled, Instant)> {
        let node = &self.node;
        let sent = node.runtime.now();
        let before = node.runtime.wall();
        let mut request = Reschedule::new(&node.id, Now::Store { node: before }, plans);
        request.find = find;
        let answer = within(node, "reschedule", node.backend.reschedule(request)).await?;
        if answer.answers.len() != plans.len() {
            let (given, asked) = (answer.answers.len(), plans.len());
            let wrong = format!("the backend gave {given} answers to {asked} plans; report it");
            return Err(Error::new(Kind::Other, wrong).op("reschedule"));
        }
        node.store_is_up();
        self.measure(before, node.runtime.wall(), answer.now);
        Ok((answer, sent))
    }

    /// Keeps the difference of the clocks as well as one round trip can tell it.
    fn measure(&self, before: Time, after: Time, store: Time) {
        let node = &self.node;
        let off = if store < before {
            store - before
        } else if store > after {
            store - after
        } else {
            TimeDelta::zero()
        };
        let was = std::mem::replace(&mut node.inside().offset, off);
        if off.abs() > CLOCK_OFF && was.abs() <= CLOCK_OFF {
            let by = off.abs().to_std().unwrap_or_default();
            node.emit([Event::ClockOff { ahead: off < TimeDelta::zero(), by }]);
        }
    }

    fn take_in(&mut self, intents: Vec<Intent>, answer: Rescheduled, sent: Instant, looked: bool) {
        let node = &self.node;
        let now = answer.now;
        let mut events = Vec::new();
        let starts: Vec<_> = {
            let mut inside = node.inside();
            let answers: Vec<Answer> = answer.answers;
            let starts = intents.into_iter().zip(answers).filter_map(|(intent, answer)| {
                inside.planner.answered(intent, answer, whole_millis(now), &mut events)
            });
            let starts = starts.collect();
            for state in &answer.found {
                inside.planner.found(state, whole_millis(now), &mut events);
            }
            starts
        };
        if looked {
            let poll = saturating_add(now, node.config.poll);
            self.find_at = Some(answer.next_due.map_or(poll, |due| due.min(poll)));
        }
        node.emit(events);
        for start in starts {
            node.start(start, sent, now);
        }
    }

    /// Waits before the store is asked again; a stopping scheduler waits no longer.
    async fn back_off(&mut self) {
        let wait = self.wait;
        self.wait = (wait * 2).min(LONGEST_WAIT);
        let until = self.node.runtime.now() + wait;
        let mut sleep = self.node.runtime.sleep_until(until);
        while self.node.inside().stop == Stop::No {
            match select(sleep, std::pin::pin!(self.node.taker.heard())).await {
                Either::Left(_) => return,
                Either::Right((_, rest)) => sleep = rest,
            }
        }
    }
}
