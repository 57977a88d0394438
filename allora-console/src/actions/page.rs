//! The page of an action: asked for, it shows what the action will do; sent, it does it.

use super::{
    apply::{apply, new_id, signed},
    facts::Facts,
    form::Form,
    preview::{Preview, preview, seen},
    verb::Verb,
};
use crate::{
    access::Scope,
    ask::Ask,
    context::Context,
    failure::{Failure, log},
    pages::{Head, described, sentence},
    params::{LONGEST_FORM, Params},
    shared::Shared,
    times::machine,
};
use allora_core::{Error, ErrorKind};
use askama::Template;
use axum::{
    body::{Body, to_bytes},
    extract::{Request, State},
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{Html, IntoResponse, Response},
};
use chrono::{DateTime, SubsecRound};
use std::sync::Arc;

#[derive(Debug, Template)]
#[template(path = "act.html")]
struct Page {
    head: Head,
    view: View,
}

#[derive(Debug)]
struct View {
    title: String,
    label: &'static str,
    /// The page of the job.
    back: String,
    form: Form,
    word: &'static str,
    /// The zone in the address; empty if it has none.
    zone: String,
    preview: Preview,
    /// Why the form has come back; empty if it is new.
    message: String,
    /// The parts of the form that this action has.
    asks_gap: bool,
    asks_end: bool,
    asks_count: bool,
    asks_at: bool,
    asks_range: bool,
    asks_id: bool,
    asks_name: bool,
    needs_note: bool,
    /// It can be sent.
    is_ready: bool,
}

/// A form that has come back.
struct Back {
    status: StatusCode,
    message: String,
    facts: Option<Facts>,
}

/// The page that shows what the action will do.
pub(crate) async fn ask_first(
    State(shared): State<Arc<Shared>>,
    ask: Ask,
) -> Result<Response, Failure> {
    let mut form = Form::read(&ask.params)?;
    allowed(&shared, &ask, form.verb.scope())?;
    let facts = match Facts::read(&ask.reader, &form.name).await {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Err(Failure::no_job(&form.name));
        }
        facts => facts?,
    };
    if form.verb == Verb::Trigger && form.id.is_empty() {
        form.id = new_id(ask.reader.access().who(), facts.now);
    }
    if form.verb == Verb::Backfill && !form.from.is_empty() && form.until.is_empty() {
        // The range that is sent is the one that was shown.
        let zone = form.zone(&context(&ask, &form, Some(&facts)));
        form.until = zone.map(|zone| zone.written(facts.now.trunc_subsecs(0))).unwrap_or_default();
    }
    let back = Back { status: StatusCode::OK, message: String::new(), facts: Some(facts) };
    render(&shared, &ask, form, back)
}

/// Does what the form says, and leads to the page of the job.
pub(crate) async fn act(
    State(shared): State<Arc<Shared>>,
    ask: Ask,
    request: Request,
) -> Result<Response, Failure> {
    let ask = sent(&shared, ask, request).await?;
    let form = Form::read(&ask.params)?;
    allowed(&shared, &ask, form.verb.scope())?;
    let facts = match Facts::read(&ask.reader, &form.name).await {
        Ok(facts) => facts,
        Err(error) if error.kind() != ErrorKind::NotFound => {
            let back = Back::of(&error, form.verb, None);
            return render(&shared, &ask, form, back);
        }
        // It is gone, as was asked for; perhaps by the first of two clicks.
        Err(_) if form.verb == Verb::Delete => {
            return Ok(leave(&form, None, &ask.context(DateTime::UNIX_EPOCH)));
        }
        Err(_) => return Err(Failure::no_job(&form.name)),
    };
    let context = context(&ask, &form, Some(&facts));
    if is_done(&form, &facts, ask.reader.access().who(), &context) {
        return Ok(leave(&form, None, &context));
    }
    if form.seen != seen(form.verb, &facts) {
        let message = "The job has changed since this page was made, and nothing was done. Look at it again, and \
                       then send it anew.";
        let back =
            Back { status: StatusCode::CONFLICT, message: message.into(), facts: Some(facts) };
        return render(&shared, &ask, form, back);
    }
    let act = match form.act(&facts, &context) {
        Ok(act) => act,
        Err(message) => {
            let back =
                Back { status: StatusCode::UNPROCESSABLE_ENTITY, message, facts: Some(facts) };
            return render(&shared, &ask, form, back);
        }
    };
    match apply(&ask.reader, &form.name, &act, &form.note).await {
        Ok(done) => Ok(leave(&form, done.runs(), &context)),
        // It is gone, as was asked for.
        Err(error) if form.verb == Verb::Delete && error.kind() == ErrorKind::NotFound => {
            Ok(leave(&form, None, &context))
        }
        Err(error) => {
            let back = Back::of(&error, form.verb, Some(facts));
            render(&shared, &ask, form, back)
        }
    }
}

/// # Errors
/// Actions are not allowed here, or the reader lacks the scope.
pub(super) fn allowed(shared: &Shared, ask: &Ask, scope: Scope) -> Result<(), Failure> {
    if !shared.allows_actions {
        return Err(Failure::read_only());
    }
    match ask.reader.access().may(scope) {
        true => Ok(()),
        false => Err(Failure::no_scope(scope)),
    }
}

/// The request with the fields of its form in place of those of its address.
///
/// # Errors
/// Actions are not allowed here, or the form cannot be read.
pub(super) async fn sent(shared: &Shared, ask: Ask, request: Request) -> Result<Ask, Failure> {
    sent_up_to(shared, ask, request, LONGEST_FORM).await
}

/// As [`sent`], with a form of up to so many bytes.
pub(super) async fn sent_up_to(
    shared: &Shared,
    ask: Ask,
    request: Request,
    longest: usize,
) -> Result<Ask, Failure> {
    allowed(shared, &ask, Scope::Read)?;
    let (parts, body) = request.into_parts();
    ask.with_form(read(&parts.headers, body, longest).await?)
}

/// The fields of the form.
async fn read(headers: &HeaderMap, body: Body, longest: usize) -> Result<Params, Failure> {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let kind = kind.and_then(|kind| kind.split(';').next()).unwrap_or_default().trim();
    if !kind.eq_ignore_ascii_case("application/x-www-form-urlencoded") {
        let text = "A form is sent as application/x-www-form-urlencoded.";
        return Err(Failure::bad_form(StatusCode::UNSUPPORTED_MEDIA_TYPE, text));
    }
    let body = to_bytes(body, longest).await.map_err(|_| {
        let text = format!("It did not come as a whole, or has more than {longest} bytes.");
        Failure::bad_form(StatusCode::PAYLOAD_TOO_LARGE, text)
    })?;
    Params::form(&body)
        .map_err(|wrong| Failure::bad_form(StatusCode::BAD_REQUEST, sentence(&wrong)))
}

/// `true` if the job is as the form wants it: its first copy has been sent before, or somebody had the same idea.
fn is_done(form: &Form, facts: &Facts, who: &str, context: &Context) -> bool {
    let pause = facts.state.paused.as_ref();
    match form.verb {
        Verb::Pause => pause.is_some_and(|pause| {
            pause.note == signed(who, &form.note) && form.end(context) == Ok(pause.until)
        }),
        Verb::Resume => pause.is_none(),
        _ => false,
    }
}

impl Back {
    /// The form comes back because of an error of the store.
    fn of(error: &Error, verb: Verb, facts: Option<Facts>) -> Self {
        let unknown = match verb {
            _ if facts.is_none() => NOT_TRIED,
            Verb::Backfill => {
                "It may have been done, or a part of it. Look at the history before you send the form again: a \
                 run that has ended would run once more."
            }
            _ => PERHAPS_DONE,
        };
        let (status, message) = failed(error, unknown);
        Self { status, message, facts }
    }
}

/// The words for a store that did not answer: before the job was read, nothing was tried.
pub(super) const NOT_TRIED: &str = "Nothing was tried. Send the form again when the store answers.";
pub(super) const PERHAPS_DONE: &str = "It may have been done all the same. Send the form again when the store answers: nothing is done twice.";

/// The status and the words of an error of the store, with `unknown` if it did not answer. Only one level of the
/// error is shown.
pub(super) fn failed(error: &Error, unknown: &str) -> (StatusCode, String) {
    log(error);
    let status = match error.kind() {
        ErrorKind::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        ErrorKind::Invalid => StatusCode::UNPROCESSABLE_ENTITY,
        ErrorKind::NotFound => StatusCode::CONFLICT,
        ErrorKind::Unsupported => StatusCode::NOT_IMPLEMENTED,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    };
    let said = sentence(&error.to_string());
    match error.kind() {
        ErrorKind::Unavailable => (status, format!("{said} {unknown}")),
        _ => (status, said),
    }
}

/// The values of the page, in the zone of the job. Without the store, the time is that at which the form was made.
fn context(ask: &Ask, form: &Form, facts: Option<&Facts>) -> Context {
    let now = facts.map(|facts| facts.now).or_else(|| form.made_at());
    let zone = facts.and_then(|facts| described(&facts.state).zone);
    ask.context(now.unwrap_or(DateTime::UNIX_EPOCH)).in_zone_of(zone.as_deref())
}

fn render(shared: &Shared, ask: &Ask, mut form: Form, back: Back) -> Result<Response, Failure> {
    let context = context(ask, &form, back.facts.as_ref());
    let verb = form.verb;
    let preview = match &back.facts {
        Some(facts) => preview(&form, facts, &context),
        None => Preview { seen: form.seen.clone(), ..Preview::default() },
    };
    let has_range = verb != Verb::Backfill || form.range(&context).is_ok();
    let asks_name = verb == Verb::Delete
        && back.facts.as_ref().map_or(!form.typed.is_empty(), Facts::must_type);
    form.seen.clone_from(&preview.seen);
    form.made = machine(context.now);
    if form.clocks.is_empty() {
        context.zone.name().clone_into(&mut form.clocks);
    }
    let title = format!("{}: {}", verb.label(), form.name);
    let view = View {
        label: verb.label(),
        back: context.job(&form.name),
        word: verb.word(),
        zone: context.asked_zone.clone(),
        is_ready: !back.message.is_empty() || (preview.problem.is_empty() && has_range),
        message: back.message,
        asks_gap: verb == Verb::Resume,
        asks_end: verb == Verb::Pause,
        asks_count: verb == Verb::Skip,
        asks_at: verb == Verb::Mark
            && back.facts.as_ref().is_none_or(|facts| form.letter(facts).is_err()),
        asks_range: verb == Verb::Backfill,
        asks_id: matches!(verb, Verb::Trigger | Verb::Cancel),
        asks_name,
        needs_note: verb.needs_note(),
        preview,
        form,
        title: title.clone(),
    };
    let head = Head::new(shared, ask, &context, ("act", "jobs"), title);
    answered(back.status, &Page { head, view })
}

/// The page with this status.
pub(super) fn answered(status: StatusCode, page: &impl Template) -> Result<Response, Failure> {
    let mut response = (status, Html(page.render()?)).into_response();
    if status == StatusCode::SERVICE_UNAVAILABLE {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    }
    Ok(response)
}

/// Sends the browser to the page that shows what was done: going back or loading it again does nothing twice.
fn leave(form: &Form, number: Option<usize>, context: &Context) -> Response {
    let number = number.map(|number| number.to_string()).unwrap_or_default();
    let page = if form.verb == Verb::Delete { "jobs" } else { "job" };
    let id = if form.verb == Verb::Trigger { form.id.as_str() } else { "" };
    let params =
        [("name", form.name.as_str()), ("done", form.verb.word()), ("n", &number), ("id", id)];
    (StatusCode::SEE_OTHER, [(header::LOCATION, context.link(page, &params))]).into_response()
}
