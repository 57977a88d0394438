//! The due stored schedules that this node cannot run, because their definition has a word of a
//! newer build, say, or names a calendar that does not exist.
//!
//! There may be very many of them. So only the first hundred have reports of their own; if there
//! are more, one more report has the number of all. Up to 10,000 are remembered from search to
//! search. Those beyond are only counted, because each search finds them again.

use crate::{condition::Condition, event::Event};
use std::{
    collections::{HashMap, hash_map::Entry},
    sync::Arc,
};

/// The largest number of schedules with events of their own.
const REPORTED: usize = 100;

/// The largest number of schedules that are remembered.
const REMEMBERED: usize = 10_000;

#[derive(Default)]
pub(super) struct Broken {
    schedules: HashMap<Arc<str>, Remembered>,
    /// The number of those with events of their own.
    reported: usize,
    /// The number of the present sweep of the store, which began with a first page.
    sweep: u64,
    /// The number of schedules that it has found, and one of those that have no event of their own.
    found: usize,
    example: Option<Arc<str>>,
    /// Their number, if it was reported.
    counted: Option<Condition>,
}

struct Remembered {
    generation: i64,
    report: Report,
    /// The last sweep that has found it.
    sweep: u64,
}

enum Report {
    /// It waits for the first read of a calendar.
    Waits,
    /// It is only counted.
    Counted,
    /// It has a condition of its own.
    Single(Box<Condition>),
}

impl Broken {
    /// The number of those that are remembered.
    pub(super) fn len(&self) -> usize {
        self.schedules.len()
    }

    pub(super) fn contains(&self, name: &str) -> bool {
        self.schedules.contains_key(name)
    }

    /// A sweep of all due schedules begins.
    pub(super) fn begin_sweep(&mut self) {
        self.sweep += 1;
        (self.found, self.example) = (0, None);
    }

    /// Notes that this generation of a schedule cannot be run, and reports the condition, unless there
    /// are very many.
    pub(super) fn found(
        &mut self,
        name: Arc<str>,
        generation: i64,
        condition: Condition,
        events: &mut Vec<Event>,
    ) {
        let may_report = self.reported < REPORTED;
        let new =
            Remembered { generation, report: Report::Waits, sweep: self.sweep.wrapping_sub(1) };
        let is_full = self.schedules.len() >= REMEMBERED;
        let one = match self.schedules.entry(name) {
            Entry::Vacant(place) if is_full => {
                self.found += 1;
                self.example.get_or_insert_with(|| place.into_key());
                return;
            }
            Entry::Vacant(place) => place.insert(new),
            Entry::Occupied(place) => place.into_mut(),
        };
        self.found += usize::from(one.sweep != self.sweep);
        one.sweep = self.sweep;
        let was = std::mem::replace(&mut one.generation, generation);
        match &mut one.report {
            Report::Single(before) => {
                if was != generation {
                    if before.code() != condition.code() {
                        events.push(Event::Ended(Condition::clone(before)));
                    }
                    events.push(Event::Began(condition.clone()));
                    **before = condition;
                }
            }
            Report::Waits | Report::Counted if may_report => {
                events.push(Event::Began(condition.clone()));
                one.report = Report::Single(Box::new(condition));
                self.reported += 1;
            }
            report => *report = Report::Counted,
        }
    }

    /// Notes that a schedule waits for the first read of a calendar. What was reported stays so.
    pub(super) fn waits(&mut self, name: Arc<str>) {
        if self.schedules.len() < REMEMBERED || self.contains(&name) {
            let new = Remembered { generation: 0, report: Report::Waits, sweep: self.sweep };
            self.schedules.entry(name).or_insert(new).sweep = self.sweep;
        }
    }

    /// A schedule can be run.
    pub(super) fn is_mended(&mut self, name: &Arc<str>, events: &mut Vec<Event>) {
        if let Some(Remembered { report: Report::Single(condition), .. }) =
            self.schedules.remove(name)
        {
            self.reported -= 1;
            events.push(Event::Ended(*condition));
        }
    }

    /// A sweep has found all that is due. Ends the reports of the schedules that were not among it:
    /// they were deleted, paused or repaired. Reports the number of those that were, if there are very
    /// many.
    pub(super) fn end_sweep(&mut self, events: &mut Vec<Event>) {
        let sweep = self.sweep;
        for (_, one) in self.schedules.extract_if(|_, one| one.sweep != sweep) {
            if let Report::Single(condition) = one.report {
                self.reported -= 1;
                events.push(Event::Ended(*condition));
            }
        }
        if self.found > self.reported {
            let counted = |one: &Remembered| matches!(one.report, Report::Counted);
            let named = || self.schedules.iter().find(|(_, one)| counted(one));
            let example = self.example.clone().or_else(|| Some(named()?.0.clone()));
            let example = example.unwrap_or_default();
            let counted = Condition::SchedulesInvalid { count: self.found, example };
            if self.counted.as_ref() != Some(&counted) {
                events.push(Event::Began(counted.clone()));
                self.counted = Some(counted);
            }
        } else {
            events.extend(self.counted.take().map(Event::Ended));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(broken: &mut Broken, name: &Arc<str>, generation: i64, events: &mut Vec<Event>) {
        let invalid = Condition::JobInvalid { job: name.clone(), reason: "bad".into() };
        broken.found(name.clone(), generation, invalid, events);
    }

    /// A sweep that finds these schedules. Returns its events.
    fn sweep(broken: &mut Broken, names: std::ops::Range<usize>) -> Vec<String> {
        broken.begin_sweep();
        let mut events = Vec::new();
        names.for_each(|i| found(broken, &format!("job-{i}").into(), 1, &mut events));
        let single = std::mem::take(&mut events).len();
        broken.end_sweep(&mut events);
        let kind = |event: &Event| match event {
            Event::Began(Condition::SchedulesInvalid { count, .. }) => format!("{count} invalid"),
            Event::Ended(Condition::SchedulesInvalid { .. }) => "all single".to_owned(),
            _ => "resumed".to_owned(),
        };
        let mut kinds: Vec<String> = vec![format!("{single} single")];
        kinds.extend(events.iter().map(kind));
        kinds.dedup();
        kinds
    }

    #[test]
    fn few_are_reported_one_by_one_and_very_many_by_their_number() {
        let mut broken = Broken::default();
        assert_eq!(sweep(&mut broken, 0..3), ["3 single"]);
        assert_eq!(sweep(&mut broken, 0..3), ["0 single"]);
        assert_eq!(sweep(&mut broken, 0..30_000), ["97 single", "30000 invalid"]);
        assert_eq!(sweep(&mut broken, 0..30_000), ["0 single"]);
        assert_eq!(broken.len(), REMEMBERED);
        assert_eq!(sweep(&mut broken, 0..200), ["0 single", "200 invalid"]);
        assert_eq!(sweep(&mut broken, 50..120), ["0 single", "resumed", "70 invalid"]);
        assert_eq!(sweep(&mut broken, 50..120), ["20 single", "all single"]);
        assert_eq!(sweep(&mut broken, 0..0), ["0 single", "resumed"]);
        assert_eq!((broken.len(), broken.reported), (0, 0));
    }

    #[test]
    fn what_waits_for_a_calendar_is_no_report_and_another_generation_is_a_new_one() {
        let mut broken = Broken::default();
        let name: Arc<str> = "job".into();
        broken.begin_sweep();
        broken.waits(name.clone());
        let mut events = Vec::new();
        broken.end_sweep(&mut events);
        assert!(events.is_empty());
        for (generation, reports) in [(1, 1), (1, 1), (2, 2)] {
            found(&mut broken, &name, generation, &mut events);
            assert_eq!(events.len(), reports);
            broken.waits(name.clone());
        }
        broken.is_mended(&name, &mut events);
        broken.is_mended(&name, &mut events);
        assert_eq!(events.len(), 3);
    }
}
