//! The error of a text of a calendar.

use crate::{Field, ParseError};

pub(super) fn wrong(
    at: usize,
    word: &str,
    reason: &'static str,
    remedy: &'static str,
) -> ParseError {
    ParseError::new(Field::Setting, at, word, reason).remedy(remedy)
}
