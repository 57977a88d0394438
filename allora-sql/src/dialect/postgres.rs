//! PostgreSQL, from 12.

use super::{Dialect, Flavour};
use crate::{driver::{Statement, Value}, row::Type};
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

    fn notify(&self, channel: &str, payload: &str) -> Option<Statement> {
        let args = vec![Value::bytes(channel), Value::bytes(payload)];
        let text = "SELECT pg_notify(convert_from($1, 'UTF8'), convert_from($2, 'UTF8'))::TEXT";
        Some(Statement::new(text, args, b""))
    }
}
