//! The transitions of PerfectSched's backend, re-told: where it kept its promise the same, where it
//! did not, the promise.

use crate::stores::{Place, on_every_database};
use allora_core::{
    Backend, Kind, Occurrence, Time,
    backend::{
        Act, Answer, Change, Cursor, Deliver, End, Ended, Ending, Find, NewSchedule, Next, Now,
        Plan, Reschedule, Settle, Settled, State, Take, Taken,
    },
    time::from_millis,
};
use allora_sql::Sql;
use std::time::Duration;

on_every_database! {
    one_schedule_through_its_life
    the_oldest_due_goes_first_and_a_batch_takes_up_to_its_limit
}

/// The trace's first instant, 2011-12-14T00:00:00Z, and a time so many seconds after it.
fn t(seconds: i64) -> Time {
    from_millis((1_323_820_800 + seconds) * 1000).unwrap()
}

struct Trace {
    sql: Sql,
    claim: u128,
}

impl Trace {
    /// Finds what is due and takes it, at least once.
    async fn poll(&mut self, seconds: i64, alive: u64, limit: usize) -> Vec<(String, Taken)> {
        let now = Now::At(t(seconds));
        // What is due this very instant is before the next millisecond.
        let until = t(seconds) + Duration::from_millis(1);
        let find = Reschedule::new("n", now, &[]).find(Find::new(&["t1"], until, limit));
        let found: Vec<State> = self.sql.reschedule(find).await.unwrap().found;
        let mut plans = Vec::new();
        for state in &found {
            self.claim += 1;
            let deliver = Deliver::AtLeastOnce { lease: Duration::from_secs(alive) };
            let head = state.head.clone().unwrap();
            let take = Take::new(self.claim, state.edition, head, deliver);
            plans.push(Plan::new(&state.name, Act::Take(take)));
        }
        let request = Reschedule::new("n", now, &plans);
        let answers = self.sql.reschedule(request).await.unwrap().answers;
        let taken = |(state, answer): (State, Answer)| match answer {
            Answer::Taken(taken) => Some((state.name, taken)),
            _ => None,
        };
        found.into_iter().zip(answers).filter_map(taken).collect()
    }

    async fn one(&mut self, seconds: i64, alive: u64) -> Option<Taken> {
        self.poll(seconds, alive, 1).await.pop().map(|(_, taken)| taken)
    }

    async fn end(&self, seconds: i64, fence: i64, end: End<'_>) -> Settled {
        let endings = [Ending::new("a", fence, end)];
        let request = Settle::new("n", Now::At(t(seconds)), &endings);
        self.sql.leases().unwrap().settle(request).await.unwrap()[0]
    }

    async fn finish(&self, seconds: i64, fence: i64, next: i64) -> Settled {
        let then = Cursor::To(Some(t(next).into()));
        self.end(seconds, fence, End::Finish { then, outcome: Ended::Ran }).await
    }

    async fn beat(&self, seconds: i64, fence: i64, alive: u64) -> Settled {
        self.end(seconds, fence, End::Extend { lasts: Duration::from_secs(alive) }).await
    }
}

async fn one_schedule_through_its_life(place: Place) {
    let mut trace = Trace { sql: place.open().await, claim: 0 };
    let sql = trace.sql.clone();
    let store = sql.schedules().unwrap();
    let new = NewSchedule::new("a", "t1", "* * * * *", Some(t(0).into())).data(b"{\"k\":1}");
    let state = store.add(new, Now::At(t(-60))).await.unwrap();
    assert_eq!((state.cursor, state.data.as_slice()), (Some(t(0).into()), &b"{\"k\":1}"[..]));
    let twice = store.add(new, Now::At(t(-60))).await.unwrap_err();
    assert_eq!(twice.kind(), Kind::AlreadyExists);

    assert_eq!(trace.one(-1, 120).await, None, "not due");
    let first = trace.one(0, 120).await.unwrap();
    assert_eq!((&first.run, first.until), (&Occurrence::from(t(0)), Some(t(120))));
    assert_eq!(trace.one(60, 120).await, None, "leased");
    assert_eq!(trace.beat(100, first.fence, 120).await, Settled::Until(t(220)));
    assert_eq!(trace.one(219, 120).await, None, "leased still");
    let second = trace.one(220, 120).await.unwrap();
    assert_eq!((&second.run, second.attempt), (&Occurrence::from(t(0)), 2), "the same again");
    assert!(second.fence > first.fence);
    // There the first holder could go on; here it is refused as soon as the second one has it.
    assert_eq!(trace.beat(230, first.fence, 120).await, Settled::Lost);
    assert_eq!(trace.finish(230, first.fence, 60).await, Settled::Lost);
    assert_eq!(trace.finish(231, second.fence, 60).await, Settled::Done);
    assert_eq!(trace.finish(232, second.fence, 60).await, Settled::Done, "finished twice");
    assert_eq!(trace.beat(233, second.fence, 120).await, Settled::Lost);

    // Every missed occurrence has its own scheduled time, in order.
    let third = trace.one(600, 300).await.unwrap();
    assert_eq!(third.run, Occurrence::from(t(60)));
    // Given back, there a promise without a method.
    assert_eq!(trace.end(600, third.fence, End::Release).await, Settled::Done);
    let third = trace.one(600, 300).await.unwrap();
    assert_eq!((&third.run, third.attempt), (&Occurrence::from(t(60)), 1), "not counted");
    assert_eq!(trace.finish(600, third.fence, 120).await, Settled::Done);
    let fourth = trace.one(600, 300).await.unwrap();
    let retry = End::Retry { at: t(630), error: "later" };
    assert_eq!(trace.end(600, fourth.fence, retry).await, Settled::Done);
    assert_eq!(trace.one(629, 300).await, None);
    let fifth = trace.one(630, 300).await.unwrap();
    assert_eq!((&fifth.run, fifth.attempt), (&Occurrence::from(t(120)), 2));
    assert_eq!(trace.finish(630, fourth.fence, 180).await, Settled::Lost, "that run is over");

    // Changed while it runs: what runs goes on, and its finish does not undo the change.
    let edition = store.get("a").await.unwrap().edition;
    let next: Next = t(1800).into();
    let definition = Some(("30 * * * *", Some(next)));
    let edit = Change::Edit { edition, definition, data: Some(b"{}") };
    let state = store.modify("a", edit, Now::At(t(640))).await.unwrap();
    assert_eq!((state.cursor, state.data.as_slice()), (Some(next), &b"{}"[..]));
    assert_eq!(trace.finish(650, fifth.fence, 180).await, Settled::Done);
    assert_eq!(store.get("a").await.unwrap().cursor, Some(next));
    let stale = store.modify("a", edit, Now::At(t(660))).await.unwrap_err();
    assert_eq!(stale.kind(), Kind::AlreadyExists);

    // Deleted while it runs.
    let sixth = trace.one(1800, 300).await.unwrap();
    store.delete("a", Now::At(t(1801))).await.unwrap();
    assert_eq!(trace.finish(1802, sixth.fence, 5400).await, Settled::Removed);
    assert_eq!(trace.beat(1802, sixth.fence, 300).await, Settled::Removed);
    let gone = store.delete("a", Now::At(t(1803))).await.unwrap_err();
    assert_eq!(gone.kind(), Kind::NotFound);
    assert_eq!(store.get("a").await.unwrap_err().kind(), Kind::NotFound);
    let fence = store.add(new, Now::At(t(1804))).await.unwrap().fence;
    assert!(fence > sixth.fence);
}

async fn the_oldest_due_goes_first_and_a_batch_takes_up_to_its_limit(place: Place) {
    let mut trace = Trace { sql: place.open().await, claim: 0 };
    for i in 0..10 {
        let (name, first) = (format!("{}", (i * 7) % 10), Next::from(t(-i)));
        let new = NewSchedule::new(&name, "t1", "* * * * *", Some(first));
        trace.sql.schedules().unwrap().add(new, Now::At(t(-60))).await.unwrap();
    }
    let names = |taken: Vec<(String, Taken)>| -> Vec<String> {
        taken.into_iter().map(|(name, _)| name).collect()
    };
    assert_eq!(names(trace.poll(0, 60, 1).await), ["3"]);
    assert_eq!(names(trace.poll(0, 60, 5).await), ["6", "9", "2", "5", "8"]);
    assert_eq!(names(trace.poll(0, 60, 10).await), ["1", "4", "7", "0"]);
    assert_eq!(trace.poll(0, 60, 10).await, []);
}
