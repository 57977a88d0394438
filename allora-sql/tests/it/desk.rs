//! The words in which `trace` and `parity` speak to a store: one node's questions, each at a given
//! time.

use allora_core::{
    Backend, Result, Schedule, Time,
    backend::{
        Act, Answer, Change, Cursor, Deliver, End, Ended, Ending, Find, NewSchedule, Next, Now,
        Plan, Reschedule, Schedules, Settle, Settled, State, Take, Taken,
    },
    cron,
};
use allora_sql::Sql;
use std::time::Duration;

/// 2011-12-14 00:00:00 UTC, as in the golden trace.
const BEGINNING: i64 = 1_323_820_800;

/// The instant so many seconds after that.
pub(crate) fn t(seconds: i64) -> Time {
    allora_core::time::from_millis((BEGINNING + seconds) * 1_000).unwrap()
}

/// The same instant in the trace's numbers.
pub(crate) fn seconds(at: Time) -> i64 {
    at.timestamp() - BEGINNING
}

/// The first match of a cron expression at or after an instant.
pub(crate) fn first(text: &str, from: Time) -> Next {
    following(text, from - chrono::TimeDelta::milliseconds(1))
}

/// The first match strictly after an instant.
pub(crate) fn following(text: &str, after: Time) -> Next {
    cron(text).unwrap().next_at(after).unwrap().into()
}

/// One node.
pub(crate) struct Desk {
    pub(crate) store: Sql,
    node: String,
}

impl Desk {
    pub(crate) fn new(store: &Sql, node: &str) -> Self {
        Self { store: store.clone(), node: node.into() }
    }

    pub(crate) fn schedules(&self) -> &dyn Schedules {
        self.store.schedules().unwrap()
    }

    pub(crate) async fn add(&self, name: &str, text: &str, from: Time) -> Result<State> {
        let new = NewSchedule::new(name, "t", text, Some(first(text, from)));
        self.schedules().add(&[new], Now::At(from)).await?.remove(0)
    }

    pub(crate) async fn get(&self, name: &str) -> State {
        self.schedules().get(name).await.unwrap()
    }

    async fn act(&self, now: Time, name: &str, act: Act<'_>) -> Answer {
        let plans = [Plan::new(name, act)];
        let request = Reschedule::new(&self.node, Now::At(now), &plans);
        self.store.reschedule(request).await.unwrap().answers.remove(0)
    }

    /// Takes what the job offers, if it is due; leased for so many seconds.
    pub(crate) async fn poll(&self, now: Time, name: &str, lease: u64) -> Option<Taken> {
        let seen = self.get(name).await;
        let deliver = Deliver::AtLeastOnce { lease: Duration::from_secs(lease) };
        let mut claim = [0; 16];
        getrandom::fill(&mut claim).unwrap();
        let claim = u128::from_le_bytes(claim);
        let take = Take::new(claim, seen.fence, seen.head.clone()?, deliver);
        match self.act(now, name, Act::Take(take)).await {
            Answer::Taken(taken) => Some(taken),
            _ => None,
        }
    }

    /// The names of what is due, the earliest first.
    pub(crate) async fn due(&self, now: Time, limit: usize) -> Vec<String> {
        let find = Find::new(&["t"], now, limit);
        let request = Reschedule::new(&self.node, Now::At(now), &[]).find(find);
        let found = self.store.reschedule(request).await.unwrap().found;
        found.into_iter().map(|state| state.name).collect()
    }

    async fn end(&self, now: Time, name: &str, run: &Taken, end: End<'_>) -> Settled {
        let endings = [Ending::new(name, run.fence, end)];
        let request = Settle::new(&self.node, Now::At(now), &endings);
        self.store.leases().unwrap().settle(request).await.unwrap()[0]
    }

    pub(crate) async fn beat(&self, now: Time, name: &str, run: &Taken, lease: u64) -> Settled {
        let lasts = Duration::from_secs(lease);
        self.end(now, name, run, End::Extend { lasts }).await
    }

    /// Finishes a run; the cursor goes to the first match after the run's own instant.
    pub(crate) async fn finish(&self, now: Time, name: &str, run: &Taken, text: &str) -> Settled {
        let then = Cursor::To(Some(following(text, run.run.at)));
        self.end(now, name, run, End::Finish { then, outcome: Ended::Ran }).await
    }

    pub(crate) async fn retry(&self, now: Time, name: &str, run: &Taken, wait: i64) -> Settled {
        let at = now + chrono::TimeDelta::seconds(wait);
        self.end(now, name, run, End::Retry { at, error: "boom" }).await
    }

    pub(crate) async fn release(&self, now: Time, name: &str, run: &Taken) -> Settled {
        self.end(now, name, run, End::Release).await
    }

    /// Another definition; the cursor goes to its first match at or after now.
    pub(crate) async fn edit(&self, now: Time, name: &str, text: &str) -> Result<State> {
        let edition = self.get(name).await.edition;
        let definition = Some((text, Some(first(text, now))));
        let change = Change::Edit { edition, kind: None, definition, data: None };
        self.schedules().modify(name, change, Now::At(now)).await
    }
}
