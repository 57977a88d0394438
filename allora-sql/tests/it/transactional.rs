//! A job's effects and its finish, committed together or not at all.

use crate::{
    calls::{change, get, send},
    connect::run,
    stores::{Place, on_every_database},
};
use allora_core::{
    BoxError, ErrorKind, Run, Scheduler,
    backend::{Action, Claim, JobState, Operation, Reply, TimeSource},
    every, job,
    runtime::Tokio,
};
use allora_sql::Sql;
use sqlx::{AssertSqlSafe, Connection, Executor, MySqlConnection, PgConnection, SqliteConnection};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

on_every_database! {
    effect_and_completion_are_committed_together
    a_completion_that_was_rolled_back_did_not_happen
    a_zombie_is_refused
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
type Left = (Run, oneshot::Sender<Result<(), BoxError>>);

/// Runs one occurrence of a job; `work` says how the job ends. Answers with the job's state after
/// all is over.
async fn once(
    place: &Place,
    work: impl AsyncFnOnce(&Sql, &Run) -> Result<(), BoxError>,
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
        let trigger = Action::Trigger { id: "now", scheduled_at: None };
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
        assert_eq!((state.leases.len(), state.counters.succeeded), (0, 1));
        Ok(())
    })
    .await;
    assert!(effects(&place).await);
    // The scheduler finished it once more: a repetition.
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
