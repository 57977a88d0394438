//! MySQL, from 8.0.19, and MariaDB, from 10.5.

use super::{
    Dialect, Flavour,
    fast::{Asker, Columns, Fast, SimpleEnd, SimpleTake},
};
use crate::{
    driver::{Statement, Value},
    row::Type,
};

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
        // locks belong to the whole server and have at most 64 characters. MySQL 9.6 has no MD5 any
        // more.
        Some(format!("SELECT GET_LOCK(SHA2(CONCAT('allora/', DATABASE(), '/{prefix}'), 224), 30)"))
    }

    fn unlock(&self, prefix: &str) -> Option<String> {
        Some(format!("SELECT RELEASE_LOCK(SHA2(CONCAT('allora/', DATABASE(), '/{prefix}'), 224))"))
    }

    fn pause(&self, ms: u64) -> Option<String> {
        Some(format!("DO SLEEP({ms} / 1000.0)"))
    }

    fn notice_index_filter(&self) -> &'static str {
        ""
    }

    fn repeats_rows(&self) -> bool {
        true
    }

    fn whole_division(&self) -> &'static str {
        "DIV"
    }

    fn typed_placeholder(&self, sql: &mut String, _: usize, of: Type) {
        sql.push_str(match of {
            Type::Int | Type::IntOrNull => "CAST(? AS SIGNED)",
            Type::Name | Type::Bytes | Type::BytesOrNull => "CAST(? AS BINARY)",
        });
    }

    /// An `UPDATE` returns nothing. What was won is told by the claims, which nobody else has: a
    /// take whose hold is gone again when it is read back was too slow, and is not this node's any
    /// more. Nor is one whose hold is over: it may be of the same take, sent before, and then it is
    /// for the general path to give it again, as another attempt.
    fn takes(&self, dialect: &Dialect, asker: &Asker<'_>, takes: &[SimpleTake<'_>]) -> Fast {
        let mut args = Vec::new();
        let rows = takes.iter().map(SimpleTake::values).collect();
        let update = update(dialect, asker, SimpleTake::COLUMNS, rows, &mut args);
        let (set, condition) = (SimpleTake::set(self), SimpleTake::condition(self));
        let write = Statement::new(update(&set, &condition), args, b"");
        let names: Vec<&[u8]> = takes.iter().map(|take| take.name.as_bytes()).collect();
        let claims: Vec<&[u8]> = takes.iter().map(|take| &take.claim[..]).collect();
        let (names, mut args) = dialect.list(&names, 1);
        let (claims, more) = dialect.list(&claims, args.len() + 1);
        args.extend(more);
        let text = format!(
            "SELECT {CLOCK}, name, hold_at, hold_fence, incarnation, hold_until FROM {}_job \
             WHERE name IN ({names}) AND claim IN ({claims}) AND hold_attempt = 1 \
             AND more IS NULL AND gone_at IS NULL \
             AND hold_until * 1000 > COALESCE(CAST(? AS SIGNED), {CLOCK})",
            dialect.prefix
        );
        args.push(Value::Int(asker.now));
        let read = Statement::new(text, args, SimpleTake::SHAPE);
        Fast::ReadBack { write, read }
    }

    /// A finish always changes its row, so that the number of rows says whether all were accepted.
    fn endings(&self, dialect: &Dialect, asker: &Asker<'_>, ends: &[SimpleEnd<'_>]) -> Fast {
        let mut args = Vec::new();
        let rows = ends.iter().map(SimpleEnd::values).collect();
        let update = update(dialect, asker, SimpleEnd::COLUMNS, rows, &mut args);
        let text = update(&SimpleEnd::set(self), SimpleEnd::CONDITION);
        Fast::Counted(Statement::new(text, args, b""))
    }

    fn extends_at_once(&self) -> bool {
        false
    }
}

/// An `UPDATE` of the jobs beside the asker and these rows, in their order. The types of the rows are
/// those of the job's columns; MySQL wants a word before each that MariaDB does not know, and takes
/// for a comment.
fn update(
    dialect: &Dialect,
    asker: &Asker<'_>,
    columns: &Columns,
    rows: Vec<Vec<Value>>,
    args: &mut Vec<Value>,
) -> impl Fn(&str, &str) -> String + use<> {
    let asker = dialect.asker(asker, args);
    let types = columns.iter().map(|(name, of)| match of {
        Type::Int | Type::IntOrNull => format!("fence AS {name}"),
        Type::Name | Type::Bytes | Type::BytesOrNull => format!("name AS {name}"),
    });
    let types = types.collect::<Vec<_>>().join(", ");
    let values = dialect.values("/*!80019 ROW */ ", columns, rows, args);
    let jobs = format!("{}_job", dialect.prefix);
    move |set, condition| {
        format!(
            "UPDATE ({asker} LIMIT 1) c STRAIGHT_JOIN \
               (SELECT {types} FROM {jobs} WHERE 1 = 0 UNION ALL VALUES {values}) t \
             STRAIGHT_JOIN {jobs} j ON j.name = t.of_name SET {set} WHERE {condition}"
        )
    }
}
