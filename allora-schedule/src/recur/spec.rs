//! A recurrence rule as it is written: its parts, sorted.

use std::fmt;

/// The frequency of a rule, from the longest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Freq {
    Yearly,
    Monthly,
    Weekly,
    Daily,
    Hourly,
    Minutely,
    Secondly,
}

impl Freq {
    /// All of them, with their names in rules and in English.
    pub(super) const ALL: [(Self, &'static str, &'static str); 7] = [
        (Self::Yearly, "YEARLY", "year"),
        (Self::Monthly, "MONTHLY", "month"),
        (Self::Weekly, "WEEKLY", "week"),
        (Self::Daily, "DAILY", "day"),
        (Self::Hourly, "HOURLY", "hour"),
        (Self::Minutely, "MINUTELY", "minute"),
        (Self::Secondly, "SECONDLY", "second"),
    ];

    /// Its length in seconds; `None` if it depends on the calendar.
    pub(super) fn seconds(self) -> Option<i64> {
        match self {
            Self::Yearly | Self::Monthly => None,
            Self::Weekly => Some(7 * 86_400),
            Self::Daily => Some(86_400),
            Self::Hourly => Some(3_600),
            Self::Minutely => Some(60),
            Self::Secondly => Some(1),
        }
    }

    /// In English.
    pub(super) fn unit(self) -> &'static str {
        Self::ALL[self as usize].2
    }
}

/// A second as it is written: of a wall clock, or of UTC; since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Stamp {
    Wall(i64),
    Utc(i64),
}

impl Stamp {
    /// The second that the clock shows.
    pub(super) fn shown(self) -> i64 {
        match self {
            Self::Wall(second) | Self::Utc(second) => second,
        }
    }
}

/// The parts of a rule; each list sorted and without repetitions, empty if the part is missing.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Spec {
    pub(crate) freq: Freq,
    /// At least 1.
    pub(crate) interval: i64,
    pub(crate) count: Option<u32>,
    pub(crate) until: Option<Stamp>,
    pub(crate) months: Vec<i32>,
    pub(crate) weeks: Vec<i32>,
    pub(crate) year_days: Vec<i32>,
    pub(crate) month_days: Vec<i32>,
    /// The n-th and the weekday (0 is Sunday); n is 0 for each such weekday.
    pub(crate) weekdays: Vec<(i32, u32)>,
    pub(crate) hours: Vec<i32>,
    pub(crate) minutes: Vec<i32>,
    pub(crate) seconds: Vec<i32>,
    pub(crate) positions: Vec<i32>,
    /// The weekday with which weeks begin; 0 is Sunday.
    pub(crate) week_start: u32,
}

/// The weekdays of rules; 0 is Sunday.
pub(super) const WEEKDAYS: [&str; 7] = ["SU", "MO", "TU", "WE", "TH", "FR", "SA"];

impl Spec {
    /// A rule without further parts.
    pub(crate) fn new(freq: Freq, interval: i64) -> Self {
        Self {
            freq,
            interval,
            count: None,
            until: None,
            months: Vec::new(),
            weeks: Vec::new(),
            year_days: Vec::new(),
            month_days: Vec::new(),
            weekdays: Vec::new(),
            hours: Vec::new(),
            minutes: Vec::new(),
            seconds: Vec::new(),
            positions: Vec::new(),
            week_start: 1,
        }
    }

    /// `true` if nothing but the frequency and the interval selects times.
    pub(crate) fn is_plain(&self) -> bool {
        self.lists().iter().all(|(_, values)| values.is_empty()) && self.weekdays.is_empty()
    }

    /// The lists of numbers, in the order of the standard; the weekdays come before the hours.
    pub(super) fn lists(&self) -> [(&'static str, &[i32]); 8] {
        [
            ("BYMONTH", &self.months),
            ("BYWEEKNO", &self.weeks),
            ("BYYEARDAY", &self.year_days),
            ("BYMONTHDAY", &self.month_days),
            ("BYHOUR", &self.hours),
            ("BYMINUTE", &self.minutes),
            ("BYSECOND", &self.seconds),
            ("BYSETPOS", &self.positions),
        ]
    }
}

/// `FREQ=WEEKLY;INTERVAL=2;BYDAY=MO,WE`.
impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FREQ={}", Freq::ALL[self.freq as usize].1)?;
        if self.interval > 1 {
            write!(f, ";INTERVAL={}", self.interval)?;
        }
        if let Some(count) = self.count {
            write!(f, ";COUNT={count}")?;
        }
        if let Some(until) = self.until {
            write!(f, ";UNTIL={until}")?;
        }
        for (name, values) in self.lists() {
            if name == "BYHOUR" && !self.weekdays.is_empty() {
                let day = |(nth, day): &(i32, u32)| match nth {
                    0 => WEEKDAYS[*day as usize].to_owned(),
                    _ => format!("{nth}{}", WEEKDAYS[*day as usize]),
                };
                let days: Vec<String> = self.weekdays.iter().map(day).collect();
                write!(f, ";BYDAY={}", days.join(","))?;
            }
            if !values.is_empty() {
                let values: Vec<String> = values.iter().map(i32::to_string).collect();
                write!(f, ";{name}={}", values.join(","))?;
            }
        }
        if self.week_start != 1 {
            write!(f, ";WKST={}", WEEKDAYS[self.week_start as usize])?;
        }
        Ok(())
    }
}

/// `20260302T090000`, with a `Z` in UTC.
impl fmt::Display for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let zone = if matches!(self, Self::Utc(_)) { "Z" } else { "" };
        let at = chrono::DateTime::from_timestamp(self.shown(), 0).unwrap_or_default();
        write!(f, "{}{zone}", at.format("%Y%m%dT%H%M%S"))
    }
}
