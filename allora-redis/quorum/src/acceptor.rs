//! A server's answers to messages, as pure functions.
//!
//! Real servers run them as Lua scripts. `differential` compares both over random messages. The
//! model searches with these functions.

use super::{
    ballot::Ballot,
    register::{IncarnationVector, Register},
};
use std::collections::BTreeMap;

impl<V: Clone> Register<V> {
    /// Promises to accept nothing below this ballot, unless a higher or equal one was promised.
    /// Returns the state before: the promise is given if the earlier one was lower.
    pub(crate) fn prepare(&mut self, ballot: Ballot) -> Self {
        let before = self.clone();
        self.promised = self.promised.max(Some(ballot));
        before
    }

    /// Accepts, unless a higher ballot was promised. Returns the earlier promise: the value is
    /// accepted if that is not higher.
    pub(crate) fn accept(&mut self, ballot: Ballot, value: V) -> Option<Ballot> {
        let before = self.promised;
        if before <= Some(ballot) {
            self.promised = Some(ballot);
            self.accepted = Some((ballot, value));
        }
        before
    }

    /// Merges the state of another server.
    pub(crate) fn absorb(&mut self, other: Self) {
        self.promised = self.promised.max(other.promised);
        let ballot = |accepted: &Option<(Ballot, V)>| accepted.as_ref().map(|(ballot, _)| *ballot);
        if ballot(&self.accepted) < ballot(&other.accepted) {
            self.accepted = other.accepted;
        }
    }
}

/// One server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Acceptor<K, V> {
    /// `None`: the server is empty, and does not vote.
    pub(crate) vector: Option<IncarnationVector>,
    /// The token of the node that fills it, while it is empty.
    pub(crate) draft: Option<u64>,
    pub(crate) registers: BTreeMap<K, Register<V>>,
}

impl<K: Ord + Clone, V: Clone> Acceptor<K, V> {
    /// A server without any state.
    pub(crate) fn empty() -> Self {
        Self { vector: None, draft: None, registers: BTreeMap::new() }
    }

    /// Replication replaces the state by a copy of another time. The copy may be of this very server,
    /// but what it has promised and accepted since is lost: it is empty.
    pub(crate) fn load(&mut self, copy: Self) {
        *self = Self { vector: None, ..copy };
    }

    /// Reads one register, and changes nothing. `None`, here and below: the server is empty.
    pub(crate) fn peek(&self, key: &K) -> Option<(IncarnationVector, Register<V>)> {
        Some((self.vector?, self.registers.get(key).cloned().unwrap_or_default()))
    }

    /// See [`Register::prepare`].
    pub(crate) fn prepare(
        &mut self,
        key: &K,
        ballot: Ballot,
    ) -> Option<(IncarnationVector, Register<V>)> {
        Some((self.vector?, self.register(key).prepare(ballot)))
    }

    /// See [`Register::accept`].
    pub(crate) fn accept(
        &mut self,
        key: &K,
        ballot: Ballot,
        value: V,
    ) -> Option<(IncarnationVector, Option<Ballot>)> {
        Some((self.vector?, self.register(key).accept(ballot, value)))
    }

    /// Stores that server `k` is about to begin this incarnation.
    pub(crate) fn note(&mut self, k: usize, incarnation: u32) -> Option<IncarnationVector> {
        let vector = self.vector.as_mut()?;
        vector.known[k] = vector.known[k].max(incarnation);
        Some(*vector)
    }

    /// Lets server `k`, this one, continue as this incarnation, with what it has, if its own is lower.
    /// The others must have stored that incarnation before.
    pub(crate) fn raise(&mut self, k: usize, incarnation: u32) -> Option<IncarnationVector> {
        let vector = self.vector.as_mut()?;
        vector.incarnation = vector.incarnation.max(incarnation);
        vector.known[k] = vector.known[k].max(vector.incarnation);
        Some(*vector)
    }

    /// Drops the remains on an empty server, and lets `token` fill it, and no token before it.
    /// False if the server is not empty.
    pub(crate) fn draft(&mut self, token: u64) -> bool {
        if self.vector.is_none() {
            *self = Self { draft: Some(token), ..Self::empty() };
        }
        self.vector.is_none()
    }

    /// Fills a register of an empty server. False if another token has begun since, or the server
    /// has forgotten since.
    pub(crate) fn fill(&mut self, token: u64, key: &K, register: Register<V>) -> bool {
        let mine = self.vector.is_none() && self.draft == Some(token);
        if mine {
            self.register(key).absorb(register);
        }
        mine
    }

    /// Lets an empty server that was filled vote from now on. False as in [`fill`](Self::fill).
    pub(crate) fn rejoin(&mut self, token: u64, vector: IncarnationVector) -> bool {
        let mine = self.vector.is_none() && self.draft == Some(token);
        if mine {
            (self.vector, self.draft) = (Some(vector), None);
        }
        mine
    }

    fn register(&mut self, key: &K) -> &mut Register<V> {
        self.registers.entry(key.clone()).or_default()
    }
}
