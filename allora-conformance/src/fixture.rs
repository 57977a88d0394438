//! The interface between the suite and a backend: a store to work on.

use allora_core::{Backend, Error, ErrorKind, Result, backend::HistoryLimits};
use async_trait::async_trait;
use futures::{FutureExt, future::BoxFuture};
use std::{future::Future, sync::Arc};

/// A store that the suite can make, use from several nodes, and throw away.
///
/// Each case gets a fixture of its own, and cases run side by side: what one does must not be seen
/// by another. The [crate's first page](crate) has a complete one.
#[async_trait]
pub trait Fixture: Sized + Send + Sync + 'static {
    /// An empty store of this name, which is `^[a-z_][a-z0-9_]{0,39}$` and unlike that of any other
    /// case. If something is left there from a run that was killed, it is thrown away first.
    ///
    /// # Errors
    /// [`Unsupported`](allora_core::ErrorKind::Unsupported) if there is no such store on this machine:
    /// the case is then skipped, with the message, and fails where the variable `CI` is set. Any
    /// other error is a failure.
    async fn set_up(namespace: &str) -> Result<Self>;

    /// One more node on the same store, with a connection of its own if the store has connections.
    ///
    /// # Errors
    /// Any: the case fails with it.
    async fn connect(&self) -> Result<Arc<dyn Backend>>;

    /// One more node, which keeps a history within these limits. `None` if the fixture cannot make it;
    /// the cases of limits have nothing to check then. Default: `None`.
    ///
    /// # Errors
    /// Any: the case fails with it.
    async fn connect_with_history(
        &self,
        limits: HistoryLimits,
    ) -> Result<Option<Arc<dyn Backend>>> {
        let _ = limits;
        Ok(None)
    }

    /// Closes the store and opens it again with what it has kept, as when every process that uses it
    /// has ended. Backends that were connected before are dropped; nothing in the memory of this
    /// process may serve the new ones. Default: an error, for fixtures that declare
    /// [`Capability::Durability`] as unsupported.
    ///
    /// # Errors
    /// Any: the case fails with it.
    async fn reopen(self) -> Result<Self> {
        let remedy = "the fixture has no `reopen`; write it, or declare `Capability::Durability` as \
                      unsupported";
        Err(Error::new(ErrorKind::Unsupported, remedy))
    }

    /// Removes every record and all else from the store, as when it was emptied or replaced by an empty
    /// one, while its nodes stay connected. Returns `false` if the fixture cannot do that; the cases of
    /// emptied stores have nothing to check then. Default: `false`.
    ///
    /// # Errors
    /// Any: the case fails with it.
    async fn empty(&self) -> Result<bool> {
        Ok(false)
    }

    /// Throws the store away, also after a case that failed.
    ///
    /// # Errors
    /// Any: the case fails with it.
    async fn tear_down(self) -> Result<()> {
        Ok(())
    }

    /// Drives a future to its end, on the runtime of the fixture's choice. Several threads may be in
    /// it at the same time. Stores that need no runtime leave it as it is.
    fn block_on<T: Future>(future: T) -> T::Output {
        futures::executor::block_on(future)
    }

    /// Drives a future beside others; the cases of contention have one for each node. A thread
    /// for each, unless the fixture knows better.
    fn start(task: BoxFuture<'static, ()>) {
        drop(std::thread::spawn(move || Self::block_on(task)));
    }

    /// Number of occurrences that the nodes of a case of contention share, a multiple of 100.
    /// Default: 3 000, and 10 000 where the environment variable `ALLORA_TEST_LONG` is set. Use less for
    /// stores on which each occurrence costs many messages.
    fn occurrences() -> u64 {
        if std::env::var_os("ALLORA_TEST_LONG").is_some() { 10_000 } else { 3_000 }
    }

    /// The capabilities that this store lacks. The suite checks that the backend denies each of
    /// them, and the cases that need one pass without being run. All others must be there.
    fn unsupported() -> &'static [Capability] {
        &[]
    }
}

/// A capability that a case may need beyond [`Backend::reschedule`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Capability {
    /// [`Backend::queries`].
    Queries,
    /// [`Backend::history`]; a fixture that has it keeps at least 10 000 entries. The cases of its limits
    /// also need [`Fixture::connect_with_history`].
    History,
    /// [`Queries::changes`](allora_core::backend::Queries::changes).
    Changes,
    /// [`Backend::notifier`].
    Notifications,
    /// Leases end at the instants that batches carry as
    /// [`TimeSource::Fixed`](allora_core::backend::TimeSource::Fixed), and show their ends by them.
    /// Not so where the store itself ends them, as on etcd.
    Expiry,
    /// Fences, generations and incarnations are drawn as by
    /// [`next_fence`](allora_core::record::next_fence). Where they are not, as on etcd, the random
    /// walks do not compare them with those of the pure functions.
    Microseconds,
    /// Acknowledged writes outlive the processes that use the store, and the fixture can
    /// [reopen](Fixture::reopen) it. Not so in process memory.
    Durability,
    /// The reply to a write says what that write did. On a quorum another node may finish a write, and
    /// its writer then finds it done.
    ExactReplies,
}

impl Capability {
    /// All of them.
    pub const ALL: &[Self] = &[
        Self::Queries,
        Self::History,
        Self::Changes,
        Self::Notifications,
        Self::Expiry,
        Self::Microseconds,
        Self::Durability,
        Self::ExactReplies,
    ];

    /// True if the backend offers it; `None` if the backend does not declare it.
    pub(crate) fn is_offered(self, backend: &dyn Backend) -> Option<bool> {
        match self {
            Self::Queries => Some(backend.queries().is_some()),
            Self::History => Some(backend.history().is_some()),
            Self::Notifications => Some(backend.notifier().is_some()),
            // Queries may be without it.
            Self::Changes => None,
            Self::Expiry | Self::Microseconds | Self::Durability | Self::ExactReplies => None,
        }
    }
}

/// A fixture whose type is forgotten, so that the cases are plain functions.
pub(crate) trait Stores: Send + Sync {
    fn connect(&self) -> BoxFuture<'_, Result<Arc<dyn Backend>>>;
    fn connect_with_history(
        &self,
        limits: HistoryLimits,
    ) -> BoxFuture<'_, Result<Option<Arc<dyn Backend>>>>;
    fn reopen(self: Box<Self>) -> BoxFuture<'static, Result<Box<dyn Stores>>>;
    fn empty(&self) -> BoxFuture<'_, Result<bool>>;
    fn tear_down(self: Box<Self>) -> BoxFuture<'static, Result<()>>;
    /// Another store, for cases that compare two.
    fn beside(&self, namespace: String) -> BoxFuture<'static, Result<Box<dyn Stores>>>;
    fn start(&self, task: BoxFuture<'static, ()>);
    fn occurrences(&self) -> u64;
    fn unsupported(&self) -> &'static [Capability];
}

impl<F: Fixture> Stores for F {
    fn connect(&self) -> BoxFuture<'_, Result<Arc<dyn Backend>>> {
        Fixture::connect(self)
    }
    fn connect_with_history(
        &self,
        limits: HistoryLimits,
    ) -> BoxFuture<'_, Result<Option<Arc<dyn Backend>>>> {
        Fixture::connect_with_history(self, limits)
    }
    fn reopen(self: Box<Self>) -> BoxFuture<'static, Result<Box<dyn Stores>>> {
        async move { Ok(Box::new(Fixture::reopen(*self).await?) as Box<dyn Stores>) }.boxed()
    }
    fn empty(&self) -> BoxFuture<'_, Result<bool>> {
        Fixture::empty(self)
    }
    fn tear_down(self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        Fixture::tear_down(*self)
    }
    fn beside(&self, namespace: String) -> BoxFuture<'static, Result<Box<dyn Stores>>> {
        async move { open::<F>(&namespace).await }.boxed()
    }
    fn start(&self, task: BoxFuture<'static, ()>) {
        F::start(task);
    }
    fn occurrences(&self) -> u64 {
        F::occurrences()
    }
    fn unsupported(&self) -> &'static [Capability] {
        F::unsupported()
    }
}

pub(crate) async fn open<F: Fixture>(namespace: &str) -> Result<Box<dyn Stores>> {
    Ok(Box::new(F::set_up(namespace).await?))
}
