//! Statements that write.

use super::{CHUNK, Dialect, names, tables::META};
use crate::{
    driver::{Statement, Type, Value},
    encoding::{DATA, HISTORY, JOB},
    prune::Place,
};

/// One record to write in place of another.
pub(crate) struct Write {
    pub(crate) name: Vec<u8>,
    /// The version that was read; `None` if there was no row.
    pub(crate) read_version: Option<i64>,
    /// The last moment for the write, in microseconds by the database's clock.
    pub(crate) not_after: Option<i64>,
    /// The columns of the job table.
    pub(crate) job: Vec<Value>,
    /// The data, if it changes.
    pub(crate) data: Option<NewData>,
    /// The rows of the history table.
    pub(crate) history: Vec<Vec<Value>>,
}

/// The data of a record; nothing without a generation.
pub(crate) struct NewData {
    pub(crate) generation: Option<i64>,
    pub(crate) data: Vec<u8>,
}

impl Write {
    /// The approximate number of its bytes.
    pub(crate) fn len(&self) -> usize {
        let bytes = |value: &Value| match value {
            Value::Bytes(Some(bytes)) => bytes.len(),
            _ => 8,
        };
        let data = self.data.as_ref().map_or(0, |new| new.data.len());
        data + self.job.iter().chain(self.history.iter().flatten()).map(bytes).sum::<usize>()
    }

    /// The row of the data table.
    pub(super) fn data_row(&self) -> Option<Vec<Value>> {
        let new = self.data.as_ref()?;
        Some(vec![Value::bytes(&self.name), Value::int(new.generation?), Value::bytes(&new.data)])
    }
}

impl Dialect {
    /// Statements that write records whose rows are locked, or do not exist. Of two transactions
    /// that create one row, the second gets an error of the unique key.
    pub(crate) fn put(&self, writes: &[&Write]) -> Vec<Statement> {
        let (mut new, mut known, mut data, mut history) = (vec![], vec![], vec![], vec![]);
        let mut statements = Vec::new();
        for write in writes {
            let rows = if write.read_version.is_some() { &mut known } else { &mut new };
            rows.push(write.job.clone());
            data.extend(write.data_row());
            history.extend(write.history.iter().cloned());
            let replaced = write.data.as_ref().filter(|_| write.read_version.is_some());
            statements.extend(replaced.map(|new| self.drop_data(&write.name, new.generation)));
        }
        let tail = |key: &str, columns: &[(&str, Type)]| {
            let columns: Vec<&str> = columns.iter().map(|(name, _)| *name).collect();
            self.flavour.or_replace(key, &columns)
        };
        let data_tail = tail("name, generation", &DATA[2..]);
        statements.extend(self.insert("data", DATA, &data, &data_tail));
        statements.extend(self.insert("job", JOB, &new, ""));
        statements.extend(self.insert("job", JOB, &known, &tail("name", &JOB[1..])));
        let history_tail = tail("fence, name", &HISTORY[2..]);
        statements.extend(self.insert("history", HISTORY, &history, &history_tail));
        statements
    }

    /// Removes the data of a job except that of this generation.
    fn drop_data(&self, name: &[u8], keep: Option<i64>) -> Statement {
        let mut text = format!("DELETE FROM {}_data WHERE name = ", self.prefix);
        self.flavour.placeholder(&mut text, 1);
        text.push_str(" AND generation <> ");
        self.flavour.placeholder(&mut text, 2);
        // Generations are fences, and so never negative.
        Statement::new(text, vec![Value::bytes(name), Value::int(keep.unwrap_or(-1))], b"")
    }

    /// Removes rows.
    pub(crate) fn purge_tombstones(&self, names: &[&[u8]]) -> Statement {
        let (is_name, args) = self.flavour.is_any("name", names, 1);
        let text = format!("DELETE FROM {}_job WHERE {is_name}", self.prefix);
        Statement::new(text, args, b"")
    }

    /// Removes the oldest history entries below this one, at most so many.
    pub(crate) fn prune_history(&self, (fence, name): &Place, entries: u64) -> Statement {
        let history = format!("{}_history", self.prefix);
        let mut condition = "WHERE 1 = 1".to_owned();
        let mut args = Vec::new();
        self.below(&mut condition, &mut args, *fence, name);
        condition.push_str(" ORDER BY fence, name LIMIT ");
        args.push(Value::int(entries.cast_signed()));
        self.flavour.placeholder(&mut condition, args.len());
        Statement::new(self.flavour.delete_some(&history, &condition), args, b"")
    }

    /// Writes a number of the whole namespace.
    pub(crate) fn put_meta(&self, name: &str, value: i64) -> Vec<Statement> {
        let row = vec![Value::bytes(name), Value::int(value)];
        self.insert("meta", META, &[row], &self.flavour.or_replace("name", &["value"]))
    }

    /// Adds rows; `tail` says what happens where the key exists. Pieces have a power of two of rows,
    /// so that few different statements are prepared, and of no row twice.
    fn insert(
        &self,
        table: &str,
        columns: &[(&str, Type)],
        rows: &[Vec<Value>],
        tail: &str,
    ) -> Vec<Statement> {
        let head = format!("INSERT INTO {}_{table} ({}) VALUES ", self.prefix, names(columns));
        let statement = |rows: &[Vec<Value>]| {
            let mut text = head.clone();
            let mut i = 0;
            for row in 0..rows.len() {
                text.push_str(if row == 0 { "(" } else { ", (" });
                for column in 0..columns.len() {
                    text.push_str(if column == 0 { "" } else { ", " });
                    i += 1;
                    self.flavour.placeholder(&mut text, i);
                }
                text.push(')');
            }
            text.push_str(tail);
            Statement::new(text, rows.concat(), b"")
        };
        even_chunks(rows).map(statement).collect()
    }
}

/// Cuts into pieces of a power of two.
fn even_chunks<T>(mut rest: &[T]) -> impl Iterator<Item = &[T]> {
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let len = if rest.len() >= CHUNK { CHUNK } else { 1 << rest.len().ilog2() };
        let (piece, more) = rest.split_at(len);
        rest = more;
        Some(piece)
    })
}
