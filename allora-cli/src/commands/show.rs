//! `allora show`: everything about one job.

use crate::{
    failure::Outcome,
    output::on_one_line,
    session::{self, Described, Session, data, describe, state_json},
    store::StoreArgs,
    values::shown,
};
use allora_core::{Time, backend::JobState};
use clap::Args;
use std::io::{self, Write};

/// Shows everything about one job, stored, in code or in a crontab.
#[derive(Debug, Args)]
pub(crate) struct Show {
    /// The job's name.
    name: String,
    #[command(flatten)]
    place: StoreArgs,
    /// Prints JSON.
    #[arg(long)]
    json: bool,
}

impl Show {
    pub(crate) fn run(self) -> Outcome {
        let state = session::with(&self.place, async |session: Session| {
            Ok(session.schedules.get(&self.name).await?)
        })?;
        let mut out = io::stdout().lock();
        if self.json {
            writeln!(out, "{}", state_json(&state))?;
            return Ok(());
        }
        for (name, value) in lines(&state) {
            writeln!(out, "{name:<14}{}", on_one_line(&value))?;
        }
        Ok(out.flush()?)
    }
}

fn lines(state: &JobState) -> Vec<(&'static str, String)> {
    let Described { schedule, in_words, zone, .. } = describe(state);
    let time = |at: Option<Time>| at.map_or_else(|| "never".into(), shown);
    let counters = &state.counters;
    let mut lines = vec![
        ("name", state.name.clone()),
        (
            "kind",
            if state.kind.is_empty() { "- (a job in code)".into() } else { state.kind.clone() },
        ),
        ("schedule", schedule),
        ("in words", in_words.unwrap_or_else(|| "-".into())),
        ("timezone", zone),
        ("definition", state.definition.clone()),
        ("data", data(state)),
        ("scheduled at", time(state.cursor.map(|next| next.scheduled_at))),
        ("due at", time(state.due_at)),
    ];
    if state.attempts > 0 {
        lines.push(("tried", format!("{} times", state.attempts)));
    }
    if let Some(last) = state.last_started {
        lines.push(("last started", shown(last)));
    }
    if let Some(outcome) = &state.last {
        let error = outcome.error();
        let colon = if error.is_empty() { "" } else { ": " };
        lines.push(("last outcome", format!("{}{colon}{error}", outcome.word())));
    }
    for lease in &state.leases {
        let (at, until) = (shown(lease.occurrence.scheduled_at), shown(lease.until));
        let (node, attempt) = (&lease.node, lease.attempt);
        let end = if lease.cancel_requested { ", being cancelled" } else { "" };
        let text = format!("{at} on {node}, attempt {attempt}, leased until {until}{end}");
        lines.push(("running", text));
    }
    if let Some(pause) = &state.paused {
        let note = if pause.note.is_empty() { String::new() } else { format!(": {}", pause.note) };
        lines.push(("paused", format!("since {}{note}", shown(pause.since))));
    }
    for dead in &state.dead {
        let (at, attempts) = (shown(dead.occurrence.scheduled_at), dead.attempts);
        lines.push(("dead letter", format!("{at} after {attempts} attempts: {}", dead.error)));
    }
    if let Some(reason) = &state.unreadable {
        lines.push(("unreadable", reason.clone()));
    }
    lines.push(("counts", format!(
        "{} started, {} succeeded, {} failed, {} cancelled, {} skipped, {} missed, {} lost, {} expired",
        counters.started, counters.succeeded, counters.failed, counters.cancelled, counters.skipped,
        counters.missed, counters.lost, counters.expired
    )));
    lines
}
