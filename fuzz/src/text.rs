//! Properties that all texts share.

use allora_core::{Error, ErrorKind, schedule::ParseError};
use std::{fmt, str::FromStr};

/// The bytes as text; nothing for others, which no reader of text gets.
pub(crate) fn text(data: &[u8]) -> Option<&str> {
    std::str::from_utf8(data).ok()
}

/// The value of a text, which prints as text of the same value.
pub(crate) fn read_back<T>(text: &str) -> Result<T, T::Err>
where
    T: FromStr + fmt::Display + PartialEq + fmt::Debug,
    T::Err: fmt::Display,
{
    let value: T = text.parse()?;
    let written = value.to_string();
    match written.parse::<T>() {
        Ok(again) => assert_eq!(again, value, "{text:?} was written as {written:?}"),
        Err(error) => panic!("{text:?} was written as {written:?}, which is refused: {error}"),
    }
    Ok(value)
}

/// An error of a reader, held to what it promises about this text.
pub(crate) trait Refusal: fmt::Display {
    fn is_explained(&self, text: &str);
}

/// It has a remedy, and its place is within the text.
impl Refusal for ParseError {
    fn is_explained(&self, text: &str) {
        assert!(!self.advice().is_empty(), "{text:?} is refused without a remedy: {self}");
        assert!(!self.reason().is_empty(), "{text:?} is refused without a reason: {self}");
        let at = self.position();
        assert!(text.is_char_boundary(at), "{text:?} has no byte {at}: {self}");
        is_one_line(&self.to_string(), text);
    }
}

/// It is about the input.
impl Refusal for Error {
    fn is_explained(&self, text: &str) {
        assert_eq!(self.kind(), ErrorKind::Invalid, "{text:?}: {self}");
        is_one_line(&self.to_string(), text);
    }
}

/// The value of this text, if it has one, prints as text of the same value; its error explains itself.
pub(crate) fn value<T>(text: &str) -> Option<T>
where
    T: FromStr<Err: Refusal> + fmt::Display + PartialEq + fmt::Debug,
{
    match read_back::<T>(text) {
        Ok(value) => Some(value),
        Err(error) => {
            error.is_explained(text);
            None
        }
    }
}

/// The message is one line of text.
pub(crate) fn is_one_line(message: &str, text: &str) {
    assert!(!message.trim().is_empty(), "{text:?} is refused without a word");
    assert!(!message.contains(char::is_control), "{text:?} breaks its message: {message:?}");
}
