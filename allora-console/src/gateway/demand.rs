//! The kinds for which workers ask, and the number of runs that they can take: the kinds and the limit of the handler.

use super::HANDLER;
use allora_core::{Handle, Pattern, Result};
use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

/// The time for which a node is still known for a kind after the last worker has asked for it, or has answered while it
/// ran one: workers are busy between two requests.
pub(super) const REMEMBERED: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
pub(super) struct Demand {
    kinds: BTreeMap<Pattern, Kind>,
    /// The number of runs for which workers wait.
    pub(super) room: usize,
    /// The number of runs whose ends the store does not have.
    pub(super) active: usize,
    set_kinds: Vec<Pattern>,
    set_limit: usize,
}

#[derive(Debug)]
struct Kind {
    /// The number of requests that wait for it.
    waiting: usize,
    until: Instant,
    /// A run came when no worker waited for it: none is claimed until one asks again.
    is_held_back: bool,
}

impl Demand {
    /// A worker waits for runs of these kinds.
    pub(super) fn wait(&mut self, kinds: &[Pattern], now: Instant) {
        for pattern in kinds {
            let new = Kind { waiting: 0, until: now, is_held_back: false };
            let kind = self.kinds.entry(pattern.clone()).or_insert(new);
            (kind.waiting, kind.is_held_back) = (kind.waiting + 1, false);
        }
    }

    /// It waits no more.
    pub(super) fn leave(&mut self, kinds: &[Pattern], now: Instant) {
        self.each(kinds, |kind| kind.waiting = kind.waiting.saturating_sub(1));
        self.touch(kinds, now);
    }

    /// A worker for these kinds has been heard.
    pub(super) fn touch(&mut self, kinds: &[Pattern], now: Instant) {
        self.each(kinds, |kind| kind.until = kind.until.max(now + REMEMBERED));
    }

    fn each(&mut self, kinds: &[Pattern], change: impl Fn(&mut Kind)) {
        for pattern in kinds {
            self.kinds.get_mut(pattern).into_iter().for_each(&change);
        }
    }

    /// No worker waits for a run of this kind.
    pub(super) fn hold_back(&mut self, kind: &str) {
        let unasked = self.kinds.iter_mut().filter(|(_, one)| one.waiting == 0);
        let those = unasked.filter(|(pattern, _)| pattern.matches(kind));
        those.for_each(|(_, one)| one.is_held_back = true);
    }

    /// Forgets the kinds for which no worker has asked for long. Returns whether there are others.
    pub(super) fn forget(&mut self, now: Instant) -> bool {
        self.kinds.retain(|_, kind| kind.waiting > 0 || kind.until > now);
        !self.kinds.is_empty()
    }

    /// Tells the node, as far as it does not know.
    ///
    /// # Errors
    /// `Invalid` for a kind that another handler of the node runs; then its kinds are those of before.
    pub(super) fn tell(&mut self, node: &Handle) -> Result {
        let limit = self.room + self.active;
        // A lower limit first, and a higher one last: no kind has the capacity of another one meanwhile.
        if limit < self.set_limit {
            node.set_kind_limit(HANDLER, limit)?;
            self.set_limit = limit;
        }
        let kinds = self.kinds.iter().filter(|(_, kind)| !kind.is_held_back);
        let kinds = kinds.map(|(pattern, _)| pattern);
        if !kinds.clone().eq(&self.set_kinds) {
            node.set_kinds(HANDLER, kinds.clone().cloned())?;
            self.set_kinds = kinds.cloned().collect();
        }
        if limit > self.set_limit {
            node.set_kind_limit(HANDLER, limit)?;
            self.set_limit = limit;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use allora_core::{Runtime, runtime::Sim};

    fn kinds(demand: &Demand) -> Vec<String> {
        let claimed = demand.kinds.iter().filter(|(_, kind)| !kind.is_held_back);
        claimed.map(|(pattern, _)| pattern.to_string()).collect()
    }

    #[test]
    fn a_kind_stays_for_a_minute_after_its_last_worker() {
        let (mut demand, now) = (Demand::default(), Sim::new(1).node().now());
        let mail = [Pattern::from_text("mail.*")];
        demand.wait(&mail, now);
        demand.wait(&mail, now);
        demand.leave(&mail, now);
        assert!(demand.forget(now + 2 * REMEMBERED), "one waits");
        demand.leave(&mail, now);
        assert!(demand.forget(now + REMEMBERED / 2));
        assert_eq!(kinds(&demand), ["mail.*"]);
        demand.touch(&mail, now + REMEMBERED / 2);
        assert!(demand.forget(now + REMEMBERED));
        assert!(!demand.forget(now + REMEMBERED * 2));
    }

    #[test]
    fn a_kind_without_a_waiting_worker_is_held_back_until_one_asks_again() {
        let (mut demand, now) = (Demand::default(), Sim::new(1).node().now());
        let (mail, report) = ([Pattern::from_text("mail.*")], [Pattern::from("report")]);
        demand.wait(&mail, now);
        demand.wait(&report, now);
        demand.leave(&mail, now);
        demand.hold_back("mail.daily");
        demand.hold_back("report");
        assert_eq!(kinds(&demand), ["report"]);
        demand.wait(&mail, now);
        assert_eq!(kinds(&demand), ["report", "mail.*"]);
    }
}
