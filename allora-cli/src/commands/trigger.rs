//! `allora trigger`, `allora backfill` and `allora rerun`.

use super::{
    again::again,
    changes::{Changes, made},
    history::entries,
    selection::{DryRun, Selection},
};
use crate::{
    declared::{Declared, warn_of_unhandled},
    failure::{Failure, Outcome},
    output::{complain, counted, on_one_line},
    session::{self, Session, entry_json, exit_status},
    store::StoreArgs,
    values::{duration, instant, shown},
};
use allora_core::{
    Time,
    backend::{
        HistoryEntry, HistoryQuery, Occurrence, Outcome as RunOutcome, TriggerStatus, Triggered,
    },
    runtime::Tokio,
    stored::Bulk,
};
use clap::Args;
use std::{
    io::{self, Write},
    ops::ControlFlow,
    time::Duration,
};

/// Runs a job once, now, in addition to its schedule; or all jobs that options select.
///
/// The first node with room runs it. Prints the trigger's id.
#[derive(Debug, Args)]
pub(crate) struct Trigger {
    #[command(flatten)]
    jobs: Selection,
    #[command(flatten)]
    dry_run: DryRun,
    /// The trigger's own id: the same one again within the retention, and while its run waits or is
    /// active, runs nothing, and says so [default: the time].
    #[arg(long)]
    id: Option<String>,
    /// The time for which the id is remembered, at most 30 days; 0: while its run waits or is active
    /// [default: 1 day].
    #[arg(long, requires = "id", value_parser = duration)]
    retention: Option<Duration>,
    /// Waits until the run has ended, and ends with the exit status of its command: 1 if it failed
    /// otherwise, 3 if it was lost, cancelled or skipped, 4 after --wait-timeout. With an id whose run
    /// has ended, that run's end.
    #[arg(long)]
    wait: bool,
    /// The longest time to wait [default: for ever].
    #[arg(long, requires = "wait", value_parser = duration)]
    wait_timeout: Option<Duration>,
    #[command(flatten)]
    changes: Changes,
    #[command(flatten)]
    place: StoreArgs,
}

/// The interval at which the history is read, and the number of entries.
const LOOK: Duration = Duration::from_millis(200);
const LOOKED_AT: usize = 1_000;

/// The exit codes of `--wait`, beside those of the command.
const NOT_RUN: u8 = 3;
const WAITED_TOO_LONG: u8 = 4;

impl Trigger {
    pub(crate) fn run(self) -> Outcome {
        session::with(&self.place, async |mut session: Session| {
            if let Some(retention) = self.retention {
                session.schedules = session.schedules.trigger_retention(retention);
            }
            let is_given = self.id.is_some();
            let id = match self.id {
                Some(id) => id,
                None => format!(
                    "{}-{}",
                    shown(session.schedules.store_now().await?),
                    std::process::id()
                ),
            };
            let Some(name) = self.jobs.name() else {
                if self.wait {
                    let what = "--wait waits for the run of one job; name the job";
                    return Err(Failure::wrong(what));
                }
                let trigger = Bulk::Trigger { id: &id };
                return self.jobs.change(&session, trigger, self.dry_run, self.changes).await;
            };
            let name = &*session.full_name(name).await?;
            refuse_orphan(&session, name).await?;
            if self.wait {
                // A store without a history is reported before anything is triggered.
                entries(&session, HistoryQuery::new(1).name(name)).await?;
            }
            let triggered = session.schedules.trigger(name, &id).await;
            let triggered = triggered.map_err(match is_given {
                true => Failure::of_input,
                false => Failure::from,
            })?;
            let word = if triggered.is_new() { "triggered" } else { "triggered_before" };
            let mut object = made(name, word);
            object["id"] = (&*id).into();
            object["scheduled_at"] = shown(triggered.occurrence.scheduled_at).into();
            self.changes.print([object], format_args!("{id}\n"))?;
            report(name, &id, triggered.status);
            warn_of_unhandled(&session, [&*session.schedules.get(name).await?.kind]).await;
            if !self.wait {
                return Ok(());
            }
            let wait = wait(&session, name, &triggered);
            let limit = self.wait_timeout.unwrap_or(Duration::MAX);
            match tokio::time::timeout(limit, wait).await {
                Ok(ended) => result(&ended?, self.changes),
                Err(_) => {
                    complain(
                        "error",
                        &format!(
                            "the run of {name:?} has not ended within {limit:?}, and continues; \
                             `allora why {name}` says what it waits for"
                        ),
                    );
                    Err(Failure::Said(WAITED_TOO_LONG))
                }
            }
        })
    }
}

/// Says that an id was triggered before.
fn report(name: &str, id: &str, status: TriggerStatus) {
    let end = match status {
        TriggerStatus::New => return,
        TriggerStatus::Pending => "its run waits or is active",
        _ => "its run has ended; to run the job again, use another --id",
    };
    let what =
        format!("{name:?} was triggered with the id {id:?} before, and is not run again: {end}");
    complain("note", &what);
}

/// Waits for the final entry of a triggered occurrence.
async fn wait(session: &Session, name: &str, triggered: &Triggered) -> Outcome<HistoryEntry> {
    let after = triggered.entries_after();
    let is_it = |entry: &HistoryEntry| {
        entry.fence > after
            && entry.occurrence == triggered.occurrence
            && entry.outcome != RunOutcome::Running
            && entry.is_final()
    };
    let look = async || {
        let entries = entries(session, HistoryQuery::new(LOOKED_AT).name(name)).await?;
        if let Some(entry) = entries.into_iter().find(is_it) {
            return Ok(ControlFlow::Break(entry));
        }
        if triggered.status == TriggerStatus::Ended {
            return Err(Failure::failed(format!(
                "the run of {name:?} has ended, and its end is not in the history any more; \
                 `allora run --history N` keeps more entries"
            )));
        }
        Ok(ControlFlow::Continue(()))
    };
    // The store has taken the trigger.
    again(&Tokio::current()?, LOOK, true, look).await
}

/// Shows the end of a run, and ends as its command.
fn result(entry: &HistoryEntry, changes: Changes) -> Outcome {
    let error = entry.outcome.error();
    let output = entry.output.iter().chain(&entry.value).flat_map(|text| text.lines());
    let output: String = output.map(|line| on_one_line(line) + "\n").collect();
    changes.print([entry_json(entry)], output)?;
    if entry.outcome == RunOutcome::Succeeded {
        return Ok(());
    }
    let word = entry.outcome.word();
    if error.is_empty() {
        complain("error", &format!("the run of {:?} was {word}", entry.name));
        return Err(Failure::Said(NOT_RUN));
    }
    complain("error", &format!("the run of {:?} failed: {error}", entry.name));
    // One that took too long may have ended with 0 when it was asked to.
    Err(Failure::Said(exit_status(entry).filter(|status| *status > 0).unwrap_or(1)))
}

/// Rejects the trigger of a line that no node has any more: it would wait for ever.
async fn refuse_orphan(session: &Session, name: &str) -> Outcome {
    let state = session.schedules.get(name).await?;
    if state.kind.is_empty() && Declared::read(session).await?.is_orphaned(&state) {
        return Err(Failure::failed(format!(
            "{name:?} is orphaned: no live node has this line or job any more, and so none would \
             run it; put the line back, or remove its record with `allora gc`"
        )));
    }
    Ok(())
}

/// Runs a stored schedule once for each of its instants in a range of the past.
///
/// Prints the instants.
#[derive(Debug, Args)]
pub(crate) struct Backfill {
    /// The schedule's name.
    name: String,
    /// After this (exclusive): RFC 3339, or seconds since 1970.
    #[arg(long, value_parser = instant)]
    from: Time,
    /// Up to this (inclusive), in the past.
    #[arg(long, value_parser = instant)]
    until: Time,
    #[command(flatten)]
    place: StoreArgs,
}

impl Backfill {
    pub(crate) fn run(self) -> Outcome {
        let filled = session::with(&self.place, async |session: Session| {
            let filled = session.schedules.backfill(&self.name, self.from, self.until).await;
            filled.map_err(Failure::of_input)
        })?;
        if filled.is_empty() {
            let what = format!(
                "the schedule of {:?} has no time in this range: nothing is run",
                self.name
            );
            complain("warning", &what);
        }
        let mut out = io::stdout().lock();
        for occurrence in filled {
            writeln!(out, "{}", shown(occurrence.scheduled_at))?;
        }
        Ok(out.flush()?)
    }
}

/// Runs a dead letter again, or all those of the jobs that options select.
///
/// `allora show` lists the dead letters of a job.
#[derive(Debug, Args)]
pub(crate) struct Rerun {
    #[command(flatten)]
    jobs: Selection,
    /// The dead letter's scheduled time. Without it, all dead letters of the job.
    #[arg(value_parser = instant, requires = "name")]
    scheduled_at: Option<Time>,
    #[command(flatten)]
    dry_run: DryRun,
    /// The dead letter's trigger, if it had one.
    #[arg(long, requires = "scheduled_at")]
    trigger: Option<String>,
    /// Removes it instead.
    #[arg(long)]
    dismiss: bool,
    #[command(flatten)]
    changes: Changes,
    #[command(flatten)]
    place: StoreArgs,
}

impl Rerun {
    pub(crate) fn run(self) -> Outcome {
        let Self { scheduled_at, trigger, .. } = self;
        session::with(&self.place, async |session: Session| {
            let schedules = &session.schedules;
            let Some(name) = self.jobs.name() else {
                let change = if self.dismiss { Bulk::Dismiss } else { Bulk::Rerun };
                return self.jobs.change(&session, change, self.dry_run, self.changes).await;
            };
            let name = &*session.full_name(name).await?;
            let occurrences = match scheduled_at {
                Some(scheduled_at) => vec![Occurrence { scheduled_at, trigger }],
                None => {
                    let dead = schedules.get(name).await?.dead;
                    dead.into_iter().map(|letter| letter.occurrence).collect()
                }
            };
            for occurrence in &occurrences {
                match self.dismiss {
                    true => schedules.dismiss(name, occurrence).await?,
                    false => schedules.rerun(name, occurrence).await?,
                };
            }
            let letters = counted(occurrences.len(), "dead letter");
            let (word, done) = match self.dismiss {
                true => ("dismissed", "dismissed"),
                false => ("rerun", "to be run again"),
            };
            let mut object = made(name, word);
            object["runs"] = occurrences.len().into();
            self.changes.print([object], format_args!("{letters} {done}.\n"))
        })
    }
}
