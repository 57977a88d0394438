//! Names of jobs: 1 to 200 bytes of UTF-8, compared as bytes, nothing invisible in them.

use crate::{
    error::{Error, Result},
    time::Time,
};
use allora_schedule::stable_hash;
use std::sync::Arc;

/// The longest name, in bytes.
pub const MAX_NAME: usize = 200;

/// Checks the name of a job, a kind or a node's label.
///
/// # Errors
/// `Invalid` if the name is empty, is longer than [`MAX_NAME`] bytes, begins or ends with white
/// space, or contains a control, line-separating or text-direction character.
///
/// ```
/// use allora::check_name;
///
/// assert!(check_name("nightly: invoices {eu} 🧾").is_ok());
/// assert!(check_name("tab\there").is_err());
/// ```
pub fn check_name(name: &str) -> Result {
    let wrong = |why: String| {
        Err(Error::invalid(format!(
            "the name {:?} {why}; a name is 1 to {MAX_NAME} bytes of visible text",
            shown(name)
        )))
    };
    if name.is_empty() {
        return wrong("is empty".into());
    }
    if name.len() > MAX_NAME {
        return wrong(format!("is {} bytes long", name.len()));
    }
    if name.trim() != name {
        return wrong("begins or ends with white space".into());
    }
    match name.char_indices().find(|(_, c)| unprintable(*c)) {
        Some((at, c)) => wrong(format!("has the character U+{:04X} at byte {at}", c as u32)),
        None => Ok(()),
    }
}

/// The prefix of the records of concurrency keys.
pub(crate) const KEY: &str = "allora:key:";

/// The prefix of the records of keys that are too long for a name.
pub(crate) const LONG_KEY: &str = "allora:key#";

/// The longest concurrency key, in bytes.
const MAX_KEY: usize = 200;

/// The prefix of the records in which nodes report that they live.
pub(crate) const NODE: &str = "allora:node:";

/// The prefix of the records of named calendars.
pub(crate) const CALENDAR: &str = "allora:calendar:";

/// The prefix of the records in which nodes tell each other that they have checked their jobs in code.
pub(crate) const MARK: &str = "allora:mark:";

/// The prefix of the records in which the history of one job on one day is counted.
pub(crate) const HOURS: &str = "allora:hours:";

/// After all names with the prefix [`HOURS`], which a digit follows.
pub(crate) const AFTER_HOURS: &str = "allora:hours:~";

/// `true` if it is the name, or the beginning of names, of records of the scheduler's own: nodes and
/// their marks, concurrency keys, calendars, and what is counted of the history. They are no jobs.
/// [`Queries::list`](crate::backend::Queries::list) leaves them out, unless its prefix asks for them;
/// the lists of a [`RecordStore`](crate::store::RecordStore) do so by themselves.
pub fn is_internal(name: &str) -> bool {
    is_key_record(name)
        || name.starts_with(NODE)
        || name.starts_with(MARK)
        || name.starts_with(HOURS)
        || is_calendar_record(name)
}

/// Checks the name of a job to be added: as [`check_name`], and not one of the scheduler's own
/// names.
pub(crate) fn check_free(name: &str) -> Result {
    check_name(name)?;
    if is_key_record(name) {
        let own = format!(
            "the job name {name:?} begins with \"allora:key\", which is reserved for concurrency \
             keys; use another name"
        );
        return Err(Error::invalid(own));
    }
    let own = [(NODE, "nodes"), (MARK, "nodes"), (CALENDAR, "calendars"), (HOURS, "statistics")];
    for (prefix, what) in own {
        if name.starts_with(prefix) {
            let own = format!(
                "the job name {name:?} begins with {prefix:?}, which is reserved for {what}; use another \
                 name"
            );
            return Err(Error::invalid(own));
        }
    }
    Ok(())
}

/// Checks a concurrency key: one visible word.
pub(crate) fn check_key(key: &str) -> Result {
    let wrong = |why: String| {
        Err(Error::invalid(format!(
            "the concurrency key {:?} {why}; use 1 to {MAX_KEY} bytes without blanks and semicolons",
            shown(key)
        )))
    };
    if key.is_empty() {
        return wrong("is empty".into());
    }
    if key.len() > MAX_KEY {
        return wrong(format!("is {} bytes long", key.len()));
    }
    if key.contains(|c: char| c.is_whitespace() || c == ';') {
        return wrong("is not one word".into());
    }
    match key.char_indices().find(|(_, c)| unprintable(*c)) {
        Some((at, c)) => wrong(format!("has the character U+{:04X} at byte {at}", c as u32)),
        None => Ok(()),
    }
}

/// Checks an owner or a tag: one visible word that a definition can have in a list.
pub(crate) fn check_word(what: &str, word: &str) -> Result {
    let is_word = |c: char| !c.is_whitespace() && !unprintable(c) && !";,".contains(c);
    if (1..=MAX_NAME).contains(&word.len()) && word.chars().all(is_word) {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "the {what} {:?} is not one word; use 1 to {MAX_NAME} bytes of visible text without blanks, \
         commas and semicolons",
        shown(word)
    )))
}

/// The name of the record of a calendar, whose name is one visible word.
pub(crate) fn calendar_record(name: &str) -> Result<String> {
    check_word("calendar name", name)?;
    let longest = MAX_NAME - CALENDAR.len();
    if name.len() > longest {
        let len = name.len();
        return Err(Error::invalid(format!(
            "the calendar name {:?} is {len} bytes long; use 1 to {longest} bytes",
            shown(name)
        )));
    }
    Ok(format!("{CALENDAR}{name}"))
}

/// `true` if it is the name of a calendar's record.
pub(crate) fn is_calendar_record(name: &str) -> bool {
    name.starts_with(CALENDAR)
}

/// The name of the record of a concurrency key.
pub(crate) fn key_record(key: &str) -> Arc<str> {
    record_of(KEY, LONG_KEY, key).into()
}

/// The name of the record in which a job's history on the day of this time is counted.
pub(crate) fn hours_record(day: Time, job: &str) -> String {
    let day = hours_of_day(day);
    record_of(&format!("{day}:"), &format!("{day}#"), job)
}

/// The beginning of the names of all such records of one day. Those of earlier days are before it.
pub(crate) fn hours_of_day(day: Time) -> String {
    format!("{HOURS}{}", day.format("%Y%m%d"))
}

/// The name of the record of something with a name of its own. If both are too long for a name, it is
/// the other prefix, the beginning of the name and a hash of the whole.
fn record_of(prefix: &str, long_prefix: &str, name: &str) -> String {
    if prefix.len() + name.len() <= MAX_NAME {
        return format!("{prefix}{name}");
    }
    let hash = [0_u8, 1].map(|part| stable_hash(&[&[part], name.as_bytes()]));
    let start: String = name.chars().take(32).collect();
    format!("{long_prefix}{start}#{:016x}{:016x}", hash[0], hash[1])
}

/// `true` if it is the name of a concurrency key's record.
pub(crate) fn is_key_record(name: &str) -> bool {
    name.starts_with(KEY) || name.starts_with(LONG_KEY)
}

/// The first 40 characters: enough to recognise the name in a log line.
fn shown(name: &str) -> String {
    match name.char_indices().nth(40) {
        Some((end, _)) => format!("{}…", &name[..end]),
        None => name.to_owned(),
    }
}

/// The text on one line, with an escape for each character that cannot be shown: it may be a hostile store's.
#[cfg(any(feature = "codec", feature = "json"))]
pub(crate) fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match unprintable(c) {
            true => shown.extend(c.escape_default()),
            false => shown.push(c),
        }
    }
    shown
}

/// Controls, line and paragraph separators, text direction marks, and code points that are no
/// characters.
fn unprintable(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{2028}' | '\u{2029}' | '\u{200E}' | '\u{200F}' | '\u{061C}')
        || ('\u{202A}'..='\u{202E}').contains(&c)
        || ('\u{2066}'..='\u{2069}').contains(&c)
        || ('\u{FDD0}'..='\u{FDEF}').contains(&c)
        || (c as u32) & 0xFFFE == 0xFFFE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_people_use_are_fine() {
        for name in ["a", "A:b/c", "{x}*?[a]\\", "-rf", "ß", "👩‍👩‍👧", "'; DROP TABLE x; --"]
        {
            check_name(name).unwrap();
        }
        check_name(&"x".repeat(200)).unwrap();
        check_name(&"🧾".repeat(50)).unwrap();
    }

    #[test]
    fn names_that_cannot_be_seen_or_kept_are_refused() {
        for name in
            ["", " a", "a ", "a\n", "a\0b", "\u{1b}[31m", "a\u{202E}b", "a\u{2028}b", "\u{FFFE}x"]
        {
            assert!(check_name(name).is_err(), "{name:?}");
        }
        let long = check_name(&"🧾".repeat(51)).unwrap_err().to_string();
        assert!(long.contains("204 bytes"), "{long}");
    }

    #[test]
    fn every_key_has_a_record_of_its_own() {
        let long = "x".repeat(190);
        let keys = ["a", "b", &"x".repeat(189), &long, &"x".repeat(200), &"\u{1f9fe}".repeat(50)];
        let records: Vec<_> = keys.iter().map(|key| key_record(key)).collect();
        for (i, record) in records.iter().enumerate() {
            check_name(record).unwrap();
            assert!(is_key_record(record) && check_free(record).is_err(), "{record}");
            assert!(!records[..i].contains(record), "{record}");
        }
        assert_eq!(&*records[0], "allora:key:a");
    }

    #[test]
    fn the_longest_names_have_records_for_their_hours_and_all_of_a_day_follow_each_other() {
        let day = crate::time::from_millis(1_764_115_200_000).unwrap();
        let long = ["x".repeat(200), format!("{}y", "x".repeat(199)), "\u{1f9fe}".repeat(50)];
        let records = long.each_ref().map(|job| hours_record(day, job));
        for (i, record) in records.iter().enumerate() {
            check_name(record).unwrap();
            assert!(is_internal(record) && check_free(record).is_err(), "{record}");
            assert!(!records[..i].contains(record), "{record}");
            assert!(record.starts_with(&hours_of_day(day)) && &**record < AFTER_HOURS, "{record}");
        }
        assert_eq!(hours_record(day, "a"), "allora:hours:20251126:a");
    }
}
