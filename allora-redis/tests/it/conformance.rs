//! Each way to run Redis proves the contract.

use crate::stores::{self, Kind, Place};
use allora_conformance::{Capability, Fixture, suite};
use allora_core::{Backend, Error, Result, backend::HistoryLimits};
use allora_redis::Redis;
use async_trait::async_trait;
use std::{future::Future, marker::PhantomData, sync::Arc};

fn place(kind: Kind, namespace: &str) -> Result<Place> {
    let place = kind.place();
    let none =
        || Error::new(allora_core::ErrorKind::Unsupported, format!("there is no {kind:?} here"));
    Ok(Place { prefix: namespace.to_owned(), ..place.ok_or_else(none)? })
}

/// A way to run Redis.
trait Way: Send + Sync + 'static {
    const KIND: Kind;
}

struct One;

impl Way for One {
    const KIND: Kind = Kind::One;
}

struct Cluster;

impl Way for Cluster {
    const KIND: Kind = Kind::Cluster;
}

struct Sentinel;

impl Way for Sentinel {
    const KIND: Kind = Kind::Sentinel;
}

/// A place that keeps so many history entries; 0: none.
struct Store<W, const HISTORY: u64>(Place, PhantomData<W>);

#[async_trait]
impl<W: Way, const HISTORY: u64> Fixture for Store<W, HISTORY> {
    async fn set_up(namespace: &str) -> Result<Self> {
        let place = place(W::KIND, namespace)?;
        place.clear().await;
        Ok(Self(place, PhantomData))
    }

    async fn connect(&self) -> Result<Arc<dyn Backend>> {
        let builder = Redis::builder().history(HISTORY);
        Ok(Arc::new(self.0.connect(builder).await?))
    }

    async fn connect_with_history(
        &self,
        limits: HistoryLimits,
    ) -> Result<Option<Arc<dyn Backend>>> {
        let builder = Redis::builder().history(limits);
        Ok(Some(Arc::new(self.0.connect(builder).await?)))
    }

    async fn reopen(self) -> Result<Self> {
        // The connections were dropped; the place is only an address.
        Ok(self)
    }

    async fn empty(&self) -> Result<bool> {
        self.0.clear().await;
        Ok(true)
    }

    async fn tear_down(self) -> Result<()> {
        self.0.clear().await;
        Ok(())
    }

    fn block_on<T: Future>(future: T) -> T::Output {
        stores::runtime().block_on(future)
    }

    fn unsupported() -> &'static [Capability] {
        if HISTORY == 0 { &[Capability::History] } else { &[] }
    }
}

mod one {
    use super::*;
    suite!(Store<One, 20_000>);
}

mod one_at_once {
    use super::*;
    suite!(Store<One, 0>);
}

mod cluster {
    use super::*;
    suite!(Store<Cluster, 0>);
}

mod sentinel {
    use super::*;
    suite!(Store<Sentinel, 0>);
}
