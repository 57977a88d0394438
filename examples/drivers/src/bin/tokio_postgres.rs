//! Transactions of tokio-postgres that create a schedule and complete a run:
//! `DATABASE_URL=postgres://… cargo run --bin tokio_postgres`, in the folder `examples/drivers`.

use allora::{
    BoxError, Run, Scheduler, StoredSchedule,
    sql::{Param, RawStatement, Sql},
};
use allora_example_drivers::{PREFIX, check, database, newcomer, run_until_invoiced};
use std::{iter::once, sync::Arc};
use tokio::sync::Mutex;
use tokio_postgres::{Client, NoTls, Transaction, types::ToSql};

/// Runs a statement of allora in a transaction. Returns `false` if it is out of date, and has done
/// nothing.
async fn apply(
    tx: &Transaction<'_>,
    statement: &RawStatement,
) -> Result<bool, tokio_postgres::Error> {
    for (i, statement) in once(statement).chain(&statement.then).enumerate() {
        let params = statement.params.iter().map(|param| -> &(dyn ToSql + Sync) {
            match param {
                Param::BigInt(value) => value,
                Param::Bytea(value) => value,
                Param::BigIntArray(values) => values,
                Param::ByteaArray(values) => values,
            }
        });
        let params: Vec<_> = params.collect();
        if tx.query(&statement.sql, &params).await?.is_empty() && i == 0 {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The customer and the schedule of the invoice, or neither.
async fn sign_up(
    client: &mut Client,
    store: &Sql,
    customer: &str,
    invoice: &StoredSchedule,
) -> Result<(), BoxError> {
    let tx = client.transaction().await?;
    let insert = "INSERT INTO allora_example_customer (name) VALUES ($1)";
    tx.execute(insert, &[&customer]).await?;
    while !apply(&tx, &store.creation(invoice).await?).await? {}
    tx.commit().await?;
    Ok(())
}

/// The invoice and the completion of its run, or neither.
async fn invoice(client: &mut Client, store: &Sql, run: &Run) -> Result<(), BoxError> {
    let tx = client.transaction().await?;
    let insert = "INSERT INTO allora_example_invoice (key) VALUES ($1)";
    tx.execute(insert, &[&run.occurrence_key()]).await?;
    // Last: until the commit, other writers of this schedule's record wait.
    while !apply(&tx, &store.completion(run).await?).await? {}
    tx.commit().await?;
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let url = database().await?;
    let store = Sql::builder().prefix(PREFIX).connect(&url).await?;
    let (mut client, connection) = tokio_postgres::connect(&url, NoTls).await?;
    tokio::spawn(connection);
    let (customer, schedule) = newcomer("tokio-postgres", &store).await?;
    sign_up(&mut client, &store, &customer, &schedule).await?;

    // A service takes a client from a pool, such as deadpool-postgres.
    let (client, in_run) = (Arc::new(Mutex::new(client)), store.clone());
    let builder = Scheduler::builder(store.clone()).kind("invoice", async move |run: Run| {
        invoice(&mut *client.lock().await, &in_run, &run).await
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
