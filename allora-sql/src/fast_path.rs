//! Claims, completions and extensions of the commonest shape in one statement.

use crate::{
    client::{Client, SingleStatementReply, decides},
    dialect::{
        RequestContext, SimpleClaim, SimpleCompletion,
        single_statement::{self, End},
    },
    driver::{Row, Value},
    encoding::time,
    records::Version,
};
use allora_core::{
    Occurrence, Result, Time,
    backend::{Batch, Claimed, Reply},
    store::FastPath,
};
use std::collections::HashMap;

impl Client {
    /// Replies to the operations of the commonest shape that succeed. The general path decides all
    /// others.
    pub(crate) async fn fast_path(&self, batch: Batch<'_>) -> Result<FastPath<Version>> {
        let mut fast = FastPath::none();
        let Some(context) = RequestContext::of(&batch) else { return Ok(fast) };
        // The history is written in one step with the record.
        let has_entries = self.dialect.has_entries;
        let ids = self.ids.of(batch.operations.iter().map(|operation| operation.name));
        // Operations on one name are applied in their order. A job that was never read is left to the
        // general path, which reads it.
        let mut positions: HashMap<i64, Option<usize>> = HashMap::new();
        for (i, id) in ids.iter().enumerate().filter_map(|(i, id)| Some((i, (*id)?))) {
            positions.entry(id).and_modify(|known| *known = None).or_insert(Some(i));
        }
        let single = |id: i64| positions.get(&id).copied().flatten();
        let operations = batch.operations.iter().zip(&ids);
        let operations = operations.filter_map(|(operation, id)| Some((operation, (*id)?)));
        let operations = operations.filter(|(_, id)| single(*id).is_some());
        let ends = operations
            .clone()
            .filter(|(end, _)| !self.history.is_on() || single_statement::ends_with_one_entry(end));
        let ends = ends.filter_map(|(end, id)| SimpleCompletion::of(end, id));
        let mut ends: Vec<_> = ends.collect();
        let flavour = &*self.dialect.flavour;
        ends.retain(|end| end.end() == End::Completed || flavour.extends_in_single_statement());
        let claims = operations.filter_map(|(claim, id)| SimpleClaim::of(claim, id));
        let mut claims: Vec<_> = claims.collect();
        // In one order on every node, so that two statements cannot wait for each other.
        ends.sort_unstable_by_key(|end| (end.end(), end.id));
        claims.sort_unstable_by_key(|claim| claim.id);
        // Ends first: a lease cannot wait.
        let alike = ends.chunk_by(|one, other| one.end() == other.end());
        for ends in alike.flat_map(|ends| ends.chunks(single_statement::CHUNK)) {
            let end = ends[0].end();
            let statement = flavour.completions(&self.dialect, &context, end, ends);
            let is_listed = has_entries && end == End::Completed;
            let beside = match end {
                End::Completed => flavour.ended(&self.dialect, &context, ends),
                End::Extended => Vec::new(),
            };
            let reply = match beside.is_empty() {
                true => self.single_statement("complete", statement).await?,
                false => self.with_entries("complete", &beside, statement).await?,
            };
            let before = fast.replies.len();
            match reply {
                SingleStatementReply::Rows(rows) => {
                    for end in rows.into_iter().filter_map(ended) {
                        let Some(i) = single(end.id) else { continue };
                        fast.now = fast.now.max(Some(decides(batch.time, Some(end.clock))));
                        fast.replies.push((i, Ok(end.reply)));
                        let name = batch.operations[i].name;
                        fast.due.extend(end.is_due.then(|| name.to_owned()));
                    }
                }
                // All of them; if not, the general path accepts again those that were.
                SingleStatementReply::Counted { rows, clock } if rows == ends.len() as u64 => {
                    fast.now = fast.now.max(Some(decides(batch.time, clock)));
                    let accepted = ends.iter().filter_map(|end| single(end.id));
                    fast.replies.extend(accepted.map(|i| (i, Ok(Reply::Accepted))));
                }
                SingleStatementReply::Counted { .. } => {}
            }
            if is_listed {
                let ended = fast.replies[before..].iter().map(|(i, _)| batch.operations[*i].name);
                self.history.appended(ended);
            }
        }
        for claims in claims.chunks(single_statement::CHUNK) {
            let statement = flavour.claims(&self.dialect, &context, claims);
            let reply = self.single_statement("claim", statement).await?;
            let SingleStatementReply::Rows(rows) = reply else { continue };
            for (id, clock, claimed) in rows.into_iter().filter_map(claimed) {
                let Some(i) = single(id) else { continue };
                fast.now = fast.now.max(Some(decides(batch.time, Some(clock))));
                fast.replies.push((i, Ok(Reply::Claimed(claimed))));
            }
        }
        Ok(fast)
    }
}

/// A row of the claims' statement: clock, key, occurrence, fence, incarnation, end of the lease.
fn claimed(row: Row) -> Option<(i64, i64, Claimed)> {
    let mut cells = row.into_iter();
    let clock = cells.next()?.into_int()?;
    let id = cells.next()?.into_int()?;
    let occurrence = Occurrence::from(time_of(cells.next()?)?);
    let fence = cells.next()?.into_int()?;
    let incarnation = cells.next()?.into_int()?;
    let until = time_of(cells.next()?)?;
    Some((id, clock, Claimed::new(occurrence, fence, incarnation, until)))
}

/// An applied completion or extension.
struct Ended {
    clock: i64,
    id: i64,
    reply: Reply,
    is_due: bool,
}

/// A row of the completions' statement: clock, key, end of the lease if it still lasts, 1 if the job
/// is due again.
fn ended(row: Row) -> Option<Ended> {
    let mut cells = row.into_iter();
    let clock = cells.next()?.into_int()?;
    let id = cells.next()?.into_int()?;
    let reply = match cells.next()?.into_int() {
        Some(until) => Reply::Extended(time(until).ok()?),
        None => Reply::Accepted,
    };
    let is_due = cells.next()?.into_int() == Some(1);
    Some(Ended { clock, id, reply, is_due })
}

fn time_of(value: Value) -> Option<Time> {
    time(value.into_int()?).ok()
}
