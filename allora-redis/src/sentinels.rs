//! The primary that sentinels name.
//!
//! All sentinels are asked every second, after every stall, and when the primary refuses or fails.
//! The answer with the highest epoch counts: it is that of the last failover. A primary that it does
//! not name is left at once, even if it still accepts writes. An earlier epoch is followed only when most
//! sentinels insist on it: those that know of the failover may be slow to answer.

use crate::{
    driver::{now, sleep, until},
    epoch::Epoch,
    server::{Failure, Line, Server, is_demoted, is_lost, lock, pipeline, reply_at},
    watcher::Watcher,
};
use futures::future::join_all;
use redis::{ErrorKind, FromRedisValue, Pipeline, RedisError, RedisResult, Value};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

/// The time between two checks of the primary.
const PERIOD: Duration = Duration::from_secs(1);

/// The wait between two checks of a call for another primary.
const PAUSE: Duration = Duration::from_millis(50);

/// The time between two checks while no primary is known, or it fails.
const RETRY: Duration = Duration::from_millis(100);

/// The age of a check after which requests wait for another one.
const MAX_AGE: Duration = Duration::from_secs(3);

/// The host and port of a server.
pub(crate) type Address = (String, u16);

/// Makes a server of its address.
pub(crate) type MakeServer = Box<dyn Fn(&Address) -> RedisResult<Arc<Server>> + Send + Sync>;

pub(crate) struct Sentinels {
    servers: Vec<Arc<Server>>,
    /// Their name for the primary.
    master: String,
    make_primary: MakeServer,
    timeout: Duration,
    primary: Mutex<Option<Primary>>,
    /// The reason why no primary is known.
    failure: Mutex<Option<Failure>>,
    pub(crate) watcher: Watcher,
}

struct Primary {
    server: Arc<Server>,
    address: Address,
    epoch: Epoch,
}

/// The answer of one sentinel.
struct Answer {
    address: Address,
    epoch: u64,
}

impl Sentinels {
    pub(crate) fn new(
        servers: Vec<Arc<Server>>,
        master: &str,
        make_primary: MakeServer,
        timeout: Duration,
    ) -> Self {
        Self {
            servers,
            master: master.to_owned(),
            make_primary,
            timeout,
            primary: Mutex::default(),
            failure: Mutex::default(),
            watcher: Watcher::default(),
        }
    }

    /// Sends these commands to the primary. If that fails and is replaced in the meantime, sends them
    /// to the other one: every script compares what it replaces.
    pub(crate) async fn send(
        &self,
        line: Line,
        commands: &Pipeline,
        end: Instant,
    ) -> Result<Vec<Value>, Failure> {
        // A part of the time is left for the error that names the server.
        let patience = now() + end.saturating_duration_since(now()).mul_f64(0.75);
        let mut server = self.primary(end).await?;
        let (sent, replies) = loop {
            let sent = now();
            let replies = server.send(line, commands, end).await;
            if !replies.as_ref().is_err_and(|failure| is_lost(&failure.cause)) {
                break (sent, replies);
            }
            match self.after(&server, patience).await {
                Some(other) => server = other,
                None => break (sent, replies),
            }
        };
        let refused = |error: &RedisError| is_lost(error) || is_demoted(error);
        let server_error = |reply: &Value| match reply {
            Value::ServerError(error) => refused(&error.clone().into()),
            _ => false,
        };
        match &replies {
            Ok(replies) if replies.iter().any(server_error) => self.watcher.request(),
            Err(failure) if refused(&failure.cause) => self.watcher.request(),
            _ => {}
        }
        // The server, this process or the connection has stalled: another server may be the primary
        // by now, and the reply that of a replaced one.
        if replies.is_ok() && sent.elapsed() > self.timeout / 4 {
            self.watcher.check(end).await;
            if !self.is_primary(&server) {
                let cause = RedisError::from((ErrorKind::Io, "another server is the primary"));
                return Err(Failure { place: Some(server.place.clone()), cause });
            }
        }
        replies
    }

    /// The primary, by a check that is not old.
    pub(crate) async fn primary(&self, end: Instant) -> Result<Arc<Server>, Failure> {
        let recent = now().checked_sub(MAX_AGE);
        if recent.is_some_and(|since| !self.watcher.has_checked_since(since)) {
            self.watcher.check_since(recent.unwrap_or_else(now), end).await;
        }
        if let Some(server) = self.known() {
            return Ok(server);
        }
        self.watcher.check(end).await;
        let none = || RedisError::from((ErrorKind::Io, "no sentinel has answered yet")).into();
        self.known().ok_or_else(|| lock(&self.failure).clone().unwrap_or_else(none))
    }

    /// The primary that takes the place of this one, which fails; `None` if there is none in time.
    async fn after(&self, failing: &Arc<Server>, end: Instant) -> Option<Arc<Server>> {
        while now() < end {
            self.watcher.check(end).await;
            if let Some(other) = self.known().filter(|known| !Arc::ptr_eq(known, failing)) {
                return Some(other);
            }
            sleep(PAUSE).await;
        }
        None
    }

    fn known(&self) -> Option<Arc<Server>> {
        lock(&self.primary).as_ref().map(|primary| primary.server.clone())
    }

    fn is_primary(&self, server: &Arc<Server>) -> bool {
        lock(&self.primary).as_ref().is_some_and(|primary| Arc::ptr_eq(&primary.server, server))
    }

    /// Follows the sentinels for ever.
    pub(crate) async fn follow(self: Arc<Self>) {
        loop {
            let begun = now();
            let wait = self.check().await;
            self.watcher.checked(begun, wait).await;
        }
    }

    /// Asks the sentinels once. Returns the time to the next check.
    async fn check(&self) -> Duration {
        // One that hangs has a fraction of the time.
        let end = now() + self.timeout / 4;
        let answers = join_all(self.servers.iter().map(|server| self.ask(server, end))).await;
        let (answers, failures): (Vec<_>, Vec<_>) = answers.into_iter().partition(Result::is_ok);
        let answers: Vec<Answer> = answers.into_iter().flatten().collect();
        let count = answers.len();
        let Some(best) = answers.into_iter().max_by_key(|answer| answer.epoch) else {
            // The reason that an operator can do something about comes first.
            let mut failures: Vec<Failure> = failures.into_iter().filter_map(Result::err).collect();
            failures.sort_by_key(|failure| is_lost(&failure.cause));
            *lock(&self.failure) = failures.into_iter().next();
            return if self.known().is_some() { PERIOD } else { RETRY };
        };
        {
            let mut primary = lock(&self.primary);
            if let Some(known) = &mut *primary {
                if known.address == best.address {
                    known.epoch.agrees(best.epoch);
                    return if known.server.is_failing() { RETRY } else { PERIOD };
                }
                if !known.epoch.follows(best.epoch, count * 2 > self.servers.len(), now()) {
                    return PERIOD;
                }
                known.server.retire();
                *primary = None;
            }
        }
        match self.connect(&best).await {
            Ok(server) => {
                let Answer { address, epoch } = best;
                let epoch = Epoch::new(epoch);
                *lock(&self.primary) = Some(Primary { server, address, epoch });
                PERIOD
            }
            Err(failure) => {
                *lock(&self.failure) = Some(failure);
                RETRY
            }
        }
    }

    async fn ask(&self, server: &Arc<Server>, end: Instant) -> Result<Answer, Failure> {
        let command = |what: &str| {
            let mut command = redis::cmd("SENTINEL");
            command.arg(what).arg(&self.master);
            command
        };
        // The first command names a new primary before the second one does, which has the epoch.
        let both = pipeline([command("GET-MASTER-ADDR-BY-NAME"), command("MASTER")]);
        let mut replies = server.send(Line::Plain, &both, end).await?;
        let answer = (|| {
            let address = reply_at(&mut replies, 0)?;
            if address == Value::Nil {
                let unknown = (ErrorKind::MasterNameNotFoundBySentinel, "unknown name");
                return Err(RedisError::from(unknown));
            }
            let address = Address::from_redis_value(address)?;
            let state: HashMap<String, String> =
                FromRedisValue::from_redis_value(reply_at(&mut replies, 1)?)?;
            let epoch = state.get("config-epoch").and_then(|epoch| epoch.parse().ok());
            Ok(Answer { address, epoch: epoch.unwrap_or(0) })
        })();
        answer.map_err(|cause| Failure { place: Some(server.place.clone()), cause })
    }

    /// The server, if it is a primary.
    async fn connect(&self, answer: &Answer) -> Result<Arc<Server>, Failure> {
        let server = (self.make_primary)(&answer.address)?;
        let mut info = redis::cmd("INFO");
        info.arg("replication");
        let end = now() + self.timeout / 2;
        let mut replies = server.send(Line::Plain, &pipeline([info]), end).await?;
        let is_primary = until(end, async {
            let info = String::from_redis_value(reply_at(&mut replies, 0)?)?;
            Ok(info.lines().any(|line| line.trim() == "role:master"))
        });
        let failed = |cause| Failure { place: Some(server.place.clone()), cause };
        if !is_primary.await.map_err(failed)? {
            return Err(failed((ErrorKind::Io, "it is not the primary yet").into()));
        }
        Ok(server)
    }
}
