//! What happened to every occurrence, the newest entries.

use crate::{
    Sql,
    driver::{Row, Value},
    row::{last, ms, time},
    store::again,
};
use allora_core::{
    Occurrence, Result,
    backend::{History, Past},
};
use async_trait::async_trait;
use chrono::DateTime;

#[async_trait]
impl History for Sql {
    async fn past(
        &self,
        name: Option<&str>,
        before: Option<i64>,
        limit: usize,
    ) -> Result<Vec<Past>> {
        let store = &*self.store;
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let statement = store.dialect.past(name, before, limit);
        let rows = again!(store, "past", store.driver.rows(statement.clone()))?;
        // An entry that cannot be read is left out: it says nothing.
        Ok(rows.into_iter().filter_map(entry).collect())
    }
}

/// The entry's row.
pub(crate) fn columns(past: &Past) -> Vec<Value> {
    vec![
        Value::int(past.fence),
        Value::bytes(&past.name),
        Value::int(ms(past.occurrence.at)),
        Value::Bytes(past.occurrence.trigger.clone().map(String::into_bytes)),
        Value::Int(past.last.map(ms)),
        Value::Int(past.count.map(u64::cast_signed)),
        Value::int(past.attempt.into()),
        Value::bytes(&past.node),
        Value::int(past.at.timestamp_micros()),
        Value::bytes(past.outcome.word()),
        Value::bytes(past.outcome.error()),
    ]
}

fn entry(row: Row) -> Option<Past> {
    let mut cells = row.into_iter();
    let fence = cells.next()?.into_int()?;
    let name = text(cells.next()?)?;
    let at = time(cells.next()?.into_int()?).ok()?;
    let trigger = match cells.next()? {
        Value::Bytes(None) => None,
        trigger => Some(text(trigger)?),
    };
    let last_at = cells.next()?.into_int().map(time).transpose().ok()?;
    let count = cells.next()?.into_int().map(i64::cast_unsigned);
    let attempt = cells.next()?.into_int()?.try_into().ok()?;
    let node = text(cells.next()?)?;
    let noted = DateTime::from_timestamp_micros(cells.next()?.into_int()?)?;
    let outcome = last(cells.next()?.into_bytes(), cells.next()?.into_bytes()).ok()??;
    Some(
        Past::new(name, fence, Occurrence { at, trigger }, noted, outcome)
            .range(last_at, count)
            .by(node, attempt),
    )
}

fn text(value: Value) -> Option<String> {
    String::from_utf8(value.into_bytes()?).ok()
}
