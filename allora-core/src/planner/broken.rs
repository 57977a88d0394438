//! The due stored schedules that this node cannot run: their definition has a word of a newer build, say,
//! or names a calendar that is not there. There may be very many.
//!
//! The first ones are reported one by one, and all others by their number. Each search reads them again,
//! so the others that it finds are counted, not remembered.

use crate::event::Event;
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
    /// The number of schedules was reported.
    is_counted: bool,
}

struct Remembered {
    generation: i64,
    report: Report,
    /// The last sweep that has found it.
    sweep: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Report {
    /// It waits for the first read of a calendar.
    Waits,
    /// It is only counted.
    Counted,
    /// It has an event of its own.
    Single,
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

    /// Notes that this generation of a schedule cannot be run. Returns `true` if that is to be reported
    /// with an event of its own.
    pub(super) fn found(&mut self, name: Arc<str>, generation: i64) -> bool {
        let may_report = self.reported < REPORTED;
        let new =
            Remembered { generation, report: Report::Waits, sweep: self.sweep.wrapping_sub(1) };
        let is_full = self.schedules.len() >= REMEMBERED;
        let one = match self.schedules.entry(name) {
            Entry::Vacant(place) if is_full => {
                self.found += 1;
                self.example.get_or_insert_with(|| place.into_key());
                return false;
            }
            Entry::Vacant(place) => place.insert(new),
            Entry::Occupied(place) => place.into_mut(),
        };
        self.found += usize::from(one.sweep != self.sweep);
        one.sweep = self.sweep;
        let was = std::mem::replace(&mut one.generation, generation);
        match one.report {
            Report::Single => was != generation,
            Report::Waits | Report::Counted if may_report => {
                one.report = Report::Single;
                self.reported += 1;
                true
            }
            Report::Waits | Report::Counted => {
                one.report = Report::Counted;
                false
            }
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
        let mended = self.schedules.remove(name).is_some_and(|one| one.report == Report::Single);
        if mended {
            self.reported -= 1;
            events.push(Event::JobResumed { name: name.clone() });
        }
    }

    /// A sweep has found all that is due. Ends the reports of the schedules that were not among it: they
    /// were deleted, paused or repaired. Returns the number of those that were.
    pub(super) fn end_sweep(&mut self, events: &mut Vec<Event>) -> usize {
        let sweep = self.sweep;
        for (name, one) in self.schedules.extract_if(|_, one| one.sweep != sweep) {
            if one.report == Report::Single {
                self.reported -= 1;
                events.push(Event::JobResumed { name });
            }
        }
        let is_counted = self.found > self.reported;
        let was_counted = std::mem::replace(&mut self.is_counted, is_counted);
        if is_counted && !was_counted {
            let counted = |one: &Remembered| one.report == Report::Counted;
            let named = || self.schedules.iter().find(|(_, one)| counted(one));
            let example = self.example.clone().or_else(|| Some(named()?.0.clone()));
            let example = example.unwrap_or_default();
            events.push(Event::SchedulesInvalid { count: self.found, example });
        } else if was_counted && !is_counted {
            events.push(Event::SchedulesResumed);
        }
        self.found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A sweep that finds these schedules. Returns its events.
    fn sweep(broken: &mut Broken, names: std::ops::Range<usize>) -> Vec<String> {
        broken.begin_sweep();
        let names = names.map(|i| Arc::from(format!("job-{i}")));
        let single = names.filter(|name| broken.found(Arc::clone(name), 1)).count();
        let mut events = Vec::new();
        broken.end_sweep(&mut events);
        let kind = |event: &Event| match event {
            Event::SchedulesInvalid { count, .. } => format!("{count} invalid"),
            Event::SchedulesResumed => "all single".to_owned(),
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
        assert_eq!(sweep(&mut broken, 0..200), ["0 single"]);
        assert_eq!(sweep(&mut broken, 50..120), ["0 single", "resumed"], "twenty have no event");
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
        assert_eq!(broken.end_sweep(&mut events), 0);
        assert!(broken.found(name.clone(), 1) && !broken.found(name.clone(), 1));
        broken.waits(name.clone());
        assert!(broken.found(name.clone(), 2));
        assert!(events.is_empty());
        broken.is_mended(&name, &mut events);
        broken.is_mended(&name, &mut events);
        assert_eq!(events.len(), 1);
    }
}
