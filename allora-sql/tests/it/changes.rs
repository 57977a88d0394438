//! Changes of schedules in a transaction of the application, committed with it or not at all.

use crate::{
    calls::{STORE, get, send},
    stores::{Place, on_every_database, pause, runtime},
};
use allora_core::{
    Backend as _, BoxError, ErrorKind, Result, Schedules, StoredSchedule,
    backend::{
        Action, Claim, HistoryQuery, JobState, Notification, Operation, Outcome, Reply,
        TriggerStatus,
    },
    runtime::Tokio,
    stored::ChangeFilter,
};
use allora_sql::{Column, Param, RawStatement, RawTransaction, Sql, SqlxTransaction as _};
use async_trait::async_trait;
use futures::StreamExt as _;
use sqlx::{
    AssertSqlSafe, Connection, Executor, MySqlConnection, PgConnection, Row as _, SqliteConnection,
};
use std::time::Duration;

on_every_database! {
    what_is_changed_in_a_transaction_is_there_with_its_commit_alone
    a_client_in_a_transaction_is_refused_what_any_client_is
    a_trigger_in_a_transaction_has_its_id_for_good
    nobody_claims_a_job_that_an_open_transaction_has_changed
    a_running_job_is_deleted_with_the_transaction
    two_transactions_create_one_schedule
    the_client_ends_with_the_call_that_made_it
    a_transaction_of_another_driver_changes_schedules
}

const LEASE: Duration = Duration::from_secs(30);

/// A transaction of the application's own.
enum Transaction {
    Postgres(PgConnection),
    MySql(MySqlConnection),
    Sqlite(SqliteConnection),
}

impl Transaction {
    async fn begin(place: &Place) -> Self {
        let url = &*place.url;
        let mut begun = match url.split(':').next() {
            Some("postgres") => Self::Postgres(PgConnection::connect(url).await.unwrap()),
            Some("mysql") => Self::MySql(MySqlConnection::connect(url).await.unwrap()),
            _ => Self::Sqlite(SqliteConnection::connect(url).await.unwrap()),
        };
        match &begun {
            Self::Postgres(_) => begun.run("BEGIN").await,
            Self::MySql(_) => {
                begun.run("SET TRANSACTION ISOLATION LEVEL READ COMMITTED").await;
                begun.run("START TRANSACTION").await;
            }
            Self::Sqlite(_) => begun.run("BEGIN IMMEDIATE").await,
        }
        begun
    }

    async fn run(&mut self, sql: &str) {
        let sql = AssertSqlSafe(sql.to_owned());
        match self {
            Self::Postgres(conn) => conn.execute(sql).await.map(drop),
            Self::MySql(conn) => conn.execute(sql).await.map(drop),
            Self::Sqlite(conn) => conn.execute(sql).await.map(drop),
        }
        .unwrap();
    }

    async fn change<T: Send, W: Future<Output = Result<T>> + Send>(
        &mut self,
        store: &Sql,
        schedules: &Schedules,
        work: impl FnOnce(Schedules) -> W + Send,
    ) -> Result<T> {
        match self {
            Self::Postgres(conn) => store.change_in(conn, schedules, work).await,
            Self::MySql(conn) => store.change_in(conn, schedules, work).await,
            Self::Sqlite(conn) => store.change_in(conn, schedules, work).await,
        }
    }
}

/// Runs a statement as an application does with a driver of its own.
macro_rules! run_raw {
    ($conn:ident, $statement:ident, $query:ident $(, $arrays:pat => $bound:expr)*) => {{
        let mut $query = sqlx::query(AssertSqlSafe($statement.sql));
        for param in $statement.params {
            $query = match param {
                Param::BigInt(value) => $query.bind(value),
                Param::Bytea(value) => $query.bind(value),
                $($arrays => $bound,)*
            };
        }
        let mut rows = Vec::new();
        for row in $query.fetch_all($conn).await? {
            let cell = |(i, column): (usize, &Column)| {
                Ok(match column {
                    Column::BigInt => Param::BigInt(row.try_get(i)?),
                    Column::Bytea => Param::Bytea(row.try_get(i)?),
                })
            };
            rows.push($statement.columns.iter().enumerate().map(cell).collect::<sqlx::Result<_>>()?);
        }
        Ok(rows)
    }};
}

#[async_trait]
impl RawTransaction for Transaction {
    async fn run(
        &mut self,
        statement: RawStatement,
    ) -> std::result::Result<Vec<Vec<Param>>, BoxError> {
        match self {
            Self::Postgres(conn) => run_raw!(conn, statement, query,
                Param::BigIntArray(values) => query.bind(values),
                Param::ByteaArray(values) => query.bind(values)),
            Self::MySql(conn) => run_raw!(conn, statement, query,
                Param::BigIntArray(_) | Param::ByteaArray(_) => panic!("it has no arrays")),
            Self::Sqlite(conn) => run_raw!(conn, statement, query,
                Param::BigIntArray(_) | Param::ByteaArray(_) => panic!("it has no arrays")),
        }
    }
}

fn client(store: &Sql) -> Schedules {
    Schedules::on(store.clone(), Tokio::current().unwrap()).unwrap()
}

fn hourly(name: &str) -> StoredSchedule {
    StoredSchedule::new(name, "report", "0 * * * *").at_least_once(LEASE)
}

async fn claim(store: &Sql, name: &str) -> Result<Reply> {
    let state = get(store, name).await?;
    let claim = Claim::at_least_once(1, state.fence, state.head.unwrap(), LEASE);
    send(store, "n", STORE, Operation::claim(name, claim)).await
}

async fn what_is_changed_in_a_transaction_is_there_with_its_commit_alone(place: Place) {
    let store = place.open().await;
    let schedules = client(&store).by("ann");
    let old = schedules.add(&hourly("old")).await.unwrap();
    let gone = schedules.add(&hourly("gone")).await.unwrap();
    let daily = StoredSchedule::of(&old).unwrap().schedule("0 9 * * *");
    for end in ["ROLLBACK", "COMMIT"] {
        let mut tx = Transaction::begin(&place).await;
        let (new, daily) = (hourly("acme/new").data_bytes(b"to ann".to_vec()), daily.clone());
        let changed = tx.change(&store, &schedules, async |schedules: Schedules| {
            schedules.upsert(&new).await?;
            let seen = schedules.trigger("acme/new", "first").await?;
            schedules.modify(&daily).await?;
            schedules.delete("gone").await?;
            schedules.pause("old", "for now").await?;
            // It reads what it has written.
            assert!(!schedules.exists("gone").await?);
            Ok(seen.status)
        });
        assert_eq!(changed.await.unwrap(), TriggerStatus::New, "{end}");
        tx.run(end).await;
        if end == "ROLLBACK" {
            assert!(!schedules.exists("acme/new").await.unwrap());
            let states = [get(&store, "old").await.unwrap(), get(&store, "gone").await.unwrap()];
            assert_eq!(states, [old.clone(), gone.clone()]);
            let by_ann =
                schedules.changes(ChangeFilter::default(), None, 10).await.unwrap().changes;
            assert_eq!(by_ann.len(), 2, "{by_ann:?}");
        }
    }
    let new = get(&store, "acme/new").await.unwrap();
    let trigger = new.head.as_ref().and_then(|head| head.trigger.as_deref());
    assert_eq!((&*new.data, trigger), (&b"to ann"[..], Some("first")));
    assert!(!schedules.exists("gone").await.unwrap());
    let paused = get(&store, "old").await.unwrap();
    assert_eq!(paused.paused.map(|pause| pause.note), Some("for now".to_owned()));
    assert_ne!(paused.definition, old.definition);
    let by_ann = schedules.changes(ChangeFilter::default(), None, 10).await.unwrap().changes;
    assert_eq!(by_ann.len(), 7);
    // Any node may claim what is due now.
    assert!(matches!(claim(&store, "acme/new").await.unwrap(), Reply::Claimed(_)));
}

async fn a_client_in_a_transaction_is_refused_what_any_client_is(place: Place) {
    let store = place.open().await;
    let schedules = client(&store).shortest_period("acme/", Duration::from_secs(60));
    let seen = schedules.add(&hourly("job")).await.unwrap();
    let late = StoredSchedule::of(&seen).unwrap().schedule("0 9 * * *");
    schedules.pause("job", "").await.unwrap();
    let edited = schedules.modify(&late.clone().schedule("0 7 * * *")).await.unwrap();
    let mut tx = Transaction::begin(&place).await;
    let kinds = tx.change(&store, &schedules, async |schedules: Schedules| {
        let often = StoredSchedule::new("acme/often", "report", "@every 5s");
        let never = StoredSchedule::new("never", "report", "0 9 30 2 *");
        let refused = [
            schedules.add(&hourly("job")).await.map(drop),
            schedules.modify(&late).await.map(drop),
            schedules.upsert(&often).await.map(drop),
            schedules.add(&never).await.map(drop),
            schedules.trigger("nobody", "id").await.map(drop),
            schedules.delete("nobody").await,
        ];
        // None of them keeps the transaction from going on.
        schedules.upsert(&hourly("more")).await?;
        Ok(refused.map(|refused| refused.unwrap_err().kind()))
    });
    use ErrorKind::{AlreadyExists, Invalid, NotFound};
    let expected = [AlreadyExists, AlreadyExists, Invalid, Invalid, NotFound, NotFound];
    assert_eq!(kinds.await.unwrap(), expected);
    tx.run("COMMIT").await;
    assert!(schedules.exists("more").await.unwrap());
    assert_eq!(get(&store, "job").await.unwrap().definition, edited.definition);
}

async fn a_trigger_in_a_transaction_has_its_id_for_good(place: Place) {
    let store = place.open().await;
    let schedules = client(&store);
    schedules.add(&hourly("job")).await.unwrap();
    let mut statuses = Vec::new();
    for end in ["ROLLBACK", "COMMIT", "COMMIT"] {
        let mut tx = Transaction::begin(&place).await;
        let triggered = tx.change(&store, &schedules, async |schedules: Schedules| {
            let first = schedules.trigger_with("job", "order 7", "data").await?.status;
            Ok((first, schedules.trigger_with("job", "order 7", "data").await?.status))
        });
        statuses.push(triggered.await.unwrap());
        tx.run(end).await;
    }
    use TriggerStatus::{New, Pending};
    assert_eq!(statuses, [(New, Pending), (New, Pending), (Pending, Pending)]);
    assert_eq!(schedules.trigger("job", "order 8").await.unwrap().status, New);
}

async fn nobody_claims_a_job_that_an_open_transaction_has_changed(place: Place) {
    let store = place.open().await;
    let schedules = client(&store);
    schedules.add(&hourly("job")).await.unwrap();
    schedules.trigger("job", "before").await.unwrap();
    let mut tx = Transaction::begin(&place).await;
    let deleted =
        tx.change(&store, &schedules, async |schedules: Schedules| schedules.delete("job").await);
    deleted.await.unwrap();
    let (other, answer) = (store.clone(), tokio::sync::oneshot::channel());
    let (done, mut claimed) = answer;
    runtime().spawn(async move { drop(done.send(claim(&other, "job").await)) });
    // It waits for the transaction, or gives up.
    for _ in 0..20 {
        pause(5).await;
        let early = claimed.try_recv().ok();
        assert!(!matches!(early, Some(Ok(Reply::Claimed(_)))), "{early:?}");
    }
    tx.run("COMMIT").await;
    if let Ok(Ok(reply)) = claimed.await {
        assert!(matches!(reply, Reply::Deleted), "{reply:?}");
    }
    assert!(!schedules.exists("job").await.unwrap());
}

async fn a_running_job_is_deleted_with_the_transaction(place: Place) {
    let store = place.open().await;
    let schedules = client(&store);
    schedules.add(&hourly("job")).await.unwrap();
    schedules.trigger("job", "run").await.unwrap();
    let Reply::Claimed(claimed) = claim(&store, "job").await.unwrap() else {
        panic!("not claimed")
    };
    let extend = || Operation::new("job", Action::Extend { fence: claimed.fence, duration: LEASE });
    for (end, is_deleted) in [("ROLLBACK", false), ("COMMIT", true)] {
        let mut tx = Transaction::begin(&place).await;
        let deleted = tx
            .change(&store, &schedules, async |schedules: Schedules| schedules.delete("job").await);
        deleted.await.unwrap();
        tx.run(end).await;
        let reply = send(&store, "n", STORE, extend()).await.unwrap();
        assert_eq!(matches!(reply, Reply::CancelRequested(_)), is_deleted, "{reply:?}");
    }
    let mut ended = schedules.history(HistoryQuery::new(10).name("job")).await.unwrap();
    ended.retain(|entry| entry.fence == claimed.fence);
    assert_eq!(ended.iter().map(|entry| &entry.outcome).collect::<Vec<_>>(), [&Outcome::Cancelled]);
}

async fn two_transactions_create_one_schedule(place: Place) {
    if place.url.starts_with("sqlite") {
        // One transaction writes at a time.
        return;
    }
    let store = place.open().await;
    let schedules = client(&store);
    let mut first = Transaction::begin(&place).await;
    let mut second = Transaction::begin(&place).await;
    let add = async |schedules: Schedules| schedules.add(&hourly("job")).await.map(drop);
    first.change(&store, &schedules, add).await.unwrap();
    // It waits for the first one, and then changes what that has created.
    let upsert = async |schedules: Schedules| schedules.upsert(&hourly("job").owner("b")).await;
    let (state, ()) = futures::join!(second.change(&store, &schedules, upsert), async {
        pause(20).await;
        first.run("COMMIT").await;
    });
    second.run("COMMIT").await;
    let kept: JobState = get(&store, "job").await.unwrap();
    assert_eq!(state.unwrap().generation, kept.generation);
    assert!(kept.definition.contains("owner"), "{}", kept.definition);
}

async fn the_client_ends_with_the_call_that_made_it(place: Place) {
    let store = place.open().await;
    let schedules = client(&store);
    let mut news = match store.notifier() {
        Some(notifier) => Some(notifier.subscribe().await.unwrap()),
        None => None,
    };
    let mut tx = Transaction::begin(&place).await;
    let kept = tx.change(&store, &schedules, async |schedules: Schedules| {
        schedules.add(&hourly("job")).await?;
        schedules.trigger("job", "now").await?;
        Ok(schedules)
    });
    let kept = kept.await.unwrap();
    let late = kept.get("job").await.unwrap_err();
    assert_eq!(late.kind(), ErrorKind::Unavailable);
    tx.run("COMMIT").await;
    // Nodes hear of it with the commit.
    if let Some(news) = &mut news {
        let told = tokio::time::timeout(LEASE, news.next()).await.unwrap().unwrap();
        assert!(matches!(told, Notification::DueAt(_) | Notification::Job(_)), "{told:?}");
    }
}

async fn a_transaction_of_another_driver_changes_schedules(place: Place) {
    let store = place.open().await;
    let schedules = client(&store).by("ann");
    let old = schedules.add(&hourly("old")).await.unwrap();
    let daily = StoredSchedule::of(&old).unwrap().schedule("0 9 * * *");
    for end in ["ROLLBACK", "COMMIT"] {
        let mut tx = Transaction::begin(&place).await;
        let changed = store.change_through(&mut tx, &schedules, async |schedules: Schedules| {
            schedules.upsert(&hourly("new").data_bytes(b"to ann".to_vec())).await?;
            schedules.modify(&daily).await?;
            assert_eq!(
                schedules.trigger("nobody", "id").await.unwrap_err().kind(),
                ErrorKind::NotFound
            );
            Ok(schedules.trigger("new", "first").await?.status)
        });
        assert_eq!(changed.await.unwrap(), TriggerStatus::New);
        Transaction::run(&mut tx, end).await;
        assert_eq!(schedules.exists("new").await.unwrap(), end == "COMMIT");
    }
    let new = get(&store, "new").await.unwrap();
    assert_eq!((&*new.data, new.head.unwrap().trigger.as_deref()), (&b"to ann"[..], Some("first")));
    assert_ne!(get(&store, "old").await.unwrap().definition, old.definition);
}
