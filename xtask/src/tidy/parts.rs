//! The parts of a file: code, comments, and the text in strings.

use super::tree::File;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Code,
    /// A comment, or a line of Markdown.
    Prose,
    /// The inside of a string, or a line of a file in another language.
    Text,
}

/// A piece of one line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part<'a> {
    pub(crate) line: usize,
    pub(crate) kind: Kind,
    pub(crate) text: &'a str,
}

/// The parts of a file in their order. Only Rust has code.
pub(crate) fn parts(file: &File) -> Vec<Part<'_>> {
    if file.is("rs") {
        return Lexer { text: &file.text, parts: Vec::new(), line: 1, start: 0 }.run();
    }
    let kind = if file.is("md") { Kind::Prose } else { Kind::Text };
    file.lines().map(|(line, text)| Part { line, kind, text }).collect()
}

/// The lexer's position in the grammar.
#[derive(Clone, Copy)]
enum State {
    Code,
    Line,
    /// A block comment, with its depth.
    Block(usize),
    String,
    /// A raw string, with the number of its `#`.
    Raw(usize),
}

struct Lexer<'a> {
    text: &'a str,
    parts: Vec<Part<'a>>,
    line: usize,
    /// The beginning of the part that is not yet pushed.
    start: usize,
}

impl<'a> Lexer<'a> {
    fn run(mut self) -> Vec<Part<'a>> {
        let (mut state, mut at) = (State::Code, 0);
        while at < self.text.len() {
            (state, at) = self.step(state, at);
        }
        self.push(state, at);
        self.parts
    }

    /// Reads the character, or the delimiter, at `at`.
    fn step(&mut self, state: State, at: usize) -> (State, usize) {
        let rest = &self.text.as_bytes()[at..];
        if rest[0] == b'\n' {
            self.push(state, at);
            self.line += 1;
            self.start = at + 1;
            let next = if matches!(state, State::Line) { State::Code } else { state };
            return (next, at + 1);
        }
        match state {
            State::Code => self.code(rest, at),
            State::Block(depth) if rest.starts_with(b"/*") => (State::Block(depth + 1), at + 2),
            State::Block(1) if rest.starts_with(b"*/") => {
                self.change(state, at + 2, State::Code, 0)
            }
            State::Block(depth) if rest.starts_with(b"*/") => (State::Block(depth - 1), at + 2),
            // A line feed after a backslash still ends the line.
            State::String if rest[0] == b'\\' && rest.get(1) != Some(&b'\n') => (state, at + 2),
            State::String if rest[0] == b'"' => self.change(state, at, State::Code, 1),
            State::Raw(hashes) if rest[0] == b'"' && count_hashes(&rest[1..]) >= hashes => {
                self.change(state, at, State::Code, 1 + hashes)
            }
            State::Line | State::Block(_) | State::String | State::Raw(_) => (state, at + 1),
        }
    }

    fn code(&mut self, rest: &[u8], at: usize) -> (State, usize) {
        if rest.starts_with(b"//") {
            return self.change(State::Code, at, State::Line, 0);
        }
        if rest.starts_with(b"/*") {
            let (state, _) = self.change(State::Code, at, State::Block(1), 0);
            return (state, at + 2);
        }
        match rest[0] {
            b'"' => self.change(State::Code, at, State::String, 1),
            b'r' if !self.text[..at].ends_with(is_in_word) || self.text[..at].ends_with('b') => {
                let hashes = count_hashes(&rest[1..]);
                match rest.get(1 + hashes) {
                    Some(b'"') => self.change(State::Code, at, State::Raw(hashes), 2 + hashes),
                    _ => (State::Code, at + 1),
                }
            }
            b'\'' => (State::Code, at + self.quote(at)),
            _ => (State::Code, at + 1),
        }
    }

    /// The length of the character literal at `at`; 1 if the quote begins a lifetime.
    fn quote(&self, at: usize) -> usize {
        let inside = &self.text[at + 1..];
        if inside.starts_with('\\') {
            let end = inside.char_indices().skip(2).find(|(_, c)| *c == '\'');
            return end.map_or(1, |(end, _)| end + 2);
        }
        let mut chars = inside.char_indices().skip(1);
        match chars.next() {
            Some((end, '\'')) => end + 2,
            _ => 1,
        }
    }

    /// Ends a part at `end`, and begins the next one `skipped` bytes later.
    fn change(&mut self, old: State, end: usize, new: State, skipped: usize) -> (State, usize) {
        self.push(old, end);
        self.start = end + skipped;
        (new, end + skipped)
    }

    fn push(&mut self, state: State, end: usize) {
        let kind = match state {
            State::Code => Kind::Code,
            State::Line | State::Block(_) => Kind::Prose,
            State::String | State::Raw(_) => Kind::Text,
        };
        if let Some(text) = self.text.get(self.start..end).filter(|text| !text.is_empty()) {
            self.parts.push(Part { line: self.line, kind, text });
        }
    }
}

fn count_hashes(text: &[u8]) -> usize {
    text.iter().take_while(|byte| **byte == b'#').count()
}

/// True for the characters of an identifier.
pub(super) fn is_in_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    use super::{super::tree::Tree, *};

    fn found(path: &str, text: &str) -> Vec<(usize, Kind, String)> {
        let tree = Tree::of(&[(path, text)]);
        parts(&tree.files[0]).iter().map(|p| (p.line, p.kind, p.text.to_owned())).collect()
    }

    fn of(kind: Kind, text: &str) -> Vec<(usize, String)> {
        let all = found("a.rs", text).into_iter();
        all.filter(|part| part.1 == kind).map(|(line, _, text)| (line, text)).collect()
    }

    #[test]
    fn comments_end_where_they_end() {
        assert_eq!(of(Kind::Prose, "a // b \"c\nd"), [(1, "// b \"c".into())]);
        assert_eq!(
            of(Kind::Prose, "a /* b /* c */\nd */ e"),
            [(1, "/* b /* c */".into()), (2, "d */".into())]
        );
        assert_eq!(of(Kind::Code, "a /* b */ c"), [(1, "a ".into()), (1, " c".into())]);
    }

    #[test]
    fn strings_end_where_they_end() {
        assert_eq!(of(Kind::Text, r#"f("a // \" b", c)"#), [(1, r#"a // \" b"#.into())]);
        assert_eq!(
            of(Kind::Text, "r#\"a \" b\"# + br\"\\\" + c"),
            [(1, "a \" b".into()), (1, "\\".into())]
        );
        assert_eq!(of(Kind::Text, "\"a\\\n  b\""), [(1, "a\\".into()), (2, "  b".into())]);
        assert_eq!(of(Kind::Text, "for r in \"a\" {}"), [(1, "a".into())]);
    }

    #[test]
    fn quotes_of_characters_and_lifetimes_begin_no_string() {
        for code in ["'\"' + a", "'\\'' + '\"'", "<'a>(b: &'a str)", "'\\u{e9}'", "'é'"] {
            assert_eq!(found("a.rs", code), [(1, Kind::Code, code.into())], "{code}");
        }
    }

    #[test]
    fn other_files_have_no_code() {
        assert_eq!(found("a.md", "a\n\"b\"\n").len(), 2);
        assert!(found("a.md", "a\n").iter().all(|part| part.1 == Kind::Prose));
        assert!(found("a.lua", "a\n").iter().all(|part| part.1 == Kind::Text));
    }
}
