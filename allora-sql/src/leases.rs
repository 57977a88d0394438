//! Endings: the commonest ones in one statement, the others in one transaction.

use crate::{
    Sql,
    dialect::fast::{self, Asker},
    driver::{Row, Value},
    reschedule::{is_whole, micros},
    row,
    store::{AtOnce, Slot, Store},
};
use allora_core::{
    Result,
    backend::{Hint, Leases, Settle, Settled},
    record::settle,
};
use async_trait::async_trait;
use std::collections::HashMap;

const OP: &str = "settle";

#[async_trait]
impl Leases for Sql {
    async fn settle(&self, request: Settle<'_>) -> Result<Vec<Settled>> {
        let store = &*self.leases;
        let mut answers: Vec<Option<Settled>> = vec![None; request.endings.len()];
        let mut waiting = Vec::new();
        store.settle_at_once(&request, &mut answers, &mut waiting).await?;
        store.settle_rest(&request, &mut answers, &mut waiting).await?;
        // Somebody may be waiting for these runs' ends.
        match waiting.as_slice() {
            [] => {}
            [name] => store.tell(Hint::Job((*name).to_owned())).await,
            _ => store.tell(Hint::Look).await,
        }
        store.trim(OP).await?;
        Ok(answers.into_iter().map(|answer| answer.unwrap_or(Settled::Removed)).collect())
    }
}

impl Store {
    /// Endings of the commonest shape, in one statement.
    async fn settle_at_once<'a>(
        &self,
        request: &Settle<'a>,
        answers: &mut [Option<Settled>],
        waiting: &mut Vec<&'a str>,
    ) -> Result {
        let mut seen = HashMap::new();
        for (i, ending) in request.endings.iter().enumerate() {
            // Two endings of one job are applied one after the other.
            seen.entry(ending.name).or_insert_with(Vec::new).push(i);
        }
        if self.history > 0 || !is_whole(request.now) || seen.values().any(|all| all.len() > 1) {
            return Ok(());
        }
        let mut ends = fast::endings(request.endings);
        ends.retain(|end| end.is_finish() || self.dialect.flavour.extends_at_once());
        let asker = Asker { node: request.node, now: micros(request.now) };
        for ends in ends.chunks(fast::CHUNK) {
            let statement = self.dialect.flavour.endings(&self.dialect, &asker, ends);
            match self.at_once(OP, statement).await? {
                AtOnce::Rows(rows) => ended(rows, request, &seen, answers, waiting),
                // All of them, or nobody knows which: those that were are told so again.
                AtOnce::Count(count) if count == ends.len() as u64 => {
                    for end in ends {
                        answers[seen[end.name][0]] = Some(Settled::Done);
                    }
                }
                AtOnce::Count(_) => {}
            }
        }
        Ok(())
    }

    /// Everything that has no answer yet, in one transaction.
    async fn settle_rest<'a>(
        &self,
        request: &Settle<'a>,
        answers: &mut [Option<Settled>],
        waiting: &mut Vec<&'a str>,
    ) -> Result {
        let open: Vec<usize> = (0..answers.len()).filter(|i| answers[*i].is_none()).collect();
        if open.is_empty() {
            return Ok(());
        }
        let names: Vec<&str> = open.iter().map(|i| request.endings[*i].name).collect();
        let work = |i: usize, slot: Slot<'_>, at: allora_core::record::At<'_>, ledger: &mut _| {
            let ending = &request.endings[open[i]];
            // Whether a run of a record that cannot be read still holds it, nobody can say.
            let Slot::Sound(record) = slot else { return (Settled::Lost, false) };
            let answer = settle(record, ending, at, ledger);
            let head = record.as_ref().and_then(|record| record.head());
            let due = head.is_some_and(|head| head.due_at <= at.now);
            (answer, due && answer == Settled::Done)
        };
        let done = self.with(OP, &names, request.node, request.now, work).await?;
        for (i, (answer, due)) in open.iter().zip(done.answers) {
            answers[*i] = Some(answer);
            if due {
                waiting.push(request.endings[*i].name);
            }
        }
        Ok(())
    }
}

/// What the rows say: the name, the end of its hold if it still has one, whether it is due again.
fn ended<'a>(
    rows: Vec<Row>,
    request: &Settle<'a>,
    seen: &HashMap<&str, Vec<usize>>,
    answers: &mut [Option<Settled>],
    waiting: &mut Vec<&'a str>,
) {
    for row in rows {
        let mut cells = row.into_iter();
        let Some(name) = cells.next().and_then(Value::into_bytes) else { continue };
        let until = cells.next().and_then(Value::into_int);
        let due = cells.next().and_then(Value::into_int) == Some(1);
        let Some(i) = std::str::from_utf8(&name).ok().and_then(|name| seen.get(name)) else {
            continue;
        };
        let i = i[0];
        answers[i] = Some(match until.map(row::time) {
            Some(Ok(until)) => Settled::Until(until),
            _ => Settled::Done,
        });
        if due {
            waiting.push(request.endings[i].name);
        }
    }
}
