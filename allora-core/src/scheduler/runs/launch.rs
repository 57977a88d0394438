//! The start of a claimed occurrence's run, and what happens when its future ends.

use super::{
    active_run::{ActiveRun, Doubt, ExitReason, LeaseTimers, RunId, RunResult, Turn},
    execution::{Report, Timeout, begin},
    middleware::Next,
};
use crate::{
    backend::{NotRunReason, Outcome},
    event::{Event, millis},
    job::{Delivery, JobSpec, Placement, Settings},
    planner::Start,
    run::{Control, Heartbeat, Inner, Run},
    scheduler::{
        monotonic::later,
        node::{Node, SharedState, Stop},
    },
    time::{Time, since},
};
use allora_schedule::Excluded;
use std::{
    sync::{Arc, Weak},
    time::{Duration, Instant},
};
use tracing::{Span, field::Empty, info_span};

impl Node {
    /// Starts claimed runs. `sent` is the time at which the confirming request was sent, by the
    /// monotonic clock; `decided` is the time of the claim, by the store's clock.
    pub(crate) fn start(self: &Arc<Self>, starts: Vec<Start>, sent: Instant, decided: Time) {
        if starts.is_empty() {
            return;
        }
        let now = self.runtime.now();
        let mut begun = Vec::with_capacity(starts.len());
        // Schedules are the user's code, which runs without the lock.
        let keeps_history = self.backend.history().is_some();
        let excluded = |start: &Start| keeps_history.then(|| start.excluded()).flatten();
        let starts: Vec<_> = starts.into_iter().map(|start| (excluded(&start), start)).collect();
        {
            let mut shared = self.shared();
            for (excluded, start) in starts {
                begun.extend(self.enter(&mut shared, (start, excluded), sent, decided, now));
            }
        }
        for (id, run, spec, late) in begun {
            let node = self.clone();
            let job = Next::new(self.middleware.clone(), spec.job);
            self.runtime.spawn(Box::pin(begin(Report::new(node, id), job, run, late)));
        }
    }

    /// Lets a run's code begin; `None` if it may not: the scheduler stops, the handler is not for
    /// its kind any more, or the run's lease may have ended.
    pub(in crate::scheduler) fn begin(
        &self,
        id: RunId,
        run: &Run,
        late: Duration,
    ) -> Option<(Span, Timeout)> {
        let now = self.runtime.now();
        let handles = self.handles(run);
        let timeout = {
            let mut shared = self.shared();
            let may_begin = handles && shared.stop == Stop::No && !run.is_cancelled();
            let active = shared.active.get_mut(id).filter(|_| may_begin)?;
            if now >= active.timers.cancel_at {
                return None;
            }
            (active.turn, active.started) = (Turn::Begun, now);
            active.settings.timeout
        };
        let span = run_span(run, late);
        let event = Event::RunStarted {
            name: run.shared_name(),
            kind: run.shared_kind(),
            node: self.id.clone(),
            scheduled_at: run.scheduled_at(),
            attempt: run.attempt(),
            fence: run.fence(),
            late,
        };
        span.in_scope(|| self.emit([event]));
        let timeout = timeout.map(|limit| (limit, self.runtime.sleep_until(later(now, limit))));
        Some((span, timeout))
    }

    /// The length of a lease of this job without extensions.
    fn lease_duration(&self, settings: &Settings) -> Duration {
        match settings.delivery {
            Delivery::AtLeastOnce { lease } => lease,
            Delivery::AtMostOnce => self.config.lost_after,
        }
    }

    /// Adds a run to the active ones. Returns the future to spawn, unless the run is released at
    /// once.
    fn enter(
        self: &Arc<Self>,
        shared: &mut SharedState,
        (start, excluded): (Start, Option<Excluded>),
        sent: Instant,
        decided: Time,
        now: Instant,
    ) -> Option<(RunId, Run, JobSpec, Duration)> {
        let Start { slot, name, spec, mut claimed, then, late, key, has_room, .. } = start;
        let duration = self.lease_duration(&spec.settings);
        let mut timers = LeaseTimers::new(sent, since(claimed.until, decided), duration);
        if let Some(key) = &key {
            // A short lease, which is extended at once.
            timers = timers.with(LeaseTimers::new(sent, since(key.until, decided), duration));
            timers.extend_at = sent;
        }
        let expired = now >= timers.cancel_at;
        let of_schedule = || spec.payload.as_ref().map(|payload| payload.data.clone());
        let data = claimed.data.take().map(Arc::from).or_else(of_schedule);
        let run = Run::new(Inner {
            namespace: self.namespace.clone(),
            name,
            node: self.id.clone(),
            claimed,
            then,
            excluded,
            data: data.unwrap_or_else(|| self.config.no_data.clone()),
            payload: spec.payload.clone(),
            heartbeat: Arc::downgrade(self) as Weak<dyn Heartbeat>,
            can_retry: matches!(spec.settings.delivery, Delivery::AtLeastOnce { .. }),
            control: Control::default(),
        });
        if let Some(key) = &key {
            run.control().set_mutex_fence(key.fence);
        }
        // A run is released at once if its lease may have ended already, if there is no capacity for
        // it, or if the scheduler began to stop after the request was sent.
        let refused = expired || !has_room || shared.stop != Stop::No;
        let end = refused.then_some(RunResult::Released);
        let live = ActiveRun {
            slot,
            started: now,
            run: run.clone(),
            settings: spec.settings.clone(),
            timers,
            extending: false,
            unconfirmed: false,
            doubt: None,
            cancelled_at: None,
            result: end,
            lost: false,
            key,
            turn: Turn::Waits,
        };
        let id = shared.active.insert(live);
        if shared.set_timers(id) {
            self.supervisor.notify();
        }
        if refused {
            shared.ended.push(id);
            self.supervisor.notify();
            return None;
        }
        shared.running += 1;
        if let Some(running) = run.limited().and_then(|kind| shared.running_kinds.get_mut(kind)) {
            *running += 1;
        }
        Some((id, run, spec, late))
    }

    /// Handles the end of a run's future.
    pub(crate) fn run_ended(&self, id: RunId, how: ExitReason, span: &Span) {
        let mono = self.runtime.now();
        let (event, fits, waited_for) = {
            let mut shared = self.shared();
            shared.running -= 1;
            shared.ended.push(id);
            let now = shared.clock.now(mono);
            let mut waited_for = [Placement::OneNode, Placement::EveryNode]
                .map(|placement| std::mem::take(&mut shared.inboxes[placement].full));
            let limited = shared.active.get(id).and_then(|active| active.run.limited());
            if let Some(running) = limited.and_then(|kind| shared.running_kinds.get_mut(kind)) {
                *running -= 1;
                waited_for[0] = true;
            }
            let Some(live) = shared.active.get_mut(id) else { return };
            let begun = !matches!(how, ExitReason::NotBegun);
            let is_dropped = matches!(how, ExitReason::Dropped);
            let verdict = live.result(how, now, self.config.extra_attempts);
            let is_cut_off =
                is_dropped && live.cancelled_at.is_none() && live.turn != Turn::Lost && !live.lost;
            let reason = is_cut_off.then_some(NotRunReason::Shutdown);
            let took = mono.saturating_duration_since(live.started);
            let is_doubtful =
                begun && live.run.control().may_be_completed() && verdict != RunResult::Succeeded;
            live.doubt =
                is_doubtful.then_some(Doubt { took, reason, overruled: None, is_over: false });
            let is_known = begun && !is_doubtful;
            let event = is_known.then(|| ended(&live.run, verdict.outcome(), reason, took));
            let fits = (verdict == RunResult::Succeeded && !live.run.kind().is_empty())
                .then(|| live.run.clone());
            live.result = Some(verdict);
            (event, fits, waited_for)
        };
        if let Some(Event::RunEnded { took, outcome, .. }) = &event {
            span.record("took_ms", millis(*took)).record("outcome", outcome.word());
        }
        span.in_scope(|| self.emit(event));
        if let Some(run) = fits {
            self.data_fits(&run);
        }
        self.supervisor.notify();
        for (placement, waited_for) in
            [Placement::OneNode, Placement::EveryNode].into_iter().zip(waited_for)
        {
            if waited_for {
                self.claimers[placement].notify();
            }
        }
    }
}

/// The event of a run that has ended.
pub(in crate::scheduler) fn ended(
    run: &Run,
    outcome: Outcome,
    reason: Option<NotRunReason>,
    took: Duration,
) -> Event {
    Event::RunEnded {
        name: run.shared_name(),
        kind: run.shared_kind(),
        node: run.shared_node(),
        scheduled_at: run.scheduled_at(),
        attempt: run.attempt(),
        fence: run.fence(),
        outcome,
        reason,
        took,
    }
}

/// The span of a run: it is entered whenever the run's code runs, so that it contains what that logs.
/// It has no parent, because the task of a run belongs to no other span.
fn run_span(run: &Run, late: Duration) -> Span {
    info_span!(
        target: "allora",
        parent: None,
        "run",
        job = run.name(),
        kind = run.kind(),
        scheduled_at = %run.scheduled_at(),
        attempt = run.attempt(),
        fence = run.fence(),
        node = run.node(),
        late_ms = millis(late),
        took_ms = Empty,
        outcome = Empty,
        traceparent = run.traceparent(),
    )
}
