//! Records as the values of keys.

use allora_core::record::{Record, codec};
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
