//! The tables and indexes: created, and checked.

use super::{Dialect, history::FAILURES, names};
use crate::{
    System,
    driver::{Statement, Type, sql},
    encoding::{CHANGE, DATA, FLAG, HISTORY, JOB, RARE, STATE},
};
use sqlx::SqlStr;
use std::fmt::Write;

/// The versions of the tables after the first, beginning with 2. Once released, none is edited: a later
/// change is a further version. ARCHITECTURE has the rules.
pub(crate) const LATER: &[Later] = &[];

/// A version of the tables after the first.
#[derive(Debug)]
pub(crate) struct Later {
    /// The oldest version whose builds may use tables of this one.
    pub(crate) oldest: i64,
    /// The steps from the version before. Each is a transaction of its own, can be run again, and changes
    /// nothing in tables that were made by a build that knows this version.
    pub(crate) steps: fn(&Dialect) -> Vec<Step>,
}

pub(super) const META: &[(&str, Type)] = &[("name", Type::Name), ("value", Type::Int)];

/// The tables with their columns.
const TABLES: &[(&str, &[(&str, Type)])] = &[
    ("meta", META),
    ("job", JOB),
    ("state", STATE),
    ("rare", RARE),
    ("data", DATA),
    ("history", HISTORY),
    ("change", CHANGE),
    ("flag", FLAG),
];

/// One step of a migration.
pub(crate) enum Step {
    /// A statement that can be run again.
    Run(SqlStr),
    /// A column that allows NULL, unless it is there.
    #[cfg_attr(not(test), expect(dead_code, reason = "version 1 is the newest"))]
    Column {
        table: &'static str,
        name: &'static str,
        of: Type,
    },
    Index(Index),
}

/// An index. Not every database can create one only if it does not exist.
pub(crate) struct Index {
    pub(crate) name: String,
    pub(crate) table: String,
    /// Reads a row if it exists.
    pub(crate) exists: Statement,
    pub(crate) create: SqlStr,
}

impl Dialect {
    /// The newest version of the tables that this build knows.
    pub(crate) fn newest(&self) -> i64 {
        1 + self.later.len() as i64
    }

    /// The oldest version whose builds may use tables of this one.
    pub(crate) fn oldest(&self, version: i64) -> i64 {
        self.later_version(version).map_or(1, |later| later.oldest)
    }

    /// The steps from the version before to this one; each can be run again.
    pub(crate) fn migration(&self, to: i64) -> Vec<Step> {
        self.later_version(to).map_or_else(|| self.first_tables(), |later| (later.steps)(self))
    }

    fn later_version(&self, version: i64) -> Option<&'static Later> {
        self.later.get(usize::try_from(version - 2).ok()?)
    }

    /// An index of the table of this name.
    pub(crate) fn index(&self, name: &str, table: &str, rows: &str) -> Step {
        let p = &self.prefix;
        let (name, table) = (format!("{p}_{name}"), format!("{p}_{table}"));
        let exists = self.flavour.index_exists(&table, &name);
        let exists = Statement::new(exists, Vec::new(), b"i");
        let create = sql(format!("CREATE INDEX {name} ON {table} {rows}"));
        Step::Index(Index { name, table, exists, create })
    }

    /// The statement that adds a column, and the one that reads a row if it is there.
    pub(crate) fn column(&self, table: &str, name: &str, of: Type) -> (SqlStr, Statement) {
        let table = format!("{}_{table}", self.prefix);
        let exists = self.flavour.column_exists(&table, name);
        let add = format!("ALTER TABLE {table} ADD COLUMN {name} {}", self.flavour.column(of));
        (sql(add), Statement::new(exists, Vec::new(), b"i"))
    }

    /// The tables of version 1, with the columns that later versions have added: new tables are made
    /// whole, and the later steps find nothing to do.
    fn first_tables(&self) -> Vec<Step> {
        let table = |name: &str, columns: &[(&str, Type)], constraint: &str| {
            Step::Run(self.table(name, columns, constraint))
        };
        let index = |name: &str, table: &str, rows: &str| self.index(name, table, rows);
        let is_partial = self.flavour.has_partial_indexes();
        let filter = if is_partial { " WHERE index_at IS NOT NULL" } else { "" };
        let failures = is_partial.then(|| {
            let rows = format!("(fence, name) WHERE {FAILURES}");
            index("history_failure", "history", &rows)
        });
        let tables = vec![
            table("meta", META, "PRIMARY KEY (name)"),
            table("job", JOB, "UNIQUE (name)"),
            table("state", STATE, "PRIMARY KEY (id)"),
            table("rare", RARE, "PRIMARY KEY (id)"),
            table("data", DATA, "PRIMARY KEY (id, generation)"),
            Step::Run(self.history_table()),
            table("change", CHANGE, "PRIMARY KEY (fence, name)"),
            // No index of the state table has a flag, so a claim moves none.
            table("flag", FLAG, "PRIMARY KEY (flag, name)"),
            index("state_index_at", "state", &format!("(kind, index_at, id){filter}")),
            index("history_name", "history", "(name, is_failure, fence)"),
            index("change_name", "change", "(name, fence)"),
        ];
        tables.into_iter().chain(failures).collect()
    }

    /// Makes a table, unless it is there.
    fn table(&self, name: &str, columns: &[(&str, Type)], constraint: &str) -> SqlStr {
        let mut text = format!("CREATE TABLE IF NOT EXISTS {}_{name} (", self.prefix);
        for (column, of) in columns {
            let _ = write!(text, "{column} {}, ", self.flavour.column(*of));
        }
        let _ = write!(text, "{constraint}){}", self.flavour.table_options(name));
        sql(text)
    }

    /// Makes the table of the history, unless it is there: no record depends on its rows.
    pub(crate) fn history_table(&self) -> SqlStr {
        self.table("history", HISTORY, "PRIMARY KEY (fence, name)")
    }

    /// A query that returns a row if the tables exist.
    pub(crate) fn has_tables(&self) -> Statement {
        self.has_table("meta")
    }

    /// A query that returns a row if the table of the history exists.
    pub(crate) fn has_history(&self) -> Statement {
        self.has_table("history")
    }

    fn has_table(&self, name: &str) -> Statement {
        let text = self.flavour.table_exists(&format!("{}_{name}", self.prefix));
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

    /// The rights that nodes and clients need, for a role of PostgreSQL or a user of MySQL, which is `NAME` or `NAME@HOST`.
    pub(crate) fn grants(&self, system: System, login: &str) -> Option<Vec<String>> {
        const RIGHTS: &str = "GRANT SELECT, INSERT, UPDATE, DELETE ON";
        let tables = TABLES.iter().map(|(table, _)| format!("{}_{table}", self.prefix));
        match system {
            System::Sqlite => None,
            System::Postgres => {
                let (tables, role) =
                    (tables.collect::<Vec<_>>().join(", "), login.replace('"', "\"\""));
                Some(vec![format!("{RIGHTS} {tables} TO \"{role}\";")])
            }
            System::MySql => {
                let quoted = |text: &str| format!("'{}'", text.replace('\'', "''"));
                let (name, host) = login.rsplit_once('@').unwrap_or((login, "%"));
                let user = format!("{}@{}", quoted(name), quoted(host));
                Some(tables.map(|table| format!("{RIGHTS} {table} TO {user};")).collect())
            }
        }
    }

    /// The indexes of all versions.
    pub(crate) fn indexes(&self) -> Vec<Index> {
        let steps = (1..=self.newest()).flat_map(|version| self.migration(version));
        let index = |step| match step {
            Step::Index(index) => Some(index),
            Step::Run(_) | Step::Column { .. } => None,
        };
        steps.filter_map(index).collect()
    }
}
