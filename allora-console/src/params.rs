//! The query of a request, or a form: each parameter once, as text.

/// The longest query, and the longest form, in bytes. A longer one is refused before it is read.
const LONGEST: usize = 8 * 1024;
pub(crate) const LONGEST_FORM: usize = 16 * 1024;

/// The parameters of a request, in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Params(Vec<(String, String)>);

impl Params {
    /// Reads a query.
    ///
    /// # Errors
    /// A sentence for the reader: a query that is too long, is not UTF-8, or has a parameter twice.
    pub(crate) fn read(query: &str) -> Result<Self, String> {
        if query.len() > LONGEST {
            return Err(format!("the address is too long: its query may have {LONGEST} bytes"));
        }
        Self::pairs(query, "the address")
    }

    /// Reads the body of a form.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub(crate) fn form(body: &[u8]) -> Result<Self, String> {
        let text = std::str::from_utf8(body).map_err(|_| not_utf8("the form"))?;
        Self::pairs(text, "the form")
    }

    fn pairs(text: &str, of: &str) -> Result<Self, String> {
        let mut read: Vec<(String, String)> = Vec::new();
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let decoded =
                |text: &str| unescaped(&text.replace('+', " ")).ok_or_else(|| not_utf8(of));
            let (name, value) = (decoded(name)?, decoded(value)?);
            if read.iter().any(|(earlier, _)| *earlier == name) {
                return Err(format!("{of} has the parameter {name:?} twice; leave one away"));
            }
            read.push((name, value));
        }
        Ok(Self(read))
    }

    /// The value of a parameter, without the blanks around it; empty if it is missing.
    pub(crate) fn get(&self, name: &str) -> &str {
        self.exact(name).trim()
    }

    /// The value of a parameter as it is: the name of a job may begin with a blank.
    pub(crate) fn exact(&self, name: &str) -> &str {
        self.0.iter().find(|(own, _)| own == name).map_or("", |(_, value)| value)
    }

    /// The value of a parameter; `None` if it is missing or blank.
    pub(crate) fn some(&self, name: &str) -> Option<&str> {
        Some(self.get(name)).filter(|value| !value.is_empty())
    }

    /// All parameters but this one, for a form that changes it.
    pub(crate) fn without(&self, name: &str) -> Vec<(String, String)> {
        self.0.iter().filter(|(own, _)| own != name).cloned().collect()
    }
}

/// The text behind `%41`; `None` if it is not UTF-8.
pub(crate) fn unescaped(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        match (*first == b'%').then(|| byte(after)).flatten() {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8(bytes).ok()
}

fn not_utf8(of: &str) -> String {
    format!("{of} has a parameter that is not UTF-8; write it anew")
}

/// The byte that two hexadecimal digits stand for.
fn byte(text: &[u8]) -> Option<u8> {
    let digits = std::str::from_utf8(text.get(..2)?).ok()?;
    let is_hex = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    is_hex.then(|| u8::from_str_radix(digits, 16).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_any_kind_come_back_as_they_were_written() {
        for name in
            ["..", "acme/report", "a?b#c&d=e", "100%25 %2F", "<img src=x onerror=alert(1)>", "🦀"]
        {
            let link = crate::links::link("job", &[("name", name)]);
            let query = link.split_once('?').unwrap().1;
            assert_eq!(Params::read(query).unwrap().exact("name"), name, "{link}");
        }
    }

    #[test]
    fn blanks_and_lone_percent_signs_are_read() {
        let params = Params::read("q=+a+b+&lone=5%&half=%4&flag&&").unwrap();
        assert_eq!((params.get("q"), params.exact("q")), ("a b", " a b "));
        assert_eq!((params.get("lone"), params.get("half")), ("5%", "%4"));
        assert_eq!((params.some("flag"), params.some("none")), (None, None));
    }

    #[test]
    fn what_cannot_be_read_is_refused_with_a_sentence() {
        let says = |query: &str| Params::read(query).unwrap_err();
        assert!(says("name=%FF").contains("not UTF-8"));
        assert!(says("a=1&a=2").contains("\"a\" twice"));
        assert!(says(&"a".repeat(LONGEST + 1)).contains("too long"));
    }
}
