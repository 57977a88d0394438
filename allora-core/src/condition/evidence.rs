//! The evidence of a condition, as values that can be shown without knowing the condition.

use super::written;
use crate::{backend::Lease, record::job_of, time::Time};
use std::{fmt, sync::Arc};

/// A value of [`Condition::evidence`](super::Condition::evidence).
///
/// `Display` writes it as a part of a sentence, on one line; `Debug` likewise, with a text in quotes.
#[derive(Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum Evidence<'a> {
    /// A name, a reason or an error.
    Text(&'a str),
    /// A number.
    Number(i64),
    /// An instant.
    Time(Time),
    /// Names.
    Names(&'a [String]),
    /// Parts of the node whose requests to the store fail.
    Parts(&'a [FailingPart]),
    /// Runs that hold a concurrency key.
    Holders(&'a [KeyHolder]),
}

impl fmt::Display for Evidence<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Evidence::Text(text) => f.write_str(&one_line(text)),
            Evidence::Number(number) => number.fmt(f),
            Evidence::Time(at) => f.write_str(&written(*at)),
            Evidence::Names(names) => f.write_str(&names.join(", ")),
            Evidence::Parts(parts) => show_parts(parts, f),
            Evidence::Holders([]) => f.write_str("none"),
            Evidence::Holders(holders) => {
                let holders = holders.iter().map(|one| format!("{} on {}", one.job, one.node));
                f.write_str(&holders.collect::<Vec<_>>().join(", "))
            }
        }
    }
}

/// Names and errors of users may have several lines.
pub(crate) fn one_line(text: &str) -> String {
    text.replace(['\n', '\r'], " ")
}

/// Parts that fail for one reason share it.
fn show_parts(parts: &[FailingPart], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    for (i, group) in parts.chunk_by(|one, other| one.error == other.error).enumerate() {
        let words: Vec<_> = group.iter().map(|failing| failing.part.word()).collect();
        let before = if i > 0 { "; " } else { "" };
        write!(f, "{before}{}: {}", words.join(", "), one_line(&group[0].error))?;
    }
    Ok(())
}

impl fmt::Debug for Evidence<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Evidence::Text(text) => fmt::Debug::fmt(text, f),
            other => fmt::Display::fmt(other, f),
        }
    }
}

macro_rules! from {
    ($($type:ty: $value:ident => $evidence:expr;)*) => {$(
        impl<'a> From<&'a $type> for Evidence<'a> {
            fn from($value: &'a $type) -> Self {
                $evidence
            }
        }
    )*};
}

from! {
    Arc<str>: text => Evidence::Text(text);
    String: text => Evidence::Text(text);
    usize: number => Evidence::Number(i64::try_from(*number).unwrap_or(i64::MAX));
    u32: number => Evidence::Number(i64::from(*number));
    i64: number => Evidence::Number(*number);
    Time: at => Evidence::Time(*at);
    Vec<String>: names => Evidence::Names(names);
    Vec<FailingPart>: parts => Evidence::Parts(parts);
    Vec<KeyHolder>: holders => Evidence::Holders(holders);
}

/// A part of a node whose requests to the store fail.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FailingPart {
    /// The part.
    pub part: StorePart,
    /// The time of the first failure, as this node estimates the store's time.
    pub since: Time,
    /// The error of the last failed request, with its causes.
    pub error: String,
}

/// The parts of a node that send requests to the store. Each fails by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum StorePart {
    /// Registrations, reads and claims.
    Claims,
    /// Searches for due stored schedules and triggers.
    Search,
    /// Extensions of leases.
    Extensions,
    /// Ends of runs.
    Ends,
    /// The removal of old tombstones and history.
    Pruning,
    /// The records of the nodes.
    Registry,
    /// The concurrency keys of jobs that run on every node.
    Keys,
}

impl StorePart {
    /// The name of the part in texts.
    pub fn word(self) -> &'static str {
        match self {
            StorePart::Claims => "claims",
            StorePart::Search => "searches",
            StorePart::Extensions => "extensions",
            StorePart::Ends => "ends",
            StorePart::Pruning => "pruning",
            StorePart::Registry => "registry",
            StorePart::Keys => "keys",
        }
    }
}

/// A run that holds a concurrency key.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct KeyHolder {
    /// The job.
    pub job: String,
    /// The id of the node that runs it.
    pub node: String,
    /// The time since which it holds the key.
    pub since: Time,
}

impl KeyHolder {
    /// The holder of this lease, which is one of the record of a concurrency key.
    pub fn of(lease: &Lease) -> Self {
        Self { job: job_of(lease).to_owned(), node: lease.node.clone(), since: lease.started_at }
    }
}
