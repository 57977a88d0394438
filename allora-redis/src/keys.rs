//! The names of keys.
//!
//! All keys of a shard have one hash tag, so that a cluster keeps them together and one script may
//! touch them. The tag is first in the key and has no brace in it, and a job's name is last: no name
//! can change the tag or equal another key.
//!
//! Each part of the records is one hash for each shard, so that a script reads or writes it by one
//! command for a whole batch: one command for each job was most of the server's work. A leased
//! record is in the due index at the end of its lease, so an expired lease needs no search of its
//! own.

/// The keys of one installation.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    pub(crate) prefix: String,
    pub(crate) shards: u32,
}

impl Keys {
    /// A hash: the settings of the whole installation.
    pub(crate) fn meta(&self) -> String {
        format!("{{{}}}:meta", self.prefix)
    }

    /// The channel of the notifications.
    pub(crate) fn notifications(&self) -> String {
        format!("{}:notifications", self.prefix)
    }

    /// The command that gives a user what nodes and clients need. Scripts need the rights for their commands as well.
    pub(crate) fn grant(&self, user: &str) -> String {
        let (meta, channel) = (self.meta(), self.notifications());
        let keys = match self.shards {
            1 => format!("~{{{}}}:*", self.prefix),
            _ => format!("~{meta} ~{{{}:*}}:*", self.prefix),
        };
        format!(
            "ACL SETUSER {user} on >PASSWORD {keys} &{channel} +@read +@write +@scripting +@pubsub \
             +@connection -@dangerous +info +time +wait +cluster|slots"
        )
    }

    /// The shard of a job: the same on every node and for ever, because the job is stored there.
    pub(crate) fn shard_of(&self, name: &str) -> u32 {
        u32::try_from(hash(name.as_bytes()) % u64::from(self.shards)).unwrap_or(0)
    }

    pub(crate) fn shard(&self, i: u32) -> Shard {
        let tag = match self.shards {
            1 => format!("{{{}}}", self.prefix),
            _ => format!("{{{}:{i}}}", self.prefix),
        };
        Shard { tag }
    }

    /// All shards.
    pub(crate) fn all(&self) -> impl Iterator<Item = (u32, Shard)> + '_ {
        (0..self.shards).map(|i| (i, self.shard(i)))
    }
}

/// The keys of one shard.
#[derive(Clone, Debug)]
pub(crate) struct Shard {
    tag: String,
}

impl Shard {
    /// A hash: the id by which an emptied shard is detected, and its lowest fence.
    pub(crate) fn state(&self) -> String {
        format!("{}:state", self.tag)
    }

    /// A hash of the hot records of all jobs by name. One command reads or writes those of a whole
    /// batch.
    pub(crate) fn hot(&self) -> String {
        format!("{}:hot", self.tag)
    }

    /// A sorted set of all names, for lists; tombstones are not in it.
    pub(crate) fn names(&self) -> String {
        format!("{}:names", self.tag)
    }

    /// A sorted set of tombstones by the time at which they may be removed.
    pub(crate) fn tombstones(&self) -> String {
        format!("{}:tombstones", self.tag)
    }

    /// The history: a sorted set of the names of entries by their fence.
    pub(crate) fn history(&self) -> String {
        format!("{}:history", self.tag)
    }

    /// The entries of one job that are no failures: a sorted set as [`history`](Self::history).
    pub(crate) fn history_of(&self, name: &str) -> String {
        format!("{}:history:{name}", self.tag)
    }

    /// The failures of one job: a sorted set as [`history`](Self::history).
    pub(crate) fn failures_of(&self, name: &str) -> String {
        format!("{}:failures:{name}", self.tag)
    }

    /// The history: a hash of the entries by their names.
    pub(crate) fn history_entries(&self) -> String {
        format!("{}:entries", self.tag)
    }

    /// The changes by clients: a sorted set as [`history`](Self::history).
    pub(crate) fn changes(&self) -> String {
        format!("{}:changes", self.tag)
    }

    /// The changes of one job: a sorted set as [`history`](Self::history).
    pub(crate) fn changes_of(&self, name: &str) -> String {
        format!("{}:changes:{name}", self.tag)
    }

    /// The changes by clients: a hash of them by their places.
    pub(crate) fn change_entries(&self) -> String {
        format!("{}:change_entries", self.tag)
    }

    /// A sorted set of the names of one kind by the time at which they want attention.
    pub(crate) fn due(&self, kind: &str) -> String {
        format!("{}:due:{kind}", self.tag)
    }

    /// The id of the last query by which this node has claimed jobs, and their names, packed.
    pub(crate) fn claimed_by(&self, node: &str) -> String {
        format!("{}:claimed:{node}", self.tag)
    }

    /// A set of the kinds in the due index; those that are there no more are forgotten when it is read.
    pub(crate) fn kinds(&self) -> String {
        format!("{}:kinds", self.tag)
    }

    /// The jobs with a flag: a sorted set of their names.
    pub(crate) fn flag(&self, key: &str) -> String {
        format!("{}:flag:{key}", self.tag)
    }

    /// A set of the flags that jobs have, or have had.
    pub(crate) fn flags(&self) -> String {
        format!("{}:flags", self.tag)
    }

    /// A hash of kind, definition and data of all jobs by name.
    pub(crate) fn definitions(&self) -> String {
        format!("{}:definitions", self.tag)
    }

    /// A hash of what few records have: pauses, triggers, retries, failures.
    pub(crate) fn rare(&self) -> String {
        format!("{}:rare", self.tag)
    }

    /// A hash of the dead letters and remembered triggers of the jobs that have some.
    pub(crate) fn cold(&self) -> String {
        format!("{}:cold", self.tag)
    }

    /// The keys with which the scripts begin that read or write whole records.
    pub(crate) fn records(&self) -> [String; 5] {
        [self.state(), self.hot(), self.definitions(), self.rare(), self.cold()]
    }
}

/// FNV-1a over 64 bits (Fowler, Noll, Vo), folded by the finaliser of MurmurHash3, because its low
/// bits alone are weak.
fn hash(bytes: &[u8]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in bytes {
        hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ (hash >> 33)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(shards: u32) -> Keys {
        Keys { prefix: "p".into(), shards }
    }

    #[test]
    fn a_jobs_shard_never_changes() {
        let of = |name| keys(16).shard_of(name);
        assert_eq!(["a", "b", "report", "🧾"].map(of), [11, 0, 4, 11]);
        assert_eq!(keys(1).shard_of("a"), 0);
    }

    #[test]
    fn names_are_spread() {
        let mut counts = [0; 8];
        for i in 0..8_000 {
            counts[keys(8).shard_of(&format!("job-{i}")) as usize] += 1;
        }
        assert!(counts.iter().all(|count| (800..1_200).contains(count)), "{counts:?}");
    }

    #[test]
    fn a_name_does_not_change_the_tag() {
        let shard = keys(1).shard(0);
        for name in ["{}", "{x}", "}", "{", ":names", "*"] {
            let key = shard.due(name);
            let tag = key.find('}').map(|end| &key[1..end]);
            assert!(key.starts_with('{') && tag == Some("p"), "{key}");
        }
        assert_eq!(keys(4).shard(2).due("a"), "{p:2}:due:a");
    }
}
