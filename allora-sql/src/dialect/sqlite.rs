//! SQLite, from 3.37.

use super::{
    Dialect, Flavour, RequestContext, SimpleClaim, SimpleCompletion, SingleStatement,
    single_statement::{Columns, End, NOW, of_head, of_t},
};
use crate::{
    driver::{Statement, Type, Value},
    encoding::IndexPlace,
};
use allora_core::backend::ClaimDue;

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

    fn clock(&self) -> &'static str {
        // It has whole milliseconds. `unixepoch('subsec')` is missing before 3.42.
        "CAST(ROUND((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000"
    }

    fn for_update(&self) -> &'static str {
        ""
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

    fn column_exists(&self, table: &str, column: &str) -> String {
        format!("SELECT 1 FROM pragma_table_info('{table}') WHERE name = '{column}'")
    }

    fn kinds_at_once(&self) -> usize {
        64
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
            SimpleClaim::set(self, of_t),
            SimpleClaim::condition(self),
            SimpleClaim::in_time(self, of_t),
            self.clock(),
        );
        SingleStatement::Returning(Statement::new(text, args, SimpleClaim::SHAPE))
    }

    /// The subquery is evaluated once, before any row is changed. Returns the clock and the keys.
    fn claim_due(
        &self,
        dialect: &Dialect,
        context: &RequestContext<'_>,
        query: &ClaimDue<'_>,
        behind: IndexPlace,
    ) -> Option<Statement> {
        let states = format!("{}_state", dialect.prefix);
        let limit = Value::int(i64::try_from(query.limit).unwrap_or(i64::MAX));
        let mut args = Vec::new();
        let context = dialect.claim_context(context, query, &mut args);
        let now_ms = format!("(SELECT {NOW} / 1000 FROM c)");
        let mut due = Vec::new();
        for kind in query.kinds {
            due.push(format!(
                "SELECT * FROM (SELECT s.id, s.index_at FROM {states} s \
                   WHERE s.kind = ? AND s.index_at IS NOT NULL AND (s.index_at, s.id) > (?, ?) \
                     AND s.index_at <= {now_ms} AND {condition} \
                   ORDER BY s.index_at, s.id LIMIT ?)",
                condition = SimpleClaim::condition_of_head(self, &now_ms),
            ));
            let behind = [Value::int(behind.index_at), Value::int(behind.id)];
            args.push(Value::bytes(kind));
            args.extend(behind.into_iter().chain([limit.clone()]));
        }
        args.push(limit);
        let text = format!(
            "WITH c AS ({context}) UPDATE {states} AS s SET {set} FROM c \
             WHERE s.id IN (SELECT id FROM ({due}) ORDER BY index_at LIMIT ?) AND {in_time} \
             RETURNING {clock}, id",
            set = SimpleClaim::set(self, of_head),
            due = due.join(" UNION ALL "),
            in_time = SimpleClaim::in_time(self, of_head),
            clock = self.clock(),
        );
        Some(Statement::new(text, args, b"ii"))
    }

    fn ended(
        &self,
        dialect: &Dialect,
        context: &RequestContext<'_>,
        completions: &[SimpleCompletion],
    ) -> Vec<Statement> {
        // `CROSS JOIN` keeps the order: from the bound rows to the states, by their keys.
        let states =
            format!("c CROSS JOIN t CROSS JOIN {}_state s ON s.id = t.of_id", dialect.prefix);
        let mut statements = Vec::new();
        if dialect.has_entries {
            let mut args = Vec::new();
            let columns = [SimpleCompletion::COLUMNS, &[SimpleCompletion::OUTPUT]].concat();
            let rows = completions.iter().map(SimpleCompletion::values_with_output).collect();
            let with = with(dialect, context, &columns, rows, &mut args);
            statements.push(Statement::new(dialect.ended_entries(&with, &states), args, b""));
        }
        let last = completions.iter().filter(|one| one.ends_schedule());
        let rows: Vec<_> = last.map(SimpleCompletion::values).collect();
        if !rows.is_empty() {
            let mut args = Vec::new();
            let with = with(dialect, context, SimpleCompletion::COLUMNS, rows, &mut args);
            statements.push(Statement::new(dialect.ended_flags(&with, &states), args, b""));
        }
        statements
    }

    fn completions(
        &self,
        dialect: &Dialect,
        context: &RequestContext<'_>,
        end: End,
        completions: &[SimpleCompletion],
    ) -> SingleStatement {
        let mut args = Vec::new();
        let rows = completions.iter().map(SimpleCompletion::values).collect();
        let with = with(dialect, context, SimpleCompletion::COLUMNS, rows, &mut args);
        let text = format!(
            "{with} UPDATE {}_state AS s SET {} FROM c, t WHERE s.id = t.of_id AND {} \
             RETURNING {}, id, lease_until, NULL",
            dialect.prefix,
            SimpleCompletion::set(self, end, false, "s.version + 1", of_t),
            SimpleCompletion::condition(end, of_t),
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
