//! All nodes of a store, and what their records show together.

use super::{NodeInfo, decode};
use crate::{
    backend::{JobState, Page, Queries},
    error::Result,
    name::NODE,
    time::{Time, saturating_add},
};
use chrono::DateTime;
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// The time for which the record of a dead node is kept.
const KEPT: Duration = Duration::from_secs(24 * 60 * 60);

/// The number of records in one request.
const PAGE: usize = 500;

/// The live and recently dead nodes, ordered by id, and the records to remove.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Fleet {
    pub(crate) nodes: Vec<NodeInfo>,
    /// The names and fences of records of nodes that have been dead for a day.
    pub(crate) forgotten: Vec<(String, i64)>,
}

/// The records of the nodes.
pub(crate) async fn read_nodes(queries: &dyn Queries) -> Result<Vec<JobState>> {
    let mut states: Vec<JobState> = Vec::new();
    loop {
        let after = states.last().map(|state| state.name.clone());
        let page = Page { after: after.as_deref(), ..Page::first(PAGE).prefix(NODE) };
        let read = queries.list(page).await?;
        let is_last = read.len() < PAGE;
        states.extend(read);
        if is_last {
            return Ok(states);
        }
    }
}

impl Fleet {
    /// Reads the records, at `now` by the store's clock. One that cannot be read is left out.
    pub(crate) fn of(states: &[JobState], now: Time) -> Self {
        let mut fleet = Self::default();
        for state in states {
            let Some(node) = state.name.strip_prefix(NODE) else { continue };
            let Some(mut info) = decode(node, &state.definition) else { continue };
            let patience = info.patience();
            // Fences are drawn from the store's clock. One of the future was drawn before the clock
            // was set back, and so the node's own estimate is used.
            let drawn = DateTime::from_timestamp_micros(state.generation);
            let is_future = |at: &Time| *at > saturating_add(now, patience);
            info.last_seen = drawn.filter(|at| !is_future(at)).unwrap_or(info.last_seen);
            let is_recent =
                !is_future(&info.last_seen) && saturating_add(info.last_seen, patience) >= now;
            (info.is_live, info.is_stopping) =
                (is_recent && !info.is_stopping, is_recent && info.is_stopping);
            if !is_recent && saturating_add(info.last_seen.min(now), KEPT) <= now {
                fleet.forgotten.push((state.name.clone(), state.fence));
                continue;
            }
            fleet.nodes.push(info);
        }
        fleet
    }

    pub(crate) fn live(&self) -> impl Iterator<Item = &NodeInfo> {
        self.nodes.iter().filter(|node| node.is_live)
    }

    /// The live node that does what one node is enough for. For a while two nodes may do
    /// it: the result is the same if it is done twice.
    pub(crate) fn first(&self) -> Option<&str> {
        self.live().next().map(|node| &*node.node)
    }

    /// `true` if a live node may run this kind.
    pub(crate) fn handles(&self, kind: &str) -> bool {
        self.live().any(|node| node.handles(kind))
    }

    /// The labels that a live node needs and no live node has, each with the number of nodes that
    /// need it.
    pub(crate) fn unmatched_labels(&self) -> BTreeMap<&str, usize> {
        let has: BTreeSet<&str> =
            self.live().flat_map(|node| &node.labels).map(String::as_str).collect();
        let mut unmatched = BTreeMap::new();
        if self.live().any(|node| !node.is_complete) {
            return unmatched;
        }
        for label in self.live().flat_map(|node| &node.needed_labels) {
            if !has.contains(label.as_str()) {
                *unmatched.entry(label.as_str()).or_insert(0) += 1;
            }
        }
        unmatched
    }

    /// `true` if a live node may have a job in code of this name; a node with more jobs than its
    /// record has counts only if it keeps the job.
    pub(crate) fn declares(&self, name: &str) -> bool {
        let declares = |node: &NodeInfo| node.job_names.is_some() && node.may_declare(name);
        self.live().any(|node| node.keeps(name) || declares(node))
    }

    /// `true` if the records of the live nodes have all of their jobs in code.
    pub(crate) fn has_all_names(&self) -> bool {
        self.live().next().is_some() && self.live().all(|node| node.job_names.is_some())
    }

    /// `true` if every live node has the same jobs in code.
    pub(crate) fn has_one_set_of_jobs(&self) -> bool {
        let mut sets = self.live().map(|node| (node.jobs, node.jobs_hash));
        let first = sets.next();
        first.is_some() && sets.all(|set| Some(set) == first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        registry::{encode, name_hash},
        time::from_millis,
    };

    fn at(seconds: i64) -> Time {
        from_millis(1_000_000_000_000 + seconds * 1_000).unwrap()
    }

    /// A node that wrote its record at this second.
    fn node(name: &str, seen: i64, change: impl FnOnce(&mut NodeInfo)) -> JobState {
        let mut info = decode(name, "seen=1970-01-01T00:00:00Z heartbeat=15000").unwrap();
        info.last_seen = at(seen);
        change(&mut info);
        let mut state = JobState::empty(format!("{NODE}{name}"));
        (state.definition, state.generation) = (encode(&info), at(seen).timestamp_micros());
        state.fence = state.generation;
        state
    }

    fn live(states: &[JobState], now: i64) -> Vec<String> {
        Fleet::of(states, at(now)).live().map(|node| node.node.clone()).collect()
    }

    #[test]
    fn a_node_is_dead_after_three_missed_writes_and_forgotten_after_a_day() {
        let states = [node("a", 0, |_| {}), node("b", 60, |_| {})];
        assert_eq!(live(&states, 45), ["a", "b"]);
        assert_eq!(live(&states, 46), ["b"]);
        let fleet = Fleet::of(&states, at(86_400));
        assert_eq!((fleet.nodes.len(), fleet.forgotten.len()), (1, 1));
        assert_eq!((fleet.nodes[0].is_live, fleet.nodes[0].last_seen), (false, at(60)));
        assert_eq!(fleet.forgotten[0].0, format!("{NODE}a"));
    }

    #[test]
    fn a_node_that_stops_is_not_live_and_not_dead_while_it_writes() {
        let states = [node("a", 0, |info| info.is_stopping = true), node("b", 0, |_| {})];
        let of = |now| {
            let fleet = Fleet::of(&states[..1], at(now));
            let node = &fleet.nodes[0];
            (node.is_live, node.is_stopping, node.is_dead())
        };
        assert_eq!((of(45), of(46)), ((false, true, false), (false, false, true)));
        assert_eq!(live(&states, 0), ["b"]);
    }

    #[test]
    fn a_clock_that_is_set_back_by_an_hour_kills_no_live_node_and_revives_no_dead_one() {
        let wrote_before = node("dead", 3_600, |_| {});
        // The fence of a write after the jump is still that of the time before it.
        let mut wrote_after = node("live", 3_600, |_| {});
        wrote_after.definition = node("live", 10, |_| {}).definition;
        assert_eq!(live(&[wrote_before, wrote_after], 20), ["live"]);
    }

    #[test]
    fn a_label_is_unmatched_if_a_live_node_needs_it_and_none_has_it() {
        let states = [
            node("a", 0, |info| info.needed_labels = vec!["gpu".into(), "tape".into()]),
            node("b", 0, |info| info.labels = vec!["gpu".into()]),
            node("c", -60, |info| info.labels = vec!["tape".into()]),
        ];
        let fleet = Fleet::of(&states, at(0));
        assert_eq!(fleet.unmatched_labels(), BTreeMap::from([("tape", 1)]));
    }

    #[test]
    fn a_job_is_declared_by_the_record_of_a_live_node() {
        let names = |names: &[&str]| Some(names.iter().map(|name| name_hash(name)).collect());
        let states = [
            node("a", 0, |info| info.job_names = names(&["x", "y"])),
            node("b", 0, |info| info.job_names = names(&["y", "z"])),
            node("c", -60, |info| info.job_names = names(&["old"])),
        ];
        let fleet = Fleet::of(&states, at(0));
        let declared = ["x", "y", "z", "old", "w"].map(|name| fleet.declares(name));
        assert_eq!((declared, fleet.has_all_names()), ([true, true, true, false, false], true));
        let large = [&states[..], &[node("d", 0, |info| info.job_names = None)]].concat();
        let fleet = Fleet::of(&large, at(0));
        assert!(!fleet.has_all_names() && !fleet.declares("w"));
        assert!(fleet.nodes.iter().any(|node| node.may_declare("w")));
        // What a node keeps without running it is declared, even if it has more jobs than that.
        let keeper = node("e", 0, |info| {
            (info.job_names, info.kept_names) = (None, vec![name_hash("w")]);
            info.kept_prefixes = vec!["bad:".into()];
        });
        let fleet = Fleet::of(&[&states[..], &[keeper]].concat(), at(0));
        let declared = ["w", "bad:v", "bad"].map(|name| fleet.declares(name));
        assert_eq!(declared, [true, true, false]);
    }

    #[test]
    fn nodes_with_other_jobs_are_other_builds() {
        let jobs = |hash: u64| move |info: &mut NodeInfo| (info.jobs, info.jobs_hash) = (2, hash);
        let states = [node("a", 0, jobs(1)), node("b", 0, jobs(1)), node("c", -60, jobs(2))];
        assert!(Fleet::of(&states, at(0)).has_one_set_of_jobs());
        assert!(!Fleet::of(&states, at(-20)).has_one_set_of_jobs());
        assert!(!Fleet::default().has_one_set_of_jobs());
    }
}
