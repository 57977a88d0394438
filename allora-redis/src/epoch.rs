//! The epoch of the last failover that is known, against answers that have not heard of it.

use crate::driver::now;
use std::time::{Duration, Instant};

/// The time for which most servers must tell of an earlier epoch before it is believed. Sentinels tell each
/// other of a failover every two seconds, nodes of a cluster every second; after this time they have lost
/// their memory of it.
const FORGOTTEN: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
pub(crate) struct Epoch {
    last: u64,
    /// Since when only earlier ones are told of.
    denied_since: Option<Instant>,
}

impl Epoch {
    pub(crate) fn new(last: u64) -> Self {
        Self { last, denied_since: None }
    }

    /// An answer that changes nothing.
    pub(crate) fn agrees(&mut self, epoch: u64) {
        (self.last, self.denied_since) = (self.last.max(epoch), None);
    }

    /// True if an answer of this epoch, the highest one of so many `answers` to so many `asked`, is to be
    /// followed: it is not earlier than the last one, or most have named earlier ones for [`FORGOTTEN`].
    pub(crate) fn follows(&mut self, epoch: u64, answers: usize, asked: usize) -> bool {
        if epoch < self.last {
            let since = *self.denied_since.get_or_insert_with(now);
            if answers * 2 <= asked || since.elapsed() < FORGOTTEN {
                return false;
            }
        }
        *self = Self::new(epoch);
        true
    }
}
