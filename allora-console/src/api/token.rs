//! The places at which the pages of a list begin, as opaque texts.

use allora_core::backend::HistoryCursor;

/// The token of this place.
pub(crate) fn of(place: &str) -> String {
    place.bytes().map(|byte| format!("{byte:02x}")).collect()
}

/// The token of this entry.
pub(crate) fn of_entry(place: &HistoryCursor) -> String {
    of(&place.to_string())
}

/// The place of a token; `None` if it is none.
pub(crate) fn read(token: &str) -> Option<String> {
    let pair = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    let is_hex = !token.is_empty() && token.bytes().all(|digit| digit.is_ascii_hexdigit());
    let bytes: Option<Vec<u8>> = token.as_bytes().chunks(2).map(pair).collect();
    bytes
        .filter(|_| is_hex && token.len().is_multiple_of(2))
        .and_then(|bytes| String::from_utf8(bytes).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_read_again_and_nothing_else_is() {
        for place in ["a", "acme/report", "🦀 €", "1767225600000000:acme: report"] {
            assert_eq!(read(&of(place)).as_deref(), Some(place));
        }
        for other in ["", "0", "+1", "zz", "ff", "é"] {
            assert_eq!(read(other), None, "{other}");
        }
    }
}
