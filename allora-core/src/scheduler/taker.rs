//! The half of a scheduler that wins occurrences: asks the planner, asks the store, sleeps.

use super::{
    node::{Node, Stop, later},
    search::Search,
    signal::yield_now,
    within,
};
use crate::{
    backend::{Answer, Find, Hint, Now, Plan, Reschedule, Rescheduled},
    error::{Error, Kind, Result},
    event::Event,
    job::Placement,
    planner::{Intent, Turn},
    record::At,
    time::{Time, since, whole_millis},
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

/// What else to ask than the plans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Look {
    No,
    /// Nothing: the store's clock is read on the way.
    Poll,
    /// For records that want attention.
    Find,
}

pub(crate) struct Taker {
    node: Arc<Node>,
    hints: Option<BoxStream<'static, Hint>>,
    /// When to subscribe to hints, if there are none.
    listen_at: Instant,
    /// Why there are none: told once, if the store answers otherwise.
    deaf: Deaf,
    search: Search,
    /// When to ask the store although nothing is known to be due.
    poll_at: Instant,
    wait: Duration,
    /// By how much the store's clock was last seen to differ from this node's.
    off: TimeDelta,
    ready: bool,
}

/// What became of the last subscription to hints.
enum Deaf {
    No,
    Because(Error),
    Told,
}

impl Taker {
    pub(crate) fn new(node: Arc<Node>) -> Self {
        let now = node.runtime.now();
        let search = Search::new(node.backend.schedules().is_some());
        Self {
            node,
            hints: None,
            listen_at: now,
            deaf: Deaf::No,
            search,
            poll_at: now,
            wait: FIRST_WAIT,
            off: TimeDelta::zero(),
            ready: false,
        }
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
        self.subscribe().await;
        if !self.ready {
            self.first_look().await?;
        }
        self.take_hints();
        let (turn, look, now) = self.plan();
        if turn.intents.is_empty() && look == Look::No {
            self.sleep(&turn, now).await;
            return Ok(());
        }
        // A store that always has an answer ready must not keep the executor from the rest.
        yield_now().await;
        self.ask(turn.intents, look).await
    }

    /// Hints are subscribed to before the first look, so that none is missed. Without them, the
    /// safety poll does.
    async fn subscribe(&mut self) {
        let node = self.node.clone();
        let Some(watch) = node.backend.watch() else { return };
        let now = node.runtime.now();
        if self.hints.is_some() || now < self.listen_at {
            return;
        }
        self.listen_at = now + LONGEST_WAIT;
        match within(&node, "watch", watch.subscribe()).await {
            Ok(hints) => {
                self.hints = Some(hints);
                self.deaf = Deaf::No;
                // What happened before, nobody has told.
                self.search.at_once();
            }
            Err(error) => {
                self.listen_at = now + node.config.poll.max(LONGEST_WAIT);
                if matches!(self.deaf, Deaf::No) {
                    self.deaf = Deaf::Because(error);
                }
            }
        }
    }

    /// The first contact brings the store's time; only then is anything registered, so that a
    /// wrong node clock does not choose a first run.
    async fn first_look(&mut self) -> Result {
        self.request(&[], None).await?;
        self.ready = true;
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
        match hint {
            Hint::Job(name) if self.node.groups.heard_of(&name) => {}
            Hint::Job(name) => {
                self.search.news();
                self.node.inside().planner.heard_of(&name);
            }
            Hint::DueAt(at) => self.search.heard_of(at),
            Hint::Look => self.search.heard_of(Time::MIN_UTC),
        }
    }

    fn plan(&mut self) -> (Turn, Look, Time) {
        let mut events = Vec::new();
        let (turn, look, now) = {
            let mut inside = self.node.inside();
            let now = self.node.now(&inside);
            let room = self.node.config.slots.saturating_sub(inside.running);
            let turn = inside.planner.turn(now, room, &mut events);
            inside.full = turn.full;
            if let Some(look_at) = inside.planner.forgotten_due() {
                self.search.by(look_at);
            }
            let poll = self.node.runtime.now() >= self.poll_at;
            // What else is due can wait until what is known to be due is asked for.
            let find = self.search.is_due(now) && !turn.more;
            let kinds = self.search.kinds_at().is_some_and(|at| at <= self.node.runtime.now());
            let look = match poll || find || kinds {
                true if self.search.is_on() => Look::Find,
                true if poll => Look::Poll,
                _ => Look::No,
            };
            (turn, look, now)
        };
        self.node.emit(events);
        (turn, look, now)
    }

    /// Sleeps until the next turn: something is due, was heard of, or has made room.
    async fn sleep(&mut self, turn: &Turn, now: Time) {
        let node = self.node.clone();
        let wake_at = turn.wake_at.filter(|_| !turn.full);
        let find_in = (!turn.full).then(|| self.search.due_in(now)).flatten();
        let wake_in = wake_at.map(|at| since(at, now));
        let asleep = node.runtime.now();
        let listen_at =
            (self.hints.is_none() && node.backend.watch().is_some()).then_some(self.listen_at);
        let known = [wake_in, find_in].into_iter().flatten().map(|span| later(asleep, span));
        let first = known.chain(listen_at).chain(self.search.kinds_at());
        let first = first.fold(self.poll_at, Instant::min);
        let wake = first.max(asleep) + self.jitter();
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

    async fn ask(&mut self, intents: Vec<Intent>, look: Look) -> Result {
        let (local, shared): (Vec<_>, Vec<_>) =
            intents.into_iter().partition(|intent| intent.placement == Placement::EveryNode);
        self.ask_here(local);
        if shared.is_empty() && look == Look::No {
            return Ok(());
        }
        let node = self.node.clone();
        let mut kinds = Vec::new();
        if look == Look::Find {
            self.search.learn_kinds(&node, self.poll_at).await;
            kinds = self.search.kinds(&node);
        }
        let kinds: Vec<&str> = kinds.iter().map(|kind| &**kind).collect();
        let plans: Vec<Plan<'_>> = shared.iter().map(Intent::plan).collect();
        let (now, known) = {
            let inside = node.inside();
            (node.now(&inside), inside.planner.known_stored())
        };
        let find = (look == Look::Find).then(|| self.search.find(&kinds, now, known));
        let limit = find.map_or(usize::MAX, |find| find.limit);
        let asked = self.request(&plans, find).await;
        drop(plans);
        match asked {
            Ok((answer, sent)) => {
                self.wait = FIRST_WAIT;
                let (is_full, next_due) = (answer.found.len() >= limit, answer.next_due);
                self.take_in(shared, answer, sent, look);
                if look == Look::Find {
                    self.search.answered(&node, next_due, is_full);
                }
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
        // The time by which the planner has found them due.
        let now = node.now(&node.inside());
        for intent in intents {
            let mut events = Vec::new();
            let start = {
                let mut inside = node.inside();
                let answer =
                    inside.local.step(&intent.name, &intent.plan(), At::new(&node.id, now));
                inside.planner.answered(intent, answer, now, &mut events)
            };
            node.emit(events);
            node.start(start.into_iter().collect(), sent, now);
        }
    }

    /// One round trip; measures the store's clock on the way.
    async fn request(
        &mut self,
        plans: &[Plan<'_>],
        find: Option<Find<'_>>,
    ) -> Result<(Rescheduled, Instant)> {
        let node = self.node.clone();
        let sent = node.runtime.now();
        let before = node.runtime.wall();
        let mut request = Reschedule::new(&node.id, Now::Store { node: before }, plans);
        request.find = find;
        let answer = within(&node, "reschedule", node.backend.reschedule(request)).await?;
        if answer.answers.len() != plans.len() {
            let (given, asked) = (answer.answers.len(), plans.len());
            let wrong = format!("the backend gave {given} answers to {asked} plans; report it");
            return Err(Error::new(Kind::Other, wrong).op("reschedule"));
        }
        node.store_is_up();
        self.measure(sent, before, answer.now);
        if matches!(self.deaf, Deaf::Because(_))
            && let Deaf::Because(error) = std::mem::replace(&mut self.deaf, Deaf::Told)
        {
            node.emit([Event::StoreRefused { error: Arc::new(error) }]);
        }
        Ok((answer, sent))
    }

    /// Keeps the store's time as well as one round trip can tell it.
    fn measure(&mut self, sent: Instant, before: Time, store: Time) {
        let node = &self.node;
        node.inside().clock.heard(sent, node.runtime.now(), store);
        let after = node.runtime.wall();
        let off = if store < before {
            store - before
        } else if store > after {
            store - after
        } else {
            TimeDelta::zero()
        };
        let was = std::mem::replace(&mut self.off, off);
        if off.abs() > CLOCK_OFF && was.abs() <= CLOCK_OFF {
            let by = off.abs().to_std().unwrap_or_default();
            node.emit([Event::ClockOff { ahead: off < TimeDelta::zero(), by }]);
        }
    }

    fn take_in(&mut self, intents: Vec<Intent>, answer: Rescheduled, sent: Instant, look: Look) {
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
        if look == Look::Find || !self.search.is_on() {
            self.poll_at = later(node.runtime.now(), node.config.poll);
        }
        node.emit(events);
        node.start(starts, sent, now);
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
