//! One message to all servers, and the answers that are worth waiting for.

use super::{
    Inner,
    proposer::{Reply, majority, medians, trusted},
    scripts::{HELLO, Said},
    server::Fault,
};
use allora_core::{Error, Kind, Result, Time};
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

/// Every answer to one message.
#[derive(Debug)]
pub(crate) struct Heard {
    pub(crate) replies: Vec<Reply<Vec<Vec<u8>>>>,
    /// The clock beside each reply, in microseconds.
    clocks: Vec<i64>,
    /// Servers that remember nothing.
    pub(crate) blank: Vec<usize>,
    /// Servers that did not answer, and why.
    pub(crate) faults: Vec<(usize, Fault)>,
    /// Somebody initialised the quorum anew.
    is_other_era: bool,
    /// A server, and what it was told it belongs to.
    misplaced: Option<(usize, String)>,
}

/// What the servers' clocks say.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    /// The lower median.
    pub(crate) now: Time,
    /// From there to the upper one.
    pub(crate) spread: Duration,
}

type Answer = (usize, Result<Said, Fault>);

impl Inner {
    /// Asks all servers that are well, and all if these are too few. Answers come back when
    /// `is_enough`; with `lingers`, the last ones are waited for a little longer, for their clocks.
    pub(crate) async fn ask(
        self: &Arc<Self>,
        script: &'static LazyLock<Script>,
        args: Vec<Vec<u8>>,
        lingers: bool,
        mut is_enough: impl FnMut(&Heard) -> bool,
    ) -> Result<Heard> {
        let n = self.servers.len();
        let well: Vec<usize> = (0..n).filter(|i| self.servers[*i].is_well()).collect();
        let asked = if well.len() < majority(n) { (0..n).collect() } else { well };
        self.try_the_others(&asked);
        let args = Arc::new(args);
        let calls: FuturesUnordered<BoxFuture<'static, Answer>> =
            asked.iter().map(|i| self.clone().call(*i, script, args.clone()).boxed()).collect();
        let mut calls = calls;
        let mut heard = Heard {
            replies: Vec::with_capacity(n),
            clocks: Vec::with_capacity(n),
            blank: Vec::new(),
            faults: Vec::new(),
            is_other_era: false,
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
            heard.add(from, answer);
            if grace.is_none() && is_enough(&heard) {
                if !lingers {
                    break;
                }
                grace = Some(self.runtime.sleep_until(self.runtime.now() + self.deadline / 10));
            }
        }
        if !calls.is_empty() {
            // That they do not answer is to be noticed, but not to be waited for.
            self.runtime.spawn(calls.for_each(async |_| {}).boxed());
        }
        for k in &heard.blank {
            self.admit_soon(*k);
        }
        self.check(&heard)?;
        Ok(heard)
    }

    async fn call(
        self: Arc<Self>,
        i: usize,
        script: &'static LazyLock<Script>,
        args: Arc<Vec<Vec<u8>>>,
    ) -> Answer {
        (i, self.call_one(i, script, &args).await)
    }

    /// Calls an admitted server's script; `args` are those after place and era, or all of them if
    /// they begin with an empty one.
    pub(crate) async fn call_one(
        &self,
        i: usize,
        script: &'static LazyLock<Script>,
        args: &[Vec<u8>],
    ) -> Result<Said, Fault> {
        let mut all = Vec::with_capacity(args.len() + 1);
        all.push(self.places[i].clone().into_bytes());
        all.extend_from_slice(args);
        self.servers[i].call(&*self.runtime, self.deadline, script, &self.key, &all).await
    }

    /// Tries those that have failed and have rested, without waiting for them.
    fn try_the_others(self: &Arc<Self>, asked: &[usize]) {
        let now = self.runtime.now();
        for i in (0..self.servers.len()).filter(|i| !asked.contains(i)) {
            if self.servers[i].is_to_be_tried(now) {
                let inner = self.clone();
                let trial = async move {
                    let said = inner.call_one(i, &HELLO, &[Vec::new()]).await;
                    if matches!(said, Ok(Said::Blank)) {
                        inner.admit_soon(i);
                    }
                };
                self.runtime.spawn(trial.boxed());
            }
        }
    }

    /// Admits a blank server in the background, unless that is under way.
    pub(crate) fn admit_soon(self: &Arc<Self>, k: usize) {
        if self.era().is_none() || !self.servers[k].claim_admission() {
            return;
        }
        let inner = self.clone();
        let admission = async move {
            // Other nodes have noticed as well: the first one does it for all.
            inner.pause(Duration::from_millis(100)).await;
            let _ = inner.admit(k).await;
            inner.servers[k].is_being_admitted.store(false, Ordering::Release);
        };
        self.runtime.spawn(admission.boxed());
    }

    /// Waits for a random part of this time.
    pub(crate) async fn pause(&self, most: Duration) {
        let part = self.runtime.random() >> 32;
        let wait = most.mul_f64(part as f64 / f64::from(u32::MAX));
        self.runtime.sleep_until(self.runtime.now() + wait).await;
    }

    fn check(&self, heard: &Heard) -> Result {
        if let Some((i, told)) = &heard.misplaced {
            let address = &self.servers[*i].address;
            let place = &self.places[*i];
            return Err(Error::invalid(format!(
                "{address} belongs to another quorum, or to another place in it: it is {told:?}, \
                 and was given as {place:?}; give every node the same servers in the same order"
            )));
        }
        if heard.is_other_era {
            self.forget_era();
            let anew = "the quorum was initialised anew; ask again";
            return Err(Error::new(Kind::Unavailable, anew));
        }
        Ok(())
    }

    /// Why a majority could not be had.
    pub(crate) fn too_few(&self, heard: &Heard) -> Error {
        let n = self.servers.len();
        let mut said = format!("fewer than {} of {n} servers answered as one", majority(n));
        for (i, fault) in &heard.faults {
            said += &format!("; {}: {fault}", self.servers[*i].address);
        }
        for i in &heard.blank {
            said += &format!("; {} is empty and not admitted yet", self.servers[*i].address);
        }
        Error::new(Kind::Unavailable, said)
    }
}

impl Heard {
    fn add(&mut self, from: usize, answer: Result<Said, Fault>) {
        match answer {
            Ok(Said::Sealed { seal, clock, body }) => {
                self.replies.push(Reply { from, seal, body });
                self.clocks.push(clock);
            }
            Ok(Said::Blank) => self.blank.push(from),
            Ok(Said::Place(told)) => self.misplaced = Some((from, told)),
            Ok(Said::Era) => self.is_other_era = true,
            Ok(Said::Word(_)) => self.faults.push((from, Fault::Garbled)),
            Err(fault) => self.faults.push((from, fault)),
        }
    }

    /// By the clocks of the servers that count; `None` if there is none.
    pub(crate) fn clock(&self) -> Option<Clock> {
        let counted: Vec<usize> = trusted(&self.replies).map(|reply| reply.from).collect();
        let beside = self.replies.iter().zip(&self.clocks);
        let clocks = beside.filter(|(reply, _)| counted.contains(&reply.from));
        let (lower, upper) = medians(clocks.map(|(_, clock)| *clock).collect())?;
        let spread = Duration::from_micros(u64::try_from(upper - lower).unwrap_or(0));
        Some(Clock { now: DateTime::from_timestamp_micros(lower)?, spread })
    }
}
