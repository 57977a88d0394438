//! Statements that read.

use super::{Dialect, names, shape};
use crate::{
    driver::{Statement, Type, Value},
    encoding::{DELETED, HISTORY, JOB, LONGEST},
    prune::Place,
};
use allora_core::backend::{HistoryQuery, Page};
use std::sync::LazyLock;

/// The shape of a loaded row: the lowest fence, the clock, the columns, the data.
static LOAD_SHAPE: LazyLock<Vec<u8>> = LazyLock::new(|| [b"ii", &shape(JOB)[..], b"b"].concat());

/// The shape of a found row: the first later time, the clock, the columns, the data, and the time of a
/// record that is left out.
static FOUND_SHAPE: LazyLock<Vec<u8>> = LazyLock::new(|| [b"ii", &shape(JOB)[..], b"bi"].concat());

/// The shape of a listed row: the clock, the columns, the data.
static LISTED_SHAPE: LazyLock<Vec<u8>> = LazyLock::new(|| [b"i", &shape(JOB)[..], b"b"].concat());

/// The shape of a locked row: the clock, the columns.
static LOCKED_SHAPE: LazyLock<Vec<u8>> = LazyLock::new(|| [b"i", &shape(JOB)[..]].concat());

static HISTORY_SHAPE: LazyLock<Vec<u8>> = LazyLock::new(|| shape(HISTORY));

/// The most kinds that one statement returns: MySQL allows a thousand steps of a recursion.
pub(crate) const KINDS: usize = 500;

/// The rows of the due index to find.
pub(crate) struct DueRange<'a> {
    /// At most [`Flavour::kinds_at_once`](super::Flavour::kinds_at_once).
    pub(crate) kinds: &'a [&'a str],
    /// The end of the range, in milliseconds.
    pub(crate) until: i64,
    /// The number of the first rows of each kind to leave out.
    pub(crate) skip: i64,
    /// The most rows.
    pub(crate) limit: i64,
    /// The most bytes of data, except that one row is always found.
    pub(crate) bytes: i64,
}

/// Subqueries of a due query.
pub(crate) struct Due {
    /// The names and their times, the earliest first.
    pub(super) names: String,
    /// The first time in the index at or after the end of the range.
    pub(super) later: String,
}

impl Due {
    /// A `SELECT` for each kind. Databases plan a few of them quickly, and hundreds slowly.
    pub(super) fn of_each_kind(
        dialect: &Dialect,
        due: &DueRange<'_>,
        args: &mut Vec<Value>,
    ) -> Self {
        let p = &dialect.prefix;
        let mut bind = |value: Value| {
            args.push(value);
            let mut placeholder = String::new();
            dialect.flavour.placeholder(&mut placeholder, args.len());
            placeholder
        };
        // In the order of the text, because not every database numbers its placeholders.
        let later = due.kinds.iter().map(|kind| {
            let (kind, until) = (bind(Value::bytes(kind)), bind(Value::int(due.until)));
            format!("SELECT MIN(index_at) AS due FROM {p}_job WHERE kind = {kind} AND index_at >= {until}")
        });
        let later: Vec<String> = later.collect();
        let names = due.kinds.iter().enumerate().map(|(i, kind)| {
            let (kind, until) = (bind(Value::bytes(kind)), bind(Value::int(due.until)));
            let (limit, skip) = (bind(Value::int(due.limit)), bind(Value::int(due.skip)));
            format!(
                "SELECT * FROM (SELECT name, index_at FROM {p}_job \
                 WHERE kind = {kind} AND index_at < {until} \
                 ORDER BY index_at, name LIMIT {limit} OFFSET {skip}) k{i}"
            )
        });
        let names: Vec<String> = names.collect();
        let names = match names.as_slice() {
            [only] => only.clone(),
            all => {
                let (all, limit) = (all.join(" UNION ALL "), bind(Value::int(due.limit)));
                format!(
                    "SELECT name, index_at FROM ({all}) k ORDER BY index_at, name LIMIT {limit}"
                )
            }
        };
        let later = match later.as_slice() {
            [only] => only.clone(),
            all => format!("SELECT MIN(due) FROM ({}) l", all.join(" UNION ALL ")),
        };
        Self { names, later }
    }
}

impl Dialect {
    /// The database's clock.
    pub(crate) fn now(&self) -> Statement {
        Statement::new(format!("SELECT {}", self.flavour.clock()), Vec::new(), b"i")
    }

    /// Reads these records with the clock beside, which is there also if nothing is found.
    pub(crate) fn load(&self, keys: &[&str]) -> Statement {
        let keys: Vec<&[u8]> = keys.iter().map(|key| key.as_bytes()).collect();
        let mut args = Vec::new();
        let beside = self.beside(&mut args);
        let (is_key, more) = self.flavour.is_any("j.name", &keys, args.len() + 1);
        args.extend(more);
        let text = format!(
            "SELECT c.min_fence, c.db_now, {columns}, {data} FROM ({beside}) c \
             LEFT JOIN {p}_job j ON {is_key}",
            columns = columns_of("j"),
            data = self.data(),
            p = self.prefix,
        );
        Statement::new(text, args, &LOAD_SHAPE)
    }

    /// Reads one record without its data, and locks it. The clock is read behind the lock.
    pub(crate) fn load_locked(&self, name: &str) -> Statement {
        let mut condition = "j.name = ".to_owned();
        self.flavour.placeholder(&mut condition, 1);
        let what = format!("{}, {}", self.flavour.clock(), columns_of("j"));
        let jobs = format!("{}_job", self.prefix);
        let text = self.flavour.select_locked(&what, &jobs, &condition);
        Statement::new(text, vec![Value::bytes(name)], &LOCKED_SHAPE)
    }

    /// Locks these rows, and reads the clock, their names and versions.
    pub(crate) fn lock_versions(&self, keys: &[&[u8]]) -> Statement {
        let (is_key, args) = self.flavour.is_any("j.name", keys, 1);
        let text = format!(
            "SELECT {clock}, j.name, j.version FROM {p}_job j WHERE {is_key} ORDER BY j.name{lock}",
            clock = self.flavour.clock(),
            p = self.prefix,
            lock = self.flavour.for_update(),
        );
        Statement::new(text, args, b"ibi")
    }

    /// A row with the clock and the lowest fence.
    fn beside(&self, args: &mut Vec<Value>) -> String {
        args.push(Value::bytes("min_fence"));
        let mut key = String::new();
        self.flavour.placeholder(&mut key, args.len());
        format!(
            "SELECT {clock} AS db_now, \
             COALESCE((SELECT value FROM {p}_meta WHERE name = {key}), 0) AS min_fence",
            clock = self.flavour.clock(),
            p = self.prefix,
        )
    }

    /// The data of the job `j`. A subquery, because a planner without statistics would rather read
    /// the whole table once than a row of it for each job.
    fn data(&self) -> String {
        format!(
            "(SELECT {} FROM {}_data d WHERE d.name = j.name AND d.generation = j.data_generation)",
            bounded("d.data", "NULL"),
            self.prefix
        )
    }

    /// The records with these names, from a `SELECT` that reads the names alone, of those that meet a
    /// condition. `beside` is a row that is there also if nothing is found.
    fn records(&self, beside: &str, names: &str, condition: &str, more: &str) -> String {
        let columns = columns_of("j");
        let rows = self.flavour.rows_of_names(&self.prefix, condition);
        let data = self.data();
        format!(
            "SELECT c.*, {columns}, {data}{more} \
             FROM ({beside}) c LEFT JOIN ({names}) f ON 1 = 1 {rows}"
        )
    }

    /// The jobs of these kinds that are in the due index before a time, the earliest first; and the
    /// first time in the index from then on. Those whose data would be too much are left out, except
    /// for their times.
    pub(crate) fn find_due(&self, due: &DueRange<'_>) -> Statement {
        let mut args = Vec::new();
        // Names first, from the index alone: rows that are carried through derived tables are
        // written to disk on the way by MariaDB, which has been seen to crash there (10.11.19, in
        // `ha_maria::drop_table`).
        let Due { names, later } = self.flavour.due(self, due, &mut args);
        let clock = self.flavour.clock();
        let beside = format!("SELECT ({later}) AS later_at, {clock} AS db_now");
        // The sizes are those of what is stored, whose bytes no database reads for that.
        // The limit keeps MariaDB from merging this into what is around it, where it then does not find
        // the columns.
        let sized = format!(
            "SELECT n.name, n.index_at, COALESCE((\
               SELECT LENGTH(d.data) FROM {}_data d WHERE d.name = n.name \
               ORDER BY d.generation DESC LIMIT 1), 0) AS bytes \
             FROM ({names}) n LIMIT {}",
            self.prefix,
            i32::MAX,
        );
        let summed = format!(
            "SELECT s.name, s.index_at, SUM(s.bytes) OVER (\
               ORDER BY s.index_at, s.name ROWS UNBOUNDED PRECEDING) - s.bytes AS before_it \
             FROM ({sized}) s"
        );
        args.push(Value::int(due.bytes));
        let mut fits = "f.before_it < ".to_owned();
        self.flavour.placeholder(&mut fits, args.len());
        let left_out = ", CASE WHEN j.name IS NULL THEN f.index_at END";
        Statement::new(self.records(&beside, &summed, &fits, left_out), args, &FOUND_SHAPE)
    }

    /// The next kinds after this one in the due index, at most [`KINDS`]: a step of the index for
    /// each kind, and none for each schedule.
    pub(crate) fn kinds_after(&self, kind: &str) -> Statement {
        let mut after = String::new();
        self.flavour.placeholder(&mut after, 1);
        let jobs = format!("{}_job", self.prefix);
        let first = |after: &str| {
            format!(
                "(SELECT kind FROM {jobs} WHERE index_at IS NOT NULL AND kind > {after} \
                 ORDER BY kind LIMIT 1)"
            )
        };
        let text = format!(
            "WITH RECURSIVE k (kind, n) AS (SELECT {}, 1 \
             UNION ALL SELECT {}, k.n + 1 FROM k WHERE k.kind IS NOT NULL AND k.n < {KINDS}) \
             SELECT kind FROM k WHERE kind IS NOT NULL",
            first(&after),
            first("k.kind"),
        );
        Statement::new(text, vec![Value::bytes(kind)], b"b")
    }

    /// A page of the list.
    pub(crate) fn list(&self, page: &Page<'_>) -> Statement {
        let mut names =
            format!("SELECT name FROM {}_job WHERE deleted_at IS NULL AND name > ", self.prefix);
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
        let beside = format!("SELECT {} AS db_now", self.flavour.clock());
        let text = self.records(&beside, &names, "1 = 1", "") + " ORDER BY j.name";
        Statement::new(text, args, &LISTED_SHAPE)
    }

    /// A page of the history.
    pub(crate) fn history_entries(&self, query: HistoryQuery<'_>) -> Statement {
        let columns = names(HISTORY);
        let mut text = format!("SELECT {columns} FROM {}_history WHERE 1 = 1", self.prefix);
        let mut args = Vec::new();
        if let Some(name) = query.name {
            args.push(Value::bytes(name));
            text.push_str(" AND name = ");
            self.flavour.placeholder(&mut text, args.len());
        }
        if let Some(before) = query.before {
            self.below(&mut text, &mut args, before.fence, before.name.as_bytes());
        }
        text.push_str(" ORDER BY fence DESC, name DESC LIMIT ");
        args.push(Value::int(i64::try_from(query.limit).unwrap_or(i64::MAX)));
        self.flavour.placeholder(&mut text, args.len());
        Statement::new(text, args, &HISTORY_SHAPE)
    }

    /// The condition that an entry of the history is below this one, in the order of the key.
    pub(super) fn below(&self, text: &mut String, args: &mut Vec<Value>, fence: i64, name: &[u8]) {
        let mut and = |condition: &str, value: Value| {
            args.push(value);
            text.push_str(condition);
            self.flavour.placeholder(text, args.len());
        };
        // The first condition is for the index.
        and(" AND fence <= ", Value::int(fence));
        and(" AND (fence < ", Value::int(fence));
        and(" OR name < ", Value::bytes(name));
        text.push(')');
    }

    /// The place of the entry that is so many entries below another, or of the newest ones the one of
    /// this number.
    pub(crate) fn history_place(&self, below: Option<&Place>, entries: u64) -> Statement {
        let mut text = format!("SELECT fence, name FROM {}_history WHERE 1 = 1", self.prefix);
        let mut args = Vec::new();
        if let Some((fence, name)) = below {
            self.below(&mut text, &mut args, *fence, name);
        }
        text.push_str(" ORDER BY fence DESC, name DESC LIMIT 1 OFFSET ");
        args.push(Value::int(entries.saturating_sub(1).cast_signed()));
        self.flavour.placeholder(&mut text, args.len());
        Statement::new(text, args, b"ib")
    }

    /// Names and fences of tombstones whose time is over; the rows are locked.
    pub(crate) fn old_tombstones(&self, now_ms: i64) -> Statement {
        let mut text = format!("SELECT j.name, j.fence FROM {}_job j WHERE j.kind = ", self.prefix);
        self.flavour.placeholder(&mut text, 1);
        text.push_str(" AND j.index_at <= ");
        self.flavour.placeholder(&mut text, 2);
        text.push_str(" ORDER BY j.index_at LIMIT 100");
        text.push_str(self.flavour.for_update());
        Statement::new(text, vec![Value::bytes(DELETED), Value::int(now_ms)], b"bi")
    }

    /// A number of the whole namespace.
    pub(crate) fn meta(&self, name: &str, lock: bool) -> Statement {
        let mut text = format!("SELECT value FROM {}_meta WHERE name = ", self.prefix);
        self.flavour.placeholder(&mut text, 1);
        if lock {
            text.push_str(self.flavour.for_update());
        }
        Statement::new(text, vec![Value::bytes(name)], b"i")
    }
}

/// The columns of the job table. Values that are too long are not read: a server would refuse the whole
/// result, or send it for minutes.
fn columns_of(table: &str) -> String {
    let columns = JOB.iter().map(|(name, of)| {
        let column = format!("{table}.{name}");
        match (*name, of) {
            // NULL is a record without these parts.
            ("more", _) => bounded(&column, "''"),
            (_, Type::Bytes | Type::BytesOrNull) => bounded(&column, "NULL"),
            _ => column,
        }
    });
    columns.collect::<Vec<_>>().join(", ")
}

/// A column, or something else in its place if its value is too long.
fn bounded(column: &str, instead: &str) -> String {
    format!("CASE WHEN LENGTH({column}) > {LONGEST} THEN {instead} ELSE {column} END")
}
