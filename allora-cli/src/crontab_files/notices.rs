//! Whom and what a line alerts.

use super::settings::SettingError;
use allora_core::crontab::Entry;
use std::fmt;

/// Whom and what a line alerts. `Debug` shows no values: they may be secrets.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct Notices {
    /// A command of the shell, or a URL.
    pub(crate) on_failure: Option<String>,
    /// The URL that a dead-man's switch waits for.
    pub(crate) ping: Option<String>,
    pub(crate) mail_to: Option<String>,
    pub(crate) mail_from: Option<String>,
}

impl Notices {
    /// Reads the variables of a line.
    pub(super) fn of(entry: &Entry) -> Result<Self, SettingError> {
        let value = |name: &str| {
            entry.variable(name).map(str::trim).filter(|value| !value.is_empty()).map(str::to_owned)
        };
        let ping = value("ALLORA_PING");
        let is_url = |url: &String| url.starts_with("http://") || url.starts_with("https://");
        if ping.as_ref().is_some_and(|url| !is_url(url)) {
            let variable = Some("ALLORA_PING".to_owned());
            let what = "ALLORA_PING is not a URL; write one that begins with http:// or https://";
            return Err(SettingError { variable, what: what.into() });
        }
        Ok(Self {
            on_failure: value("ALLORA_ON_FAILURE"),
            ping,
            mail_to: value("MAILTO"),
            mail_from: value("MAILFROM"),
        })
    }
}

impl fmt::Debug for Notices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Notices").finish_non_exhaustive()
    }
}
