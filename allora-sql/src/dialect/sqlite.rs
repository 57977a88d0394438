//! SQLite, from 3.37.

use super::{
    Dialect, Flavour,
    fast::{Asker, Columns, Fast, SimpleEnd, SimpleTake},
};
use crate::{
    driver::{Statement, Value},
    row::Type,
};

pub(crate) struct SqliteFlavour;

impl Flavour for SqliteFlavour {
    fn column(&self, of: Type) -> &'static str {
        match of {
            Type::Int => "INTEGER NOT NULL",
            Type::IntOrNull => "INTEGER",
            Type::Name | Type::Bytes => "BLOB NOT NULL",
            Type::BytesOrNull => "BLOB",
        }
    }

    fn table_options(&self) -> &'static str {
        // Without STRICT a text in a column of numbers is accepted; it is greater than every
        // number, so that its job is never due and nobody is told.
        " STRICT"
    }

    fn placeholder(&self, sql: &mut String, _: usize) {
        sql.push('?');
    }

    fn clock(&self) -> &'static str {
        // Whole milliseconds are what it has. `unixepoch('subsec')` is missing before 3.42.
        "CAST(ROUND((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000"
    }

    fn for_update(&self) -> &'static str {
        ""
    }

    fn or_replace(&self, key: &str, columns: &[&str]) -> String {
        let set: Vec<String> = columns.iter().map(|c| format!("{c} = excluded.{c}")).collect();
        format!(" ON CONFLICT ({key}) DO UPDATE SET {}", set.join(", "))
    }

    fn index_exists(&self, table: &str, index: &str) -> String {
        format!(
            "SELECT 1 FROM sqlite_master WHERE type = 'index' AND tbl_name = '{table}' \
             AND name = '{index}'"
        )
    }

    fn table_exists(&self, table: &str) -> String {
        format!("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = '{table}'")
    }

    fn lock(&self, _: &str) -> Option<String> {
        None
    }

    fn unlock(&self, _: &str) -> Option<String> {
        None
    }

    fn pause(&self, _: u64) -> Option<String> {
        // The busy timeout has waited already.
        None
    }

    fn notice_index_filter(&self) -> &'static str {
        " WHERE notice_at IS NOT NULL"
    }

    fn repeats_rows(&self) -> bool {
        true
    }

    fn least(&self, one: &str, other: &str) -> String {
        format!("MIN({one}, {other})")
    }

    fn greatest(&self, one: &str, other: &str) -> String {
        format!("MAX({one}, {other})")
    }

    // What is returned can only be the job's own. The clock stands still for a whole statement.

    fn takes(&self, dialect: &Dialect, asker: &Asker<'_>, takes: &[SimpleTake<'_>]) -> Fast {
        let mut args = Vec::new();
        let rows = takes.iter().map(SimpleTake::values).collect();
        let with = with(dialect, asker, SimpleTake::COLUMNS, rows, &mut args);
        let text = format!(
            "{with} UPDATE {}_job AS j SET {} FROM c, t WHERE {} \
             RETURNING {}, name, hold_at, fence, incarnation, hold_until",
            dialect.prefix,
            SimpleTake::set(self),
            SimpleTake::condition(self),
            self.clock(),
        );
        Fast::Returning(Statement::new(text, args, SimpleTake::SHAPE))
    }

    fn endings(&self, dialect: &Dialect, asker: &Asker<'_>, ends: &[SimpleEnd<'_>]) -> Fast {
        let mut args = Vec::new();
        let rows = ends.iter().map(SimpleEnd::values).collect();
        let with = with(dialect, asker, SimpleEnd::COLUMNS, rows, &mut args);
        let text = format!(
            "{with} UPDATE {}_job AS j SET {} FROM c, t WHERE {} \
             RETURNING name, hold_until, NULL",
            dialect.prefix,
            SimpleEnd::set(self),
            SimpleEnd::CONDITION,
        );
        Fast::Returning(Statement::new(text, args, SimpleEnd::SHAPE))
    }
}

/// The asker, and a table of these rows.
fn with(
    dialect: &Dialect,
    asker: &Asker<'_>,
    columns: &Columns,
    rows: Vec<Vec<Value>>,
    args: &mut Vec<Value>,
) -> String {
    let asker = dialect.asker(asker, args);
    let names: Vec<&str> = columns.iter().map(|(name, _)| *name).collect();
    let values = dialect.values("", columns, rows, args);
    format!("WITH c AS ({asker}), t ({}) AS (VALUES {values})", names.join(", "))
}
