//! The store on a connection of the application, in a transaction of the application.
//!
//! All that the store does there is done by the same code as on its own connections: a client, the engine
//! and the record's state machine know of no transaction. Only the connection is another one. It is
//! borrowed, while a store is shared, so the statements go through a channel to the call that has the
//! connection, which runs one after the other.

use crate::{
    Sql,
    client::{Client, Ids},
    driver::{Conn, Driver, Lent, Ran, Row, Statement},
    frontier::Frontier,
};
use allora_core::{Error, ErrorKind, Result, Schedules};
use async_trait::async_trait;
use futures::{
    StreamExt,
    channel::{
        mpsc::{UnboundedReceiver, UnboundedSender, unbounded},
        oneshot,
    },
    future::join,
};
use sqlx::SqlStr;
use std::sync::{Arc, atomic::AtomicI64};

impl Sql {
    /// Does `work` with this store on a connection that is in a transaction.
    pub(crate) async fn on_connection<T, F>(
        &self,
        conn: &mut dyn Conn,
        work: impl FnOnce(Sql) -> F,
    ) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        let (sender, requests) = unbounded();
        let Client { dialect, place, migrate, history, .. } = &*self.client;
        let client = Client {
            driver: Box::new(Transaction { sender: sender.clone() }),
            dialect: dialect.clone(),
            place: place.clone(),
            migrate: *migrate,
            history: history.clone(),
            ids: Ids::default(),
            leased: AtomicI64::new(0),
            frontier: Frontier::default(),
        };
        let store =
            Sql { client: Arc::new(client), durability_warning: None, security_warning: None };
        let work = async {
            let done = work(store).await;
            sender.close_channel();
            done
        };
        let (done, is_failed) = join(work, serve(conn, requests)).await;
        let done = done?;
        if is_failed {
            // PostgreSQL would answer COMMIT with ROLLBACK, which drivers take for a success.
            let failed = "a statement in the transaction has failed, and nothing of it can be relied \
                          on; roll back";
            return Err(Error::new(ErrorKind::Unavailable, failed));
        }
        Ok(done)
    }

    /// As [`on_connection`](Self::on_connection), with a client of the settings of `schedules`.
    pub(crate) async fn change_on<T, F>(
        &self,
        conn: &mut dyn Conn,
        schedules: &Schedules,
        work: impl FnOnce(Schedules) -> F,
    ) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        self.on_connection(conn, |store| work(schedules.in_transaction(store))).await
    }
}

/// A statement, and the way of its result.
enum Request {
    Rows(Statement, oneshot::Sender<sqlx::Result<Vec<Row>>>),
    Run(Statement, oneshot::Sender<sqlx::Result<Ran>>),
    Script(SqlStr, oneshot::Sender<sqlx::Result<()>>),
}

/// Runs the statements that come until the channel is closed. Returns `true` if one has failed and may
/// have ended the transaction.
async fn serve(conn: &mut dyn Conn, mut requests: UnboundedReceiver<Request>) -> bool {
    let mut is_failed = false;
    while let Some(request) = requests.next().await {
        is_failed |= match request {
            Request::Rows(statement, reply) => answer(conn.rows(statement).await, reply),
            Request::Run(statement, reply) => answer(conn.run(statement).await, reply),
            Request::Script(sql, reply) => answer(conn.script(sql).await, reply),
        };
    }
    is_failed
}

fn answer<T>(done: sqlx::Result<T>, reply: oneshot::Sender<sqlx::Result<T>>) -> bool {
    let is_failed = done.as_ref().is_err_and(|error| !is_undone(error));
    // The call that has sent it may be over.
    let _ = reply.send(done);
    is_failed
}

/// `true` if the failure has undone its statement alone: on MySQL, another transaction has already created a
/// job with this name.
#[cfg(feature = "mysql")]
fn is_undone(error: &sqlx::Error) -> bool {
    crate::driver::mysql::number(error) == Some(1062)
}

/// `false`: this build has no MySQL.
#[cfg(not(feature = "mysql"))]
fn is_undone(_: &sqlx::Error) -> bool {
    false
}

/// The driver of a store whose connection is the application's.
struct Transaction {
    sender: UnboundedSender<Request>,
}

#[async_trait]
impl Driver for Transaction {
    async fn writer(&self) -> sqlx::Result<Box<dyn Lent>> {
        Ok(Box::new(Way(self.sender.clone())))
    }

    fn begin(&self) -> &'static str {
        "SAVEPOINT allora"
    }

    fn commit(&self) -> &'static str {
        "RELEASE SAVEPOINT allora"
    }

    fn rollback(&self) -> &'static str {
        "ROLLBACK TO SAVEPOINT allora"
    }

    fn is_in_transaction(&self) -> bool {
        true
    }

    async fn inspect(&self) -> Result<Option<Arc<str>>> {
        Ok(None)
    }

    /// Any other failure may have ended the transaction: nothing is sent again.
    fn is_conflict(&self, error: &sqlx::Error) -> bool {
        is_undone(error)
    }

    async fn close(&self) {}
}

/// The way to the connection.
struct Way(UnboundedSender<Request>);

impl Way {
    async fn send<T>(
        &self,
        request: impl FnOnce(oneshot::Sender<sqlx::Result<T>>) -> Request,
    ) -> sqlx::Result<T> {
        let (reply, received) = oneshot::channel();
        let is_sent = self.0.unbounded_send(request(reply)).is_ok();
        let done = if is_sent { received.await.ok() } else { None };
        done.unwrap_or_else(|| {
            let over =
                "the call that has lent the transaction is over; use its client inside it only";
            Err(sqlx::Error::InvalidArgument(over.to_owned()))
        })
    }
}

impl Lent for Way {
    fn conn(&mut self) -> sqlx::Result<&mut dyn Conn> {
        Ok(self)
    }

    fn release(self: Box<Self>) {}
}

#[async_trait]
impl Conn for Way {
    async fn rows(&mut self, statement: Statement) -> sqlx::Result<Vec<Row>> {
        self.send(|reply| Request::Rows(statement, reply)).await
    }

    async fn run(&mut self, statement: Statement) -> sqlx::Result<Ran> {
        self.send(|reply| Request::Run(statement, reply)).await
    }

    async fn script(&mut self, sql: SqlStr) -> sqlx::Result<()> {
        self.send(|reply| Request::Script(sql, reply)).await
    }
}
