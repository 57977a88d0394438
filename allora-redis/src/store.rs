//! One installation: its scripts, the prelude of their replies, and the ids of its shards.

use crate::{
    cache::{Cache, CachedRecord},
    client::Connection,
    encoding::{Fields, PARTS},
    keys::{Keys, Shard},
    script::{Call, Confirm, Scripts},
    unused::Unused,
};
use allora_core::{
    Error, ErrorKind, Result, Time,
    backend::TimeSource,
    record::Record,
    store::{HistoryPruning, Loaded},
};
use chrono::DateTime;
use redis::Value;
use std::{
    collections::HashMap,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

/// One installation behind a connection.
pub(crate) struct Store {
    pub(crate) connection: Connection,
    pub(crate) keys: Keys,
    pub(crate) scripts: Scripts,
    /// The server's address without its password, for errors.
    pub(crate) place: String,
    pub(crate) durability_warning: Option<String>,
    pub(crate) security_warning: Option<String>,
    pub(crate) history: HistoryPruning,
    /// When unused jobs are deleted.
    pub(crate) unused: Option<Unused>,
    /// The replicas that a claim waits for.
    pub(crate) confirm: Option<Confirm>,
    /// The id of each shard: an emptied shard has lost it.
    pub(crate) store_ids: Mutex<HashMap<u32, Vec<u8>>>,
    /// A random word, drawn by each connected store, so that its version stamps are its own.
    pub(crate) writer: String,
    pub(crate) written: AtomicU64,
    /// The kinds that each shard had when it was last asked.
    pub(crate) kinds: Mutex<HashMap<u32, Vec<String>>>,
    /// The records that were read or written last.
    pub(crate) cache: Mutex<Cache>,
}

/// Deletes the keys with a hash tag among the next ones of the server, and returns the place after them. By a
/// script, since a cluster routes it by its key.
const DELETE_SOME: &str = "\
local found = redis.call('SCAN', ARGV[1], 'MATCH', ARGV[2], 'COUNT', 5000)
for _, key in ipairs(found[2]) do redis.call('UNLINK', key) end
return found[1]";

impl Store {
    pub(crate) async fn delete_keys(&self) -> Result {
        const OP: &str = "delete_keys";
        let tags = self.keys.all().map(|(_, shard)| shard.state()).chain([self.keys.meta()]);
        for key in tags {
            let tag = key.rsplit_once(':').map_or("", |(tag, _)| tag);
            let mut place = "0".to_owned();
            loop {
                let mut delete = redis::cmd("EVAL");
                delete.arg(DELETE_SOME).arg(1).arg(&key).arg(&place).arg(format!("{tag}:*"));
                place =
                    self.connection.ask(&delete).await.map_err(|error| self.failed(OP, error))?;
                if place == "0" {
                    break;
                }
            }
        }
        Ok(())
    }
}

/// The beginning of a script's reply.
pub(crate) struct Prelude {
    /// The server's clock, in microseconds.
    pub(crate) clock: i64,
    /// The lowest fence of the shard.
    pub(crate) min_fence: i64,
    /// The number of replicas that have what was written and read, if that was asked.
    pub(crate) replicas: Option<u32>,
}

impl Prelude {
    /// The time that decides: that of the request, or the server's clock.
    pub(crate) fn now(&self, time: TimeSource) -> Time {
        match time {
            TimeSource::Fixed(at) => at,
            TimeSource::Store { fallback } => {
                DateTime::from_timestamp_micros(self.clock).unwrap_or(fallback)
            }
        }
    }
}

impl Store {
    /// The call that reads jobs.
    pub(crate) fn read_call<'n>(
        &self,
        keys: &Shard,
        names: impl Iterator<Item = &'n str>,
    ) -> Call<'_> {
        let mut call = Call::new(&self.scripts.read, &keys.records());
        for name in names {
            call.arg(name);
        }
        call
    }

    /// Reads jobs of one shard.
    pub(crate) async fn read(
        &self,
        op: &'static str,
        shard: u32,
        names: &[&str],
    ) -> Result<(Prelude, Vec<StoredRecord>)> {
        let call = self.read_call(&self.keys.shard(shard), names.iter().copied());
        let (prelude, values) = self.call(op, shard, &call).await?;
        Ok((prelude, self.stored(op, names.iter().copied(), values)?))
    }

    /// The records of a reply, one for each name, from a list for each part.
    pub(crate) fn stored<'n>(
        &self,
        op: &'static str,
        names: impl ExactSizeIterator<Item = &'n str>,
        parts: impl IntoIterator<Item = Value>,
    ) -> Result<Vec<StoredRecord>> {
        let count = names.len();
        let mut lists = parts.into_iter().map(|part| match part {
            Value::Array(list) if list.len() == count => Some(list.into_iter()),
            _ => None,
        });
        let mut next = || lists.next().flatten();
        let lists = match count {
            0 => None,
            _ => next().zip(next()).zip(next()).zip(next()),
        };
        let Some((((hot, definition), rare), cold)) = lists else {
            return if count == 0 { Ok(Vec::new()) } else { Err(self.unexpected_response(op)) };
        };
        let records = names.zip(hot.zip(definition).zip(rare.zip(cold)));
        let record = |(name, ((hot, definition), (rare, cold)))| {
            StoredRecord::new(name, hot, [definition, rare, cold])
        };
        Ok(records.map(record).collect())
    }

    /// Calls a script whose reply begins with a [`Prelude`].
    pub(crate) async fn call(
        &self,
        op: &'static str,
        shard: u32,
        call: &Call<'_>,
    ) -> Result<(Prelude, Vec<Value>)> {
        let response = self.connection.call(call).await.map_err(|cause| self.failed(op, cause))?;
        let Value::Array(mut values) = response.value else {
            return Err(self.unexpected_response(op));
        };
        if values.len() < 3 {
            return Err(self.unexpected_response(op));
        }
        let rest = values.split_off(3);
        let mut prelude = values.into_iter().map(bytes);
        let clock = prelude.next().flatten().and_then(|clock| number(&clock));
        let store_id = prelude.next().flatten();
        let min_fence = prelude.next().flatten().and_then(|fence| number(&fence)).unwrap_or(0);
        let clock = clock.ok_or_else(|| self.unexpected_response(op))?;
        self.check_store_id(op, shard, store_id).await?;
        Ok((Prelude { clock, min_fence, replicas: response.replicas }, rest))
    }

    /// Returns an error once when a shard was emptied; from then on it is a new one.
    async fn check_store_id(&self, op: &'static str, shard: u32, id: Option<Vec<u8>>) -> Result {
        let known = {
            let ids = self.store_ids.lock().unwrap_or_else(PoisonError::into_inner);
            ids.get(&shard).cloned()
        };
        if id.is_some() && id == known {
            return Ok(());
        }
        self.open(op, shard).await?;
        let place = &self.place;
        let prefix = &self.keys.prefix;
        let lost = format!(
            "{place} was emptied: everything under the prefix {prefix:?} is lost, stored schedules \
             for good; jobs in code are registered again"
        );
        Err(Error::new(ErrorKind::Other, lost).op(op))
    }

    /// Gives an id to a shard without one, and remembers the shard's id.
    pub(crate) async fn open(&self, op: &'static str, shard: u32) -> Result {
        let failed = |cause| self.failed(op, cause);
        let keys = self.keys.shard(shard);
        let state = keys.state();
        let mut set = redis::cmd("HSETNX");
        set.arg(&state).arg("store_id").arg(self.version_stamp());
        self.connection.ask::<bool>(&set).await.map_err(failed)?;
        // No job has the empty name. While a slot moves to another server, a call fails if one of its
        // keys does not exist.
        for key in [keys.rare(), keys.cold()] {
            let mut set = redis::cmd("HSETNX");
            set.arg(key).arg("").arg("");
            self.connection.ask::<bool>(&set).await.map_err(failed)?;
        }
        let mut get = redis::cmd("HGET");
        get.arg(&state).arg("store_id");
        let id: Vec<u8> = self.connection.ask(&get).await.map_err(failed)?;
        self.store_ids.lock().unwrap_or_else(PoisonError::into_inner).insert(shard, id);
        Ok(())
    }

    /// Caches records.
    pub(crate) fn remember(&self, seen: impl IntoIterator<Item = (String, Box<CachedRecord>)>) {
        let mut cache = Cache::lock(&self.cache);
        seen.into_iter().for_each(|(name, cached)| cache.put(name, cached));
    }

    /// A word that was never written before, by any node.
    pub(crate) fn version_stamp(&self) -> String {
        let count = self.written.fetch_add(1, Ordering::Relaxed);
        format!("{}.{count:x}", self.writer)
    }

    /// The number of replicas that have a write, if they are too few.
    pub(crate) fn too_few(&self, replicas: Option<u32>) -> Option<u32> {
        let wanted = self.confirm.map_or(0, |confirm| confirm.replicas);
        replicas.filter(|replicas| *replicas < wanted)
    }

    /// The error of a claim that too few replicas have.
    pub(crate) fn unconfirmed(&self, op: &'static str, have: u32) -> Error {
        let (place, want) = (&self.place, self.confirm.map_or(0, |confirm| confirm.replicas));
        let few = format!("{place}: {have} of {want} replicas confirmed in time");
        Error::new(ErrorKind::Unavailable, few).op(op)
    }

    /// # Errors
    /// `Unavailable` if too few replicas have what was written and read.
    pub(crate) fn check_confirmed(&self, op: &'static str, prelude: &Prelude) -> Result {
        self.too_few(prelude.replicas).map_or(Ok(()), |have| Err(self.unconfirmed(op, have)))
    }
}

/// The value that a commit compares, and the fields from which it finds those that changed.
#[derive(Debug)]
pub struct Version {
    /// `None`: there is nothing under the name.
    pub(crate) fields: Option<Fields>,
    /// The lowest fence of the shard when the record was read.
    pub(crate) min_fence: i64,
}

/// A job as it was read.
pub(crate) struct StoredRecord {
    pub(crate) name: String,
    /// `None`: there is nothing under the name.
    pub(crate) fields: Option<Fields>,
    /// The record, or the reason why it cannot be read; `None` if there is none.
    pub(crate) record: Option<Result<Record, String>>,
}

impl StoredRecord {
    pub(crate) fn new(name: &str, hot: Value, parts: [Value; PARTS]) -> Self {
        let mut stored = Self { name: name.to_owned(), fields: None, record: None };
        let has_definition = parts[0] != Value::Nil;
        if hot == Value::Nil && !has_definition {
            return stored;
        }
        let [definition, rare, cold] = parts.map(|part| bytes(part).unwrap_or_default());
        let hot = bytes(hot).unwrap_or_default();
        let fields = Fields { hot, definition, rare, cold };
        stored.record = Some(match has_definition {
            true => fields.record(),
            false => Err("its definition is missing".to_owned()),
        });
        stored.fields = Some(fields);
        stored
    }

    /// The readable record.
    pub(crate) fn readable(&self) -> Option<&Record> {
        self.record.as_ref()?.as_ref().ok()
    }

    /// The copy for the cache.
    pub(crate) fn cached(&self) -> Option<(String, Box<CachedRecord>)> {
        let cached = CachedRecord::of(self.readable()?, self.fields.as_ref()?.stamp())?;
        Some((self.name.clone(), cached))
    }

    /// The record for the engine, read at `now`.
    pub(crate) fn loaded(self, prelude: &Prelude, now: Time) -> Loaded<Version> {
        let fence = self.fields.as_ref().map_or(0, Fields::fence);
        let version = Version { fields: self.fields, min_fence: prelude.min_fence };
        let loaded = match self.record {
            None => Loaded::new(None, version),
            Some(Ok(record)) => Loaded::new(Some(record), version),
            Some(Err(reason)) => Loaded::unreadable(reason, fence, version),
        };
        loaded.read_at(now)
    }
}

/// A string in a reply.
pub(crate) fn bytes(value: Value) -> Option<Vec<u8>> {
    match value {
        Value::BulkString(bytes) => Some(bytes),
        Value::SimpleString(text) => Some(text.into_bytes()),
        _ => None,
    }
}

/// A number in a reply, sent as a string.
pub(crate) fn number(bytes: &[u8]) -> Option<i64> {
    std::str::from_utf8(bytes).ok()?.parse().ok()
}
