//! Transactions of diesel that create a schedule and complete a run:
//! `DATABASE_URL=postgres://… cargo run --bin diesel`, in the folder `examples/drivers`.
//!
//! The connection is one of diesel-async, which needs no library of the system. `apply` is the same
//! with diesel's own `PgConnection`, without `async` and `await`.

use allora::{
    BoxError, Run, Scheduler, StoredSchedule,
    sql::{Param, RawStatement, Sql},
};
use allora_example_drivers::{PREFIX, check, database, newcomer, run_until_invoiced};
use diesel::{
    ExpressionMethods, QueryResult,
    pg::Pg,
    sql_query,
    sql_types::{Array, BigInt, Binary, Nullable},
};
use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl};
use std::{iter::once, sync::Arc};
use tokio::sync::Mutex;

diesel::table! {
    allora_example_customer (name) { name -> Text, }
}

diesel::table! {
    allora_example_invoice (key) { key -> Text, }
}

/// Runs a statement of allora in a transaction. Returns `false` if it is out of date, and has done
/// nothing.
async fn apply(conn: &mut AsyncPgConnection, statement: &RawStatement) -> QueryResult<bool> {
    for (i, statement) in once(statement).chain(&statement.then).enumerate() {
        let mut query = sql_query(statement.sql.clone()).into_boxed::<Pg>();
        for param in statement.params.clone() {
            query = match param {
                Param::BigInt(value) => query.bind::<Nullable<BigInt>, _>(value),
                Param::Bytea(value) => query.bind::<Nullable<Binary>, _>(value),
                Param::BigIntArray(values) => query.bind::<Array<Nullable<BigInt>>, _>(values),
                Param::ByteaArray(values) => query.bind::<Array<Nullable<Binary>>, _>(values),
            };
        }
        // Of a statement that returns rows, PostgreSQL counts these.
        if query.execute(conn).await? == 0 && i == 0 {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The customer and the schedule of the invoice, or neither.
async fn sign_up(
    conn: &mut AsyncPgConnection,
    store: &Sql,
    customer: &str,
    invoice: &StoredSchedule,
) -> Result<(), BoxError> {
    conn.transaction(async |conn| {
        diesel::insert_into(allora_example_customer::table)
            .values(allora_example_customer::name.eq(customer))
            .execute(conn)
            .await?;
        while !apply(conn, &store.creation(invoice).await?).await? {}
        Ok(())
    })
    .await
}

/// The invoice and the completion of its run, or neither.
async fn invoice(conn: &mut AsyncPgConnection, store: &Sql, run: &Run) -> Result<(), BoxError> {
    conn.transaction(async |conn| {
        diesel::insert_into(allora_example_invoice::table)
            .values(allora_example_invoice::key.eq(run.occurrence_key()))
            .execute(conn)
            .await?;
        // Last: until the commit, other writers of this schedule's record wait.
        while !apply(conn, &store.completion(run).await?).await? {}
        Ok(())
    })
    .await
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let url = database().await?;
    let store = Sql::builder().prefix(PREFIX).connect(&url).await?;
    let mut conn = AsyncPgConnection::establish(&url).await?;
    let (customer, schedule) = newcomer("diesel", &store).await?;
    sign_up(&mut conn, &store, &customer, &schedule).await?;

    // A service takes a connection from a pool, such as `diesel_async::pooled_connection`.
    let (conn, in_run) = (Arc::new(Mutex::new(conn)), store.clone());
    let builder = Scheduler::builder(store.clone()).kind("invoice", async move |run: Run| {
        invoice(&mut *conn.lock().await, &in_run, &run).await
    });
    let state = run_until_invoiced(builder, &store, schedule.name()).await?;
    check(&url, &customer, &state).await?;
    println!("{customer} has one invoice");
    Ok(())
}

#[cfg(test)]
#[test]
fn it_runs_on_a_real_server() {
    if std::env::var_os("ALLORA_TEST_POSTGRES_URL").is_some() {
        main().unwrap();
    }
}
