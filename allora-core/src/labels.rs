//! The choice of nodes by their labels, for the kinds of stored schedules and for lines of crontabs.

use crate::{
    error::{Error, Result},
    name::check_name,
};
use std::{collections::BTreeSet, fmt, str::FromStr};

/// The nodes that have all labels of one set and none of another: `big,gpu,!spot`.
///
/// Its text has commas between the labels, and `!` in front of those that a node must not have.
/// `Display` writes them ordered and once, so that equal selectors have one text. The empty selector
/// includes every node.
///
/// ```
/// use allora::LabelSelector;
///
/// # fn main() -> allora::Result {
/// let selector: LabelSelector = "!spot, gpu,big".parse()?;
/// assert_eq!(selector.to_string(), "big,gpu,!spot");
/// assert!(selector.includes(&["gpu", "big", "fast"]));
/// assert!(!selector.includes(&["gpu", "big", "spot"]) && !selector.includes(&["gpu"]));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct LabelSelector {
    /// The text as `Display` writes it.
    text: String,
}

impl LabelSelector {
    /// `true` if it includes every node.
    pub fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// `true` if it includes a node with these labels.
    pub fn includes<L: AsRef<str>>(&self, labels: &[L]) -> bool {
        self.is_empty() || selects(&self.text, labels)
    }

    /// The labels that a node must have, ordered.
    pub fn required(&self) -> impl Iterator<Item = &str> {
        self.words().filter(|word| !word.starts_with(NOT))
    }

    /// The labels that a node must not have, ordered.
    pub fn excluded(&self) -> impl Iterator<Item = &str> {
        self.words().filter_map(|word| word.strip_prefix(NOT))
    }

    fn words(&self) -> impl Iterator<Item = &str> {
        self.text.split(',').filter(|word| !word.is_empty())
    }
}

/// Stands in front of a label that a node must not have.
const NOT: char = '!';

/// `true` if no character of the label has a meaning in a selector or in a kind with one.
pub(super) fn is_selectable(label: &str) -> bool {
    !label.contains([',', NOT, '@'])
}

/// `true` if a node with these labels has what this text of a selector requires. A text that is not
/// well-formed selects no node.
pub(super) fn selects<L: AsRef<str>>(text: &str, labels: &[L]) -> bool {
    let has = |label: &str| labels.iter().any(|one| one.as_ref() == label);
    text.split(',').all(|word| match word.strip_prefix(NOT) {
        Some(label) => !label.is_empty() && is_selectable(label) && !has(label),
        None => has(word),
    })
}

/// # Errors
/// `Invalid`: a label is empty or malformed, or is both required and excluded.
impl FromStr for LabelSelector {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let (mut required, mut excluded) = (BTreeSet::new(), BTreeSet::new());
        if text.is_empty() {
            return Ok(Self::default());
        }
        for word in text.split(',').map(str::trim) {
            let (label, set) = match word.strip_prefix(NOT) {
                Some(label) => (label.trim_start(), &mut excluded),
                None => (word, &mut required),
            };
            let wrong = |why: String| {
                Err(Error::invalid(format!(
                    "the labels {text:?}: {why}; write them as gpu,!spot, with ! in front of those that a \
                     node must not have"
                )))
            };
            if label.is_empty() {
                return wrong("a label is missing".into());
            }
            if !is_selectable(label) {
                return wrong(format!("the label {label:?} has one of the characters ! @ ,"));
            }
            check_name(label)?;
            set.insert(label);
        }
        if let Some(label) = required.intersection(&excluded).next() {
            let why =
                format!("no node both has and lacks the label {label:?}; leave one of them out");
            return Err(Error::invalid(format!("the labels {text:?}: {why}")));
        }
        let excluded = excluded.into_iter().map(|label| format!("{NOT}{label}"));
        let words: Vec<String> = required.into_iter().map(str::to_owned).chain(excluded).collect();
        Ok(Self { text: words.join(",") })
    }
}

impl fmt::Display for LabelSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_selectors_have_one_text() {
        for (text, canonical) in [
            ("", ""),
            ("gpu", "gpu"),
            ("gpu,!spot,big", "big,gpu,!spot"),
            (" ! spot,gpu , gpu,!spot", "gpu,!spot"),
        ] {
            let selector: LabelSelector = text.parse().unwrap();
            assert_eq!(selector.to_string(), canonical, "{text:?}");
            assert_eq!(canonical.parse::<LabelSelector>().unwrap(), selector, "{text:?}");
        }
    }

    #[test]
    fn a_node_has_all_required_labels_and_none_of_the_excluded_ones() {
        let includes = |selector: &str, labels: &[&str]| {
            selector.parse::<LabelSelector>().unwrap().includes(labels)
        };
        assert!(includes("gpu,big,!spot", &["big", "other", "gpu"]));
        assert!(!includes("gpu,big,!spot", &["gpu"]) && !includes("gpu,big,!spot", &[]));
        assert!(!includes("gpu,big,!spot", &["gpu", "big", "spot"]));
        assert!(includes("!spot", &[]) && includes("", &[]) && includes("", &["spot"]));
    }

    #[test]
    fn malformed_labels_are_rejected_and_select_no_node() {
        for wrong in ["gpu,", "!", ",", "gpu,,big", "a@b", "a!b", "!!a", "gpu,!gpu"] {
            let error = wrong.parse::<LabelSelector>().unwrap_err();
            assert!(error.to_string().starts_with(&format!("the labels {wrong:?}: ")), "{error}");
            assert!(!selects(wrong, &["gpu"]), "{wrong}");
        }
    }

    #[test]
    fn a_selector_says_what_it_requires() {
        let selector: LabelSelector = "gpu,!spot,big".parse().unwrap();
        assert_eq!(selector.required().collect::<Vec<_>>(), ["big", "gpu"]);
        assert_eq!(selector.excluded().collect::<Vec<_>>(), ["spot"]);
    }
}
