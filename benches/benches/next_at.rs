//! The costs of parsing a cron expression and of the next instant, beside two other crates.
//!
//! `cargo bench -p allora-benches --bench next_at`

#![allow(clippy::unwrap_used, reason = "a benchmark that cannot start says so")]

use allora_core::{Cron, Schedule, Time};
use chrono_tz::{America::New_York, Tz};
use divan::{Bencher, black_box};
use std::str::FromStr;

fn main() {
    divan::main();
}

const EXPRESSIONS: [&str; 8] = [
    "* * * * *",
    "*/5 * * * *",
    "0 * * * *",
    "30 2 * * *",
    "0 9-17/2 * 1,7 1-5",
    "0 0 1,15 * 5",
    "0 0 L * *",
    "0 0 29 2 1",
];
/// The `cron` crate has no `L`.
const WITHOUT_L: [&str; 7] = [
    "* * * * *",
    "*/5 * * * *",
    "0 * * * *",
    "30 2 * * *",
    "0 9-17/2 * 1,7 1-5",
    "0 0 1,15 * 5",
    "0 0 29 2 1",
];
/// 29 February that is a Sunday: a field that starts with `*` makes it both.
const RARE: &str = "0 0 29 2 */7";

/// A thousand instants of a few years, so that the answer is seldom the last one.
fn instants() -> Vec<Time> {
    let mut seed = 1_u64;
    let mut next = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        seed >> 33
    };
    (0..1000)
        .map(|_| Time::from_timestamp(1_770_000_000 + (next() % 100_000_000) as i64, 0).unwrap())
        .collect()
}

fn ask(bencher: Bencher<'_, '_>, mut next: impl FnMut(Time) -> Option<i64>) {
    let instants = instants();
    let mut turn = instants.iter().cycle();
    bencher.bench_local(|| next(black_box(*turn.next().unwrap())));
}

/// The `cron` crate wants seconds, and counts weekdays from 1.
fn quartz(expression: &str) -> String {
    let named = [(" 1-5", " MON-FRI"), ("15 * 5", "15 * FRI"), ("2 1", "2 MON")];
    let text = named.iter().fold(expression.to_owned(), |text, (from, to)| text.replace(from, to));
    format!("0 {text}")
}

mod parse {
    use super::*;

    #[divan::bench(args = EXPRESSIONS)]
    fn allora(bencher: Bencher<'_, '_>, expression: &str) {
        bencher.bench(|| Cron::parse(black_box(expression)).unwrap());
    }

    #[divan::bench(args = ["30 2 * * * America/New_York"])]
    fn allora_with_a_zone(bencher: Bencher<'_, '_>, expression: &str) {
        bencher.bench(|| Cron::parse(black_box(expression)).unwrap());
    }

    #[divan::bench(args = WITHOUT_L)]
    fn cron(bencher: Bencher<'_, '_>, expression: &str) {
        let expression = quartz(expression);
        bencher.bench(|| cron::Schedule::from_str(black_box(&expression)).unwrap());
    }

    #[divan::bench(args = EXPRESSIONS)]
    fn croner(bencher: Bencher<'_, '_>, expression: &str) {
        bencher.bench(|| croner::Cron::from_str(black_box(expression)).unwrap());
    }
}

/// Rules in a zone, begun ten years before.
mod recurrence {
    use super::*;
    use allora_core::schedule::Recurrence;

    const RULES: [&str; 6] = [
        "FREQ=DAILY",
        "FREQ=WEEKLY;INTERVAL=2;BYDAY=MO,WE",
        "FREQ=MONTHLY;BYMONTHDAY=-1",
        "FREQ=MONTHLY;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=-1",
        "FREQ=YEARLY;BYMONTH=1,7;BYDAY=1SU",
        "FREQ=MINUTELY;INTERVAL=20",
    ];

    fn read(rule: &str) -> Recurrence {
        let text = format!("DTSTART;TZID=America/New_York:20160104T090000 RRULE:{rule}");
        text.parse().unwrap()
    }

    #[divan::bench(args = RULES)]
    fn parse(bencher: Bencher<'_, '_>, rule: &str) {
        bencher.bench(|| read(black_box(rule)));
    }

    #[divan::bench(args = RULES)]
    fn next(bencher: Bencher<'_, '_>, rule: &str) {
        let rule = read(rule);
        ask(bencher, |after| rule.next_at(after).map(|next| next.timestamp()));
    }
}

mod next_in {
    use super::*;

    fn allora_in(bencher: Bencher<'_, '_>, expression: &str, zone: &str) {
        let schedule = Cron::parse(expression).unwrap().in_zone(zone).unwrap();
        ask(bencher, |after| schedule.next_at(after).map(|next| next.timestamp()));
    }

    fn cron_in(bencher: Bencher<'_, '_>, expression: &str, zone: Tz) {
        let schedule = cron::Schedule::from_str(&quartz(expression)).unwrap();
        ask(bencher, |after| {
            schedule.after(&after.with_timezone(&zone)).next().map(|next| next.timestamp())
        });
    }

    fn croner_in(bencher: Bencher<'_, '_>, expression: &str, zone: Tz) {
        let schedule = croner::Cron::from_str(expression).unwrap();
        ask(bencher, |after| {
            let next = schedule.find_next_occurrence(&after.with_timezone(&zone), false);
            next.ok().map(|next| next.timestamp())
        });
    }

    mod utc {
        use super::*;

        #[divan::bench(args = EXPRESSIONS.into_iter().chain([RARE]))]
        fn allora(bencher: Bencher<'_, '_>, expression: &str) {
            allora_in(bencher, expression, "UTC");
        }

        #[divan::bench(args = WITHOUT_L)]
        fn cron(bencher: Bencher<'_, '_>, expression: &str) {
            cron_in(bencher, expression, Tz::UTC);
        }

        #[divan::bench(args = EXPRESSIONS)]
        fn croner(bencher: Bencher<'_, '_>, expression: &str) {
            croner_in(bencher, expression, Tz::UTC);
        }
    }

    mod new_york {
        use super::*;

        #[divan::bench(args = EXPRESSIONS.into_iter().chain([RARE]))]
        fn allora(bencher: Bencher<'_, '_>, expression: &str) {
            allora_in(bencher, expression, "America/New_York");
        }

        #[divan::bench(args = WITHOUT_L)]
        fn cron(bencher: Bencher<'_, '_>, expression: &str) {
            cron_in(bencher, expression, New_York);
        }

        #[divan::bench(args = EXPRESSIONS)]
        fn croner(bencher: Bencher<'_, '_>, expression: &str) {
            croner_in(bencher, expression, New_York);
        }
    }
}

mod latest {
    use super::*;

    #[divan::bench(args = ["* * * * * *", "*/5 * * * *", "30 2 * * *", "0 0 29 2 *"])]
    fn allora_ten_years(bencher: Bencher<'_, '_>, expression: &str) {
        let schedule = Cron::parse(expression).unwrap().in_zone("America/New_York").unwrap();
        let from = Time::from_timestamp(1_577_836_800, 0).unwrap();
        ask(bencher, |until| schedule.latest_at(from, until).map(|at| at.timestamp()));
    }
}

/// The first use of each zone in a process builds its table.
#[divan::bench(sample_count = 1, sample_size = 1)]
fn all_zones_for_the_first_time(bencher: Bencher<'_, '_>) {
    let names: Vec<String> =
        chrono_tz::TZ_VARIANTS.iter().map(|zone| zone.name().to_owned()).collect();
    let schedule = Cron::parse("@daily").unwrap();
    bencher
        .counter(divan::counter::ItemsCount::new(names.len()))
        .bench_local(|| names.iter().filter(|name| schedule.clone().in_zone(name).is_ok()).count());
}
