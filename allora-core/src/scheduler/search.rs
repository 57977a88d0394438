//! Looking in the store for what this node cannot know by heart: stored schedules, triggers, what
//! others gave back.

use super::{
    node::{Node, later},
    within,
};
use crate::{
    backend::Find,
    time::{Time, saturating_add, since},
};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

/// How far ahead of their time records are looked for.
const AHEAD: Duration = Duration::from_secs(1);

/// How many records one look finds at most, beyond those that are known.
const FOUND: usize = 1_000;

/// At so many places a look may begin where others are at what is due.
const PLACES: usize = 8;

/// The store's kinds are not asked for more often.
const KINDS: Duration = Duration::from_secs(1);

pub(super) struct Search {
    /// Whether the backend has anything to look for.
    is_on: bool,
    /// When there is something to find, by the store's clock.
    at: Time,
    /// So many of what is due the next look passes over: others are at those.
    skip: usize,
    /// More is due than one look finds, and others are at it, too.
    is_crowded: bool,
    kinds: Kinds,
}

/// The store's kinds that patterns are for.
struct Kinds {
    all: Vec<Arc<str>>,
    /// Something may have been added since.
    is_old: bool,
    /// Not asked for again before.
    ask_at: Option<Instant>,
    /// When to look again, if they should have been asked for and were not: by the monotonic
    /// clock, which no answer of the store puts back.
    look_at: Option<Instant>,
}

impl Search {
    pub(super) fn new(is_on: bool) -> Self {
        Self {
            is_on,
            at: Time::MIN_UTC,
            skip: 0,
            is_crowded: false,
            kinds: Kinds { all: Vec::new(), is_old: true, ask_at: None, look_at: None },
        }
    }

    pub(super) fn is_on(&self) -> bool {
        self.is_on
    }

    /// There may be something now.
    pub(super) fn at_once(&mut self) {
        self.at = Time::MIN_UTC;
    }

    /// There will be something then.
    pub(super) fn by(&mut self, at: Time) {
        self.at = self.at.min(at);
    }

    /// Something was added or changed.
    pub(super) fn news(&mut self) {
        self.kinds.is_old = true;
    }

    /// Something was added or changed, and will be due then.
    pub(super) fn heard_of(&mut self, at: Time) {
        self.news();
        self.by(at);
    }

    pub(super) fn is_due(&self, now: Time) -> bool {
        self.at <= saturating_add(now, AHEAD)
    }

    /// In what time to look: what is found a little ahead is looked for by that much earlier.
    pub(super) fn due_in(&self, now: Time) -> Option<Duration> {
        self.is_on.then(|| since(self.at, now).saturating_sub(AHEAD))
    }

    /// When to look because of kinds that were not asked for.
    pub(super) fn kinds_at(&self) -> Option<Instant> {
        self.kinds.look_at
    }

    /// The kinds of what this node runs. The empty one is that of jobs in code.
    pub(super) fn kinds(&self, node: &Node) -> Vec<Arc<str>> {
        let exact = node.router.exact().map(Arc::from);
        std::iter::once(Arc::from("")).chain(exact).chain(self.kinds.all.iter().cloned()).collect()
    }

    /// What to look for, beyond the `known` ones: or what cannot be run now would hide what can.
    pub(super) fn find<'a>(&self, kinds: &'a [&'a str], now: Time, known: usize) -> Find<'a> {
        // Up to and including what `is_due` calls due: instants are whole milliseconds.
        let until = saturating_add(now, AHEAD + Duration::from_millis(1));
        Find::new(kinds, until, FOUND + known).skipping(self.skip)
    }

    /// What was found, all that was asked for or less, and what is due behind it: says where the
    /// next look begins. Where others are at what is due, and one look does not find all of it, at a
    /// place that they will hardly choose.
    pub(super) fn answered(&mut self, node: &Node, next_due: Option<Time>, is_full: bool) {
        let passed_over = self.skip > 0;
        // What was passed over is still there.
        self.at = if passed_over { Time::MIN_UTC } else { next_due.unwrap_or(Time::MAX_UTC) };
        if is_full {
            self.is_crowded |= node.inside().planner.is_losing();
        } else if !passed_over {
            self.is_crowded = false;
        }
        self.skip = match self.is_crowded && is_full {
            true => FOUND * (node.runtime.random() as usize % PLACES),
            false => 0,
        };
    }

    /// Which of the store's kinds are for the patterns of this node. Asked again when something may
    /// have been added, but not every time: a busy store has many hints and few new kinds.
    pub(super) async fn learn_kinds(&mut self, node: &Node, poll_at: Instant) {
        let now = node.runtime.now();
        let (true, Some(store)) = (node.router.has_patterns(), node.backend.schedules()) else {
            return;
        };
        let asked_before = self.kinds.look_at.take().is_some();
        if !self.kinds.is_old && !asked_before && now < poll_at {
            return;
        }
        self.kinds.look_at = self.kinds.ask_at.filter(|ask_at| *ask_at > now);
        if self.kinds.look_at.is_some() {
            return;
        }
        match within(node, "kinds", store.kinds()).await {
            Ok(kinds) => {
                let exact = |kind: &String| node.router.exact().any(|exact| exact == kind);
                let mine = |kind: &String| node.router.matches(kind) && !exact(kind);
                self.kinds.all = kinds.into_iter().filter(mine).map(Arc::from).collect();
                self.kinds.is_old = false;
                self.kinds.ask_at = Some(later(now, KINDS));
            }
            Err(error) => node.store_failed(error),
        }
    }
}
