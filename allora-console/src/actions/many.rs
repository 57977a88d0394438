//! One action on all jobs of a filter: asked for, the page is a dry run; sent with the number of jobs, it does it.

use super::{
    apply::{log_action, new_id, signed},
    form::check_note,
    page::{allowed, sent},
    verb::Verb,
};
use crate::{
    ask::Ask,
    context::Context,
    failure::{Failure, log},
    links::Linked,
    pages::{Head, asked::Asked, sentence},
    params::Params,
    shared::Shared,
    words::{counted, grouped},
};
use allora_core::{
    Result,
    stored::{Bulk, BulkReport, Gap},
};
use askama::Template;
use axum::{
    extract::{Request, State},
    http::StatusCode,
    response::{Html, IntoResponse, Response},
};
use std::sync::Arc;

/// The actions on many jobs.
const VERBS: [Verb; 6] =
    [Verb::Pause, Verb::Resume, Verb::Trigger, Verb::Rerun, Verb::Dismiss, Verb::Delete];

/// The most names of a dry run, and the most errors of a report, on a page.
const SHOWN: usize = 20;

#[derive(Debug, Template)]
#[template(path = "many.html")]
struct Page {
    head: Head,
    view: View,
}

#[derive(Debug)]
struct View {
    title: String,
    /// The filter in words.
    which: String,
    message: String,
    count: usize,
    jobs: Vec<Linked>,
    /// The number of those that are not shown.
    more: String,
    /// The fields that are sent as they are.
    carried: Vec<(&'static str, String)>,
    label: &'static str,
    note: String,
    gap: String,
    asks_gap: bool,
    needs_note: bool,
    back: String,
}

#[derive(Debug, Template)]
#[template(path = "many_done.html")]
struct DonePage {
    head: Head,
    title: String,
    said: Vec<String>,
    failed: Vec<(Linked, String)>,
    back: String,
}

/// The action on many jobs, as it was asked for.
#[derive(Clone, Debug)]
struct Many {
    asked: Asked,
    verb: Verb,
    note: String,
    gap: String,
    /// The number of jobs, typed by hand.
    typed: String,
    /// The id of the triggers, so that a second click triggers nothing.
    id: String,
}

/// The text of the button.
fn label(verb: Verb) -> &'static str {
    match verb {
        Verb::Resume => "Resume all",
        Verb::Trigger => "Run all now",
        Verb::Rerun => "Rerun all",
        Verb::Dismiss => "Dismiss all",
        Verb::Delete => "Delete all",
        _ => "Pause all",
    }
}

/// The links to these actions for the jobs of a filter; none if the filter has a state that many jobs cannot be
/// selected by.
pub(crate) fn many_buttons(asked: &Asked, context: &Context) -> Vec<Linked> {
    if asked.filter_of_many().is_none() {
        return Vec::new();
    }
    let button = |verb: Verb| Linked {
        text: format!("{}…", label(verb)),
        link: asked.link_to("many", context, &[("do", verb.word())]),
    };
    VERBS.into_iter().filter(|verb| verb.is_allowed(context)).map(button).collect()
}

/// The dry run.
pub(crate) async fn ask_first(
    State(shared): State<Arc<Shared>>,
    ask: Ask,
) -> Result<Response, Failure> {
    let many = Many::read(&ask.params)?;
    allowed(&shared, &ask, many.verb.scope())?;
    let names = many.preview(&ask).await?;
    many.render(&shared, &ask, names, (StatusCode::OK, String::new())).await
}

/// Does it, and reports what became of it.
pub(crate) async fn act(
    State(shared): State<Arc<Shared>>,
    ask: Ask,
    request: Request,
) -> Result<Response, Failure> {
    let ask = sent(&shared, ask, request).await?;
    let many = Many::read(&ask.params)?;
    allowed(&shared, &ask, many.verb.scope())?;
    let names = many.preview(&ask).await?;
    if let Some(message) = many.wrong(names.len()) {
        let back = (StatusCode::UNPROCESSABLE_ENTITY, message);
        return many.render(&shared, &ask, names, back).await;
    }
    match many.apply(&ask).await {
        Ok(report) => many.report(&shared, &ask, report).await,
        Err(error) => {
            log(&error);
            let text =
                " Some of the jobs may be changed. Look at the list, and send the form again.";
            let back = (StatusCode::SERVICE_UNAVAILABLE, sentence(&error.to_string()) + text);
            many.render(&shared, &ask, names, back).await
        }
    }
}

impl Many {
    fn read(params: &Params) -> Result<Self, Failure> {
        let word = params.get("do");
        let verb = VERBS.into_iter().find(|verb| verb.word() == word).ok_or_else(|| {
            let all = VERBS.map(Verb::word).join(", ");
            Failure::bad_address(format!("{word:?} is no action on many jobs; use one of {all}."))
        })?;
        let asked = Asked::read(params)?;
        if asked.filter_of_many().is_none() {
            let text = "Many jobs are selected by name, kind, tag or owner, or by the state running, \
                        paused, ended, dead, failing or waiting.";
            return Err(Failure::bad_address(text.to_owned()));
        }
        let text = |name: &str| params.get(name).to_owned();
        let (note, gap, typed, id) = (text("note"), text("gap"), text("typed"), text("id"));
        Ok(Self { asked, verb, note, gap, typed, id })
    }

    /// The change, with this text for a pause.
    fn change<'a>(&'a self, note: &'a str) -> Bulk<'a> {
        match self.verb {
            Verb::Resume if self.gap == "missed" => Bulk::Resume(Gap::Missed),
            Verb::Resume => Bulk::Resume(Gap::CatchUp),
            Verb::Trigger => Bulk::Trigger { id: &self.id },
            Verb::Rerun => Bulk::Rerun,
            Verb::Dismiss => Bulk::Dismiss,
            Verb::Delete => Bulk::Delete,
            _ => Bulk::Pause { note, until: None },
        }
    }

    /// The names of the jobs that would be changed.
    async fn preview(&self, ask: &Ask) -> Result<Vec<String>> {
        let filter = self.asked.filter_of_many().unwrap_or_default();
        ask.reader.bulk_preview(filter, self.change("")).await
    }

    /// Why it cannot be done as it was typed.
    fn wrong(&self, count: usize) -> Option<String> {
        if let Err(wrong) = check_note(self.verb, &self.note) {
            return Some(wrong);
        }
        if self.verb == Verb::Resume && !["catch-up", "missed"].contains(&self.gap.as_str()) {
            return Some("Choose what becomes of the occurrences of the pause.".into());
        }
        let number: Option<usize> = self.typed.replace(',', "").parse().ok();
        (number != Some(count)).then(|| {
            format!("{} would be changed now. Type this number to do it.", counted(count, "job"))
        })
    }

    async fn apply(&self, ask: &Ask) -> Result<BulkReport> {
        let filter = self.asked.filter_of_many().unwrap_or_default();
        let note = signed(ask.reader.access().who(), &self.note);
        let done = ask.reader.bulk(&self.note, filter, self.change(&note)).await;
        let of = (&ask.reader, self.note.as_str());
        log_action(self.verb.word(), &self.which(), of, done.as_ref().err());
        done
    }

    /// The filter in words.
    fn which(&self) -> String {
        let part = |before: &str, text: &str| match text.is_empty() {
            true => String::new(),
            false => format!("{before} {text:?}"),
        };
        let Asked { prefix, kind, tag, owner, .. } = &self.asked;
        let state = self.asked.state.map(|state| format!("that are {}", state.text()));
        let parts = [
            part("whose names begin with", prefix),
            part("of the kind", kind),
            part("with the tag", tag),
            part("of the owner", owner),
            state.unwrap_or_default(),
        ];
        let parts: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        match parts.is_empty() {
            true => "All jobs.".to_owned(),
            false => format!("Jobs {}.", parts.join(", ")),
        }
    }

    async fn render(
        mut self,
        shared: &Shared,
        ask: &Ask,
        names: Vec<String>,
        (status, message): (StatusCode, String),
    ) -> Result<Response, Failure> {
        let now = ask.reader.store_now().await?;
        let context = ask.context(now);
        if self.id.is_empty() {
            self.id = new_id(ask.reader.access().who(), now);
        }
        let count = names.len();
        let label = label(self.verb);
        let title = format!("{}: {}", self.verb.label(), counted(count, "job"));
        let jobs = names.into_iter().take(SHOWN);
        let view = View {
            title: title.clone(),
            which: self.which(),
            message,
            count,
            jobs: jobs.map(|name| Linked { link: context.job(&name), text: name }).collect(),
            more: match count.saturating_sub(SHOWN) {
                0 => String::new(),
                more => format!("and {} more", grouped(more)),
            },
            carried: self.carried(&context),
            label,
            note: self.note.clone(),
            gap: self.gap.clone(),
            asks_gap: self.verb == Verb::Resume,
            needs_note: self.verb.needs_note(),
            back: self.asked.link_to("jobs", &context, &[]),
        };
        let head = Head::new(shared, ask, &context, ("many", "jobs"), title);
        Ok((status, Html(Page { head, view }.render()?)).into_response())
    }

    fn carried(&self, context: &Context) -> Vec<(&'static str, String)> {
        let Asked { prefix, kind, tag, owner, state, .. } = &self.asked;
        let all = [
            ("do", self.verb.word()),
            ("q", prefix),
            ("kind", kind),
            ("tag", tag),
            ("owner", owner),
            ("state", state.map_or("", |state| state.text())),
            ("id", &self.id),
            ("zone", &context.asked_zone),
        ];
        let given = all.into_iter().filter(|(_, value)| !value.is_empty());
        given.map(|(name, value)| (name, value.to_owned())).collect()
    }

    async fn report(
        &self,
        shared: &Shared,
        ask: &Ask,
        report: BulkReport,
    ) -> Result<Response, Failure> {
        let now = ask.reader.store_now().await?;
        let context = ask.context(now);
        let number = |names: usize, what: &str| {
            (names > 0).then(|| format!("{} {what}.", counted(names, "job")))
        };
        let said = [
            Some(format!("{} changed.", counted(report.changed.len(), "job"))),
            number(report.triggered_before.len(), "had been triggered with this id before"),
            number(report.failed.len(), "could not be changed"),
        ];
        let failed = report.failed.iter().take(SHOWN).map(|(name, error)| {
            let job = Linked { text: name.clone(), link: context.job(name) };
            (job, sentence(&error.to_string()))
        });
        let failed = failed.collect();
        let title = format!("{}: done", self.verb.label());
        let page = DonePage {
            head: Head::new(shared, ask, &context, ("many", "jobs"), title.clone()),
            title,
            said: said.into_iter().flatten().collect(),
            failed,
            back: self.asked.link_to("jobs", &context, &[]),
        };
        Ok(Html(page.render()?).into_response())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn many(query: &str) -> Result<Many, Failure> {
        Many::read(&Params::read(query).unwrap())
    }

    #[test]
    fn the_number_is_typed_and_the_note_is_written() {
        let pause = many("do=pause&kind=mail&note=moving&typed=1,204").unwrap();
        assert_eq!(pause.wrong(1_204), None);
        assert!(pause.wrong(1_205).unwrap().contains("1,205 jobs"));
        assert!(many("do=pause&kind=mail&typed=3").unwrap().wrong(3).unwrap().contains("note"));
        assert!(many("do=resume&typed=3").unwrap().wrong(3).unwrap().contains("Choose"));
    }

    #[test]
    fn a_state_that_selects_no_many_and_an_action_on_one_job_are_refused() {
        for query in ["do=pause&state=overdue", "do=backfill", "do=explode", ""] {
            assert!(many(query).is_err(), "{query}");
        }
        assert!(many("do=pause&state=failing").is_ok());
        let context = Context::of_test();
        let asked = |query| Asked::read(&Params::read(query).unwrap()).unwrap();
        assert!(many_buttons(&asked("state=overdue"), &context).is_empty());
        assert_eq!(many_buttons(&asked("kind=mail"), &context)[0].link, "many?kind=mail&do=pause");
    }

    #[test]
    fn the_filter_is_said_in_words() {
        let which = |query| many(query).unwrap().which();
        assert_eq!(which("do=pause"), "All jobs.");
        assert_eq!(
            which("do=pause&q=acme%2F&kind=mail&state=failing"),
            "Jobs whose names begin with \"acme/\", of the kind \"mail\", that are failing."
        );
    }
}
