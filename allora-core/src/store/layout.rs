//! The version of a store's tables or keys, and the builds that may use them.

use std::fmt;

/// The version of a store's tables or keys. It has a text form: `2`, or `2 1` if builds that know
/// version 1 may use them as well.
///
/// ```
/// use allora::store::Layout;
///
/// let found = Layout::from_text("3 2").unwrap();
/// assert_eq!(found.refusal(2), None);
/// let refusal = found.refusal(1).unwrap();
/// assert!(refusal.contains("version 3") && refusal.contains("version 1"), "{refusal}");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The version. From 0; the first release has 1.
    pub version: i64,
    /// The oldest version whose builds may use it. From 0 to `version`.
    pub oldest: i64,
}

impl Layout {
    /// A version that only builds that know it may use.
    pub const fn new(version: i64) -> Self {
        Self { version, oldest: version }
    }

    /// The layout of this text; `None` for any other text than [`Display`](fmt::Display) writes.
    pub fn from_text(text: &str) -> Option<Self> {
        let (version, oldest) = text.split_once(' ').unwrap_or((text, text));
        let layout = Self { version: version.parse().ok()?, oldest: oldest.parse().ok()? };
        let is_sound = 0 <= layout.oldest && layout.oldest <= layout.version;
        (is_sound && layout.to_string() == text).then_some(layout)
    }

    /// The reason why a build that knows the versions up to `known` may not use it, to follow the name of
    /// the tables or keys; `None` if it may.
    pub fn refusal(self, known: i64) -> Option<String> {
        let Self { version, oldest } = self;
        (oldest > known).then(|| {
            format!(
                "have version {version}, for builds that know version {oldest} or later, and this build \
                 knows version {known}: update this program"
            )
        })
    }

    /// As [`refusal`](Self::refusal), for the text that a store has; a text that is no layout is refused.
    pub fn refusal_of(text: &str, known: i64) -> Option<String> {
        match Self::from_text(text) {
            Some(layout) => layout.refusal(known),
            None => Some(format!(
                "have version {text:?}, which is none of allora's: use another prefix"
            )),
        }
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.version == self.oldest {
            true => write!(f, "{}", self.version),
            false => write!(f, "{} {}", self.version, self.oldest),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_its_own_text_is_read() {
        for text in ["1", "2 1", "7 7", "-1", "1 2", "2 -1", "+1", " 1", "1 ", "", "x", "2 1 1"] {
            let is_own = matches!(text, "1" | "2 1");
            assert_eq!(Layout::from_text(text).is_some(), is_own, "{text:?}");
        }
    }
}
