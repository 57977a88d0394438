//! Single calls to a store, as the tests make them.

use allora_core::{
    Backend, Result,
    backend::{Action, Batch, Edit, JobState, NewSchedule, Operation, Reply, TimeSource},
};
use allora_sql::Sql;

/// The database's clock.
pub(crate) const STORE: TimeSource =
    TimeSource::Store { fallback: chrono::DateTime::<chrono::Utc>::UNIX_EPOCH };

/// The reply to one operation of a node.
pub(crate) async fn send(
    store: &impl Backend,
    node: &str,
    time: TimeSource,
    operation: Operation<'_>,
) -> Result<Reply> {
    store.reschedule(Batch::new(node, time, &[operation])).await?.single()
}

/// The replies to a batch without errors.
pub(crate) async fn replies(
    store: &Sql,
    time: TimeSource,
    operations: &[Operation<'_>],
) -> Vec<Reply> {
    let applied = store.reschedule(Batch::new("n", time, operations)).await.unwrap();
    applied.replies.into_iter().map(Result::unwrap).collect()
}

/// The state after an operator's action.
pub(crate) async fn change(
    store: &Sql,
    name: &str,
    action: Action<'_>,
    time: TimeSource,
) -> Result<JobState> {
    let reply = send(store, "client", time, Operation::new(name, action)).await?;
    Ok(reply.clone().state().unwrap_or_else(|| panic!("{name}: {reply:?}")))
}

pub(crate) async fn create(
    store: &Sql,
    name: &str,
    new: NewSchedule<'_>,
    time: TimeSource,
) -> Result<JobState> {
    change(store, name, Action::Create(new), time).await
}

pub(crate) async fn modify(
    store: &Sql,
    name: &str,
    edit: Edit<'_>,
    time: TimeSource,
) -> Result<JobState> {
    change(store, name, Action::Modify(edit), time).await
}

pub(crate) async fn delete(store: &Sql, name: &str, time: TimeSource) -> Result {
    let reply = send(store, "client", time, Operation::new(name, Action::Delete)).await?;
    assert_eq!(reply, Reply::Deleted);
    Ok(())
}

pub(crate) async fn get(store: &Sql, name: &str) -> Result<JobState> {
    store.queries().unwrap().get(name).await
}
