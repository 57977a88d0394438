//! Reading of jobs: the list, one of them, its data and its reasons.

use super::{
    call::{Answer, Call},
    problem::Problem,
    shown, token,
};
use crate::{
    pages::{asked::Asked, jobs},
    words::Word,
};
use axum::{http::header, response::IntoResponse};
use serde_json::Value;
use std::time::Duration;

/// The waits between two looks at a job for which a caller waits.
const FIRST_LOOK: Duration = Duration::from_millis(100);
const LAST_LOOK: Duration = Duration::from_secs(2);

pub(crate) async fn list(call: Call) -> Answer {
    let Call { query, reader, .. } = &call;
    let is_by_due = query.text("sort") == "next";
    if is_by_due && query.given("page").is_some() {
        let detail = "the jobs that are due first have no further page; sort by name";
        return Err(Problem::bad_parameter("page", detail));
    }
    let text = |name: &str| query.text(name).to_owned();
    let asked = Asked {
        prefix: text("prefix"),
        kind: text("kind"),
        tag: text("tag"),
        owner: text("owner"),
        state: query.some("state").and_then(Word::from_text),
        is_by_due,
        after: query.some("page").and_then(token::read).unwrap_or_default(),
    };
    let now = reader.store_now().await?;
    let found = jobs::find(reader, &asked, query.count("limit"), now).await?;
    let job = |(state, states): &(_, Vec<Word>)| {
        let mut job = shown::job(state, states);
        // They may be large; the job itself has them.
        job.as_object_mut().map(|job| ["data", "checkpoints"].map(|large| job.remove(large)));
        job
    };
    let items: Vec<Value> = found.jobs.iter().map(job).collect();
    call.json(shown::page(items, found.next.as_deref().map(token::of)))
}

/// A job; with `wait`, when it is another than that of `tag`, or the wait is over.
pub(crate) async fn one(call: Call) -> Answer {
    let Call { query, reader, shared, .. } = &call;
    let (name, seen) = (query.text("name"), query.text("tag"));
    let runtime = shared.runtime();
    let end = query.period("wait").map(|wait| runtime.now() + wait);
    let mut look = FIRST_LOOK;
    loop {
        let state = reader.get(name).await?;
        let (tag, now) = (shown::tag(&state), runtime.now());
        if let Some(end) = end.filter(|end| tag == seen && now < *end) {
            runtime.sleep_until(end.min(now + look)).await;
            look = (look * 2).min(LAST_LOOK);
            continue;
        }
        let mut job = shown::whole_job(reader, &state, reader.store_now().await?).await?;
        job["tag"] = tag.into();
        return call.json(job);
    }
}

pub(crate) async fn data(call: Call) -> Answer {
    let state = call.reader.get(call.query.text("name")).await?;
    let media = match std::str::from_utf8(&state.data) {
        Err(_) => "application/octet-stream",
        Ok(text) if serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok() => {
            "application/json"
        }
        Ok(_) => "text/plain; charset=utf-8",
    };
    Ok(([(header::CONTENT_TYPE, media)], state.data).into_response())
}

pub(crate) async fn why(call: Call) -> Answer {
    let Call { query, reader, .. } = &call;
    let why = reader.why(query.text("name"), query.time("at")).await?;
    call.json(why)
}
