//! Operations on a schedule: pause, resume, skip, cancel, trigger, backfill, rerun, reset.

use super::{
    Gap, Schedules,
    errors::{end_unknown, not_ended, not_triggered},
};
use crate::{
    backend::{
        Action, Advance, CancelScope, Ended, HistoryEntry, HistoryQuery, JobState, Lease, NextRun,
        NotRun, NotRunReason, Occurrence, Operation, TriggerStatus, Triggered, end_of_trigger,
    },
    backoff::{MAX_BACKOFF, MIN_BACKOFF},
    error::{Error, ErrorKind, Result},
    job::{DefinitionText, is_code},
    record::job_of,
    registry::TRIGGER_DATA,
    schedule::{Schedule as _, between},
    time::Time,
};
use chrono::SecondsFormat;
use futures::future::{Either, pending, select};
use std::{pin::pin, time::Duration};

/// The largest number of runs of one backfill: the number of triggers that may wait.
pub const MAX_BACKFILL: usize = crate::record::MAX_TRIGGERS;

/// The largest number of occurrences that one call leaves out.
pub const MAX_SKIP: usize = 1_000;

impl Schedules {
    /// Pauses a schedule and records the reason. Active runs continue, and a trigger still starts a
    /// run. An occurrence that waits for another attempt, even that of a trigger, waits until the
    /// schedule is [resumed](Self::resume). Concurrent calls [share requests](Self#concurrent-calls).
    ///
    /// # Errors
    /// `NotFound`, `Unavailable`.
    ///
    /// # Cancel safety
    /// A dropped call may or may not have paused it. Pause it again.
    pub async fn pause(&self, name: &str, note: &str) -> Result<JobState> {
        self.change(name, Action::Pause { note, until: None }).await
    }

    /// As [`pause`](Self::pause), until this time of the store: then the pause ends by itself, and the
    /// job's catch-up policy decides what becomes of the occurrences that passed. [`resume`](Self::resume)
    /// ends it before. A schedule that is paused already gets this note and this end instead of its own.
    /// A pause that was followed by a run is over for good, even if the store's clock is set back.
    ///
    /// ```
    /// # async fn example(schedules: allora::Schedules) -> allora::Result {
    /// let until = "2026-12-01T06:00:00Z".parse().unwrap();
    /// schedules.pause_until("acme/report", until, "the mail server moves").await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `Invalid` if the time has come already; `NotFound`, `Unavailable`.
    ///
    /// # Cancel safety
    /// A dropped call may or may not have paused it. Pause it again.
    pub async fn pause_until(&self, name: &str, until: Time, note: &str) -> Result<JobState> {
        self.change(name, Action::Pause { note, until: Some(until) }).await
    }

    /// Resumes a paused schedule. Concurrent calls [share requests](Self#concurrent-calls).
    ///
    /// # Errors
    /// `NotFound`, `Unavailable`. With [`Gap::Missed`]: `Invalid` if the definition cannot be read.
    ///
    /// # Cancel safety
    /// A dropped call may or may not have resumed it. Resume it again.
    pub async fn resume(&self, name: &str, gap: Gap) -> Result<JobState> {
        if gap == Gap::Missed {
            let now = self.recent_store_time().await?;
            self.skip_until(name, now, NotRunReason::CatchUp).await?;
        }
        self.change(name, Action::Resume).await
    }

    /// Leaves out the next `n` occurrences of a schedule that were not started: they do not run, and
    /// the history has them as skipped, with the reason *operator* and the note of the
    /// [author](Self::by). Triggers, active runs and further attempts go on. Returns what was left out: fewer than `n` if the schedule ends before, or if a node claims
    /// one of them during the call; `None` if none is to come.
    ///
    /// # Errors
    /// `Invalid` if `n` is 0 or more than [`MAX_SKIP`], or if the definition cannot be read: only its
    /// nodes know the times of a job in code with a schedule of its own ([`Job`](crate::Job)).
    /// `NotFound`, `Unavailable`.
    ///
    /// # Cancel safety
    /// A dropped call may or may not have left them out. Look at [`next`](Self::next) before you repeat
    /// it, or more are left out.
    pub async fn skip_next(&self, name: &str, n: usize) -> Result<Option<NotRun>> {
        if !(1..=MAX_SKIP).contains(&n) {
            let wrong = format!("{n} occurrences cannot be left out; give 1 to {MAX_SKIP}");
            return Err(Error::invalid(wrong).op("skip_next"));
        }
        let seen = self.get(name).await?;
        let mut coming = self.next(name, n + 1).await?;
        coming.retain(|next| seen.last_started < Some(next.scheduled_at));
        coming.truncate(n);
        let Some(last) = coming.last() else { return Ok(None) };
        self.skip_until(name, last.scheduled_at, NotRunReason::Operator).await
    }

    /// Leaves out the occurrences up to this time that were not started.
    async fn skip_until(
        &self,
        name: &str,
        until: Time,
        reason: NotRunReason,
    ) -> Result<Option<NotRun>> {
        loop {
            let seen = self.get(name).await?;
            let Some(skip) = self.range_until(&seen, until, reason).await? else {
                return Ok(None);
            };
            match self.change(name, Action::Skip(skip)).await {
                // It was claimed or changed since it was read.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
                Ok(_) => return Ok(Some(skip.not_run)),
            }
        }
    }

    /// The range of occurrences up to this time that were not started.
    async fn range_until(
        &self,
        seen: &JobState,
        until: Time,
        reason: NotRunReason,
    ) -> Result<Option<Advance>> {
        let name = seen.name.as_str();
        let definition = self.definition(seen).await?;
        let started = seen.counters.started;
        let first = match seen.next {
            Some(begun) if seen.last_started >= Some(begun.scheduled_at) => {
                definition.following(name, begun.scheduled_at, started)?
            }
            cursor => cursor,
        };
        let Some(first) = first.map(|next| next.scheduled_at).filter(|at| *at <= until) else {
            return Ok(None);
        };
        // From the last one that came due: an interval keeps its phase.
        let schedule = definition.schedule();
        let until = definition.settings().end.map_or(until, |end| end.min(until));
        let last = schedule.latest_at(first, until);
        let count = last.and_then(|_| schedule.count(first, until)).map(|further| further + 1);
        let last = last.unwrap_or(until).max(first);
        let then = definition.following(name, last, started)?;
        let left_out = NotRun { count, last, reason };
        Ok(Some(Advance::new(seen.generation, first, left_out, then)))
    }

    /// Cancels the active runs of a job, the triggers that wait, and the occurrences that wait for
    /// another attempt. Returns the number of all of them; 0 if there is none. A node learns it from
    /// its store's notification, or when it next extends the run's lease: after a third of that at
    /// most. It [cancels](crate::Run::cancelled) the run, drops its future after a tenth of its [grace
    /// period](crate::SchedulerBuilder::grace) (at most 5 s), and records it as cancelled, whatever it returns.
    /// The occurrence is not run again, even if the node has died. What waits is recorded as cancelled,
    /// too. The schedule continues. Concurrent calls [share requests](Self#concurrent-calls).
    ///
    /// ```
    /// # async fn example(schedules: allora::Schedules) -> allora::Result {
    /// match schedules.cancel("nightly import").await? {
    ///     0 => println!("no run is active, and none waits"),
    ///     runs => println!("{runs} runs are being cancelled"),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `NotFound`, `Unavailable`.
    ///
    /// # Cancel safety
    /// A dropped call may or may not have cancelled the runs. Cancel them again.
    pub async fn cancel(&self, name: &str) -> Result<usize> {
        self.cancel_scope(name, CancelScope::All).await
    }

    /// Cancels the triggers of a job with this id, as [`cancel`](Self::cancel): whether they wait, are
    /// active, or wait for another attempt. The id stays remembered, so that no late copy of the
    /// trigger runs. With the id `backfill`, ends what is left of a [backfill](Self::backfill). Returns
    /// their number; 0 if there is none.
    ///
    /// # Errors
    /// `NotFound`, `Unavailable`.
    ///
    /// # Cancel safety
    /// A dropped call may or may not have cancelled them. Cancel them again.
    pub async fn cancel_trigger(&self, name: &str, id: &str) -> Result<usize> {
        self.cancel_scope(name, CancelScope::Trigger(id)).await
    }

    /// The number of runs of this scope that are being cancelled, and of occurrences that were
    /// cancelled meanwhile.
    async fn cancel_scope(&self, name: &str, scope: CancelScope<'_>) -> Result<usize> {
        let before = self.get(name).await?;
        let state = self.change(name, Action::Cancel(scope)).await?;
        let is_ending = |lease: &&Lease| lease.cancel_requested && scope.has(&lease.occurrence);
        let active = state.leases.iter().filter(is_ending).count();
        let ended = state.counters.cancelled.saturating_sub(before.counters.cancelled);
        Ok(active.saturating_add(ended.try_into().unwrap_or(usize::MAX)))
    }

    /// Triggers one run now, independently of the schedule. `id` identifies the trigger: the same id
    /// again, within 24 h ([`trigger_retention`](Self::trigger_retention)), and while its run waits or
    /// is active, changes nothing, whatever client sends it, and whatever the run's end was. To run the
    /// job again, use another id. Concurrent calls [share requests](Self#concurrent-calls).
    ///
    /// A job remembers 1,000 ids. With more of them within the retention, it forgets the oldest first.
    /// A job that was deleted forgets all.
    ///
    /// ```
    /// use allora::{Schedules, backend::TriggerStatus};
    ///
    /// # async fn example(schedules: Schedules, order: &str) -> allora::Result {
    /// let triggered = schedules.trigger("acme/invoice", order).await?;
    /// match triggered.status {
    ///     TriggerStatus::New => println!("it will run"),
    ///     TriggerStatus::Pending => println!("triggered before: it waits or runs"),
    ///     TriggerStatus::Ended => println!("triggered before: it has run"),
    ///     other => println!("{other:?}"),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `NotFound`; `Invalid` for a bad id or a retention of more than 30 days, or if too many triggers
    /// wait; `Unavailable`.
    ///
    /// # Cancel safety
    /// A dropped call may or may not have triggered the run. Trigger it again with the same id.
    pub async fn trigger(&self, name: &str, id: &str) -> Result<Triggered> {
        let retention = self.trigger_retention;
        let action = Action::Trigger { id, scheduled_at: None, retention, data: None };
        self.change_one(name, action).await?.triggered().ok_or_else(not_triggered)
    }

    /// As [`trigger`](Self::trigger), with data for this run in place of the schedule's: all attempts have
    /// it, and a [rerun](Self::rerun) of the dead letter. The same id with the same data changes nothing.
    /// A [`trigger`](Self::trigger) or [`trigger_and_wait`](Self::trigger_and_wait) with this id gives no
    /// data, and so asks for the same run. An export has no data of triggers.
    ///
    /// ```
    /// # async fn example(schedules: allora::Schedules) -> allora::Result {
    /// schedules.trigger_with("acme/report", "ticket 7", r#"{"month": "2026-10"}"#).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`trigger`](Self::trigger). `AlreadyExists` if the id was used with other data, or without any.
    /// `Invalid` if the triggers of the job that have not ended have more than
    /// [256 KiB](crate::record::MAX_TRIGGER_DATA) of data together. `Unsupported`, with the node, while a
    /// node of a build is registered that cannot read such triggers.
    ///
    /// # Cancel safety
    /// As [`trigger`](Self::trigger).
    pub async fn trigger_with(
        &self,
        name: &str,
        id: &str,
        data: impl Into<Vec<u8>>,
    ) -> Result<Triggered> {
        const OP: &str = "trigger_with";
        let (retention, data) = (self.trigger_retention, data.into());
        self.needs_format(TRIGGER_DATA, "triggers with data")
            .await
            .map_err(|error| error.op(OP))?;
        let data = Some(&*data);
        let action = Action::Trigger { id, scheduled_at: None, retention, data };
        self.change_one(name, action).await?.triggered().ok_or_else(not_triggered)
    }

    /// As [`trigger`](Self::trigger), and waits for the end of the occurrence with all its attempts,
    /// for at most `timeout`. Returns its end, which it finds in the store's history within a
    /// second; at once if the id was triggered before and its run has ended.
    ///
    /// ```
    /// use allora::{Schedules, backend::Outcome};
    /// use std::time::Duration;
    ///
    /// # async fn example(schedules: Schedules) -> allora::Result {
    /// let end = schedules.trigger_and_wait("acme/report", "ticket 7", Duration::from_secs(60)).await?;
    /// match end.outcome {
    ///     Outcome::Succeeded => println!("{}", end.value.unwrap_or_default()),
    ///     outcome => println!("{}: {}", outcome.word(), outcome.error()),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`trigger`](Self::trigger). `Unsupported`, before the trigger, if the store keeps no history.
    /// `Unavailable` also if it has not ended in time. `NotFound` also if it ended before, and the
    /// history has its end no more.
    ///
    /// # Cancel safety
    /// As [`trigger`](Self::trigger). A dropped call ends the wait; the occurrence goes on.
    pub async fn trigger_and_wait(&self, name: &str, id: &str, timeout: Duration) -> Result<Ended> {
        self.needed_history("trigger_and_wait")?;
        let triggered = self.trigger(name, id).await?;
        self.end_of_trigger(name, id, &triggered, timeout).await
    }

    /// Waits for the end of the occurrence of a [`trigger`](Self::trigger) with this id and this reply, for
    /// at most `timeout`: the second half of [`trigger_and_wait`](Self::trigger_and_wait), for callers that
    /// tell somebody of the trigger before its end.
    ///
    /// # Errors
    /// `Unavailable` if it has not ended in time, as always in a store that keeps no history; `NotFound` if
    /// it ended before, and the history has its end no more.
    ///
    /// # Cancel safety
    /// A dropped call ends the wait; the occurrence goes on.
    pub async fn end_of_trigger(
        &self,
        name: &str,
        id: &str,
        triggered: &Triggered,
        timeout: Duration,
    ) -> Result<Ended> {
        self.end_of((name, id), triggered, timeout, pending()).await
    }

    /// Waits for the end of the occurrence that this trigger has added: until `ended` tells it, or the
    /// history, if the store keeps one.
    pub(crate) async fn end_of(
        &self,
        (name, id): (&str, &str),
        triggered: &Triggered,
        timeout: Duration,
        ended: impl Future<Output = Ended>,
    ) -> Result<Ended> {
        let mut ended = pin!(ended);
        let has_ended = triggered.status == TriggerStatus::Ended;
        let mut waited = Duration::ZERO;
        let mut wait = if has_ended { Duration::ZERO } else { MIN_BACKOFF };
        loop {
            let next = wait.min(timeout - waited);
            if let Either::Left((end, _)) = select(&mut ended, pin!(self.pause_for(next))).await {
                return Ok(end);
            }
            let found = match self.history_of_runs() {
                Some(history) => self.within("history", end_of_trigger(history, triggered)).await,
                None => Ok(None),
            };
            match found {
                Ok(Some(end)) => return Ok(end),
                Ok(None) if has_ended => return Err(end_unknown(name, id)),
                // A store that is down for a moment does not end the wait.
                Ok(None) | Err(_) => {}
            }
            (waited, wait) = (waited + next, (wait * 2).clamp(MIN_BACKOFF, MAX_BACKOFF));
            if waited >= timeout {
                return Err(not_ended(name, id, timeout));
            }
        }
    }

    /// Triggers one run for each scheduled time after `from` and up to `until`, both in the past,
    /// independently of the schedule. Returns the times. The run's
    /// [`scheduled_at`](crate::Run::scheduled_at) is the scheduled time, its
    /// [`trigger`](crate::Run::trigger) is `backfill`, and its occurrence key is the same for every
    /// backfill. The same time again, while it waits or runs, changes nothing. A time whose run has
    /// ended runs again: a backfill is repeated when an operator wants it.
    ///
    /// # Errors
    /// `Invalid`, before any change, if the range has more than [`MAX_BACKFILL`] scheduled times,
    /// or ends in the future; `NotFound`, `Unavailable`.
    ///
    /// # Cancel safety
    /// A dropped call may have triggered some of the runs. Repeat it with the same range.
    pub async fn backfill(&self, name: &str, from: Time, until: Time) -> Result<Vec<Occurrence>> {
        let seen = self.get(name).await?;
        let definition = self.definition(&seen).await?;
        let now = self.recent_store_time().await?;
        if until > now {
            let until = until.to_rfc3339_opts(SecondsFormat::Millis, true);
            let future =
                format!("{until} is in the future; use the present time or an earlier one");
            return Err(Error::invalid(future).op("backfill"));
        }
        let instants = between(definition.schedule(), from, until);
        let instants: Vec<Time> = instants.take(MAX_BACKFILL + 1).collect();
        if instants.len() > MAX_BACKFILL {
            let many = format!(
                "the range has more than {MAX_BACKFILL} scheduled times of {name:?}; backfill it in parts"
            );
            return Err(Error::invalid(many).op("backfill"));
        }
        let mut filled = Vec::with_capacity(instants.len());
        for at in instants {
            // It is made again when an operator wants it.
            let (scheduled_at, retention) = (Some(at), Duration::ZERO);
            let (id, data) = ("backfill", None);
            self.change(name, Action::Trigger { id, scheduled_at, retention, data }).await?;
            filled.push(Occurrence { scheduled_at: at, trigger: Some("backfill".to_owned()) });
        }
        Ok(filled)
    }

    /// The next `n` occurrences of a schedule in its current state, beginning with the one in the
    /// store. Of one by [`after_end`](crate::after_end()) only the one that waits is known, and none while it runs.
    ///
    /// # Errors
    /// `NotFound`; `Invalid` if the definition cannot be read; `Unavailable`.
    ///
    /// # Cancel safety
    /// Nothing is changed.
    pub async fn next(&self, name: &str, n: usize) -> Result<Vec<NextRun>> {
        let seen = self.get(name).await?;
        let definition = self.definition(&seen).await?;
        let mut next = seen.next;
        let mut started = seen.counters.started;
        let mut coming = Vec::new();
        if definition.follows_end() {
            coming.extend(next.filter(|next| n > 0 && seen.last_started < Some(next.scheduled_at)));
            return Ok(coming);
        }
        while let Some(it) = next.filter(|_| coming.len() < n) {
            coming.push(it);
            started += u64::from(seen.last_started < Some(it.scheduled_at));
            next = definition.following(name, it.scheduled_at, started)?;
        }
        Ok(coming)
    }

    /// Runs a dead letter again, as the same occurrence with attempts counted from 1. Concurrent calls
    /// [share requests](Self#concurrent-calls).
    ///
    /// # Errors
    /// `NotFound`, also for the dead letter; `Unavailable`.
    ///
    /// # Cancel safety
    /// A dropped call may or may not have rerun it. A second call then finds no dead letter.
    pub async fn rerun(&self, name: &str, occurrence: &Occurrence) -> Result<JobState> {
        self.change(name, Action::Rerun { occurrence }).await
    }

    /// Starts a schedule again from now, under a new incarnation: for a job that does not run
    /// because the store's clock was ahead for a while, so that its record holds times of the
    /// future. Settings, data, pause, counters and dead letters stay. Active runs are cancelled and
    /// recorded as lost, and their places of the job's concurrency key are free.
    ///
    /// Only its nodes know the times of a job in code with a schedule of its own ([`Job`](crate::Job)).
    /// It has none until one of its nodes sees the reset: within the nodes' poll interval, or when one
    /// starts.
    ///
    /// An occurrence that was started while the clock was ahead runs again at its true time, with a
    /// new [`occurrence_key`](crate::Run::occurrence_key).
    ///
    /// # Errors
    /// `NotFound`, `Unavailable`; `Invalid` if the definition cannot be read: deploy a build that can.
    ///
    /// # Cancel safety
    /// A dropped call may or may not have reset it. Reset it again.
    pub async fn reset(&self, name: &str) -> Result<JobState> {
        loop {
            let seen = self.get(name).await?;
            let settings = DefinitionText::read(&seen.definition)?.settings;
            let first = match seen.kind.is_empty() && is_code(&seen.definition) {
                true => None,
                false => {
                    let definition = self.definition(&seen).await?;
                    let now = self.recent_store_time().await?;
                    definition.following(name, now, seen.counters.started)?
                }
            };
            let incarnation = seen.incarnation;
            match self.change(name, Action::Reset { incarnation, first }).await {
                // It was created again since it was read.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
                Ok(state) => {
                    let key = settings.concurrency_key.as_ref().filter(|key| key.per.is_none());
                    if let Some(key) = key {
                        self.free_key(name, &key.record()).await?;
                    }
                    return Ok(state);
                }
            }
        }
    }

    /// Releases the places of the key that runs of this job hold.
    async fn free_key(&self, name: &str, record: &str) -> Result {
        for reply in self.apply("reset", &[Operation::read(record)]).await? {
            let leases = reply?.state().map(|state| state.leases).unwrap_or_default();
            let mine = leases.iter().filter(|lease| job_of(lease) == name);
            let release =
                |lease: &Lease| Operation::new(record, Action::ReleaseKey { fence: lease.fence });
            let releases: Vec<Operation<'_>> = mine.map(release).collect();
            if releases.is_empty() {
                continue;
            }
            for reply in self.apply("reset", &releases).await? {
                reply?;
            }
        }
        Ok(())
    }

    /// Records that the work of an occurrence is done although no run of it has succeeded: a dead letter,
    /// or an occurrence that has failed, was lost, or was missed. A dead letter goes. The history gets an
    /// entry of its own, as succeeded by an operator, with the [author](Self::by) and the note; the one
    /// before stays. No counter counts it as a run.
    ///
    /// # Errors
    /// `NotFound` if the history has no such occurrence, or there is no job; `Invalid` if the occurrence
    /// has not ended; `Unavailable`.
    ///
    /// # Cancel safety
    /// A dropped call may or may not have recorded it. A second call adds a second entry.
    pub async fn mark_succeeded(&self, name: &str, occurrence: &Occurrence) -> Result<JobState> {
        let seen = self.get(name).await?;
        let is_dead = seen.dead.iter().any(|letter| letter.occurrence == *occurrence);
        let has_ended = seen.next.is_none_or(|next| occurrence.scheduled_at < next.scheduled_at);
        if !is_dead && has_ended && !self.has_failed(name, occurrence).await? {
            let none = format!(
                "the history of {name:?} has no failed, lost or missed occurrence of {}",
                occurrence.scheduled_at
            );
            return Err(Error::new(ErrorKind::NotFound, none).op("mark_succeeded"));
        }
        self.change(name, Action::MarkSucceeded { occurrence }).await
    }

    /// `true` if the history has a failure of this occurrence, or a range that was missed around it.
    async fn has_failed(&self, name: &str, occurrence: &Occurrence) -> Result<bool> {
        const PAGE: usize = 500;
        let mut before = None;
        loop {
            // Fences are drawn by the store's clock, after the occurrence's time.
            let query =
                HistoryQuery::new(PAGE).name(name).from(occurrence.scheduled_at).failures_only();
            let query = HistoryQuery { before: before.as_ref(), ..query };
            let entries = self.history(query).await?;
            let is_of = |entry: &HistoryEntry| {
                let first = &entry.occurrence;
                let last = entry.last.unwrap_or(first.scheduled_at);
                first.trigger == occurrence.trigger
                    && (first.scheduled_at..=last).contains(&occurrence.scheduled_at)
            };
            if entries.iter().any(is_of) {
                return Ok(true);
            }
            before = match entries.last() {
                Some(last) if entries.len() == PAGE => Some(last.cursor()),
                _ => return Ok(false),
            };
        }
    }

    /// Removes a dead letter. Concurrent calls [share requests](Self#concurrent-calls).
    ///
    /// # Errors
    /// As [`rerun`](Self::rerun).
    ///
    /// # Cancel safety
    /// As [`rerun`](Self::rerun).
    pub async fn dismiss(&self, name: &str, occurrence: &Occurrence) -> Result<JobState> {
        self.change(name, Action::Dismiss { occurrence }).await
    }
}
