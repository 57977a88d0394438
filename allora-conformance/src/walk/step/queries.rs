//! Pages of jobs, and searches for due ones.

use super::{NAMES, Observed, Walker, same};
use crate::{cluster::fine, random::Random};
use allora_core::backend::{Due, DueQuery, JobState, Page, TimeSource};
use chrono::TimeDelta;
use std::collections::BTreeSet;

impl Walker {
    pub(super) async fn list(&mut self, random: &mut Random) -> Result<(), String> {
        let mut page = Page::first(1 + random.below(3) as usize);
        if random.one_in(2) {
            page = page.after(NAMES[random.below(2) as usize]);
        }
        if random.one_in(3) {
            page = page.kind("mail");
        }
        if random.one_in(4) {
            page = Page::first(3).prefix("allora:key:");
        }
        self.tell(format!("list {page:?}"));
        let store = fine(self.nodes[0].queries().list(page).await);
        let reference = self.reference.list(page);
        same(Observed::States(store), Observed::States(reference), self.exactness)
    }

    pub(super) async fn find(&mut self, random: &mut Random) -> Result<(), String> {
        let kinds: &[&str] =
            [&["mail"][..], &["mail", "sms", ""], &["", "sms"]][random.below(3) as usize];
        let until = self.now + TimeDelta::milliseconds(random.below(90_000) as i64);
        let query = DueQuery::new(kinds, until, random.below(4) as usize);
        self.tell(format!("find {query:?}"));
        let time = TimeSource::Fixed(self.now);
        let store = fine(self.nodes[0].queries().find_due(query, time).await);
        let mut reference = self.reference.find_due(query, self.now);
        // Of equal times, any first, and in any order.
        let at = |state: &JobState| self.reference.record(&state.name)?.index_at();
        let times = |due: &Due| due.found.iter().map(at).collect::<Vec<_>>();
        let names: BTreeSet<&str> = store.found.iter().map(|state| &*state.name).collect();
        if times(&store) == times(&reference) && names.len() == store.found.len() {
            let found = store.found.iter().filter_map(|state| self.reference.get(&state.name));
            reference.found = found.filter(|state| kinds.contains(&&*state.kind)).collect();
        }
        same(store, reference, self.exactness)
    }
}
