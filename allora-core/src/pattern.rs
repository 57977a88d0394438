//! The kinds of stored schedules that a handler is for.

use crate::{
    error::{Error, Result},
    labels::{is_selectable, selects},
};
use regex_lite::Regex;
use std::{cmp::Ordering, fmt};

/// The kinds that a handler is for.
///
/// A text matches that kind alone. If the patterns of several handlers match, the first one
/// declared runs the schedule.
///
/// ```
/// use allora::Pattern;
///
/// # fn main() -> allora::Result {
/// let (mail, all_mail) = (Pattern::from("mail"), Pattern::prefix("mail."));
/// assert!(mail.matches("mail") && !mail.matches("mail.digest"));
/// assert!(all_mail.matches("mail.digest"));
/// assert!(Pattern::regex("^(sms|fax)$")?.matches("fax"));
/// assert!(Pattern::any().matches("any.kind"));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Pattern {
    is: Is,
}

#[derive(Clone, Debug)]
enum Is {
    Exact(String),
    Prefix(String),
    Regex(Regex),
    Labelled(Labelled),
}

/// A kind with selectors of nodes, and the labels of the node.
#[derive(Clone, Debug)]
struct Labelled {
    kind: String,
    labels: Vec<String>,
    /// Both, with `@` between them.
    text: String,
}

impl Pattern {
    /// The kinds that begin with this prefix.
    pub fn prefix(prefix: impl Into<String>) -> Self {
        Self { is: Is::Prefix(prefix.into()) }
    }

    /// The kinds that contain a match of this regular expression; use `^` and `$` for the whole
    /// kind. The syntax is that of the crate `regex-lite`: ASCII classes, no look-around.
    ///
    /// # Errors
    /// `Invalid`, with the error in the expression.
    pub fn regex(regex: &str) -> Result<Self> {
        let read = Regex::new(regex).map_err(|why| {
            Error::invalid(format!("the pattern `{regex}` of a kind is not a regular expression"))
                .source(why)
        })?;
        Ok(Self { is: Is::Regex(read) })
    }

    /// This kind, and the kind with `@` and a [`LabelSelector`](crate::LabelSelector) after it that
    /// includes a node with these labels. Labels that no selector can name are left out: those with
    /// `@`, `!` or a comma.
    ///
    /// ```
    /// use allora::Pattern;
    ///
    /// let here = Pattern::labelled("command", ["gpu", "big"]);
    /// assert!(here.matches("command") && here.matches("command@gpu") && here.matches("command@!spot"));
    /// assert!(!here.matches("command@gpu,fast") && !here.matches("command@!gpu"));
    /// ```
    pub fn labelled<L: Into<String>>(
        kind: impl Into<String>,
        labels: impl IntoIterator<Item = L>,
    ) -> Self {
        let mut labels: Vec<String> = labels.into_iter().map(Into::into).collect();
        labels.retain(|label| is_selectable(label));
        labels.sort();
        labels.dedup();
        let kind = kind.into();
        let text = format!("{kind}@{}", labels.join(","));
        Self { is: Is::Labelled(Labelled { kind, labels, text }) }
    }

    /// The kinds that a text names as people write them: `mail.*` those that begin with `mail.`, `*`
    /// every kind, and a text without a `*` at its end that kind alone.
    ///
    /// ```
    /// use allora::Pattern;
    ///
    /// assert!(Pattern::from_text("mail.*").matches("mail.digest"));
    /// assert!(!Pattern::from_text("mail").matches("mail.digest"));
    /// ```
    pub fn from_text(text: &str) -> Self {
        text.strip_suffix('*').map_or_else(|| text.into(), Self::prefix)
    }

    /// Every kind. Declare it last, for the kinds without another handler.
    pub fn any() -> Self {
        Self::prefix("")
    }

    /// `true` if the pattern matches this kind.
    pub fn matches(&self, kind: &str) -> bool {
        match &self.is {
            Is::Exact(exact) => exact == kind,
            Is::Prefix(prefix) => kind.starts_with(prefix.as_str()),
            Is::Regex(regex) => regex.is_match(kind),
            Is::Labelled(labelled) => labelled.matches(kind),
        }
    }

    /// The pattern as the word of its form and its text.
    pub(crate) fn word_and_text(&self) -> (&'static str, &str) {
        match &self.is {
            Is::Exact(exact) => ("kind", exact),
            Is::Prefix(prefix) => ("prefix", prefix),
            Is::Regex(regex) => ("regex", regex.as_str()),
            Is::Labelled(labelled) => ("labelled", &labelled.text),
        }
    }

    /// The pattern of this form; `None` if the form is not known.
    pub(crate) fn of_word(word: &str, text: &str) -> Option<Self> {
        match word {
            "kind" => Some(text.into()),
            "prefix" => Some(Self::prefix(text)),
            "regex" => Self::regex(text).ok(),
            "labelled" => {
                let (kind, labels) = text.rsplit_once('@')?;
                Some(Self::labelled(kind, labels.split(',').filter(|label| !label.is_empty())))
            }
            _ => None,
        }
    }

    /// `true` if it is for one kind alone.
    pub(crate) fn is_one_kind(&self) -> bool {
        matches!(self.is, Is::Exact(_))
    }

    /// A kind that it matches in any case.
    pub(crate) fn certain(&self) -> Option<&str> {
        match &self.is {
            Is::Exact(exact) => Some(exact),
            Is::Labelled(labelled) => Some(&labelled.kind),
            Is::Prefix(_) | Is::Regex(_) => None,
        }
    }
}

impl Labelled {
    fn matches(&self, kind: &str) -> bool {
        let rest = kind.strip_prefix(&*self.kind);
        rest.is_some_and(|rest| match rest.strip_prefix('@') {
            Some(selector) => selects(selector, &self.labels),
            None => rest.is_empty(),
        })
    }
}

/// Equal if they were made alike.
impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.word_and_text() == other.word_and_text()
    }
}

impl Eq for Pattern {}

/// By form, and then by text.
impl Ord for Pattern {
    fn cmp(&self, other: &Self) -> Ordering {
        self.word_and_text().cmp(&other.word_and_text())
    }
}

impl PartialOrd for Pattern {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// `report`, `sync.*` for a prefix, `/^(sms|fax)$/` for a regular expression, `report[@big,gpu]` for a
/// kind and selectors of these labels.
impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.is {
            Is::Exact(exact) => f.write_str(exact),
            Is::Prefix(prefix) => write!(f, "{prefix}*"),
            Is::Regex(regex) => write!(f, "/{}/", regex.as_str()),
            Is::Labelled(Labelled { kind, labels, .. }) if labels.is_empty() => f.write_str(kind),
            Is::Labelled(Labelled { kind, labels, .. }) => {
                write!(f, "{kind}[@{}]", labels.join(","))
            }
        }
    }
}

impl From<&str> for Pattern {
    fn from(exact: &str) -> Self {
        Self { is: Is::Exact(exact.to_owned()) }
    }
}

impl From<String> for Pattern {
    fn from(exact: String) -> Self {
        Self { is: Is::Exact(exact) }
    }
}
