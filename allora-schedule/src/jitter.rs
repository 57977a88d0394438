//! A deterministic delay, so that jobs of one minute do not all start in its first second.

use crate::{
    Time,
    hash::{scale, stable_hash},
};
use std::time::Duration;

/// A delay from zero to `max` for the occurrence of the job `name` at `scheduled_at`: whole
/// milliseconds, evenly spread over jobs and occurrences, equal on every node and in every version.
///
/// It is FNV-1a over the name and the instant's milliseconds, mixed by the finaliser of
/// MurmurHash3 and scaled by Lemire's multiplication. `max` is cut to whole milliseconds.
///
/// ```
/// # use allora::{Time, schedule::jitter};
/// # use std::time::Duration;
/// let delay = jitter("invoices", Time::UNIX_EPOCH, Duration::from_secs(60));
/// assert_eq!(delay, Duration::from_millis(57_194));
/// ```
pub fn jitter(name: &str, scheduled_at: Time, max: Duration) -> Duration {
    let hash = stable_hash(&[name.as_bytes(), &scheduled_at.timestamp_millis().to_le_bytes()]);
    let max = u64::try_from(max.as_millis()).unwrap_or(u64::MAX);
    Duration::from_millis(scale(hash, max.saturating_add(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_jitter_is_within_its_bounds_and_fills_them() {
        let max = Duration::from_millis(9);
        let mut seen = [0; 10];
        for second in 0..10_000 {
            let at = crate::time::from_millis(second * 1000).unwrap();
            seen[jitter("job", at, max).as_millis() as usize] += 1;
        }
        assert!(seen.iter().all(|count| (800..1200).contains(count)), "{seen:?}");
        assert_eq!(jitter("job", Time::UNIX_EPOCH, Duration::ZERO), Duration::ZERO);
        assert!(jitter("job", Time::UNIX_EPOCH, Duration::MAX) > max);
    }
}
