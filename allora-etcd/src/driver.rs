//! Talking to the members: on a thread of our own, each call with a deadline, to another member
//! when one does not answer.

use crate::error::{failed, is_elsewhere, late};
use allora_core::{Error, Kind, Result};
use etcd_client::{Client, ConnectOptions};
use futures::FutureExt;
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::{runtime::Handle, sync::oneshot};

/// How much one answer may have: far more than any that is asked for.
const LARGEST: usize = 1 << 30;

/// Calls to the members of one cluster.
pub(crate) struct Driver {
    pub(crate) handle: Handle,
    members: Arc<Members>,
    /// Dropped, it ends the thread.
    _thread: Option<oneshot::Sender<()>>,
}

struct Members {
    list: Vec<Member>,
    /// The one that answered last.
    active: AtomicUsize,
    timeout: Duration,
}

/// One member; or, where the user brought a client, however many that knows.
struct Member {
    endpoint: String,
    options: ConnectOptions,
    client: tokio::sync::Mutex<Option<Client>>,
}

/// How the members are reached.
pub(crate) enum Reach {
    At(Vec<String>, Box<ConnectOptions>),
    By(Box<Client>),
}

impl Driver {
    /// On a thread of our own, unless a handle is given.
    ///
    /// # Errors
    /// `Other` if the thread cannot be started. That a given runtime has no timers shows at the first
    /// call.
    pub(crate) fn new(reach: Reach, timeout: Duration, given: Option<Handle>) -> Result<Self> {
        let list = match reach {
            Reach::At(endpoints, options) => endpoints
                .into_iter()
                .map(|endpoint| Member {
                    endpoint,
                    options: (*options).clone(),
                    client: tokio::sync::Mutex::default(),
                })
                .collect(),
            Reach::By(client) => vec![Member {
                endpoint: "the given client".into(),
                options: ConnectOptions::new(),
                client: tokio::sync::Mutex::new(Some(*client)),
            }],
        };
        let members = Arc::new(Members { list, active: AtomicUsize::new(0), timeout });
        let (handle, thread) = match given {
            Some(handle) => (handle, None),
            None => own_thread().map(|(handle, stop)| (handle, Some(stop)))?,
        };
        Ok(Self { handle, members, _thread: thread })
    }

    /// Asks one member after the other, until one answers or the time is up; begins at once, also
    /// where the answer is not waited for yet.
    ///
    /// # Cancel safety
    /// A dropped call goes on to its end.
    pub(crate) fn call<T, F, Fut>(
        &self,
        op: &'static str,
        work: F,
    ) -> impl Future<Output = Result<T>> + Send + use<T, F, Fut>
    where
        F: Fn(Client) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<T, etcd_client::Error>> + Send,
        T: Send + 'static,
    {
        self.call_within(op, self.members.timeout, work)
    }

    pub(crate) fn call_within<T, F, Fut>(
        &self,
        op: &'static str,
        timeout: Duration,
        work: F,
    ) -> impl Future<Output = Result<T>> + Send + use<T, F, Fut>
    where
        F: Fn(Client) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<T, etcd_client::Error>> + Send,
        T: Send + 'static,
    {
        let members = self.members.clone();
        let asked = self.handle.spawn(async move { members.ask(op, timeout, work).await });
        asked.map(move |answer| {
            answer.unwrap_or_else(|cause| {
                let gone =
                    "the runtime that talks to etcd is gone, or has no timers and no network";
                Err(Error::new(Kind::Unavailable, gone).op(op).source(cause))
            })
        })
    }

    /// A client for a stream that lasts, of the member that answered last.
    pub(crate) async fn stream_client(&self) -> Result<Client, etcd_client::Error> {
        let members = &self.members;
        members.list[members.active.load(Ordering::Relaxed) % members.list.len()].client().await
    }

    /// The next stream is to be opened elsewhere.
    pub(crate) fn elsewhere(&self) {
        self.members.leave(self.members.active.load(Ordering::Relaxed));
    }

    pub(crate) fn endpoints(&self) -> impl Iterator<Item = &str> {
        self.members.list.iter().map(|member| &*member.endpoint)
    }
}

impl Members {
    async fn ask<T, F, Fut>(&self, op: &'static str, timeout: Duration, work: F) -> Result<T>
    where
        F: Fn(Client) -> Fut,
        Fut: Future<Output = Result<T, etcd_client::Error>>,
    {
        let first = self.active.load(Ordering::Relaxed);
        let asking = AtomicUsize::new(first);
        let each = async {
            let mut last = None;
            for i in first..first + self.list.len() {
                asking.store(i, Ordering::Relaxed);
                let asked = async { work(self.list[i % self.list.len()].client().await?).await };
                match asked.await {
                    Ok(answer) => {
                        if i != first {
                            self.active.store(i % self.list.len(), Ordering::Relaxed);
                        }
                        return Ok(answer);
                    }
                    Err(cause) if is_elsewhere(&cause) => last = Some(cause),
                    Err(cause) => return Err(failed(op, cause)),
                }
            }
            Err(last.map_or_else(|| late(op, timeout), |cause| failed(op, cause)))
        };
        match tokio::time::timeout(timeout, each).await {
            Ok(answer) => answer,
            Err(_) => {
                self.leave(asking.load(Ordering::Relaxed));
                Err(late(op, timeout))
            }
        }
    }

    fn leave(&self, hung: usize) {
        self.active.store((hung + 1) % self.list.len(), Ordering::Relaxed);
    }
}

impl Member {
    async fn client(&self) -> Result<Client, etcd_client::Error> {
        let mut client = self.client.lock().await;
        if let Some(client) = &*client {
            return Ok(client.clone());
        }
        let opened = Client::connect([&self.endpoint], Some(self.options.clone())).await?;
        Ok(client.insert(opened).clone())
    }
}

/// The keys and values of a client, without the driver's limit of 4 MiB for an answer.
pub(crate) fn kv(client: &Client) -> etcd_client::KvClient {
    client.kv_client().max_decoding_message_size(LARGEST)
}

/// The driver's own clock, which no clock of a machine can set.
#[expect(clippy::disallowed_methods, reason = "a lease is kept alive on the driver's own thread")]
pub(crate) fn steady() -> Instant {
    Instant::now()
}

/// Waits on the driver's thread.
#[expect(clippy::disallowed_methods, reason = "a lease is kept alive on the driver's own thread")]
pub(crate) async fn pause(duration: Duration) {
    tokio::time::sleep(duration).await;
}

fn own_thread() -> Result<(Handle, oneshot::Sender<()>)> {
    let failed = |cause: std::io::Error| {
        let wrong = "the thread that talks to etcd cannot be started";
        Error::new(Kind::Other, wrong).op("connect").source(cause)
    };
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
    let handle = runtime.handle().clone();
    let (stop, stopped) = oneshot::channel();
    // The runtime ends on its own thread: elsewhere its end might block an executor.
    std::thread::Builder::new()
        .name("allora-etcd".into())
        .spawn(move || drop(runtime.block_on(stopped)))
        .map_err(failed)?;
    Ok((handle, stop))
}
