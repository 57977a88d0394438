//! The start of a claimed run's future, and the handling of its end.

use super::{
    active_run::{ActiveRun, ExitReason, LeaseTimers, RunId, RunResult, Turn},
    execution::{Report, execute},
    middleware::Next,
    mutex::{Waiting, in_turn},
    node::{Node, SharedState, Stop, later},
};
use crate::{
    event::Event,
    job::{Delivery, JobSpec, Settings},
    planner::Start,
    run::{Control, Heartbeat, Inner, Run},
    time::{Time, since},
};
use std::{
    sync::{Arc, Weak},
    time::{Duration, Instant},
};

impl Node {
    /// Starts claimed runs. `sent` is the time at which the confirming request was sent, by the
    /// monotonic clock; `decided` is the time of the claim, by the store's clock.
    pub(crate) fn start(self: &Arc<Self>, starts: Vec<Start>, sent: Instant, decided: Time) {
        if starts.is_empty() {
            return;
        }
        let now = self.runtime.now();
        let mut begun = Vec::with_capacity(starts.len());
        {
            let mut shared = self.shared();
            for start in starts {
                begun.extend(self.enter(&mut shared, start, sent, decided, now));
            }
        }
        for (id, run, spec, late) in begun {
            let (node, timeout) = (self.clone(), spec.settings.timeout);
            let job = Next::new(self.middleware.clone(), spec.job);
            if let Some(group) = spec.settings.mutex.clone() {
                let duration = self.lease_duration(&spec.settings);
                let waiting = Waiting { id, run, job, group, duration, timeout, late, won: now };
                self.runtime.spawn(Box::pin(in_turn(node, waiting)));
                continue;
            }
            self.begun(&run, late);
            let timeout = timeout.map(|limit| (limit, self.runtime.sleep_until(later(now, limit))));
            let report = Report::new(node, id, ExitReason::Dropped);
            self.runtime.spawn(Box::pin(execute(report, job, run, timeout)));
        }
    }

    /// A run's code begins.
    pub(super) fn begun(&self, run: &Run, late: Duration) {
        self.emit([Event::Started {
            name: run.shared_name(),
            scheduled_at: run.scheduled_at(),
            attempt: run.attempt(),
            fence: run.fence(),
            late,
        }]);
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
        start: Start,
        sent: Instant,
        decided: Time,
        now: Instant,
    ) -> Option<(RunId, Run, JobSpec, Duration)> {
        let Start { slot, name, spec, claimed, then, late } = start;
        let duration = self.lease_duration(&spec.settings);
        let timers = LeaseTimers::new(sent, since(claimed.until, decided), duration);
        let expired = now >= timers.cancel_at;
        let data = spec.payload.as_ref().map(|payload| payload.data.clone());
        let run = Run::new(Inner {
            namespace: self.namespace.clone(),
            name,
            node: self.id.clone(),
            claimed,
            then,
            data: data.unwrap_or_else(|| self.config.no_data.clone()),
            payload: spec.payload.clone(),
            heartbeat: Arc::downgrade(self) as Weak<dyn Heartbeat>,
            can_retry: matches!(spec.settings.delivery, Delivery::AtLeastOnce { .. }),
            control: Control::default(),
        });
        // A run is released at once if its lease may have ended already, or if the scheduler began
        // to stop after the request was sent.
        let refused = expired || shared.stop != Stop::No;
        let end = refused.then_some(RunResult::Released);
        let live = ActiveRun {
            slot,
            started: now,
            run: run.clone(),
            spec: spec.clone(),
            timers,
            result: end,
            lost: false,
            turn: if spec.settings.mutex.is_some() { Turn::Waits } else { Turn::Begun },
        };
        let id = shared.active.insert(live);
        let stopping = (shared.stop != Stop::No).then_some(now);
        if shared.scan_soon(stopping.unwrap_or(timers.extend_at)) {
            self.supervisor.notify();
        }
        if refused {
            shared.ended.push(id);
            self.supervisor.notify();
            return None;
        }
        shared.running += 1;
        Some((id, run, spec, late))
    }

    /// Handles the end of a run's future.
    pub(crate) fn run_ended(&self, id: RunId, how: ExitReason) {
        let mono = self.runtime.now();
        let (event, waited_for) = {
            let mut shared = self.shared();
            shared.running -= 1;
            shared.ended.push(id);
            let now = shared.clock.now(mono);
            let waited_for = std::mem::take(&mut shared.full);
            let Some(live) = shared.active.get_mut(id) else { return };
            let begun = !matches!(how, ExitReason::NotBegun);
            let verdict = live.result(how, now);
            let event = begun.then(|| Event::Ended {
                name: live.run.shared_name(),
                scheduled_at: live.run.scheduled_at(),
                attempt: live.run.attempt(),
                fence: live.run.fence(),
                outcome: verdict.outcome(),
                took: mono.saturating_duration_since(live.started),
            });
            live.result = Some(verdict);
            (event, waited_for)
        };
        self.emit(event);
        self.supervisor.notify();
        if waited_for {
            self.claimer.notify();
        }
    }
}
