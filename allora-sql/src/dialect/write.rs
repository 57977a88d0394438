//! Statements that write.

use super::{CHUNK, Dialect, Keys, arguments::Write, names, tables::META};
use crate::{
    driver::{Statement, Type, Value},
    encoding::{CHANGE, DATA, FLAG, HISTORY, JOB, RARE, STATE},
};
use std::collections::BTreeMap;

impl Dialect {
    /// Statements that add jobs without keys. Of two transactions that create one job, the second
    /// gets an error of the unique name.
    pub(crate) fn insert_jobs(&self, writes: &[Write]) -> Vec<Statement> {
        let new = writes.iter().filter(|write| write.id.is_none());
        let rows: Vec<Vec<Value>> = new.filter_map(|write| write.job.clone()).collect();
        self.insert("job", &JOB[1..], &rows, "")
    }

    /// Statements that write records whose rows are locked, or were added in this transaction.
    pub(crate) fn put(&self, writes: &[Write]) -> Vec<Statement> {
        let (mut jobs, mut states, mut rare) = (vec![], vec![], vec![]);
        let (mut data, mut history) = (vec![], vec![]);
        let (mut changes, mut flags) = (vec![], vec![]);
        let mut statements = Vec::new();
        let mut without_rare = Vec::new();
        for write in writes {
            let Some(id) = write.id else { continue };
            let keyed = |values: &[Value]| [&[Value::int(id)], values].concat();
            states.push(keyed(&write.state));
            jobs.extend(write.job.as_deref().map(keyed));
            rare.extend(write.new_rare().map(|parts| keyed(&parts)));
            if write.rare.is_some() && write.new_rare().is_none() {
                without_rare.push(id);
            }
            data.extend(write.new_data().map(|new| keyed(&new)));
            history.extend(write.history.iter().cloned());
            changes.extend(write.changes.iter().cloned());
            let replaced = write.data.as_ref().filter(|_| write.job.is_some());
            statements.extend(replaced.map(|new| self.drop_data(id, new.generation)));
        }
        let tail = |key: &str, columns: &[(&str, Type)]| {
            let columns: Vec<&str> = columns.iter().map(|(name, _)| *name).collect();
            self.flavour.or_replace(key, &columns)
        };
        let data_tail = tail("id, generation", &DATA[2..]);
        statements.extend(self.insert("data", DATA, &data, &data_tail));
        if !without_rare.is_empty() {
            statements.push(self.delete_rows("rare", &without_rare));
        }
        statements.extend(self.insert("rare", RARE, &rare, &tail("id", &RARE[1..])));
        statements.extend(self.insert("job", JOB, &jobs, &tail("id", &JOB[1..])));
        statements.extend(self.insert("state", STATE, &states, &tail("id", &STATE[1..])));
        let history_tail = tail("fence, name", &HISTORY[2..]);
        statements.extend(self.insert("history", HISTORY, &history, &history_tail));
        statements.extend(self.insert("change", CHANGE, &changes, ""));
        let mut removed: BTreeMap<&str, Vec<&[u8]>> = BTreeMap::new();
        for write in writes.iter().filter(|write| write.id.is_some()) {
            flags.extend(write.flag_rows(&write.flags.added));
            for flag in &write.flags.removed {
                removed.entry(flag).or_default().push(&write.name);
            }
        }
        statements.extend(removed.iter().map(|(flag, names)| self.remove_flag(flag, names)));
        statements.extend(self.insert("flag", FLAG, &flags, &tail("flag, name", &FLAG[1..])));
        statements
    }

    /// Removes the data of a job except that of this generation.
    fn drop_data(&self, id: i64, keep: Option<i64>) -> Statement {
        let mut text = format!("DELETE FROM {}_data WHERE id = ", self.prefix);
        self.flavour.placeholder(&mut text, 1);
        text.push_str(" AND generation <> ");
        self.flavour.placeholder(&mut text, 2);
        // Generations are fences, and so never negative.
        Statement::new(text, vec![Value::int(id), Value::int(keep.unwrap_or(-1))], b"")
    }

    /// Removes a flag of the jobs with these names.
    fn remove_flag(&self, flag: &str, names: &[&[u8]]) -> Statement {
        let mut text = format!("DELETE FROM {}_flag WHERE flag = ", self.prefix);
        self.flavour.placeholder(&mut text, 1);
        let (is_name, names) = self.flavour.is_any("name", Keys::Names(names), 2);
        let args = [vec![Value::bytes(flag)], names].concat();
        Statement::new(text + " AND " + &is_name, args, b"")
    }

    /// Removes the rows with these keys.
    fn delete_rows(&self, table: &str, ids: &[i64]) -> Statement {
        let (is_id, args) = self.flavour.is_any("id", Keys::Ids(ids), 1);
        Statement::new(format!("DELETE FROM {}_{table} WHERE {is_id}", self.prefix), args, b"")
    }

    /// Removes records.
    pub(crate) fn purge_tombstones(&self, ids: &[i64]) -> Vec<Statement> {
        ["state", "rare", "data", "job"].map(|table| self.delete_rows(table, ids)).to_vec()
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
