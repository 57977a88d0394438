//! A line of the file of tokens: who it is for, the proof, and what it allows.

use crate::{
    access::{Access, MOST_JOBS, Scope},
    params::unescaped,
    signature::SigningKey,
};
use allora_core::{Every, Time, check_name, every};
use std::{collections::BTreeSet, fmt::Write, time::Duration};

/// The fewest and the most bytes of the secret of a signing key.
const SECRET: std::ops::RangeInclusive<usize> = 32..=200;

/// A line to be [created](crate::Tokens::create).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TokenLine {
    /// The person or program that it is for: 1 to 200 bytes without a colon; for a signing key, of printable ASCII
    /// characters.
    pub name: String,
    /// The scopes; at least one.
    pub scopes: BTreeSet<Scope>,
    /// The prefixes of the names of jobs to which it is limited. Empty: no limit.
    pub prefixes: BTreeSet<String>,
    /// The kinds of stored schedules to which it is limited. Empty: no limit.
    pub kinds: BTreeSet<String>,
    /// The most jobs below its prefixes, of which it needs one. Default: no limit. Range: 0 to 10,000.
    pub max_jobs: Option<usize>,
    /// The shortest time between two runs of a schedule below its prefixes, of which it needs one. Default: no limit.
    /// Range: 1 ms or more.
    pub shortest_period: Option<Duration>,
    /// The time at which it ends. Default: never.
    pub until: Option<Time>,
}

/// A line that was read.
#[derive(Clone)]
pub(crate) struct Line {
    pub(crate) proof: Proof,
    pub(crate) access: Access,
    until: Option<Time>,
}

/// The way in which somebody proves to be the one of a line.
#[derive(Clone)]
pub(crate) enum Proof {
    /// A token with this hash.
    Token([u8; 32]),
    /// A signature with this key.
    Signature(SigningKey),
    /// A proxy says so.
    Proxy,
}

impl Line {
    pub(crate) fn is_valid(&self, now: Time) -> bool {
        self.until.is_none_or(|until| now < until)
    }

    /// Reads a line.
    ///
    /// # Errors
    /// A sentence that repeats no secret.
    pub(crate) fn read(text: &str) -> Result<Self, String> {
        let mut words = text.split_whitespace();
        let name = value("name", words.next().unwrap_or_default())?;
        check(&name)?;
        let proof = proof(&name, words.next().unwrap_or_default())?;
        let mut access = Access::new(name);
        let scopes = words.next().filter(|word| !word.contains('='));
        for word in scopes.ok_or("the third word must be scopes, as read,run")?.split(',') {
            let scope = Scope::from_word(word).ok_or_else(|| {
                let all: Vec<&str> = Scope::ALL.iter().map(|scope| scope.word()).collect();
                format!("there is no scope {word:?}; use {}", all.join(", "))
            })?;
            access = access.with(scope);
        }
        let (mut prefixes, mut kinds, mut until) = (Vec::new(), Vec::new(), None);
        for word in words {
            match word.split_once('=') {
                Some(("prefix", text)) => prefixes.push(value("prefix", text)?),
                Some(("kind", text)) => kinds.push(value("kind", text)?),
                Some(("max-jobs", text)) if access.max_jobs().is_none() => {
                    let jobs = text.parse().ok().filter(|jobs| *jobs <= MOST_JOBS);
                    let wrong = || {
                        format!("max-jobs={} is no number of 0 to {MOST_JOBS}", text.escape_debug())
                    };
                    access = access.with_max_jobs(jobs.ok_or_else(wrong)?);
                }
                Some(("shortest-period", text)) if access.shortest_period().is_none() => {
                    let wrong = |_| {
                        format!(
                            "shortest-period={} is no period; write it as 5m",
                            text.escape_debug()
                        )
                    };
                    access =
                        access.with_shortest_period(Every::parse(text).map_err(wrong)?.period());
                }
                Some(("until", text)) if until.is_none() => {
                    let wrong = |_| {
                        format!(
                            "until={} is no time; write it as 2027-01-01T00:00:00Z",
                            text.escape_debug()
                        )
                    };
                    until = Some(text.parse().map_err(wrong)?);
                }
                _ => {
                    return Err(format!(
                        "{word:?} is no limit, or stands there twice; use prefix=, kind=, max-jobs=, \
                         shortest-period= or until="
                    ));
                }
            }
        }
        if prefixes.is_empty()
            && (access.max_jobs().is_some() || access.shortest_period().is_some())
        {
            return Err(
                "max-jobs= and shortest-period= need a prefix=: they limit the jobs below it"
                    .into(),
            );
        }
        if !prefixes.is_empty() {
            access = access.only_prefixes(prefixes);
        }
        if !kinds.is_empty() {
            access = access.only_kinds(kinds);
        }
        Ok(Self { proof, access, until })
    }
}

impl TokenLine {
    /// The text of the line, with the second word that proves who it is.
    ///
    /// # Errors
    /// A sentence: a value cannot be used.
    pub(crate) fn written(&self, proof: &str) -> Result<String, String> {
        check(&self.name)?;
        if self.scopes.is_empty() {
            return Err("a token needs a scope; give one, as read".into());
        }
        let scopes: Vec<&str> = self.scopes.iter().map(|scope| scope.word()).collect();
        let mut text = format!("{} {proof} {}", escaped(&self.name), scopes.join(","));
        for (limit, values) in [("prefix", &self.prefixes), ("kind", &self.kinds)] {
            for value in values {
                _ = write!(text, " {limit}={}", escaped(value));
            }
        }
        if let Some(jobs) = self.max_jobs {
            _ = write!(text, " max-jobs={jobs}");
        }
        if let Some(period) = self.shortest_period {
            let every = every(period).to_string();
            _ = write!(text, " shortest-period={}", every.trim_start_matches("@every "));
        }
        if let Some(until) = self.until {
            _ = write!(
                text,
                " until={}",
                until.to_rfc3339_opts(chrono::SecondsFormat::AutoSi, true)
            );
        }
        // What is written must be read back as the same.
        Line::read(&text)?;
        Ok(text)
    }
}

/// Reads the second word. It is not repeated: it may be a secret, or somebody may have put the token there.
fn proof(name: &str, word: &str) -> Result<Proof, String> {
    if word == "-" {
        return Ok(Proof::Proxy);
    }
    if let Some(secret) = word.strip_prefix("hmac-sha256:") {
        if !SECRET.contains(&secret.len()) {
            let (least, most) = (SECRET.start(), SECRET.end());
            return Err(format!("the secret of a signing key must have {least} to {most} bytes"));
        }
        return SigningKey::new(name, secret).map(Proof::Signature);
    }
    let hash = word.strip_prefix("sha256:").and_then(read_hash).ok_or(
        "the second word must be sha256: with 64 hexadecimal digits, hmac-sha256: with a secret, or - for a reader whom \
         a proxy names; `allora token new` makes such a line",
    )?;
    Ok(Proof::Token(hash))
}

/// A name that `Basic` can have: its first colon ends it.
fn check(name: &str) -> Result<(), String> {
    check_name(name).map_err(|error| error.to_string())?;
    match name.contains(':') {
        true => Err(format!("the name {name:?} has a colon; leave it away")),
        false => Ok(()),
    }
}

/// A word without its escapes. An empty one would be a limit that limits nothing.
fn value(what: &str, word: &str) -> Result<String, String> {
    let value = unescaped(word).filter(|value| !value.is_empty());
    value.ok_or_else(|| format!("the {what} is empty, or not UTF-8 after its escapes"))
}

fn read_hash(digits: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    if digits.len() != 2 * bytes.len() {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(digits.as_bytes().chunks(2)) {
        let pair = std::str::from_utf8(pair).ok().filter(|pair| !pair.contains('+'))?;
        *byte = u8::from_str_radix(pair, 16).ok()?;
    }
    Some(bytes)
}

/// A word of a line: without blanks, and without a `#` at its beginning.
fn escaped(text: &str) -> String {
    let mut word = String::new();
    for (i, c) in text.chars().enumerate() {
        match c.is_whitespace() || c == '%' || (i == 0 && (c == '#' || c == '-')) {
            true => c.to_string().bytes().for_each(|byte| _ = write!(word, "%{byte:02X}")),
            false => word.push(c),
        }
    }
    word
}
