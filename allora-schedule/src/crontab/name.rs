//! Names for jobs that have none: readable, unique within a file, and independent of where in it
//! the line stands.

use super::line::BLANKS;
use crate::stable_hash;
use std::collections::HashMap;

/// The part of the program in a name, in characters of at most 4 bytes.
const SHOWN: usize = 40;

/// The longest name that a file may choose, in bytes.
pub(super) const LONGEST: usize = 200;

/// The names that a file has given so far.
#[derive(Debug, Default)]
pub(super) struct Names {
    given: HashMap<String, usize>,
}

impl Names {
    /// The name of the next job with these words: schedule, user, command, standard input.
    pub(super) fn give(&mut self, words: [&str; 4]) -> String {
        let mut name = base(words);
        let count = self.given.entry(name.clone()).or_default();
        *count += 1;
        // The hash has sixteen digits and a count has fewer, so this is no first name.
        if *count > 1 {
            name.push_str(&format!("-{count}"));
        }
        name
    }

    /// Gives a name that the file chose itself; `false` if another line has it.
    pub(super) fn give_chosen(&mut self, name: &str) -> bool {
        let count = self.given.entry(name.to_owned()).or_default();
        *count += 1;
        *count == 1
    }
}

/// True if the file may choose this name: what [`Entry::name`](super::Entry::name) promises holds.
pub(super) fn is_good(name: &str) -> bool {
    let good = |char: char| char.is_alphanumeric() || matches!(char, '.' | '_' | '-');
    (1..=LONGEST).contains(&name.len()) && name.chars().all(good)
}

fn base(words: [&str; 4]) -> String {
    let hash = stable_hash(&words.map(str::as_bytes));
    format!("{}-{hash:016x}", readable(words[2]))
}

/// The command's program, without its folder. Arguments and the values of variables in front of it may
/// be secrets, and names are everywhere: in stores, metrics, logs and mail.
fn readable(command: &str) -> String {
    let program = program(command);
    let program = program.rsplit('/').next().unwrap_or_default();
    let in_name = |c: char| c.is_alphanumeric() || matches!(c, '_' | '.' | '-');
    let name: String = program.chars().take_while(|c| in_name(*c)).take(SHOWN).collect();
    let name = name.trim_matches('-');
    if name.is_empty() { "job".to_owned() } else { name.to_owned() }
}

/// The first word behind the assignments to variables.
fn program(command: &str) -> &str {
    let mut rest = command.trim_start_matches(BLANKS);
    while let Some(value) = assigned(rest) {
        rest = value[word_end(value)..].trim_start_matches(BLANKS);
    }
    &rest[..word_end(rest)]
}

/// The text behind `NAME=`, if the command begins so.
fn assigned(command: &str) -> Option<&str> {
    let (name, value) = command.split_once('=')?;
    let first = name.chars().next()?;
    let in_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    (!first.is_ascii_digit() && name.chars().all(in_name)).then_some(value)
}

/// The end of a word of the shell: a blank, or the end of the command of which it is a part, outside of
/// quotes.
fn word_end(text: &str) -> usize {
    let (mut quote, mut is_escaped) = (None, false);
    for (at, c) in text.char_indices() {
        if is_escaped {
            is_escaped = false;
        } else if c == '\\' && quote != Some('\'') {
            is_escaped = true;
        } else if quote == Some(c) {
            quote = None;
        } else if quote.is_none() {
            match c {
                '"' | '\'' | '`' => quote = Some(c),
                ' ' | '\t' | ';' | '|' | '&' | '<' | '>' => return at,
                _ => {}
            }
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_begins_with_the_program_and_never_changes() {
        let name = Names::default().give(["0 4 * * *", "", "/usr/bin/backup --all", ""]);
        assert_eq!(name, "backup-73e6b590f715e551");
    }

    #[test]
    fn a_name_shows_neither_arguments_nor_values_of_variables() {
        for (command, is) in [
            ("mysql -pSecret db", "mysql"),
            ("PGPASSWORD=Secret /usr/bin/psql -c x", "psql"),
            ("A=\"Secret x\" B='it is Secret' C=Se\\ cret D=`echo Secret` run.sh Secret", "run.sh"),
            ("A=Secret; export A; other", "job"),
            ("curl https://u:Secret@h/", "curl"),
            ("\"/opt/my app/run\" Secret", "run"),
            ("$(cat Secret)/x", "job"),
            ("  [ -x /usr/sbin/x ] && x", "job"),
            ("true&&Secret", "true"),
            ("apt-get update", "apt-get"),
            ("=Secret", "job"),
            ("A=Secret", "job"),
        ] {
            assert_eq!(readable(command), is, "{command}");
        }
    }

    #[test]
    fn equal_lines_are_counted_and_others_are_not() {
        let mut names = Names::default();
        let line = ["@daily", "root", "true", ""];
        let first = names.give(line);
        assert_ne!(names.give(["@hourly", "root", "true", ""]), first);
        assert_ne!(names.give(["@daily", "daemon", "true", ""]), first);
        assert_ne!(names.give(["@daily", "root", "true", "x"]), first);
        assert_eq!(names.give(line), format!("{first}-2"));
        assert_eq!(names.give(line), format!("{first}-3"));
    }

    #[test]
    fn any_command_gives_a_name_that_a_job_may_have() {
        for command in ["", "%", "[ ! -x / ]", &"𝔘".repeat(300), &"-".repeat(300), "a\tb"] {
            let name = Names::default().give(["@daily", "", command, ""]);
            assert!((1..=190).contains(&name.len()), "{name}");
            assert!(!name.contains(char::is_control) && !name.contains(' '), "{name}");
        }
    }
}
