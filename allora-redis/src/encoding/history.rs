//! The place of a history entry: a member of a sorted set, whose score is the fence.

use allora_core::backend::HistoryCursor;

/// The member of an entry.
pub(crate) fn member(at: &HistoryCursor) -> Vec<u8> {
    format!("{} {}", at.fence, at.name).into_bytes()
}

/// The entry of a member; `None` if it is none.
pub(crate) fn cursor(member: &[u8]) -> Option<HistoryCursor> {
    let (fence, name) = std::str::from_utf8(member).ok()?.split_once(' ')?;
    Some(HistoryCursor { fence: fence.parse().ok()?, name: name.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_read_as_they_were_written() {
        for (fence, name) in [(7, "a b"), (i64::MAX, "{}"), (0, "")] {
            let at = HistoryCursor { fence, name: name.into() };
            assert_eq!(cursor(&member(&at)), Some(at));
        }
        assert_eq!(cursor(b"x y"), None);
    }
}
