//! The first line of a doc comment names the thing that it documents.

use super::{Finding, tree::Tree};

/// A sentence that begins with one of these is a question, or a clause without its noun.
const WORDS: &[&str] = &["What", "Whether", "Who", "How", "Whoever"];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.with("rs") {
        let mut before = None;
        for (number, line) in file.lines() {
            let doc = doc_line(line);
            let marker = doc.map(|(marker, _)| marker);
            if let Some((_, text)) = doc
                && marker != before
                && let Some(word) = WORDS.iter().find(|word| first_word(text) == **word)
            {
                let what = format!("a doc comment begins with `{word}`: begin with the thing");
                findings.push(Finding::new(&file.path, number, what));
            }
            before = marker;
        }
    }
    findings
}

/// The marker of a doc comment, and the text after it.
fn doc_line(line: &str) -> Option<(&'static str, &str)> {
    let line = line.trim_start();
    let marker = ["///", "//!"].into_iter().find(|marker| line.starts_with(marker))?;
    let text = &line[marker.len()..];
    // Four slashes are a plain comment.
    (!text.starts_with('/')).then_some((marker, text))
}

fn first_word(text: &str) -> &str {
    let text = text.trim_start_matches(|c: char| !c.is_alphanumeric());
    text.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::{
        super::testing::{NONE, lines},
        check,
    };

    #[test]
    fn a_first_line_that_names_nothing_is_found() {
        for bad in [
            "What it is.",
            "Whether it runs.",
            "Who wins.",
            "How many there are.",
            "Whoever asks.",
            "*What* it is.",
            "How, and when.",
        ] {
            assert_eq!(lines(check, "a.rs", format!("//! {bad}\n")), [1], "{bad}");
            let item = format!("//! A.\n\n    /// {bad}\n    /// More.\n    a: u8,\n");
            assert_eq!(lines(check, "a.rs", item), [3], "{bad}");
        }
        assert_eq!(lines(check, "a.rs", "//! A.\n/// What.\nfn a() {}\n"), [2]);
    }

    #[test]
    fn other_lines_may_begin_with_these_words() {
        for good in [
            "/// The count.\n/// What it counts.\n",
            "/// Whatever is given.\n",
            "/// However many.\n",
            "/// Somewhat late.\n",
            "/// The number of runs.\n",
            "// What a plain comment says.\n",
            "//// What a ruler is.\n",
            "let a = 1; // How it is.\n",
        ] {
            assert_eq!(lines(check, "a.rs", format!("//! A.\n\n{good}")), NONE, "{good}");
        }
        assert_eq!(lines(check, "a.md", "/// What.\n"), NONE);
    }
}
