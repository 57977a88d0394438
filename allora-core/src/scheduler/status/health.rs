//! Events, the state of the store, and the health of the node.

use super::store_health::{Failure, Part, State};
use crate::{
    error::{Error, ErrorKind},
    event::{Event, log},
    health::{
        CapacityStatus, Health, JobProblem, JobStatus, KeyWait, KindCapacity, NodesStatus,
        Notifications, OrphansStatus, Place, ProblemReason, StoreStatus,
    },
    job::Placement,
    pattern::Pattern,
    registry::NodeInfo,
    scheduler::node::{Node, Stop},
};
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::Duration,
};

impl Node {
    /// Logs and publishes events, and hands them to the user's closure.
    pub(crate) fn emit(&self, events: impl IntoIterator<Item = Event>) {
        for event in events {
            log(&event, &self.id);
            self.metrics.observe(&event);
            self.board.observe(&event, || self.now(&self.shared()));
            if let Some(on_event) = &self.on_event {
                // A panic in user code must not end the scheduler.
                let _ = catch_unwind(AssertUnwindSafe(|| on_event(&event)));
            }
        }
    }

    /// The store has replied to a request of this part.
    pub(in crate::scheduler) fn store_answered(&self, part: Part) {
        self.store_is(part, None);
    }

    /// A request of this part has failed.
    pub(in crate::scheduler) fn store_failed(&self, part: Part, error: Error) {
        self.store_is(part, Some(error));
    }

    /// Emits an event when the store's state changes. Only an error other than `Unavailable` is a
    /// rejection: a store that is slow has not rejected anything.
    fn store_is(&self, part: Part, error: Option<Error>) {
        let now = self.runtime.now();
        let failure = error.as_ref().map(|error| {
            let is_down = error.kind() == ErrorKind::Unavailable;
            let state = if is_down { State::Down } else { State::Fails };
            let sent = now.checked_sub(self.config.store_timeout).unwrap_or(now);
            Failure { state, at: self.now(&self.shared()), error: error.chain(), sent }
        });
        let Some(state) = self.store.set(part, failure, now) else { return };
        let event = match (state, error) {
            (State::Up, _) => Event::StoreUp,
            (State::Down, Some(error)) => Event::StoreDown { error: Arc::new(error) },
            (State::Fails, Some(error)) => Event::StoreError { error: Arc::new(error) },
            // One of several parts that fail has recovered.
            (_, None) => return,
        };
        self.emit([event]);
    }

    /// The state of this node, from what its parts have published.
    pub(in crate::scheduler) fn health(&self) -> Health {
        let mono = self.runtime.now();
        let (at, age, is_stopping, mut capacity, kind_capacity, jobs, program) =
            {
                let shared = self.shared();
                let capacity = CapacityStatus {
                    limit: self.config.concurrency,
                    used: shared.running,
                    reserved: [Placement::OneNode, Placement::EveryNode]
                        .map(|one| shared.claiming[one])
                        .iter()
                        .sum(),
                    full_since: None,
                };
                let limits = self.router.limits().iter().zip(&shared.running_kinds);
                let of_kind = |((pattern, limit), used): (&(Pattern, usize), &usize)| {
                    KindCapacity { kinds: pattern.to_string(), limit: *limit, used: *used }
                };
                let kind_capacity: Vec<_> = limits.map(of_kind).collect();
                let age = shared.clock_is_known.then(|| shared.clock.age(mono));
                let is_stopping = shared.stop != Stop::No;
                let (at, program) = (shared.clock.now(mono), shared.report.conditions.clone());
                (at, age, is_stopping, capacity, kind_capacity, shared.jobs(), program)
            };
        let conditions = self.board.conditions().clone();
        capacity.full_since = conditions.full_since;
        let store = StoreStatus {
            last_reply: age.map(|age| at - chrono::TimeDelta::from_std(age).unwrap_or_default()),
            age,
            failing: self.store.failing(),
            durability_warning: conditions.durability_warning.map(|text| text.to_string()),
        };
        let paused = self.board.paused();
        let remembered = self.board.overdue(at);
        // If the store does not answer, nothing contradicts what this node remembers.
        let is_down = store.failing.iter().any(|failing| failing.part == Part::Claims);
        let is_overdue = |name: &Arc<str>| {
            let looked = conditions.overdue.binary_search_by(|(other, _)| other.cmp(name));
            is_down || looked.is_ok()
        };
        let in_code = remembered.into_iter().filter(|(name, ..)| is_overdue(name));
        let in_code = in_code.map(|(name, since, _)| (name, since));
        let stored = conditions.overdue.iter().filter(|(name, _)| !self.board.has(name)).cloned();
        let overdue = in_code.chain(stored).filter(|(name, _)| {
            // A problem of the job explains that it is not claimed.
            !conditions.problems.contains_key(name)
        });
        let overdue = overdue.map(|(name, since)| JobProblem {
            name: name.to_string(),
            reason: ProblemReason::Overdue,
            detail: String::new(),
            since,
            until: None,
        });
        let problems = conditions.problems.values().map(|problem| JobProblem::clone(problem));
        let mut problems: Vec<_> = problems.chain(overdue).collect();
        problems.sort_by(|one, other| one.name.cmp(&other.name));
        let notifications = match conditions.notifications {
            Notifications::Unsupported if self.backend.notifier().is_some() => {
                Notifications::Connecting
            }
            notifications => notifications,
        };
        let fleet = conditions.fleet.unwrap_or_default();
        let dead = fleet.nodes.iter().filter(|node| node.is_dead());
        let nodes = NodesStatus {
            live: fleet.live().count(),
            idle: fleet.live().filter(|node| node.is_idle()).count(),
            dead: dead.map(|node| node.node.clone()).collect(),
        };
        let waits =
            [Placement::OneNode, Placement::EveryNode].map(|one| &conditions.key_waits[one]);
        let waits = waits.into_iter().flatten().map(|wait| KeyWait::clone(wait));
        let mut key_waits: Vec<KeyWait> = waits.collect();
        key_waits.sort_by(|one, other| one.job.cmp(&other.job));
        let orphans = fleet.live().max_by_key(|node| node.orphans).map(|node| OrphansStatus {
            count: node.orphans,
            examples: node.orphan_examples.clone(),
        });
        Health {
            node: self.id.to_string(),
            at,
            is_stopping,
            store,
            notifications,
            clock_offset_ms: conditions.clock_offset_ms,
            capacity,
            kind_capacity,
            unresolved_claims: conditions.unresolved,
            jobs,
            paused,
            problems,
            key_waits,
            unhandled_kinds: conditions.kinds.into_values().collect(),
            data_mismatches: conditions.mismatches.into_values().collect(),
            invalid_schedules: conditions.invalid_schedules,
            nodes,
            unmatched_labels: fleet.unmatched_labels().into_keys().map(str::to_owned).collect(),
            conditions: program,
            disagreements: NodeInfo::disagreements(&fleet.nodes),
            orphans: orphans.unwrap_or_default(),
        }
    }

    /// The conditions that keep jobs from running on this node, for its record: the first of each kind of
    /// condition. It looks at no job.
    pub(in crate::scheduler) fn recent_problems(&self) -> Vec<String> {
        let failing = self.store.failing();
        let mut lines: Vec<String> = failing
            .iter()
            .map(|failing| format!("store: {}: {}", failing.part.word(), failing.error))
            .collect();
        let conditions = self.board.conditions();
        if conditions.full_since.is_some() {
            lines.push("capacity: due occurrences wait".into());
        }
        if !conditions.overdue.is_empty() {
            lines.push(format!("overdue: {} jobs", conditions.overdue.len()));
        }
        let mismatches = conditions.mismatches.values().take(8);
        lines.extend(mismatches.map(|one| format!("kind {}: its data does not fit", one.kind)));
        if let Some(invalid) = &conditions.invalid_schedules {
            lines.push(format!("schedules: {} cannot be run", invalid.count));
        }
        let problems = conditions.problems.values().take(8);
        lines.extend(problems.map(|one| format!("job {}: {}", one.name, one.reason.word())));
        lines
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
            };
            match statuses.binary_search_by(|status| status.name.as_str().cmp(run.name())) {
                Ok(i) => statuses[i].running.push(place),
                Err(i) => statuses.insert(i, JobStatus::of_run(&run, place)),
            }
        }
        statuses
    }
}
