//! *Job*: everything about one job, with the answer why it did or did not run.

use super::{
    Answer, Head, Linked, answer, counted,
    definition::{Described, Field, described, fields},
    entry::{Row, row},
    hours::{MONTH, in_a_month, median, sum},
    need::sentence,
    past::NO_SUCCESSES,
    strip::{COMING, PAST, Strip, strip},
};
use crate::{
    actions::{buttons, letter_buttons},
    ask::Ask,
    context::Context,
    failure::Failure,
    look::{Look, look},
    reader::Reader,
    shared::Shared,
    times::Moment,
    words::{Around, short_nodes, words},
};
use allora_core::{
    ErrorKind, HistoryEntry, HistoryQuery, NodeInfo, Result, Schedule, Time,
    backend::{JobState, NextRun},
    stored::{Definition, Fact, Hour, Why},
};
use askama::Template;
use axum::extract::State;
use chrono::TimeDelta;
use std::sync::Arc;

#[derive(Debug, Template)]
#[template(path = "job.html")]
struct Job {
    head: Head,
    view: View,
}

/// The records about a job.
#[derive(Debug)]
struct Facts {
    /// `None` if the job was deleted, and only the history has it.
    state: Option<JobState>,
    definition: Option<Definition>,
    /// `None` if the store keeps none.
    entries: Option<Vec<HistoryEntry>>,
    lacks_successes: bool,
    /// Of the last 30 days.
    hours: Vec<Hour>,
    next: Vec<NextRun>,
    why: Why,
    nodes: Vec<NodeInfo>,
    is_key_busy: bool,
}

/// The page, from the facts.
#[derive(Clone, Debug)]
struct View {
    name: String,
    kind: Option<Linked>,
    owner: Option<Linked>,
    tags: Vec<Linked>,
    is_gone: bool,
    states: Vec<Look>,
    next: Option<Moment>,
    /// The time at which the next occurrence may be claimed, if that is later.
    due: Option<Moment>,
    is_due: bool,
    schedule: Described,
    pause: String,
    /// The actions that the reader may do.
    buttons: Vec<Linked>,
    strip: Option<Strip>,
    /// The usual duration, and what became of its runs; empty if it has none.
    hours: String,
    question: Question,
    answer: Reason,
    rows: Vec<Row>,
    older: Option<String>,
    /// Why there is no row; empty if there is one.
    rows_note: String,
    coming: Vec<Coming>,
    is_paused: bool,
    fields: Vec<Field>,
    data: String,
    letters: Vec<Letter>,
    checkpoints: Vec<Saved>,
    runs_on: Vec<String>,
    not_on: Vec<String>,
    counters: String,
}

/// The form of the question.
#[derive(Clone, Debug, Default)]
struct Question {
    at: String,
    zone: String,
    /// The reason why the time that was asked for cannot be read, or a note about its reading.
    note: String,
}

/// An answer.
#[derive(Clone, Debug)]
struct Reason {
    code: &'static str,
    look: Look,
    text: String,
    remedy: String,
    evidence: Vec<(String, String)>,
    /// The page of the run that it is about, where its output is, and what can be done about it.
    run: Option<String>,
    also: Vec<String>,
}

/// An occurrence to come.
#[derive(Clone, Debug)]
struct Coming {
    moment: Moment,
    utc: String,
    notes: Vec<String>,
}

/// A checkpoint.
#[derive(Clone, Debug)]
struct Saved {
    scheduled: Moment,
    saved: Moment,
    value: String,
}

/// A dead letter.
#[derive(Clone, Debug)]
struct Letter {
    scheduled: Moment,
    died: Moment,
    attempts: String,
    error: String,
    why: String,
    buttons: Vec<Linked>,
}

/// The rows on a page of the history.
const ROWS: usize = 50;
/// The occurrences to come that are listed.
const NEXT: usize = 10;

pub(crate) async fn page(State(shared): State<Arc<Shared>>, ask: Ask) -> Answer {
    let name = ask.params.exact("name");
    if name.is_empty() {
        return Err(Failure::bad_address(
            "The address has no name of a job: job?name=NAME.".into(),
        ));
    }
    let now = ask.reader.store_now().await?;
    let page = ask.context(now);
    let state = state(&ask.reader, name).await?;
    let zone = state.as_ref().and_then(|state| described(state).zone);
    let context = page.in_zone_of(zone.as_deref());
    let (question, at) = question(&ask, &context);
    let facts = Facts::read(&ask.reader, name, state, at, now).await?;
    let view = view(name, facts, question, at, &context);
    answer(&Job { head: Head::new(&shared, &ask, &context, ("job", "jobs"), name), view })
}

async fn state(reader: &Reader, name: &str) -> Result<Option<JobState>> {
    match reader.get(name).await {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        state => state.map(Some),
    }
}

/// The question in the address, and the time that it is about.
fn question(ask: &Ask, context: &Context) -> (Question, Option<Time>) {
    let zone = context.zone.name().to_owned();
    let Some(text) = ask.params.some("at") else {
        return (Question { zone, ..Question::default() }, None);
    };
    match context.zone.read(text) {
        Ok((at, note)) => {
            let note = note.map(sentence).unwrap_or_default();
            (Question { at: context.zone.written(at), zone, note }, Some(at))
        }
        // The page is that of the job in any case: the time is corrected in its form.
        Err(wrong) => (Question { at: text.to_owned(), zone, note: sentence(&wrong) }, None),
    }
}

impl Facts {
    async fn read(
        reader: &Reader,
        name: &str,
        state: Option<JobState>,
        at: Option<Time>,
        now: Time,
    ) -> Result<Self, Failure> {
        let why = match reader.why(name, at).await {
            Err(error) if error.kind() == ErrorKind::NotFound => return Err(Failure::no_job(name)),
            why => why?,
        };
        let entries = match reader.history(HistoryQuery::new(PAST.max(ROWS) + 1).name(name)).await {
            Err(error) if error.kind() == ErrorKind::Unsupported => None,
            page => Some(page?.entries),
        };
        let (mut definition, mut next, mut is_key_busy) = (None, Vec::new(), false);
        if let Some(state) = &state {
            // One that cannot be read has been explained by the answer.
            definition = reader.definition(state).await.ok();
            next = reader.next(state, NEXT).await.unwrap_or_default();
            let waiting = reader.waiting_for_keys(std::slice::from_ref(state), now).await?;
            is_key_busy = !waiting.is_empty();
        }
        let nodes = reader.nodes().await?;
        let one = state.clone().unwrap_or_else(|| JobState::empty(name));
        let hours = reader.hours_of(&[&one], now - MONTH, now).await?.remove(name);
        let hours = hours.unwrap_or_default();
        let lacks_successes = reader.lacks_successes();
        Ok(Self {
            state,
            definition,
            entries,
            lacks_successes,
            hours,
            next,
            why,
            nodes,
            is_key_busy,
        })
    }
}

fn view(name: &str, facts: Facts, question: Question, at: Option<Time>, context: &Context) -> View {
    let is_gone = facts.state.is_none();
    let state = facts.state.unwrap_or_else(|| JobState::empty(name));
    let schedule = if is_gone { Described::default() } else { described(&state) };
    let around = Around {
        is_orphaned: NodeInfo::is_orphan(&facts.nodes, &state),
        is_key_busy: facts.is_key_busy,
    };
    let words = if is_gone { Vec::new() } else { words(&state, around, context.now) };
    let is_held = |at: Time| state.paused.as_ref().is_some_and(|pause| pause.lasts(at));
    let is_to_come = |next: &&NextRun| next.due_at > context.now && !is_held(next.due_at);
    let mut to_come: Vec<NextRun> = facts.next.iter().filter(is_to_come).copied().collect();
    // Of a job that is overdue, the next ones may all be past; of one that is paused, held back.
    let after = match &state.paused {
        None => Some(context.now),
        Some(pause) => pause.until.map(|until| until - TimeDelta::milliseconds(1)),
    };
    let one = facts.definition.as_ref().filter(|_| to_come.is_empty());
    if let Some((one, after)) = one.zip(after) {
        let further = one.settings().explain(name, one.schedule(), after, NEXT);
        let further = further.into_iter().map(|one| (one.nominal, one.due));
        to_come = further.map(|(scheduled_at, due_at)| NextRun { scheduled_at, due_at }).collect();
    }
    let times: Vec<Time> = to_come.iter().map(|next| next.scheduled_at).collect();
    let entries = facts.entries.as_deref().unwrap_or_default();
    let rows_note = match (&facts.entries, entries.is_empty()) {
        (None, _) => "This store keeps no history.",
        (Some(_), _) if facts.lacks_successes => NO_SUCCESSES,
        (Some(_), true) => "It has not run yet.",
        (Some(_), false) => "",
    };
    let older = entries.get(ROWS).and_then(|_| entries.get(ROWS - 1)).map(|last| {
        context.link(
            "runs",
            &[
                ("name", name),
                ("outcome", "all"),
                ("before", &last.fence.to_string()),
                ("before_name", name),
            ],
        )
    });
    let filter = |what: &str, value: &str| Linked {
        text: value.to_owned(),
        link: context.link("jobs", &[(what, value)]),
    };
    let some = |what: &str, value: &str| (!value.is_empty()).then(|| filter(what, value));
    // While a run is active, the record may still have its occurrence as the next one.
    let next = match state.leases.is_empty() && state.paused.is_none() {
        true => state.next,
        false => to_come.first().copied(),
    };
    let (runs_on, not_on) = places(&state, &facts.nodes, is_gone);
    View {
        name: name.to_owned(),
        kind: some("kind", &state.kind),
        owner: some("owner", &schedule.owner),
        tags: schedule.tags.iter().map(|tag| filter("tag", tag)).collect(),
        is_gone,
        states: words.into_iter().map(|word| look(word.text())).collect(),
        next: next.map(|next| context.moment(next.scheduled_at)),
        due: next
            .filter(|next| next.due_at > next.scheduled_at)
            .map(|next| context.moment(next.due_at)),
        is_due: next.is_some_and(|next| next.due_at <= context.now),
        pause: pause(&state, context),
        buttons: match is_gone {
            true => Vec::new(),
            false => buttons(&state, context),
        },
        strip: strip(
            entries,
            &times[..times.len().min(COMING)],
            median(&sum(&facts.hours).duration),
            context,
        ),
        hours: in_a_month(&facts.hours),
        question,
        answer: reason(&facts.why, name, at, context),
        rows: entries.iter().take(ROWS).map(|entry| row(entry, context)).collect(),
        older,
        rows_note: rows_note.to_owned(),
        coming: coming(&to_come, facts.definition.as_ref(), context),
        is_paused: state.paused.is_some(),
        fields: facts.definition.as_ref().map(|one| fields(one.settings())).unwrap_or_default(),
        data: match state.kind.is_empty() {
            true => String::new(),
            false => text_of(&state.data, context.sees_data),
        },
        letters: state
            .dead
            .iter()
            .rev()
            .map(|letter| Letter {
                scheduled: context.moment(letter.occurrence.scheduled_at),
                died: context.moment(letter.died_at),
                attempts: counted(letter.attempts as usize, "attempt"),
                error: context.visible(&letter.error).to_owned(),
                why: context.why(name, letter.occurrence.scheduled_at),
                buttons: letter_buttons(name, &letter.occurrence, context),
            })
            .collect(),
        checkpoints: state
            .checkpoints
            .iter()
            .rev()
            .map(|one| Saved {
                scheduled: context.moment(one.occurrence.scheduled_at),
                saved: context.moment(one.saved_at),
                value: text_of(&one.value, context.sees_data),
            })
            .collect(),
        runs_on,
        not_on,
        counters: counters(&state),
        schedule,
    }
}

fn pause(state: &JobState, context: &Context) -> String {
    let Some(pause) = &state.paused else { return String::new() };
    let since = context.moment(pause.since);
    let note = if pause.note.is_empty() { String::new() } else { format!(" “{}”", pause.note) };
    let until = pause.until.map(|until| context.moment(until));
    let until = until.map(|until| format!(", until {}, {}", until.text, until.distance));
    let (text, distance, until) = (since.text, since.distance, until.unwrap_or_default());
    format!("Paused since {text}, {distance}{until}.{note} Manual triggers still run.")
}

/// The answer of the core, with its times in the zone of the page.
fn reason(why: &Why, name: &str, at: Option<Time>, context: &Context) -> Reason {
    let code = why.code.word();
    let text = sentence(&context.local_times(&why.sentence));
    let text = match at.map(|at| context.moment(at).text) {
        Some(at) if !text.contains(&at) => format!("{at}: {text}"),
        _ => text,
    };
    Reason {
        code,
        look: look(look_of(code)),
        text,
        remedy: why.remedy.as_deref().map(sentence).unwrap_or_default(),
        evidence: why
            .evidence
            .iter()
            .map(|(name, fact)| (name.replace('_', " "), shown(fact, context)))
            .collect(),
        run: why.evidence.iter().find_map(|fact| match fact {
            ("fence", Fact::Number(fence)) => Some(context.run(name, *fence)),
            _ => None,
        }),
        also: why
            .also
            .iter()
            .map(|other| {
                let remedy = other.remedy.as_ref().map(|remedy| format!("; {remedy}"));
                sentence(&(context.local_times(&other.sentence) + &remedy.unwrap_or_default()))
            })
            .collect(),
    }
}

/// The word whose look an answer has.
fn look_of(code: &str) -> &str {
    match code {
        "recovered" => "succeeded",
        "retry-waits" => "retried",
        "job-overdue" => "overdue",
        "due" | "scheduled" | "in-future" | "waits-for-run" | "runs-after" => "waiting",
        "paused-itself" => "paused",
        "key-busy" => "key wait",
        "jobs-orphaned" => "orphaned",
        "record-unreadable" | "job-invalid" | "data-mismatch" => "unreadable",
        "node-dead" => "gone",
        "no-live-node"
        | "kind-unhandled"
        | "label-unmatched"
        | "definition-conflict"
        | "job-kept"
        | "clock-was-ahead"
        | "nothing-before"
        | "capacity-full" => "problem",
        "shutdown" | "replaced" | "deleted" => "cancelled",
        code if code.starts_with("skipped-") => "skipped",
        code if code.starts_with("missed-") => "missed",
        code => code,
    }
}

/// A value of the evidence.
fn shown(fact: &Fact, context: &Context) -> String {
    match fact {
        Fact::Text(text) => short_nodes(context.visible(text)),
        Fact::Number(number) => number.to_string(),
        Fact::Time(at) => context.moment(*at).text,
        Fact::Names(names) => names.join(", "),
        Fact::Holders(holders) => {
            let holder = holders.iter().map(|one| {
                format!(
                    "{} on {} since {}",
                    one.job,
                    short_nodes(&one.node),
                    context.moment(one.since).text
                )
            });
            holder.collect::<Vec<_>>().join(", ")
        }
        other => format!("{other:?}"),
    }
}

fn coming(next: &[NextRun], definition: Option<&Definition>, context: &Context) -> Vec<Coming> {
    let mut before = context.now;
    let utc = crate::times::Zone::utc();
    let mut coming = Vec::new();
    for NextRun { scheduled_at, due_at } in next.iter().copied() {
        let mut notes: Vec<String> = match definition {
            Some(one) => one
                .schedule()
                .notes(before, scheduled_at)
                .into_iter()
                .map(|note| note.message)
                .collect(),
            None => Vec::new(),
        };
        if due_at > scheduled_at {
            notes.push(format!("due {}", context.moment(due_at).text));
        }
        let is_utc = context.zone.name() == "UTC";
        let text = if is_utc { String::new() } else { utc.moment(scheduled_at, context.now).text };
        coming.push(Coming { moment: context.moment(scheduled_at), utc: text, notes });
        before = before.max(scheduled_at);
    }
    coming
}

/// The data of a stored schedule, as the bytes that it has.
/// Data as the reader may see it.
fn text_of(data: &[u8], sees_data: bool) -> String {
    let bytes = counted(data.len(), "byte");
    match std::str::from_utf8(data) {
        _ if !sees_data => format!("hidden, {bytes}"),
        Ok(text) => text.to_owned(),
        Err(_) => format!("{bytes} that are no text"),
    }
}

/// The live nodes that may run the job, and those that may not, each with the reason.
fn places(state: &JobState, nodes: &[NodeInfo], is_gone: bool) -> (Vec<String>, Vec<String>) {
    let (mut on, mut not) = (Vec::new(), Vec::new());
    for node in nodes.iter().filter(|node| node.is_live && !is_gone) {
        let name = short_nodes(&node.node);
        match state.kind.is_empty() {
            true if node.keeps(&state.name) => {
                not.push(format!("{name}: its program keeps it without running it"))
            }
            true if node.may_declare(&state.name) => on.push(name),
            true => not.push(format!("{name}: it does not declare the job")),
            false if node.handles(&state.kind) => on.push(name),
            false => not.push(format!("{name}: no handler for the kind {:?}", state.kind)),
        }
    }
    (on, not)
}

fn counters(state: &JobState) -> String {
    let counts = state.counters.each().into_iter().filter(|(_, count)| *count > 0);
    let counts: Vec<String> = counts.map(|(name, count)| format!("{count} {name}")).collect();
    counts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::times::at;
    use allora_core::{Outcome, backend::Checkpoint, stored::WhyCode};

    fn facts(state: Option<JobState>) -> Facts {
        Facts {
            definition: state
                .as_ref()
                .and_then(|state| Definition::parse(&state.name, &state.definition).ok()),
            state,
            entries: Some(Vec::new()),
            hours: Vec::new(),
            next: Vec::new(),
            why: Why::new(WhyCode::Scheduled, "its next occurrence has not come yet"),
            nodes: Vec::new(),
            lacks_successes: false,
            is_key_busy: false,
        }
    }

    fn invoices() -> JobState {
        let mut job = JobState::empty("invoices");
        (job.kind, job.definition) = ("invoice".into(), "0 2 * * * Europe/Rome; delay 3m".into());
        job.data = br#"{"to":"acme"}"#.to_vec();
        let next = NextRun {
            scheduled_at: at("2026-10-27T01:00:00Z"),
            due_at: at("2026-10-27T01:03:00Z"),
        };
        (job.next, job.due_at) = (Some(next), Some(next.due_at));
        job
    }

    fn seen(facts: Facts, context: &Context) -> View {
        view("invoices", facts, Question::default(), None, context)
    }

    #[test]
    fn the_head_has_all_states_the_next_time_and_when_it_is_due() {
        let view = seen(facts(Some(invoices())), &Context::of_test());
        assert_eq!(view.states.iter().map(|look| look.word).collect::<Vec<_>>(), ["waiting"]);
        assert_eq!(view.next.unwrap().text, "Tue 27 Oct 02:00 CET");
        assert_eq!(view.due.unwrap().text, "Tue 27 Oct 02:03 CET");
        assert_eq!((&*view.rows_note, &*view.data), ("It has not run yet.", r#"{"to":"acme"}"#));
        assert!(view.fields.iter().any(|field| field.name == "delay" && field.value == "3m"));
    }

    #[test]
    fn data_is_hidden_from_those_who_may_not_see_it() {
        let context = Context { sees_data: false, ..Context::of_test() };
        let mut job = invoices();
        let (occurrence, saved_at) =
            (at("2026-10-26T01:00:00Z").into(), at("2026-10-26T01:09:00Z"));
        job.checkpoints = vec![Checkpoint { occurrence, saved_at, value: b"70".to_vec() }];
        let view = seen(facts(Some(job.clone())), &context);
        assert_eq!(
            (&*view.data, &*view.checkpoints[0].value),
            ("hidden, 13 bytes", "hidden, 2 bytes")
        );
        let view = seen(facts(Some(job)), &Context::of_test());
        let [Saved { scheduled, saved, value }] = &*view.checkpoints else { panic!("{view:?}") };
        assert_eq!(
            (&*scheduled.text, &*saved.text),
            ("Mon 26 Oct 02:00 CET", "Mon 26 Oct 02:09 CET")
        );
        assert_eq!(value, "70");
    }

    #[test]
    fn a_deleted_job_keeps_its_history() {
        let mut facts = facts(None);
        let entry =
            HistoryEntry::new("invoices", 7, at("2026-10-25T00:00:00Z").into(), Outcome::Succeeded);
        facts.entries = Some(vec![entry]);
        let view = seen(facts, &Context::of_test());
        assert!(view.is_gone && view.states.is_empty());
        assert_eq!((view.rows.len(), &*view.rows_note), (1, ""));
    }

    #[test]
    fn the_answer_has_its_evidence_in_the_zone_of_the_page() {
        let why = Why::new(WhyCode::KeyBusy, "it waits for its concurrency key")
            .with("waits_since", at("2026-10-26T02:00:00Z"))
            .remedy("wait for the end of the run");
        let answer = reason(&why, "invoices", None, &Context::of_test());
        assert_eq!(
            (answer.look.word, &*answer.text),
            ("key wait", "It waits for its concurrency key.")
        );
        assert_eq!(
            answer.evidence,
            [("waits since".to_owned(), "Mon 26 Oct 03:00 CET".to_owned())]
        );
        assert_eq!((&*answer.remedy, answer.run), ("Wait for the end of the run.", None));
        let why = Why::new(WhyCode::Failed, "it ran and failed").with("fence", 7_i64);
        let answer = reason(&why, "invoices", None, &Context::of_test());
        assert_eq!(answer.run.as_deref(), Some("run?name=invoices&fence=7"));
    }

    #[test]
    fn every_answer_about_a_run_has_a_look() {
        let plain = [
            "not-scheduled",
            "created-later",
            "changed-later",
            "no-history",
            "before-history",
            "no-entry",
            "dropped-by-clock-change",
            "moved-by-clock-change",
            "moved-by-calendar",
        ];
        for code in WhyCode::ALL.iter().map(|code| code.word()).filter(|code| !plain.contains(code))
        {
            assert_ne!(look(look_of(code)).word, "other", "{code}");
        }
    }

    #[test]
    fn a_time_to_come_has_its_note_about_the_clocks() {
        let definition = Definition::parse("invoices", "30 2 * * * Europe/Rome").unwrap();
        let context = Context { now: at("2026-03-28T12:00:00Z"), ..Context::of_test() };
        let next = [NextRun::from(at("2026-03-29T01:00:00Z"))];
        let coming = coming(&next, Some(&definition), &context);
        assert_eq!(
            (&*coming[0].moment.text, &*coming[0].utc),
            ("Sun 29 Mar 03:00 CEST", "Sun 29 Mar 01:00 UTC")
        );
        assert!(coming[0].notes[0].contains("02:30 does not exist"), "{coming:?}");
    }
}
