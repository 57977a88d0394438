//! Statements about the history and the changes by clients.

use super::{Dialect, names, shape};
use crate::{
    driver::{Statement, Value},
    encoding::HISTORY,
};
use allora_core::backend::{HistoryCursor, HistoryQuery};
use std::sync::LazyLock;

/// The condition of the index of failures. `is_failure = 1` alone would let PostgreSQL, as long as it has
/// no statistics, prune one job by this index, and so read the failures of all.
pub(super) const FAILURES: &str = "is_failure + 0 = 1";

static HISTORY_SHAPE: LazyLock<Vec<u8>> = LazyLock::new(|| shape(HISTORY));

/// A statement about one of the two tables, as far as it is put together.
struct Parts<'a> {
    dialect: &'a Dialect,
    table: &'static str,
    text: String,
    args: Vec<Value>,
}

impl Parts<'_> {
    /// Adds a text, and the placeholder of a value behind it.
    fn bind(&mut self, text: &str, value: Value) {
        self.text.push_str(text);
        self.args.push(value);
        self.dialect.flavour.placeholder(&mut self.text, self.args.len());
    }

    /// Adds a text in which `{h}` stands for the table.
    fn add(&mut self, text: &str) {
        let table = format!("{}_{}", self.dialect.prefix, self.table);
        self.text.push_str(&text.replace("{h}", &table));
    }

    /// The rest of the condition that an entry is of this job, a failure or not, and below this fence.
    fn old(&mut self, name: &str, is_failure: bool, below: i64) {
        self.bind("", Value::bytes(name));
        self.bind(" AND is_failure = ", Value::int(is_failure.into()));
        self.bind(" AND fence < ", Value::int(below));
    }

    /// The end of a page.
    fn page(&mut self, query: HistoryQuery<'_>) {
        if let Some(before) = query.before {
            self.below(before);
        }
        self.text.push_str(" ORDER BY fence DESC, name DESC");
        self.limit(query.limit);
    }

    fn limit(&mut self, entries: usize) {
        self.bind(" LIMIT ", Value::int(i64::try_from(entries).unwrap_or(i64::MAX)));
    }

    /// The condition that an entry is below this one, in the order of the key.
    fn below(&mut self, HistoryCursor { fence, name }: &HistoryCursor) {
        // The first condition is for the index.
        self.bind(" AND fence <= ", Value::int(*fence));
        self.bind(" AND (fence < ", Value::int(*fence));
        self.bind(" OR name < ", Value::bytes(name));
        self.text.push(')');
    }
}

impl Dialect {
    /// A statement that begins with this text, in which `{h}` stands for the table.
    fn of_history(&self, text: &str) -> Parts<'_> {
        self.of_table("history", text)
    }

    fn of_table(&self, table: &'static str, text: &str) -> Parts<'_> {
        let mut parts = Parts { dialect: self, table, text: String::new(), args: Vec::new() };
        parts.add(text);
        parts
    }

    /// A page of the changes.
    pub(crate) fn change_entries(&self, query: HistoryQuery<'_>) -> Statement {
        let mut parts = self.of_table("change", "SELECT entry FROM {h} WHERE ");
        match query.name {
            None => parts.text.push_str("1 = 1"),
            Some(name) => parts.bind("name = ", Value::bytes(name)),
        }
        parts.page(query);
        Statement::new(parts.text, parts.args, b"b")
    }

    /// The fence of the first change beyond so many.
    pub(crate) fn first_change_beyond(&self, changes: u64) -> Statement {
        let text = "SELECT fence FROM {h} ORDER BY fence DESC, name DESC LIMIT 1";
        let mut parts = self.of_table("change", text);
        parts.bind(" OFFSET ", Value::int(changes.cast_signed()));
        Statement::new(parts.text, parts.args, b"i")
    }

    /// Removes the oldest changes below this fence, those with the first `most` fences.
    pub(crate) fn remove_changes(&self, below: i64, most: u64) -> Statement {
        let mut parts =
            self.of_table("change", "DELETE FROM {h} WHERE fence IN (SELECT fence FROM (");
        parts.add("SELECT fence FROM {h} WHERE fence < ");
        parts.bind("", Value::int(below));
        parts.bind(" ORDER BY fence LIMIT ", Value::int(most.cast_signed()));
        parts.text.push_str(") r)");
        Statement::new(parts.text, parts.args, b"")
    }

    /// A page of the history. One of a job is made of two parts of the index, each of which is read in
    /// its order; of failures only the second one is read. Failures of all jobs have an index of their
    /// own where the database knows partial ones; its condition has to be in the text for that.
    pub(crate) fn history_entries(&self, query: HistoryQuery<'_>) -> Statement {
        let columns = names(HISTORY);
        let head = format!("SELECT {columns} FROM {{h}} WHERE ");
        let mut parts = self.of_history("");
        match query.name {
            None => {
                parts.add(&head);
                let is_indexed = query.failures_only && self.flavour.has_partial_indexes();
                parts.text.push_str(if is_indexed { FAILURES } else { "1 = 1" });
                parts.page(query);
            }
            Some(name) => {
                for is_failure in i64::from(query.failures_only)..=1 {
                    if !parts.args.is_empty() {
                        parts.text.push_str(" UNION ALL ");
                    }
                    parts.text.push_str("SELECT * FROM (");
                    parts.add(&head);
                    parts.bind("name = ", Value::bytes(name));
                    parts.bind(" AND is_failure = ", Value::int(is_failure));
                    parts.page(query);
                    parts.text.push_str(") p");
                }
                parts.text.push_str(" ORDER BY fence DESC");
                parts.limit(query.limit);
            }
        }
        Statement::new(parts.text, parts.args, &HISTORY_SHAPE)
    }

    /// The fence of the first entry of a job beyond so many, of its failures or of the others.
    pub(crate) fn first_beyond(&self, name: &str, is_failure: bool, entries: u64) -> Statement {
        let mut parts = self.of_history("SELECT fence FROM {h} WHERE name = ");
        parts.bind("", Value::bytes(name));
        parts.bind(" AND is_failure = ", Value::int(is_failure.into()));
        parts.bind(" ORDER BY fence DESC LIMIT 1 OFFSET ", Value::int(entries.cast_signed()));
        Statement::new(parts.text, parts.args, b"i")
    }

    /// Removes the oldest entries of a job below this fence, at most `most`: of its failures or of the
    /// others.
    pub(crate) fn remove_history(
        &self,
        name: &str,
        is_failure: bool,
        below: i64,
        most: u64,
    ) -> Statement {
        let mut parts = self.of_history("DELETE FROM {h} WHERE name = ");
        parts.old(name, is_failure, below);
        // By a derived table, without which MySQL has neither the limit nor the same table.
        parts.add(" AND fence IN (SELECT fence FROM (SELECT fence FROM {h} WHERE name = ");
        parts.old(name, is_failure, below);
        parts.bind(" ORDER BY fence LIMIT ", Value::int(most.cast_signed()));
        parts.text.push_str(") r)");
        Statement::new(parts.text, parts.args, b"")
    }
}
