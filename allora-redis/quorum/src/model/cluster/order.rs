//! States that differ only in the order of their servers are one.

use super::{Cluster, Phase, Read, Rejoin};
use crate::{
    proposer::Reply,
    register::{IncarnationVector, MOST},
};
use std::hash::{DefaultHasher, Hash, Hasher};

impl Cluster {
    /// The same state with its servers in an order that depends on their state only: their numbers
    /// make no difference.
    pub(in super::super) fn in_order(&self) -> Self {
        let print = |at: usize| {
            let mut hasher = DefaultHasher::new();
            let server = &self.servers[at];
            server.vector.map(in_any_order).hash(&mut hasher);
            (&server.registers, server.draft).hash(&mut hasher);
            for (_, copy) in self.copied.iter().filter(|(of, _)| *of == at) {
                copy.vector.map(in_any_order).hash(&mut hasher);
                (&copy.registers, copy.draft).hash(&mut hasher);
            }
            for proposer in &self.proposers {
                match &proposer.phase {
                    Phase::Idle => {}
                    Phase::Preparing(replies) => body(replies, at).hash(&mut hasher),
                    Phase::Accepting { replies, .. } => body(replies, at).hash(&mut hasher),
                }
            }
            for rejoin in &self.rejoins {
                match rejoin {
                    Rejoin::Idle | Rejoin::Over => {}
                    Rejoin::Reading { k, replies, .. } | Rejoin::Noting { k, replies, .. } => {
                        (*k == at, body(replies, at)).hash(&mut hasher);
                    }
                    Rejoin::Scanning { k, of, replies, .. } => {
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
        let mut cluster = self.clone();
        cluster.servers = order.iter().map(|at| self.servers[*at].clone()).collect();
        for server in &mut cluster.servers {
            server.vector.iter_mut().for_each(|vector| renumber_vector(vector, order));
        }
        for (of, copy) in &mut cluster.copied {
            *of = places[*of];
            copy.vector.iter_mut().for_each(|vector| renumber_vector(vector, order));
        }
        for proposer in &mut cluster.proposers {
            match &mut proposer.phase {
                Phase::Idle => {}
                Phase::Preparing(replies) => renumber(replies, order, places),
                Phase::Accepting { replies, .. } => renumber(replies, order, places),
            }
        }
        for rejoin in &mut cluster.rejoins {
            match rejoin {
                Rejoin::Idle | Rejoin::Over => {}
                Rejoin::Reading { k, replies, .. } | Rejoin::Noting { k, replies, .. } => {
                    *k = places[*k];
                    renumber(replies, order, places);
                }
                Rejoin::Scanning { k, of, replies, .. } => {
                    *k = places[*k];
                    renumber(of, order, places);
                    renumber(replies, order, places);
                }
            }
        }
        for read in &mut cluster.reads {
            if let Read::Reading { replies, .. } = read {
                renumber(replies, order, places);
            }
        }
        for sent in [&mut cluster.notes, &mut cluster.raises] {
            sent.iter_mut().for_each(|(k, _)| *k = places[*k]);
            sent.sort_unstable();
        }
        cluster
    }
}

fn body<T>(replies: &[Reply<T>], at: usize) -> Option<(IncarnationVector, &T)> {
    let reply = replies.iter().find(|reply| reply.from == at)?;
    Some((in_any_order(reply.vector), &reply.body))
}

/// The vector without the numbers of the servers.
fn in_any_order(mut vector: IncarnationVector) -> IncarnationVector {
    vector.known.sort_unstable();
    vector
}

fn renumber<T>(replies: &mut [Reply<T>], order: &[usize], places: &[usize; MOST]) {
    for reply in replies.iter_mut() {
        reply.from = places[reply.from];
        renumber_vector(&mut reply.vector, order);
    }
    replies.sort_by_key(|reply| reply.from);
}

fn renumber_vector(vector: &mut IncarnationVector, order: &[usize]) {
    let known = vector.known;
    for (place, at) in order.iter().enumerate() {
        vector.known[place] = known[*at];
    }
}
