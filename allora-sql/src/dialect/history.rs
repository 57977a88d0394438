//! Statements about the history.

use super::{Dialect, Keys, names, shape};
use crate::{
    driver::{Statement, Value},
    encoding::HISTORY,
};
use allora_core::backend::{HistoryCursor, HistoryQuery};
use std::sync::LazyLock;

static HISTORY_SHAPE: LazyLock<Vec<u8>> = LazyLock::new(|| shape(HISTORY));

/// The most places that one statement looks up.
pub(crate) const PLACES: usize = 64;

static PLACES_SHAPE: [u8; PLACES] = [b'i'; PLACES];

/// A statement about the history, as far as it is put together.
struct Parts<'a> {
    dialect: &'a Dialect,
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

    /// The condition that an entry is above this one.
    fn above(&mut self, HistoryCursor { fence, name }: &HistoryCursor) {
        self.bind(" AND fence >= ", Value::int(*fence));
        self.bind(" AND (fence > ", Value::int(*fence));
        self.bind(" OR name > ", Value::bytes(name));
        self.text.push(')');
    }
}

impl Dialect {
    /// A statement that begins with this text, in which `{h}` stands for the table.
    fn of_history(&self, text: &str) -> Parts<'_> {
        let text = text.replace("{h}", &format!("{}_history", self.prefix));
        Parts { dialect: self, text, args: Vec::new() }
    }

    /// A page of the history.
    pub(crate) fn history_entries(&self, query: HistoryQuery<'_>) -> Statement {
        let head = format!("SELECT {} FROM {{h}} WHERE 1 = 1", names(HISTORY));
        let mut parts = self.of_history(&head);
        if let Some(name) = query.name {
            parts.bind(" AND name = ", Value::bytes(name));
        }
        if let Some(before) = query.before {
            parts.below(before);
        }
        parts.text.push_str(" ORDER BY fence DESC, name DESC");
        parts.limit(query.limit);
        Statement::new(parts.text, parts.args, &HISTORY_SHAPE)
    }

    /// The place of the entry that is so many entries below another, or of the newest ones the one of
    /// this number.
    pub(crate) fn history_place(&self, below: Option<&HistoryCursor>, entries: u64) -> Statement {
        let mut parts = self.of_history("SELECT fence, name FROM {h} WHERE 1 = 1");
        if let Some(below) = below {
            parts.below(below);
        }
        let before = Value::int(entries.saturating_sub(1).cast_signed());
        parts.bind(" ORDER BY fence DESC, name DESC LIMIT 1 OFFSET ", before);
        Statement::new(parts.text, parts.args, b"ib")
    }

    /// The number of the entries below another, at most this number.
    pub(crate) fn history_count(&self, below: Option<&HistoryCursor>, most: u64) -> Statement {
        let mut parts = self.of_history("SELECT COUNT(*) FROM (SELECT fence FROM {h} WHERE 1 = 1");
        if let Some(below) = below {
            parts.below(below);
        }
        parts.bind(" ORDER BY fence DESC, name DESC LIMIT ", Value::int(most.cast_signed()));
        parts.text.push_str(") n");
        Statement::new(parts.text, parts.args, b"i")
    }

    /// One row: of each job and number, the fence of the job's entry of this number from the newest, or
    /// NULL. A power of two of them, so that few different statements are prepared: the last one is
    /// repeated.
    pub(crate) fn history_places(&self, places: &[(&str, u64)]) -> Statement {
        let mut parts = self.of_history("SELECT ");
        let first = "(SELECT fence FROM {h} WHERE name = ";
        let first = first.replace("{h}", &format!("{}_history", self.prefix));
        let count = places.len().next_power_of_two().min(PLACES);
        for i in 0..count {
            let Some((name, place)) = places.get(i).or(places.last()) else { break };
            parts.text.push_str(if i == 0 { "" } else { ", " });
            parts.bind(&first, Value::bytes(name));
            let before = Value::int(place.saturating_sub(1).cast_signed());
            parts.bind(" ORDER BY fence DESC LIMIT 1 OFFSET ", before);
            parts.text.push(')');
        }
        Statement::new(parts.text, parts.args, &PLACES_SHAPE[..count])
    }

    /// Fences and outcomes of the entries of one job below this fence, the highest first.
    pub(crate) fn history_marks(&self, name: &str, below: i64, limit: usize) -> Statement {
        let mut parts = self.of_history("SELECT fence, outcome FROM {h} WHERE name = ");
        parts.bind("", Value::bytes(name));
        parts.bind(" AND fence < ", Value::int(below));
        parts.text.push_str(" ORDER BY fence DESC");
        parts.limit(limit);
        Statement::new(parts.text, parts.args, b"ib")
    }

    /// The places of the lowest entries above this one.
    pub(crate) fn oldest_history(&self, above: Option<&HistoryCursor>, limit: usize) -> Statement {
        let mut parts = self.of_history("SELECT fence, name FROM {h} WHERE 1 = 1");
        if let Some(above) = above {
            parts.above(above);
        }
        parts.text.push_str(" ORDER BY fence, name");
        parts.limit(limit);
        Statement::new(parts.text, parts.args, b"ib")
    }

    /// Removes these entries by their keys. A power of two of them, as of
    /// [`history_places`](Self::history_places).
    pub(crate) fn remove_history(&self, entries: &[HistoryCursor]) -> Statement {
        let mut parts = self.of_history("DELETE FROM {h} WHERE ");
        // The first condition is for the index.
        let fences: Vec<i64> = entries.iter().map(|entry| entry.fence).collect();
        let (is_any, args) = self.flavour.is_any("fence", Keys::Ids(&fences), 1);
        parts.text.push_str(&is_any);
        parts.args = args;
        for i in 0..entries.len().next_power_of_two() {
            let Some(entry) = entries.get(i).or(entries.last()) else { break };
            let or = if i == 0 { " AND ((fence = " } else { " OR (fence = " };
            parts.bind(or, Value::int(entry.fence));
            parts.bind(" AND name = ", Value::bytes(&entry.name));
            parts.text.push(')');
        }
        parts.text.push(')');
        Statement::new(parts.text, parts.args, b"")
    }
}
