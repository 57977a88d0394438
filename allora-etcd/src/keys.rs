//! The layout of the key space: every key is under the prefix and a slash.
//!
//! Names come last, so that no byte of a name is read as a separator. Node ids, kinds and the jobs of
//! history entries are followed by a zero byte, which none of them contains there. Times and fences are
//! sixteen hexadecimal digits, so that the order of the keys is their order.

use allora_core::{Time, backend::HistoryCursor, record::Record, time::from_millis};

/// The keys of one namespace.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    prefix: String,
}

/// Entries by fence and job.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Log {
    /// The history of runs.
    History,
    /// The changes by clients.
    Changes,
}

impl Log {
    fn part(self) -> &'static str {
        match self {
            Log::History => "history",
            Log::Changes => "changes",
        }
    }
}

/// A key of the due index, to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct IndexKey {
    /// The prefix of its part of the index.
    pub(crate) part: String,
    /// Its time, as digits.
    pub(crate) at: String,
    name: String,
}

impl IndexKey {
    pub(crate) fn key(&self) -> String {
        format!("{}{}{}", self.part, self.at, self.name)
    }
}

/// A key of the due index, read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct IndexEntry {
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
        self.of(rest, "")
    }

    /// The key of one thing in a part of the key space. A claim writes several of them.
    fn of(&self, part: &str, name: &str) -> String {
        [&*self.prefix, part, name].concat()
    }

    /// The version of this layout.
    pub(crate) fn version(&self) -> String {
        self.under("version")
    }

    /// No fence at or below it is given to a name whose tombstone was removed.
    pub(crate) fn min_fence(&self) -> String {
        self.under("min_fence")
    }

    /// The latest notification: only its changes matter.
    pub(crate) fn notification(&self) -> String {
        self.under("notification")
    }

    /// The record of a job.
    pub(crate) fn job(&self, name: &str) -> String {
        self.of("job/", name)
    }

    /// The length of a page of names, as a guess for the first page of a process.
    pub(crate) fn page_hint(&self) -> String {
        self.under("page_hint")
    }

    /// The data of a job, if it has any. It has a key of its own, so that a claim does not write it.
    pub(crate) fn data(&self, name: &str) -> String {
        self.of("data/", name)
    }

    /// The dead letters and remembered triggers of a job, if it has any. They have a key of their own,
    /// so that a claim neither reads nor writes them.
    pub(crate) fn cold(&self, name: &str) -> String {
        self.of("cold/", name)
    }

    /// The session of a node that is alive: bound to its etcd lease, and removed with it.
    pub(crate) fn session(&self, node: &str) -> String {
        self.of("session/", &escape(node))
    }

    pub(crate) fn sessions(&self) -> String {
        self.under("session/")
    }

    /// A node that has had a session, and may have left runs.
    pub(crate) fn node(&self, node: &str) -> String {
        self.of("nodes/", &escape(node))
    }

    pub(crate) fn nodes(&self) -> String {
        self.under("nodes/")
    }

    /// A kind that stored schedules have.
    pub(crate) fn kind(&self, kind: &str) -> String {
        self.of("kind/", kind)
    }

    /// A schedule of a kind: a kind without any is forgotten.
    pub(crate) fn of_kind(&self, kind: &str, name: &str) -> String {
        self.under(&format!("of_kind/{kind}\0{name}"))
    }

    /// A flag of a job.
    pub(crate) fn flagged(&self, flag: &str, name: &str) -> String {
        self.under(&format!("flagged/{}\0{name}", escape(flag)))
    }

    /// A flag with a text that jobs have, or have had.
    pub(crate) fn flag(&self, flag: &str) -> String {
        self.of("flag/", flag)
    }

    /// The records of a kind that want attention, by time.
    pub(crate) fn due(&self, kind: &str) -> String {
        self.under(&format!("due/{kind}\0"))
    }

    /// The records that want attention when a lease of this node ends: by the node's clock, or with
    /// its session.
    pub(crate) fn leased_by(&self, node: &str) -> String {
        self.under(&format!("lease/{}\0", escape(node)))
    }

    pub(crate) fn leased_by_of(&self, node: &str, kind: &str) -> String {
        format!("{}{kind}\0", self.leased_by(node))
    }

    pub(crate) fn all_leased(&self) -> String {
        self.under("lease/")
    }

    /// The low mark of this part of the index: no entry has an earlier time.
    pub(crate) fn low_mark(&self, part: &str) -> String {
        self.under(&format!("index_low/{}", part.strip_prefix(&self.prefix).unwrap_or(part)))
    }

    /// The record's key in the due index, if it has one. A record that waits for the end of a lease
    /// is listed under the lease's node: the end is by that node's clock, and comes sooner if the
    /// node dies.
    pub(crate) fn index_key(&self, name: &str, record: Option<&Record>) -> Option<IndexKey> {
        let record = record?;
        let at = record.index_at()?;
        let part = match record.leases.iter().find(|lease| lease.until == at) {
            Some(lease) => self.leased_by_of(&lease.node, &record.kind),
            None => self.due(&record.kind),
        };
        Some(IndexKey { part, at: digits(at.timestamp_millis()), name: name.to_owned() })
    }

    /// A tombstone, by the time of the deletion.
    pub(crate) fn tombstone(&self, at: Time, name: &str) -> String {
        self.under(&format!("tombstone/{}{name}", digits(at.timestamp_millis())))
    }

    pub(crate) fn tombstones(&self) -> String {
        self.under("tombstone/")
    }

    /// An entry. The highest cursor comes first: fence and name have the opposite order, the name by
    /// the complement of its bytes, and behind them the one of a byte that ends every name.
    pub(crate) fn entry(&self, log: Log, at: &HistoryCursor) -> Vec<u8> {
        let fence = format!("{}{}", self.entries(log), digits(i64::MAX - at.fence.max(0)));
        let name = at.name.bytes().chain([0]).map(|byte| !byte);
        fence.into_bytes().into_iter().chain(name).collect()
    }

    pub(crate) fn entries(&self, log: Log) -> String {
        self.of(log.part(), "/")
    }

    /// The entries of one job, the newest first: for each, its fence. No byte of the name is taken
    /// for the end of it.
    pub(crate) fn entries_of(&self, log: Log, name: &str) -> String {
        self.under(&format!("{}_of/{}\0", log.part(), escape(name)))
    }

    /// The first key of the entries of one job up to this fence, and the key of the entry with it.
    pub(crate) fn entries_of_up_to(&self, log: Log, name: &str, fence: i64) -> String {
        format!("{}{}", self.entries_of(log, name), digits(i64::MAX - fence.max(0)))
    }

    /// The fence of a key that begins with `part`.
    pub(crate) fn fence_in(part: &str, key: &[u8]) -> Option<i64> {
        let digits = key.strip_prefix(part.as_bytes())?.get(..16)?;
        let number = i64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
        Some(i64::MAX - number)
    }

    /// The place of the entry whose key begins with `part`.
    pub(crate) fn cursor_in(part: &str, key: &[u8]) -> Option<HistoryCursor> {
        let fence = Self::fence_in(part, key)?;
        let name = key.strip_prefix(part.as_bytes())?.get(16..)?.strip_suffix(&[!0])?;
        let name = name.iter().map(|byte| !byte).collect();
        Some(HistoryCursor { fence, name: String::from_utf8(name).ok()? })
    }

    /// The time and the name at the end of a key that begins with `part`.
    pub(crate) fn index_entry(part: &str, key: &[u8]) -> Option<IndexEntry> {
        let rest = key.strip_prefix(part.as_bytes())?;
        let (at, name) = rest.split_at_checked(16)?;
        let at = i64::from_str_radix(std::str::from_utf8(at).ok()?, 16).ok()?;
        Some(IndexEntry { at: from_millis(at)?, name: String::from_utf8(name.to_vec()).ok()? })
    }

    /// Kind, time and name of a key under [`all_leased`](Self::all_leased).
    pub(crate) fn leased_entry(&self, key: &[u8]) -> Option<(String, IndexEntry)> {
        let rest = key.strip_prefix(self.all_leased().as_bytes())?;
        let mut parts = rest.splitn(3, |byte| *byte == 0);
        let (_, kind) = (parts.next()?, parts.next()?);
        Some((String::from_utf8(kind.to_vec()).ok()?, Self::index_entry("", parts.next()?)?))
    }
}

/// A number as digits whose order as text is the order of the numbers.
pub(crate) fn digits(number: i64) -> String {
    format!("{:016x}", number.max(0))
}

/// The first key after all that begin with `prefix`.
pub(crate) fn end_of(prefix: &str) -> Vec<u8> {
    let mut end = prefix.as_bytes().to_vec();
    // No byte of UTF-8 is 0xff: the last one can always be incremented.
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    end
}

/// A node's id without zero bytes, which are separators.
pub(crate) fn escape(node: &str) -> String {
    node.replace('%', "%25").replace('\0', "%00")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_the_index_are_read_back() {
        let keys = Keys::new("a");
        let at = from_millis(1_893_456_000_000).unwrap();
        let entry = IndexEntry { at, name: "x/\u{1}y".into() };
        let part = keys.due("mail");
        let key = format!("{part}{}{}", digits(at.timestamp_millis()), entry.name);
        assert_eq!(Keys::index_entry(&part, key.as_bytes()), Some(entry.clone()));
        assert_eq!(Keys::index_entry(&part, part.as_bytes()), None, "cut off");
        let part = keys.leased_by_of("n%\0/", "mail");
        let key = format!("{part}{}{}", digits(at.timestamp_millis()), entry.name);
        assert_eq!(keys.leased_entry(key.as_bytes()), Some(("mail".into(), entry)));
    }

    #[test]
    fn later_is_behind_and_newer_is_in_front() {
        let keys = Keys::new("a");
        assert!(digits(9) < digits(10) && digits(255) < digits(256));
        let key = |fence, name: &str| {
            keys.entry(Log::History, &HistoryCursor { fence, name: name.into() })
        };
        let newest_first = [key(10, "a"), key(9, "z"), key(9, "ab"), key(9, "a"), key(8, "z")];
        assert!(newest_first.is_sorted());
        for name in ["", "a", "a\0b", "ä\u{10ffff}"] {
            assert_eq!(Keys::fence_in("a/history/", &key(7, name)), Some(7));
        }
        let of = |name, fence| keys.entries_of_up_to(Log::History, name, fence);
        let of_a = keys.entries_of(Log::History, "a");
        assert!(of("a", 10) < of("a", 9) && of("a", i64::MAX) < of("a", 0));
        assert!(!of("a\0b", 1).starts_with(&of_a));
        assert_eq!(Keys::fence_in(&of_a, of("a", 9).as_bytes()), Some(9));
        let (at, all) =
            (HistoryCursor { fence: 9, name: "ä b".into() }, keys.entries(Log::Changes));
        assert_eq!(Keys::cursor_in(&all, &keys.entry(Log::Changes, &at)), Some(at));
        assert_eq!(end_of("a/"), b"a0");
    }
}
