//! What a case works with: nodes on a fresh store, and the words for what they do.

use crate::{fixture::Stores, suite::namespace};
use allora_core::{
    Backend, Error, Result, Time,
    backend::{
        Act, Answer, Beside, Change, Cursor, Deliver, End, Ended, Ending, Find, Held, History,
        Leases, Mark, NewSchedule, Next, Now, Occurrence, Page, Past, Plan, Reschedule,
        Rescheduled, Schedules, Settle, Settled, State, Take, Taken, Watch,
    },
    time::from_millis,
};
use futures::future::BoxFuture;
use std::{sync::Arc, time::Duration};

/// A fresh store.
pub(crate) struct World {
    stores: Box<dyn Stores>,
    /// The node that cases use which need only one.
    node: Node,
}

impl World {
    pub(crate) async fn new(stores: Box<dyn Stores>) -> Self {
        let backend = connected(&*stores).await;
        Self { stores, node: Node { id: "node-1".into(), backend } }
    }

    /// The first node.
    pub(crate) fn node(&self) -> &Node {
        &self.node
    }

    /// One more node, with a connection of its own.
    pub(crate) async fn join(&self, id: &str) -> Node {
        Node { id: id.into(), backend: connected(&*self.stores).await }
    }

    /// A store that has nothing to do with this one but the machine it is on.
    pub(crate) async fn beside(&self) -> World {
        match self.stores.beside(namespace()).await {
            Ok(stores) => World::new(stores).await,
            Err(error) => panic!("no second store can be set up: {error}"),
        }
    }

    pub(crate) fn start(&self, task: BoxFuture<'static, ()>) {
        self.stores.start(task);
    }

    pub(crate) fn occurrences(&self) -> u64 {
        self.stores.occurrences()
    }

    pub(crate) fn lacks(&self) -> &'static [crate::Capability] {
        self.stores.lacks()
    }

    pub(crate) async fn tear_down(self) -> Result {
        drop(self.node);
        self.stores.tear_down().await
    }
}

async fn connected(stores: &dyn Stores) -> Arc<dyn Backend> {
    stores.connect().await.unwrap_or_else(|error| panic!("no node can join: {error}"))
}

/// One node, as far as a store sees it.
#[derive(Clone)]
pub(crate) struct Node {
    pub(crate) id: String,
    pub(crate) backend: Arc<dyn Backend>,
}

/// What came of a take.
pub(crate) type Won = std::result::Result<Taken, Box<State>>;

impl Node {
    pub(crate) async fn ask(&self, now: Time, plans: &[Plan<'_>]) -> Rescheduled {
        let request = Reschedule::new(&self.id, Now::At(now), plans);
        let answer = fine(self.backend.reschedule(request).await);
        assert_eq!(answer.answers.len(), plans.len(), "one answer for each plan");
        answer
    }

    pub(crate) async fn act(&self, now: Time, name: &str, act: Act<'_>) -> Answer {
        let mut answer = self.ask(now, &[Plan::new(name, act)]).await;
        answer.answers.remove(0)
    }

    /// Registers a job in code.
    pub(crate) async fn register(&self, now: Time, name: &str, first: Time) -> State {
        let first = Some(first.into());
        state(
            self.act(now, name, Act::Register { definition: "every 1m", version: 0, first }).await,
        )
    }

    pub(crate) async fn look(&self, name: &str) -> State {
        state(self.act(t(0), name, Act::Look).await)
    }

    pub(crate) async fn take(&self, now: Time, name: &str, take: Take) -> Won {
        match self.act(now, name, Act::Take(take)).await {
            Answer::Taken(taken) => Ok(taken),
            Answer::State(state) => Err(state),
            other => panic!("a take of {name:?} was answered with {other:?}"),
        }
    }

    /// Takes what the job offers, leased for a minute.
    pub(crate) async fn lease(&self, now: Time, name: &str, claim: u128) -> Won {
        let seen = self.look(name).await;
        self.take(now, name, leased(&seen, claim)).await
    }

    pub(crate) async fn reap(&self, now: Time, name: &str) -> State {
        state(self.act(now, name, Act::Reap).await)
    }

    pub(crate) fn leases(&self) -> &dyn Leases {
        self.backend.leases().expect("the fixture does not declare that leases are lacking")
    }

    pub(crate) fn schedules(&self) -> &dyn Schedules {
        self.backend.schedules().expect("the fixture does not declare that schedules are lacking")
    }

    pub(crate) fn history(&self) -> &dyn History {
        self.backend.history().expect("the fixture does not declare that history is lacking")
    }

    pub(crate) fn watch(&self) -> &dyn Watch {
        self.backend.watch().expect("the fixture does not declare that watching is lacking")
    }

    pub(crate) async fn settle(&self, now: Time, endings: &[Ending<'_>]) -> Vec<Settled> {
        let request = Settle::new(&self.id, Now::At(now), endings);
        let answers = fine(self.leases().settle(request).await);
        assert_eq!(answers.len(), endings.len(), "one answer for each ending");
        answers
    }

    pub(crate) async fn end(&self, now: Time, name: &str, fence: i64, end: End<'_>) -> Settled {
        self.settle(now, &[Ending::new(name, fence, end)]).await[0]
    }

    pub(crate) async fn add(&self, now: Time, name: &str, kind: &str, first: Time) -> State {
        let new = NewSchedule::new(name, kind, "every 1m", Some(first.into()));
        fine(self.add_one(now, new).await)
    }

    /// Adds one schedule.
    pub(crate) async fn add_one(&self, now: Time, new: NewSchedule<'_>) -> Result<State> {
        let mut added = fine(self.schedules().add(&[new], Now::At(now)).await);
        assert_eq!(added.len(), 1, "one answer for each schedule");
        added.remove(0)
    }

    pub(crate) async fn modify(&self, now: Time, name: &str, change: Change<'_>) -> Result<State> {
        self.schedules().modify(name, change, Now::At(now)).await
    }

    pub(crate) async fn trigger(&self, now: Time, name: &str, id: &str) -> State {
        fine(self.modify(now, name, Change::Trigger { id, at: None }).await)
    }

    pub(crate) async fn pause(&self, now: Time, name: &str) -> State {
        fine(self.modify(now, name, Change::Pause { note: "because" }).await)
    }

    pub(crate) async fn delete(&self, now: Time, name: &str) {
        fine(self.schedules().delete(name, Now::At(now)).await);
    }

    pub(crate) async fn list(&self, page: Page<'_>) -> Vec<String> {
        let states = fine(self.schedules().list(page).await);
        states.into_iter().map(|state| state.name).collect()
    }

    pub(crate) async fn found(
        &self,
        kinds: &[&str],
        until: Time,
        limit: usize,
    ) -> (Vec<String>, Option<Time>) {
        let find = Find::new(kinds, until, limit);
        let request = Reschedule::new(&self.id, Now::At(t(0)), &[]).find(find);
        let answer = fine(self.backend.reschedule(request).await);
        (answer.found.into_iter().map(|state| state.name).collect(), answer.next_due)
    }

    pub(crate) async fn past(&self, name: &str) -> Vec<Past> {
        fine(self.history().past(Some(name), None, 1_000).await)
    }
}

/// The instant so many seconds into the cases' day.
pub(crate) fn t(seconds: i64) -> Time {
    ms(seconds * 1_000)
}

/// The instant so many milliseconds into the cases' day.
pub(crate) fn ms(millis: i64) -> Time {
    // 2030-01-01T00:00:00Z: later than any clock that a store may mix in by mistake.
    from_millis(1_893_456_000_000 + millis).expect("an instant that can be scheduled")
}

pub(crate) const MINUTE: Duration = Duration::from_secs(60);

/// The state in an answer.
pub(crate) fn state(answer: Answer) -> State {
    match answer {
        Answer::State(state) => *state,
        other => panic!("expected the state of a job, got {other:?}"),
    }
}

/// The value of a call that must not fail.
pub(crate) fn fine<T>(result: Result<T>) -> T {
    result
        .unwrap_or_else(|error: Error| panic!("the store failed: {}", crate::suite::chain(&error)))
}

/// What was won by a take that must win.
pub(crate) fn won(won: Won) -> Taken {
    won.unwrap_or_else(|state| panic!("the take must win, but the state is {state:?}"))
}

/// The truth that a take was told which must not win.
pub(crate) fn lost(won: Won) -> State {
    match won {
        Err(state) => *state,
        Ok(taken) => panic!("the take must not win, but it did: {taken:?}"),
    }
}

pub(crate) fn head(seen: &State) -> Occurrence {
    seen.head.clone().unwrap_or_else(|| panic!("{:?} offers nothing: {seen:?}", seen.name))
}

/// At most once, without a mark; the cursor goes there.
pub(crate) fn once(seen: &State, claim: u128, then: Option<Next>) -> Take {
    let deliver = Deliver::AtMostOnce { then: Cursor::To(then), mark: None };
    Take::new(claim, seen.fence, head(seen), deliver)
}

/// At most once, with a mark of a minute.
pub(crate) fn marked(seen: &State, claim: u128, then: Time, beside: Beside) -> Take {
    let mark = Some(Mark { lasts: MINUTE, beside });
    let deliver = Deliver::AtMostOnce { then: Cursor::To(Some(then.into())), mark };
    Take::new(claim, seen.fence, head(seen), deliver)
}

/// At least once, with a lease of a minute.
pub(crate) fn leased(seen: &State, claim: u128) -> Take {
    Take::new(claim, seen.fence, head(seen), Deliver::AtLeastOnce { lease: MINUTE })
}

/// A trigger at most once, without a mark.
pub(crate) fn triggered(seen: &State, claim: u128) -> Take {
    let deliver = Deliver::AtMostOnce { then: Cursor::Keep, mark: None };
    Take::new(claim, seen.fence, head(seen), deliver)
}

pub(crate) fn extend() -> End<'static> {
    End::Extend { lasts: MINUTE }
}

/// Ended well; the cursor goes there.
pub(crate) fn ran(then: Time) -> End<'static> {
    End::Finish { then: Cursor::To(Some(then.into())), outcome: Ended::Ran }
}

/// Ended well; the cursor has gone already.
pub(crate) fn ran_and_stay() -> End<'static> {
    End::Finish { then: Cursor::Keep, outcome: Ended::Ran }
}

/// What a reader sees of a run, by fence and end.
pub(crate) fn holds(seen: &State) -> Vec<(i64, Time)> {
    seen.holds.iter().map(|held: &Held| (held.fence, held.until)).collect()
}
