//! A planner with its inputs: the part that the claimers of both placements share.

use crate::{
    backend::{Applied, Backend, Batch, Operation, Reply, TimeSource},
    condition::Condition,
    error::{Error, Result},
    event::Event,
    job::{JobSpec, Placement},
    planner::{Answer, NewJob, OnWay, Planner, Request, SlotId, Tick},
    scheduler::{
        inbox::Input,
        node::{Node, Stop},
        store_request::{MAX_BACKOFF, reschedule},
    },
    time::{Time, saturating_add, whole_millis},
};
use std::{collections::HashMap, sync::Arc, time::Instant};

pub(in crate::scheduler) struct Driver {
    pub(in crate::scheduler) node: Arc<Node>,
    placement: Placement,
    /// It calls user code, so that no lock is held where it is called.
    pub(in crate::scheduler) planner: Planner,
    /// The requests on their way, if other requests do not wait for them.
    pub(in crate::scheduler) on_way: OnWay,
    /// The jobs that run on every node, to be registered again if the clock was wrong.
    local: HashMap<Arc<str>, JobSpec>,
}

impl Driver {
    pub(in crate::scheduler) fn new(
        node: Arc<Node>,
        placement: Placement,
        planner: Planner,
    ) -> Self {
        Self { node, placement, planner, on_way: OnWay::default(), local: HashMap::new() }
    }

    pub(in crate::scheduler) fn is_stopping(&self) -> bool {
        self.node.shared().stop != Stop::No
    }

    /// Applies what the other parts of the scheduler have left.
    pub(in crate::scheduler) fn take_inputs(&mut self) {
        let inputs = self.node.shared().inboxes[self.placement].take();
        let is_new = |input: &&Input| matches!(input, Input::Add(..));
        self.planner.reserve(inputs.iter().filter(is_new).count());
        for input in inputs {
            let name = input.name();
            self.apply(input);
            if let Some(name) = name {
                self.publish(&name);
            }
        }
    }

    /// Publishes the state of a job.
    fn publish(&self, name: &str) {
        if let Some(planned) = self.planner.planned(name) {
            self.node.board.planned(name, planned);
        }
    }

    fn apply(&mut self, input: Input) {
        match input {
            Input::Add(name, spec) => {
                if self.placement == Placement::EveryNode {
                    self.local.insert(name.clone(), spec.clone());
                }
                self.add(name, spec);
            }
            Input::Remove(name) => {
                self.local.remove(&name);
                self.remove(&name);
            }
            Input::Changed(name) => self.planner.on_notification(&name),
            Input::KeyFree(record) => self.planner.on_key_free(record.as_deref()),
            Input::Update(update) => {
                self.planner.on_run_update(update.for_planner(), update.reply());
            }
            Input::Failed(slot, run) => {
                let now = self.node.now(&self.node.shared());
                self.planner.on_failed_update(slot, run.name(), now);
            }
            Input::Rankings(rankings) => self.planner.set_rankings(rankings),
            Input::Calendars => self.planner.on_calendars(),
            Input::ClockSetBack if self.placement == Placement::OneNode => {
                self.planner.on_clock_set_back();
            }
            Input::ClockSetBack => {
                let jobs: Vec<_> =
                    self.local.iter().map(|(name, spec)| (name.clone(), spec.clone())).collect();
                for (name, spec) in jobs {
                    self.remove(&name);
                    self.add(name, spec);
                }
            }
        }
    }

    fn add(&mut self, name: Arc<str>, spec: JobSpec) {
        if let Err(error) = self.planner.add(NewJob::new(name.clone(), spec)) {
            self.node.begin_condition(Condition::JobInvalid { job: name, reason: error.chain() });
        }
    }

    fn remove(&mut self, name: &str) {
        self.planner.remove(name);
        self.node.end_conditions_of(name);
        if self.placement == Placement::EveryNode {
            self.node.local.remove(name);
        }
    }

    /// The operations to send now.
    pub(in crate::scheduler) fn tick(&mut self) -> (Tick, Time) {
        self.take_inputs();
        let node = &self.node;
        let (now, room, kind_room) = {
            let shared = node.shared();
            let room = node.room(&shared, self.placement);
            (node.now(&shared), room, node.kind_room(&shared))
        };
        let mut events = Vec::new();
        self.planner.set_kind_room(kind_room);
        self.planner.set_on_way(self.on_way);
        let mut tick = self.planner.tick(now, room, &mut events);
        drop(std::mem::take(&mut tick.removed));
        {
            let mut shared = node.shared();
            shared.inboxes[self.placement].full = tick.full;
            // A run may have ended since the capacity was read.
            if tick.full && node.room(&shared, self.placement) > room {
                node.claimers[self.placement].notify();
            }
        }
        for name in events.iter().filter_map(Event::job) {
            self.publish(name);
        }
        for name in self.planner.take_planned() {
            self.publish(&name);
        }
        self.node.emit(events);
        (tick, now)
    }

    /// Applies the replies, and starts the claimed runs. Returns the last error, if operations have
    /// failed; these are repeated.
    pub(in crate::scheduler) fn on_replies(
        &mut self,
        requests: Vec<Request>,
        applied: Applied,
        sent: Instant,
    ) -> Result {
        self.take_inputs();
        let now = applied.now;
        let (came_at, room, kind_room) = {
            let shared = self.node.shared();
            let room = self.node.room(&shared, self.placement);
            (self.node.now(&shared), room, self.node.kind_room(&shared))
        };
        self.planner.set_room(room, kind_room);
        let mut events = Vec::new();
        let (mut starts, mut failed, mut failure) = (Vec::new(), Vec::new(), None::<Error>);
        let mut recovered = Vec::new();
        // A notification of the cancellation may have come before the run that it is about.
        let mut cancelled = Vec::new();
        let (mut taken, mut rejected) = (0, 0);
        for (request, reply) in requests.into_iter().zip(applied.replies) {
            if request.claims_occurrence() {
                taken += usize::from(
                    reply.as_ref().is_ok_and(|reply| !matches!(reply, Reply::Claimed(_))),
                );
                rejected += usize::from(reply.is_err());
            }
            match reply {
                Ok(reply) => {
                    let name = request.name.clone();
                    if self.planner.has_failed(&request) {
                        recovered.push((request.slot(), name.clone()));
                    }
                    if self.shows_cancellation(&reply) {
                        cancelled.push(name.clone());
                    }
                    if let Reply::State(state) = &reply {
                        self.node.board.read(&self.node.id, state);
                    }
                    let answer = Answer::new(reply, whole_millis(now));
                    let answer = answer.came_at(came_at).min_fence(applied.min_fence);
                    starts.extend(self.planner.on_reply(request, answer, &mut events));
                    self.publish(&name);
                }
                Err(error) => {
                    failed.push(request);
                    failure = Some(error);
                }
            }
        }
        self.node.metrics.claims_failed(taken, "taken");
        self.node.metrics.claims_failed(rejected, "rejected");
        self.own_runs_first(recovered, whole_millis(now));
        self.planner.on_failed_replies(failed, whole_millis(now), &mut events);
        self.node.emit(events);
        self.publish_unresolved();
        self.node.start(starts, sent, now);
        cancelled.iter().for_each(|name| self.node.extend_now(name));
        failure.map_or(Ok(()), Err)
    }

    /// When the store answers about a job again, the extensions and ends of this node's runs of it go
    /// before claims, which would record these runs as lost, or as expired. Waits at most for the next
    /// request of each.
    fn own_runs_first(&mut self, recovered: Vec<(SlotId, Arc<str>)>, now: Time) {
        if recovered.is_empty() {
            return;
        }
        let wait = MAX_BACKOFF + self.node.config.store_timeout;
        let (overdue, until) = (self.node.overdue_runs(wait), saturating_add(now, wait));
        for (id, _) in recovered.into_iter().filter(|(_, name)| overdue.contains(name)) {
            self.planner.hold(id, until);
        }
    }

    /// As [`own_runs_first`](Self::own_runs_first), for all jobs: the store answers after an outage.
    pub(in crate::scheduler) fn hold_overdue(&mut self) {
        let wait = MAX_BACKOFF + self.node.config.store_timeout;
        let now = self.node.now(&self.node.shared());
        self.planner.hold_all(&self.node.overdue_runs(wait), saturating_add(now, wait));
    }

    /// `true` if the reply shows that runs of this node are to be cancelled.
    fn shows_cancellation(&self, reply: &Reply) -> bool {
        match reply {
            Reply::State(state) => {
                let mut leases = state.leases.iter();
                leases.any(|lease| lease.cancel_requested && *lease.node == *self.node.id)
            }
            Reply::Deleted => true,
            _ => false,
        }
    }

    /// Publishes the number of claims whose replies were lost. Those of every-node jobs never are.
    fn publish_unresolved(&self) {
        if self.placement == Placement::OneNode {
            self.node.board.seen().unresolved = self.planner.unresolved();
        }
    }

    /// The replies to these requests were lost.
    pub(in crate::scheduler) fn on_lost_replies(&mut self, requests: Vec<Request>) {
        self.take_inputs();
        let now = {
            let shared = self.node.shared();
            self.node.now(&shared)
        };
        let claims = requests.iter().filter(|request| request.claims_occurrence()).count();
        self.node.metrics.claims_failed(claims, "no_reply");
        let mut events = Vec::new();
        self.planner.on_lost_replies(requests, now, &mut events);
        self.publish_unresolved();
        self.node.emit(events);
    }
}

/// Sends requests as one batch.
pub(in crate::scheduler) async fn apply(
    node: &Node,
    backend: &dyn Backend,
    time: TimeSource,
    requests: &[Request],
) -> Result<Applied> {
    let operations: Vec<Operation<'_>> = requests.iter().map(Request::operation).collect();
    reschedule(node, backend, Batch::new(&node.id, time, &operations)).await
}
