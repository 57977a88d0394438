//! Endings: each applied to its job's record by the fence.

use crate::{
    Etcd,
    store::{Asker, Done, Slot},
};
use allora_core::{
    Result,
    backend::{End, Ending, Hint, Leases, Now, Settle, Settled},
    record::settle,
};
use async_trait::async_trait;

const OP: &str = "settle";

#[async_trait]
impl Leases for Etcd {
    async fn settle(&self, request: Settle<'_>) -> Result<Vec<Settled>> {
        let store = &self.store;
        let asker = Asker { op: OP, node: request.node, now: request.now };
        if let Now::Store { node: wall } = request.now {
            store.marks.seen(request.node, wall);
            let promise = request.endings.iter().filter_map(|ending| match ending.end {
                End::Extend { lasts } => Some(lasts),
                _ => None,
            });
            if let Some(promise) = promise.max() {
                store.promise(OP, request.node, promise).await?;
            }
        }
        let names: Vec<&str> = request.endings.iter().map(|ending| ending.name).collect();
        let work = |i: usize, slot: Slot<'_>, at: allora_core::record::At<'_>, ledger: &mut _| {
            let ending: &Ending<'_> = &request.endings[i];
            // Whether a run of a record that cannot be read still holds it, nobody can say.
            let Slot::Sound(record) = slot else {
                return Done { answer: Settled::Lost, hint: None, is_proved: false };
            };
            let answer = settle(record, ending, at, ledger);
            let is_proved = matches!(answer, Settled::Done | Settled::Until(_));
            // Somebody may be waiting for this run's end.
            let head = record.as_ref().and_then(|record| record.head());
            let waited = answer == Settled::Done && head.is_some_and(|head| head.due_at <= at.now);
            let hint = waited.then(|| Hint::Job(ending.name.to_owned()));
            Done { answer, hint, is_proved }
        };
        let answers = store.with(asker, &names, true, work).await?;
        store.trim(OP).await?;
        Ok(answers)
    }
}
