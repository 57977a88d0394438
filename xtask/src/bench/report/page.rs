//! A page whose tables are generated: each stands between two comments, and the text between them is
//! replaced.

use crate::{Failure, Outcome};

/// The end of each generated part.
const END: &str = "<!-- end of the generated part -->";

fn begin(name: &str) -> String {
    format!("<!-- generated: {name} -->")
}

/// Replaces the generated parts of a page. The text stays as it is.
///
/// # Errors
/// If the page lacks a part or has one that is not among `parts`.
pub(super) fn fill(name: &str, page: &str, parts: &[(&str, String)]) -> Outcome<String> {
    let mut filled = page.to_owned();
    for (part, text) in parts {
        let begin = begin(part);
        let missing = || {
            let what = format!("{name} has no part `{begin}` that ends with `{END}`; add it");
            Failure::Check(what)
        };
        let start = filled.find(&begin).ok_or_else(missing)? + begin.len();
        let end = start + filled[start..].find(END).ok_or_else(missing)?;
        filled.replace_range(start..end, &format!("\n\n{}\n\n", text.trim()));
    }
    let known = |line: &&str| parts.iter().any(|(part, _)| *line == begin(part));
    let begins = |line: &&str| line.starts_with("<!-- generated: ");
    match page.lines().filter(begins).find(|line| !known(line)) {
        None => Ok(filled),
        Some(line) => Err(Failure::Check(format!("{name}: nothing generates the part `{line}`"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "# A\n\nText.\n\n<!-- generated: a -->\n\nold\n\n\
                        <!-- end of the generated part -->\n\nMore.\n";

    #[test]
    fn only_what_is_between_the_comments_is_replaced() {
        let filled = fill("A.md", PAGE, &[("a", "| new |\n".to_owned())]).unwrap();
        assert_eq!(filled, PAGE.replace("old", "| new |"));
        assert_eq!(fill("A.md", &filled, &[("a", "| new |".to_owned())]), Ok(filled));
    }

    #[test]
    fn a_part_that_is_missing_or_that_nothing_generates_is_an_error() {
        for parts in [vec![], vec![("a", String::new()), ("b", String::new())]] {
            let Err(Failure::Check(what)) = fill("A.md", PAGE, &parts) else { panic!("accepted") };
            assert!(what.starts_with("A.md"), "{what}");
        }
    }
}
