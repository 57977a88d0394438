//! The search for due records that this node does not have in memory: stored schedules, triggers,
//! and occurrences that other nodes released.

use super::{
    claimer::MIN_BACKOFF,
    node::{Node, later},
    store_health::Part,
    within::within,
};
use crate::{
    backend::DueQuery,
    time::{Time, saturating_add, since},
};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

/// The time before they are due at which records are searched.
const AHEAD: Duration = Duration::from_secs(1);

/// The largest number of records of one search, in addition to those in memory.
const FOUND: usize = 1_000;

/// The number of offsets at which a search may begin when other nodes work on what is due.
const PLACES: usize = 8;

/// The shortest interval between two requests for the store's kinds.
const KINDS: Duration = Duration::from_secs(1);

pub(super) struct Search {
    /// `true` if the backend can be searched.
    is_on: bool,
    /// The time of the next search, by the store's clock.
    at: Time,
    /// The number of due records that the next search leaves to other nodes.
    skip: usize,
    /// More is due than one search returns, and other nodes work on it, too.
    is_crowded: bool,
    /// The earliest time of a search after one that failed.
    retry_at: Option<Instant>,
    wait: Duration,
    kinds: Kinds,
}

/// The store's kinds that match this node's patterns.
struct Kinds {
    all: Vec<Arc<str>>,
    /// A kind may have been added since.
    is_old: bool,
    /// The earliest time of the next request.
    ask_at: Option<Instant>,
    /// The time of a repeated search, if the kinds should have been requested and were not. It is a
    /// time of the monotonic clock, which no reply sets back.
    read_at: Option<Instant>,
}

impl Search {
    pub(super) fn new(is_on: bool) -> Self {
        Self {
            is_on,
            at: Time::MIN_UTC,
            skip: 0,
            is_crowded: false,
            retry_at: None,
            wait: MIN_BACKOFF,
            kinds: Kinds { all: Vec::new(), is_old: true, ask_at: None, read_at: None },
        }
    }

    pub(super) fn is_on(&self) -> bool {
        self.is_on
    }

    /// Requests a search at once.
    pub(super) fn at_once(&mut self) {
        self.at = Time::MIN_UTC;
    }

    /// Requests a search at this time at the latest.
    pub(super) fn by(&mut self, at: Time) {
        self.at = self.at.min(at);
    }

    /// Records that a job was added or changed.
    pub(super) fn on_change(&mut self) {
        self.kinds.is_old = true;
    }

    /// Records that a job was added or changed that is due at `at`.
    pub(super) fn on_notification(&mut self, at: Time) {
        self.on_change();
        self.by(at);
    }

    pub(super) fn is_due(&self, now: Time, mono: Instant) -> bool {
        self.at <= saturating_add(now, AHEAD) && self.retry_at.is_none_or(|at| at <= mono)
    }

    /// The time until the next search. Records are searched a little before they are due.
    pub(super) fn due_in(&self, now: Time, mono: Instant) -> Option<Duration> {
        let wait = self.retry_at.map_or(Duration::ZERO, |at| at.saturating_duration_since(mono));
        self.is_on.then(|| since(self.at, now).saturating_sub(AHEAD).max(wait))
    }

    /// Delays the next search, twice as long each time up to the poll interval. Returns its time.
    pub(super) fn failed(&mut self, node: &Node) -> Instant {
        let wait = self.wait.clamp(MIN_BACKOFF, node.config.poll_interval);
        let retry_at = later(node.runtime.now(), wait);
        (self.retry_at, self.wait) = (Some(retry_at), wait * 2);
        retry_at
    }

    /// The time of a repeated search because of kinds that were not requested.
    pub(super) fn kinds_at(&self) -> Option<Instant> {
        self.kinds.read_at
    }

    /// The kinds that this node runs. The empty kind is that of jobs in code.
    pub(super) fn kinds(&self, node: &Node) -> Vec<Arc<str>> {
        let exact = node.router.exact().map(Arc::from);
        std::iter::once(Arc::from("")).chain(exact).chain(self.kinds.all.iter().cloned()).collect()
    }

    /// The query. Its limit grows by the number of `known` records, because records that cannot be
    /// run now would otherwise hide others.
    pub(super) fn find<'a>(&self, kinds: &'a [&'a str], now: Time, known: usize) -> DueQuery<'a> {
        // Up to and including the times that `is_due` accepts: times are whole milliseconds.
        let until = saturating_add(now, AHEAD + Duration::from_millis(1));
        DueQuery::new(kinds, until, FOUND + known).skipping(self.skip)
    }

    /// Applies a result: whether it was full, and the due time of the first record after it. If
    /// other nodes work on what is due, and one search does not return all of it, the next search
    /// begins at a random offset.
    pub(super) fn answered(
        &mut self,
        node: &Node,
        next_due: Option<Time>,
        is_full: bool,
        is_losing: bool,
    ) {
        (self.retry_at, self.wait) = (None, MIN_BACKOFF);
        let left_out = self.skip > 0;
        // Records that the search left out are still due.
        self.at = if left_out { Time::MIN_UTC } else { next_due.unwrap_or(Time::MAX_UTC) };
        if is_full {
            self.is_crowded |= is_losing;
        } else if !left_out {
            self.is_crowded = false;
        }
        self.skip = match self.is_crowded && is_full {
            true => FOUND * (node.runtime.random() as usize % PLACES),
            false => 0,
        };
    }

    /// Reads the store's kinds that match this node's patterns. Kinds are read again when one may
    /// have been added, but not each time: a busy store has many notifications and few new kinds.
    pub(super) async fn learn_kinds(&mut self, node: &Node, poll_at: Instant) {
        let now = node.runtime.now();
        let (true, Some(queries)) = (node.router.has_patterns(), node.backend.queries()) else {
            return;
        };
        let asked_before = self.kinds.read_at.take().is_some();
        if !self.kinds.is_old && !asked_before && now < poll_at {
            return;
        }
        self.kinds.read_at = self.kinds.ask_at.filter(|ask_at| *ask_at > now);
        if self.kinds.read_at.is_some() {
            return;
        }
        match within(node, "kinds", queries.kinds()).await {
            Ok(kinds) => {
                let exact = |kind: &String| node.router.exact().any(|exact| exact == kind);
                let mine = |kind: &String| node.router.matches(kind) && !exact(kind);
                self.kinds.all = kinds.into_iter().filter(mine).map(Arc::from).collect();
                self.kinds.is_old = false;
                self.kinds.ask_at = Some(later(now, KINDS));
            }
            Err(error) => node.store_failed(Part::Search, error),
        }
    }
}
