//! Every statement, for every database. What they say alike is here; how one of them says it
//! differently is in its own file.
//!
//! This is the one place where SQL text is put together. What goes into it is a checked prefix,
//! names of columns, and numbers of placeholders; whatever comes from outside is bound.

pub(crate) mod fast;
#[cfg(feature = "mysql")]
pub(crate) mod mysql;
#[cfg(feature = "postgres")]
pub(crate) mod postgres;
#[cfg(feature = "sqlite")]
pub(crate) mod sqlite;

use crate::{
    driver::{Statement, Value},
    row::{JOB, Type},
};
use allora_core::backend::{Page, Past};
use fast::{Asker, Fast, SimpleEnd, SimpleTake};
use sqlx::{AssertSqlSafe, SqlSafeStr, SqlStr};
use std::{
    fmt::Write,
    sync::{Arc, LazyLock},
};

/// The newest version of the tables that this build knows.
pub(crate) const SCHEMA: i64 = 1;

/// Rows to a statement: PostgreSQL and MySQL bind at most 65 535 values, SQLite half of that.
pub(crate) const CHUNK: usize = 512;

/// How one database says it.
pub(crate) trait Flavour: Send + Sync {
    /// The type of a column.
    fn column(&self, of: Type) -> &'static str;
    /// What stands behind the parenthesis of a `CREATE TABLE`.
    fn table_options(&self) -> &'static str;
    /// The `i`th placeholder, from 1.
    fn placeholder(&self, sql: &mut String, i: usize);
    /// Microseconds since 1970 by the database's clock, not by the start of the transaction.
    fn clock(&self) -> &'static str;
    /// Locks what a `SELECT` read; empty where the whole database is locked anyway.
    fn for_update(&self) -> &'static str;
    /// The tail of an `INSERT` that replaces these columns where the key is there.
    fn or_replace(&self, key: &str, columns: &[&str]) -> String;
    /// Text that reads one row of the number 1 if the index is there.
    fn index_exists(&self, table: &str, index: &str) -> String;
    /// Text that reads one row of the number 1 if the table is there.
    fn table_exists(&self, table: &str) -> String;
    /// Keeps other nodes from migrating at the same time, until [`unlock`](Self::unlock) or the end
    /// of the transaction; `None` where the transaction does.
    fn lock(&self, prefix: &str) -> Option<String>;
    /// The end of [`lock`](Self::lock), where a transaction's end is not.
    fn unlock(&self, prefix: &str) -> Option<String>;
    /// Waits so many milliseconds, where nothing else makes the next try later.
    fn pause(&self, ms: u64) -> Option<String>;
    /// The part of a `WHERE` that limits the key of an index to rows to be noticed.
    fn notice_index_filter(&self) -> &'static str;
    /// The clock is read behind the lock, row by row: see the dialect's own file.
    fn locked(&self, dialect: &Dialect, names: &str) -> String {
        dialect.select(&format!("WHERE j.name IN ({names}) ORDER BY j.name{}", self.for_update()))
    }
    /// The `i`th placeholder where the database does not see of which type it is.
    fn typed_placeholder(&self, sql: &mut String, i: usize, _: Type) {
        self.placeholder(sql, i);
    }
    /// Whether an `INSERT` that replaces may say one row twice.
    fn repeats_rows(&self) -> bool;
    /// The lesser of two numbers.
    fn least(&self, one: &str, other: &str) -> String {
        format!("LEAST({one}, {other})")
    }
    /// The greater of two numbers.
    fn greatest(&self, one: &str, other: &str) -> String {
        format!("GREATEST({one}, {other})")
    }
    /// Between two whole numbers, for a whole number.
    fn whole_division(&self) -> &'static str {
        "/"
    }
    /// One statement for many takes of the commonest shape; it answers with what was won.
    fn takes(&self, dialect: &Dialect, asker: &Asker<'_>, takes: &[SimpleTake<'_>]) -> Fast;
    /// One statement for many endings of the commonest shape.
    fn endings(&self, dialect: &Dialect, asker: &Asker<'_>, ends: &[SimpleEnd<'_>]) -> Fast;
    /// Whether [`endings`](Self::endings) can tell how long an extension extends.
    fn extends_at_once(&self) -> bool {
        true
    }
    /// Tells those who listen on the channel, where the database can.
    fn notify(&self, _channel: &str, _payload: &str) -> Option<Statement> {
        None
    }
}

/// A flavour with the prefix of its tables.
#[derive(Clone)]
pub(crate) struct Dialect {
    pub(crate) prefix: String,
    pub(crate) flavour: Arc<dyn Flavour>,
}

const HISTORY: &[(&str, Type)] = &[
    ("fence", Type::Int),
    ("name", Type::Name),
    ("run_at", Type::Int),
    ("trigger_id", Type::BytesOrNull),
    ("last_at", Type::IntOrNull),
    ("passed", Type::IntOrNull),
    ("attempt", Type::Int),
    ("node", Type::Bytes),
    ("noted_at", Type::Int),
    ("outcome", Type::Bytes),
    ("error", Type::BytesOrNull),
];

const DATA: &[(&str, Type)] =
    &[("name", Type::Name), ("edition", Type::Int), ("data", Type::Bytes)];

const META: &[(&str, Type)] = &[("name", Type::Name), ("value", Type::Int)];

/// The shape of a job's row as it is read: the clock, the columns, the payload.
static JOB_SHAPE: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let kinds = shape(JOB);
    [b"i", &kinds[..], b"b"].concat()
});

static HISTORY_SHAPE: LazyLock<Vec<u8>> = LazyLock::new(|| shape(HISTORY));

fn shape(columns: &[(&str, Type)]) -> Vec<u8> {
    let kind = |(_, of): &(&str, Type)| match of {
        Type::Int | Type::IntOrNull => b'i',
        Type::Name | Type::Bytes | Type::BytesOrNull => b'b',
    };
    columns.iter().map(kind).collect()
}

/// Asserts that a text was put together from this module's parts only.
pub(crate) fn sql(text: impl Into<String>) -> SqlStr {
    AssertSqlSafe(text.into()).into_sql_str()
}

impl Statement {
    pub(crate) fn new(text: impl Into<String>, args: Vec<Value>, shape: &'static [u8]) -> Self {
        Self { sql: sql(text), args, shape }
    }
}

impl Dialect {
    /// The database's clock.
    pub(crate) fn now(&self) -> Statement {
        Statement::new(format!("SELECT {}", self.flavour.clock()), Vec::new(), b"i")
    }

    /// Reads these rows, and locks them.
    pub(crate) fn lock_rows(&self, names: &[&str]) -> Statement {
        let (placeholders, args) = self.list(names, 1);
        Statement::new(self.flavour.locked(self, &placeholders), args, &JOB_SHAPE)
    }

    /// Reads these rows.
    pub(crate) fn rows(&self, names: &[&str]) -> Statement {
        let (placeholders, args) = self.list(names, 1);
        let text = self.select(&format!("WHERE j.name IN ({placeholders})"));
        Statement::new(text, args, &JOB_SHAPE)
    }

    /// `SELECT` of whole jobs; `j` is the job.
    pub(crate) fn select(&self, tail: &str) -> String {
        self.select_from(&format!("{}_job j", self.prefix), tail)
    }

    fn select_from(&self, jobs: &str, tail: &str) -> String {
        format!(
            "SELECT {clock}, {columns}, d.data FROM {jobs} LEFT JOIN {p}_data d \
             ON d.name = j.name AND d.edition = j.data_edition {tail}",
            clock = self.flavour.clock(),
            columns = self.job_columns("j"),
            p = self.prefix,
        )
    }

    pub(crate) fn job_columns(&self, of: &str) -> String {
        let names: Vec<String> = JOB.iter().map(|(name, _)| format!("{of}.{name}")).collect();
        names.join(", ")
    }

    /// Adds rows; an error of a unique key if one is there.
    pub(crate) fn insert_jobs(&self, rows: &[Vec<Value>]) -> Vec<Statement> {
        self.insert("job", JOB, rows, "")
    }

    /// Writes rows whether they are there or not.
    pub(crate) fn put_jobs(&self, rows: &[Vec<Value>]) -> Vec<Statement> {
        let names: Vec<&str> = JOB[1..].iter().map(|(name, _)| *name).collect();
        self.insert("job", JOB, rows, &self.flavour.or_replace("name", &names))
    }

    /// Stores payloads: name, edition, bytes.
    pub(crate) fn put_data(&self, data: &[(&str, i64, &[u8])]) -> Vec<Statement> {
        let row = |(name, edition, data): &(&str, i64, &[u8])| {
            vec![Value::bytes(name), Value::int(*edition), Value::bytes(data)]
        };
        let rows: Vec<Vec<Value>> = data.iter().map(row).collect();
        self.insert("data", DATA, &rows, &self.flavour.or_replace("name, edition", &["data"]))
    }

    /// Removes the payloads of a job but that of this edition.
    pub(crate) fn drop_data(&self, name: &str, but: Option<i64>) -> Statement {
        let mut text = format!("DELETE FROM {}_data WHERE name = ", self.prefix);
        self.flavour.placeholder(&mut text, 1);
        text.push_str(" AND edition <> ");
        self.flavour.placeholder(&mut text, 2);
        // Editions are fences, and so never negative.
        Statement::new(text, vec![Value::bytes(name), Value::int(but.unwrap_or(-1))], b"")
    }

    pub(crate) fn put_history(&self, entries: &[Past]) -> Vec<Statement> {
        let rows: Vec<Vec<Value>> = entries.iter().map(crate::history::columns).collect();
        let names: Vec<&str> = HISTORY[2..].iter().map(|(name, _)| *name).collect();
        self.insert("history", HISTORY, &rows, &self.flavour.or_replace("fence, name", &names))
    }

    /// The newest entries of one job, or of all.
    pub(crate) fn past(&self, name: Option<&str>, before: Option<i64>, limit: i64) -> Statement {
        let columns: Vec<&str> = HISTORY.iter().map(|(name, _)| *name).collect();
        let mut text =
            format!("SELECT {} FROM {}_history WHERE fence < ", columns.join(", "), self.prefix);
        let mut args = vec![Value::int(before.unwrap_or(i64::MAX))];
        self.flavour.placeholder(&mut text, 1);
        if let Some(name) = name {
            text.push_str(" AND name = ");
            args.push(Value::bytes(name));
            self.flavour.placeholder(&mut text, 2);
        }
        text.push_str(" ORDER BY fence DESC, name DESC LIMIT ");
        args.push(Value::int(limit));
        self.flavour.placeholder(&mut text, args.len());
        Statement::new(text, args, &HISTORY_SHAPE)
    }

    /// The fence of the `limit`th newest entry.
    pub(crate) fn history_edge(&self, limit: i64) -> Statement {
        let mut text = format!(
            "SELECT fence FROM {}_history ORDER BY fence DESC LIMIT 1 OFFSET ",
            self.prefix
        );
        self.flavour.placeholder(&mut text, 1);
        Statement::new(text, vec![Value::int(limit)], b"i")
    }

    /// Forgets the entries up to this fence.
    pub(crate) fn trim_history(&self, fence: i64) -> Statement {
        let mut text = format!("DELETE FROM {}_history WHERE fence <= ", self.prefix);
        self.flavour.placeholder(&mut text, 1);
        Statement::new(text, vec![Value::int(fence)], b"")
    }

    /// The jobs of these kinds that are to be noticed, the earliest first: of each kind at most
    /// `limit` behind the first `skip`, by the index.
    pub(crate) fn find(&self, kinds: &[&str], skip: usize, limit: usize) -> Statement {
        let [skip, limit] = [skip, limit].map(|n| i64::try_from(n).unwrap_or(i64::MAX));
        let mut names = String::new();
        let mut args = Vec::new();
        // Names first, from the index alone: rows that are carried through derived tables are
        // written to disk on the way by MariaDB, which has been seen to crash there (10.11.19, in
        // `ha_maria::drop_table`).
        for kind in kinds {
            if !names.is_empty() {
                names.push_str(" UNION ALL ");
            }
            let _ = write!(
                names,
                "SELECT * FROM (SELECT name FROM {}_job \
                 WHERE notice_at IS NOT NULL AND gone_at IS NULL AND kind = ",
                self.prefix
            );
            args.push(Value::bytes(kind));
            self.flavour.placeholder(&mut names, args.len());
            names.push_str(" ORDER BY notice_at, name LIMIT ");
            args.push(Value::int(limit));
            self.flavour.placeholder(&mut names, args.len());
            names.push_str(" OFFSET ");
            args.push(Value::int(skip));
            self.flavour.placeholder(&mut names, args.len());
            let _ = write!(names, ") k{}", args.len());
        }
        let text = format!(
            "SELECT c.ticked, {columns}, d.data FROM (SELECT {clock} AS ticked) c \
             LEFT JOIN ({names}) f ON 1 = 1 LEFT JOIN {p}_job j ON j.name = f.name \
             LEFT JOIN {p}_data d ON d.name = j.name AND d.edition = j.data_edition",
            columns = self.job_columns("j"),
            clock = self.flavour.clock(),
            p = self.prefix,
        );
        Statement::new(text, args, &JOB_SHAPE)
    }

    /// The first kind after this one, by the index of what is to be noticed. Tombstones are in it
    /// too, but without a kind.
    pub(crate) fn kind_after(&self, kind: &str) -> Statement {
        let mut text =
            format!("SELECT kind FROM {}_job WHERE notice_at IS NOT NULL AND kind > ", self.prefix);
        self.flavour.placeholder(&mut text, 1);
        text.push_str(" ORDER BY kind LIMIT 1");
        Statement::new(text, vec![Value::bytes(kind)], b"b")
    }

    /// Stops looking for a row that nobody can read.
    pub(crate) fn park(&self, name: &str) -> Statement {
        let mut text = format!("UPDATE {}_job SET notice_at = NULL WHERE name = ", self.prefix);
        self.flavour.placeholder(&mut text, 1);
        Statement::new(text, vec![Value::bytes(name)], b"")
    }

    /// A page of the list. Its names first, by the key alone: a planner without statistics would
    /// rather join all jobs with all payloads than so few.
    pub(crate) fn list_jobs(&self, page: &Page<'_>) -> Statement {
        let mut names =
            format!("SELECT name FROM {}_job WHERE gone_at IS NULL AND name > ", self.prefix);
        let mut args = vec![Value::bytes(page.after.unwrap_or_default())];
        self.flavour.placeholder(&mut names, 1);
        let mut also = |condition: &str, value: Value| {
            args.push(value);
            names.push_str(condition);
            self.flavour.placeholder(&mut names, args.len());
        };
        if !page.prefix.is_empty() {
            also(" AND name >= ", Value::bytes(page.prefix));
            // UTF-8 has no byte 0xFF, so that this is behind all names that begin so.
            also(" AND name < ", Value::bytes([page.prefix.as_bytes(), &[0xFF]].concat()));
        }
        if let Some(kind) = page.kind {
            also(" AND kind = ", Value::bytes(kind));
        }
        let limit = i64::try_from(page.limit).unwrap_or(i64::MAX);
        also(" ORDER BY name LIMIT ", Value::int(limit));
        let jobs = format!("({names}) k JOIN {}_job j ON j.name = k.name", self.prefix);
        Statement::new(self.select_from(&jobs, "ORDER BY j.name"), args, &JOB_SHAPE)
    }

    /// Names and fences of tombstones whose time has come.
    pub(crate) fn old_tombstones(&self, now_ms: i64) -> Statement {
        let mut text = format!("SELECT name, fence FROM {}_job WHERE kind = ", self.prefix);
        self.flavour.placeholder(&mut text, 1);
        text.push_str(" AND gone_at IS NOT NULL AND notice_at <= ");
        self.flavour.placeholder(&mut text, 2);
        text.push_str(" ORDER BY notice_at LIMIT 100");
        text.push_str(self.flavour.for_update());
        Statement::new(text, vec![Value::bytes(""), Value::int(now_ms)], b"bi")
    }

    /// Removes rows.
    pub(crate) fn forget(&self, names: &[&str]) -> Statement {
        let (placeholders, args) = self.list(names, 1);
        let text = format!("DELETE FROM {}_job WHERE name IN ({placeholders})", self.prefix);
        Statement::new(text, args, b"")
    }

    /// A number kept for the whole namespace.
    pub(crate) fn meta(&self, name: &str, lock: bool) -> Statement {
        let mut text = format!("SELECT value FROM {}_meta WHERE name = ", self.prefix);
        self.flavour.placeholder(&mut text, 1);
        if lock {
            text.push_str(self.flavour.for_update());
        }
        Statement::new(text, vec![Value::bytes(name)], b"i")
    }

    pub(crate) fn put_meta(&self, name: &str, value: i64) -> Vec<Statement> {
        let row = vec![Value::bytes(name), Value::int(value)];
        self.insert("meta", META, &[row], &self.flavour.or_replace("name", &["value"]))
    }

    fn insert(
        &self,
        table: &str,
        columns: &[(&str, Type)],
        rows: &[Vec<Value>],
        tail: &str,
    ) -> Vec<Statement> {
        let names: Vec<&str> = columns.iter().map(|(name, _)| *name).collect();
        let head = format!("INSERT INTO {}_{table} ({}) VALUES ", self.prefix, names.join(", "));
        let statement = |rows: &[Vec<Value>]| {
            let mut text = head.clone();
            let mut i = 0;
            for row in 0..rows.len() {
                text.push_str(if row == 0 { "(" } else { ", (" });
                for column in 0..columns.len() {
                    if column > 0 {
                        text.push_str(", ");
                    }
                    i += 1;
                    self.flavour.placeholder(&mut text, i);
                }
                text.push(')');
            }
            text.push_str(tail);
            Statement::new(text, rows.concat(), b"")
        };
        if tail.is_empty() || !self.flavour.repeats_rows() {
            return even_chunks(rows).map(statement).collect();
        }
        let padded = |rows: &[Vec<Value>]| {
            let len = rows.len().next_power_of_two();
            let last = rows.last().into_iter().cycle();
            let rows: Vec<Vec<Value>> = rows.iter().chain(last).take(len).cloned().collect();
            statement(&rows)
        };
        rows.chunks(CHUNK).map(padded).collect()
    }

    /// The rows of a table of bound values, with rows of nothing up to a power of two, so that few
    /// different statements are prepared. `before` stands before each.
    #[cfg(any(feature = "sqlite", feature = "mysql"))]
    fn values(
        &self,
        before: &str,
        columns: &fast::Columns,
        rows: Vec<Vec<Value>>,
        args: &mut Vec<Value>,
    ) -> String {
        let len = rows.len().next_power_of_two();
        let nothing = || vec![Value::Int(None); columns.len()];
        let mut text = String::new();
        for row in rows.into_iter().chain(std::iter::repeat_with(nothing)).take(len) {
            text.push_str(if text.is_empty() { "" } else { ", " });
            text.push_str(before);
            for (i, (value, (_, of))) in row.into_iter().zip(columns).enumerate() {
                text.push_str(if i == 0 { "(" } else { ", " });
                args.push(value);
                self.flavour.typed_placeholder(&mut text, args.len(), *of);
            }
            text.push(')');
        }
        text
    }

    /// A list of names, padded by repetition so that few different statements are prepared.
    fn list<T: AsRef<[u8]>>(&self, names: &[T], first: usize) -> (String, Vec<Value>) {
        let len = names.len().next_power_of_two();
        let all = names.iter().map(AsRef::as_ref);
        let last = names.last().map_or(&b""[..], AsRef::as_ref);
        let args: Vec<Value> =
            all.chain(std::iter::repeat(last)).take(len).map(Value::bytes).collect();
        let mut text = String::new();
        for i in 0..args.len() {
            if i > 0 {
                text.push_str(", ");
            }
            self.flavour.placeholder(&mut text, first + i);
        }
        (text, args)
    }

    /// What brings the tables to this version from the one before; each step can be run again.
    pub(crate) fn migration(&self, to: i64) -> Vec<Step> {
        match to {
            1 => self.first_tables(),
            _ => Vec::new(),
        }
    }

    /// The tables of version 1. They are never edited: what changes later is a further migration.
    fn first_tables(&self) -> Vec<Step> {
        let p = &self.prefix;
        let table = |name: &str, columns: &[(&str, Type)], key: &str| {
            let mut text = format!("CREATE TABLE IF NOT EXISTS {p}_{name} (");
            for (column, of) in columns {
                let _ = write!(text, "{column} {}, ", self.flavour.column(*of));
            }
            let _ = write!(text, "PRIMARY KEY ({key})){}", self.flavour.table_options());
            Step::Run(sql(text))
        };
        let index = |table: &str, columns: &str, filter: &str| {
            let (index, table) = (format!("{p}_{}", index_name(table)), format!("{p}_{table}"));
            let is_there = self.flavour.index_exists(&table, &index);
            let create = format!("CREATE INDEX {index} ON {table} ({columns}){filter}");
            Step::Index {
                is_there: Statement::new(is_there, Vec::new(), b"i"),
                create: sql(create),
            }
        };
        vec![
            table("meta", META, "name"),
            table("job", JOB, "name"),
            table("data", DATA, "name, edition"),
            table("history", HISTORY, "fence, name"),
            index("job", "kind, notice_at, name", self.flavour.notice_index_filter()),
            index("history", "name, fence", ""),
        ]
    }

    /// Whether the tables are there at all.
    pub(crate) fn has_tables(&self) -> Statement {
        let text = self.flavour.table_exists(&format!("{}_meta", self.prefix));
        Statement::new(text, Vec::new(), b"i")
    }

    /// What must be there: reads nothing, or fails where a table or column is missing.
    pub(crate) fn probes(&self) -> Vec<(String, Statement)> {
        [("meta", META), ("job", JOB), ("data", DATA), ("history", HISTORY)]
            .into_iter()
            .map(|(table, columns)| {
                let names: Vec<&str> = columns.iter().map(|(name, _)| *name).collect();
                let table = format!("{}_{table}", self.prefix);
                let text = format!("SELECT {} FROM {table} WHERE 1 = 0", names.join(", "));
                (table, Statement::new(text, Vec::new(), b""))
            })
            .collect()
    }

    /// The indexes with their tables, and how to see that one is there.
    pub(crate) fn indexes(&self) -> Vec<(String, String, Statement)> {
        ["job", "history"]
            .into_iter()
            .map(|table| {
                let index = format!("{}_{}", self.prefix, index_name(table));
                let table = format!("{}_{table}", self.prefix);
                let text = self.flavour.index_exists(&table, &index);
                (index, table, Statement::new(text, Vec::new(), b"i"))
            })
            .collect()
    }
}

/// One step of a migration.
pub(crate) enum Step {
    /// A statement that can be run again.
    Run(SqlStr),
    /// An index: not every database creates one only if it is not there.
    Index {
        /// Reads a row if it is.
        is_there: Statement,
        create: SqlStr,
    },
}

fn index_name(table: &str) -> &'static str {
    if table == "job" { "job_notice" } else { "history_name" }
}

/// Cuts into pieces of a power of two, so that few different statements are prepared.
fn even_chunks<T>(mut rest: &[T]) -> impl Iterator<Item = &[T]> {
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let len = if rest.len() >= CHUNK { CHUNK } else { 1 << rest.len().ilog2() };
        let (piece, more) = rest.split_at(len);
        rest = more;
        Some(piece)
    })
}
