//! The query that finds due stored schedules and claims them: one statement where the database has it,
//! and otherwise a transaction that locks what is due and claims that.

use crate::{
    client::{Client, ReadRows, decides, number, read_rows, retry},
    dialect::{RequestContext, single_statement::CHUNK},
    driver::{Row, Statement, Value},
    encoding::IndexPlace,
};
use allora_core::{
    Result,
    backend::{Batch, ClaimDue, ClaimedDue, TimeSource},
    record::Record,
};

const OP: &str = "claim_due";

/// The claimed records, and the clock in microseconds.
struct ClaimedRows {
    clock: Option<i64>,
    ids: Vec<i64>,
}

impl Client {
    /// Finds what is due and claims it; or finds what the same query has claimed.
    pub(crate) async fn claim_due(
        &self,
        query: ClaimDue<'_>,
        time: TimeSource,
    ) -> Result<ClaimedDue> {
        let context = RequestContext::of(&Batch::new(query.node, time, &[]));
        let context = context.filter(|_| query.limit > 0 && !query.kinds.is_empty());
        let read = match context {
            _ if query.is_repeated => {
                let claim_id = query.claim_id.to_be_bytes();
                self.read(OP, self.dialect.claimed_by(query.kinds, claim_id)).await?
            }
            Some(context) => self.claim(&context, &query).await?,
            None => return Ok(ClaimedDue::new(self.now(OP, time).await?, Vec::new())),
        };
        let now = match read.clock {
            None => self.now(OP, time).await?,
            clock => decides(time, clock),
        };
        self.ids.learn(read.rows.iter().map(|row| (&*row.name, row.id)));
        let claimed_of = |name: &str, record: &Record| {
            Some((record.state(name), record.claimed_by(query.claim_id)?))
        };
        let mut claimed = Vec::with_capacity(read.rows.len());
        let mut large = Vec::new();
        for row in read.rows {
            match row.record {
                Ok(record) => claimed.extend(claimed_of(&row.name, &record)),
                // It has much data, or is unreadable.
                Err(_) => large.push(row.name),
            }
        }
        for name in large {
            let loaded = self.read(OP, self.dialect.load(&[&name])).await?.rows.pop();
            let record = loaded.and_then(|row| row.record.ok());
            claimed.extend(record.and_then(|record| claimed_of(&name, &record)));
        }
        Ok(ClaimedDue::new(now, claimed))
    }

    async fn claim(&self, context: &RequestContext<'_>, query: &ClaimDue<'_>) -> Result<ReadRows> {
        let one = |query: &ClaimDue<'_>, behind: Option<IndexPlace>| {
            let behind = behind.unwrap_or(IndexPlace::FIRST);
            self.dialect.flavour.claim_due(&self.dialect, context, query, behind)
        };
        let behind = self.frontier.of(query.kinds);
        if let Some(first) = one(query, behind) {
            let mut read = self.claim_at_once(first).await?;
            let left = query.limit.saturating_sub(read.rows.len());
            if behind.is_some() && left > 0 {
                let mut rest = *query;
                rest.limit = left;
                if let Some(rest) = one(&rest, None) {
                    read.rows.extend(self.claim_at_once(rest).await?.rows);
                }
            }
            let last = read.rows.iter().filter_map(IndexPlace::of).max();
            self.frontier.reached(query.kinds, behind, last.filter(|_| left == 0));
            return Ok(read);
        }
        let claimed = retry!(self, OP, self.claim_in_transaction(context, query))?;
        self.claimed(claimed).await
    }

    /// Runs the statement that finds and claims, and reads the records if it has returned their keys.
    async fn claim_at_once(&self, statement: Statement) -> Result<ReadRows> {
        let rows = retry!(self, OP, async {
            let mut lent = self.driver.writer().await?;
            let done = lent.conn()?.rows(statement.clone()).await;
            self.driver.end(lent, done)
        })?;
        if rows.first().is_none_or(|row| row.len() > 2) {
            return Ok(read_rows(rows));
        }
        let mut claimed = ClaimedRows { clock: None, ids: Vec::with_capacity(rows.len()) };
        for row in rows {
            let mut numbers = row.into_iter().map(Value::into_int);
            claimed.clock = numbers.next().flatten();
            claimed.ids.extend(numbers.next().flatten());
        }
        self.claimed(claimed).await
    }

    /// Reads the claimed records. The clock is the one that has decided.
    async fn claimed(&self, claimed: ClaimedRows) -> Result<ReadRows> {
        let ClaimedRows { clock, ids } = claimed;
        let mut claimed = ReadRows { clock, beside: None, left_out: None, rows: Vec::new() };
        for ids in ids.chunks(CHUNK) {
            let read = self.read(OP, self.dialect.claimed(ids)).await?;
            claimed.rows.extend(read.rows);
        }
        Ok(claimed)
    }

    async fn claim_in_transaction(
        &self,
        context: &RequestContext<'_>,
        query: &ClaimDue<'_>,
    ) -> sqlx::Result<ClaimedRows> {
        let mut tx = self.driver.transaction().await?;
        let done = async {
            let conn = tx.conn()?;
            let now = match context.now {
                Some(now) => Some(now),
                None => number(conn.rows(self.dialect.now()).await?),
            };
            let now = now.ok_or(sqlx::Error::RowNotFound)?;
            let mut claimable = Vec::new();
            for kind in query.kinds {
                let statement = self.dialect.claimable(kind, now.div_euclid(1_000), query.limit);
                let rows = conn.rows(statement).await?;
                claimable.extend(rows.into_iter().filter_map(place_of));
            }
            claimable.sort_unstable();
            claimable.truncate(query.limit);
            let mut ids: Vec<i64> = claimable.into_iter().map(|place| place.id).collect();
            ids.sort_unstable();
            let flavour = &*self.dialect.flavour;
            let statement = flavour.claim_locked(&self.dialect, context, query, &ids);
            let Some(statement) = statement.filter(|_| !ids.is_empty()) else {
                return Ok(ClaimedRows { clock: Some(now), ids: Vec::new() });
            };
            if conn.run(statement).await?.rows == 0 {
                // Too late.
                ids.clear();
            }
            Ok(ClaimedRows { clock: Some(now), ids })
        };
        let done = done.await;
        tx.end(done).await
    }
}

/// The place of a row in the due index: key, time.
fn place_of(row: Row) -> Option<IndexPlace> {
    let cells: Vec<i64> = row.into_iter().map_while(Value::into_int).collect();
    let [id, index_at] = cells.try_into().ok()?;
    Some(IndexPlace { index_at, id })
}
