//! A declared set of schedules, brought about in a store.

use super::{Definition, Filter, Gap, Schedules, Stored, list::PAGE, planned::Planned};
use crate::{
    backend::State,
    error::{Error, Kind, Result},
    name::check_name,
    time::{Time, saturating_add},
};
use chrono::SecondsFormat;
use std::{collections::BTreeMap, fmt, time::Duration};

/// What [`Schedules::sync`] is to bring about.
#[derive(Clone, Copy, Debug)]
pub struct Declared<'a> {
    stored: &'a [Stored],
    complete: Option<&'a str>,
    grace: Duration,
    dry_run: bool,
}

impl<'a> Declared<'a> {
    /// These are to be there, as they are here. Others are left alone.
    pub fn new(stored: &'a [Stored]) -> Self {
        Self { stored, complete: None, grace: Duration::from_secs(24 * 3_600), dry_run: false }
    }

    /// They are all whose names begin so: others are withdrawn, which is to say paused,
    /// and deleted by the first `sync` after the [grace](Self::grace). With an empty prefix: all
    /// stored schedules there are. Jobs in code are left alone in any case.
    #[must_use]
    pub fn complete(mut self, prefix: &'a str) -> Self {
        self.complete = Some(prefix);
        self
    }

    /// How long what is withdrawn can be declared again and goes on where it was; a day unless
    /// given. Zero: it is deleted at once.
    #[must_use]
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Changes nothing, and tells what would be done.
    #[must_use]
    pub fn dry_run(mut self) -> Self {
        self.dry_run = true;
        self
    }
}

/// One difference between what is declared and what is stored. Its text is a line for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The schedule.
    pub name: String,
    /// What is done about it.
    pub step: Step,
}

/// What is done about a difference.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Step {
    /// It is added.
    Add {
        /// Its definition.
        definition: String,
    },
    /// It is changed; its cursor stays as far as the new definition has it, and so does its pause.
    Modify {
        /// The kinds before and after, if it is another.
        kind: Option<(String, String)>,
        /// The definitions before and after, if it is another.
        definition: Option<(String, String)>,
        /// Whether it has other data.
        data: bool,
    },
    /// It was withdrawn, is declared again, and goes on where it was.
    Restore,
    /// It is not declared any more, and is paused.
    Withdraw {
        /// When it can be deleted.
        until: Time,
    },
    /// It was withdrawn, and its grace is over: it is deleted.
    Delete,
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
            Step::Withdraw { until } => {
                let until = until.to_rfc3339_opts(SecondsFormat::Secs, true);
                write!(f, "withdraw {name}: paused, and deleted after {until}")
            }
            Step::Delete => write!(f, "delete {name}"),
        }
    }
}

impl Schedules {
    /// Brings about what is declared; answers with what was done, in order, or would be done.
    ///
    /// What is there already keeps its cursor, its counters and its pause. Doing it twice changes
    /// nothing more. One at a time is enough: of two programs that declare different things, the
    /// last one wins, and of two that declare the same, one may be told `AlreadyExists`.
    ///
    /// # Errors
    /// `Invalid`, before anything is done: a schedule that is refused and why, a name that is there
    /// twice, is not among those that are complete, or is a job in code. `AlreadyExists` if a
    /// schedule was changed by somebody else meanwhile, and `Unavailable`: a part is done; do it
    /// again.
    ///
    /// # Cancel safety
    /// A dropped call may have done a part; do it again.
    pub async fn sync(&self, declared: Declared<'_>) -> Result<Vec<Difference>> {
        let now = self.store_now().await?;
        let mut wanted = checked(declared)?;
        let mut work = Work::default();
        match declared.complete {
            Some(prefix) => {
                let mut after: Option<String> = None;
                loop {
                    let filter = Filter::default().prefix(prefix);
                    let states = self.list(filter, after.as_deref(), PAGE).await?;
                    for state in &states {
                        match wanted.remove(state.name.as_str()) {
                            Some(stored) => work.compare(stored, state)?,
                            None => work.leave(state, declared.grace, now),
                        }
                    }
                    if states.len() < PAGE {
                        break;
                    }
                    after = states.last().map(|state| state.name.clone());
                }
            }
            None => {
                for (name, stored) in std::mem::take(&mut wanted) {
                    match self.get(name).await {
                        Ok(state) => work.compare(stored, &state)?,
                        Err(error) if error.kind() == Kind::NotFound => {
                            wanted.insert(name, stored);
                        }
                        Err(error) => return Err(error),
                    }
                }
            }
        }
        for stored in wanted.into_values() {
            work.add(stored, now)?;
        }
        if !declared.dry_run {
            self.carry_out(&work).await?;
        }
        Ok(work.told())
    }

    async fn carry_out(&self, work: &Work<'_>) -> Result {
        for added in self.add_all(&work.adds).await? {
            added?;
        }
        for stored in &work.edits {
            self.modify(stored).await?;
        }
        for (name, mark) in &work.restores {
            match &mark.note {
                Some(note) => self.pause(name, note).await?,
                None => self.resume(name, Gap::CatchUp).await?,
            };
        }
        for (name, mark) in &work.withdrawals {
            self.pause(name, &mark.to_string()).await?;
        }
        for (name, mark) in &work.deletions {
            // Somebody may have declared it again since it was listed, or deleted it.
            let deleted = match self.get(name).await {
                Ok(state) if mark.is_none() || Mark::of(&state) == *mark => self.delete(name).await,
                Ok(_) => Ok(()),
                Err(error) => Err(error),
            };
            deleted.or_else(|error| match error.kind() {
                Kind::NotFound => Ok(()),
                _ => Err(error),
            })?;
        }
        Ok(())
    }
}

/// What is declared, by name.
fn checked<'a>(declared: Declared<'a>) -> Result<BTreeMap<&'a str, &'a Stored>> {
    let mut wanted = BTreeMap::new();
    for stored in declared.stored {
        let name = stored.name.as_str();
        check_name(name)?;
        let refused =
            |error: Error| Error::new(error.kind(), format!("{name:?}: {error}")).source(error);
        check_name(&stored.kind).map_err(refused)?;
        stored.definition().map_err(refused)?;
        stored.bytes()?;
        if let Some(prefix) = declared.complete.filter(|prefix| !name.starts_with(prefix)) {
            return Err(Error::invalid(format!(
                "{name:?} does not begin with {prefix:?}, as all of this set do"
            )));
        }
        if wanted.insert(name, stored).is_some() {
            return Err(Error::invalid(format!("{name:?} is declared twice; names are unique")));
        }
    }
    Ok(wanted)
}

/// What there is to do.
#[derive(Default)]
struct Work<'a> {
    adds: Vec<Stored>,
    edits: Vec<Stored>,
    restores: Vec<(&'a str, Mark)>,
    withdrawals: Vec<(String, Mark)>,
    /// With the mark that says that they may be deleted.
    deletions: Vec<(String, Option<Mark>)>,
    told: Vec<Difference>,
}

impl<'a> Work<'a> {
    fn add(&mut self, stored: &Stored, now: Time) -> Result {
        // Also refuses what would never run.
        let definition = Planned::first(stored, now)?.definition().to_owned();
        self.adds.push(stored.clone());
        self.tell(&stored.name, Step::Add { definition });
        Ok(())
    }

    /// It is declared, and there.
    fn compare(&mut self, stored: &'a Stored, state: &State) -> Result {
        let name = stored.name.as_str();
        if let Some(reason) = &state.parked {
            let broken = format!("the record of {name:?} cannot be read: {reason}; delete it");
            return Err(Error::invalid(broken));
        }
        if state.kind.is_empty() {
            let code = format!("{name:?} is a job in code; delete that, or choose another name");
            return Err(Error::invalid(code));
        }
        let definition = stored.definition()?;
        let same = Definition::parse(name, &state.definition).is_ok_and(|old| old == definition);
        let data = state.data != stored.bytes()?;
        let kind = (state.kind != stored.kind).then(|| (state.kind.clone(), stored.kind.clone()));
        let definition = (!same).then(|| (state.definition.clone(), definition.to_string()));
        if kind.is_some() || definition.is_some() || data {
            // It had its first run when it was added.
            let stored = Stored { first_run: None, ..stored.clone() };
            self.edits.push(stored.read_at(state.edition));
            self.tell(name, Step::Modify { kind, definition, data });
        }
        if let Some(mark) = Mark::of(state) {
            self.restores.push((name, mark));
            self.tell(name, Step::Restore);
        }
        Ok(())
    }

    /// It is there, and not declared.
    fn leave(&mut self, state: &State, grace: Duration, now: Time) {
        // Neither a job in code nor what cannot be read has a kind.
        if state.kind.is_empty() {
            return;
        }
        let mark = Mark::of(state);
        let name = state.name.clone();
        let since = mark.as_ref().map_or(now, |mark| mark.since);
        let until = saturating_add(since, grace);
        if until <= now {
            self.tell(&name, Step::Delete);
            self.deletions.push((name, mark));
        } else if mark.is_none() {
            self.tell(&name, Step::Withdraw { until });
            let note = state.paused.as_ref().map(|pause| pause.note.clone());
            self.withdrawals.push((name, Mark { since: now, note }));
        }
    }

    fn tell(&mut self, name: &str, step: Step) {
        self.told.push(Difference { name: name.to_owned(), step });
    }

    /// In the order in which it is done.
    fn told(mut self) -> Vec<Difference> {
        self.told.sort_by_key(|difference| match difference.step {
            Step::Add { .. } => 0,
            Step::Modify { .. } => 1,
            Step::Restore => 2,
            Step::Withdraw { .. } => 3,
            Step::Delete => 4,
        });
        self.told
    }
}

/// That a schedule was withdrawn: kept as the note of its pause, so that every store can.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Mark {
    since: Time,
    /// The note of the pause before, if it was paused already.
    note: Option<String>,
}

const WITHDRAWN: &str = "withdrawn ";
const PAUSED: &str = ", paused before: ";

impl Mark {
    fn of(state: &State) -> Option<Self> {
        let rest = state.paused.as_ref()?.note.strip_prefix(WITHDRAWN)?;
        let (since, note) = match rest.split_once(PAUSED) {
            Some((since, note)) => (since, Some(note.to_owned())),
            None => (rest, None),
        };
        Some(Self { since: since.parse().ok()?, note })
    }
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let since = self.since.to_rfc3339_opts(SecondsFormat::Millis, true);
        write!(f, "{WITHDRAWN}{since}")?;
        match &self.note {
            Some(note) => write!(f, "{PAUSED}{note}"),
            None => Ok(()),
        }
    }
}
