//! Tables as version 1 left them, with rows of every kind: this build reads all of them, and goes on.
//!
//! `ALLORA_WRITE_FIXTURE=1` writes the rows again, from SQLite, and what was said of them then. The
//! definitions of the tables come from `migrate/tests.rs`.

use crate::stores::{Db, Place, on, on_every_database};
use allora_conformance::upgrade::{TOLD, agrees, fill, goes_on, kept, told};
use allora_sql::sqlx::{self, AssertSqlSafe, Connection, Row, SqliteConnection};

const TABLES: [&str; 8] = ["meta", "job", "state", "rare", "data", "history", "change", "flag"];

on_every_database! { what_the_first_version_left_is_read_and_goes_on }

async fn what_the_first_version_left_is_read_and_goes_on(place: Place) {
    kept("tests/it/upgrade/rows.sql", dump).await;
    load(&place).await;
    let sql = place.builder().history(100_000).connect(&place.url).await.unwrap();
    let expected = kept(TOLD, async || told(sql.clone()).await).await;
    agrees(&told(sql.clone()).await, &expected);
    goes_on(sql).await;
}

/// Makes the tables of version 1, with their rows.
async fn load(place: &Place) {
    let system = place.url.split(':').next().unwrap();
    let tables = std::fs::read_to_string(format!("tests/it/upgrade/{system}.sql")).unwrap();
    let tables = tables.lines().map(|statement| statement.replace("{p}", &place.prefix));
    // A database that is new is made by the connection.
    let url = if system == "sqlite" { "?mode=rwc" } else { "" };
    let there = Place { url: format!("{}{url}", place.url), ..place.beside_nothing() };
    there.execute_all(tables).await;
    insert(place).await;
}

/// Replaces all rows by those of version 1.
async fn insert(place: &Place) {
    let p = &place.prefix;
    let is_postgres = place.url.starts_with("postgres");
    let mut statements = vec!["BEGIN".to_owned()];
    statements.extend(TABLES.map(|table| format!("DELETE FROM {p}_{table}")));
    for row in std::fs::read_to_string("tests/it/upgrade/rows.sql").unwrap().lines() {
        let row = row.replace("{p}", p);
        statements.push(if is_postgres { row.replace("X'", "'\\x") } else { row });
    }
    if is_postgres {
        let next = format!("pg_get_serial_sequence('{p}_job', 'id')");
        statements.push(format!("SELECT setval({next}, (SELECT MAX(id) FROM {p}_job))"));
    }
    statements.push("COMMIT".to_owned());
    place.execute_all(statements).await;
}

/// The rows of a new store, filled; all tables and columns have some.
async fn dump() -> String {
    let place = Db::Sqlite.place().unwrap();
    let sql = place.builder().history(100_000).connect(&place.url).await.unwrap();
    fill(sql).await;
    let mut conn = SqliteConnection::connect(&place.url).await.unwrap();
    let mut text = String::new();
    for table in TABLES {
        let name = format!("{}_{table}", place.prefix);
        let columns = AssertSqlSafe(format!("SELECT name FROM pragma_table_info('{name}')"));
        let columns: Vec<String> = sqlx::query(columns)
            .fetch_all(&mut conn)
            .await
            .unwrap()
            .iter()
            .map(|row| row.get(0))
            .collect();
        let quoted: Vec<String> = columns.iter().map(|column| format!("quote({column})")).collect();
        let rows =
            AssertSqlSafe(format!("SELECT {} FROM {name} ORDER BY 1", quoted.join(" || ',' || ")));
        for row in sqlx::query(rows).fetch_all(&mut conn).await.unwrap() {
            let values: String = row.get(0);
            text +=
                &format!("INSERT INTO {{p}}_{table} ({}) VALUES ({values})\n", columns.join(", "));
        }
    }
    text
}

/// A table or column that is new has to be in the fixture of its version.
#[test]
fn the_fixture_has_a_value_in_each_column_of_each_table() {
    on(Db::Sqlite, async |place| {
        place.open().await;
        let mut conn = SqliteConnection::connect(&place.url).await.unwrap();
        let all = "SELECT m.name, c.name FROM sqlite_master m, pragma_table_info(m.name) c \
                   WHERE m.type = 'table' AND m.name NOT LIKE 'sqlite%'";
        let all: Vec<(String, String)> = sqlx::query_as(all).fetch_all(&mut conn).await.unwrap();
        insert(&place).await;
        for (table, column) in all {
            let count = AssertSqlSafe(format!("SELECT COUNT({column}) FROM {table}"));
            let count: i64 = sqlx::query_scalar(count).fetch_one(&mut conn).await.unwrap();
            assert!(count > 0, "{table}.{column} has no value in the fixture");
        }
    });
}

/// A property or a word that is new has to be in the fixture of its version.
#[test]
fn the_fixture_has_each_property_outcome_reason_action_and_setting() {
    let told = std::fs::read_to_string(TOLD).unwrap();
    let schema: serde_json::Value = serde_json::from_str(allora_core::JSON_SCHEMA).unwrap();
    let mut missing = Vec::new();
    for of in ["JobState", "HistoryEntry", "Change", "StoredSchedule", "Lease", "Chain", "FollowUp"]
    {
        let names = schema["$defs"][of]["properties"].as_object().unwrap().keys();
        missing.extend(names.filter(|name| !told.contains(&format!("\"{name}\":"))).cloned());
    }
    for source in [
        include_str!("../../../allora-core/src/backend/not_run.rs"),
        include_str!("../../../allora-core/src/backend/outcome.rs"),
        include_str!("../../../allora-core/src/record/change.rs"),
    ] {
        let words = source.split("=> \"").skip(1).filter_map(|rest| rest.split('"').next());
        let words = words.filter(|word| !told.contains(&format!("\"{word}\"")));
        missing.extend(words.map(str::to_owned));
    }
    // A time-out and a first run concern the node and the client, a run that goes on is a lease; nothing here
    // is damaged.
    let elsewhere = ["timeout", "first_run", "running", "unreadable"];
    missing.retain(|name| !elsewhere.contains(&&**name));
    assert!(missing.is_empty(), "{missing:?}");
}
