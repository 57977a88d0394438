//! A history that nodes would have written in days: written by the database itself.

use sqlx::{
    AssertSqlSafe, ConnectOptions, Connection, Executor, PgConnection, sqlite::SqliteConnectOptions,
};
use std::str::FromStr;

/// So many entries for each schedule, spread over the last days; one of 50 is a failure.
pub(crate) async fn fill(url: &str, prefix: &str, each: usize) {
    let is_sqlite = url.starts_with("sqlite");
    let bytes = |text: &str| {
        let hex: String = text.bytes().map(|byte| format!("{byte:02x}")).collect();
        if is_sqlite { format!("x'{hex}'") } else { format!("decode('{hex}', 'hex')") }
    };
    // Fences are microseconds, and those of one run are unique.
    let now = match is_sqlite {
        true => "CAST(unixepoch('subsec') * 1000 AS INTEGER)",
        false => "CAST(extract(epoch FROM now()) * 1000 AS BIGINT)",
    };
    let statement = format!(
        "INSERT INTO {prefix}_history (fence, name, kind, scheduled_at, trigger_id, \
           last_scheduled_at, occurrences, due_at, attempt, node, started_at, ended_at, outcome, \
           error, reason, output, is_failure) \
         WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {each}), \
           t AS (SELECT j.name, s.kind, (j.id + n.i) % 50 AS one_of, \
             {now} - n.i * 28800000 + j.id % 28800000 - 28800000 AS at, j.id \
             FROM {prefix}_job j JOIN {prefix}_state s ON s.id = j.id CROSS JOIN n) \
         SELECT t.at * 1000 + t.id % 1000, t.name, t.kind, t.at, NULL, NULL, 1, t.at, 1, {node}, t.at, \
           t.at + 1500, CASE t.one_of WHEN 0 THEN {failed} ELSE {succeeded} END, \
           CASE t.one_of WHEN 0 THEN {error} ELSE {none} END, NULL, {output}, \
           CASE t.one_of WHEN 0 THEN 1 ELSE 0 END FROM t",
        node = bytes("web-1"),
        failed = bytes("failed"),
        succeeded = bytes("succeeded"),
        error = bytes("the warehouse answered 502 Bad Gateway"),
        none = bytes(""),
        output = bytes("1,204 rows"),
    );
    let statement = sqlx::raw_sql(AssertSqlSafe(statement));
    if is_sqlite {
        let options = SqliteConnectOptions::from_str(url).unwrap();
        let mut file = options.connect().await.unwrap();
        file.execute(statement).await.unwrap();
    } else {
        let mut server = PgConnection::connect(url).await.unwrap();
        server.execute(statement).await.unwrap();
        server.execute(sqlx::raw_sql(AssertSqlSafe("ANALYZE".to_owned()))).await.unwrap();
    }
}
