//! The schedules of the `cron` crate as schedules of this one.

use crate::{Schedule, schedule::latest, time::Time, time::end_of_time};
use chrono::{DateTime, Utc};

/// In UTC. The crate knows no instant after the year 2100.
impl Schedule for ::cron::Schedule {
    fn next_at(&self, after: Time) -> Option<Time> {
        // The crate adds a second before it looks, and panics at chrono's last instant.
        let after = (after < end_of_time()).then_some(after)?;
        self.after(&after).next().filter(|next| *next > after)
    }

    fn latest_at(&self, from: Time, until: Time) -> Option<Time> {
        latest(from, until, |second| {
            let after: DateTime<Utc> = DateTime::from_timestamp(second, 0)?;
            self.next_at(after).map(|next| next.timestamp())
        })
    }

    fn definition(&self) -> Option<String> {
        let words: Vec<&str> = self.source().split_ascii_whitespace().collect();
        Some(format!("@quartz {}", words.join(" ")))
    }
}
