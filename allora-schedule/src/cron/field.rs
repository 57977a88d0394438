//! One field: lists of values, ranges and steps, and what only day fields know.

use super::{Warning, fields::Days};
use crate::{
    Field, ParseError,
    hash::{scale, stable_hash},
};

/// The values and notations of a field.
pub(super) struct Kind {
    field: Field,
    lo: u32,
    hi: u32,
    /// The last value of `*` and `N/step`: 6 for the weekday, whose 7 is Sunday again.
    top: u32,
    /// Ranges may run past the end: `22-6`.
    circle: bool,
    names: &'static [&'static str],
    /// Quartz: a step may stand alone (`/5`), names may be longer, and there is no `H`.
    is_quartz: bool,
    /// The unit of `@every`, for a warning.
    unit: &'static str,
    /// Where `H` ends: the 28th, so that it exists in each month.
    hash_to: u32,
}

const fn numbers(field: Field, lo: u32, hi: u32, unit: &'static str) -> Kind {
    Kind { field, lo, hi, top: hi, circle: false, names: &[], is_quartz: false, unit, hash_to: hi }
}

pub(super) const SECOND: Kind = numbers(Field::Second, 0, 59, "s");
pub(super) const MINUTE: Kind = numbers(Field::Minute, 0, 59, "m");
pub(super) const HOUR: Kind = Kind { circle: true, ..numbers(Field::Hour, 0, 23, "h") };
pub(super) const DAY: Kind = Kind { hash_to: 28, ..numbers(Field::Day, 1, 31, "d") };
pub(super) const MONTH: Kind =
    Kind { circle: true, names: &MONTHS, ..numbers(Field::Month, 1, 12, "") };
pub(super) const WEEKDAY: Kind = Kind {
    circle: true,
    names: &WEEKDAYS,
    top: 6,
    hash_to: 6,
    ..numbers(Field::Weekday, 0, 7, "")
};

/// The fields of the Quartz dialect, seconds first.
pub(super) const QUARTZ: [Kind; 6] = [
    Kind { is_quartz: true, ..SECOND },
    Kind { is_quartz: true, ..MINUTE },
    Kind { is_quartz: true, ..HOUR },
    Kind { is_quartz: true, ..DAY },
    Kind { is_quartz: true, ..MONTH },
    // 1 is Sunday.
    Kind { is_quartz: true, lo: 1, hi: 7, top: 7, ..WEEKDAY },
];

const MONTHS: [&str; 12] =
    ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"];
const WEEKDAYS: [&str; 7] = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"];

pub(super) fn is_weekday(name: &str) -> bool {
    WEEKDAYS.iter().any(|known| known.eq_ignore_ascii_case(name))
}

/// A word of the text, and the byte at which it begins.
#[derive(Debug, Clone, Copy)]
pub(super) struct Word<'a> {
    pub(super) text: &'a str,
    pub(super) at: usize,
}

impl Word<'_> {
    pub(super) fn error(
        self,
        field: Field,
        reason: impl Into<std::borrow::Cow<'static, str>>,
    ) -> ParseError {
        ParseError::new(field, self.at, self.text, reason)
    }

    /// Debian's rule looks at the first character only; `?` is `*`.
    pub(super) fn is_starred(self) -> bool {
        self.text.starts_with(['*', '?'])
    }

    pub(super) fn is_any(self) -> bool {
        matches!(self.text, "*" | "?")
    }
}

/// Replaces `H` by a value derived from the job's name, so that the jobs are distributed over the
/// field.
#[derive(Clone, Copy)]
pub(super) struct NameHash<'a> {
    job: &'a str,
}

impl<'a> NameHash<'a> {
    pub(super) fn new(job: &'a str) -> Self {
        Self { job }
    }

    fn pick(self, field: Field, below: u32) -> u32 {
        let hash = stable_hash(&[self.job.as_bytes(), field.name().as_bytes()]);
        scale(hash, u64::from(below)) as u32
    }
}

/// Reads the fields of one expression; what only day fields know gathers in `days`.
pub(super) struct Reader<'a> {
    pub(super) hash: Option<NameHash<'a>>,
    pub(super) days: Days,
    pub(super) warnings: &'a mut Vec<Warning>,
}

impl Reader<'_> {
    /// The values of a field as bits.
    pub(super) fn read(&mut self, kind: &Kind, word: Word<'_>) -> Result<u64, ParseError> {
        if word.text == "*" || (word.text == "?" && is_day(kind)) {
            return Ok(kind.range(kind.lo, kind.top - kind.lo + 1, 1));
        }
        let mut bits = 0;
        let mut at = word.at;
        for text in word.text.split(',') {
            bits |= self.item(Item { kind, text, at: 0, start: at })?;
            at += text.len() + 1;
        }
        Ok(bits)
    }

    fn item(&mut self, mut item: Item<'_>) -> Result<u64, ParseError> {
        let kind = item.kind;
        match item.peek() {
            None => Err(item
                .error_at(item.start, "is an empty item of a list")
                .remedy("write a value on both sides of each comma")),
            Some(b'*') => {
                item.at += 1;
                self.stepped(item, kind.lo, kind.top - kind.lo + 1)
            }
            Some(b'/') if kind.is_quartz => self.stepped(item, kind.lo, kind.top - kind.lo + 1),
            Some(b'H' | b'h')
                if !kind.is_quartz && matches!(item.byte(1), None | Some(b'/' | b'(')) =>
            {
                self.hashed(item)
            }
            Some(b'L' | b'l') if kind.field == Field::Day => self.last_day(item),
            Some(b'L' | b'l')
                if kind.is_quartz && kind.field == Field::Weekday && item.text.len() == 1 =>
            {
                Ok(kind.range(kind.top, 1, 1))
            }
            Some(b'L' | b'l') if kind.field == Field::Weekday && item.text.len() == 1 => Err(item
                .error("alone is Saturday in some crons and the month's last day in others")
                .remedy("write SAT, or 5L for the month's last Friday, or L as day of month")),
            _ => self.value_or_range(item),
        }
    }

    fn value_or_range(&mut self, mut item: Item<'_>) -> Result<u64, ParseError> {
        let kind = item.kind;
        let is_named = item.peek().is_some_and(|byte| byte.is_ascii_alphabetic());
        let start = item.value()?;
        match item.peek() {
            None => Ok(kind.range(start, 1, 1)),
            Some(b'/') if is_named && kind.field == Field::Weekday => item.step_on_a_weekday(start),
            Some(b'/') => {
                // Sunday as 7 begins the week, as 0 does.
                let start = if start > kind.top { kind.lo } else { start };
                self.stepped(item, start, kind.top - start + 1)
            }
            Some(b'-') => {
                item.at += 1;
                let end = item.value()?;
                let (start, count) = item.circle(start, end)?;
                self.stepped(item, start, count)
            }
            Some(b'W' | b'w') if kind.field == Field::Day => {
                item.at += 1;
                item.end("a W stands alone behind one day: 15W, or 1W,15W")?;
                self.days.workdays |= 1 << start;
                Ok(0)
            }
            Some(b'L' | b'l') if kind.field == Field::Weekday => {
                item.at += 1;
                item.end("an L ends the item: 5L is the month's last Friday")?;
                self.days.last_of_week |= 1 << ((start - kind.lo) % 7);
                Ok(0)
            }
            Some(b'#') if kind.field == Field::Weekday => {
                item.at += 1;
                let nth = item.number()?.filter(|nth| (1..=5).contains(nth));
                let Some(nth) = nth else {
                    return Err(item
                        .error("has no week from 1 to 5 behind its #")
                        .remedy("write MON#2 for the second Monday, MONL for the last"));
                };
                item.end("one number ends the item: MON#2 is the second Monday")?;
                self.days.nth[((start - kind.lo) % 7) as usize] |= 1 << nth;
                Ok(0)
            }
            Some(_) => Err(item.unexpected()),
        }
    }

    /// `count` values from `start`, and a step if one follows.
    fn stepped(&mut self, mut item: Item<'_>, start: u32, count: u32) -> Result<u64, ParseError> {
        let Some(step) = item.step()? else { return Ok(item.kind.range(start, count, 1)) };
        if step > 1 && step >= count {
            self.warnings.push(item.long_step(step));
        }
        Ok(item.kind.range(start, count, step))
    }

    /// `L`, `L-3`, `LW`.
    fn last_day(&mut self, mut item: Item<'_>) -> Result<u64, ParseError> {
        item.at += 1;
        match item.peek() {
            None => self.days.before_last |= 1,
            Some(b'W' | b'w') => {
                item.at += 1;
                self.days.last_workday = true;
            }
            Some(b'-') => {
                item.at += 1;
                let back = item.number()?.filter(|back| (1..=30).contains(back));
                let Some(back) = back else {
                    return Err(item
                        .error("counts back by a number that is not from 1 to 30")
                        .remedy("write L-3 for the third day before the last, L for the last"));
                };
                self.days.before_last |= 1 << back;
            }
            Some(_) => {}
        }
        item.end("write L, L-3 or LW")?;
        Ok(0)
    }

    /// `H`, `H/15`, `H(0-29)`, `H(0-29)/10`.
    fn hashed(&mut self, mut item: Item<'_>) -> Result<u64, ParseError> {
        let kind = item.kind;
        let Some(hash) = self.hash else {
            return Err(item
                .error("spreads jobs by their names, and there is no name here")
                .remedy("use it in the schedule of a job, whose name it is spread by (in code: for_job)"));
        };
        item.at += 1;
        let (mut start, mut count) = (kind.lo, kind.hash_to - kind.lo + 1);
        if item.peek() == Some(b'(') {
            item.at += 1;
            let from = item.value()?;
            if item.peek() != Some(b'-') {
                return Err(item.unexpected().remedy("write H(0-29)"));
            }
            item.at += 1;
            let to = item.value()?;
            (start, count) = item.circle(from, to)?;
            if item.peek() != Some(b')') {
                return Err(item.unexpected().remedy("write H(0-29)"));
            }
            item.at += 1;
        }
        let Some(step) = item.step()? else {
            return Ok(kind.range(start + hash.pick(kind.field, count), 1, 1));
        };
        if step > count {
            return Err(item
                .error("has a step that is larger than its range")
                .remedy("write H alone, or a smaller step"));
        }
        let first = hash.pick(kind.field, step);
        Ok(kind.range(start + first, count - first, step))
    }
}

/// The first three letters of a name that is written out, as the `cron` crate reads it too.
fn shortened(name: &str) -> &str {
    const LONG: [&str; 20] = [
        "january",
        "february",
        "march",
        "april",
        "june",
        "july",
        "august",
        "september",
        "october",
        "november",
        "december",
        "sunday",
        "monday",
        "tues",
        "tuesday",
        "wednesday",
        "thurs",
        "thursday",
        "friday",
        "saturday",
    ];
    if LONG.iter().any(|long| long.eq_ignore_ascii_case(name)) { &name[..3] } else { name }
}

fn is_day(kind: &Kind) -> bool {
    matches!(kind.field, Field::Day | Field::Weekday)
}

impl Kind {
    /// The bits of every `step`-th of `count` values from `start`, past the end from the start.
    fn range(&self, start: u32, count: u32, step: u32) -> u64 {
        let size = self.top - self.lo + 1;
        if step == 1 && start + count <= self.top + 1 {
            return ((1 << count) - 1) << start;
        }
        (start..start + count)
            .step_by(step as usize)
            .fold(0, |bits, value| bits | 1 << (self.lo + (value - self.lo) % size))
    }
}

/// One item of a list, and how far it has been read.
#[derive(Clone, Copy)]
struct Item<'a> {
    kind: &'a Kind,
    text: &'a str,
    at: usize,
    /// Where the item begins in the whole text.
    start: usize,
}

impl Item<'_> {
    fn byte(&self, ahead: usize) -> Option<u8> {
        self.text.as_bytes().get(self.at + ahead).copied()
    }

    fn peek(&self) -> Option<u8> {
        self.byte(0)
    }

    fn error(&self, reason: impl Into<std::borrow::Cow<'static, str>>) -> ParseError {
        self.error_at(self.start, reason)
    }

    fn error_at(&self, at: usize, reason: impl Into<std::borrow::Cow<'static, str>>) -> ParseError {
        ParseError::new(self.kind.field, at, self.text, reason)
    }

    /// The error for an unexpected character at the current place.
    fn unexpected(&self) -> ParseError {
        let Kind { lo, hi, .. } = self.kind;
        let at = self.start + self.at;
        let Some(byte) = self.peek() else {
            return self
                .error_at(at, "ends where a value is expected")
                .remedy(format!("write a number from {lo} to {hi} there"));
        };
        let error = self.error_at(at, format!("has an unexpected {:?}", char::from(byte)));
        match byte {
            b'~' => error.remedy(
                "nodes would draw different times: write H, which is spread by the job's name",
            ),
            b'-' | b'+' => {
                error.remedy(format!("write {lo} to {hi} without a sign; ranges as 1-5"))
            }
            b'.' => error.remedy("write whole numbers, and ranges as 1-5"),
            b'*' => error.remedy("write * alone, or as */5"),
            b'?' => error.remedy("? stands alone, in a day field"),
            b'/' if self.at == 0 => {
                error.remedy("a step follows a range; a command has no place here")
            }
            _ => error
                .remedy(format!("write numbers from {lo} to {hi}, ranges as 1-5, steps as */5")),
        }
    }

    /// Nothing may follow.
    fn end(&self, remedy: &'static str) -> Result<(), ParseError> {
        if self.peek().is_none() { Ok(()) } else { Err(self.unexpected().remedy(remedy)) }
    }

    /// Digits; `None` if the number is larger than any that is used.
    fn number(&mut self) -> Result<Option<u32>, ParseError> {
        let mut number = Some(0_u32);
        let before = self.at;
        while let Some(digit @ b'0'..=b'9') = self.peek() {
            let digit = u32::from(digit - b'0');
            number = number.and_then(|number| number.checked_mul(10)?.checked_add(digit));
            self.at += 1;
        }
        if self.at == before { Err(self.unexpected()) } else { Ok(number) }
    }

    /// A number or a name.
    fn value(&mut self) -> Result<u32, ParseError> {
        let Kind { field, lo, hi, names, .. } = self.kind;
        if !names.is_empty() && self.peek().is_some_and(|byte| byte.is_ascii_alphabetic()) {
            return self.named();
        }
        let before = self.start + self.at;
        let number = self.number()?;
        number.filter(|number| (*lo..=*hi).contains(number)).ok_or_else(|| {
            let leap =
                if *field == Field::Second { ": leap seconds cannot be scheduled" } else { "" };
            self.error_at(before, format!("is not within {lo} to {hi}{leap}"))
                .remedy(format!("write a number from {lo} to {hi}"))
        })
    }

    fn named(&mut self) -> Result<u32, ParseError> {
        let letters = self.text[self.at..].bytes().take_while(u8::is_ascii_alphabetic).count();
        let name = &self.text[self.at..self.at + letters];
        // `FRIL` is the last Friday.
        let ends_in_l =
            self.kind.field == Field::Weekday && letters == 4 && name.ends_with(['L', 'l']);
        let name = if ends_in_l { &name[..3] } else { name };
        let names = self.kind.names;
        let short = if self.kind.is_quartz { shortened(name) } else { name };
        let Some(index) = names.iter().position(|known| known.eq_ignore_ascii_case(short)) else {
            let reason = format!("is not the name of a {}", self.kind.field);
            return Err(self
                .error_at(self.start + self.at, reason)
                .remedy(format!("write three letters, such as {}", names[1])));
        };
        self.at += name.len();
        Ok(index as u32 + self.kind.lo)
    }

    /// Start and count of the range `from-to`.
    fn circle(&self, from: u32, to: u32) -> Result<(u32, u32), ParseError> {
        if from <= to {
            return Ok((from, to - from + 1));
        }
        if !self.kind.circle {
            return Err(self.error("runs backwards").remedy(
                "write the smaller end first; only hours, weekdays and months are circles",
            ));
        }
        let size = self.kind.top - self.kind.lo + 1;
        let from = self.kind.lo + (from - self.kind.lo) % size;
        Ok((from, (to + size - from) % size + 1))
    }

    /// `/5`, if it follows; then nothing may.
    fn step(&mut self) -> Result<Option<u32>, ParseError> {
        if self.peek().is_none() {
            return Ok(None);
        }
        if self.peek() != Some(b'/') {
            return Err(self.unexpected());
        }
        self.at += 1;
        let at = self.start + self.at;
        if self.peek().is_none() {
            return Err(self.error_at(at, "ends without a step").remedy("write */5"));
        }
        let step = self.number()?.filter(|step| *step > 0).ok_or_else(|| {
            self.error_at(at, "has a step of zero, or one too large to count")
                .remedy("write a step of 1 or more")
        })?;
        self.end("write one step, a whole number, as in */5")?;
        Ok(Some(step))
    }

    /// Rejects `MON/2`, which has two readings.
    fn step_on_a_weekday(mut self, start: u32) -> Result<u64, ParseError> {
        let name = self.kind.names[((start - self.kind.lo) % 7) as usize];
        let step = self.step()?.unwrap_or(1);
        let first = (start - self.kind.lo) % 7;
        let days = self.kind.names.iter().skip(first as usize).step_by(step as usize);
        let days: Vec<&str> = days.copied().collect();
        let days = days.join(",");
        let weeks = match step {
            1 => "each week".to_owned(),
            2 => "every other week".to_owned(),
            step => format!("one week in {step}"),
        };
        let other = match step {
            1 => format!("{name} alone"),
            step => format!("@every {step}w from the instant of the first {name}"),
        };
        let reason =
            format!("is {days} of each week in some crons, and {name} of {weeks} to others");
        Err(self.error(reason).remedy(format!("write {days}, or {other}")))
    }

    fn long_step(&self, step: u32) -> Warning {
        let Kind { field, unit, .. } = self.kind;
        let instead = if unit.is_empty() {
            String::new()
        } else {
            format!("; for every {step}{unit} write @every {step}{unit}")
        };
        let text = self.text;
        let message = format!(
            "{field} {text}: the step is larger than the range, so only its first value is left{instead}"
        );
        Warning { code: "long-step", message }
    }
}
