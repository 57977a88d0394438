//! The tables of the SQL store on a server: removed.

#![expect(clippy::unwrap_used, reason = "a benchmark that cannot go on says so")]

use sqlx::{AssertSqlSafe, Connection, Executor, MySqlConnection, PgConnection};

/// The ends of the names of the store's tables, behind the prefix.
pub const TABLES: [&str; 8] = ["meta", "job", "state", "rare", "data", "history", "flag", "change"];

/// Removes the tables with this prefix on a PostgreSQL or MySQL server.
pub async fn clear(url: &str, prefix: &str) {
    let drop = |table| format!("DROP TABLE IF EXISTS {prefix}_{table}");
    if url.starts_with("postgres") {
        let mut server = PgConnection::connect(url).await.unwrap();
        for table in TABLES {
            server.execute(sqlx::raw_sql(AssertSqlSafe(drop(table)))).await.unwrap();
        }
        return;
    }
    let mut server = MySqlConnection::connect(url).await.unwrap();
    for table in TABLES {
        server.execute(sqlx::raw_sql(AssertSqlSafe(drop(table)))).await.unwrap();
    }
}

/// The number of transactions that a PostgreSQL server has ended so far, those of each statement by
/// itself included. A session reports its own at most once a second.
pub async fn transactions(url: &str) -> u64 {
    let mut server = PgConnection::connect(url).await.unwrap();
    let text = "SELECT sum(xact_commit + xact_rollback)::bigint FROM pg_stat_database";
    let ended: i64 = sqlx::query_scalar(text).fetch_one(&mut server).await.unwrap();
    ended.unsigned_abs()
}
