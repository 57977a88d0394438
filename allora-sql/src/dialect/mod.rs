//! Every statement, for every database. The common part is here; a difference is in the file of its
//! database.
//!
//! These modules are the one place where SQL text is put together. It consists of a checked prefix,
//! names of columns, and numbers of placeholders; every value from outside is bound.

mod arguments;
#[cfg(any(feature = "sqlite", feature = "mysql"))]
mod entries;
mod flags;
mod history;
#[cfg(feature = "mysql")]
pub(crate) mod mysql;
#[cfg(feature = "postgres")]
pub(crate) mod postgres;
mod read;
pub(crate) mod single_statement;
#[cfg(feature = "sqlite")]
pub(crate) mod sqlite;
mod tables;
mod write;

pub(crate) use arguments::{
    DueRange, NewData, RequestContext, SimpleClaim, SimpleCompletion, Write,
};
pub(crate) use flags::COUNTED_AT_ONCE;
pub(crate) use read::KINDS;
pub(crate) use tables::{Index, LATER, Later, Step};

use crate::{
    driver::{Statement, Type, Value},
    encoding::IndexPlace,
};
use allora_core::backend::ClaimDue;
use single_statement::End;
use std::sync::Arc;

/// Rows to a statement: PostgreSQL and MySQL bind at most 65 535 values, SQLite half of that.
pub(crate) const CHUNK: usize = 512;

/// The differences of one database.
pub(crate) trait Flavour: Send + Sync {
    /// The type of a column; that of a [key](Type::Id) says that it is one.
    fn column(&self, of: Type) -> &'static str;
    /// The text after the parenthesis of a `CREATE TABLE`.
    fn table_options(&self, table: &str) -> &'static str;
    /// The `i`th placeholder, from 1.
    fn placeholder(&self, sql: &mut String, _: usize) {
        sql.push('?');
    }
    /// Microseconds since 1970 by the database's clock, not by the start of the transaction.
    fn clock(&self) -> &'static str;
    /// Locks the rows of a `SELECT` of one table; empty where the whole database is locked anyway.
    fn for_update(&self) -> &'static str {
        " FOR UPDATE"
    }
    /// The same for the rows that no other transaction has locked.
    fn for_update_of_free_rows(&self) -> &'static str {
        self.for_update()
    }
    /// The tail of an `INSERT` that replaces these columns where the key exists.
    fn or_replace(&self, key: &str, columns: &[&str]) -> String {
        let set: Vec<String> = columns.iter().map(|c| format!("{c} = excluded.{c}")).collect();
        format!(" ON CONFLICT ({key}) DO UPDATE SET {}", set.join(", "))
    }
    /// Text that reads one row of the number 1 if the index exists.
    fn index_exists(&self, table: &str, index: &str) -> String;
    /// Text that reads one row of the number 1 if the table exists.
    fn table_exists(&self, table: &str) -> String;
    /// Text that reads one row of the number 1 if the table has the column.
    fn column_exists(&self, table: &str, column: &str) -> String;
    /// Keeps other nodes from migrating at the same time, until the end of the transaction or of the
    /// session, and returns 1; `None` where the transaction does.
    fn lock(&self, _prefix: &str) -> Option<String> {
        None
    }
    /// Ends the time limit of statements in a transaction that migrates.
    fn unlimited(&self) -> Option<&'static str> {
        None
    }
    /// Ends a statement that changes a table, and waits half a second or a second for other transactions: later
    /// statements on the table queue behind it.
    fn impatient(&self) -> Option<&'static str> {
        None
    }
    /// True if a migration changes the session, which must not be used for anything else then.
    fn ends_migration_with_session(&self) -> bool {
        false
    }
    /// Waits this number of milliseconds; `None` where a busy timeout has waited already.
    fn pause(&self, _ms: u64) -> Option<String> {
        None
    }
    /// True if an index can be limited to the rows that meet a condition.
    fn has_partial_indexes(&self) -> bool {
        true
    }
    /// The most kinds of one due query.
    fn kinds_at_once(&self) -> usize;
    /// The part of a due query that reads the due index; `None` for the usual one.
    fn listed(&self, _: &Dialect, _: &DueRange<'_>, _: &mut Vec<Value>) -> Option<String> {
        None
    }
    /// The join of the rows of a table that meet a condition on its key.
    fn rows_of(&self, table: &str, alias: &str, condition: &str) -> String {
        format!("LEFT JOIN {table} {alias} ON {condition}")
    }
    /// The condition that `column` is one of these keys, whose parameters begin with `first`; and
    /// the parameters.
    fn is_any(&self, column: &str, keys: Keys<'_>, first: usize) -> (String, Vec<Value>) {
        // A power of two, so that few different statements are prepared: nothing is equal to NULL.
        let mut args: Vec<Value> = match keys {
            Keys::Names(names) => names.iter().map(Value::bytes).collect(),
            Keys::Ids(ids) => ids.iter().copied().map(Value::int).collect(),
        };
        let nothing = match keys {
            Keys::Names(_) => Value::Bytes(None),
            Keys::Ids(_) => Value::Int(None),
        };
        args.resize(args.len().next_power_of_two(), nothing);
        let mut text = format!("{column} IN (");
        for i in 0..args.len() {
            text.push_str(if i == 0 { "" } else { ", " });
            self.placeholder(&mut text, first + i);
        }
        (text + ")", args)
    }
    /// The `i`th placeholder where the database cannot infer its type.
    fn typed_placeholder(&self, sql: &mut String, i: usize, _: Type) {
        self.placeholder(sql, i);
    }
    /// The lesser of two numbers.
    fn least(&self, one: &str, other: &str) -> String {
        format!("LEAST({one}, {other})")
    }
    /// The greater of two numbers.
    fn greatest(&self, one: &str, other: &str) -> String {
        format!("GREATEST({one}, {other})")
    }
    /// The operator between two whole numbers, for a whole quotient.
    fn whole_division(&self) -> &'static str {
        "/"
    }
    /// One statement that writes every record whose row has the version that was read, and returns
    /// their places in the list and their keys; `None` where it takes a transaction.
    fn write(&self, _: &Dialect, _: &[Write]) -> Option<Statement> {
        None
    }
    /// One statement for many claims of the commonest shape; it returns those that succeeded.
    fn claims(
        &self,
        dialect: &Dialect,
        context: &RequestContext<'_>,
        claims: &[SimpleClaim],
    ) -> SingleStatement;
    /// One statement that finds and claims what is due behind a place in the due index; `None` where it
    /// takes a transaction. It returns the clock, and the records or their keys alone.
    fn claim_due(
        &self,
        _: &Dialect,
        _: &RequestContext<'_>,
        _: &ClaimDue<'_>,
        _: IndexPlace,
    ) -> Option<Statement> {
        None
    }
    /// One statement that claims rows that this transaction has locked because they may be claimed
    /// without a plan, where [`claim_due`](Self::claim_due) is not one statement.
    fn claim_locked(
        &self,
        _: &Dialect,
        _: &RequestContext<'_>,
        _: &ClaimDue<'_>,
        _: &[i64],
    ) -> Option<Statement> {
        None
    }
    /// One statement for many completions, or for many extensions, of the commonest shape.
    fn completions(
        &self,
        dialect: &Dialect,
        context: &RequestContext<'_>,
        end: End,
        completions: &[SimpleCompletion],
    ) -> SingleStatement;
    /// The statements that lock the rows of these completions, and write the entries of their runs and
    /// the flags of schedules that have ended, where [`completions`](Self::completions) cannot: before
    /// it, which removes what they read. Empty if there is nothing to write.
    fn ended(&self, _: &Dialect, _: &RequestContext<'_>, _: &[SimpleCompletion]) -> Vec<Statement> {
        Vec::new()
    }
    /// True if [`completions`](Self::completions) can return the end of an extended lease.
    fn extends_in_single_statement(&self) -> bool {
        true
    }
    /// Notifies the listeners of the channel, where the database can.
    fn notify(&self, _channel: &str, _payload: &str) -> Option<Statement> {
        None
    }
}

/// A statement in the form in which one database replies to it.
pub(crate) enum SingleStatement {
    /// It returns the rows that it changed.
    #[cfg_attr(
        not(any(feature = "sqlite", feature = "postgres")),
        expect(dead_code, reason = "MySQL's returns nothing")
    )]
    Returning(Statement),
    /// It changes rows, and if it did another one reads them.
    #[cfg_attr(not(feature = "mysql"), expect(dead_code, reason = "the others return rows"))]
    ReadBack { write: Statement, read: Statement },
    /// It returns the number of rows that it changed, and the clock.
    #[cfg_attr(not(feature = "mysql"), expect(dead_code, reason = "the others return rows"))]
    Counted(Statement),
}

/// Keys of rows.
#[derive(Clone, Copy)]
pub(crate) enum Keys<'a> {
    Names(&'a [&'a [u8]]),
    Ids(&'a [i64]),
}

/// A flavour with the prefix of its tables.
#[derive(Clone)]
pub(crate) struct Dialect {
    pub(crate) prefix: String,
    pub(crate) flavour: Arc<dyn Flavour>,
    /// The history has successes: completions write the entries of their runs.
    pub(crate) has_entries: bool,
    /// The versions of the tables after the first.
    pub(crate) later: &'static [Later],
}

/// The names of columns, separated by commas.
fn names(columns: &[(&str, Type)]) -> String {
    let names: Vec<&str> = columns.iter().map(|(name, _)| *name).collect();
    names.join(", ")
}

/// The kinds of columns as a statement's shape has them.
fn shape(columns: &[(&str, Type)]) -> Vec<u8> {
    let kind = |(_, of): &(&str, Type)| match of {
        Type::Id | Type::Int | Type::IntOrNull => b'i',
        Type::Name | Type::Bytes | Type::BytesOrNull => b'b',
    };
    columns.iter().map(kind).collect()
}
