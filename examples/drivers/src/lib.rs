//! The application around the examples: a customer signs up, and a run writes the customer's invoice.
//!
//! Each example writes the customer with the schedule of the invoice in one transaction, and the
//! invoice with the completion of its run in another, both with its own driver.

use allora::{
    BoxError, SchedulerBuilder, Schedules, StoredSchedule, Time, backend::JobState, sql::Sql,
};
use allora_sql::sqlx::{self, Connection, PgConnection};
use std::{env, time::Duration};

/// The prefix of the tables of these examples.
pub const PREFIX: &str = "allora_example";

/// The tables of the application. Several examples may create them at once.
const TABLES: &str = "SELECT pg_advisory_xact_lock(20261123); \
    CREATE TABLE IF NOT EXISTS allora_example_customer (name TEXT PRIMARY KEY); \
    CREATE TABLE IF NOT EXISTS allora_example_invoice (key TEXT PRIMARY KEY)";

/// The address of the database: `DATABASE_URL`, or that of the tests. Creates the tables of the
/// application.
pub async fn database() -> Result<String, BoxError> {
    let url = env::var("DATABASE_URL").or_else(|_| env::var("ALLORA_TEST_POSTGRES_URL"));
    let url = url.map_err(|_| "set DATABASE_URL to the address of a PostgreSQL database")?;
    sqlx::raw_sql(TABLES).execute(&mut PgConnection::connect(&url).await?).await?;
    Ok(url)
}

/// A customer of this name who has not signed up, and the schedule of the invoice: once, in a second.
pub async fn newcomer(name: &str, store: &Sql) -> Result<(String, StoredSchedule), BoxError> {
    let now: Time = Schedules::new(store.clone())?.store_now().await?;
    let customer = format!("{name} {}", now.timestamp_micros());
    let invoice = StoredSchedule::once(format!("{customer}/invoice"), "invoice", now + SECOND)
        .at_least_once(30 * SECOND);
    Ok((customer, invoice))
}

const SECOND: Duration = Duration::from_secs(1);

/// Runs the scheduler until a run of this schedule has ended, and returns the schedule's state.
pub async fn run_until_invoiced(
    builder: SchedulerBuilder,
    store: &Sql,
    schedule: &str,
) -> Result<JobState, BoxError> {
    let scheduler = builder.build()?;
    let handle = scheduler.handle();
    let runs = tokio::spawn(scheduler.run());
    let schedules = Schedules::new(store.clone())?;
    let mut state = schedules.get(schedule).await?;
    for _ in 0..600 {
        if state.last.is_some() {
            break;
        }
        tokio::time::sleep(SECOND / 20).await;
        state = schedules.get(schedule).await?;
    }
    handle.stop();
    runs.await?;
    Ok(state)
}

/// Checks that the customer and the customer's only invoice are there, and that the run counts once.
pub async fn check(url: &str, customer: &str, state: &JobState) -> Result<(), BoxError> {
    let mut conn = PgConnection::connect(url).await?;
    let count = "SELECT (SELECT count(*) FROM allora_example_customer WHERE name = $1), \
                 (SELECT count(*) FROM allora_example_invoice WHERE key LIKE '%' || $1 || '%')";
    let counts: (i64, i64) = sqlx::query_as(count).bind(customer).fetch_one(&mut conn).await?;
    match (counts, state.counters.succeeded, state.counters.failed) {
        ((1, 1), 1, 0) => Ok(()),
        _ => Err(format!("{customer}: {counts:?} {state:?}").into()),
    }
}
