//! The definition of a stored schedule as one line of text: its schedule, then the settings that
//! differ from the defaults.

use crate::{
    backend::NextRun,
    error::{Error, Result},
    job::{CheckedSchedule, DefinitionText, IntoOutcome, JobSpec, Settings, is_code, job},
    name::calendar_record,
    run::Run,
    schedule::{AnySchedule, Calendar, Field, ParseError, Schedule},
    time::{Time, whole_millis},
};
use allora_schedule::delay_after_end;
use chrono::TimeDelta;
use std::{
    collections::{BTreeSet, HashMap},
    fmt,
    sync::Arc,
};

/// A calendar, or the reason why a schedule that names it cannot be planned.
pub(crate) type Found = Result<Arc<Calendar>, String>;

/// The definition of a stored schedule: its schedule and its settings.
///
/// The store keeps its text as [`JobState::definition`](crate::backend::JobState::definition): the
/// schedule, then settings separated by semicolons, in any order. [`Settings::definition`] writes
/// the same text for jobs in code. Two settings exist only here: `zone` and `timeout`.
///
/// | setting | meaning |
/// |---|---|
/// | `zone Europe/Paris` | the zone of a cron expression without one |
/// | `at-least-once 30s` | the lease; without it: at most once |
/// | `catch-up all 10`, `catch-up none` | the policy for missed occurrences; without it: the latest one is run |
/// | `window 1h` | the longest delay of a start; later occurrences are missed |
/// | `overlap skip`, `overlap wait`, `overlap replace` | at most once only: the policy while the previous run is active |
/// | `retry 5 10s 1h` | attempts, first wait, longest wait |
/// | `timeout 5m` | the longest duration of a run |
/// | `delay 30s`, `jitter 1m` | a fixed delay after the scheduled time; the longest jitter |
/// | `start …`, `end …` | the earliest and the latest scheduled time, as RFC 3339 |
/// | `max-runs 12` | the largest number of occurrences |
/// | `run-when-created yes` | one more occurrence at once when the schedule is created |
/// | `run-if-past yes` | a single time that is more than a minute past runs at once |
/// | `concurrency-key tapes`, `concurrency-key tapes:2` | the concurrency key, whose jobs have one or two active runs together |
/// | `concurrency-key mail:100/1m` | the rate, of which its jobs begin 100 runs together within any minute |
/// | `max-key-wait 1h` | the longest wait for the key |
/// | `breaker 5`, `breaker 5 10m` | it pauses itself after five failed occurrences in a row; the wait for a probe |
/// | `alert 3`, `alert 3 6h` | people are told after three failed occurrences in a row; the shortest time between two alerts |
/// | `history 50 30d` | the entries of its history: at most so many failures and so many others, and their age |
/// | `except 2026-12-25 2026-12-26`, `except 0 9 1 1 *` | dates or times on which it does not run |
/// | `except calendar:holidays-de` | a calendar in the store: [`Schedules::upsert_calendar`](super::Schedules::upsert_calendar) |
/// | `only-within 9:00-17:30` | the hours within which it runs |
/// | `blackout 2026-12-20T00:00:00Z/2027-01-07T00:00:00Z` | a period in which it does not run |
/// | `move next` | what the rules leave out runs on the next day that they allow: [`Move`](crate::schedule::Move) |
///
/// The last five are the rules of a calendar; see [`Filtered`](crate::schedule::Filtered). They
/// belong to the schedule, and a schedule may have several of each.
///
/// A definition in a later format begins with `@v` and a number. This build rejects it, and names
/// the reason. It rejects unknown settings with their column.
///
/// ```
/// use allora::stored::Definition;
///
/// # fn main() -> allora::Result {
/// let text = "0 9 * * MON-FRI; zone Europe/Rome; at-least-once 30s; delay 90s";
/// let definition = Definition::parse("acme/report", text)?;
/// assert_eq!(definition.settings().delay.as_secs(), 90);
/// assert_eq!(Definition::parse("acme/report", &definition.to_string())?, definition);
///
/// let error = Definition::parse("acme/report", "0 9 * * *; dealy 90s").unwrap_err();
/// assert!(error.to_string().starts_with("setting, column 12: \"dealy\" is not a setting"), "{error}");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Definition {
    text: String,
    zone: Option<String>,
    schedule: AnySchedule,
    settings: Settings,
}

impl Definition {
    /// The definition of the job `name` (for `H` in a cron expression), made of its parts.
    ///
    /// # Errors
    /// `Invalid` with the rejected schedule, zone or setting.
    pub fn new(name: &str, text: &str, zone: Option<&str>, settings: Settings) -> Result<Self> {
        // After a semicolon the text has rules of a calendar, and never a setting.
        let mut schedule = AnySchedule::for_job(name, text)?;
        if let Some(zone) = zone {
            schedule = in_zone(schedule, zone)?;
        }
        for calendar in schedule.calendars() {
            calendar_record(calendar)?;
        }
        // A schedule with a named calendar is checked when it has the calendar.
        if schedule.calendars().is_empty() {
            schedule.check()?;
        }
        settings.check()?;
        let text = match delay_after_end(&schedule) {
            // A record knows it by this form, also one that was given as a phrase.
            Some(_) => schedule.to_string(),
            None => text.split_ascii_whitespace().collect::<Vec<_>>().join(" ").replace(" ;", ";"),
        };
        Ok(Self { text, zone: zone.map(str::to_owned), schedule, settings })
    }

    /// Reads the text of a stored schedule.
    ///
    /// # Errors
    /// `Invalid`, with the column of the error.
    pub fn parse(name: &str, text: &str) -> Result<Self> {
        if is_code(text) {
            let word = text.split([' ', ';']).next().unwrap_or_default();
            let own =
                ParseError::new(Field::Text, 0, word, "is a schedule that only its code knows");
            return Err(own.remedy("change the job's code").into());
        }
        let DefinitionText { schedule, zone, settings } = DefinitionText::read(text)?;
        Self::new(name, &schedule, zone.as_deref(), settings)
    }

    /// The schedule's text as it was given, without a separate zone.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The separate zone.
    pub fn zone(&self) -> Option<&str> {
        self.zone.as_deref()
    }

    /// The schedule.
    pub fn schedule(&self) -> &AnySchedule {
        &self.schedule
    }

    /// The names of the calendars in the store that its schedule needs. Without them, the schedule has
    /// no occurrence: [`Schedules::definition`](super::Schedules::definition) reads them.
    pub fn calendars(&self) -> BTreeSet<&str> {
        self.schedule.calendars()
    }

    /// The definition with its named calendars.
    ///
    /// # Errors
    /// `Invalid` with the reason why there is no such calendar, or if they exclude everything.
    pub(crate) fn with_calendars(self, find: impl Fn(&str) -> Found) -> Result<Self> {
        if self.calendars().is_empty() {
            return Ok(self);
        }
        let found = self.calendars().into_iter().map(|name| Ok((name.to_owned(), find(name)?)));
        let found: HashMap<String, Arc<Calendar>> =
            found.collect::<Result<_, String>>().map_err(Error::invalid)?;
        let schedule = self.schedule.with_calendars(|name| found.get(name).cloned());
        schedule.check()?;
        Ok(Self { schedule, ..self })
    }

    /// The settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The first occurrence of a schedule that is added at `now`: `now`, if it runs when it is created.
    pub(crate) fn first(&self, name: &str, now: Time) -> Result<Option<NextRun>> {
        let first = self.first_scheduled(name, now)?;
        match self.settings.run_when_created {
            true => Ok(first.is_some().then(|| whole_millis(now).into())),
            false => Ok(first),
        }
    }

    /// The first occurrence by the schedule of a schedule that is added at `now`: the first one at or after its
    /// start, or after now if it has none. A single time of up to a minute before now counts as now.
    /// `None` if there is no occurrence.
    pub(crate) fn first_scheduled(&self, name: &str, now: Time) -> Result<Option<NextRun>> {
        let spec = self.bare();
        let start = self.settings.start;
        let from = start.unwrap_or(now);
        let before = from.checked_sub_signed(TimeDelta::milliseconds(1)).unwrap_or(from);
        if self.schedule.moved(now).is_some() {
            let first = CheckedSchedule::of(name, &spec).upcoming(before.max(now), None, 0);
            return first.or_else(|fault| unplanned(name, &fault));
        }
        let first = following(name, &spec, before, 0)?;
        match first.filter(|first| start.is_some() || first.scheduled_at == now) {
            None => {
                let first = CheckedSchedule::of(name, &spec).first_scheduled(now);
                first.or_else(|fault| unplanned(name, &fault))
            }
            first => Ok(first),
        }
    }

    /// The first occurrence after `after`, if `started` occurrences were started before.
    pub(crate) fn following(
        &self,
        name: &str,
        after: Time,
        started: u64,
    ) -> Result<Option<NextRun>> {
        following(name, &self.bare(), after, started)
    }

    /// `true` if the next occurrence follows the end of a run.
    pub(crate) fn follows_end(&self) -> bool {
        delay_after_end(&self.schedule).is_some()
    }

    /// The occurrence at this time, if there is one.
    pub(crate) fn occurrence(&self, name: &str, at: Time) -> Option<NextRun> {
        let bare = self.bare();
        let schedule = CheckedSchedule::of(name, &bare);
        schedule.has(at).then(|| schedule.next(at))?
    }

    /// The schedule and its settings without code, for planning only.
    pub(crate) fn bare(&self) -> JobSpec {
        self.spec(async |_: Run| Err::<(), &str>("no code runs this schedule"))
    }

    /// The schedule and its settings with this code.
    pub(crate) fn spec<F, Fut>(&self, work: F) -> JobSpec
    where
        F: FnOnce(Run) -> Fut + Clone + Send + Sync + 'static,
        Fut: Future<Output: IntoOutcome> + Send + 'static,
    {
        job(self.schedule.clone(), work).with_settings(self.settings.clone())
    }
}

impl fmt::Display for Definition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut schedule = self.text.clone();
        if let Some(zone) = &self.zone {
            schedule = format!("{schedule}; zone {zone}");
        }
        f.write_str(&schedule)?;
        self.settings.words().try_for_each(|(name, value)| write!(f, "; {name} {value}"))
    }
}

fn following(name: &str, entry: &JobSpec, after: Time, started: u64) -> Result<Option<NextRun>> {
    let next = CheckedSchedule::of(name, entry).following(after, started);
    next.or_else(|fault| unplanned(name, &fault))
}

fn unplanned<T>(name: &str, fault: &dyn fmt::Display) -> Result<T> {
    Err(Error::invalid(format!("{name:?} cannot be planned: {fault}")))
}

fn in_zone(schedule: AnySchedule, zone: &str) -> Result<AnySchedule> {
    if let Some(named) = schedule.zone() {
        return Err(Error::invalid(format!(
            "the zone {zone:?} conflicts with the zone {named:?} in the schedule; use one"
        )));
    }
    Ok(schedule.in_zone(zone)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        backend::{After, On},
        job::{AlertRule, Breaker, CatchUp, ConcurrencyKey, Delivery, JobHistory, Overlap, Retry},
        schedule,
    };
    use std::time::Duration;

    #[test]
    fn periods_are_written_in_whole_units_and_read_in_any() {
        let text = "@daily; at-least-once 30000ms; window 90s; retry 3 1000ms 3600s; delay 1500ms";
        let read = Definition::parse("job", text).unwrap();
        let written = "@daily; at-least-once 30s; window 1m30s; retry 3 1s 1h; delay 1s500ms";
        assert_eq!(read.to_string(), written);
        assert_eq!(Definition::parse("job", written).unwrap(), read);
    }

    /// Checks the error for a text; empty: no error.
    #[track_caller]
    fn check(text: &str, says: &str) {
        let said = Definition::parse("job", text).err().map(|error| error.to_string());
        let said = said.unwrap_or_default();
        assert!(said.contains(says) && said.is_empty() == says.is_empty(), "{text}: {said:?}");
    }

    #[test]
    fn errors_name_their_place() {
        check("* * * * *", "");
        check("  @every 5m ;delay 1m30s;  window 1h  ", "");
        check("", "schedule");
        check("* * * *", "column");
        check("@v2 whatever", "newer build");
        check("* * * * *;", "setting, column 11: \"\" is nothing between");
        check("* * * * *; delay", "setting, column 12: \"delay\" has no value");
        check("* * * * *; delay 30", "period, column 18");
        check("* * * * *; delay 1m; delay 2m", "column 22: \"delay\" is given twice");
        check("* * * * *; delay 1m 2m", "column 21: \"2m\" is one word too many");
        check("* * * * *; catch-up some", "column 21: \"some\" is not a catch-up policy");
        check("* * * * *; catch-up all -1", "column 25: \"-1\" is not a number");
        check("* * * * *; catch-up all", "column 21: \"all\" has no limit");
        check("* * * * *; catch-up all  5 x", "column 28: \"x\" is one word too many");
        check("* * * * *; overlap", "column 12: \"overlap\" has no value");
        check("* * * * *; overlap skip wait", "column 25: \"wait\" is one word too many");
        check("* * * * *; start tomorrow", "instant, column 18");
        check("* * * * *; run-if-past no", "column 24: \"no\" is not yes; write yes, or leave");
        check("* * * * *; Delay 1m", "column 12: \"Delay\" is not a setting");
        check("* * * * *; zone Mars/X", "Mars/X");
        check("* * * * * Asia/Tokyo; zone Europe/Rome", "use one");
        check("@quartz 0 * * * * ? Asia/Tokyo; zone Europe/Rome", "use one");
        check("@every 1h; zone Europe/Rome", "no wall clock");
        check("* * * * *; retry 5 10s 1h", "at least once");
        check("* * * * *; at-least-once 10ms", "1 s to 24 h");
        check("* * * * *; delay 99999999999999999999s", "too large");
        check(
            "* * * * *; delay 1m; except 2026-02-30; jitter 1m",
            "setting, column 29: \"2026-02-30\"",
        );
        check(
            "* * * * *; concurrency-key é; only-within 9-17",
            "setting, column 44: \"9-17\" is not a span",
        );
        check("* * * * *; except 2026-02-28; zone Europe/Rome", "");
        check("0 9 * * *; except 0 9 * * *", "every occurrence is excluded");
        check(
            "0 9 * * *; holidays italy",
            "column 12: \"holidays\" is not a setting of this build",
        );
    }

    /// Numbers that follow from a seed; SplitMix64.
    struct Random(u64);

    impl Random {
        fn below(&mut self, n: u64) -> u64 {
            self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            (z ^ (z >> 31)) % n
        }

        fn maybe<T>(&mut self, value: impl FnOnce(&mut Self) -> T) -> Option<T> {
            (self.below(2) == 0).then(|| value(self))
        }

        fn period(&mut self) -> Duration {
            let most = [1_000, 60_000, 86_400_000][self.below(3) as usize];
            Duration::from_millis(1 + self.below(most))
        }

        fn instant(&mut self) -> Time {
            crate::time::from_millis(self.below(4_000_000_000_000) as i64).unwrap()
        }

        fn settings(&mut self) -> Settings {
            let mut settings = Settings::default();
            if self.below(2) == 0 {
                let lease = Duration::from_secs(1) + self.period();
                settings.delivery = Delivery::AtLeastOnce { lease };
                let attempts = 1 + self.below(9) as u32;
                let retry = Retry::up_to(attempts, self.period());
                settings.retry = retry.at_most_every(self.period());
            } else {
                let policies = [Overlap::Allow, Overlap::Skip, Overlap::Wait, Overlap::Replace];
                settings.overlap = policies[self.below(4) as usize];
            }
            let limit = 1 + self.below(10_000) as u32;
            let policies = [CatchUp::Latest, CatchUp::None, CatchUp::All { limit }];
            settings.catch_up = policies[self.below(3) as usize];
            settings.window = self.maybe(Self::period);
            settings.timeout = self.maybe(Self::period);
            settings.delay = self.maybe(Self::period).unwrap_or_default();
            settings.jitter = self.maybe(Self::period).unwrap_or_default();
            settings.start = self.maybe(Self::instant);
            let start = settings.start.unwrap_or_default();
            settings.end = self.maybe(|random| start + random.period());
            settings.max_runs = self.maybe(|random| 1 + random.below(u64::MAX - 1));
            settings.run_when_created = self.below(4) == 0;
            settings.run_if_past = self.below(4) == 0;
            settings.concurrency_key = self.maybe(|random| {
                let key = ["tapes/é", "tenant:7"][random.below(2) as usize];
                let limit = 1 + random.below(3) as u32;
                match random.below(3) {
                    0 => ConcurrencyKey::rate(
                        key,
                        limit,
                        Duration::from_secs(1 + random.below(9_000)),
                    ),
                    _ => ConcurrencyKey::new(key, limit),
                }
            });
            if settings.concurrency_key.is_some() {
                settings.max_key_wait = self.maybe(Self::period);
            }
            settings.breaker = self.maybe(|random| {
                let breaker = Breaker::after(1 + random.below(1_000) as u32);
                random
                    .maybe(|_| Duration::from_secs(90))
                    .map_or(breaker, |wait| breaker.probe_after(wait))
            });
            settings.history = self.maybe(|_| JobHistory::new(50, Duration::from_secs(86_400)));
            settings.alert = self.maybe(|random| {
                AlertRule::after(1 + random.below(9) as u32).again_every(Duration::from_secs(60))
            });
            let jobs = ["import", "a job failed", "x ended"];
            settings.after = self.maybe(|random| {
                After::new(jobs[random.below(3) as usize], On::ALL[random.below(3) as usize])
            });
            settings
        }
    }

    #[test]
    fn whatever_can_be_said_is_read_back() {
        let schedules = [
            ("* * * * *", true),
            ("H H(1-4) * * MON-FRI", true),
            ("0 9 * * * Europe/Rome", false),
            ("@every 1h30m", false),
            ("@every 1h phase 5m", false),
            ("@at 2026-01-01T00:00:00.000Z", false),
            ("@quartz 0 0 9 ? * MON", true),
            ("@daily", true),
            ("every monday at 9am; except 2026-12-25 2026-12-26 Europe/Rome; except @noon", true),
            ("@every 1h; only-within 9:00-17:30", true),
            ("@daily; blackout 2026-12-20T00:00:00Z/2027-01-07T00:00:00Z", true),
        ];
        let mut random = Random(7);
        for _ in 0..4_000 {
            let (text, zoned) = schedules[random.below(schedules.len() as u64) as usize];
            let zone = random.maybe(|_| "Asia/Tokyo").filter(|_| zoned);
            let settings = random.settings();
            let definition = Definition::new("job", text, zone, settings).unwrap();
            let read = Definition::parse("job", &definition.to_string()).unwrap();
            assert_eq!(read, definition, "{definition}");
            assert_eq!(read.to_string(), definition.to_string());
        }
    }

    #[test]
    fn garbage_is_refused_and_nothing_panics() {
        let full = "* * * * *; zone Asia/Tokyo; at-least-once 30000ms; catch-up all 3; window 1h; \
                    retry 3 1s 1h; delay 1s; jitter 2s; start 2026-01-01T00:00:00.000Z; \
                    end 2027-01-01T00:00:00.000Z; max-runs 3; concurrency-key tapes:2; \
                    max-key-wait 1h; breaker 5 10m; alert 3; history 50 30d; timeout 5s";
        assert!(Definition::parse("job", full).is_ok());
        let mut random = Random(11);
        for _ in 0..4_000 {
            let mut bytes = full.as_bytes().to_vec();
            for _ in 0..=random.below(4) {
                let at = random.below(bytes.len() as u64) as usize;
                match random.below(3) {
                    0 => bytes[at] = random.below(256) as u8,
                    1 => drop(bytes.remove(at)),
                    _ => bytes.insert(at, b"; *0aZ-"[random.below(7) as usize]),
                }
            }
            let text = String::from_utf8_lossy(&bytes);
            if let Ok(read) = Definition::parse("job", &text) {
                assert_eq!(Definition::parse("job", &read.to_string()).unwrap(), read, "{text}");
            }
        }
    }

    #[test]
    fn the_texts_of_jobs_in_code_are_read() {
        let entry = crate::job(schedule::every(Duration::from_secs(90)), async |_: Run| {})
            .at_least_once(Duration::from_secs(30))
            .delay(Duration::from_secs(5))
            .max_runs(3)
            .concurrency_key("tapes", 3)
            .max_key_wait(Duration::from_secs(60));
        let definition = Definition::parse("job", &entry.definition()).unwrap();
        assert_eq!(definition.settings(), &*entry.settings);
        assert_eq!(definition.to_string(), entry.definition());
    }

    #[test]
    fn a_calendar_may_stand_among_the_settings() {
        let text = "0 9 * * *; delay 1m; except 2026-12-25; zone Europe/Rome; blackout \
                    2026-12-26T00:00:00Z/2026-12-28T00:00:00Z";
        let definition = Definition::parse("job", text).unwrap();
        assert_eq!(
            definition.to_string(),
            "0 9 * * *; except 2026-12-25; blackout 2026-12-26T00:00:00Z/2026-12-28T00:00:00Z; \
             zone Europe/Rome; delay 1m"
        );
        let now = "2026-12-24T12:00:00Z".parse().unwrap();
        let first = definition.first("job", now).unwrap().unwrap();
        assert_eq!(first.scheduled_at.to_rfc3339(), "2026-12-28T08:00:00+00:00");
        assert_eq!(first.due_at.to_rfc3339(), "2026-12-28T08:01:00+00:00");
        let dates = schedule::Dates::parse("2026-12-25").unwrap();
        let filtered = schedule::cron("0 9 * * * Europe/Rome").unwrap().except(dates);
        let entry = crate::job(filtered, async |_: Run| {}).max_runs(3);
        let read = Definition::parse("job", &entry.definition()).unwrap();
        assert_eq!(read.to_string(), entry.definition());
    }

    #[test]
    fn the_first_occurrence_is_the_first_match_at_or_after_the_start() {
        let at = |text: &str| text.parse::<Time>().unwrap();
        let first = |text: &str, now: &str| {
            let definition = Definition::parse("job", text).unwrap();
            definition.first("job", at(now)).unwrap().map(|next| next.scheduled_at)
        };
        let midnight = "2026-01-01T00:00:00Z";
        assert_eq!(first("0 0 * * *", midnight), Some(at(midnight)));
        assert_eq!(
            first("0 0 * * *", "2026-01-01T00:00:00.001Z"),
            Some(at("2026-01-02T00:00:00Z"))
        );
        let started = |start: &str| format!("0 0 * * *; start {start}");
        assert_eq!(
            first(&started("2025-12-25T00:00:00Z"), midnight),
            Some(at("2025-12-25T00:00:00Z"))
        );
        assert_eq!(
            first(&started("2027-01-01T00:00:01Z"), midnight),
            Some(at("2027-01-02T00:00:00Z"))
        );
        assert_eq!(first("@every 1h", midnight), Some(at("2026-01-01T01:00:00Z")));
        // An interval begins at its start, in the setting as in its own text.
        for text in ["@every 1h; start 2026-01-01T00:10:00Z", "@every 1h from 2026-01-01T00:10:00Z"]
        {
            assert_eq!(first(text, midnight), Some(at("2026-01-01T00:10:00Z")), "{text}");
            let late = "2026-01-01T00:10:00.250Z";
            assert_eq!(first(text, late), Some(at("2026-01-01T00:10:00Z")), "{text}");
        }
        assert_eq!(first("@at 2020-01-01T00:00:00Z", midnight), None);
        assert_eq!(first("@daily; end 2025-01-01T00:00:00Z", midnight), None);
    }
}
