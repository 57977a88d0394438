//! Exchanges with etcd: transactions, some of them beside each other, and what is in the answers.

use crate::{driver::kv, store::Store};
use allora_core::Result;
use etcd_client::{GetResponse, Txn, TxnOpResponse};
use futures::{TryFutureExt, TryStreamExt, stream::FuturesOrdered};
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

/// How many exchanges of one request are under way beside each other.
const AT_ONCE: usize = 8;

impl Store {
    /// Sends one transaction.
    pub(crate) fn txn(
        &self,
        op: &'static str,
        txn: Txn,
    ) -> impl Future<Output = Result<etcd_client::TxnResponse>> + Send + use<> {
        self.txn_or_again(op, txn).map_ok(|(answer, _)| answer)
    }

    /// Sends one transaction, at once; says whether it was sent more than once, since a member did not
    /// answer that may have carried it out all the same.
    pub(crate) fn txn_or_again(
        &self,
        op: &'static str,
        txn: Txn,
    ) -> impl Future<Output = Result<(etcd_client::TxnResponse, bool)>> + Send + use<> {
        let sent = Arc::new(AtomicUsize::new(0));
        let counted = sent.clone();
        let asked = self.driver.call(op, move |client| {
            let txn = txn.clone();
            counted.fetch_add(1, Ordering::Relaxed);
            async move { kv(&client).txn(txn).await }
        });
        asked.map_ok(move |answer| (answer, sent.load(Ordering::Relaxed) > 1))
    }
}

/// Exchanges beside each other: each waits for the members' disks. The next one is made while
/// those before it are under way.
pub(crate) struct Exchanges<F: Future, T> {
    under_way: FuturesOrdered<F>,
    done: Vec<T>,
}

impl<T, F: Future<Output = Result<T>>> Exchanges<F, T> {
    pub(crate) fn new() -> Self {
        Self { under_way: FuturesOrdered::new(), done: Vec::new() }
    }

    /// With one more, that is under way; waits for another, where there are too many.
    pub(crate) async fn add(&mut self, begun: F) -> Result {
        self.under_way.push_back(begun);
        if self.under_way.len() >= AT_ONCE {
            self.done.extend(self.under_way.try_next().await?);
        }
        Ok(())
    }

    /// All answers, in the order of the exchanges.
    pub(crate) async fn answers(mut self) -> Result<Vec<T>> {
        while let Some(answer) = self.under_way.try_next().await? {
            self.done.push(answer);
        }
        Ok(self.done)
    }
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
