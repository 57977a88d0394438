//! The page that takes back a change: asked for, it shows the change; sent, it does it.

use super::{
    apply::{Act, apply},
    form::check_note,
    page::{allowed, sent},
    verb::Verb,
};
use crate::{
    ask::Ask,
    context::Context,
    failure::{Failure, log},
    pages::{
        Answer, Head,
        audit::{Row, row, scope},
        sentence,
    },
    params::Params,
    shared::Shared,
};
use allora_core::{
    ErrorKind,
    record::{Change, ChangeAction},
};
use askama::Template;
use axum::{
    extract::{Request, State},
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use std::sync::Arc;

#[derive(Debug, Template)]
#[template(path = "undo.html")]
struct Page {
    head: Head,
    view: View,
}

#[derive(Debug)]
struct View {
    title: String,
    name: String,
    sequence: i64,
    zone: String,
    row: Row,
    /// The list of the changes of the job.
    back: String,
}

/// The page that shows what is taken back.
pub(crate) async fn ask_first(State(shared): State<Arc<Shared>>, ask: Ask) -> Answer {
    let now = ask.reader.store_now().await?;
    let context = ask.context(now);
    let change = find(&shared, &ask, &ask.params).await?;
    let change = ask.reader.shown_change(change);
    let title = format!("Undo: {} of {}", change.action.word(), change.name);
    let view = View {
        title: title.clone(),
        name: change.name.clone(),
        sequence: change.sequence,
        zone: context.asked_zone.clone(),
        row: row(&change, &context),
        back: list(&context, &change.name),
    };
    let head = Head::new(&shared, &ask, &context, ("undo", "audit"), title);
    Ok(axum::response::Html(Page { head, view }.render()?))
}

/// Takes the change back, and leads to the changes of the job.
pub(crate) async fn undo(
    State(shared): State<Arc<Shared>>,
    ask: Ask,
    request: Request,
) -> Result<Response, Failure> {
    let ask = sent(&shared, ask, request).await?;
    let change = find(&shared, &ask, &ask.params).await?;
    let note = ask.params.get("note");
    // As that of a resumption, which needs none.
    check_note(Verb::Resume, note).map_err(Failure::not_undone)?;
    if change.action == ChangeAction::Delete {
        let admitted = ask.reader.admits_new(1).await;
        admitted.map_err(|error| Failure::not_undone(sentence(&error.to_string())))?;
    }
    let (name, at) = (change.name.clone(), change.at);
    match apply(&ask.reader, &name, &Act::Undo(Box::new(change)), note).await {
        Ok(_) => {
            let link = list(&ask.context(at), &name);
            Ok((StatusCode::SEE_OTHER, [(header::LOCATION, link)]).into_response())
        }
        Err(error) if error.kind() == ErrorKind::Unavailable => Err(error.into()),
        Err(error) => {
            log(&error);
            Err(Failure::not_undone(sentence(&error.to_string())))
        }
    }
}

fn list(context: &Context, name: &str) -> String {
    context.link("audit", &[("name", name)])
}

/// The change of the address or of the form, if this reader may take it back.
async fn find(shared: &Shared, ask: &Ask, params: &Params) -> Result<Change, Failure> {
    let (name, sequence) = (params.exact("name"), params.get("change"));
    let sequence = sequence.parse().map_err(|_| {
        Failure::bad_address(format!(
            "There is no change {sequence:?}; choose one on the page Audit."
        ))
    })?;
    let change = ask.reader.change(name, sequence).await?;
    let change = change.ok_or_else(|| {
        Failure::not_undone(format!("There is no change {sequence} of {name:?}, or not any more."))
    })?;
    let Some(scope) = scope(change.action) else {
        let text = format!("A {} cannot be taken back.", change.action.word());
        return Err(Failure::not_undone(text));
    };
    allowed(shared, ask, scope)?;
    Ok(change)
}
