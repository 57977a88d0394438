//! Plans, and what is found.

use crate::{
    Redis,
    hash::ms,
    keys::Shard,
    known::{Span, micros},
    script::Call,
    store::{CHUNK, Slot, Store, Stored, Work, bytes, decides, number},
};
use allora_core::{
    Backend, Result, Time,
    backend::{
        Act, Answer, Deliver, Find, History, Leases, Now, Plan, Reschedule, Rescheduled, Schedules,
        State, Watch,
    },
    record::{At, Ledger, Record, step},
    time::from_millis,
};
use async_trait::async_trait;
use futures::future::try_join_all;
use redis::Value;

const OP: &str = "reschedule";

#[async_trait]
impl Backend for Redis {
    async fn reschedule(&self, request: Reschedule<'_>) -> Result<Rescheduled> {
        let store = &*self.store;
        let names: Vec<&str> = request.plans.iter().map(|plan| plan.name).collect();
        let plans = Plans { request: &request };
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

    fn span(&self, i: usize, record: &Record) -> Option<Span> {
        let Act::Take(take) = &self.request.plans[i].act else { return None };
        // Where nothing else is in the way, only the cursor has to be due.
        if take.passed.is_some() || !record.holds.is_empty() {
            return None;
        }
        let lasts = match take.deliver {
            Deliver::AtMostOnce { mark, .. } => mark?.lasts,
            Deliver::AtLeastOnce { lease } => lease,
        };
        Some(Span {
            from: Some(record.cursor?.due_at.max(take.start.at).timestamp_micros()),
            until: take.fresh_until.map(|until| until.timestamp_micros()),
            lasts: Some(micros(lasts)?),
        })
    }

    fn is_to_be_confirmed(&self) -> bool {
        self.request.plans.iter().any(|plan| matches!(plan.act, Act::Take(_)))
    }
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
        // Names lie evenly in the shards.
        let skip = find.skip / self.keys.shards.max(1) as usize;
        let part = Part { until, skip, limit };
        let shards = self.keys.all().map(|(i, shard)| {
            let (kinds, part) = (&kinds, &part);
            async move { self.find_in(i, &shard, kinds, part).await.map(|found| (i, found)) }
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
        let (mut found, mut seen) = (Vec::with_capacity(entries.len()), Vec::new());
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
            seen.extend(entry.stored.known());
        }
        self.remember(seen);
        let now = decides(now, clock);
        Ok(Found { now, found, next_due: next.and_then(from_millis) })
    }

    async fn find_in(
        &self,
        i: u32,
        shard: &Shard,
        kinds: &[&str],
        part: &Part,
    ) -> Result<(i64, Vec<Entry>, Option<i64>)> {
        let keys: Vec<String> = [shard.state(), shard.lines()]
            .into_iter()
            .chain(kinds.iter().map(|kind| shard.due(kind)))
            .collect();
        let mut call = Call::new(&self.scripts.find, &keys);
        call.arg(part.until).arg(part.skip).arg(part.limit).arg(shard.job(""));
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

/// What is read of the due index of each shard: before this millisecond, behind the first `skip`.
struct Part {
    until: i64,
    skip: usize,
    limit: usize,
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
