//! PostgreSQL: one statement claims a batch, another one completes it.

use crate::place::PREFIX;
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};

pub(super) struct Worker {
    connection: PgConnection,
    batch: usize,
}

/// So many records that are due, and connections on which the statements are prepared.
pub(super) async fn fill(url: &str, connections: usize, count: usize, batch: usize) -> Vec<Worker> {
    clear(url).await;
    run(
        url,
        &format!(
            "CREATE TABLE {PREFIX}_raw (id BIGINT PRIMARY KEY, due_at BIGINT NOT NULL, \
           lease_until BIGINT NOT NULL, fence BIGINT NOT NULL, ran BIGINT NOT NULL) \
           WITH (fillfactor = 50); \
         CREATE INDEX {PREFIX}_raw_due ON {PREFIX}_raw (due_at)"
        ),
    )
    .await;
    let mut workers = Vec::new();
    for _ in 0..connections {
        let mut connection = PgConnection::connect(url).await.unwrap();
        // A sort of all that is due for each batch would be the limit otherwise.
        connection.execute("SET enable_bitmapscan = off").await.unwrap();
        let mut worker = Worker { connection, batch };
        // The statements are prepared on the empty table.
        assert!(worker.claim().await.is_empty());
        assert_eq!(worker.complete(&[(0, 0)]).await, 0);
        workers.push(worker);
    }
    run(
        url,
        &format!(
            "INSERT INTO {PREFIX}_raw SELECT i, 1, 0, 0, 0 FROM generate_series(1, {count}) i"
        ),
    )
    .await;
    run(url, &format!("VACUUM ANALYZE {PREFIX}_raw")).await;
    workers
}

pub(super) async fn clear(url: &str) {
    run(url, &format!("DROP TABLE IF EXISTS {PREFIX}_raw")).await;
}

async fn run(url: &str, text: &str) {
    let mut connection = PgConnection::connect(url).await.unwrap();
    connection.execute(sqlx::raw_sql(AssertSqlSafe(text))).await.unwrap();
}

impl Worker {
    /// Claims and completes until nothing is due; returns the number of completed records.
    pub(super) async fn work(mut self) -> usize {
        let mut done = 0;
        loop {
            let claimed = self.claim().await;
            if claimed.is_empty() {
                return done;
            }
            let completed = self.complete(&claimed).await;
            assert_eq!(completed, claimed.len(), "a fence has changed");
            done += completed;
        }
    }

    async fn claim(&mut self) -> Vec<(i64, i64)> {
        let text = format!(
            "UPDATE {PREFIX}_raw r SET lease_until = 2, fence = fence + 1 \
             FROM (SELECT id FROM {PREFIX}_raw WHERE due_at <= 1 AND lease_until = 0 \
                   ORDER BY due_at LIMIT {} FOR UPDATE SKIP LOCKED) f \
             WHERE r.id = f.id RETURNING r.id, r.fence",
            self.batch
        );
        sqlx::query_as(AssertSqlSafe(text)).fetch_all(&mut self.connection).await.unwrap()
    }

    async fn complete(&mut self, claimed: &[(i64, i64)]) -> usize {
        let (ids, fences): (Vec<i64>, Vec<i64>) = claimed.iter().copied().unzip();
        let text = format!(
            "UPDATE {PREFIX}_raw r SET due_at = due_at + 86400000, lease_until = 0, ran = ran + 1 \
             FROM unnest($1::BIGINT[], $2::BIGINT[]) t(id, fence) \
             WHERE r.id = t.id AND r.fence = t.fence"
        );
        let query = sqlx::query(AssertSqlSafe(text)).bind(ids).bind(fences);
        let done = query.execute(&mut self.connection).await.unwrap();
        usize::try_from(done.rows_affected()).unwrap()
    }
}
