//! The events of a node, the state of its store, and its health, as methods of the node.

use super::active::Failure;
use crate::{
    condition::{ActiveCondition, Code, Condition, StorePart},
    error::{Error, ErrorKind},
    event::{Event, log},
    health::{
        CapacityStatus, Health, JobStatus, KindCapacity, NodesStatus, Notifications, Place,
        StoreStatus,
    },
    job::Placement,
    registry::RunProgress,
    scheduler::node::{Node, Stop},
};
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::Duration,
};

/// The largest number of conditions in the record of a node.
const RECORDED: usize = 8;

impl Node {
    /// Logs and publishes events, and hands them to the user's closure. A condition that has begun, or
    /// ended, already has no further event.
    pub(crate) fn emit(&self, events: impl IntoIterator<Item = Event>) {
        for event in events {
            match &event {
                Event::Began(_) | Event::Ended(_) => {
                    let now = self.now(&self.shared());
                    let event = self.board.seen().active.apply(event, now);
                    self.tell(event);
                }
                Event::RunEnded { name, outcome, .. } => {
                    self.board.ended(name, outcome, self.now(&self.shared()));
                    self.tell([event]);
                }
                _ => self.tell([event]),
            }
        }
    }

    /// A condition has begun, or has new evidence.
    pub(in crate::scheduler) fn begin_condition(&self, condition: Condition) {
        self.emit([Event::Began(condition)]);
    }

    /// A condition of this sort about this name is over, if there is one.
    pub(in crate::scheduler) fn end_condition(&self, code: Code, name: &str) {
        let event = self.board.seen().active.end(code, name);
        self.tell(event);
    }

    /// These are all conditions of their sort.
    pub(in crate::scheduler) fn set_conditions(
        &self,
        code: Code,
        conditions: impl IntoIterator<Item = Condition>,
    ) {
        let now = self.now(&self.shared());
        let events = self.board.seen().active.set(code, conditions, now);
        self.tell(events);
    }

    /// This node does not have the job any more.
    pub(in crate::scheduler) fn end_conditions_of(&self, name: &str) {
        let events = self.board.seen().active.end_job(name);
        self.tell(events);
    }

    fn tell(&self, events: impl IntoIterator<Item = Event>) {
        for event in events {
            log(&event, &self.id);
            self.metrics.observe(&event);
            if let Some(on_event) = &self.on_event {
                // A panic in user code must not end the scheduler.
                let _ = catch_unwind(AssertUnwindSafe(|| on_event(&event)));
            }
        }
    }

    /// The store has replied to a request of this part.
    pub(in crate::scheduler) fn store_answered(&self, part: StorePart) {
        let events = self.board.seen().active.set_store(part, None, self.runtime.now());
        self.tell(events);
    }

    /// A request of this part has failed. Only an error other than `Unavailable` is a rejection: a
    /// store that is slow has not rejected anything.
    pub(in crate::scheduler) fn store_failed(&self, part: StorePart, error: &Error) {
        let now = self.runtime.now();
        let failure = Failure {
            is_rejected: error.kind() != ErrorKind::Unavailable,
            at: self.now(&self.shared()),
            error: error.chain(),
            sent: now.checked_sub(self.config.store_timeout).unwrap_or(now),
        };
        let events = self.board.seen().active.set_store(part, Some(failure), now);
        self.tell(events);
    }

    /// This part has nothing more to send to the store.
    pub(in crate::scheduler) fn store_is_idle(&self, part: StorePart) {
        let events = self.board.seen().active.is_idle(part);
        self.tell(events);
    }

    /// `true` if the store does not answer some part of the node.
    pub(in crate::scheduler) fn store_is_down(&self) -> bool {
        self.board.seen().active.is_down()
    }

    /// The state of this node, from what its parts have published.
    pub(in crate::scheduler) fn health(&self) -> Health {
        let mono = self.runtime.now();
        let router = self.router();
        let (at, age, is_stopping, capacity, kind_capacity, jobs) = {
            let shared = self.shared();
            let capacity = CapacityStatus {
                limit: self.config.concurrency,
                used: shared.running,
                reserved: [Placement::OneNode, Placement::EveryNode]
                    .map(|one| shared.claiming[one])
                    .iter()
                    .sum(),
            };
            let limits = shared.kind_limits.iter().zip(&shared.running_kinds);
            let limits = router.limited_kinds().zip(limits);
            let of_kind = |(kinds, (limit, used)): (String, (&usize, &usize))| KindCapacity {
                kinds,
                limit: *limit,
                used: *used,
            };
            let kind_capacity: Vec<_> = limits.map(of_kind).collect();
            let age = shared.clock_is_known.then(|| shared.clock.age(mono));
            let is_stopping = shared.stop != Stop::No;
            (shared.clock.now(mono), age, is_stopping, capacity, kind_capacity, shared.jobs())
        };
        let (conditions, is_subscribed, clock_offset_ms, unresolved_claims, fleet) = {
            let seen = self.board.seen();
            // The values are copied without the lock.
            let conditions: Vec<Arc<ActiveCondition>> = seen.active.all().cloned().collect();
            let fleet = seen.fleet.clone().unwrap_or_default();
            (conditions, seen.is_subscribed, seen.clock_offset_ms, seen.unresolved, fleet)
        };
        let is_off = |one: &Arc<ActiveCondition>| one.condition.kind() == Code::NotificationsDown;
        let notifications = match (self.backend.notifier().is_some(), is_subscribed) {
            _ if conditions.iter().any(is_off) => Notifications::Off,
            (_, true) => Notifications::On,
            (true, false) => Notifications::Connecting,
            (false, false) => Notifications::Unsupported,
        };
        let dead = fleet.nodes.iter().filter(|node| node.is_dead());
        Health {
            node: self.id.to_string(),
            at,
            is_stopping,
            conditions: conditions.into_iter().map(Arc::unwrap_or_clone).collect(),
            store: StoreStatus {
                last_reply: age
                    .map(|age| at - chrono::TimeDelta::from_std(age).unwrap_or_default()),
                age,
            },
            notifications,
            clock_offset_ms,
            capacity,
            kind_capacity,
            unresolved_claims,
            jobs,
            paused: self.board.paused(at),
            nodes: NodesStatus {
                live: fleet.live().count(),
                idle: fleet.live().filter(|node| node.is_idle()).count(),
                dead: dead.map(|node| node.node.clone()).collect(),
            },
        }
    }

    /// The first conditions that keep jobs from running on this node, for its record.
    pub(in crate::scheduler) fn recorded_conditions(&self) -> Vec<String> {
        let seen = self.board.seen();
        let is_own = |one: &&Arc<ActiveCondition>| {
            one.condition.stops_jobs() && !one.condition.is_of_all_nodes()
        };
        let own = seen.active.all().filter(is_own).take(RECORDED);
        own.map(|one| format!("{}: {}", one.condition.code(), one.condition)).collect()
    }

    /// The progress of the active runs that have set any, for its record.
    pub(in crate::scheduler) fn progress(&self) -> Vec<RunProgress> {
        let shared = self.shared();
        let active = shared.active.iter().filter(|(_, active)| active.result.is_none());
        let progress = active.filter_map(|(_, active)| {
            let (name, fence) = (active.run.name().to_owned(), active.run.fence());
            Some(RunProgress { text: active.run.control().progress()?, name, fence })
        });
        let mut progress: Vec<RunProgress> = progress.collect();
        drop(shared);
        progress.sort();
        progress
    }

    /// The status of each job in code, and of each stored schedule that runs here.
    pub(in crate::scheduler) fn statuses(&self) -> Vec<JobStatus> {
        let mono = self.runtime.now();
        let (at, active) = {
            let shared = self.shared();
            let active = shared.active.iter().filter(|(_, active)| active.result.is_none());
            let active: Vec<_> =
                active.map(|(_, active)| (active.run.clone(), active.started)).collect();
            (shared.clock.now(mono), active)
        };
        let mut statuses = self.board.statuses(at);
        for (run, started) in active {
            let age = mono.saturating_duration_since(started).min(Duration::from_secs(1 << 32));
            let place = Place {
                node: self.id.to_string(),
                is_here: true,
                scheduled_at: run.scheduled_at(),
                since: Some(at - chrono::TimeDelta::from_std(age).unwrap_or_default()),
                progress: run.control().progress(),
            };
            match statuses.binary_search_by(|status| status.name.as_str().cmp(run.name())) {
                Ok(i) => statuses[i].running.push(place),
                Err(i) => statuses.insert(i, JobStatus::of_run(&run, place)),
            }
        }
        statuses
    }
}
