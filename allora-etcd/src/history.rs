//! What happened to every occurrence, the newest entries.

use crate::{Etcd, exchange::gets, keys::after_all, store::Store};
use allora_core::{
    Occurrence, Result,
    backend::{History, Outcome, Past},
    time::from_millis,
};
use async_trait::async_trait;
use etcd_client::{DeleteOptions, GetOptions, Txn, TxnOp};
use std::sync::atomic::Ordering;

/// How many entries are read at once.
const AT_ONCE: usize = 1_000;

/// An entry as it is kept: name, fence, instant, trigger, last, count, attempt, node, when, what.
type Kept =
    (String, i64, i64, Option<String>, Option<i64>, Option<u64>, u32, String, i64, [String; 2]);

#[async_trait]
impl History for Etcd {
    async fn past(
        &self,
        name: Option<&str>,
        before: Option<i64>,
        limit: usize,
    ) -> Result<Vec<Past>> {
        const OP: &str = "past";
        let store = &*self.store;
        let end = after_all(&store.keys.pasts());
        let mut from = match before {
            Some(before) if before <= 0 => return Ok(Vec::new()),
            Some(before) => store.keys.past_from(before - 1).into_bytes(),
            None => store.keys.pasts().into_bytes(),
        };
        let mut found = Vec::new();
        // One job's entries are among those of all, and these are bounded.
        let at_once = if name.is_some() { AT_ONCE } else { limit.min(AT_ONCE) };
        while found.len() < limit {
            let range = GetOptions::new().with_range(end.clone());
            let range = range.with_limit(i64::try_from(at_once).unwrap_or(i64::MAX));
            let op = TxnOp::get(from.clone(), Some(range));
            let answer = store.txn(OP, Txn::new().and_then([op])).await?;
            let Some(page) = gets(&answer).into_iter().next() else { break };
            let Some(last) = page.kvs().last() else { break };
            from = [last.key(), &[0]].concat();
            // An entry that cannot be read is left out: it says nothing.
            let entries = page.kvs().iter().filter_map(|kv| decode(kv.value()));
            let wanted = |past: &Past| name.is_none_or(|name| past.name == name);
            found.extend(entries.filter(wanted).take(limit - found.len()));
        }
        Ok(found)
    }
}

impl Store {
    /// Keeps the history within its bound; looks now and then.
    pub(crate) async fn trim(&self, op: &'static str) -> Result {
        let every = (self.history as u64 / 10).max(1);
        if self.history == 0 || self.noted.load(Ordering::Relaxed) < every {
            return Ok(());
        }
        self.noted.store(0, Ordering::Relaxed);
        let (first, end) = (self.keys.pasts(), after_all(&self.keys.pasts()));
        let most = i64::try_from(self.history).unwrap_or(i64::MAX).saturating_add(1);
        let range = GetOptions::new().with_range(end.clone()).with_keys_only().with_limit(most);
        let answer = self.txn(op, Txn::new().and_then([TxnOp::get(first, Some(range))])).await?;
        let pages = gets(&answer);
        let Some(page) = pages.first().filter(|page| page.kvs().len() > self.history) else {
            return Ok(());
        };
        let Some(oldest) = page.kvs().last() else { return Ok(()) };
        let rest = DeleteOptions::new().with_range(end);
        let delete = TxnOp::delete(oldest.key(), Some(rest));
        self.txn(op, Txn::new().and_then([delete])).await.map(drop)
    }
}

pub(crate) fn encode(past: &Past) -> Vec<u8> {
    let kept: Kept = (
        past.name.clone(),
        past.fence,
        past.occurrence.at.timestamp_millis(),
        past.occurrence.trigger.clone(),
        past.last.map(|last| last.timestamp_millis()),
        past.count,
        past.attempt,
        past.node.clone(),
        past.at.timestamp_millis(),
        [past.outcome.word().to_owned(), past.outcome.error().to_owned()],
    );
    serde_json::to_vec(&kept).expect("text and numbers are JSON")
}

fn decode(value: &[u8]) -> Option<Past> {
    let kept: Kept = serde_json::from_slice(value).ok()?;
    let (name, fence, at, trigger, last, count, attempt, node, noted, [word, error]) = kept;
    let occurrence = Occurrence { at: from_millis(at)?, trigger };
    let last = last.map(|last| from_millis(last).ok_or(())).transpose().ok()?;
    let outcome = Outcome::from_word(&word, &error)?;
    let past = Past::new(name, fence, occurrence, from_millis(noted)?, outcome);
    Some(past.range(last, count).by(node, attempt))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_read_back() {
        let at = from_millis(60_000).unwrap();
        let run = Past::new("a\"b", 7, at.into(), at, Outcome::Failed("why\n".into())).by("n", 2);
        let triggered = Occurrence { at, trigger: Some("id".into()) };
        let range = Past::new("c", 8, triggered, at, Outcome::Missed).range(Some(at), None);
        for past in [run, range] {
            assert_eq!(decode(&encode(&past)), Some(past));
        }
        assert_eq!(decode(b"[]"), None);
    }
}
