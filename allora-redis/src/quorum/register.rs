//! What servers keep of a job, and what they say of themselves.

use super::ballot::Ballot;

/// The most servers that a quorum has.
pub(crate) const MOST: usize = 5;

/// Of each server, the latest life that somebody has heard of.
pub(crate) type Known = [u32; MOST];

/// What every reply says of the server that gave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Seal {
    /// Which life the server is in: it grows whenever it had forgotten and was admitted again.
    pub(crate) incarnation: u32,
    pub(crate) known: Known,
}

/// What a server keeps of one job.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Register<V> {
    /// No lower ballot is accepted.
    pub(crate) promised: Option<Ballot>,
    /// What was accepted last.
    pub(crate) accepted: Option<(Ballot, V)>,
}

impl<V> Default for Register<V> {
    fn default() -> Self {
        Self { promised: None, accepted: None }
    }
}
