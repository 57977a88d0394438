//! Secrets in what commands print: their values are replaced before a line is logged or kept.

/// The text in place of a secret.
const MASK: &[u8] = b"***";

/// Shorter values are not masked: they would be found everywhere. In bytes.
const SHORTEST: usize = 4;

/// The values to replace in a stream. It has no `Debug`, because they are secrets.
#[derive(Clone, Default)]
pub(super) struct Mask {
    /// Longer ones first: of two that begin alike, the longer one is replaced.
    secrets: Vec<Vec<u8>>,
}

impl Mask {
    /// Masks these values, without blanks around them, and each of their lines: a program may print a
    /// key of several lines with something before each of them.
    pub(super) fn new(values: impl Iterator<Item = String>) -> Self {
        let mut secrets: Vec<Vec<u8>> = Vec::new();
        for value in values {
            let parts = [&*value].into_iter().chain(value.lines()).map(str::trim);
            let parts = parts.filter(|part| part.len() >= SHORTEST);
            secrets.extend(parts.map(|part| part.as_bytes().to_vec()));
        }
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        secrets.dedup();
        Self { secrets }
    }

    /// Moves what was read to what is shown, with the secrets replaced. An end that may be the beginning
    /// of a secret stays until more is read, or nothing more comes.
    pub(super) fn apply(&self, read: &mut Vec<u8>, shown: &mut Vec<u8>, is_end: bool) {
        if self.secrets.is_empty() {
            return shown.append(read);
        }
        let mut at = 0;
        while let Some(first) = read.get(at) {
            let rest = &read[at..];
            let may_begin =
                |secret: &Vec<u8>| secret.len() > rest.len() && secret.starts_with(rest);
            if !is_end && self.secrets.iter().any(may_begin) {
                break;
            }
            match self.secrets.iter().find(|secret| rest.starts_with(secret)) {
                Some(secret) => {
                    shown.extend_from_slice(MASK);
                    at += secret.len();
                }
                None => {
                    shown.push(*first);
                    at += 1;
                }
            }
        }
        read.drain(..at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mask(values: &[&str]) -> Mask {
        Mask::new(values.iter().map(|value| (*value).to_owned()))
    }

    #[track_caller]
    fn check(values: &[&str], printed: &str, shown: &str) {
        let mask = mask(values);
        // Whatever the pieces in which the output comes.
        for size in 1..=printed.len() {
            let (mut read, mut all) = (Vec::new(), Vec::new());
            for piece in printed.as_bytes().chunks(size) {
                read.extend_from_slice(piece);
                mask.apply(&mut read, &mut all, false);
            }
            mask.apply(&mut read, &mut all, true);
            assert_eq!(String::from_utf8(all).unwrap(), shown, "in pieces of {size}");
        }
    }

    #[test]
    fn secrets_are_replaced_wherever_the_output_is_cut() {
        check(&["hush"], "a hush, hushhush hus", "a ***, ****** hus");
        check(&["hush", "hush-hush"], "hush-hush hush-hu", "*** ***-hu");
        check(&["ababc"], "abababc", "ab***");
        check(&["one\ntwo"], "say one\ntwo\n", "say ***\n");
        check(&["--key\nabcd\r\nefgh"], "> abcd\n> efgh\n> --key", "> ***\n> ***\n> ***");
        check(&[" hush\n"], "[hush]", "[***]");
        check(&["né né"], "né né né", "*** né");
    }

    #[test]
    fn short_values_and_none_are_left() {
        check(&["yes", "", "  "], "yes or no", "yes or no");
        check(&[], "hush", "hush");
    }
}
