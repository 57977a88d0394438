//! Where everything stands in the key space: all of it under the prefix and a slash.
//!
//! Names come last, so that no byte in them can be taken for a separator; node ids and kinds are
//! followed by a zero byte, which neither has. Instants and fences are sixteen hexadecimal digits,
//! so that the order of keys is theirs.

use allora_core::{Time, record::Record, time::from_millis};

/// The keys of one namespace.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    prefix: String,
}

/// A key of the due index, to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Notice {
    /// What its part of the index begins with.
    pub(crate) beside: String,
    /// Its instant, as digits.
    pub(crate) at: String,
    name: String,
}

impl Notice {
    pub(crate) fn key(&self) -> String {
        format!("{}{}{}", self.beside, self.at, self.name)
    }
}

/// A key of the due index, read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Due {
    pub(crate) at: Time,
    pub(crate) name: String,
}

impl Keys {
    pub(crate) fn new(prefix: &str) -> Self {
        Self { prefix: format!("{prefix}/") }
    }

    pub(crate) fn all(&self) -> &str {
        &self.prefix
    }

    fn under(&self, rest: &str) -> String {
        format!("{}{rest}", self.prefix)
    }

    /// The version of this layout.
    pub(crate) fn version(&self) -> String {
        self.under("version")
    }

    /// No fence at or below it is given to a name whose tombstone is forgotten.
    pub(crate) fn floor(&self) -> String {
        self.under("floor")
    }

    /// The latest hint: only its changes matter.
    pub(crate) fn told(&self) -> String {
        self.under("told")
    }

    /// The record of a job.
    pub(crate) fn job(&self, name: &str) -> String {
        self.under(&format!("job/{name}"))
    }

    /// Its data, if it has any: apart, so that a take does not write it again.
    pub(crate) fn data(&self, name: &str) -> String {
        self.under(&format!("data/{name}"))
    }

    /// A node that is alive: bound to its lease, gone with it.
    pub(crate) fn mark(&self, node: &str) -> String {
        self.under(&format!("node/{}", plain(node)))
    }

    /// A node that has been alive, and may have left runs.
    pub(crate) fn fleet(&self, node: &str) -> String {
        self.under(&format!("fleet/{}", plain(node)))
    }

    pub(crate) fn marks(&self) -> String {
        self.under("node/")
    }

    pub(crate) fn fleets(&self) -> String {
        self.under("fleet/")
    }

    /// A kind that stored schedules have, or had.
    pub(crate) fn kind(&self, kind: &str) -> String {
        self.under(&format!("kind/{kind}"))
    }

    /// What wants attention, by kind and time.
    pub(crate) fn dues(&self, kind: &str) -> String {
        self.under(&format!("due/{kind}\0"))
    }

    /// What wants attention when a run ends, by the clock of its node or with that node.
    pub(crate) fn helds(&self, node: &str) -> String {
        self.under(&format!("held/{}\0", plain(node)))
    }

    pub(crate) fn helds_of(&self, node: &str, kind: &str) -> String {
        format!("{}{kind}\0", self.helds(node))
    }

    pub(crate) fn all_helds(&self) -> String {
        self.under("held/")
    }

    /// Below which instant nothing stands in this part of the index.
    pub(crate) fn low(&self, beside: &str) -> String {
        self.under(&format!("low/{}", beside.strip_prefix(&self.prefix).unwrap_or(beside)))
    }

    /// Where the record is to be found by those who look for work: one key or none. What waits for
    /// the end of a run stands under the run's node: by whose clock that end is, and with whom it
    /// may come sooner.
    pub(crate) fn notice(&self, name: &str, record: Option<&Record>) -> Option<Notice> {
        let record = record?;
        let at = record.notice_at()?;
        let beside = match record.holds.iter().find(|hold| hold.until == at) {
            Some(hold) => self.helds_of(&hold.node, &record.kind),
            None => self.dues(&record.kind),
        };
        Some(Notice { beside, at: digits(at.timestamp_millis()), name: name.to_owned() })
    }

    /// A tombstone, by when it was made.
    pub(crate) fn gone(&self, at: Time, name: &str) -> String {
        self.under(&format!("gone/{}{name}", digits(at.timestamp_millis())))
    }

    pub(crate) fn all_gone(&self) -> String {
        self.under("gone/")
    }

    /// An entry of the history; the newest are the first.
    pub(crate) fn past(&self, fence: i64, name: &str) -> String {
        format!("{}{name}", self.past_from(fence))
    }

    /// Where the entries of this fence begin.
    pub(crate) fn past_from(&self, fence: i64) -> String {
        self.under(&format!("past/{}", digits(i64::MAX - fence.max(0))))
    }

    pub(crate) fn pasts(&self) -> String {
        self.under("past/")
    }

    /// The time and the name at the end of a key that begins with `beside`.
    pub(crate) fn read(beside: &str, key: &[u8]) -> Option<Due> {
        let rest = key.strip_prefix(beside.as_bytes())?;
        let (at, name) = rest.split_at_checked(16)?;
        let at = i64::from_str_radix(std::str::from_utf8(at).ok()?, 16).ok()?;
        Some(Due { at: from_millis(at)?, name: String::from_utf8(name.to_vec()).ok()? })
    }

    /// Kind, time and name of a key under [`all_helds`](Self::all_helds).
    pub(crate) fn read_held(&self, key: &[u8]) -> Option<(String, Due)> {
        let rest = key.strip_prefix(self.all_helds().as_bytes())?;
        let mut parts = rest.splitn(3, |byte| *byte == 0);
        let (_, kind) = (parts.next()?, parts.next()?);
        Some((String::from_utf8(kind.to_vec()).ok()?, Self::read("", parts.next()?)?))
    }
}

/// An instant of the index as its digits, to end a range with.
pub(crate) fn digits(number: i64) -> String {
    format!("{:016x}", number.max(0))
}

/// The first key after all that begin so.
pub(crate) fn after_all(prefix: &str) -> Vec<u8> {
    let mut end = prefix.as_bytes().to_vec();
    // No byte of UTF-8 is 0xff: there is always one to count up.
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    end
}

/// A node's id is anything; the zero byte separates.
pub(crate) fn plain(node: &str) -> String {
    node.replace('%', "%25").replace('\0', "%00")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_the_index_are_read_back() {
        let keys = Keys::new("a");
        let due = Due { at: from_millis(1_893_456_000_000).unwrap(), name: "x/\u{1}y".into() };
        let beside = keys.dues("mail");
        let key = format!("{beside}{}{}", digits(due.at.timestamp_millis()), due.name);
        assert_eq!(Keys::read(&beside, key.as_bytes()), Some(due.clone()));
        assert_eq!(Keys::read(&beside, beside.as_bytes()), None, "cut off");
        let beside = keys.helds_of("n%\0/", "mail");
        let key = format!("{beside}{}{}", digits(due.at.timestamp_millis()), due.name);
        assert_eq!(keys.read_held(key.as_bytes()), Some(("mail".into(), due)));
    }

    #[test]
    fn later_is_behind_and_newer_is_in_front() {
        let keys = Keys::new("a");
        assert!(digits(9) < digits(10) && digits(255) < digits(256));
        assert!(keys.past(10, "z") < keys.past(9, "a"));
        assert_eq!(after_all("a/"), b"a0");
    }
}
