//! Each database proves the contract.

use crate::stores::{self, Db, Place};
use allora_conformance::{Capability, Fixture, suite};
use allora_core::{Backend, Error, ErrorKind, Result, backend::HistoryLimits};
use allora_sql::Sql;
use async_trait::async_trait;
use std::{future::Future, marker::PhantomData, sync::Arc};

trait Database: Send + Sync + 'static {
    const DB: Db;
}

struct Sqlite;

impl Database for Sqlite {
    const DB: Db = Db::Sqlite;
}

struct Postgres;

impl Database for Postgres {
    const DB: Db = Db::Postgres;
}

struct MySql;

impl Database for MySql {
    const DB: Db = Db::MySql;
}

/// A place that keeps so many history entries; 0: none. Without a history, the single statements of
/// claims and completions are others.
struct Store<D, const HISTORY: u64>(Place, PhantomData<D>);

impl<D, const HISTORY: u64> Store<D, HISTORY> {
    async fn open(&self, limits: HistoryLimits) -> Result<Arc<dyn Backend>> {
        let builder = Sql::builder().prefix(&self.0.prefix).history(limits).connections(4);
        Ok(Arc::new(builder.connect(&self.0.url).await?))
    }
}

#[async_trait]
impl<D: Database, const HISTORY: u64> Fixture for Store<D, HISTORY> {
    async fn set_up(namespace: &str) -> Result<Self> {
        let none = || Error::new(ErrorKind::Unsupported, format!("there is no {:?} here", D::DB));
        let mut place = D::DB.place().ok_or_else(none)?;
        place.prefix = namespace.to_owned();
        place.clear().await;
        Ok(Self(place, PhantomData))
    }

    async fn connect(&self) -> Result<Arc<dyn Backend>> {
        self.open(HISTORY.into()).await
    }

    async fn connect_with_history(
        &self,
        limits: HistoryLimits,
    ) -> Result<Option<Arc<dyn Backend>>> {
        self.open(limits).await.map(Some)
    }

    async fn reopen(self) -> Result<Self> {
        // The pools were dropped; the place is only an address.
        Ok(self)
    }

    async fn empty(&self) -> Result<bool> {
        self.0.empty().await;
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
        match (D::DB, HISTORY) {
            (Db::Postgres, 0) => &[Capability::History],
            (Db::Postgres, _) => &[],
            (_, 0) => &[Capability::Notifications, Capability::History],
            _ => &[Capability::Notifications],
        }
    }
}

mod sqlite {
    use super::*;
    suite!(Store<Sqlite, 20_000>);
}

mod postgres {
    use super::*;
    suite!(Store<Postgres, 20_000>);
}

mod postgres_at_once {
    use super::*;
    suite!(Store<Postgres, 0>);
}

mod mysql {
    use super::*;
    suite!(Store<MySql, 20_000>);
}

mod sqlite_at_once {
    use super::*;
    suite!(Store<Sqlite, 0>);
}

mod mysql_at_once {
    use super::*;
    suite!(Store<MySql, 0>);
}
