//! The percent signs of a command: where it ends and what its standard input is.
//!
//! The rules are those of Debian's cron (3.0pl1, observed).

use std::iter::Peekable;

/// Splits the rest of a job's line into the command and its standard input.
pub(super) fn split(text: &str) -> (String, Option<String>) {
    let mut chars = text.chars().peekable();
    let mut command = String::new();
    while let Some(char) = chars.next() {
        match char {
            '%' => return (command, Some(input(chars))),
            '\\' => command.push(chars.next_if(|next| matches!(next, '%' | '\\')).unwrap_or('\\')),
            char => command.push(char),
        }
    }
    (command, None)
}

/// In the input a backslash counts only before a percent sign: `\\%` is `\%`.
fn input(mut chars: Peekable<impl Iterator<Item = char>>) -> String {
    let mut input = String::new();
    while let Some(char) = chars.next() {
        input.push(match char {
            '%' => '\n',
            '\\' => chars.next_if_eq(&'%').unwrap_or('\\'),
            char => char,
        });
    }
    if !input.is_empty() && !input.ends_with('\n') {
        input.push('\n');
    }
    input
}

#[cfg(test)]
mod tests {
    use super::split;

    #[test]
    fn percent_signs_are_read_as_debian_does() {
        for (text, command, stdin) in [
            ("true", "true", None),
            (r"date +\%F", "date +%F", None),
            (r"'a\\b' 'c\d'", r"'a\b' 'c\d'", None),
            (r"x%one%two\%three\x%", "x", Some("one\ntwo%three\\x\n")),
            (r"a\\%b", r"a\", Some("b\n")),
            (r"a\\\%b", r"a\%b", None),
            ("true%", "true", Some("")),
            (r"cat%%a%\\%b", "cat", Some("\na\n\\%b\n")),
            (r"cat%a\", "cat", Some("a\\\n")),
            (r"echo \", r"echo \", None),
            ("é%ü", "é", Some("ü\n")),
        ] {
            assert_eq!(split(text), (command.to_owned(), stdin.map(String::from)), "{text}");
        }
    }
}
