//! The index of flags: names by flag, and their numbers.
//!
//! The members count a range without sending it, so a number costs one exchange.

use crate::{
    error::unexpected_response,
    keys::end_of,
    store::{Etcd, Store},
};
use allora_core::{Result, store::FlagStore};
use async_trait::async_trait;
use etcd_client::{GetOptions, TxnOp};

const FLAGGED: &str = "flagged";
const COUNTS: &str = "counts";

#[async_trait]
impl FlagStore for Etcd {
    async fn flagged_names(
        &self,
        key: &str,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<String>> {
        let store = &self.store;
        let part = store.keys.flagged(key, "");
        let from = match after {
            // The first name behind it has a zero byte more.
            Some(after) if after >= prefix => format!("{part}{after}\0"),
            _ => format!("{part}{prefix}"),
        };
        store.texts(FLAGGED, &part, from, prefix, limit).await
    }

    async fn count_flagged(&self, keys: &[String], prefix: &str) -> Result<Vec<u64>> {
        let store = &self.store;
        let count = |key: &String| {
            let begin = store.keys.flagged(key, prefix);
            let options = GetOptions::new().with_range(end_of(&begin)).with_count_only();
            TxnOp::get(begin, Some(options))
        };
        let replies = store.client.get_all(COUNTS, keys.iter().map(count).collect()).await?;
        let numbers: Vec<u64> =
            replies.iter().map(|reply| reply.count().max(0).cast_unsigned()).collect();
        match numbers.len() == keys.len() {
            true => Ok(numbers),
            false => Err(unexpected_response(COUNTS)),
        }
    }

    async fn flag_keys(&self, begin: &str, limit: usize) -> Result<Vec<String>> {
        let store = &self.store;
        let part = store.keys.flag("");
        store.texts(COUNTS, &part, format!("{part}{begin}"), begin, limit).await
    }
}

impl Store {
    /// The texts behind `part` in the first keys from this one on, as far as it begins with `begin`.
    async fn texts(
        &self,
        op: &'static str,
        part: &str,
        from: String,
        begin: &str,
        limit: usize,
    ) -> Result<Vec<String>> {
        let end = end_of(&format!("{part}{begin}"));
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let options = GetOptions::new().with_range(end).with_keys_only().with_limit(limit);
        let replies = self.client.get_all(op, vec![TxnOp::get(from, Some(options))]).await?;
        let text = |kv: &etcd_client::KeyValue| {
            String::from_utf8(kv.key().strip_prefix(part.as_bytes())?.to_vec()).ok()
        };
        Ok(replies.iter().flat_map(|reply| reply.kvs()).filter_map(text).collect())
    }
}
