//! `allora changes` and `allora undo`: who changed what, and taking it back.

use super::{
    changes::{Changes as Made, made},
    history::{Since, since},
};
use crate::{
    failure::{Failure, Outcome},
    kinds::masked,
    session::{self, Session},
    store::StoreArgs,
    table,
    values::shown,
};
use allora_core::{
    backend::HistoryCursor,
    record::{Change, Record},
    stored::ChangeFilter,
};
use clap::Args;
use serde_json::{Value, json};
use std::io::{self, Write};

/// Shows who changed which jobs, when and why, the newest change first.
///
/// It lists the changes by this command, and by programs that say who they are. This command's are by
/// the person whom ALLORA_ACTOR names; unless it is set, by the user who called it, be it with sudo.
#[derive(Debug, Args)]
pub(crate) struct Changes {
    /// The job's name, even if it was deleted [default: all jobs].
    name: Option<String>,
    /// Only changes by this person or program.
    #[arg(long, value_name = "ACTOR")]
    by: Option<String>,
    /// Only changes of this time and later: RFC 3339, seconds since 1970, or a time ago as 2h.
    #[arg(long, value_parser = since)]
    since: Option<Since>,
    /// At most so many changes.
    #[arg(long, short = 'n', default_value_t = 50)]
    limit: usize,
    #[command(flatten)]
    place: StoreArgs,
    /// Prints JSON, one object a line, with the job before and after.
    #[arg(long)]
    json: bool,
}

impl Changes {
    pub(crate) fn run(self) -> Outcome {
        let changes =
            session::with(&self.place, async |session: Session| self.read(&session).await)?;
        if self.json {
            let mut out = io::BufWriter::new(io::stdout().lock());
            for change in &changes {
                writeln!(out, "{}", change_json(change))?;
            }
            return Ok(out.flush()?);
        }
        let rows: Vec<[String; 8]> = changes.iter().map(row).collect();
        let columns = ["TIME", "JOB", "CHANGE", "BY", "VIA", "RESULT", "SEQUENCE", "NOTE"];
        table::print(columns, &rows)
    }

    async fn read(&self, session: &Session) -> Outcome<Vec<Change>> {
        let name = match &self.name {
            Some(name) => Some(session.full_name(name).await?),
            None => None,
        };
        let mut filter = ChangeFilter::default();
        (filter.name, filter.actor) = (name.as_deref(), self.by.as_deref());
        if let Some(since) = self.since {
            filter.from = Some(since.time(session).await?);
        }
        let (mut changes, mut before) = (Vec::new(), None);
        loop {
            let missing = self.limit - changes.len();
            let page = session.schedules.changes(filter, before.as_ref(), missing).await?;
            changes.extend(page.changes);
            before = page.next;
            if before.is_none() || changes.len() >= self.limit {
                break;
            }
        }
        let is_whole = self.by.is_none() && self.since.is_none();
        if let Some(name) = name.filter(|_| is_whole && changes.is_empty()) {
            // A name that no job has, and that has no changes, is a mistake.
            session.schedules.get(&name).await?;
        }
        Ok(changes)
    }
}

/// A change as programs read it: the library's object, with the secrets in the data masked.
fn change_json(change: &Change) -> Value {
    let mut object = json!(change);
    for side in ["before", "after"] {
        if let Some(data) = object[side].get_mut("data") {
            *data = masked(data.take());
        }
    }
    object
}

fn row(change: &Change) -> [String; 8] {
    let author = &change.author;
    [
        shown(change.at),
        change.name.clone(),
        what(change),
        author.actor.clone(),
        if author.via.is_empty() { "-".into() } else { author.via.clone() },
        change.result.word().to_owned(),
        change.sequence.to_string(),
        joined([&author.note, change.result.error()], ": "),
    ]
}

/// The change in words, and its object; of an edit, the parts that are other.
fn what(change: &Change) -> String {
    let word = change.action.word();
    let text = match (&change.before, &change.after) {
        (Some(before), Some(after)) => edited(before, after, change.lacks_data),
        _ => String::new(),
    };
    joined([word, &change.detail, &text], " ")
}

/// Those of the texts that are not empty.
fn joined<const N: usize>(texts: [&str; N], between: &str) -> String {
    let texts: Vec<&str> = texts.into_iter().filter(|text| !text.is_empty()).collect();
    texts.join(between)
}

fn edited(before: &Record, after: &Record, has_large_data: bool) -> String {
    let parts = [
        ("kind", before.kind != after.kind),
        ("definition", before.definition != after.definition),
        ("data", has_large_data || before.data != after.data),
    ];
    let changed: Vec<&str> =
        parts.into_iter().filter_map(|(part, is)| is.then_some(part)).collect();
    changed.join(", ")
}

/// Takes back a pause, a resumption, an edit or a deletion.
///
/// A deleted schedule comes back with its next occurrence, its pause, its counters and its dead
/// letters. What was changed since in the same respect is left as it is, and the undoing is a change
/// that can be undone.
#[derive(Debug, Args)]
pub(crate) struct Undo {
    /// The job's name.
    name: String,
    /// The change: its SEQUENCE in `allora changes NAME`.
    sequence: i64,
    #[command(flatten)]
    changes: Made,
    #[command(flatten)]
    place: StoreArgs,
}

impl Undo {
    pub(crate) fn run(self) -> Outcome {
        session::with(&self.place, async |session: Session| {
            let name = session.full_name(&self.name).await?;
            let above =
                HistoryCursor { fence: self.sequence.saturating_add(1), name: String::new() };
            let filter = ChangeFilter::default().name(&name);
            let found = session.schedules.changes(filter, Some(&above), 1).await?.changes;
            let change = found.first().filter(|change| change.sequence == self.sequence);
            let change = change.ok_or_else(|| {
                Failure::failed(format!(
                    "{name:?} has no change {}; `allora changes` lists those that are kept",
                    self.sequence
                ))
            })?;
            session.schedules.undo(change).await?;
            self.changes.print([made(&name, "undone")], "")
        })
    }
}
