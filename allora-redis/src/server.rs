//! One server, and the connections to it: opened on first use, and opened again after they failed.

use crate::driver::{now, spawn, timed_out, until};
use futures::{
    FutureExt,
    future::{BoxFuture, Either, Shared, select},
    poll,
};
use redis::{
    AsyncConnectionConfig, Client, Cmd, ErrorKind, Pipeline, RedisError, RedisResult,
    ServerErrorKind, Value,
    aio::{ConnectionLike, MultiplexedConnection},
};
use std::{
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::Poll,
    time::{Duration, Instant},
};
use tokio::sync::watch;

/// A request that failed, or whose outcome is unknown.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    /// The server that failed; `None` if no server was asked.
    pub(crate) place: Option<Arc<str>>,
    pub(crate) cause: RedisError,
}

impl From<RedisError> for Failure {
    fn from(cause: RedisError) -> Self {
        Self { place: None, cause }
    }
}

/// The connection of a request. `WAIT` keeps the requests behind it waiting, so it has its own.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Line {
    Plain = 0,
    Confirming = 1,
}

/// The time after which an attempt to connect is given up. A server that needs longer for a new
/// connection than a request may take would otherwise never be connected to.
const SLOW_ATTEMPT: Duration = Duration::from_secs(60);

/// One server.
pub(crate) struct Server {
    pub(crate) client: Client,
    pub(crate) place: Arc<str>,
    timeout: Duration,
    lines: [Mutex<LineState>; 2],
    /// `true` when another server has taken this one's place.
    retired: watch::Sender<bool>,
}

#[derive(Default)]
struct LineState {
    number: u64,
    conn: Option<MultiplexedConnection>,
    /// The attempt to connect that is under way: it outlives the request that began it.
    attempt: Option<Attempt>,
    /// An attempt that took too long goes on, beside later ones.
    has_slow_attempt: bool,
    /// The last request or attempt failed.
    is_failing: bool,
}

type Attempt = Shared<BoxFuture<'static, RedisResult<(u64, MultiplexedConnection)>>>;

impl Server {
    pub(crate) fn new(client: Client, place: String, timeout: Duration) -> Arc<Self> {
        let (place, retired) = (place.into(), watch::Sender::new(false));
        Arc::new(Self { client, place, timeout, lines: Default::default(), retired })
    }

    /// Another server has taken this one's place: requests to it fail at once.
    pub(crate) fn retire(&self) {
        self.retired.send_replace(true);
    }

    /// Waits until another server has taken this one's place.
    pub(crate) async fn retired(&self) {
        let _ = self.retired.subscribe().wait_for(|retired| *retired).await;
    }

    /// True if its last request failed.
    pub(crate) fn is_failing(&self) -> bool {
        self.lines.iter().any(|line| lock(line).is_failing)
    }

    /// Sends these commands on one connection, one after the other, and returns their replies.
    pub(crate) async fn send(
        self: &Arc<Self>,
        line: Line,
        commands: &Pipeline,
        end: Instant,
    ) -> Result<Vec<Value>, Failure> {
        let sending = pin!(self.send_on(line, commands, end));
        let result = match select(sending, pin!(self.retired())).await {
            Either::Left((result, _)) => result,
            Either::Right(_) => {
                Err(RedisError::from((ErrorKind::Io, "another server has taken its place")))
            }
        };
        result.map_err(|cause| Failure { place: Some(self.place.clone()), cause })
    }

    async fn send_on(
        self: &Arc<Self>,
        line: Line,
        commands: &Pipeline,
        end: Instant,
    ) -> RedisResult<Vec<Value>> {
        let mut was_closed = false;
        loop {
            let (number, mut conn) = self.open(line, end).await?;
            let mut reply = pin!(until(end, conn.req_packed_commands(commands, 0, commands.len())));
            let first = poll!(reply.as_mut());
            let was_sent = first.is_pending();
            let reply = match first {
                Poll::Ready(reply) => reply,
                Poll::Pending => reply.await,
            };
            let mut state = lock(&self.lines[line as usize]);
            let is_lost = reply.as_ref().is_err_and(is_lost);
            // A connection that did not reply once may never reply again.
            if is_lost && state.number == number {
                state.conn = None;
            }
            // The server closes idle connections, and that is no failure. The commands were not sent:
            // the task that would send them is on this thread, and has not run since.
            let is_closed = reply.as_ref().is_err_and(RedisError::is_connection_dropped);
            if was_sent || !is_closed || std::mem::replace(&mut was_closed, true) {
                state.is_failing = is_lost;
                return reply;
            }
        }
    }

    /// The open connection, or that of the attempt that is under way.
    async fn open(
        self: &Arc<Self>,
        line: Line,
        end: Instant,
    ) -> RedisResult<(u64, MultiplexedConnection)> {
        let (attempt, end) = {
            let mut state = lock(&self.lines[line as usize]);
            if let Some(conn) = &state.conn {
                return Ok((state.number, conn.clone()));
            }
            // A server that failed does not keep every request waiting: the attempt goes on.
            let end = if state.is_failing { end.min(now() + self.timeout / 4) } else { end };
            let begin = || self.clone().attempt(line);
            (state.attempt.get_or_insert_with(begin).clone(), end)
        };
        until(end, attempt).await
    }

    fn attempt(self: Arc<Self>, line: Line) -> Attempt {
        let end = now() + self.timeout;
        let attempt = spawn(async move {
            let mut opening = self.clone().opening();
            let opened = tokio::time::timeout_at(end.into(), &mut opening).await;
            let mut state = lock(&self.lines[line as usize]);
            state.attempt = None;
            match opened {
                Ok(opened) => {
                    state.is_failing = opened.is_err();
                    Ok(state.opened(opened?))
                }
                Err(_) => {
                    state.is_failing = true;
                    if !std::mem::replace(&mut state.has_slow_attempt, true) {
                        // It goes on by itself.
                        drop(spawn(self.clone().finish(line, opening)));
                    }
                    Err(timed_out())
                }
            }
        });
        attempt.map(|ended| ended.unwrap_or_else(|_| Err(timed_out()))).boxed().shared()
    }

    /// Opens a connection, within [`SLOW_ATTEMPT`].
    fn opening(self: Arc<Self>) -> BoxFuture<'static, RedisResult<MultiplexedConnection>> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(SLOW_ATTEMPT))
            .set_response_timeout(None);
        async move { self.client.get_multiplexed_async_connection_with_config(&config).await }
            .boxed()
    }

    /// Goes on with an attempt that no request waits for any more.
    async fn finish(
        self: Arc<Self>,
        line: Line,
        opening: BoxFuture<'static, RedisResult<MultiplexedConnection>>,
    ) {
        let opened = until(now() + SLOW_ATTEMPT, opening).await;
        let mut state = lock(&self.lines[line as usize]);
        state.has_slow_attempt = false;
        if let Ok(conn) = opened
            && state.conn.is_none()
        {
            state.is_failing = false;
            state.opened(conn);
        }
    }
}

impl LineState {
    fn opened(&mut self, conn: MultiplexedConnection) -> (u64, MultiplexedConnection) {
        self.number += 1;
        self.conn = Some(conn.clone());
        (self.number, conn)
    }
}

/// The reply to the command at this place, if the server executed it.
pub(crate) fn reply_at(replies: &mut [Value], i: usize) -> RedisResult<Value> {
    replies.get_mut(i).map(|reply| std::mem::replace(reply, Value::Nil)).map_or_else(
        || Err(RedisError::from((ErrorKind::Io, "the server sent too few replies"))),
        Value::extract_error,
    )
}

/// Commands for one connection.
pub(crate) fn pipeline(commands: impl IntoIterator<Item = Cmd>) -> Pipeline {
    let mut all = Pipeline::new();
    for command in commands {
        all.add_command(command);
    }
    all
}

/// True if another connection may succeed: this one is closed, or does not reply.
pub(crate) fn is_lost(error: &RedisError) -> bool {
    match error.kind() {
        ErrorKind::Io | ErrorKind::Parse => true,
        _ => error.is_connection_dropped() || error.is_timeout(),
    }
}

/// True if the server is no longer the primary, or cannot act as one.
pub(crate) fn is_demoted(error: &RedisError) -> bool {
    let is_refusal = |kind| matches!(kind, ServerErrorKind::ReadOnly | ServerErrorKind::MasterDown);
    matches!(error.kind(), ErrorKind::Server(kind) if is_refusal(kind))
        || error.code() == Some("NOREPLICAS")
}

pub(crate) fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}
