//! Later versions of the tables, which only these tests have, next to nodes of the first one.

use super::{Migrated, Next};
use crate::{
    Sql,
    dialect::{Dialect, LATER, Later, Step},
    driver::{Statement, Type, sql},
};
use allora_conformance::environment;
use allora_core::{
    Backend, ErrorKind, Result, Time,
    backend::{
        Action, Batch, Claim, Completion, Cursor, NewSchedule, Operation, Reply, TimeSource,
    },
    time::from_millis,
};
use futures::future::try_join_all;
use std::{sync::LazyLock, time::Duration};
use tokio::runtime::Runtime;

const NOTE: Step = Step::Column { table: "job", name: "note", of: Type::BytesOrNull };

/// A column and an index, without which builds of the first version go on.
const SECOND: &[Later] = &[Later { oldest: 1, steps: second }];

/// The same, cut off behind its first step.
const KILLED: &[Later] =
    &[Later { oldest: 1, steps: |_| vec![NOTE, Step::Run(sql("SELECT 1 FROM nowhere"))] }];

/// A third version, which builds of the first one cannot use.
const THIRD: &[Later] =
    &[Later { oldest: 1, steps: second }, Later { oldest: 2, steps: |_| Vec::new() }];

fn second(dialect: &Dialect) -> Vec<Step> {
    vec![NOTE, dialect.index("job_kind", "job", "(kind)")]
}

async fn four_nodes_migrate_at_once_while_one_of_the_first_version_works(place: Place) {
    let old = place.open(LATER).await.unwrap();
    let mut job = Job::create(&old).await;
    let (new, ()) =
        futures::join!(try_join_all([(); 4].map(|()| place.open(SECOND))), job.run(&old, 20));
    let new = new.unwrap();
    assert!(has_second(&new[0]).await && version(&new[0]).await == 2);
    job.run(&new[1], 2).await;
    let again = place.open(LATER).await.unwrap();
    for sql in [&again, &old, &new[2]] {
        job.run(sql, 2).await;
    }
    assert_eq!(version(&again).await, 2, "an older build leaves it");
}

async fn a_migration_that_was_killed_between_two_steps_is_resumed(place: Place) {
    let old = place.open(LATER).await.unwrap();
    let mut job = Job::create(&old).await;
    place.open(KILLED).await.unwrap_err();
    assert!(exists(&old, column(&old)).await && !has_second(&old).await);
    assert_eq!(version(&old).await, 1);
    job.run(&old, 2).await;
    let new = place.open(SECOND).await.unwrap();
    assert!(has_second(&new).await && version(&new).await == 2);
    job.run(&new, 2).await;
}

async fn a_server_that_does_not_keep_the_new_version_ends_the_migration(place: Place) {
    let new = place.open(SECOND).await.unwrap();
    for statement in new.client.dialect.put_meta("schema", 1) {
        new.client.ask(statement).await.unwrap();
    }
    // Two steps and the number were taken already.
    let migrated = new.client.migrate(&Next { version: 2, step: 3 }).await.unwrap();
    assert!(matches!(migrated, Migrated::All));
    assert_eq!(version(&new).await, 1);
}

async fn a_version_that_leaves_the_first_behind_refuses_its_builds(place: Place) {
    place.open(THIRD).await.unwrap();
    place.open(SECOND).await.unwrap();
    let error = place.open(LATER).await.unwrap_err();
    let said = error.to_string();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(said.contains("version 3") && said.contains("knows version 1"), "{said}");
}

/// `ALLORA_WRITE_FIXTURE=1` writes the tables of version 1 for the tests of upgrades.
#[cfg(all(feature = "sqlite", feature = "postgres", feature = "mysql"))]
#[test]
fn each_database_has_the_tables_of_version_1_in_its_fixture() {
    use crate::dialect::{
        Flavour, mysql::MySqlFlavour, postgres::PostgresFlavour, sqlite::SqliteFlavour,
    };
    use std::sync::Arc;
    let flavours: [(&str, Arc<dyn Flavour>); 3] = [
        ("sqlite", Arc::new(SqliteFlavour)),
        ("postgres", Arc::new(PostgresFlavour)),
        ("mysql", Arc::new(MySqlFlavour)),
    ];
    for (name, flavour) in flavours {
        let dialect = Dialect { prefix: "{p}".into(), flavour, has_entries: true, later: LATER };
        let texts = dialect.migration(1).into_iter().map(|step| match step {
            Step::Run(text) => text,
            Step::Index(index) => index.create,
            Step::Column { .. } => unreachable!("version 1 adds no column"),
        });
        let tables: String = texts.map(|text| format!("{}\n", text.as_str())).collect();
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/upgrade");
        let file = format!("{folder}/{name}.sql");
        if std::env::var_os("ALLORA_WRITE_FIXTURE").is_some() {
            std::fs::create_dir_all(folder).unwrap();
            std::fs::write(&file, &tables).unwrap();
        }
        let kept = std::fs::read_to_string(&file).unwrap();
        assert_eq!(kept, tables, "version 1 has changed: {file}");
    }
}

async fn without_migrations_older_tables_are_refused(place: Place) {
    place.open(LATER).await.unwrap();
    let mut builder = Sql::builder().prefix(&place.prefix).without_migrations();
    builder.later = SECOND;
    let error = builder.connect(&place.url).await.unwrap_err().to_string();
    assert!(error.contains("version 1") && error.contains("needs 2"), "{error}");
}

/// A job that is due every second, from the first second on.
struct Job {
    fence: i64,
    next: i64,
}

impl Job {
    async fn create(sql: &Sql) -> Self {
        let new = Action::Create(NewSchedule::new("mail", "def", Some(at(1).into())));
        let created = send(sql, at(0), Operation::new("a", new)).await.unwrap().state().unwrap();
        Self { fence: created.fence, next: 1 }
    }

    /// Runs the next occurrences, each exactly once.
    async fn run(&mut self, sql: &Sql, count: i64) {
        for i in self.next..self.next + count {
            let lease = Duration::from_secs(30);
            let claim =
                Claim::at_least_once(i.unsigned_abs().into(), self.fence, at(i).into(), lease);
            let claimed = send(sql, at(i), Operation::claim("a", claim)).await.unwrap();
            self.fence = claimed.claimed().expect("it is due").fence;
            let then = Cursor::To(Some(at(i + 1).into()));
            let end = Operation::complete("a", self.fence, then, Completion::Succeeded);
            assert!(send(sql, at(i), end).await.unwrap().is_accepted());
        }
        self.next += count;
        let read = send(sql, at(self.next), Operation::read("a")).await.unwrap();
        let started = read.state().unwrap().counters.started;
        assert_eq!(started, (self.next - 1).unsigned_abs());
    }
}

fn at(second: i64) -> Time {
    from_millis(second * 1_000).unwrap()
}

async fn send(sql: &Sql, now: Time, operation: Operation<'_>) -> Result<Reply> {
    sql.reschedule(Batch::new("n", TimeSource::Fixed(now), &[operation])).await?.single()
}

fn column(sql: &Sql) -> Statement {
    sql.client.dialect.column("job", "note", Type::BytesOrNull).1
}

async fn exists(sql: &Sql, statement: Statement) -> bool {
    sql.client.ask(statement).await.unwrap().is_some()
}

async fn has_second(sql: &Sql) -> bool {
    let Step::Index(index) = sql.client.dialect.index("job_kind", "job", "(kind)") else {
        unreachable!("it is an index")
    };
    exists(sql, column(sql)).await && exists(sql, index.exists).await
}

async fn version(sql: &Sql) -> i64 {
    sql.client.version().await.unwrap()
}

/// A set of tables of its own.
struct Place {
    url: String,
    prefix: String,
}

impl Place {
    async fn open(&self, later: &'static [Later]) -> Result<Sql> {
        let mut builder =
            Sql::builder().prefix(&self.prefix).store_timeout(Duration::from_secs(30));
        builder.later = later;
        builder.connect(&self.url).await
    }
}

/// Runs a test on a fresh place of this database.
fn on(store: &str, variable: &str, test: impl AsyncFnOnce(Place)) {
    static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let mut random = [0; 8];
    getrandom::fill(&mut random).unwrap();
    let prefix = format!("m{:016x}", u64::from_le_bytes(random));
    let url = match store {
        "sqlite" => Some(format!("sqlite:{}", folder.path().join("jobs.db").display())),
        _ => environment::address(store, variable),
    };
    let Some(url) = url.filter(|_| environment::is_wanted(store)) else { return };
    RUNTIME.block_on(async {
        let place = Place { url: url.clone(), prefix: prefix.clone() };
        test(Place { url, prefix }).await;
        place.open(THIRD).await.unwrap().drop_tables().await.unwrap();
    });
}

macro_rules! on_every_database {
    ($($name:ident)*) => {$(
        mod $name {
            #[cfg(feature = "sqlite")]
            #[test]
            fn sqlite() {
                super::on("sqlite", "", super::$name);
            }
            #[cfg(feature = "postgres")]
            #[test]
            fn postgres() {
                super::on("postgres", "ALLORA_TEST_POSTGRES_URL", super::$name);
            }
            #[cfg(feature = "mysql")]
            #[test]
            fn mysql() {
                super::on("mysql", "ALLORA_TEST_MYSQL_URL", super::$name);
            }
        }
    )*};
}

on_every_database! {
    four_nodes_migrate_at_once_while_one_of_the_first_version_works
    a_migration_that_was_killed_between_two_steps_is_resumed
    a_server_that_does_not_keep_the_new_version_ends_the_migration
    a_version_that_leaves_the_first_behind_refuses_its_builds
    without_migrations_older_tables_are_refused
}
