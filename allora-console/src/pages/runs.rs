//! *Runs*: the history of all jobs or of one, failures first of all.

use super::{
    Answer, Head, answer,
    entry::{Row, row},
    grouped,
};
use crate::{
    ask::Ask,
    context::Context,
    entries::{Found, OUTCOMES, Wanted, find},
    failure::Failure,
    params::Params,
    shared::Shared,
};
use allora_core::backend::HistoryCursor;
use askama::Template;
use axum::extract::State;
use std::sync::Arc;

#[derive(Debug, Template)]
#[template(path = "runs.html")]
struct Runs {
    head: Head,
    view: View,
}

#[derive(Clone, Debug)]
struct View {
    asked: Wanted,
    outcomes: Vec<Choice>,
    rows: Vec<Row>,
    count: String,
    first: Option<String>,
    older: Option<String>,
    nothing: String,
}

/// An entry of the list of outcomes.
#[derive(Clone, Debug)]
struct Choice {
    value: &'static str,
    is_chosen: bool,
}

/// The rows on a page.
const ROWS: usize = 50;
pub(crate) async fn page(State(shared): State<Arc<Shared>>, ask: Ask) -> Answer {
    let asked = read(&ask.params)?;
    let now = ask.reader.store_now().await?;
    let context = ask.context(now);
    let found = find(&ask.reader, &asked, ROWS).await?;
    let view = view(asked, found, &context);
    answer(&Runs { head: Head::new(&shared, &ask, &context, ("runs", "runs"), "Runs"), view })
}

/// The filter in the address.
fn read(params: &Params) -> Result<Wanted, Failure> {
    let outcome = params.some("outcome").unwrap_or("failures");
    let known = OUTCOMES.into_iter().find(|known| *known == outcome).ok_or_else(|| {
        let all = OUTCOMES.join(", ");
        Failure::bad_address(format!("There is no outcome {outcome:?}; use one of {all}."))
    })?;
    let before = match params.some("before") {
        None => None,
        Some(fence) => {
            let fence = fence.parse().map_err(|_| {
                let text = format!("There is no run {fence:?}; begin at the newest one.");
                Failure::bad_address(text)
            })?;
            Some(HistoryCursor { fence, name: params.exact("before_name").to_owned() })
        }
    };
    Ok(Wanted {
        outcome: known,
        name: params.exact("name").to_owned(),
        prefix: params.exact("q").to_owned(),
        kind: params.some("kind").map(str::to_owned),
        owner: params.get("owner").to_owned(),
        before,
        ..Wanted::default()
    })
}

/// The address of the list with this filter, below this entry.
fn link(asked: &Wanted, context: &Context, before: Option<&HistoryCursor>) -> String {
    let fence = before.map(|before| before.fence.to_string()).unwrap_or_default();
    let outcome = if asked.outcome == "failures" { "" } else { asked.outcome };
    context.link(
        "runs",
        &[
            ("outcome", outcome),
            ("name", &asked.name),
            ("q", &asked.prefix),
            ("kind", asked.kind.as_deref().unwrap_or_default()),
            ("owner", &asked.owner),
            ("before", &fence),
            ("before_name", before.map_or("", |before| before.name.as_str())),
        ],
    )
}

fn view(asked: Wanted, found: Found, context: &Context) -> View {
    let rows: Vec<Row> = found.entries.iter().map(|entry| row(entry, context)).collect();
    let shown = grouped(rows.len());
    let count = match (found.gave_up_at, found.older.is_some()) {
        (Some(read), _) => format!("{shown} among {} entries.", grouped(read)),
        (None, true) if asked.before.is_none() => format!("The newest {shown}."),
        (None, true) => format!("{shown} of more."),
        (None, false) if asked.before.is_none() => format!("{shown} in all."),
        (None, false) => format!("{shown} to the oldest."),
    };
    let nothing = match (rows.is_empty(), asked.outcome) {
        (false, _) => String::new(),
        (true, outcome) => {
            let what = if outcome == "failures" { "failure" } else { "run of this filter" };
            match found.gave_up_at {
                Some(_) => format!("No {what} among these; older entries may have some."),
                None => format!("No {what}."),
            }
        }
    };
    let choice = |value: &'static str| Choice { value, is_chosen: value == asked.outcome };
    View {
        outcomes: OUTCOMES.into_iter().map(choice).collect(),
        first: asked.before.as_ref().map(|_| link(&asked, context, None)),
        older: found.older.as_ref().map(|older| link(&asked, context, Some(older))),
        rows,
        count,
        nothing,
        asked,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::times::at;
    use allora_core::{HistoryEntry, Outcome};

    fn asked(query: &str) -> Wanted {
        read(&Params::read(query).unwrap()).unwrap()
    }

    #[test]
    fn failures_are_shown_unless_something_else_is_asked_for() {
        assert_eq!((asked("").outcome, asked("outcome=all").outcome), ("failures", "all"));
        let all = asked("outcome=succeeded&q=acme%2F&kind=mail&name=acme%2Fa");
        assert_eq!(
            (&*all.prefix, all.kind.as_deref(), &*all.name),
            ("acme/", Some("mail"), "acme/a")
        );
    }

    #[test]
    fn older_entries_are_behind_a_link_that_keeps_the_filter() {
        let older = Some(HistoryCursor { fence: 7, name: "a&b".into() });
        let lost = HistoryEntry::new("a&b", 7, at("2026-10-26T01:00:00Z").into(), Outcome::Lost);
        let found = Found { entries: vec![lost], older, gave_up_at: Some(5_000) };
        let view = view(asked("kind=mail&owner=ann"), found, &Context::of_test());
        assert_eq!(
            view.older.as_deref(),
            Some("runs?kind=mail&owner=ann&before=7&before_name=a%26b")
        );
        assert_eq!(view.count, "1 among 5,000 entries.");
        assert_eq!((view.first, view.rows.len()), (None, 1));
    }

    #[test]
    fn what_is_no_outcome_and_no_fence_is_refused() {
        for query in ["outcome=bad", "before=x"] {
            assert!(read(&Params::read(query).unwrap()).is_err(), "{query}");
        }
    }
}
