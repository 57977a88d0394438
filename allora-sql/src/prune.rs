//! Removing old tombstones, and history beyond the limit.

use crate::{
    client::{Client, number, retry},
    driver::Value,
};
use allora_core::{Result, Time};
use std::sync::atomic::Ordering;

const OP: &str = "prune";

impl Client {
    /// Removes old tombstones. History is pruned when a tenth more than the limit may be there.
    pub(crate) async fn prune(&self, now: Time) -> Result {
        self.purge_tombstones(now).await?;
        let due = self.history_limit / 10 + 1;
        if self.history_limit > 0 && self.appended.load(Ordering::Relaxed) >= due {
            self.appended.store(0, Ordering::Relaxed);
            self.prune_history().await?;
        }
        Ok(())
    }

    async fn prune_history(&self) -> Result {
        let Some(fence) = self.history_edge(OP).await? else { return Ok(()) };
        retry!(self, OP, async {
            let mut writer = self.driver.writer().await?;
            writer.conn().run(self.dialect.prune_history(fence)).await.map(drop)
        })
    }

    /// Removes tombstones whose time is over. The lowest fence of the namespace takes their place.
    async fn purge_tombstones(&self, now: Time) -> Result {
        retry!(self, OP, async {
            let mut tx = self.driver.begin().await?;
            let conn = tx.conn();
            let lowest = number(conn.rows(self.dialect.meta("min_fence", true)).await?);
            let rows = conn.rows(self.dialect.old_tombstones(now.timestamp_millis())).await?;
            let mut names = Vec::new();
            let mut highest = lowest.unwrap_or_default();
            for mut row in rows {
                highest = highest.max(row.pop().and_then(Value::into_int).unwrap_or_default());
                names.extend(row.pop().and_then(Value::into_bytes));
            }
            let names: Vec<&[u8]> = names.iter().map(|name| &name[..]).collect();
            if !names.is_empty() {
                for statement in self.dialect.put_meta("min_fence", highest) {
                    conn.run(statement).await?;
                }
                conn.run(self.dialect.purge_tombstones(&names)).await?;
            }
            tx.commit().await
        })
    }
}
