//! The service itself: its limits, its numbers, its nodes, its concurrency keys, and hints of changes.

use super::{
    call::{Answer, Call},
    problem::{Problem, Type},
    shown, token,
};
use crate::{access::Scope, overview::Overview, words::Word};
use allora_core::{
    Condition, KeyHolder, Time,
    backend::{Count, JobState},
};
use serde_json::{Map, Value, json};

pub(crate) async fn about(call: Call) -> Answer {
    let Call { reader, shared, .. } = &call;
    let access = reader.access();
    let scopes = Scope::ALL.into_iter().filter(|scope| access.may(*scope)).map(Scope::word);
    call.json(json!({
        "version": env!("CARGO_PKG_VERSION"),
        "now": reader.store_now().await?,
        "who": access.who(),
        "scopes": scopes.collect::<Vec<_>>(),
        "prefixes": access.limits().0,
        "kinds": access.limits().1,
        "max_jobs": access.max_jobs(),
        "shortest_period_ms": access.shortest_period().map(|period| period.as_millis()),
        "allows_changes": shared.allows_actions,
        "has_node": shared.handle.is_some(),
        "has_successes": !reader.lacks_successes(),
    }))
}

pub(crate) async fn summary(call: Call) -> Answer {
    let Call { reader, shared, .. } = &call;
    let now = reader.store_now().await?;
    let overview = Overview::read(reader, shared.handle.as_ref(), now).await?;
    let count = |count: Count| json!({ "number": count.number, "is_exact": count.is_exact });
    let states: Map<String, Value> = Word::ALL
        .into_iter()
        .map(|word| (word.text().to_owned(), json!(overview.count(word).map(count))))
        .collect();
    let next = overview.next.as_ref();
    let unhandled = |condition: &Condition| {
        json!({
            "code": condition.code(),
            "text": condition.to_string(),
            "remedy": condition.remedy(),
        })
    };
    call.json(json!({
        "now": now,
        "jobs": count(overview.all()),
        "states": states,
        "next": next.map(|(name, due_at)| json!({ "name": name, "due_at": due_at })),
        "nodes": {
            "live": overview.nodes.iter().filter(|node| node.is_live).count(),
            "gone": overview.nodes.iter().filter(|node| node.is_dead()).count(),
        },
        "unhandled": overview.unhandled.iter().map(unhandled).collect::<Vec<_>>(),
        "conditions": overview.conditions,
    }))
}

pub(crate) async fn nodes(call: Call) -> Answer {
    let is_limited = call.reader.access().is_limited();
    let mut items = json!(call.reader.nodes().await?);
    for node in items.as_array_mut().into_iter().flatten().filter(|_| is_limited) {
        // These count and name jobs of others.
        for field in ["concurrency", "running", "jobs", "jobs_hash", "orphans", "kept_prefixes"] {
            node.as_object_mut().map(|node| node.remove(field));
        }
    }
    call.json(shown::page(items, None))
}

pub(crate) async fn health(call: Call) -> Answer {
    let health = call.reader.health(call.shared.handle.as_ref());
    let health = health.ok_or_else(|| {
        let detail = "the process that answers has no node, or your access has limits";
        Problem::new(Type::NotFound, detail).remedy("/v1/nodes has all nodes")
    })?;
    call.json(health)
}

pub(crate) async fn keys(call: Call) -> Answer {
    let Call { query, reader, .. } = &call;
    let after = query.some("page").and_then(token::read);
    let limit = query.count("limit");
    let (records, next) = reader.keys(after.as_deref(), limit).await?;
    let now = reader.store_now().await?;
    let items: Vec<Value> = records.iter().map(|(key, record)| of_key(key, record, now)).collect();
    call.json(shown::page(items, next.as_deref().map(token::of)))
}

pub(crate) async fn key(call: Call) -> Answer {
    let key = call.query.text("key");
    let record = call.reader.key(key).await?;
    call.json(of_key(key, &record, call.reader.store_now().await?))
}

fn of_key(key: &str, record: &JobState, now: Time) -> Value {
    let holders = record.leases.iter().filter(|lease| lease.until > now).map(KeyHolder::of);
    let holders: Vec<KeyHolder> = holders.collect();
    json!({ "key": key, "holders": holders, "waiters": record.waiters })
}

pub(crate) async fn events(call: Call) -> Answer {
    call.shared.events.answer(call.shared.handle.as_ref(), &call.headers).ok_or_else(|| {
        let detail = "as many streams are open as may be";
        Problem::new(Type::Busy, detail).remedy("ask for what you need every few seconds instead")
    })
}
