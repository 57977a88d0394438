//! The record that this node keeps about itself, and its view of the other nodes.
//!
//! It has requests of its own, for which no claim, search or end waits. If one fails, it is tried
//! again only at the next heartbeat. The record travels with no other request: the poll of a node
//! is a query, which carries no operation, and next to claims the record would delay their replies
//! by a load and a commit.

use super::retention::Retention;
use crate::{
    backend::{Action, Applied, Operation, Queries, Replan, Reply},
    condition::{Code, Condition, StorePart},
    error::{Error, ErrorKind, Result},
    job::Placement,
    planner::Input,
    registry::{FORMAT, Fleet, NodeInfo, Rankings, encode, name_hash, read_nodes, record_of},
    scheduler::{
        monotonic::later,
        node::{Node, Stop},
        store_request::{MAX_BACKOFF, MIN_BACKOFF, send, within},
    },
    time::{Time, whole_millis},
};
use futures::future::{Either, select};
use std::{
    collections::BTreeSet,
    future::poll_fn,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

/// The number of heartbeats from one look at the other nodes to the next.
const LOOK: u32 = 4;

/// The number of looks without a reply after which the order of the nodes is forgotten.
const RANKED: u32 = 3;

/// The number of records that one request removes.
const FORGET: usize = 100;

pub(in crate::scheduler) struct Registry {
    node: Arc<Node>,
    record: String,
    started_at: Time,
    /// The generation of the record as this node wrote it last; `None` if it is not known.
    generation: Option<i64>,
    /// The store may have the record, also while its generation is not known: a heartbeat that is
    /// interrupted by the end of the node may have written it.
    may_be_written: bool,
    /// The last request has failed.
    has_failed: bool,
    /// The number of heartbeats since the last look.
    beats: u32,
    /// The nodes are ranked again at the next heartbeat: others may have started with this one.
    is_starting: bool,
    /// The orders of the nodes, and the time of the look that showed them.
    rankings: Rankings,
    ranked_at: Instant,
    /// The nodes of the last look that live or stop.
    live: BTreeSet<String>,
    /// The unmatched labels of the last look.
    labels: BTreeSet<String>,
    retention: Retention,
    /// The other parts of the node have ended.
    pub(in crate::scheduler) is_over: Arc<AtomicBool>,
}

impl Registry {
    pub(in crate::scheduler) fn new(node: Arc<Node>) -> Self {
        let record = record_of(&node.id);
        let (started_at, now) = (node.runtime.wall(), node.runtime.now());
        Self {
            node,
            record,
            started_at,
            generation: None,
            may_be_written: false,
            has_failed: false,
            beats: LOOK,
            is_starting: false,
            rankings: Rankings::default(),
            ranked_at: now,
            live: BTreeSet::new(),
            labels: BTreeSet::new(),
            retention: Retention::new(now),
            is_over: Arc::default(),
        }
    }

    /// Keeps the record until the scheduler is stopped and no run is active, and removes it then.
    pub(in crate::scheduler) async fn run(mut self) {
        let node = self.node.clone();
        // Without queries no node could read the records.
        let Some(queries) = node.backend.queries() else { return };
        loop {
            let next = later(node.runtime.now(), node.config.heartbeat);
            let is_stopped = {
                let work = pin!(self.beat_and_look(queries));
                matches!(select(pin!(node.stopped(&node.registry)), work).await, Either::Left(_))
            };
            if is_stopped || self.is_stopped_before(next).await {
                let has_answered = self.drain().await;
                return self.leave(has_answered).await;
            }
        }
    }

    /// Waits for the next heartbeat, while the pass over the records goes on.
    async fn is_stopped_before(&mut self, next: std::time::Instant) -> bool {
        let node = self.node.clone();
        let mut timer = node.runtime.sleep_until(next);
        let mut stopped = pin!(node.stopped(&node.registry));
        poll_fn(|cx| {
            if stopped.as_mut().poll(cx).is_ready() {
                return std::task::Poll::Ready(true);
            }
            if self.retention.poll(cx).is_ready() {
                self.retention.report(&node);
            }
            timer.as_mut().poll(cx).map(|()| false)
        })
        .await
    }

    async fn beat_and_look(&mut self, queries: &dyn Queries) {
        let result = self.beat_and_try_to_look(queries).await;
        self.has_failed = result.is_err();
        let oldest = self.node.config.heartbeat * (LOOK * RANKED);
        if result.is_err() && self.node.runtime.now() >= later(self.ranked_at, oldest) {
            self.rank(Rankings::default());
        }
        match result {
            Ok(()) => self.node.store_answered(StorePart::Registry),
            // The other parts report a store that does not answer.
            Err(error) if error.kind() == ErrorKind::Unavailable => {}
            Err(error) => self.node.store_failed(StorePart::Registry, &error),
        }
    }

    async fn beat_and_try_to_look(&mut self, queries: &dyn Queries) -> Result {
        let now = self.beat().await?;
        self.beats += 1;
        let looks = self.beats > LOOK;
        if looks || self.is_starting {
            let node = self.node.clone();
            let states = within(&node, "list", read_nodes(queries)).await?;
            let fleet = Arc::new(Fleet::of(&states, now));
            self.rank_by(&fleet, now);
            let is_first = node.board.seen().fleet.is_none();
            self.is_starting = looks && is_first;
            if !looks {
                return Ok(());
            }
            self.beats = 1;
            node.board.seen().fleet = Some(fleet.clone());
            self.report(&fleet);
            if fleet.first() == Some(&*node.id) {
                forget(&node, &fleet).await?;
                self.retention.renew(&node, &fleet);
            } else {
                self.retention.is_of_another_node(&node);
            }
        }
        Ok(())
    }

    /// Ranks the nodes that have the same work as this one.
    fn rank_by(&mut self, fleet: &Fleet, now: Time) {
        let info = self.info();
        self.ranked_at = self.node.runtime.now();
        self.rank(Rankings::of(fleet, &info, now));
    }

    fn rank(&mut self, rankings: Rankings) {
        if self.rankings == rankings {
            return;
        }
        self.rankings = rankings.clone();
        // It has no destructor of the user.
        let _ = self.node.shared().inboxes[Placement::OneNode].push(Input::Rankings(rankings));
        self.node.claimers[Placement::OneNode].notify();
    }

    /// Writes the record. Returns the store's time.
    async fn beat(&mut self) -> Result<Time> {
        let text = encode(&self.info());
        // At most: a redefinition that is refused, a registration, a redefinition.
        for _ in 0..4 {
            let action = match self.generation.take() {
                None => Action::Register { definition: &text, version: 0, first: None },
                Some(generation) => Action::Redefine {
                    generation,
                    definition: &text,
                    version: 0,
                    plan: Replan::default(),
                },
            };
            let node = self.node.clone();
            self.may_be_written = true;
            let applied = send(&node, &[Operation::new(&self.record, action)]).await?;
            let now = whole_millis(applied.now);
            if let Reply::State(state) = applied.single()? {
                if let Some(reason) = state.unreadable {
                    let text = format!("the record of this node cannot be read: {reason}");
                    return Err(Error::new(ErrorKind::Other, text).op("registry"));
                }
                self.generation = Some(state.generation);
                if state.definition == text {
                    return Ok(now);
                }
            }
        }
        let text = "another process writes the record of this node; report a defect of allora";
        Err(Error::new(ErrorKind::Other, text).op("registry"))
    }

    fn info(&self) -> NodeInfo {
        let node = &self.node;
        let (now, (running, stop), (jobs, jobs_hash), job_names, needed_labels, report) = {
            let shared = node.shared();
            let (needed, names) = (shared.needed_labels.clone(), node.shared_job_names(&shared));
            let report = shared.report.clone();
            let state = (shared.running, shared.stop);
            (node.now(&shared), state, shared.shared_jobs(), names, needed, report)
        };
        let (orphans, router) = (self.retention.orphans(), node.router());
        NodeInfo {
            node: node.id.to_string(),
            version: node.config.build_version.clone(),
            format: FORMAT,
            kinds: router.patterns().cloned().collect(),
            kinds_change: router.can_change(),
            labels: node.config.labels.clone(),
            needed_labels,
            is_complete: true,
            concurrency: node.config.concurrency,
            running,
            progress: node.progress(),
            jobs,
            jobs_hash,
            job_names,
            kept_names: report.kept_jobs.iter().map(|name| name_hash(name)).collect(),
            kept_prefixes: report.kept_prefixes,
            settings: report.settings,
            unique_name: report.unique_name,
            left_jobs: node.board.left_jobs(),
            problems: node.recorded_conditions(),
            orphans: orphans.count,
            orphan_examples: orphans.examples.clone(),
            started_at: self.started_at,
            heartbeat: node.config.heartbeat,
            last_seen: whole_millis(now),
            is_live: stop == Stop::No,
            is_stopping: stop != Stop::No,
        }
    }

    /// Reports the conditions of the nodes.
    fn report(&mut self, fleet: &Fleet) {
        let live = fleet.nodes.iter().filter(|node| !node.is_dead());
        let live: BTreeSet<String> = live.map(|node| node.node.clone()).collect();
        let labels = fleet.unmatched_labels();
        let (dead, unmatched): (Vec<_>, Vec<_>) = {
            let seen = self.node.board.seen();
            let active = &seen.active;
            let has_died = |node: &&NodeInfo| {
                let was_alive = self.live.contains(&node.node);
                node.is_dead() && (was_alive || active.get(Code::NodeDead, &node.node).is_some())
            };
            let dead = fleet.nodes.iter().filter(has_died).map(|node| {
                let (node, last_seen) = (node.node.as_str().into(), node.last_seen);
                Condition::NodeDead { node, last_seen }
            });
            // A node that starts is not in the registry at once: the second look counts.
            let again = labels.iter().filter(|(label, _)| self.labels.contains(**label));
            let unmatched = again.map(|(label, nodes)| Condition::LabelUnmatched {
                label: (*label).into(),
                nodes: *nodes,
            });
            (dead.collect(), unmatched.collect())
        };
        self.live = live;
        self.labels = labels.into_keys().map(str::to_owned).collect();
        let differences = NodeInfo::disagreements(&fleet.nodes).into_iter();
        let differences = differences.map(|what| Condition::NodesDiffer { what: what.into() });
        self.node.set_conditions(Code::NodeDead, dead);
        self.node.set_conditions(Code::LabelUnmatched, unmatched);
        self.node.set_conditions(Code::NodesDiffer, differences);
    }

    /// Says in the record that the node stops, as long as runs are active. Returns whether the store
    /// has answered last.
    async fn drain(&mut self) -> bool {
        let (node, is_over) = (self.node.clone(), self.is_over.clone());
        let (mut wait, mut has_answered) = (MIN_BACKOFF, false);
        while self.may_be_written && node.shared().running > 0 && !is_over.load(Ordering::Acquire) {
            if has_answered || !node.store_is_down() {
                has_answered = self.beat().await.is_ok();
            }
            self.has_failed &= !has_answered;
            let pause = if has_answered { node.config.heartbeat } else { wait };
            wait = (wait * 2).min(MAX_BACKOFF);
            self.has_failed &= ends_within(&node, pause, &is_over).await;
        }
        has_answered
    }

    /// Removes the record, and tries again until the other parts of the node have ended. A store that
    /// does not answer is not asked, unless it has answered the registry last: the record shows by its
    /// age that the node is dead.
    async fn leave(self, mut has_answered: bool) {
        let Self { node, record, may_be_written, mut has_failed, is_over, .. } = self;
        if !may_be_written {
            return;
        }
        let mut wait = MIN_BACKOFF;
        loop {
            let is_last = is_over.load(Ordering::Acquire);
            if !has_failed && (has_answered || !node.store_is_down()) {
                let delete = [Operation::new(&record, Action::Delete)];
                if send(&node, &delete).await.and_then(Applied::single).is_ok() {
                    return;
                }
                (has_failed, has_answered) = (true, false);
            }
            if is_last {
                return;
            }
            // After a failure, the last request is not sent again when the other parts have ended.
            has_failed &= ends_within(&node, wait, &is_over).await;
            wait = (wait * 2).min(MAX_BACKOFF);
        }
    }
}

/// Waits for so long, or until the other parts of the node have ended. Returns whether they have.
async fn ends_within(node: &Node, wait: Duration, is_over: &AtomicBool) -> bool {
    let ended = pin!(async {
        while !is_over.load(Ordering::Acquire) {
            node.registry.notified().await;
        }
    });
    let timer = node.runtime.sleep_until(later(node.runtime.now(), wait));
    matches!(select(ended, timer).await, Either::Left(_))
}

/// Removes the records of nodes that have been dead for a day.
async fn forget(node: &Node, fleet: &Fleet) -> Result {
    for records in fleet.forgotten.chunks(FORGET) {
        let operations: Vec<Operation<'_>> = records
            .iter()
            .map(|(name, fence)| {
                Operation::new(name, Action::Prune { fence: *fence, cursor: None })
            })
            .collect();
        send(node, &operations).await?;
    }
    Ok(())
}
