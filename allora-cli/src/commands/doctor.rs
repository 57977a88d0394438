//! `allora doctor`: checks of a store.

use super::waits::key_waits;
use crate::{
    clock,
    declared::Declared,
    failure::{Failure, Outcome, chain},
    kinds,
    output::{counted, on_one_line},
    session::{self, Session},
    store::StoreArgs,
};
use allora_core::{
    Condition, Error, ErrorKind, StoredSchedule, Time,
    backend::JobState,
    runtime::{Runtime, Tokio},
    stored::{Filter, ScheduleState, WhyCode, ahead_until},
    time::since,
};
use clap::Args;
use serde_json::{Value, json};
use std::{
    collections::BTreeSet,
    io::{self, Write},
    time::Duration,
};

/// Checks the store, and finds work that no live node does.
///
/// Checks the store's tables, rights, latency and clock. Adds a schedule that never runs, and deletes
/// it. The exit code is 1 if a check fails.
#[derive(Debug, Args)]
pub(crate) struct Doctor {
    #[command(flatten)]
    place: StoreArgs,
    /// Prints JSON, one object a line: check (the code of a condition, if it is one), state (ok, bad or
    /// warning) and text; for the history also its numbers of entries and failures.
    #[arg(long)]
    json: bool,
    /// Prints the statements that give a login of the server what nodes and clients need, and checks nothing.
    #[arg(long, value_name = "LOGIN", conflicts_with = "json")]
    grants: Option<String>,
}

/// The name and the kind of what is written to see whether writing works.
const PROBE: &str = "allora:doctor";

/// The number of requests for the store's time.
const ASKED: usize = 20;

/// The largest clock difference that is not reported.
const CLOCK_OFF: Duration = Duration::from_secs(1);

/// The time for which an occurrence is due, without a lease, until it is overdue.
const OVERDUE: Duration = Duration::from_secs(60);

impl Doctor {
    pub(crate) fn run(self) -> Outcome {
        if let Some(login) = &self.grants {
            return session::with(&self.place, async |session: Session| {
                let Some(grants) = session.store.grants(login) else {
                    return Err(Failure::wrong(
                        "this store has no logins: its file has the permissions of the system",
                    ));
                };
                let mut out = io::stdout().lock();
                Ok(grants.iter().try_for_each(|grant| writeln!(out, "{grant}"))?)
            });
        }
        let report = Report { json: self.json };
        let well = session::with(&self.place, async |session: Session| {
            let store = self.place.shown()?;
            let text = format!("{store}: it answers, and its tables have the expected columns");
            report.said(true, "store", &text)?;
            if let Some(warning) = session.store.security_warning() {
                report.line("!", "tls", warning)?;
            }
            if let Some(warning) = session.store.durability_warning() {
                report.line("!", "durability", warning)?;
            }
            let mut well = true;
            well &= writes(&session, report).await?;
            well &= clock_and_speed(&session, report).await?;
            history(&session, report)?;
            wake_ups(&session, report)?;
            well &= fleet(&session, report).await?;
            well &= jobs(&session, report).await?;
            Ok(well)
        })?;
        if well {
            Ok(())
        } else {
            Err(Failure::failed("a check failed; see the lines that begin with BAD"))
        }
    }
}

async fn writes(session: &Session, report: Report) -> Outcome<bool> {
    let far = "@at 9999-01-01T00:00:00Z";
    let added = session.schedules.add(&StoredSchedule::new(PROBE, PROBE, far)).await;
    let deleted = session.schedules.delete(PROBE).await;
    // Another doctor may be at work.
    let failed =
        |result: Result<(), Error>, fine: ErrorKind| result.err().filter(|e| e.kind() != fine);
    let error =
        failed(added.map(drop), ErrorKind::AlreadyExists).or(failed(deleted, ErrorKind::NotFound));
    match &error {
        None => report.said(true, "rights", "schedules can be written and deleted")?,
        Some(error) => report.said(false, "rights", &chain(error))?,
    }
    Ok(error.is_none())
}

async fn clock_and_speed(session: &Session, report: Report) -> Outcome<bool> {
    let runtime = Tokio::current()?;
    let mut trips = Vec::with_capacity(ASKED);
    let mut off = (Duration::MAX, Duration::ZERO, false);
    for _ in 0..ASKED {
        let (before, sent) = (clock::now(), runtime.now());
        let store = session.schedules.store_now().await?;
        let (trip, after) = (runtime.now() - sent, clock::now());
        trips.push(trip);
        // The shortest trip tells most about the clock.
        if trip <= off.0 {
            let (by, ahead) = difference(before, store, after);
            off = (trip, by, ahead);
        }
    }
    trips.sort();
    let (least, middle) = (trips[0], trips[ASKED / 2]);
    report.said(
        true,
        "latency",
        &format!("{least:?} at best, {middle:?} in the middle of {ASKED}"),
    )?;
    let (_, by, ahead) = off;
    let well = by <= CLOCK_OFF;
    let side = if ahead { "ahead of" } else { "behind" };
    let text = match well {
        true if by.is_zero() => "this machine's clock agrees with the store's".to_owned(),
        true => format!("this machine's clock agrees with the store's within {by:?}"),
        false => format!("this machine's clock is {by:?} {side} the store's, which decides"),
    };
    report.said(well, "clock", &text)?;
    Ok(well)
}

/// By how much this machine's clock certainly differs, and whether it is ahead.
fn difference(before: Time, store: Time, after: Time) -> (Duration, bool) {
    if store < before { (since(before, store), true) } else { (since(store, after), false) }
}

/// The limits of the history.
fn history(session: &Session, report: Report) -> Outcome {
    let Some(history) = session.store.history() else {
        return report.said(true, "history", "no");
    };
    let limits = history.limits();
    let numbers = [limits.per_job, limits.failures_per_job];
    let [entries, failures] = numbers.map(Option::unwrap_or_default);
    let [age, failure_age] = [limits.age, limits.failure_age].map(|age| age.as_secs() / 86_400);
    let but = if limits.successes { "" } else { ", without successes" };
    let text = format!(
        "of each job {entries} entries of {age} days{but}, and {failures} failures of {failure_age} days"
    );
    let successes = limits.successes;
    let more = json!({ "entries": entries, "failures": failures, "successes": successes });
    report.line_with("ok", "history", &text, more)
}

fn wake_ups(session: &Session, report: Report) -> Outcome {
    let text = match session.store.notifier() {
        Some(_) => "yes",
        None if session.store.queries().is_some() => "no: nodes look for changes every 1.5 s",
        None => "no: nodes look for changes every 5 s",
    };
    report.said(true, "wake-ups", text)
}

/// The findings in the records of the nodes: dead nodes, and work that no live node does.
async fn fleet(session: &Session, report: Report) -> Outcome<bool> {
    let nodes = session.schedules.nodes().await?;
    let live = || nodes.iter().filter(|node| node.is_live);
    let idle = live().filter(|node| node.is_idle()).count();
    let dead: Vec<&str> =
        nodes.iter().filter(|node| node.is_dead()).map(|node| node.node.as_str()).collect();
    let mut text = format!("{} live, {idle} of them idle", live().count());
    if !dead.is_empty() {
        let (count, dead) = (dead.len(), listed(&dead));
        text += &format!("; {count} died or lost the store during the last day: {dead}");
    }
    // Other nodes do the work of a dead one.
    report.said(true, "nodes", &text)?;
    let mut well = true;
    for condition in Declared::of(&nodes).conditions() {
        well = false;
        report.said(false, "condition", &condition)?;
    }
    for condition in session.schedules.unhandled_kinds().await? {
        well = false;
        let Condition::KindUnhandled { kind, .. } = &condition else { continue };
        let text = format!("{condition}; {}", kinds::remedy(kind));
        report.said(false, condition.code(), &text)?;
    }
    // A node that does not say all of its labels may have any.
    let has: BTreeSet<&str> = live().flat_map(|node| &node.labels).map(String::as_str).collect();
    let needed: BTreeSet<&str> =
        live().flat_map(|node| &node.needed_labels).map(String::as_str).collect();
    if live().all(|node| node.is_complete) {
        for label in needed.difference(&has) {
            well = false;
            let text = format!("no live node has the label {label:?}, which lines need");
            report.said(
                false,
                WhyCode::LabelUnmatched.word(),
                &format!("{text}; start one with `--node-label {label}`"),
            )?;
        }
    }
    if let Some(node) = live().filter(|node| node.orphans > 0).max_by_key(|node| node.orphans) {
        well = false;
        let (records, examples) = (counted(node.orphans, "record"), listed(&node.orphan_examples));
        let text = format!(
            "no live daemon has the lines or jobs of {records}, such as {examples}; remove what is \
             orphaned with `allora gc`, or deploy what has the lines"
        );
        report.said(false, WhyCode::JobsOrphaned.word(), &text)?;
    }
    Ok(well)
}

/// The findings in the records of the jobs: what cannot be read, was given up, or is not claimed.
async fn jobs(session: &Session, report: Report) -> Outcome<bool> {
    let declared = Declared::read(session).await?;
    let now = session.schedules.store_now().await?;
    let states = session.schedules.list(Filter::default(), None, usize::MAX).await?;
    let named = |is_so: &dyn Fn(&JobState) -> bool| -> Vec<&str> {
        states.iter().filter(|state| is_so(state)).map(|state| state.name.as_str()).collect()
    };
    let waits = key_waits(session, &states, now).await?;
    let is_overdue = |state: &JobState| {
        state.leases.is_empty()
            && !waits.contains_key(&state.name)
            && state.due_at.is_some_and(|at| since(now, at) >= OVERDUE)
            && !declared.is_orphaned(state)
    };
    let broken = Filter::default().state(ScheduleState::Broken);
    let broken = session.schedules.list(broken, None, usize::MAX).await?;
    let names = |is_unreadable: bool| -> Vec<&str> {
        let these = broken.iter().filter(|state| state.unreadable.is_some() == is_unreadable);
        these.map(|state| state.name.as_str()).collect()
    };
    let (unreadable, invalid, bad, dead, overdue, ahead) = (
        names(true),
        names(false),
        named(&|state| kinds::bad_data(state).is_some()),
        named(&|state| ScheduleState::Dead.holds(state)),
        named(&is_overdue),
        named(&|state| ahead_until(state, now).is_some()),
    );
    let findings = [
        (
            WhyCode::RecordUnreadable,
            &unreadable,
            "whose record cannot be read",
            "`allora why NAME` says why; use a build that can, or delete them with `allora delete`",
        ),
        (
            WhyCode::JobInvalid,
            &invalid,
            "whose definition cannot be read",
            "`allora why NAME` says why; put the missing calendar with `allora calendar put`, correct \
             the definition with `allora modify`, or use a build that can read it",
        ),
        (
            WhyCode::DataMismatch,
            &bad,
            "with data that their kind cannot run",
            "`allora why NAME` says what is wrong with it, `allora modify NAME --data` replaces it",
        ),
        (
            WhyCode::Dead,
            &dead,
            "with dead letters, which are not tried again",
            "`allora show NAME` lists them, `allora rerun` runs or dismisses them",
        ),
        (
            WhyCode::JobOverdue,
            &overdue,
            "overdue for a minute, and claimed by no node",
            "`allora why NAME` says what is in the way",
        ),
        (
            WhyCode::ClockWasAhead,
            &ahead,
            "waiting for a time of a store whose clock was ahead",
            "`allora reset NAME` ends that",
        ),
    ];
    let findings = findings.iter().filter(|(_, found, ..)| !found.is_empty());
    for (what, found, is, remedy) in findings.clone() {
        let (jobs, examples) = (counted(found.len(), "job"), listed(found));
        report.said(false, what.word(), &format!("{jobs} {is} ({examples}); {remedy}"))?;
    }
    let is_attended = declared.is_known() || states.is_empty();
    if !is_attended {
        let jobs = counted(states.len(), "job");
        let text = format!(
            "no node is live on this store, which has {jobs}; start one: the program with the jobs, or \
             `allora run`"
        );
        report.said(false, WhyCode::NoLiveNode.word(), &text)?;
    }
    let is_well = findings.count() == 0;
    if is_well {
        let (jobs, waiting) = (counted(states.len(), "job"), waits.len());
        let waiting = match waits.first_key_value() {
            Some((name, key)) => {
                format!("; {waiting} waiting for a busy concurrency key ({name} for {key})")
            }
            None => String::new(),
        };
        let text = format!("{jobs}, none of them unreadable, dead or overdue{waiting}");
        report.said(true, "jobs", &text)?;
    }
    Ok(is_attended && is_well)
}

/// The first three of a list.
fn listed<T: AsRef<str>>(all: &[T]) -> String {
    let mut text = all.iter().take(3).map(AsRef::as_ref).collect::<Vec<_>>().join(", ");
    if all.len() > 3 {
        text += ", …";
    }
    text
}

/// The form of the findings.
#[derive(Clone, Copy, Debug)]
struct Report {
    json: bool,
}

impl Report {
    fn said(self, well: bool, what: &str, text: &str) -> Outcome {
        self.line(if well { "ok" } else { "BAD" }, what, text)
    }

    fn line(self, mark: &str, what: &str, text: &str) -> Outcome {
        self.line_with(mark, what, text, Value::Null)
    }

    /// A line, and what its object has beside check, state and text.
    fn line_with(self, mark: &str, what: &str, text: &str, more: Value) -> Outcome {
        if self.json {
            let state = if mark == "!" { "warning" } else { mark };
            let mut object = json!({ "check": what, "state": state.to_lowercase(), "text": text });
            if let (Some(object), Value::Object(more)) = (object.as_object_mut(), more) {
                object.extend(more);
            }
            return Ok(writeln!(io::stdout(), "{object}")?);
        }
        Ok(writeln!(io::stdout(), "{mark:<4}{what:<18}{}", on_one_line(text))?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::values::instant;

    #[test]
    fn a_clock_that_is_off_is_told_from_a_long_trip() {
        let at = |text: &str| instant(&format!("2026-01-01T00:00:{text}Z")).unwrap();
        let off = |before, store, after| difference(at(before), at(store), at(after));
        // Somewhere on the way there and back.
        assert_eq!(off("10", "10.5", "11"), (Duration::ZERO, false));
        assert_eq!(off("10", "13", "11"), (Duration::from_secs(2), false));
        assert_eq!(off("10", "07", "11"), (Duration::from_secs(3), true));
    }
}
