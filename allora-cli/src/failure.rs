//! Failures of the command: one line on standard error, and an exit code for each sort.
//!
//! One rule holds for all commands. 2: what was given is wrong, which is the command line or what it
//! names (a file, a crontab, the configuration, a URL), and nothing was done. 1: it was asked and the
//! answer is no, or it failed, in whole or in part. 0: it is done.

use crate::output;
use allora_core::ErrorKind;
use std::{
    error::Error, fmt::Write as _, io, process::ExitCode, sync::mpsc, thread, time::Duration,
};

/// `Result` of a command.
pub(crate) type Outcome<T = ()> = Result<T, Failure>;

/// Why the command did not do what it was asked to.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The answer is no, or it could not be done, in whole or in part: exit code 1.
    Failed(String),
    /// The store does not answer now, and may later: exit code 1.
    Unavailable(String),
    /// The command line or what it names is wrong, and nothing was done: exit code 2.
    Invalid(String),
    /// All has been said: ends with this code.
    Said(u8),
}

impl Failure {
    /// Something could not be done; `what` is for people.
    pub(crate) fn failed(what: impl Into<String>) -> Self {
        Self::Failed(what.into())
    }

    /// A wrong input, for which nothing was done; `what` is for people.
    pub(crate) fn wrong(what: impl Into<String>) -> Self {
        Self::Invalid(what.into())
    }

    /// The library's answer to what was given: wrong if the library calls it invalid.
    pub(crate) fn of_input(error: allora_core::Error) -> Self {
        match error.kind() {
            ErrorKind::Invalid => Self::Invalid(chain(&error)),
            _ => Self::from(error),
        }
    }

    /// The text that is said, if it has not been said yet.
    pub(crate) fn what(&self) -> Option<&str> {
        match self {
            Self::Failed(what) | Self::Unavailable(what) | Self::Invalid(what) => Some(what),
            Self::Said(_) => None,
        }
    }

    /// Says it, and answers with the exit code.
    pub(crate) fn report(self) -> ExitCode {
        let code = self.code();
        self.say();
        ExitCode::from(code)
    }

    /// Says it, but does not wait longer than this for a reader of standard error that hangs.
    pub(crate) fn say_within(self, limit: Duration) -> Self {
        let code = self.code();
        let (done, said) = mpsc::channel();
        thread::spawn(move || {
            self.say();
            // The daemon may have ended.
            let _ = done.send(());
        });
        // Late or not, nothing else is to be said.
        let _ = said.recv_timeout(limit);
        Self::Said(code)
    }

    fn code(&self) -> u8 {
        match self {
            Self::Failed(_) | Self::Unavailable(_) => 1,
            Self::Invalid(_) => 2,
            Self::Said(code) => *code,
        }
    }

    fn say(self) {
        if let Some(what) = self.what() {
            output::complain("error", what);
        }
    }
}

impl From<allora_core::Error> for Failure {
    fn from(error: allora_core::Error) -> Self {
        let what = chain(&error);
        match error.kind() {
            // One that says what to do needs no more, and a store that has refused is up.
            ErrorKind::Unavailable if what.contains(['?', ';']) || is_refusal(&what) => {
                Self::Unavailable(what)
            }
            ErrorKind::Unavailable => {
                Self::Unavailable(format!("{what}; is the store up, and the URL right?"))
            }
            _ => Self::Failed(what),
        }
    }
}

/// True if the cause is named, and is none of the network.
fn is_refusal(what: &str) -> bool {
    let what = what.to_lowercase();
    ["permission denied", "is full", "no space left", "read-only", "readonly"]
        .iter()
        .any(|cause| what.contains(cause))
}

impl From<io::Error> for Failure {
    /// Failed output. A reader that closed the pipe is not a failure.
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::Said(0),
            _ => Self::Failed(format!("cannot write the output: {error}")),
        }
    }
}

/// A text in which words such as `redis://USER:PASSWORD@HOST` have lost their passwords.
pub(crate) fn without_passwords(text: &str) -> String {
    let masked = |word: &str| {
        let (login, place) = word.rsplit_once('@')?;
        let mut colons = login.match_indices(':').map(|(at, _)| at);
        let colon = colons.find(|at| !login[*at..].starts_with("://"))?;
        (colon + 1 < login.len()).then(|| format!("{}:***@{place}", &login[..colon]))
    };
    let words = text.split_inclusive([' ', '\t', '\n', '"', '\'', '`']);
    words.map(|word| masked(word).unwrap_or_else(|| word.to_owned())).collect()
}

/// The error and its causes, each said once.
pub(crate) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let said = cause.to_string();
        if !text.contains(&said) {
            let _ = write!(text, ": {said}");
        }
        source = cause.source();
    }
    text
}

/// The message of clap: help and version as they are, everything else on one line.
pub(crate) fn of_clap(error: &clap::Error) -> Failure {
    use clap::error::ErrorKind;
    let text = error.render();
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            let printed = error.print();
            Failure::Said(u8::from(printed.is_err()))
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            Failure::Invalid("which command? `allora --help` lists them".into())
        }
        _ => {
            let text = text.to_string();
            let lines = text.lines().map(str::trim);
            let said = lines.take_while(|line| !line.starts_with("Usage:"));
            let said: Vec<&str> = said
                .filter(|line| !line.is_empty() && !line.starts_with("For more information"))
                .map(|line| line.strip_prefix("error: ").unwrap_or(line))
                .collect();
            Failure::Invalid(said.join(" "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::without_passwords;

    #[test]
    fn what_repeats_a_url_leaves_its_password_out() {
        for (text, is) in [
            ("`redis://:hush@h`, 9:00", "`redis://:***@h`, 9:00"),
            ("no \"Eu://u:hush@h\" here", "no \"Eu://u:***@h\" here"),
            ("u:hu@sh@h://b x", "u:***@h://b x"),
            ("a@b: http://h:1/ 9:@daily", "a@b: http://h:1/ 9:@daily"),
        ] {
            assert_eq!(without_passwords(text), is);
        }
    }
}
