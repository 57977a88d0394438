//! The promises, compared with the processes' log and the store's history.

use crate::{
    jobs::{Chore, Span},
    log::{Line, unfinished},
};
use allora::{
    BoxError, Time,
    backend::{HistoryEntry, JobState, Outcome},
};
use allora_conformance::history::{Claims, Event, Invariant, Outcome as Ended, What, check};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// All that is known of what happened.
pub(crate) struct Evidence<'a> {
    pub(crate) chores: &'a [Chore],
    pub(crate) span: Span,
    /// Of the processes.
    pub(crate) lines: &'a [Line],
    /// Of the store: every run and every range that was missed or skipped.
    pub(crate) past: &'a [HistoryEntry],
    /// Of the store: the records at the end.
    pub(crate) states: &'a [JobState],
    pub(crate) death: Option<&'a Death>,
}

/// A machine that was killed.
pub(crate) struct Death {
    pub(crate) label: String,
    pub(crate) at: Time,
}

/// Prints the verdict.
///
/// # Errors
/// A promise was broken.
pub(crate) fn judge(evidence: &Evidence<'_>) -> Result<(), BoxError> {
    let mut broken = Vec::new();
    broken.extend(history(evidence));
    broken.extend(beginnings(evidence));
    broken.extend(completed(evidence));
    broken.extend(agreement(evidence));
    broken.extend(counters(evidence));
    broken.extend(after_death(evidence));

    let instants: usize = evidence.chores.iter().map(|c| c.instants(evidence.span).count()).sum();
    if broken.is_empty() {
        println!(
            "\n{instants} instants, all accounted for; at most once ran at most once, at least"
        );
        println!("once was completed, fences grew, and the store agrees with the log");
        return Ok(());
    }
    broken.iter().for_each(|what| println!("broken: {what}"));
    Err(format!("{} promises were broken", broken.len()).into())
}

/// The history checker's findings.
fn history(evidence: &Evidence<'_>) -> Vec<String> {
    let following = |job: &str, at: i64| {
        let chore = evidence.chores.iter().find(|chore| chore.name == job)?;
        let next = chore.schedule.next_at(Time::from_timestamp_millis(at)?)?;
        (next <= evidence.span.until).then(|| next.timestamp_millis())
    };
    let law = Invariant::new(&following).until(evidence.span.until.timestamp_millis());
    let (at_least_once, at_most_once) = events(evidence).into_iter().partition::<Vec<_>, _>(|e| {
        evidence.chores.iter().any(|chore| chore.name == e.job && chore.lease.is_some())
    });
    let mut broken = check(&at_least_once, &law);
    broken.extend(check(&at_most_once, &law.at_most_once()));
    broken.iter().map(|violation| format!("{violation:?}")).collect()
}

/// Takes and ends as the store has them, starts as the processes wrote them.
fn events(evidence: &Evidence<'_>) -> Vec<Event> {
    let mut events = Vec::new();
    for past in evidence.past {
        let (occurrence, fence) = (past.occurrence.scheduled_at.timestamp_millis(), past.fence);
        let (Some(claimed), Some(noted)) =
            (past.started_at.or(past.ended_at), past.ended_at.or(past.started_at))
        else {
            continue;
        };
        let (claimed, noted) = (claimed.timestamp_millis(), noted.timestamp_millis());
        let mut tell = |at, what| {
            events.push(Event { job: past.name.clone(), node: past.node.clone(), at, what });
        };
        let end = |outcome| What::End { occurrence, fence, outcome };
        if let Outcome::Skipped | Outcome::Missed = past.outcome {
            let last = past.last.unwrap_or(past.occurrence.scheduled_at).timestamp_millis();
            tell(noted, What::Skip { first: occurrence, last });
            continue;
        }
        let chore = evidence.chores.iter().find(|chore| chore.name == past.name);
        let lease = chore.and_then(|chore| chore.lease);
        let until = lease.map(|lease| claimed + millis(lease));
        let attempt = past.attempt;
        tell(claimed, What::Claim(Claims { occurrence, fence, attempt, until }));
        match past.outcome {
            Outcome::Succeeded => tell(noted, end(Ended::Succeeded)),
            Outcome::Failed(_) | Outcome::Dead(_) => tell(noted, end(Ended::Failed)),
            Outcome::Retried(_) | Outcome::Interrupted => tell(noted, end(Ended::Retry)),
            Outcome::Cancelled => tell(noted, end(Ended::Cancelled)),
            Outcome::Released => tell(noted, end(Ended::Released)),
            Outcome::Lost => tell(noted, What::Lost { occurrence, fence }),
            // Nobody ended it.
            _ => {}
        }
    }
    for line in evidence.lines.iter().filter(|line| line.began) {
        let what = What::Start { occurrence: line.scheduled.timestamp_millis(), fence: line.fence };
        let (job, node, at) = (line.job.clone(), line.node.clone(), line.at.timestamp_millis());
        events.push(Event { job, node, at, what });
    }
    events
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

/// The first instant of each job is accounted for too: the checker follows on from what it sees.
fn beginnings(evidence: &Evidence<'_>) -> Vec<String> {
    let missing = |chore: &&Chore| {
        let first = chore.instants(evidence.span).next();
        let mut entries = evidence.past.iter().filter(|past| past.name == chore.name);
        first.is_some_and(|first| !entries.any(|past| past.occurrence.scheduled_at == first))
    };
    let chores = evidence.chores.iter().filter(missing);
    chores.map(|chore| format!("{}: nothing is known of its first instant", chore.name)).collect()
}

/// At least once: every instant has a run that came to its end, by the log and by the store.
fn completed(evidence: &Evidence<'_>) -> Vec<String> {
    let written: BTreeSet<_> = ended(evidence.lines).map(|l| (&l.job, l.fence)).collect();
    let ran = evidence.past.iter().filter(|past| past.outcome == Outcome::Succeeded);
    let done: BTreeSet<_> = ran
        .filter(|past| written.contains(&(&past.name, past.fence)))
        .map(|past| (&past.name, past.occurrence.scheduled_at))
        .collect();
    let mut broken = Vec::new();
    for chore in evidence.chores.iter().filter(|chore| chore.lease.is_some()) {
        let open = chore.instants(evidence.span).filter(|at| !done.contains(&(&chore.name, *at)));
        broken.extend(open.map(|at| format!("{}: {at} was not completed", chore.name)));
    }
    broken
}

fn ended(lines: &[Line]) -> impl Iterator<Item = &Line> {
    lines.iter().filter(|line| !line.began)
}

/// Each run in the log is in the store for that node; each run in the store ended in the log.
fn agreement(evidence: &Evidence<'_>) -> Vec<String> {
    let known: BTreeMap<_, _> =
        evidence.past.iter().map(|past| ((&past.name, past.fence), past)).collect();
    let mut broken = Vec::new();
    for line in evidence.lines {
        let by_it = known.get(&(&line.job, line.fence)).is_some_and(|past| {
            past.node == line.node
                && past.occurrence.scheduled_at == line.scheduled
                && past.attempt == line.attempt
        });
        if !by_it {
            broken.push(format!("{} {}: the store knows it otherwise", line.job, line.fence));
        }
    }
    let written: BTreeSet<_> = ended(evidence.lines).map(|l| (&l.job, l.fence)).collect();
    for (key, past) in known {
        let said = past.outcome == Outcome::Succeeded;
        if said && !written.contains(&key) {
            broken.push(format!("{} {}: ran by the store, not by the log", key.0, key.1));
        }
    }
    broken
}

/// The records' counters are the numbers of the history's entries.
fn counters(evidence: &Evidence<'_>) -> Vec<String> {
    let mut broken = Vec::new();
    for state in evidence.states {
        let count = |outcome: &Outcome| -> u64 {
            let entries = evidence.past.iter().filter(|past| past.name == state.name);
            entries.filter(|p| p.outcome == *outcome).map(|p| p.count.unwrap_or(0)).sum()
        };
        let counters = &state.counters;
        for (counted, outcome) in [
            (counters.succeeded, Outcome::Succeeded),
            (counters.cancelled, Outcome::Cancelled),
            (counters.skipped, Outcome::Skipped),
            (counters.missed, Outcome::Missed),
            (counters.lost, Outcome::Lost),
            (counters.expired, Outcome::Expired),
        ] {
            let recorded = count(&outcome);
            if counted != recorded {
                let (name, word) = (&state.name, outcome.word());
                broken.push(format!(
                    "{name}: {counted} {word} by the counter, {recorded} by history"
                ));
            }
        }
    }
    broken
}

/// The active runs of the killed machine: each is lost, or runs again soon.
fn after_death(evidence: &Evidence<'_>) -> Vec<String> {
    let Some(death) = evidence.death else { return Vec::new() };
    println!("\n{} was killed while it ran", death.label);
    let mut broken = Vec::new();
    for line in unfinished(evidence.lines, &death.label) {
        let Some(chore) = evidence.chores.iter().find(|chore| chore.name == line.job) else {
            continue;
        };
        let (said, kept) = match chore.lease {
            None => lost(evidence, line),
            Some(lease) => run_again(evidence, line, death.at + lease),
        };
        let what = format!("{} of {}: {said}", line.job, line.scheduled.format("%H:%M:%S"));
        println!("  {what}");
        if !kept {
            broken.push(what);
        }
    }
    broken
}

/// At most once: recorded as lost, and not run again.
fn lost(evidence: &Evidence<'_>, line: &Line) -> (String, bool) {
    let entry = evidence.past.iter().find(|p| p.name == line.job && p.fence == line.fence);
    match entry.map(|past| &past.outcome) {
        Some(Outcome::Lost) => ("at most once, recorded as lost".into(), true),
        Some(other) => (format!("at most once, but recorded as {}", other.word()), false),
        None => ("at most once, and forgotten".into(), false),
    }
}

/// At least once: claimed again as the next attempt, at most a second after the lease's end.
fn run_again(evidence: &Evidence<'_>, line: &Line, lease_end: Time) -> (String, bool) {
    let next = evidence.past.iter().find(|past| {
        past.name == line.job
            && past.occurrence.scheduled_at == line.scheduled
            && past.attempt == line.attempt + 1
    });
    let Some(next) = next else { return ("at least once, but not run again".into(), false) };
    let after = next.started_at.map_or(0, |at| (at - lease_end).num_milliseconds());
    let machine = next.node.rsplit_once('-').map_or("?", |(label, _)| label);
    let said = format!("at least once, attempt {} by {machine}", next.attempt);
    match after {
        ..=1_000 => (said, true),
        late => (format!("{said}, but {late} ms after the lease's end"), false),
    }
}
