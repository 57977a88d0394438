//! The operations of workers: they ask for runs, keep them, and report their ends.

use super::{
    call::{Answer, Call},
    operation::LONGEST_WAIT,
    problem::{Problem, Type},
};
use crate::{
    access::Access,
    gateway::{Asked, Gateway, Key, Node, Pool, Verdict},
    times::machine,
};
use allora_core::{
    ErrorKind, LabelSelector, Pattern, Run, check_name, record::MAX_VALUE, stored::RunTicket,
};
use axum::{http::StatusCode, response::IntoResponse};
use futures::future::{Either, select};
use serde::Deserialize;
use serde_json::{Value, json};
use std::{pin::pin, time::Duration};

/// The most runs of a request, the most kinds, and the most tokens of a heartbeat.
const MOST_RUNS: usize = 1_000;
const MOST_KINDS: usize = 100;

/// The longest name of a worker, id of a request, and progress, in bytes.
const LONGEST_NAME: usize = 200;

/// A request that has its first run waits this long for more, because claims come in batches.
const FURTHER: Duration = Duration::from_millis(2);

/// The longest wait for the store to record an end.
const RECORDED: Duration = Duration::from_secs(10);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Claims {
    worker: String,
    kinds: Vec<String>,
    labels: Option<Vec<String>>,
    claim_id: String,
    #[serde(default = "one")]
    max: usize,
    #[serde(default)]
    wait_ms: u64,
}

fn one() -> usize {
    1
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Heartbeat {
    tokens: Vec<String>,
    progress: Option<String>,
    checkpoint: Option<Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Complete {
    token: String,
    output: Option<String>,
    value: Option<Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Fail {
    token: String,
    error: String,
    retry_after_ms: Option<u64>,
    #[serde(default, rename = "final")]
    is_final: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Release {
    token: String,
    #[serde(default)]
    after_ms: u64,
}

/// The gateway of this process, with its node.
fn gateway(call: &Call) -> Result<(&Gateway, &Node), Problem> {
    let gateway = call.shared.gateway.as_ref();
    gateway.and_then(|gateway| Some((gateway, gateway.pool.node()?))).ok_or_else(|| {
        let remedy =
            "its operator serves workers with `allora run --workers`, or with Console::gateway";
        Problem::new(Type::Unsupported, "this process has no work for workers").remedy(remedy)
    })
}

/// Waits for runs.
pub(crate) async fn claim(call: Call) -> Answer {
    let (gateway, node) = gateway(&call)?;
    let asked = call.object::<Claims>()?;
    let wait = Duration::from_millis(asked.wait_ms);
    if wait > LONGEST_WAIT {
        let detail = format!("wait_ms is {}; use 0 to {}", asked.wait_ms, LONGEST_WAIT.as_millis());
        return Err(Problem::rejected("wait_ms", detail));
    }
    let parked = Pool::park(&gateway.pool, node, checked(&call, asked)?);
    let mut parked = parked.map_err(|error| Problem::from(error).field("kinds"))?;
    let runtime = &node.runtime;
    let end = runtime.now() + wait;
    let first = parked.first.take();
    let is_woken = match first {
        Some(first) => matches!(select(first, runtime.sleep_until(end)).await, Either::Left(_)),
        None => false,
    };
    if is_woken {
        runtime.sleep_until(runtime.now() + FURTHER).await;
    }
    let runs = parked.end(runtime.now());
    if runs.is_empty() {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    let runs: Vec<Value> = runs.iter().map(|run| given(gateway, run)).collect();
    call.whole_json(&json!({ "runs": runs }))
}

/// The request, if the caller may make it.
fn checked(call: &Call, asked: Claims) -> Result<Asked, Problem> {
    let Claims { worker, kinds, labels, claim_id, max, .. } = asked;
    for (field, text) in [("worker", &worker), ("claim_id", &claim_id)] {
        if text.is_empty() || text.len() > LONGEST_NAME {
            let detail = format!("{field} has {} bytes; use 1 to {LONGEST_NAME}", text.len());
            return Err(Problem::rejected(field, detail));
        }
    }
    if max == 0 || max > MOST_RUNS {
        let detail = format!("max is {max}; use 1 to {MOST_RUNS}");
        return Err(Problem::rejected("max", detail));
    }
    if kinds.is_empty() || kinds.len() > MOST_KINDS {
        let detail = format!("there are {} kinds; use 1 to {MOST_KINDS}", kinds.len());
        return Err(Problem::rejected("kinds", detail));
    }
    let access = call.reader.access().clone();
    if access.has_prefixes() {
        // A run of another prefix would be claimed and given back, again and again.
        let detail = "a worker is limited by kinds, and your access is limited by prefixes";
        let remedy = "ask the operator of this API for a token with kinds instead of prefixes";
        return Err(Problem::new(Type::NoAccess, detail).remedy(remedy));
    }
    let labels = labels.map(|labels| read_labels(&labels, &kinds, &access)).transpose()?;
    let mut patterns = Vec::with_capacity(kinds.len());
    for kind in kinds {
        check_name(kind.trim_end_matches('*'))
            .map_err(|error| Problem::from(error).field("kinds"))?;
        if access.has_kinds() && !access.may_see("", &kind) {
            let detail = format!("your access is limited to other kinds than {kind:?}");
            return Err(Problem::new(Type::NoAccess, detail).field("kinds"));
        }
        patterns.push(match &labels {
            None => Pattern::from_text(&kind),
            Some(labels) => Pattern::labelled(kind, labels.required()),
        });
    }
    Ok(Asked { access, worker, kinds: patterns, max, claim_id })
}

/// The labels of a worker, which asks for exact kinds then, and gets them with every selector that includes it.
fn read_labels(
    labels: &[String],
    kinds: &[String],
    access: &Access,
) -> Result<LabelSelector, Problem> {
    let has: LabelSelector =
        labels.join(",").parse().map_err(|error| Problem::from(error).field("labels"))?;
    if let Some(label) = has.excluded().next() {
        let detail = format!("a worker has labels; {label:?} is one that it has not");
        return Err(Problem::rejected("labels", detail));
    }
    if let Some(kind) = kinds.iter().find(|kind| kind.ends_with('*')) {
        let detail =
            format!("{kind:?} is no exact kind; write the kinds out, or leave the labels out");
        return Err(Problem::rejected("labels", detail));
    }
    if access.has_kinds() {
        // A run whose selector the access does not name would be claimed and given back, again and again.
        let detail = "your access is limited to kinds, and labels ask for kinds with any selector";
        let remedy =
            "leave the labels out, and ask for each kind with its selector, as `report@gpu`";
        return Err(Problem::new(Type::NoAccess, detail).field("labels").remedy(remedy));
    }
    Ok(has)
}

/// A run, for its worker.
fn given(gateway: &Gateway, run: &Run) -> Value {
    json!({
        "token": gateway.tickets.token(&run.ticket()),
        "name": run.name(),
        "kind": run.kind(),
        "scheduled_at": machine(run.scheduled_at()),
        "attempt": run.attempt(),
        "fence": run.fence(),
        "mutex_fence": run.mutex_fence(),
        "occurrence_key": run.occurrence_key(),
        "trigger": run.trigger(),
        "traceparent": run.traceparent(),
        "lease_ms": millis(run.lease()),
        "is_at_least_once": run.is_at_least_once(),
        "data": run.data_as_json(),
        "checkpoint": run.checkpoint_as_json(),
    })
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Keeps runs, and says which of them are to end.
pub(crate) async fn heartbeat(call: Call) -> Answer {
    let (gateway, node) = gateway(&call)?;
    let Heartbeat { tokens, progress, checkpoint } = call.object()?;
    if tokens.is_empty() || tokens.len() > MOST_RUNS {
        let detail = format!("there are {} tokens; use 1 to {MOST_RUNS}", tokens.len());
        return Err(Problem::rejected("tokens", detail));
    }
    if let Some(long) = progress.as_ref().filter(|progress| progress.len() > LONGEST_NAME) {
        let detail = format!("progress has {} bytes; use at most {LONGEST_NAME}", long.len());
        return Err(Problem::rejected("progress", detail));
    }
    if checkpoint.is_some() && tokens.len() != 1 {
        let detail = "a checkpoint is that of one run; send a heartbeat with its token alone";
        return Err(Problem::rejected("checkpoint", detail.to_owned()));
    }
    let mut runs = Vec::with_capacity(tokens.len());
    for token in tokens {
        let Some(ticket) = gateway.tickets.ticket(&token) else {
            runs.push(json!({ "token": token, "state": "lost" }));
            continue;
        };
        let run = gateway.pool.heard(&key(&ticket), node.runtime.now());
        if let (Some(run), Some(progress)) = (&run, &progress) {
            run.set_progress(progress.as_str());
        }
        if let (Some(run), Some(checkpoint)) = (&run, &checkpoint) {
            save(node, run, checkpoint).await?;
        }
        let (state, lease) = match &run {
            Some(run) if run.is_cancelled() => ("cancel", Some(millis(run.lease()))),
            Some(run) => ("ok", Some(millis(run.lease()))),
            None if is_elsewhere(&call, &ticket).await => ("elsewhere", None),
            None => ("lost", None),
        };
        let mut shown = json!({ "token": token, "state": state, "lease_ms": lease });
        if state == "ok" && run.is_some_and(|run| run.is_stopping()) {
            shown["stopping"] = json!(true);
        }
        runs.push(shown);
    }
    call.whole_json(&json!({ "runs": runs }))
}

/// Saves a checkpoint of a run, and waits until the store has it.
async fn save(node: &Node, run: &Run, checkpoint: &Value) -> Result<(), Problem> {
    let deadline = node.runtime.sleep_until(node.runtime.now() + RECORDED);
    match select(pin!(run.checkpoint(checkpoint.to_string())), deadline).await {
        Either::Left((Ok(()), _)) => Ok(()),
        Either::Left((Err(error), _)) if error.kind() == ErrorKind::LeaseLost => Err(superseded()),
        Either::Left((Err(error), _)) => Err(Problem::from(error).field("checkpoint")),
        Either::Right(_) => {
            let detail = "the store has not saved the checkpoint within 10 s; it may do so yet";
            Err(Problem::new(Type::Unavailable, detail).remedy("send it again"))
        }
    }
}

/// `false` if the run is over: no lease has its fence. While that is not known, it may be another gateway's.
async fn is_elsewhere(call: &Call, ticket: &RunTicket) -> bool {
    let state = call.shared.schedules().get(ticket.name()).await;
    match state {
        Ok(state) => state.leases.iter().any(|lease| lease.fence == ticket.fence()),
        Err(error) => error.kind() != ErrorKind::NotFound,
    }
}

fn key(ticket: &RunTicket) -> Key {
    (ticket.name().to_owned(), ticket.fence())
}

/// Completes a run, also one of another gateway.
pub(crate) async fn complete(call: Call) -> Answer {
    let (gateway, _) = gateway(&call)?;
    let Complete { token, output, value } = call.object()?;
    let value = value.map(|value| value.to_string());
    if let Some(long) = value.as_ref().filter(|value| value.len() > MAX_VALUE) {
        let detail = format!("value has {} bytes; use at most {MAX_VALUE}", long.len());
        return Err(Problem::rejected("value", detail));
    }
    let ticket = gateway.tickets.ticket(&token).ok_or_else(superseded)?;
    let verdict = Verdict::Complete { output: output.clone(), value: value.clone() };
    if let Some(outcome) = end(&call, &ticket, verdict).await? {
        return call.json(json!({ "outcome": outcome }));
    }
    let schedules = call.shared.schedules();
    match schedules.complete(&ticket, output.as_deref(), value.as_deref()).await {
        Ok(()) => call.json(json!({ "outcome": "succeeded" })),
        Err(error) if error.kind() == ErrorKind::LeaseLost => Err(superseded()),
        Err(error) => Err(error.into()),
    }
}

pub(crate) async fn fail(call: Call) -> Answer {
    let Fail { token, error, retry_after_ms, is_final } = call.object()?;
    if is_final && retry_after_ms.is_some() {
        let detail = "a failure that is final is not retried; leave out one of the two";
        return Err(Problem::rejected("retry_after_ms", detail));
    }
    let retry_after = retry_after_ms.map(Duration::from_millis);
    ended(&call, &token, Verdict::Fail { error, retry_after, is_final }).await
}

pub(crate) async fn release(call: Call) -> Answer {
    let Release { token, after_ms } = call.object()?;
    ended(&call, &token, Verdict::Release(Duration::from_millis(after_ms))).await
}

/// Ends a run of this gateway.
async fn ended(call: &Call, token: &str, verdict: Verdict) -> Answer {
    let (gateway, node) = gateway(call)?;
    let ticket = gateway.tickets.ticket(token).ok_or_else(superseded)?;
    if matches!(verdict, Verdict::Release(_))
        && let Some(run) = gateway.pool.heard(&key(&ticket), node.runtime.now())
        && !run.is_at_least_once()
    {
        let detail = format!("{:?} runs at most once and cannot be released", ticket.name());
        let remedy = "report its end with /v1/claim/fail";
        return Err(Problem::new(Type::Conflict, detail).remedy(remedy));
    }
    match end(call, &ticket, verdict).await? {
        Some(outcome) => call.json(json!({ "outcome": outcome })),
        None if is_elsewhere(call, &ticket).await => {
            let detail = "another gateway has this run, which goes on there until its lease ends";
            let remedy =
                "report to the gateway that gave the run; without it, the run is run again";
            Err(Problem::new(Type::Conflict, detail).remedy(remedy))
        }
        None => Err(superseded()),
    }
}

/// Ends a run of this gateway, and waits until the store has its outcome; `None` if the gateway does not have the run.
async fn end(
    call: &Call,
    ticket: &RunTicket,
    verdict: Verdict,
) -> Result<Option<&'static str>, Problem> {
    let (gateway, node) = gateway(call)?;
    let runtime = &node.runtime;
    let Some(given) = gateway.pool.end(&key(ticket), verdict, runtime.now()) else {
        return Ok(None);
    };
    let deadline = runtime.sleep_until(runtime.now() + RECORDED);
    match select(pin!(given.run.recorded()), deadline).await {
        Either::Left((Some(outcome), _)) => Ok(Some(outcome.word())),
        Either::Left((None, _)) => Err(superseded()),
        Either::Right(_) => {
            let detail = "the store has not recorded the end within 10 s; it may do so yet";
            Err(Problem::new(Type::Unavailable, detail).remedy("send it again"))
        }
    }
}

/// The run is over, or it belongs to another attempt.
fn superseded() -> Problem {
    let detail = "this run is over, or another attempt has taken its place: drop the work";
    Problem::new(Type::Superseded, detail)
}
