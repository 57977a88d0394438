//! A warning about a legal expression.

use std::fmt;

/// A warning: the expression is legal, and seldom intended.
///
/// # Codes
///
/// | code | example | meaning |
/// |---|---|---|
/// | `long-step` | `*/90 * * * *` | the step is larger than the range: only its first value is left |
/// | `every-minute` | `* 2 * * *`, `* */2 * * *` | sixty runs in each such hour |
/// | `every-second` | `* 30 2 * * *`, `* */15 * * * *` | sixty runs in each such minute |
/// | `either-day` | `0 0 13 * FRI` | each 13th, and each Friday |
/// | `both-days` | `0 0 */2 * MON` | odd days that are Mondays; in some crons either |
/// | `short-month` | `0 9 31 * *` | not in the five months without a 31st |
/// | `weekday-number` | `0 0 9 * * 1` | six fields as in Quartz, but 1 is Monday, not Sunday |
/// | `start-outside-rule` | `DTSTART:20260303T090000Z RRULE:FREQ=WEEKLY;BYDAY=MO` | the start is no time of the rule |
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Warning {
    /// A short name that does not change, such as `long-step`.
    pub code: &'static str,
    /// The meaning of the text, and the probable intention.
    pub message: String,
}

impl Warning {
    /// A warning of this code.
    pub fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}
