//! Reconciliation of a store with a desired set of schedules.
//!
//! A schedule that its source no longer declares is paused at once and deleted after a grace period,
//! because a mistake in a file must not destroy progress. One that is declared again continues with
//! its cursor.

use super::{
    Definition, Filter, Gap, Schedules, StoredSchedule, list::PAGE, planned::Planned,
    requests::BATCH,
};
use crate::{
    backend::{Action, JobState, Operation, Reply},
    error::{Error, ErrorKind, Result},
    name::check_name,
    time::{Time, saturating_add},
};
use chrono::SecondsFormat;
use futures::{StreamExt, TryStreamExt, stream};
use std::{collections::BTreeMap, fmt, time::Duration};

/// The desired state, for [`Schedules::sync`].
#[derive(Clone, Copy, Debug)]
pub struct DesiredState<'a> {
    stored: &'a [StoredSchedule],
    complete: Option<&'a str>,
    grace: Duration,
    dry_run: bool,
    progress: OnProgress<'a>,
}

/// The progress of a [`Schedules::sync`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SyncProgress {
    /// The number of schedules that were read from the store and compared.
    pub compared: usize,
    /// The number of changes that were made.
    pub changed: usize,
}

/// A function that is called with the progress.
#[derive(Clone, Copy)]
struct OnProgress<'a>(Option<&'a (dyn Fn(SyncProgress) + Send + Sync)>);

impl fmt::Debug for OnProgress<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "a function" } else { "none" })
    }
}

/// The number of requests that read declared schedules at the same time.
const READS: usize = 4;

impl<'a> DesiredState<'a> {
    /// The schedules that the store must have, as given. Others are left alone.
    pub fn new(stored: &'a [StoredSchedule]) -> Self {
        let grace = Duration::from_secs(24 * 3_600);
        Self { stored, complete: None, grace, dry_run: false, progress: OnProgress(None) }
    }

    /// Makes the set complete for all names with this prefix. Other stored schedules with the
    /// prefix are orphaned: they are paused, and deleted by the first `sync` after the [grace
    /// period](Self::grace). An empty prefix covers all stored schedules. Jobs in code are never
    /// affected.
    #[must_use]
    pub fn complete(mut self, prefix: &'a str) -> Self {
        self.complete = Some(prefix);
        self
    }

    /// Sets the time for which an orphaned schedule is kept. If it is declared again in that time,
    /// it continues with its old cursor. Zero: it is deleted at once. Default: 24 h.
    #[must_use]
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Makes it a dry run: `sync` changes nothing and returns the changes that it would make.
    #[must_use]
    pub fn dry_run(mut self) -> Self {
        self.dry_run = true;
        self
    }

    /// Calls this function after each request that reads schedules, and after each change. It must not
    /// block. Default: none.
    #[must_use]
    pub fn on_progress(mut self, progress: &'a (dyn Fn(SyncProgress) + Send + Sync)) -> Self {
        self.progress = OnProgress(Some(progress));
        self
    }
}

/// One difference between the desired state and the store. `Display` writes it as one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The schedule.
    pub name: String,
    /// The change that removes the difference.
    pub step: Step,
}

/// The change for a difference.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Step {
    /// The schedule is added.
    Add {
        /// Its definition.
        definition: String,
    },
    /// The schedule is changed. Its pause stays, and its cursor as far as the new definition has
    /// it.
    Modify {
        /// The kinds before and after, if they differ.
        kind: Option<(String, String)>,
        /// The definitions before and after, if they differ.
        definition: Option<(String, String)>,
        /// `true` if the data differs.
        data: bool,
    },
    /// The schedule was orphaned and is declared again. It continues with its old cursor.
    Restore,
    /// The schedule is not declared any more. It is orphaned: paused, and kept for the grace
    /// period.
    Orphan {
        /// The time from which it can be deleted.
        until: Time,
    },
    /// The schedule was orphaned, and its grace period is over. It is pruned: deleted.
    Prune,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = &self.name;
        match &self.step {
            Step::Add { definition } => write!(f, "add {name}: {definition}"),
            Step::Modify { kind, definition, data } => {
                write!(f, "modify {name}:")?;
                let mut comma = "";
                for (what, change) in [("kind", kind), ("definition", definition)] {
                    if let Some((before, after)) = change {
                        write!(f, "{comma} {what} `{before}` becomes `{after}`")?;
                        comma = ",";
                    }
                }
                if *data { write!(f, "{comma} other data") } else { Ok(()) }
            }
            Step::Restore => write!(f, "restore {name}"),
            Step::Orphan { until } => {
                let until = until.to_rfc3339_opts(SecondsFormat::Secs, true);
                write!(f, "orphan {name}: paused, and deleted after {until}")
            }
            Step::Prune => write!(f, "delete {name}"),
        }
    }
}

impl Schedules {
    /// Reconciles the store with the desired state. Returns the changes that were made, or would be
    /// made, in order.
    ///
    /// Existing schedules keep their cursor, counters and pause. A repeated call changes nothing more:
    /// what is equal is only read, 500 schedules in one request. Calls need no coordination: if two
    /// programs declare different states, the last one wins; if they declare the same state, one may
    /// receive `AlreadyExists`.
    ///
    /// # Errors
    /// `Invalid`, before any change: a schedule is rejected, or a name is given twice, lacks the
    /// prefix of a complete set, or is a job in code. `AlreadyExists` if a schedule was changed in
    /// the meantime, and `Unavailable`: some changes were made. Repeat the call.
    ///
    /// # Cancel safety
    /// A dropped call may have made some of the changes. Repeat it.
    pub async fn sync(&self, declared: DesiredState<'_>) -> Result<Vec<Difference>> {
        let now = self.recent_store_time().await?;
        let mut wanted = checked(declared)?;
        let calendars = self.calendars_of(wanted.values().map(|wanted| &wanted.definition)).await?;
        if !self.shortest_periods.is_empty() {
            for Wanted { stored, definition } in wanted.values() {
                let definition = calendars.give(definition.clone());
                let definition = definition.map_err(|error| stored.refused(error))?;
                self.check_period(&stored.name, &definition, now)?;
            }
        }
        let mut work = Work::default();
        match declared.complete {
            Some(prefix) => {
                let mut after: Option<String> = None;
                loop {
                    let filter = Filter::default().prefix(prefix);
                    let states = self.list(filter, after.as_deref(), PAGE).await?;
                    for state in &states {
                        match wanted.remove(state.name.as_str()) {
                            Some(wanted) => work.compare(&wanted, state)?,
                            None => work.leave(state, declared.grace, now),
                        }
                    }
                    work.compared(states.len(), declared);
                    if states.len() < PAGE {
                        break;
                    }
                    after = states.last().map(|state| state.name.clone());
                }
            }
            None => {
                let names: Vec<&str> = wanted.keys().copied().collect();
                // As a list, so that a task may be spawned with this call.
                let reads: Vec<_> = names.chunks(BATCH).map(|names| self.states(names)).collect();
                let mut reads = stream::iter(reads).buffered(READS);
                while let Some(states) = reads.try_next().await? {
                    for state in states.iter().flatten() {
                        if let Some(wanted) = wanted.remove(state.name.as_str()) {
                            work.compare(&wanted, state)?;
                        }
                    }
                    work.compared(states.len(), declared);
                }
            }
        }
        for Wanted { stored, definition } in wanted.into_values() {
            let definition = calendars.give(definition).map_err(|error| stored.refused(error))?;
            work.add(stored, &definition, now)?;
        }
        if !declared.dry_run {
            self.carry_out(&mut work, declared).await?;
        }
        Ok(work.differences())
    }

    /// The states of these jobs, by position; `None` for those that the store does not have.
    async fn states(&self, names: &[&str]) -> Result<Vec<Option<JobState>>> {
        let reads: Vec<Operation<'_>> = names.iter().map(|name| Operation::read(name)).collect();
        let replies = self.apply("sync", &reads).await?;
        replies.into_iter().map(|reply| reply.map(Reply::state)).collect()
    }

    async fn carry_out(&self, work: &mut Work<'_>, declared: DesiredState<'_>) -> Result {
        let mut made = Made { done: work.done, declared };
        for adds in work.adds.chunks(BATCH) {
            for added in self.add_all(adds).await? {
                added?;
            }
            made.more(adds.len());
        }
        for stored in &work.edits {
            self.modify(stored).await?;
            made.more(1);
        }
        for (name, mark) in &work.restores {
            let now = self.recent_store_time().await?;
            let before = mark.before.as_ref();
            match before.filter(|(until, _)| until.is_none_or(|until| now < until)) {
                Some((until, note)) => {
                    self.change(name, Action::Pause { note, until: *until }).await?
                }
                None => self.resume(name, Gap::CatchUp).await?,
            };
            made.more(1);
        }
        for (name, mark) in &work.orphans {
            self.pause(name, &mark.to_string()).await?;
            made.more(1);
        }
        for (name, mark) in &work.deletions {
            // Since it was listed, it may have been declared again or deleted.
            let deleted = match self.get(name).await {
                Ok(state) if mark.is_none() || Mark::of(&state) == *mark => self.delete(name).await,
                Ok(_) => Ok(()),
                Err(error) => Err(error),
            };
            deleted.or_else(|error| match error.kind() {
                ErrorKind::NotFound => Ok(()),
                _ => Err(error),
            })?;
            made.more(1);
        }
        Ok(())
    }
}

/// The changes that were made.
struct Made<'a> {
    done: SyncProgress,
    declared: DesiredState<'a>,
}

impl Made<'_> {
    fn more(&mut self, more: usize) {
        self.done.changed += more;
        self.declared.report(self.done);
    }
}

impl DesiredState<'_> {
    fn report(&self, progress: SyncProgress) {
        if let OnProgress(Some(report)) = self.progress {
            report(progress);
        }
    }
}

/// A declared schedule, with its definition.
struct Wanted<'a> {
    stored: &'a StoredSchedule,
    definition: Definition,
}

/// The declared schedules by name.
fn checked<'a>(declared: DesiredState<'a>) -> Result<BTreeMap<&'a str, Wanted<'a>>> {
    let mut wanted = BTreeMap::new();
    for stored in declared.stored {
        let name = stored.name.as_str();
        check_name(name)?;
        let refused = |error: Error| error.within(format_args!("{name:?}"));
        check_name(&stored.kind).map_err(refused)?;
        let definition = stored.definition().map_err(refused)?;
        stored.bytes()?;
        if let Some(prefix) = declared.complete.filter(|prefix| !name.starts_with(prefix)) {
            return Err(Error::invalid(format!(
                "{name:?} does not begin with {prefix:?}, the prefix of this set; use a name that does"
            )));
        }
        if wanted.insert(name, Wanted { stored, definition }).is_some() {
            return Err(Error::invalid(format!("{name:?} is declared twice; names are unique")));
        }
    }
    Ok(wanted)
}

/// The changes to make.
#[derive(Default)]
struct Work<'a> {
    adds: Vec<StoredSchedule>,
    edits: Vec<StoredSchedule>,
    restores: Vec<(&'a str, Mark)>,
    orphans: Vec<(String, Mark)>,
    /// With the mark that permits the deletion.
    deletions: Vec<(String, Option<Mark>)>,
    differences: Vec<Difference>,
    done: SyncProgress,
}

impl<'a> Work<'a> {
    fn add(&mut self, stored: &StoredSchedule, definition: &Definition, now: Time) -> Result {
        // Also rejects a schedule that would never run.
        let definition = Planned::first(stored, definition, now)?.definition().to_owned();
        self.adds.push(stored.clone());
        self.add_step(&stored.name, Step::Add { definition });
        Ok(())
    }

    fn compared(&mut self, more: usize, declared: DesiredState<'_>) {
        self.done.compared += more;
        declared.report(self.done);
    }

    /// Compares a declared schedule with its stored state.
    fn compare(&mut self, wanted: &Wanted<'a>, state: &JobState) -> Result {
        let Wanted { stored, definition } = wanted;
        let name = stored.name.as_str();
        if let Some(reason) = &state.unreadable {
            let broken = format!("the record of {name:?} cannot be read: {reason}; delete it");
            return Err(Error::invalid(broken));
        }
        if state.kind.is_empty() {
            let code = format!("{name:?} is a job in code; delete that, or choose another name");
            return Err(Error::invalid(code));
        }
        let text = definition.to_string();
        let same = state.definition == text
            || Definition::parse(name, &state.definition).is_ok_and(|old| old == *definition);
        let data = state.data != stored.bytes()?;
        let kind = (state.kind != stored.kind).then(|| (state.kind.clone(), stored.kind.clone()));
        let definition = (!same).then(|| (state.definition.clone(), text));
        if kind.is_some() || definition.is_some() || data {
            // The first run took place when it was added.
            let stored = StoredSchedule { first_run: None, ..(*stored).clone() };
            self.edits.push(stored.read_at(state.generation));
            self.add_step(name, Step::Modify { kind, definition, data });
        }
        if let Some(mark) = Mark::of(state) {
            self.restores.push((name, mark));
            self.add_step(name, Step::Restore);
        }
        Ok(())
    }

    /// Handles a stored schedule that is not declared.
    fn leave(&mut self, state: &JobState, grace: Duration, now: Time) {
        // Jobs in code and unreadable records have no kind.
        if state.kind.is_empty() {
            return;
        }
        let mark = Mark::of(state);
        let name = state.name.clone();
        let since = mark.as_ref().map_or(now, |mark| mark.since);
        let until = saturating_add(since, grace);
        if until <= now {
            self.add_step(&name, Step::Prune);
            self.deletions.push((name, mark));
        } else if mark.is_none() {
            self.add_step(&name, Step::Orphan { until });
            let before = state.paused.as_ref().map(|pause| (pause.until, pause.note.clone()));
            self.orphans.push((name, Mark { since: now, before }));
        }
    }

    fn add_step(&mut self, name: &str, step: Step) {
        self.differences.push(Difference { name: name.to_owned(), step });
    }

    /// The differences, in the order of the changes.
    fn differences(mut self) -> Vec<Difference> {
        self.differences.sort_by_key(|difference| match difference.step {
            Step::Add { .. } => 0,
            Step::Modify { .. } => 1,
            Step::Restore => 2,
            Step::Orphan { .. } => 3,
            Step::Prune => 4,
        });
        self.differences
    }
}

/// The mark of an orphaned schedule. It is stored as the note of its pause, so that every store
/// supports it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Mark {
    since: Time,
    /// The end and the note of the previous pause, if it was already paused.
    before: Option<(Option<Time>, String)>,
}

const ORPHANED: &str = "orphaned ";
const PAUSED: &str = ", paused before";
const UNTIL: &str = " until ";
const NOTE: &str = ": ";

impl Mark {
    fn of(state: &JobState) -> Option<Self> {
        let rest = state.paused.as_ref()?.note.strip_prefix(ORPHANED)?;
        let (since, before) = match rest.split_once(PAUSED) {
            Some((since, before)) => {
                let (until, note) = before.split_once(NOTE)?;
                let until = until.strip_prefix(UNTIL).map(str::parse).transpose().ok()?;
                (since, Some((until, note.to_owned())))
            }
            None => (rest, None),
        };
        Some(Self { since: since.parse().ok()?, before })
    }
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |at: Time| at.to_rfc3339_opts(SecondsFormat::Millis, true);
        write!(f, "{ORPHANED}{}", shown(self.since))?;
        let Some((until, note)) = &self.before else { return Ok(()) };
        let until = until.map(|until| format!("{UNTIL}{}", shown(until))).unwrap_or_default();
        write!(f, "{PAUSED}{until}{NOTE}{note}")
    }
}
