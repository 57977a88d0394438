//! Texts as others might write them, for the tests of what reads them.

use allora_conformance::mutations;

/// The password in seeds.
const SECRET: &str = "hunter2";

/// Calls a reader with these seeds and with 500 mutations of them. It panics at none, and repeats no password: one
/// between `:` and `@`.
pub(crate) fn read_each<T>(seeds: &[&str], read: impl Fn(&str) -> Result<T, String>) {
    let seeds: Vec<&[u8]> = seeds.iter().map(|seed| seed.as_bytes()).collect();
    let mut good = 0;
    for input in mutations(&seeds, 38, 500 + seeds.len()) {
        let Ok(text) = String::from_utf8(input) else { continue };
        let Err(said) = read(&text) else {
            good += 1;
            continue;
        };
        let is_elsewhere = text.replace(&format!(":{SECRET}@"), "").contains(SECRET);
        assert!(is_elsewhere || !said.contains(SECRET), "{text:?}: {said}");
        assert!(!said.trim().is_empty(), "{text:?} is refused without a word");
    }
    assert!(good > 0, "all are refused");
}
