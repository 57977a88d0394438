//! Plans: the commonest takes in the script that reads, everything else between reading and writing.

use crate::{
    Redis,
    hash::ms,
    keys::Shard,
    script::Call,
    store::{CHUNK, Slot, Store, Stored, Work, bytes, decides, number},
};
use allora_core::{
    Backend, Result, Time,
    backend::{
        Act, Answer, Cursor, Deliver, Find, History, Leases, Now, Plan, Reschedule, Rescheduled,
        Schedules, State, Take, Taken, Watch,
    },
    record::{At, Ledger, step},
    time::{end_of_time, from_millis},
};
use async_trait::async_trait;
use futures::future::try_join_all;
use redis::Value;
use std::time::Duration;

const OP: &str = "reschedule";

#[async_trait]
impl Backend for Redis {
    async fn reschedule(&self, request: Reschedule<'_>) -> Result<Rescheduled> {
        let store = &*self.store;
        let names: Vec<&str> = request.plans.iter().map(|plan| plan.name).collect();
        let plans = Plans { request: &request, keeps_history: store.history > 0 };
        let done = store.with(OP, &names, request.node, request.now, &plans).await?;
        if matches!(request.now, Now::Store { .. }) {
            store.forget_unused(plans.is_to_be_confirmed()).await;
        }
        let mut now = done.now;
        let (found, next_due) = match request.find {
            Some(find) => {
                let all = store.find(find, request.now).await?;
                now = now.max(Some(all.now));
                (all.found, all.next_due)
            }
            None => (Vec::new(), None),
        };
        let now = match (now, request.now) {
            (Some(now), _) | (None, Now::At(now)) => now,
            (None, Now::Store { .. }) => {
                let (head, _) = store.read(OP, 0, &[]).await?;
                decides(request.now, head.clock)
            }
        };
        Ok(Rescheduled::new(now, done.answers).found(found, next_due))
    }

    fn namespace(&self) -> &str {
        &self.store.keys.prefix
    }

    fn caveat(&self) -> Option<&str> {
        self.store.caveat
    }

    fn leases(&self) -> Option<&dyn Leases> {
        Some(self)
    }

    fn schedules(&self) -> Option<&dyn Schedules> {
        Some(self)
    }

    fn history(&self) -> Option<&dyn History> {
        (self.store.history > 0).then_some(self as _)
    }

    fn watch(&self) -> Option<&dyn Watch> {
        Some(self)
    }
}

struct Plans<'a> {
    request: &'a Reschedule<'a>,
    keeps_history: bool,
}

impl Work for Plans<'_> {
    type Answer = Answer;

    fn decide(&self, i: usize, slot: Slot<'_>, at: At<'_>, ledger: &mut Ledger) -> Answer {
        let plan: &Plan<'_> = &self.request.plans[i];
        match slot {
            Slot::Sound(record) => step(record, plan, at, ledger),
            Slot::Parked { reason, .. } => {
                Answer::State(Box::new(State::parked(plan.name, reason)))
            }
        }
    }

    fn fresh_until(&self, i: usize) -> Option<Time> {
        match &self.request.plans[i].act {
            Act::Take(take) => take.fresh_until,
            _ => None,
        }
    }

    fn at_once<'s>(
        &self,
        store: &'s Store,
        shard: &Shard,
        jobs: &[Vec<usize>],
    ) -> Option<Call<'s>> {
        if self.keeps_history {
            // The history is written in the same step as the record.
            return None;
        }
        let clock = clock(self.request.now)?;
        let takes = jobs.iter().map(|positions| match positions.as_slice() {
            [i] => Simple::of(&self.request.plans[*i]),
            _ => None,
        });
        let takes: Vec<Option<Simple>> = takes.collect();
        if takes.iter().all(Option::is_none) {
            return None;
        }
        let names = jobs.iter().map(|positions| self.request.plans[positions[0]].name);
        let keys: Vec<String> =
            std::iter::once(shard.state()).chain(names.map(|name| shard.job(name))).collect();
        let mut call = Call::new(&store.scripts.take, &keys);
        call.arg(clock).arg(self.request.node).arg(store.token());
        call.arg(shard.due("")).arg(shard.job("").len()).arg(ms(end_of_time()));
        for take in takes {
            match take {
                Some(take) => take.args(&mut call),
                None => call.empty(8),
            }
        }
        Some(call)
    }

    fn was_done(&self, i: usize, said: &str) -> Option<Answer> {
        let Act::Take(take) = &self.request.plans[i].act else { return None };
        let mut words = said.split(' ').map(|word| word.parse::<i64>().ok());
        let (fence, until, incarnation) = (words.next()??, words.next()??, words.next()??);
        let mut taken = Taken::new(take.start.clone(), fence, incarnation);
        taken.until = Some(from_millis(until)?);
        Some(Answer::Taken(taken))
    }

    fn is_to_be_confirmed(&self) -> bool {
        self.request.plans.iter().any(|plan| matches!(plan.act, Act::Take(_)))
    }
}

/// The clock as the scripts take it: nothing for the server's own. `None` for one that they cannot
/// count with.
pub(crate) fn clock(now: Now) -> Option<String> {
    match now {
        Now::Store { .. } => Some(String::new()),
        // Lua's numbers are whole up to there.
        Now::At(at) => {
            let us = at.timestamp_micros();
            let whole = at.timestamp_subsec_nanos().is_multiple_of(1_000);
            (whole && (0..1 << 52).contains(&us)).then(|| us.to_string())
        }
    }
}

/// A take of the cursor's occurrence itself.
struct Simple {
    claim: u128,
    fence: i64,
    expected: i64,
    then: Option<(i64, i64)>,
    /// Microseconds.
    fresh: Option<i64>,
    /// Microseconds.
    lasts: i64,
    leased: bool,
}

impl Simple {
    fn of(plan: &Plan<'_>) -> Option<Self> {
        let Act::Take(take) = &plan.act else { return None };
        let Take { claim, fence, expected, start, passed, fresh_until, deliver, .. } = take;
        if start != expected || passed.is_some() || expected.trigger.is_some() {
            return None;
        }
        let (then, lasts, leased) = match *deliver {
            Deliver::AtMostOnce { then: Cursor::To(then), mark: Some(mark) } => {
                (then, mark.lasts, false)
            }
            Deliver::AtMostOnce { .. } => return None,
            Deliver::AtLeastOnce { lease } => (None, lease, true),
        };
        if then.is_some_and(|then| then.at <= expected.at) {
            return None;
        }
        let then = match then {
            None => None,
            Some(then) => Some((whole(then.at)?, whole(then.due_at)?)),
        };
        let fresh = match fresh_until {
            None => None,
            Some(until) => Some(until.timestamp_micros()).filter(|us| *us < 1 << 52).map(Some)?,
        };
        Some(Self {
            claim: *claim,
            fence: *fence,
            expected: whole(expected.at)?,
            then,
            fresh,
            lasts: micros(lasts)?,
            leased,
        })
    }

    fn args(&self, call: &mut Call<'_>) {
        call.arg(format!("{:032x}", self.claim)).arg(self.fence).arg(self.expected);
        match self.then {
            Some((at, due_at)) => call.arg(at).arg(due_at),
            None => call.arg("-").arg("-"),
        };
        match self.fresh {
            Some(fresh) => call.arg(fresh),
            None => call.arg(""),
        };
        call.arg(self.lasts).arg(u8::from(self.leased));
    }
}

/// Milliseconds of an instant that is whole ones, and not before 1970.
pub(crate) fn whole(at: Time) -> Option<i64> {
    at.timestamp_subsec_nanos().is_multiple_of(1_000_000).then(|| ms(at)).filter(|ms| *ms >= 0)
}

/// Microseconds of a time that is whole ones, as far as Lua can count with it.
pub(crate) fn micros(lasts: Duration) -> Option<i64> {
    let whole = lasts.subsec_nanos().is_multiple_of(1_000);
    i64::try_from(lasts.as_micros()).ok().filter(|us| whole && *us < 1 << 52)
}

/// What was looked for.
struct Found {
    now: Time,
    found: Vec<State>,
    next_due: Option<Time>,
}

/// The most that is looked for at once in one shard: others wait for it.
const MOST: usize = 10 * CHUNK;

impl Store {
    /// The stored schedules looked for, the earliest first, and when the next one wants attention.
    async fn find(&self, find: Find<'_>, now: Now) -> Result<Found> {
        let mut kinds = find.kinds.to_vec();
        kinds.sort_unstable();
        kinds.dedup();
        let limit = find.limit.min(MOST);
        // An index entry is whole milliseconds: it is before `until` if it is before this.
        let until = (find.until + chrono::TimeDelta::nanoseconds(999_999)).timestamp_millis();
        let shards = self.keys.all().map(|(i, shard)| {
            let kinds = &kinds;
            async move { self.find_in(i, &shard, kinds, until, limit).await.map(|found| (i, found)) }
        });
        let mut entries = Vec::new();
        let (mut clock, mut next) = (0, None);
        for (shard, (head, found, beyond)) in try_join_all(shards).await? {
            clock = clock.max(head);
            next = earlier(next, beyond);
            entries.extend(found.into_iter().map(|entry| (shard, entry)));
        }
        entries.sort_by(|(_, a), (_, b)| (a.at, &a.stored.name).cmp(&(b.at, &b.stored.name)));
        if let Some((_, beyond)) = entries.get(limit) {
            next = earlier(next, Some(beyond.at));
        }
        entries.truncate(limit);
        let mut found = Vec::with_capacity(entries.len());
        for (shard, entry) in entries {
            let expected = entry.stored.record.as_ref().and_then(|record| {
                let record = record.as_ref().ok()?;
                record.notice_at().filter(|_| record.kind == entry.kind)
            });
            if expected.map(ms) != Some(entry.at) {
                // Shown once here, and from then on by lists: what cannot be read must not stand
                // before others for ever. Nor must an entry of which nobody knows any more.
                self.mend(shard, &entry, expected.map(ms)).await?;
            }
            if expected.is_some() || matches!(entry.stored.record, Some(Err(_))) {
                found.extend(entry.stored.state());
            }
        }
        let now = decides(now, clock);
        Ok(Found { now, found, next_due: next.and_then(from_millis) })
    }

    async fn find_in(
        &self,
        i: u32,
        shard: &Shard,
        kinds: &[&str],
        until: i64,
        limit: usize,
    ) -> Result<(i64, Vec<Entry>, Option<i64>)> {
        let keys: Vec<String> = std::iter::once(shard.state())
            .chain(kinds.iter().map(|kind| shard.due(kind)))
            .collect();
        let mut call = Call::new(&self.scripts.find, &keys);
        call.arg("").arg(until).arg(limit).arg(shard.job(""));
        let (head, values) = self.call(OP, i, &call).await?;
        let mut found = Vec::with_capacity(values.len());
        let mut next = None;
        for value in values {
            match value {
                Value::BulkString(at) => next = number(&at),
                Value::Array(entry) => {
                    let entry = Entry::new(entry, kinds).ok_or_else(|| self.odd(OP))?;
                    found.push(entry);
                }
                _ => return Err(self.odd(OP)),
            }
        }
        Ok((head.clock, found, next))
    }

    /// Puts an entry of the index right, or takes it out, if it still is what was read.
    async fn mend(&self, shard: u32, entry: &Entry, right: Option<i64>) -> Result {
        let key = self.keys.shard(shard).due(&entry.kind);
        let mut call = Call::new(&self.scripts.mend, &[key]);
        call.arg(&entry.stored.name).arg(entry.at);
        match right {
            Some(right) => call.arg(right),
            None => call.arg(""),
        };
        self.link.call(&call).await.map_err(|cause| self.failed(OP, cause))?;
        Ok(())
    }
}

/// One entry of the due index and the job that it names.
struct Entry {
    at: i64,
    kind: String,
    stored: Stored,
}

impl Entry {
    fn new(values: Vec<Value>, kinds: &[&str]) -> Option<Self> {
        let mut values = values.into_iter();
        let at = number(&bytes(values.next()?)?)?;
        let name = String::from_utf8(bytes(values.next()?)?).ok()?;
        let Value::Int(kind) = values.next()? else { return None };
        let kind = (*kinds.get(usize::try_from(kind).ok()?)?).to_owned();
        Some(Self { at, kind, stored: Stored::new(&name, values.next()?) })
    }
}

fn earlier(a: Option<i64>, b: Option<i64>) -> Option<i64> {
    a.into_iter().chain(b).min()
}
