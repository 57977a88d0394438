//! The canonical text of an expression, made from its bits: equal bits, equal text.

use super::fields::{ALL_DAYS, Days, Fields};
use std::fmt::{self, Display, Write as _};

pub(super) struct Canonical<'a>(pub(super) &'a Fields);

impl Display for Canonical<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fields = self.0;
        if fields.seconds != 1 {
            write!(f, "{} ", List::without_star(fields.seconds, 0, 59))?;
        }
        write!(f, "{} ", List::new(fields.minutes, 0, 59, fields.minute_star))?;
        write!(f, "{} ", List::new(fields.hours.into(), 0, 23, fields.hour_star))?;
        day_of_month(f, &fields.days)?;
        write!(f, " {} ", List::without_star(fields.months.into(), 1, 12))?;
        weekday(f, &fields.days)
    }
}

fn day_of_month(f: &mut fmt::Formatter<'_>, days: &Days) -> fmt::Result {
    let mut items = Items { f, any: false };
    if days.of_month != 0 {
        debug_assert_eq!(days.of_month & !ALL_DAYS, 0);
        items.push(List::new(days.of_month.into(), 1, 31, days.of_month_star))?;
    }
    for back in bits(days.before_last.into()) {
        match back {
            0 => items.push("L")?,
            back => items.push(format_args!("L-{back}"))?,
        }
    }
    if days.last_workday {
        items.push("LW")?;
    }
    for day in bits(days.workdays.into()) {
        items.push(format_args!("{day}W"))?;
    }
    Ok(())
}

fn weekday(f: &mut fmt::Formatter<'_>, days: &Days) -> fmt::Result {
    let mut items = Items { f, any: false };
    if days.of_week != 0 {
        items.push(List::new(days.of_week.into(), 0, 6, days.of_week_star))?;
    }
    for (weekday, nth) in days.nth.iter().enumerate() {
        for nth in bits(u64::from(*nth)) {
            items.push(format_args!("{weekday}#{nth}"))?;
        }
    }
    for weekday in bits(days.last_of_week.into()) {
        items.push(format_args!("{weekday}L"))?;
    }
    Ok(())
}

/// Items with commas between them.
struct Items<'a, 'b> {
    f: &'a mut fmt::Formatter<'b>,
    any: bool,
}

impl Items<'_, '_> {
    fn push(&mut self, item: impl Display) -> fmt::Result {
        if self.any {
            self.f.write_char(',')?;
        }
        self.any = true;
        write!(self.f, "{item}")
    }
}

/// The values of a field, as ranges and single values.
struct List {
    bits: u64,
    lo: u32,
    hi: u32,
    star: bool,
}

impl List {
    fn new(bits: u64, lo: u32, hi: u32, star: bool) -> Self {
        Self { bits, lo, hi, star }
    }

    /// The values of a field in which a star changes nothing: written with one where that is shorter.
    fn without_star(bits: u64, lo: u32, hi: u32) -> Self {
        let is_all = bits.count_ones() == hi - lo + 1;
        let goes_on = |(first, last, step)| first == lo && last + step > hi;
        Self { bits, lo, hi, star: is_all || progression(bits).is_some_and(goes_on) }
    }

    /// The values of `*/step`.
    fn stepped(&self, step: u32) -> u64 {
        (self.lo..=self.hi).step_by(step as usize).fold(0, |bits, value| bits | 1 << value)
    }
}

impl Display for List {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.bits;
        let mut items = Items { f, any: false };
        if self.star {
            // A field that starts with `*` must go on doing so: it decides about the day fields
            // and the changes of the clock.
            let size = self.hi - self.lo + 1;
            let step = (1..size).find(|step| self.stepped(*step) == rest);
            match step {
                Some(1) => items.push('*')?,
                step => items.push(format_args!("*/{}", step.unwrap_or(size)))?,
            }
            rest &= if step.is_some() { 0 } else { !self.stepped(size) };
        }
        if rest.count_ones() >= 5
            && let Some((first, last, step)) = progression(rest)
        {
            return items.push(format_args!("{first}-{last}/{step}"));
        }
        while rest != 0 {
            let start = rest.trailing_zeros();
            let run = (!(rest >> start)).trailing_zeros();
            match run {
                1 | 2 => items.push(start)?,
                run => items.push(format_args!("{start}-{}", start + run - 1))?,
            }
            let shown = if run == 2 { 1 } else { run };
            rest &= !(((1 << shown) - 1) << start);
        }
        Ok(())
    }
}

/// The first and last value and the step, if these are three or more values at one distance above 1.
fn progression(values: u64) -> Option<(u32, u32, u32)> {
    let mut rest = bits(values);
    let (first, second) = (rest.next()?, rest.next()?);
    let step = second - first;
    let mut last = second;
    for value in rest {
        if value - last != step {
            return None;
        }
        last = value;
    }
    (step > 1 && values.count_ones() >= 3).then_some((first, last, step))
}

/// The positions of the set bits.
pub(super) fn bits(mut rest: u64) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        let bit = (rest != 0).then(|| rest.trailing_zeros())?;
        rest &= rest - 1;
        Some(bit)
    })
}
