//! SQLite, from 3.37.

use super::{
    Dialect, Flavour, RequestContext, SimpleClaim, SimpleCompletion, SingleStatement,
    read::CLAIMED_SHAPE,
    single_statement::{Columns, End, NOW, due_claim, of_t},
};
use crate::{
    claimed_row,
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

    /// The subquery is evaluated once, before any row is changed.
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
        let context_text = dialect.request_context(context, &mut args);
        args.push(Value::bytes(query.claim_id.to_be_bytes()));
        let now = format!("COALESCE(?, {})", self.clock());
        let mut due = Vec::new();
        for kind in query.kinds {
            due.push(format!(
                "SELECT * FROM (SELECT s.id, s.index_at FROM {states} s \
                   WHERE s.kind = ? AND s.index_at IS NOT NULL AND (s.index_at, s.id) > (?, ?) \
                     AND s.index_at <= {now} / 1000 AND {condition} \
                   ORDER BY s.index_at, s.id LIMIT ?)",
                condition = due_claim::condition(self, &format!("{now} / 1000")),
            ));
            args.extend([
                Value::bytes(kind),
                Value::int(behind.index_at),
                Value::int(behind.id),
                Value::Int(context.now),
                Value::Int(context.now),
                limit.clone(),
            ]);
        }
        let not_after = Value::Int(query.not_after.map(|until| until.timestamp_micros()));
        args.extend([limit, not_after.clone(), not_after]);
        let [job, state] = claimed_row::sent();
        let job = job.iter().map(|(column, _)| match *column {
            "id" => format!("{states}.id"),
            column => {
                let p = &dialect.prefix;
                format!("(SELECT j.{column} FROM {p}_job j WHERE j.id = {states}.id)")
            }
        });
        let state = state.iter().map(|(column, _)| format!("{states}.{column}"));
        let text = format!(
            "WITH c AS ({context_text}) UPDATE {states} AS s SET {set} FROM c \
             WHERE s.id IN (SELECT id FROM ({due}) ORDER BY index_at LIMIT ?) \
               AND (? IS NULL OR {NOW} <= ?) \
             RETURNING {clock}, {columns}, {data}",
            set = due_claim::set(self, "?"),
            due = due.join(" UNION ALL "),
            clock = self.clock(),
            columns = job.chain(state).collect::<Vec<_>>().join(", "),
            data = dialect.little_data_of(&format!("{states}.id")),
        );
        Some(Statement::new(text, args, &CLAIMED_SHAPE))
    }

    fn ended(
        &self,
        dialect: &Dialect,
        context: &RequestContext<'_>,
        completions: &[SimpleCompletion],
    ) -> Vec<Statement> {
        let mut args = Vec::new();
        let columns = [SimpleCompletion::COLUMNS, &[SimpleCompletion::OUTPUT]].concat();
        let rows = completions.iter().map(SimpleCompletion::values_with_output).collect();
        let with = with(dialect, context, &columns, rows, &mut args);
        let states = format!("c, t JOIN {}_state s ON s.id = t.of_id", dialect.prefix);
        vec![Statement::new(dialect.ended_entries(&with, &states), args, b"")]
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
            SimpleCompletion::set(self, end, "s.version + 1", of_t),
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
