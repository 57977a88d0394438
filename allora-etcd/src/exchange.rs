//! Exchanges with etcd: transactions, some of them beside each other, and what is in the answers.

use crate::{driver::kv, store::Store};
use allora_core::Result;
use etcd_client::{GetResponse, Txn, TxnOpResponse};
use futures::{StreamExt, TryStreamExt};

/// How many exchanges of one request are under way beside each other.
const AT_ONCE: usize = 8;

impl Store {
    /// Sends one transaction.
    pub(crate) async fn txn(&self, op: &'static str, txn: Txn) -> Result<etcd_client::TxnResponse> {
        self.driver
            .call(op, move |client| {
                let txn = txn.clone();
                async move { kv(&client).txn(txn).await }
            })
            .await
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
