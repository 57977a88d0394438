//! Named calendars: rules that are kept apart from the schedules that use them.

use super::{
    rule::{Clock, Dates, Named, PREFIX, Rule, Stretch},
    text,
    wrong::wrong,
};
use crate::{ParseError, ScheduleError, Time};
use std::{collections::BTreeSet, fmt, str::FromStr};

/// The rules of a calendar that schedules use by its name: public holidays, office hours, blackout
/// periods. It is kept apart from them, by a store for example. A schedule names it as
/// `except calendar:NAME`, and gets its rules from [`AnySchedule::with_calendars`].
///
/// Each line of its text is one of these:
///
/// | line | leaves out |
/// |---|---|
/// | `2026-12-25`, or several dates, perhaps with a zone at the end | occurrences of these dates |
/// | a rule as in [`Filtered`](crate::Filtered), such as `only-within 9:00-17:30` | what the rule leaves out |
///
/// A `#` begins a comment. Dates and hours without a zone are in the zone of the schedule. A calendar
/// has up to 10,000 dates and 1,000 other rules.
///
/// [`AnySchedule::with_calendars`]: crate::AnySchedule::with_calendars
///
/// ```
/// use allora::schedule::{Calendar, Schedule, parse};
/// use std::sync::Arc;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let holidays = Arc::new(Calendar::parse("2026-12-25 # Christmas\n2026-12-26\n2027-01-01")?);
/// let nightly = parse("0 9 * * *; except calendar:holidays-de")?;
/// let nightly = nightly.with_calendars(|name| (name == "holidays-de").then(|| holidays.clone()));
/// let eve = "2026-12-24T12:00:00Z".parse()?;
/// assert_eq!(nightly.next_at(eve), Some("2026-12-27T09:00:00Z".parse()?));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Calendar {
    rules: Vec<Rule>,
}

/// The most dates of a calendar.
const MOST_DATES: usize = 10_000;

/// The most other rules of a calendar.
const MOST_RULES: usize = 1_000;

impl Calendar {
    /// Reads a calendar.
    ///
    /// # Errors
    /// A line that is neither dates nor a rule, with its number; no rule at all; too many; and a rule
    /// that names another calendar.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        let mut calendar = Self { rules: Vec::new() };
        for (index, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default();
            let read = text::line(line)
                .and_then(|rules| rules.into_iter().try_for_each(|rule| calendar.add(rule, line)));
            read.map_err(|error| error.on_line(index + 1))?;
        }
        if calendar.rules.is_empty() {
            let remedy = "write dates such as 2026-12-25, one a line";
            return Err(wrong(0, "", "has no date and no rule", remedy));
        }
        Ok(calendar)
    }

    /// The number of its dates.
    pub fn dates(&self) -> usize {
        let dates = |rule: &Rule| match rule {
            Rule::Dates(dates) => dates.dates.len(),
            _ => 0,
        };
        self.rules.iter().map(dates).sum()
    }

    /// The number of its other rules.
    pub fn rules(&self) -> usize {
        self.rules.iter().filter(|rule| !matches!(rule, Rule::Dates(_))).count()
    }

    fn add(&mut self, rule: Rule, line: &str) -> Result<(), ParseError> {
        match rule {
            Rule::Dates(more) => {
                let same = self.rules.iter_mut().find_map(|rule| match rule {
                    Rule::Dates(dates) if dates.zone == more.zone => Some(dates),
                    _ => None,
                });
                match same {
                    Some(dates) => dates.dates.extend(more.dates),
                    None => self.rules.push(Rule::Dates(more)),
                }
            }
            other => self.rules.push(other),
        }
        let reason = if self.dates() > MOST_DATES {
            "is one date more than the 10,000 of a calendar"
        } else if self.rules() > MOST_RULES {
            "is one rule more than the 1,000 of a calendar"
        } else {
            return Ok(());
        };
        Err(wrong(0, line.trim(), reason, "put the others into another calendar"))
    }
}

impl FromStr for Calendar {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        Self::parse(text)
    }
}

/// The text that [`Calendar::parse`] reads: one date or one rule in each line, without comments.
impl fmt::Display for Calendar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut end = "";
        for rule in &self.rules {
            let Rule::Dates(Dates { dates, zone }) = rule else {
                write!(f, "{end}{rule}")?;
                end = "\n";
                continue;
            };
            let zone = zone.as_ref().map(|zone| format!(" {}", zone.0.name())).unwrap_or_default();
            for date in dates {
                write!(f, "{end}{date}{zone}")?;
                end = "\n";
            }
        }
        Ok(())
    }
}

impl Named {
    /// The stretch around an instant that a rule excludes, and this rule.
    fn excluded_by(&self, at: Time, clock: &Clock) -> Option<(&Rule, Stretch)> {
        let clock = self.zone.as_ref().unwrap_or(clock);
        let mut rules = self.calendar.iter().flat_map(|calendar| &calendar.rules);
        rules.find_map(|rule| Some((rule, rule.excludes(at, clock)?)))
    }

    pub(super) fn excludes(&self, at: Time, clock: &Clock) -> Option<Stretch> {
        self.excluded_by(at, clock).map(|(_, stretch)| stretch)
    }

    pub(super) fn reason(&self, first: Time, last: Time, clock: &Clock) -> String {
        let rule_of = |at| self.excluded_by(at, clock).map(|(rule, _)| rule);
        let name = &self.name;
        match (rule_of(first), rule_of(last)) {
            (Some(rule), Some(other)) if std::ptr::eq(rule, other) => {
                let clock = self.zone.as_ref().unwrap_or(clock);
                format!("{} (calendar {name:?})", rule.reason(first, last, clock))
            }
            _ => format!("the calendar {name:?} excludes them"),
        }
    }

    pub(super) fn check(&self) -> Result<(), ScheduleError> {
        match &self.calendar {
            Some(calendar) => calendar.rules.iter().try_for_each(Rule::check),
            None => Err(ScheduleError::new(format!(
                "the calendar {:?} is known by its name alone; only stored schedules have calendars by \
                 name, which the store keeps: write its dates and rules",
                self.name
            ))),
        }
    }
}

/// The names of calendars that these rules need.
pub(super) fn names(rules: &[Rule]) -> BTreeSet<&str> {
    let named = rules.iter().filter_map(|rule| match rule {
        Rule::Named(named) => Some(&*named.name),
        _ => None,
    });
    named.collect()
}

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "except {PREFIX}{}", self.name)
    }
}
