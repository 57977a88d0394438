//! The index of flags: names by flag, and their numbers.

use crate::{
    Sql,
    client::{Client, retry},
    dialect::{COUNTED_AT_ONCE, KINDS},
    driver::{Row, Statement, Value},
};
use allora_core::{Result, store::FlagStore};
use async_trait::async_trait;

#[async_trait]
impl FlagStore for Sql {
    async fn flagged_names(
        &self,
        key: &str,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<String>> {
        let statement = self.client.dialect.flagged_names(key, prefix, after, limit);
        Ok(texts(self.client.read_flags("flagged", statement).await?))
    }

    async fn count_flagged(&self, keys: &[String], prefix: &str) -> Result<Vec<u64>> {
        let mut numbers = Vec::with_capacity(keys.len());
        for keys in keys.chunks(COUNTED_AT_ONCE) {
            let statement = self.client.dialect.count_flagged(keys, prefix);
            let mut of_each = vec![0; keys.len()];
            for row in self.client.read_flags("counts", statement).await? {
                let mut cells = row.into_iter().filter_map(Value::into_int);
                let (Some(place), Some(number)) = (cells.next(), cells.next()) else { continue };
                let place = usize::try_from(place).ok().and_then(|place| of_each.get_mut(place));
                place.into_iter().for_each(|of| *of = number.cast_unsigned());
            }
            numbers.extend(of_each);
        }
        Ok(numbers)
    }

    async fn flag_keys(&self, begin: &str, limit: usize) -> Result<Vec<String>> {
        let mut keys: Vec<String> = Vec::new();
        while keys.len() < limit {
            // The first text behind the last one has a zero byte more.
            let from = keys.last().map_or_else(|| begin.to_owned(), |last| format!("{last}\0"));
            let statement = self.client.dialect.flag_keys(begin, &from);
            let read = texts(self.client.read_flags("counts", statement).await?);
            let is_last = read.len() < KINDS;
            keys.extend(read);
            if is_last {
                break;
            }
        }
        keys.truncate(limit);
        Ok(keys)
    }
}

impl Client {
    async fn read_flags(&self, op: &'static str, statement: Statement) -> Result<Vec<Row>> {
        retry!(self, op, self.driver.rows(statement.clone()))
    }
}

/// The texts of rows with one column.
fn texts(rows: Vec<Row>) -> Vec<String> {
    let cells = rows.into_iter().flatten().filter_map(Value::into_bytes);
    cells.filter_map(|bytes| String::from_utf8(bytes).ok()).collect()
}
