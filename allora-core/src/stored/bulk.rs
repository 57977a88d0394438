//! One change of many schedules: pause, resume, trigger, rerun, delete.

use super::{
    Gap, Schedules,
    list::{Filter, PAGE},
};
use crate::{
    backend::{Action, JobState, Operation, Reply},
    error::{Error, Result},
    time::Time,
};
use std::time::Duration;

/// A change of many schedules, for [`Schedules::bulk`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Bulk<'a> {
    /// Pauses those that are not paused, or whose pause would end before this one.
    Pause {
        /// The reason.
        note: &'a str,
        /// The time at which the pause ends by itself, as of [`Schedules::pause_until`]; `None`: when
        /// the schedule is resumed.
        until: Option<Time>,
    },
    /// Resumes those that are paused.
    Resume(Gap),
    /// Triggers one run of each. Those that were triggered with the id before are not changed.
    Trigger {
        /// The id of each trigger, as in [`Schedules::trigger`].
        id: &'a str,
    },
    /// Runs all dead letters again.
    Rerun,
    /// Removes all dead letters.
    Dismiss,
    /// Deletes them. Jobs in code are left out: their nodes would not run them any more.
    Delete,
}

/// The result of a change of many schedules.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct BulkReport {
    /// The names of the schedules that were changed, in their order.
    pub changed: Vec<String>,
    /// The names of those whose trigger had this id before, within its retention: see
    /// [`Schedules::trigger`].
    pub triggered_before: Vec<String>,
    /// The names of those that were not changed, each with the reason.
    pub failed: Vec<(String, Error)>,
}

impl Bulk<'_> {
    /// `true` if it changes a schedule in this state.
    fn concerns(&self, state: &JobState) -> bool {
        match self {
            Bulk::Pause { until, .. } => state.paused.as_ref().is_none_or(|pause| {
                pause.until.is_some_and(|end| until.is_none_or(|until| end < until))
            }),
            Bulk::Resume(_) => state.paused.is_some(),
            Bulk::Trigger { .. } => true,
            Bulk::Rerun | Bulk::Dismiss => !state.dead.is_empty(),
            Bulk::Delete => !state.kind.is_empty(),
        }
    }

    /// The operations on a schedule in this state. Of a resumption that skips, there are none: it is
    /// made by a call of its own.
    fn operations<'s>(&'s self, state: &'s JobState, retention: Duration) -> Vec<Operation<'s>> {
        let one = |action| vec![Operation::new(&state.name, action)];
        let letters = state.dead.iter().map(|letter| &letter.occurrence);
        match self {
            Bulk::Pause { note, until } => one(Action::Pause { note, until: *until }),
            Bulk::Resume(Gap::CatchUp) => one(Action::Resume),
            Bulk::Resume(Gap::Missed) => Vec::new(),
            Bulk::Trigger { id } => {
                one(Action::Trigger { id, scheduled_at: None, retention, data: None })
            }
            Bulk::Rerun => letters
                .map(|occurrence| Operation::new(&state.name, Action::Rerun { occurrence }))
                .collect(),
            Bulk::Dismiss => letters
                .map(|occurrence| Operation::new(&state.name, Action::Dismiss { occurrence }))
                .collect(),
            Bulk::Delete => one(Action::Delete),
        }
    }
}

impl Schedules {
    /// Makes one change of all jobs that the filter selects, stored or in code, each by itself. Names
    /// come in their order, 500 in one request. [`bulk_preview`](Self::bulk_preview) is the dry run.
    ///
    /// ```
    /// use allora::{Schedules, stored::{Bulk, Filter}};
    ///
    /// # async fn example(schedules: Schedules) -> allora::Result {
    /// let acme = Filter::default().prefix("acme/").tag("mail");
    /// let pause = Bulk::Pause { note: "the mail server is down", until: None };
    /// println!("{:?} would be paused", schedules.bulk_preview(acme, pause).await?);
    ///
    /// let report = schedules.bulk(acme, pause).await?;
    /// for (name, error) in &report.failed {
    ///     println!("{name}: {error}");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Of one schedule: in the report. Of the call: `Unavailable`. Some schedules may then be changed;
    /// repeat the call.
    ///
    /// # Cancel safety
    /// A dropped call may have changed some of them. Repeat it.
    pub async fn bulk(&self, filter: Filter<'_>, change: Bulk<'_>) -> Result<BulkReport> {
        let mut report = BulkReport::default();
        let mut pages = self.pages(filter, None);
        while let Some(mut selected) = pages.next(PAGE).await? {
            selected.retain(|state| change.concerns(state));
            self.bulk_page(&selected, change, &mut report).await?;
        }
        Ok(report)
    }

    /// The names of the jobs that [`bulk`](Self::bulk) would change now.
    ///
    /// # Errors
    /// `Unavailable`.
    ///
    /// # Cancel safety
    /// Nothing is changed.
    pub async fn bulk_preview(&self, filter: Filter<'_>, change: Bulk<'_>) -> Result<Vec<String>> {
        let (mut names, mut pages) = (Vec::new(), self.pages(filter, None));
        while let Some(states) = pages.next(PAGE).await? {
            let selected = states.into_iter().filter(|state| change.concerns(state));
            names.extend(selected.map(|state| state.name));
        }
        Ok(names)
    }

    async fn bulk_page(
        &self,
        selected: &[JobState],
        change: Bulk<'_>,
        report: &mut BulkReport,
    ) -> Result {
        if change == Bulk::Resume(Gap::Missed) {
            for state in selected {
                let resumed = self.resume(&state.name, Gap::Missed).await;
                report.add(&state.name, resumed.err());
            }
            return Ok(());
        }
        let of = |state| change.operations(state, self.trigger_retention);
        let operations: Vec<Vec<Operation<'_>>> = selected.iter().map(of).collect();
        let all: Vec<Operation<'_>> = operations.iter().flatten().cloned().collect();
        if all.is_empty() {
            return Ok(());
        }
        let mut replies = self.apply("bulk", &all).await?.into_iter();
        for (state, operations) in selected.iter().zip(&operations) {
            let replies: Vec<Result<Reply>> = replies.by_ref().take(operations.len()).collect();
            if let [Ok(Reply::Triggered(triggered))] = &replies[..]
                && !triggered.is_new()
            {
                report.triggered_before.push(state.name.clone());
                continue;
            }
            // Of several dead letters, the first error stands for all.
            report.add(&state.name, replies.into_iter().find_map(Result::err));
        }
        Ok(())
    }
}

impl BulkReport {
    fn add(&mut self, name: &str, error: Option<Error>) {
        match error {
            None => self.changed.push(name.to_owned()),
            Some(error) => self.failed.push((name.to_owned(), error)),
        }
    }
}
