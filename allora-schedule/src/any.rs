//! Any schedule that has a text: what stored schedules and the command line read.

use crate::{
    AfterEnd, At, Calendar, Cron, Every, Excluded, Field, Filtered, Never, Note, ParseError,
    Quartz, Recurrence, Schedule, ScheduleError, Sun, Time, Warning, Weekdays, calendar,
    phrase::{self, Phrase},
    recur,
};
use std::{collections::BTreeSet, fmt, str::FromStr, sync::Arc, time::Duration};

/// Reads the text of any schedule: a cron expression or macro, `@every 90m`, `@at` and an
/// instant, `@after_end 10m`, `@quartz` and an expression, `@never`, a [recurrence rule](Recurrence), or a phrase that has
/// exactly one reading.
///
/// | phrase | the same as |
/// |---|---|
/// | `every 5 minutes` (`seconds`, `hours`; `1 minute`) | `@every 5m` |
/// | `10 minutes after the end` (`of each run`; `seconds`, `hours`) | `@after_end 10m` |
/// | `every day at 9:00` | `0 9 * * *` |
/// | `every weekday at 9:00` | `0 9 * * MON-FRI` |
/// | `every monday at 9am Europe/Rome` | `0 9 * * MON Europe/Rome` |
/// | `every tuesday, thursday and saturday at 9:30 and 17:30` | `30 9,17 * * TUE,THU,SAT` |
/// | `every monday to thursday at noon` | `0 12 * * MON-THU` |
/// | `first monday of every month` (to `fourth`, `last`) | `0 0 * * MON#1` |
/// | `15th day of every month at midnight` (`first` to `28th`, `last`) | `0 0 15 * *` |
/// | `first weekday of every month`, `last weekday of every month` | `0 0 1W * *`, `0 0 LW * *` |
/// | `every 2 weeks on monday at 9am Europe/Rome from 2026-03-02` | `DTSTART;TZID=Europe/Rome:20260302T090000 RRULE:FREQ=WEEKLY;INTERVAL=2;BYDAY=MO` |
/// | `every other friday from 2026-03-06` (`every friday`, `every other weekday`) | `FREQ=WEEKLY;INTERVAL=2;BYDAY=FR` |
/// | `every 3 months on the 1st from 2026-01-01` (`1st and 15th`, `last day`, `first monday`) | `FREQ=MONTHLY;INTERVAL=3;BYMONTHDAY=1` |
/// | `every 2 weeks from 2026-03-02T09:00 Europe/Rome` (`day`, `days`, `months`, `years`) | `FREQ=WEEKLY;INTERVAL=2` |
/// | `third business day of every month at 9:00` (`first` to `23rd`, `last`) | `0 9 1 * *; except SAT SUN; move next 3 in-month` |
///
/// A phrase that counts days, weeks, months or years does so by the calendar, and needs the date of its
/// first run after `from`; `every 336 hours` is elapsed time. The word
/// `weekday` means Monday to Friday, and so does `business day` unless a calendar follows:
/// `first business day of every month; except calendar:holidays-it` (see [`Move`](crate::Move)). Without a time of day, the time is 0:00. Other
/// phrases, and those with a second reading (`every hour`, `12am`), are rejected with the nearest
/// accepted one.
///
/// The text of [`Sun`], such as `sunset - 30m at 41.9,12.5`, is read with the feature `sun`.
///
/// Rules of a calendar may follow, each after a semicolon. They leave occurrences out: see
/// [`Filtered`].
///
/// It also reads the text that [`Schedule::definition`] returns for the schedules of this library.
///
/// ```
/// use allora::schedule::{Schedule, parse};
///
/// let parsed = parse("@every 90m")?;
/// assert_eq!(parsed.definition().as_deref(), Some("@every 1h30m"));
///
/// let parsed = parse("every monday at 9am Europe/Rome")?;
/// assert_eq!(parsed.definition().as_deref(), Some("0 9 * * 1 Europe/Rome"));
///
/// let error = parse("every mondays at 9 o'clock").unwrap_err();
/// assert_eq!(error.advice(), "write `every monday at 9:00`");
/// # Ok::<(), allora::schedule::ParseError>(())
/// ```
///
/// # Errors
/// As [`Cron::parse`], [`Every::parse`], [`At::parse`], [`Cron::quartz`] and [`Recurrence::parse`].
pub fn parse(text: &str) -> Result<AnySchedule, ParseError> {
    read(text, None)
}

/// A schedule that was read from text; made by [`parse`] or [`AnySchedule::for_job`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum AnySchedule {
    /// A cron expression.
    Cron(Cron),
    /// `@every`.
    Every(Every),
    /// `@after_end`.
    AfterEnd(AfterEnd),
    /// `@at`.
    At(At),
    /// `@quartz`.
    Quartz(Quartz),
    /// `@never`.
    Never(Never),
    /// A recurrence rule, or an interval by the calendar.
    Recurrence(Box<Recurrence>),
    /// An event of the sun.
    Sun(Sun),
    /// One of the others without what a calendar excludes.
    Filtered(Box<Filtered<AnySchedule>>),
}

impl AnySchedule {
    /// As [`parse`], for the job `name`, so that a cron expression may contain `H`.
    ///
    /// # Errors
    /// As [`parse`].
    pub fn for_job(name: &str, text: &str) -> Result<Self, ParseError> {
        read(text, Some(name))
    }

    /// The same times in another zone, as [`Cron::in_zone`].
    ///
    /// # Errors
    /// As [`Cron::in_zone`]; also a schedule that follows no wall clock.
    pub fn in_zone(self, name: &str) -> Result<Self, ParseError> {
        match self {
            Self::Cron(cron) => cron.in_zone(name).map(Self::Cron),
            Self::Quartz(quartz) => quartz.in_zone(name).map(Self::Quartz),
            Self::Recurrence(rule) => {
                rule.in_zone(name).map(|rule| Self::Recurrence(Box::new(rule)))
            }
            Self::Filtered(filtered) => {
                filtered.in_zone(name).map(|filtered| Self::Filtered(Box::new(filtered)))
            }
            other => {
                let reason = format!("means nothing to `{other}`, which follows no wall clock");
                Err(ParseError::new(Field::Zone, 0, name, reason)
                    .remedy("leave it away; only cron expressions and recurrences have a zone"))
            }
        }
    }

    /// The parts of a text between its semicolons, each with the byte at which it begins: the schedule,
    /// rules, and settings. The semicolons inside a line of iCalendar separate nothing, unless one is its
    /// last byte.
    ///
    /// ```
    /// use allora::schedule::AnySchedule;
    ///
    /// let text = "DTSTART:20260302T090000Z RRULE:FREQ=WEEKLY;INTERVAL=2; delay 30s";
    /// let parts: Vec<&str> = AnySchedule::parts(text).map(|(_, part)| part).collect();
    /// assert_eq!(parts, ["DTSTART:20260302T090000Z RRULE:FREQ=WEEKLY;INTERVAL=2", " delay 30s"]);
    /// ```
    pub fn parts(text: &str) -> impl Iterator<Item = (usize, &str)> {
        let mut begin = Some(0);
        std::iter::from_fn(move || {
            let at = begin?;
            let end = separator(text, at);
            begin = end.map(|end| end + 1);
            Some((at, &text[at..end.unwrap_or(text.len())]))
        })
    }

    /// `true` if a part of a text, between two semicolons, is a rule of a calendar: see
    /// [`Filtered`]. Other parts are settings, which a program reads by itself.
    pub fn is_rule(part: &str) -> bool {
        let first = crate::schedule::words(part).next().map_or("", |(_, word)| word);
        calendar::RULES.contains(&first)
    }

    /// `true` if a part of a text, between two semicolons, is a rule that names a calendar:
    /// `except calendar:holidays-de`.
    pub fn is_named_calendar(part: &str) -> bool {
        let mut all = crate::schedule::words(part).map(|(_, word)| word);
        all.next() == Some("except") && all.next().is_some_and(|word| word.starts_with("calendar:"))
    }

    /// The names of the calendars that it needs, as in `except calendar:holidays-de`.
    pub fn calendars(&self) -> BTreeSet<&str> {
        match self {
            Self::Filtered(filtered) => filtered.calendars(),
            Self::Cron(_)
            | Self::Every(_)
            | Self::AfterEnd(_)
            | Self::At(_)
            | Self::Sun(_)
            | Self::Quartz(_)
            | Self::Never(_)
            | Self::Recurrence(_) => BTreeSet::new(),
        }
    }

    /// The same schedule with its [named calendars](Calendar). One for which `find` returns `None`
    /// stays unknown, so that the schedule has no occurrence and [`check`](Schedule::check) rejects it.
    #[must_use]
    pub fn with_calendars(self, find: impl FnMut(&str) -> Option<Arc<Calendar>>) -> Self {
        match self {
            Self::Filtered(filtered) => Self::Filtered(Box::new(filtered.with_calendars(find))),
            other => other,
        }
    }

    /// The zone that the text names, or that was set with [`in_zone`](Self::in_zone).
    pub fn zone(&self) -> Option<&str> {
        match self {
            Self::Cron(cron) => cron.names_zone().then(|| cron.zone()),
            Self::Quartz(quartz) => quartz.names_zone().then(|| quartz.zone()),
            Self::Recurrence(rule) => rule.names_zone().then(|| rule.zone()),
            Self::Filtered(filtered) => filtered.schedule().zone(),
            Self::Every(_) | Self::AfterEnd(_) | Self::At(_) | Self::Sun(_) | Self::Never(_) => {
                None
            }
        }
    }

    /// `true` if it follows a wall clock and names no zone. A program may then apply its user's
    /// default with [`in_zone`](Self::in_zone).
    pub fn lacks_zone(&self) -> bool {
        match self {
            Self::Filtered(filtered) => filtered.lacks_zone(),
            other => other.follows_a_clock() && other.zone().is_none(),
        }
    }

    pub(crate) fn follows_a_clock(&self) -> bool {
        matches!(self, Self::Cron(_) | Self::Quartz(_) | Self::Recurrence(_))
    }

    /// The instant with which the schedule itself begins: that of `@at`, the `from` of `@every`, or the
    /// first time of a recurrence.
    pub fn start(&self) -> Option<Time> {
        match self {
            Self::At(at) => Some(at.instant()),
            Self::Every(every) => every.start(),
            Self::Recurrence(rule) => rule.first(),
            Self::Filtered(filtered) => filtered.schedule().start(),
            Self::Cron(_) | Self::AfterEnd(_) | Self::Quartz(_) | Self::Never(_) | Self::Sun(_) => {
                None
            }
        }
    }

    /// Warnings about legal text that is seldom intended.
    pub fn warnings(&self) -> &[Warning] {
        self.inner().warnings()
    }

    fn inner(&self) -> &dyn Schedule {
        match self {
            Self::Cron(cron) => cron,
            Self::Every(every) => every,
            Self::AfterEnd(after) => after,
            Self::At(at) => at,
            Self::Sun(sun) => sun,
            Self::Quartz(quartz) => quartz,
            Self::Never(never) => never,
            Self::Recurrence(rule) => &**rule,
            Self::Filtered(filtered) => &**filtered,
        }
    }
}

/// The first semicolon from `begin` on that separates parts.
fn separator(text: &str, begin: usize) -> Option<usize> {
    let mut at = begin;
    loop {
        let found = at + text[at..].find(';')?;
        let is_blank = |char: char| char.is_ascii_whitespace();
        let word = text[begin..found].rfind(is_blank).map_or(begin, |blank| begin + blank + 1);
        if !recur::is_property(&text[word..]) {
            return Some(found);
        }
        let end = text[found..].find(is_blank).map_or(text.len(), |blank| found + blank);
        if text[..end].ends_with(';') {
            return Some(end - 1);
        }
        at = end;
    }
}

/// Reads a schedule, and after semicolons the rules of its calendar.
fn read(text: &str, job: Option<&str>) -> Result<AnySchedule, ParseError> {
    let mut parts = AnySchedule::parts(text);
    let schedule = read_one(parts.next().map_or("", |(_, schedule)| schedule), job)?;
    let mut rules = calendar::Rules::default();
    for (at, part) in parts {
        rules.add(part, job).map_err(|error| error.shifted(at))?;
    }
    Ok(rules.filter(schedule))
}

/// Reads a schedule without a calendar.
pub(crate) fn read_one(text: &str, job: Option<&str>) -> Result<AnySchedule, ParseError> {
    let first = crate::schedule::words(text).next().map_or("", |(_, word)| word);
    let is = |name: &str| first.eq_ignore_ascii_case(name) && text.len() <= 1024;
    if is("@every") {
        return text.parse().map(AnySchedule::Every);
    }
    if is("@after_end") {
        return text.parse().map(AnySchedule::AfterEnd);
    }
    if is("@at") {
        return text.parse().map(AnySchedule::At);
    }
    if is("@never") {
        return text.parse().map(AnySchedule::Never);
    }
    if is("@quartz") {
        return text.parse().map(AnySchedule::Quartz);
    }
    if recur::is_recurrence(text) || recur::is_iso(text) {
        return Recurrence::parse(text).map(Box::new).map(AnySchedule::Recurrence);
    }
    if Sun::begins(first) && text.len() <= 1024 {
        return text.parse().map(AnySchedule::Sun);
    }
    if phrase::is_phrase(text) {
        return phrase::parse(text).map(|phrase| match phrase {
            Phrase::Every(every) => AnySchedule::Every(every),
            Phrase::AfterEnd(after) => AnySchedule::AfterEnd(after),
            Phrase::Cron(cron) => AnySchedule::Cron(cron),
            Phrase::Recurrence(rule) => AnySchedule::Recurrence(rule),
            Phrase::BusinessDay(cron, moving) => {
                let days = cron.except(Weekdays::weekend()).moved(moving);
                AnySchedule::Filtered(Box::new(days.map(AnySchedule::Cron)))
            }
        });
    }
    let cron = match job {
        Some(name) => Cron::for_job(name, text),
        None => Cron::parse(text),
    };
    cron.map(AnySchedule::Cron)
}

impl Schedule for AnySchedule {
    fn next_at(&self, after: Time) -> Option<Time> {
        self.inner().next_at(after)
    }
    fn latest_at(&self, from: Time, until: Time) -> Option<Time> {
        self.inner().latest_at(from, until)
    }
    fn count(&self, from: Time, until: Time) -> Option<u64> {
        self.inner().count(from, until)
    }
    fn excluded(&self, after: Time, until: Time) -> Option<Excluded> {
        self.inner().excluded(after, until)
    }
    fn is_excluded(&self, at: Time) -> bool {
        self.inner().is_excluded(at)
    }
    fn moved(&self, at: Time) -> Option<Time> {
        self.inner().moved(at)
    }
    fn after_end(&self, token: crate::schedule::Token) -> Option<Duration> {
        self.inner().after_end(token)
    }
    fn definition(&self) -> Option<String> {
        self.inner().definition()
    }
    fn is_built_in(&self, token: crate::schedule::Token) -> bool {
        self.inner().is_built_in(token)
    }
    fn check(&self) -> Result<(), ScheduleError> {
        self.inner().check()
    }
    fn describe(&self) -> Option<String> {
        self.inner().describe()
    }
    fn warnings(&self) -> &[Warning] {
        self.inner().warnings()
    }
    fn wall_clock(&self) -> Option<&str> {
        self.inner().wall_clock()
    }
    fn notes(&self, after: Time, until: Time) -> Vec<Note> {
        self.inner().notes(after, until)
    }
}

/// The canonical text, which [`parse`] reads back.
impl fmt::Display for AnySchedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cron(cron) => cron.fmt(f),
            Self::Every(every) => every.fmt(f),
            Self::AfterEnd(after) => after.fmt(f),
            Self::At(at) => at.fmt(f),
            Self::Sun(sun) => sun.fmt(f),
            Self::Quartz(quartz) => quartz.fmt(f),
            Self::Never(never) => never.fmt(f),
            Self::Recurrence(rule) => rule.fmt(f),
            Self::Filtered(filtered) => filtered.fmt(f),
        }
    }
}

impl FromStr for AnySchedule {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        parse(text)
    }
}
