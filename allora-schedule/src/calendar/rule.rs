//! One rule of a calendar: what it excludes, and why.

use super::{Calendar, wrong::wrong};
use crate::{
    AnySchedule, At, Cron, Every, ParseError, Quartz, Schedule, ScheduleError, Sun, Time,
    at::shown,
    english::{WEEKDAYS, list},
    zone::Zone,
};
use chrono::{DateTime, NaiveDate, TimeDelta};
use std::{collections::BTreeSet, fmt, ops::Range, sync::Arc};

/// An argument of [`Schedule::except`]: [`Dates`], or another schedule of this library, whose
/// instants are left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exclusion(pub(super) Rule);

impl From<Dates> for Exclusion {
    fn from(dates: Dates) -> Self {
        Self(Rule::Dates(dates))
    }
}

impl From<Weekdays> for Exclusion {
    fn from(weekdays: Weekdays) -> Self {
        Self(Rule::Weekdays(weekdays))
    }
}

impl From<AnySchedule> for Exclusion {
    fn from(schedule: AnySchedule) -> Self {
        Self(Rule::Times(Box::new(schedule)))
    }
}

impl From<Cron> for Exclusion {
    fn from(cron: Cron) -> Self {
        AnySchedule::Cron(cron).into()
    }
}

impl From<Every> for Exclusion {
    fn from(every: Every) -> Self {
        AnySchedule::Every(every).into()
    }
}

impl From<At> for Exclusion {
    fn from(at: At) -> Self {
        AnySchedule::At(at).into()
    }
}

impl From<Sun> for Exclusion {
    fn from(sun: Sun) -> Self {
        AnySchedule::Sun(sun).into()
    }
}

impl From<Quartz> for Exclusion {
    fn from(quartz: Quartz) -> Self {
        AnySchedule::Quartz(quartz).into()
    }
}

impl Exclusion {
    pub(crate) fn rule(self) -> Rule {
        self.0
    }
}

/// Calendar dates, such as public holidays; made by [`Dates::parse`]. Range: 1 to 64 dates.
///
/// They are dates in the schedule's zone, unless the text names another zone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dates {
    pub(super) dates: BTreeSet<NaiveDate>,
    pub(super) zone: Option<Clock>,
}

/// Days of the week, such as the weekend; made by [`Weekdays::parse`] and [`Weekdays::weekend`].
///
/// They are days in the schedule's zone, unless the text names another zone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Weekdays {
    /// One bit for each day; bit 0 is Sunday.
    pub(super) days: u8,
    pub(super) zone: Option<Clock>,
}

impl Weekdays {
    /// Saturday and Sunday.
    pub fn weekend() -> Self {
        Self { days: 1 << 6 | 1, zone: None }
    }

    fn has(&self, wall: i64) -> bool {
        // 1970-01-01 was a Thursday.
        self.days >> (wall.div_euclid(DAY) + 4).rem_euclid(7) & 1 == 1
    }

    /// The names of the days, Monday first.
    fn names(&self) -> Vec<String> {
        let week = (1..=6).chain([0]).filter(|day| self.days >> day & 1 == 1);
        week.map(|day: usize| WEEKDAYS[day].to_owned()).collect()
    }
}

/// A zone, compared by its name.
#[derive(Debug, Clone)]
pub(crate) struct Clock(pub(super) Arc<Zone>);

impl PartialEq for Clock {
    fn eq(&self, other: &Self) -> bool {
        self.0.name() == other.0.name()
    }
}

impl Eq for Clock {}

impl Clock {
    /// The wall time in seconds, and the UTC seconds during which the offset is the same.
    fn wall(&self, at: Time) -> (i64, Range<i64>) {
        let (offset, same) = self.0.offset_at(at.timestamp());
        (at.timestamp() + offset, same)
    }

    pub(super) fn date(&self, at: Time) -> Option<NaiveDate> {
        date_of(self.wall(at).0)
    }

    /// The instant so many days later (or earlier) at the same wall-clock time: the first one, if the
    /// clock shows that twice; the first one after it, if the clock leaves it out.
    pub(super) fn days_from(&self, at: Time, days: i64) -> Option<Time> {
        let wall = self.wall(at).0 + days * DAY;
        let before = self.0.offset_at(wall - 2 * DAY).0;
        let (offset, same) = self.0.offset_at(wall - before);
        let second = if offset == before || self.0.offset_at(wall - offset).0 == offset {
            wall - offset
        } else {
            same.start
        };
        DateTime::from_timestamp(second, at.timestamp_subsec_nanos())
    }
}

fn date_of(wall: i64) -> Option<NaiveDate> {
    NaiveDate::from_epoch_days(i32::try_from(wall.div_euclid(DAY)).ok()?)
}

const DAY: i64 = 86_400;

/// One rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Rule {
    Dates(Dates),
    Weekdays(Weekdays),
    Times(Box<AnySchedule>),
    Hours(Hours),
    Blackout(Time, Time),
    Named(Named),
}

/// The hours within which occurrences are kept, in minutes of the day; the end is exclusive, and
/// may be before the start: `22:00-6:00`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Hours {
    pub(super) from: i64,
    pub(super) until: i64,
    pub(super) zone: Option<Clock>,
}

/// `9:00-17:30`.
pub(super) fn hours_of(at: usize, word: &str) -> Result<Hours, ParseError> {
    let minute = |text: &str| -> Option<i64> {
        let (hour, minute) = text.split_once(':')?;
        let plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        let good =
            (1..=2).contains(&hour.len()) && minute.len() == 2 && plain(hour) && plain(minute);
        let (hour, minute): (i64, i64) =
            good.then(|| Some((hour.parse().ok()?, minute.parse().ok()?)))??;
        (minute < 60 && hour * 60 + minute <= 24 * 60).then_some(hour * 60 + minute)
    };
    let span = word.split_once('-').and_then(|(from, until)| minute(from).zip(minute(until)));
    match span {
        Some((from, until)) if from != until && from < 24 * 60 && until > 0 => {
            Ok(Hours { from, until, zone: None })
        }
        Some(_) => Err(wrong(
            at,
            word,
            "has no hours inside it",
            "write two times, such as 9:00-17:30; 24:00 is an end",
        )),
        None => {
            Err(wrong(at, word, "is not a span of hours", "write two times, such as 9:00-17:30"))
        }
    }
}

/// The rule `except calendar:NAME`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Named {
    pub(super) name: Box<str>,
    /// The zone of its rules that have none; else it is that of the schedule.
    pub(super) zone: Option<Clock>,
    /// The calendar, once it is known.
    pub(super) calendar: Option<Arc<Calendar>>,
}

/// The beginning of the word that names a calendar.
pub(super) const PREFIX: &str = "calendar:";

/// Instants around an excluded one that are all excluded: `until` is exclusive. It need not be the
/// longest such stretch.
pub(super) struct Stretch {
    pub(super) since: Time,
    pub(super) until: Time,
}

impl Stretch {
    /// From one UTC second until before another, as far as the offset is the same.
    fn seconds(since: i64, until: i64, same: &Range<i64>) -> Option<Self> {
        let instant = |second| DateTime::from_timestamp(second, 0);
        let (since, until) = (since.max(same.start), until.min(same.end));
        Some(Self {
            since: instant(since).unwrap_or(Time::MIN_UTC),
            until: instant(until).unwrap_or(Time::MAX_UTC),
        })
    }
}

impl Rule {
    /// The hours of a zone that are kept.
    pub(crate) fn hours(hours: &str, zone: &str) -> Result<Self, ParseError> {
        let mut rule = Self::Hours(hours_of(0, hours)?);
        rule.set_zone(&Zone::named(zone, 0)?);
        Ok(rule)
    }

    /// The stretch around an instant that this rule excludes.
    pub(super) fn excludes(&self, at: Time, clock: &Clock) -> Option<Stretch> {
        match self {
            Self::Dates(dates) => {
                let (wall, same) = dates.zone.as_ref().unwrap_or(clock).wall(at);
                let is_excluded = date_of(wall).is_some_and(|date| dates.dates.contains(&date));
                let start = at.timestamp() - wall.rem_euclid(DAY);
                is_excluded.then(|| Stretch::seconds(start, start + DAY, &same)).flatten()
            }
            Self::Weekdays(weekdays) => {
                let (wall, same) = weekdays.zone.as_ref().unwrap_or(clock).wall(at);
                let start = at.timestamp() - wall.rem_euclid(DAY);
                weekdays.has(wall).then(|| Stretch::seconds(start, start + DAY, &same)).flatten()
            }
            Self::Hours(hours) => {
                let (wall, same) = hours.zone.as_ref().unwrap_or(clock).wall(at);
                let start = at.timestamp() - wall.rem_euclid(DAY);
                let (since, until) = hours.outside(wall.rem_euclid(DAY))?;
                Stretch::seconds(start + since, start + until, &same)
            }
            Self::Blackout(since, until) => {
                (*since..*until).contains(&at).then_some(Stretch { since: *since, until: *until })
            }
            Self::Times(schedule) => {
                let millisecond = TimeDelta::milliseconds(1);
                let is_excluded = schedule.next_at(at - millisecond) == Some(at);
                is_excluded.then_some(Stretch { since: at, until: at + millisecond })
            }
            Self::Named(named) => named.excludes(at, clock),
        }
    }

    /// The reason why occurrences from one to another are excluded.
    pub(super) fn reason(&self, first: Time, last: Time, clock: &Clock) -> String {
        match self {
            Self::Dates(dates) => {
                let clock = dates.zone.as_ref().unwrap_or(clock);
                let zone = clock.0.name();
                match (clock.date(first), clock.date(last)) {
                    (Some(first), Some(last)) if first == last => {
                        format!("{first} in {zone} is an excluded date")
                    }
                    (Some(first), Some(last)) => {
                        format!("the dates from {first} to {last} in {zone} are excluded")
                    }
                    _ => format!("the dates in {zone} are excluded"),
                }
            }
            Self::Weekdays(weekdays) => {
                let zone = weekdays.zone.as_ref().unwrap_or(clock).0.name();
                format!("every {} in {zone} is excluded", list(&weekdays.names()))
            }
            Self::Hours(hours) => {
                let zone = hours.zone.as_ref().unwrap_or(clock).0.name();
                format!("only the hours {} of {zone} are kept", hours.span())
            }
            Self::Blackout(since, until) => {
                format!(
                    "the time from {} until {} is a blackout period",
                    shown(*since),
                    shown(*until)
                )
            }
            Self::Times(schedule) => format!("`{schedule}` excludes its own times"),
            Self::Named(named) => named.reason(first, last, clock),
        }
    }

    pub(super) fn describe(&self) -> String {
        match self {
            Self::Dates(dates) => {
                let names: Vec<String> = dates.dates.iter().map(NaiveDate::to_string).collect();
                format!("except on {}{}", list(&names), in_zone(&dates.zone))
            }
            Self::Weekdays(weekdays) => {
                format!("except on {}{}", list(&weekdays.names()), in_zone(&weekdays.zone))
            }
            Self::Hours(hours) => {
                let (from, until) = (clock_time(hours.from), clock_time(hours.until));
                format!("only from {from} until {until}{}", in_zone(&hours.zone))
            }
            Self::Blackout(since, until) => {
                format!("not from {} until {}", shown(*since), shown(*until))
            }
            Self::Times(schedule) => {
                let description = schedule.describe();
                format!("except {}", description.unwrap_or_else(|| schedule.to_string()))
            }
            Self::Named(named) => {
                format!("except by the calendar {}{}", named.name, in_zone(&named.zone))
            }
        }
    }

    pub(super) fn check(&self) -> Result<(), ScheduleError> {
        match self {
            Self::Blackout(since, until) if since >= until => Err(ScheduleError::new(format!(
                "a blackout period from {} until {} is empty; use a later end",
                shown(*since),
                shown(*until)
            ))),
            Self::Times(schedule) => schedule.check(),
            Self::Named(named) => named.check(),
            _ => Ok(()),
        }
    }

    fn zone(&mut self) -> Option<&mut Option<Clock>> {
        match self {
            Self::Dates(dates) => Some(&mut dates.zone),
            Self::Weekdays(weekdays) => Some(&mut weekdays.zone),
            Self::Hours(hours) => Some(&mut hours.zone),
            Self::Named(named) => Some(&mut named.zone),
            Self::Blackout(..) | Self::Times(_) => None,
        }
    }

    pub(super) fn lacks_zone(&self) -> bool {
        match self {
            Self::Dates(dates) => dates.zone.is_none(),
            Self::Weekdays(weekdays) => weekdays.zone.is_none(),
            Self::Hours(hours) => hours.zone.is_none(),
            Self::Named(named) => named.zone.is_none(),
            Self::Blackout(..) | Self::Times(_) => false,
        }
    }

    /// Sets the zone if there is none. Returns `true` if it was set.
    pub(crate) fn set_zone(&mut self, zone: &Arc<Zone>) -> bool {
        match self.zone() {
            Some(own) if own.is_none() => {
                *own = Some(Clock(zone.clone()));
                true
            }
            _ => false,
        }
    }
}

impl Hours {
    /// The seconds of the day, from one to before the other, around this one that are outside of
    /// the hours; those of the day before are negative.
    fn outside(&self, second: i64) -> Option<(i64, i64)> {
        let (from, until) = (self.from * 60, self.until * 60);
        if from > until {
            return (until..from).contains(&second).then_some((until, from));
        }
        if second < from {
            Some((until - DAY, from))
        } else if second >= until {
            Some((until, from + DAY))
        } else {
            None
        }
    }

    pub(super) fn span(&self) -> String {
        format!("{}-{}", clock_time(self.from), clock_time(self.until))
    }
}

/// A minute of the day as `9:30`.
fn clock_time(minute: i64) -> String {
    format!("{}:{:02}", minute / 60, minute % 60)
}

fn in_zone(zone: &Option<Clock>) -> String {
    zone.as_ref().map(|zone| format!(" in {}", zone.0.name())).unwrap_or_default()
}

/// The text that [`parse`](super::parse) reads.
impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let zone = match self {
            Self::Dates(dates) => {
                f.write_str("except")?;
                dates.dates.iter().try_for_each(|date| write!(f, " {date}"))?;
                &dates.zone
            }
            Self::Weekdays(weekdays) => {
                f.write_str("except")?;
                let mut names = weekdays.names().into_iter();
                names.try_for_each(|name| write!(f, " {}", name[..3].to_ascii_uppercase()))?;
                &weekdays.zone
            }
            Self::Hours(hours) => {
                write!(f, "only-within {}", hours.span())?;
                &hours.zone
            }
            Self::Blackout(since, until) => {
                write!(f, "blackout {}/{}", shown(*since), shown(*until))?;
                &None
            }
            Self::Times(schedule) => {
                write!(f, "except {schedule}")?;
                &None
            }
            Self::Named(named) => {
                write!(f, "{named}")?;
                &named.zone
            }
        };
        zone.as_ref().map_or(Ok(()), |zone| write!(f, " {}", zone.0.name()))
    }
}
