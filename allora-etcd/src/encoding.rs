//! Records as the values of keys.
//!
//! A record has up to three keys: the job's, which every claim writes; the data's; and that of the cold
//! parts (dead letters and remembered triggers), which is read only for those who want them.

use allora_core::{
    Time,
    backend::{DeadLetter, Occurrence},
    record::{Record, RememberedTrigger, codec},
};
use etcd_client::{GetResponse, KeyValue};

/// A record that cannot be read.
pub(crate) struct Unreadable {
    /// The reason, for an operator.
    pub(crate) reason: String,
    /// The record's fence; 0 if unknown.
    pub(crate) fence: i64,
}

/// A record as it was read, with the revision of its last write; 0 if there is none.
pub(crate) struct Stored {
    pub(crate) record: Result<Option<Record>, Unreadable>,
    pub(crate) revision: i64,
}

impl Stored {
    /// From the replies for the job's key and its data's. It may lack its cold parts.
    pub(crate) fn decode(job: &GetResponse, data: &GetResponse) -> Self {
        match job.kvs().first() {
            None => Self { record: Ok(None), revision: 0 },
            Some(kv) => {
                let data = data.kvs().first().map(|kv| kv.value().to_vec());
                Self::of(kv, data.unwrap_or_default())
            }
        }
    }

    /// With the cold parts of this reply, which was read in the same transaction.
    pub(crate) fn with_cold(mut self, cold: &GetResponse) -> Self {
        if let Ok(Some(record)) = &mut self.record
            && has_cold_elsewhere(record)
        {
            match cold.kvs().first().map(|kv| codec::decode(kv.value())) {
                Some(Ok(rest)) => (record.dead, record.remembered) = (rest.dead, rest.remembered),
                Some(Err(why)) => {
                    let reason = format!("its dead letters and remembered triggers: {why}");
                    self.record = Err(Unreadable { reason, fence: record.fence });
                }
                None => remove_cold(record),
            }
        }
        self
    }

    /// For those who want no cold parts.
    pub(crate) fn without_cold(mut self) -> Self {
        if let Ok(Some(record)) = &mut self.record {
            remove_cold(record);
        }
        self
    }

    /// True if its cold parts were not read with it.
    pub(crate) fn lacks_cold(&self) -> bool {
        self.record().is_some_and(has_cold_elsewhere)
    }

    /// From the job's key, with this data.
    pub(crate) fn of(kv: &KeyValue, data: Vec<u8>) -> Self {
        let record = codec::decode(kv.value()).map(|record| Some(Record { data, ..record }));
        let unreadable = |why: codec::Unreadable| Unreadable {
            reason: why.to_string(),
            fence: fence_of(kv.value()),
        };
        Self { record: record.map_err(unreadable), revision: kv.mod_revision() }
    }

    /// The record or tombstone.
    pub(crate) fn record(&self) -> Option<&Record> {
        self.record.as_ref().ok().and_then(Option::as_ref)
    }
}

/// The value of the job's key: the record without its data, with one dead letter without a text for all
/// of them, and with one remembered trigger without an id.
pub(crate) fn hot(record: &mut Record) -> Vec<u8> {
    let data = std::mem::take(&mut record.data);
    let for_all = record.dead.iter().take(1).map(|_| dead_elsewhere()).collect();
    let dead = std::mem::replace(&mut record.dead, for_all);
    let for_all = record.remembered.iter().take(1).map(|_| remembered_elsewhere()).collect();
    let remembered = std::mem::replace(&mut record.remembered, for_all);
    let value = codec::encode(record);
    (record.data, record.dead, record.remembered) = (data, dead, remembered);
    value
}

/// The value of the key of the cold parts; `None` if there are none.
pub(crate) fn cold(record: &Record) -> Option<Vec<u8>> {
    let Record { dead, remembered, .. } = record;
    if dead.is_empty() && remembered.is_empty() {
        return None;
    }
    let (dead, remembered) = (dead.clone(), remembered.clone());
    Some(codec::encode(&Record { dead, remembered, ..Record::default() }))
}

/// True if both records have the same cold parts.
pub(crate) fn has_same_cold(one: Option<&Record>, other: &Record) -> bool {
    let of = |record: &Record| (record.dead.is_empty(), record.remembered.is_empty());
    match one {
        Some(one) => one.dead == other.dead && one.remembered == other.remembered,
        None => of(other) == (true, true),
    }
}

/// The dead letter that stands for all of them in the value of the job's key.
fn dead_elsewhere() -> DeadLetter {
    let occurrence = Occurrence::from(Time::UNIX_EPOCH);
    DeadLetter { occurrence, attempts: 0, died_at: Time::UNIX_EPOCH, error: String::new() }
}

/// The remembered trigger that stands for all of them. Any other has an id.
fn remembered_elsewhere() -> RememberedTrigger {
    let occurrence = Occurrence::from(Time::UNIX_EPOCH);
    RememberedTrigger { occurrence, until: Time::UNIX_EPOCH, data: None }
}

fn has_cold_elsewhere(record: &Record) -> bool {
    record.dead == [dead_elsewhere()] || record.remembered == [remembered_elsewhere()]
}

fn remove_cold(record: &mut Record) {
    record.dead.clear();
    record.remembered.clear();
}

/// The fence of a record that cannot be read, such as one of a newer version; 0 if unknown.
fn fence_of(value: &[u8]) -> i64 {
    let value: Option<serde_json::Value> = serde_json::from_slice(value).ok();
    value.and_then(|value| value.get("fence")?.as_i64()).unwrap_or(0)
}

/// A number that is stored as text, and its revision; 0 and 0 if there is none.
pub(crate) fn number(reply: &GetResponse) -> (i64, i64) {
    reply.kvs().first().map_or((0, 0), |kv| {
        let value = std::str::from_utf8(kv.value()).ok().and_then(|text| text.parse().ok());
        (value.unwrap_or(0), kv.mod_revision())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fence_of_an_unreadable_record_is_used_if_it_can_be_found() {
        assert_eq!(fence_of(b"{\"v\":99,\"fence\":7}"), 7);
        for damage in [&b""[..], b"{", b"[]", b"{\"fence\":\"x\"}", b"\xff\xfe"] {
            assert_eq!(fence_of(damage), 0);
        }
    }
}
