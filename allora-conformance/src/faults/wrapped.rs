//! A backend around another one, which forwards everything but what its hooks change.

use allora_core::{
    Backend, Error, ErrorKind, Result,
    backend::{
        Applied, Batch, ClaimDue, ClaimedDue, Counts, Due, DueQuery, Flag, Flagged, History,
        HistoryQuery, JobState, Notification, Notifier, Page, Queries, TimeSource,
    },
    record::Change,
};
use async_trait::async_trait;
use futures::stream::BoxStream;
use std::{fmt, sync::Arc};

/// The changes of a [`Wrapped`] backend. Each method has the store inside, and forwards to it by
/// default.
///
/// ```
/// use allora_conformance::faults::{Hooks, Wrapped};
/// use allora_core::{Backend, Error, ErrorKind, Result, async_trait, backend::{Applied, Batch}};
/// use allora_memory::Memory;
/// use std::sync::Arc;
///
/// #[derive(Debug)]
/// struct ReadOnly;
///
/// #[async_trait]
/// impl Hooks for ReadOnly {
///     async fn reschedule(&self, _: &Arc<dyn Backend>, _: Batch<'_>) -> Result<Applied> {
///         Err(Error::new(ErrorKind::Other, "this role may not write"))
///     }
/// }
///
/// let store = Wrapped::around(Memory::new(), ReadOnly);
/// # drop(store);
/// ```
#[async_trait]
pub trait Hooks: fmt::Debug + Send + Sync + 'static {
    /// Instead of [`Backend::reschedule`].
    ///
    /// # Errors
    /// Those of the store.
    ///
    /// # Cancel safety
    /// That of the store.
    async fn reschedule(&self, store: &Arc<dyn Backend>, batch: Batch<'_>) -> Result<Applied> {
        store.reschedule(batch).await
    }

    /// Instead of [`Backend::prune`].
    ///
    /// # Errors
    /// Those of the store.
    ///
    /// # Cancel safety
    /// That of the store.
    async fn prune(&self, store: &dyn Backend, time: TimeSource) -> Result {
        store.prune(time).await
    }

    /// `false`: the backend has no queries, whatever the store has.
    fn has_queries(&self) -> bool {
        true
    }

    /// `false`: the backend has no history, whatever the store has.
    fn has_history(&self) -> bool {
        true
    }

    /// `false`: the backend has no notifications, whatever the store has.
    fn has_notifier(&self) -> bool {
        true
    }

    /// Instead of [`Notifier::subscribe`].
    ///
    /// # Errors
    /// Those of the store.
    ///
    /// # Cancel safety
    /// That of the store.
    async fn subscribe(&self, store: &dyn Notifier) -> Result<BoxStream<'static, Notification>> {
        store.subscribe().await
    }

    /// Instead of [`Queries::find_due`].
    ///
    /// # Errors
    /// Those of the store.
    ///
    /// # Cancel safety
    /// That of the store.
    async fn find_due(
        &self,
        store: &dyn Queries,
        query: DueQuery<'_>,
        time: TimeSource,
    ) -> Result<Due> {
        store.find_due(query, time).await
    }

    /// Instead of [`Queries::claims_due`].
    fn claims_due(&self, store: &dyn Queries) -> bool {
        store.claims_due()
    }

    /// Instead of [`Queries::claim_due`].
    ///
    /// # Errors
    /// Those of the store.
    ///
    /// # Cancel safety
    /// That of the store.
    async fn claim_due(
        &self,
        store: &dyn Queries,
        query: ClaimDue<'_>,
        time: TimeSource,
    ) -> Result<ClaimedDue> {
        store.claim_due(query, time).await
    }

    /// Instead of [`Queries::get`].
    ///
    /// # Errors
    /// Those of the store.
    ///
    /// # Cancel safety
    /// That of the store.
    async fn get(&self, store: &dyn Queries, name: &str) -> Result<JobState> {
        store.get(name).await
    }

    /// Instead of [`Queries::list`].
    ///
    /// # Errors
    /// Those of the store.
    ///
    /// # Cancel safety
    /// That of the store.
    async fn list(&self, store: &dyn Queries, page: Page<'_>) -> Result<Vec<JobState>> {
        store.list(page).await
    }

    /// Instead of [`Queries::kinds`].
    ///
    /// # Errors
    /// Those of the store.
    ///
    /// # Cancel safety
    /// That of the store.
    async fn kinds(&self, store: &dyn Queries) -> Result<Vec<String>> {
        store.kinds().await
    }
}

/// A backend around another one. Clones have the same store and the same hooks.
#[derive(Debug)]
pub struct Wrapped<H> {
    store: Arc<dyn Backend>,
    hooks: Arc<H>,
}

impl<H> Clone for Wrapped<H> {
    fn clone(&self) -> Self {
        Self { store: self.store.clone(), hooks: self.hooks.clone() }
    }
}

impl<H: Hooks> Wrapped<H> {
    /// `store`, with these hooks.
    pub fn around(store: impl Backend, hooks: H) -> Self {
        Self { store: Arc::new(store), hooks: Arc::new(hooks) }
    }

    /// The hooks.
    pub fn hooks(&self) -> &H {
        &self.hooks
    }

    fn inner(&self) -> Result<&dyn Queries> {
        let none = || Error::new(ErrorKind::Unsupported, "the store has no queries");
        self.store.queries().ok_or_else(none)
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl<H: Hooks> Backend for Wrapped<H> {
    async fn reschedule(&self, batch: Batch<'_>) -> Result<Applied> {
        self.hooks.reschedule(&self.store, batch).await
    }

    fn namespace(&self) -> &str {
        self.store.namespace()
    }

    fn durability_warning(&self) -> Option<&str> {
        self.store.durability_warning()
    }

    fn security_warning(&self) -> Option<&str> {
        self.store.security_warning()
    }

    fn grants(&self, login: &str) -> Option<Vec<String>> {
        self.store.grants(login)
    }

    async fn prune(&self, time: TimeSource) -> Result {
        self.hooks.prune(&*self.store, time).await
    }

    fn queries(&self) -> Option<&dyn Queries> {
        self.store.queries().filter(|_| self.hooks.has_queries()).map(|_| self as _)
    }

    fn history(&self) -> Option<&dyn History> {
        self.store.history().filter(|_| self.hooks.has_history())
    }

    fn notifier(&self) -> Option<&dyn Notifier> {
        self.store.notifier().filter(|_| self.hooks.has_notifier()).map(|_| self as _)
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl<H: Hooks> Queries for Wrapped<H> {
    async fn find_due(&self, query: DueQuery<'_>, time: TimeSource) -> Result<Due> {
        self.hooks.find_due(self.inner()?, query, time).await
    }

    fn claims_due(&self) -> bool {
        self.inner().is_ok_and(|queries| self.hooks.claims_due(queries))
    }

    async fn claim_due(&self, query: ClaimDue<'_>, time: TimeSource) -> Result<ClaimedDue> {
        self.hooks.claim_due(self.inner()?, query, time).await
    }

    async fn get(&self, name: &str) -> Result<JobState> {
        self.hooks.get(self.inner()?, name).await
    }

    async fn list(&self, page: Page<'_>) -> Result<Vec<JobState>> {
        self.hooks.list(self.inner()?, page).await
    }

    async fn kinds(&self) -> Result<Vec<String>> {
        self.hooks.kinds(self.inner()?).await
    }

    async fn changes(&self, query: HistoryQuery<'_>) -> Result<Vec<Change>> {
        self.inner()?.changes(query).await
    }

    async fn flagged(&self, flag: Flag<'_>, page: Page<'_>, time: TimeSource) -> Result<Flagged> {
        self.inner()?.flagged(flag, page, time).await
    }

    async fn counts(&self, prefix: &str, time: TimeSource) -> Result<Counts> {
        self.inner()?.counts(prefix, time).await
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl<H: Hooks> Notifier for Wrapped<H> {
    async fn subscribe(&self) -> Result<BoxStream<'static, Notification>> {
        let none = || Error::new(ErrorKind::Unsupported, "the store has no notifications");
        self.hooks.subscribe(self.store.notifier().ok_or_else(none)?).await
    }
}

/// Leaves a backend that can only reschedule: everything that is optional is missing.
#[derive(Clone, Copy, Debug)]
pub struct Bare;

#[async_trait]
impl Hooks for Bare {
    async fn prune(&self, _: &dyn Backend, _: TimeSource) -> Result {
        Ok(())
    }

    fn has_queries(&self) -> bool {
        false
    }

    fn has_history(&self) -> bool {
        false
    }

    fn has_notifier(&self) -> bool {
        false
    }
}
