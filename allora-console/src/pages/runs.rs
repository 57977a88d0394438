//! *Runs*: the history of all jobs or of one, failures first of all.

use super::{
    Answer, Head, answer,
    entry::{Row, row},
    grouped,
};
use crate::{
    ask::Ask, context::Context, failure::Failure, params::Params, reader::Reader, shared::Shared,
};
use allora_core::{HistoryEntry, HistoryQuery, Result, backend::HistoryCursor};
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
    asked: Asked,
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

/// The filter in the address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Asked {
    /// `failures`, `all`, or the word of an outcome.
    outcome: &'static str,
    name: String,
    prefix: String,
    kind: String,
    before: Option<HistoryCursor>,
}

/// The choices: those of which a person asks, then every outcome.
const OUTCOMES: [&str; 13] = [
    "failures",
    "all",
    "succeeded",
    "failed",
    "dead",
    "lost",
    "expired",
    "missed",
    "skipped",
    "cancelled",
    "retried",
    "interrupted",
    "released",
];

/// The rows on a page.
const ROWS: usize = 50;
/// The entries that are read at once, and in all, for a filter that the store does not have.
const PAGE: usize = 500;
const MOST: usize = 5_000;

/// The entries of a page.
#[derive(Debug, Default)]
struct Found {
    entries: Vec<HistoryEntry>,
    /// The entry below which the next page begins.
    older: Option<HistoryCursor>,
    /// The number of entries that were read, if the search ended before the history did.
    gave_up_at: Option<usize>,
}

pub(crate) async fn page(State(shared): State<Arc<Shared>>, ask: Ask) -> Answer {
    let asked = Asked::read(&ask.params)?;
    let now = ask.reader.store_now().await?;
    let context = ask.context(now);
    let found = find(&ask.reader, &asked).await?;
    let view = view(asked, found, &context);
    answer(&Runs { head: Head::new(&shared, &ask, &context, ("runs", "runs"), "Runs"), view })
}

impl Asked {
    fn read(params: &Params) -> Result<Self, Failure> {
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
        Ok(Self {
            outcome: known,
            name: params.exact("name").to_owned(),
            prefix: params.exact("q").to_owned(),
            kind: params.get("kind").to_owned(),
            before,
        })
    }

    fn is_asked_for(&self, entry: &HistoryEntry) -> bool {
        let is_outcome = match self.outcome {
            "all" => true,
            "failures" => entry.outcome.is_failure(),
            word => entry.outcome.word() == word,
        };
        is_outcome
            && entry.name.starts_with(&self.prefix)
            && (self.kind.is_empty() || entry.kind == self.kind)
    }

    /// The address of the list with this filter, below this entry.
    fn link(&self, context: &Context, before: Option<&HistoryCursor>) -> String {
        let fence = before.map(|before| before.fence.to_string()).unwrap_or_default();
        let outcome = if self.outcome == "failures" { "" } else { self.outcome };
        context.link(
            "runs",
            &[
                ("outcome", outcome),
                ("name", &self.name),
                ("q", &self.prefix),
                ("kind", &self.kind),
                ("before", &fence),
                ("before_name", before.map_or("", |before| before.name.as_str())),
            ],
        )
    }
}

async fn find(reader: &Reader, asked: &Asked) -> Result<Found> {
    let mut found = Found::default();
    let mut before = asked.before.clone();
    let mut read = 0;
    loop {
        let mut query = HistoryQuery::new(PAGE);
        query.name = Some(asked.name.as_str()).filter(|name| !name.is_empty());
        query.before = before.as_ref();
        let page = reader.history(query).await?;
        read += page.read;
        for entry in page.entries {
            let place = entry.cursor();
            if asked.is_asked_for(&entry) {
                found.entries.push(entry);
            }
            if found.entries.len() == ROWS {
                found.older = Some(place);
                return Ok(found);
            }
        }
        before = page.next;
        if before.is_none() {
            return Ok(found);
        }
        if read >= MOST {
            (found.older, found.gave_up_at) = (before, Some(read));
            return Ok(found);
        }
    }
}

fn view(asked: Asked, found: Found, context: &Context) -> View {
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
        first: asked.before.as_ref().map(|_| asked.link(context, None)),
        older: found.older.as_ref().map(|older| asked.link(context, Some(older))),
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
    use allora_core::Outcome;

    fn asked(query: &str) -> Asked {
        Asked::read(&Params::read(query).unwrap()).unwrap()
    }

    fn entry(name: &str, outcome: Outcome) -> HistoryEntry {
        HistoryEntry::new(name, 7, at("2026-10-26T01:00:00Z").into(), outcome)
    }

    #[test]
    fn failures_are_shown_unless_something_else_is_asked_for() {
        let lost = entry("acme/report", Outcome::Lost);
        let good = entry("acme/report", Outcome::Succeeded);
        assert!(asked("").is_asked_for(&lost) && !asked("").is_asked_for(&good));
        assert!(asked("outcome=all").is_asked_for(&good));
        assert!(asked("outcome=succeeded&q=acme%2F").is_asked_for(&good));
        assert!(!asked("outcome=succeeded&q=beta").is_asked_for(&good));
        assert!(!asked("kind=mail").is_asked_for(&lost));
    }

    #[test]
    fn older_entries_are_behind_a_link_that_keeps_the_filter() {
        let older = Some(HistoryCursor { fence: 7, name: "a&b".into() });
        let found =
            Found { entries: vec![entry("a&b", Outcome::Lost)], older, gave_up_at: Some(5_000) };
        let view = view(asked("kind=mail"), found, &Context::of_test());
        assert_eq!(view.older.as_deref(), Some("runs?kind=mail&before=7&before_name=a%26b"));
        assert_eq!(view.count, "1 among 5,000 entries.");
        assert_eq!((view.first, view.rows.len()), (None, 1));
    }

    #[test]
    fn what_is_no_outcome_and_no_fence_is_refused() {
        for query in ["outcome=bad", "before=x"] {
            assert!(Asked::read(&Params::read(query).unwrap()).is_err(), "{query}");
        }
        for outcome in &OUTCOMES[2..] {
            assert!(Outcome::from_word(outcome, "").is_some(), "{outcome}");
        }
    }
}
