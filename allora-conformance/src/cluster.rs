//! The cluster of a case: nodes on a fresh store, and functions for their operations.

use crate::{fixture::Stores, text::namespace};
use allora_core::{
    Backend, Error, Result, Time,
    backend::{
        Action, Applied, Author, Batch, Claim, Claimed, Completion, Cursor, DueQuery, Edit,
        History, HistoryEntry, HistoryLimits, HistoryQuery, JobState, NewSchedule, NextRun,
        Notifier, OPERATOR, Occurrence, Operation, Page, Queries, Replan, Reply, RetryCause,
        Sharing, TimeSource, Triggered,
    },
    record::Change,
    time::from_millis,
};
use futures::future::BoxFuture;
use std::{sync::Arc, time::Duration};

/// A fresh store.
pub(crate) struct Cluster {
    stores: Box<dyn Stores>,
    /// The node that cases use which need only one.
    node: Node,
}

impl Cluster {
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

    /// One more node, which keeps a history within these limits, if the fixture can make one.
    pub(crate) async fn join_with_history(&self, id: &str, limits: HistoryLimits) -> Option<Node> {
        let backend = fine(self.stores.connect_with_history(limits).await)?;
        Some(Node { id: id.into(), backend })
    }

    /// A store that has nothing to do with this one but the machine it is on.
    pub(crate) async fn beside(&self) -> Cluster {
        match self.stores.beside(namespace()).await {
            Ok(stores) => Cluster::new(stores).await,
            Err(error) => panic!("no second store can be set up: {error}"),
        }
    }

    /// The same store, closed and opened again.
    pub(crate) async fn reopen(self) -> Self {
        drop(self.node);
        match self.stores.reopen().await {
            Ok(stores) => Self::new(stores).await,
            Err(error) => {
                panic!("the store cannot be opened again: {}", crate::text::chain(&error))
            }
        }
    }

    /// Empties the store. Returns `false` if its fixture cannot. A store may report once, by an error,
    /// that it was emptied.
    pub(crate) async fn empty(&self) -> bool {
        let is_emptied = fine(self.stores.empty().await);
        let read = [Operation::read("job")];
        let batch = Batch::new("conformance", TimeSource::Fixed(t(0)), &read);
        let _ = self.node().backend.reschedule(batch).await;
        is_emptied
    }

    pub(crate) fn start(&self, task: BoxFuture<'static, ()>) {
        self.stores.start(task);
    }

    pub(crate) fn occurrences(&self) -> u64 {
        self.stores.occurrences()
    }

    pub(crate) fn unsupported(&self) -> &'static [crate::Capability] {
        self.stores.unsupported()
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

/// The outcome of a claim: the claimed occurrence, or the current state.
pub(crate) type Won = std::result::Result<Claimed, Box<JobState>>;

impl Node {
    pub(crate) async fn apply(&self, now: Time, operations: &[Operation<'_>]) -> Applied {
        self.apply_as(&self.id, now, operations).await
    }

    async fn apply_as(&self, node: &str, now: Time, operations: &[Operation<'_>]) -> Applied {
        let batch = Batch::new(node, TimeSource::Fixed(now), operations);
        let applied = fine(self.backend.reschedule(batch).await);
        assert_eq!(applied.replies.len(), operations.len(), "one reply for each operation");
        applied
    }

    /// The replies to operations that must not fail.
    pub(crate) async fn replies(&self, now: Time, operations: &[Operation<'_>]) -> Vec<Reply> {
        self.apply(now, operations).await.replies.into_iter().map(fine).collect()
    }

    pub(crate) async fn act(&self, now: Time, name: &str, action: Action<'_>) -> Reply {
        fine(self.apply(now, &[Operation::new(name, action)]).await.single())
    }

    /// Removes what is old at this time.
    pub(crate) async fn prune(&self, now: Time) {
        fine(self.backend.prune(TimeSource::Fixed(now)).await);
    }

    /// Registers a job in code.
    pub(crate) async fn register(&self, now: Time, name: &str, first: Time) -> JobState {
        let first = Some(first.into());
        let action = Action::Register { definition: "every 1m", version: 0, first };
        state(self.act(now, name, action).await)
    }

    pub(crate) async fn read(&self, name: &str) -> JobState {
        state(self.act(t(0), name, Action::Read).await)
    }

    /// The job as it is read, which is also what a query returns, if the store has queries.
    pub(crate) async fn shown(&self, name: &str) -> JobState {
        let read = self.read(name).await;
        if let Some(queries) = self.backend.queries() {
            assert_eq!(fine(queries.get(name).await), read, "by a query");
        }
        read
    }

    pub(crate) async fn claim(&self, now: Time, name: &str, claim: Claim) -> Won {
        match self.act(now, name, Action::Claim(claim)).await {
            Reply::Claimed(claimed) => Ok(claimed),
            Reply::State(state) => Err(state),
            other => panic!("the reply to a claim of {name:?} is {other:?}"),
        }
    }

    /// Claims what the job offers at least once, with a lease of a minute.
    pub(crate) async fn lease(&self, now: Time, name: &str, claim_id: u128) -> Won {
        let seen = self.read(name).await;
        self.claim(now, name, leased(&seen, claim_id)).await
    }

    pub(crate) async fn reap(&self, now: Time, name: &str) -> JobState {
        state(self.act(now, name, Action::Reap).await)
    }

    pub(crate) fn queries(&self) -> &dyn Queries {
        self.backend.queries().expect("the fixture does not declare that queries are unsupported")
    }

    pub(crate) fn history(&self) -> &dyn History {
        self.backend.history().expect("the fixture does not declare that history is unsupported")
    }

    pub(crate) fn notifier(&self) -> &dyn Notifier {
        let notifier = self.backend.notifier();
        notifier.expect("the fixture does not declare that notifications are unsupported")
    }

    /// An operation on the run under this fence.
    pub(crate) async fn end(
        &self,
        now: Time,
        name: &str,
        fence: i64,
        action: RunAction<'_>,
    ) -> Reply {
        self.act(now, name, action.under(fence)).await
    }

    pub(crate) async fn add(&self, now: Time, name: &str, kind: &str, first: Time) -> JobState {
        let new = NewSchedule::new(kind, "every 1m", Some(first.into()));
        fine(self.add_one(now, name, new).await)
    }

    /// Creates one schedule.
    pub(crate) async fn add_one(
        &self,
        now: Time,
        name: &str,
        new: NewSchedule<'_>,
    ) -> Result<JobState> {
        self.modify(now, name, Action::Create(new)).await
    }

    /// One operation of a client, whose reply is the job's state.
    pub(crate) async fn modify(
        &self,
        now: Time,
        name: &str,
        action: Action<'_>,
    ) -> Result<JobState> {
        let operation = [Operation::new(name, action)];
        self.apply_as(OPERATOR, now, &operation).await.single().map(state)
    }

    /// One operation by this author.
    pub(crate) async fn by(
        &self,
        author: &Author,
        now: Time,
        name: &str,
        action: Action<'_>,
    ) -> Result<Reply> {
        let operation = [Operation::new(name, action).by(Some(author))];
        self.apply_as(OPERATOR, now, &operation).await.single()
    }

    /// The changes of this job, or of all, the newest first.
    pub(crate) async fn changes(&self, name: Option<&str>) -> Vec<Change> {
        let mut query = HistoryQuery::new(1_000);
        query.name = name;
        fine(self.queries().changes(query).await)
    }

    pub(crate) async fn resume(&self, now: Time, name: &str) -> JobState {
        fine(self.modify(now, name, Action::Resume).await)
    }

    pub(crate) async fn trigger(&self, now: Time, name: &str, id: &str) -> JobState {
        fine(self.modify(now, name, Action::trigger(id)).await)
    }

    /// So many triggers of one job, with the ids `id 0`, `id 1` and so on, in a few batches.
    pub(crate) async fn trigger_often(&self, now: Time, name: &str, count: usize) {
        let ids: Vec<String> = (0..count).map(|i| format!("id {i}")).collect();
        for ids in ids.chunks(100) {
            let triggers: Vec<Operation<'_>> =
                ids.iter().map(|id| Operation::new(name, Action::trigger(id))).collect();
            for reply in self.apply_as(OPERATOR, now, &triggers).await.replies {
                state(fine(reply));
            }
        }
    }

    /// The reply to a trigger whose id is remembered for so many seconds.
    pub(crate) async fn trigger_for(
        &self,
        now: Time,
        name: &str,
        id: &str,
        retention: u64,
    ) -> Triggered {
        let retention = Duration::from_secs(retention);
        let action = Action::Trigger { id, scheduled_at: None, retention, data: None };
        let trigger = [Operation::new(name, action)];
        let reply = fine(self.apply_as(OPERATOR, now, &trigger).await.single());
        reply.clone().triggered().unwrap_or_else(|| panic!("expected a trigger, got {reply:?}"))
    }

    pub(crate) async fn pause(&self, now: Time, name: &str) -> JobState {
        fine(self.modify(now, name, Action::Pause { note: "because", until: None }).await)
    }

    pub(crate) async fn delete(&self, now: Time, name: &str) {
        assert_eq!(fine(self.try_delete(now, name).await), Reply::Deleted);
    }

    pub(crate) async fn try_delete(&self, now: Time, name: &str) -> Result<Reply> {
        let operation = [Operation::new(name, Action::Delete)];
        self.apply_as(OPERATOR, now, &operation).await.single()
    }

    pub(crate) async fn list(&self, page: Page<'_>) -> Vec<String> {
        let states = fine(self.queries().list(page).await);
        states.into_iter().map(|state| state.name).collect()
    }

    pub(crate) async fn found(
        &self,
        kinds: &[&str],
        until: Time,
        limit: usize,
    ) -> (Vec<String>, Option<Time>) {
        let (found, next_due) = self.find(DueQuery::new(kinds, until, limit)).await;
        (found.into_iter().map(|state| state.name).collect(), next_due)
    }

    pub(crate) async fn find(&self, query: DueQuery<'_>) -> (Vec<JobState>, Option<Time>) {
        let due = fine(self.queries().find_due(query, TimeSource::Fixed(t(0))).await);
        assert_eq!(due.now, t(0), "the time that was given");
        (due.found, due.next_due)
    }

    pub(crate) async fn history_entries(&self, name: &str) -> Vec<HistoryEntry> {
        fine(self.history().entries(HistoryQuery::new(1_000).name(name)).await)
    }
}

/// An operation on a run, without its fence.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RunAction<'a> {
    Extend { duration: Duration },
    Complete { then: Cursor, completion: Completion<'a> },
    Retry { not_before: Time, error: &'a str },
    Interrupted { not_before: Time },
    Release,
    ReleaseUntil { not_before: Time },
}

impl<'a> RunAction<'a> {
    pub(crate) fn under(self, fence: i64) -> Action<'a> {
        match self {
            Self::Extend { duration } => Action::Extend { fence, duration },
            Self::Complete { then, completion } => Action::Complete { fence, then, completion },
            Self::Retry { not_before, error } => {
                Action::Retry { fence, not_before, cause: RetryCause::Failed(error) }
            }
            Self::Interrupted { not_before } => {
                Action::Retry { fence, not_before, cause: RetryCause::Interrupted }
            }
            Self::Release => Action::Release { fence },
            Self::ReleaseUntil { not_before } => {
                Action::Retry { fence, not_before, cause: RetryCause::Released }
            }
        }
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

/// The state in a reply.
pub(crate) fn state(reply: Reply) -> JobState {
    match reply {
        Reply::State(state) => *state,
        Reply::Triggered(triggered) => triggered.state,
        other => panic!("expected the state of a job, got {other:?}"),
    }
}

/// The value of a call that must not fail.
pub(crate) fn fine<T>(result: Result<T>) -> T {
    result.unwrap_or_else(|error: Error| panic!("the store failed: {}", crate::text::chain(&error)))
}

/// The claimed occurrence of a claim that must succeed.
pub(crate) fn won(won: Won) -> Claimed {
    won.unwrap_or_else(|state| panic!("the claim must succeed, but the state is {state:?}"))
}

/// The current state in the reply to a claim that must be rejected.
pub(crate) fn lost(won: Won) -> JobState {
    match won {
        Err(state) => *state,
        Ok(claimed) => panic!("the claim must be rejected, but it succeeded: {claimed:?}"),
    }
}

pub(crate) fn head(seen: &JobState) -> Occurrence {
    seen.head.clone().unwrap_or_else(|| panic!("{:?} offers nothing: {seen:?}", seen.name))
}

/// At most once, with a lease of a minute beside others; the cursor goes there.
pub(crate) fn once(seen: &JobState, claim_id: u128, then: Option<NextRun>) -> Claim {
    at_most_once(seen, claim_id, Cursor::To(then), Sharing::Shared)
}

/// At most once, with a lease of a minute.
pub(crate) fn marked(seen: &JobState, claim_id: u128, then: Time, sharing: Sharing) -> Claim {
    at_most_once(seen, claim_id, Cursor::To(Some(then.into())), sharing)
}

/// A trigger or a retry at most once, with a lease of a minute beside others.
pub(crate) fn triggered(seen: &JobState, claim_id: u128) -> Claim {
    at_most_once(seen, claim_id, Cursor::Keep, Sharing::Shared)
}

fn at_most_once(seen: &JobState, claim_id: u128, then: Cursor, sharing: Sharing) -> Claim {
    Claim::at_most_once(claim_id, seen.fence, head(seen), then, MINUTE, sharing)
}

/// At least once, with a lease of a minute.
pub(crate) fn leased(seen: &JobState, claim_id: u128) -> Claim {
    Claim::at_least_once(claim_id, seen.fence, head(seen), MINUTE)
}

/// An edit of this generation.
pub(crate) fn edit<'a>(
    generation: i64,
    kind: Option<&'a str>,
    definition: Option<(&'a str, Replan)>,
    data: Option<&'a [u8]>,
) -> Action<'a> {
    let mut edit = Edit::of(generation);
    (edit.kind, edit.definition, edit.data) = (kind, definition, data);
    Action::Modify(edit)
}

pub(crate) fn extend() -> RunAction<'static> {
    RunAction::Extend { duration: MINUTE }
}

/// Succeeded; the cursor goes there.
pub(crate) fn ran(then: Time) -> RunAction<'static> {
    let completion = Completion::Succeeded;
    RunAction::Complete { then: Cursor::To(Some(then.into())), completion }
}

/// Succeeded; the cursor has moved already.
pub(crate) fn ran_and_stay() -> RunAction<'static> {
    RunAction::Complete { then: Cursor::Keep, completion: Completion::Succeeded }
}

/// The leases in a state, by fence and end.
pub(crate) fn leases(seen: &JobState) -> Vec<(i64, Time)> {
    seen.leases.iter().map(|lease| (lease.fence, lease.until)).collect()
}
