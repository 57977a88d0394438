//! A planner with its inputs: what the claimers of both placements have in common.

use crate::{
    backend::{Applied, Backend, Batch, Operation, Reply, TimeSource},
    error::Result,
    job::{JobSpec, Placement},
    planner::{Input, OnWay, Output, Planner, Request, Room, Start, Status, Tick, Unfinished},
    scheduler::{
        node::{Node, SharedState, Stop},
        store_request::{MAX_BACKOFF, reschedule},
    },
    time::{Time, saturating_add},
};
use std::{collections::HashMap, mem, sync::Arc, time::Instant};

pub(in crate::scheduler) struct Driver {
    pub(in crate::scheduler) node: Arc<Node>,
    placement: Placement,
    /// It calls user code, so that no lock is held where it is called.
    planner: Planner,
    /// The state of the planner after its last input.
    pub(in crate::scheduler) status: Status,
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
        let (status, on_way) = (Status::default(), OnWay::default());
        Self { node, placement, planner, status, on_way, local: HashMap::new() }
    }

    pub(in crate::scheduler) fn is_stopping(&self) -> bool {
        self.node.shared().stop != Stop::No
    }

    /// Gives the planner what the other parts of the scheduler have left, and then this. Publishes what
    /// follows, apart from the runs to start.
    fn handle(&mut self, input: impl FnOnce(&Node, &SharedState) -> Input) -> (Output, Time) {
        let node = &self.node;
        let (mut inputs, input, now) = {
            let mut shared = node.shared();
            let inputs = shared.inboxes[self.placement].take();
            (inputs, input(node, &shared), node.now(&shared))
        };
        if self.placement == Placement::EveryNode {
            inputs = inputs.into_iter().flat_map(|input| self.with_records(input)).collect();
        }
        for input in &inputs {
            if let Input::Remove(name) = input {
                self.node.end_conditions_of(name);
            }
        }
        inputs.push(input);
        let mut output = self.planner.handle(inputs, now);
        self.status = output.status;
        for (name, planned) in mem::take(&mut output.planned) {
            self.node.board.planned(&name, planned);
        }
        self.node.emit(mem::take(&mut output.events));
        (output, now)
    }

    /// The input for the jobs that run on every node, whose records are in memory.
    fn with_records(&mut self, input: Input) -> Vec<Input> {
        match &input {
            Input::Add(name, spec) => drop(self.local.insert(name.clone(), spec.clone())),
            Input::Remove(name) => {
                self.local.remove(name);
                self.node.local.remove(name);
            }
            // Begin again.
            Input::ClockSetBack => {
                let again = |(name, spec): (&Arc<str>, &JobSpec)| {
                    self.node.local.remove(name);
                    [Input::Remove(name.clone()), Input::Add(name.clone(), spec.clone())]
                };
                return self.local.iter().flat_map(again).collect();
            }
            _ => {}
        }
        vec![input]
    }

    /// Gives the planner an input. The caller starts the runs that follow from it.
    pub(in crate::scheduler) fn apply(&mut self, input: Input) -> Output {
        let (output, _) = self.handle(|_, _| input);
        // Capacity of runs is reserved until they are started.
        if output.starts.is_empty() {
            self.count_claims();
        }
        output
    }

    /// The capacity for more runs.
    fn room(node: &Node, shared: &SharedState, placement: Placement) -> Room {
        Room { all: node.room(shared, placement), kinds: shared.kind_room() }
    }

    /// The operations to send now. `is_told`: notifications tell what changes in the store.
    pub(in crate::scheduler) fn tick(&mut self, is_told: bool) -> (Tick, Time) {
        let (on_way, placement) = (self.on_way, self.placement);
        let mut before = 0;
        let (output, now) = self.handle(|node, shared| {
            let room = Self::room(node, shared, placement);
            before = room.all;
            Input::Tick { room, on_way, is_told }
        });
        let tick = output.tick;
        // Before the other claimer is polled, which would take the same capacity.
        self.count_claims();
        let mut shared = self.node.shared();
        shared.inboxes[placement].full = tick.full;
        // A run may have ended since the capacity was read.
        if tick.full && self.node.room(&shared, placement) > before {
            self.node.claimers[placement].notify();
        }
        drop(shared);
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
        let (now, placement) = (applied.now, self.placement);
        // A notification of the cancellation may have come before the run that it is about.
        let mut cancelled = Vec::new();
        let (mut taken, mut rejected) = (0, 0);
        for (request, reply) in requests.iter().zip(&applied.replies) {
            if request.claims_occurrence() {
                let is_taken = |reply: &Reply| !matches!(reply, Reply::Claimed(_));
                taken += usize::from(reply.as_ref().is_ok_and(is_taken));
                rejected += usize::from(reply.is_err());
            }
            if reply.as_ref().is_ok_and(|reply| self.shows_cancellation(reply)) {
                cancelled.push(request.name.clone());
            }
            if let Ok(Reply::State(state)) = reply {
                self.node.board.read(&self.node.id, state);
            }
        }
        self.node.metrics.claims_failed(taken, "taken");
        self.node.metrics.claims_failed(rejected, "rejected");
        let (output, _) = self.handle(|node, shared| {
            let room = Self::room(node, shared, placement);
            Input::Answered { requests, applied, room }
        });
        self.publish_unresolved();
        // The extensions and ends of this node's runs of these jobs go before claims.
        if !output.recovered.is_empty() {
            let recovered = output.recovered.iter();
            self.hold_overdue(|name| recovered.clone().any(|recovered| **recovered == *name));
        }
        self.start(output.starts, sent, now);
        cancelled.iter().for_each(|name| self.node.extend_now(name));
        output.failure.map_or(Ok(()), Err)
    }

    /// Starts claimed runs.
    pub(in crate::scheduler) fn start(&self, starts: Vec<Start>, sent: Instant, decided: Time) {
        self.node.start(starts, sent, decided);
        self.count_claims();
    }

    /// Counts the capacity that claims without a reply reserve: those on their way, and the unresolved
    /// ones.
    fn count_claims(&self) {
        self.node.shared().claiming[self.placement] = self.status.reserved;
    }

    /// When the store answers about some jobs again, the extensions and ends of this node's runs of
    /// them go before claims, which would record these runs as lost, or as expired. Waits at most for
    /// the next request of each.
    fn hold_overdue(&mut self, is_answered: impl Fn(&str) -> bool) {
        let wait = MAX_BACKOFF + self.node.config.store_timeout;
        let mut overdue = self.node.overdue_runs(wait);
        overdue.retain(|name| is_answered(name));
        if !overdue.is_empty() {
            let now = self.node.now(&self.node.shared());
            self.apply(Input::Hold(overdue, saturating_add(now, wait)));
        }
    }

    /// As [`hold_overdue`](Self::hold_overdue), for all jobs: the store answers after an outage.
    pub(in crate::scheduler) fn hold_all_overdue(&mut self) {
        self.hold_overdue(|_| true);
    }

    /// Hands over the claims without a run: the node stops.
    pub(in crate::scheduler) fn stop(self) -> Unfinished {
        self.planner.stop()
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
            self.node.board.seen().unresolved = self.status.unresolved;
        }
    }

    /// The replies to the requests of this input were lost.
    pub(in crate::scheduler) fn on_lost(&mut self, input: Input) {
        if let Input::Lost(requests) | Input::TimedOut { requests, .. } = &input {
            let claims = requests.iter().filter(|request| request.claims_occurrence()).count();
            self.node.metrics.claims_failed(claims, "no_reply");
        }
        self.apply(input);
        self.publish_unresolved();
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
