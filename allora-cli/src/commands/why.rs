//! `allora why`: why a job runs or does not run.

use super::{history::entries_of, waits::key_waits};
use crate::{
    clock,
    declared::Declared,
    failure::{Outcome, chain},
    kinds,
    output::{counted, on_one_line},
    session::{self, Session},
    store::StoreArgs,
    values::{instant, shown},
};
use allora_core::{
    ErrorKind, Schedule, Time,
    backend::{HistoryEntry, JobState, NotRunReason, OnExpiry, Outcome as RunOutcome},
    schedule::NoteReason,
    stored::ahead_until,
};
use chrono::TimeDelta;
use clap::Args;
use std::io::{self, Write};

/// Says why a job does not run, or what became of a scheduled time, and what to do.
#[derive(Debug, Args)]
pub(crate) struct Why {
    /// The job's name.
    name: String,
    /// A scheduled time: RFC 3339, or seconds since 1970 [default: now].
    #[arg(long, value_parser = instant)]
    at: Option<Time>,
    #[command(flatten)]
    place: StoreArgs,
}

/// The number of history entries that are read.
const LOOKED_AT: usize = 10_000;

impl Why {
    pub(crate) fn run(self) -> Outcome {
        let reasons = session::with(&self.place, async |session: Session| {
            let state = session.schedules.get(&session.full_name(&self.name).await?).await?;
            let now = session.schedules.store_now().await.unwrap_or_else(|_| clock::now());
            match self.at {
                None => present(&session, &state, now).await,
                Some(at) => Ok(vec![of_time(&session, &state, at, now).await?]),
            }
        })?;
        let mut out = io::stdout().lock();
        for reason in reasons {
            writeln!(out, "{}", on_one_line(&reason))?;
        }
        Ok(out.flush()?)
    }
}

/// The reasons for which the job does not run now, the most important reason first.
async fn present(session: &Session, state: &JobState, now: Time) -> Outcome<Vec<String>> {
    let name = &state.name;
    let mut reasons = Vec::new();
    if let Some(reason) = &state.unreadable {
        let text = format!(
            "its record cannot be read: {reason}; use a build that can, or delete it with `allora \
             delete {name}`"
        );
        return Ok(vec![text]);
    }
    if !state.kind.is_empty()
        && let Err(error) = session.schedules.definition(state).await
        && error.kind() == ErrorKind::Invalid
    {
        reasons.push(format!("its definition cannot be read: {}", chain(&error)));
    }
    if let Some(what) = kinds::bad_data(state) {
        reasons
            .push(format!("it cannot be run: {what}; `allora modify {name} --data` replaces it"));
    }
    let declared = Declared::read(session).await?;
    if !declared.is_known() {
        reasons.push("no daemon is live on this store; start one with `allora run`".to_owned());
    } else if declared.is_orphaned(state) {
        reasons.push(
            "it is orphaned: no live daemon has this line any more; put the line back, or remove \
             the record with `allora gc`"
                .to_owned(),
        );
    } else if !state.kind.is_empty() && !declared.handles(&state.kind) {
        let (kind, remedy) = (&state.kind, kinds::remedy(&state.kind));
        reasons.push(format!("no live node handles its kind {kind:?}; {remedy}"));
    }
    if state.kind.is_empty() && declared.is_only_kept(name) {
        let missing = declared.missing_labels();
        reasons.push(match missing.is_empty() {
            true => "live daemons have this line, and none of them runs it now: its crontab has errors, \
                     or it is for other nodes; `allora status` says which"
                .to_owned(),
            false => format!(
                "no live node runs this line: lines of live daemons need the label {}, which none has; \
                 start a daemon with `--node-label {}`",
                missing.join(", "),
                missing[0]
            ),
        });
    }
    if let Some(until) = ahead_until(state, now) {
        reasons.push(format!(
            "the store's clock was ahead when its record was written, and it waits until {}; `allora \
             reset {name}` ends that",
            shown(until)
        ));
    }
    if let Some(pause) = &state.paused {
        let note = if pause.note.is_empty() { String::new() } else { format!(": {}", pause.note) };
        reasons.push(format!(
            "it has been paused since {}{note}; `allora resume {name}` ends that",
            shown(pause.since)
        ));
    }
    for lease in &state.leases {
        let (at, started) = (shown(lease.occurrence.scheduled_at), shown(lease.started_at));
        let (node, attempt) = (&lease.node, lease.attempt);
        reasons.push(match declared.lives(node) || !declared.is_known() {
            true => format!("it runs now: the occurrence of {at} on {node}, attempt {attempt}, since {started}"),
            false => format!(
                "the occurrence of {at}, attempt {attempt}, was started at {started} on {node}, which is \
                 dead or does not reach the store; its lease ends at {}, and then it is {}",
                shown(lease.until),
                match lease.on_expiry {
                    OnExpiry::Retry => "run again on another node",
                    OnExpiry::Lost => "recorded as lost",
                }
            ),
        });
    }
    let waits = key_waits(session, std::slice::from_ref(state), now).await?;
    if !state.dead.is_empty() {
        let letters = counted(state.dead.len(), "dead letter");
        reasons.push(format!(
            "it has {letters}, to be run again by an operator alone; `allora show {name}` lists them, \
             `allora rerun {name} TIME` runs one"
        ));
    }
    if let Some(outcome) = state.last.as_ref().filter(|outcome| !outcome.error().is_empty()) {
        let (word, error) = (outcome.word(), outcome.error());
        reasons.push(format!(
            "its last run ended as {word}: {error}; `allora logs {name}` shows more"
        ));
    }
    if let (Some(due), Some(busy)) = (state.due_at, waits.get(name)) {
        reasons.push(format!(
            "it has been due since {} and waits for the concurrency key {}, held by {}; it runs when a \
             place is free, and `allora cancel JOB` ends the run of a holder",
            shown(due),
            busy.key,
            busy.holders
        ));
        return Ok(reasons);
    }
    reasons.push(match (state.due_at, state.next) {
        // Until the end of the lease, which the run extends.
        _ if is_leased(state) => "its schedule continues when the run ends".into(),
        (Some(due), _) if due > now && state.attempts > 0 => {
            format!("its next attempt, after {} failed, is due at {}", state.attempts, shown(due))
        }
        (Some(due), Some(next)) if due > now => {
            let later = match due > next.scheduled_at {
                true => format!(", and due at {} by delay and jitter", shown(due)),
                false => String::new(),
            };
            format!("its next occurrence is scheduled at {}{later}", shown(next.scheduled_at))
        }
        (Some(due), _) if due > now => format!("it is due at {}", shown(due)),
        (Some(due), _) if due + TimeDelta::minutes(1) > now => {
            format!("it has been due since {}, and a node claims it any moment", shown(due))
        }
        (Some(due), _) => format!(
            "it has been overdue since {}: no node has claimed it; look at the logs of its nodes, and at \
             `allora doctor`",
            shown(due)
        ),
        (None, _) if !state.leases.is_empty() => "its schedule continues when the run ends".into(),
        (None, _) if state.paused.is_some() => "its schedule continues when it is resumed".into(),
        (None, _) => "its schedule has no further occurrence".into(),
    });
    Ok(reasons)
}

/// True if the occurrence that is offered next is the one that runs: at least once, the schedule waits
/// for its end.
fn is_leased(state: &JobState) -> bool {
    let head = state.head.as_ref();
    state.leases.iter().any(|lease| {
        lease.on_expiry == OnExpiry::Retry && head.is_none_or(|head| *head == lease.occurrence)
    })
}

/// The outcome of a scheduled time.
async fn of_time(session: &Session, state: &JobState, at: Time, now: Time) -> Outcome<String> {
    let name = &state.name;
    let time = shown(at);
    let entries = entries_of(session, name, LOOKED_AT).await?;
    let holds = |entry: &&HistoryEntry| {
        let first = entry.occurrence.scheduled_at;
        first <= at && at <= entry.last.unwrap_or(first)
    };
    let schedule = session.schedules.definition(state).await.ok();
    let before = at - TimeDelta::milliseconds(1);
    let excluded = schedule.as_ref().and_then(|definition| {
        let mut notes = definition.schedule().notes(before, at).into_iter();
        notes.find(|note| note.reason == NoteReason::Excluded).map(|note| note.message)
    });
    if let Some(entry) = entries.iter().find(holds) {
        let told = told(entry, &time);
        return Ok(match excluded.filter(|_| entry.reason == Some(NotRunReason::Calendar)) {
            Some(rule) => format!("{told}: {rule}"),
            None => told,
        });
    }
    let next = schedule.as_ref().map(|definition| definition.schedule().next_at(before));
    let is_scheduled = next.map(|next| next == Some(at));
    Ok(match (at > now, is_scheduled) {
        (_, Some(false)) => {
            let next = next.flatten().map_or_else(
                || "; it has no later one".to_owned(),
                |next| format!("; the next one after it is {}", shown(next)),
            );
            match excluded {
                Some(rule) => format!("{rule}{next}"),
                None => format!("{time} is not a scheduled time of its schedule{next}"),
            }
        }
        (true, _) => format!("{time} has not come yet"),
        (false, _) => match entries.last() {
            Some(oldest) if oldest.occurrence.scheduled_at <= at => format!(
                "the history has no entry for {time}: the job was created, or its schedule was \
                 changed, after it"
            ),
            Some(oldest) => format!(
                "the history begins at {}, after {time}; `allora run` keeps more with \
                 --history and --history-age",
                shown(oldest.occurrence.scheduled_at)
            ),
            None => format!("the history has no entry of this job, and so none for {time}"),
        },
    })
}

/// An entry as a sentence.
fn told(entry: &HistoryEntry, time: &str) -> String {
    let node = &entry.node;
    let ended = entry.ended_at.map(shown).unwrap_or_default();
    let started = entry.started_at.map(shown).unwrap_or_default();
    let replaced = entry
        .reason
        .and_then(NotRunReason::replaced_by)
        .map(|by| format!("the occurrence of {} replaced it (ALLORA_OVERLAP)", shown(by)));
    let reason = match entry.reason {
        Some(NotRunReason::Replaced { .. }) => replaced.as_deref().unwrap_or_default(),
        Some(NotRunReason::CatchUp) => {
            "the catch-up policy left it out (ALLORA_CATCH_UP=all 100 runs more)"
        }
        Some(NotRunReason::Window) => "it was later than the window allows (ALLORA_WINDOW)",
        Some(NotRunReason::Overlap) => "the run before it was still active (ALLORA_OVERLAP)",
        Some(NotRunReason::ConcurrencyKey) => "its concurrency key was busy (ALLORA_MAX_KEY_WAIT)",
        Some(NotRunReason::Calendar) => "the calendar of its schedule excludes it",
        Some(NotRunReason::Operator) => "an operator cancelled it",
        Some(NotRunReason::Deleted) => "the job was deleted",
        Some(NotRunReason::Shutdown) => {
            "its daemon was stopped before it ended (a longer --grace gives it more time)"
        }
        _ => "the reason is not recorded",
    };
    match &entry.outcome {
        RunOutcome::Running => format!("{time} runs since {started} on {node}"),
        RunOutcome::Succeeded => format!("{time} ran on {node} from {started} to {ended}"),
        RunOutcome::Lost => format!(
            "{time} was started at {started} on {node}, which did not report its end; it is \
             recorded as lost and, at most once, not run again"
        ),
        RunOutcome::Expired => format!(
            "{time} was started at {started} on {node}, which did not report its end; it is run \
             again"
        ),
        outcome if !outcome.error().is_empty() => format!(
            "{time} was run on {node} from {started} to {ended}, attempt {}, and {}: {}",
            entry.attempt,
            if outcome.is_final() { "failed" } else { "is tried again" },
            outcome.error()
        ),
        outcome => format!("{time} was {}: {reason}", outcome.word()),
    }
}
