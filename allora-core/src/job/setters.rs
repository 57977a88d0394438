//! The setters of a job's settings, once for all types that have settings.

/// The setters, for the `impl` of a type with a method `settings_mut`.
macro_rules! setters {
    () => {
        /// Delivers at least once. The cursor moves when the run has ended. If the node dies, the
        /// occurrence is run again, as the next attempt, when the lease is over. Successive occurrences
        /// never overlap. Default: at most once; of a stored schedule at least once, with a lease of 30
        /// s.
        ///
        /// `lease`: Range: 1 s to 24 h. The lease is extended after every third of it while the run is
        /// alive.
        pub fn at_least_once(mut self, lease: Duration) -> Self {
            self.settings_mut().delivery = Delivery::AtLeastOnce { lease };
            self
        }

        /// The policy for occurrences that were missed during an outage. Default: the latest one is
        /// run.
        pub fn catch_up(mut self, policy: CatchUp) -> Self {
            self.settings_mut().catch_up = policy;
            self
        }

        /// The longest delay of a start. A later occurrence is not run but recorded as missed. Default:
        /// none. Range: 1 ms to 366 days.
        pub fn window(mut self, window: Duration) -> Self {
            self.settings_mut().window = Some(window);
            self
        }

        /// The policy for an at-most-once occurrence that is due while the previous run is active, on
        /// any node. Default: both run at the same time.
        ///
        /// The runs of an [at-least-once](Self::at_least_once) job never overlap, and with this setting
        /// it is rejected.
        pub fn overlap(mut self, policy: Overlap) -> Self {
            self.settings_mut().overlap = policy;
            self
        }

        /// The retry policy of failed at-least-once runs. Default: one attempt; of a stored schedule
        /// five, of which the second begins after 10 s.
        pub fn retry(mut self, retry: Retry) -> Self {
            self.settings_mut().retry = retry;
            self
        }

        /// The longest duration of a run. A longer run is dropped and recorded as failed. Default:
        /// none. Range: 1 ms to 366 days.
        pub fn timeout(mut self, timeout: Duration) -> Self {
            self.settings_mut().timeout = Some(timeout);
            self
        }

        /// A fixed delay after the scheduled time, which is reported unchanged. Whole milliseconds.
        /// Default: 0. Range: 0 to 366 days.
        pub fn delay(mut self, delay: Duration) -> Self {
            self.settings_mut().delay = delay;
            self
        }

        /// A delay between 0 and `longest`, added to the scheduled time and the fixed delay. It is
        /// derived from the name and the scheduled time, so it is the same on every node and the
        /// jobs of a fleet do not all start at once. Whole milliseconds. Default: 0. Range: 0 to 366
        /// days.
        pub fn jitter(mut self, longest: Duration) -> Self {
            self.settings_mut().jitter = longest;
            self
        }

        /// The earliest scheduled time (cut to milliseconds, as every scheduled time is). The first
        /// occurrence is the first one at or after it, and that of an interval is the start itself. If the
        /// start is more than a minute past when the job is added, the first occurrence is the next one
        /// from now on; of a stored schedule, it is still the first one since the start.
        pub fn starting(mut self, at: Time) -> Self {
            self.settings_mut().start = Some(whole_millis(at));
            self
        }

        /// The latest scheduled time (cut to milliseconds).
        pub fn ending(mut self, at: Time) -> Self {
            self.settings_mut().end = Some(whole_millis(at));
            self
        }

        /// The largest number of occurrences of the schedule that are started, over all nodes and
        /// restarts. Triggers and further attempts are not counted. Default: none. Range: at least 1.
        pub fn max_runs(mut self, runs: u64) -> Self {
            self.settings_mut().max_runs = Some(runs);
            self
        }

        /// Runs once when the job is created, at the store's time of that, and then by its schedule.
        /// A job that exists does not run when a node starts, or when its definition changes. Of
        /// [`max_runs`](Self::max_runs) it is the first, and no delay applies to it. Default: it waits for
        /// its first scheduled time.
        pub fn run_when_created(mut self) -> Self {
            self.settings_mut().run_when_created = true;
            self
        }

        /// Runs a single time ([`at`](crate::at()), `StoredSchedule::once`) however long it is past when the job
        /// is created. Default: up to a minute. An older one is an error when a stored schedule is added,
        /// and is recorded as missed for a job in code.
        pub fn run_if_past(mut self) -> Self {
            self.settings_mut().run_if_past = true;
            self
        }

        /// Runs one at a time with all jobs of this key, on all nodes:
        /// [`concurrency_key(key, 1)`](Self::concurrency_key).
        pub fn mutex(self, key: impl Into<Arc<str>>) -> Self {
            self.concurrency_key(key, 1)
        }

        /// The longest wait for the [concurrency key](Self::concurrency_key). When it is over, the due
        /// occurrences are recorded as skipped. An occurrence that was started, and a trigger, waits
        /// for longer. Default: none. Range: 1 ms to 366 days.
        pub fn max_key_wait(mut self, wait: Duration) -> Self {
            self.settings_mut().max_key_wait = Some(wait);
            self
        }

        /// Pauses the job by itself after so many failed occurrences in a row, and tells people. A run that
        /// succeeds ends the pause. Default: none. A job that runs on every node has none.
        ///
        /// ```
        /// use allora::{Breaker, StoredSchedule};
        /// use std::time::Duration;
        ///
        /// let breaker = Breaker::after(5).probe_after(Duration::from_secs(600));
        /// let sync = StoredSchedule::new("acme/sync", "sync", "*/5 * * * *").breaker(breaker);
        /// ```
        pub fn breaker(mut self, breaker: Breaker) -> Self {
            self.settings_mut().breaker = Some(breaker);
            self
        }

        /// Tells people after so many failed occurrences in a row, perhaps again while it fails, and when
        /// it succeeds again: an event [`FailureStreak`](crate::Event::FailureStreak). Default: none.
        pub fn alert(mut self, rule: AlertRule) -> Self {
            self.settings_mut().alert = Some(rule);
            self
        }

        /// The largest number of failures and of other entries in the history of this job, and their
        /// longest age, where that is less than the store keeps. Default: as the
        /// [store](crate::backend::HistoryLimits). It is enforced in the background, within an hour or two.
        /// Range: 1 to 1 million entries, 1 hour to 100 years.
        pub fn history(mut self, entries: u32, age: Duration) -> Self {
            self.settings_mut().history = Some(JobHistory::new(entries, age));
            self
        }

        /// Runs after another job, in addition to the times of the schedule: each time an occurrence of
        /// that job [ends so](crate::On), and also when the node dies that has run it. The run is a
        /// trigger of this job whose id contains the [key](crate::backend::followed) of that occurrence,
        /// and which is accepted once. A pause holds it back. With [`never`](crate::schedule::never) as
        /// its schedule, the job runs at no other time.
        ///
        /// The jobs can be added in any order. Several jobs can run after one, up to
        /// [64](crate::backend::MAX_FOLLOWERS), and chains have up to
        /// [32](crate::backend::MAX_CHAIN) jobs. A job runs after one other job.
        pub fn after(mut self, job: impl Into<String>, on: crate::On) -> Self {
            self.settings_mut().after = Some(crate::After::new(job, on));
            self
        }

        /// Sets all settings.
        pub fn with_settings(mut self, settings: Settings) -> Self {
            *self.settings_mut() = settings;
            self
        }
    };
}

pub(crate) use setters;
