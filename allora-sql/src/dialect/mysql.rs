//! MySQL, from 8.0, and MariaDB, from 10.5.

use super::Flavour;
use crate::row::Type;

pub(crate) struct MySqlFlavour;

/// Not NOW(6): that is when the statement began, before it waited for a lock. The session's zone
/// is +00:00.
pub(crate) const CLOCK: &str = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', SYSDATE(6))";

impl Flavour for MySqlFlavour {
    fn column(&self, of: Type) -> &'static str {
        match of {
            Type::Int => "BIGINT NOT NULL",
            Type::IntOrNull => "BIGINT NULL",
            // The default collation makes one key of `j`, `J` and `j `; bytes are bytes.
            Type::Name => "VARBINARY(255) NOT NULL",
            Type::Bytes => "LONGBLOB NOT NULL",
            Type::BytesOrNull => "LONGBLOB NULL",
        }
    }

    fn table_options(&self) -> &'static str {
        " ENGINE = InnoDB ROW_FORMAT = DYNAMIC"
    }

    fn placeholder(&self, sql: &mut String, _: usize) {
        sql.push('?');
    }

    fn clock(&self) -> &'static str {
        CLOCK
    }

    fn for_update(&self) -> &'static str {
        " FOR UPDATE"
    }

    fn or_replace(&self, _: &str, columns: &[&str]) -> String {
        let set: Vec<String> = columns.iter().map(|c| format!("{c} = VALUES({c})")).collect();
        format!(" ON DUPLICATE KEY UPDATE {}", set.join(", "))
    }

    fn index_exists(&self, table: &str, index: &str) -> String {
        format!(
            "SELECT 1 FROM information_schema.statistics WHERE table_schema = DATABASE() \
             AND table_name = '{table}' AND index_name = '{index}' LIMIT 1"
        )
    }

    fn table_exists(&self, table: &str) -> String {
        format!(
            "SELECT 1 FROM information_schema.tables WHERE table_schema = DATABASE() \
             AND table_name = '{table}'"
        )
    }

    fn lock(&self, prefix: &str) -> Option<String> {
        // Every DDL statement commits, so that a transaction holds nothing here. The names of such
        // locks belong to the whole server and have at most 64 characters.
        Some(format!("SELECT GET_LOCK(MD5(CONCAT('allora/', DATABASE(), '/{prefix}')), 30)"))
    }

    fn unlock(&self, prefix: &str) -> Option<String> {
        Some(format!("SELECT RELEASE_LOCK(MD5(CONCAT('allora/', DATABASE(), '/{prefix}')))"))
    }

    fn pause(&self, ms: u64) -> Option<String> {
        Some(format!("DO SLEEP({ms} / 1000.0)"))
    }

    fn notice_index_filter(&self) -> &'static str {
        ""
    }
}
