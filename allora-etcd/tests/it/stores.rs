//! The stores that tests work on, and where they are.

pub(crate) use allora_conformance::environment::patiently_async as patiently;
use allora_conformance::{Fixture, environment};
use allora_core::{Backend, Error, ErrorKind, Result, backend::HistoryLimits};
use allora_etcd::{
    Etcd,
    etcd_client::{Client, DeleteOptions},
};
use async_trait::async_trait;
use std::{
    marker::PhantomData,
    sync::{Arc, LazyLock},
};
use tokio::runtime::Runtime;

/// A cluster of the suite's.
pub(crate) trait Cluster: Send + Sync + 'static {
    /// Where the addresses of its members are.
    const VARIABLE: &str;
}

/// One member.
pub(crate) struct Single;

impl Cluster for Single {
    const VARIABLE: &str = "ALLORA_TEST_ETCD_URL";
}

/// Three members.
pub(crate) struct Three;

impl Cluster for Three {
    const VARIABLE: &str = "ALLORA_TEST_ETCD_CLUSTER_URLS";
}

/// The members of a cluster; `None`, with a line that says so, where there is none.
pub(crate) fn members<C: Cluster>() -> Option<Vec<String>> {
    let urls = environment::address("etcd", C::VARIABLE)?;
    Some(urls.split(',').map(str::to_owned).collect())
}

/// A prefix on a cluster, thrown away afterwards.
pub(crate) struct Store<C> {
    members: Vec<String>,
    prefix: String,
    cluster: PhantomData<C>,
}

#[async_trait]
impl<C: Cluster> Fixture for Store<C> {
    async fn set_up(namespace: &str) -> Result<Self> {
        let none = || Error::new(ErrorKind::Unsupported, "there is no etcd");
        let members = members::<C>().ok_or_else(none)?;
        let store = Self { members, prefix: namespace.into(), cluster: PhantomData };
        store.clear().await?;
        Ok(store)
    }

    async fn connect(&self) -> Result<Arc<dyn Backend>> {
        let builder = Etcd::builder().prefix(&self.prefix).history(10_000);
        Ok(Arc::new(patient(builder).connect(self.members.clone()).await?))
    }

    async fn connect_with_history(
        &self,
        limits: HistoryLimits,
    ) -> Result<Option<Arc<dyn Backend>>> {
        let builder = Etcd::builder().prefix(&self.prefix).history(limits);
        Ok(Some(Arc::new(patient(builder).connect(self.members.clone()).await?)))
    }

    async fn reopen(self) -> Result<Self> {
        // The clients were dropped; the rest is only an address.
        Ok(self)
    }

    async fn empty(&self) -> Result<bool> {
        self.clear().await?;
        Ok(true)
    }

    async fn tear_down(self) -> Result<()> {
        self.clear().await
    }

    fn block_on<T: Future>(future: T) -> T::Output {
        runtime().block_on(future)
    }
}

impl<C> Store<C> {
    async fn clear(&self) -> Result {
        let failed =
            |cause| Error::new(ErrorKind::Other, "the keys cannot be deleted").source(cause);
        let client = Client::connect(&self.members, None).await.map_err(failed)?;
        let all = DeleteOptions::new().with_prefix();
        let mut kv = client.kv_client();
        kv.delete(format!("{}/", self.prefix), Some(all)).await.map(drop).map_err(failed)
    }
}

/// A machine under test may be slow; how fast a failure is seen is another test's.
pub(crate) fn patient(builder: allora_etcd::EtcdBuilder) -> allora_etcd::EtcdBuilder {
    let patience = std::time::Duration::from_secs(20);
    builder.timeout(patience).connect_timeout(patience)
}

/// One runtime for all tests.
pub(crate) fn runtime() -> &'static Runtime {
    static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().unwrap());
    &RUNTIME
}

/// The machine's steady clock.
#[expect(clippy::disallowed_methods, reason = "these tests wait for other processes")]
pub(crate) fn now() -> std::time::Instant {
    std::time::Instant::now()
}

/// Lets real time pass.
#[expect(clippy::disallowed_methods, reason = "these tests wait for other processes")]
pub(crate) async fn pause(ms: u64) {
    tokio::time::sleep(std::time::Duration::from_millis(ms)).await;
}
