//! Reading of what has happened: the history of runs, and the changes by clients.

use super::{
    call::{Answer, Call},
    problem::{Problem, Type},
    shown, token,
};
use crate::entries::{OUTCOMES, Wanted, find};
use allora_core::{
    HistoryQuery, backend::HistoryCursor, record::ChangeAction, stored::ChangeFilter,
};
use serde_json::Value;

/// The history of one job, or of all.
pub(crate) async fn history(call: Call) -> Answer {
    let Call { query, reader, .. } = &call;
    let outcome = query.some("outcome").unwrap_or("all");
    let wanted = Wanted {
        outcome: OUTCOMES.into_iter().find(|known| *known == outcome).unwrap_or("all"),
        name: query.text("name").to_owned(),
        prefix: query.text("prefix").to_owned(),
        kind: query.some("kind").map(str::to_owned),
        owner: query.text("owner").to_owned(),
        from: query.time("from"),
        until: query.time("until"),
        before: before(&call)?,
    };
    let found = find(reader, &wanted, query.count("limit")).await?;
    if found.entries.is_empty() && !wanted.name.is_empty() && wanted.before.is_none() {
        // Without the job and without any entry, the name is a mistake.
        reader.why(&wanted.name, None).await?;
    }
    call.json(shown::page(&found.entries, found.older.as_ref().map(token::of_entry)))
}

/// The entry at which the page begins.
fn before(call: &Call) -> Result<Option<HistoryCursor>, Problem> {
    let place = call.query.some("page").and_then(token::read);
    let place = place.map(|place| place.parse::<HistoryCursor>()).transpose();
    place.map_err(|_| {
        let detail = "this is the page of another list; use the `next` of the page before";
        Problem::bad_parameter("page", detail)
    })
}

pub(crate) async fn one(call: Call) -> Answer {
    let Call { query, reader, .. } = &call;
    let (name, fence) = (query.text("name"), query.number("fence").unwrap_or_default());
    let above = HistoryCursor { fence: fence.saturating_add(1), name: String::new() };
    let found = reader.history(HistoryQuery::new(1).name(name).before(&above)).await?;
    let run = found.entries.iter().find(|entry| entry.fence == fence);
    let run = run.ok_or_else(|| {
        let detail = format!("the history has no run of {name:?} with the fence {fence}");
        Problem::new(Type::NotFound, detail)
    })?;
    call.json(run)
}

/// The deletions that can be undone.
pub(crate) async fn deleted(call: Call) -> Answer {
    let Call { query, reader, .. } = &call;
    let (prefix, limit) = (query.text("prefix"), query.count("limit"));
    let found = reader.deleted(prefix, before(&call)?.as_ref(), limit).await?;
    let items: Vec<Value> =
        found.deletions.iter().map(|change| shown::change(reader, change)).collect();
    call.json(shown::page(items, found.next.as_ref().map(token::of_entry)))
}

pub(crate) async fn audit(call: Call) -> Answer {
    let Call { query, reader, .. } = &call;
    let mut filter = ChangeFilter::default().prefix(query.text("prefix"));
    (filter.name, filter.actor) = (query.given("name"), query.given("actor"));
    (filter.from, filter.until) = (query.time("from"), query.time("until"));
    let action = query.given("action").and_then(ChangeAction::from_word);
    filter.actions = action.as_slice();
    let found = reader.changes(filter, before(&call)?.as_ref(), query.count("limit")).await?;
    let items: Vec<Value> =
        found.changes.iter().map(|change| shown::change(reader, change)).collect();
    call.json(shown::page(items, found.next.as_ref().map(token::of_entry)))
}
