//! PostgreSQL, from 12.

use super::{
    Dialect, Due, DueRange, Flavour, Write,
    single_statement::{Columns, RequestContext, SimpleClaim, SimpleCompletion, SingleStatement},
};
use crate::{
    driver::{Statement, Type, Value},
    encoding::{DATA, HISTORY, JOB},
};
use std::fmt::Write as _;

pub(crate) struct PostgresFlavour;

impl Flavour for PostgresFlavour {
    fn column(&self, of: Type) -> &'static str {
        match of {
            Type::Int => "BIGINT NOT NULL",
            Type::IntOrNull => "BIGINT",
            // Text cannot hold U+0000, and compares by the database's collation.
            Type::Name | Type::Bytes => "BYTEA NOT NULL",
            Type::BytesOrNull => "BYTEA",
        }
    }

    fn table_options(&self) -> &'static str {
        // Room on each page for the new version of a row: a write that moves no indexed column then
        // touches no index.
        " WITH (fillfactor = 70)"
    }

    fn placeholder(&self, sql: &mut String, i: usize) {
        let _ = write!(sql, "${i}");
    }

    fn clock(&self) -> &'static str {
        // Not `now()`, which is the begin of the transaction, before it waited for a lock.
        "(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000)::BIGINT"
    }

    fn for_update(&self) -> &'static str {
        " FOR UPDATE"
    }

    fn or_replace(&self, key: &str, columns: &[&str]) -> String {
        let set: Vec<String> = columns.iter().map(|c| format!("{c} = excluded.{c}")).collect();
        format!(" ON CONFLICT ({key}) DO UPDATE SET {}", set.join(", "))
    }

    fn delete_some(&self, table: &str, condition: &str) -> String {
        format!("DELETE FROM {table} WHERE ctid = ANY(ARRAY(SELECT ctid FROM {table} {condition}))")
    }

    fn index_exists(&self, table: &str, index: &str) -> String {
        format!(
            "SELECT 1::BIGINT FROM pg_index WHERE indrelid = to_regclass('{table}') \
             AND indexrelid = to_regclass('{index}') AND indisvalid"
        )
    }

    fn table_exists(&self, table: &str) -> String {
        format!("SELECT 1::BIGINT WHERE to_regclass('{table}') IS NOT NULL")
    }

    fn lock(&self, prefix: &str) -> Option<String> {
        Some(format!(
            "SELECT 1::BIGINT FROM (\
               SELECT pg_advisory_xact_lock(hashtext('allora'), hashtext('{prefix}')) OFFSET 0) l"
        ))
    }

    fn unlimited(&self) -> Option<&'static str> {
        Some("SET LOCAL statement_timeout = 0")
    }

    fn pause(&self, ms: u64) -> Option<String> {
        Some(format!("SELECT pg_sleep({ms} / 1000.0)"))
    }

    fn kinds_at_once(&self) -> usize {
        usize::MAX
    }

    /// All kinds in one array, so that the plan does not grow with them.
    ///
    /// Each kind is a range of the index, and its rows are in the order of the index. Compared by
    /// `=`, a planner without statistics expects so few rows of a kind that it reads all of them and
    /// sorts them. Compared as a range of the index's columns, it expects many, and reads the first.
    fn due(&self, dialect: &Dialect, due: &DueRange<'_>, args: &mut Vec<Value>) -> Due {
        let jobs = format!("{}_job", dialect.prefix);
        let mut bind = |value: Value| {
            args.push(value);
            format!("${}", args.len())
        };
        let kinds = due.kinds.iter().map(|kind| Some(kind.as_bytes().to_vec())).collect();
        let (kinds, until) = (bind(Value::Blobs(kinds)), bind(Value::int(due.until)));
        let (limit, skip) = (bind(Value::int(due.limit)), bind(Value::int(due.skip)));
        let later = format!(
            "SELECT MIN(l.index_at) FROM unnest({kinds}) AS k (kind), LATERAL (\
               SELECT index_at FROM {jobs} WHERE index_at IS NOT NULL \
                 AND (kind, index_at) >= (k.kind, {until}) AND kind <= k.kind \
               ORDER BY kind, index_at LIMIT 1) l"
        );
        let names = format!(
            "SELECT d.name, d.index_at FROM unnest({kinds}) AS k (kind), LATERAL (\
               SELECT name, index_at FROM {jobs} WHERE index_at IS NOT NULL \
                 AND (kind, index_at) >= (k.kind, '{first}'::BIGINT) AND (kind, index_at) < (k.kind, {until}) \
               ORDER BY kind, index_at, name LIMIT {limit} OFFSET {skip}) d \
             ORDER BY d.index_at, d.name LIMIT {limit}",
            first = i64::MIN,
        );
        Due { names, later }
    }

    /// By a subquery for each name, which no plan can turn round: a planner without statistics would
    /// rather join all jobs with all data than so few.
    fn rows_of_names(&self, prefix: &str, condition: &str) -> String {
        format!(
            "LEFT JOIN LATERAL (\
               SELECT * FROM {prefix}_job WHERE name = f.name AND {condition} OFFSET 0) j ON TRUE"
        )
    }

    fn due_index_filter(&self) -> &'static str {
        " WHERE index_at IS NOT NULL"
    }

    /// The expressions of a `SELECT … FOR UPDATE` are computed before it waits for the lock; those
    /// that read from it as a subquery, after.
    fn select_locked(&self, what: &str, jobs: &str, condition: &str) -> String {
        format!(
            "WITH j AS MATERIALIZED (SELECT * FROM {jobs} j WHERE {condition} FOR UPDATE) \
             SELECT {what} FROM j"
        )
    }

    /// An array is one parameter, and one statement for every number of names.
    fn is_any(&self, column: &str, names: &[&[u8]], first: usize) -> (String, Vec<Value>) {
        let names = names.iter().map(|name| Some(name.to_vec())).collect();
        (format!("{column} = ANY(${first})"), vec![Value::Blobs(names)])
    }

    fn notify(&self, channel: &str, payload: &str) -> Option<Statement> {
        let args = vec![Value::bytes(channel), Value::bytes(payload)];
        let text = "SELECT pg_notify(convert_from($1, 'UTF8'), convert_from($2, 'UTF8'))::TEXT";
        Some(Statement::new(text, args, b""))
    }

    /// Records, data and history in one statement. The rows that have the version that was read are
    /// locked one after the other, in the order in which they are given; new rows are inserted where
    /// no other node was faster; data and history are written for those rows only.
    fn write(&self, dialect: &Dialect, writes: &[Write]) -> Option<Statement> {
        let p = &dialect.prefix;
        let mut args = Vec::new();
        let columns = [JOB, &[("read_version", Type::IntOrNull), ("not_after", Type::IntOrNull)]];
        let rows = writes.iter().map(|write| {
            let beside = [Value::Int(write.read_version), Value::Int(write.not_after)];
            [&write.job[..], &beside].concat()
        });
        let records = unnested("t", &columns.concat(), rows, &mut args);
        let set = JOB[1..].iter().map(|(column, _)| format!("{column} = held.{column}"));
        let set = set.collect::<Vec<_>>().join(", ");
        let all = super::names(JOB);
        let in_time =
            |of: &str| format!("({of}.not_after IS NULL OR {} <= {of}.not_after)", self.clock());
        let (held_in_time, new_in_time) = (in_time("held"), in_time("t"));
        let mut text = format!(
            "WITH t AS MATERIALIZED (SELECT * FROM {records}), \
             held AS MATERIALIZED (SELECT t.* FROM t, LATERAL (SELECT FROM {p}_job j \
               WHERE j.name = t.name AND j.version = t.read_version FOR NO KEY UPDATE) j), \
             updated AS (UPDATE {p}_job j SET {set} FROM held \
               WHERE j.name = held.name AND {held_in_time} RETURNING j.name), \
             inserted AS (INSERT INTO {p}_job ({all}) SELECT {all} FROM t \
               WHERE t.read_version IS NULL AND {new_in_time} \
               ON CONFLICT (name) DO NOTHING RETURNING name), \
             written AS (SELECT name FROM updated UNION ALL SELECT name FROM inserted)"
        );
        let history: Vec<_> = writes.iter().flat_map(|write| write.history.clone()).collect();
        if !history.is_empty() {
            text += ", ";
            text += &insert_written(self, p, "history", HISTORY, history, &mut args);
        }
        let replaced = writes.iter().filter_map(|write| {
            let new = write.data.as_ref().filter(|_| write.read_version.is_some())?;
            Some(vec![Value::bytes(&write.name), Value::Int(new.generation)])
        });
        let replaced: Vec<_> = replaced.collect();
        if !replaced.is_empty() {
            let columns = [("name", Type::Name), ("keep", Type::IntOrNull)];
            let kept = unnested("k", &columns, replaced.into_iter(), &mut args);
            let _ = write!(
                text,
                ", dropped AS (DELETE FROM {p}_data d USING {kept}, written w \
                 WHERE w.name = k.name AND d.name = k.name \
                 AND d.generation IS DISTINCT FROM k.keep)"
            );
        }
        let data: Vec<_> = writes.iter().filter_map(Write::data_row).collect();
        if !data.is_empty() {
            text += ", ";
            text += &insert_written(self, p, "data", DATA, data, &mut args);
        }
        text += " SELECT name FROM written";
        Some(Statement::new(text, args, b"b"))
    }

    fn claims(
        &self,
        dialect: &Dialect,
        context: &RequestContext<'_>,
        claims: &[SimpleClaim<'_>],
    ) -> SingleStatement {
        let rows = claims.iter().map(SimpleClaim::values).collect();
        let mut args = Vec::new();
        let update = update(dialect, context, SimpleClaim::COLUMNS, rows, &mut args);
        let (set, condition) = (SimpleClaim::set(self), SimpleClaim::condition(self));
        let text = format!(
            "{} AND {} RETURNING c.db_now, j.name, j.lease_scheduled_at, j.fence, j.incarnation, \
             j.lease_until",
            update(set, condition),
            SimpleClaim::in_time(self),
        );
        SingleStatement::Returning(Statement::new(text, args, SimpleClaim::SHAPE))
    }

    fn completions(
        &self,
        dialect: &Dialect,
        context: &RequestContext<'_>,
        completions: &[SimpleCompletion<'_>],
    ) -> SingleStatement {
        let rows = completions.iter().map(SimpleCompletion::values).collect();
        let mut args = Vec::new();
        let update = update(dialect, context, SimpleCompletion::COLUMNS, rows, &mut args);
        let set = SimpleCompletion::set(self, "j.version + 1");
        let text = format!(
            "{} RETURNING c.db_now, j.name, j.lease_until, {}",
            update(set, SimpleCompletion::CONDITION.to_owned()),
            SimpleCompletion::is_due(),
        );
        SingleStatement::Returning(Statement::new(text, args, SimpleCompletion::SHAPE))
    }
}

/// A table of rows that are bound as one array a column.
fn unnested(
    table: &str,
    columns: &Columns,
    rows: impl Iterator<Item = Vec<Value>>,
    args: &mut Vec<Value>,
) -> String {
    let mut arrays: Vec<Value> = columns.iter().map(|(_, of)| Value::array(*of)).collect();
    for value in rows.flat_map(|row| row.into_iter().enumerate()) {
        arrays[value.0].push(value.1);
    }
    let first = args.len() + 1;
    args.extend(arrays);
    let arrays: Vec<String> = (first..=args.len()).map(|i| format!("${i}")).collect();
    format!("unnest({}) AS {table} ({})", arrays.join(", "), super::names(columns))
}

/// An insertion into another table, as a part of the statement, of the rows of written records.
fn insert_written(
    flavour: &PostgresFlavour,
    prefix: &str,
    table: &str,
    columns: &[(&'static str, Type)],
    rows: Vec<Vec<Value>>,
    args: &mut Vec<Value>,
) -> String {
    let rows = unnested("n", columns, rows.into_iter(), args);
    let names = super::names(columns);
    let key = super::names(&columns[..2]);
    let rest: Vec<&str> = columns[2..].iter().map(|(name, _)| *name).collect();
    let or_replace = flavour.or_replace(&key, &rest);
    format!(
        "{table} AS (INSERT INTO {prefix}_{table} ({names}) \
         SELECT n.* FROM {rows} JOIN written w ON w.name = n.name{or_replace})"
    )
}

/// An `UPDATE` of the jobs beside the context and these rows.
///
/// The rows that meet the condition are found and locked by their keys, one after the other, before
/// anything is set: in the order in which the names are given, so that two nodes cannot wait for each
/// other, and by a subquery for each, which no plan can turn round. Beside the key, the condition has
/// so many parts that the planner, above all while it has no statistics, expects a single row of the
/// whole table and compares all with all.
fn update(
    dialect: &Dialect,
    context: &RequestContext<'_>,
    columns: &Columns,
    rows: Vec<Vec<Value>>,
    args: &mut Vec<Value>,
) -> impl Fn(String, String) -> String + use<> {
    let context = dialect.request_context(context, args);
    let rows = unnested("t", columns, rows.into_iter(), args);
    let jobs = dialect.prefix.clone();
    move |set, condition| {
        format!(
            "WITH c AS MATERIALIZED ({context}), t AS MATERIALIZED (\
               SELECT t.* FROM c, {rows}, \
               LATERAL (SELECT FROM {jobs}_job j WHERE {condition} FOR NO KEY UPDATE) held) \
             UPDATE {jobs}_job j SET {set} FROM c, t WHERE j.name = t.of_name"
        )
    }
}
