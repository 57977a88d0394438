//! A store that can be switched: emptied, with unreadable records, with claims that it never grants,
//! and with a subscription that fails.

use super::whole_history;
use allora_core::{
    Backend, Error, ErrorKind, Result, Time,
    backend::{
        Action, Applied, Batch, Due, DueQuery, History, JobState, Notification, Notifier,
        Operation, Page, Queries, Reply, TimeSource,
    },
};
use allora_memory::Memory;
use async_trait::async_trait;
use futures::{future::pending, stream::BoxStream};
use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, Ordering::Relaxed},
};

#[derive(Clone)]
pub(crate) struct Switched {
    memory: Arc<Mutex<Memory>>,
    clock: Arc<dyn Fn() -> Time + Send + Sync>,
    switches: Arc<Switches>,
}

#[derive(Debug, Default)]
pub(crate) struct Switches {
    /// The record of this job cannot be read.
    pub(crate) unreadable: Mutex<Option<String>>,
    /// No claim of this job succeeds, although it is due.
    pub(crate) ungranted: Mutex<Option<String>>,
    /// It has notifications, and a subscription gets no reply.
    pub(crate) is_deaf: AtomicBool,
    /// It has notifications, and rejects a subscription.
    pub(crate) is_barred: AtomicBool,
    /// It has notifications.
    pub(crate) notifies: AtomicBool,
}

impl Switched {
    pub(crate) fn new(clock: impl Fn() -> Time + Send + Sync + 'static) -> Self {
        let clock: Arc<dyn Fn() -> Time + Send + Sync> = Arc::new(clock);
        let memory = Arc::new(Mutex::new(memory(&clock)));
        Self { memory, clock, switches: Arc::default() }
    }

    pub(crate) fn switches(&self) -> &Switches {
        &self.switches
    }

    /// The present records.
    pub(crate) fn memory(&self) -> Memory {
        self.memory.lock().unwrap().clone()
    }

    /// Removes every record, and what the store knows of removed ones.
    pub(crate) fn empty(&self) {
        *self.memory.lock().unwrap() = memory(&self.clock);
    }

    fn unreadable(&self, name: &str) -> Option<JobState> {
        let is_unreadable = self.switches.unreadable.lock().unwrap().as_deref() == Some(name);
        is_unreadable.then(|| JobState::unreadable(name, "a newer format"))
    }
}

fn memory(clock: &Arc<dyn Fn() -> Time + Send + Sync>) -> Memory {
    let clock = clock.clone();
    Memory::new().with_history(whole_history()).with_clock(move || clock())
}

impl std::fmt::Debug for Switched {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Switched")
    }
}

#[async_trait]
impl Backend for Switched {
    async fn reschedule(&self, batch: Batch<'_>) -> Result<Applied> {
        let ungranted = self.switches.ungranted.lock().unwrap().clone();
        let allowed = |operation: &Operation<'_>| {
            let is_claim = matches!(operation.action, Action::Claim(_));
            let name = operation.name;
            let denied = is_claim && ungranted.as_deref() == Some(name);
            let unread = self.unreadable(name).is_some();
            !denied && !unread
        };
        let operations: Vec<Operation<'_>> = batch
            .operations
            .iter()
            .map(|operation| match allowed(operation) {
                true => operation.clone(),
                false => Operation::read(operation.name),
            })
            .collect();
        let memory = self.memory();
        let mut applied =
            memory.reschedule(Batch::new(batch.node, batch.time, &operations)).await?;
        for (reply, operation) in applied.replies.iter_mut().zip(batch.operations) {
            if let Some(state) = self.unreadable(operation.name) {
                *reply = Ok(Reply::State(Box::new(state)));
            }
        }
        Ok(applied)
    }

    fn queries(&self) -> Option<&dyn Queries> {
        Some(self)
    }

    fn history(&self) -> Option<&dyn History> {
        None
    }

    fn notifier(&self) -> Option<&dyn Notifier> {
        self.switches.notifies.load(Relaxed).then_some(self)
    }
}

#[async_trait]
impl Queries for Switched {
    async fn find_due(&self, query: DueQuery<'_>, time: TimeSource) -> Result<Due> {
        let memory = self.memory();
        let mut due = Backend::queries(&memory).unwrap().find_due(query, time).await?;
        for state in &mut due.found {
            if let Some(mut unreadable) = self.unreadable(&state.name) {
                unreadable.kind.clone_from(&state.kind);
                *state = unreadable;
            }
        }
        Ok(due)
    }

    async fn get(&self, name: &str) -> Result<JobState> {
        Backend::queries(&self.memory()).unwrap().get(name).await
    }

    async fn list(&self, page: Page<'_>) -> Result<Vec<JobState>> {
        Backend::queries(&self.memory()).unwrap().list(page).await
    }

    async fn kinds(&self) -> Result<Vec<String>> {
        Backend::queries(&self.memory()).unwrap().kinds().await
    }
}

#[async_trait]
impl Notifier for Switched {
    async fn subscribe(&self) -> Result<BoxStream<'static, Notification>> {
        if self.switches.is_barred.load(Relaxed) {
            return Err(Error::new(ErrorKind::Other, "LISTEN is not allowed here"));
        }
        if self.switches.is_deaf.load(Relaxed) {
            return pending().await;
        }
        let memory = self.memory();
        memory.notifier().unwrap().subscribe().await
    }
}
