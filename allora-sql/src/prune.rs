//! Removing old tombstones, and history beyond the limit.

use crate::{
    client::{Client, number, retry},
    driver::{Conn, Value},
    encoding::plausible,
};
use allora_core::{Result, Time};
use std::sync::{MutexGuard, PoisonError, atomic::Ordering};

const OP: &str = "prune";

/// The most entries that one call passes while it looks for the oldest one to keep.
const PASSED: u64 = 20_000;

/// The most entries that one call removes: more than a batch adds.
const REMOVED: u64 = 2_000;

/// The place of an entry in the history: its fence and name.
pub(crate) type Place = (i64, Vec<u8>);

/// The progress of a pruning that goes on from call to call.
#[derive(Clone, Debug, Default)]
pub(crate) enum Pruning {
    /// There may be no more entries than the limit, and a tenth.
    #[default]
    Done,
    /// So many entries are at or above this one.
    Passing { place: Option<Place>, entries: u64 },
    /// Everything below this one is to be removed.
    Removing { kept: Place },
}

impl Client {
    /// Removes old tombstones and history, bit by bit. A call that is dropped leaves the rest to the
    /// next one. A tenth more history than the limit may be there.
    pub(crate) async fn prune(&self, now: Time) -> Result {
        self.purge_tombstones(now).await?;
        // Another call that prunes has it.
        let Some(before) = self.pruning().take() else { return Ok(()) };
        let mut turn = Turn { client: self, next: before };
        loop {
            turn.prune_history().await?;
            if matches!(turn.next, Pruning::Done) {
                return Ok(());
            }
        }
    }

    fn pruning(&self) -> MutexGuard<'_, Option<Pruning>> {
        self.pruning.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes tombstones whose time is over. The lowest fence of the namespace takes their place.
    async fn purge_tombstones(&self, now: Time) -> Result {
        retry!(self, OP, async {
            let mut tx = self.driver.transaction().await?;
            let done = self.purge_in(tx.conn()?, now).await;
            tx.end(done).await
        })
    }

    async fn purge_in(&self, conn: &mut dyn Conn, now: Time) -> sqlx::Result<()> {
        let lowest = number(conn.rows(self.dialect.meta("min_fence", true)).await?);
        let rows = conn.rows(self.dialect.old_tombstones(now.timestamp_millis())).await?;
        let mut ids = Vec::new();
        let mut highest = lowest.and_then(plausible).unwrap_or_default();
        for mut row in rows {
            let fence = row.pop().and_then(Value::into_int).and_then(plausible);
            highest = highest.max(fence.unwrap_or_default());
            ids.extend(row.pop().and_then(Value::into_int));
        }
        if !ids.is_empty() {
            for statement in self.dialect.put_meta("min_fence", highest) {
                conn.run(statement).await?;
            }
            for statement in self.dialect.purge_tombstones(&ids) {
                conn.run(statement).await?;
            }
        }
        Ok(())
    }
}

/// One call's part of a pruning. Dropped, it leaves the rest to the next call.
struct Turn<'a> {
    client: &'a Client,
    next: Pruning,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        *self.client.pruning() = Some(std::mem::take(&mut self.next));
    }
}

impl Turn<'_> {
    async fn prune_history(&mut self) -> Result {
        let client = self.client;
        let limit = client.history_limit;
        if limit == 0 {
            return Ok(());
        }
        if matches!(self.next, Pruning::Done)
            && client.appended.load(Ordering::Relaxed) > limit / 10
        {
            client.appended.store(0, Ordering::Relaxed);
            self.next = Pruning::Passing { place: None, entries: 0 };
        }
        if let Pruning::Passing { place, entries } = &self.next {
            let step = PASSED.min(limit - entries);
            let statement = client.dialect.history_place(place.as_ref(), step);
            let rows = retry!(client, OP, client.driver.rows(statement.clone()))?;
            let entries = entries + step;
            self.next = match rows.into_iter().next().and_then(place_of) {
                None => Pruning::Done,
                Some(kept) if entries == limit => Pruning::Removing { kept },
                Some(place) => Pruning::Passing { place: Some(place), entries },
            };
        }
        if let Pruning::Removing { kept } = &self.next {
            let statement = client.dialect.prune_history(kept, REMOVED);
            let removed = retry!(client, OP, async {
                let mut lent = client.driver.writer().await?;
                let done = lent.conn()?.run(statement.clone()).await;
                client.driver.end(lent, done)
            })?;
            if removed.rows < REMOVED {
                self.next = Pruning::Done;
            }
        }
        Ok(())
    }
}

fn place_of(row: Vec<Value>) -> Option<Place> {
    let mut cells = row.into_iter();
    Some((cells.next()?.into_int()?, cells.next()?.into_bytes()?))
}
