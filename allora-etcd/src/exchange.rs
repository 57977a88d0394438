//! Exchanges with etcd: transactions, some of them beside each other, and what is in the answers.

use crate::{driver::kv, store::Store};
use allora_core::Result;
use etcd_client::{GetResponse, Txn, TxnOpResponse};
use futures::{StreamExt, TryStreamExt};
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

/// How many exchanges of one request are under way beside each other.
const AT_ONCE: usize = 8;

impl Store {
    /// Sends one transaction.
    pub(crate) async fn txn(&self, op: &'static str, txn: Txn) -> Result<etcd_client::TxnResponse> {
        self.txn_or_again(op, txn).await.map(|(answer, _)| answer)
    }

    /// Sends one transaction; says whether it was sent more than once, since a member did not
    /// answer that may have carried it out all the same.
    pub(crate) async fn txn_or_again(
        &self,
        op: &'static str,
        txn: Txn,
    ) -> Result<(etcd_client::TxnResponse, bool)> {
        let sent = Arc::new(AtomicUsize::new(0));
        let counted = sent.clone();
        let asked = self.driver.call(op, move |client| {
            let txn = txn.clone();
            counted.fetch_add(1, Ordering::Relaxed);
            async move { kv(&client).txn(txn).await }
        });
        let answer = asked.await?;
        Ok((answer, sent.load(Ordering::Relaxed) > 1))
    }
}

/// Several exchanges beside each other: each waits for the members' disks.
pub(crate) async fn at_once<T>(
    sent: impl Iterator<Item = impl Future<Output = Result<T>>>,
) -> Result<Vec<T>> {
    let sent: Vec<_> = sent.collect();
    futures::stream::iter(sent).buffered(AT_ONCE).try_collect().await
}

/// The answers to the reads of a transaction.
pub(crate) fn gets(answer: &etcd_client::TxnResponse) -> Vec<GetResponse> {
    let get = |op| match op {
        TxnOpResponse::Get(get) => Some(get),
        _ => None,
    };
    answer.op_responses().into_iter().filter_map(get).collect()
}

/// A number that is kept as text, and its revision; 0 and 0 if there is none.
pub(crate) fn number(answer: &GetResponse) -> (i64, i64) {
    answer.kvs().first().map_or((0, 0), |kv| {
        let value = std::str::from_utf8(kv.value()).ok().and_then(|text| text.parse().ok());
        (value.unwrap_or(0), kv.mod_revision())
    })
}
