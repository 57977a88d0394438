//! Changing registers: read what a majority holds, let core's functions decide, have a majority
//! accept it.

use super::{
    Inner,
    ballot::{Ballot, DIGITS},
    proposer::{Reply, committed, majority, prepared, quiet},
    register::Register,
    round::{Clock, Heard},
    scripts::{ACCEPT, PEEK, PREPARE},
};
use allora_core::{
    Error, Kind, Result, Time,
    backend::Now,
    record::{Record, codec},
};
use std::{
    sync::{Arc, LazyLock},
    time::Duration,
};

/// How many jobs share a message: a script with more would keep other clients waiting.
const BATCH: usize = 500;
/// How long duelling nodes wait at most, before they try again.
const LONGEST_PAUSE: Duration = Duration::from_millis(500);
/// For which part of a deadline a ballot that is under way is waited for, before it is overtaken:
/// longer than its node waits for the last clock.
const COURTESY: u32 = 4;
/// How many deadlines an operation may take before its outcome is called unknown.
const PATIENCE: u32 = 40;

/// The record of one job while its change is decided.
pub(crate) enum Slot<'a> {
    /// What is there, if anything.
    Sound(&'a mut Option<Record>),
    /// Something that cannot be read; it stays as it is.
    Parked(&'a str),
}

/// What came of a change, and by which time it was decided.
pub(crate) struct Done<T> {
    pub(crate) now: Option<Time>,
    pub(crate) answers: Vec<T>,
}

/// Bytes as servers keep them: no bytes are no record.
type Value = Vec<u8>;

/// What a decision comes to.
struct Draft<T> {
    value: Value,
    answer: T,
    is_changed: bool,
}

impl Inner {
    /// Gives `work` the record of each job, and has a majority accept what it makes of them.
    /// `work` may run several times; what the last run answered is what happened. `is_likely` tells
    /// whether it probably changes the record: then no time is lost with looking first.
    ///
    /// The jobs must be distinct.
    pub(crate) async fn change<T>(
        self: &Arc<Self>,
        jobs: &[&str],
        now: Now,
        is_likely: impl Fn(usize) -> bool,
        work: impl Fn(usize, Slot<'_>, Clock) -> T,
    ) -> Result<Done<T>> {
        let mut done = Done { now: None, answers: Vec::with_capacity(jobs.len()) };
        for (number, batch) in jobs.chunks(BATCH).enumerate() {
            let first = number * BATCH;
            let part = Change { inner: self, jobs: batch, now };
            let likely: Vec<bool> = (0..batch.len()).map(|i| is_likely(first + i)).collect();
            let part = part.run(&likely, |i, slot, clock| work(first + i, slot, clock)).await?;
            done.now = done.now.max(part.now);
            done.answers.extend(part.answers);
        }
        Ok(done)
    }
}

struct Change<'a> {
    inner: &'a Arc<Inner>,
    jobs: &'a [&'a str],
    now: Now,
}

impl Change<'_> {
    async fn run<T>(
        &self,
        likely: &[bool],
        work: impl Fn(usize, Slot<'_>, Clock) -> T,
    ) -> Result<Done<T>> {
        let began = self.inner.runtime.now();
        let era = loop {
            let time = self.inner.runtime.now() - began;
            match self.inner.need_era().await {
                Err(error)
                    if error.kind() == Kind::Unavailable
                        && time < self.inner.deadline * PATIENCE =>
                {
                    self.inner.pause(LONGEST_PAUSE).await;
                }
                era => break era?,
            }
        };
        let mut answers: Vec<Option<T>> = (0..self.jobs.len()).map(|_| None).collect();
        let mut decided = None;
        let (mut lost, mut waited) = (0_u32, 0_u32);
        let mut unsettled = None;
        loop {
            let try_began = self.inner.runtime.now();
            let mut last = None;
            let open: Vec<usize> = (0..answers.len()).filter(|i| answers[*i].is_none()).collect();
            // After a lost duel somebody else has probably done it. And whose votes change nothing
            // would, voting all the time, hold up those that do.
            let (mut vote, look): (Vec<usize>, Vec<usize>) = open
                .into_iter()
                .partition(|i| lost == 0 && likely[*i] && !self.inner.vain.has(self.jobs[*i]));
            if !look.is_empty() {
                let (heard, clock, seen) = self.look(&era, &look).await?;
                for (i, value) in look.into_iter().zip(seen) {
                    let Some(value) = value else {
                        // Somebody is about to change it: overtaken, both would begin again.
                        let since = *unsettled.get_or_insert(try_began);
                        if try_began - since >= self.inner.deadline / COURTESY {
                            vote.push(i);
                        }
                        continue;
                    };
                    match self.decide(i, &value, clock, &work) {
                        Some(draft) if !draft.is_changed => {
                            answers[i] = Some(draft.answer);
                            decided = decided.max(clock.map(|clock| clock.now));
                        }
                        _ => vote.push(i),
                    }
                }
                last = Some(heard);
            }
            waited += 1;
            if !vote.is_empty() {
                (lost, waited, unsettled) = (lost + 1, 0, None);
                let (heard, clock, won) = self.vote(&era, &vote, &work).await?;
                for (i, answer) in won {
                    answers[i] = Some(answer);
                    decided = decided.max(clock.map(|clock| clock.now));
                }
                last = Some(heard);
            }
            if answers.iter().all(Option::is_some) {
                let answers = answers.into_iter().flatten().collect();
                return Ok(Done { now: decided, answers });
            }
            let now = self.inner.runtime.now();
            if now - began >= self.inner.deadline * PATIENCE {
                return Err(match last {
                    Some(heard) if heard.replies.len() < self.quorum() => {
                        self.inner.too_few(&heard)
                    }
                    _ => Error::new(Kind::Unavailable, "other nodes changed the same jobs first"),
                });
            }
            // Of several that duel, the one that waits less is done before the next one wakes up.
            let round_trips = (now - try_began).max(Duration::from_millis(1));
            let longer = if waited > 0 { waited } else { lost };
            let most = round_trips.saturating_mul(1 << longer.min(10)).min(LONGEST_PAUSE);
            self.inner.pause(most).await;
        }
    }

    fn quorum(&self) -> usize {
        majority(self.inner.servers.len())
    }

    /// What is at rest, of each job: `Some(value)`, or `None` where only a ballot can tell.
    async fn look(
        &self,
        era: &str,
        jobs: &[usize],
    ) -> Result<(Heard, Option<Clock>, Vec<Option<Value>>)> {
        let mut args = vec![era.as_bytes().to_vec()];
        args.extend(jobs.iter().map(|i| self.jobs[*i].as_bytes().to_vec()));
        let heard = self.ask(&PEEK, args, true).await?;
        let registers = registers(&heard, jobs.len());
        let at_rest = |replies: &Vec<Reply<Register<Value>>>| {
            Some(quiet(replies, self.quorum())?.cloned().unwrap_or_default())
        };
        let seen = registers.iter().map(at_rest).collect();
        let clock = self.clock(&heard);
        Ok((heard, clock, seen))
    }

    /// One ballot for all these jobs; answers with those that were committed.
    async fn vote<T>(
        &self,
        era: &str,
        jobs: &[usize],
        work: &impl Fn(usize, Slot<'_>, Clock) -> T,
    ) -> Result<(Heard, Option<Clock>, Vec<(usize, T)>)> {
        let ballot = self.inner.next_ballot(self.now);
        let head = vec![era.as_bytes().to_vec(), ballot.to_string().into_bytes()];
        let mut args = head.clone();
        args.extend(jobs.iter().map(|i| self.jobs[*i].as_bytes().to_vec()));
        let heard = self.ask(&PREPARE, args, true).await?;
        let clock = self.clock(&heard);
        let mut drafts = Vec::new();
        let mut args = head;
        for (i, replies) in jobs.iter().zip(registers(&heard, jobs.len())) {
            self.inner.observe(replies.iter().filter_map(|reply| reply.body.promised));
            let Some(value) = prepared(&replies, ballot, self.quorum()) else { continue };
            let value = value.map_or(&[][..], |value| value);
            let Some(draft) = self.decide(*i, value, clock, work) else { continue };
            args.push(self.jobs[*i].as_bytes().to_vec());
            args.push(draft.value);
            drafts.push((*i, draft.is_changed, draft.answer));
        }
        if drafts.is_empty() {
            return Ok((heard, clock, Vec::new()));
        }
        // What was read and not changed is written as well: only then it is a majority's.
        let heard = self.ask(&ACCEPT, args, false).await?;
        let votes = promises(&heard, drafts.len());
        let mut won = Vec::with_capacity(drafts.len());
        for ((i, is_changed, answer), replies) in drafts.into_iter().zip(votes) {
            self.inner.observe(replies.iter().filter_map(|reply| reply.body));
            if committed(&replies, ballot, self.quorum()) {
                self.inner.vain.voted(self.jobs[i], is_changed);
                won.push((i, answer));
            }
        }
        Ok((heard, clock, won))
    }

    /// Asks until a majority has answered as one.
    async fn ask(
        &self,
        script: &'static LazyLock<redis::Script>,
        args: Vec<Vec<u8>>,
        lingers: bool,
    ) -> Result<Heard> {
        let quorum = self.quorum();
        let is_enough = |heard: &Heard| super::proposer::trusted(&heard.replies).count() >= quorum;
        self.inner.ask(script, args, lingers, is_enough).await
    }

    fn clock(&self, heard: &Heard) -> Option<Clock> {
        match self.now {
            Now::At(now) => Some(Clock { now, spread: Duration::ZERO }),
            Now::Store { .. } => heard.clock(),
        }
    }

    fn decide<T>(
        &self,
        i: usize,
        value: &[u8],
        clock: Option<Clock>,
        work: &impl Fn(usize, Slot<'_>, Clock) -> T,
    ) -> Option<Draft<T>> {
        let clock = clock?;
        let mut slot = match codec_decode(value) {
            Ok(slot) => slot,
            Err(reason) => {
                let answer = work(i, Slot::Parked(&reason), clock);
                return Some(Draft { value: value.to_vec(), answer, is_changed: false });
            }
        };
        let answer = work(i, Slot::Sound(&mut slot), clock);
        let new = slot.as_ref().map(codec::encode).unwrap_or_default();
        let is_changed = new != value;
        Some(Draft { value: new, answer, is_changed })
    }
}

fn codec_decode(value: &[u8]) -> Result<Option<Record>, String> {
    if value.is_empty() {
        return Ok(None);
    }
    codec::decode(value).map(Some).map_err(|error| error.to_string())
}

/// Of each job, what the servers said of it. What cannot be read is as if it had not been said.
fn registers(heard: &Heard, jobs: usize) -> Vec<Vec<Reply<Register<Value>>>> {
    per_job(heard, jobs, |body, job| {
        let (promised, accepted) = (body.get(2 * job)?, body.get(2 * job + 1)?);
        register(promised, accepted)
    })
}

/// A register as servers keep it.
pub(crate) fn register(promised: &[u8], accepted: &[u8]) -> Option<Register<Value>> {
    let accepted = match accepted {
        [] => None,
        _ => {
            let (ballot, value) = accepted.split_at_checked(DIGITS)?;
            Some((Ballot::parse(ballot)?, value.to_vec()))
        }
    };
    Some(Register { promised: ballot(promised)?, accepted })
}

/// Of each job, what the servers had promised.
fn promises(heard: &Heard, jobs: usize) -> Vec<Vec<Reply<Option<Ballot>>>> {
    per_job(heard, jobs, |body, job| ballot(body.get(job)?))
}

/// `Some(None)` for no bytes.
fn ballot(text: &[u8]) -> Option<Option<Ballot>> {
    if text.is_empty() { Some(None) } else { Ballot::parse(text).map(Some) }
}

fn per_job<T>(
    heard: &Heard,
    jobs: usize,
    read: impl Fn(&[Vec<u8>], usize) -> Option<T>,
) -> Vec<Vec<Reply<T>>> {
    let of = |job| {
        let read = |reply: &Reply<Vec<Vec<u8>>>| {
            let body = read(&reply.body, job)?;
            Some(Reply { from: reply.from, seal: reply.seal, body })
        };
        heard.replies.iter().filter_map(read).collect()
    };
    (0..jobs).map(of).collect()
}
