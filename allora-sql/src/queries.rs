//! Queries that the indexes answer.

use crate::{
    client::{Client, ReadRows, decides, retry},
    dialect::{DueRange, KINDS},
    driver::Value,
    encoding::StoredRow,
};
use allora_core::{
    Result, Time,
    backend::{Due, DueQuery, JobState, Page, TimeSource},
    record::{MAX_DATA, Record},
    time::from_millis,
};
use std::sync::atomic::Ordering;

/// The most bytes of data that a due query returns: some large records, and all small ones.
const BYTES: usize = 16 * MAX_DATA;

/// The number of records from which a due query may return as many bytes more: the caller asks for
/// those because it has the others.
const RECORDS: usize = 1_000;

/// The number of leased rows that a due query always reads besides those that it may find.
const FEW_LEASED: i64 = 256;

/// The most entries of the due index that a query reads at once; with more, not every kind has as many as
/// it might need.
const FEW_ENTRIES: i64 = 16_384;

impl Client {
    /// The records that want attention, the earliest first.
    pub(crate) async fn find_due(&self, query: DueQuery<'_>, time: TimeSource) -> Result<Due> {
        const OP: &str = "find_due";
        let mut kinds = query.kinds.to_vec();
        kinds.sort_unstable();
        kinds.dedup();
        if kinds.is_empty() {
            return Ok(Due::new(self.now(OP, time).await?, Vec::new(), None));
        }
        let (limit, skip) = (i64_of(query.limit.saturating_add(1)), i64_of(query.skip));
        let bytes = BYTES + query.limit.saturating_sub(RECORDS).saturating_mul(MAX_DATA);
        let mut until = query.until;
        let mut clock = None;
        let mut next_due: Option<Time> = None;
        let mut due: Vec<(Time, StoredRow)> = Vec::new();
        for kinds in kinds.chunks(self.dialect.flavour.kinds_at_once()) {
            let range = DueRange {
                kinds,
                until: millis_up(until),
                skip,
                rows: limit,
                limit,
                bytes: i64_of(bytes),
            };
            let read = self.find_in(OP, range).await?;
            clock = clock.max(read.clock);
            let left_out = read.left_out.and_then(from_millis);
            self.ids.learn(read.rows.iter().map(|row| (&*row.name, row.id)));
            due.extend(read.rows.into_iter().filter_map(|row| Some((row.due_at()?, row))));
            due.sort_by_key(|(at, row)| (*at, row.id));
            let before_left_out = match left_out {
                Some(left_out) => due.partition_point(|(at, _)| *at <= left_out),
                None => due.len(),
            };
            let fitting = fitting(&due, bytes).min(query.limit).min(before_left_out);
            let first_left_out = due.get(fitting).map(|(at, _)| *at);
            if let Some(first_left_out) = first_left_out.into_iter().chain(left_out).min() {
                // Of the other kinds only earlier rows are among the first.
                until = until.min(first_left_out);
                next_due = next_due.into_iter().chain([first_left_out]).min();
                due.truncate(fitting);
            }
        }
        let found = due.into_iter().map(|(_, StoredRow { name, record, .. })| match record {
            Ok(record) => record.state(&name),
            Err(reason) => JobState::unreadable(name, reason),
        });
        Ok(Due::new(decides(time, clock), found.collect(), next_due))
    }

    /// The rows of a range. A claim leaves the row in its place in the index, so that leased rows may
    /// be before others; with too many of them, more rows are read. So it is where one of many kinds has
    /// most of the rows.
    async fn find_in(&self, op: &'static str, mut range: DueRange<'_>) -> Result<ReadRows> {
        let limit = range.limit;
        let kinds = i64_of(range.kinds.len()).max(1);
        // Of many kinds, each has this many times its share.
        let mut shares = 2;
        loop {
            let leased = self.leased.load(Ordering::Relaxed).max(FEW_LEASED);
            let all = limit.saturating_add(leased);
            range.rows = match all.saturating_mul(kinds) <= FEW_ENTRIES {
                true => all,
                false => (all.saturating_mul(shares) / kinds).clamp(1, all),
            };
            let read = self.read(op, self.dialect.find_due(&range)).await?;
            // Only those that no unread row can precede. The time of what is left out has a place, too.
            let usable = read.rows.iter().filter(|row| is_before(row, read.left_out)).count();
            let is_full = i64_of(usable) + 1 >= limit;
            let bytes: usize = read.rows.iter().map(StoredRow::data_len).sum();
            let is_short = read.left_out.is_some_and(|at| at < range.until);
            if is_full || !is_short || i64_of(bytes) >= range.bytes {
                // They become fewer, too.
                self.leased.store(leased - leased / 128, Ordering::Relaxed);
                return Ok(read);
            }
            if range.rows < all {
                shares *= 4;
            } else {
                self.leased.store(leased.saturating_mul(4), Ordering::Relaxed);
            }
        }
    }

    /// A page of the list.
    pub(crate) async fn list(
        &self,
        page: Page<'_>,
    ) -> Result<Vec<(String, Result<Record, String>)>> {
        let read = self.read("list", self.dialect.list(&page)).await?;
        Ok(read.rows.into_iter().map(|row| (row.name, row.record)).collect())
    }

    /// The kinds in the due index.
    pub(crate) async fn kinds(&self) -> Result<Vec<String>> {
        let mut kinds: Vec<String> = Vec::new();
        loop {
            let after = kinds.last().map_or("", String::as_str);
            let statement = self.dialect.kinds_after(after);
            let rows = retry!(self, "kinds", self.driver.rows(statement.clone()))?;
            let is_last = rows.len() < KINDS;
            let read = rows.into_iter().flatten().filter_map(Value::into_bytes);
            // Tombstones have a kind that is not text.
            kinds.extend(read.filter_map(|kind| String::from_utf8(kind).ok()));
            if is_last {
                return Ok(kinds);
            }
        }
    }
}

/// `true` if the row is wanted no later than what is left out.
fn is_before(row: &StoredRow, left_out: Option<i64>) -> bool {
    let at = row.due_at().map(|at| at.timestamp_millis());
    left_out.is_none_or(|left_out| at.is_some_and(|at| at <= left_out))
}

/// Number of the first rows with so many bytes of data, and at least one.
fn fitting(due: &[(Time, StoredRow)], bytes: usize) -> usize {
    let mut before = 0;
    due.iter()
        .take_while(|(_, row)| {
            let fits = before < bytes;
            before += row.data_len();
            fits
        })
        .count()
}

fn i64_of(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// The first whole millisecond at or after this time.
fn millis_up(at: Time) -> i64 {
    let ms = at.timestamp_millis();
    ms + i64::from(!at.timestamp_subsec_nanos().is_multiple_of(1_000_000))
}
