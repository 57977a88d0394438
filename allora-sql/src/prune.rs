//! Removing old tombstones.

use crate::{
    client::{Client, number, retry},
    driver::{Conn, Value},
    encoding::plausible,
};
use allora_core::{Result, Time};

const OP: &str = "prune";

impl Client {
    /// Removes tombstones whose time is over. The lowest fence of the namespace takes their place.
    pub(crate) async fn purge_tombstones(&self, now: Time) -> Result {
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
