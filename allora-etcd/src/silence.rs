//! Sessions that their nodes do not renew any more, as another node sees them.
//!
//! With each restart of a member and each election the time of all etcd leases begins again, and with it that of a
//! dead node's session. But each renewal writes the session's key. So when one revision of the key has been there for
//! as long as the session lasts, any node may remove it: its owner has relied on that revision for no longer, counted
//! from before the write.

use etcd_client::{GetResponse, KeyValue};
use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

/// The time between two looks at the sessions; none is removed twice in it.
const BETWEEN: Duration = Duration::from_secs(1);

/// The value of a session: its node's clock in milliseconds, and its length in seconds.
pub(crate) fn value(clock: Option<i64>, length: Duration) -> String {
    let clock = clock.map_or_else(String::new, |clock| clock.to_string());
    format!("{clock} {}", length.as_secs())
}

/// The clock in a value.
pub(crate) fn clock(value: &[u8]) -> Option<i64> {
    std::str::from_utf8(value).ok()?.split(' ').next()?.parse().ok()
}

/// The length in a value.
fn length(value: &[u8]) -> Option<Duration> {
    let (_, seconds) = std::str::from_utf8(value).ok()?.split_once(' ')?;
    Some(Duration::from_secs(seconds.parse().ok()?))
}

/// One revision of the key of a session. After a backup was restored, numbers may come again, but not with the same
/// clock.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Revision {
    pub(crate) key: Vec<u8>,
    pub(crate) value: Vec<u8>,
    pub(crate) number: i64,
}

impl Revision {
    fn of(session: &KeyValue) -> Self {
        let (key, value) = (session.key().to_vec(), session.value().to_vec());
        Self { key, value, number: session.mod_revision() }
    }
}

/// The revisions that were read last, each with the time from which it is silent. One whose value has no length is
/// never silent.
#[derive(Debug, Default)]
pub(crate) struct Silence {
    looked: Option<Instant>,
    silent_from: HashMap<Revision, Option<Instant>>,
}

impl Silence {
    /// Notes the sessions that were read. Returns those that are silent now.
    pub(crate) fn note(&mut self, read: &GetResponse, now: Instant) -> Vec<Revision> {
        self.note_all(read.kvs().iter().map(Revision::of), now)
    }

    fn note_all(
        &mut self,
        sessions: impl Iterator<Item = Revision>,
        now: Instant,
    ) -> Vec<Revision> {
        if self.looked.is_some_and(|looked| now.saturating_duration_since(looked) < BETWEEN) {
            return Vec::new();
        }
        self.looked = Some(now);
        let mut before = std::mem::take(&mut self.silent_from);
        self.silent_from = sessions
            .map(|revision| {
                let first = || now.checked_add(length(&revision.value)?);
                let from = before.remove(&revision).unwrap_or_else(first);
                (revision, from)
            })
            .collect();
        let is_silent = |from: &Option<Instant>| from.is_some_and(|from| from <= now);
        let silent = self.silent_from.iter().filter(|(_, from)| is_silent(from));
        silent.map(|(revision, _)| revision.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::monotonic_now;

    fn read(number: i64, value: &str) -> Revision {
        Revision { key: b"session/a".to_vec(), value: value.into(), number }
    }

    #[test]
    fn a_revision_is_silent_when_it_was_seen_for_the_length_of_the_session() {
        let (mut silence, begin) = (Silence::default(), monotonic_now());
        let mut is_silent = |number, value, seconds| {
            let now = begin + Duration::from_secs(seconds);
            !silence.note_all([read(number, value)].into_iter(), now).is_empty()
        };
        assert!(!is_silent(1, "1000 15", 0));
        assert!(!is_silent(1, "1000 15", 14));
        // Renewed: it lasts as long again.
        assert!(!is_silent(2, "2000 15", 15));
        assert!(!is_silent(2, "2000 15", 29));
        assert!(is_silent(2, "2000 15", 30));
        // Until it is gone, but not with each read.
        assert!(!is_silent(2, "2000 15", 30));
        assert!(is_silent(2, "2000 15", 31));
        // Another one, of a restored backup.
        assert!(!is_silent(2, "3000 15", 32));
        assert!(!is_silent(3, "3000", 40));
        assert!(!is_silent(3, "3000", 4_000));
    }

    #[test]
    fn a_session_has_a_clock_and_a_length() {
        let text = value(Some(1_800_000_000_000), Duration::from_secs(45));
        assert_eq!(clock(text.as_bytes()), Some(1_800_000_000_000));
        assert_eq!(length(text.as_bytes()), Some(Duration::from_secs(45)));
        let text = value(None, Duration::from_secs(15));
        assert_eq!(
            (clock(text.as_bytes()), length(text.as_bytes())),
            (None, Some(Duration::from_secs(15)))
        );
        for foreign in [&b"1800000000000"[..], b"", b"x y", b"\xff 3"] {
            assert_eq!(length(foreign), None);
        }
        assert_eq!(clock(b"1800000000000"), Some(1_800_000_000_000));
    }
}
