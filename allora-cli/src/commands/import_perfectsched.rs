//! `allora import --from perfectsched`: the rows of PerfectSched's table, with their next times.

use crate::{
    failure::{Failure, Outcome, chain},
    session,
};
use allora_core::{StoredSchedule, time::from_millis};
use serde_json::{Map, Value};
use sqlx::{AssertSqlSafe, Connection, MySqlConnection, Row as _, SqliteConnection};
use std::time::Duration;

/// A row of the table: `timeout` is the time of the next run, `next_time` its scheduled time, both in
/// seconds since 1970.
#[derive(Debug)]
struct Row {
    id: String,
    timeout: i64,
    next_time: i64,
    cron: String,
    delay: i64,
    data: Vec<u8>,
    timezone: Option<String>,
}

/// The schedules of a table, each with the reason if it cannot be imported.
///
/// # Errors
/// The database does not answer, or has no such table.
pub(super) fn schedules(
    url: &str,
    table: &str,
) -> Outcome<Vec<(String, Result<StoredSchedule, String>)>> {
    let good = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if table.is_empty() || !table.chars().all(good) {
        let what = format!("--table {table:?} is not a name; use letters, digits and _");
        return Err(Failure::Invalid(what));
    }
    let rows = session::run(rows(url, table))?;
    Ok(rows.into_iter().map(|row| (row.id.clone(), schedule(row))).collect())
}

async fn rows(url: &str, table: &str) -> Outcome<Vec<Row>> {
    let statement = format!(
        "SELECT id, timeout, next_time, cron, delay, data, timezone FROM {table} ORDER BY id"
    );
    let failed = |error: sqlx::Error| {
        let what = chain(&error);
        Failure::failed(format!(
            "PerfectSched's table {table} cannot be read: {what}; name the database as \
             sqlite:FILE or mysql://USER:PASSWORD@HOST/DATABASE, and the table with --table"
        ))
    };
    macro_rules! read {
        ($connection:ty) => {{
            let mut connection = <$connection>::connect(url).await.map_err(failed)?;
            let rows = sqlx::query(AssertSqlSafe(statement)).fetch_all(&mut connection).await;
            let rows = rows.map_err(failed)?.into_iter().map(|row| {
                Ok(Row {
                    id: row.try_get("id")?,
                    timeout: row.try_get("timeout")?,
                    next_time: row.try_get("next_time")?,
                    cron: row.try_get("cron")?,
                    delay: row.try_get("delay")?,
                    data: row.try_get("data")?,
                    timezone: row.try_get("timezone")?,
                })
            });
            rows.collect::<Result<Vec<Row>, sqlx::Error>>().map_err(failed)
        }};
    }
    match url.split(':').next() {
        Some("sqlite") => read!(SqliteConnection),
        Some("mysql") => read!(MySqlConnection),
        _ => Err(Failure::wrong(
            "PerfectSched's database is named as sqlite:FILE or mysql://USER:PASSWORD@HOST/DATABASE",
        )),
    }
}

/// The schedule of a row. Without a type in its data, that is the part of the name before the first
/// dot, as PerfectSched has it.
fn schedule(row: Row) -> Result<StoredSchedule, String> {
    let Row { id, timeout, next_time, cron, delay, data, timezone } = row;
    let mut data: Map<String, Value> = match data.is_empty() {
        true => Map::new(),
        false => serde_json::from_slice(&data).map_err(|error| format!("its data: {error}"))?,
    };
    let kind = match data.remove("type") {
        Some(Value::String(kind)) if !kind.is_empty() => kind,
        _ => id.split('.').next().unwrap_or_default().to_owned(),
    };
    let time = |seconds: i64| {
        let at = seconds.checked_mul(1_000).and_then(from_millis);
        at.ok_or_else(|| format!("the time {seconds} is outside the years 1970 to 9999"))
    };
    let delay = u64::try_from(delay).map_err(|_| format!("its delay is {delay} s, below zero"))?;
    let delay = Duration::from_secs(delay);
    let (next, due) = (time(next_time)?, time(timeout)?);
    let mut stored = StoredSchedule::new(id, kind, cron)
        .in_zone(timezone.unwrap_or_else(|| "UTC".into()))
        .delay(delay)
        .starting(next)
        .data(&Value::Object(data));
    // A run that waits for another attempt, or is active.
    if due > next + delay {
        stored = stored.first_run(due);
    }
    stored.definition().map_err(|error| error.to_string())?;
    Ok(stored)
}
