//! The text of a definition: a schedule, then the settings that differ from the defaults, separated by
//! semicolons. It is read and written here alone.

use super::{
    CatchUp, ConcurrencyKey, Delivery, FailureRules, JobHistory, Overlap, Retry, Settings,
    is_number,
    words::{number, split, too_many, wrong},
};
use crate::{
    backend::{After, NextRun},
    error::Result,
    schedule::{
        AnySchedule, Field, ParseError, Schedule, parse_instant, parse_period, period_text,
    },
    time::Time,
};
use chrono::SecondsFormat;
use std::{collections::BTreeSet, str::FromStr, time::Duration};

/// A definition's text, taken apart.
pub(crate) struct DefinitionText {
    /// The schedule with its rules, and blanks in place of the settings, so that errors in it have
    /// their true column.
    pub(crate) schedule: String,
    /// The separate zone.
    pub(crate) zone: Option<String>,
    pub(crate) settings: Settings,
}

impl DefinitionText {
    /// Reads the settings; the schedule is left as it is.
    pub(crate) fn read(text: &str) -> Result<Self, ParseError> {
        if text.starts_with("@v") {
            let word = text.split([' ', ';']).next().unwrap_or_default();
            let newer = ParseError::new(Field::Text, 0, word, "was written by a newer build");
            return Err(newer.remedy("update this program"));
        }
        let mut read = SettingsReader::default();
        let mut schedule = text.to_owned();
        for (at, part) in parts(text).skip(1).filter(|(_, part)| !AnySchedule::is_rule(part)) {
            read.setting(at, part)?;
            let begin = text[..at].rfind(';').unwrap_or(at);
            schedule.replace_range(begin..at + part.len(), &" ".repeat(at + part.len() - begin));
        }
        let (zone, settings) = read.done();
        Ok(Self { schedule, zone, settings })
    }
}

/// The lease with which a query may claim a stored schedule with this definition; `None` if the
/// schedule has to be planned first, or this build cannot read all of the text.
pub(crate) fn due_lease(definition: &str) -> Option<Duration> {
    let DefinitionText { schedule, settings, .. } = DefinitionText::read(definition).ok()?;
    settings.check().ok()?;
    let Delivery::AtLeastOnce { lease } = settings.delivery else { return None };
    // A node reads a named calendar before it claims.
    let has_named = parts(&schedule).any(|(_, part)| AnySchedule::is_named_calendar(part));
    // An occurrence that moves to an earlier day is claimed before its scheduled time.
    let moves = ["move", "business"].iter().any(|word| schedule.contains(word));
    (!has_named && !moves && settings.concurrency_key.is_none()).then_some(lease)
}

/// The occurrence that follows an end at `end` of a job with this definition, if its schedule is one that
/// runs some [time after the end](allora_schedule::after_end()) of a run. `Some(None)`: after its last one.
pub(crate) fn next_after_end(name: &str, definition: &str, end: Time) -> Option<Option<NextRun>> {
    // Few are, and each end of a run asks.
    let is_one = definition.starts_with("@after_end ");
    let DefinitionText { schedule, settings, .. } =
        is_one.then(|| DefinitionText::read(definition).ok()).flatten()?;
    let read = AnySchedule::for_job(name, &schedule).ok()?;
    let next = match &read {
        // Nodes leave out what a calendar with a name excludes.
        AnySchedule::Filtered(filtered) if !read.calendars().is_empty() => {
            filtered.schedule().next_at(end)
        }
        read => read.next_at(end),
    };
    let is_over = |at: &Time| settings.end.is_some_and(|end| *at > end);
    let next = next.filter(|at| !is_over(at));
    Some(next.and_then(|at| settings.next_moved(name, at, at)))
}

/// The job after which a job with this definition runs, as far as this build can read it.
pub(crate) fn after_in(definition: &str) -> Option<After> {
    // Most have none.
    let may_have_one = definition.contains("after");
    may_have_one.then(|| DefinitionText::read(definition).ok())??.settings.after
}

/// The owner and the tags in a definition, as far as this build can read it.
pub(crate) fn owner_and_tags(definition: &str) -> (Option<String>, BTreeSet<String>) {
    // Most have none, and a commit asks.
    let may_have_some = definition.contains("owner") || definition.contains("tags");
    let read = may_have_some.then(|| DefinitionText::read(definition).ok()).flatten();
    read.map(|read| (read.settings.owner, read.settings.tags)).unwrap_or_default()
}

/// The window in a definition, if it has one that this build can read.
pub(crate) fn window_in(definition: &str) -> Option<Duration> {
    // Most have none, and a search finds many.
    let may_have_one = definition.contains("window");
    may_have_one.then(|| DefinitionText::read(definition).ok())??.settings.window
}

/// The limits of its history in a definition, if it has some that this build can read.
pub(crate) fn history_of(definition: &str) -> Option<JobHistory> {
    let may_have_some = definition.contains("; history");
    may_have_some.then(|| DefinitionText::read(definition).ok())??.settings.history
}

/// The rules about failures in a row in a definition; `None` if it has none that this build can read.
pub(crate) fn failure_rules(definition: &str) -> Option<FailureRules> {
    // Most have none, and each failure asks.
    let may_have_some = definition.contains("; breaker") || definition.contains("; alert");
    let read = may_have_some.then(|| DefinitionText::read(definition).ok())??;
    let Settings { breaker, alert, .. } = read.settings;
    (breaker.is_some() || alert.is_some()).then_some(FailureRules { breaker, alert })
}

impl Settings {
    /// The text of a job with this schedule: the settings that differ from the defaults, in a fixed
    /// order. The time-out is left out, because it concerns the running node only.
    pub fn definition(&self, schedule: &str) -> String {
        let shared = Self { timeout: None, ..self.clone() };
        let words = shared.words().map(|(name, value)| format!("; {name} {value}"));
        schedule.to_owned() + &words.collect::<String>()
    }

    /// The settings that differ from the defaults, in a fixed order, each as name and value.
    pub(crate) fn words(&self) -> impl Iterator<Item = (&'static str, String)> {
        self.each().into_iter().filter_map(|(name, value)| Some((name, value?)))
    }

    /// The names of all settings that have a text.
    #[cfg(feature = "json")]
    pub(crate) fn names() -> impl Iterator<Item = &'static str> {
        Self::default().each().into_iter().map(|(name, _)| name)
    }

    /// All settings; the value is missing if it is the default.
    fn each(&self) -> [(&'static str, Option<String>); 21] {
        let Self {
            delivery,
            catch_up,
            window,
            overlap,
            retry,
            timeout,
            delay,
            jitter,
            start,
            end,
            max_runs,
            run_when_created,
            run_if_past,
            concurrency_key,
            max_key_wait,
            breaker,
            alert,
            history,
            after,
            owner,
            tags,
            // They belong to the build, not to the text.
            placement: _,
            version: _,
        } = self;
        let lease = match delivery {
            Delivery::AtMostOnce => None,
            Delivery::AtLeastOnce { lease } => Some(*lease),
        };
        let catch_up = match catch_up {
            CatchUp::Latest => None,
            CatchUp::All { limit } => Some(format!("all {limit}")),
            CatchUp::None => Some("none".to_owned()),
        };
        let overlap = match overlap {
            Overlap::Allow => None,
            Overlap::Skip => Some("skip"),
            Overlap::Wait => Some("wait"),
            Overlap::Replace => Some("replace"),
        };
        let Retry { attempts, first, longest } = *retry;
        let waits = || format!("{attempts} {} {}", period_text(first), period_text(longest));
        let period = |period: &Option<Duration>| period.map(period_text);
        let positive = |delay: &Duration| (!delay.is_zero()).then(|| period_text(*delay));
        let instant =
            |at: &Option<Time>| at.map(|at| at.to_rfc3339_opts(SecondsFormat::Millis, true));
        let yes = |set: &bool| set.then(|| "yes".to_owned());
        let tags: Vec<&str> = tags.iter().map(String::as_str).collect();
        [
            ("at-least-once", lease.map(period_text)),
            ("catch-up", catch_up),
            ("window", period(window)),
            ("overlap", overlap.map(str::to_owned)),
            ("retry", (*retry != Retry::NEVER).then(waits)),
            ("delay", positive(delay)),
            ("jitter", positive(jitter)),
            ("start", instant(start)),
            ("end", instant(end)),
            ("max-runs", max_runs.map(|runs| runs.to_string())),
            ("run-when-created", yes(run_when_created)),
            ("run-if-past", yes(run_if_past)),
            ("concurrency-key", concurrency_key.as_ref().map(ToString::to_string)),
            ("max-key-wait", period(max_key_wait)),
            ("breaker", breaker.map(|breaker| breaker.to_string())),
            ("alert", alert.map(|alert| alert.to_string())),
            ("history", history.map(|history| history.to_string())),
            ("after", after.as_ref().map(ToString::to_string)),
            ("owner", owner.clone()),
            ("tags", (!tags.is_empty()).then(|| tags.join(","))),
            ("timeout", period(timeout)),
        ]
    }
}

/// The parts between semicolons, without surrounding blanks, each with its byte position.
fn parts(text: &str) -> impl Iterator<Item = (usize, &str)> {
    AnySchedule::parts(text).map(|(at, part)| {
        let begin = part.len() - part.trim_start_matches(' ').len();
        (at + begin, part.trim_matches(' '))
    })
}

/// The settings read so far.
#[derive(Default)]
pub(crate) struct SettingsReader {
    zone: Option<String>,
    settings: Settings,
    seen: Vec<String>,
}

/// The words of one setting.
struct Words<'a> {
    part: &'a str,
    words: Vec<(usize, &'a str)>,
    at: usize,
    next: usize,
}

impl SettingsReader {
    /// Starts with these settings.
    #[cfg(feature = "json")]
    pub(crate) fn with(settings: Settings) -> Self {
        Self { settings, ..Self::default() }
    }

    /// Reads one setting that is given separately.
    #[cfg(feature = "json")]
    pub(crate) fn word(&mut self, name: &str, value: &str) -> Result<(), String> {
        if name == "at-most-once" {
            // The other name for the same setting.
            if self.seen.iter().any(|seen| seen == "at-least-once") {
                return Err("the delivery is given twice; give it once".to_owned());
            }
            self.seen.push("at-least-once".to_owned());
            self.settings.delivery = Delivery::AtMostOnce;
            if !self.seen.iter().any(|seen| seen == "retry") {
                self.settings.retry = Retry::NEVER;
            }
            return Ok(());
        }
        let part = format!("{name} {value}");
        self.setting(0, part.trim_end()).map_err(|error| format!("in `{part}`: {error}"))
    }

    /// The zone and the other settings.
    pub(crate) fn done(self) -> (Option<String>, Settings) {
        (self.zone, self.settings)
    }

    fn setting(&mut self, at: usize, part: &str) -> Result<(), ParseError> {
        let mut words = Words { part, words: split(at, part).collect(), at, next: 0 };
        let Some((name_at, name)) = words.take() else {
            return Err(wrong(at, "", "is nothing between two semicolons").remedy("remove one"));
        };
        if self.seen.iter().any(|seen| seen == name) {
            return Err(wrong(name_at, name, "is given twice").remedy("remove one"));
        }
        self.seen.push(name.to_owned());
        let settings = &mut self.settings;
        match name {
            "zone" => {
                self.zone = Some(words.value("a zone, such as Europe/Rome")?.1.to_owned());
            }
            "at-least-once" => {
                settings.delivery = Delivery::AtLeastOnce { lease: words.period()? };
            }
            "catch-up" => {
                settings.catch_up = words.rest("`latest`, `none` or `all` and a limit")?;
            }
            "window" => settings.window = Some(words.period()?),
            "overlap" => settings.overlap = words.rest("`allow`, `skip`, `wait` or `replace`")?,
            "retry" => {
                let (attempts, first) = (words.number()?, words.period()?);
                settings.retry = Retry::up_to(attempts, first).at_most_every(words.period()?);
            }
            "timeout" => settings.timeout = Some(words.period()?),
            "delay" => settings.delay = words.period()?,
            "jitter" => settings.jitter = words.period()?,
            "start" => settings.start = Some(words.instant()?),
            "end" => settings.end = Some(words.instant()?),
            "max-runs" => settings.max_runs = Some(words.number()?),
            "run-when-created" => settings.run_when_created = words.yes()?,
            "run-if-past" => settings.run_if_past = words.yes()?,
            "concurrency-key" => {
                settings.concurrency_key =
                    Some(words.rest("a key, or a key and a limit, as in tapes:2")?);
            }
            "owner" => settings.owner = Some(words.value("a team or a person")?.1.to_owned()),
            "tags" => {
                let (_, tags) = words.value("tags, with a comma between two of them")?;
                settings.tags = tags.split(',').map(str::to_owned).collect();
            }
            "breaker" => settings.breaker = Some(words.rest("a number of failures")?),
            "alert" => settings.alert = Some(words.rest("a number of failures")?),
            "history" => settings.history = Some(words.rest("a number of entries and an age")?),
            "max-key-wait" => settings.max_key_wait = Some(words.period()?),
            "after" => {
                let what = "a job, and succeeded, failed or ended, as in: after import succeeded";
                settings.after = Some(words.rest(what)?);
            }
            _ => {
                return Err(wrong(name_at, name, "is not a setting of this build")
                    .remedy("correct it, or update this program"));
            }
        }
        match words.take() {
            Some(more) => Err(too_many(more)),
            None => Ok(()),
        }
    }
}

/// Reads `latest`, `none`, or `all` and a limit.
///
/// ```
/// use allora::CatchUp;
///
/// assert_eq!("all 100".parse(), Ok(CatchUp::All { limit: 100 }));
/// assert!("some".parse::<CatchUp>().is_err());
/// ```
impl FromStr for CatchUp {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let mut words = split(0, text);
        let (at, word) = words.next().unwrap_or((0, text));
        let policy = match word {
            "latest" => Self::Latest,
            "none" => Self::None,
            "all" => {
                let Some((at, limit)) = words.next() else {
                    return Err(wrong(at, word, "has no limit")
                        .remedy("write a number after it, as in all 100"));
                };
                Self::All { limit: number(at, limit)? }
            }
            _ => {
                return Err(wrong(at, word, "is not a catch-up policy")
                    .remedy("write latest, none, or all and a limit, as in all 100"));
            }
        };
        words.next().map_or(Ok(policy), |more| Err(too_many(more)))
    }
}

/// Reads `allow`, `skip`, `wait` or `replace`.
///
/// ```
/// use allora::Overlap;
///
/// assert_eq!("skip".parse(), Ok(Overlap::Skip));
/// assert!("queue".parse::<Overlap>().is_err());
/// ```
impl FromStr for Overlap {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let mut words = split(0, text);
        let (at, word) = words.next().unwrap_or((0, text));
        let policy = match word {
            "allow" => Self::Allow,
            "skip" => Self::Skip,
            "wait" => Self::Wait,
            "replace" => Self::Replace,
            _ => {
                return Err(wrong(at, word, "is not an overlap policy")
                    .remedy("write allow, skip, wait or replace"));
            }
        };
        words.next().map_or(Ok(policy), |more| Err(too_many(more)))
    }
}

/// Reads a key, or a key, a colon and a limit. Without a limit it is 1.
impl FromStr for ConcurrencyKey {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let mut words = split(0, text);
        let (at, word) = words.next().unwrap_or((0, text));
        let (key, rest) = word.rsplit_once(':').unwrap_or((word, ""));
        let (limit, per) =
            rest.split_once('/').map_or((rest, None), |(limit, per)| (limit, Some(per)));
        let limit_at = at + key.len() + 1;
        let key = match per {
            _ if !is_number(limit) => Self::new(word, 1),
            None => Self::new(key, number(limit_at, limit)?),
            Some(per) => {
                let per_at = limit_at + limit.len() + 1;
                let per = parse_period(per).map_err(|error| error.shifted(per_at))?;
                Self::rate(key, number(limit_at, limit)?, per)
            }
        };
        words.next().map_or(Ok(key), |more| Err(too_many(more)))
    }
}

impl<'a> Words<'a> {
    fn take(&mut self) -> Option<(usize, &'a str)> {
        let word = self.words.get(self.next).copied();
        self.next += 1;
        word
    }

    fn value(&mut self, what: &str) -> Result<(usize, &'a str), ParseError> {
        let name = self.words.first().map_or("", |(_, name)| name);
        self.take().ok_or_else(|| {
            wrong(self.at, name, "has no value").remedy(format!("write {what} after it"))
        })
    }

    fn period(&mut self) -> Result<Duration, ParseError> {
        let (at, word) = self.value("a period, such as 90s")?;
        parse_period(word).map_err(|error| error.shifted(at))
    }

    fn instant(&mut self) -> Result<Time, ParseError> {
        let (at, word) = self.value("an instant, such as 2026-01-01T00:00:00Z")?;
        parse_instant(word).map_err(|error| error.shifted(at))
    }

    fn yes(&mut self) -> Result<bool, ParseError> {
        let (at, word) = self.value("yes")?;
        let remedy = "write yes, or leave the setting away";
        match word {
            "yes" => Ok(true),
            _ => Err(wrong(at, word, "is not yes").remedy(remedy)),
        }
    }

    fn number<N: FromStr>(&mut self) -> Result<N, ParseError> {
        let (at, word) = self.value("a number")?;
        number(at, word)
    }

    /// Parses all remaining words as one value.
    fn rest<T: FromStr<Err = ParseError>>(&mut self, what: &str) -> Result<T, ParseError> {
        let (at, _) = self.value(what)?;
        self.next = self.words.len();
        self.part[at - self.at..].parse().map_err(|error: ParseError| error.shifted(at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_may_claim_what_needs_no_plan() {
        let lease = Some(Duration::from_secs(30));
        for (settings, is) in [
            ("", lease),
            (
                "; window 1h; delay 5s; retry 3 1s 1h; max-runs 3; timeout 5m; zone Asia/Tokyo",
                lease,
            ),
            ("; owner sales; tags eu,gold", lease),
            ("; except 2026-12-25; only-within 9:00-17:30", lease),
            ("; except calendar:holidays", None),
            ("; concurrency-key tapes", None),
            ("; sparkle 3", None),
            ("; delay 5", None),
            ("; overlap skip", None),
        ] {
            assert_eq!(
                due_lease(&format!("@daily; at-least-once 30000ms{settings}")),
                is,
                "{settings}"
            );
        }
        assert_eq!(due_lease("@daily"), None, "at most once");
        assert_eq!(due_lease("@v2 x; at-least-once 30s"), None, "a later format");
        assert_eq!(window_in("@daily; window 90s; owner sales"), Some(Duration::from_secs(90)));
        assert_eq!(window_in("@daily; owner windows"), None);
    }
}
