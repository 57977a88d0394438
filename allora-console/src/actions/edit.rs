//! The form of a definition: a job is changed by it, or added. It is checked, shown as the difference to what is stored,
//! and then stored, unless the job has changed meanwhile.

use super::{
    apply::{Act, apply, last_change},
    draft::{Draft, Wrong},
    form::check_note,
    page::{NOT_TRIED, PERHAPS_DONE, allowed, answered, failed, sent_up_to},
    verb::Verb,
};
use crate::{
    access::Scope,
    ask::Ask,
    context::Context,
    failure::Failure,
    pages::{FIELDS, Head, capital, described, fields, short},
    params::{LONGEST_DATA, LONGEST_FORM_WITH_DATA, Params},
    reader::Reader,
    shared::Shared,
    times::{Moment, Zone, machine},
    words::counted,
};
use allora_core::{
    ErrorKind, Result, Schedule, StoredSchedule, Time, backend::JobState, check_name,
    record::ChangeAction, stored::Definition,
};
use askama::Template;
use axum::{
    extract::{Request, State},
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use chrono::DateTime;
use std::sync::Arc;

/// The times to come that are compared.
const NEXT: usize = 5;

/// The fields that are shown at once.
const OFTEN_SET: [&str; 9] = [
    "name",
    "f-schedule",
    "f-zone",
    "f-kind",
    "f-at-least-once",
    "f-retry",
    "f-timeout",
    "f-owner",
    "f-tags",
];

/// The longest data in a difference, in characters.
const SHOWN_DATA: usize = 400;

#[derive(Debug, Template)]
#[template(path = "edit.html")]
struct Page {
    head: Head,
    view: View,
}

#[derive(Debug)]
struct View {
    title: String,
    /// The page of the job; of a new one, the list.
    back: String,
    name: String,
    is_new: bool,
    inputs: Vec<Input>,
    /// The settings that are seldom set; they are folded unless one is.
    further: Vec<Input>,
    /// The data as it can be typed, or why it is not shown.
    data: Result<String, String>,
    note: String,
    seen: String,
    base: [String; 2],
    made: String,
    /// The zone in the address; empty if it has none.
    zone: String,
    /// Why the form has come back; empty if it is new.
    message: String,
    preview: Option<Preview>,
    /// It asks for the note, and stores; otherwise the fields are shown.
    confirms: bool,
}

/// A field.
#[derive(Debug)]
struct Input {
    key: String,
    label: String,
    hint: String,
    value: String,
    is_wide: bool,
    wrong: Option<Wrong>,
}

/// The changes that the form would make.
#[derive(Debug)]
struct Preview {
    changed: Vec<Changed>,
    before: Option<Coming>,
    after: Coming,
    warnings: Vec<String>,
}

/// A part that becomes another one.
#[derive(Debug, PartialEq, Eq)]
struct Changed {
    label: &'static str,
    /// Empty if there was no job.
    before: String,
    after: String,
}

/// The next times of a definition.
#[derive(Debug)]
struct Coming {
    zone: String,
    words: String,
    /// Each with the time at which it is due, if that is later.
    times: Vec<(Moment, String)>,
}

/// The job as the store has it.
#[derive(Debug)]
struct Facts {
    now: Time,
    /// `None` if there is no such job.
    state: Option<JobState>,
    /// With its calendars; `None` if it cannot be read.
    definition: Option<Definition>,
}

/// The form as it was typed.
#[derive(Clone, Debug)]
struct Form {
    draft: Draft,
    note: String,
    /// Incarnation and generation of the job that it was made from; empty if the job is to be added.
    seen: String,
    /// The kind and the definition of that job.
    base: [String; 2],
    made: String,
}

/// A form that comes back.
#[derive(Debug)]
struct Back {
    status: StatusCode,
    message: String,
    wrong: Option<Wrong>,
    facts: Option<Facts>,
    preview: Option<Preview>,
    confirms: bool,
}

/// The form of a job, or of a new one.
pub(crate) async fn ask_first(
    State(shared): State<Arc<Shared>>,
    ask: Ask,
) -> Result<Response, Failure> {
    allowed(&shared, &ask, Scope::Edit)?;
    let name = ask.params.exact("name");
    let facts = Facts::read(&ask.reader, name).await?;
    let (draft, seen, base) = match &facts.state {
        None if !name.is_empty() => return Err(Failure::no_job(name)),
        None => (Draft::new(), String::new(), Default::default()),
        Some(state) if state.kind.is_empty() => {
            let text = "It is a job in code: change its code, and deploy that.";
            return Err(Failure::not_edited(text));
        }
        Some(state) => (Draft::of(state), seen(state), base(state)),
    };
    let form = Form { draft, seen, base, note: String::new(), made: String::new() };
    render(&shared, &ask, form, Back::new(StatusCode::OK, String::new(), Some(facts)))
}

/// Shows what the form would change, or stores it, and leads to the page of the job.
pub(crate) async fn act(
    State(shared): State<Arc<Shared>>,
    ask: Ask,
    request: Request,
) -> Result<Response, Failure> {
    let ask = sent_up_to(&shared, ask, request, LONGEST_FORM_WITH_DATA).await?;
    allowed(&shared, &ask, Scope::Edit)?;
    let mut form = Form::read(&ask.params);
    let step = ask.params.get("step");
    let confirms = step == "save";
    let back = match answer(&ask, &mut form, step).await {
        Ok(Answer::Done(sequence)) => return Ok(leave(&ask, &form, sequence)),
        Ok(Answer::Back(back)) => *back,
        // Nothing was tried: the job could not be read.
        Err(error) => {
            let (status, message) = failed(&error, NOT_TRIED);
            Back { confirms, ..Back::new(status, message, None) }
        }
    };
    render(&shared, &ask, form, back)
}

/// The answer to a form.
enum Answer {
    /// It is stored, as the change with this sequence.
    Done(Option<i64>),
    Back(Box<Back>),
}

impl From<Back> for Answer {
    fn from(back: Back) -> Self {
        Self::Back(Box::new(back))
    }
}

/// # Errors
/// The store cannot be read.
async fn answer(ask: &Ask, form: &mut Form, step: &str) -> Result<Answer> {
    let reader = &ask.reader;
    let facts = Facts::read(reader, &form.draft.name).await?;
    if facts.data(reader).is_err() {
        form.draft.data = None;
    }
    if facts.state.is_none() && !form.seen.is_empty() {
        let message = "There is no such job any more, and nothing was stored. If it was deleted, the page Audit \
                       brings it back.";
        return Ok(Back::new(StatusCode::NOT_FOUND, message.into(), Some(facts)).into());
    }
    if step == "form" {
        return Ok(Back::new(StatusCode::OK, String::new(), Some(facts)).into());
    }
    let definition = match form.check(reader).await? {
        Ok(definition) => definition,
        Err(wrong) => return Ok(Back::wrong(wrong, facts).into()),
    };
    if step == "save" && form.is_stored(&facts, &definition) {
        return Ok(Answer::Done(form.sequence(reader).await));
    }
    if form.is_new() && facts.state.is_some() {
        return Ok(Back::wrong(form.taken(), facts).into());
    }
    if step == "save" {
        let verb = if form.is_new() { Verb::Resume } else { Verb::Pause };
        if let Err(message) = check_note(verb, &form.note) {
            let preview = form.preview(reader, &facts, &definition, ask).await;
            let back = Back::new(StatusCode::UNPROCESSABLE_ENTITY, message, Some(facts));
            return Ok(Back { preview: Some(preview), confirms: true, ..back }.into());
        }
        return form.store(ask, facts, &definition).await;
    }
    if facts.state.as_ref().is_some_and(|state| form.seen != seen(state)) {
        return form.too_late(ask, facts).await;
    }
    let preview = form.preview(reader, &facts, &definition, ask).await;
    let back = Back::new(StatusCode::OK, String::new(), Some(facts));
    Ok(Back { preview: Some(preview), confirms: true, ..back }.into())
}

impl View {
    fn all(&self) -> impl Iterator<Item = &Input> {
        self.inputs.iter().chain(&self.further)
    }

    /// A setting that is seldom set is set, or is wrong.
    fn unfolds(&self) -> bool {
        self.further.iter().any(|input| !input.value.is_empty() || input.wrong.is_some())
    }

    /// The store has it so already.
    fn has_nothing(&self) -> bool {
        self.preview.as_ref().is_some_and(|preview| preview.changed.is_empty())
    }
}

impl Preview {
    /// The times before, if there were any, and those after, side by side.
    fn rows(&self) -> Vec<Vec<Option<&(Moment, String)>>> {
        let columns: Vec<&Coming> = self.before.iter().chain([&self.after]).collect();
        let rows = columns.iter().map(|column| column.times.len()).max().unwrap_or_default();
        let row = |i: usize| columns.iter().map(|column| column.times.get(i)).collect();
        (0..rows).map(row).collect()
    }
}

impl Back {
    fn new(status: StatusCode, message: String, facts: Option<Facts>) -> Self {
        Self { status, message, facts, wrong: None, preview: None, confirms: false }
    }

    /// A field cannot be used.
    fn wrong(wrong: Wrong, facts: Facts) -> Self {
        let message = "Nothing was stored: a field cannot be used.".to_owned();
        let back = Self::new(StatusCode::UNPROCESSABLE_ENTITY, message, Some(facts));
        Self { wrong: Some(wrong), ..back }
    }
}

impl Facts {
    async fn read(reader: &Reader, name: &str) -> Result<Self> {
        let now = reader.store_now().await?;
        let found = match name {
            "" => None,
            name => Some(reader.unredacted(name).await),
        };
        let state = match found.transpose() {
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            state => state?,
        };
        let definition = match &state {
            Some(state) => reader.definition(state).await.ok(),
            None => None,
        };
        Ok(Self { now, state, definition })
    }

    /// The data as it can be typed, or why it is not shown: then it stays as it is.
    fn data(&self, reader: &Reader) -> Result<&str, String> {
        let bytes = self.state.as_ref().map_or(&[][..], |state| &state.data);
        let name = self.state.as_ref().map_or("", |state| &state.name);
        let length = counted(bytes.len(), "byte");
        if !reader.access().sees_data() {
            return Err(format!("{length}, which you may not see"));
        }
        let is_plain = |c: char| !c.is_control() || ['\n', '\r', '\t'].contains(&c);
        match std::str::from_utf8(bytes) {
            _ if bytes.len() > LONGEST_DATA => Err(format!("{length}, too many for a form")),
            Ok(text) if !text.chars().all(is_plain) => Err(format!("{length} that are no text")),
            Err(_) => Err(format!("{length} that are no text")),
            Ok(text) if reader.redacted(name, text) != text => {
                Err(format!("{length}, with secrets that are not shown"))
            }
            Ok(text) => Ok(text),
        }
    }
}

/// The state that a form is made from.
fn seen(state: &JobState) -> String {
    format!("{}.{}", state.incarnation, state.generation)
}

fn base(state: &JobState) -> [String; 2] {
    [state.kind.clone(), state.definition.clone()]
}

impl Form {
    fn read(params: &Params) -> Self {
        let text = |name: &str| params.get(name).to_owned();
        let draft = Draft::read(params);
        let base = ["base-kind", "base"].map(|name| params.exact(name).to_owned());
        Self { draft, note: text("note"), seen: text("seen"), base, made: text("made") }
    }

    fn is_new(&self) -> bool {
        self.seen.is_empty()
    }

    /// The definition with its calendars, or the first field that cannot be used.
    ///
    /// # Errors
    /// The store did not answer.
    async fn check(&self, reader: &Reader) -> Result<Result<Definition, Wrong>> {
        let Draft { name, kind, .. } = &self.draft;
        let access = reader.access();
        let name_error = check_name(name).err().filter(|_| self.is_new());
        if let Some(error) = name_error {
            return Ok(Err(Wrong::new("name", &error.to_string())));
        }
        if !access.may_name(name) {
            let text =
                format!("your access has no jobs of the name {name:?}; use a prefix of yours");
            return Ok(Err(Wrong::new("name", &text)));
        }
        if let Err(error) = check_name(kind) {
            return Ok(Err(Wrong::new("kind", &error.to_string())));
        }
        if !access.may_see(name, kind) {
            let text = format!("your access has no jobs of the kind {kind:?}; use a kind of yours");
            return Ok(Err(Wrong::new("kind", &text)));
        }
        let definition = match self.draft.definition() {
            Ok(definition) => definition,
            Err(wrong) => return Ok(Err(wrong)),
        };
        let mut state = JobState::empty(name);
        (state.kind, state.definition) = (kind.clone(), definition.to_string());
        let admitted = match self.is_new() {
            true => reader.admits_new(1).await.map_err(|error| ("name", error)),
            false => Ok(()),
        };
        let read = reader.definition(&state).await.map_err(|error| ("schedule", error));
        match admitted.and(read) {
            Ok(definition) => Ok(Ok(definition)),
            Err((key, error)) if error.kind() == ErrorKind::Invalid => {
                Ok(Err(Wrong::new(key, &error.to_string())))
            }
            Err((_, error)) => Err(error),
        }
    }

    fn taken(&self) -> Wrong {
        let text =
            format!("there is a job named {:?} already; choose another name", self.draft.name);
        Wrong::new("name", &text)
    }

    /// `true` if the store has it so already: by an earlier copy of this form, or by another one that says the same.
    fn is_stored(&self, facts: &Facts, definition: &Definition) -> bool {
        let (Some(state), Some(before)) = (&facts.state, &facts.definition) else { return false };
        state.kind == self.draft.kind
            && before.to_string() == definition.to_string()
            && state.data == self.draft.data(&state.data)
    }

    /// Stores it, if the job is still the one that the form was made from: the store compares, so that its record of
    /// changes has the refusal as well.
    async fn store(&mut self, ask: &Ask, facts: Facts, definition: &Definition) -> Result<Answer> {
        let Draft { name, kind, .. } = &self.draft;
        let before = facts.state.as_ref().map_or(&[][..], |state| &state.data);
        let stored = StoredSchedule::new(name, kind, definition.text())
            .with_settings(definition.settings().clone())
            .data_bytes(self.draft.data(before));
        let stored = match definition.zone() {
            Some(zone) => stored.in_zone(zone),
            None => stored,
        };
        let generation = self.seen.rsplit_once('.').and_then(|(_, number)| number.parse().ok());
        let act = match self.is_new() {
            true => Act::Add(Box::new(stored)),
            false => Act::Edit(Box::new(stored.read_at(generation.unwrap_or(-1)))),
        };
        let Err(error) = apply(&ask.reader, name, &act, &self.note).await else {
            return Ok(Answer::Done(self.sequence(&ask.reader).await));
        };
        let back = match error.kind() {
            ErrorKind::AlreadyExists if self.is_new() => Back::wrong(self.taken(), facts),
            ErrorKind::AlreadyExists => {
                let facts = Facts::read(&ask.reader, name).await?;
                return self.too_late(ask, facts).await;
            }
            _ => {
                let (status, message) = failed(&error, PERHAPS_DONE);
                let preview = self.preview(&ask.reader, &facts, definition, ask).await;
                let back = Back::new(status, message, Some(facts));
                let confirms = error.kind() == ErrorKind::Unavailable;
                Back { preview: Some(preview), confirms, ..back }
            }
        };
        Ok(back.into())
    }

    /// The form comes back with both versions, and is now about the newer one: what was not touched in it follows
    /// that.
    async fn too_late(&mut self, ask: &Ask, facts: Facts) -> Result<Answer> {
        let last = last_change(&ask.reader, &self.draft.name, &ChangeAction::DEFINITIONS).await;
        let who = last.map_or_else(
            || "Somebody".to_owned(),
            |change| {
                let note = change.author.note.as_str();
                let note = if note.is_empty() { String::new() } else { format!(" (“{note}”)") };
                format!("{}{note}", change.author.actor)
            },
        );
        let message = format!(
            "{who} has changed the job since this form was made, and nothing was stored. Here is what your form would \
             change now; correct it, and send it anew."
        );
        if let Some(state) = &facts.state {
            self.draft.follow(&self.base, state);
            (self.seen, self.base) = (seen(state), base(state));
        }
        let (preview, wrong) = match self.check(&ask.reader).await? {
            Ok(definition) => {
                (Some(self.preview(&ask.reader, &facts, &definition, ask).await), None)
            }
            Err(wrong) => (None, Some(wrong)),
        };
        let back = Back::new(StatusCode::PRECONDITION_FAILED, message, Some(facts));
        Ok(Back { preview, wrong, ..back }.into())
    }

    async fn sequence(&self, reader: &Reader) -> Option<i64> {
        let action = if self.is_new() { ChangeAction::Create } else { ChangeAction::Modify };
        last_change(reader, &self.draft.name, &[action]).await.map(|change| change.sequence)
    }

    async fn preview(
        &self,
        reader: &Reader,
        facts: &Facts,
        definition: &Definition,
        ask: &Ask,
    ) -> Preview {
        let context = self.context(ask, Some(facts));
        let name = self.draft.name.as_str();
        let warnings = definition.schedule().warnings().iter();
        let mut warnings: Vec<String> = warnings.map(|warning| warning.message.clone()).collect();
        let nodes = reader.nodes().await.unwrap_or_default();
        let mut live = nodes.iter().filter(|node| node.is_live).peekable();
        let kind = self.draft.kind.as_str();
        if live.peek().is_some() && !live.any(|node| node.handles(kind)) {
            warnings.push(format!(
                "No live node has a handler for the kind {kind:?}: it runs when one has."
            ));
        }
        Preview {
            changed: self.changed(reader, facts, definition),
            before: facts.definition.as_ref().map(|before| coming(name, before, &context)),
            after: coming(name, definition, &context),
            warnings,
        }
    }

    /// The parts that become others, each before and after.
    fn changed(&self, reader: &Reader, facts: &Facts, definition: &Definition) -> Vec<Changed> {
        let after = said(&self.draft.kind, definition).into_iter();
        let mut changed: Vec<Changed> = match (&facts.state, &facts.definition) {
            (Some(state), Some(before)) => said(&state.kind, before)
                .into_iter()
                .zip(after)
                .filter(|(before, after)| before != after)
                .map(|((label, before, _), (_, after, _))| Changed { label, before, after })
                .collect(),
            (before, _) => after
                .filter(|(.., is_set)| *is_set)
                .map(|(label, after, _)| Changed { label, before: String::new(), after })
                .chain(before.iter().map(|state| Changed {
                    label: "definition before",
                    before: state.definition.clone(),
                    after: "it could not be read".to_owned(),
                }))
                .collect(),
        };
        if let (Ok(before), Some(_)) = (facts.data(reader), &self.draft.data) {
            let after = self.draft.data(before.as_bytes());
            if before.as_bytes() != after {
                let after = String::from_utf8_lossy(&after);
                let shown = |text: &str| match text {
                    "" if facts.state.is_none() => String::new(),
                    "" => "none".to_owned(),
                    text => short(text, SHOWN_DATA),
                };
                let (before, after) = (shown(before), shown(&after));
                changed.push(Changed { label: "data", before, after });
            }
        }
        changed
    }

    /// The values of the page, in the zone of the job. Without the store, the time is that at which the form was made.
    fn context(&self, ask: &Ask, facts: Option<&Facts>) -> Context {
        let now = facts.map(|facts| facts.now).or_else(|| self.made.parse().ok());
        let state = facts.and_then(|facts| facts.state.as_ref());
        let zone = state.and_then(|state| described(state).zone);
        ask.context(now.unwrap_or(DateTime::UNIX_EPOCH)).in_zone_of(zone.as_deref())
    }
}

/// The parts of a definition in words, always in this order: label, value, and whether it is set.
fn said(kind: &str, definition: &Definition) -> Vec<(&'static str, String, bool)> {
    let zone = definition.zone().unwrap_or("none").to_owned();
    let mut said = vec![
        ("schedule", definition.text().to_owned(), true),
        ("zone", zone, definition.zone().is_some()),
        ("kind", kind.to_owned(), true),
    ];
    let settings = fields(definition.settings());
    said.extend(FIELDS.iter().map(|(_, label, ..)| {
        let own = settings.iter().find(|field| field.name == *label);
        let value = own.map_or("none", |field| &field.value).to_owned();
        (*label, value, own.is_some_and(|field| !field.is_default))
    }));
    said
}

fn coming(name: &str, definition: &Definition, context: &Context) -> Coming {
    let schedule = definition.schedule();
    let own = definition.zone().or(schedule.zone()).and_then(|zone| Zone::named(zone).ok());
    let zone = own.unwrap_or_else(|| context.zone.clone());
    let times = definition.settings().explain(name, schedule, context.now, NEXT).into_iter();
    Coming {
        words: schedule.describe().unwrap_or_else(|| definition.text().to_owned()),
        times: times
            .map(|next| {
                let due = zone.moment(next.due, context.now).text;
                let due = if next.due > next.nominal { due } else { String::new() };
                (zone.moment(next.nominal, context.now), due)
            })
            .collect(),
        zone: zone.name().to_owned(),
    }
}

fn render(shared: &Shared, ask: &Ask, form: Form, back: Back) -> Result<Response, Failure> {
    let context = form.context(ask, back.facts.as_ref());
    let Form { draft, note, seen, base, made } = form;
    let is_new = seen.is_empty();
    let title = match is_new {
        true => "Add a job".to_owned(),
        false => format!("Edit: {}", draft.name),
    };
    let data = match (&draft.data, &back.facts) {
        (Some(typed), _) => Ok(typed.clone()),
        (None, Some(facts)) => facts.data(&ask.reader).map(str::to_owned),
        (None, None) => Err("not shown now".to_owned()),
    };
    let mut inputs: Vec<Input> = Vec::new();
    let mut input = |key: &str, label: &str, hint: String, value: &str| {
        let wrong = back.wrong.clone().filter(|wrong| wrong.key == key);
        let is_wide = ["name", "schedule"].contains(&key);
        let sent_as = if key == "name" { key.to_owned() } else { format!("f-{key}") };
        let label = capital(label);
        inputs.push(Input { key: sent_as, label, hint, value: value.to_owned(), is_wide, wrong });
    };
    if is_new {
        input("name", "name", "as acme/report".into(), &draft.name);
    }
    let mut fields = draft.fields();
    if let Some((key, label, hint, value)) = fields.next() {
        input(key, label, hint, value);
    }
    if let Some((key, label, hint, value)) = fields.next() {
        input(key, label, hint, value);
    }
    input("kind", "kind", "selects the code of its runs".into(), &draft.kind);
    for (key, label, hint, value) in fields {
        input(key, label, hint, value);
    }
    let is_often_set = |input: &mut Input| OFTEN_SET.contains(&input.key.as_str());
    let further = inputs.extract_if(.., |input| !is_often_set(input)).collect();
    let view = View {
        title: title.clone(),
        back: if is_new { context.link("jobs", &[]) } else { context.job(&draft.name) },
        name: draft.name.clone(),
        is_new,
        inputs,
        further,
        data,
        note,
        seen,
        base,
        made: if back.facts.is_some() { machine(context.now) } else { made },
        zone: context.asked_zone.clone(),
        message: back.message,
        preview: back.preview,
        confirms: back.confirms,
    };
    let mut head = Head::new(shared, ask, &context, ("edit", "jobs"), title);
    // The form for the zone sends an address, which has no place for what was typed.
    head.carried.retain(|(name, _)| name == "name");
    answered(back.status, &Page { head, view })
}

/// Sends the browser to the page of the job: going back or loading it again does nothing twice.
fn leave(ask: &Ask, form: &Form, sequence: Option<i64>) -> Response {
    let done = if form.is_new() { "add" } else { "edit" };
    let sequence = sequence.map(|sequence| sequence.to_string()).unwrap_or_default();
    let params = [("name", form.draft.name.as_str()), ("done", done), ("n", &sequence)];
    let link = ask.context(DateTime::UNIX_EPOCH).link("job", &params);
    (StatusCode::SEE_OTHER, [(header::LOCATION, link)]).into_response()
}
