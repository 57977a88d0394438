//! A parsed expression: one bit per value of every field.

use super::civil::{DAY, days_from_civil, month_length};

/// Which values each field allows.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Fields {
    /// Bits 0 to 59.
    pub(super) seconds: u64,
    /// Bits 0 to 59.
    pub(super) minutes: u64,
    /// Bits 0 to 23.
    pub(super) hours: u32,
    /// Bits 1 to 12.
    pub(super) months: u32,
    pub(super) days: Days,
    /// `None`: every year.
    pub(super) years: Option<Years>,
    /// The minute field starts with `*`.
    pub(super) minute_star: bool,
    /// The hour field starts with `*`.
    pub(super) hour_star: bool,
}

/// A set of years from [`Years::FIRST`] to [`Years::LAST`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(super) struct Years {
    bits: [u64; 4],
}

impl Years {
    pub(super) const FIRST: i64 = 1970;
    pub(super) const LAST: i64 = 2199;

    /// Adds a year within the range.
    pub(super) fn insert(&mut self, year: i64) {
        let bit = (year - Self::FIRST) as usize;
        self.bits[bit / 64] |= 1 << (bit % 64);
    }

    pub(super) fn has(self, year: i64) -> bool {
        (Self::FIRST..=Self::LAST).contains(&year) && {
            let bit = (year - Self::FIRST) as usize;
            self.bits[bit / 64] >> (bit % 64) & 1 != 0
        }
    }

    /// The first year of the set not before this one.
    fn from(self, year: i64) -> Option<i64> {
        (year.max(Self::FIRST)..=Self::LAST).find(|year| self.has(*year))
    }
}

/// Which days of a month match: two fields that are OR-ed, unless one of them starts with `*`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(super) struct Days {
    /// Bits 1 to 31.
    pub(super) of_month: u32,
    /// Bit n: the n-th day before the last one (`L`, `L-3`).
    pub(super) before_last: u32,
    /// `LW`: the last day from Monday to Friday.
    pub(super) last_workday: bool,
    /// Bits 1 to 31: the day from Monday to Friday that is nearest (`15W`).
    pub(super) workdays: u32,
    /// The day-of-month field starts with `*`, or is `?`.
    pub(super) of_month_star: bool,
    /// Bits 0 (Sunday) to 6.
    pub(super) of_week: u32,
    /// `MON#2`: for each weekday the bits 1 to 5.
    pub(super) nth: [u8; 7],
    /// Bits 0 to 6: the last such weekday (`5L`).
    pub(super) last_of_week: u32,
    /// The weekday field starts with `*`, or is `?`.
    pub(super) of_week_star: bool,
}

/// The days 1 to 31.
pub(super) const ALL_DAYS: u32 = !1;
const EVERY_SEVENTH: u64 = 1 | 1 << 7 | 1 << 14 | 1 << 21 | 1 << 28;

impl Days {
    /// The matching days, as bits 1 to `len`, of a month of `len` days whose first day is the
    /// weekday `first` (0 is Sunday).
    pub(super) fn in_month(&self, first: u32, len: u32) -> u32 {
        let by_day = self.by_day(first, len);
        let by_week = self.by_week(first, len);
        let both = if self.of_month_star || self.of_week_star {
            by_day & by_week
        } else {
            by_day | by_week
        };
        both & days_up_to(len)
    }

    fn by_day(&self, first: u32, len: u32) -> u32 {
        let mut days = self.of_month;
        // `L-30` in February would count back past its first day.
        let mut back = self.before_last & (days_up_to(len) >> 1);
        while back != 0 {
            days |= 1 << (len - back.trailing_zeros());
            back &= back - 1;
        }
        if self.last_workday {
            days |= 1 << nearest_workday(len, first, len);
        }
        let mut wanted = self.workdays & days_up_to(len);
        while wanted != 0 {
            days |= 1 << nearest_workday(wanted.trailing_zeros(), first, len);
            wanted &= wanted - 1;
        }
        days
    }

    fn by_week(&self, first: u32, len: u32) -> u32 {
        let turned = (self.of_week | self.of_week << 7) >> first & 0x7f;
        let mut days = ((u64::from(turned) * EVERY_SEVENTH) << 1) as u32;
        if self.nth != [0; 7] || self.last_of_week != 0 {
            for weekday in 0..7 {
                let earliest = 1 + (weekday + 7 - first) % 7;
                let mut nth = self.nth[weekday as usize];
                while nth != 0 {
                    let day = earliest + 7 * (nth.trailing_zeros() - 1);
                    if day <= len {
                        days |= 1 << day;
                    }
                    nth &= nth - 1;
                }
                if self.last_of_week >> weekday & 1 != 0 {
                    days |= 1 << (earliest + (len - earliest) / 7 * 7);
                }
            }
        }
        days
    }
}

/// Saturday moves to Friday and Sunday to Monday, but never into another month.
fn nearest_workday(day: u32, first: u32, len: u32) -> u32 {
    match (first + day - 1) % 7 {
        6 if day == 1 => 3,
        6 => day - 1,
        0 if day == len => day - 2,
        0 => day + 1,
        _ => day,
    }
}

/// The bits 1 to `len`.
fn days_up_to(len: u32) -> u32 {
    ((2_u64 << len) - 2) as u32
}

impl Fields {
    /// `true` if any day of the calendar matches.
    ///
    /// A year is one of fourteen kinds (leap or not, times the weekday of 1 January), and every
    /// kind occurs in the 400 years after which the Gregorian calendar repeats. So this is a proof.
    pub(super) fn can_match(&self) -> bool {
        if let Some(years) = self.years {
            // Few enough to be looked at.
            let mut months = (Years::FIRST..=Years::LAST)
                .filter(|year| years.has(*year))
                .flat_map(|year| (1..=12).map(move |month| (year, month)));
            return months.any(|(year, month)| {
                self.days_of(year, month, days_from_civil(year, month, 1)) != 0
            });
        }
        (0..14).any(|kind| {
            let (leap, mut first) = (kind >= 7, kind % 7);
            (1..=12).any(|month| {
                let len = month_length(leap, month);
                let weekday = first;
                first = (first + len) % 7;
                self.months >> month & 1 != 0 && self.days.in_month(weekday, len) != 0
            })
        })
    }

    /// `true` if this year may match.
    pub(super) fn has_year(&self, year: i64) -> bool {
        self.years.is_none_or(|years| years.has(year))
    }

    /// The first year not before this one that may match.
    pub(super) fn year_from(&self, year: i64) -> Option<i64> {
        self.years.map_or(Some(year), |years| years.from(year))
    }

    /// A second after which no clock of the world shows a year that may match.
    pub(super) fn end(&self) -> i64 {
        match self.years {
            None => i64::MAX,
            Some(_) => days_from_civil(Years::LAST + 1, 1, 2) * DAY,
        }
    }

    /// `true` if the schedule follows elapsed time under Debian's rules.
    pub(super) fn is_wildcard(&self) -> bool {
        self.minute_star || self.hour_star
    }
}
