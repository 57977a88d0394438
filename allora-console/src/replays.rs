//! The signatures that this process has accepted, until they expire: none is accepted twice.

use std::{
    collections::{BTreeMap, HashSet},
    sync::{Mutex, PoisonError},
};

/// The most signatures that are remembered, each with about 60 bytes. That is 1 666 requests in each second.
const MOST: usize = 500_000;

/// So much of a signature tells it from all others.
type Mark = [u8; 16];

/// The signatures that were accepted.
#[derive(Debug, Default)]
pub(crate) struct Replays(Mutex<Seen>);

#[derive(Debug, Default)]
struct Seen {
    marks: HashSet<Mark>,
    /// By the last second in which they would be accepted.
    by_end: BTreeMap<i64, Vec<Mark>>,
    /// Those that end before this second may have been forgotten.
    forgotten: i64,
}

/// The answer to a signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Known {
    /// It comes for the first time, and is remembered.
    New,
    /// It was accepted before, or the clock was set back and nobody can tell.
    Seen,
    /// It cannot be remembered: there are too many. It may be accepted later.
    Full,
}

impl Replays {
    /// Remembers a signature that is accepted in no second after `until`; `now` is the present second.
    pub(crate) fn note(&self, signature: &[u8; 32], until: i64, now: i64) -> Known {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).note(signature, until, now, MOST)
    }
}

impl Seen {
    fn note(&mut self, signature: &[u8; 32], until: i64, now: i64, most: usize) -> Known {
        while let Some(ended) = self.by_end.first_entry().filter(|first| *first.key() < now) {
            ended.remove().iter().for_each(|mark| _ = self.marks.remove(mark));
            self.forgotten = now;
        }
        let mut mark = Mark::default();
        mark.copy_from_slice(&signature[..16]);
        if until < self.forgotten || self.marks.contains(&mark) {
            return Known::Seen;
        }
        if self.marks.len() >= most {
            return Known::Full;
        }
        self.marks.insert(mark);
        self.by_end.entry(until).or_default().push(mark);
        Known::New
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(seen: &mut Seen, signature: u8, until: i64, now: i64) -> Known {
        seen.note(&[signature; 32], until, now, 3)
    }

    #[test]
    fn a_signature_is_accepted_once_for_as_long_as_it_counts() {
        let mut seen = Seen::default();
        assert_eq!(note(&mut seen, 1, 100, 0), Known::New);
        for now in [0, 50, 100] {
            assert_eq!(note(&mut seen, 1, 100, now), Known::Seen, "{now}");
        }
        assert_eq!(note(&mut seen, 2, 200, 101), Known::New);
        assert_eq!((seen.marks.len(), seen.by_end.len()), (1, 1), "the first one has expired");
    }

    #[test]
    fn what_was_forgotten_is_not_accepted_when_the_clock_is_set_back() {
        let mut seen = Seen::default();
        note(&mut seen, 1, 100, 0);
        assert_eq!(note(&mut seen, 2, 900, 700), Known::New);
        assert_eq!(note(&mut seen, 1, 100, 50), Known::Seen);
        assert_eq!(note(&mut seen, 3, 701, 401), Known::New);
    }

    #[test]
    fn a_full_memory_refuses_new_ones_and_forgets_none() {
        let mut seen = Seen::default();
        for signature in 1..=3 {
            assert_eq!(note(&mut seen, signature, 100, 0), Known::New);
        }
        assert_eq!(note(&mut seen, 4, 100, 0), Known::Full);
        assert_eq!(note(&mut seen, 1, 100, 0), Known::Seen);
        assert_eq!(note(&mut seen, 4, 400, 101), Known::New);
    }
}
