//! The active conditions of a node, and the events of their beginnings and ends.
//!
//! Events and health come from this set alone, so they never contradict each other.

use crate::{
    condition::{ActiveCondition, Code, Condition, FailingPart, StorePart},
    event::Event,
    time::Time,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Instant,
};

/// The conditions, by their sort and by what they are about.
type ByCode = BTreeMap<(Code, String), Arc<ActiveCondition>>;

#[derive(Debug, Default)]
pub(in crate::scheduler) struct Active {
    conditions: ByCode,
    /// The parts whose requests fail, and whether the store rejects them.
    failing: Vec<(FailingPart, bool)>,
    /// The last end of an outage.
    recovered_at: Option<Instant>,
}

/// A failure of a request: the state that it shows, its time, and its error as text.
pub(in crate::scheduler) struct Failure {
    /// The store has replied, so it is not down for the other parts, either.
    pub(in crate::scheduler) is_rejected: bool,
    pub(in crate::scheduler) at: Time,
    pub(in crate::scheduler) error: String,
    /// The earliest time at which the request can have been sent.
    pub(in crate::scheduler) sent: Instant,
}

impl Active {
    /// Applies what an event says. `None` if that is so already; its evidence may be newer.
    pub(in crate::scheduler) fn apply(&mut self, event: Event, now: Time) -> Option<Event> {
        match event {
            Event::Began(condition) => self.begin(condition, now),
            Event::Ended(condition) => self.end(condition.kind(), name(&condition)),
            event => Some(event),
        }
    }

    fn begin(&mut self, condition: Condition, now: Time) -> Option<Event> {
        let key = (condition.kind(), name(&condition).to_owned());
        let before = self.conditions.get(&key);
        let is_new = before.is_none();
        let since = before.map_or(now, |before| before.since);
        let since = condition.since().unwrap_or(since);
        let event = is_new.then(|| Event::Began(condition.clone()));
        self.conditions.insert(key, Arc::new(ActiveCondition { condition, since }));
        event
    }

    /// Ends a condition of this sort about this name.
    pub(in crate::scheduler) fn end(&mut self, code: Code, name: &str) -> Option<Event> {
        let ended = self.conditions.remove(&(code, name.to_owned()))?;
        Some(Event::Ended(Arc::unwrap_or_clone(ended).condition))
    }

    /// Makes these the conditions of their sort: the others end.
    pub(in crate::scheduler) fn set(
        &mut self,
        code: Code,
        conditions: impl IntoIterator<Item = Condition>,
        now: Time,
    ) -> Vec<Event> {
        let conditions: Vec<Condition> = conditions.into_iter().collect();
        let names: BTreeSet<&str> = conditions.iter().map(name).collect();
        let gone = self.of(code).map(|one| name(&one.condition)).filter(|of| !names.contains(of));
        let gone: Vec<String> = gone.map(str::to_owned).collect();
        let mut events: Vec<Event> = gone.iter().filter_map(|of| self.end(code, of)).collect();
        events.extend(conditions.into_iter().filter_map(|one| self.begin(one, now)));
        events
    }

    /// Ends the conditions of a job.
    pub(in crate::scheduler) fn end_job(&mut self, job: &str) -> Vec<Event> {
        let is_of_job =
            |code: &&Code| self.get(**code, job).is_some_and(|one| one.condition.job().is_some());
        let codes: Vec<&Code> = Code::ALL.iter().filter(is_of_job).collect();
        codes.into_iter().filter_map(|code| self.end(*code, job)).collect()
    }

    /// The conditions, in their order.
    pub(in crate::scheduler) fn all(&self) -> impl Iterator<Item = &Arc<ActiveCondition>> {
        self.conditions.values()
    }

    /// The conditions of this sort, by the name that they are about.
    pub(in crate::scheduler) fn of(
        &self,
        code: Code,
    ) -> impl Iterator<Item = &Arc<ActiveCondition>> {
        let from = self.conditions.range((code, String::new())..);
        from.take_while(move |((other, _), _)| *other == code).map(|(_, one)| one)
    }

    /// The condition of this sort about this name.
    pub(in crate::scheduler) fn get(&self, code: Code, name: &str) -> Option<&ActiveCondition> {
        self.conditions.get(&(code, name.to_owned())).map(|one| &**one)
    }

    /// `true` if a condition other than `overdue` keeps this job from running.
    pub(in crate::scheduler) fn explains(&self, job: &str) -> bool {
        const REASONS: [Code; 5] = [
            Code::RecordUnreadable,
            Code::DefinitionConflict,
            Code::JobInvalid,
            Code::JobDeleted,
            Code::ClockWasAhead,
        ];
        REASONS.iter().any(|code| self.get(*code, job).is_some())
    }

    /// Sets the state for a part of the node at `now`: its request has failed, or was answered.
    pub(in crate::scheduler) fn set_store(
        &mut self,
        part: StorePart,
        failure: Option<Failure>,
        now: Instant,
    ) -> Vec<Event> {
        let before = self.failing.iter().position(|(failing, _)| failing.part == part);
        let at = match (before, failure) {
            (None, None) => return Vec::new(),
            // The end of an outage, probably. The other parts report what they find next.
            (Some(_), None) => {
                self.failing.clear();
                self.recovered_at = Some(now);
                None
            }
            // A request that was sent during an outage says nothing about the time after it.
            (_, Some(failure))
                if !failure.is_rejected && Some(failure.sent) < self.recovered_at =>
            {
                return Vec::new();
            }
            (before, Some(Failure { is_rejected, at, error, .. })) => {
                let since = before.map_or(at, |i| self.failing.remove(i).0.since);
                self.failing.push((FailingPart { part, since, error }, is_rejected));
                self.failing.sort_by_key(|(failing, _)| failing.part);
                Some(at)
            }
        };
        self.store_conditions(at)
    }

    /// A part has nothing more to send.
    pub(in crate::scheduler) fn is_idle(&mut self, part: StorePart) -> Vec<Event> {
        let before = self.failing.len();
        self.failing.retain(|(failing, _)| failing.part != part);
        match self.failing.len() < before {
            true => self.store_conditions(None),
            false => Vec::new(),
        }
    }

    fn store_conditions(&mut self, at: Option<Time>) -> Vec<Event> {
        let parts = |is_rejected: bool| -> Vec<FailingPart> {
            let failing = self.failing.iter().filter(|(_, rejected)| *rejected == is_rejected);
            failing.map(|(failing, _)| failing.clone()).collect()
        };
        let (down, rejects) = (parts(false), parts(true));
        let at = at.or_else(|| self.failing.iter().map(|(failing, _)| failing.since).min());
        let at = at.unwrap_or_default();
        let down = (!down.is_empty()).then_some(Condition::StoreDown { parts: down });
        let rejects = (!rejects.is_empty()).then_some(Condition::StoreRejects { parts: rejects });
        let mut events = self.set(Code::StoreDown, down, at);
        events.extend(self.set(Code::StoreRejects, rejects, at));
        // What is over comes first.
        events.sort_by_key(|event| matches!(event, Event::Began(_)));
        events
    }

    /// `true` if the requests of some part have no reply. A store that rejects requests replies.
    pub(in crate::scheduler) fn is_down(&self) -> bool {
        self.failing.iter().any(|(_, is_rejected)| !is_rejected)
    }

    /// `true` if the requests of this part fail.
    pub(in crate::scheduler) fn fails(&self, part: StorePart) -> bool {
        self.failing.iter().any(|(failing, _)| failing.part == part)
    }
}

/// The name that the condition is about; empty if a node has one of its sort.
fn name(condition: &Condition) -> &str {
    condition.about().map_or("", |(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        runtime::{Runtime, Sim},
        time::from_millis,
    };
    use std::time::Duration;

    fn at(seconds: i64) -> Time {
        from_millis(seconds * 1_000).unwrap()
    }

    fn lines(events: impl IntoIterator<Item = Event>) -> Vec<String> {
        let line = |event| match event {
            Event::Began(condition) => format!("{condition}"),
            Event::Ended(condition) => format!("over: {condition}"),
            other => panic!("{other}"),
        };
        events.into_iter().map(line).collect()
    }

    fn differ(what: &str) -> Condition {
        Condition::NodesDiffer { what: what.into() }
    }

    #[test]
    fn a_condition_begins_once_and_its_evidence_follows_without_an_event() {
        let mut active = Active::default();
        let counted =
            |count| Event::Began(Condition::SchedulesInvalid { count, example: "a".into() });
        assert!(active.apply(counted(200), at(1)).is_some());
        assert!(active.apply(counted(300), at(2)).is_none());
        let now = active.of(Code::SchedulesInvalid).next().unwrap();
        assert_eq!((now.since, now.condition.evidence()[0].1.to_string()), (at(1), "300".into()));
        let over = active.end(Code::SchedulesInvalid, "");
        assert!(lines(over)[0].starts_with("over: 300 stored schedules"));
        assert!(active.end(Code::SchedulesInvalid, "").is_none() && active.all().next().is_none());
    }

    #[test]
    fn a_set_ends_what_is_not_in_it_and_nothing_of_another_sort() {
        let mut active = Active::default();
        let report = Condition::ProgramReport { what: "a".into() };
        active.apply(Event::Began(report), at(0));
        let mut set = |all: &[&str]| {
            let conditions = all.iter().map(|what| differ(what));
            lines(active.set(Code::NodesDiffer, conditions, at(0)))
        };
        assert_eq!(set(&["a", "b"]), ["a", "b"]);
        assert_eq!(set(&["b", "c"]), ["over: a", "c"]);
        assert_eq!(set(&[]), ["over: b", "over: c"]);
        assert_eq!(active.all().count(), 1);
    }

    #[test]
    fn the_conditions_of_a_job_end_with_it() {
        let mut active = Active::default();
        for condition in [
            Condition::JobDeleted { job: "a".into() },
            Condition::JobOverdue { job: "a".into(), due_at: at(0) },
            Condition::JobDeleted { job: "b".into() },
            differ("a"),
        ] {
            active.apply(Event::Began(condition), at(9));
        }
        assert_eq!(active.get(Code::JobOverdue, "a").unwrap().since, at(0));
        assert!(active.explains("a") && !active.explains("c"));
        assert_eq!(active.end_job("a").len(), 2);
        assert_eq!(active.all().count(), 2);
    }

    #[test]
    fn a_reply_to_a_part_that_failed_ends_an_outage_for_all_and_older_requests_begin_none() {
        let mut active = Active::default();
        let start = Sim::new(1).now();
        let failure = |is_rejected: bool, seconds: u64| {
            let (at, sent) = (at(0), start + Duration::from_secs(seconds));
            Some(Failure { is_rejected, at, error: "it fails".into(), sent })
        };
        let mut set = |part, failure, seconds: u64| {
            lines(active.set_store(part, failure, start + Duration::from_secs(seconds)))
        };
        use StorePart::{Claims, Ends, Search};
        let down = "requests to the store fail; trying again: claims";
        assert_eq!(set(Claims, None, 1), [""; 0]);
        assert_eq!(set(Claims, failure(false, 1), 2), [format!("{down}: it fails")]);
        assert_eq!(set(Search, failure(false, 1), 2), [""; 0]);
        let rejects = "the store rejects requests; trying again: ends: it fails";
        assert_eq!(set(Ends, failure(true, 1), 2), [rejects]);
        let over = [format!("over: {down}, searches: it fails"), format!("over: {rejects}")];
        assert_eq!(set(Claims, None, 5), over);
        assert_eq!(set(Search, failure(false, 4), 6), [""; 0], "it was sent before");
        assert_eq!(set(Search, failure(false, 6), 7).len(), 1);
        assert!(active.is_down() && active.fails(Search));
        assert_eq!(active.is_idle(Ends).len(), 0);
        assert_eq!(lines(active.is_idle(Search)).len(), 1);
        assert!(!active.is_down());
    }
}
