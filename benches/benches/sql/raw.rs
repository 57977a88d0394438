//! The raw limit: the cheapest statement that compares and sets one batch and says what it won,
//! sent over and over on one connection.

use allora_benches::server::sql;
use sqlx::{
    AssertSqlSafe, Column, Executor, MySql, MySqlPool, PgPool, Postgres, Row, Sqlite, SqlitePool,
    mysql::MySqlPoolOptions,
    pool::PoolConnection,
    postgres::PgPoolOptions,
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous},
};
use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

/// Of the store's tables; those of the raw limit begin with it too.
pub(crate) const PREFIX: &str = "allora_bench";

/// The table that the statement updates.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Table {
    /// A key, a time and a fence, and nothing else.
    Narrow,
    /// The columns and the index of the store's table of states.
    Wide,
    /// The same, and the indexed column moves with the time, as that of a stored schedule does.
    Indexed,
}

impl Table {
    fn name(self) -> String {
        let end = if self == Table::Narrow { "narrow" } else { "wide" };
        format!("{PREFIX}_{end}")
    }
}

pub(crate) enum Raw {
    Sqlite(SqlitePool),
    Postgres(PgPool),
    MySql(MySqlPool),
}

enum Conn {
    Sqlite(PoolConnection<Sqlite>),
    Postgres(PoolConnection<Postgres>),
    MySql(PoolConnection<MySql>),
}

impl Raw {
    pub(crate) async fn connect(url: &str) -> Self {
        if let Some(file) = url.strip_prefix("sqlite:") {
            // As the store opens it.
            let options = SqliteConnectOptions::new()
                .filename(file)
                .create_if_missing(true)
                .busy_timeout(Duration::from_secs(5))
                .journal_mode(SqliteJournalMode::Wal)
                .synchronous(SqliteSynchronous::Full);
            let pool = SqlitePoolOptions::new().max_connections(4).connect_with(options);
            return Raw::Sqlite(pool.await.unwrap());
        }
        if url.starts_with("postgres") {
            let pool = PgPoolOptions::new().max_connections(4).connect(url);
            return Raw::Postgres(pool.await.unwrap());
        }
        Raw::MySql(MySqlPoolOptions::new().max_connections(4).connect(url).await.unwrap())
    }

    pub(crate) async fn version(&self) -> String {
        let asked = match self {
            Raw::Sqlite(pool) => {
                sqlx::query_scalar("SELECT sqlite_version()").fetch_one(pool).await
            }
            Raw::Postgres(pool) => {
                sqlx::query_scalar("SELECT current_setting('server_version')").fetch_one(pool).await
            }
            Raw::MySql(pool) => sqlx::query_scalar("SELECT version()").fetch_one(pool).await,
        };
        asked.unwrap()
    }

    pub(crate) async fn run(&self, text: &str) {
        let text = sqlx::raw_sql(AssertSqlSafe(text));
        match self {
            Raw::Sqlite(pool) => drop(pool.execute(text).await.unwrap()),
            Raw::Postgres(pool) => drop(pool.execute(text).await.unwrap()),
            Raw::MySql(pool) => drop(pool.execute(text).await.unwrap()),
        }
    }

    /// Removes the benchmark's tables.
    pub(crate) async fn clear(&self) {
        for table in sql::TABLES.iter().chain(&["narrow", "wide"]) {
            self.run(&format!("DROP TABLE IF EXISTS {PREFIX}_{table}")).await;
        }
    }

    /// So many copies of the job `model`, named by [`name`] with this letter.
    pub(crate) async fn multiply(&self, model: &str, letter: char, copies: usize) {
        let others = |columns: &[String]| {
            let others = columns.iter().map(String::as_str).filter(|c| !["id", "name"].contains(c));
            others.collect::<Vec<_>>().join(", ")
        };
        let [job, state] = [self.columns(model, "job").await, self.columns(model, "state").await];
        let (job, state) = (others(&job), others(&state));
        let name = match self {
            Raw::Sqlite(_) => format!("CAST(printf('{letter}%07d', n.i) AS BLOB)"),
            Raw::Postgres(_) => {
                format!("convert_to('{letter}' || lpad(n.i::TEXT, 7, '0'), 'UTF8')")
            }
            Raw::MySql(_) => format!("CONCAT('{letter}', LPAD(n.i, 7, '0'))"),
        };
        let key = match self {
            Raw::Sqlite(_) => format!("CAST('{model}' AS BLOB)"),
            Raw::Postgres(_) => format!("convert_to('{model}', 'UTF8')"),
            Raw::MySql(_) => format!("'{model}'"),
        };
        let digits: Vec<String> = (0..10).map(|i| format!("SELECT {i} AS i")).collect();
        let digits = format!("({})", digits.join(" UNION ALL "));
        let numbers = format!(
            "SELECT a.i + 10*b.i + 100*c.i + 1000*d.i + 10000*e.i + 100000*f.i AS i FROM \
             {digits} a, {digits} b, {digits} c, {digits} d, {digits} e, {digits} f"
        );
        self.run(&format!(
            "INSERT INTO {PREFIX}_job (name, {job}) SELECT {name}, {job} \
             FROM {PREFIX}_job j, ({numbers}) n WHERE j.name = {key} AND n.i < {copies}"
        ))
        .await;
        let of_model = format!("(SELECT id FROM {PREFIX}_job WHERE name = {key})");
        self.run(&format!(
            "INSERT INTO {PREFIX}_state (id, {state}) \
             SELECT j.id, s.* FROM {PREFIX}_job j, \
               (SELECT {state} FROM {PREFIX}_state WHERE id = {of_model}) s \
             WHERE j.id NOT IN (SELECT id FROM {PREFIX}_state)"
        ))
        .await;
        if matches!(self, Raw::Postgres(_)) {
            self.run(&format!("VACUUM ANALYZE {PREFIX}_job, {PREFIX}_state")).await;
        }
    }

    async fn columns(&self, model: &str, table: &str) -> Vec<String> {
        macro_rules! names {
            ($pool:expr) => {{
                let text = format!("SELECT * FROM {PREFIX}_{table} LIMIT 1");
                let row = sqlx::query(AssertSqlSafe(text)).fetch_optional($pool).await.unwrap();
                let row = row.unwrap_or_else(|| panic!("{model} is not there"));
                row.columns().iter().map(|column| column.name().to_owned()).collect()
            }};
        }
        match self {
            Raw::Sqlite(pool) => names!(pool),
            Raw::Postgres(pool) => names!(pool),
            Raw::MySql(pool) => names!(pool),
        }
    }

    /// The tables of the raw limit, with the jobs of the store as they are now.
    pub(crate) async fn copy_jobs(&self) {
        let (state, wide, narrow) =
            (format!("{PREFIX}_state"), format!("{PREFIX}_wide"), format!("{PREFIX}_narrow"));
        for table in [&wide, &narrow] {
            self.run(&format!("DROP TABLE IF EXISTS {table}")).await;
        }
        match self {
            Raw::Sqlite(pool) => {
                let text = "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL AND tbl_name = ? \
                            ORDER BY type DESC";
                let definitions: Vec<String> =
                    sqlx::query_scalar(text).bind(&state).fetch_all(pool).await.unwrap();
                for definition in definitions {
                    self.run(&definition.replace(&state, &wide)).await;
                }
            }
            Raw::Postgres(_) => {
                let like = "INCLUDING ALL) WITH (fillfactor = 40)";
                self.run(&format!("CREATE TABLE {wide} (LIKE {state} {like}")).await;
            }
            Raw::MySql(_) => self.run(&format!("CREATE TABLE {wide} LIKE {state}")).await,
        }
        let options = match self {
            Raw::Sqlite(_) => " STRICT",
            Raw::Postgres(_) => " WITH (fillfactor = 40)",
            Raw::MySql(_) => "",
        };
        let number = if matches!(self, Raw::Sqlite(_)) { "INTEGER" } else { "BIGINT" };
        self.run(&format!(
            "CREATE TABLE {narrow} (id {number} NOT NULL PRIMARY KEY, \
             cursor_scheduled_at {number} NOT NULL, fence {number} NOT NULL){options}"
        ))
        .await;
        self.run(&format!("INSERT INTO {wide} SELECT * FROM {state}")).await;
        self.run(&format!("UPDATE {wide} SET cursor_scheduled_at = 0")).await;
        self.run(&format!("INSERT INTO {narrow} SELECT id, 0, fence FROM {state}")).await;
        if matches!(self, Raw::Postgres(_)) {
            self.run(&format!("VACUUM ANALYZE {wide}")).await;
            self.run(&format!("VACUUM ANALYZE {narrow}")).await;
        }
    }

    /// Compare-and-set moves per second of these batches, each on a connection of its own.
    pub(crate) async fn limit(
        &self,
        table: Table,
        batches: &[Vec<String>],
        lasts: Duration,
    ) -> f64 {
        let table_name = table.name();
        self.run(&format!(
            "UPDATE {table_name} SET cursor_scheduled_at = 0 WHERE cursor_scheduled_at <> 0"
        ))
        .await;
        if matches!(self, Raw::Postgres(_)) {
            self.run(&format!("VACUUM {table_name}")).await;
        }
        let mut nodes = tokio::task::JoinSet::new();
        let ids = self.ids().await;
        for names in batches {
            let conn = self.acquire().await;
            let ids: Vec<i64> = names.iter().map(|name| ids[name.as_bytes()]).collect();
            nodes.spawn(conn.claims(table, ids, lasts));
        }
        nodes.join_all().await.into_iter().sum()
    }

    /// The keys of all jobs by name.
    async fn ids(&self) -> HashMap<Vec<u8>, i64> {
        let text = AssertSqlSafe(format!("SELECT name, id FROM {PREFIX}_job"));
        let rows: Vec<(Vec<u8>, i64)> = match self {
            Raw::Sqlite(pool) => sqlx::query_as(text).fetch_all(pool).await,
            Raw::Postgres(pool) => sqlx::query_as(text).fetch_all(pool).await,
            Raw::MySql(pool) => sqlx::query_as(text).fetch_all(pool).await,
        }
        .unwrap();
        rows.into_iter().collect()
    }

    async fn acquire(&self) -> Conn {
        match self {
            Raw::Sqlite(pool) => Conn::Sqlite(pool.acquire().await.unwrap()),
            Raw::Postgres(pool) => Conn::Postgres(pool.acquire().await.unwrap()),
            Raw::MySql(pool) => Conn::MySql(pool.acquire().await.unwrap()),
        }
    }
}

impl Conn {
    async fn claims(mut self, table: Table, ids: Vec<i64>, lasts: Duration) -> f64 {
        let text = self.text(table, ids.len());
        let begun = Instant::now();
        let mut rounds = 0;
        while begun.elapsed() < lasts {
            let won = self.claim(&text, &ids, rounds).await;
            assert_eq!(won, ids.len(), "the raw statement did not win all");
            rounds += 1;
        }
        rounds as f64 * ids.len() as f64 / begun.elapsed().as_secs_f64()
    }

    /// Arguments: the time to find, then the keys.
    fn text(&self, table: Table, ids: usize) -> String {
        let also = match table {
            Table::Narrow => "",
            Table::Wide => ", cursor_due_at = cursor_scheduled_at + 1",
            Table::Indexed => {
                ", cursor_due_at = cursor_scheduled_at + 1, index_at = cursor_scheduled_at + 1"
            }
        };
        let set = format!(
            "UPDATE {} SET cursor_scheduled_at = cursor_scheduled_at + 1, fence = fence + 1{also}",
            table.name()
        );
        let list = vec!["?"; ids].join(", ");
        match self {
            Conn::Postgres(_) => {
                format!("{set} WHERE cursor_scheduled_at = $1 AND id = ANY($2) RETURNING id, fence")
            }
            Conn::Sqlite(_) => {
                format!(
                    "{set} WHERE cursor_scheduled_at = ? AND id IN ({list}) RETURNING id, fence"
                )
            }
            // It cannot return rows; the count says whether all were won.
            Conn::MySql(_) => format!("{set} WHERE cursor_scheduled_at = ? AND id IN ({list})"),
        }
    }

    async fn claim(&mut self, text: &str, ids: &[i64], old: i64) -> usize {
        let text = AssertSqlSafe(text);
        match self {
            Conn::Postgres(conn) => {
                let query = sqlx::query(text).bind(old).bind(ids);
                query.fetch_all(&mut **conn).await.unwrap().len()
            }
            Conn::Sqlite(conn) => {
                let query = ids.iter().fold(sqlx::query(text).bind(old), |q, id| q.bind(*id));
                query.fetch_all(&mut **conn).await.unwrap().len()
            }
            Conn::MySql(conn) => {
                let query = ids.iter().fold(sqlx::query(text).bind(old), |q, id| q.bind(*id));
                let done = query.execute(&mut **conn).await.unwrap();
                usize::try_from(done.rows_affected()).unwrap()
            }
        }
    }
}

/// The `i`th copy.
pub(crate) fn name(letter: char, i: usize) -> String {
    format!("{letter}{i:07}")
}
