//! A job's effects and its finish, committed together or not at all.

use crate::{
    calls::{STORE, change, get, send},
    connect::run,
    stores::{Place, on_every_database},
};
use allora_core::{
    Backend as _, BoxError, ErrorKind, Result, Run, Scheduler, Schedules, StoredSchedule,
    backend::{Action, Claim, JobState, Notification, Operation, Reply, TimeSource},
    every, job,
    runtime::Tokio,
};
use allora_sql::{Param, RawStatement, Sql, SqlxTransaction as _};
use futures::StreamExt as _;
use sqlx::{AssertSqlSafe, Connection, Executor, MySqlConnection, PgConnection, SqliteConnection};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

on_every_database! {
    effect_and_completion_are_committed_together
    a_completion_that_was_rolled_back_did_not_happen
    a_zombie_is_refused
    a_run_that_has_completed_itself_works_on_and_the_next_one_waits
    a_node_that_dies_after_its_completion_leaves_nothing_but_a_lease
    a_schedule_is_created_with_the_applications_own_transaction
    raw_statements_complete_a_run
    a_raw_statement_creates_a_schedule_on_postgresql
}

/// A transaction of the job's own, with one effect in it and the finish.
async fn effect(place: &Place, store: &Sql, run: &Run, end: &str) -> allora_core::Result {
    if place.url.starts_with("postgres") {
        effect_on::<PgConnection>(place, store, run, "BEGIN", end).await
    } else if place.url.starts_with("mysql") {
        effect_on::<MySqlConnection>(place, store, run, "START TRANSACTION", end).await
    } else {
        effect_on::<SqliteConnection>(place, store, run, "BEGIN IMMEDIATE", end).await
    }
}

async fn effect_on<C>(
    place: &Place,
    store: &Sql,
    run: &Run,
    begin: &'static str,
    end: &str,
) -> allora_core::Result
where
    C: Connection + allora_sql::Connection,
    for<'c> &'c mut C: Executor<'c>,
{
    let mut conn = C::connect(&place.url).await.unwrap();
    let insert = format!("INSERT INTO {}_effect VALUES ({})", place.prefix, run.fence());
    conn.execute(begin).await.unwrap();
    conn.execute(AssertSqlSafe(insert)).await.unwrap();
    let finished = store.complete_in(&mut conn, run).await;
    let end = if finished.is_ok() { end } else { "ROLLBACK" };
    conn.execute(AssertSqlSafe(end.to_owned())).await.unwrap();
    finished
}

/// The parts that a job leaves to the test: its run, and the result with which it is to end.
type Left = (Run, oneshot::Sender<std::result::Result<(), BoxError>>);

/// Runs one occurrence of a job; `work` says how the job ends. Answers with the job's state after
/// all is over.
async fn once(
    place: &Place,
    work: impl AsyncFnOnce(&Sql, &Run) -> std::result::Result<(), BoxError>,
) -> JobState {
    let store = place.open().await;
    let (leave, mut left) = mpsc::unbounded_channel::<Left>();
    let entry = job(every(Duration::from_secs(3600)), async move |run: Run| {
        let (end, ended) = oneshot::channel();
        leave.send((run, end))?;
        ended.await?
    })
    .at_least_once(Duration::from_secs(30));
    let builder = Scheduler::builder(store.clone()).runtime(Tokio::current().unwrap());
    let scheduler = builder.add("job", entry).poll_interval(Duration::from_millis(100)).build();
    let scheduler = scheduler.unwrap();
    let handle = scheduler.handle();
    let working = async {
        let trigger = Action::trigger("now");
        let now = TimeSource::Store { fallback: allora_core::time::end_of_time() };
        // The job is registered by the scheduler; until then there is nothing to pull.
        while change(&store, "job", trigger.clone(), now).await.is_err() {
            tokio::task::yield_now().await;
        }
        let (run, end) = left.recv().await.unwrap();
        end.send(work(&store, &run).await).unwrap();
        handle.stop();
    };
    futures::join!(scheduler.run(), working);
    get(&store, "job").await.unwrap()
}

/// True if there is an effect: the same once more is then an error of the unique key.
async fn effects(place: &Place) -> bool {
    run(place, "CREATE TABLE {p}_some AS SELECT fence FROM {p}_effect").await.unwrap();
    let any = run(place, "INSERT INTO {p}_effect SELECT fence FROM {p}_some").await.is_err();
    run(place, "DROP TABLE {p}_some").await.unwrap();
    run(place, "DROP TABLE {p}_effect").await.unwrap();
    any
}

async fn prepared(place: &Place) {
    place.open().await;
    run(place, "CREATE TABLE {p}_effect (fence BIGINT PRIMARY KEY)").await.unwrap();
}

async fn effect_and_completion_are_committed_together(place: Place) {
    prepared(&place).await;
    let state = once(&place, async |store, run| {
        effect(&place, store, run, "COMMIT").await?;
        let state = get(store, run.name()).await?;
        assert_eq!((state.leases[0].completed, state.counters.succeeded), (true, 1));
        Ok(())
    })
    .await;
    assert!(effects(&place).await);
    // The scheduler finished it once more: that ended the lease, and nothing else.
    assert_eq!((state.counters.succeeded, state.counters.failed, state.leases.len()), (1, 0, 0));
}

async fn a_completion_that_was_rolled_back_did_not_happen(place: Place) {
    prepared(&place).await;
    let state = once(&place, async |store, run| {
        effect(&place, store, run, "ROLLBACK").await?;
        let state = get(store, run.name()).await?;
        assert_eq!((state.leases.len(), state.counters.succeeded), (1, 0));
        Err("rolled back".into())
    })
    .await;
    assert!(!effects(&place).await);
    assert_eq!((state.counters.succeeded, state.counters.failed), (0, 1));
}

async fn a_zombie_is_refused(place: Place) {
    prepared(&place).await;
    let state = once(&place, async |store, run| {
        // Another node, an hour later, believes this one dead.
        let state = get(store, run.name()).await?;
        let lease = Duration::from_secs(3600);
        let claim = Claim::at_least_once(7, state.fence, state.head.unwrap(), lease);
        let later = TimeSource::Fixed(state.due_at.unwrap() + lease);
        let claim = Operation::claim(run.name(), claim);
        let reply = send(store, "other", later, claim).await?;
        assert!(matches!(reply, Reply::Claimed(_)), "{reply:?}");
        let refused = effect(&place, store, run, "COMMIT").await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::LeaseLost);
        Ok(())
    })
    .await;
    assert!(!effects(&place).await);
    // The scheduler's own finish is refused, too: the other node has it.
    assert_eq!((state.counters.succeeded, state.counters.expired, state.leases.len()), (0, 1, 1));
}

async fn a_run_that_has_completed_itself_works_on_and_the_next_one_waits(place: Place) {
    prepared(&place).await;
    let state = once(&place, async |store, run| {
        effect(&place, store, run, "COMMIT").await?;
        change(store, "job", Action::trigger("next"), STORE).await?;
        // An extension finds the completion, and keeps the run and its lease.
        let before = get(store, "job").await?.leases[0].until;
        run.heartbeat().await?;
        let state = get(store, "job").await?;
        let [lease] = &state.leases[..] else { panic!("{state:?}") };
        assert!(lease.completed && lease.until > before && !run.is_cancelled());
        let head = state.head.clone().unwrap();
        let claim = Claim::at_least_once(7, state.fence, head, Duration::from_secs(30));
        let refused = send(store, "other", STORE, Operation::claim("job", claim)).await?;
        assert!(matches!(refused, Reply::State(_)), "{refused:?}");
        Ok(())
    })
    .await;
    // The scheduler was stopped before it could begin the next one.
    let next = state.head.unwrap();
    assert_eq!((state.counters.succeeded, next.trigger.as_deref()), (1, Some("next")));
    assert_eq!((state.counters.expired, state.counters.lost, state.leases.len()), (0, 0, 0));
    assert!(effects(&place).await);
}

async fn a_node_that_dies_after_its_completion_leaves_nothing_but_a_lease(place: Place) {
    prepared(&place).await;
    let state = once(&place, async |store, run| {
        effect(&place, store, run, "COMMIT").await?;
        change(store, "job", Action::trigger("next"), STORE).await?;
        // Another node, which sees no more of this one.
        let state = get(store, "job").await?;
        let (over, lease) = (state.leases[0].until, Duration::from_secs(30));
        let head = state.head.unwrap();
        let claim = || Claim::at_least_once(7, state.fence, head.clone(), lease);
        let just_before = over - chrono::TimeDelta::milliseconds(1);
        for (at, is_granted) in [(just_before, false), (over, true)] {
            let claim = Operation::claim("job", claim());
            let reply = send(store, "other", TimeSource::Fixed(at), claim).await?;
            assert_eq!(matches!(reply, Reply::Claimed(_)), is_granted, "{reply:?}");
        }
        Ok(())
    })
    .await;
    assert_eq!((state.counters.succeeded, state.counters.lost, state.counters.expired), (1, 0, 0));
    assert_eq!(state.leases.iter().map(|lease| &*lease.node).collect::<Vec<_>>(), ["other"]);
    assert!(effects(&place).await);
}

/// A transaction of the application's own, with one effect in it and a new schedule.
async fn sign_up(place: &Place, store: &Sql, schedule: &StoredSchedule, end: &str) -> Result<()> {
    if place.url.starts_with("postgres") {
        sign_up_on::<PgConnection>(place, store, schedule, "BEGIN", end).await
    } else if place.url.starts_with("mysql") {
        sign_up_on::<MySqlConnection>(place, store, schedule, "START TRANSACTION", end).await
    } else {
        sign_up_on::<SqliteConnection>(place, store, schedule, "BEGIN IMMEDIATE", end).await
    }
}

async fn sign_up_on<C>(
    place: &Place,
    store: &Sql,
    schedule: &StoredSchedule,
    begin: &'static str,
    end: &str,
) -> Result<()>
where
    C: Connection + allora_sql::Connection,
    for<'c> &'c mut C: Executor<'c>,
{
    let mut conn = C::connect(&place.url).await.unwrap();
    conn.execute(begin).await.unwrap();
    let added = store.add_in(&mut conn, schedule).await;
    let end = if added.is_ok() { end } else { "ROLLBACK" };
    conn.execute(AssertSqlSafe(end.to_owned())).await.unwrap();
    added
}

async fn a_schedule_is_created_with_the_applications_own_transaction(place: Place) {
    let store = place.open().await;
    let report = StoredSchedule::new("acme", "report", "0 9 * * *").data_bytes(b"to ann".to_vec());
    sign_up(&place, &store, &report, "ROLLBACK").await.unwrap();
    assert_eq!(get(&store, "acme").await.unwrap_err().kind(), ErrorKind::NotFound);
    sign_up(&place, &store, &report, "COMMIT").await.unwrap();
    let state = get(&store, "acme").await.unwrap();
    assert_eq!((&*state.kind, &*state.data), ("report", &b"to ann"[..]));
    assert!(state.next.is_some());
    let twice = sign_up(&place, &store, &report, "COMMIT").await.unwrap_err();
    assert_eq!(twice.kind(), ErrorKind::AlreadyExists);
    let wrong = StoredSchedule::new("wrong", "report", "0 9 30 2 *");
    assert_eq!(
        sign_up(&place, &store, &wrong, "COMMIT").await.unwrap_err().kind(),
        ErrorKind::Invalid
    );
    // It is what the client creates, and the name of a deleted schedule is free.
    let schedules = Schedules::on(store.clone(), Tokio::current().unwrap()).unwrap();
    schedules.delete("acme").await.unwrap();
    sign_up(&place, &store, &report, "COMMIT").await.unwrap();
    let again = get(&store, "acme").await.unwrap();
    assert!(again.incarnation > state.incarnation);
    let beside = schedules.add(&StoredSchedule::new("b", "report", "0 9 * * *")).await.unwrap();
    assert_eq!(again.definition, beside.definition);
}

/// Runs the statements of a completion, and an effect before them, as an application without
/// `complete_in` does. Returns the number of rows of the first one.
macro_rules! run_raw {
    ($conn:ty, $begin:literal, $place:ident, $fence:expr, $raw:ident, $end:ident, $query:ident $(, $arrays:pat => $bound:expr)*) => {{
        let mut conn = <$conn>::connect(&$place.url).await.unwrap();
        conn.execute($begin).await.unwrap();
        let insert = format!("INSERT INTO {}_effect VALUES ({})", $place.prefix, $fence);
        conn.execute(AssertSqlSafe(insert)).await.unwrap();
        let mut rows = None;
        for statement in std::iter::once($raw).chain(&$raw.then) {
            let mut $query = sqlx::query(AssertSqlSafe(statement.sql.clone()));
            for param in statement.params.clone() {
                $query = match param {
                    Param::BigInt(value) => $query.bind(value),
                    Param::Bytea(value) => $query.bind(value),
                    $($arrays => $bound,)*
                };
            }
            let found = $query.fetch_all(&mut conn).await.unwrap().len();
            if *rows.get_or_insert(found) == 0 {
                break;
            }
        }
        conn.execute($end).await.unwrap();
        rows.unwrap()
    }};
}

async fn raw(place: &Place, run: &Run, raw: &RawStatement, end: &'static str) -> usize {
    let fence = run.fence();
    if place.url.starts_with("postgres") {
        assert!(raw.then.is_empty());
        run_raw!(PgConnection, "BEGIN", place, fence, raw, end, query,
            Param::BigIntArray(values) => query.bind(values),
            Param::ByteaArray(values) => query.bind(values))
    } else if place.url.starts_with("mysql") {
        run_raw!(MySqlConnection, "START TRANSACTION", place, fence, raw, end, query,
            Param::BigIntArray(_) | Param::ByteaArray(_) => panic!("it has no arrays"))
    } else {
        run_raw!(SqliteConnection, "BEGIN IMMEDIATE", place, fence, raw, end, query,
            Param::BigIntArray(_) | Param::ByteaArray(_) => panic!("it has no arrays"))
    }
}

async fn a_raw_statement_creates_a_schedule_on_postgresql(place: Place) {
    let store = place.open().await;
    run(&place, "CREATE TABLE {p}_effect (fence BIGINT PRIMARY KEY)").await.unwrap();
    let report = StoredSchedule::new("acme", "report", "0 9 * * *").data_bytes(b"to ann".to_vec());
    let creation = store.creation(&report).await;
    if !place.url.starts_with("postgres") {
        assert_eq!(creation.unwrap_err().kind(), ErrorKind::Unsupported);
        return;
    }
    let mut news = store.notifier().unwrap().subscribe().await.unwrap();
    let created = async |statement: &RawStatement, fence: i64, end: &'static str| {
        assert_eq!(statement.then.len(), 1, "it notifies the nodes");
        create_raw(&place, statement, fence, end).await
    };
    let creation = creation.unwrap();
    assert_eq!(created(&creation, 1, "ROLLBACK").await, 1);
    assert_eq!(get(&store, "acme").await.unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(created(&creation, 2, "COMMIT").await, 1);
    let state = get(&store, "acme").await.unwrap();
    assert_eq!((&*state.kind, &*state.data), ("report", &b"to ann"[..]));
    let told = tokio::time::timeout(Duration::from_secs(30), news.next()).await.unwrap();
    assert_eq!(told, Some(Notification::DueAt(state.due_at.unwrap())));
    // The name is taken since the call.
    assert_eq!(created(&creation, 3, "COMMIT").await, 0);
    let taken = store.creation(&report).await.unwrap_err();
    assert_eq!(taken.kind(), ErrorKind::AlreadyExists);
    let wrong = StoredSchedule::new("wrong", "report", "0 9 30 2 *");
    assert_eq!(store.creation(&wrong).await.unwrap_err().kind(), ErrorKind::Invalid);
    // It is what the client creates, and the name of a deleted schedule is free.
    let schedules = Schedules::on(store.clone(), Tokio::current().unwrap()).unwrap();
    schedules.delete("acme").await.unwrap();
    let again = store.creation(&report).await.unwrap();
    assert_eq!(created(&again, 4, "COMMIT").await, 1);
    assert!(get(&store, "acme").await.unwrap().incarnation > state.incarnation);
}

async fn create_raw(place: &Place, raw: &RawStatement, fence: i64, end: &'static str) -> usize {
    run_raw!(PgConnection, "BEGIN", place, fence, raw, end, query,
        Param::BigIntArray(values) => query.bind(values),
        Param::ByteaArray(values) => query.bind(values))
}

async fn raw_statements_complete_a_run(place: Place) {
    prepared(&place).await;
    let state = once(&place, async |store, run| {
        let old = store.completion(run).await?;
        // The record changes: the statement of before does nothing.
        run.heartbeat().await?;
        assert_eq!(raw(&place, run, &old, "ROLLBACK").await, 0);
        let statement = store.completion(run).await?;
        assert_eq!(raw(&place, run, &statement, "ROLLBACK").await, 1);
        assert_eq!(get(store, run.name()).await?.leases.len(), 1);
        assert_eq!(raw(&place, run, &statement, "COMMIT").await, 1);
        let state = get(store, run.name()).await?;
        assert_eq!((state.leases[0].completed, state.counters.succeeded), (true, 1));
        // A completed run is completed by a statement that changes nothing.
        assert!(store.completion(run).await?.then.is_empty());
        Ok(())
    })
    .await;
    assert!(effects(&place).await);
    assert_eq!((state.counters.succeeded, state.counters.failed, state.leases.len()), (1, 0, 0));
}
