//! The watch over what does not run although nothing reports a reason: overdue occurrences, kinds
//! that no node handles, and stored schedules that wait for a time of a clock that was ahead. It
//! looks once a minute, and delays no other part.

use super::{ahead::Ahead, overdue::Overdue, streaks::Streaks};
use crate::{
    backend::{DueQuery, TimeSource},
    condition::{Code, Condition, OVERDUE},
    error::Result,
    event::Event,
    scheduler::{monotonic::later, node::Node, store_request::within},
    time::Time,
};
use futures::future::{Either, select};
use std::{
    collections::BTreeMap,
    pin::pin,
    sync::{Arc, atomic::Ordering},
    time::Instant,
};

/// The largest number of due schedules of unhandled kinds that are read at once.
const LIMIT: usize = 100;

pub(in crate::scheduler) struct Watcher {
    node: Arc<Node>,
    overdue: Overdue,
    /// The unhandled kinds of the last look, each with one of its schedules and its due time. A kind is
    /// reported when that is seen again: what becomes due while a machine sleeps or a store is down is
    /// overdue for an instant.
    kinds: BTreeMap<String, (Arc<str>, Time)>,
    ahead: Ahead,
    streaks: Streaks,
}

impl Watcher {
    pub(in crate::scheduler) fn new(node: Arc<Node>) -> Self {
        let (overdue, kinds, ahead, streaks) = Default::default();
        Self { node, overdue, kinds, ahead, streaks }
    }

    /// Watches until the scheduler is stopped.
    pub(in crate::scheduler) async fn run(mut self) {
        let node = self.node.clone();
        loop {
            if self.is_stopped_before(later(node.runtime.now(), OVERDUE)).await {
                return;
            }
            node.forget_misfits();
            let work = pin!(self.read_store());
            let stopped = pin!(node.stopped(&node.watcher));
            if let Either::Right(_) = select(work, stopped).await {
                return;
            }
        }
    }

    /// Looks for what only requests show. If they fail, what is known stays; the claimer's own
    /// requests show that the store does not answer.
    async fn read_store(&mut self) {
        self.overdue.look(&self.node).await;
        // Tried again at the next look.
        let _ = self.streaks.look(&self.node).await;
        if self.node.router().is_empty() {
            return;
        }
        if let Ok(unhandled) = self.find_unhandled().await {
            self.report_kinds(unhandled);
        }
        self.find_ahead().await;
        // Tried again at the next look.
        let _ = self.ahead.check(&self.node).await;
    }

    /// Reports the stored schedules that wait because the store's clock was set back.
    async fn find_ahead(&mut self) {
        let node = self.node.clone();
        if !node.router().is_empty()
            && node.was_set_back.swap(false, Ordering::AcqRel)
            && self.ahead.find(&node).await.is_err()
        {
            node.was_set_back.store(true, Ordering::Release);
        }
    }

    /// Waits until this time. Returns whether the scheduler was stopped before.
    async fn is_stopped_before(&mut self, at: Instant) -> bool {
        let node = self.node.clone();
        let wait = pin!(async {
            let mut sleep = pin!(node.runtime.sleep_until(at));
            while let Either::Right(_) = select(&mut sleep, pin!(node.set_back.notified())).await {
                self.find_ahead().await;
            }
        });
        matches!(select(pin!(node.stopped(&node.watcher)), wait).await, Either::Left(_))
    }

    /// The kinds that no live node has a handler for and of which a schedule is due: the first one of
    /// each, with its due time. `None` for kinds that the query did not reach.
    async fn find_unhandled(&self) -> Result<Unhandled> {
        let node = &self.node;
        let Some(queries) = node.backend.queries() else {
            return Ok(Unhandled::default());
        };
        let kinds = within(node, "kinds", queries.kinds()).await?;
        let (fleet, router) = (node.board.seen().fleet.clone(), node.router());
        let is_handled = |kind: &str| {
            router.matches(kind) || fleet.as_ref().is_some_and(|fleet| fleet.handles(kind))
        };
        let kinds: Vec<&str> =
            kinds.iter().map(String::as_str).filter(|kind| !is_handled(kind)).collect();
        if kinds.is_empty() {
            return Ok(Unhandled::default());
        }
        let now = node.now(&node.shared());
        let until = now - OVERDUE;
        let query = DueQuery::new(&kinds, until, LIMIT).node(&node.id);
        let time = TimeSource::Store { fallback: node.runtime.wall() };
        let due = within(node, "find_due", queries.find_due(query, time)).await?;
        let mut unhandled = Unhandled { first: BTreeMap::new(), is_full: due.found.len() >= LIMIT };
        for state in due.found {
            if let Some(due_at) = state.due_at.filter(|_| !state.kind.is_empty()) {
                let first = || Waiting { name: state.name.into(), due_at, count: 0 };
                unhandled.first.entry(state.kind).or_insert_with(first).count += 1;
            }
        }
        Ok(unhandled)
    }

    fn report_kinds(&mut self, unhandled: Unhandled) {
        let Unhandled { first, is_full } = unhandled;
        let mut before = std::mem::take(&mut self.kinds);
        let mut conditions = Vec::new();
        for (kind, Waiting { name: example, due_at, count: waiting }) in first {
            let seen = (example.clone(), due_at);
            let was_seen = before.remove(&kind).as_ref() == Some(&seen);
            if was_seen || self.is_reported(&kind) {
                let kind = kind.as_str().into();
                conditions.push(Condition::KindUnhandled { kind, example, due_at, waiting });
            }
            self.kinds.insert(kind, seen);
        }
        if !is_full {
            return self.node.set_conditions(Code::KindUnhandled, conditions);
        }
        // The others may be behind the limit.
        self.kinds.append(&mut before);
        self.node.emit(conditions.into_iter().map(Event::Began));
    }

    fn is_reported(&self, kind: &str) -> bool {
        self.node.board.seen().active.get(Code::KindUnhandled, kind).is_some()
    }
}

/// The due schedules of unhandled kinds.
#[derive(Default)]
struct Unhandled {
    first: BTreeMap<String, Waiting>,
    /// There may be more kinds.
    is_full: bool,
}

/// The due schedules of one kind: the first one, and their number.
struct Waiting {
    name: Arc<str>,
    due_at: Time,
    count: usize,
}
