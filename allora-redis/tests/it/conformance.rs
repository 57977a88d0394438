//! Each way to run Redis proves the contract.

use crate::stores::{self, Kind, Place};
use allora_conformance::{Capability, Fixture, suite};
use allora_core::{Backend, Error, Result, backend::HistoryLimits};
use allora_redis::Redis;
use async_trait::async_trait;
use std::{future::Future, sync::Arc};

fn place(kind: Kind, namespace: &str) -> Result<Place> {
    let place = kind.place();
    let none =
        || Error::new(allora_core::ErrorKind::Unsupported, format!("there is no {kind:?} here"));
    Ok(Place { prefix: namespace.to_owned(), ..place.ok_or_else(none)? })
}

macro_rules! store {
    ($module:ident, $kind:expr, $history:expr, $lacks:expr) => {
        mod $module {
            use super::*;

            struct Fixed(Place);

            #[async_trait]
            impl Fixture for Fixed {
                async fn set_up(namespace: &str) -> Result<Self> {
                    let place = place($kind, namespace)?;
                    place.clear().await;
                    Ok(Self(place))
                }

                async fn connect(&self) -> Result<Arc<dyn Backend>> {
                    let builder = Redis::builder().history($history);
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
                    $lacks
                }
            }

            suite!(Fixed);
        }
    };
}

store!(one, Kind::One, 20_000, &[]);
store!(one_at_once, Kind::One, 0, &[Capability::History]);
store!(cluster, Kind::Cluster, 0, &[Capability::History]);
store!(sentinel, Kind::Sentinel, 0, &[Capability::History]);
