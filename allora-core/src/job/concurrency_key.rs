//! Concurrency keys: the limit of simultaneous runs, or of starts in a time, that several jobs share.

use crate::{
    error::{Error, Result},
    name::{check_key, key_record},
};
use allora_schedule::period_text;
use std::{fmt, ops::RangeInclusive, sync::Arc, time::Duration};

/// A concurrency key with its limit: of all jobs with the key, on all nodes, at most this number of
/// runs is active; or, as a rate, at most this number begins within any time of this length.
///
/// As text it is the key, followed by a colon and the limit unless that is 1, and for a rate by a slash and
/// the time.
///
/// ```
/// use allora::ConcurrencyKey;
///
/// let key: ConcurrencyKey = "tapes:2".parse().unwrap();
/// assert_eq!(key, ConcurrencyKey::new("tapes", 2));
/// assert_eq!(ConcurrencyKey::new("tapes", 1).to_string(), "tapes");
/// assert_eq!(&*key.record(), "allora:key:tapes");
///
/// let rate: ConcurrencyKey = "mail:100/1m".parse().unwrap();
/// assert_eq!(rate, ConcurrencyKey::rate("mail", 100, std::time::Duration::from_secs(60)));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct ConcurrencyKey {
    /// The key. Range: one word of 1 to 200 bytes, without a semicolon.
    pub key: Arc<str>,
    /// The largest number of active runs, or of starts. Range: 1 to 1 000.
    pub limit: u32,
    /// The time in which so many runs may begin. Default: none: it limits active runs. Range: 1 s to 24 h,
    /// whole milliseconds.
    pub per: Option<Duration>,
}

/// The largest limit: the record of a key has the lease of each holder.
const MAX_LIMIT: u32 = 1_000;

/// The times of rates.
const PER: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(24 * 60 * 60);

impl ConcurrencyKey {
    /// This key, for at most `limit` active runs.
    pub fn new(key: impl Into<Arc<str>>, limit: u32) -> Self {
        Self { key: key.into(), limit, per: None }
    }

    /// This key, for at most `limit` starts within any time of this length.
    pub fn rate(key: impl Into<Arc<str>>, limit: u32, per: Duration) -> Self {
        Self { key: key.into(), limit, per: Some(per) }
    }

    /// The name of the key's record in the store. Its leases are the holders: the trigger of each is
    /// the job, and the scheduled time that since which the job has waited. A job that runs on every
    /// node has ` on ` and the id of the node behind its name. A rate has a record of its own for each time.
    pub fn record(&self) -> Arc<str> {
        match self.per {
            None => key_record(&self.key),
            // No key has a blank.
            Some(per) => key_record(&format!("{} per {}", self.key, period_text(per))),
        }
    }

    pub(super) fn check(&self) -> Result {
        check_key(&self.key)?;
        if !(1..=MAX_LIMIT).contains(&self.limit) {
            return Err(Error::invalid(format!(
                "the concurrency key {:?} has the limit {}; use 1 to {MAX_LIMIT} runs",
                self.key, self.limit
            )));
        }
        let is_whole = |per: Duration| per.subsec_nanos().is_multiple_of(1_000_000);
        if let Some(per) = self.per.filter(|per| !PER.contains(per) || !is_whole(*per)) {
            return Err(Error::invalid(format!(
                "the rate {:?} has the time {per:?}; use 1s to 24h, in whole milliseconds",
                self.key
            )));
        }
        Ok(())
    }
}

impl fmt::Display for ConcurrencyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let looks_limited = self.key.rsplit_once(':').is_some_and(|(_, limit)| {
            is_number(limit) || limit.split_once('/').is_some_and(|(limit, _)| is_number(limit))
        });
        match (self.limit, self.per) {
            (limit, Some(per)) => write!(f, "{}:{limit}/{}", self.key, period_text(per)),
            (1, None) if !looks_limited => f.write_str(&self.key),
            (limit, None) => write!(f, "{}:{limit}", self.key),
        }
    }
}

/// `true` if it is read as a limit.
pub(crate) fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_and_its_limit_are_read_as_they_were_written() {
        for (key, limit, text) in [
            ("tapes", 1, "tapes"),
            ("tapes", 3, "tapes:3"),
            ("tenant:7", 1, "tenant:7:1"),
            ("tenant:7", 2, "tenant:7:2"),
            ("a:b", 1, "a:b"),
            ("a:", 1, "a:"),
        ] {
            let written = ConcurrencyKey::new(key, limit);
            assert_eq!(written.to_string(), text);
            assert_eq!(text.parse(), Ok(written));
        }
        for (text, limit, per) in [("mail:100/1m", 100, 60), ("a:b:1/1h30m", 1, 5_400)] {
            let key = text.rsplit_once(':').unwrap().0;
            let rate = ConcurrencyKey::rate(key, limit, Duration::from_secs(per));
            assert_eq!((rate.to_string(), text.parse()), (text.to_owned(), Ok(rate)));
        }
        let alike = ConcurrencyKey::new("mail:100/1m", 1);
        assert_eq!(alike.to_string().parse(), Ok(alike));
        let error = "mail:3/1x".parse::<ConcurrencyKey>().unwrap_err().to_string();
        assert!(error.contains("column 8"), "{error}");
        let error = "tapes:99999999999".parse::<ConcurrencyKey>().unwrap_err().to_string();
        assert!(error.contains("99999999999"), "{error}");
    }

    #[test]
    fn keys_and_limits_that_mean_nothing_are_refused() {
        let check = |key: &str, limit: u32, says: &str| {
            let error = ConcurrencyKey::new(key, limit).check().err();
            let text = error.map(|error| error.to_string()).unwrap_or_default();
            assert!(text.contains(says) && text.is_empty() == says.is_empty(), "{text:?}");
        };
        check(&"x".repeat(200), 1_000, "");
        check(&"x".repeat(201), 1, "201 bytes");
        check("", 1, "empty");
        check("a b", 1, "without blanks");
        check("a;b", 1, "without blanks");
        check("a\u{1b}", 1, "U+001B");
        check("a", 0, "limit 0; use 1 to 1000");
        check("a", 1_001, "limit 1001");
        for (millis, says) in [(999, "use 1s to 24h"), (1_000, ""), (86_400_001, "use 1s to 24h")] {
            let rate = ConcurrencyKey::rate("mail", 3, Duration::from_millis(millis)).check().err();
            let text = rate.map(|error| error.to_string()).unwrap_or_default();
            assert!(text.contains(says) && text.is_empty() == says.is_empty(), "{text:?}");
        }
    }
}
