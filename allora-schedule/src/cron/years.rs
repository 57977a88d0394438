//! The year field of the Quartz dialect.

use super::{field::Word, fields::Years};
use crate::{Field, ParseError};

/// Reads `2026`, `2026-2030`, `2026/2`, `*/4` and lists of them.
pub(super) fn read(word: Word<'_>) -> Result<Years, ParseError> {
    let mut years = Years::default();
    let mut at = word.at;
    for text in word.text.split(',') {
        let item = Word { text, at };
        let Some((first, last, step)) = bounds(text) else {
            return Err(item
                .error(Field::Year, "is not a year, a range or a step")
                .remedy("write 2026, 2026-2030 or 2026/2"));
        };
        if first < Years::FIRST || last > Years::LAST || last < first || step == 0 {
            return Err(item
                .error(Field::Year, "has no year from 1970 to 2199, the smaller one first")
                .remedy("write a year, or a range such as 2026-2030"));
        }
        (first..=last).step_by(step).for_each(|year| years.insert(year));
        at += text.len() + 1;
    }
    Ok(years)
}

/// First and last year and the step of an item.
fn bounds(item: &str) -> Option<(i64, i64, usize)> {
    let number = |text: &str| -> Option<i64> {
        let plain = (1..=4).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
        plain.then(|| text.parse().ok()).flatten()
    };
    let (range, step) = match item.split_once('/') {
        Some((range, step)) => (range, Some(usize::try_from(number(step)?).ok()?)),
        None => (item, None),
    };
    let (first, last) = match range.split_once('-') {
        Some((first, last)) => (number(first)?, number(last)?),
        None if matches!(range, "*" | "") && (step.is_some() || range == "*") => {
            (Years::FIRST, Years::LAST)
        }
        None if step.is_some() => (number(range)?, Years::LAST),
        None => (number(range)?, number(range)?),
    };
    Some((first, last, step.unwrap_or(1)))
}
