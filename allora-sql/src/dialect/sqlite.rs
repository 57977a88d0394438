//! SQLite, from 3.37.

use super::Flavour;
use crate::row::Type;

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
}
