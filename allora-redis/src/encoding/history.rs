//! The place of a history entry: a member of a sorted set, whose score is the fence; and entries of
//! updates that are computed before the server's clock is read.

use allora_core::{
    Time,
    backend::{HistoryCursor, HistoryEntry, Outcome},
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

/// A history entry without the time of its write, in microseconds as the fence of a claim, and in
/// milliseconds as the last field.
pub(crate) struct SpeculativeEntry {
    /// The text before the fence.
    pub(crate) head: String,
    /// The fence of a run that has ended; `None` for a claim.
    pub(crate) fence: Option<i64>,
    /// The text between the fence and the time.
    pub(crate) tail: String,
}

impl SpeculativeEntry {
    /// The entry that was computed for the time `tried`; `None` if its place depends on more than that.
    pub(crate) fn of(mut entry: HistoryEntry, tried: Time) -> Option<Self> {
        let is_claim = entry.outcome == Outcome::Running;
        let draws_fence = entry.fence == tried.timestamp_micros();
        // Failures are listed in one more place.
        if entry.outcome.is_failure() || is_claim != draws_fence {
            return None;
        }
        let (at, last) = match is_claim {
            true => (&mut entry.started_at, "started_at"),
            false => (&mut entry.ended_at, "ended_at"),
        };
        *at = None;
        let text = String::from_utf8(codec::encode_entry(&entry)).ok()?;
        // Texts in JSON have a backslash before each quotation mark: only the field is found.
        let (head, tail) = text.split_once(&format!("\"fence\":{}", entry.fence))?;
        Some(Self {
            head: format!("{head}\"fence\":"),
            fence: Some(entry.fence).filter(|_| !is_claim),
            tail: format!("{},\"{last}\":", tail.strip_suffix('}')?),
        })
    }

    /// True if it replaces no other entry.
    pub(crate) fn is_new(&self) -> bool {
        self.fence.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use allora_core::time::from_millis;
    use chrono::DateTime;

    #[test]
    fn a_speculative_entry_is_read_as_the_entry_at_the_time_of_its_write() {
        let at = |us| DateTime::from_timestamp_micros(us).unwrap();
        let name = r#"{"fence":5000000,"a b"#;
        let entry = |now: i64, fence, outcome: Outcome| {
            let is_claim = outcome == Outcome::Running;
            let mut entry = HistoryEntry::new(name, fence, at(1_000_000).into(), outcome);
            entry.started_at = from_millis(if is_claim { now / 1_000 } else { 5_000 });
            entry.ended_at = from_millis(now / 1_000).filter(|_| !is_claim);
            entry
        };
        for outcome in [Outcome::Running, Outcome::Succeeded] {
            let fence = |now| if outcome == Outcome::Running { now } else { 5_000_000 };
            let of = |now| entry(now, fence(now), outcome.clone());
            let (tried, now) = (6_000_000, 7_123_456);
            let SpeculativeEntry { head, fence, tail } =
                SpeculativeEntry::of(of(tried), at(tried)).unwrap();
            let fence = fence.unwrap_or(now);
            let text = format!("{head}{fence}{tail}{}}}", now / 1_000);
            assert_eq!(codec::decode_entry(text.as_bytes()), Ok(of(now)), "{text}");
        }
        let failed = entry(7_000_000, 5_000_000, Outcome::Failed("no".into()));
        assert!(SpeculativeEntry::of(failed, at(6_000_000)).is_none());
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
