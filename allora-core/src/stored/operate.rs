//! What operators do with a schedule: pause, resume, trigger, backfill, run again.

use super::{Definition, Schedules};
use crate::{
    backend::{Change, Next, Occurrence, Passed, Skip, State},
    error::{Error, Kind, Result},
    schedule::{Schedule as _, between},
    time::Time,
};
use chrono::SecondsFormat;

/// What becomes of the instants that passed while a schedule was paused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gap {
    /// The catch-up policy decides, as after an outage.
    CatchUp,
    /// They are recorded as missed, and the schedule goes on from now.
    Missed,
}
/// How many runs one backfill asks for at most: as many as may wait.
pub const MAX_BACKFILL: usize = crate::record::MAX_TRIGGERS;
impl Schedules {
    /// Stops a schedule, and says why; triggers still run, and so does what was begun.
    ///
    /// # Errors
    /// `NotFound`, `Unavailable`.
    ///
    /// # Cancel safety
    /// A dropped call may or may not have paused it; pause it again.
    pub async fn pause(&self, name: &str, note: &str) -> Result<State> {
        self.change(name, Change::Pause { note }).await
    }

    /// Starts a paused schedule again.
    ///
    /// # Errors
    /// `NotFound`, `Unavailable`; with [`Gap::Missed`] `Invalid` if the definition cannot be read.
    ///
    /// # Cancel safety
    /// A dropped call may or may not have resumed it; resume it again.
    pub async fn resume(&self, name: &str, gap: Gap) -> Result<State> {
        loop {
            let skip = match gap {
                Gap::CatchUp => None,
                Gap::Missed => self.gap(&self.get(name).await?).await?,
            };
            match self.change(name, Change::Resume { skip }).await {
                // It was taken or changed since it was read.
                Err(error) if error.kind() == Kind::AlreadyExists => {}
                answer => return answer,
            }
        }
    }

    /// What has passed of a schedule that nobody has begun.
    async fn gap(&self, seen: &State) -> Result<Option<Skip>> {
        let name = seen.name.as_str();
        let definition = Definition::parse(name, &seen.definition)?;
        let now = self.store_now().await?;
        let started = seen.counters.started;
        let first = match seen.cursor {
            Some(begun) if seen.last_started >= Some(begun.at) => {
                definition.following(name, begun.at, started)?
            }
            cursor => cursor,
        };
        let Some(first) = first.map(|next| next.at).filter(|at| *at <= now) else {
            return Ok(None);
        };
        // From the last that passed: an interval stays on its grid.
        let schedule = definition.schedule();
        let until = definition.settings().end.map_or(now, |end| end.min(now));
        let last = schedule.latest_at(first, until);
        let count = last.and_then(|_| schedule.count(first, until)).map(|further| further + 1);
        let last = last.unwrap_or(until).max(first);
        let then = definition.following(name, last, started)?;
        let passed = Passed { count, last, overlap: false };
        Ok(Some(Skip::new(seen.edition, first, passed, then)))
    }

    /// One run beside the schedule, now; `id` is the trigger's own, and the same id again while it
    /// waits or runs changes nothing.
    ///
    /// # Errors
    /// `NotFound`; `Invalid` for a bad id, or if too many wait; `Unavailable`.
    ///
    /// # Cancel safety
    /// A dropped call may or may not have pulled it; pull it again with the same id.
    pub async fn trigger(&self, name: &str, id: &str) -> Result<State> {
        self.change(name, Change::Trigger { id, at: None }).await
    }

    /// One run beside the schedule for each of its instants after `from` and up to `until`, both in
    /// the past; answers with them. The run's [`scheduled_at`](crate::Run::scheduled_at) is the
    /// instant, its [`trigger`](crate::Run::trigger) `backfill`, and its occurrence key is the same
    /// however often it is backfilled. The same instant again while it waits or runs changes
    /// nothing.
    ///
    /// # Errors
    /// `Invalid`, before anything is done, if the range has more than [`MAX_BACKFILL`] instants, or
    /// reaches beyond now; `NotFound`, `Unavailable`.
    ///
    /// # Cancel safety
    /// A dropped call may have asked for a part; ask for the same range again.
    pub async fn backfill(&self, name: &str, from: Time, until: Time) -> Result<Vec<Occurrence>> {
        let seen = self.get(name).await?;
        let definition = Definition::parse(name, &seen.definition)?;
        let now = self.store_now().await?;
        if until > now {
            let until = until.to_rfc3339_opts(SecondsFormat::Millis, true);
            let future = format!("{until} is not in the past; what is to come needs no backfill");
            return Err(Error::invalid(future).op("backfill"));
        }
        let instants = between(definition.schedule(), from, until);
        let instants: Vec<Time> = instants.take(MAX_BACKFILL + 1).collect();
        if instants.len() > MAX_BACKFILL {
            let many = format!(
                "the range has more than {MAX_BACKFILL} instants of {name:?}; backfill it in parts"
            );
            return Err(Error::invalid(many).op("backfill"));
        }
        let mut filled = Vec::with_capacity(instants.len());
        for at in instants {
            self.change(name, Change::Trigger { id: "backfill", at: Some(at) }).await?;
            filled.push(Occurrence { at, trigger: Some("backfill".to_owned()) });
        }
        Ok(filled)
    }

    /// The next `n` occurrences of a schedule, as they stand now: what waits in the store first.
    ///
    /// # Errors
    /// `NotFound`; `Invalid` if the definition cannot be read; `Unavailable`.
    ///
    /// # Cancel safety
    /// Nothing is changed.
    pub async fn next(&self, name: &str, n: usize) -> Result<Vec<Next>> {
        let seen = self.get(name).await?;
        let definition = Definition::parse(name, &seen.definition)?;
        let mut next = seen.cursor;
        let mut started = seen.counters.started;
        let mut coming = Vec::new();
        while let Some(it) = next.filter(|_| coming.len() < n) {
            coming.push(it);
            started += u64::from(seen.last_started < Some(it.at));
            next = definition.following(name, it.at, started)?;
        }
        Ok(coming)
    }

    /// Has an occurrence that failed for good run again: the same one, its attempts counted anew.
    ///
    /// # Errors
    /// `NotFound`, also of the dead letter; `Unavailable`.
    ///
    /// # Cancel safety
    /// A dropped call may or may not have done it; a second one then finds no dead letter.
    pub async fn rerun(&self, name: &str, run: &Occurrence) -> Result<State> {
        self.change(name, Change::Rerun { run }).await
    }

    /// Forgets an occurrence that failed for good.
    ///
    /// # Errors
    /// As [`rerun`](Self::rerun).
    ///
    /// # Cancel safety
    /// As [`rerun`](Self::rerun).
    pub async fn dismiss(&self, name: &str, run: &Occurrence) -> Result<State> {
        self.change(name, Change::Dismiss { run }).await
    }
}
