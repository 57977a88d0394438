//! The words of a setting's value, each with its place in the text.

use crate::schedule::{Field, ParseError, parse_period};
use std::{str::FromStr, time::Duration};

/// The words of a text that begins at byte `at` of a longer one.
pub(super) fn split(at: usize, text: &str) -> impl Iterator<Item = (usize, &str)> {
    let start = text.as_ptr() as usize;
    let words = text.split([' ', '\t']).filter(|word| !word.is_empty());
    words.map(move |word| (at + word.as_ptr() as usize - start, word))
}

pub(super) fn number<N: FromStr>(at: usize, word: &str) -> Result<N, ParseError> {
    let plain = word.bytes().all(|byte| byte.is_ascii_digit());
    let number = plain.then(|| word.parse().ok()).flatten();
    number.ok_or_else(|| wrong(at, word, "is not a number that fits").remedy("write digits"))
}

/// A number, and perhaps a period after it.
pub(super) fn number_and_period(text: &str) -> Result<(u32, Option<Duration>), ParseError> {
    let mut words = split(0, text);
    let (at, word) = words.next().unwrap_or((0, text));
    let count = number(at, word)?;
    let period = |(at, word)| parse_period(word).map_err(|error| error.shifted(at));
    let period = words.next().map(period).transpose()?;
    words.next().map_or(Ok((count, period)), |more| Err(too_many(more)))
}

/// The error of a number of entries without an age.
pub(super) fn no_age(text: &str) -> ParseError {
    wrong(0, text, "has no age").remedy("write the age of the oldest entry after it, as in 50 30d")
}

pub(super) fn too_many((at, word): (usize, &str)) -> ParseError {
    wrong(at, word, "is one word too many").remedy("remove it")
}

pub(super) fn wrong(at: usize, found: &str, reason: &'static str) -> ParseError {
    ParseError::new(Field::Setting, at, found, reason)
}
