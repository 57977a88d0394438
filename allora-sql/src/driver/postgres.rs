//! PostgreSQL.

use super::{Conn, Driver, Lent, Row, Statement, Tx, Value, connection};
use allora_core::Result;
use async_trait::async_trait;
use futures::stream::{self, BoxStream, StreamExt};
use sqlx::{
    PgConnection, PgPool, Postgres,
    postgres::{PgArguments, PgListener},
    query::Query,
};

pub(crate) struct PostgresDriver {
    pub(crate) pool: PgPool,
}

/// What every session of ours is told. A default of SERIALIZABLE would turn every lost race into an
/// error; `synchronous_commit = off` would lose takes that were answered.
pub(crate) const SESSION: &str = "\
    SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE; \
    SET lock_timeout = '2s'; SET statement_timeout = '10s'; \
    SET idle_in_transaction_session_timeout = '10s'; SET TIME ZONE 'UTC'; \
    SELECT set_config('synchronous_commit', CASE current_setting('synchronous_commit') \
    WHEN 'off' THEN 'on' WHEN 'local' THEN 'on' ELSE current_setting('synchronous_commit') END, \
    false)";

connection!(Postgres, PgConnection, bind);

fn bind(query: Query<'_, Postgres, PgArguments>, value: Value) -> Query<'_, Postgres, PgArguments> {
    match value {
        Value::Int(number) => query.bind(number),
        Value::Bytes(bytes) => query.bind(bytes),
        Value::Ints(numbers) => query.bind(numbers),
        Value::Blobs(blobs) => query.bind(blobs),
    }
}

#[async_trait]
impl Driver for PostgresDriver {
    async fn begin(&self) -> sqlx::Result<Box<dyn Tx>> {
        // A pool that was given to us may have other defaults.
        let begin = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE";
        Ok(Box::new(self.pool.begin_with(begin).await?))
    }

    async fn rows(&self, statement: Statement) -> sqlx::Result<Vec<Row>> {
        Conn::rows(&mut *self.pool.acquire().await?, statement).await
    }

    async fn writer(&self) -> sqlx::Result<Box<dyn Lent>> {
        Ok(Box::new(self.pool.acquire().await?))
    }

    async fn inspect(&self) -> Result {
        let ask = async {
            let mut conn = self.pool.acquire().await?;
            let in_recovery: bool =
                sqlx::query_scalar("SELECT pg_is_in_recovery()").fetch_one(&mut *conn).await?;
            let commit: String =
                sqlx::query_scalar("SHOW synchronous_commit").fetch_one(&mut *conn).await?;
            sqlx::Result::Ok((in_recovery, commit))
        };
        let (in_recovery, commit) = ask.await.map_err(super::silent)?;
        if in_recovery {
            return Err(allora_core::Error::invalid(
                "this PostgreSQL server is a standby; connect to the primary",
            ));
        }
        if commit == "off" {
            return Err(allora_core::Error::invalid(
                "this pool commits with synchronous_commit off; a take would not be durable: set \
                 it on for the pool's connections",
            ));
        }
        Ok(())
    }

    fn is_conflict(&self, error: &sqlx::Error) -> bool {
        // Serialisation failure, deadlock, lock time-out, and a name that another node was faster
        // to register.
        let code = error.as_database_error().and_then(|error| error.code());
        code.is_some_and(|code| matches!(&*code, "40001" | "40P01" | "55P03" | "23505"))
    }

    fn has_notifications(&self) -> bool {
        true
    }

    async fn listen(&self, channel: &str) -> sqlx::Result<BoxStream<'static, Option<String>>> {
        let mut listener = PgListener::connect_with(&self.pool).await?;
        listener.listen(channel).await?;
        // Ends with the connection that cannot be made again; the subscriber subscribes again.
        let told = stream::unfold(listener, |mut listener| async {
            let told = listener.try_recv().await.ok()?;
            Some((told.map(|told| told.payload().to_owned()), listener))
        });
        Ok(told.boxed())
    }

    async fn close(&self) {
        self.pool.close().await;
    }
}
