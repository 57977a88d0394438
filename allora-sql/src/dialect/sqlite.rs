//! SQLite, from 3.37.

use super::{
    Dialect, Flavour, RequestContext, SimpleClaim, SimpleCompletion, SingleStatement,
    single_statement::Columns,
};
use crate::driver::{Statement, Type, Value};

pub(crate) struct SqliteFlavour;

impl Flavour for SqliteFlavour {
    fn column(&self, of: Type) -> &'static str {
        match of {
            Type::Id => "INTEGER PRIMARY KEY AUTOINCREMENT",
            Type::Int => "INTEGER NOT NULL",
            Type::IntOrNull => "INTEGER",
            Type::Name | Type::Bytes => "BLOB NOT NULL",
            Type::BytesOrNull => "BLOB",
        }
    }

    fn table_options(&self, _: &str) -> &'static str {
        // Without STRICT a text in a column of numbers is accepted; it is greater than every
        // number, so that its job is never due, without an error.
        " STRICT"
    }

    fn placeholder(&self, sql: &mut String, _: usize) {
        sql.push('?');
    }

    fn clock(&self) -> &'static str {
        // It has whole milliseconds. `unixepoch('subsec')` is missing before 3.42.
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

    fn pause(&self, _: u64) -> Option<String> {
        // The busy timeout has waited already.
        None
    }

    fn kinds_at_once(&self) -> usize {
        64
    }

    fn due_index_filter(&self) -> &'static str {
        " WHERE index_at IS NOT NULL"
    }

    fn least(&self, one: &str, other: &str) -> String {
        format!("MIN({one}, {other})")
    }

    fn greatest(&self, one: &str, other: &str) -> String {
        format!("MAX({one}, {other})")
    }

    // `RETURNING` can return the row's own columns only. The clock stands still for a whole
    // statement, which reads it when it has the lock of the database.

    fn claims(
        &self,
        dialect: &Dialect,
        context: &RequestContext<'_>,
        claims: &[SimpleClaim],
    ) -> SingleStatement {
        let mut args = Vec::new();
        let rows = claims.iter().map(SimpleClaim::values).collect();
        let with = with(dialect, context, SimpleClaim::COLUMNS, rows, &mut args);
        let text = format!(
            "{with} UPDATE {}_state AS s SET {} FROM c, t WHERE {} AND {} \
             RETURNING {}, id, lease_scheduled_at, fence, incarnation, lease_until",
            dialect.prefix,
            SimpleClaim::set(self),
            SimpleClaim::condition(self),
            SimpleClaim::in_time(self),
            self.clock(),
        );
        SingleStatement::Returning(Statement::new(text, args, SimpleClaim::SHAPE))
    }

    fn completions(
        &self,
        dialect: &Dialect,
        context: &RequestContext<'_>,
        completions: &[SimpleCompletion],
    ) -> SingleStatement {
        let mut args = Vec::new();
        let rows = completions.iter().map(SimpleCompletion::values).collect();
        let with = with(dialect, context, SimpleCompletion::COLUMNS, rows, &mut args);
        let text = format!(
            "{with} UPDATE {}_state AS s SET {} FROM c, t WHERE {} \
             RETURNING {}, id, lease_until, NULL",
            dialect.prefix,
            SimpleCompletion::set(self, "s.version + 1"),
            SimpleCompletion::CONDITION,
            self.clock(),
        );
        SingleStatement::Returning(Statement::new(text, args, SimpleCompletion::SHAPE))
    }
}

/// The context, and a table of these rows.
fn with(
    dialect: &Dialect,
    context: &RequestContext<'_>,
    columns: &Columns,
    rows: Vec<Vec<Value>>,
    args: &mut Vec<Value>,
) -> String {
    let context = dialect.request_context(context, args);
    let names = super::names(columns);
    let values = dialect.values("", columns, rows, args);
    format!("WITH c AS ({context}), t ({names}) AS (VALUES {values})")
}
