//! Endings.

use crate::{
    Redis,
    known::{Span, micros},
    store::{Slot, Work},
};
use allora_core::{
    Result,
    backend::{End, Hint, Leases, Settle, Settled},
    record::{At, Ledger, Record, settle},
};
use async_trait::async_trait;

const OP: &str = "settle";

#[async_trait]
impl Leases for Redis {
    async fn settle(&self, request: Settle<'_>) -> Result<Vec<Settled>> {
        let store = &*self.store;
        let names: Vec<&str> = request.endings.iter().map(|ending| ending.name).collect();
        let endings = Endings { request: &request };
        let done = store.with(OP, &names, request.node, request.now, &endings).await?;
        // Somebody may be waiting for these runs' ends.
        let waiting: Vec<&str> = names
            .iter()
            .zip(&done.answers)
            .filter_map(|(name, (_, due))| due.then_some(*name))
            .collect();
        match waiting.as_slice() {
            [] => {}
            [name] => store.tell(Hint::Job((*name).to_owned())).await,
            _ => store.tell(Hint::Look).await,
        }
        Ok(done.answers.into_iter().map(|(settled, _)| settled).collect())
    }
}

struct Endings<'a> {
    request: &'a Settle<'a>,
}

impl Work for Endings<'_> {
    /// What came of it, and whether the job is due again.
    type Answer = (Settled, bool);

    fn decide(&self, i: usize, slot: Slot<'_>, at: At<'_>, ledger: &mut Ledger) -> Self::Answer {
        // Whether a run of a record that cannot be read still holds it, nobody can say.
        let Slot::Sound(record) = slot else { return (Settled::Lost, false) };
        let settled = settle(record, &self.request.endings[i], at, ledger);
        let head = record.as_ref().and_then(|record| record.head());
        let due = head.is_some_and(|head| head.due_at <= at.now);
        (settled, due && settled == Settled::Done)
    }

    fn span(&self, i: usize, record: &Record) -> Option<Span> {
        let ending = &self.request.endings[i];
        let hold = record.holds.first().filter(|hold| hold.fence == ending.fence)?;
        match ending.end {
            End::Extend { lasts } => {
                let lasts = micros(lasts)?;
                // A lease is never shortened, and one that stays as it is needs no writing.
                let from = hold.until.timestamp_micros() - lasts + 1_000;
                Some(Span { from: Some(from), until: None, lasts: Some(lasts) })
            }
            _ => Some(Span::default()),
        }
    }
}
