//! Links between the pages: relative, with the names in the query.
//!
//! All pages have the same depth, so a link needs no knowledge of the path at which the router is
//! mounted. A name stands in the query, because browsers and proxies fold `..` and `%2F` in paths.

use std::fmt::Write;

/// A link to a page, with these parameters; those without a value are left out. The empty page is the
/// first one.
pub(crate) fn link(page: &str, params: &[(&str, &str)]) -> String {
    let mut link = if page.is_empty() { "./".to_owned() } else { page.to_owned() };
    let given = params.iter().filter(|(_, value)| !value.is_empty());
    for (i, (name, value)) in given.enumerate() {
        link.push(if i == 0 { '?' } else { '&' });
        link.push_str(name);
        link.push('=');
        encode(value, &mut link);
    }
    link
}

/// A name with the link to its page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Linked {
    pub(crate) text: String,
    pub(crate) link: String,
}

fn encode(value: &str, into: &mut String) {
    for byte in value.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                into.push(char::from(byte));
            }
            _ => _ = write!(into, "%{byte:02X}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::link;

    #[test]
    fn a_link_is_relative_and_holds_nothing_that_html_or_paths_know() {
        assert_eq!(link("", &[]), "./");
        assert_eq!(link("", &[("zone", "Europe/Rome")]), "./?zone=Europe%2FRome");
        assert_eq!(link("jobs", &[("q", ""), ("kind", "mail")]), "jobs?kind=mail");
        let hostile = link("job", &[("name", "\"><script>&'..")]);
        assert_eq!(hostile, "job?name=%22%3E%3Cscript%3E%26%27..");
    }
}
