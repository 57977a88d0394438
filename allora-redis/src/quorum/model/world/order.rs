//! Worlds that differ in the order of their servers only are one.

use super::{Admission, Phase, Read, World};
use crate::quorum::{
    proposer::Reply,
    register::{MOST, Seal},
};
use std::hash::{DefaultHasher, Hash, Hasher};

impl World {
    /// The same state with its servers in an order of their own: which is the first makes no
    /// difference.
    pub(in super::super) fn in_order(&self) -> Self {
        let print = |at: usize| {
            let mut hasher = DefaultHasher::new();
            let server = &self.servers[at];
            server.seal.map(|seal| seal.incarnation).hash(&mut hasher);
            (&server.registers, server.draft).hash(&mut hasher);
            for proposer in &self.proposers {
                match &proposer.phase {
                    Phase::Idle => {}
                    Phase::Preparing(replies) => body(replies, at).hash(&mut hasher),
                    Phase::Accepting { replies, .. } => body(replies, at).hash(&mut hasher),
                }
            }
            for admission in &self.admissions {
                match admission {
                    Admission::Idle | Admission::Over => {}
                    Admission::Reading { k, replies } | Admission::Noting { k, replies, .. } => {
                        (*k == at, body(replies, at)).hash(&mut hasher);
                    }
                    Admission::Scanning { k, of, replies, .. } => {
                        (*k == at, body(of, at), body(replies, at)).hash(&mut hasher);
                    }
                }
            }
            for read in &self.reads {
                if let Read::Reading { replies, .. } = read {
                    body(replies, at).hash(&mut hasher);
                }
            }
            hasher.finish()
        };
        let mut order: Vec<usize> = (0..self.servers.len()).collect();
        order.sort_by_cached_key(|at| print(*at));
        let mut places = [0; MOST];
        for (place, at) in order.iter().enumerate() {
            places[*at] = place;
        }
        self.renumbered(&order, &places)
    }

    fn renumbered(&self, order: &[usize], places: &[usize; MOST]) -> Self {
        let mut world = self.clone();
        world.servers = order.iter().map(|at| self.servers[*at].clone()).collect();
        for server in &mut world.servers {
            server.seal.iter_mut().for_each(|seal| renumber_seal(seal, order));
        }
        for proposer in &mut world.proposers {
            match &mut proposer.phase {
                Phase::Idle => {}
                Phase::Preparing(replies) => renumber(replies, order, places),
                Phase::Accepting { replies, .. } => renumber(replies, order, places),
            }
        }
        for admission in &mut world.admissions {
            match admission {
                Admission::Idle | Admission::Over => {}
                Admission::Reading { k, replies } | Admission::Noting { k, replies, .. } => {
                    *k = places[*k];
                    renumber(replies, order, places);
                }
                Admission::Scanning { k, of, replies, .. } => {
                    *k = places[*k];
                    renumber(of, order, places);
                    renumber(replies, order, places);
                }
            }
        }
        for read in &mut world.reads {
            if let Read::Reading { replies, .. } = read {
                renumber(replies, order, places);
            }
        }
        for (k, _) in &mut world.notes {
            *k = places[*k];
        }
        world.notes.sort_unstable();
        world
    }
}

fn body<T>(replies: &[Reply<T>], at: usize) -> Option<(u32, &T)> {
    let reply = replies.iter().find(|reply| reply.from == at)?;
    Some((reply.seal.incarnation, &reply.body))
}

fn renumber<T>(replies: &mut [Reply<T>], order: &[usize], places: &[usize; MOST]) {
    for reply in replies.iter_mut() {
        reply.from = places[reply.from];
        renumber_seal(&mut reply.seal, order);
    }
    replies.sort_by_key(|reply| reply.from);
}

fn renumber_seal(seal: &mut Seal, order: &[usize]) {
    let known = seal.known;
    for (place, at) in order.iter().enumerate() {
        seal.known[place] = known[*at];
    }
}
