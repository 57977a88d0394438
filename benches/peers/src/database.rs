//! A database of its own for a peer on PostgreSQL, which is removed.

use sqlx::{AssertSqlSafe, ConnectOptions, PgPool};

const NAME: &str = "allora_bench_peer";

pub(crate) struct Database {
    server: PgPool,
    /// For queries of the measurement.
    pub(crate) pool: PgPool,
    pub(crate) url: String,
}

impl Database {
    pub(crate) async fn create(server: &str) -> Self {
        let server = PgPool::connect(server).await.unwrap();
        run(&server, &format!("DROP DATABASE IF EXISTS {NAME} WITH (FORCE)")).await;
        run(&server, &format!("CREATE DATABASE {NAME}")).await;
        let url = url(&server);
        let pool = PgPool::connect(&url).await.unwrap();
        Self { server, pool, url }
    }

    /// The address of the database that another process has created.
    pub(crate) async fn url_of_created(server: &str) -> String {
        url(&PgPool::connect(server).await.unwrap())
    }

    pub(crate) async fn run(&self, text: &str) {
        run(&self.pool, text).await;
    }

    /// The one number that a query returns.
    pub(crate) async fn number(&self, query: &str) -> u64 {
        let query = sqlx::query_scalar(AssertSqlSafe(query));
        let number: i64 = query.fetch_one(&self.pool).await.unwrap();
        u64::try_from(number).unwrap()
    }

    pub(crate) async fn drop(self) {
        self.pool.close().await;
        run(&self.server, &format!("DROP DATABASE IF EXISTS {NAME} WITH (FORCE)")).await;
    }
}

fn url(server: &PgPool) -> String {
    (*server.connect_options()).clone().database(NAME).to_url_lossy().into()
}

async fn run(pool: &PgPool, text: &str) {
    sqlx::raw_sql(AssertSqlSafe(text)).execute(pool).await.unwrap();
}
