//! The place of a history entry: a member of a sorted set, whose score is the fence; and entries of
//! completions that are computed before the server's clock is read.

use allora_core::{
    backend::{HistoryCursor, HistoryEntry},
    record::codec,
};

/// The member of an entry.
pub(crate) fn member(at: &HistoryCursor) -> Vec<u8> {
    format!("{} {}", at.fence, at.name).into_bytes()
}

/// The entry of a member; `None` if it is none.
pub(crate) fn cursor(member: &[u8]) -> Option<HistoryCursor> {
    let (fence, name) = std::str::from_utf8(member).ok()?.split_once(' ')?;
    Some(HistoryCursor { fence: fence.parse().ok()?, name: name.to_owned() })
}

/// The history entry of a run that ends, without the time of its end, which is the last field.
pub(crate) struct SpeculativeEntry {
    pub(crate) fence: i64,
    /// The text up to the time, in milliseconds. Behind it, a brace is missing.
    pub(crate) text: String,
}

impl SpeculativeEntry {
    /// `None` for a failure, which is listed in one more place, and for what is no end of a run.
    pub(crate) fn of(mut entry: HistoryEntry) -> Option<Self> {
        if entry.outcome.is_failure() || entry.started_at.is_none() {
            return None;
        }
        entry.ended_at = None;
        let text = String::from_utf8(codec::encode_entry(&entry)).ok()?;
        Some(Self {
            fence: entry.fence,
            text: format!("{},\"ended_at\":", text.strip_suffix('}')?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use allora_core::{backend::Outcome, time::from_millis};

    #[test]
    fn a_speculative_entry_is_read_as_the_entry_at_the_time_of_its_write() {
        let entry = |ended: i64, outcome: Outcome| {
            let scheduled_at = from_millis(1_000).unwrap();
            let mut entry = HistoryEntry::new("{\"a b", 5_000_000, scheduled_at.into(), outcome);
            (entry.started_at, entry.ended_at) = (from_millis(5_000), from_millis(ended));
            entry
        };
        let SpeculativeEntry { fence, text } =
            SpeculativeEntry::of(entry(6_000, Outcome::Succeeded)).unwrap();
        assert_eq!(fence, 5_000_000);
        let text = format!("{text}7123}}");
        assert_eq!(codec::decode_entry(text.as_bytes()), Ok(entry(7_123, Outcome::Succeeded)));
        assert!(SpeculativeEntry::of(entry(6_000, Outcome::Failed("no".into()))).is_none());
    }

    #[test]
    fn members_are_read_as_they_were_written() {
        for (fence, name) in [(7, "a b"), (i64::MAX, "{}"), (0, "")] {
            let at = HistoryCursor { fence, name: name.into() };
            assert_eq!(cursor(&member(&at)), Some(at));
        }
        assert_eq!(cursor(b"x y"), None);
    }
}
