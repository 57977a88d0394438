//! Statements about the flags of jobs.

use super::{Dialect, KINDS};
use crate::driver::{Statement, Type, Value};
use allora_core::backend::MOST_COUNTED;

/// The most keys that one statement counts.
pub(crate) const COUNTED_AT_ONCE: usize = 64;

/// A statement, as far as it is put together.
struct Parts<'a> {
    dialect: &'a Dialect,
    text: String,
    args: Vec<Value>,
}

impl Parts<'_> {
    /// Adds a text in which `{f}` stands for the table.
    fn add(&mut self, text: &str) {
        self.text.push_str(&text.replace("{f}", &format!("{}_flag", self.dialect.prefix)));
    }

    /// Adds a text, and the placeholder of a value behind it.
    fn bind(&mut self, text: &str, value: Value) {
        self.add(text);
        self.args.push(value);
        self.dialect.flavour.placeholder(&mut self.text, self.args.len());
    }

    /// The condition that a column begins with this text.
    fn begins(&mut self, column: &str, begin: &str) {
        self.bind(&format!(" AND {column} >= "), Value::bytes(begin));
        self.bind(&format!(" AND {column} < "), behind(begin));
    }
}

/// The first bytes behind all texts that begin with this one: UTF-8 has no byte 0xFF.
fn behind(begin: &str) -> Value {
    Value::bytes([begin.as_bytes(), &[0xFF]].concat())
}

impl Dialect {
    fn of_flags(&self) -> Parts<'_> {
        Parts { dialect: self, text: String::new(), args: Vec::new() }
    }

    /// The names under a key, in the order of their bytes.
    pub(crate) fn flagged_names(
        &self,
        key: &str,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Statement {
        let mut parts = self.of_flags();
        parts.bind("SELECT name FROM {f} WHERE flag = ", Value::bytes(key));
        parts.begins("name", prefix);
        if let Some(after) = after {
            parts.bind(" AND name > ", Value::bytes(after));
        }
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        parts.bind(" ORDER BY name LIMIT ", Value::int(limit));
        Statement::new(parts.text, parts.args, b"b")
    }

    /// The numbers of names under these keys, each with the place of its key.
    pub(crate) fn count_flagged(&self, keys: &[String], prefix: &str) -> Statement {
        let mut parts = self.of_flags();
        for (i, key) in keys.iter().enumerate() {
            if i > 0 {
                parts.add(" UNION ALL ");
            }
            parts.add("SELECT ");
            parts.args.push(Value::int(i64::try_from(i).unwrap_or(i64::MAX)));
            let place = parts.args.len();
            self.flavour.typed_placeholder(&mut parts.text, place, Type::Int);
            parts.add(" AS place, COUNT(*) AS names FROM (");
            parts.bind("SELECT 1 AS one FROM {f} WHERE flag = ", Value::bytes(key));
            parts.begins("name", prefix);
            parts.add(&format!(" LIMIT {}) c{i}", MOST_COUNTED + 1));
        }
        Statement::new(parts.text, parts.args, b"ii")
    }

    /// The first keys that begin with this text, from this one on, at most [`KINDS`]: a step of the
    /// index for each key, and none for each job.
    pub(crate) fn flag_keys(&self, begin: &str, from: &str) -> Statement {
        let mut parts = self.of_flags();
        parts.add("WITH RECURSIVE k (flag, n) AS (SELECT (");
        parts.bind("SELECT flag FROM {f} WHERE flag >= ", Value::bytes(from));
        parts.bind(" AND flag < ", behind(begin));
        parts.add(" ORDER BY flag LIMIT 1), 1 UNION ALL SELECT (");
        parts.bind("SELECT flag FROM {f} WHERE flag > k.flag AND flag < ", behind(begin));
        parts.add(&format!(
            " ORDER BY flag LIMIT 1), k.n + 1 FROM k WHERE k.flag IS NOT NULL AND k.n < {KINDS}) \
             SELECT flag FROM k WHERE flag IS NOT NULL"
        ));
        Statement::new(parts.text, parts.args, b"b")
    }
}
