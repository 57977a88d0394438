//! Two stores of one's own, the short way and by hand: `cargo run --example custom_backend`.
//!
//! `reschedule` alone is a complete at-most-once backend. What it must promise is in the docs of
//! `Backend`; whether it does, the suite of `allora-conformance` tells.

use allora::{
    Backend, BoxError, Result, Run, Scheduler,
    backend::{Act, Answer, Cursor, Deliver, Next, Reschedule, Rescheduled, State, Taken},
    every,
    record::{At, Ledger, Record, next_fence, step},
};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

/// The short way: core's record and core's `step`, under a lock of one's own.
#[derive(Debug, Default)]
struct Short {
    records: Mutex<HashMap<String, Option<Record>>>,
}

#[async_trait::async_trait]
impl Backend for Short {
    async fn reschedule(&self, request: Reschedule<'_>) -> Result<Rescheduled> {
        let now = request.now.here();
        let mut records = self.records.lock().unwrap_or_else(PoisonError::into_inner);
        let answers = request.plans.iter().map(|plan| {
            let record = records.entry(plan.name.to_owned()).or_default();
            step(record, plan, At::new(request.node, now), &mut Ledger::off())
        });
        Ok(Rescheduled::new(now, answers.collect()))
    }
}

/// By hand: a row with four values, compared and set.
#[derive(Debug, Default)]
struct ByHand {
    rows: Mutex<HashMap<String, Row>>,
}

#[derive(Debug, Clone)]
struct Row {
    definition: String,
    edition: i64,
    cursor: Option<Next>,
    fence: i64,
    /// The last claim that won, so that it can be answered again.
    claim: Option<(u128, Taken)>,
}

#[async_trait::async_trait]
impl Backend for ByHand {
    async fn reschedule(&self, request: Reschedule<'_>) -> Result<Rescheduled> {
        let now = request.now.here();
        let mut rows = self.rows.lock().unwrap_or_else(PoisonError::into_inner);
        let answers = request.plans.iter().map(|plan| {
            if let Act::Register { definition, first, .. } = plan.act {
                rows.entry(plan.name.to_owned()).or_insert_with(|| Row {
                    definition: definition.to_owned(),
                    edition: next_fence(0, now),
                    cursor: first,
                    fence: next_fence(0, now),
                    claim: None,
                });
            }
            let Some(row) = rows.get_mut(plan.name) else { return Answer::Absent };
            if let Act::Take(take) = &plan.act {
                if let Some((_, taken)) = row.claim.as_ref().filter(|won| won.0 == take.claim) {
                    return Answer::Taken(taken.clone());
                }
                if let Deliver::AtMostOnce { then: Cursor::To(next), .. } = take.deliver
                    && take.wins(row.fence, row.cursor, now)
                {
                    row.cursor = next;
                    row.fence = next_fence(row.fence, now);
                    let taken = Taken::new(take.start.clone(), row.fence, row.edition);
                    row.claim = Some((take.claim, taken.clone()));
                    return Answer::Taken(taken);
                }
            }
            Answer::State(Box::new(row.state(plan.name)))
        });
        Ok(Rescheduled::new(now, answers.collect()))
    }
}

impl Row {
    fn state(&self, name: &str) -> State {
        let mut state = State::blank(name);
        state.definition.clone_from(&self.definition);
        (state.edition, state.incarnation) = (self.edition, self.edition);
        (state.cursor, state.fence) = (self.cursor, self.fence);
        state.head = self.cursor.map(|next| next.at.into());
        state.due_at = self.cursor.map(|next| next.due_at);
        state
    }
}

#[tokio::main]
async fn main() -> std::result::Result<(), BoxError> {
    show("the short way", Arc::new(Short::default())).await?;
    show("by hand", Arc::new(ByHand::default())).await
}

/// Two nodes share the store for some seconds.
async fn show(what: &str, store: Arc<dyn Backend>) -> std::result::Result<(), BoxError> {
    println!("{what}:");
    let nodes = ["a", "b"].map(|label| {
        Scheduler::builder(store.clone())
            .label(label)
            .job("tick", every(Duration::from_secs(1)), async |run: Run| {
                println!("  {} ran {} of {}", &run.node()[..1], run.name(), run.scheduled_at());
            })
            .build()
    });
    let [a, b] = nodes;
    let seconds = |n| tokio::time::sleep(Duration::from_secs(n));
    tokio::join!(a?.run_until(seconds(4)), b?.run_until(seconds(4)));
    Ok(())
}
