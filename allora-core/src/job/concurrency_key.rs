//! Concurrency keys: the limit of simultaneous runs that several jobs share.

use crate::{
    error::{Error, Result},
    name::{check_key, key_record},
};
use std::{fmt, sync::Arc};

/// A concurrency key with its limit: of all jobs with the key, on all nodes, at most this number of
/// runs is active.
///
/// As text it is the key, followed by a colon and the limit unless that is 1.
///
/// ```
/// use allora::ConcurrencyKey;
///
/// let key: ConcurrencyKey = "tapes:2".parse().unwrap();
/// assert_eq!(key, ConcurrencyKey::new("tapes", 2));
/// assert_eq!(ConcurrencyKey::new("tapes", 1).to_string(), "tapes");
/// assert_eq!(&*key.record(), "allora:key:tapes");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct ConcurrencyKey {
    /// The key. Range: one word of 1 to 200 bytes, without a semicolon.
    pub key: Arc<str>,
    /// The largest number of active runs. Range: 1 to 1 000.
    pub limit: u32,
}

/// The largest limit: the record of a key has the lease of each holder.
const MAX_LIMIT: u32 = 1_000;

impl ConcurrencyKey {
    /// This key, for at most `limit` active runs.
    pub fn new(key: impl Into<Arc<str>>, limit: u32) -> Self {
        Self { key: key.into(), limit }
    }

    /// The name of the key's record in the store. Its leases are the holders: the trigger of each is
    /// the job, and the scheduled time that since which the job has waited. A job that runs on every
    /// node has ` on ` and the id of the node behind its name.
    pub fn record(&self) -> Arc<str> {
        key_record(&self.key)
    }

    pub(super) fn check(&self) -> Result {
        check_key(&self.key)?;
        if !(1..=MAX_LIMIT).contains(&self.limit) {
            return Err(Error::invalid(format!(
                "the concurrency key {:?} has the limit {}; use 1 to {MAX_LIMIT} runs",
                self.key, self.limit
            )));
        }
        Ok(())
    }
}

impl fmt::Display for ConcurrencyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let looks_limited = self.key.rsplit_once(':').is_some_and(|(_, limit)| is_number(limit));
        match self.limit {
            1 if !looks_limited => f.write_str(&self.key),
            limit => write!(f, "{}:{limit}", self.key),
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
    }
}
