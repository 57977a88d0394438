//! The occurrences that started once, more than once, or never, by the starts of all processes.

use std::{collections::HashMap, ops::Range, time::Duration};

/// The start of a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Start {
    pub(super) schedule: u64,
    /// The time at which it was due, in seconds since 1970.
    pub(super) second: u64,
    /// Microseconds since 1970.
    pub(super) at_us: u64,
}

/// The occurrences of some seconds.
#[derive(Debug, PartialEq)]
pub(super) struct Counted {
    pub(super) once: usize,
    pub(super) repeated: usize,
    pub(super) lost: usize,
    /// The lateness of the first start of each.
    pub(super) late_ms: Vec<f64>,
    /// The longest time between two starts of one schedule, or between its last start and the end.
    pub(super) longest_gap: Duration,
}

impl Counted {
    /// Counts the occurrences of so many schedules in these seconds, by any number of starts.
    pub(super) fn of(starts: &[Start], schedules: usize, seconds: Range<u64>) -> Self {
        let mut firsts: HashMap<(u64, u64), (u64, usize)> = HashMap::new();
        let mut of_schedule: HashMap<u64, Vec<u64>> = HashMap::new();
        for start in starts.iter().filter(|start| seconds.contains(&start.second)) {
            let (first, times) =
                firsts.entry((start.schedule, start.second)).or_insert((start.at_us, 0));
            *first = start.at_us.min(*first);
            *times += 1;
            of_schedule.entry(start.schedule).or_default().push(start.at_us);
        }
        let [begin, end] = [seconds.start, seconds.end].map(|second| second * 1_000_000);
        let gaps = (0..schedules as u64).map(|schedule| {
            let mut starts = of_schedule.remove(&schedule).unwrap_or_default();
            starts.extend([begin, end]);
            starts.sort_unstable();
            starts.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or_default()
        });
        let longest_gap = Duration::from_micros(gaps.max().unwrap_or_default());
        let late = |(&(_, second), &(first, _)): (&(u64, u64), &(u64, usize))| {
            (first as f64 - second as f64 * 1e6) / 1e3
        };
        let all = schedules * (seconds.end - seconds.start) as usize;
        let repeated = firsts.values().filter(|(_, times)| *times > 1).count();
        Self {
            once: firsts.len() - repeated,
            repeated,
            lost: all - firsts.len(),
            late_ms: firsts.iter().map(late).collect(),
            longest_gap,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn starts(starts: &[(u64, u64, u64)]) -> Vec<Start> {
        let start = |&(schedule, second, ms): &(u64, u64, u64)| Start {
            schedule,
            second,
            at_us: ms * 1_000,
        };
        starts.iter().map(start).collect()
    }

    #[test]
    fn each_occurrence_is_counted_by_the_number_of_its_starts() {
        let starts = starts(&[(0, 7, 7_002), (0, 8, 8_001), (0, 8, 8_005), (1, 8, 8_003)]);
        let counted = Counted::of(&starts, 2, 7..9);
        assert_eq!((counted.once, counted.repeated, counted.lost), (2, 1, 1));
    }

    #[test]
    fn the_lateness_is_that_of_the_first_start() {
        let starts = starts(&[(0, 7, 7_900), (0, 7, 7_002)]);
        assert_eq!(Counted::of(&starts, 1, 7..8).late_ms, [2.0]);
    }

    #[test]
    fn other_seconds_do_not_count() {
        let starts = starts(&[(0, 6, 6_001), (0, 7, 7_001), (0, 8, 8_001)]);
        let counted = Counted::of(&starts, 1, 7..8);
        assert_eq!((counted.once, counted.repeated, counted.lost), (1, 0, 0));
    }

    #[test]
    fn a_schedule_that_stops_has_a_gap_until_the_end() {
        let starts = starts(&[(0, 7, 7_000), (0, 8, 8_100), (1, 7, 7_000), (1, 8, 8_000)]);
        let gap = |schedules| Counted::of(&starts, schedules, 7..10).longest_gap;
        assert_eq!(gap(2), Duration::from_millis(2_000));
        assert_eq!(gap(3), Duration::from_secs(3), "the third never started");
    }
}
