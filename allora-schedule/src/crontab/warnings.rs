//! Warnings about legal lines that are seldom intended.

use super::{
    Entry, When,
    line::{BLANKS, NO_BREAK_SPACE},
};
use crate::{Schedule, Warning, zone_name};

/// Users that cron's own files name, and that are no commands.
const USERS: [&str; 3] = ["root", "nobody", "www-data"];

/// The warnings about the schedule and the command of a line.
pub(super) fn of(entry: &Entry) -> Vec<Warning> {
    let schedule = match &entry.when {
        When::Cron(cron) => cron.warnings(),
        When::Quartz(quartz) => quartz.warnings(),
        When::Recurrence(rule) => rule.warnings(),
        When::Schedule(schedule) => schedule.warnings(),
        When::Every(_) | When::At(_) | When::Never(_) | When::Reboot => &[],
    };
    let command =
        [zone_as_command(entry), user_as_command(entry), cut_at_percent(entry), no_break(entry)];
    schedule.iter().cloned().chain(command.into_iter().flatten()).collect()
}

fn first_word(entry: &Entry) -> &str {
    entry.command.split(BLANKS).next().unwrap_or_default()
}

fn zone_as_command(entry: &Entry) -> Option<Warning> {
    let word = first_word(entry);
    let is_zone = word == "UTC" || word.contains('/') && !word.starts_with(['/', '.', '~']);
    (is_zone && zone_name(word).is_ok()).then(|| Warning {
        code: "zone-as-command",
        message: format!(
            "the command begins with {word}, which is a time zone: a crontab has no column for it; \
             write CRON_TZ={word} on a line above"
        ),
    })
}

fn user_as_command(entry: &Entry) -> Option<Warning> {
    let word = first_word(entry);
    (entry.user.is_none() && USERS.contains(&word)).then(|| Warning {
        code: "user-as-command",
        message: format!(
            "the command begins with {word}, which is a user: only a system crontab has a column for \
             the user; remove it, or read the file as a system crontab"
        ),
    })
}

fn cut_at_percent(entry: &Entry) -> Option<Warning> {
    entry.stdin.as_ref()?;
    let end = end_of(&entry.command);
    Some(Warning {
        code: "cut-at-percent",
        message: format!(
            "a % ends the command, which is {end:?} now, and what follows is its standard input; \
             write \\% for a percent sign"
        ),
    })
}

fn no_break(entry: &Entry) -> Option<Warning> {
    entry.command.contains(NO_BREAK_SPACE).then(|| Warning {
        code: "no-break-space",
        message:
            "the command has a no-break space (U+00A0), which looks like a blank and separates \
                  no words; replace it with a blank"
                .to_owned(),
    })
}

/// The whole command, or its end: a long one may hold what does not belong in a log.
fn end_of(command: &str) -> String {
    const SHOWN: usize = 40;
    let from = command.char_indices().rev().nth(SHOWN - 1).map_or(0, |(at, _)| at);
    let dots = if from == 0 { "" } else { "…" };
    format!("{dots}{}", &command[from..])
}
