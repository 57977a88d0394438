//! A job's register, and a server's incarnation vector.

use super::ballot::Ballot;

/// The most servers that a quorum has.
pub(crate) const MOST: usize = 5;

/// The latest known incarnation of each server.
pub(crate) type Known = [u32; MOST];

/// A server's own incarnation and those that it knows of the others, in every reply ("crash vector"
/// in Michael et al.).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct IncarnationVector {
    /// The server's own incarnation. It grows whenever the server rejoins.
    pub(crate) incarnation: u32,
    pub(crate) known: Known,
}

/// A server's state of one job.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Register<V> {
    /// Lower ballots are refused.
    pub(crate) promised: Option<Ballot>,
    /// The value that was accepted last, and its ballot.
    pub(crate) accepted: Option<(Ballot, V)>,
}

impl<V> Default for Register<V> {
    fn default() -> Self {
        Self { promised: None, accepted: None }
    }
}
