//! *Run*: every field of one entry of the history, and the other attempts at the same occurrence.

use super::{
    Answer, Head, Linked, answer,
    definition::described,
    entry::{Row, lateness, reason_in_words, row},
    hours::{MONTH, sum, usually},
};
use crate::{
    actions::mark_button,
    ask::Ask,
    context::Context,
    failure::Failure,
    look::{Look, look},
    reader::Reader,
    shared::Shared,
    times::{Moment, took},
};
use allora_core::{
    HistoryEntry, HistoryQuery, Result, Time,
    backend::{HistoryCursor, JobState},
};
use askama::Template;
use axum::extract::State;
use std::sync::Arc;

#[derive(Debug, Template)]
#[template(path = "run.html")]
struct Run {
    head: Head,
    view: View,
}

#[derive(Clone, Debug)]
struct View {
    job: Linked,
    look: Look,
    scheduled: Moment,
    fields: Vec<(&'static str, String)>,
    error: String,
    output: String,
    value: String,
    why: String,
    /// For what has failed, was lost or was missed.
    mark: Option<Linked>,
    /// All attempts at the occurrence, the newest first; empty if this is the only one.
    attempts: Vec<Row>,
}

/// The number of entries on each side among which the other attempts are looked for.
const AROUND: usize = 100;

pub(crate) async fn page(State(shared): State<Arc<Shared>>, ask: Ask) -> Answer {
    let (name, text) = (ask.params.exact("name"), ask.params.get("fence"));
    let fence: i64 = text.parse().map_err(|_| Failure::no_run(name, text))?;
    let now = ask.reader.store_now().await?;
    // One that was deleted has no zone any more.
    let state = ask.reader.get(name).await.ok();
    let zone = state.as_ref().and_then(|state| described(state).zone);
    let context = ask.context(now).in_zone_of(zone.as_deref());
    let entries = around(&ask.reader, name, fence).await?;
    let entry = entries.iter().find(|entry| entry.fence == fence);
    let entry = entry.ok_or_else(|| Failure::no_run(name, text))?;
    let view = view(entry, &entries, usual(&ask.reader, state.as_ref(), now).await?, &context);
    answer(&Run { head: Head::new(&shared, &ask, &context, ("run", "runs"), name), view })
}

/// The usual duration of the runs of a job, in words.
async fn usual(reader: &Reader, state: Option<&JobState>, now: Time) -> Result<Option<String>> {
    let asked: Vec<&JobState> = state.into_iter().collect();
    let hours = reader.hours_of(&asked, now - MONTH, now).await?;
    Ok(usually(&sum(hours.values().flatten()).duration))
}

/// The newest entries of a job, and those from this one on.
async fn around(reader: &Reader, name: &str, fence: i64) -> Result<Vec<HistoryEntry>> {
    let newest = reader.history(HistoryQuery::new(AROUND).name(name)).await?;
    if newest.next.is_none() {
        return Ok(newest.entries);
    }
    let next = HistoryCursor { fence: fence.saturating_add(1), name: name.to_owned() };
    let query = HistoryQuery::new(AROUND).name(name);
    let older = reader.history(query.before(&next)).await?.entries;
    let is_new = |entry: &HistoryEntry| !older.iter().any(|other| other.fence == entry.fence);
    let mut entries: Vec<HistoryEntry> = newest.entries.into_iter().filter(is_new).collect();
    entries.extend(older);
    Ok(entries)
}

fn view(
    entry: &HistoryEntry,
    entries: &[HistoryEntry],
    usual: Option<String>,
    context: &Context,
) -> View {
    let is_same = |other: &&HistoryEntry| other.occurrence == entry.occurrence;
    let attempts: Vec<Row> =
        entries.iter().filter(is_same).map(|other| row(other, context)).collect();
    let shown = |text: &Option<String>| match text {
        Some(text) if context.sees_data => text.clone(),
        Some(_) => "hidden".to_owned(),
        None => String::new(),
    };
    View {
        job: Linked { text: entry.name.clone(), link: context.job(&entry.name) },
        look: look(entry.outcome.word()),
        scheduled: context.moment(entry.occurrence.scheduled_at),
        fields: fields(entry, usual, context),
        error: context.visible(entry.outcome.error()).to_owned(),
        output: shown(&entry.output),
        value: shown(&entry.value),
        why: context.why(&entry.name, entry.occurrence.scheduled_at),
        mark: Some(entry)
            .filter(|entry| entry.outcome.is_failure() && entry.is_final())
            .and_then(|entry| mark_button(&entry.name, &entry.occurrence, context)),
        attempts: if attempts.len() > 1 { attempts } else { Vec::new() },
    }
}

fn fields(
    entry: &HistoryEntry,
    usual: Option<String>,
    context: &Context,
) -> Vec<(&'static str, String)> {
    let moment = |at| {
        let moment = context.moment(at);
        format!("{}, {}", moment.text, moment.distance)
    };
    let some = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    let is_run = entry.attempt > 0;
    let fields = [
        ("kind", some(&entry.kind)),
        ("trigger", entry.occurrence.trigger.clone()),
        ("until", entry.last.map(moment)),
        ("occurrences", entry.count.filter(|_| !is_run).map(|count| count.to_string())),
        ("due", entry.due_at.map(moment)),
        ("started", entry.started_at.map(moment)),
        ("ended", entry.ended_at.map(moment)),
        ("late by", lateness(entry).map(took)),
        ("took", entry.duration().map(took)),
        ("usually takes", usual.filter(|_| is_run)),
        ("attempt", is_run.then(|| entry.attempt.to_string())),
        ("node", some(&entry.node)),
        ("reason", reason_in_words(entry, context)),
        ("fence", Some(entry.fence.to_string())),
    ];
    fields.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::times::at;
    use allora_core::Outcome;

    fn attempt(fence: i64, attempt: u32, outcome: Outcome) -> HistoryEntry {
        let scheduled_at = at("2026-10-26T01:00:00Z");
        let mut entry = HistoryEntry::new("invoices", fence, scheduled_at.into(), outcome);
        (entry.attempt, entry.due_at) = (attempt, Some(scheduled_at));
        entry.started_at = Some(at("2026-10-26T01:00:25Z"));
        entry.ended_at = Some(at("2026-10-26T01:00:55Z"));
        entry.output = Some("1,204 invoices".into());
        entry.value = Some("[1204]".into());
        entry
    }

    #[test]
    fn a_run_has_its_fields_and_the_attempts_before_it() {
        let entries = [
            attempt(9, 2, Outcome::Dead("connection refused".into())),
            attempt(7, 1, Outcome::Retried("connection refused".into())),
        ];
        let view = view(&entries[0], &entries, Some("9 min".into()), &Context::of_test());
        assert_eq!((view.look.word, view.attempts.len()), ("dead", 2));
        let mark = "act?do=mark&name=invoices&at=2026-10-26T01%3A00%3A00Z";
        assert!(view.mark.is_some_and(|button| button.link.starts_with(mark)));
        let field = |name: &str| {
            view.fields.iter().find(|field| field.0 == name).map(|field| field.1.as_str())
        };
        assert_eq!(field("late by"), Some("25.0 s"));
        assert_eq!(field("started"), Some("Mon 26 Oct 02:00:25 CET, 1 h 11 min ago"));
        assert_eq!((field("fence"), field("occurrences")), (Some("9"), None));
        assert_eq!(field("usually takes"), Some("9 min"));
        assert_eq!((&*view.error, &*view.output), ("connection refused", "1,204 invoices"));
        assert_eq!(view.value, "[1204]");
    }

    #[test]
    fn output_is_hidden_and_the_page_says_that_there_is_some() {
        let context = Context { sees_data: false, ..Context::of_test() };
        let entry = attempt(9, 1, Outcome::Succeeded);
        let view = view(&entry, std::slice::from_ref(&entry), None, &context);
        assert_eq!((&*view.output, &*view.value, view.attempts.len()), ("hidden", "hidden", 0));
    }
}
