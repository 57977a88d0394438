//! Files of variables for commands, in the form of systemd's `EnvironmentFile`.
//!
//! Values are secrets as a rule, so no message has one.

use super::{Diagnostic, Form, Source};
use std::{fmt, iter::Peekable, path::PathBuf, str::Chars, sync::Arc};

/// The variables of `--env-file`, in their order. `Debug` shows no values.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct EnvFile(Arc<[(String, String)]>);

impl EnvFile {
    /// Reads these files, of which a later one overrides those before it.
    ///
    /// # Errors
    /// The first file that cannot be read, or its first line that is wrong. Root's files must be root's
    /// alone, as crontabs.
    pub(crate) fn read(paths: &[PathBuf]) -> Result<Self, Diagnostic> {
        let mut variables = Vec::new();
        for path in paths {
            let source = Source { path: path.clone(), form: Form::User, owner: None };
            let text = String::from_utf8(source.text()?)
                .map_err(|_| source.diagnostic(None, "not UTF-8; save it so"))?;
            let read = parse(&text).map_err(|(line, what)| source.diagnostic(Some(line), what))?;
            variables.extend(read);
        }
        Ok(Self(variables.into()))
    }

    /// The variables of a line, which override those of the files.
    pub(crate) fn below(&self, of_line: &Arc<[(String, String)]>) -> Arc<[(String, String)]> {
        match self.0.is_empty() {
            true => of_line.clone(),
            false => self.0.iter().chain(of_line.iter()).cloned().collect(),
        }
    }
}

impl fmt::Debug for EnvFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(name, _)| name)).finish()
    }
}

/// Variables that the command itself reads from its environment; a line may call it.
const COMMANDS_OWN: [&str; 4] =
    ["ALLORA_URL", "ALLORA_CONFIG", "ALLORA_ENVIRONMENT", "ALLORA_ACTOR"];

/// True if a variable is for this command when a line calls it, and not about the line.
pub(crate) fn is_commands_own(name: &str) -> bool {
    COMMANDS_OWN.contains(&name)
}

/// The variables of a text, or its first wrong line and why.
fn parse(text: &str) -> Result<Vec<(String, String)>, (usize, String)> {
    let mut rest = Rest { chars: text.chars().peekable(), line: 1 };
    let mut variables = Vec::new();
    while let Some(first) = rest.chars.peek() {
        match first {
            '#' | ';' => while rest.next().is_some_and(|char| char != '\n') {},
            blank if blank.is_whitespace() => _ = rest.next(),
            _ => {
                let line = rest.line;
                let name = rest.name().map_err(|what| (line, what))?;
                let value = rest.value().map_err(|what| (line, format!("{name}: {what}")))?;
                variables.push((name, value));
            }
        }
    }
    Ok(variables)
}

/// The unread part of a text.
struct Rest<'a> {
    chars: Peekable<Chars<'a>>,
    line: usize,
}

impl Rest<'_> {
    fn next(&mut self) -> Option<char> {
        let char = self.chars.next();
        self.line += usize::from(char == Some('\n'));
        char
    }

    /// The name of a variable, up to its `=`.
    fn name(&mut self) -> Result<String, String> {
        let mut name = String::new();
        loop {
            match self.next() {
                Some('=') => break,
                Some(char) if char != '\n' => name.push(char),
                _ => return Err("there is no `=`; write NAME=value, or # for a comment".into()),
            }
        }
        let name = name.trim_end();
        let is_word = |char: char| char.is_ascii_alphanumeric() || char == '_';
        if name.is_empty()
            || !name.chars().all(is_word)
            || name.starts_with(|char: char| char.is_ascii_digit())
        {
            let what = "what stands before `=` is no name; write letters, digits and _ alone, without \
                        `export`, and no digit first";
            return Err(what.into());
        }
        if name.starts_with("ALLORA_") && !is_commands_own(name) {
            return Err(format!("{name} is a setting of lines; write it into the crontab"));
        }
        Ok(name.to_owned())
    }

    /// The value of a variable, up to the end of its line.
    fn value(&mut self) -> Result<String, String> {
        // Blanks at the end do not count, unless they are quoted: so much of the value stays.
        let (mut value, mut kept) = (String::new(), 0);
        // As in systemd, a quote is one at the beginning, and behind the end of a quoted part.
        let mut may_be_quoted = true;
        while self.chars.peek().is_some_and(|char| matches!(char, ' ' | '\t')) {
            self.next();
        }
        while let Some(char) = self.next() {
            match char {
                '\n' => break,
                '\0' => return Err("a value cannot have a NUL".into()),
                '\'' | '"' if may_be_quoted => {
                    self.quoted(char, &mut value)?;
                    kept = value.len();
                    continue;
                }
                blank if may_be_quoted && blank.is_whitespace() => continue,
                // At the end of a line, the value goes on with the next one.
                '\\' => value.extend(self.next().filter(|char| *char != '\n')),
                blank if blank.is_whitespace() => {
                    value.push(blank);
                    continue;
                }
                char => value.push(char),
            }
            (kept, may_be_quoted) = (value.len(), false);
        }
        value.truncate(kept);
        Ok(value)
    }

    /// A part in quotes, which may have several lines. In double ones, a backslash is one unless it
    /// stands before one of `"\$` and the backtick, or at the end of a line.
    fn quoted(&mut self, quote: char, value: &mut String) -> Result<(), String> {
        while let Some(char) = self.next() {
            match char {
                '\0' => break,
                char if char == quote => return Ok(()),
                '\\' if quote == '"' => match self.next() {
                    Some('\n') => {}
                    Some(char @ ('"' | '\\' | '$' | '`')) => value.push(char),
                    char => value.extend(['\\'].into_iter().chain(char)),
                },
                char => value.push(char),
            }
        }
        Err(format!("its {quote} is not closed; add a {quote} at its end"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_as_systemd_reads_them() {
        for (text, value) in [
            ("A=b", "b"),
            ("A= b c \t\r\n", "b c"),
            ("A=", ""),
            ("A=b # c", "b # c"),
            ("A='b \\n $c '", "b \\n $c "),
            ("A=\"b \\\" \\\\ \\$c \\n\"", "b \" \\ $c \\n"),
            ("A=\"b\nc\"", "b\nc"),
            ("A=b\\\nc", "bc"),
            ("A=\\'b", "'b"),
            ("A='b'\"c\"d", "bcd"),
            ("A = b", "b"),
            ("A=a\"b\"c", "a\"b\"c"),
            ("A=don't", "don't"),
            ("A='b' 'c' d ", "bcd"),
            ("A=é=ü", "é=ü"),
        ] {
            assert_eq!(parse(text), Ok(vec![("A".to_owned(), value.to_owned())]), "{text:?}");
        }
        let text = "# A=1\n; A=2\n\n  A=1\nB='2'\nA=3";
        let read = parse(text).unwrap();
        let read: Vec<(&str, &str)> = read.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
        assert_eq!(read, [("A", "1"), ("B", "2"), ("A", "3")]);
    }

    #[test]
    fn any_file_is_read_or_refused_without_its_values() {
        let seeds = ["# a\nA='b c'\nURL=redis://:hunter2@h\nB=\"\\\"\"d \\\ne\n", "; a\n C=d'e'\n"];
        crate::foreign::read_each(&seeds, |text| parse(text).map_err(|(_, what)| what));
    }

    #[test]
    fn a_wrong_line_is_named_without_its_value() {
        for (text, line, says) in [
            ("A=1\nhush", 2, "there is no `=`"),
            ("A='\nhush", 1, "A: its ' is not closed"),
            ("A=b\n\nB=\"hush", 3, "B: its \" is not closed"),
            ("export A=hush", 1, "without `export`"),
            ("1A=hush", 1, "no digit first"),
            ("=hush", 1, "is no name"),
            ("A-B=hush", 1, "letters, digits and _"),
            ("ALLORA_TIMEOUT=hush", 1, "a setting of lines"),
        ] {
            let (at, what) = parse(text).unwrap_err();
            assert!(at == line && what.contains(says) && !what.contains("hush"), "{at}: {what}");
        }
        assert!(parse("ALLORA_URL=x").is_ok());
        let file = EnvFile(parse("A=hush").unwrap().into());
        assert_eq!(format!("{file:?}"), "[\"A\"]");
    }
}
