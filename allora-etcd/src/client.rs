//! The connections to the members: a thread for the driver, calls with a deadline, transactions.
//!
//! A call that one member does not answer is sent to the next. This layer knows nothing of jobs.

use crate::{
    error::{failed, is_token_outdated, may_succeed_elsewhere, timed_out},
    timeline::Timeline,
};
use allora_core::{Error, ErrorKind, Result};
use etcd_client::{
    ConnectOptions, GetOptions, GetResponse, Txn, TxnOp, TxnOpResponse, TxnResponse,
};
use futures::{
    FutureExt, StreamExt, TryFutureExt, TryStreamExt,
    future::BoxFuture,
    stream::{FuturesOrdered, FuturesUnordered},
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::{runtime::Handle, sync::oneshot};

/// The largest reply, in bytes: far more than any request asks for.
const MAX_REPLY: usize = 1 << 30;

/// The number of exchanges of one request that are under way at the same time.
const CONCURRENT_EXCHANGES: usize = 8;

/// Calls to the members of one cluster.
pub(crate) struct Client {
    handle: Handle,
    members: Arc<Members>,
    /// The number of operations that the members allow in one transaction.
    max_operations: usize,
    timeline: Arc<Timeline>,
    /// Dropping it ends the thread.
    _thread: Option<oneshot::Sender<()>>,
}

struct Members {
    list: Vec<Member>,
    /// The member that answered last.
    active: AtomicUsize,
    timeout: Duration,
}

/// The largest number of attempts to connect to one member at the same time.
const MOST_ATTEMPTS: u32 = 8;

/// The most often that a request is sent to one member: after a login, a role may have changed again.
const MAX_LOGINS: usize = 3;

/// One member; or, with a client of the user's, all the members of that client.
struct Member {
    endpoint: String,
    /// `None` for a client of the user's, which cannot be opened again.
    options: Option<ConnectOptions>,
    timeouts: Timeouts,
    link: tokio::sync::Mutex<Link>,
    /// The number of renewed logins.
    logins: AtomicUsize,
    /// Held during a login, so that concurrent calls log in once.
    login: tokio::sync::Mutex<()>,
}

/// The connection to a member, and the attempts to get a new one.
#[derive(Default)]
struct Link {
    open: Option<Arc<Connection>>,
    /// They outlast the calls that began them, so that a login may take longer than a call.
    attempts: FuturesUnordered<Attempt>,
    /// The time at which the last attempt began.
    last: Option<Instant>,
}

/// An attempt to connect: the time at which it began, and the result; `None` if it took too long.
type Attempt =
    BoxFuture<'static, (Instant, Option<Result<etcd_client::Client, etcd_client::Error>>)>;

/// The connection to a member.
pub(crate) struct Connection {
    pub(crate) client: etcd_client::Client,
    /// The number of replies to calls.
    replies: AtomicUsize,
    is_silent: AtomicBool,
}

impl Connection {
    fn new(client: etcd_client::Client) -> Arc<Self> {
        let (replies, is_silent) = (AtomicUsize::new(0), AtomicBool::new(false));
        Arc::new(Self { client, replies, is_silent })
    }

    /// True if a call has timed out and nothing has come back during the call: the connection may be
    /// lost without an error, and is replaced.
    pub(crate) fn is_silent(&self) -> bool {
        self.is_silent.load(Ordering::Relaxed)
    }
}

/// A request on a connection. It is dropped before its reply only if its time is up.
struct Pending<'a> {
    connection: &'a Connection,
    /// The number of replies when the request was sent.
    replies: usize,
    since: Instant,
    /// The longest silence that is no sign of a lost connection.
    patience: Duration,
}

impl<'a> Pending<'a> {
    fn new(connection: &'a Connection, patience: Duration) -> Self {
        let replies = connection.replies.load(Ordering::Relaxed);
        Self { connection, replies, since: monotonic_now(), patience }
    }

    fn on_reply(&self) {
        self.connection.replies.fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        let is_same = self.connection.replies.load(Ordering::Relaxed) == self.replies;
        let silence = monotonic_now().saturating_duration_since(self.since);
        if is_same && silence >= self.patience {
            self.connection.is_silent.store(true, Ordering::Relaxed);
        }
    }
}

/// The way to the members.
pub(crate) enum Endpoints {
    /// By their addresses.
    Addresses(Vec<String>, Box<ConnectOptions>),
    /// By a client of the user's.
    Client(Box<etcd_client::Client>),
}

/// The deadlines of a client.
#[derive(Clone, Copy)]
pub(crate) struct Timeouts {
    pub(crate) call: Duration,
    /// The time within which a new connection must have its first reply.
    pub(crate) connect: Duration,
}

impl Client {
    /// A client on a thread of its own, or on the given runtime.
    ///
    /// # Errors
    /// `Other` if the thread cannot be started. A given runtime without timers fails at the first
    /// call.
    pub(crate) fn new(
        endpoints: Endpoints,
        timeouts: Timeouts,
        max_operations: usize,
        handle: Option<Handle>,
    ) -> Result<Self> {
        let list = match endpoints {
            Endpoints::Addresses(addresses, options) => addresses
                .into_iter()
                .map(|endpoint| {
                    let options = Some((*options).clone());
                    Member::new(endpoint, options, timeouts, Link::default())
                })
                .collect(),
            Endpoints::Client(client) => {
                let endpoint = "the given client".into();
                let link = Link { open: Some(Connection::new(*client)), ..Link::default() };
                vec![Member::new(endpoint, None, timeouts, link)]
            }
        };
        let members =
            Arc::new(Members { list, active: AtomicUsize::new(0), timeout: timeouts.call });
        let (handle, thread) = match handle {
            Some(handle) => (handle, None),
            None => own_thread().map(|(handle, stop)| (handle, Some(stop)))?,
        };
        let timeline = Arc::default();
        Ok(Self { handle, members, max_operations, timeline, _thread: thread })
    }

    /// The deadline of one call.
    pub(crate) fn timeout(&self) -> Duration {
        self.members.timeout
    }

    /// The number of operations that the members allow in one transaction.
    pub(crate) fn max_operations(&self) -> usize {
        self.max_operations
    }

    /// The number of the timeline that the last replies belong to.
    pub(crate) fn timeline(&self) -> u64 {
        self.timeline.number()
    }

    pub(crate) fn endpoints(&self) -> impl Iterator<Item = &str> {
        self.members.list.iter().map(|member| &*member.endpoint)
    }

    /// Starts a task on the driver's thread.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.handle.spawn(task);
    }

    /// Sends a request to one member after the other until one answers or the time is up. The
    /// request starts at once, also if the future is polled later.
    ///
    /// # Cancel safety
    /// A dropped call continues to its end.
    pub(crate) fn call<T, F, Fut>(
        &self,
        op: &'static str,
        request: F,
    ) -> impl Future<Output = Result<T>> + Send + use<T, F, Fut>
    where
        F: Fn(etcd_client::Client) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<T, etcd_client::Error>> + Send,
        T: Send + 'static,
    {
        self.call_within(op, self.members.timeout, request)
    }

    /// [`call`](Self::call) with another deadline.
    pub(crate) fn call_within<T, F, Fut>(
        &self,
        op: &'static str,
        timeout: Duration,
        request: F,
    ) -> impl Future<Output = Result<T>> + Send + use<T, F, Fut>
    where
        F: Fn(etcd_client::Client) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<T, etcd_client::Error>> + Send,
        T: Send + 'static,
    {
        let members = self.members.clone();
        let sent = self.handle.spawn(async move { members.call(op, timeout, request).await });
        sent.map(move |reply| {
            reply.unwrap_or_else(|cause| {
                let ended =
                    "the runtime that talks to etcd has ended, or has no timers and no network";
                Err(Error::new(ErrorKind::Unavailable, ended).op(op).source(cause))
            })
        })
    }

    /// Sends one transaction.
    pub(crate) fn txn(
        &self,
        op: &'static str,
        txn: Txn,
    ) -> impl Future<Output = Result<TxnResponse>> + Send + use<> {
        self.txn_or_resent(op, txn).map_ok(|(reply, _)| reply)
    }

    /// Sends one transaction. Returns also whether it was sent more than once: the member that did
    /// not answer may have applied it.
    pub(crate) fn txn_or_resent(
        &self,
        op: &'static str,
        txn: Txn,
    ) -> impl Future<Output = Result<(TxnResponse, bool)>> + Send + use<> {
        let sent = Arc::new(AtomicUsize::new(0));
        let (counted, timeline) = (sent.clone(), self.timeline.clone());
        let reply = self.call(op, move |client| {
            let (txn, timeline) = (txn.clone(), timeline.clone());
            counted.fetch_add(1, Ordering::Relaxed);
            async move {
                let before = timeline.before();
                let reply = kv(&client).txn(txn).await?;
                if let Some(header) = reply.header() {
                    timeline.on_reply(before, header);
                }
                Ok(reply)
            }
        });
        reply.map_ok(move |reply| (reply, sent.load(Ordering::Relaxed) > 1))
    }

    /// Sends any number of reads, in as few transactions as the members allow.
    pub(crate) async fn get_all(
        &self,
        op: &'static str,
        mut reads: Vec<TxnOp>,
    ) -> Result<Vec<GetResponse>> {
        let mut replies = Vec::with_capacity(reads.len());
        while !reads.is_empty() {
            let rest = reads.split_off(reads.len().min(self.max_operations));
            let reply = self.txn(op, Txn::new().and_then(reads)).await?;
            replies.extend(gets(&reply));
            reads = rest;
        }
        Ok(replies)
    }

    /// The connection for a lasting stream, to the member that answered last.
    pub(crate) async fn stream_connection(&self) -> Result<Arc<Connection>, etcd_client::Error> {
        let members = &self.members;
        members.list[members.active.load(Ordering::Relaxed) % members.list.len()].connection().await
    }

    /// Opens the next stream at another member.
    pub(crate) fn switch_member(&self) {
        self.members.switch_from(self.members.active.load(Ordering::Relaxed));
    }
}

impl Members {
    async fn call<T, F, Fut>(&self, op: &'static str, timeout: Duration, request: F) -> Result<T>
    where
        F: Fn(etcd_client::Client) -> Fut,
        Fut: Future<Output = Result<T, etcd_client::Error>>,
    {
        let first = self.active.load(Ordering::Relaxed);
        let current = AtomicUsize::new(first);
        let each = async {
            let mut last = None;
            for i in first..first + self.list.len() {
                current.store(i, Ordering::Relaxed);
                match self.list[i % self.list.len()].send(&request, self.timeout / 2).await {
                    Ok(reply) => {
                        if i != first {
                            self.active.store(i % self.list.len(), Ordering::Relaxed);
                        }
                        return Ok(reply);
                    }
                    Err(cause) if may_succeed_elsewhere(&cause) => last = Some(cause),
                    Err(cause) => return Err(failed(op, cause)),
                }
            }
            Err(last.map_or_else(|| timed_out(op, timeout), |cause| failed(op, cause)))
        };
        match tokio::time::timeout(timeout, each).await {
            Ok(reply) => reply,
            Err(_) => {
                self.switch_from(current.load(Ordering::Relaxed));
                Err(timed_out(op, timeout))
            }
        }
    }

    fn switch_from(&self, member: usize) {
        self.active.store((member + 1) % self.list.len(), Ordering::Relaxed);
    }
}

impl Member {
    fn new(
        endpoint: String,
        options: Option<ConnectOptions>,
        timeouts: Timeouts,
        link: Link,
    ) -> Self {
        let (link, login) = (tokio::sync::Mutex::new(link), tokio::sync::Mutex::default());
        Self { endpoint, options, timeouts, link, logins: AtomicUsize::new(0), login }
    }

    /// Sends a request; again after a new login if the token is not valid any more. A token ends by
    /// its time, and a signed one with every change of any user or role.
    async fn send<T, F, Fut>(
        &self,
        request: &F,
        patience: Duration,
    ) -> Result<T, etcd_client::Error>
    where
        F: Fn(etcd_client::Client) -> Fut,
        Fut: Future<Output = Result<T, etcd_client::Error>>,
    {
        let connection = self.connection().await?;
        let mut sent = 0;
        loop {
            let logins = self.logins.load(Ordering::Relaxed);
            let pending = Pending::new(&connection, patience);
            let reply = request(connection.client.clone()).await;
            pending.on_reply();
            sent += 1;
            match reply {
                Err(cause) if is_token_outdated(&cause) && sent < MAX_LOGINS => {
                    self.renew_login(&connection.client, logins).await?;
                }
                reply => return reply,
            }
        }
    }

    /// Logs in again, unless another call has done so since there were this many logins.
    async fn renew_login(
        &self,
        client: &etcd_client::Client,
        logins: usize,
    ) -> Result<(), etcd_client::Error> {
        let _guard = self.login.lock().await;
        if self.logins.load(Ordering::Relaxed) == logins {
            client.refresh_token().await?;
            self.logins.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// The connection; a new one if there is none or it is silent.
    ///
    /// While nothing passes, what an attempt has sent is lost, and may not be sent again for seconds
    /// after that. So another attempt begins in the time of each call, and the first one that has a
    /// reply wins. The earlier ones go on: a login, or a slow line, may need longer than a call.
    async fn connection(&self) -> Result<Arc<Connection>, etcd_client::Error> {
        let mut link = self.link.lock().await;
        let Link { open, attempts, last } = &mut *link;
        if let Some(open) = open
            && (!open.is_silent() || self.options.is_none())
        {
            return Ok(open.clone());
        }
        let connected = loop {
            let now = monotonic_now();
            let mut next = last.map_or(now, |last| last + self.between_attempts());
            if attempts.is_empty() || next <= now {
                attempts.push(self.attempt(now));
                (*last, next) = (Some(now), now + self.between_attempts());
            }
            // A call that is dropped here leaves the attempts to the next one.
            match tokio::time::timeout_at(next.into(), attempts.next()).await {
                Ok(Some((_, Some(Ok(client))))) => break client,
                // What the newest one says is true now.
                Ok(Some((begun, Some(Err(cause))))) if Some(begun) == *last => {
                    *last = None;
                    return Err(cause);
                }
                _ => {}
            }
        };
        (*attempts, *last) = (FuturesUnordered::new(), None);
        Ok(open.insert(Connection::new(connected)).clone())
    }

    /// The time of a call, unless the attempts would be too many.
    fn between_attempts(&self) -> Duration {
        self.timeouts.call.max(self.timeouts.connect / MOST_ATTEMPTS)
    }

    /// Connects, and waits for the first reply: that a connection is open may only mean that nobody has
    /// noticed that nothing passes.
    fn attempt(&self, begun: Instant) -> Attempt {
        let (endpoint, options) = (self.endpoint.clone(), self.options.clone());
        let connecting = async move {
            let client = etcd_client::Client::connect([endpoint], options).await?;
            let read = GetOptions::new().with_serializable().with_keys_only();
            match client.kv_client().get("allora", Some(read)).await {
                Err(cause) if may_succeed_elsewhere(&cause) => Err(cause),
                // A refusal is a reply, too: the call will have its own.
                _ => Ok(client),
            }
        };
        let connected = tokio::time::timeout(self.timeouts.connect, connecting);
        connected.map(move |connected| (begun, connected.ok())).boxed()
    }
}

/// Exchanges of one request that run at the same time: each waits for the members' disks. The next
/// one is prepared while those before it are under way.
pub(crate) struct Pipeline<F: Future, T> {
    under_way: FuturesOrdered<F>,
    replies: Vec<T>,
}

impl<T, F: Future<Output = Result<T>>> Pipeline<F, T> {
    pub(crate) fn new() -> Self {
        Self { under_way: FuturesOrdered::new(), replies: Vec::new() }
    }

    /// Adds an exchange that has started. Waits for an earlier one if too many are under way.
    pub(crate) async fn push(&mut self, started: F) -> Result {
        self.under_way.push_back(started);
        if self.under_way.len() >= CONCURRENT_EXCHANGES {
            self.replies.extend(self.under_way.try_next().await?);
        }
        Ok(())
    }

    /// All replies, in the order of the exchanges.
    pub(crate) async fn replies(mut self) -> Result<Vec<T>> {
        while let Some(reply) = self.under_way.try_next().await? {
            self.replies.push(reply);
        }
        Ok(self.replies)
    }
}

/// The keys and values of a client, without the driver's limit of 4 MiB for a reply.
pub(crate) fn kv(client: &etcd_client::Client) -> etcd_client::KvClient {
    client.kv_client().max_decoding_message_size(MAX_REPLY)
}

/// The replies to the reads of a transaction.
pub(crate) fn gets(reply: &TxnResponse) -> Vec<GetResponse> {
    let get = |op| match op {
        TxnOpResponse::Get(get) => Some(get),
        _ => None,
    };
    reply.op_responses().into_iter().filter_map(get).collect()
}

/// The driver's monotonic clock.
#[expect(clippy::disallowed_methods, reason = "a session is renewed on the driver's own thread")]
pub(crate) fn monotonic_now() -> Instant {
    Instant::now()
}

/// Waits on the driver's thread.
#[expect(clippy::disallowed_methods, reason = "a session is renewed on the driver's own thread")]
pub(crate) async fn sleep(duration: Duration) {
    tokio::time::sleep(duration).await;
}

fn own_thread() -> Result<(Handle, oneshot::Sender<()>)> {
    let failed = |cause: std::io::Error| {
        let text = "the thread that talks to etcd cannot be started";
        Error::new(ErrorKind::Other, text).op("connect").source(cause)
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
