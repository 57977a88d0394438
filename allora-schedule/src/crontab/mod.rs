//! Reading crontabs: the files of Debian's cron, a user's own or the system's.
//!
//! ```
//! use allora::crontab::{self, When};
//!
//! let entries = crontab::parse("\
//! MAILTO=ops@example.org
//! ## The parcels of the day.
//! 30 4 * * 1-5  parcels --date=$(date +\\%F)
//! @reboot       greet%Good morning,%world
//! ")?;
//!
//! assert_eq!(entries[0].line, 3);
//! assert_eq!(entries[0].command, "parcels --date=$(date +%F)");
//! assert_eq!(entries[0].variable("MAILTO"), Some("ops@example.org"));
//! assert_eq!(entries[0].variable_line("MAILTO"), Some(1));
//! assert!(matches!(entries[1].when, When::Reboot));
//! assert_eq!(entries[1].stdin.as_deref(), Some("Good morning,\nworld\n"));
//! # Ok::<(), crontab::BadCrontab>(())
//! ```
//!
//! # What a line may be
//!
//! - Blank, or a comment: `#` is the first character that is not a blank. A `#` further on belongs
//!   to the command or to the value.
//! - A variable: `NAME=value`, blanks around `=` allowed. It holds for the lines below it. Blanks
//!   around the value are dropped unless it is in quotes, which must be a pair of the same kind
//!   around the whole value. Nothing is expanded: `$HOME` stays `$HOME`. A name is of letters,
//!   digits and `_`, without a digit in front.
//! - A job: five time fields or a macro, in a system crontab a user, and the command, which is the
//!   rest of the line.
//!
//! The fields are those of [`Cron`], with `H` derived from the entry's [name](Entry::name). A sixth
//! field would be the first word of the command. So there is none for seconds, unless a line above
//! sets `ALLORA_SECONDS=1`: then every line below has six fields, until `ALLORA_SECONDS=0`. The
//! macros are `@reboot`, `@yearly`, `@annually`, `@monthly`, `@weekly`, `@daily`, `@midnight` and
//! `@hourly`, in any case; and these, which Debian lacks: `@noon`; `@every 90m`, with the period in
//! one word, and `@every 2w from 2027-01-04T09:00:00Z` or `@every 1h phase 10m` for a grid; `@at
//! 2027-01-01T09:00:00Z`, which runs once; `@after_end 10m`, with the delay after the end of each run;
//! `@quartz` with six fields in that dialect; and `@rrule` with a [recurrence](Recurrence), as in `@rrule
//! DTSTART;TZID=Europe/Rome:20260302T090000 RRULE:FREQ=WEEKLY;INTERVAL=2`. Any other text that
//! [`parse`](crate::parse()) reads stands in quotes after `@schedule`, with rules of a calendar if need be:
//! `@schedule "sunset - 30m at 41.9,12.5"`, `@schedule '0 9 1 * *; except SAT SUN; move next'`. Calendars with
//! a name are in a store, so that lines have none. Settings are variables, as for the other lines.
//!
//! The first `%` of the command ends it; what follows is its standard input, in which `%` is a
//! line feed and to which a last line feed is added. `\%` is a percent sign. In the command, `\\`
//! is one backslash; otherwise backslashes stay.
//!
//! # Names
//!
//! `ALLORA_NAME=backup` names the job of the next line, and of no other. The name stays when the
//! line is edited. Other lines have a name that follows from their text ([`Entry::name`]).
//!
//! # Zones
//!
//! `CRON_TZ=Europe/Paris` sets the zone of the schedules below it, as in cronie; Debian's cron
//! knows the machine's zone only and reads a plain variable. In both, and here, the command gets it
//! too. `TZ` only changes the environment of the command. Without `CRON_TZ`, the schedule [names no
//! zone](Cron::names_zone) and is in UTC; a program that replaces a machine's cron gives it the
//! machine's zone.
//!
//! # Where it differs from Debian's cron
//!
//! - Every bad line is reported, and the other entries are available
//!   ([`BadCrontab::into_entries`]). Debian reports one and ignores the whole file.
//! - A line may be 16 KiB long ([`MAX_LINE`]), a command in Debian 998 bytes.
//! - `MAILTO=` with nothing after it is the empty value. Debian wants quotes for that.
//! - A name that a shell would drop from the environment (`A-B`, `1A`) is refused.
//! - A carriage return at the end of a line is part of the line end. Debian passes it to the
//!   command, which is never intended. Other control characters than tabs are refused.
//! - A command or user that looks like a time field (`*`, `*/5`, `2026`) is refused: the line has
//!   six fields.
//! - The file must be UTF-8, except its comments.
//!
//! As in Debian, a last line without a line feed is refused: the file may have been cut short, and
//! half a command is dangerous. A leading `-` (do not log), flags before the command (`-n`, `-q`),
//! users with a group or login class, random ranges (`0~59`), `@every_minute` and `@600` belong to
//! other crons and are refused with what to write instead.
//!
//! # When a variable is bad
//!
//! The lines below a bad variable need it: a `PATH` or a directory that is missing turns a harmless
//! command into another one. They are reported too, until a good line sets the same variable.

mod command;
mod error;
mod line;
mod name;
mod reader;
#[cfg(test)]
mod tests;
mod warnings;

pub use error::{BadCrontab, LineError};

use crate::{AnySchedule, At, Cron, Every, Never, Quartz, Recurrence, Warning};
use line::Form;
use std::{fmt, sync::Arc};

/// The longest line, in bytes.
pub const MAX_LINE: usize = 16 * 1024;

/// The most variables that can be in force for one line.
pub const MAX_VARIABLES: usize = 256;

/// Reads a user's crontab, as `crontab -e` edits it.
///
/// # Errors
/// [`BadCrontab`] lists every bad line, and has the good entries.
pub fn parse(text: impl AsRef<[u8]>) -> Result<Vec<Entry>, BadCrontab> {
    parse_with(text, Columns::default())
}

/// Reads a system crontab, as `/etc/crontab` and `/etc/cron.d/*`, in which a user stands before
/// the command.
///
/// # Errors
/// [`BadCrontab`] lists every bad line, and has the good entries.
pub fn parse_system(text: impl AsRef<[u8]>) -> Result<Vec<Entry>, BadCrontab> {
    parse_with(text, Columns { user: true, ..Columns::default() })
}

/// The columns of a crontab's lines beside the five of the time and the command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Columns {
    /// A user stands before the command, as in system crontabs. Default: no.
    pub user: bool,
    /// The time has a sixth field in front, for seconds, unless the crontab sets
    /// `ALLORA_SECONDS=0`. Default: no.
    pub seconds: bool,
}

/// Reads a crontab whose lines have these columns.
///
/// # Errors
/// [`BadCrontab`] lists every bad line, and has the good entries.
pub fn parse_with(text: impl AsRef<[u8]>, columns: Columns) -> Result<Vec<Entry>, BadCrontab> {
    let form = if columns.user { Form::System } else { Form::User };
    reader::read(text.as_ref(), form, columns.seconds)
}

/// One job of a crontab.
///
/// `Debug` shows neither the values of variables nor the input: they may be secrets.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Entry {
    /// The number of its line, from 1.
    pub line: usize,
    /// When it runs.
    pub when: When,
    /// As whom, in a system crontab.
    pub user: Option<String>,
    /// The command, for the shell.
    pub command: String,
    /// The command's standard input, if the line has one.
    pub stdin: Option<String>,
    /// The variables that the file sets above the line, in the order of their first appearance.
    /// `SHELL`, `PATH`, `HOME`, `LOGNAME` and `MAILTO` are here only if the file sets them; otherwise
    /// the program that runs the command chooses their values. (In Debian's cron `LOGNAME` is always
    /// the user's name, whatever the file says.)
    pub environment: Arc<[(String, String)]>,
    /// The number of the line that sets each variable of the [environment](Self::environment), in
    /// the same order.
    pub environment_lines: Arc<[usize]>,
    /// A name for the job that is the same whenever, and on every node where, the line is read.
    ///
    /// It begins with the command's program and ends with a hash of schedule, user, command and input.
    /// Arguments, which may be secrets, are not in it. So it stays when lines are added, removed or
    /// moved, and when variables or the number of blanks between the fields change; it changes with the
    /// schedule, user, command or input. Equal lines are counted from the top: the second one ends in
    /// `-2`.
    ///
    /// `ALLORA_NAME` above the line chooses the name instead. That variable is not in the
    /// [environment](Self::environment).
    ///
    /// Unique within one file; put the file's or owner's name before it to tell files apart. At
    /// most 200 bytes; letters, digits, `.`, `_` and `-`.
    pub name: String,
}

impl Entry {
    /// The value of a variable in the line's [environment](Self::environment).
    pub fn variable(&self, name: &str) -> Option<&str> {
        self.position(name).map(|index| self.environment[index].1.as_str())
    }

    /// The number of the line that sets a variable of the line's
    /// [environment](Self::environment), from 1: the last one above the entry.
    pub fn variable_line(&self, name: &str) -> Option<usize> {
        self.position(name).and_then(|index| self.environment_lines.get(index).copied())
    }

    /// Warnings about a legal line that is seldom intended: those of its
    /// [schedule](Warning#codes), and these about the command.
    ///
    /// | code | example | meaning |
    /// |---|---|---|
    /// | `zone-as-command` | `0 9 * * * Europe/Rome report` | the command is the name of a zone |
    /// | `user-as-command` | `0 9 * * * root report` | the command is a user's name, in a crontab without users |
    /// | `cut-at-percent` | `0 9 * * * date +%F` | a `%` ends the command, and the rest is its input |
    /// | `no-break-space` | `0 9 * * * ls\u{a0}-l` | a U+00A0 in the command looks like a blank, and is none |
    ///
    /// ```
    /// let entries = allora::crontab::parse("0 9 * * * dump > dump-$(date +%F)\n")?;
    /// assert_eq!(entries[0].warnings()[0].code, "cut-at-percent");
    /// # Ok::<(), allora::crontab::BadCrontab>(())
    /// ```
    pub fn warnings(&self) -> Vec<Warning> {
        warnings::of(self)
    }

    fn position(&self, name: &str) -> Option<usize> {
        self.environment.iter().position(|(known, _)| known == name)
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { line, when, user, command, stdin: _, environment, environment_lines: _, name } =
            self;
        let variables: Vec<&str> = environment.iter().map(|(name, _)| name.as_str()).collect();
        f.debug_struct("Entry")
            .field("line", line)
            .field("when", when)
            .field("user", user)
            .field("command", command)
            .field("environment", &variables)
            .field("name", name)
            .finish_non_exhaustive()
    }
}

/// When an [`Entry`] runs.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum When {
    /// `@reboot`: once, when the program that reads the crontab starts.
    Reboot,
    /// At the times of the five fields or of a macro.
    Cron(Cron),
    /// `@quartz`: at the times of an expression of six fields in the Quartz dialect.
    Quartz(Quartz),
    /// `@rrule`: by a recurrence rule.
    Recurrence(Box<Recurrence>),
    /// `@every`: once a period.
    Every(Every),
    /// `@at`: once, at an instant.
    At(At),
    /// `@never`: when it is triggered, or after another job.
    Never(Never),
    /// `@after_end`, and after `@schedule` any schedule in quotes, with rules of a calendar.
    Schedule(Box<AnySchedule>),
}
