//! PostgreSQL, from 12.

use super::{
    Dialect, Flavour,
    fast::{Asker, Columns, Fast, SimpleEnd, SimpleTake},
};
use crate::{
    driver::{Statement, Value},
    row::Type,
};
use std::fmt::Write;

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
        // Room on each page for the new version of a row: a take then touches no index.
        " WITH (fillfactor = 70)"
    }

    fn placeholder(&self, sql: &mut String, i: usize) {
        let _ = write!(sql, "${i}");
    }

    fn clock(&self) -> &'static str {
        // Not `now()`: that is when the transaction began, before it waited for a lock.
        "(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000)::BIGINT"
    }

    fn for_update(&self) -> &'static str {
        " FOR UPDATE"
    }

    fn or_replace(&self, key: &str, columns: &[&str]) -> String {
        let set: Vec<String> = columns.iter().map(|c| format!("{c} = excluded.{c}")).collect();
        format!(" ON CONFLICT ({key}) DO UPDATE SET {}", set.join(", "))
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
        Some(format!("SELECT pg_advisory_xact_lock(hashtext('allora'), hashtext('{prefix}'))"))
    }

    fn unlock(&self, _: &str) -> Option<String> {
        None
    }

    fn pause(&self, ms: u64) -> Option<String> {
        Some(format!("SELECT pg_sleep({ms} / 1000.0)"))
    }

    fn notice_index_filter(&self) -> &'static str {
        " WHERE notice_at IS NOT NULL"
    }

    /// The expressions of a `SELECT … FOR UPDATE` are worked out before it waits for the lock;
    /// those that read from it as a subquery, after.
    fn locked(&self, dialect: &Dialect, names: &str) -> String {
        format!(
            "WITH j AS MATERIALIZED (SELECT * FROM {p}_job WHERE name IN ({names}) \
             ORDER BY name FOR UPDATE) SELECT {clock}, {columns}, d.data FROM j \
             LEFT JOIN {p}_data d ON d.name = j.name AND d.edition = j.data_edition",
            p = dialect.prefix,
            clock = self.clock(),
            columns = dialect.job_columns("j"),
        )
    }

    fn repeats_rows(&self) -> bool {
        false
    }

    fn notify(&self, channel: &str, payload: &str) -> Option<Statement> {
        let args = vec![Value::bytes(channel), Value::bytes(payload)];
        let text = "SELECT pg_notify(convert_from($1, 'UTF8'), convert_from($2, 'UTF8'))::TEXT";
        Some(Statement::new(text, args, b""))
    }

    fn takes(&self, dialect: &Dialect, asker: &Asker<'_>, takes: &[SimpleTake<'_>]) -> Fast {
        let rows = takes.iter().map(SimpleTake::values).collect();
        let mut args = Vec::new();
        let text = update(dialect, asker, SimpleTake::COLUMNS, rows, &mut args);
        let text = format!(
            "{} RETURNING c.ticked, j.name, j.hold_at, j.fence, j.incarnation, j.hold_until",
            text(SimpleTake::set(self), SimpleTake::condition(self)),
        );
        Fast::Returning(Statement::new(text, args, SimpleTake::SHAPE))
    }

    fn endings(&self, dialect: &Dialect, asker: &Asker<'_>, ends: &[SimpleEnd<'_>]) -> Fast {
        let rows = ends.iter().map(SimpleEnd::values).collect();
        let mut args = Vec::new();
        let text = update(dialect, asker, SimpleEnd::COLUMNS, rows, &mut args);
        let text = format!(
            "{} RETURNING j.name, j.hold_until, {}",
            text(SimpleEnd::set(self), SimpleEnd::CONDITION.to_owned()),
            SimpleEnd::is_waited_for(),
        );
        Fast::Returning(Statement::new(text, args, SimpleEnd::SHAPE))
    }
}

/// An `UPDATE` of the jobs beside the asker and these rows, which are bound as one array a column.
///
/// The rows that meet the condition are found and locked by their keys, one after the other, before
/// anything is set: in the order in which the names are given, so that two nodes cannot wait for each
/// other, and by a subquery for each, which no plan can turn round. Beside the key, the condition has
/// so many parts that the planner, above all while it has no statistics, expects a single row of the
/// whole table and compares all with all.
fn update(
    dialect: &Dialect,
    asker: &Asker<'_>,
    columns: &Columns,
    rows: Vec<Vec<Value>>,
    args: &mut Vec<Value>,
) -> impl Fn(String, String) -> String + use<> {
    let asker = dialect.asker(asker, args);
    let mut arrays: Vec<Value> = columns.iter().map(|(_, of)| Value::array(*of)).collect();
    for value in rows.into_iter().flat_map(|row| row.into_iter().enumerate()) {
        arrays[value.0].push(value.1);
    }
    let names: Vec<&str> = columns.iter().map(|(name, _)| *name).collect();
    let first = args.len() + 1;
    args.extend(arrays);
    let arrays: Vec<String> = (first..=args.len()).map(|i| format!("${i}")).collect();
    let (jobs, names, arrays) = (dialect.prefix.clone(), names.join(", "), arrays.join(", "));
    move |set, condition| {
        format!(
            "WITH c AS MATERIALIZED ({asker}), t AS MATERIALIZED (\
               SELECT t.* FROM c, unnest({arrays}) AS t ({names}), \
               LATERAL (SELECT FROM {jobs}_job j WHERE {condition} FOR NO KEY UPDATE) held) \
             UPDATE {jobs}_job j SET {set} FROM c, t WHERE j.name = t.of_name"
        )
    }
}
