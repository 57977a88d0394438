//! The hours of jobs: the counts of the store, and with them what is not counted yet.

use super::Schedules;
use crate::{
    backend::{HistoryCursor, HistoryEntry, HistoryQuery, JobState, Operation, Page},
    error::Result,
    hours::{Day, Hour, HourTotals, KEPT, day_of, start_of_day, start_of_hour},
    name::{HOURS, hours_of_day, hours_record},
    time::Time,
};
use futures::{StreamExt, TryStreamExt, stream};
use std::collections::{BTreeMap, HashSet};

/// The number of entries, and of records, of one request.
const PAGE: usize = 500;

/// The number of entries of the first request for those of a job.
const FEW: usize = 32;

/// The number of requests for entries at a time.
const AT_A_TIME: usize = 8;

/// The most days of jobs that are added up.
const MOST_DAYS: usize = 10_000;

/// The characters of a long name with which the name of its record begins.
const START: usize = 32;

impl Schedules {
    /// The hours of a job that begin in this range, the earliest first: starts, outcomes, lateness and
    /// duration of each. Hours in which nothing happened are left out, and so are active
    /// runs. The hour of `from` is included.
    ///
    /// The hours of the last 30 days are kept, those of a deleted job too, and of whatever had the name
    /// before. They are whole however few entries the [history](Self::history) keeps, because the node
    /// that prunes it counts the entries before it removes them. Nodes also count what they wrote once an
    /// hour. What nobody has counted yet is read from the history, so the figures are the same whether a
    /// node prunes or not: two requests usually, and one for each run that was active at the last count.
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
        let mut all = self.hours_of(&[name], from, until).await?;
        Ok(all.pop().unwrap_or_default())
    }

    /// The [hours](Self::hours) of several jobs, by position: for a list of jobs. The counts are read in
    /// one batch of 500 records a request, of which each job has one and each of its days another. The
    /// history is asked for those jobs alone that have run since they were counted.
    ///
    /// # Errors
    /// As of [`hours`](Self::hours).
    ///
    /// # Cancel safety
    /// Nothing is changed.
    pub async fn hours_of(
        &self,
        names: &[&str],
        from: Time,
        until: Time,
    ) -> Result<Vec<Vec<Hour>>> {
        self.needed_history("hours")?;
        let now = self.recent_store_time().await?;
        let from = start_of_hour(from.max(now - KEPT));
        if from >= until {
            return Ok(vec![Vec::new(); names.len()]);
        }
        let jobs = self.counted(names, from, now).await?;
        let with_rest: Vec<_> =
            jobs.into_iter().map(|job| self.with_uncounted(job, from)).collect();
        let jobs: Vec<CountedJob> =
            stream::iter(with_rest).buffered(AT_A_TIME).try_collect().await?;
        let of_range = |job: CountedJob| {
            let hours = job.days.into_values().flat_map(Day::into_hours);
            hours.filter(|hour| from <= hour.from && hour.from < until).collect()
        };
        Ok(jobs.into_iter().map(of_range).collect())
    }

    /// The sums of what is counted of all jobs whose names begin with the prefix, of those that are wanted,
    /// from the hour of this time on: for plots of many jobs. To have what is not counted yet, add the
    /// newest entries of the history to them.
    ///
    /// It reads a record for each job and day, at most 10,000 of them.
    ///
    /// ```
    /// use allora::{Schedules, backend::HistoryQuery};
    /// use std::time::Duration;
    ///
    /// # async fn example(schedules: Schedules) -> allora::Result {
    /// let day = schedules.store_now().await? - Duration::from_secs(24 * 60 * 60);
    /// let mut totals = schedules.hour_totals("acme/", day, |_| true).await?;
    /// // Read on, if the page does not reach back that far.
    /// for entry in schedules.history(HistoryQuery::new(500)).await? {
    ///     if entry.name.starts_with("acme/") {
    ///         totals.add(&entry);
    ///     }
    /// }
    /// for hour in totals.hours() {
    ///     println!("{}: {} runs, {} failed", hour.from, hour.started, hour.failed);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As of [`hours`](Self::hours).
    ///
    /// # Cancel safety
    /// Nothing is changed.
    pub async fn hour_totals(
        &self,
        prefix: &str,
        from: Time,
        is_wanted: impl Fn(&str) -> bool + Send + Sync,
    ) -> Result<HourTotals> {
        self.needed_history("hours")?;
        let now = self.recent_store_time().await?;
        let from = from.max(now - KEPT);
        let mut totals = HourTotals::new(from);
        if prefix.is_empty() {
            self.add_up(&mut totals, HOURS, &hours_of_day(from), &is_wanted).await?;
            return Ok(totals);
        }
        let is_wanted = |name: &str| name.starts_with(prefix) && is_wanted(name);
        let start: String = prefix.chars().take(START).collect();
        for day in day_of(micros(from))..=day_of(micros(now)) + 1 {
            let day = hours_of_day(start_of_day(day));
            for names in [format!("{day}:{prefix}"), format!("{day}#{start}")] {
                self.add_up(&mut totals, &names, "", &is_wanted).await?;
            }
        }
        Ok(totals)
    }

    /// Adds up the days with these names of records, after one of them.
    async fn add_up(
        &self,
        totals: &mut HourTotals,
        prefix: &str,
        after: &str,
        is_wanted: &(dyn Fn(&str) -> bool + Sync),
    ) -> Result<()> {
        let mut after = Some(after.to_owned()).filter(|after| !after.is_empty());
        while totals.is_whole() {
            let mut page = Page::first(PAGE).prefix(prefix);
            page.after = after.as_deref();
            let states = self.within("hours", self.queries()?.list(page)).await?;
            let is_last = states.len() < PAGE;
            totals.records += states.len();
            totals.is_partial = totals.records > MOST_DAYS;
            let days = states.iter().filter_map(|state| Day::parse(&state.data));
            days.filter(|day| is_wanted(&day.job)).for_each(|day| totals.add_day(day));
            if is_last {
                break;
            }
            after = states.into_iter().last().map(|last| last.name);
        }
        Ok(())
    }

    /// The counts of these jobs from the day of `from` on, and what says whether there is more.
    async fn counted(&self, names: &[&str], from: Time, now: Time) -> Result<Vec<CountedJob>> {
        let days = day_of(micros(from))..=day_of(micros(now)) + 1;
        let record = |name, day| (day, hours_record(start_of_day(day), name));
        let records: Vec<(i64, String)> =
            names.iter().flat_map(|name| days.clone().map(move |day| record(*name, day))).collect();
        let reads = names.iter().copied().chain(records.iter().map(|(_, record)| &**record));
        let reads: Vec<Operation<'_>> = reads.map(Operation::read).collect();
        let mut states = Vec::new();
        for reads in reads.chunks(PAGE) {
            for reply in self.apply("hours", reads).await? {
                states.push(reply?.state());
            }
        }
        let mut of_days = states.split_off(names.len()).into_iter().zip(&records);
        let of_job = |(name, state): (&&str, Option<JobState>)| {
            let own = of_days.by_ref().take(days.clone().count());
            let parsed =
                own.filter_map(|(state, (day, _))| Some((*day, Day::parse(&state?.data)?)));
            CountedJob { name: (*name).to_owned(), state, days: parsed.collect() }
        };
        Ok(names.iter().zip(states).map(of_job).collect())
    }

    /// The job with the entries that are not counted.
    async fn with_uncounted(&self, mut job: CountedJob, from: Time) -> Result<CountedJob> {
        let mark = job.days.values().map(|day| day.mark).max().unwrap_or_default();
        let first = micros(from).max(mark + 1);
        // No entry is above the fence of its record.
        let mut found = match &job.state {
            Some(state) if state.unreadable.is_none() && state.fence < first => Vec::new(),
            _ => self.entries_between(&job.name, first, i64::MAX).await?,
        };
        let leases = job.state.iter().flat_map(|state| &state.leases);
        let active: HashSet<i64> = leases.map(|lease| lease.fence).collect();
        let open = job.days.values().flat_map(|day| &day.open).copied();
        let ended: Vec<i64> = open.filter(|fence| !active.contains(fence)).collect();
        for fence in ended {
            found.extend(self.entries_between(&job.name, fence, fence).await?);
        }
        for entry in &found {
            let day = job.days.entry(day_of(entry.fence));
            day.or_insert_with(|| Day::new(&job.name)).count(entry);
        }
        Ok(job)
    }

    /// The entries of a job with these fences: a few of the newest at first, because most jobs have few that
    /// are not counted.
    async fn entries_between(
        &self,
        name: &str,
        first: i64,
        last: i64,
    ) -> Result<Vec<HistoryEntry>> {
        let history = self.needed_history("hours")?;
        let mut found: Vec<HistoryEntry> = Vec::new();
        let above = last.checked_add(1);
        let mut below = above.map(|fence| HistoryCursor { fence, name: String::new() });
        let mut limit = if first == last { 1 } else { FEW };
        loop {
            let mut query = HistoryQuery::new(limit).name(name);
            query.before = below.as_ref();
            let page = self.within("hours", history.entries(query)).await?;
            let is_last = page.len() < limit;
            found.extend(page);
            below = found.last().map(HistoryEntry::cursor);
            if is_last || below.as_ref().is_none_or(|below| below.fence <= first) {
                found.retain(|entry| entry.fence >= first);
                return Ok(found);
            }
            limit = (limit * 2).min(PAGE);
        }
    }
}

/// A job, and its days that are counted.
struct CountedJob {
    name: String,
    state: Option<JobState>,
    days: BTreeMap<i64, Day>,
}

fn micros(at: Time) -> i64 {
    at.timestamp_micros()
}
