//! One message to all servers, and the responses that are waited for.

use super::{
    inner::Inner,
    proposer::{Reply, majority, medians, outdated, trusted},
    scripts::{HANDSHAKE, Response},
    server::Fault,
};
use allora_core::{Error, ErrorKind, Result, Time};
use chrono::DateTime;
use futures::{
    FutureExt, StreamExt,
    future::{BoxFuture, Either, select},
    stream::FuturesUnordered,
};
use redis::Script;
use std::{
    sync::{Arc, LazyLock, atomic::Ordering},
    time::Duration,
};

/// The error of servers of which none has anything.
pub(crate) const NOT_INITIALISED: &str = "these servers are not a quorum yet, or most of them have lost \
     their data: run `allora init` or call `RedisQuorum::init`, once, from one place";

/// All responses to one message.
#[derive(Debug)]
pub(crate) struct Responses {
    pub(crate) replies: Vec<Reply<Vec<Vec<u8>>>>,
    /// The clock beside each reply, in microseconds.
    clocks: Vec<i64>,
    /// Servers that are empty.
    pub(crate) empty: Vec<usize>,
    /// Servers that did not answer, each with the reason.
    pub(crate) faults: Vec<(usize, Fault)>,
    /// The quorum was initialised again.
    is_other_cluster: bool,
    /// A server, and the place stored in it.
    misplaced: Option<(usize, String)>,
}

/// The time by the servers' clocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    /// The lower median.
    pub(crate) now: Time,
    /// The distance to the upper median.
    pub(crate) spread: Duration,
}

type Answer = (usize, Result<Response, Fault>);

impl Inner {
    /// Asks all healthy servers, and all servers if the healthy ones are too few. Returns when
    /// `is_enough`; with `lingers`, it waits a little longer for the last clocks.
    pub(crate) async fn ask(
        self: &Arc<Self>,
        script: &'static LazyLock<Script>,
        args: Vec<Vec<u8>>,
        lingers: bool,
        mut is_enough: impl FnMut(&Responses) -> bool,
    ) -> Result<Responses> {
        let n = self.servers.len();
        let well: Vec<usize> = (0..n).filter(|i| self.servers[*i].is_healthy()).collect();
        let asked = if well.len() < majority(n) { (0..n).collect() } else { well };
        self.probe_failed(&asked);
        let args = Arc::new(args);
        let calls: FuturesUnordered<BoxFuture<'static, Answer>> =
            asked.iter().map(|i| self.clone().call(*i, script, args.clone()).boxed()).collect();
        let mut calls = calls;
        let mut responses = Responses {
            replies: Vec::with_capacity(n),
            clocks: Vec::with_capacity(n),
            empty: Vec::new(),
            faults: Vec::new(),
            is_other_cluster: false,
            misplaced: None,
        };
        let mut grace: Option<BoxFuture<'static, ()>> = None;
        loop {
            let next = match &mut grace {
                None => calls.next().await,
                Some(end) => match select(calls.next(), end).await {
                    Either::Left((next, _)) => next,
                    Either::Right(_) => break,
                },
            };
            let Some((from, answer)) = next else { break };
            responses.add(from, answer);
            if grace.is_none() && is_enough(&responses) {
                if !lingers {
                    break;
                }
                grace = Some(self.runtime.sleep_until(self.runtime.now() + self.deadline / 10));
            }
        }
        if !calls.is_empty() {
            // Their failure must be noticed, but not waited for.
            self.runtime.spawn(calls.for_each(async |_| {}).boxed());
        }
        for k in &responses.empty {
            self.rejoin_soon(*k);
        }
        for k in outdated(&responses.replies) {
            self.raise_soon(k);
        }
        self.check(&responses)?;
        Ok(responses)
    }

    async fn call(
        self: Arc<Self>,
        i: usize,
        script: &'static LazyLock<Script>,
        args: Arc<Vec<Vec<u8>>>,
    ) -> Answer {
        (i, self.call_one(i, script, &args, self.deadline).await)
    }

    /// Calls a script of a member; `args` are those behind the place.
    pub(crate) async fn call_one(
        &self,
        i: usize,
        script: &'static LazyLock<Script>,
        args: &[Vec<u8>],
        deadline: Duration,
    ) -> Result<Response, Fault> {
        let mut all = Vec::with_capacity(args.len() + 1);
        all.push(self.places[i].clone().into_bytes());
        all.extend_from_slice(args);
        self.servers[i].call(&*self.runtime, deadline, script, &self.key, &all).await
    }

    /// Asks failed servers whose pause is over, without waiting for them.
    fn probe_failed(self: &Arc<Self>, asked: &[usize]) {
        let now = self.runtime.now();
        for i in (0..self.servers.len()).filter(|i| !asked.contains(i)) {
            if self.servers[i].is_retry_due(now) {
                let inner = self.clone();
                let trial = async move {
                    let args = [Vec::new()];
                    let response = inner.call_one(i, &HANDSHAKE, &args, inner.deadline).await;
                    if matches!(response, Ok(Response::Empty)) {
                        inner.rejoin_soon(i);
                    }
                };
                self.runtime.spawn(trial.boxed());
            }
        }
    }

    /// Lets an empty server rejoin in the background, unless that is under way.
    pub(crate) fn rejoin_soon(self: &Arc<Self>, k: usize) {
        let inner = self.clone();
        self.repair_soon(k, async move { inner.rejoin(k).await }.boxed());
    }

    /// Raises an outdated incarnation in the background, unless that is under way.
    fn raise_soon(self: &Arc<Self>, k: usize) {
        let inner = self.clone();
        self.repair_soon(k, async move { inner.raise(k).await }.boxed());
    }

    fn repair_soon(self: &Arc<Self>, k: usize, repair: BoxFuture<'static, Result>) {
        if self.cluster_id().is_none() || !self.servers[k].claim_repair() {
            return;
        }
        let inner = self.clone();
        let repair = async move {
            // Other nodes have noticed as well: the first one does it for all.
            inner.pause(Duration::from_millis(100)).await;
            // The next call notices what is still to be done.
            let _ = repair.await;
            inner.servers[k].is_in_repair.store(false, Ordering::Release);
        };
        self.runtime.spawn(repair.boxed());
    }

    /// Waits for a random part of this time.
    pub(crate) async fn pause(&self, most: Duration) {
        let part = self.runtime.random() >> 32;
        let wait = most.mul_f64(part as f64 / f64::from(u32::MAX));
        self.runtime.sleep_until(self.runtime.now() + wait).await;
    }

    fn check(&self, responses: &Responses) -> Result {
        if let Some((i, told)) = &responses.misplaced {
            let address = &self.servers[*i].address;
            let place = &self.places[*i];
            return Err(Error::invalid(format!(
                "{address} belongs to another quorum, or to another place in it: it is {told:?}, \
                 and was given as {place:?}; give every node the same servers in the same order"
            )));
        }
        if responses.is_other_cluster {
            self.forget_cluster_id();
            let anew = "the quorum was initialised anew; try again";
            return Err(Error::new(ErrorKind::Unavailable, anew));
        }
        Ok(())
    }

    /// True if a majority of the servers is empty: no other call succeeds before an initialisation.
    pub(crate) fn needs_init(&self, responses: &Responses) -> bool {
        responses.empty.len() > self.servers.len() - majority(self.servers.len())
    }

    /// The error for a missing majority.
    pub(crate) fn too_few(&self, responses: &Responses) -> Error {
        Error::new(ErrorKind::Unavailable, self.missing(responses))
    }

    /// The reason why there is no majority, and how that ends.
    pub(crate) fn missing(&self, responses: &Responses) -> String {
        let n = self.servers.len();
        if responses.empty.len() == n {
            return NOT_INITIALISED.to_owned();
        }
        let mut message = format!("fewer than {} of {n} servers answered as one", majority(n));
        for (i, fault) in &responses.faults {
            message += &format!("; {}: {fault}", self.servers[*i].address);
        }
        for i in &responses.empty {
            message += &format!("; {} is empty and has not rejoined yet", self.servers[*i].address);
        }
        if self.needs_init(responses) {
            let key = &self.key;
            message += &format!(
                "; a majority has lost its data, and nothing brings it back: delete the key {key:?} on \
                 all servers, then run `allora init` or call `RedisQuorum::init`, once"
            );
        }
        message
    }
}

impl Responses {
    fn add(&mut self, from: usize, answer: Result<Response, Fault>) {
        match answer {
            Ok(Response::Member { vector, clock, body }) => {
                self.replies.push(Reply { from, vector, body });
                self.clocks.push(clock);
            }
            Ok(Response::Empty) => self.empty.push(from),
            Ok(Response::Replica) => self.faults.push((from, Fault::Replica)),
            Ok(Response::Place(told)) => self.misplaced = Some((from, told)),
            Ok(Response::OtherCluster) => self.is_other_cluster = true,
            Ok(Response::Word(_)) => self.faults.push((from, Fault::Unexpected)),
            Err(fault) => self.faults.push((from, fault)),
        }
    }

    /// The number of replies that count.
    pub(crate) fn counted(&self) -> usize {
        trusted(&self.replies).count()
    }

    /// The medians of the clocks of the servers that count; `None` if no server counts.
    pub(crate) fn clock(&self) -> Option<Clock> {
        let counted: Vec<usize> = trusted(&self.replies).map(|reply| reply.from).collect();
        let beside = self.replies.iter().zip(&self.clocks);
        let clocks = beside.filter(|(reply, _)| counted.contains(&reply.from));
        let (lower, upper) = medians(clocks.map(|(_, clock)| *clock).collect())?;
        let spread = Duration::from_micros(u64::try_from(upper - lower).unwrap_or(0));
        Some(Clock { now: DateTime::from_timestamp_micros(lower)?, spread })
    }
}
