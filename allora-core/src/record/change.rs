//! What operators and applications do to a record: create, change, delete.

use super::{Again, At, Ledger, Record, step::first_fence};
use crate::{
    backend::{Carried, Change, Counters, DeadLetter, NewSchedule, Next, Occurrence, Pause, Skip},
    error::{Error, Kind, Result},
    name::{check_free, check_name},
    time::whole_millis,
};
use std::time::Duration;

/// The most data a stored schedule can carry, in bytes.
pub const MAX_DATA: usize = 1 << 20;

/// How long a deleted name is remembered: longer than any lease or time-out, so that a write that
/// comes late finds a tombstone and not a free name.
pub const TOMBSTONE: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// How many dead letters of one job are kept: the last ones.
pub const MAX_DEAD: usize = 32;

/// How many triggers of one job may wait.
pub const MAX_TRIGGERS: usize = 1_000;

/// Adds a stored schedule.
///
/// # Errors
/// `AlreadyExists` if the name is taken; `Invalid` for a bad name or kind, or too much data.
pub fn create(slot: &mut Option<Record>, new: &NewSchedule<'_>, at: At<'_>) -> Result {
    check_free(new.name)?;
    check_name(new.kind)?;
    check_data(new.data)?;
    check_past(new)?;
    if slot.as_ref().is_some_and(Record::is_live) {
        let taken = format!("{:?} exists already; modify it, or choose another name", new.name);
        return Err(Error::new(Kind::AlreadyExists, taken));
    }
    let mut record = registered(slot.as_ref(), new.definition, 0, new.first, at);
    record.kind = new.kind.to_owned();
    record.data = new.data.to_vec();
    let Carried { last_started, paused, counters, dead } = new.carried;
    record.last_started = last_started.map(whole_millis);
    record.paused = paused.cloned();
    record.counters = counters;
    record.dead = dead[dead.len().saturating_sub(MAX_DEAD)..].to_vec();
    *slot = Some(record);
    Ok(())
}

/// A cursor on something that was started already would never be offered.
fn check_past(new: &NewSchedule<'_>) -> Result {
    let nominal = |run: &Occurrence| run.trigger.is_none().then_some(run.at);
    let dead = new.carried.dead.iter().filter_map(|letter| nominal(&letter.run)).max();
    match (new.first, new.carried.last_started.max(dead)) {
        (Some(first), Some(last)) if first.at <= last => Err(Error::invalid(format!(
            "{:?} cannot begin at {}: its occurrence of {last} was started already",
            new.name, first.at
        ))),
        _ => Ok(()),
    }
}

/// A new record; its fence goes on where the tombstone's stopped.
pub(super) fn registered(
    tombstone: Option<&Record>,
    definition: &str,
    version: u64,
    first: Option<Next>,
    at: At<'_>,
) -> Record {
    let fence = first_fence(tombstone, at);
    Record {
        kind: String::new(),
        definition: definition.to_owned(),
        version,
        incarnation: fence,
        edition: fence,
        data: Vec::new(),
        cursor: first,
        last_started: None,
        fence,
        unheld: None,
        holds: Vec::new(),
        again: Vec::new(),
        triggers: Vec::new(),
        dead: Vec::new(),
        paused: None,
        gone: None,
        ended: None,
        last: None,
        counters: Counters::default(),
    }
}

/// Changes a job, stored or in code. What runs goes on.
///
/// # Errors
/// `NotFound`, also of a dead letter; `AlreadyExists` if an edit's edition is not the record's; `Invalid` for too much
/// data, a bad kind, a cursor that would go back to what was started, a bad trigger id or too many
/// triggers.
pub fn change(
    slot: &mut Option<Record>,
    name: &str,
    change: &Change<'_>,
    at: At<'_>,
    ledger: &mut Ledger,
) -> Result {
    let record = live(slot, name)?;
    match *change {
        Change::Edit { edition, kind, definition, data } => {
            if record.edition != edition {
                let changed = format!("{name:?} was changed since it was read; read it again");
                return Err(Error::new(Kind::AlreadyExists, changed));
            }
            check_data(data.unwrap_or_default())?;
            if let Some(kind) = kind {
                check_name(kind)?;
                if record.kind.is_empty() {
                    let code = format!("{name:?} is a job in code, which no kind routes");
                    return Err(Error::invalid(code));
                }
            }
            if let Some((definition, next)) = definition {
                forward(record, name, next)?;
                record.reap(name, at.now, ledger);
                record.redefine(name, definition, next, at, ledger);
            }
            if let Some(data) = data {
                record.data = data.to_vec();
            }
            if let Some(kind) = kind {
                kind.clone_into(&mut record.kind);
            }
            if data.is_some() || kind.is_some() {
                record.edition = record.draw_fence(at.now);
            }
        }
        Change::Pause { note } => {
            let since = record.paused.take().map_or(whole_millis(at.now), |pause| pause.since);
            record.paused = Some(Pause { since, note: note.to_owned() });
        }
        Change::Resume { skip } => {
            if let Some(skip) = skip {
                record.check_gap(name, &skip)?;
                record.pass(name, Occurrence::from(skip.expected), skip.passed, at, ledger);
                record.cursor = skip.then;
            }
            record.paused = None;
        }
        Change::Trigger { id, at: of } => {
            check_name(id)?;
            let of = of.map(whole_millis);
            let known = |run: &Occurrence| {
                run.trigger.as_deref() == Some(id) && of.is_none_or(|of| run.at == of)
            };
            let waits = record.triggers.iter().any(known)
                || record.again.iter().any(|again| known(&again.run))
                || record.holds.iter().any(|hold| known(&hold.run));
            if waits {
                return Ok(());
            }
            if record.triggers.len() >= MAX_TRIGGERS {
                let full = format!("{MAX_TRIGGERS} triggers of {name:?} wait already");
                return Err(Error::invalid(full));
            }
            let trigger = Some(id.to_owned());
            let at = of.unwrap_or_else(|| whole_millis(at.now));
            record.triggers.push(Occurrence { at, trigger });
        }
        Change::Rerun { run } => {
            let letter = record.exhume(name, run)?;
            let begun = record.again.iter().any(|again| again.run == letter.run)
                || record.holds.iter().any(|hold| hold.run == letter.run);
            if !begun {
                let at = whole_millis(at.now);
                record.again.push(Again { run: letter.run, attempts: 0, at });
            }
        }
        Change::Dismiss { run } => {
            record.exhume(name, run)?;
        }
    }
    Ok(())
}

/// Removes a job: what is left is a tombstone.
///
/// # Errors
/// `NotFound`.
pub fn delete(slot: &mut Option<Record>, name: &str, at: At<'_>) -> Result {
    let record = live(slot, name)?;
    let bare = registered(Some(record), "", 0, None, at);
    *record = Record { gone: Some(whole_millis(at.now)), ..bare };
    Ok(())
}

impl Record {
    /// Whether what is skipped is what has passed since this cursor.
    fn check_gap(&self, name: &str, skip: &Skip) -> Result {
        let follows =
            self.cursor.is_some_and(|cursor| match self.last_started >= Some(cursor.at) {
                true => cursor.at < skip.expected,
                false => cursor.at == skip.expected,
            });
        if self.edition != skip.edition || !follows {
            let changed = format!("{name:?} was changed since it was read; read it again");
            return Err(Error::new(Kind::AlreadyExists, changed));
        }
        let passed = skip.passed.last;
        if passed < skip.expected || skip.then.is_some_and(|next| next.at <= passed) {
            return Err(Error::invalid(format!("{name:?} cannot go back to what it has passed")));
        }
        Ok(())
    }

    /// Takes a dead letter out.
    fn exhume(&mut self, name: &str, run: &Occurrence) -> Result<DeadLetter> {
        let place = self.dead.iter().position(|letter| letter.run == *run);
        let place = place.ok_or_else(|| {
            let none = format!("{name:?} has no dead letter of {}", run.at);
            Error::new(Kind::NotFound, none)
        })?;
        Ok(self.dead.remove(place))
    }
}

fn live<'a>(slot: &'a mut Option<Record>, name: &str) -> Result<&'a mut Record> {
    slot.as_mut().filter(|record| record.is_live()).ok_or_else(|| missing(name))
}

/// The error for a job that is not there.
pub(crate) fn missing(name: &str) -> Error {
    Error::new(Kind::NotFound, format!("there is no job {name:?}"))
}

fn forward(record: &Record, name: &str, next: Option<Next>) -> Result {
    match (next, record.last_started) {
        (Some(next), Some(last)) if next.at <= last => Err(Error::invalid(format!(
            "{name:?} cannot go back to {}: its occurrence of {last} was started already",
            next.at
        ))),
        _ => Ok(()),
    }
}

fn check_data(data: &[u8]) -> Result {
    if data.len() > MAX_DATA {
        let len = data.len();
        let large = format!(
            "the data has {len} bytes, at most {MAX_DATA} can be stored; store a reference to it"
        );
        return Err(Error::invalid(large));
    }
    Ok(())
}
