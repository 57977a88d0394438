//! `allora show`: everything about one job.

use super::{
    crontab_line::Crontabs,
    waits::{holder, key_of, record_of},
};
use crate::{
    crontab_files::Line,
    declared::{Declared, without_next},
    failure::Outcome,
    output::{counted, on_one_line},
    session::{self, Described, Session, data, describe, state_json, value},
    store::StoreArgs,
    values::shown,
};
use allora_core::{
    RunProgress, Time,
    backend::{JobState, Lease, Waiter},
    schedule::period_text,
};
use clap::Args;
use serde_json::{Value, json};
use std::io::{self, Write};

/// Shows everything about one job, be it stored, in code or in a crontab.
///
/// With the crontab that has its line, also shows the line's command, user, file, timeout and alerts,
/// which are not in the store.
#[derive(Debug, Args)]
pub(crate) struct Show {
    /// The job's name.
    name: String,
    #[command(flatten)]
    crontabs: Crontabs,
    #[command(flatten)]
    place: StoreArgs,
    /// Prints JSON.
    #[arg(long)]
    json: bool,
}

impl Show {
    pub(crate) fn run(self) -> Outcome {
        let (state, is_orphaned, key, progress) =
            session::with(&self.place, async |session: Session| {
                let state = session.schedules.get(&session.full_name(&self.name).await?).await?;
                if state.kind.is_empty() && Declared::read(&session).await?.is_orphaned(&state) {
                    return Ok((without_next(state), true, None, Vec::new()));
                }
                let key = match key_of(&state) {
                    Some(key) => record_of(&session, &key).await?,
                    None => None,
                };
                let progress = match state.leases.is_empty() {
                    true => Vec::new(),
                    false => session.schedules.progress(&state.name).await?,
                };
                Ok((state, false, key, progress))
            })?;
        let line = self.crontabs.line(&state.name)?;
        let mut out = io::stdout().lock();
        if self.json {
            let mut shown = state_json(&state, is_orphaned);
            shown["line"] = line.as_ref().map_or(Value::Null, line_json);
            shown["concurrency_key"] = json!(key);
            shown["progress"] = json!(progress);
            writeln!(out, "{shown}")?;
            return Ok(());
        }
        let orphaned = "no live node has this line or job any more; `allora gc` removes the record";
        let orphaned = is_orphaned.then(|| ("orphaned", orphaned.to_owned()));
        let of_key = key.iter().flat_map(key_lines);
        let of_line = match &line {
            Some(line) => line_lines(line),
            None if state.kind.is_empty() && state.name.contains(':') => vec![(
                "command",
                format!("in its crontab alone; `allora show {} FILE` reads it there", state.name),
            )],
            None => Vec::new(),
        };
        let more = of_line.into_iter().chain(orphaned).chain(of_key);
        for (name, value) in lines(&state, &progress).into_iter().chain(more) {
            writeln!(out, "{name:<14}{}", on_one_line(&value))?;
        }
        Ok(out.flush()?)
    }
}

/// The lines about a line of a crontab.
fn line_lines(line: &Line) -> Vec<(&'static str, String)> {
    let Line { shell, notices, settings, .. } = line;
    let none = || "-".to_owned();
    let timeout = settings.timeout.map_or_else(none, period_text);
    let alerts = [
        ("on failure", &notices.on_failure),
        ("ping", &notices.ping),
        ("mail to", &notices.mail_to),
    ];
    let alerts =
        alerts.into_iter().filter_map(|(what, to)| Some(format!("{what}: {}", to.as_ref()?)));
    let alerts = alerts.collect::<Vec<_>>().join("; ");
    vec![
        ("file", format!("{}:{}", line.path.display(), line.number)),
        ("command", shell.command.clone()),
        ("user", shell.user.clone().unwrap_or_else(|| "that of the daemon".to_owned())),
        ("timeout", timeout),
        ("alerts", if alerts.is_empty() { none() } else { alerts }),
    ]
}

/// The same, for programs.
fn line_json(line: &Line) -> Value {
    let Line { shell, notices, settings, .. } = line;
    let timeout =
        settings.timeout.map(|timeout| u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX));
    json!({
        "file": line.path.display().to_string(),
        "line": line.number,
        "command": shell.command,
        "user": shell.user,
        "timeout_ms": timeout,
        "on_failure": notices.on_failure,
        "ping": notices.ping,
        "mail_to": notices.mail_to,
    })
}

/// The holders of a concurrency key and the jobs that wait for it.
fn key_lines(key: &JobState) -> Vec<(&'static str, String)> {
    let holder = |lease: &Lease| ("key held by", holder(lease));
    let waiter = |waiter: &Waiter| {
        let (due, since) = (shown(waiter.due_at), shown(waiter.since));
        ("key wanted by", format!("{}, due at {due}, waiting since {since}", waiter.job))
    };
    key.leases.iter().map(holder).chain(key.waiters.iter().map(waiter)).collect()
}

fn lines(state: &JobState, progress: &[RunProgress]) -> Vec<(&'static str, String)> {
    let Described { schedule, in_words, zone, .. } = describe(state);
    let time = |at: Option<Time>| at.map_or_else(|| "never".into(), shown);
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
        ("scheduled at", time(state.next.map(|next| next.scheduled_at))),
        ("due at", time(state.due_at)),
    ];
    if state.attempts > 0 {
        lines.push(("tried", counted(state.attempts as usize, "time")));
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
        let end = match (lease.cancel_requested, lease.completed) {
            (true, _) => ", being cancelled",
            (false, true) => ", has succeeded and works on",
            (false, false) => "",
        };
        let text = format!("{at} on {node}, attempt {attempt}, leased until {until}{end}");
        lines.push(("running", text));
        let run = progress.iter().find(|run| run.fence == lease.fence);
        lines.extend(run.map(|run| ("progress", run.text.clone())));
    }
    for one in &state.checkpoints {
        let (at, saved) = (shown(one.occurrence.scheduled_at), shown(one.saved_at));
        let size = counted(one.value.len(), "byte");
        lines.push((
            "checkpoint",
            format!("of {at}, saved at {saved}, {size}: {}", value(&one.value)),
        ));
    }
    if let Some(pause) = &state.paused {
        let note = if pause.note.is_empty() { String::new() } else { format!(": {}", pause.note) };
        let until = pause.until.map(|until| format!(", until {}", shown(until)));
        let since = shown(pause.since);
        lines.push(("paused", format!("since {since}{}{note}", until.unwrap_or_default())));
    }
    for dead in &state.dead {
        let at = shown(dead.occurrence.scheduled_at);
        let attempts = counted(dead.attempts as usize, "attempt");
        lines.push(("dead letter", format!("{at} after {attempts}: {}", dead.error)));
    }
    if let Some(reason) = &state.unreadable {
        lines.push(("unreadable", reason.clone()));
    }
    // Runs of triggers, and attempts after the first, are not among those that the schedule started.
    let counts = state.counters.each().map(|(name, count)| match name {
        "started" => format!("{count} started by the schedule"),
        name => format!("{count} {name}"),
    });
    lines.push(("counts", counts.join(", ")));
    lines
}
