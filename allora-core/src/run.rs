//! One execution of an occurrence, for the code of the job.

mod control;

pub(crate) use control::{Checkpoint, Control, Requested};

use self::control::lock;
use crate::{
    backend::{Claimed, Completion, Cursor, Operation, Outcome},
    error::{Error, ErrorKind, Result},
    json,
    record::{MAX_CHECKPOINT, MAX_VALUE, bounded, bounded_to},
    run_ticket::RunTicket,
    time::Time,
    trace,
};
use allora_schedule::Excluded;
use chrono::SecondsFormat;
use std::{
    any::Any,
    fmt,
    future::poll_fn,
    pin::{Pin, pin},
    sync::{Arc, Weak, atomic::Ordering},
    task::{Context, Poll},
    time::Duration,
};

/// The kind and the data of a stored schedule, for its runs.
pub(crate) struct Payload {
    pub(crate) kind: Arc<str>,
    pub(crate) data: Arc<[u8]>,
    /// The place of the handler among those of the node.
    pub(crate) handler: usize,
    /// The limit of the handler, if this node limits its runs.
    pub(crate) limited: Option<usize>,
}

/// The longest progress of a run, in bytes.
const MAX_PROGRESS: usize = 200;

/// One execution of an occurrence. A clone is the same run.
#[derive(Clone)]
pub struct Run {
    inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) namespace: Arc<str>,
    pub(crate) name: Arc<str>,
    pub(crate) node: Arc<str>,
    pub(crate) claimed: Claimed,
    pub(crate) then: Cursor,
    /// The occurrences up to the next one that the calendar excludes.
    pub(crate) excluded: Option<Excluded>,
    pub(crate) data: Arc<[u8]>,
    pub(crate) payload: Option<Arc<Payload>>,
    /// The node, which extends the run's lease.
    pub(crate) heartbeat: Weak<dyn Heartbeat>,
    /// It is delivered at least once.
    pub(crate) can_retry: bool,
    pub(crate) lease: Duration,
    pub(crate) control: Control,
}

impl Run {
    pub(crate) fn new(inner: Inner) -> Self {
        Self { inner: Arc::new(inner) }
    }

    /// The job.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// The node that runs it.
    pub fn node(&self) -> &str {
        &self.inner.node
    }

    /// The nominal time, the same for every attempt. For a manual trigger: the time of the trigger.
    pub fn scheduled_at(&self) -> Time {
        self.inner.claimed.occurrence.scheduled_at
    }

    /// The number of this attempt at the occurrence, from 1.
    pub fn attempt(&self) -> u32 {
        self.inner.claimed.attempt
    }

    /// The fencing token: grows with every claim of this job and never repeats. Pass it to the
    /// systems that the job writes to. A system that stores the highest fence it has seen can
    /// reject the writes of an older run.
    pub fn fence(&self) -> i64 {
        self.inner.claimed.fence
    }

    /// The fencing token of the job's [concurrency key](crate::JobSpec::concurrency_key): grows with
    /// every run that has the key, over all jobs of the key. `None` without a key. Use it where several
    /// jobs of a key with the limit 1 write to one system; [`fence`](Self::fence) grows for each job
    /// separately.
    pub fn mutex_fence(&self) -> Option<i64> {
        self.control().mutex_fence.get().copied()
    }

    /// The id of a manual trigger, without its trace context; `None` for an occurrence of the schedule.
    pub fn trigger(&self) -> Option<&str> {
        Some(self.trigger_parts()?.0)
    }

    /// The W3C trace context of the manual trigger, if its id [carries](crate::with_traceparent) one.
    /// `None` for an occurrence of the schedule. Make the run's spans children of it in a
    /// [middleware](crate::SchedulerBuilder::middleware): `examples/telemetry` does so for OpenTelemetry.
    pub fn traceparent(&self) -> Option<&str> {
        self.trigger_parts()?.1
    }

    fn trigger_parts(&self) -> Option<(&str, Option<&str>)> {
        self.inner.claimed.occurrence.trigger.as_deref().map(trace::split)
    }

    /// The data of the stored schedule, or of the trigger, if it was made with data of its own
    /// ([`trigger_with`](crate::Schedules::trigger_with)). Otherwise empty for a job in code.
    pub fn data(&self) -> &[u8] {
        &self.inner.data
    }

    /// The kind of a stored schedule; empty for a job in code.
    pub fn kind(&self) -> &str {
        self.inner.payload.as_ref().map_or("", |payload| &payload.kind)
    }

    /// Requests a retry: when this run returns, it counts as failed, whatever its result, and is
    /// tried again after `after`. This replaces the wait of the retry policy and ignores its limit.
    /// The attempt counts.
    ///
    /// # Errors
    /// `Unsupported` if the job runs at most once.
    pub fn retry(&self, after: Duration, error: impl fmt::Display) -> Result {
        self.decide("retried", Requested::Retry { after, error: error.to_string() })
    }

    /// Requests a release: when this run returns, whatever its result, any node can claim the
    /// occurrence at once. The attempt does not count.
    ///
    /// # Errors
    /// `Unsupported` if the job runs at most once.
    pub fn release(&self) -> Result {
        self.decide("released", Requested::Release)
    }

    /// Requests a release for a while: when this run returns, whatever its result, any node can claim the
    /// occurrence after this time. The attempt does not count, however often that happens: for a run that
    /// finds that what it needs is not there yet. The job's later occurrences wait meanwhile.
    ///
    /// ```
    /// use allora::{BoxError, Run, every, job};
    /// use std::time::Duration;
    ///
    /// const MINUTE: Duration = Duration::from_secs(60);
    ///
    /// # async fn is_there() -> bool { true }
    /// let import = job(every(60 * MINUTE), async |run: Run| -> Result<(), BoxError> {
    ///     if !is_there().await {
    ///         run.release_after(5 * MINUTE)?;
    ///     }
    ///     Ok(())
    /// });
    /// # let _ = import.at_least_once(MINUTE);
    /// ```
    ///
    /// # Errors
    /// `Unsupported` if the job runs at most once.
    pub fn release_after(&self, after: Duration) -> Result {
        self.decide("released", Requested::ReleaseFor(after))
    }

    /// Gives the occurrence back without having done anything: as [`release`](Self::release), but also for
    /// a job that runs at most once. Call it only before the first effect.
    pub fn decline(&self) {
        self.control().set_requested(Requested::Release);
    }

    /// The length of the run's lease: without an extension, the run counts as interrupted after it.
    pub fn lease(&self) -> Duration {
        self.inner.lease
    }

    /// `true` if the occurrence is run again after an interruption; `false`: the job runs at most once.
    pub fn is_at_least_once(&self) -> bool {
        self.inner.can_retry
    }

    /// The ticket by which [`Schedules::complete`](crate::Schedules::complete) completes this run from
    /// any process.
    pub fn ticket(&self) -> RunTicket {
        let Inner { name, claimed, then, excluded, .. } = &*self.inner;
        RunTicket { name: name.to_string(), fence: claimed.fence, then: *then, excluded: *excluded }
    }

    /// Waits until the store has recorded the end of this run, and returns its outcome; `None` if the
    /// store has rejected it, or the lease was lost before. Code outside the run calls it, with a limit
    /// of its own: while the store is down it waits, and if the process stops before, it never ends.
    ///
    /// # Cancel safety
    /// Dropping the future only ends the wait.
    pub async fn recorded(&self) -> Option<Outcome> {
        let control = self.control();
        control.reached(Control::has_ended).await;
        control.recorded.get().cloned().flatten()
    }

    /// Sets the output of this run, which the history shows with its result. A further call replaces
    /// it. Of a longer text, the first 1,024 bytes are kept. A run that is completed in the job's
    /// own transaction ([`complete`](Self::complete)) has no output.
    ///
    /// ```
    /// use allora::{Run, every, job};
    /// use std::time::Duration;
    ///
    /// let report = job(every(Duration::from_secs(60)), async |run: Run| {
    ///     let mails = 7;
    ///     run.set_output(format!("{mails} mails sent"));
    /// });
    /// # let _ = report;
    /// ```
    pub fn set_output(&self, text: impl Into<String>) {
        let text = bounded(&text.into());
        let before = lock(&self.control().output).replace(text);
        drop(before);
    }

    /// Sets the value of this run: a small result as JSON, which the history keeps with the end of the
    /// run, and which [`trigger_and_wait`](crate::Handle::trigger_and_wait) returns. A further call
    /// replaces it. A store that leaves out the entries of successes keeps it for runs of triggers. A run
    /// that is completed in the job's own transaction ([`complete`](Self::complete)) has no value.
    ///
    /// ```
    /// use allora::{BoxError, Run, every, job};
    /// use std::time::Duration;
    ///
    /// let report = job(every(Duration::from_secs(60)), async |run: Run| -> Result<(), BoxError> {
    ///     run.set_value(r#"{"mails": 7}"#)?;
    ///     Ok(())
    /// });
    /// # let _ = report;
    /// ```
    ///
    /// # Errors
    /// `Invalid` if it is longer than 65,536 bytes, or, with the feature `json`, if it is not JSON. A value
    /// that was set before stays.
    pub fn set_value(&self, json: impl Into<String>) -> Result {
        let value = json.into();
        let wrong = match value.len() {
            len if len > MAX_VALUE => format!("has {len} bytes; use at most {MAX_VALUE}"),
            _ => match json::check(&value) {
                Ok(()) => {
                    let before = lock(&self.control().value).replace(value);
                    drop(before);
                    return Ok(());
                }
                Err(why) => format!("is not JSON: {why}"),
            },
        };
        Err(Error::invalid(format!("the value of {:?} {wrong}", self.name())).op("set_value"))
    }

    /// Sets the progress of this run for people who look at it while it is active, such as `40 %`. A
    /// further call replaces it. It is no write to the store: other nodes and the console see it with the
    /// next regular write of the node's record ([`heartbeat`](crate::SchedulerBuilder::heartbeat)), in
    /// [`NodeInfo::progress`](crate::NodeInfo::progress), and `why` tells it. At the end of the run, the last
    /// one is its output in the history, if it has [set](Self::set_output) none. Of a longer text, the first
    /// 200 bytes are kept.
    ///
    /// ```
    /// use allora::{Run, every, job};
    /// use std::time::Duration;
    ///
    /// let import = job(every(Duration::from_secs(60)), async |run: Run| {
    ///     for file in 1..=10 {
    ///         run.set_progress(format!("file {file} of 10"));
    ///     }
    /// });
    /// # let _ = import;
    /// ```
    pub fn set_progress(&self, text: impl Into<String>) {
        let text = bounded_to(&text.into(), MAX_PROGRESS);
        let before = lock(&self.control().progress).replace(text);
        drop(before);
    }

    /// Saves how far this run has come, for the next attempt at its occurrence, which has it as
    /// [`last_checkpoint`](Self::last_checkpoint): after a failure, the end of the process, a
    /// [release](Self::release), and when its dead letter is rerun. Returns when the store has it. It is
    /// saved with an extension of the lease, so a run whose occurrence belongs to another one cannot replace
    /// what that one has saved. A further call replaces it, and the end of the occurrence removes it.
    /// Each call writes the job's record once: save at steps that take seconds, not for each line.
    ///
    /// The guide *Long jobs* has an example.
    ///
    /// # Errors
    /// `Unsupported` if the job runs at most once: it has no next attempt. `Invalid` if the value is longer
    /// than 64 KiB. `LeaseLost` if the occurrence does not belong to this run any more: stop working on it.
    ///
    /// # Cancel safety
    /// If the future is dropped, the value is saved with the next extension, or with the run's end if
    /// another attempt follows.
    pub async fn checkpoint(&self, value: impl Into<Vec<u8>>) -> Result {
        let (name, value) = (self.name(), value.into());
        let failed = |kind, text| Err(Error::new(kind, text).op("checkpoint"));
        if !self.inner.can_retry {
            let once = format!(
                "{name:?} runs at most once and has no next attempt for a checkpoint; declare it at_least_once"
            );
            return failed(ErrorKind::Unsupported, once);
        }
        if value.len() > MAX_CHECKPOINT {
            let long = format!(
                "the checkpoint of {name:?} has {} bytes; use at most {MAX_CHECKPOINT}, or store a reference",
                value.len()
            );
            return failed(ErrorKind::Invalid, long);
        }
        let control = self.control();
        let number = control.set_checkpoint(value);
        let is_over = |control: &Control| {
            control.has_saved(number) || control.is_dropped() || control.has_ended()
        };
        if let Some(node) = self.inner.heartbeat.upgrade() {
            node.heartbeat(self);
            control.reached(is_over).await;
        }
        match control.has_saved(number) {
            true => Ok(()),
            false => failed(ErrorKind::LeaseLost, format!("{name:?} is not this run's")),
        }
    }

    /// The last [checkpoint](Self::checkpoint) of the attempts before this one; `None` if they have saved
    /// none. Begin from the start without one: of the checkpoints of one job, the oldest are forgotten when
    /// they have more than 256 KiB together.
    pub fn last_checkpoint(&self) -> Option<&[u8]> {
        self.inner.claimed.checkpoint.as_deref()
    }

    /// Rules out another attempt: if this run fails, the retry policy is not applied. An
    /// at-least-once occurrence becomes a dead letter.
    pub fn give_up(&self) {
        self.control().set_requested(Requested::GiveUp);
    }

    /// Says that this build cannot read the data of the stored schedule; then return an error. Handlers
    /// that receive a value say so by themselves. During a roll-out another node may have the build for
    /// it: the occurrence is released, and the node leaves the schedule to other nodes for two [poll
    /// intervals](crate::SchedulerBuilder::poll_interval). If it comes back, the run has failed, and is tried
    /// again by its retry policy, with the same head start for the other nodes. The node reports
    /// [`DataMismatch`](crate::Condition::DataMismatch). Without effect on a job in code.
    pub fn data_does_not_fit(&self, error: impl fmt::Display) {
        let node = self.inner.heartbeat.upgrade();
        // At most once, too: a run that did nothing may be released.
        if node.is_some_and(|node| node.data_does_not_fit(self, error.to_string())) {
            self.control().set_requested(Requested::Release);
        }
    }

    fn decide(&self, what: &str, decision: Requested) -> Result {
        if !self.inner.can_retry {
            let once = format!("{:?} runs at most once and cannot be {what}", self.name());
            return Err(Error::new(ErrorKind::Unsupported, once));
        }
        self.control().set_requested(decision);
        Ok(())
    }

    /// Extends the lease now and waits until the store has confirmed it. Rarely needed: the
    /// scheduler extends the lease when a third of it has passed.
    ///
    /// # Errors
    /// `LeaseLost` if the occurrence does not, or may not, belong to this run any more: stop
    /// working on it. `Unsupported` if there is no lease to extend.
    ///
    /// # Cancel safety
    /// Dropping the future ends the wait. The lease may be extended all the same.
    pub async fn heartbeat(&self) -> Result {
        let lost =
            || Error::new(ErrorKind::LeaseLost, format!("{:?} is not this run's", self.name()));
        let before = self.control().confirmed();
        self.inner.heartbeat.upgrade().ok_or_else(lost)?.heartbeat(self);
        let mut cancelled = pin!(self.cancelled());
        let is_confirmed = || self.control().confirmed() != before;
        poll_fn(|cx| match cancelled.as_mut().poll(cx) {
            _ if is_confirmed() => Poll::Ready(Ok(())),
            Poll::Ready(()) => Poll::Ready(Err(lost())),
            Poll::Pending => Poll::Pending,
        })
        .await
    }

    /// An idempotency key: identifies the occurrence to other systems. It is the same for every
    /// attempt and different for every other occurrence, including those of a deleted job of the
    /// same name.
    pub fn occurrence_key(&self) -> String {
        let Inner { namespace, name, claimed: taken, .. } = &*self.inner;
        let at = taken.occurrence.scheduled_at.to_rfc3339_opts(SecondsFormat::Millis, true);
        let incarnation = taken.incarnation;
        match self.trigger() {
            Some(id) => format!("{namespace}/{name}/{incarnation}/{at}/{id}"),
            None => format!("{namespace}/{name}/{incarnation}/{at}"),
        }
    }

    /// `true` if the run should end: an operator cancelled it, its lease is about to end, the job was
    /// deleted, or the scheduler's grace period is nearly over. The future is dropped soon.
    pub fn is_cancelled(&self) -> bool {
        self.inner.control.is_cancelled()
    }

    /// `true` if an operator requested the cancellation of this run, or the job was deleted. It is
    /// recorded as cancelled, whatever it returns, and the occurrence is not run again.
    pub fn cancel_requested(&self) -> bool {
        self.inner.control.cancel_requested.load(Ordering::Acquire)
    }

    /// Waits until [`is_cancelled`](Self::is_cancelled).
    ///
    /// # Cancel safety
    /// Dropping the future only ends the wait.
    pub fn cancelled(&self) -> Cancelled {
        Cancelled { run: self.clone(), waiter: None }
    }

    /// `true` if the run should come to an end soon: its node has begun to stop, or it is
    /// [cancelled](Self::is_cancelled).
    pub fn is_stopping(&self) -> bool {
        self.inner.control.is_stopping()
    }

    /// Waits until [`is_stopping`](Self::is_stopping). When a node begins to stop, its runs have the
    /// [grace period](crate::SchedulerBuilder::grace) to end by themselves, and are
    /// [cancelled](Self::cancelled) in its last tenth: a long run saves a
    /// [checkpoint](Self::checkpoint) and [releases](Self::release) the occurrence to another node.
    ///
    /// # Cancel safety
    /// Dropping the future only ends the wait.
    pub async fn stopping(&self) {
        self.control().reached(Control::is_stopping).await;
    }

    /// The operation that completes this run as succeeded. Backends use it to complete an
    /// occurrence inside the job's own transaction. The scheduler sends another completion when the job
    /// returns, which only ends the lease.
    ///
    /// The result is final with the commit: if the node dies after that, nothing runs again. The job may
    /// work on, and its lease is extended as before. The next occurrence waits until it has returned, or
    /// until the lease has ended, unless the job has [`Overlap::Allow`](crate::Overlap::Allow). An error or
    /// a panic after the commit changes the result no more; it is reported by
    /// [`AfterCompletion`](crate::Event::AfterCompletion).
    pub fn complete(&self) -> Operation<'_> {
        self.control().completion_made.store(true, Ordering::Release);
        Operation::complete(self.name(), self.fence(), self.inner.then, Completion::Succeeded)
            .excluded(self.inner.excluded)
            .works_on()
    }

    pub(crate) fn excluded(&self) -> Option<Excluded> {
        self.inner.excluded
    }

    pub(crate) fn then(&self) -> Cursor {
        self.inner.then
    }

    pub(crate) fn shared_name(&self) -> Arc<str> {
        self.inner.name.clone()
    }

    pub(crate) fn shared_node(&self) -> Arc<str> {
        self.inner.node.clone()
    }

    /// The place of the handler of its kind among those of the node; `None` for a job in code.
    pub(crate) fn handler(&self) -> Option<usize> {
        Some(self.inner.payload.as_ref()?.handler)
    }

    /// The limit of the handler of its kind, if this node limits its runs.
    pub(crate) fn limited(&self) -> Option<usize> {
        self.inner.payload.as_ref()?.limited
    }

    pub(crate) fn shared_kind(&self) -> Arc<str> {
        self.inner.payload.as_ref().map(|payload| payload.kind.clone()).unwrap_or_default()
    }

    /// The node that runs it, as long as its scheduler lives.
    pub(crate) fn host(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        Some(self.inner.heartbeat.upgrade()?)
    }

    pub(crate) fn control(&self) -> &Control {
        &self.inner.control
    }

    /// `true` if both are the same run.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }
}

impl fmt::Debug for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Run")
            .field("name", &self.name())
            .field("scheduled_at", &self.scheduled_at())
            .field("attempt", &self.attempt())
            .field("fence", &self.fence())
            .finish_non_exhaustive()
    }
}

/// The future of [`Run::cancelled`].
#[must_use = "futures do nothing unless polled"]
pub struct Cancelled {
    run: Run,
    /// Its place among the waiters of the run.
    waiter: Option<usize>,
}

impl Future for Cancelled {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Self { run, waiter } = &mut *self;
        run.inner.control.poll_cancelled(waiter, cx)
    }
}

impl Clone for Cancelled {
    fn clone(&self) -> Self {
        self.run.cancelled()
    }
}

impl Drop for Cancelled {
    fn drop(&mut self) {
        if let Some(waiter) = self.waiter {
            self.run.inner.control.forget(waiter);
        }
    }
}

impl fmt::Debug for Cancelled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cancelled").field("run", &self.run).finish_non_exhaustive()
    }
}

/// The node of a run: extends leases, and releases what its handler cannot read.
pub(crate) trait Heartbeat: Any + Send + Sync {
    /// The data of this run does not fit the handler. Returns whether the occurrence is released.
    fn data_does_not_fit(&self, run: &Run, error: String) -> bool;

    /// Extends the lease of this run now.
    fn heartbeat(&self, run: &Run);
}
