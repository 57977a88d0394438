//! A year of a minutely schedule on three nodes, in virtual time.

use crate::support::{Lab, ms, secs};
use allora_core::{cron, runtime::Sim};

/// A whole year where the code is optimised, three weeks elsewhere.
const DAYS: i64 = if cfg!(debug_assertions) { 21 } else { 365 };

#[test]
fn every_minute_of_a_year_runs_once() {
    let lab = Lab::starting(Sim::new(2026));
    for _ in 0..3 {
        // Safety polls would be nine tenths of the work.
        lab.start(|seat, b| {
            let b = b.poll_interval(secs(600));
            b.add("minutely", seat.job(cron("* * * * *").unwrap(), ms(200)))
        });
    }
    let minutes = DAYS * 24 * 60;
    lab.until(minutes as f64 * 60.0 + 1.0);
    let times = lab.log.times("minutely");
    assert_eq!(times.len() as i64, minutes);
    assert!(times.windows(2).all(|pair| (pair[1] - pair[0]).num_seconds() == 60));
    let counters = lab.state("minutely").counters;
    assert_eq!((counters.succeeded, counters.missed + counters.lost), (minutes as u64, 0));
}
