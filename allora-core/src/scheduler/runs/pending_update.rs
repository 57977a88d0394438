//! Extensions and ends of runs, as operations on their way to the store and as the replies to them.

use super::{
    active_run::{ActiveRun, LeaseTimers, RunId, RunResult, Turn},
    launch::ended as ended_event,
};
use crate::{
    backend::{
        Action, Applied, Backend, Batch, Ended, OPERATION_BYTES, Operation, Reply, TimeSource,
    },
    error::{Error, ErrorKind, Result},
    event::Event,
    job::Placement,
    planner::{HeldKey, Input, RunUpdate},
    run::{Checkpoint, Run},
    scheduler::{
        inbox::updated,
        node::{Node, SharedState},
        store_request::{OP, reschedule, within},
    },
};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

/// The extension or the end of one run, on its way to the store.
pub(in crate::scheduler) struct PendingUpdate {
    pub(in crate::scheduler) id: RunId,
    run: Run,
    /// The place of the run's record. That of its key is in the store.
    placement: Placement,
    /// The result; `None`: the run is alive, and its lease is extended.
    result: Option<RunResult>,
    /// Its code may have completed it: an extension finds that out before the result is sent.
    is_doubtful: bool,
    /// The output of a run that has ended.
    output: Option<String>,
    /// Its value.
    value: Option<String>,
    /// Its checkpoint, if the store does not have it.
    checkpoint: Option<Checkpoint>,
    duration: Duration,
    /// The run's lease is lost: only its key is released.
    is_lost: bool,
    /// The place of its concurrency key, which is extended or released with it.
    key: Option<HeldKey>,
}

/// An end that the store rejected until the run's lease had ended.
struct GivenUp<'a> {
    update: &'a PendingUpdate,
    ended: Option<ActiveRun>,
    error: Error,
}

/// The updates whose operations failed individually, and the last error.
#[derive(Default)]
pub(in crate::scheduler) struct Failed {
    pub(in crate::scheduler) again: Vec<RunId>,
    pub(in crate::scheduler) error: Option<Error>,
}

/// The effect of a reply.
struct Effect<'a> {
    update: &'a PendingUpdate,
    reply: Reply,
    /// The run, if it has ended. Its wakers may be the user's, and are not dropped under the lock.
    ended: Option<ActiveRun>,
    is_lost: bool,
    /// Its code has probably completed it, and works on.
    works_on: bool,
    /// Its lease had ended.
    is_recovered: bool,
    /// The place of its concurrency key is lost.
    key_is_lost: bool,
}

impl PendingUpdate {
    /// The update of a run: its end, or its extension. `None` if there is nothing to send.
    pub(in crate::scheduler) fn of(id: RunId, active: &ActiveRun) -> Self {
        let (run, result) = (active.run.clone(), active.result.clone());
        let control = run.control();
        let output = || control.output().or_else(|| control.progress());
        let output = result.as_ref().and_then(|_| output());
        let value = result.as_ref().and_then(|_| run.control().value());
        let checkpoint = run.control().unsaved_checkpoint();
        let (is_lost, key) = (active.lost, active.key.clone());
        let (placement, duration) = (active.placement(), active.timers.duration);
        let is_doubtful = active.doubt.as_ref().is_some_and(|doubt| !doubt.is_over);
        Self {
            id,
            run,
            placement,
            result,
            is_doubtful,
            output,
            value,
            checkpoint,
            duration,
            is_lost,
            key,
        }
    }

    /// The job.
    pub(in crate::scheduler) fn job(&self) -> Arc<str> {
        self.run.shared_name()
    }

    /// The largest size of its operation.
    pub(in crate::scheduler) fn bytes(&self) -> usize {
        let error = match &self.result {
            Some(
                RunResult::Failed(error) | RunResult::Dead(error) | RunResult::Retry { error, .. },
            ) => error.len(),
            _ => 0,
        };
        let texts = self.output.iter().chain(&self.value).map(String::len);
        let checkpoint = self.checkpoint.as_ref().map_or(0, |one| one.value.len());
        2 * OPERATION_BYTES + error + texts.sum::<usize>() + checkpoint
    }

    /// The operations on the run and on its key, those on records of this placement.
    fn operations(&self, placement: Placement) -> impl Iterator<Item = Operation<'_>> {
        let is_here = !self.is_lost && self.placement == placement;
        let run = is_here.then(|| self.operation());
        let key = self.key.as_ref().filter(|_| placement == Placement::OneNode);
        let key = key.map(|key| {
            let (fence, duration) = (key.fence, self.duration);
            let action = match &self.result {
                Some(_) => Action::ReleaseKey { fence },
                None => Action::Extend { fence, duration },
            };
            Operation::new(&key.record, action)
        });
        run.into_iter().chain(key)
    }

    fn operation(&self) -> Operation<'_> {
        let fence = self.run.fence();
        let action = match &self.result {
            Some(result) if !self.is_doubtful => result.action(fence, self.run.then()),
            _ => Action::Extend { fence, duration: self.duration },
        };
        Operation::new(self.run.name(), action)
            .output(self.output.as_deref())
            .value(self.value.as_deref())
            .checkpoint(self.checkpoint.as_ref().map(|one| &*one.value))
            .excluded(self.result.as_ref().and_then(|_| self.run.excluded()))
    }

    /// `true` if it is the end of a run whose lease has ended: another claim of the job records the run
    /// as lost, or as expired.
    fn is_over(&self, shared: &SharedState, now: Instant) -> bool {
        let active = shared.active.get(self.id).filter(|active| active.run.is(&self.run));
        self.result.is_some() && active.is_some_and(|active| now >= active.timers.drop_at)
    }

    /// Forgets the run, whose end the store rejects. The planner reads the record.
    fn give_up(&self, shared: &mut SharedState) -> Option<ActiveRun> {
        let ended = shared.active.try_remove(self.id)?;
        let update = updated(ended.slot, &self.run, None, Reply::LeaseLost);
        // An input of this sort has no destructor of the user.
        let _ = shared.inboxes[ended.placement()].push(Input::Updated(update));
        Some(ended)
    }

    /// Applies the replies: to the operation on the run, if there was one, and to that on its key.
    fn on_replies(
        &self,
        shared: &mut SharedState,
        replies: (Option<Reply>, Option<Reply>),
        times: (Instant, Instant),
    ) -> Option<Effect<'_>> {
        let (reply, key_reply) = replies;
        let active = shared.active.get_mut(self.id).filter(|active| active.run.is(&self.run))?;
        let mut key_is_lost = false;
        match (&self.result, key_reply) {
            (Some(_), Some(_)) => {
                active.key = None;
                if let Some(key) = &self.key {
                    // Other jobs of this node may wait for it.
                    for placement in [Placement::OneNode, Placement::EveryNode] {
                        let input = Input::KeyFree(Some(key.record.clone()));
                        let _ = shared.inboxes[placement].push(input);
                    }
                }
            }
            (None, Some(Reply::Extended(_))) | (_, None) => {}
            (None, Some(_)) => {
                key_is_lost = active.result.is_none();
                (active.key, active.turn) = (None, Turn::Lost);
            }
        }
        let Some(reply) = reply else {
            let ended = shared.active.try_remove(self.id);
            let reply = Reply::Accepted;
            return Some(Effect {
                update: self,
                reply,
                ended,
                is_lost: false,
                works_on: false,
                is_recovered: false,
                key_is_lost,
            });
        };
        let mut effect = self.on_reply(shared, reply, key_is_lost, times)?;
        effect.key_is_lost = key_is_lost;
        Some(effect)
    }

    /// Applies the reply to the run.
    fn on_reply(
        &self,
        shared: &mut SharedState,
        reply: Reply,
        key_is_lost: bool,
        (sent, now): (Instant, Instant),
    ) -> Option<Effect<'_>> {
        let is_completed = matches!(reply, Reply::Completed(_));
        let is_kept = is_completed
            || matches!(reply, Reply::Extended(_) | Reply::CancelRequested(_) | Reply::Accepted);
        let active = shared.active.get_mut(self.id).filter(|active| active.run.is(&self.run))?;
        let (slot, placement) = (active.slot, active.placement());
        let window = active.settings.late_by_at_most();
        let is_recovered = active.unconfirmed && is_kept;
        if let Some(checkpoint) = self.checkpoint.as_ref().filter(|_| is_kept) {
            active.run.control().saved(checkpoint.number);
        }
        let (mut ended, mut is_extended, mut works_on) = (None, false, false);
        match (&self.result, &reply) {
            // Its code has completed it, or its lease is gone: another node has the occurrence.
            (Some(result), _) if self.is_doubtful => {
                let overruled = (is_completed || !is_kept).then(|| result.clone());
                match &reply {
                    Reply::CancelRequested(_) => active.result = Some(RunResult::Cancelled),
                    _ if overruled.is_some() => active.result = Some(RunResult::Succeeded),
                    _ => {}
                }
                if let Some(doubt) = &mut active.doubt {
                    (doubt.overruled, doubt.is_over) = (overruled, true);
                }
                shared.ended.push(self.id);
                return None;
            }
            // No other attempt follows: the run is completed instead.
            (Some(_), Reply::CancelRequested(_)) => {
                active.result = Some(RunResult::Cancelled);
                shared.ended.push(self.id);
                return None;
            }
            (Some(_), _) => ended = shared.active.try_remove(self.id),
            // It has ended since, and its end has a reply of its own.
            (None, _) if active.result.is_some() => return None,
            (None, Reply::Extended(_) | Reply::Completed(_) | Reply::CancelRequested(_)) => {
                if matches!(reply, Reply::CancelRequested(_)) {
                    active.cancelled_at.get_or_insert(now);
                    active.run.control().request_cancel();
                }
                (active.extending, active.unconfirmed) = (false, false);
                if !key_is_lost {
                    active.timers = LeaseTimers::new(sent, self.duration, self.duration);
                }
                if active.run.control().unsaved_checkpoint().is_some() {
                    active.timers.extend_at = now;
                }
                is_extended = true;
            }
            // Its future is dropped, and its end finds out what has become of it.
            (None, _) if active.run.control().may_be_completed() => works_on = true,
            (None, _) => active.lost = true,
        }
        if is_extended {
            shared.set_timers(self.id);
            if matches!(reply, Reply::CancelRequested(_)) {
                shared.looks.set(self.id, now);
            }
        }
        let update = updated(slot, &self.run, self.result.as_ref(), reply.clone());
        let update = RunUpdate { window, ..update };
        // An input of this sort has no destructor of the user.
        let _ = shared.inboxes[placement].push(Input::Updated(update));
        let is_lost = !is_kept && !works_on;
        Some(Effect { update: self, reply, ended, is_lost, works_on, is_recovered, key_is_lost })
    }
}

/// The events of a run whose code may have completed it, when the store has told its result.
fn told_by_the_store(ended: &ActiveRun, is_lost: bool) -> Vec<Event> {
    let (Some(doubt), Some(result)) = (&ended.doubt, &ended.result) else { return Vec::new() };
    let (run, overruled) = (&ended.run, doubt.overruled.as_ref());
    let result = overruled.filter(|_| is_lost).unwrap_or(result);
    let after = overruled.filter(|_| !is_lost).map(|what| Event::AfterCompletion {
        name: run.shared_name(),
        kind: run.shared_kind(),
        fence: run.fence(),
        what: what.text().to_owned(),
    });
    let reason = doubt.reason.filter(|_| overruled.is_none());
    after.into_iter().chain([ended_event(run, result.outcome(), reason, doubt.took)]).collect()
}

/// Sends updates to the store as one batch, and applies the replies. A run of a job that runs on every
/// node is updated in memory before; repeated with its key, that has the same reply.
pub(in crate::scheduler) async fn send(node: &Node, updates: &[PendingUpdate]) -> Result<Failed> {
    let sent = node.runtime.now();
    let local = apply_local(node, updates).await?;
    let time = TimeSource::Store { fallback: node.runtime.wall() };
    let call = apply(node, &*node.backend, time, updates, Placement::OneNode);
    let applied = match within(node, OP, call).await {
        Ok(applied) => applied,
        // It was not lost, and it is this update that is rejected.
        Err(error) if updates.len() == 1 && error.kind() != ErrorKind::Unavailable => {
            let operations = updates[0].operations(Placement::OneNode);
            let replies = operations.map(|_| Err(error.clone())).collect();
            let rejected = Applied::new(local.now, replies);
            return Ok(take_in(node, updates, local, rejected, sent));
        }
        Err(error) => return Err(error),
    };
    node.on_contact(sent, applied.now);
    node.wrote();
    Ok(take_in(node, updates, local, applied, sent))
}

/// Applies updates of jobs that run on every node and have no place of a concurrency key.
pub(in crate::scheduler) async fn send_local(
    node: &Node,
    updates: &[PendingUpdate],
) -> Result<Failed> {
    let sent = node.runtime.now();
    let local = apply_local(node, updates).await?;
    let of_keys = Applied::new(local.now, Vec::new());
    Ok(take_in(node, updates, local, of_keys, sent))
}

/// Applies the operations on records in memory.
async fn apply_local(node: &Node, updates: &[PendingUpdate]) -> Result<Applied> {
    let time = TimeSource::Fixed(node.now(&node.shared()));
    apply(node, &node.local, time, updates, Placement::EveryNode).await
}

async fn apply(
    node: &Node,
    backend: &dyn Backend,
    time: TimeSource,
    updates: &[PendingUpdate],
    placement: Placement,
) -> Result<Applied> {
    let operations: Vec<Operation<'_>> =
        updates.iter().flat_map(|update| update.operations(placement)).collect();
    reschedule(node, backend, Batch::new(&node.id, time, &operations)).await
}

fn take_in(
    node: &Node,
    updates: &[PendingUpdate],
    local: Applied,
    applied: Applied,
    sent: Instant,
) -> Failed {
    let min_fence = applied.min_fence;
    let now = node.runtime.now();
    let mut failed = Failed::default();
    let mut effects = Vec::with_capacity(updates.len());
    let mut given_up = Vec::new();
    {
        let mut shared = node.shared();
        let mut local = local.replies.into_iter();
        let mut replies = applied.replies.into_iter();
        for update in updates {
            let of_run = match update.placement {
                Placement::OneNode => &mut replies,
                Placement::EveryNode => &mut local,
            };
            let reply = (!update.is_lost).then(|| of_run.next()).flatten().transpose();
            let key_reply = update.key.as_ref().and_then(|_| replies.next()).transpose();
            match (reply, key_reply) {
                (Ok(reply), Ok(key_reply)) => {
                    let replies = (reply, key_reply);
                    effects.extend(update.on_replies(&mut shared, replies, (sent, now)));
                }
                // The accepted operation is repeated with the other one.
                (Err(error), _) | (_, Err(error))
                    if error.kind() != ErrorKind::Unavailable && update.is_over(&shared, now) =>
                {
                    let ended = update.give_up(&mut shared);
                    given_up.push(GivenUp { update, ended, error });
                }
                (Err(error), _) | (_, Err(error)) => {
                    let active = shared.active.get(update.id);
                    if let Some((slot, placement)) =
                        active.map(|active| (active.slot, active.placement()))
                    {
                        let input = Input::UpdateFailed(slot, update.run.shared_name());
                        // An input of this sort has no destructor of the user.
                        let _ = shared.inboxes[placement].push(input);
                    }
                    failed.again.push(update.id);
                    failed.error = Some(error);
                }
            }
        }
    }
    for GivenUp { update, ended, error } in given_up {
        let run = &update.run;
        node.emit([Event::EndRejected {
            name: run.shared_name(),
            kind: run.shared_kind(),
            scheduled_at: run.scheduled_at(),
            fence: run.fence(),
            error: Arc::new(error),
        }]);
        run.control().record(None);
        drop(ended);
        node.claimers[update.placement].notify();
    }
    for effect in effects {
        let run = &effect.update.run;
        let (name, kind, fence) = (run.shared_name(), run.shared_kind(), run.fence());
        if let (true, Some(key)) = (effect.key_is_lost, &effect.update.key) {
            let (name, kind, key) = (name.clone(), kind.clone(), Some(key.key.clone()));
            node.emit([Event::LeaseLost { name, kind, key, fence }]);
            run.control().drop_now();
        }
        if effect.is_recovered {
            let scheduled_at = run.scheduled_at();
            node.emit([Event::Recovered { name, kind, scheduled_at, fence }]);
        } else if effect.is_lost {
            node.emit([Event::LeaseLost { name, kind, key: None, fence }]);
            run.control().drop_now();
            // A record that was removed with its tombstone has left a mark.
            let is_gone = effect.reply == Reply::Absent && run.fence() > min_fence;
            if is_gone && !run.kind().is_empty() {
                node.emit([Event::ScheduleLost { name: run.shared_name() }]);
            }
        }
        if effect.works_on {
            run.control().drop_now();
        }
        if let Some(ended) = &effect.ended {
            node.emit(told_by_the_store(ended, effect.is_lost));
        }
        match (effect.reply, effect.ended) {
            (Reply::Extended(_) | Reply::Completed(_) | Reply::CancelRequested(_), _)
                if !effect.key_is_lost =>
            {
                run.control().confirm();
            }
            (_, Some(ended)) => {
                let is_recorded = !effect.is_lost && !effect.update.is_lost;
                let result = ended.result.as_ref().filter(|_| is_recorded);
                let outcome = result.map(RunResult::outcome);
                if let Some(outcome) = &outcome {
                    let PendingUpdate { output, value, .. } = effect.update;
                    let (output, value) = (output.clone(), value.clone());
                    let end = Ended { output, value, ..Ended::new(outcome.clone()) };
                    node.trigger_waits.ended(&ended.run, &end);
                }
                run.control().record(outcome);
                // Another run may wait for the end of this one, or for its key.
                if effect.update.key.is_some() {
                    node.claimers[Placement::OneNode].notify();
                    node.claimers[Placement::EveryNode].notify();
                } else {
                    node.claimers[ended.placement()].notify();
                }
            }
            (_, None) => {}
        }
    }
    failed
}
