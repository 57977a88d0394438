//! Why a job does not run, or what became of one of its times.
//!
//! [`Schedules::why`] reads a handful of records; `explain` decides by them alone, and reads nothing.

mod code;
mod entry;
mod facts;
mod past;
mod present;
mod times;

pub use code::WhyCode;

use super::Schedules;
use crate::{
    condition::{KeyHolder, written},
    error::{Error, Result},
    time::{Time, from_millis},
};
use facts::Facts;
use std::fmt;

/// The reason why a job does not run now, or what became of one of its times, from
/// [`Schedules::why`].
///
/// `Display` writes the sentence and the remedy on one line. With the feature `json`, the value is
/// `Serialize`.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Why {
    /// The stable name of the reason.
    pub code: WhyCode,
    /// The reason as a sentence without an end, of which "it" is the job.
    pub sentence: String,
    /// The values that the sentence rests on, by name.
    pub evidence: Vec<(&'static str, Fact)>,
    /// The thing to do, if there is any.
    pub remedy: Option<String>,
    /// Further reasons, the most important one first. They have none of their own.
    pub also: Vec<Why>,
}

/// A value of [`Why::evidence`].
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Fact {
    /// A name, a note or an error.
    Text(String),
    /// A number.
    Number(i64),
    /// An instant.
    Time(Time),
    /// Names.
    Names(Vec<String>),
    /// Runs that hold a concurrency key.
    Holders(Vec<KeyHolder>),
}

macro_rules! facts_from {
    ($($type:ty: $value:ident => $fact:expr;)*) => {$(
        impl From<$type> for Fact {
            fn from($value: $type) -> Self {
                $fact
            }
        }
    )*};
}

facts_from! {
    &str: text => Self::Text(text.to_owned());
    String: text => Self::Text(text);
    Time: at => Self::Time(at);
    i64: number => Self::Number(number);
    u32: number => Self::Number(i64::from(number));
    usize: number => Self::Number(i64::try_from(number).unwrap_or(i64::MAX));
    u64: number => Self::Number(i64::try_from(number).unwrap_or(i64::MAX));
    Vec<String>: names => Self::Names(names);
    Vec<KeyHolder>: holders => Self::Holders(holders);
}

impl Why {
    /// A reason, without evidence and remedy.
    pub fn new(code: WhyCode, sentence: impl Into<String>) -> Self {
        let (evidence, also) = (Vec::new(), Vec::new());
        Self { code, sentence: sentence.into(), evidence, remedy: None, also }
    }

    /// With this evidence.
    #[must_use]
    pub fn with(mut self, name: &'static str, fact: impl Into<Fact>) -> Self {
        self.evidence.push((name, fact.into()));
        self
    }

    /// With this evidence, if it is known.
    #[must_use]
    fn with_some(self, name: &'static str, fact: Option<impl Into<Fact>>) -> Self {
        match fact {
            Some(fact) => self.with(name, fact),
            None => self,
        }
    }

    /// With this remedy.
    #[must_use]
    pub fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }

    /// The reason and its further ones, the most important one first.
    pub fn each(&self) -> impl Iterator<Item = &Why> {
        std::iter::once(self).chain(&self.also)
    }

    /// The first of these reasons, with the others as further ones.
    fn first_of(reasons: impl IntoIterator<Item = Why>) -> Option<Self> {
        let mut reasons = reasons.into_iter();
        let mut first = reasons.next()?;
        for mut other in reasons {
            let further = std::mem::take(&mut other.also);
            first.also.push(other);
            first.also.extend(further);
        }
        Some(first)
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.sentence)?;
        self.remedy.as_ref().map_or(Ok(()), |remedy| write!(f, "; {remedy}"))
    }
}

impl Schedules {
    /// Why a job does not run now (`at` is `None`), or what became of the occurrence of one time.
    ///
    /// A time may be one that the schedule does not have, or that has not come: that is the answer
    /// then. What the records do not show is said to be unknown, and not guessed. Four to nine
    /// requests: the job and its calendars, the nodes, the record of its concurrency key, and the
    /// history around the time.
    ///
    /// ```
    /// use allora::stored::WhyCode;
    /// # use allora::{Schedules, StoredSchedule, runtime::Sim};
    ///
    /// # fn main() -> allora::Result {
    /// # let sim = Sim::new(1);
    /// # let store = allora::Memory::new();
    /// # sim.block_on(async {
    /// # let schedules = Schedules::on(store, sim.node())?;
    /// # schedules.add(&StoredSchedule::new("acme/report", "report", "0 9 * * *")).await?;
    /// let why = schedules.why("acme/report", None).await?;
    /// assert_eq!(why.code, WhyCode::NoLiveNode);
    /// assert_eq!(why.sentence, "no node is live on this store");
    /// # allora::Result::Ok(())
    /// # })
    /// # }
    /// ```
    ///
    /// # Errors
    /// `NotFound` if neither the store nor its history knows the job; `Invalid` for a time outside of the
    /// years 1970 to 9999; `Unavailable`.
    ///
    /// # Cancel safety
    /// Nothing is changed.
    pub async fn why(&self, name: &str, at: Option<Time>) -> Result<Why> {
        if let Some(at) = at.filter(|at| from_millis(at.timestamp_millis()).is_none()) {
            let wrong = format!("the time {at} is outside of the years 1970 to 9999");
            return Err(Error::invalid(wrong).op("why"));
        }
        Ok(explain(&Facts::read(self, name, at).await?, at))
    }
}

/// The answer, from facts alone.
fn explain(facts: &Facts, at: Option<Time>) -> Why {
    match at {
        Some(at) => past::of_time(facts, at),
        None => present::of_now(facts),
    }
}

/// A count with its noun.
fn counted(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// Instants as all texts have them.
fn shown(at: Time) -> String {
    written(at)
}

#[cfg(test)]
mod tests;
