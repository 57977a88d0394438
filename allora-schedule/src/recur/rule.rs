//! The evaluator of a rule: the first matching second of a wall clock that knows no zone.
//!
//! The times of a rule come in periods of its frequency, of which every n-th counts. The period that
//! holds a second follows from the second by division, so a search costs the same after ten years as
//! after ten minutes.

use super::spec::{Freq, Spec, Stamp};
use crate::cron::{
    civil::{DAY, civil, days_from_civil, is_leap, month_length, weekday},
    times::{Times, nth_bit},
};

/// A local wall clock may show this year when UTC still has 9999.
const LAST_YEAR: i64 = 10_000;

/// The most periods of one search. Rules that need more are those whose steps never meet their filters.
const MOST_PERIODS: usize = 1_000_000;

/// A rule with its start, as bits.
#[derive(Debug, Clone)]
pub(super) struct Rule {
    freq: Freq,
    interval: i64,
    /// The wall second of the start.
    start: i64,
    week_start: u32,
    /// Bits 1 to 12.
    months: u32,
    /// Bits 1 to 31: days of the month, and days counted back from its end.
    month_days: u32,
    month_days_back: u32,
    has_month_days: bool,
    /// Bits 0 (Sunday) to 6: each such weekday.
    weekdays: u32,
    nth_weekdays: Vec<(i32, u32)>,
    /// The n-th weekdays are those of the year.
    nth_of_year: bool,
    year_days: Vec<i32>,
    weeks: Vec<i32>,
    /// The times of a period: of its day, hour, minute or second.
    times: Times,
    /// The hours, minutes and seconds in which a period shorter than a day may begin.
    begins: Times,
    positions: Vec<i32>,
    /// The last wall second that counts.
    last: Option<i64>,
}

const ALL_MONTHS: u32 = 0b1_1111_1111_1110;
const ALL_HOURS: u32 = (1 << 24) - 1;
const ALL_MINUTES: u64 = (1 << 60) - 1;

/// The matching days of a period, month by month: the first day of the month, and bits 1 to 31.
struct Days {
    months: [(i64, u32); 12],
    len: usize,
}

impl Days {
    fn new() -> Self {
        Self { months: [(0, 0); 12], len: 0 }
    }

    fn push(&mut self, first: i64, days: u32) {
        self.months[self.len] = (first, days);
        self.len += 1;
    }

    fn each(&self) -> &[(i64, u32)] {
        &self.months[..self.len]
    }

    fn count(&self) -> usize {
        self.each().iter().map(|(_, days)| days.count_ones() as usize).sum()
    }

    fn nth(&self, mut index: usize) -> Option<i64> {
        for (first, days) in self.each() {
            let count = days.count_ones() as usize;
            if index < count {
                return Some(first - 1 + i64::from(nth_bit((*days).into(), index as u32)));
            }
            index -= count;
        }
        None
    }
}

impl Rule {
    pub(super) fn new(spec: &Spec, start: i64) -> Self {
        let day = start.div_euclid(DAY);
        let second = start.rem_euclid(DAY);
        let (_, month, of_month) = civil(day);
        let bits = |values: &[i32]| values.iter().fold(0_u64, |bits, value| bits | 1 << value);
        // A part that is missing is that of the start, unless the frequency is as short.
        let time = |values: &[i32], freq: Freq, of_start: i64, all: u64| match values {
            [] if spec.freq >= freq => all,
            [] => 1 << of_start,
            values => bits(values),
        };
        let hours = time(&spec.hours, Freq::Hourly, second / 3600, ALL_HOURS.into()) as u32;
        let minutes = time(&spec.minutes, Freq::Minutely, second / 60 % 60, ALL_MINUTES);
        let seconds = time(&spec.seconds, Freq::Secondly, second % 60, ALL_MINUTES);
        let lacks_days = spec.weeks.is_empty()
            && spec.year_days.is_empty()
            && spec.month_days.is_empty()
            && spec.weekdays.is_empty();
        let of_start = lacks_days && spec.freq <= Freq::Monthly;
        let (ahead, back): (Vec<i32>, Vec<i32>) = spec.month_days.iter().partition(|day| **day > 0);
        let months = match (&*spec.months, spec.freq) {
            ([], Freq::Yearly) if lacks_days => 1 << month,
            ([], _) => ALL_MONTHS,
            (months, _) => bits(months) as u32,
        };
        let every = |(nth, _): &&(i32, u32)| *nth == 0;
        let weekdays = spec.weekdays.iter().filter(every).fold(0, |bits, (_, day)| bits | 1 << day);
        let of_week = lacks_days && spec.freq == Freq::Weekly;
        let one = |is_inside: bool, bits: u64| if is_inside { bits } else { 1 };
        let is = |freq: Freq| spec.freq >= freq;
        let mut rule = Self {
            freq: spec.freq,
            interval: spec.interval,
            start,
            week_start: spec.week_start,
            months,
            month_days: if of_start { 1 << of_month } else { bits(&ahead) as u32 },
            month_days_back: back.iter().fold(0, |bits, day| bits | 1 << -day),
            has_month_days: of_start || !spec.month_days.is_empty(),
            weekdays: if of_week { 1 << weekday(day) } else { weekdays },
            nth_weekdays: spec.weekdays.iter().filter(|day| !every(day)).copied().collect(),
            nth_of_year: spec.freq == Freq::Yearly && spec.months.is_empty(),
            year_days: spec.year_days.clone(),
            weeks: spec.weeks.clone(),
            times: Times {
                hours: one(!is(Freq::Hourly), hours.into()) as u32,
                minutes: one(!is(Freq::Minutely), minutes),
                seconds: one(!is(Freq::Secondly), seconds),
            },
            begins: Times {
                hours,
                minutes: if is(Freq::Minutely) { minutes } else { ALL_MINUTES },
                seconds: if is(Freq::Secondly) { seconds } else { ALL_MINUTES },
            },
            positions: spec.positions.clone(),
            last: None,
        };
        rule.last = match spec.count {
            Some(count) => rule.nth(count, spec),
            None => match spec.until {
                Some(Stamp::Wall(until)) => Some(until),
                Some(Stamp::Utc(_)) | None => None,
            },
        };
        rule
    }

    /// The n-th time, from 1.
    fn nth(&self, count: u32, spec: &Spec) -> Option<i64> {
        if let (true, Some(seconds)) = (spec.is_plain(), self.freq.seconds()) {
            return Some(self.start + (i64::from(count) - 1) * self.interval * seconds);
        }
        let mut at = self.start - 1;
        for _ in 0..count {
            at = self.next(at + 1)?;
        }
        Some(at)
    }

    /// The first day from `day` on with which the rule can begin: the first of its week or month.
    pub(super) fn first_day(spec: &Spec, day: i64) -> Option<i64> {
        if spec.is_plain() {
            return Some(day);
        }
        let every = Self::new(&Spec { interval: 1, ..spec.clone() }, 0);
        let mut day = day;
        let begin = match spec.freq {
            Freq::Weekly | Freq::Monthly => {
                let (days, _) = every.days_of(every.number(day))?;
                days.nth(0)
            }
            _ => None,
        };
        // Nothing of the period is left out.
        if begin.is_none_or(|begin| begin >= day) {
            return every.next(day * DAY).map(|at| at.div_euclid(DAY));
        }
        while every.number(day) == every.number(begin?) {
            day += 1;
        }
        every.next(day * DAY).map(|at| at.div_euclid(DAY))
    }

    /// The first time not before this wall second.
    pub(super) fn next(&self, from: i64) -> Option<i64> {
        if self.last.is_some_and(|last| from > last) {
            return None;
        }
        let from = from.max(self.start);
        let next = match self.freq.seconds() {
            Some(unit) if unit < DAY => self.next_short(from, unit),
            _ => self.next_of_days(from),
        };
        next.filter(|next| self.last.is_none_or(|last| *next <= last))
    }

    /// For periods of whole days.
    fn next_of_days(&self, from: i64) -> Option<i64> {
        let first = self.number(self.start.div_euclid(DAY));
        let mut day = from.div_euclid(DAY);
        for _ in 0..MOST_PERIODS {
            let past = (self.number(day) - first).rem_euclid(self.interval);
            let number = self.number(day) + if past == 0 { 0 } else { self.interval - past };
            let (days, then) = self.days_of(number)?;
            if let Some(found) = self.first_of(&days, from) {
                return Some(found);
            }
            day = then;
        }
        None
    }

    /// The number of the period that holds a day.
    fn number(&self, day: i64) -> i64 {
        match self.freq {
            Freq::Yearly => civil(day).0,
            Freq::Monthly => {
                let (year, month, _) = civil(day);
                year * 12 + i64::from(month) - 1
            }
            Freq::Weekly => (day + self.to_week_start()).div_euclid(7),
            _ => day,
        }
    }

    /// The number to add to a day so that weeks begin at multiples of seven.
    fn to_week_start(&self) -> i64 {
        (4 - i64::from(self.week_start)).rem_euclid(7)
    }

    /// The matching days of a period, and the first day that may match after it. `None` past the end.
    fn days_of(&self, number: i64) -> Option<(Days, i64)> {
        let mut days = Days::new();
        let (year, month) = match self.freq {
            Freq::Yearly => {
                for month in (1..=12).filter(|month| self.months >> month & 1 != 0) {
                    let first = days_from_civil(number, month, 1);
                    days.push(first, self.month(number, month, first));
                }
                return Some((days, days_from_civil(self.in_time(number)? + 1, 1, 1)));
            }
            Freq::Monthly => (number.div_euclid(12), number.rem_euclid(12) as u32 + 1),
            Freq::Weekly => {
                let (year, month, _) = civil(number * 7 - self.to_week_start());
                (year, month)
            }
            _ => {
                let (year, month, _) = civil(number);
                (year, month)
            }
        };
        let first = days_from_civil(self.in_time(year)?, month, 1);
        let then = first + i64::from(month_length(is_leap(year), month));
        let all = self.month(year, month, first);
        match self.freq {
            Freq::Monthly => days.push(first, all),
            Freq::Daily => {
                days.push(first, all & 1 << (number - first + 1));
                // What no day of the month has is not looked for day by day.
                return Some((days, if all == 0 { then } else { number + 1 }));
            }
            _ => {
                let begin = number * 7 - self.to_week_start();
                let week = 0x7f_u64 << (begin - first + 1);
                days.push(first, all & week as u32);
                if begin + 7 > then {
                    let (year, month, _) = civil(then);
                    let more = self.month(year, month, then);
                    days.push(then, more & ((1_u32 << (begin + 7 - then + 1)) - 2));
                }
                return Some((days, begin + 7));
            }
        }
        Some((days, then))
    }

    fn in_time(&self, year: i64) -> Option<i64> {
        (year <= LAST_YEAR).then_some(year)
    }

    /// The first time of a period not before `from`.
    fn first_of(&self, days: &Days, from: i64) -> Option<i64> {
        let (today, second) = (from.div_euclid(DAY), from.rem_euclid(DAY) as u32);
        if !self.positions.is_empty() {
            let times = self.times.count();
            let at = |index: usize| {
                let day = days.nth(index / times)?;
                Some(day * DAY + i64::from(self.times.nth(index % times)))
            };
            return self.positioned(days.count() * times, from, at);
        }
        for (first, all) in days.each() {
            // Bits before today's.
            let past = (today - first + 1).clamp(0, 32);
            let mut left = (u64::from(*all) >> past << past) as u32;
            while left != 0 {
                let day = first - 1 + i64::from(left.trailing_zeros());
                let time =
                    if day > today { Some(self.times.first()) } else { self.times.from(second) };
                if let Some(time) = time {
                    return Some(day * DAY + i64::from(time));
                }
                left &= left - 1;
            }
        }
        None
    }

    /// The first of the times at the positions of the rule, out of `count`, that is not before `from`.
    fn positioned(
        &self,
        count: usize,
        from: i64,
        at: impl Fn(usize) -> Option<i64>,
    ) -> Option<i64> {
        let index = |position: &i32| {
            let distance = usize::try_from(position.unsigned_abs()).ok()?;
            match position {
                1.. => (distance <= count).then(|| distance - 1),
                _ => count.checked_sub(distance),
            }
        };
        let times = self.positions.iter().filter_map(index).filter_map(at);
        times.filter(|time| *time >= from).min()
    }

    /// For periods shorter than a day.
    fn next_short(&self, from: i64, unit: i64) -> Option<i64> {
        let first = self.start.div_euclid(unit);
        let mut from = from;
        for _ in 0..MOST_PERIODS {
            let past = (from.div_euclid(unit) - first).rem_euclid(self.interval);
            let number = from.div_euclid(unit) + if past == 0 { 0 } else { self.interval - past };
            let begin = number * unit;
            let day = begin.div_euclid(DAY);
            let matching = self.next_day(day)?;
            let second = begin.rem_euclid(DAY) as u32;
            let time = if matching > day { None } else { self.begins.from(second) };
            if time != Some(second) {
                let later = time.map(|time| day * DAY + i64::from(time));
                from = later.unwrap_or(matching.max(day + 1) * DAY);
                continue;
            }
            let inside = from.max(begin) - begin;
            let found = if self.positions.is_empty() {
                let time = self.times.from(inside as u32);
                time.map(|time| begin + i64::from(time))
            } else {
                let at = |index| Some(begin + i64::from(self.times.nth(index)));
                self.positioned(self.times.count(), from, at)
            };
            if found.is_some() {
                return found;
            }
            from = begin + unit;
        }
        None
    }

    /// The first matching day not before another one.
    fn next_day(&self, day: i64) -> Option<i64> {
        let (mut year, mut month, of_month) = civil(day);
        let mut first = day - i64::from(of_month - 1);
        let mut days = self.month(year, month, first) >> of_month << of_month;
        while days == 0 {
            (year, month) = if month == 12 { (year + 1, 1) } else { (year, month + 1) };
            first = days_from_civil(self.in_time(year)?, month, 1);
            days = self.month(year, month, first);
        }
        Some(first - 1 + i64::from(days.trailing_zeros()))
    }

    /// The matching days of a month, as bits 1 to 31; `first` is its first day.
    fn month(&self, year: i64, month: u32, first: i64) -> u32 {
        if self.months >> month & 1 == 0 {
            return 0;
        }
        let len = month_length(is_leap(year), month);
        let mut days = ((1_u64 << (len + 1)) - 2) as u32;
        if self.has_month_days {
            // Bit 1, the last day, becomes the bit of that day.
            let back = u64::from(self.month_days_back.reverse_bits()) << 1 >> (31 - len);
            days &= self.month_days | back as u32;
        }
        if self.weekdays != 0 || !self.nth_weekdays.is_empty() {
            days &= self.of_weekdays(year, first, len);
        }
        let has = |day: i64| (first..first + i64::from(len)).contains(&day);
        if !self.year_days.is_empty() {
            let (begin, end) = (days_from_civil(year, 1, 1), days_from_civil(year + 1, 1, 1));
            let day = |of_year: &i32| match of_year {
                1.. => begin + i64::from(*of_year) - 1,
                _ => end + i64::from(*of_year),
            };
            let of_year = self.year_days.iter().map(day).filter(|day| has(*day));
            days &= of_year.fold(0, |bits, day| bits | 1 << (day - first + 1));
        }
        if !self.weeks.is_empty() {
            let of_weeks = (0..i64::from(len)).filter(|day| self.is_of_weeks(year, first + day));
            days &= of_weeks.fold(0, |bits, day| bits | 1 << (day + 1));
        }
        days
    }

    fn of_weekdays(&self, year: i64, first: i64, len: u32) -> u32 {
        let mut days = 0;
        // Day 1 is the weekday of `first`.
        let week = u64::from(self.weekdays);
        let turned = (week | week << 7) >> weekday(first) & 0x7f;
        (0..5).for_each(|number| days |= (turned << (7 * number + 1)) as u32);
        let (begin, end) = match self.nth_of_year {
            true => (days_from_civil(year, 1, 1), days_from_civil(year + 1, 1, 1)),
            false => (first, first + i64::from(len)),
        };
        for (nth, day) in &self.nth_weekdays {
            let ahead = (i64::from(*day) - i64::from(weekday(begin))).rem_euclid(7);
            let back = (i64::from(weekday(end - 1)) - i64::from(*day)).rem_euclid(7);
            let found = match nth {
                1.. => begin + ahead + 7 * (i64::from(*nth) - 1),
                _ => end - 1 - back + 7 * (i64::from(*nth) + 1),
            };
            let is_inside = (begin..end).contains(&found);
            if is_inside && (first..first + i64::from(len)).contains(&found) {
                days |= 1 << (found - first + 1);
            }
        }
        days
    }

    /// `true` if the day is in one of the rule's weeks. The first week is the first with four days of
    /// the year.
    fn is_of_weeks(&self, year: i64, day: i64) -> bool {
        let week_one = |year: i64| {
            let begin = days_from_civil(year, 1, 1);
            let past = (begin + self.to_week_start()).rem_euclid(7);
            begin - past + if past <= 3 { 0 } else { 7 }
        };
        let year = match day {
            _ if day < week_one(year) => year - 1,
            _ if day >= week_one(year + 1) => year + 1,
            _ => year,
        };
        let (begin, end) = (week_one(year), week_one(year + 1));
        let (week, weeks) = ((day - begin) / 7 + 1, (end - begin) / 7);
        self.weeks.iter().any(|wanted| {
            let wanted = i64::from(*wanted);
            wanted == week || wanted == week - weeks - 1
        })
    }
}
