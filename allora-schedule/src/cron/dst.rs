//! The treatment of local times that do not exist, or exist twice.

use crate::zone::Zone;

/// The policy for local times that a change of the zone's offset skips or repeats.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Dst {
    /// As Debian's cron. A schedule whose minute or hour field starts with `*` follows elapsed
    /// time: nothing extra for the hour that is skipped, both passes of the hour that is repeated.
    /// Any other is a fixed time: what the gap skips runs once, together, at the first instant
    /// after it, and what is repeated runs once, the first time.
    #[default]
    Debian,
    /// By the wall clock: not run in the gap, run twice in the overlap.
    Literal,
}

/// The first matching UTC second not before `from`, if `next_wall` answers with the first matching wall
/// second not before its argument. `once`: by Debian's rule for fixed times. `rounds`: the most cycles
/// of 400 years to look at.
///
/// A fixed time runs when the zone's wall clock *first shows that time or a later one*: that is
/// the whole of Debian's rule, for gaps and overlaps of any size. In terms of the table, segment k
/// answers for the wall times from `high` (the latest shown before it) to its own end; the others
/// answer for what their clock shows, from their start to their end.
pub(crate) fn next(
    next_wall: impl Fn(i64) -> Option<i64>,
    zone: &Zone,
    once: bool,
    from: i64,
    rounds: u32,
) -> Option<i64> {
    let mut from = from;
    for _ in 0..rounds {
        let back = zone.cycles_before(from);
        let next_wall = |wall: i64| next_wall(wall + back).map(|next| next - back);
        match search(next_wall, zone, once, from - back) {
            Search::Found(second) => return Some(second + back),
            Search::Never => return None,
            Search::Beyond(end) => from = end + back,
        }
    }
    None
}

enum Search {
    Found(i64),
    /// The calendar ended.
    Never,
    /// Nothing before this second, where the table ends.
    Beyond(i64),
}

fn search(next_wall: impl Fn(i64) -> Option<i64>, zone: &Zone, once: bool, from: i64) -> Search {
    let segments = zone.segments();
    let mut k = zone.segment_at(from);
    loop {
        let segment = segments[k];
        let (low, high) = walls(zone, k, once);
        let bound = if from <= segment.start { low } else { low.max(from + segment.offset) };
        let mut next = k + 1;
        if bound < high {
            let Some(wall) = next_wall(bound) else { return Search::Never };
            if wall < high {
                return Search::Found((wall - segment.offset).max(segment.start));
            }
            // Nothing from `bound` to `wall`: pass over what lies in between.
            while next < segments.len() && {
                let (low, high) = walls(zone, next, once);
                high <= wall && low >= bound
            } {
                next += 1;
            }
        }
        if next == segments.len() {
            return Search::Beyond(zone.end(next - 1));
        }
        k = next;
    }
}

/// The wall times that a segment answers for (end exclusive).
fn walls(zone: &Zone, k: usize, once: bool) -> (i64, i64) {
    let segment = zone.segments()[k];
    let low = if once { segment.high } else { segment.start + segment.offset };
    (low, zone.end(k) + segment.offset)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cron::parse::parse;

    /// The instants from second 0 of a zone that is two hours ahead, goes back by two hours at
    /// noon, and half an hour later forward by one: all within what was already shown.
    fn instants(text: &str, once: bool) -> Vec<i64> {
        let changes = [(43_200, 0), (45_000, 3_600)];
        let zone = Zone::with_changes("Test", 7_200, changes.into_iter());
        let fields = parse(text, None).unwrap().fields;
        let mut found = Vec::new();
        let mut from = 0;
        let next_from = |from| next(|wall| fields.next(wall), &zone, once, from, 3);
        while let Some(next) = next_from(from).filter(|next| *next < 86_400) {
            found.push(next);
            from = next + 1;
        }
        found
    }

    #[test]
    fn a_change_within_a_repeated_hour_neither_skips_nor_repeats() {
        // 12:15 is shown at 10:15 and at 12:15 UTC.
        assert_eq!(instants("15 12 * * *", false), [36_900, 44_100]);
        assert_eq!(instants("15 12 * * *", true), [36_900]);
        // 13:45 is shown at 11:45 and, after the second change, at 12:45 UTC.
        assert_eq!(instants("45 13 * * *", false), [42_300, 45_900]);
        assert_eq!(instants("45 13 * * *", true), [42_300]);
        // 14:00 is first shown when both are over, at 13:00 UTC.
        assert_eq!(instants("0 14 * * *", true), [46_800]);
    }
}
