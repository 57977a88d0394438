//! Records and history entries as the values of keys.

use allora_core::{
    backend::{HistoryEntry, Occurrence, Outcome},
    record::{Record, codec},
    time::from_millis,
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
    /// From the replies for the job's key and its data's.
    pub(crate) fn decode(job: &GetResponse, data: &GetResponse) -> Self {
        match job.kvs().first() {
            None => Self { record: Ok(None), revision: 0 },
            Some(kv) => {
                let data = data.kvs().first().map(|kv| kv.value().to_vec());
                Self::of(kv, data.unwrap_or_default())
            }
        }
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

/// A history entry as it is stored: name, fence, scheduled time, trigger, last, count, attempt,
/// node, time of the entry, outcome with error.
type StoredEntry =
    (String, i64, i64, Option<String>, Option<i64>, Option<u64>, u32, String, i64, [String; 2]);

pub(crate) fn encode_entry(entry: &HistoryEntry) -> Vec<u8> {
    let stored: StoredEntry = (
        entry.name.clone(),
        entry.fence,
        entry.occurrence.scheduled_at.timestamp_millis(),
        entry.occurrence.trigger.clone(),
        entry.last.map(|last| last.timestamp_millis()),
        entry.count,
        entry.attempt,
        entry.node.clone(),
        entry.recorded_at.timestamp_millis(),
        [entry.outcome.word().to_owned(), entry.outcome.error().to_owned()],
    );
    serde_json::to_vec(&stored).expect("text and numbers are JSON")
}

pub(crate) fn decode_entry(value: &[u8]) -> Option<HistoryEntry> {
    let stored: StoredEntry = serde_json::from_slice(value).ok()?;
    let (name, fence, at, trigger, last, count, attempt, node, recorded, [word, error]) = stored;
    let occurrence = Occurrence { scheduled_at: from_millis(at)?, trigger };
    let last = match last {
        Some(last) => Some(from_millis(last)?),
        None => None,
    };
    let outcome = Outcome::from_word(&word, &error)?;
    let entry = HistoryEntry::new(name, fence, occurrence, from_millis(recorded)?, outcome);
    Some(entry.range(last, count).by(node, attempt))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_read_back() {
        let at = from_millis(60_000).unwrap();
        let failed = Outcome::Failed("why\n".into());
        let run = HistoryEntry::new("a\"b", 7, at.into(), at, failed).by("n", 2);
        let triggered = Occurrence { scheduled_at: at, trigger: Some("id".into()) };
        let range = HistoryEntry::new("c", 8, triggered, at, Outcome::Missed).range(Some(at), None);
        for entry in [run, range] {
            assert_eq!(decode_entry(&encode_entry(&entry)), Some(entry));
        }
        assert_eq!(decode_entry(b"[]"), None);
    }

    #[test]
    fn the_fence_of_an_unreadable_record_is_used_if_it_can_be_found() {
        assert_eq!(fence_of(b"{\"v\":99,\"fence\":7}"), 7);
        for damage in [&b""[..], b"{", b"[]", b"{\"fence\":\"x\"}", b"\xff\xfe"] {
            assert_eq!(fence_of(damage), 0);
        }
    }
}
