//! Everything in allora that reads foreign text, as functions of any bytes.
//!
//! A target panics if what it reads breaks a promise: what is read prints as text that is read as the same
//! value, a schedule moves on, a stored record is written as it was read, an error has a remedy and a place
//! within the text, no error repeats a secret. `README.md` has what was found.

mod record;
mod request;
mod schedule;
mod stored;
mod text;
mod tokens;
mod urls;

/// A function of any bytes, and bytes with which to begin.
#[derive(Debug)]
pub struct Target {
    /// The name, which is also that of the file of its seeds.
    pub name: &'static str,
    /// Reads bytes; panics if a promise is broken.
    pub run: fn(&[u8]),
    seeds: &'static str,
}

/// The line between two seeds of a file.
const BETWEEN: &str = "\n----\n";

/// Each target with the file of its seeds.
macro_rules! targets {
    ($($name:literal: $run:path;)*) => {&[$(Target {
        name: $name,
        run: $run,
        seeds: include_str!(concat!("../seeds/", $name, ".txt")),
    }),*]};
}

/// All targets.
pub const TARGETS: &[Target] = targets! {
    "calendar": schedule::calendar;
    "cron": schedule::cron;
    "crontab": schedule::crontab;
    "definition": stored::definition;
    "entry": record::entry;
    "export": stored::export;
    "phrase": schedule::phrase;
    "record": record::record;
    "request": request::request;
    "rrule": schedule::recurrence;
    "setting": stored::setting;
    "ticket": stored::ticket;
    "token": tokens::file;
    "token_line": tokens::line;
    "url": urls::url;
};

impl Target {
    /// The target of this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        TARGETS.iter().find(|target| target.name == name)
    }

    /// The bytes with which to begin. Those of `cron` and `rrule` are also the golden expressions of
    /// `allora-schedule`.
    pub fn seeds(&self) -> Vec<&'static [u8]> {
        let golden = match self.name {
            "cron" => include_str!("../../allora-schedule/tests/golden/cron_input.tsv"),
            "rrule" => include_str!("../../allora-schedule/tests/golden/recurrence.tsv"),
            _ => "",
        };
        let golden = golden.lines().filter_map(|line| line.split('\t').next());
        let own = self.seeds.trim_end().split(BETWEEN);
        own.chain(golden).map(str::as_bytes).collect()
    }
}
