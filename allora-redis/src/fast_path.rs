//! The fast path: claims, completions and extensions of cached records are applied by the call that
//! reads the other records of the batch.
//!
//! The update is computed ahead, with the span of time in which it holds; the script fills in the
//! server's time. With a history, it completes the entry of a run that ends in the same way. So a claim
//! and a completion cost one call each.

use crate::{
    cache::{Cache, CachedRecord, SpeculativeUpdate, Validity, micros},
    encoding::{history::SpeculativeEntry, hot_prefix, ms},
    error::copy,
    keys::Shard,
    records::{Write, Written},
    script::Call,
    shards::Part,
    store::{Store, StoredRecord, Version},
};
use allora_core::{
    MAX_NAME, Result, Time,
    backend::{Action, Batch, Cursor, HistoryEntry, Operation, Reply, TimeSource},
    record::{HistoryBuffer, OpContext, Record, apply},
    store::{FastPath, Loaded, Snapshot},
    time::end_of_time,
};
use redis::Value;
use std::{
    collections::{BTreeMap, HashMap, hash_map},
    iter,
    time::Duration,
};

const OP: &str = "reschedule";

/// The operations on one name.
struct Target<'a> {
    name: &'a str,
    /// The position of the first operation.
    first: usize,
    /// The positions of further operations.
    more: Vec<usize>,
}

impl Target<'_> {
    fn positions(&self) -> impl Iterator<Item = usize> + '_ {
        iter::once(self.first).chain(self.more.iter().copied())
    }
}

/// The result for one target.
enum Served {
    Replied { now: Time, reply: Result<Reply>, is_due: bool },
    Loaded(Box<Loaded<Version>>),
}

impl Store {
    pub(crate) async fn fast_path(&self, batch: Batch<'_>) -> Result<FastPath<Version>> {
        let targets = targets(batch.operations);
        let targets = &targets;
        let serve = |Part { shard, which, within }| async move {
            let part: Vec<&Target<'_>> = which.iter().map(|i| &targets[*i]).collect();
            self.serve(shard, &part, batch, within).await
        };
        let names = targets.iter().map(|target| target.name);
        let served = self.call_shards(names, |_| 0, serve).await?;
        let served: Vec<Result<Served>> = served.into_iter().map(Result::flatten).collect();
        let mut fast = FastPath::none();
        fast.replies.reserve(targets.len());
        let (mut loaded, mut min_fence) = (Vec::new(), 0);
        for (target, served) in targets.iter().zip(served) {
            match served {
                Ok(Served::Loaded(record)) => {
                    fast.now = fast.now.max(record.now);
                    min_fence = min_fence.max(record.version.min_fence);
                    loaded.push(*record);
                }
                Ok(Served::Replied { now, reply, is_due }) => {
                    fast.now = fast.now.max(Some(now));
                    fast.replies.push((target.first, reply));
                    fast.due.extend(is_due.then(|| target.name.to_owned()));
                }
                Err(error) => {
                    let others = target.more.iter().map(|i| (*i, Err(copy(&error))));
                    fast.replies.extend(others);
                    fast.replies.push((target.first, Err(error)));
                }
            }
        }
        fast.snapshot = fast.now.map(|now| Snapshot::new(now, loaded).min_fence(min_fence));
        Ok(fast)
    }

    /// Applies the operations on cached records of one shard, and reads the other targets.
    async fn serve(
        &self,
        shard: u32,
        targets: &[&Target<'_>],
        batch: Batch<'_>,
        within: Duration,
    ) -> Result<Vec<Result<Served>>> {
        let keys = self.keys.shard(shard);
        let updates = self.updates(targets, batch);
        let stamp = self.version_stamp();
        let mut call = match updates.is_empty() {
            true => self.read_call(&keys, targets.iter().map(|target| target.name)),
            false => self.update_call(&keys, targets, batch.time, &updates, &stamp),
        };
        let is_claim = |i: usize| matches!(batch.operations[i].action, Action::Claim(_));
        let claims = updates.iter().any(|update| is_claim(targets[update.target].first));
        (call.within, call.confirm) = (Some(within), self.confirm.filter(|_| claims));
        let (prelude, mut values) = self.call(OP, shard, &call).await?;
        let left = match updates.is_empty() {
            true => (0..targets.len()).collect(),
            false => positions(&mut values).ok_or_else(|| self.unexpected_response(OP))?,
        };
        let names: Vec<&str> =
            left.iter().filter_map(|i| targets.get(*i)).map(|target| target.name).collect();
        let read = self.stored(OP, names.into_iter(), values)?;
        let now = prelude.now(batch.time);
        let mut left = left.into_iter().zip(read).peekable();
        let mut updates = updates.into_iter().peekable();
        let (mut served, mut seen) = (Vec::with_capacity(targets.len()), Vec::new());
        let mut again = Vec::new();
        for (i, target) in targets.iter().enumerate() {
            let update = updates.next_if(|update| update.target == i);
            if let Some((_, stored)) = left.next_if(|(place, _)| *place == i) {
                let claimed = claim_of(&stored, target, batch.operations);
                if let (Some(fence), Some(_)) = (claimed, self.confirm) {
                    again.push((i, fence));
                }
                seen.extend(stored.cached());
                served.push(Ok(Served::Loaded(Box::new(stored.loaded(&prelude, now)))));
            } else {
                let Update { name, mut cached, update, entry, .. } =
                    update.ok_or_else(|| self.unexpected_response(OP))?;
                if entry.is_some() {
                    self.history.appended([&*name]);
                }
                cached.commit(&update, &stamp, now);
                let operation = &batch.operations[target.first];
                // As the same operation sent again: its reply is that of the update.
                let reply = apply_to(cached.slot(), operation, batch.node, now);
                let reply = match &reply {
                    Ok(Reply::Claimed(_)) => self.check_confirmed(OP, &prelude).and(reply),
                    _ => reply,
                };
                let head = cached.record().and_then(Record::head);
                let is_due = matches!(reply, Ok(Reply::Accepted))
                    && head.is_some_and(|head| head.due_at <= now);
                seen.push((name, cached));
                served.push(Ok(Served::Replied { now, reply, is_due }));
            }
        }
        self.remember(seen);
        self.prove(shard, targets, &mut served, again, batch.node, within).await?;
        Ok(served)
    }

    /// Proves to replicas the claims that these records have since an earlier call, each given by its
    /// target and its fence. If too few confirm until half of a lease is over, the claim is released,
    /// so that the lease does not end without a run.
    ///
    /// The records are written again first. Their new version stamps make a release of them void that
    /// is still on its way: a claim that is released is never granted.
    async fn prove(
        &self,
        shard: u32,
        targets: &[&Target<'_>],
        served: &mut [Result<Served>],
        claims: Vec<(usize, i64)>,
        node: &str,
        within: Duration,
    ) -> Result {
        if claims.is_empty() {
            return Ok(());
        }
        let loaded = |i: usize| match &served[i] {
            Ok(Served::Loaded(loaded)) => Some(&**loaded),
            _ => None,
        };
        let same = claims.iter().filter_map(|(i, _)| {
            let loaded = loaded(*i)?;
            let record = loaded.stored()?;
            Some(write(targets[*i].name, loaded, record, &[]).proof())
        });
        let same: Vec<Write<'_>> = same.collect();
        let written = self.write(OP, shard, &same.iter().collect::<Vec<_>>(), within).await?;
        let names: Vec<&str> = claims.iter().map(|(i, _)| targets[*i].name).collect();
        let (prelude, read) = self.read(OP, shard, &names).await?;
        let mut released = Vec::new();
        for (((i, fence), written), stored) in claims.into_iter().zip(written).zip(read) {
            let now = loaded_at(&served[i]);
            let loaded = stored.loaded(&prelude, now);
            let few = match written {
                Written::Yes => {
                    served[i] = Ok(Served::Loaded(Box::new(loaded)));
                    continue;
                }
                // Another write came first: the next call decides about the claim.
                Written::No => 0,
                Written::Unconfirmed(few) if !is_half_over(loaded.stored(), fence, now) => few,
                Written::Unconfirmed(few) => {
                    let mut after = loaded.stored().cloned();
                    let release = Operation::new(targets[i].name, Action::Release { fence });
                    let mut history = self.history.buffer();
                    let _ = apply(&mut after, &release, OpContext::new(node, now), &mut history);
                    let name = targets[i].name;
                    released.extend(after.map(|after| (name, loaded, after, history.take())));
                    few
                }
            };
            served[i] = Err(self.unconfirmed(OP, few));
        }
        let writes = released
            .iter()
            .map(|(name, loaded, after, history)| write(name, loaded, after, history));
        let writes: Vec<Write<'_>> = writes.collect();
        if !writes.is_empty() {
            self.write(OP, shard, &writes.iter().collect::<Vec<_>>(), within).await?;
        }
        Ok(())
    }

    /// The updates of those targets whose records are cached.
    fn updates(&self, targets: &[&Target<'_>], batch: Batch<'_>) -> Vec<Update> {
        // Lua's numbers cannot represent every time.
        if fixed_clock(batch.time).is_none() {
            return Vec::new();
        }
        let mut cache = Cache::lock(&self.cache);
        let updates = targets.iter().enumerate().filter_map(|(i, target)| {
            let operation = &batch.operations[target.first];
            // Two operations on one record are applied one after the other.
            if !target.more.is_empty() || !is_fast(operation) {
                return None;
            }
            let (name, mut cached) = cache.take(target.name)?;
            // The engine tells the node of an outbox.
            let record = cached.record().filter(|record| record.chain.is_none())?;
            let validity = validity(operation, record)?;
            let mut history = self.history.buffer();
            let (before, mut after) = (cached.record()?.flag_summary(), None);
            let update = cached.update(validity, |slot, now| {
                let context = OpContext::new(batch.node, now);
                let _ = apply(slot, operation, context, &mut history);
                after = slot.as_ref().map(Record::flag_summary);
            })?;
            // The script removes no flags.
            let flags = before.changes_to(after?).filter(|flags| flags.removed.is_empty())?.added;
            let mut entries = history.take();
            let entry = match (entries.pop(), entries.len()) {
                (None, _) => None,
                (Some(entry), 0) => Some(SpeculativeEntry::of(entry)?),
                _ => return None,
            };
            Some(Update { target: i, name, cached, update, entry, flags })
        });
        let mut updates: Vec<Update> = updates.collect();
        if self.confirm.is_some() {
            // Replicas confirm once: either every claim is granted here, or every one by the commit.
            let is_claim = |i: usize| matches!(batch.operations[i].action, Action::Claim(_));
            let claims = targets.iter().filter(|target| target.positions().any(is_claim)).count();
            let is_fast = |update: &Update| is_claim(targets[update.target].first);
            if updates.iter().filter(|update| is_fast(update)).count() < claims {
                updates.retain(|update| !is_fast(update));
            }
        }
        updates
    }

    /// The call that applies the updates, and reads the targets without one.
    fn update_call(
        &self,
        keys: &Shard,
        targets: &[&Target<'_>],
        time: TimeSource,
        updates: &[Update],
        stamp: &str,
    ) -> Call<'_> {
        let others = [keys.kinds(), keys.history(), keys.history_entries(), keys.flags()];
        let mut call = Call::new(&self.scripts.update, &[&keys.records()[..], &others].concat());
        call.arg(fixed_clock(time).unwrap_or_default());
        let validities = || updates.iter().map(|update| update.update.validity);
        call.optional(validities().filter_map(|validity| validity.from).max());
        call.optional(validities().filter_map(|validity| validity.until).min());
        // A part of the work that the server is spared of: completions refer to no time.
        let is_timeless = updates.iter().all(|update| update.update.is_timeless());
        call.arg(if is_timeless { "" } else { stamp }).arg(keys.due(""));
        let has_entries = updates.iter().any(|update| update.entry.is_some());
        call.arg(if has_entries { keys.history_of("") } else { String::new() }).arg(targets.len());
        for target in targets {
            call.arg(target.name);
        }
        let prefix = if is_timeless { hot_prefix(stamp, 0) } else { String::new() };
        let runs = runs(targets.len(), updates);
        let is_short = runs.len() < targets.len();
        call.arg(if is_short { runs.len().to_string() } else { String::new() });
        for (length, update) in runs {
            if is_short {
                call.arg(length);
            }
            match update {
                // With the blank behind it: no stamp is the beginning of another one.
                Some(update) => call
                    .arg([&update.cached.stamp, " "].concat())
                    .arg([prefix.as_bytes(), &update.update.suffix].concat()),
                None => call.arg("").arg(""),
            };
        }
        if has_entries {
            let mut updates = updates.iter().peekable();
            for i in 0..targets.len() {
                let update = updates.next_if(|update| update.target == i);
                match update.and_then(|update| update.entry.as_ref()) {
                    Some(entry) => call.arg(entry.fence).arg(&entry.text),
                    None => call.arg("").arg(""),
                };
            }
        }
        let mut flags: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for update in updates {
            for flag in &update.flags {
                flags.entry(flag).or_default().push(update.target);
            }
        }
        call.arg(flags.len());
        for (flag, of) in &flags {
            call.arg(*flag).arg(keys.flag(flag));
            positions_of(&mut call, of.iter().copied(), targets.len());
        }
        let mut groups: BTreeMap<Group<'_>, Vec<Entry<'_>>> = BTreeMap::new();
        for update in updates {
            if let Some((group, entry)) = Group::of(update) {
                groups.entry(group).or_default().push(entry);
            }
        }
        for (Group { kind, duration, is_at_end }, entries) in groups {
            let is_same = entries.windows(2).all(|two| two[0].1 == two[1].1);
            call.arg(kind).optional(duration).arg(match (is_at_end, is_same) {
                (true, _) => "+",
                (false, true) => "=",
                (false, false) => "",
            });
            let of = entries.iter().map(|(update, _)| update.target);
            positions_of(&mut call, of, targets.len());
            let times = match (is_at_end, is_same) {
                (true, _) => 0,
                (false, true) => 1,
                (false, false) => entries.len(),
            };
            for (_, index_at) in &entries[..times] {
                match index_at {
                    Some(index_at) => call.arg(*index_at),
                    None => call.arg("-"),
                };
            }
        }
        call
    }
}

/// The number of these targets and their positions, of so many.
fn positions_of(call: &mut Call<'_>, of: impl ExactSizeIterator<Item = usize>, all: usize) {
    if of.len() == all {
        call.arg("*");
        return;
    }
    call.arg(of.len());
    for target in of {
        call.arg(target + 1);
    }
}

/// Changes of the due index that one command makes.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Group<'u> {
    kind: &'u str,
    /// The length of the leases.
    duration: Option<i64>,
    /// True if the records want attention when their leases end.
    is_at_end: bool,
}

/// An update, and when its record wants attention at the latest.
type Entry<'u> = (&'u Update, Option<i64>);

impl<'u> Group<'u> {
    /// The change of one update; `None` for a job in code.
    fn of(update: &'u Update) -> Option<(Self, Entry<'u>)> {
        let index_at = update.update.index_at?;
        let duration = update.update.validity.duration;
        let is_at_end = duration.is_some() && index_at == Some(ms(end_of_time()));
        let kind = update.cached.record().map_or("", |record| record.kind.as_str());
        Some((Self { kind, duration, is_at_end }, (update, index_at)))
    }
}

/// The runs of targets that have the same update of the same version, or none: their lengths, and their
/// first updates.
fn runs(targets: usize, updates: &[Update]) -> Vec<(usize, Option<&Update>)> {
    let mut runs: Vec<(usize, Option<&Update>)> = Vec::new();
    let mut updates = updates.iter().peekable();
    for i in 0..targets {
        let update = updates.next_if(|update| update.target == i);
        let is_same = |first: Option<&Update>| match (first, update) {
            (Some(a), Some(b)) => {
                a.cached.stamp == b.cached.stamp && a.update.suffix == b.update.suffix
            }
            (a, b) => a.is_none() && b.is_none(),
        };
        match runs.last_mut().filter(|(_, first)| is_same(*first)) {
            Some((length, _)) => *length += 1,
            None => runs.push((1, update)),
        }
    }
    runs
}

/// Takes the positions of the targets that were not updated from the beginning of a reply.
fn positions(values: &mut Vec<Value>) -> Option<Vec<usize>> {
    if values.is_empty() {
        return None;
    }
    let Value::Array(positions) = values.remove(0) else { return None };
    let position = |value| match value {
        Value::Int(position) => usize::try_from(position).ok()?.checked_sub(1),
        _ => None,
    };
    positions.into_iter().map(position).collect()
}

/// The speculative update of one target.
struct Update {
    target: usize,
    name: String,
    cached: Box<CachedRecord>,
    update: SpeculativeUpdate,
    /// The history entry that is written with it.
    entry: Option<SpeculativeEntry>,
    /// The flags that the job has from now on.
    flags: Vec<String>,
}

/// The operations by name, in the order in which the names first occur. Names that are too long have
/// their replies from core.
fn targets<'a>(operations: &[Operation<'a>]) -> Vec<Target<'a>> {
    let mut targets: Vec<Target<'a>> = Vec::with_capacity(operations.len());
    let mut by_name: HashMap<&str, usize> = HashMap::with_capacity(operations.len());
    for (i, operation) in operations.iter().enumerate() {
        let name = operation.name;
        if name.len() > MAX_NAME {
            continue;
        }
        match by_name.entry(name) {
            hash_map::Entry::Occupied(target) => targets[*target.get()].more.push(i),
            hash_map::Entry::Vacant(place) => {
                place.insert(targets.len());
                targets.push(Target { name, first: i, more: Vec::new() });
            }
        }
    }
    targets
}

fn is_fast(operation: &Operation<'_>) -> bool {
    operation.checkpoint.is_none()
        && !operation.works_on
        && match operation.action {
            // Its time is that of the end.
            Action::Complete { then, .. } => then != Cursor::AfterEnd,
            Action::Claim(_) | Action::Extend { .. } => true,
            _ => false,
        }
}

/// The validity of an operation that depends on the clock only by the times between which it holds,
/// and by the end of the lease; `None` for any other.
fn validity(operation: &Operation<'_>, record: &Record) -> Option<Validity> {
    let lease = record.leases.first();
    match &operation.action {
        // Without skipped occurrences and other leases, only the cursor has to be due.
        Action::Claim(claim) if claim.not_run.is_none() && lease.is_none() => Some(Validity {
            from: Some(record.cursor?.due_at.timestamp_micros()),
            until: claim.not_after.map(|until| until.timestamp_micros()),
            duration: Some(micros(claim.lease.duration)?),
        }),
        Action::Extend { fence, duration } => {
            let lease = lease.filter(|lease| lease.fence == *fence)?;
            let duration = micros(*duration)?;
            // A lease never shrinks, and one that stays as it is is not written.
            let from = lease.until.timestamp_micros() - duration + 1_000;
            Some(Validity { from: Some(from), until: None, duration: Some(duration) })
        }
        Action::Complete { fence, .. } => {
            lease.filter(|lease| lease.fence == *fence).map(|_| Validity::default())
        }
        _ => None,
    }
}

fn apply_to(
    slot: &mut Option<Record>,
    operation: &Operation<'_>,
    node: &str,
    now: Time,
) -> Result<Reply> {
    apply(slot, operation, OpContext::new(node, now), &mut HistoryBuffer::off())
}

/// The write of a record in place of a loaded one.
fn write<'a>(
    name: &'a str,
    loaded: &'a Loaded<Version>,
    after: &'a Record,
    history: &'a [HistoryEntry],
) -> Write<'a> {
    Write {
        name,
        version: &loaded.version,
        before: loaded.stored(),
        is_unreadable: false,
        after,
        history,
        changes: &[],
        not_after: None,
        decided_at: loaded.now.unwrap_or(Time::UNIX_EPOCH),
        is_proof: false,
    }
}

/// True if half of the lease with this fence is over.
fn is_half_over(record: Option<&Record>, fence: i64, now: Time) -> bool {
    let lease = record.and_then(|record| record.leases.iter().find(|lease| lease.fence == fence));
    lease.is_some_and(|lease| now - lease.started_at > lease.until - now)
}

/// The time at which a record was read.
fn loaded_at(served: &Result<Served>) -> Time {
    match served {
        Ok(Served::Loaded(loaded)) => loaded.now.unwrap_or(Time::UNIX_EPOCH),
        _ => Time::UNIX_EPOCH,
    }
}

/// The fence of the lease of a claim of this target, if the record has one: an earlier copy of the
/// claim was applied, and possibly not confirmed.
fn claim_of(
    stored: &StoredRecord,
    target: &Target<'_>,
    operations: &[Operation<'_>],
) -> Option<i64> {
    let record = stored.readable()?;
    target.positions().find_map(|i| match &operations[i].action {
        Action::Claim(claim) => {
            let lease = record.leases.iter().find(|lease| lease.claim_id == claim.claim_id);
            lease.map(|lease| lease.fence)
        }
        _ => None,
    })
}

/// The clock as the scripts take it: empty for the server's own. `None` for a time that they cannot
/// compute with.
pub(crate) fn fixed_clock(time: TimeSource) -> Option<String> {
    match time {
        TimeSource::Store { .. } => Some(String::new()),
        TimeSource::Fixed(at) => {
            let us = at.timestamp_micros();
            let whole = at.timestamp_subsec_nanos().is_multiple_of(1_000);
            // Lua's numbers are exact up to here.
            (whole && (0..1 << 52).contains(&us)).then(|| us.to_string())
        }
    }
}
