//! A deterministic delay, so that jobs of one minute do not all start in its first second.

use super::hash::{scale, stable_hash};
use crate::time::Time;
use std::time::Duration;

/// How long after `at` the job `name` may start, from zero to `max`: whole milliseconds, evenly
/// spread over jobs and occurrences, equal on every node and in every version.
///
/// It is FNV-1a over the name and the instant's milliseconds, mixed by the finaliser of
/// MurmurHash3 and scaled by Lemire's multiplication. `max` is cut to whole milliseconds.
///
/// ```
/// # use allora_core::{Time, schedule::spread_of};
/// # use std::time::Duration;
/// let spread = spread_of("invoices", Time::UNIX_EPOCH, Duration::from_secs(60));
/// assert_eq!(spread, Duration::from_millis(57_194));
/// ```
pub fn spread_of(name: &str, at: Time, max: Duration) -> Duration {
    let hash = stable_hash(&[name.as_bytes(), &at.timestamp_millis().to_le_bytes()]);
    let max = u64::try_from(max.as_millis()).unwrap_or(u64::MAX);
    Duration::from_millis(scale(hash, max.saturating_add(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_spread_is_within_its_bounds_and_fills_them() {
        let max = Duration::from_millis(9);
        let mut seen = [0; 10];
        for second in 0..10_000 {
            let at = crate::time::from_millis(second * 1000).unwrap();
            seen[spread_of("job", at, max).as_millis() as usize] += 1;
        }
        assert!(seen.iter().all(|count| (800..1200).contains(count)), "{seen:?}");
        assert_eq!(spread_of("job", Time::UNIX_EPOCH, Duration::ZERO), Duration::ZERO);
        assert!(spread_of("job", Time::UNIX_EPOCH, Duration::MAX) > max);
    }
}
