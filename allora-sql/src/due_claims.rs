//! The query that finds due stored schedules and claims them: one statement where the database has it,
//! and otherwise a transaction that locks what is due and claims that.

use crate::{
    client::{Client, ReadRows, SingleStatementReply, decides, number, reply, retry},
    dialect::{RequestContext, SimpleClaim, single_statement::CHUNK},
    driver::{Row, Value},
    encoding::IndexPlace,
};
use allora_core::{
    Error, ErrorKind, Result,
    backend::{Batch, ClaimDue, Claimed, ClaimedDue, JobState, TimeSource},
    record::Record,
};

const OP: &str = "claim_due";

/// The claimed records, and the clock in microseconds.
struct ClaimedRows {
    clock: Option<i64>,
    ids: Vec<i64>,
}

impl Client {
    /// `true` if queries claim. A claim with history is written in one step with its entry.
    pub(crate) fn claims_due(&self) -> bool {
        !self.history.is_on() || self.dialect.has_entries
    }

    /// Finds what is due and claims it; or finds what the same query has claimed.
    pub(crate) async fn claim_due(
        &self,
        query: ClaimDue<'_>,
        time: TimeSource,
    ) -> Result<ClaimedDue> {
        if !self.claims_due() {
            let what = "with history, this database cannot find and claim in one step";
            return Err(Error::new(ErrorKind::Unsupported, what).op(OP));
        }
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
        let now = decides(time, read.clock);
        self.ids.learn(read.rows.iter().map(|row| (&*row.name, row.id)));
        if self.dialect.has_entries && !query.is_repeated {
            self.history.appended_to(read.rows.iter().map(|row| &*row.name));
        }
        let mut claimed = Vec::with_capacity(read.rows.len());
        let mut large = Vec::new();
        for row in read.rows {
            match row.record {
                Ok(record) => claimed.extend(claimed_of(&row.name, &record, query.claim_id)),
                // It has much data, or is unreadable.
                Err(_) => large.push(row.name),
            }
        }
        for name in large {
            let loaded = self.read(OP, self.dialect.load(&[&name])).await?.rows.pop();
            let record = loaded.and_then(|row| row.record.ok());
            claimed.extend(record.and_then(|record| claimed_of(&name, &record, query.claim_id)));
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
            let mut read = self.read(OP, first).await?;
            let left = query.limit.saturating_sub(read.rows.len());
            if behind.is_some() && left > 0 {
                let mut rest = *query;
                rest.limit = left;
                if let Some(rest) = one(&rest, None) {
                    read.rows.extend(self.read(OP, rest).await?.rows);
                }
            }
            let last = read.rows.iter().filter_map(IndexPlace::of).max();
            self.frontier.reached(query.kinds, behind, last.filter(|_| left == 0));
            return Ok(read);
        }
        let claimed = retry!(self, OP, self.claim_in_transaction(context, query))?;
        if claimed.ids.is_empty() {
            let (clock, rows) = (claimed.clock, Vec::new());
            return Ok(ReadRows { clock, beside: None, left_out: None, rows });
        }
        let mut read = self.read(OP, self.dialect.claimed(&claimed.ids)).await?;
        // The clock that decided.
        read.clock = claimed.clock.or(read.clock);
        Ok(read)
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
                claimable.extend(rows.into_iter().filter_map(|row| claim_of(row, query)));
            }
            claimable.sort_unstable_by_key(|(index_at, claim)| (*index_at, claim.id));
            claimable.truncate(query.limit);
            let mut claims: Vec<_> = claimable.into_iter().map(|(_, claim)| claim).collect();
            // In one order on every node, so that two statements cannot wait for each other.
            claims.sort_unstable_by_key(|claim| claim.id);
            let mut ids = Vec::with_capacity(claims.len());
            for claims in claims.chunks(CHUNK) {
                let statement = self.dialect.flavour.claims(&self.dialect, context, claims);
                if let SingleStatementReply::Rows(rows) = reply(conn, &statement).await? {
                    ids.extend(rows.into_iter().filter_map(id_of));
                }
            }
            Ok(ClaimedRows { clock: Some(now), ids })
        };
        let done = done.await;
        tx.end(done).await
    }
}

/// The place in the due index, and the claim, of a row that may be claimed: key, fence, occurrence,
/// length of the lease in milliseconds, place.
fn claim_of(row: Row, query: &ClaimDue<'_>) -> Option<(i64, SimpleClaim)> {
    let cells: Vec<i64> = row.into_iter().map_while(Value::into_int).collect();
    let [id, fence, expected, lease, index_at] = cells.try_into().ok()?;
    let not_after = query.not_after.map(|until| until.timestamp_micros());
    let claim_id = query.claim_id.to_be_bytes();
    Some((index_at, SimpleClaim::due((id, fence), expected, lease, claim_id, not_after)))
}

/// The key in a row of the claims' statement.
fn id_of(row: Row) -> Option<i64> {
    row.into_iter().nth(1)?.into_int()
}

/// The record with the claim of this id.
fn claimed_of(name: &str, record: &Record, claim_id: u128) -> Option<(JobState, Claimed)> {
    let lease = record.claimed_by(claim_id)?;
    let occurrence = lease.occurrence.clone();
    let claimed = Claimed::new(occurrence, lease.fence, record.incarnation, lease.until);
    Some((record.state(name), claimed))
}
