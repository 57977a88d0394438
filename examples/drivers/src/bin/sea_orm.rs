//! Transactions of SeaORM that create a schedule and complete a run, on a pool that SeaORM and allora
//! share: `DATABASE_URL=postgres://… cargo run --bin sea_orm`, in the folder `examples/drivers`.
//!
//! SeaORM 2 is built on sqlx 0.9, as allora is, so that one pool serves both. A transaction of SeaORM
//! does not give out its connection: what `complete_in` and `add_in` do on a connection of sqlx, the
//! statements of `completion` and `creation` do here.

use allora::{
    BoxError, Run, Scheduler, StoredSchedule,
    sql::{Param, RawStatement, Sql},
};
use allora_example_drivers::{PREFIX, check, database, newcomer, run_until_invoiced};
use allora_sql::{SqlxPool, sqlx::PgPool};
use sea_orm::{
    ActiveModelTrait, ActiveValue::Set, ConnectionTrait, DatabaseConnection, DatabaseTransaction,
    DbBackend, DbErr, SqlxPostgresConnector, Statement, TransactionTrait, Value,
};
use std::iter::once;

mod customer {
    use sea_orm::entity::prelude::*;

    #[derive(Clone, Debug, DeriveEntityModel)]
    #[sea_orm(table_name = "allora_example_customer")]
    pub struct Model {
        #[sea_orm(primary_key, auto_increment = false)]
        pub name: String,
    }

    #[derive(Clone, Copy, Debug, EnumIter, DeriveRelation)]
    pub enum Relation {}

    impl ActiveModelBehavior for ActiveModel {}
}

mod invoices {
    use sea_orm::entity::prelude::*;

    #[derive(Clone, Debug, DeriveEntityModel)]
    #[sea_orm(table_name = "allora_example_invoice")]
    pub struct Model {
        #[sea_orm(primary_key, auto_increment = false)]
        pub key: String,
    }

    #[derive(Clone, Copy, Debug, EnumIter, DeriveRelation)]
    pub enum Relation {}

    impl ActiveModelBehavior for ActiveModel {}
}

/// Runs a statement of allora in a transaction. Returns `false` if it is out of date, and has done
/// nothing.
async fn apply(tx: &DatabaseTransaction, statement: &RawStatement) -> Result<bool, DbErr> {
    for (i, statement) in once(statement).chain(&statement.then).enumerate() {
        let values = statement.params.iter().cloned().map(|param| match param {
            Param::BigInt(value) => Value::BigInt(value),
            Param::Bytea(value) => Value::Bytes(value),
            Param::BigIntArray(values) => array(values, |value| value.to_string()),
            Param::ByteaArray(values) => array(values, |value| hex(&value)),
        });
        let sql = statement.sql.as_str();
        let statement = Statement::from_sql_and_values(DbBackend::Postgres, sql, values);
        if tx.query_all_raw(statement).await?.is_empty() && i == 0 {
            return Ok(false);
        }
    }
    Ok(true)
}

/// An array as text, which the statement casts: an array of SeaORM has no NULL.
fn array<T>(values: Vec<Option<T>>, text: fn(T) -> String) -> Value {
    let element = |value: Option<T>| value.map_or("NULL".to_owned(), text);
    let elements: Vec<String> = values.into_iter().map(element).collect();
    Value::String(Some(format!("{{{}}}", elements.join(","))))
}

/// Bytes as an element of such a text.
fn hex(bytes: &[u8]) -> String {
    let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    format!(r#""\\x{digits}""#)
}

/// The customer and the schedule of the invoice, or neither.
async fn sign_up(
    db: &DatabaseConnection,
    store: &Sql,
    customer: &str,
    invoice: &StoredSchedule,
) -> Result<(), BoxError> {
    let tx = db.begin().await?;
    customer::ActiveModel { name: Set(customer.to_owned()) }.insert(&tx).await?;
    while !apply(&tx, &store.creation(invoice).await?).await? {}
    tx.commit().await?;
    Ok(())
}

/// The invoice and the completion of its run, or neither.
async fn invoice(db: &DatabaseConnection, store: &Sql, run: &Run) -> Result<(), BoxError> {
    let tx = db.begin().await?;
    invoices::ActiveModel { key: Set(run.occurrence_key().to_string()) }.insert(&tx).await?;
    // Last: until the commit, other writers of this schedule's record wait.
    while !apply(&tx, &store.completion(run).await?).await? {}
    tx.commit().await?;
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let url = database().await?;
    let pool = PgPool::connect(&url).await?;
    let store = Sql::builder().prefix(PREFIX).postgres_pool(pool.clone()).await?;
    let db = SqlxPostgresConnector::from_sqlx_postgres_pool(pool);
    let (customer, schedule) = newcomer("SeaORM", &store).await?;
    sign_up(&db, &store, &customer, &schedule).await?;

    let in_run = store.clone();
    let builder = Scheduler::builder(store.clone())
        .kind("invoice", async move |run: Run| invoice(&db, &in_run, &run).await);
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
