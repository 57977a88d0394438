//! Names for jobs that have none: readable, unique within a file, and independent of where in it
//! the line stands.

use crate::stable_hash;
use std::collections::HashMap;

/// The part of the command in a name, in characters of at most 4 bytes.
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

/// The command's first words, joined with dashes.
fn readable(command: &str) -> String {
    let in_word = |c: char| c.is_alphanumeric() || matches!(c, '_' | '.');
    let words: Vec<&str> = command.split(|c| !in_word(c)).filter(|word| !word.is_empty()).collect();
    let joined = words.join("-");
    let cut = joined.char_indices().nth(SHOWN).map_or(joined.len(), |(at, _)| at);
    // The space for a whole word that was cut is better used than left.
    let shown = joined[..cut].trim_end_matches('-');
    if shown.is_empty() { "job".to_owned() } else { shown.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_begins_with_the_command_and_never_changes() {
        let name = Names::default().give(["0 4 * * *", "", "/usr/bin/backup --all", ""]);
        assert_eq!(name, "usr-bin-backup-all-73e6b590f715e551");
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
