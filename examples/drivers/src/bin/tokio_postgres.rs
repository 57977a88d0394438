//! Transactions of tokio-postgres that upsert a schedule and complete a run:
//! `DATABASE_URL=postgres://… cargo run --bin tokio_postgres`, in the folder `examples/drivers`.

use allora::{
    BoxError, Run, Scheduler, Schedules, StoredSchedule,
    sql::{Column, Param, RawStatement, RawTransaction, Sql},
};
use allora_example_drivers::{PREFIX, check, database, newcomer, run_until_invoiced};
use async_trait::async_trait;
use std::sync::Arc;
use tokio::sync::Mutex;
use tokio_postgres::{Client, NoTls, Transaction, types::ToSql};

/// A transaction in which allora may run statements.
struct Lent<'a>(&'a Transaction<'a>);

#[async_trait]
impl RawTransaction for Lent<'_> {
    async fn run(&mut self, statement: RawStatement) -> Result<Vec<Vec<Param>>, BoxError> {
        let params = statement.params.iter().map(|param| -> &(dyn ToSql + Sync) {
            match param {
                Param::BigInt(value) => value,
                Param::Bytea(value) => value,
                Param::BigIntArray(values) => values,
                Param::ByteaArray(values) => values,
            }
        });
        let params: Vec<_> = params.collect();
        let mut rows = Vec::new();
        for row in self.0.query(&statement.sql, &params).await? {
            let cell = |(i, column): (usize, &Column)| {
                Ok(match column {
                    Column::BigInt => Param::BigInt(row.try_get(i)?),
                    Column::Bytea => Param::Bytea(row.try_get(i)?),
                })
            };
            let cells = statement.columns.iter().enumerate().map(cell);
            rows.push(cells.collect::<Result<_, tokio_postgres::Error>>()?);
        }
        Ok(rows)
    }
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
    let schedules = Schedules::new(store.clone())?;
    let sign_up = async |schedules: Schedules| schedules.upsert(invoice).await;
    store.change_through(&mut Lent(&tx), &schedules, sign_up).await?;
    tx.commit().await?;
    Ok(())
}

/// The invoice and the completion of its run, or neither.
async fn invoice(client: &mut Client, store: &Sql, run: &Run) -> Result<(), BoxError> {
    let tx = client.transaction().await?;
    let insert = "INSERT INTO allora_example_invoice (key) VALUES ($1)";
    tx.execute(insert, &[&run.occurrence_key()]).await?;
    // Last: until the commit, other writers of this schedule's record wait.
    store.complete_through(&mut Lent(&tx), run).await?;
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
