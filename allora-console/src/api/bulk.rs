//! One change of all jobs of a filter; with `dry_run`, only their names.

use super::{
    call::{Answer, Call},
    operate::{gap, instant, noted},
    problem::{Problem, Type},
};
use crate::{
    access::Scope,
    actions::{log_action, signed},
    pages::asked::Asked,
    words::Word,
};
use allora_core::{
    check_name, is_internal,
    stored::{Bulk, BulkReport},
};
use serde::Deserialize;
use serde_json::{Value, json};

/// The most names, and the most errors, of an answer.
const SHOWN: usize = 1_000;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Body {
    #[serde(default)]
    filter: Filter,
    change: String,
    #[serde(default)]
    note: String,
    until: Option<String>,
    gap: Option<String>,
    id: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Filter {
    prefix: String,
    kind: String,
    tag: String,
    owner: String,
    state: Option<String>,
}

const CHANGES: [&str; 6] = ["pause", "resume", "trigger", "rerun", "dismiss", "delete"];

pub(crate) async fn change(call: Call) -> Answer {
    let Call { reader, query, .. } = &call;
    let Body { filter, change, note, until, gap: gap_word, id } = call.object()?;
    noted(&note)?;
    let Some(word) = CHANGES.into_iter().find(|word| *word == change) else {
        let detail = format!("{change:?} is no change of many jobs; use {}", CHANGES.join(", "));
        return Err(Problem::rejected("change", detail));
    };
    call.needs(if word == "delete" { Scope::Edit } else { Scope::Run })?;
    let only = |field: &str, is_given: bool, of: &str| match is_given && word != of {
        true => Err(Problem::rejected(field, format!("{word:?} has no {field}"))),
        false => Ok(()),
    };
    only("until", until.is_some(), "pause")?;
    only("gap", gap_word.is_some(), "resume")?;
    only("id", id.is_some(), "trigger")?;
    let signed = signed(reader.access().who(), &note);
    let id = id.unwrap_or_default();
    let change = match word {
        "pause" => {
            let until = until.map(|until| instant("until", &until)).transpose()?;
            Bulk::Pause { note: &signed, until }
        }
        "resume" => Bulk::Resume(gap(gap_word.as_deref())?),
        "trigger" => {
            // Without one of the caller's, a repetition would trigger all jobs again.
            check_name(&id).map_err(|error| Problem::rejected("id", error.to_string()))?;
            Bulk::Trigger { id: &id }
        }
        "rerun" => Bulk::Rerun,
        "dismiss" => Bulk::Dismiss,
        _ => Bulk::Delete,
    };
    let asked = asked(filter)?;
    let Some(filter) = asked.filter_of_many() else {
        let detail = "many jobs are selected by running, paused, ended, dead, failing or waiting";
        return Err(Problem::rejected("filter/state", detail));
    };
    if query.is_set("dry_run") {
        let names = reader.bulk_preview(filter, change).await?;
        return call.json(report(&names, &BulkReport::default()));
    }
    let done = reader.bulk(&note, filter, change).await;
    let which = format!("those of {asked:?}");
    log_action(word, &which, (reader, &note), done.as_ref().err());
    let done = done?;
    call.json(report(&done.changed, &done))
}

fn asked(filter: Filter) -> Result<Asked, Problem> {
    let Filter { prefix, kind, tag, owner, state } = filter;
    if is_internal(&prefix) {
        let detail = "this prefix is that of the scheduler's own records";
        return Err(Problem::rejected("filter/prefix", detail));
    }
    let state = state.map(|state| {
        Word::from_text(&state).ok_or_else(|| {
            let detail = format!("there is no state {state:?}");
            Problem::rejected("filter/state", detail)
        })
    });
    let state = state.transpose()?;
    Ok(Asked { prefix, kind, tag, owner, state, ..Asked::default() })
}

fn report(names: &[String], report: &BulkReport) -> Value {
    let failed = report.failed.iter().take(SHOWN).map(|(name, error)| {
        let problem = Problem::from(error.clone());
        let of = if problem.of() == Type::Rejected { Type::Conflict } else { problem.of() };
        json!({ "name": name, "type": of.urn(), "detail": error.to_string() })
    });
    json!({
        "count": names.len(),
        "names": names.iter().take(SHOWN).collect::<Vec<_>>(),
        "triggered_before": report.triggered_before.len(),
        "failed": report.failed.len(),
        "failures": failed.collect::<Vec<_>>(),
    })
}
