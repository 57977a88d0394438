//! *Audit*: who changed which job, by which way, and why.

use super::{Answer, Head, answer, short};
use crate::{
    access::Scope, ask::Ask, context::Context, failure::Failure, links::Linked, params::Params,
    reader::Reader, shared::Shared, times::Moment,
};
use allora_core::{
    ErrorKind, Result,
    backend::HistoryCursor,
    record::{Change, ChangeAction, ChangeResult, Record},
    stored::{ChangeFilter, ChangePage},
};
use askama::Template;
use axum::extract::State;
use std::sync::Arc;

/// The rows on a page.
const ROWS: usize = 50;

/// The longest definition in a row, in characters.
const DEFINITION: usize = 160;

#[derive(Debug, Template)]
#[template(path = "audit.html")]
struct Audit {
    head: Head,
    view: View,
}

#[derive(Clone, Debug)]
struct View {
    asked: Asked,
    actions: Vec<Choice>,
    rows: Vec<Row>,
    nothing: String,
    first: Option<String>,
    older: Option<String>,
}

/// An entry of the list of actions.
#[derive(Clone, Debug)]
struct Choice {
    value: &'static str,
    is_chosen: bool,
}

/// The filter in the address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Asked {
    name: String,
    prefix: String,
    actor: String,
    action: Option<ChangeAction>,
    before: Option<HistoryCursor>,
}

/// A change, as a row shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) at: Moment,
    pub(crate) who: Linked,
    pub(crate) via: String,
    /// The action, with what it was about.
    pub(crate) what: String,
    pub(crate) job: Linked,
    /// The parts that it changed: before, and after.
    pub(crate) changed: Vec<(String, String)>,
    pub(crate) note: String,
    /// The reason if it was refused, or a remark if nothing changed.
    pub(crate) result: String,
    /// The page that takes it back.
    pub(crate) undo: Option<String>,
}

pub(crate) async fn page(State(shared): State<Arc<Shared>>, ask: Ask) -> Answer {
    let asked = Asked::read(&ask.params)?;
    let now = ask.reader.store_now().await?;
    let context = ask.context(now);
    let found = match find(&ask.reader, &asked).await {
        Err(error) if error.kind() == ErrorKind::Unsupported => None,
        found => Some(found?),
    };
    let view = view(asked, found, &context);
    answer(&Audit { head: Head::new(&shared, &ask, &context, ("audit", "audit"), "Audit"), view })
}

impl Asked {
    fn read(params: &Params) -> Result<Self, Failure> {
        let action = params.some("what").map(|word| {
            ChangeAction::from_word(word).ok_or_else(|| {
                let all = ChangeAction::ALL.map(ChangeAction::word).join(", ");
                Failure::bad_address(format!("There is no change {word:?}; use one of {all}."))
            })
        });
        let before = params.some("before").map(|fence| {
            let fence = fence.parse().map_err(|_| {
                let text = format!("There is no change {fence:?}; begin at the newest one.");
                Failure::bad_address(text)
            })?;
            let name = params.exact("before_name").to_owned();
            Ok::<_, Failure>(HistoryCursor { fence, name })
        });
        Ok(Self {
            name: params.exact("name").to_owned(),
            prefix: params.exact("q").to_owned(),
            actor: params.exact("actor").to_owned(),
            action: action.transpose()?,
            before: before.transpose()?,
        })
    }

    /// The address of the list with this filter, below this change.
    fn link(&self, context: &Context, before: Option<&HistoryCursor>) -> String {
        let fence = before.map(|before| before.fence.to_string()).unwrap_or_default();
        context.link(
            "audit",
            &[
                ("name", &self.name),
                ("q", &self.prefix),
                ("actor", &self.actor),
                ("what", self.action.map_or("", ChangeAction::word)),
                ("before", &fence),
                ("before_name", before.map_or("", |before| before.name.as_str())),
            ],
        )
    }
}

async fn find(reader: &Reader, asked: &Asked) -> Result<ChangePage> {
    let mut filter = ChangeFilter::default().prefix(&asked.prefix);
    filter.name = Some(asked.name.as_str()).filter(|name| !name.is_empty());
    filter.actor = Some(asked.actor.as_str()).filter(|actor| !actor.is_empty());
    filter.actions = asked.action.as_slice();
    reader.changes(filter, asked.before.as_ref(), ROWS).await
}

/// `None`: the store keeps no record of changes.
fn view(asked: Asked, found: Option<ChangePage>, context: &Context) -> View {
    let nothing = match &found {
        None => "This store keeps no record of changes.",
        Some(page) if !page.changes.is_empty() => "",
        Some(page) if page.next.is_some() => "No such change among these; older ones may be.",
        Some(_) if asked == Asked::default() => {
            "No change is recorded. A program is named here if it calls Schedules::by; the console and \
             the command do."
        }
        Some(_) => "No such change is recorded.",
    };
    let page = found.unwrap_or_default();
    let choice = |action: ChangeAction| Choice {
        value: action.word(),
        is_chosen: asked.action == Some(action),
    };
    View {
        actions: ChangeAction::ALL.map(choice).into(),
        rows: page.changes.iter().map(|change| row(change, context)).collect(),
        nothing: nothing.to_owned(),
        first: asked.before.as_ref().map(|_| asked.link(context, None)),
        older: page.next.as_ref().map(|next| asked.link(context, Some(next))),
        asked,
    }
}

/// A change as the reader sees it.
pub(crate) fn row(change: &Change, context: &Context) -> Row {
    let name = change.name.as_str();
    let sequence = change.sequence.to_string();
    let may = match scope(change.action) {
        Some(Scope::Edit) => context.may_edit,
        Some(_) => context.may_run,
        None => false,
    };
    let is_undoable = may && change.result == ChangeResult::Applied;
    let result = match &change.result {
        ChangeResult::Unchanged => "it was so already".to_owned(),
        other => context.visible(other.error()).to_owned(),
    };
    let actor = change.author.actor.as_str();
    Row {
        at: context.moment(change.at),
        who: Linked { text: actor.to_owned(), link: context.link("audit", &[("actor", actor)]) },
        via: change.author.via.clone(),
        what: format!("{} {}", change.action.word(), context.local_times(&change.detail)),
        job: Linked { text: name.to_owned(), link: context.job(name) },
        changed: changed(change.before.as_deref(), change.after.as_deref()),
        note: change.author.note.clone(),
        result,
        undo: is_undoable.then(|| context.link("undo", &[("name", name), ("change", &sequence)])),
    }
}

/// The scope of the undoing of such a change; `None` if it cannot be undone.
pub(crate) fn scope(action: ChangeAction) -> Option<Scope> {
    match action {
        ChangeAction::Pause | ChangeAction::Resume => Some(Scope::Run),
        ChangeAction::Modify | ChangeAction::Delete => Some(Scope::Edit),
        _ => None,
    }
}

/// The kind, the definition and the data, where they differ: before, and after.
fn changed(before: Option<&Record>, after: Option<&Record>) -> Vec<(String, String)> {
    let part = |of: fn(&Record) -> String| {
        let text = |record: Option<&Record>| record.map(of).unwrap_or_default();
        let (before, after) = (text(before), text(after));
        (before != after).then_some((before, after))
    };
    let definition = |record: &Record| short(&record.definition, DEFINITION);
    let mut parts: Vec<(String, String)> =
        [part(|record| record.kind.clone()), part(definition)].into_iter().flatten().collect();
    let data =
        |record: Option<&Record>| record.map(|record| record.data.clone()).unwrap_or_default();
    if let (Some(_), Some(_)) = (before, after)
        && data(before) != data(after)
    {
        parts.push(("data".into(), "other data".into()));
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(query: &str) -> Result<Asked, Failure> {
        Asked::read(&Params::read(query).unwrap())
    }

    #[test]
    fn the_filter_stands_in_the_address() {
        let asked = asked("name=a%26b&actor=ann&what=pause&before=7&before_name=a%26b").unwrap();
        let before = asked.before.clone();
        assert_eq!(
            asked.link(&Context::of_test(), before.as_ref()),
            "audit?name=a%26b&actor=ann&what=pause&before=7&before_name=a%26b"
        );
    }

    #[test]
    fn what_is_no_action_and_no_number_is_refused() {
        for query in ["what=explode", "before=x"] {
            assert!(asked(query).is_err(), "{query}");
        }
    }

    #[test]
    fn a_store_without_a_record_and_one_without_changes_say_so() {
        let context = Context::of_test();
        let none = view(Asked::default(), None, &context).nothing;
        let empty = view(Asked::default(), Some(ChangePage::default()), &context).nothing;
        assert!(none.contains("keeps no record") && empty.contains("Schedules::by"));
    }

    #[test]
    fn a_row_shows_the_parts_that_differ() {
        let before = Record { definition: "@daily".into(), data: b"1".into(), ..Record::default() };
        let after = Record { definition: "@hourly".into(), data: b"2".into(), ..Record::default() };
        let parts = changed(Some(&before), Some(&after));
        let pair = |one: &str, other: &str| (one.to_owned(), other.to_owned());
        assert_eq!(parts, [pair("@daily", "@hourly"), pair("data", "other data")]);
        assert_eq!(changed(None, Some(&after)), [pair("", "@hourly")]);
    }
}
