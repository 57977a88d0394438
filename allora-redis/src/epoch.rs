//! The epoch of the last failover that is known, against answers that have not heard of it.

use std::time::{Duration, Instant};

/// The time for which most servers must tell of an earlier epoch before it is believed. Sentinels tell each
/// other of a failover every two seconds, nodes of a cluster every second; after this time they have lost
/// their memory of it.
const FORGOTTEN: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
pub(crate) struct Epoch {
    last: u64,
    /// Since when most servers tell of earlier ones.
    denied_since: Option<Instant>,
}

impl Epoch {
    pub(crate) fn new(last: u64) -> Self {
        Self { last, denied_since: None }
    }

    /// Notes an answer that names the same server.
    pub(crate) fn agrees(&mut self, epoch: u64) {
        (self.last, self.denied_since) = (self.last.max(epoch), None);
    }

    /// True if an answer of this epoch, the highest one of those that came in, is to be followed: it is not
    /// earlier than the last one, or most servers have answered with earlier ones for [`FORGOTTEN`].
    pub(crate) fn follows(&mut self, epoch: u64, of_most: bool, at: Instant) -> bool {
        if epoch < self.last {
            let since = of_most.then(|| self.denied_since.unwrap_or(at));
            self.denied_since = since;
            if since.is_none_or(|since| at.saturating_duration_since(since) < FORGOTTEN) {
                return false;
            }
        }
        *self = Self::new(epoch);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::now;

    #[test]
    fn an_earlier_epoch_is_followed_when_most_have_told_of_it_all_the_time() {
        let (mut epoch, begun) = (Epoch::new(2), now());
        let at = |seconds| begun + Duration::from_secs(seconds);
        // A few for long are not most, and their time does not count.
        assert!(!epoch.follows(1, false, at(0)));
        assert!(!epoch.follows(1, false, at(60)));
        assert!(!epoch.follows(1, true, at(61)));
        assert!(!epoch.follows(1, true, at(70)));
        // One that knows of the failover has answered.
        epoch.agrees(2);
        assert!(!epoch.follows(1, true, at(72)));
        assert!(epoch.follows(1, true, at(82)));
        assert!(epoch.follows(1, false, at(83)), "it is the last one now");
        assert!(epoch.follows(3, false, at(84)));
    }
}
