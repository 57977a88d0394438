//! Changing registers: read what a majority holds, let core's functions decide, have a majority
//! accept it.

use super::{
    ballot::{Ballot, DIGITS},
    inner::Inner,
    proposer::{Reply, committed, majority, prepared, stable},
    register::Register,
    round::{Clock, Responses},
    scripts::{ACCEPT, PEEK, PREPARE},
};
use allora_core::{
    Error, ErrorKind, Result, Time,
    backend::{Reply as OperationReply, TimeSource},
    record::{Record, codec},
};
use std::{
    collections::HashMap,
    sync::{Arc, LazyLock},
    time::Duration,
};

/// The most jobs in one message. A longer script would block other clients of the server.
const BATCH: usize = 500;
/// The longest wait of contending nodes before they try again.
const LONGEST_PAUSE: Duration = Duration::from_millis(500);
/// The part of a deadline (1/n) for which a read waits for another node's ballot before it
/// overtakes it. It is longer than that node waits for the last clock.
const CONTENTION_WAIT: u32 = 4;
/// The most deadlines that an operation takes before its outcome is reported as unknown.
const MAX_DEADLINES: u32 = 40;

/// The record of one job while operations are applied to it.
pub(crate) struct Slot {
    /// The record, if there is one that can be read. What is stored stays while it is `None`.
    pub(crate) record: Option<Record>,
    /// The reason why the stored record cannot be read.
    pub(crate) unreadable: Option<String>,
    /// No fence at or below it is given out.
    pub(crate) min_fence: i64,
}

/// The replies to the operations on one job, by position.
type Replies = Vec<Result<OperationReply>>;

/// The result of a change: the time by which it was decided, and the replies by job.
pub(crate) struct Changed {
    pub(crate) now: Option<Time>,
    pub(crate) replies: Vec<Replies>,
}

/// Bytes as servers store them. No bytes mean no record.
type Value = Vec<u8>;

/// The value that a decision proposes.
struct Draft {
    value: Value,
    replies: Replies,
    is_changed: bool,
}

/// The result of one ballot.
struct Voted {
    responses: Responses,
    clock: Option<Clock>,
    won: Vec<(usize, Replies)>,
    /// The changes that a majority has not accepted. Another node may still commit them.
    lost: Vec<(usize, Replies)>,
}

impl Inner {
    /// Calls `work` with the record of each job, and proposes the result to a majority. `work` may
    /// run several times; the last run's replies are those to what was committed. If the
    /// record probably changes, `is_likely` returns true, and the node votes without reading first.
    ///
    /// The jobs must be distinct.
    pub(crate) async fn change(
        self: &Arc<Self>,
        jobs: &[&str],
        now: TimeSource,
        is_likely: impl Fn(usize) -> bool,
        work: impl Fn(usize, &mut Slot, Clock) -> Replies,
    ) -> Result<Changed> {
        let mut changed = Changed { now: None, replies: Vec::with_capacity(jobs.len()) };
        for (number, batch) in jobs.chunks(BATCH).enumerate() {
            let first = number * BATCH;
            let part = Change { inner: self, jobs: batch, now };
            let likely: Vec<bool> = (0..batch.len()).map(|i| is_likely(first + i)).collect();
            let part = part.run(&likely, |i, slot, clock| work(first + i, slot, clock)).await?;
            changed.now = changed.now.max(part.now);
            changed.replies.extend(part.replies);
        }
        Ok(changed)
    }
}

struct Change<'a> {
    inner: &'a Arc<Inner>,
    jobs: &'a [&'a str],
    now: TimeSource,
}

impl Change<'_> {
    async fn run(
        &self,
        likely: &[bool],
        work: impl Fn(usize, &mut Slot, Clock) -> Replies,
    ) -> Result<Changed> {
        let began = self.inner.runtime.now();
        let cluster_id = loop {
            let time = self.inner.runtime.now() - began;
            match self.inner.require_cluster_id().await {
                Err(error)
                    if error.kind() == ErrorKind::Unavailable
                        && time < self.inner.deadline * MAX_DEADLINES =>
                {
                    self.inner.pause(LONGEST_PAUSE).await;
                }
                cluster_id => break cluster_id?,
            }
        };
        let mut answers: Vec<Option<Replies>> = (0..self.jobs.len()).map(|_| None).collect();
        let mut unconfirmed: HashMap<usize, Replies> = HashMap::new();
        let mut decided = None;
        let (mut lost, mut waited) = (0_u32, 0_u32);
        let mut undecided_since = None;
        loop {
            let try_began = self.inner.runtime.now();
            let mut last = None;
            let open: Vec<usize> = (0..answers.len()).filter(|i| answers[*i].is_none()).collect();
            // After a lost ballot another node has probably made the change: read first. A node
            // whose votes change nothing reads first, too: its votes would delay those that do.
            let (mut vote, look): (Vec<usize>, Vec<usize>) = open.into_iter().partition(|i| {
                lost == 0 && likely[*i] && !self.inner.noop_proposals.contains(self.jobs[*i])
            });
            if !look.is_empty() {
                let (responses, clock, seen) = self.read(&cluster_id, &look).await?;
                for (i, value) in look.into_iter().zip(seen) {
                    let Some(value) = value else {
                        // Another node's change is under way. If it is overtaken, both begin again.
                        let since = *undecided_since.get_or_insert(try_began);
                        if try_began - since >= self.inner.deadline / CONTENTION_WAIT {
                            vote.push(i);
                        }
                        continue;
                    };
                    match self.decide(i, &value, clock, &work) {
                        Some(draft) if !draft.is_changed => {
                            answers[i] = Some(draft.replies);
                            decided = decided.max(clock.map(|clock| clock.now));
                        }
                        _ => vote.push(i),
                    }
                }
                last = Some(responses);
            }
            waited += 1;
            if !vote.is_empty() {
                (lost, waited, undecided_since) = (lost + 1, 0, None);
                let Voted { responses, clock, won, lost } =
                    self.propose(&cluster_id, &vote, &work).await?;
                unconfirmed.extend(lost);
                for (i, replies) in won {
                    answers[i] = Some(replies);
                    decided = decided.max(clock.map(|clock| clock.now));
                }
                last = Some(responses);
            }
            if answers.iter().all(Option::is_some) {
                let replies = answers.into_iter().flatten().enumerate();
                let replies = replies.map(|(i, last)| match unconfirmed.get(&i) {
                    Some(earlier) => judged(self.jobs[i], earlier, last),
                    None => last,
                });
                return Ok(Changed { now: decided, replies: replies.collect() });
            }
            let now = self.inner.runtime.now();
            if now - began >= self.inner.deadline * MAX_DEADLINES {
                return Err(match last {
                    Some(responses) if responses.replies.len() < self.quorum() => {
                        self.inner.too_few(&responses)
                    }
                    _ => Error::new(
                        ErrorKind::Unavailable,
                        "other nodes changed the same jobs first",
                    ),
                });
            }
            // Of several contending nodes, the one that waits less is done before the next one
            // tries.
            let round_trips = (now - try_began).max(Duration::from_millis(1));
            let longer = if waited > 0 { waited } else { lost };
            let most = round_trips.saturating_mul(1 << longer.min(10)).min(LONGEST_PAUSE);
            self.inner.pause(most).await;
        }
    }

    fn quorum(&self) -> usize {
        majority(self.inner.servers.len())
    }

    /// The stable value of each job: `Some(value)`, or `None` where only a ballot can tell.
    async fn read(
        &self,
        cluster_id: &str,
        jobs: &[usize],
    ) -> Result<(Responses, Option<Clock>, Vec<Option<Value>>)> {
        let mut args = vec![cluster_id.as_bytes().to_vec()];
        args.extend(jobs.iter().map(|i| self.jobs[*i].as_bytes().to_vec()));
        let responses = self.ask(&PEEK, args, true).await?;
        let registers = registers(&responses, jobs.len());
        let at_rest = |replies: &Vec<Reply<Register<Value>>>| {
            Some(stable(replies, self.quorum())?.cloned().unwrap_or_default())
        };
        let seen = registers.iter().map(at_rest).collect();
        let clock = self.clock(&responses);
        Ok((responses, clock, seen))
    }

    /// Proposes one ballot for all these jobs.
    async fn propose(
        &self,
        cluster_id: &str,
        jobs: &[usize],
        work: &impl Fn(usize, &mut Slot, Clock) -> Replies,
    ) -> Result<Voted> {
        let ballot = self.inner.next_ballot(self.now);
        let head = vec![cluster_id.as_bytes().to_vec(), ballot.to_string().into_bytes()];
        let mut args = head.clone();
        args.extend(jobs.iter().map(|i| self.jobs[*i].as_bytes().to_vec()));
        let responses = self.ask(&PREPARE, args, true).await?;
        let clock = self.clock(&responses);
        let mut drafts = Vec::new();
        let mut args = head;
        for (i, replies) in jobs.iter().zip(registers(&responses, jobs.len())) {
            self.inner.observe(replies.iter().filter_map(|reply| reply.body.promised));
            let Some(value) = prepared(&replies, ballot, self.quorum()) else { continue };
            let value = value.map_or(&[][..], |value| value);
            let Some(draft) = self.decide(*i, value, clock, work) else { continue };
            args.push(self.jobs[*i].as_bytes().to_vec());
            args.push(draft.value);
            drafts.push((*i, draft.is_changed, draft.replies));
        }
        if drafts.is_empty() {
            return Ok(Voted { responses, clock, won: Vec::new(), lost: Vec::new() });
        }
        // A value that was read and not changed is written as well: only then a majority has it.
        let responses = self.ask(&ACCEPT, args, false).await?;
        let votes = promises(&responses, drafts.len());
        let (mut won, mut lost) = (Vec::with_capacity(drafts.len()), Vec::new());
        for ((i, is_changed, replies), votes) in drafts.into_iter().zip(votes) {
            self.inner.observe(votes.iter().filter_map(|vote| vote.body));
            if committed(&votes, ballot, self.quorum()) {
                self.inner.noop_proposals.record(self.jobs[i], is_changed);
                won.push((i, replies));
            } else if is_changed {
                lost.push((i, replies));
            }
        }
        Ok(Voted { responses, clock, won, lost })
    }

    /// Asks until a majority has replied consistently.
    ///
    /// # Errors
    /// `Unavailable` if a majority is empty: to try again would only hide the reason from a caller
    /// who waits for less time.
    async fn ask(
        &self,
        script: &'static LazyLock<redis::Script>,
        args: Vec<Vec<u8>>,
        lingers: bool,
    ) -> Result<Responses> {
        let quorum = self.quorum();
        let is_enough =
            |responses: &Responses| super::proposer::trusted(&responses.replies).count() >= quorum;
        let responses = self.inner.ask(script, args, lingers, is_enough).await?;
        match self.inner.needs_init(&responses) {
            true => Err(self.inner.too_few(&responses)),
            false => Ok(responses),
        }
    }

    fn clock(&self, responses: &Responses) -> Option<Clock> {
        match self.now {
            TimeSource::Fixed(now) => Some(Clock { now, spread: Duration::ZERO }),
            TimeSource::Store { .. } => responses.clock(),
        }
    }

    fn decide(
        &self,
        i: usize,
        value: &[u8],
        clock: Option<Clock>,
        work: &impl Fn(usize, &mut Slot, Clock) -> Replies,
    ) -> Option<Draft> {
        let clock = clock?;
        let mut slot = Slot::read(value, clock.now);
        let replies = work(i, &mut slot, clock);
        let new = slot.record.as_ref().map_or_else(|| value.to_vec(), codec::encode);
        let is_changed = new != value;
        Some(Draft { value: new, replies, is_changed })
    }
}

impl Slot {
    fn read(value: &[u8], now: Time) -> Self {
        let mut slot = Self { record: None, unreadable: None, min_fence: 0 };
        if value.is_empty() {
            return slot;
        }
        match codec::decode(value) {
            Err(error) => slot.unreadable = Some(error.to_string()),
            // The same as no record.
            Ok(record) if record.is_forgotten(now) => slot.min_fence = record.fence,
            Ok(record) => slot.record = Some(record),
        }
        slot
    }
}

/// The last replies, after an earlier ballot of the same call that a majority had not accepted when
/// it was overtaken. Another node may have committed it: an operation that it applied, and that is
/// an error now, may be in conflict with itself.
fn judged(job: &str, earlier: &Replies, last: Replies) -> Replies {
    let judge = |(earlier, last): (&Result<OperationReply>, Result<OperationReply>)| {
        if earlier.is_ok() && last.is_err() {
            let unknown = format!(
                "other nodes changed {job:?} at the same time, and it is not known whether the \
                 operation was applied; read the job again"
            );
            return Err(Error::new(ErrorKind::Unavailable, unknown));
        }
        last
    };
    earlier.iter().zip(last).map(judge).collect()
}

/// The servers' replies by job. A reply that cannot be read is left out.
fn registers(responses: &Responses, jobs: usize) -> Vec<Vec<Reply<Register<Value>>>> {
    per_job(responses, jobs, |body, job| {
        let (promised, accepted) = (body.get(2 * job)?, body.get(2 * job + 1)?);
        register(promised, accepted)
    })
}

/// Reads a register as servers store it.
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

/// The promises of the servers, by job.
fn promises(responses: &Responses, jobs: usize) -> Vec<Vec<Reply<Option<Ballot>>>> {
    per_job(responses, jobs, |body, job| ballot(body.get(job)?))
}

/// `Some(None)` for no bytes.
fn ballot(text: &[u8]) -> Option<Option<Ballot>> {
    if text.is_empty() { Some(None) } else { Ballot::parse(text).map(Some) }
}

fn per_job<T>(
    responses: &Responses,
    jobs: usize,
    read: impl Fn(&[Vec<u8>], usize) -> Option<T>,
) -> Vec<Vec<Reply<T>>> {
    let of = |job| {
        let read = |reply: &Reply<Vec<Vec<u8>>>| {
            let body = read(&reply.body, job)?;
            Some(Reply { from: reply.from, vector: reply.vector, body })
        };
        responses.replies.iter().filter_map(read).collect()
    };
    (0..jobs).map(of).collect()
}
