//! The hours of a job: the counts of the store, and with them what is not counted yet.

use super::Schedules;
use crate::{
    backend::{HistoryEntry, HistoryQuery, Operation, Reply},
    error::Result,
    hours::{Day, Hour, KEPT, day_of, start_of_day, start_of_hour},
    name::hours_record,
    time::Time,
};
use chrono::DateTime;
use std::{collections::BTreeMap, ops::RangeInclusive};

/// The number of entries of one request.
const PAGE: usize = 500;

impl Schedules {
    /// The hours of a job that begin in this range, the earliest first: starts, outcomes, lateness and
    /// duration of each. Hours in which nothing happened are left out, and so are active
    /// runs. The hour of `from` is included.
    ///
    /// The hours of the last 30 days are kept, those of a deleted job too. They are whole however few
    /// entries the [history](Self::history) keeps, because the node that prunes it counts the entries
    /// before it removes them. The calls read the counts and the entries that are not counted yet: two
    /// requests usually, and one for each run that was active at the last count.
    ///
    /// ```
    /// use allora::{Schedules, stored::Spread};
    /// use std::time::Duration;
    ///
    /// # async fn example(schedules: Schedules) -> allora::Result {
    /// let now = schedules.store_now().await?;
    /// let week = Duration::from_secs(7 * 24 * 60 * 60);
    /// let mut took = Spread::default();
    /// for hour in schedules.hours("acme/report", now - week, now).await? {
    ///     println!("{}: {} of {} succeeded", hour.from, hour.succeeded, hour.started);
    ///     took.merge(&hour.duration);
    /// }
    /// if let Some(usually) = took.percentile(50) {
    ///     println!("usually {} min", usually.as_secs() / 60);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `Unsupported` if the store keeps no history; `Unavailable`.
    ///
    /// # Cancel safety
    /// Nothing is changed.
    pub async fn hours(&self, name: &str, from: Time, until: Time) -> Result<Vec<Hour>> {
        self.needed_history("hours")?;
        let now = self.recent_store_time().await?;
        let from = start_of_hour(from.max(now - KEPT));
        if from >= until {
            return Ok(Vec::new());
        }
        let mut days =
            self.counted_days(name, day_of(micros(from))..=day_of(micros(now)) + 1).await?;
        let mark = days.values().map(|day| day.mark).max().unwrap_or_default();
        let uncounted = self.entries_between(name, micros(from).max(mark + 1), i64::MAX).await?;
        let mut late = Vec::new();
        for fence in days.values().flat_map(|day| &day.open) {
            late.extend(self.entries_between(name, *fence, *fence).await?);
        }
        for entry in uncounted.iter().chain(&late) {
            days.entry(day_of(entry.fence)).or_default().count(entry);
        }
        let hours = days.into_values().flat_map(Day::into_hours);
        Ok(hours.filter(|hour| from <= hour.from && hour.from < until).collect())
    }

    /// The counts of these days.
    async fn counted_days(
        &self,
        name: &str,
        days: RangeInclusive<i64>,
    ) -> Result<BTreeMap<i64, Day>> {
        let records: Vec<(i64, String)> =
            days.map(|day| (day, hours_record(start_of_day(day), name))).collect();
        let reads: Vec<Operation<'_>> =
            records.iter().map(|(_, record)| Operation::read(record)).collect();
        let mut counted = BTreeMap::new();
        for ((day, _), reply) in records.iter().zip(self.apply("hours", &reads).await?) {
            if let Reply::State(state) = reply?
                && let Some(found) = Day::parse(&state.data)
            {
                counted.insert(*day, found);
            }
        }
        Ok(counted)
    }

    /// The entries with these fences.
    async fn entries_between(
        &self,
        name: &str,
        first: i64,
        last: i64,
    ) -> Result<Vec<HistoryEntry>> {
        let history = self.needed_history("hours")?;
        let at = |fence| DateTime::from_timestamp_micros(fence);
        let mut query = HistoryQuery::new(PAGE).name(name);
        (query.from, query.until) = (at(first), at(last.saturating_add(1)));
        let mut found: Vec<HistoryEntry> = Vec::new();
        loop {
            let below = found.last().map(HistoryEntry::cursor);
            let query = HistoryQuery { before: below.as_ref(), ..query };
            let page = self.within("hours", history.entries(query)).await?;
            let is_last = page.len() < PAGE;
            found.extend(page);
            if is_last {
                return Ok(found);
            }
        }
    }
}

fn micros(at: Time) -> i64 {
    at.timestamp_micros()
}
