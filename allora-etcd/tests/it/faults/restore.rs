//! Nodes at work while their cluster is restored from a backup.

use super::{members::Members, node::fleet, patiently, proxy::Proxy};
use crate::stores::{patient, runtime};
use allora_core::{
    Backend, Time,
    backend::{
        Action, Batch, Claim, Claimed, Completion, Cursor, JobState, Notification, Operation,
        Reply, TimeSource,
    },
    time::from_millis,
};
use allora_etcd::Etcd;
use futures::{FutureExt, StreamExt};
use std::time::Duration;

/// The token of a cluster that names none.
const SAME: &str = "etcd-cluster";

fn at(seconds: i64) -> Time {
    from_millis(1_893_456_000_000 + seconds * 1_000).unwrap()
}

async fn apply(store: &Etcd, node: &str, seconds: i64, action: Action<'_>) -> Reply {
    let operations = [Operation::new("job", action)];
    let time = TimeSource::Store { fallback: at(seconds) };
    store.reschedule(Batch::new(node, time, &operations)).await.unwrap().single().unwrap()
}

async fn read(store: &Etcd, node: &str) -> JobState {
    apply(store, node, 0, Action::Read).await.state().unwrap()
}

async fn claim(store: &Etcd, node: &str, seconds: i64, of: &JobState) -> Reply {
    let expected = of.head.clone().unwrap();
    let claim = Claim::at_least_once(1, of.fence, expected, Duration::from_secs(30));
    apply(store, node, seconds, Action::Claim(claim)).await
}

fn claimed(reply: Reply) -> Claimed {
    let Reply::Claimed(claimed) = reply else { panic!("{reply:?}") };
    claimed
}

/// The revision of the last write of the job.
async fn revision(members: &Members) -> i64 {
    let read = members.client(0).await.get("allora/job/job", None).await.unwrap();
    read.kvs()[0].mod_revision()
}

/// Runs what is due in this second; the next occurrence is at `next`.
async fn run(store: &Etcd, node: &str, seconds: i64, next: i64) {
    let fence = claimed(claim(store, node, seconds, &read(store, node).await).await).fence;
    let then = Cursor::To(Some(at(next).into()));
    let complete = Action::Complete { fence, then, completion: Completion::Succeeded };
    assert!(apply(store, node, seconds, complete).await.is_accepted());
}

#[test]
fn nodes_at_work_continue_with_a_restored_backup() {
    runtime().block_on(async {
        for token in [SAME, "another"] {
            let Some(mut members) = Members::start(1, &[]).await else { return };
            let fleet = fleet(members.urls()).at_work();
            let folder = tempfile::tempdir().unwrap();
            let backup = folder.path().join("backup");
            if !members.back_up(&backup) {
                return;
            }
            fleet.more_ends(30);
            members.restore(&backup, token);
            fleet.more_ends(10);
        }
    });
}

/// The sign by which a node notices that a backup was restored.
#[derive(Clone, Copy, Debug)]
enum Sign {
    AnotherCluster,
    OlderRevision,
    BrokenStream,
}

#[test]
fn a_record_that_was_read_before_a_backup_was_restored_is_read_again() {
    runtime().block_on(async {
        for sign in [Sign::AnotherCluster, Sign::OlderRevision, Sign::BrokenStream] {
            let Some(mut members) = Members::start(1, &[]).await else { return };
            let proxy = Proxy::to(members.port(0)).await;
            let open = async |url| patient(Etcd::builder()).connect([url]).await.unwrap();
            let (one, other) = (open(proxy.url()).await, open(members.url(0)).await);
            let mut notifications = match sign {
                Sign::BrokenStream => one.notifier().unwrap().subscribe().await.unwrap(),
                _ => futures::stream::pending().boxed(),
            };
            let first = Some(at(1).into());
            let register = Action::Register { definition: "every 1m", version: 0, first };
            apply(&one, "one", 0, register).await;
            // Both nodes have sessions in the backup.
            run(&one, "one", 1, 2).await;
            run(&other, "other", 2, 10).await;
            let folder = tempfile::tempdir().unwrap();
            let backup = folder.path().join("backup");
            if !members.back_up(&backup) {
                return;
            }
            let is_another = matches!(sign, Sign::AnotherCluster);
            if is_another {
                // For the session that the other node opens there: the revisions stay the same.
                members.client(0).await.put("z", "", None).await.unwrap();
            }
            run(&one, "one", 10, 20).await;
            let remembered = read(&one, "one").await;
            let forgotten = revision(&members).await;
            while notifications.next().now_or_never().is_some() {}
            // A node that is cut off does not see how the revisions catch up.
            proxy.cut(matches!(sign, Sign::BrokenStream));
            members.restore(&backup, if is_another { "another" } else { SAME });
            let serves = async || members.leader_by(0).await.is_some();
            patiently("the member starts", serves).await;
            if !matches!(sign, Sign::BrokenStream) {
                let operations = [Operation::read("missing")];
                let time = TimeSource::Store { fallback: at(11) };
                one.reschedule(Batch::new("one", time, &operations)).await.unwrap();
            }
            // As many writes as were forgotten, so that the record has the same revision again.
            run(&other, "other", 11, 30).await;
            assert_eq!(revision(&members).await, forgotten, "{sign:?}");
            if matches!(sign, Sign::BrokenStream) {
                proxy.cut(false);
                let changed =
                    async { while notifications.next().await != Some(Notification::Changed) {} };
                let waited = tokio::time::timeout(Duration::from_secs(60), changed).await;
                waited.expect("a notification of anything");
            }
            let reply = claim(&one, "one", 20, &remembered).await;
            let Reply::State(state) = reply else { panic!("{sign:?}: {reply:?}") };
            assert_eq!(state.head, Some(at(30).into()), "{sign:?}");
        }
    });
}
