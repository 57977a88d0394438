//! A store whose clock was ahead and was set back: nothing runs twice, the daemon reports at once how
//! many lines wait and until when, and `allora reset` resumes them.

use crate::site::{Site, patiently, server};
use allora_core::{
    Backend,
    backend::{Action, Batch, NextRun, Operation, TimeSource},
    time::whole_millis,
};
use allora_sql::Sql;
use chrono::TimeDelta;
use std::{collections::BTreeSet, sync::Arc};

type Store = Arc<dyn Backend>;

const CRONTAB: &str = "\
ALLORA_NAME=first
@every 1s echo $ALLORA_SCHEDULED_AT >> DIR/first
ALLORA_NAME=second
@every 1s echo $ALLORA_SCHEDULED_AT >> DIR/second
";

/// Writes what a store writes whose clock is a day ahead: its next occurrence is a day from now, and
/// the fence was drawn then.
async fn write_ahead(store: &Store, name: &str) {
    let states = store.queries().unwrap();
    let state = states.get(name).await.unwrap();
    let tomorrow = whole_millis(state.next.unwrap().due_at + TimeDelta::days(1));
    let first = Some(NextRun { scheduled_at: tomorrow, due_at: tomorrow });
    let reset = [Operation::new(name, Action::Reset { incarnation: state.incarnation, first })];
    let batch = Batch::new("ahead", TimeSource::Fixed(tomorrow - TimeDelta::seconds(1)), &reset);
    store.reschedule(batch).await.unwrap().single().unwrap();
}

fn lines_wait_on(url: &str, connect: impl AsyncFnOnce(&str, &str) -> Store) {
    let prefix = format!("b{:x}", std::process::id());
    let mut site = Site::new(CRONTAB).with(&["--prefix", &prefix]);
    url.clone_into(&mut site.args[1]);
    let at = ["--url", url, "--prefix", &prefix];
    let daemon = site.start();
    site.more_lines("first", 1);
    site.more_lines("second", 1);
    daemon.stop_well();

    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let store = connect(url, &prefix).await;
        for name in ["jobs:first", "jobs:second"] {
            write_ahead(&store, name).await;
        }
    });
    let before = (site.lines("first"), site.lines("second"));
    let daemon = site.start();
    daemon.says("the store's clock was set back");
    let log = daemon.log();
    let line = log.lines().find(|line| line.contains("clock was set back")).unwrap();
    assert!(line.contains("waiting=2") && line.contains("allora reset JOB"), "{line}");
    site.allora(&[&["reset"], &at[..], &["jobs:first"]].concat()).fine();
    site.more_lines("first", 2);
    assert_eq!(site.lines("second"), before.1, "only one was reset");
    assert!(site.lines("first") > before.0);
    site.allora(&[&["reset"], &at[..], &["jobs:second"]].concat()).fine();
    site.more_lines("second", 1);
    daemon.stop_well();
    for name in ["first", "second"] {
        let ran = site.read(name);
        let once: BTreeSet<&str> = ran.lines().collect();
        assert_eq!(once.len(), ran.lines().count(), "each occurrence of {name} once");
        patiently("the schedule is deleted", || {
            let job = format!("jobs:{name}");
            site.allora(&[&["delete"], &at[..], &[&job]].concat()).code == 0
        });
    }
}

async fn sql(url: &str, prefix: &str) -> Store {
    Arc::new(Sql::builder().prefix(prefix).connect(url).await.unwrap())
}

#[test]
fn sqlite() {
    let folder = tempfile::tempdir().unwrap();
    lines_wait_on(&format!("sqlite:{}", folder.path().join("store.db").display()), sql);
}

#[test]
fn postgres() {
    if let Some(url) = server("postgres", "ALLORA_TEST_POSTGRES_URL") {
        lines_wait_on(&url, sql);
    }
}

#[test]
fn mysql() {
    if let Some(url) = server("mysql", "ALLORA_TEST_MYSQL_URL") {
        lines_wait_on(&url, sql);
    }
}

#[cfg(feature = "redis")]
#[test]
fn redis() {
    use allora_redis::Redis;

    async fn connect(url: &str, prefix: &str) -> Store {
        Arc::new(Redis::builder().prefix(prefix).connect(url).await.unwrap())
    }
    if let Some(url) = server("redis", "ALLORA_TEST_REDIS_URL") {
        lines_wait_on(&url, connect);
    }
}

#[cfg(feature = "etcd")]
#[test]
fn etcd() {
    use allora_etcd::Etcd;

    async fn connect(url: &str, prefix: &str) -> Store {
        let endpoint = url.replace("etcd://", "http://");
        Arc::new(Etcd::builder().prefix(prefix).connect([endpoint]).await.unwrap())
    }
    if let Some(url) = server("etcd", "ALLORA_TEST_ETCD_URL") {
        lines_wait_on(&url.replace("http://", "etcd://"), connect);
    }
}
