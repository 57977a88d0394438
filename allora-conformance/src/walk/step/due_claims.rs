//! The step of a query that claims.

use super::{NAMES, Walker, Won};
use crate::{
    cluster::fine,
    random::Random,
    walk::pair::{Observed, same},
};
use allora_core::{
    backend::{ClaimDue, Claimed, JobState, Reply, TimeSource},
    record::due_claim,
};
use chrono::TimeDelta;
use std::collections::BTreeSet;

impl Walker {
    /// The reference claims what the store has claimed: a store may claim less than it could.
    pub(super) async fn claim_due(&mut self, random: &mut Random) -> Result<(), String> {
        let node = self.nodes[random.below(2) as usize].clone();
        if !node.queries().claims_due() {
            return Ok(());
        }
        let kinds: &[&str] = [&["mail"][..], &["mail", "sms", ""]][random.below(2) as usize];
        let repeated = self.queried.clone().filter(|_| random.one_in(4));
        let is_repeated = repeated.is_some();
        let (node, claim_id, kinds) = repeated.unwrap_or_else(|| {
            self.claims += 1;
            (node, self.claims, kinds)
        });
        self.queried = Some((node.clone(), claim_id, kinds));
        let mut query = ClaimDue::new(&node.id, claim_id, kinds, random.below(4) as usize);
        query.is_repeated = is_repeated;
        if random.one_in(8) {
            query.not_after = Some(self.now - TimeDelta::seconds(random.below(2) as i64));
        }
        self.tell(format!("{} {query:?}", node.id));
        let time = TimeSource::Fixed(self.now);
        let mut store = fine(node.queries().claim_due(query, time).await).claimed;
        let names: BTreeSet<String> = store.iter().map(|(state, _)| state.name.clone()).collect();
        let mut reference = self.reference.claim_due(query, self.now, |state, claim_id| {
            due_claim(state, claim_id).filter(|_| names.contains(&state.name))
        });
        for claimed in [&mut store, &mut reference.claimed] {
            claimed.sort_by(|a, b| a.0.name.cmp(&b.0.name));
            // Dead letters may be missing.
            claimed.iter_mut().for_each(|(state, _)| state.dead.clear());
        }
        for ((state, store), (_, reference)) in store.iter().zip(&reference.claimed) {
            let name = NAMES.iter().find(|name| **name == state.name);
            self.won.extend(name.map(|name| Won {
                name,
                occurrence: reference.occurrence.clone(),
                store: store.fence,
                reference: reference.fence,
            }));
        }
        let observed = |claimed: Vec<(JobState, Claimed)>| {
            let replies = claimed.into_iter().flat_map(|(state, claimed)| {
                [Ok(Reply::State(Box::new(state))), Ok(Reply::Claimed(claimed))]
            });
            Observed::Replies(self.now, replies.collect())
        };
        same(observed(store), observed(reference.claimed), self.exactness)
    }
}
