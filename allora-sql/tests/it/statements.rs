//! How many statements a batch costs, as the driver logs them.

use crate::stores::Db;
use allora_core::{
    Backend,
    backend::{
        Act, Answer, Beside, Cursor, Deliver, End, Ended, Ending, Find, Leases, Mark, Next, Now,
        Plan, Reschedule, Settle, Settled, Take,
    },
    time::from_millis,
};
use std::{cell::Cell, sync::Once, time::Duration};
use tracing::{
    Event, Id, Metadata, Subscriber,
    field::{Field, Visit},
    span::{Attributes, Record},
    subscriber::Interest,
};

#[test]
fn a_batch_is_one_statement_for_its_takes_and_one_for_its_finishes_on_postgres() {
    batch(Db::Postgres, [1, 1, 1]);
}

/// An `UPDATE` returns nothing there: what was won is read back.
#[test]
fn a_batch_is_two_statements_for_its_takes_and_one_for_its_finishes_on_mysql() {
    batch(Db::MySql, [2, 1, 1]);
}

/// Takes a hundred jobs, finishes them, and looks for others, in so many statements each.
fn batch(db: Db, expected: [u64; 3]) {
    let Some(place) = db.place() else { return };
    // One thread, which has the counter.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    static COUNTER: Once = Once::new();
    COUNTER.call_once(|| tracing::subscriber::set_global_default(Counter).unwrap());
    let counts = runtime.block_on(async {
        let sql = place.open().await;
        let now = Now::Store { node: from_millis(0).unwrap() };
        let names: Vec<String> = (0..100).map(|i| format!("job {i}")).collect();
        let first: Next = from_millis(1_000).unwrap().into();
        let register = Act::Register { definition: "d", version: 0, first: Some(first) };
        let plans: Vec<Plan<'_>> = names.iter().map(|n| Plan::new(n, register.clone())).collect();
        let known = sql.reschedule(Reschedule::new("n", now, &plans)).await.unwrap().answers;
        let mark = Some(Mark { lasts: Duration::from_secs(60), beside: Beside::Others });
        // Later than any clock: nobody waits for the ends of these runs.
        let then = Cursor::To(Some(from_millis(9_999_999_999_999).unwrap().into()));
        let takes = (1..).zip(names.iter().zip(&known)).map(|(claim, (name, answer))| {
            let Answer::State(state) = answer else { panic!("{name}: {answer:?}") };
            let deliver = Deliver::AtMostOnce { then, mark };
            Plan::new(name, Act::Take(Take::new(claim, state.fence, first.at.into(), deliver)))
        });
        let takes: Vec<Plan<'_>> = takes.collect();
        let mut counts = vec![COUNT.get()];
        let won = sql.reschedule(Reschedule::new("n", now, &takes)).await.unwrap().answers;
        counts.push(COUNT.get());
        let ended = names.iter().zip(&won).map(|(name, answer)| {
            let Answer::Taken(taken) = answer else { panic!("{name}: {answer:?}") };
            let end = End::Finish { then: Cursor::Keep, outcome: Ended::Ran };
            Ending::new(name, taken.fence, end)
        });
        let ended: Vec<Ending<'_>> = ended.collect();
        let settled = sql.settle(Settle::new("n", now, &ended)).await.unwrap();
        assert!(settled.iter().all(|one| *one == Settled::Done), "{settled:?}");
        counts.push(COUNT.get());
        let find = Find::new(&["mail"], allora_core::time::end_of_time(), 10);
        let found = sql.reschedule(Reschedule::new("n", now, &[]).find(find)).await.unwrap();
        assert_eq!((found.found.len(), found.next_due), (0, None));
        assert!(found.now > from_millis(1_700_000_000_000).unwrap(), "the database's clock");
        counts.push(COUNT.get());
        place.clear().await;
        counts
    });
    let each: Vec<u64> = counts.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert_eq!(each, expected);
}

thread_local! {
    /// The statements of this thread: other tests run beside.
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

struct Counter;

impl Subscriber for Counter {
    fn register_callsite(&self, _: &'static Metadata<'static>) -> Interest {
        Interest::sometimes()
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "sqlx::query"
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        event.record(&mut Only);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// Counts the events that tell a statement.
struct Only;

impl Visit for Only {
    fn record_debug(&mut self, field: &Field, _: &dyn std::fmt::Debug) {
        if field.name() == "summary" {
            COUNT.set(COUNT.get() + 1);
        }
    }
}
