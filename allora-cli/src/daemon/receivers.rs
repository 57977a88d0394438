//! Receivers of alerts about stored schedules, which the daemon knows by the name of an owner.
//!
//! A stored schedule names its owner and never an address: what a daemon runs or requests is decided
//! where it is started, and the store holds no secret.

use crate::clock::monotonic;
use allora_core::{AlertRule, Schedules, stored::Definition};
use std::{
    collections::HashMap,
    fmt,
    str::FromStr,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// The place of an owner's alerts.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Receiver {
    pub(crate) owner: String,
    pub(crate) target: Target,
}

/// Where an alert goes. `Debug` shows none: it may be a secret.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Target {
    /// A command of the shell, or a URL.
    Call(String),
    /// An address for mail.
    Mail(String),
    /// The URL of a dead-man's switch, with `{job}` for the name of the job.
    Ping(String),
}

impl FromStr for Receiver {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let given = text.split_once('=').filter(|(owner, to)| !owner.is_empty() && !to.is_empty());
        let Some((owner, to)) = given else {
            return Err("write OWNER=TARGET, as in sales=mailto:sales@example.org".to_owned());
        };
        let target = match (to.strip_prefix("mailto:"), to.strip_prefix("ping:")) {
            (Some(address), _) if address.contains('@') => Target::Mail(address.to_owned()),
            (Some(_), _) => return Err("write an address after mailto:".to_owned()),
            (_, Some(url)) if url.starts_with("http://") || url.starts_with("https://") => {
                Target::Ping(url.to_owned())
            }
            (_, Some(_)) => {
                return Err("write a URL after ping:, with http:// or https://".to_owned());
            }
            _ => Target::Call(to.to_owned()),
        };
        Ok(Self { owner: owner.to_owned(), target })
    }
}

impl fmt::Debug for Receiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver").field("owner", &self.owner).finish_non_exhaustive()
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Target").finish_non_exhaustive()
    }
}

impl Receiver {
    /// The URL of a ping about this job.
    pub(crate) fn ping(url: &str, job: &str) -> String {
        let encoded = job.bytes().map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                char::from(byte).to_string()
            }
            byte => format!("%{byte:02X}"),
        });
        url.replace("{job}", &encoded.collect::<String>())
    }
}

/// The part of a definition that is about alerts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wishes {
    pub(crate) owner: Option<String>,
    pub(crate) rule: Option<AlertRule>,
}

/// The time for which a definition's wishes are not read again.
const FRESH: Duration = Duration::from_secs(60);

/// The time that a definition may take to be read.
const PATIENCE: Duration = Duration::from_secs(5);

/// More names than jobs that fail within a minute.
const MOST: usize = 10_000;

/// The wishes of stored schedules, read when something is to be told.
pub(crate) struct Lookup {
    /// `None`: the store has no stored schedules.
    schedules: Option<Schedules>,
    known: Mutex<HashMap<String, (Instant, Wishes)>>,
}

impl Lookup {
    pub(crate) fn new(schedules: Option<Schedules>) -> Self {
        Self { schedules, known: Mutex::default() }
    }

    /// The wishes of this job; none if the store does not answer.
    pub(crate) async fn wishes(&self, job: &str) -> Wishes {
        let known = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = known().get(job).filter(|(at, _)| at.elapsed() < FRESH).cloned();
        if let Some((_, wishes)) = fresh {
            return wishes;
        }
        let Some(schedules) = &self.schedules else { return Wishes::default() };
        let read = tokio::time::timeout(PATIENCE, schedules.get(job)).await;
        let Ok(Ok(state)) = read else { return Wishes::default() };
        let settings = Definition::parse(job, &state.definition).ok();
        let settings = settings.map(|definition| definition.settings().clone()).unwrap_or_default();
        let wishes = Wishes { owner: settings.owner, rule: settings.alert };
        let mut known = known();
        if known.len() >= MOST {
            known.clear();
        }
        known.insert(job.to_owned(), (monotonic(), wishes.clone()));
        wishes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_receiver_is_an_owner_and_a_target() {
        let target = |text: &str| text.parse::<Receiver>().map(|receiver| receiver.target);
        let mail = Target::Mail("a@example.org".to_owned());
        assert_eq!(target("sales=mailto:a@example.org"), Ok(mail));
        assert_eq!(
            target("sales=ping:https://h/{job}"),
            Ok(Target::Ping("https://h/{job}".into()))
        );
        assert_eq!(target("sales=page a=b"), Ok(Target::Call("page a=b".into())));
        for bad in ["sales", "=x", "sales=", "a=mailto:x", "a=ping:x"] {
            assert!(target(bad).is_err(), "{bad}");
        }
        assert_eq!(Receiver::ping("https://h/{job}", "acme/ä b"), "https://h/acme%2F%C3%A4%20b");
    }
}
