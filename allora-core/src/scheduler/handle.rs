//! The handle to a running scheduler.

use super::{
    config::check_label,
    monotonic::later,
    node::{Node, Stop},
};
use crate::{
    backend::{Ended, HistoryEntry, HistoryQuery, JobState, Triggered},
    backoff::{MAX_BACKOFF, MIN_BACKOFF},
    condition::{Code, Condition},
    error::{Error, ErrorKind, Result},
    health::{Health, JobStatus},
    job::{CheckedSchedule, IntoJob},
    name::check_name,
    pattern::Pattern,
    registry::{NodeInfo, ProgramReport},
    stored::{Gap, Schedules},
    time::Time,
};
use chrono::SecondsFormat;
use futures::future::pending;
use std::{collections::BTreeSet, fmt, sync::Arc, time::Duration};

/// The longest wait for the registration of a job in code that an operator changes.
const REGISTRATION: Duration = Duration::from_secs(10);

/// A handle that stops a scheduler, adds jobs to it, and operates on jobs in its store. A clone is
/// the same handle.
#[derive(Clone)]
pub struct Handle {
    node: Arc<Node>,
}

impl Handle {
    pub(super) fn new(node: Arc<Node>) -> Self {
        Self { node }
    }

    /// The id of this node. It is unique among all processes.
    pub fn node(&self) -> &str {
        &self.node.id
    }

    /// The number of active runs on this node.
    pub fn running(&self) -> usize {
        self.node.shared().running
    }

    /// The state of this node: its store, its capacity, and the jobs that do not run, each with the
    /// reason and the remedy. It is what the parts of the node published last: the call asks no
    /// store, waits for no part of the scheduler, and also works while the store hangs.
    ///
    /// ```
    /// use allora::{Handle, Health, Run, Scheduler, every};
    /// # use allora::runtime::Sim;
    /// use std::time::Duration;
    ///
    /// /// The answer of a status page: a code of HTTP, and a line for each fact.
    /// fn status_page(handle: &Handle) -> (u16, String) {
    ///     let health: Health = handle.health();
    ///     let code = if health.is_healthy() { 200 } else { 503 };
    ///     (code, health.to_string())
    /// }
    ///
    /// # fn main() -> allora::Result {
    /// # let sim = Sim::new(1);
    /// # let store = allora::Memory::new();
    /// let scheduler = Scheduler::builder(store)
    ///     .job("report", every(Duration::from_secs(60)), async |_: Run| {})
    /// #   .runtime(sim.node())
    ///     .build()?;
    /// let handle = scheduler.handle();
    /// # let node = sim.node();
    /// # use allora::Runtime;
    /// # node.spawn(Box::pin(async { drop(scheduler.run().await) }));
    /// # let start = node.wall();
    /// # sim.run_until(start + chrono::TimeDelta::seconds(90));
    ///
    /// let (code, page) = status_page(&handle);
    /// assert_eq!(code, 200, "{page}");
    /// assert!(page.contains("\njobs: 1 in code, 0 paused, 0 with a problem"), "{page}");
    /// # Ok(())
    /// # }
    /// ```
    pub fn health(&self) -> Health {
        self.node.health()
    }

    /// The status of each job in code on this node, and of each stored schedule that runs here,
    /// ordered by name. It is what this node last knew; as [`health`](Self::health), the call asks
    /// no store and waits for no part of the scheduler.
    pub fn jobs(&self) -> Vec<JobStatus> {
        self.node.statuses()
    }

    /// A page of the history of all nodes, the newest entry first. Of one job it has the active runs,
    /// too; of all jobs, only what has ended.
    ///
    /// ```
    /// use allora::{Handle, Result, backend::HistoryQuery};
    ///
    /// # async fn example(handle: Handle) -> Result {
    /// for entry in handle.history(HistoryQuery::new(10).name("report")).await? {
    ///     println!("{}: {} in {:?}", entry.occurrence.scheduled_at, entry.outcome.word(), entry.duration());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `Unsupported` if the store keeps no history; `Unavailable`.
    ///
    /// # Cancel safety
    /// Nothing is changed.
    pub async fn history(&self, query: HistoryQuery<'_>) -> Result<Vec<HistoryEntry>> {
        self.node.schedules.history(query).await
    }

    /// The nodes that live, and those that died during the last day, ordered by id, as
    /// [`Schedules::nodes`].
    ///
    /// # Errors
    /// `Unsupported` if the backend has no [queries](crate::Backend::queries); `Unavailable`.
    ///
    /// # Cancel safety
    /// Nothing is changed.
    pub async fn nodes(&self) -> Result<Vec<NodeInfo>> {
        self.node.schedules.nodes().await
    }

    /// Declares the labels that this node's program needs on some node, in place of those declared
    /// before: it has work for nodes with these labels. If no live node has one, all nodes report
    /// that ([`LabelUnmatched`](crate::Condition::LabelUnmatched)).
    ///
    /// # Errors
    /// `Invalid` for a label that [`SchedulerBuilder::node_labels`](super::SchedulerBuilder::node_labels) rejects.
    pub fn need_labels<L: Into<String>>(&self, labels: impl IntoIterator<Item = L>) -> Result {
        let labels: BTreeSet<String> = labels.into_iter().map(Into::into).collect();
        labels.iter().try_for_each(|label| check_label(label))?;
        self.node.shared().needed_labels = labels.into_iter().collect();
        Ok(())
    }

    /// Reports what the program knows about itself, in place of its report before: as conditions of
    /// this node at once ([`ProgramReport`](crate::Condition::ProgramReport)), and to the other nodes
    /// with the next write of this node's record ([`SchedulerBuilder::heartbeat`](super::SchedulerBuilder::heartbeat)).
    ///
    /// ```
    /// use allora::{Handle, ProgramReport};
    ///
    /// fn configured(handle: &Handle, error: Option<String>) {
    ///     let mut report = ProgramReport::default();
    ///     report.conditions.extend(error.map(|error| format!("mail.toml: {error}; correct it")));
    ///     handle.report(report);
    /// }
    /// # let _ = configured;
    /// ```
    pub fn report(&self, report: ProgramReport) {
        let conditions: Vec<Arc<str>> =
            report.conditions.iter().map(|what| what.as_str().into()).collect();
        self.node.shared().report = report;
        let conditions = conditions.into_iter().map(|what| Condition::ProgramReport { what });
        self.node.set_conditions(Code::ProgramReport, conditions);
    }

    /// Makes the handler of this id ([`named_handler`](super::SchedulerBuilder::named_handler)) run
    /// stored schedules of these kinds alone, from now on; none: it claims nothing. Kinds that no other
    /// handler of this node has are left to other nodes.
    ///
    /// From then on this node sends no claim of a removed kind. What an earlier claim brings is released,
    /// without counting an attempt, unless the code of its run has begun; active runs continue. The other
    /// nodes, and the reports about kinds that no node handles, learn of it with the next write of this
    /// node's record ([`heartbeat`](super::SchedulerBuilder::heartbeat)).
    ///
    /// # Errors
    /// `NotFound` if no handler has this id. `Invalid` for a kind that is no name, or that a handler
    /// which was declared before runs. Then nothing is changed.
    pub fn set_kinds<K: Into<Pattern>>(
        &self,
        id: &str,
        kinds: impl IntoIterator<Item = K>,
    ) -> Result {
        let kinds = kinds.into_iter().map(Into::into).collect();
        self.node.set_kinds(id, kinds).map_err(|error| error.op("set_kinds"))
    }

    /// Sets the largest number of simultaneous runs of the handler of this id, active runs included. If
    /// it is lower than their number, they continue, and nothing is claimed until enough of them have
    /// ended. 0: nothing is claimed. A claim that was sent before may still bring a run.
    ///
    /// A search follows at once only where the limit was 0, or kept something due from its run. So the
    /// call may be frequent.
    ///
    /// # Errors
    /// `NotFound` if no handler has this id; `Invalid` if it was declared without a limit.
    pub fn set_kind_limit(&self, id: &str, runs: usize) -> Result {
        self.node.set_kind_limit(id, runs).map_err(|error| error.op("set_kind_limit"))
    }

    /// Stops the scheduler. It claims nothing more, and its runs may continue for the [grace
    /// period](super::SchedulerBuilder::grace). When a tenth of the period is left (at most 5 s), runs are
    /// [cancelled](crate::Run::cancelled); at its end their futures are dropped. At-least-once
    /// occurrences are then released. This call returns at once; `run` returns at the end.
    pub fn stop(&self) {
        self.node.stop(Stop::Graceful);
    }

    /// Stops the scheduler without a grace period; otherwise as [`stop`](Self::stop).
    pub fn stop_now(&self) {
        self.node.stop(Stop::Now);
    }

    /// Adds a job while the scheduler runs, or before. A job that runs once, [`at`](crate::at()) a time
    /// of up to a minute ago, runs now.
    ///
    /// # Errors
    /// As [`SchedulerBuilder::build`](super::SchedulerBuilder::build). `Invalid` if the only time of the job is older.
    /// `Other` if the scheduler was stopped.
    pub fn add(&self, name: impl Into<Arc<str>>, spec: impl IntoJob) -> Result {
        let (name, spec) = (name.into(), spec.into_job());
        super::config::check(&name, &spec)?;
        let now = self.node.now(&self.node.shared());
        if let Some(at) = CheckedSchedule::of(&name, &spec).passed(now) {
            return Err(Error::invalid(format!(
                "the job {name:?} would never run: its only time, {}, is more than a minute ago; use a later \
                 time, or the present one or run_if_past for a run at once",
                at.to_rfc3339_opts(SecondsFormat::Millis, true)
            )));
        }
        self.node.add(name, spec)
    }

    /// Removes a job from this node while the scheduler runs. Returns whether the node had the job.
    /// Active runs continue, other nodes are not affected, and the job's record stays in the store.
    /// A job of this name that is [added](Self::add) later continues from there. A job that runs on
    /// every node has no record and begins again.
    pub fn remove(&self, name: &str) -> bool {
        self.node.remove(name)
    }

    /// Triggers one run of a job, now and independently of its schedule, on the first node with
    /// capacity, as [`Schedules::trigger`]. The id is remembered for
    /// [`trigger_retention`](super::SchedulerBuilder::trigger_retention).
    ///
    /// A job in code of this node that is not registered yet, because the scheduler has just begun, is
    /// waited for, for at most 10 s. While the scheduler stops, another node runs the job, or one that
    /// starts later.
    ///
    /// # Errors
    /// `Unsupported` if the backend has no [queries](crate::Backend::queries), or the job runs on every
    /// node; `NotFound`, `Invalid`, `Unavailable`; `Other` if the scheduler has ended.
    ///
    /// # Cancel safety
    /// A dropped call may or may not have triggered the run. Trigger it again with the same id.
    pub async fn trigger(&self, name: &str, id: &str) -> Result<Triggered> {
        if self.node.has_ended() {
            let over = format!(
                "{name:?} was not triggered: this scheduler has ended; trigger it by `Schedules`, or on a \
                 node that runs"
            );
            return Err(Error::new(ErrorKind::Other, over).op("trigger"));
        }
        self.change(name, |schedules| schedules.trigger(name, id)).await
    }

    /// As [`trigger`](Self::trigger), and waits for the end of the occurrence with all its attempts,
    /// for at most `timeout`. Returns its end, when the store has it.
    ///
    /// A run on this node ends the wait at once. The end of a run on another node, or of one that the
    /// same id has triggered before, is found in the store's history, if it keeps one, within a second.
    ///
    /// ```
    /// use allora::{Run, Scheduler, backend::Outcome, every, runtime::Tokio};
    /// use std::time::Duration;
    ///
    /// # let paused = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    /// # paused.block_on(async {
    /// let scheduler = Scheduler::builder(allora::Memory::new())
    ///     .job("report", every(Duration::from_secs(3_600)), async |_: Run| {})
    ///     .build()?;
    /// let handle = scheduler.handle();
    /// tokio::spawn(scheduler.run());
    ///
    /// let end = handle.trigger_and_wait("report", "by hand", Duration::from_secs(60)).await?;
    /// assert_eq!(end.outcome, Outcome::Succeeded);
    /// # Ok::<(), allora::Error>(())
    /// # }).unwrap();
    /// ```
    ///
    /// # Errors
    /// As [`trigger`](Self::trigger). `Unavailable` also if it has not ended in time: it may still
    /// wait, run, or have run on another node of a store without a history. `NotFound` also if it ended
    /// before, and no history has its end.
    ///
    /// # Cancel safety
    /// As [`trigger`](Self::trigger). A dropped call ends the wait; the occurrence goes on.
    pub async fn trigger_and_wait(&self, name: &str, id: &str, timeout: Duration) -> Result<Ended> {
        let ended = self.node.trigger_waits.add(name, id);
        let triggered = self.trigger(name, id).await?;
        let ended = async {
            match ended.await {
                Ok(end) => end,
                Err(_) => pending().await,
            }
        };
        self.node.schedules.end_of((name, id), &triggered, timeout, ended).await
    }

    /// Pauses a job's schedule on all nodes and records the reason, as [`Schedules::pause`].
    ///
    /// # Errors
    /// As [`trigger`](Self::trigger).
    ///
    /// # Cancel safety
    /// A dropped call may or may not have paused the job. Pause it again.
    pub async fn pause(&self, name: &str, note: &str) -> Result<JobState> {
        self.change(name, |schedules| schedules.pause(name, note)).await
    }

    /// Pauses a job's schedule on all nodes until this time of the store, as [`Schedules::pause_until`].
    ///
    /// # Errors
    /// As [`trigger`](Self::trigger). `Invalid` if the time has come already.
    ///
    /// # Cancel safety
    /// A dropped call may or may not have paused the job. Pause it again.
    pub async fn pause_until(&self, name: &str, until: Time, note: &str) -> Result<JobState> {
        self.change(name, |schedules| schedules.pause_until(name, until, note)).await
    }

    /// Resumes a paused job's schedule, as [`Schedules::resume`].
    ///
    /// # Errors
    /// As [`trigger`](Self::trigger). With [`Gap::Missed`]: `Invalid` if the definition cannot be read.
    ///
    /// # Cancel safety
    /// A dropped call may or may not have resumed the job. Resume it again.
    pub async fn resume(&self, name: &str, gap: Gap) -> Result<JobState> {
        self.change(name, |schedules| schedules.resume(name, gap)).await
    }

    /// Cancels the active runs of a job, on all nodes, the triggers that wait, and the occurrences that
    /// wait for another attempt, as [`Schedules::cancel`]. Returns the number of all of them; 0 if there
    /// is none.
    ///
    /// ```
    /// # use allora::{Run, Runtime, Scheduler, every, runtime::Sim};
    /// # use std::time::Duration;
    /// # fn main() -> allora::Result {
    /// # let sim = Sim::new(1);
    /// # let store = allora::Memory::new();
    /// let scheduler = Scheduler::builder(store)
    ///     .job("import", every(Duration::from_secs(60)), async |run: Run| run.cancelled().await)
    /// #   .runtime(sim.node())
    ///     .build()?;
    /// let handle = scheduler.handle();
    /// # let (node, operator) = (sim.node(), handle.clone());
    /// # node.spawn(Box::pin(async { drop(scheduler.run().await) }));
    /// # let start = node.wall();
    /// # sim.run_until(start + chrono::TimeDelta::seconds(90));
    /// # node.spawn(Box::pin(async move {
    /// // Later, while the import runs:
    /// assert_eq!(handle.cancel("import").await?, 1);
    /// # Ok::<(), allora::Error>(())
    /// # }.map(Result::unwrap)));
    /// # sim.run_until(start + chrono::TimeDelta::seconds(95));
    /// # assert_eq!(operator.running(), 0);
    /// # use futures::FutureExt;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`trigger`](Self::trigger).
    ///
    /// # Cancel safety
    /// A dropped call may or may not have cancelled the runs. Cancel them again.
    pub async fn cancel(&self, name: &str) -> Result<usize> {
        let cancelled = self.change(name, |schedules| schedules.cancel(name)).await?;
        self.node.extend_now(name);
        Ok(cancelled)
    }

    /// Changes a job by the client of the node. A job in code of this node that is not in the store is
    /// about to be registered.
    async fn change<'a, T, F>(&'a self, name: &str, call: impl Fn(&'a Schedules) -> F) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        let node = &self.node;
        check_name(name)?;
        node.schedules.queries()?;
        if node.board.is_on_every_node(name) {
            let local = format!(
                "{name:?} runs on every node, and has no record in the store that a node could read; it \
                 cannot be triggered, paused, resumed or cancelled"
            );
            return Err(Error::new(ErrorKind::Unsupported, local));
        }
        let until = later(node.runtime.now(), REGISTRATION);
        let mut wait = MIN_BACKOFF;
        loop {
            match call(&node.schedules).await {
                Err(error) if error.kind() == ErrorKind::NotFound && node.has_job(name) => {}
                answer => return answer.inspect(|_| node.changed(name)),
            }
            let now = node.runtime.now();
            if now >= until || node.shared().stop != Stop::No {
                let absent = format!(
                    "{name:?} is not in the store: it was deleted, or this scheduler, which registers it, \
                     does not run or has not reached its store yet; try again when it runs"
                );
                return Err(Error::new(ErrorKind::NotFound, absent));
            }
            node.runtime.sleep_until(later(now, wait).min(until)).await;
            wait = (wait * 2).min(MAX_BACKOFF);
        }
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle").field("node", &self.node.id).finish_non_exhaustive()
    }
}
