//! The tables and indexes: created, and checked.

use super::{Dialect, names, sql};
use crate::{
    driver::{Statement, Type},
    encoding::{DATA, HISTORY, JOB, RARE, STATE},
};
use sqlx::SqlStr;
use std::fmt::Write;

/// The newest version of the tables that this build knows.
pub(crate) const SCHEMA: i64 = 1;

pub(super) const META: &[(&str, Type)] = &[("name", Type::Name), ("value", Type::Int)];

/// The tables with their columns.
const TABLES: &[(&str, &[(&str, Type)])] = &[
    ("meta", META),
    ("job", JOB),
    ("state", STATE),
    ("rare", RARE),
    ("data", DATA),
    ("history", HISTORY),
];

/// One step of a migration.
pub(crate) enum Step {
    /// A statement that can be run again.
    Run(SqlStr),
    /// An index: not every database can create one only if it does not exist.
    Index {
        /// Reads a row if it exists.
        exists: Statement,
        create: SqlStr,
    },
}

impl Dialect {
    /// The steps from the version before to this one; each can be run again.
    pub(crate) fn migration(&self, to: i64) -> Vec<Step> {
        match to {
            1 => self.first_tables(),
            _ => Vec::new(),
        }
    }

    /// The tables of version 1. Once released they are never edited: a later change is a further
    /// migration.
    fn first_tables(&self) -> Vec<Step> {
        let p = &self.prefix;
        let table = |name: &str, columns: &[(&str, Type)], constraint: &str| {
            let mut text = format!("CREATE TABLE IF NOT EXISTS {p}_{name} (");
            for (column, of) in columns {
                let _ = write!(text, "{column} {}, ", self.flavour.column(*of));
            }
            let _ = write!(text, "{constraint}){}", self.flavour.table_options(name));
            Step::Run(sql(text))
        };
        let index = |table: &str, columns: &str, filter: &str| {
            let (index, table) = (format!("{p}_{}", index_name(table)), format!("{p}_{table}"));
            let exists = self.flavour.index_exists(&table, &index);
            let create = format!("CREATE INDEX {index} ON {table} ({columns}){filter}");
            Step::Index { exists: Statement::new(exists, Vec::new(), b"i"), create: sql(create) }
        };
        vec![
            table("meta", META, "PRIMARY KEY (name)"),
            table("job", JOB, "UNIQUE (name)"),
            table("state", STATE, "PRIMARY KEY (id)"),
            table("rare", RARE, "PRIMARY KEY (id)"),
            table("data", DATA, "PRIMARY KEY (id, generation)"),
            table("history", HISTORY, "PRIMARY KEY (fence, name)"),
            index("state", "kind, index_at, id", self.flavour.due_index_filter()),
            index("history", "name, fence", ""),
        ]
    }

    /// A query that returns a row if the tables exist.
    pub(crate) fn has_tables(&self) -> Statement {
        let text = self.flavour.table_exists(&format!("{}_meta", self.prefix));
        Statement::new(text, Vec::new(), b"i")
    }

    /// The tables, each with a statement that reads nothing and fails if the table or a column is
    /// missing.
    pub(crate) fn probes(&self) -> Vec<(String, Statement)> {
        TABLES
            .iter()
            .map(|(table, columns)| {
                let table = format!("{}_{table}", self.prefix);
                let text = format!("SELECT {} FROM {table} WHERE 1 = 0", names(columns));
                (table, Statement::new(text, Vec::new(), b""))
            })
            .collect()
    }

    /// The indexes with their tables, each with a statement that reads a row if it exists.
    pub(crate) fn indexes(&self) -> Vec<(String, String, Statement)> {
        ["state", "history"]
            .into_iter()
            .map(|table| {
                let index = format!("{}_{}", self.prefix, index_name(table));
                let table = format!("{}_{table}", self.prefix);
                let text = self.flavour.index_exists(&table, &index);
                (index, table, Statement::new(text, Vec::new(), b"i"))
            })
            .collect()
    }
}

fn index_name(table: &str) -> &'static str {
    if table == "state" { "state_index_at" } else { "history_name" }
}
