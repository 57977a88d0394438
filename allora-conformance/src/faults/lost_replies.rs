//! Claims and completions whose replies are lost, and that are sent again.

use allora_core::{
    Backend, ErrorKind, Result, Time,
    backend::{
        Action, Batch, Claim, Completion, Cursor, JobState, NewSchedule, Operation, Reply,
        TimeSource,
    },
    time::from_millis,
};
use std::time::Duration;

/// The replies that were lost although their operations had been applied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LostReplies {
    /// Of claims.
    pub claims: usize,
    /// Of completions.
    pub completions: usize,
}

/// A claim and a completion on a job of its own for each of `cuts`, sent through a connection that
/// is cut after that number of replies, until there is a reply. Each is applied once. The returned
/// count shows that the cuts met the moment between the operation and its reply.
///
/// `node` is connected through what `cut_after` cuts, such as
/// [`Proxy::cut_after`](super::Proxy::cut_after), with one connection; `direct` is connected
/// directly. The jobs' names begin with `prefix`.
///
/// # Panics
/// If an operation is applied twice or not at all.
pub async fn lost_replies(
    direct: &dyn Backend,
    node: &dyn Backend,
    prefix: &str,
    cuts: &[i64],
    cut_after: impl Fn(i64),
) -> LostReplies {
    let (due, next) = (at(60), at(120));
    let mut lost = LostReplies::default();
    for (i, replies) in cuts.iter().enumerate() {
        let name = format!("{prefix} {i}");
        let new = NewSchedule::new("t", "every 1m", Some(due.into()));
        let created = send(direct, &Operation::new(&name, Action::Create(new))).await;
        let fence = created.unwrap().state().expect("a created schedule").fence;
        let claim = Claim::at_least_once(7, fence, due.into(), Duration::from_secs(60));
        cut_after(*replies);
        let (reply, losses) =
            insist(direct, node, &Operation::claim(&name, claim), |job| job.leases.len() == 1)
                .await;
        lost.claims += losses;
        let Reply::Claimed(claimed) = reply else { panic!("{name}: {reply:?}") };
        let job = read(direct, &name).await;
        assert_eq!((job.counters.started, job.attempts), (1, 1), "{job:?}");
        assert_eq!((job.leases.len(), job.leases[0].fence), (1, claimed.fence), "{job:?}");

        let then = Cursor::To(Some(next.into()));
        let complete = Operation::complete(&name, claimed.fence, then, Completion::Succeeded);
        cut_after(*replies);
        let (reply, losses) =
            insist(direct, node, &complete, |job| job.counters.succeeded == 1).await;
        lost.completions += losses;
        cut_after(super::Proxy::NEVER);
        assert_eq!(reply, Reply::Accepted, "{name}");
        let job = read(direct, &name).await;
        assert_eq!((job.counters.succeeded, job.leases.len()), (1, 0), "{job:?}");
        assert_eq!(job.next, Some(next.into()));
    }
    lost
}

/// Sends the same operation until there is a reply; counts the replies that were lost after it was
/// applied.
async fn insist(
    direct: &dyn Backend,
    node: &dyn Backend,
    operation: &Operation<'_>,
    is_applied: impl Fn(&JobState) -> bool,
) -> (Reply, usize) {
    let mut lost = 0;
    for _ in 0..5 {
        match send(node, operation).await {
            Ok(reply) => return (reply, lost),
            Err(error) => assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}"),
        }
        lost += usize::from(is_applied(&read(direct, operation.name).await));
    }
    panic!("no reply although nothing is cut any more: {operation:?}");
}

async fn read(direct: &dyn Backend, name: &str) -> JobState {
    send(direct, &Operation::read(name)).await.unwrap().state().expect("a job")
}

async fn send(store: &dyn Backend, operation: &Operation<'_>) -> Result<Reply> {
    let operations = [operation.clone()];
    let batch = Batch::new("node", TimeSource::Fixed(at(60)), &operations);
    store.reschedule(batch).await?.single()
}

fn at(seconds: i64) -> Time {
    from_millis(seconds * 1_000).unwrap()
}
