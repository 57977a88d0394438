//! What one server does with a message, as pure functions.
//!
//! Servers do it as Lua scripts; that these and those are the same is proved by comparing them over
//! random messages. The model searches with what is here.

use super::{
    ballot::Ballot,
    register::{Register, Seal},
};
use std::collections::BTreeMap;

impl<V: Clone> Register<V> {
    /// Promises to accept nothing below this ballot, unless it has promised as much already.
    /// Answers with what was there before: the promise is given if that one's was lower.
    pub(crate) fn prepare(&mut self, ballot: Ballot) -> Self {
        let before = self.clone();
        self.promised = self.promised.max(Some(ballot));
        before
    }

    /// Accepts, unless a higher ballot was promised. Answers with what was promised before: it is
    /// accepted if that is not higher.
    pub(crate) fn accept(&mut self, ballot: Ballot, value: V) -> Option<Ballot> {
        let before = self.promised;
        if before <= Some(ballot) {
            self.promised = Some(ballot);
            self.accepted = Some((ballot, value));
        }
        before
    }

    /// Takes over what another server knows.
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
    /// `None`: it is blank, and votes for nothing.
    pub(crate) seal: Option<Seal>,
    /// Who is filling it, while it is blank.
    pub(crate) draft: Option<u64>,
    pub(crate) registers: BTreeMap<K, Register<V>>,
}

impl<K: Ord + Clone, V: Clone> Acceptor<K, V> {
    /// A server that remembers nothing.
    pub(crate) fn blank() -> Self {
        Self { seal: None, draft: None, registers: BTreeMap::new() }
    }

    /// Reads one register, and changes nothing. `None`, here and below: it is blank.
    pub(crate) fn peek(&self, key: &K) -> Option<(Seal, Register<V>)> {
        Some((self.seal?, self.registers.get(key).cloned().unwrap_or_default()))
    }

    /// See [`Register::prepare`].
    pub(crate) fn prepare(&mut self, key: &K, ballot: Ballot) -> Option<(Seal, Register<V>)> {
        Some((self.seal?, self.register(key).prepare(ballot)))
    }

    /// See [`Register::accept`].
    pub(crate) fn accept(
        &mut self,
        key: &K,
        ballot: Ballot,
        value: V,
    ) -> Option<(Seal, Option<Ballot>)> {
        Some((self.seal?, self.register(key).accept(ballot, value)))
    }

    /// Hears that server `k` is about to begin this life.
    pub(crate) fn note(&mut self, k: usize, incarnation: u32) -> Option<Seal> {
        let seal = self.seal.as_mut()?;
        seal.known[k] = seal.known[k].max(incarnation);
        Some(*seal)
    }

    /// Throws away what a blank server still has, and lets `token` fill it, and nobody who began
    /// before. False if it is not blank.
    pub(crate) fn draft(&mut self, token: u64) -> bool {
        if self.seal.is_none() {
            *self = Self { draft: Some(token), ..Self::blank() };
        }
        self.seal.is_none()
    }

    /// Fills a register of a blank server. False if somebody else has begun to since, or it has
    /// forgotten since.
    pub(crate) fn fill(&mut self, token: u64, key: &K, register: Register<V>) -> bool {
        let mine = self.seal.is_none() && self.draft == Some(token);
        if mine {
            self.register(key).absorb(register);
        }
        mine
    }

    /// Lets a blank server that was filled vote from now on. False as in [`fill`](Self::fill).
    pub(crate) fn admit(&mut self, token: u64, seal: Seal) -> bool {
        let mine = self.seal.is_none() && self.draft == Some(token);
        if mine {
            (self.seal, self.draft) = (Some(seal), None);
        }
        mine
    }

    fn register(&mut self, key: &K) -> &mut Register<V> {
        self.registers.entry(key.clone()).or_default()
    }
}
