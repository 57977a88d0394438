//! A store that answers partially: some operations of a batch fail, each for itself.

use super::{Hooks, Wrapped};
use allora_core::{
    Backend, Error, ErrorKind, Result, Runtime,
    backend::{Applied, Batch, Operation, Reply},
};
use async_trait::async_trait;
use futures::future::pending;
use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

/// The shares of the operations that fail, in thousandths. Clones are the same shares.
#[derive(Clone, Debug, Default)]
pub struct Shares(Arc<Mutex<Failing>>);

#[derive(Clone, Debug, Default)]
struct Failing {
    refused: u64,
    unknown: u64,
    /// The prefix of the names whose operations fail.
    prefix: String,
    hang: Hang,
}

/// The answer of a store of which a shard or a record hangs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Hang {
    /// Nothing hangs.
    #[default]
    No,
    /// A batch with an operation that hangs has its replies after this time: those operations fail,
    /// the others are answered. So does a store that waits for each of its shards up to a limit.
    Late(Duration),
    /// A batch with an operation that hangs is not applied, and has no reply. So does a database in
    /// which another transaction has locked the row.
    Silent,
}

impl Shares {
    /// Of a thousand operations, `refused` are not applied and `unknown` are applied without a
    /// reply. Both are [`Unavailable`](ErrorKind::Unavailable) for the caller. Range of the sum: 0
    /// to 1 000.
    pub fn new(refused: u64, unknown: u64) -> Self {
        let shares = Self::default();
        shares.set(refused, unknown);
        shares
    }

    /// Changes the shares.
    pub fn set(&self, refused: u64, unknown: u64) {
        self.change(|failing| (failing.refused, failing.unknown) = (refused, unknown));
    }

    /// Limits the failures to jobs whose names begin with this prefix, as when one shard of a store
    /// fails. Default: all jobs.
    pub fn only(&self, prefix: &str) {
        self.change(|failing| failing.prefix = prefix.to_owned());
    }

    /// The operations on the jobs of the [prefix](Self::only) hang. Default: [`Hang::No`].
    pub fn hang(&self, hang: Hang) {
        self.change(|failing| failing.hang = hang);
    }

    fn change<T>(&self, change: impl FnOnce(&mut Failing) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A node's way to a store that answers partially. Each operation of a batch fails or not by a
/// random number of the runtime; the others are applied and answered. Or all operations on some jobs
/// [hang](Shares::hang). Queries do not fail.
///
/// ```
/// use allora_conformance::faults::{PartialBackend, Shares};
/// use allora_core::runtime::Sim;
/// use allora_memory::Memory;
///
/// // A tenth of the operations is not applied, a twentieth is applied without a reply.
/// let sim = Sim::new(7);
/// let store = PartialBackend::new(Memory::new(), sim.node(), Shares::new(100, 50));
/// # drop(store);
/// ```
pub type PartialBackend = Wrapped<Partial>;

/// The hooks of a [`PartialBackend`].
#[derive(Debug)]
pub struct Partial {
    runtime: Arc<dyn Runtime>,
    shares: Shares,
}

impl Wrapped<Partial> {
    /// `store`, of whose operations these shares fail.
    pub fn new(store: impl Backend, runtime: impl Runtime, shares: Shares) -> Self {
        Self::around(store, Partial { runtime: Arc::new(runtime), shares })
    }
}

impl Partial {
    /// `Some` if the operation fails: `true` if it is applied all the same.
    fn failure(&self, name: &str) -> Option<bool> {
        let Failing { refused, unknown, hang, .. } = self
            .shares
            .change(|failing| name.starts_with(&failing.prefix).then(|| failing.clone()))?;
        if hang != Hang::No {
            return Some(false);
        }
        if refused + unknown == 0 {
            return None;
        }
        let drawn = self.runtime.random() % 1_000;
        (drawn < refused + unknown).then_some(drawn >= refused)
    }
}

#[async_trait]
impl Hooks for Partial {
    async fn reschedule(&self, store: &Arc<dyn Backend>, batch: Batch<'_>) -> Result<Applied> {
        let fates: Vec<_> = batch.operations.iter().map(|one| self.failure(one.name)).collect();
        if fates.iter().any(Option::is_some) {
            match self.shares.change(|failing| failing.hang) {
                Hang::No => {}
                Hang::Late(by) => self.runtime.sleep_until(self.runtime.now() + by).await,
                Hang::Silent => return pending().await,
            }
        }
        let applied: Vec<Operation<'_>> = batch
            .operations
            .iter()
            .zip(&fates)
            .filter(|(_, fate)| **fate != Some(false))
            .map(|(operation, _)| operation.clone())
            .collect();
        let Applied { now, replies, min_fence, .. } =
            store.reschedule(Batch::new(batch.node, batch.time, &applied)).await?;
        let mut replies = replies.into_iter();
        let failed = || {
            Err::<Reply, _>(Error::new(ErrorKind::Unavailable, "the store failed on this record"))
        };
        let replies = fates.into_iter().map(|fate| match fate {
            None => replies.next().unwrap_or_else(failed),
            Some(true) => {
                drop(replies.next());
                failed()
            }
            Some(false) => failed(),
        });
        Ok(Applied::new(now, replies.collect()).min_fence(min_fence))
    }
}
