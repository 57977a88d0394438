//! A database file that is deleted or replaced while nodes have it open.

use crate::{
    calls::{STORE, create, get, send},
    connect::run,
    sessions::claim,
    stores::{Db, Place, on},
};
use allora_core::{
    ErrorKind,
    backend::{NewSchedule, NextRun, Operation, Reply},
    time::{end_of_time, from_millis},
};
use allora_sql::Sql;
use std::{fs, path::PathBuf};

fn path(place: &Place, ending: &str) -> PathBuf {
    PathBuf::from(format!("{}{ending}", place.url.strip_prefix("sqlite:").unwrap()))
}

async fn due(sql: &Sql, name: &str) -> i64 {
    let first: NextRun = from_millis(1_000).unwrap().into();
    let new = NewSchedule::new("k", "d", Some(first));
    create(sql, name, new, STORE).await.unwrap().fence
}

/// A claim as a scheduler makes it: repeated with its id while there is no reply. Returns the reply,
/// and the messages of the errors before it.
async fn claimed(sql: &Sql, id: u128, name: &str, fence: i64) -> (Reply, Vec<String>) {
    let first: NextRun = from_millis(1_000).unwrap().into();
    let mut errors = Vec::new();
    loop {
        let operation = Operation::claim(name, claim(id, fence, first, end_of_time().into()));
        match send(sql, "n", STORE, operation).await {
            Ok(reply) => return (reply, errors),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:#}");
                errors.push(format!("{error:#}"));
                assert!(errors.len() < 5, "{errors:?}");
            }
        }
    }
}

#[test]
fn a_node_whose_file_is_replaced_says_so_and_goes_on_with_the_new_one() {
    for keeps_log in [false, true] {
        on(Db::Sqlite, async |place| {
            let sql = place.open().await;
            let fence = due(&sql, "both").await;
            let backup = path(&place, ".backup");
            run(&place, &format!("VACUUM INTO '{}'", backup.display())).await.unwrap();
            // Not in the backup.
            let later = due(&sql, "later").await;
            let stale = claimed(&sql, 1, "both", fence).await;
            assert!(matches!(stale, (Reply::Claimed(_), _)));
            if !keeps_log {
                fs::remove_file(path(&place, "-wal")).unwrap();
                fs::remove_file(path(&place, "-shm")).unwrap();
            }
            fs::rename(&backup, path(&place, "")).unwrap();

            let (reply, errors) = claimed(&sql, 2, "both", fence).await;
            assert!(matches!(reply, Reply::Claimed(_)), "{reply:?}");
            // A busy machine may fail to open the new file at once, and then tries again.
            let says_so = errors.last().is_some_and(|error| error.contains("replaced"));
            assert!(says_so && errors.len() <= 2, "{errors:?}");
            // What another node sees is the same.
            let other = place.open().await;
            let (reply, errors) = claimed(&other, 3, "both", fence).await;
            assert!(matches!(reply, Reply::State(_)) && errors.is_empty(), "{reply:?} {errors:?}");
            let (reply, _) = claimed(&sql, 4, "later", later).await;
            assert_eq!(reply, Reply::Absent);
            due(&sql, "later").await;
            assert_eq!(get(&other, "later").await.unwrap().counters.started, 0);
            run(&place, "PRAGMA quick_check").await.unwrap();
        });
    }
}

#[test]
fn a_node_whose_file_is_deleted_claims_nothing_before_there_is_another_one() {
    on(Db::Sqlite, async |place| {
        let sql = place.open().await;
        let fence = due(&sql, "job").await;
        for ending in ["", "-wal", "-shm"] {
            fs::remove_file(path(&place, ending)).unwrap();
        }
        let first: NextRun = from_millis(1_000).unwrap().into();
        for _ in 0..3 {
            let claim = claim(1, fence, first, end_of_time().into());
            let error = send(&sql, "n", STORE, Operation::claim("job", claim)).await.unwrap_err();
            assert!(format!("{error:#}").contains("the file is gone"), "{error:#}");
        }
        // Another node begins.
        let other = place.open().await;
        let (reply, _) = claimed(&sql, 1, "job", fence).await;
        assert_eq!(reply, Reply::Absent);
        due(&sql, "job").await;
        assert_eq!(get(&other, "job").await.unwrap().counters.started, 0);
    });
}

/// Then a copy of the file alone is a copy of the store.
#[test]
fn the_file_has_all_data_when_the_last_node_has_ended() {
    for closes in [true, false] {
        on(Db::Sqlite, async |place| {
            let (sql, other) = (place.open().await, place.open().await);
            due(&sql, "job").await;
            if closes {
                sql.close().await;
                other.close().await;
            }
            drop((sql, other));
            let copy = path(&place, ".copy");
            fs::copy(path(&place, ""), &copy).unwrap();
            let url = format!("sqlite:{}", copy.display());
            let copy = place.builder().connect(&url).await.unwrap();
            assert_eq!(get(&copy, "job").await.unwrap().name, "job");
            assert!(!path(&place, "-wal").exists());
        });
    }
}
