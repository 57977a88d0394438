//! Number of statements that a batch costs, as the driver logs them.

use crate::{
    calls::{STORE, change, replies},
    connect,
    desk::{self, Desk, t},
    stores::{Db, Place, on, pause},
};
use allora_core::{
    Backend,
    backend::{
        Action, Claim, ClaimDue, Completion, Cursor, DueQuery, Edit, Flag, HistoryCursor,
        HistoryLimits, HistoryQuery, NewSchedule, NextRun, Operation, Page, Reply, Sharing,
        TimeSource,
    },
    store::RecordStore as _,
    time::from_millis,
};
use sqlx::{AssertSqlSafe, Connection, Executor, Row};
use std::{cell::Cell, sync::Once, time::Duration};
use tracing::{
    Event, Id, Metadata, Subscriber,
    field::{Field, Visit},
    span::{Attributes, Record},
    subscriber::Interest,
};

#[test]
fn a_batch_is_one_statement_for_its_claims_and_one_for_its_completions_on_postgres() {
    batch(Db::Postgres, 0, [1, 1, 1]);
}

/// An `UPDATE` returns nothing there: the claims are read back.
#[test]
fn a_batch_is_two_statements_for_its_claims_and_one_for_its_completions_on_mysql() {
    batch(Db::MySql, 0, [2, 1, 1]);
}

/// The statement writes the history, too.
#[test]
fn a_history_costs_a_batch_no_further_statement_on_postgres() {
    batch(Db::Postgres, 100_000, [1, 1, 1]);
}

/// The last runs of schedules add a flag to each: in the same statement, or on MySQL in one transaction of
/// five. SQLite's driver has a thread of its own, on which nothing is counted.
#[test]
fn a_batch_of_last_runs_is_completed_without_a_read() {
    for history in [0, 100_000] {
        last_runs(Db::Postgres, history, 1);
    }
    last_runs(Db::MySql, 0, 5);
}

/// A change that is accepted is a read and a commit; a notification follows.
#[test]
fn an_operators_change_is_a_read_a_commit_and_a_notification_on_postgres() {
    let counts = counted(Db::Postgres, async |place| {
        let sql = place.open().await;
        let new = NewSchedule::new("k", "d", None).data(b"data");
        change(&sql, "a", Action::Create(new), STORE).await.unwrap();
        let before = COUNT.get();
        change(&sql, "a", Action::Pause { note: "", until: None }, STORE).await.unwrap();
        vec![before, COUNT.get()]
    });
    if let Some(counts) = counts {
        assert_eq!(counts, [3]);
    }
}

/// In a session as the store sets it up, and without statistics.
#[test]
fn a_due_query_reads_the_index_in_its_order_on_postgres() {
    counted(Db::Postgres, async |place| {
        let sql = place.open().await;
        fill(place, 50_000, "'k' || i % 20", "i").await;
        let kinds: Vec<String> = (0..20).map(|i| format!("k{i}")).collect();
        let kinds: Vec<&str> = kinds.iter().map(String::as_str).collect();
        let query = DueQuery::new(&kinds, from_millis(40_000).unwrap(), 1_000);
        let due = sql.queries().unwrap().find_due(query, STORE).await.unwrap();
        assert_eq!((due.found.len(), due.next_due), (1_000, from_millis(1_001)));
        let array = kinds.iter().map(|kind| format!("'{kind}'::BYTEA")).collect::<Vec<_>>();
        let (statement, array) = (LAST.take(), array.join(", "));
        let mut conn = sqlx::PgConnection::connect(&place.url).await.unwrap();
        for generic in ["force_custom_plan", "force_generic_plan"] {
            let explain = format!(
                "SET enable_bitmapscan = off; SET enable_seqscan = off; SET plan_cache_mode = {generic}; PREPARE find (BYTEA[], BIGINT, BIGINT, BIGINT, BIGINT, BIGINT) AS {statement}; \
                 EXPLAIN EXECUTE find (ARRAY[{array}], 40000, 1257, 0, 1001, 16777216); DEALLOCATE find"
            );
            let rows = conn.fetch_all(sqlx::raw_sql(AssertSqlSafe(explain))).await.unwrap();
            let plan: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
            let plan = plan.join("\n");
            // The rows of a kind come in the order of the index. The rows of all kinds are sorted.
            let of_a_kind = plan.split("Subquery Scan on d").nth(1).unwrap();
            let of_a_kind = of_a_kind.split("_state_index_at").next().unwrap();
            assert!(
                of_a_kind.contains("Limit") && !of_a_kind.contains("Sort"),
                "{generic}: {plan}"
            );
            assert!(!plan.contains("Bitmap") && !plan.contains("Seq Scan"), "{generic}: {plan}");
        }
        Vec::new()
    });
}

/// A node asks each time it wakes, and mostly nothing is due yet.
#[test]
fn queries_read_nothing_of_what_is_due_later_on_postgres() {
    on(Db::Postgres, async |place| {
        // One session, whose counts the server has once it is closed.
        let sql = place.builder().connections(1).connect(&place.url).await.unwrap();
        fill(&place, 50_000, "'k' || i % 2", "250000000000000 + i").await;
        pause(2_000).await;
        let before = index_blocks(&place).await;
        for claim_id in 0..20 {
            let kinds = ["k0", "k1"];
            let query = DueQuery::new(&kinds, from_millis(2_000_000_000_000).unwrap(), 100);
            let due = sql.queries().unwrap().find_due(query, STORE).await.unwrap();
            assert_eq!((due.found.len(), due.next_due), (0, from_millis(250_000_000_000_001)));
            let query = ClaimDue::new("node", claim_id, &kinds, 100);
            let due = sql.queries().unwrap().claim_due(query, STORE).await.unwrap();
            assert_eq!(due.claimed.len(), 0);
        }
        sql.close().await;
        // Sessions report their counts a little later.
        for _ in 0..300 {
            let read = index_blocks(&place).await - before;
            if read >= 20 * 2 * 2 {
                assert!(read < 20 * 2 * 20, "{read} blocks of the index were read");
                return;
            }
            pause(100).await;
        }
        panic!("the server does not count");
    });
}

/// A claim moves no entry of an index, and a completion only that of the due index, in which jobs in code
/// are not. Neither writes a flag.
#[test]
fn claims_and_completions_move_no_index_but_that_of_due_jobs_on_postgres() {
    const RUNS: i64 = 6;
    on(Db::Postgres, async |place| {
        let sql = place.builder().connections(1).connect(&place.url).await.unwrap();
        let desk = Desk::new(&sql, "node");
        let text = "* * * * *";
        let first = Some(desk::first(text, t(0)));
        desk.add("stored", text, t(0)).await.unwrap();
        let register = Action::Register { definition: text, version: 0, first };
        change(&sql, "code", register, TimeSource::Fixed(t(0))).await.unwrap();
        for n in 0..RUNS {
            for name in ["stored", "code"] {
                let run = desk.poll(t(60 * n), name, 30).await.unwrap();
                desk.complete(t(60 * n + 1), name, &run, text).await;
            }
        }
        sql.close().await;
        // Sessions report their counts a little later.
        let mut seen = Vec::new();
        for _ in 0..300 {
            seen = vec![
                written(&place, "state", "n_tup_upd, n_tup_hot_upd").await,
                written(&place, "flag", "n_tup_ins, n_tup_upd + n_tup_del").await,
                written(&place, "job", "n_tup_ins, n_tup_upd").await,
            ];
            if seen[0].0 >= 4 * RUNS {
                break;
            }
            pause(100).await;
        }
        // Each has the flag of its kind.
        assert_eq!(seen, [(4 * RUNS, 3 * RUNS), (2, 0), (2, 0)]);
    });
}

/// Two counts of what was written to a table.
async fn written(place: &Place, table: &str, counts: &str) -> (i64, i64) {
    let mut conn = sqlx::PgConnection::connect(&place.url).await.unwrap();
    let text = format!(
        "SELECT {counts} FROM pg_stat_user_tables WHERE relname = '{}_{table}'",
        place.prefix
    );
    let row = conn.fetch_one(sqlx::raw_sql(AssertSqlSafe(text))).await.unwrap();
    (row.get(0), row.get(1))
}

/// So many jobs without statistics, of kinds and due times that are expressions of the number `i`.
async fn fill(place: &Place, count: u32, kind: &str, due_at: &str) {
    let fill = format!(
        "ALTER TABLE {{p}}_job SET (autovacuum_enabled = off); \
         ALTER TABLE {{p}}_state SET (autovacuum_enabled = off); \
         INSERT INTO {{p}}_job (id, name, kind, definition, definition_version, generation) \
         SELECT i, convert_to('job' || i, 'UTF8'), convert_to({kind}, 'UTF8'), 'def', 0, 1 \
           FROM generate_series(1, {count}) i; \
         INSERT INTO {{p}}_state (id, version, fence, kind, index_at, wake_at, rare, incarnation, \
           started, succeeded, cursor_scheduled_at, cursor_due_at, due_lease) \
         SELECT i, 1, 1, convert_to({kind}, 'UTF8'), {due_at}, {due_at}, 0, 1, 0, 0, {due_at}, {due_at}, \
           60000 FROM generate_series(1, {count}) i"
    );
    connect::run(place, &fill).await.unwrap();
}

/// The number of blocks of the index of due jobs that were read so far.
async fn index_blocks(place: &Place) -> i64 {
    let mut conn = sqlx::PgConnection::connect(&place.url).await.unwrap();
    let text = format!(
        "SELECT idx_blks_read + idx_blks_hit FROM pg_statio_user_indexes \
         WHERE indexrelname = '{}_state_index_at'",
        place.prefix
    );
    conn.fetch_one(sqlx::raw_sql(AssertSqlSafe(text))).await.unwrap().get(0)
}

/// As [`a_due_query_reads_the_index_in_its_order_on_postgres`]: one sort, of what the kinds contribute.
#[test]
fn a_query_that_claims_is_one_statement_and_sorts_nothing_that_it_leaves_on_postgres() {
    let counts = counted(Db::Postgres, async |place| {
        let sql = place.open().await;
        fill(place, 50_000, "'k' || i % 3", "i").await;
        let before = COUNT.get();
        let kinds = ["k0", "k1", "k2"];
        for claim_id in [7, 8] {
            let query = ClaimDue::new("node", claim_id, &kinds, 1_000);
            let due = sql.queries().unwrap().claim_due(query, STORE).await.unwrap();
            let latest = due.claimed.iter().map(|(state, _)| state.next.unwrap().scheduled_at);
            let expected = from_millis(1_000 * (claim_id - 6) as i64);
            assert_eq!((due.claimed.len(), latest.max()), (1_000, expected));
        }
        let counts = vec![before, COUNT.get()];
        let array = kinds.map(|kind| format!("'{kind}'::BYTEA")).join(", ");
        let statement = LAST.take();
        let mut conn = sqlx::PgConnection::connect(&place.url).await.unwrap();
        for generic in ["force_custom_plan", "force_generic_plan"] {
            let explain = format!(
                "SET enable_bitmapscan = off; SET enable_seqscan = off; SET plan_cache_mode = {generic}; PREPARE claim \
                   (BIGINT, BYTEA, BYTEA, BYTEA, BYTEA, BIGINT, BYTEA[], BIGINT, BIGINT, BIGINT) \
                   AS {statement}; \
                 EXPLAIN EXECUTE claim \
                   (NULL, 'node', '', 'succeeded', '1', NULL, ARRAY[{array}], 1000, 1500, 1500); \
                 DEALLOCATE claim"
            );
            let rows = conn.fetch_all(sqlx::raw_sql(AssertSqlSafe(explain))).await.unwrap();
            let plan: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
            let plan = plan.join("\n");
            assert_eq!(plan.matches("Sort Key").count(), 1, "{generic}: {plan}");
            assert!(plan.contains("LockRows") && plan.contains("Tid Scan"), "{generic}: {plan}");
            assert!(!plan.contains("Bitmap") && !plan.contains("Seq Scan"), "{generic}: {plan}");
        }
        counts
    });
    if let Some(counts) = counts {
        assert_eq!(counts, [2]);
    }
}

/// A query begins behind what the one before has claimed. A record at an earlier place is claimed by a
/// query that would claim less than it could otherwise, and by each sixteenth one.
#[test]
fn a_record_at_an_earlier_place_is_claimed_on_postgres() {
    counted(Db::Postgres, async |place| {
        let sql = place.open().await;
        let add = async |from: i64, to: i64| {
            let fill = format!(
                "INSERT INTO {{p}}_job (id, name, kind, definition, definition_version, generation) \
                 SELECT i, convert_to('job' || i, 'UTF8'), 'k', 'def', 0, 1 \
                   FROM generate_series({from}, {to}) i; \
                 INSERT INTO {{p}}_state (id, version, fence, kind, index_at, wake_at, rare, \
                   incarnation, started, succeeded, cursor_scheduled_at, cursor_due_at, due_lease) \
                 SELECT i, 1, 1, 'k', i, i, 0, 1, 0, 0, i, i, 60000 \
                   FROM generate_series({from}, {to}) i"
            );
            connect::run(place, &fill).await.unwrap();
        };
        let claim = async |claim_id: u128| {
            let query = ClaimDue::new("node", claim_id, &["k"], 10);
            let due = sql.queries().unwrap().claim_due(query, STORE).await.unwrap();
            let mut names: Vec<String> = due.claimed.into_iter().map(|(job, _)| job.name).collect();
            names.sort();
            names
        };
        add(101, 400).await;
        assert_eq!(claim(1).await.len(), 10);
        add(1, 1).await;
        let claimed = |names: &[String]| names.iter().any(|name| name == "job1");
        let mut query = 1;
        let mut found = false;
        while !found {
            query += 1;
            let names = claim(query).await;
            assert_eq!(names.len(), 10);
            found = claimed(&names);
        }
        assert_eq!(query, 17, "a sweep");
        add(2, 2).await;
        let mut rest = Vec::new();
        while rest.len() < 132 {
            query += 1;
            let names = claim(query).await;
            assert!(!names.is_empty(), "{} were claimed", rest.len());
            rest.extend(names);
        }
        assert!(rest.iter().any(|name| name == "job2"), "before a query that claims little");
        Vec::new()
    });
}

/// Also without statistics, and where other jobs have most of the entries.
#[test]
fn a_history_page_of_one_job_reads_only_its_part_of_the_index() {
    for db in [Db::Sqlite, Db::Postgres, Db::MySql] {
        counted(db, async |place| {
            let sql = place.builder().history(100_000).connect(&place.url).await.unwrap();
            if db == Db::Postgres {
                let fill = "ALTER TABLE {p}_history SET (autovacuum_enabled = off)";
                connect::run(place, fill).await.unwrap();
            }
            crate::measurements::fill_history(place, 50_000).await;
            let below = HistoryCursor { fence: 40_007, name: "job 7".into() };
            let first = HistoryQuery::new(20).name("job 7");
            for (query, newest) in [(first, 49_007), (first.before(&below), 39_007)] {
                let page = sql.history().unwrap().entries(query).await.unwrap();
                assert_eq!((page.len(), page[0].fence), (20, newest));
                let statement = match db {
                    // Its driver logs on a thread of its own.
                    Db::Sqlite => page_on_sqlite(place, query.before.is_some()),
                    Db::Postgres | Db::MySql => LAST.take(),
                };
                let plan = plan(place, db, &statement, page_values(db, &statement)).await;
                let has_index = plan.contains(&format!("{}_history_name", place.prefix));
                assert!(has_index, "{db:?}: {plan}");
                // The two parts of the page are put in one order.
                let scan = format!("SCAN {}", place.prefix);
                let reads_more = ["Seq Scan", "Bitmap", &scan];
                assert!(!reads_more.iter().any(|more| plan.contains(more)), "{db:?}: {plan}");
            }
            Vec::new()
        });
    }
}

/// One page of failures among many successes takes one statement.
#[test]
fn a_page_of_failures_of_all_jobs_reads_their_own_index() {
    // The driver of SQLite logs on a thread of its own; its plan is that of the text below.
    for db in [Db::Postgres, Db::Sqlite] {
        counted(db, async |place| {
            let sql = place.builder().history(100_000).connect(&place.url).await.unwrap();
            crate::measurements::fill_history(place, 50_000).await;
            let fail = "UPDATE {p}_history SET is_failure = 1 WHERE fence IN (7, 9)";
            connect::run(place, fail).await.unwrap();
            let below = HistoryCursor { fence: 40_007, name: "job 7".into() };
            let query = HistoryQuery::new(20).before(&below).failures_only();
            let page = sql.history_store().unwrap().history_entries(query).await.unwrap();
            let fences: Vec<i64> = page.iter().map(|entry| entry.fence).collect();
            assert_eq!(fences, [9, 7], "{db:?}");
            let statement = match db {
                Db::Postgres => LAST.take(),
                _ => format!(
                    "SELECT * FROM {}_history WHERE is_failure + 0 = 1 AND fence <= ? \
                     AND (fence < ? OR name < ?) ORDER BY fence DESC, name DESC LIMIT ?",
                    place.prefix
                ),
            };
            let values = vec!["40007", "40007", job_7(db), "20"];
            let plan = plan(place, db, &statement, values).await;
            assert!(plan.contains("_history_failure"), "{db:?}: {plan}");
            assert!(!plan.contains("Sort") && !plan.contains("B-TREE"), "{db:?}: {plan}");
            Vec::new()
        });
    }
}

fn page_on_sqlite(place: &Place, has_cursor: bool) -> String {
    let below = if has_cursor { " AND fence <= ? AND (fence < ? OR name < ?)" } else { "" };
    let history = format!("{}_history", place.prefix);
    let part = format!(
        "SELECT * FROM (SELECT * FROM {history} WHERE name = ? AND is_failure = ?{below} \
         ORDER BY fence DESC, name DESC LIMIT ?) p"
    );
    format!("{part} UNION ALL {part} ORDER BY fence DESC LIMIT ?")
}

/// The values of a page of "job 7" whose cursor, if it has one, is there too.
fn page_values(db: Db, statement: &str) -> Vec<&'static str> {
    let (name, numbers) = (job_7(db), ["40007", "20"]);
    let part = |is_failure| match statement.contains("fence <=") {
        true => vec![name, is_failure, numbers[0], numbers[0], name, numbers[1]],
        false => vec![name, is_failure, numbers[1]],
    };
    [part("0"), part("1"), vec![numbers[1]]].concat()
}

fn job_7(db: Db) -> &'static str {
    match db {
        Db::Postgres => "convert_to('job 7', 'UTF8')",
        Db::Sqlite | Db::MySql => "X'6a6f622037'",
    }
}

/// Finding the first entry beyond the limit, and removing: neither costs what the history has.
#[test]
fn pruning_reads_only_parts_of_the_indexes() {
    // The driver of SQLite logs on a thread of its own.
    for db in [Db::Postgres, Db::MySql] {
        counted(db, async |place| {
            let sql = place.builder().history(100_000).connect(&place.url).await.unwrap();
            if db == Db::Postgres {
                let fill = "ALTER TABLE {p}_history SET (autovacuum_enabled = off)";
                connect::run(place, fill).await.unwrap();
            }
            crate::measurements::fill_history(place, 50_000).await;
            let history = sql.history_store().unwrap();
            let kept = HistoryLimits::from(40).at(from_millis(0).unwrap());
            history.trim_history("job 7", kept).await.unwrap();
            let (job, last) = (job_7(db), LAST.take());
            let page = HistoryQuery::new(100).name("job 7");
            let left = sql.history().unwrap().entries(page).await.unwrap();
            assert_eq!((left.len(), left[39].fence), (40, 10_007));
            let values = vec![job, "1", "9", job, "1", "9", "256"];
            let plan = plan(place, db, &last, values).await;
            assert!(!plan.contains("Seq Scan"), "{db:?}: {plan}");
            assert!(plan.contains(&format!("{}_history_name", place.prefix)), "{db:?}: {plan}");
            Vec::new()
        });
    }
}

/// The plan of a statement with these values.
async fn plan(place: &Place, db: Db, statement: &str, mut values: Vec<&str>) -> String {
    let mut text = statement.to_owned();
    for (i, value) in values.drain(..).enumerate().rev() {
        let numbered = [format!("${}", i + 1), format!("?{}", i + 1)];
        match numbered.iter().find(|place| text.contains(&**place)) {
            Some(place) => text = text.replace(place, value),
            None => {
                let last = text.rfind('?').unwrap();
                text.replace_range(last..=last, value);
            }
        }
    }
    match db {
        Db::Sqlite => {
            let mut conn = sqlx::SqliteConnection::connect(&place.url).await.unwrap();
            let text = AssertSqlSafe(format!("EXPLAIN QUERY PLAN {text}"));
            let rows = conn.fetch_all(sqlx::raw_sql(text)).await.unwrap();
            rows.iter().map(|row| row.get::<String, _>(3)).collect::<Vec<_>>().join("; ")
        }
        Db::Postgres => {
            let mut conn = sqlx::PgConnection::connect(&place.url).await.unwrap();
            // As in the sessions of the store.
            conn.execute("SET enable_bitmapscan = off; SET enable_seqscan = off").await.unwrap();
            let text = AssertSqlSafe(format!("EXPLAIN {text}"));
            let rows = conn.fetch_all(sqlx::raw_sql(text)).await.unwrap();
            rows.iter().map(|row| row.get::<String, _>(0)).collect::<Vec<_>>().join("\n")
        }
        Db::MySql => {
            let mut conn = sqlx::MySqlConnection::connect(&place.url).await.unwrap();
            let text = AssertSqlSafe(format!("EXPLAIN FORMAT=JSON {text}"));
            let rows = conn.fetch_all(sqlx::raw_sql(text)).await.unwrap();
            rows.iter().map(|row| row.get::<String, _>(0)).collect()
        }
    }
}

/// More rows are read only where leased ones are in front.
#[test]
fn a_due_query_is_one_statement_however_much_is_due() {
    for db in [Db::Postgres, Db::MySql] {
        let counts = counted(db, async |place| {
            let sql = place.open().await;
            let names: Vec<String> = (0..1_500).map(|i| format!("job {i}")).collect();
            let first = from_millis(1_000).unwrap();
            let new = NewSchedule::new("k", "d", Some(first.into()));
            let create: Vec<_> =
                names.iter().map(|name| Operation::new(name, Action::Create(new))).collect();
            replies(&sql, STORE, &create).await;
            let mut counts = vec![COUNT.get()];
            for limit in [10, 100, 1_000] {
                let query = DueQuery::new(&["k"], from_millis(2_000).unwrap(), limit);
                let due = sql.queries().unwrap().find_due(query, STORE).await.unwrap();
                assert_eq!((due.found.len(), due.next_due), (limit, Some(first)));
                counts.push(COUNT.get());
            }
            counts
        });
        if let Some(counts) = counts {
            assert_eq!(counts, [1, 1, 1], "{db:?}");
        }
    }
}

/// Also the first statements of a session, on a table of which the planner knows that it is small: it
/// would read all of it and join by hashing.
#[test]
fn claims_and_completions_read_no_table_from_end_to_end_on_postgres() {
    claims_and_completions_read_no_table_from_end_to_end(0);
}

#[test]
fn claims_and_completions_with_history_read_no_table_from_end_to_end_on_postgres() {
    claims_and_completions_read_no_table_from_end_to_end(100_000);
}

fn claims_and_completions_read_no_table_from_end_to_end(history: u64) {
    on(Db::Postgres, async move |place| {
        place.open().await;
        fill(&place, 10_000, "'k'", "i").await;
        connect::run(&place, "ANALYZE {p}_job; ANALYZE {p}_state").await.unwrap();
        let counted = async || counts(&place, "seq_scan", "idx_scan").await;
        pause(2_000).await;
        let before = counted().await;
        let sql = place.builder().history(history).connect(&place.url).await.unwrap();
        let query = DueQuery::new(&["k"], allora_core::time::end_of_time(), 500);
        assert_eq!(sql.queries().unwrap().find_due(query, STORE).await.unwrap().found.len(), 500);
        for claim_id in 0..3 {
            let query = ClaimDue::new("node", claim_id, &["k"], 500);
            let due = sql.queries().unwrap().claim_due(query, STORE).await.unwrap();
            assert_eq!(due.claimed.len(), 500);
            let ends = due.claimed.iter().map(|(job, claimed)| {
                let then = Cursor::To(None);
                Operation::complete(&job.name, claimed.fence, then, Completion::Succeeded)
            });
            let ended = replies(&sql, STORE, &ends.collect::<Vec<_>>()).await;
            assert!(ended.iter().all(|reply| reply.is_accepted()), "{ended:?}");
        }
        // Sessions report their counts a little later.
        for _ in 0..300 {
            let (whole, by_index) = counted().await;
            if by_index >= before.1 + 3 * 500 {
                assert_eq!(whole, before.0, "a statement has read a whole table");
                return;
            }
            pause(100).await;
        }
        panic!("the server does not count");
    });
}

/// A plan that was made while the tables were empty is kept while they grow. It must not read all that
/// was added since, beside each row of a batch.
#[test]
fn a_change_reads_only_its_own_rows_after_the_tables_have_grown_on_postgres() {
    on(Db::Postgres, async |place| {
        place.open().await;
        connect::run(&place, "ANALYZE {p}_job; ANALYZE {p}_state; ANALYZE {p}_data").await.unwrap();
        // One session, which keeps its plans.
        let sql = place.builder().connections(1).connect(&place.url).await.unwrap();
        let new = NewSchedule::new("k", "d", None).data(b"data");
        let add = async |names: &[String]| {
            let create = names.iter().map(|name| Operation::new(name, Action::Create(new)));
            let created = replies(&sql, STORE, &create.collect::<Vec<_>>()).await;
            let generation = |reply: Reply| reply.state().unwrap().generation;
            created.into_iter().map(generation).collect::<Vec<i64>>()
        };
        let modify = async |names: &[String], generations: &[i64]| {
            let edits = names.iter().zip(generations).map(|(name, generation)| {
                let mut edit = Edit::of(*generation);
                edit.data = Some(b"other");
                Operation::new(name, Action::Modify(edit))
            });
            let edited = replies(&sql, STORE, &edits.collect::<Vec<_>>()).await;
            assert!(edited.into_iter().all(|reply| reply.state().is_some()));
        };
        let first = ["first".to_owned()];
        modify(&first, &add(&first).await).await;
        let names: Vec<String> = (0..5_000).map(|i| format!("job {i}")).collect();
        let mut generations = Vec::new();
        for names in names.chunks(500) {
            generations.extend(add(names).await);
        }
        let counted = async || counts(&place, "idx_tup_fetch + seq_tup_read", "n_tup_ins").await;
        pause(2_000).await;
        let before = counted().await;
        modify(&names[..500], &generations[..500]).await;
        // Sessions report their counts a little later.
        for _ in 0..300 {
            let after = counted().await;
            if after.1 >= before.1 + 500 {
                let read = after.0 - before.0;
                assert!(read < 20 * 500, "{read} rows were read");
                return;
            }
            pause(100).await;
        }
        panic!("the server does not count");
    });
}

/// The server's counts of these two sorts, over the tables of records.
async fn counts(place: &Place, one: &str, other: &str) -> (i64, i64) {
    let mut conn = sqlx::PgConnection::connect(&place.url).await.unwrap();
    let text = format!(
        "SELECT SUM({one})::BIGINT, SUM({other})::BIGINT FROM pg_stat_user_tables \
         WHERE relname IN ('{p}_state', '{p}_job', '{p}_data', '{p}_history')",
        p = place.prefix
    );
    let row = conn.fetch_one(sqlx::raw_sql(AssertSqlSafe(text))).await.unwrap();
    (row.get(0), row.get(1))
}

/// An update that moves no indexed column writes no index, if the page has room.
#[test]
fn a_claim_is_a_heap_only_update_on_postgres() {
    on(Db::Postgres, async |place| {
        let sql = place.open().await;
        let names: Vec<String> = (0..500).map(|i| format!("job {i}")).collect();
        let first = from_millis(1_000).unwrap();
        let new = NewSchedule::new("k", "d", Some(first.into()));
        let create: Vec<_> =
            names.iter().map(|name| Operation::new(name, Action::Create(new))).collect();
        let created = replies(&sql, STORE, &create).await;
        let lease = Duration::from_secs(600);
        let claims = (1..).zip(names.iter().zip(created)).map(|(id, (name, reply))| {
            let fence = reply.state().unwrap().fence;
            Operation::claim(name, Claim::at_least_once(id, fence, first.into(), lease))
        });
        let claims: Vec<_> = claims.collect();
        let claimed = replies(&sql, STORE, &claims).await;
        assert!(claimed.into_iter().all(|reply| reply.claimed().is_some()));
        let mut conn = sqlx::PgConnection::connect(&place.url).await.unwrap();
        let counts = format!(
            "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = '{}_state'",
            place.prefix
        );
        // Sessions report their counts a little later.
        for _ in 0..300 {
            let row = conn.fetch_one(sqlx::raw_sql(AssertSqlSafe(counts.clone()))).await.unwrap();
            let (all, hot): (i64, i64) = (row.get(0), row.get(1));
            if all >= 500 {
                assert!(hot * 10 >= all * 9, "{hot} of {all}");
                return;
            }
            pause(100).await;
        }
        panic!("the server does not count");
    });
}

/// Claims a hundred jobs, completes them, and looks for others, in so many statements each.
fn batch(db: Db, history: u64, expected: [u64; 3]) {
    let counts = counted(db, async |place| {
        // One connection: another one would be set up by statements of its own.
        let builder = place.builder().history(history).connections(1);
        let sql = builder.connect(&place.url).await.unwrap();
        let names: Vec<String> = (0..100).map(|i| format!("job {i}")).collect();
        let first: NextRun = from_millis(1_000).unwrap().into();
        let register = Action::Register { definition: "d", version: 0, first: Some(first) };
        let registrations: Vec<Operation<'_>> =
            names.iter().map(|name| Operation::new(name, register.clone())).collect();
        let known = replies(&sql, STORE, &registrations).await;
        let lease = Duration::from_secs(60);
        // Later than any clock: no other run waits for the ends of these.
        let then = Cursor::To(Some(from_millis(9_999_999_999_999).unwrap().into()));
        let claims = (1..).zip(names.iter().zip(known)).map(|(id, (name, reply))| {
            let (fence, expected) = (reply.state().unwrap().fence, first.scheduled_at.into());
            let claim = Claim::at_most_once(id, fence, expected, then, lease, Sharing::Shared);
            Operation::claim(name, claim)
        });
        let claims: Vec<Operation<'_>> = claims.collect();
        let mut counts = vec![COUNT.get()];
        let claimed = replies(&sql, STORE, &claims).await;
        counts.push(COUNT.get());
        let ends = names.iter().zip(claimed).map(|(name, reply)| {
            let fence = reply.claimed().unwrap().fence;
            Operation::complete(name, fence, Cursor::Keep, Completion::Succeeded)
        });
        let ends: Vec<Operation<'_>> = ends.collect();
        let ended = replies(&sql, STORE, &ends).await;
        assert!(ended.iter().all(|reply| reply.is_accepted()), "{ended:?}");
        counts.push(COUNT.get());
        let query = DueQuery::new(&["mail"], allora_core::time::end_of_time(), 10);
        let due = sql.queries().unwrap().find_due(query, STORE).await.unwrap();
        assert_eq!((due.found.len(), due.next_due), (0, None));
        assert!(due.now > from_millis(1_700_000_000_000).unwrap(), "the database's clock");
        counts.push(COUNT.get());
        counts
    });
    if let Some(counts) = counts {
        assert_eq!(counts, expected);
    }
}

fn last_runs(db: Db, history: u64, expected: u64) {
    let counts = counted(db, async |place| {
        let builder = place.builder().history(history).connections(1);
        let sql = builder.connect(&place.url).await.unwrap();
        let names: Vec<String> = (0..100).map(|i| format!("job {i:02}")).collect();
        let first = from_millis(1_000).unwrap();
        let definition = "at 1970-01-01 00:00:01; at-least-once 60s";
        let new = || NewSchedule::new("k", definition, Some(first.into()));
        let create = names.iter().map(|name| Operation::new(name, Action::Create(new())));
        replies(&sql, STORE, &create.collect::<Vec<_>>()).await;
        let queries = sql.queries().unwrap();
        let claimed = queries.claim_due(ClaimDue::new("n", 1, &["k"], 100), STORE).await.unwrap();
        let ends = claimed.claimed.iter().map(|(job, claimed)| {
            let then = Cursor::To(None);
            Operation::complete(&job.name, claimed.fence, then, Completion::Succeeded)
        });
        let ends: Vec<Operation<'_>> = ends.collect();
        let before = COUNT.get();
        let ended = replies(&sql, STORE, &ends).await;
        let after = COUNT.get();
        assert!(ended.len() == 100 && ended.iter().all(|reply| reply.is_accepted()), "{ended:?}");
        let page = Page::first(200);
        let ended = sql.queries().unwrap().flagged(Flag::Ended, page, STORE).await.unwrap();
        assert!(ended.found.iter().map(|state| &state.name).eq(&names), "{db:?}");
        vec![before, after]
    });
    if let Some(counts) = counts {
        assert_eq!(counts, [expected], "{db:?}");
    }
}

/// The numbers of statements between the counts that `work` returns; `None` without the database.
fn counted(db: Db, work: impl AsyncFnOnce(&Place) -> Vec<u64>) -> Option<Vec<u64>> {
    let place = db.place()?;
    // One thread, which has the counter.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    static COUNTER: Once = Once::new();
    COUNTER.call_once(|| tracing::subscriber::set_global_default(Counter).unwrap());
    let counts = runtime.block_on(async {
        let counts = work(&place).await;
        place.clear().await;
        counts
    });
    Some(counts.windows(2).map(|pair| pair[1] - pair[0]).collect())
}

thread_local! {
    /// The number of statements of this thread: other tests run beside.
    static COUNT: Cell<u64> = const { Cell::new(0) };
    /// The last statement of this thread.
    static LAST: Cell<String> = const { Cell::new(String::new()) };
}

struct Counter;

impl Subscriber for Counter {
    fn register_callsite(&self, _: &'static Metadata<'static>) -> Interest {
        Interest::sometimes()
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "sqlx::query"
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        event.record(&mut Only);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// Counts the events that tell a statement.
struct Only;

impl Visit for Only {
    fn record_debug(&mut self, field: &Field, _: &dyn std::fmt::Debug) {
        if field.name() == "summary" {
            COUNT.set(COUNT.get() + 1);
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            // Empty if the summary is the whole statement.
            "db.statement" => LAST.set(value.to_owned()),
            _ => self.record_debug(field, &value),
        }
    }
}
