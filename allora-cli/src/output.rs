//! The command's output: results on standard output, everything else on standard error.

use std::{
    env,
    fmt::Write as _,
    io::{self, IsTerminal, Write as _},
};

/// Says something about the work on standard error: a line, safe to print.
pub(crate) fn complain(sort: &str, what: &str) {
    let colour = match sort {
        "error" => "31",
        "warning" => "33",
        _ => "36",
    };
    let sort = if colours(&io::stderr()) {
        format!("\u{1b}[1;{colour}m{sort}:\u{1b}[0m")
    } else {
        format!("{sort}:")
    };
    // A closed standard error cannot be reported.
    let _ = writeln!(io::stderr(), "{sort} {}", on_one_line(what));
}

/// The progress of long work: a line at the end of a terminal, which is rewritten; nothing
/// elsewhere. Dropped, it is cleared.
#[derive(Debug)]
pub(crate) struct Progress {
    what: &'static str,
    done: usize,
    is_shown: bool,
}

impl Progress {
    pub(crate) fn new(what: &'static str) -> Self {
        Self { what, done: 0, is_shown: false }
    }

    /// So much more is done.
    pub(crate) fn more(&mut self, more: usize) {
        self.done += more;
        if io::stderr().is_terminal() {
            let _ = write!(io::stderr(), "\r{} {}", self.done, self.what);
            self.is_shown = true;
        }
    }

    /// Makes room for something else.
    pub(crate) fn clear(&mut self) {
        if std::mem::take(&mut self.is_shown) {
            let _ = write!(io::stderr(), "\r\u{1b}[K");
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}

/// True if colours are to be used: on a terminal, unless <https://no-color.org> is requested.
fn colours(stream: &impl IsTerminal) -> bool {
    stream.is_terminal() && env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// The text on one line, with nothing in it that a terminal obeys.
pub(crate) fn on_one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '\n' => line.push_str("; "),
            char if char.is_control() || is_invisible(char) => {
                let _ = write!(line, "{}", char.escape_default());
            }
            char => line.push(char),
        }
    }
    line
}

/// Characters that hide or reorder what is printed after them.
fn is_invisible(char: char) -> bool {
    matches!(char, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// A number with its noun, whose plural ends in `s` or `ies`.
pub(crate) fn counted(count: usize, noun: &str) -> String {
    match (count, noun.strip_suffix('y')) {
        (1, _) => format!("1 {noun}"),
        (_, Some(stem)) => format!("{count} {stem}ies"),
        (_, None) => format!("{count} {noun}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::{counted, on_one_line};

    #[test]
    fn one_is_no_plural() {
        for (count, noun, text) in [
            (0, "job", "0 jobs"),
            (1, "job", "1 job"),
            (2, "job", "2 jobs"),
            (1, "entry", "1 entry"),
            (2, "entry", "2 entries"),
        ] {
            assert_eq!(counted(count, noun), text);
        }
    }

    #[test]
    fn a_line_is_one_line_and_harmless() {
        assert_eq!(on_one_line("a\nb\u{1b}[31m\u{202e}c é 🧾"), "a; b\\u{1b}[31m\\u{202e}c é 🧾");
    }
}
