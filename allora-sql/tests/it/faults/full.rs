//! Disks without room.

use super::{
    node::fleet,
    server::{Server, mounted},
};
use crate::{
    calls::{STORE, create, delete, get},
    stores::{Db, Place, on, patiently_opened, runtime},
};
use allora_conformance::environment::{patiently, unmount};
use allora_core::{ErrorKind, backend::NewSchedule};
use allora_sql::{Sql, SqlxPool as _};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions};
use std::{
    fs::File,
    io::Write,
    path::{Path, PathBuf},
    str::FromStr,
    time::Duration,
};

/// A file that takes what room there is.
struct Ballast(PathBuf);

impl Ballast {
    fn put(folder: &Path) -> Self {
        let path = folder.join("ballast");
        let mut file = File::create(&path).unwrap();
        // Until there is no room for as little.
        for size in [1 << 16, 1 << 12, 1] {
            while file.write_all(&vec![1; size]).is_ok() {}
        }
        Self(path)
    }

    fn remove(self) {
        std::fs::remove_file(self.0).unwrap();
    }
}

async fn add(sql: &Sql, name: &str) -> allora_core::Result<()> {
    // Nothing that a database could make smaller.
    let mut data = vec![0; 30_000];
    getrandom::fill(&mut data).unwrap();
    let new = NewSchedule::new("k", "d", None).data(&data);
    create(sql, name, new, STORE).await.map(drop)
}

/// Adds until there is no room; how many there are.
async fn fill(sql: &Sql) -> usize {
    for count in 0..10_000 {
        if let Err(error) = add(sql, &count.to_string()).await {
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
            assert!(error.to_string().contains("refused the statement"), "{error}");
            return count;
        }
    }
    panic!("it is never full");
}

#[test]
fn a_file_that_may_not_grow_is_unavailable_until_there_is_room() {
    on(Db::Sqlite, async |place| {
        place.open().await.close().await;
        let options = SqliteConnectOptions::from_str(&place.url).unwrap();
        let options = options.journal_mode(SqliteJournalMode::Wal).pragma("max_page_count", "200");
        let pool = SqlitePoolOptions::new().max_connections(1).connect_with(options).await;
        let sql = place.builder().sqlite_pool(pool.unwrap()).await.unwrap();
        let count = fill(&sql).await;
        assert!(count > 1);
        assert_eq!(get(&sql, &count.to_string()).await.unwrap_err().kind(), ErrorKind::NotFound);
        // What is removed makes room.
        for name in ["0", "1"] {
            delete(&sql, name, STORE).await.unwrap();
        }
        add(&sql, "another").await.unwrap();
    });
}

#[test]
fn a_node_whose_disk_was_full_goes_on_when_there_is_room() {
    on(Db::Sqlite, async |place| {
        let Some(folder) = mounted(8 << 20) else { return };
        let url = format!("sqlite:{}", folder.path().join("jobs.db").display());
        let mut fleet = fleet(Place { url, prefix: place.prefix.clone(), folder: None });
        fleet.start(Duration::ZERO);
        fleet.more_ends(2);
        let ballast = Ballast::put(folder.path());
        patiently("the node notices", || fleet.reported("Began(StoreDown") > 0);
        ballast.remove();
        patiently("the node is back", || fleet.reported("Ended(StoreDown") > 0);
        fleet.more_ends(3);
        fleet.judge();
        unmount(folder.path());
    });
}

#[test]
fn a_postgres_whose_disk_is_full_is_unavailable_until_there_is_room() {
    let Some(server) = Server::start_on_small_disk(Db::Postgres, 160 << 20) else { return };
    runtime().block_on(async {
        let place = server.place();
        let sql = patiently_opened(place.builder(), &place.url).await;
        add(&sql, "first").await.unwrap();
        let ballast = Ballast::put(&server.path(""));
        fill(&sql).await;
        ballast.remove();
        add(&sql, "another").await.unwrap();
        assert!(get(&sql, "first").await.is_ok());
        sql.close().await;
    });
}
