//! The settings of a definition, read word by word.

use crate::{
    error::Result,
    job::{CatchUp, Delivery, Overlap, Retry, Settings},
    schedule::{self, Field, ParseError},
    time::Time,
};
use std::time::Duration;

/// The parts between semicolons, without the blanks around them, each with its byte.
pub(super) fn parts(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let start = text.as_ptr() as usize;
    text.split(';').map(move |part| {
        let part = part.trim_matches(' ');
        (part.as_ptr() as usize - start, part)
    })
}

/// The settings that can be said.
#[cfg(feature = "json")]
pub(super) const SETTINGS: [&str; 13] = [
    "zone",
    "at-least-once",
    "catch-up",
    "window",
    "overlap",
    "retry",
    "timeout",
    "delay",
    "spread",
    "start",
    "end",
    "max-runs",
    "mutex",
];

/// What was read so far.
#[derive(Default)]
pub(super) struct Read {
    zone: Option<String>,
    settings: Settings,
    seen: Vec<String>,
}

/// The words of one setting.
struct Words<'a> {
    words: Vec<(usize, &'a str)>,
    at: usize,
    next: usize,
}

impl Read {
    /// On these settings.
    #[cfg(feature = "json")]
    pub(super) fn with(settings: Settings) -> Self {
        Self { settings, ..Self::default() }
    }

    /// One setting that is given by itself.
    #[cfg(feature = "json")]
    pub(super) fn word(&mut self, name: &str, value: &str) -> Result<(), String> {
        if name == "at-most-once" {
            // The other word for the same.
            if self.seen.iter().any(|seen| seen == "at-least-once") {
                return Err("the delivery is there twice".to_owned());
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

    /// The zone, and all other settings.
    pub(super) fn done(self) -> (Option<String>, Settings) {
        (self.zone, self.settings)
    }

    pub(super) fn setting(&mut self, at: usize, part: &str) -> Result<(), ParseError> {
        let start = part.as_ptr() as usize;
        let words = part.split(' ').filter(|word| !word.is_empty());
        let words = words.map(|word| (at + word.as_ptr() as usize - start, word)).collect();
        let mut words = Words { words, at, next: 0 };
        let Some((name_at, name)) = words.take() else {
            return Err(wrong(at, "", "is nothing between two semicolons").remedy("leave it away"));
        };
        if self.seen.iter().any(|seen| seen == name) {
            return Err(wrong(name_at, name, "is there twice").remedy("leave one away"));
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
                settings.catch_up = match words.value("`latest`, `none` or `all` and a limit")? {
                    (_, "latest") => CatchUp::Latest,
                    (_, "none") => CatchUp::None,
                    (_, "all") => CatchUp::All { limit: words.number()? },
                    (at, other) => {
                        return Err(wrong(at, other, "is not a catch-up policy")
                            .remedy("write latest, none, or all and a limit"));
                    }
                }
            }
            "window" => settings.window = Some(words.period()?),
            "overlap" => {
                settings.overlap = match words.value("`allow`, `skip` or `wait`")? {
                    (_, "allow") => Overlap::Allow,
                    (_, "skip") => Overlap::Skip,
                    (_, "wait") => Overlap::Wait,
                    (at, other) => {
                        return Err(wrong(at, other, "is not an overlap policy")
                            .remedy("write allow, skip or wait"));
                    }
                }
            }
            "retry" => {
                let (attempts, first) = (words.number()?, words.period()?);
                settings.retry = Retry::up_to(attempts, first).at_most_every(words.period()?);
            }
            "timeout" => settings.timeout = Some(words.period()?),
            "delay" => settings.delay = words.period()?,
            "spread" => settings.spread = words.period()?,
            "start" => settings.start = Some(words.instant()?),
            "end" => settings.end = Some(words.instant()?),
            "max-runs" => settings.max_runs = Some(words.number()?),
            "mutex" => settings.mutex = Some(words.value("a group's name")?.1.into()),
            _ => {
                return Err(wrong(name_at, name, "is not a setting that this build knows")
                    .remedy("correct it, or update this program"));
            }
        }
        match words.take() {
            Some((at, word)) => {
                Err(wrong(at, word, "is one word too many").remedy("leave it away"))
            }
            None => Ok(()),
        }
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
            wrong(self.at, name, "has no value").remedy(format!("write {what} behind it"))
        })
    }

    fn period(&mut self) -> Result<Duration, ParseError> {
        let (at, word) = self.value("a period, such as 90s")?;
        schedule::period_at(word, at)
    }

    fn instant(&mut self) -> Result<Time, ParseError> {
        let (at, word) = self.value("an instant, such as 2026-01-01T00:00:00Z")?;
        schedule::instant_at(word, at)
    }

    fn number<N: std::str::FromStr>(&mut self) -> Result<N, ParseError> {
        let (at, word) = self.value("a number")?;
        let plain = word.bytes().all(|byte| byte.is_ascii_digit());
        let number = plain.then(|| word.parse().ok()).flatten();
        number.ok_or_else(|| wrong(at, word, "is not a number that fits").remedy("write digits"))
    }
}

fn wrong(at: usize, found: &str, reason: &'static str) -> ParseError {
    ParseError::new(Field::Setting, at, found, reason)
}
