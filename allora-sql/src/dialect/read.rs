//! Statements that read.
//!
//! A due query reads keys first, in the order of the index. A planner without statistics would sort
//! all that is due for each batch, and its planning time grows with the square of the number of
//! kinds. So PostgreSQL gets the kinds as an array, each compared by `=`, because a scan does not
//! end at the upper bound of a comparison of rows; SQLite and MySQL get several statements of a few
//! kinds.

use super::{Dialect, Keys, SimpleClaim, arguments::DueRange, shape};
use crate::{
    driver::{Statement, Type, Value},
    encoding::{DELETED, JOB, LONGEST, RARE, STATE},
};
use allora_core::backend::Page;
use std::sync::LazyLock;

/// The shape of the cells of a record.
static CELLS_SHAPE: LazyLock<Vec<u8>> =
    LazyLock::new(|| [shape(JOB), shape(&STATE[1..]), shape(&RARE[1..])].concat());

/// The shape of a loaded row: the lowest fence, the clock, the columns, the data.
static LOAD_SHAPE: LazyLock<Vec<u8>> = LazyLock::new(|| [b"ii", &CELLS_SHAPE[..], b"b"].concat());

/// The shape of a found row: the clock, the columns, the data, and the time of what is left out.
static FOUND_SHAPE: LazyLock<Vec<u8>> = LazyLock::new(|| [b"ii", &CELLS_SHAPE[..], b"bi"].concat());

/// The shape of a listed row: the clock, the columns, the data.
static LISTED_SHAPE: LazyLock<Vec<u8>> = LazyLock::new(|| [b"i", &CELLS_SHAPE[..], b"b"].concat());

/// The most bytes of data that are read with each of many claimed records. More are read after that.
const LITTLE_DATA: usize = 16 << 10;

/// The most kinds that one statement returns: MySQL allows a thousand steps of a recursion.
pub(crate) const KINDS: usize = 500;

/// Text that reads the keys of the first rows of each kind, with the times at which they are wanted.
/// Without a key there is the time of a row that is leased, or behind the range, or was not read
/// because too many are before it.
///
/// Databases plan a `SELECT` of a few kinds quickly, and of hundreds slowly.
fn listed_of_each_kind(dialect: &Dialect, due: &DueRange<'_>, args: &mut Vec<Value>) -> String {
    let states = format!("{}_state", dialect.prefix);
    let mut bind = |value: Value| {
        args.push(value);
        let mut placeholder = String::new();
        dialect.flavour.placeholder(&mut placeholder, args.len());
        placeholder
    };
    let mut parts = Vec::new();
    for (i, kind) in due.kinds.iter().enumerate() {
        let (kind, until) = (Value::bytes(kind), Value::int(due.until));
        // In the order of the text, because not every database numbers its placeholders.
        let end = bind(until.clone());
        let mut range = |comparison: &str, skip: Option<[i64; 2]>| {
            let (kind, until) = (bind(kind.clone()), bind(until.clone()));
            let range =
                format!("FROM {states} WHERE kind = {kind} AND index_at {comparison} {until}");
            let Some([rows, skip]) = skip else { return range };
            let (rows, skip) = (bind(Value::int(rows)), bind(Value::int(skip)));
            format!("{range} ORDER BY index_at, id LIMIT {rows} OFFSET {skip}")
        };
        let first = range("<=", Some([due.rows, due.skip]));
        let unread = range("<=", Some([1, due.skip + due.rows]));
        let behind = range(">", None);
        parts.push(format!(
            "SELECT CASE WHEN wake_at < {end} THEN id END AS id, wake_at \
             FROM (SELECT id, wake_at {first}) f{i} \
             UNION ALL SELECT NULL, index_at FROM (SELECT index_at {unread}) u{i} \
             UNION ALL SELECT NULL, MIN(index_at) {behind}"
        ));
    }
    parts.join(" UNION ALL ")
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
        let (is_key, more) = self.flavour.is_any("j.name", Keys::Names(&keys), args.len() + 1);
        args.extend(more);
        let text = format!(
            "SELECT c.min_fence, c.db_now, {columns}, {data} FROM ({beside}) c \
             LEFT JOIN {p}_job j ON {is_key} {states}",
            columns = self.columns(Cold::Read),
            data = self.data(),
            p = self.prefix,
            states = self.states(),
        );
        Statement::new(text, args, &LOAD_SHAPE)
    }

    /// Locks the state of one record, and reads its key and version.
    pub(crate) fn lock_one(&self, name: &str) -> Statement {
        let mut text = format!(
            "SELECT s.id, s.version FROM {p}_state s WHERE s.id = (SELECT id FROM {p}_job WHERE name = ",
            p = self.prefix,
        );
        self.flavour.placeholder(&mut text, 1);
        text.push(')');
        text.push_str(self.flavour.for_update());
        Statement::new(text, vec![Value::bytes(name)], b"ii")
    }

    /// Locks the state of the record with this key if it has this version, and reads the key.
    pub(crate) fn lock_version(&self, id: i64, version: i64) -> Statement {
        let mut text = format!("SELECT s.id FROM {}_state s WHERE s.id = ", self.prefix);
        self.flavour.placeholder(&mut text, 1);
        text.push_str(" AND s.version = ");
        self.flavour.placeholder(&mut text, 2);
        text.push_str(self.flavour.for_update());
        Statement::new(text, vec![Value::int(id), Value::int(version)], b"i")
    }

    /// Locks the states of these records, and reads the clock, their keys and versions.
    pub(crate) fn lock_versions(&self, ids: &[i64]) -> Statement {
        let (is_key, args) = self.flavour.is_any("s.id", Keys::Ids(ids), 1);
        let text = format!(
            "SELECT {clock}, s.id, s.version FROM {p}_state s WHERE {is_key} ORDER BY s.id{lock}",
            clock = self.flavour.clock(),
            p = self.prefix,
            lock = self.flavour.for_update(),
        );
        Statement::new(text, args, b"iii")
    }

    /// Reads the names and keys of these jobs.
    pub(crate) fn ids(&self, names: &[&[u8]]) -> Statement {
        let (is_name, args) = self.flavour.is_any("name", Keys::Names(names), 1);
        let text = format!("SELECT name, id FROM {}_job WHERE {is_name}", self.prefix);
        Statement::new(text, args, b"bi")
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

    /// The join of the states `s` of the jobs `j`.
    fn states(&self) -> String {
        self.flavour.rows_of(&format!("{}_state", self.prefix), "s", "s.id = j.id")
    }

    /// The data of the job `j`. A subquery, because a planner without statistics would rather read
    /// the whole table once than a row of it for each job.
    fn data(&self) -> String {
        self.data_up_to(LONGEST)
    }

    /// The data of the job `j`, if it has no more bytes than these.
    fn data_up_to(&self, bytes: usize) -> String {
        format!(
            "(SELECT CASE WHEN LENGTH(d.data) > {bytes} THEN NULL ELSE d.data END \
             FROM {}_data d WHERE d.id = j.id AND d.generation = j.data_generation)",
            self.prefix
        )
    }

    /// Reads the records that a query has claimed, with little data. The common tables before have the
    /// context `c` and the changed states `updated`.
    #[cfg(feature = "postgres")]
    pub(super) fn updated(&self, common: &str, args: Vec<Value>) -> Statement {
        let jobs = self.flavour.rows_of(&format!("{}_job", self.prefix), "j", "j.id = s.id");
        let from = format!("c LEFT JOIN updated s ON TRUE {jobs}");
        Statement::new(
            format!("WITH {common} {}", self.with_little_data(&from)),
            args,
            &LISTED_SHAPE,
        )
    }

    /// Text that reads the clock of `c` and the jobs `j` with their states `s`, and little data.
    fn with_little_data(&self, from: &str) -> String {
        let (columns, data) = (self.columns(Cold::LeftOut), self.data_up_to(LITTLE_DATA));
        format!("SELECT c.db_now, {columns}, {data} FROM {from}")
    }

    /// The records of these kinds that a query has claimed under this id. A claim leaves the row in its
    /// place in the index.
    pub(crate) fn claimed_by(&self, kinds: &[&str], claim_id: [u8; 16]) -> Statement {
        let kinds: Vec<&[u8]> = kinds.iter().map(|kind| kind.as_bytes()).collect();
        let (is_kind, mut args) = self.flavour.is_any("s.kind", Keys::Names(&kinds), 1);
        args.push(Value::bytes(claim_id));
        let mut claim = String::new();
        self.flavour.placeholder(&mut claim, args.len());
        let keys = format!(
            "SELECT s.id FROM {}_state s WHERE {is_kind} AND s.index_at IS NOT NULL \
             AND s.lease_claim_id = {claim}",
            self.prefix
        );
        let beside = format!("SELECT {} AS db_now", self.flavour.clock());
        let text = self.records(&beside, &keys, "1 = 1", Cold::LeftOut, "");
        Statement::new(text, args, &LISTED_SHAPE)
    }

    /// Locks rows of this kind that may be claimed without a plan, at most `limit`, and reads their
    /// keys and places in the index.
    pub(crate) fn claimable(&self, kind: &str, now_ms: i64, limit: usize) -> Statement {
        let mut args = Vec::new();
        let mut bind = |value: Value| {
            args.push(value);
            let mut placeholder = String::new();
            self.flavour.placeholder(&mut placeholder, args.len());
            placeholder
        };
        // In the order of the text, because not every database numbers its placeholders.
        let (kind, until) = (bind(Value::bytes(kind)), bind(Value::int(now_ms)));
        let condition = SimpleClaim::condition_of_head(&*self.flavour, &bind(Value::int(now_ms)));
        let limit = bind(Value::int(i64::try_from(limit).unwrap_or(i64::MAX)));
        let text = format!(
            "SELECT s.id, s.index_at \
             FROM {}_state s WHERE s.kind = {kind} AND s.index_at <= {until} AND {condition} \
             ORDER BY s.index_at, s.id LIMIT {limit}{}",
            self.prefix,
            self.flavour.for_update_of_free_rows(),
        );
        Statement::new(text, args, b"ii")
    }

    /// Reads these records with little data, and the clock.
    pub(crate) fn claimed(&self, ids: &[i64]) -> Statement {
        let (is_id, args) = self.flavour.is_any("j.id", Keys::Ids(ids), 1);
        let from = format!(
            "(SELECT {clock} AS db_now) c LEFT JOIN {p}_job j ON {is_id} {states}",
            clock = self.flavour.clock(),
            p = self.prefix,
            states = self.states(),
        );
        Statement::new(self.with_little_data(&from), args, &LISTED_SHAPE)
    }

    /// The cells of the job `j` with the state `s`. Values that are too long are not read: a server
    /// would refuse the whole result, or send it for minutes. Rare parts are read where there are some.
    fn columns(&self, cold: Cold) -> String {
        // NULL is a record without these parts.
        let rare = |column: &str, from: i64| {
            let part = bounded(&format!("r.{column}"), "''");
            let p = &self.prefix;
            format!(
                "CASE WHEN s.rare >= {from} THEN (SELECT {part} FROM {p}_rare r WHERE r.id = s.id) END"
            )
        };
        let cold = match cold {
            Cold::Read => rare("cold", 1),
            Cold::LeftOut => "NULL".to_owned(),
        };
        let columns = JOB.iter().map(of("j")).chain(STATE[1..].iter().map(of("s")));
        columns.chain([rare("more", 2), cold]).collect::<Vec<_>>().join(", ")
    }

    /// The records with these keys, from a `SELECT` that reads the keys alone, of those that meet a
    /// condition. `beside` is a row that is there also if nothing is found.
    fn records(&self, beside: &str, keys: &str, condition: &str, cold: Cold, more: &str) -> String {
        let columns = self.columns(cold);
        let condition = format!("j.id = f.id AND {condition}");
        let jobs = self.flavour.rows_of(&format!("{}_job", self.prefix), "j", &condition);
        let (data, states) = (self.data(), self.states());
        format!(
            "SELECT c.*, {columns}, {data}{more} \
             FROM ({beside}) c LEFT JOIN ({keys}) f ON 1 = 1 {jobs} {states}"
        )
    }

    /// The jobs of these kinds that are wanted before a time, the earliest first; and the first time
    /// of those that are left out: because they are wanted later, because their data would be too
    /// much, or because too many are before them in the index. Cold parts are not read.
    pub(crate) fn find_due(&self, due: &DueRange<'_>) -> Statement {
        let mut args = Vec::new();
        // Keys first: rows that are carried through derived tables are written to disk on the way by
        // MariaDB, which has been seen to crash there (10.11.19, in `ha_maria::drop_table`).
        let listed = self.flavour.listed(self, due, &mut args);
        let listed = listed.unwrap_or_else(|| listed_of_each_kind(self, due, &mut args));
        args.push(Value::int(due.limit));
        let mut limit = String::new();
        self.flavour.placeholder(&mut limit, args.len());
        let first = format!(
            "SELECT l.id, MIN(l.wake_at) AS wanted_at FROM ({listed}) l WHERE l.wake_at IS NOT NULL GROUP BY l.id \
             ORDER BY wanted_at, l.id LIMIT {limit}"
        );
        let beside = format!("SELECT NULL AS beside, {} AS db_now", self.flavour.clock());
        // The sizes are those of what is stored, whose bytes no database reads for that.
        // The limit keeps MariaDB from merging this into what is around it, where it then does not find
        // the columns.
        let sized = format!(
            "SELECT n.id, n.wanted_at, COALESCE((\
               SELECT LENGTH(d.data) FROM {}_data d WHERE d.id = n.id \
               ORDER BY d.generation DESC LIMIT 1), 0) AS bytes \
             FROM ({first}) n LIMIT {}",
            self.prefix,
            i32::MAX,
        );
        let summed = format!(
            "SELECT s.id, s.wanted_at, SUM(s.bytes) OVER (\
               ORDER BY s.wanted_at, s.id ROWS UNBOUNDED PRECEDING) - s.bytes AS before_it \
             FROM ({sized}) s"
        );
        args.push(Value::int(due.bytes));
        let mut fits = "f.before_it < ".to_owned();
        self.flavour.placeholder(&mut fits, args.len());
        let left_out = ", CASE WHEN j.id IS NULL THEN f.wanted_at END";
        let text = self.records(&beside, &summed, &fits, Cold::LeftOut, left_out);
        Statement::new(text, args, &FOUND_SHAPE)
    }

    /// The next kinds after this one in the due index, at most [`KINDS`]: a step of the index for
    /// each kind, and none for each schedule.
    pub(crate) fn kinds_after(&self, kind: &str) -> Statement {
        let mut after = String::new();
        self.flavour.placeholder(&mut after, 1);
        let states = format!("{}_state", self.prefix);
        let first = |after: &str| {
            format!(
                "(SELECT kind FROM {states} WHERE index_at IS NOT NULL AND kind > {after} \
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
        let mut keys =
            format!("SELECT id FROM {}_job WHERE deleted_at IS NULL AND name > ", self.prefix);
        let mut args = vec![Value::bytes(page.after.unwrap_or_default())];
        self.flavour.placeholder(&mut keys, 1);
        let mut also = |condition: &str, value: Value| {
            args.push(value);
            keys.push_str(condition);
            self.flavour.placeholder(&mut keys, args.len());
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
        let text = self.records(&beside, &keys, "1 = 1", Cold::Read, "") + " ORDER BY j.name";
        Statement::new(text, args, &LISTED_SHAPE)
    }

    /// Keys and fences of tombstones whose time is over; the rows are locked.
    pub(crate) fn old_tombstones(&self, now_ms: i64) -> Statement {
        let mut text = format!("SELECT s.id, s.fence FROM {}_state s WHERE s.kind = ", self.prefix);
        self.flavour.placeholder(&mut text, 1);
        text.push_str(" AND s.index_at <= ");
        self.flavour.placeholder(&mut text, 2);
        text.push_str(" ORDER BY s.index_at LIMIT 100");
        text.push_str(self.flavour.for_update());
        Statement::new(text, vec![Value::bytes(DELETED), Value::int(now_ms)], b"ii")
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

/// The dead letters and remembered triggers of a record that is read.
#[derive(Clone, Copy)]
enum Cold {
    Read,
    LeftOut,
}

/// A column of this table, or NULL if its value is too long.
fn of(table: &'static str) -> impl Fn(&(&str, Type)) -> String {
    move |(name, of)| {
        let column = format!("{table}.{name}");
        match of {
            Type::Bytes | Type::BytesOrNull => bounded(&column, "NULL"),
            _ => column,
        }
    }
}

/// A column, or something else in its place if its value is too long.
fn bounded(column: &str, instead: &str) -> String {
    format!("CASE WHEN LENGTH({column}) > {LONGEST} THEN {instead} ELSE {column} END")
}
