//! What a stored schedule is, as one line of text: its schedule, then what differs from the
//! defaults.

use super::words::{Read, parts};
use crate::{
    backend::Next,
    error::{BoxError, Error, Result},
    job::{Entry, Job, Settings, Timetable},
    run::Run,
    schedule::{AnySchedule, Field, ParseError, Schedule},
    time::Time,
};
use async_trait::async_trait;
use chrono::TimeDelta;
use std::{fmt, sync::Arc};

/// What a stored schedule is: when it runs, and all that is said about its runs.
///
/// Its text is what the store keeps as [`State::definition`](crate::backend::State::definition):
/// the schedule, then settings behind semicolons, in any order. It is the text that
/// [`Settings::definition`] writes for jobs in code, with two more words: `zone` and `timeout`.
///
/// | setting | meaning |
/// |---|---|
/// | `zone Europe/Paris` | the zone of a cron expression that names none itself |
/// | `at-least-once 30s` | the lease; without it: at most once |
/// | `catch-up all 10`, `catch-up none` | what becomes of missed instants; without it: the latest runs |
/// | `window 1h` | what is later than this is missed |
/// | `overlap skip`, `overlap wait` | at most once, while the run before still runs |
/// | `retry 5 10s 1h` | attempts, the first wait, the longest |
/// | `timeout 5m` | a run is dropped after so long |
/// | `delay 30s`, `spread 1m` | runs so long after the scheduled time; spread by name up to so long |
/// | `start …`, `end …` | no occurrence before, none after: RFC 3339 instants |
/// | `max-runs 12` | at most so many occurrences |
/// | `mutex tapes` | one at a time with all jobs of this group |
///
/// What a newer build writes in another form begins with `@v` and a number, which this one refuses
/// by that name; words it does not know it refuses at their place.
///
/// ```
/// use allora_core::stored::Definition;
///
/// # fn main() -> allora_core::Result {
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
    /// The definition of the job `name` (for `H` in a cron expression), by its parts.
    ///
    /// # Errors
    /// `Invalid`: a schedule, zone or setting that is refused, and where.
    pub fn new(name: &str, text: &str, zone: Option<&str>, settings: Settings) -> Result<Self> {
        // A setting cannot hide in the schedule: no schedule has a semicolon in it.
        let mut schedule = AnySchedule::for_job(name, text)?;
        if let Some(zone) = zone {
            schedule = in_zone(schedule, zone)?;
        }
        schedule.check()?;
        settings.check()?;
        let text = text.split_ascii_whitespace().collect::<Vec<_>>().join(" ");
        Ok(Self { text, zone: zone.map(str::to_owned), schedule, settings })
    }

    /// Reads the text of a stored schedule.
    ///
    /// # Errors
    /// `Invalid`, with the column of what is wrong.
    pub fn parse(name: &str, text: &str) -> Result<Self> {
        if text.starts_with("@v") {
            let word = text.split([' ', ';']).next().unwrap_or_default();
            let newer = ParseError::new(Field::Text, 0, word, "was written by a newer build");
            return Err(newer.remedy("update this program").into());
        }
        let mut parts = parts(text);
        let (_, schedule) = parts.next().unwrap_or((0, ""));
        let mut read = Read::default();
        for (at, part) in parts {
            read.setting(at, part)?;
        }
        let (zone, settings) = read.done();
        Self::new(name, schedule, zone.as_deref(), settings)
    }

    /// The schedule's text, as it was given; without the zone if that was given by itself.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The zone that was given by itself.
    pub fn zone(&self) -> Option<&str> {
        self.zone.as_deref()
    }

    /// When it runs.
    pub fn schedule(&self) -> &AnySchedule {
        &self.schedule
    }

    /// All that is said about its runs.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The first occurrence for a schedule that is added at `now`: the first instant at or after
    /// its start, or after now if none was given. `None`: there is none.
    pub(crate) fn first(&self, name: &str, now: Time) -> Result<Option<Next>> {
        let mut settings = self.settings.clone();
        let start = *settings.start.get_or_insert(now);
        let before = start.checked_sub_signed(TimeDelta::milliseconds(1)).unwrap_or(start);
        following(name, &self.entry_with(settings), before, 0)
    }

    /// The first occurrence after `after`, when `started` were started.
    pub(crate) fn following(&self, name: &str, after: Time, started: u64) -> Result<Option<Next>> {
        following(name, &self.entry_with(self.settings.clone()), after, started)
    }

    /// Whether `at` is one of its instants, as far as it can say of a single one.
    pub(crate) fn has(&self, name: &str, at: Time) -> bool {
        let before = at - TimeDelta::milliseconds(1);
        let next = self.following(name, before, 0);
        next.is_ok_and(|next| next.is_some_and(|next| next.at == at))
    }

    fn entry_with(&self, settings: Settings) -> Entry {
        Entry::with(Arc::new(Bare(self.schedule.clone())), settings)
    }
}

impl fmt::Display for Definition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut schedule = self.text.clone();
        if let Some(zone) = &self.zone {
            schedule = format!("{schedule}; zone {zone}");
        }
        f.write_str(&schedule)?;
        self.settings.words().iter().try_for_each(|word| write!(f, "; {word}"))
    }
}

fn following(name: &str, entry: &Entry, after: Time, started: u64) -> Result<Option<Next>> {
    let next = Timetable::of(name, entry).following(after, started);
    next.map_err(|fault| Error::invalid(format!("{name:?} cannot be planned: {fault}")))
}

fn in_zone(schedule: AnySchedule, zone: &str) -> Result<AnySchedule> {
    match schedule {
        AnySchedule::Cron(cron) if cron.names_zone() => Err(Error::invalid(format!(
            "the zone {zone:?} is given beside a schedule that names {:?} itself; name one",
            cron.zone()
        ))),
        AnySchedule::Cron(cron) => Ok(AnySchedule::Cron(cron.in_zone(zone)?)),
        other => Err(Error::invalid(format!(
            "the zone {zone:?} means nothing to `{other}`, which follows no wall clock; leave it away"
        ))),
    }
}

/// A schedule by itself: it is planned, and run by nobody.
struct Bare(AnySchedule);

#[async_trait]
impl Job for Bare {
    fn next_at(&self, after: Time) -> Option<Time> {
        self.0.next_at(after)
    }
    async fn run(&self, _: Run) -> Result<(), BoxError> {
        Err("nothing here runs this schedule".into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        job::{CatchUp, Delivery, Overlap, Retry},
        schedule,
    };
    use std::time::Duration;

    /// What is said about a text; empty: nothing.
    #[track_caller]
    fn check(text: &str, says: &str) {
        let said = Definition::parse("job", text).err().map(|error| error.to_string());
        let said = said.unwrap_or_default();
        assert!(said.contains(says) && said.is_empty() == says.is_empty(), "{text}: {said:?}");
    }

    #[test]
    fn what_is_wrong_is_told_with_its_place() {
        check("* * * * *", "");
        check("  @every 5m ;delay 1m30s;  window 1h  ", "");
        check("", "schedule");
        check("* * * *", "column");
        check("@v2 whatever", "newer build");
        check("* * * * *;", "setting, column 11: \"\" is nothing between");
        check("* * * * *; delay", "setting, column 12: \"delay\" has no value");
        check("* * * * *; delay 30", "period, column 18");
        check("* * * * *; delay 1m; delay 2m", "column 22: \"delay\" is there twice");
        check("* * * * *; delay 1m 2m", "column 21: \"2m\" is one word too many");
        check("* * * * *; catch-up some", "column 21: \"some\" is not a catch-up policy");
        check("* * * * *; catch-up all -1", "column 25: \"-1\" is not a number");
        check("* * * * *; start tomorrow", "instant, column 18");
        check("* * * * *; Delay 1m", "column 12: \"Delay\" is not a setting");
        check("* * * * *; zone Mars/X", "Mars/X");
        check("* * * * * Asia/Tokyo; zone Europe/Rome", "name one");
        check("@every 1h; zone Europe/Rome", "no wall clock");
        check("* * * * *; retry 5 10s 1h", "at_least_once");
        check("* * * * *; at-least-once 10ms", "1 s to 24 h");
        check("* * * * *; delay 99999999999999999999s", "too large");
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
                let policies = [Overlap::Allow, Overlap::Skip, Overlap::Wait];
                settings.overlap = policies[self.below(3) as usize];
            }
            let limit = 1 + self.below(10_000) as u32;
            let policies = [CatchUp::Latest, CatchUp::None, CatchUp::All { limit }];
            settings.catch_up = policies[self.below(3) as usize];
            settings.window = self.maybe(Self::period);
            settings.timeout = self.maybe(Self::period);
            settings.delay = self.maybe(Self::period).unwrap_or_default();
            settings.spread = self.maybe(Self::period).unwrap_or_default();
            settings.start = self.maybe(Self::instant);
            let start = settings.start.unwrap_or_default();
            settings.end = self.maybe(|random| start + random.period());
            settings.max_runs = self.maybe(|random| 1 + random.below(u64::MAX - 1));
            settings.mutex = self.maybe(|_| "tapes/é".into());
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
            ("@quartz 0 0 9 ? * MON", false),
            ("@daily", true),
        ];
        let mut random = Random(7);
        for _ in 0..4_000 {
            let (text, zoned) = schedules[random.below(8) as usize];
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
                    retry 3 1s 1h; delay 1s; spread 2s; start 2026-01-01T00:00:00.000Z; \
                    end 2027-01-01T00:00:00.000Z; max-runs 3; mutex tapes; timeout 5s";
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
            .mutex("tapes");
        let definition = Definition::parse("job", &entry.definition()).unwrap();
        assert_eq!(definition.settings(), &*entry.settings);
        assert_eq!(definition.to_string(), entry.definition());
    }

    #[test]
    fn the_first_occurrence_is_the_first_match_at_or_after_the_start() {
        let at = |text: &str| text.parse::<Time>().unwrap();
        let first = |text: &str, now: &str| {
            let definition = Definition::parse("job", text).unwrap();
            definition.first("job", at(now)).unwrap().map(|next| next.at)
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
        assert_eq!(first("@at 2020-01-01T00:00:00Z", midnight), None);
        assert_eq!(first("@daily; end 2025-01-01T00:00:00Z", midnight), None);
    }
}
