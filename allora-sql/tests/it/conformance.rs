//! Each database proves the contract.

use crate::stores::{self, Db, Place};
use allora_conformance::{Capability, Fixture, suite};
use allora_core::{Backend, Error, ErrorKind, Result, backend::HistoryLimits};
use allora_sql::Sql;
use async_trait::async_trait;
use std::{future::Future, sync::Arc};

/// A place and what stays open while a case runs.
struct Store {
    place: Place,
    history: u64,
}

impl Store {
    fn set_up(db: Db, namespace: &str, history: u64) -> Result<Self> {
        let Some(mut place) = db.place() else {
            return Err(Error::new(ErrorKind::Unsupported, format!("there is no {db:?} here")));
        };
        place.prefix = namespace.to_owned();
        Ok(Self { place, history })
    }

    async fn connect(&self, limits: HistoryLimits) -> Result<Arc<dyn Backend>> {
        let builder = Sql::builder().prefix(&self.place.prefix).history(limits).connections(4);
        Ok(Arc::new(builder.connect(&self.place.url).await?))
    }
}

macro_rules! store {
    ($module:ident, $db:expr, $history:expr, $lacks:expr) => {
        mod $module {
            use super::*;

            struct Fixed(Store);

            #[async_trait]
            impl Fixture for Fixed {
                async fn set_up(namespace: &str) -> Result<Self> {
                    let store = Store::set_up($db, namespace, $history)?;
                    store.place.clear().await;
                    Ok(Self(store))
                }

                async fn connect(&self) -> Result<Arc<dyn Backend>> {
                    self.0.connect(self.0.history.into()).await
                }

                async fn connect_with_history(
                    &self,
                    limits: HistoryLimits,
                ) -> Result<Option<Arc<dyn Backend>>> {
                    self.0.connect(limits).await.map(Some)
                }

                async fn reopen(self) -> Result<Self> {
                    // The pools were dropped; the place is only an address.
                    Ok(self)
                }

                async fn empty(&self) -> Result<bool> {
                    self.0.place.empty().await;
                    Ok(true)
                }

                async fn tear_down(self) -> Result<()> {
                    self.0.place.clear().await;
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

store!(sqlite, Db::Sqlite, 20_000, &[Capability::Notifications]);
store!(postgres, Db::Postgres, 20_000, &[]);
// Without a history, the single statements of claims and completions are others.
store!(postgres_at_once, Db::Postgres, 0, &[Capability::History]);
store!(mysql, Db::MySql, 20_000, &[Capability::Notifications]);
store!(sqlite_at_once, Db::Sqlite, 0, &[Capability::Notifications, Capability::History]);
store!(mysql_at_once, Db::MySql, 0, &[Capability::Notifications, Capability::History]);
