//! The write path, once for every store: load, apply, commit, retry.
//!
//! A store that keeps records implements [`RecordStore`]: it loads records, commits changed ones by
//! comparing a version, and scans names. Every [`RecordStore`] is a [`Backend`](crate::Backend) with
//! all capabilities: the engine in this module applies operations with
//! [`record::apply`](crate::record::apply), retries conflicts, and derives the queries from `scan`.
//! A store with an index overrides the queries; a store that can claim or complete in one round trip
//! overrides `fast_path`; a store that keeps a history implements [`HistoryStore`].

mod batch;
mod engine;
mod flags;
mod history;
mod hours;
mod layout;
mod prune;
mod queries;

pub use batch::{Commit, Draft, FastPath, Load, Loaded, Outcome, Snapshot};
pub use engine::too_long;
pub use flags::FlagStore;
pub use history::{ChangeStore, HistoryPruning, HistoryStore};
pub use layout::Layout;

use crate::{
    backend::{
        Batch, ClaimDue, ClaimedDue, Due, DueQuery, Notification, Notifier, Page, TimeSource,
    },
    error::Result,
    record::Record,
    time::Time,
};
use async_trait::async_trait;
use std::fmt;

/// A store of records, from which the engine makes a complete [`Backend`](crate::Backend).
///
/// Required: [`load`](Self::load), [`commit`](Self::commit) and [`scan`](Self::scan). The example
/// `custom_backend` has a complete store of about sixty lines.
///
/// # Promises
/// The engine keeps every promise of [`Backend`](crate::Backend) if the store keeps these three.
/// 1. *A commit compares.* A draft is written only if the record still has the version that was
///    loaded; each draft is decided alone, and is durable before the reply.
/// 2. *A version never returns.* Two different contents of one record never have equal versions.
/// 3. *The history and the changes are written with the record*, in one step, or not at all.
#[async_trait]
pub trait RecordStore: fmt::Debug + Send + Sync + 'static {
    /// The value that [`commit`](Self::commit) compares, and anything else that the store wants to
    /// find again in the draft.
    type Version: Send + Sync;

    /// Reads the records of these names, and the store's clock. Locks nothing.
    ///
    /// # Errors
    /// `Unavailable`. A record that cannot be read is not an error of the call:
    /// see [`Loaded::unreadable`].
    async fn load(&self, load: Load<'_>) -> Result<Snapshot<Self::Version>>;

    /// Writes each draft whose record still has its version, with its history, and returns one
    /// outcome for each draft, by position.
    ///
    /// # Errors
    /// `Unavailable`: any of the drafts may have been written. An outcome may be an error of its
    /// own, where a part of the store did not answer.
    async fn commit(
        &self,
        commit: Commit<'_, Self::Version>,
    ) -> Result<Vec<Result<Outcome<Self::Version>>>>;

    /// Reads records in the order of their names as bytes: those whose names begin with `prefix`
    /// and are after `after`, at most `limit`. Deleted records may be among them.
    ///
    /// # Errors
    /// `Unavailable`.
    async fn scan(
        &self,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<(String, Result<Record, String>)>>;

    /// Applies operations in one round trip: typically claims and completions of the commonest
    /// shape. Operations without a reply in the result take the general way. The operations are
    /// given, and not drafts, because the server's clock sets fence and lease end.
    ///
    /// Default: none.
    ///
    /// # Errors
    /// `Unavailable`: any of the operations may have been applied.
    async fn fast_path(&self, batch: Batch<'_>) -> Result<FastPath<Self::Version>> {
        let _ = batch;
        Ok(FastPath::none())
    }

    /// The store's time.
    ///
    /// Default: by a [`load`](Self::load) of no names.
    ///
    /// # Errors
    /// `Unavailable`.
    async fn now(&self, time: TimeSource) -> Result<Time> {
        Ok(self.load(Load::new("client", time, &[])).await?.now)
    }

    /// The first part of [`Run::occurrence_key`](crate::Run::occurrence_key). Default: `allora`.
    fn namespace(&self) -> &str {
        "allora"
    }

    /// The warning of [`Backend::durability_warning`](crate::Backend::durability_warning).
    fn durability_warning(&self) -> Option<&str> {
        None
    }

    /// The warning of [`Backend::security_warning`](crate::Backend::security_warning).
    fn security_warning(&self) -> Option<&str> {
        None
    }

    /// The statements of [`Backend::grants`](crate::Backend::grants).
    fn grants(&self, _login: &str) -> Option<Vec<String>> {
        None
    }

    /// The history, if the store keeps one. Without it the drafts carry no entries. Default: none.
    fn history_store(&self) -> Option<&dyn HistoryStore> {
        None
    }

    /// The record of all changes by clients, if the store keeps one. Without it, the record of each job
    /// has its last [20](crate::record::MAX_CHANGES), and the drafts carry none. Default: none.
    fn change_store(&self) -> Option<&dyn ChangeStore> {
        None
    }

    /// The index of flags, if the store keeps one. Without it, flags are found by a scan that ends after
    /// 10 000 jobs. Default: none.
    fn flag_store(&self) -> Option<&dyn FlagStore> {
        None
    }

    /// Removes tombstones ([`Record::deleted_at`]) that are older than
    /// [`TOMBSTONE`](crate::record::TOMBSTONE), some at each call: a call of its own, not a part of a
    /// batch. The highest fence of the removed tombstones stays, as [`Snapshot::min_fence`]. After it,
    /// the engine prunes the history, and counts by the hour what it has not counted yet.
    ///
    /// Default: removes nothing.
    ///
    /// # Errors
    /// `Unavailable`: a later call removes what is left. The history is pruned nevertheless.
    async fn prune(&self, now: Time) -> Result {
        let _ = now;
        Ok(())
    }

    /// The stream of notifications, if the store has one.
    fn notifier(&self) -> Option<&dyn Notifier> {
        None
    }

    /// Sends notifications to all nodes. Polling compensates for lost ones.
    ///
    /// Default: sends nothing.
    async fn notify(&self, notifications: Vec<Notification>) {
        let _ = notifications;
    }

    /// Records that want attention, with their index time.
    ///
    /// Default: by a scan of all records.
    ///
    /// # Errors
    /// `Unavailable`.
    async fn find_due(&self, query: DueQuery<'_>, time: TimeSource) -> Result<Due> {
        queries::find_due(self, query, time).await
    }

    /// `true` if [`claim_due`](Self::claim_due) is to be used. Default: `false`.
    fn claims_due(&self) -> bool {
        false
    }

    /// Finds records that are due, and claims their heads.
    ///
    /// Default: by [`find_due`](Self::find_due) and claims, and a repetition by a scan of all records:
    /// for a store whose calls cost little.
    ///
    /// # Errors
    /// `Unavailable`: records may have been claimed.
    async fn claim_due(&self, query: ClaimDue<'_>, time: TimeSource) -> Result<ClaimedDue>
    where
        Self: Sized,
    {
        queries::claim_due(self, query, time).await
    }

    /// A page of the list.
    ///
    /// Default: by a scan.
    ///
    /// # Errors
    /// `Unavailable`.
    async fn list(&self, page: Page<'_>) -> Result<Vec<(String, Result<Record, String>)>> {
        queries::list(self, page).await
    }

    /// The kinds of the stored schedules that want attention.
    ///
    /// Default: by a scan of all records.
    ///
    /// # Errors
    /// `Unavailable`.
    async fn kinds(&self) -> Result<Vec<String>> {
        queries::kinds(self).await
    }
}
