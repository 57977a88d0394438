//! `allora list`: the schedules of a store, one row for each.

use super::{
    filter::FilterOptions,
    state::{Word, left},
    waits::key_waits,
};
use crate::{
    clock,
    declared::{Declared, without_next},
    failure::Outcome,
    output::counted,
    session::{self, Described, Session, data, describe, state_json},
    store::StoreArgs,
    table,
};
use allora_core::{Time, backend::JobState};
use clap::{Args, ValueEnum};
use std::{
    cmp::Reverse,
    io::{self, Write},
};

/// Lists the stored schedules, each with its state and the time until it runs.
#[derive(Debug, Args)]
#[command(after_help = "\
STATES
  The first of these that a job is in; --state and `allora show` have all:
  unreadable  its record or its definition cannot be read
  bad_data    its data is not what its kind, command or http, reads
  orphaned    no live node has this line or job in code any more
  running     a run of it is alive
  paused      an operator has paused it
  key_wait    due, while its concurrency key is busy: `allora show NAME` lists the holders
  overdue     due for more than a minute, and claimed by no node: `allora why NAME`
  dead        it has dead letters, which are not tried again: `allora show NAME`
  due         a node claims it any moment
  waiting     it waits for its time
  ended       it has nothing more to run")]
pub(crate) struct List {
    #[command(flatten)]
    place: StoreArgs,
    #[command(flatten)]
    options: FilterOptions,
    /// The first so many. Only these are read if they are sorted by name, or by next without another
    /// option than --kind and --all; otherwise all that are asked for.
    #[arg(long, short = 'n')]
    limit: Option<usize>,
    /// The order.
    #[arg(long, value_enum, default_value_t = Order::Next)]
    sort: Order,
    /// In the opposite order. All that are asked for are read.
    #[arg(long)]
    reverse: bool,
    /// Jobs in code and in crontabs, too.
    #[arg(long)]
    all: bool,
    /// Prints JSON, one object a line.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Order {
    /// The first that is due comes first.
    Next,
    /// By name.
    Name,
    /// By state, in the order of the list below.
    State,
    /// The last that was started comes first.
    Last,
}

/// A row of the list.
struct Row {
    state: JobState,
    is_orphaned: bool,
    word: Word,
}

impl List {
    pub(crate) fn run(self) -> Outcome {
        let (mut rows, now) =
            session::with(&self.place, async |session: Session| self.read(&session).await)?;
        match self.sort {
            // The order in which they were read.
            Order::Next | Order::Name => {}
            Order::State => rows.sort_by_key(|row| row.word),
            Order::Last => rows.sort_by_key(|row| Reverse(row.state.last_started)),
        }
        if self.reverse {
            rows.reverse();
        }
        rows.truncate(self.limit.unwrap_or(usize::MAX));
        if self.json {
            let mut out = io::BufWriter::new(io::stdout().lock());
            for Row { state, is_orphaned, word } in &rows {
                let mut object = state_json(state, *is_orphaned);
                object["state"] = word.text().into();
                writeln!(out, "{object}")?;
            }
            return Ok(out.flush()?);
        }
        let shown: Vec<[String; 10]> = rows.iter().map(|row| row.cells(now)).collect();
        table::print(COLUMNS, &shown)?;
        Ok(writeln!(io::stdout(), "{}.", counted(rows.len(), "entry"))?)
    }

    /// The rows, ordered by due time or by name, and the store's time.
    async fn read(&self, session: &Session) -> Outcome<(Vec<Row>, Time)> {
        let mut filter = self.options.filter();
        filter.stored_only = !self.all;
        let is_for_orphans = self.options.is_for_orphans();
        let is_for_bad_data = self.options.is_for_bad_data();
        if is_for_orphans && filter.kind.is_none() {
            filter.kind = Some("");
        }
        // These are found afterwards, among all jobs.
        let is_found_afterwards = is_for_orphans || is_for_bad_data;
        let is_read_whole =
            is_found_afterwards || self.reverse || matches!(self.sort, Order::State | Order::Last);
        let limit = self.limit.filter(|_| !is_read_whole).unwrap_or(usize::MAX);
        let states = match self.sort {
            Order::Next => session.schedules.list_by_due(filter, limit).await?,
            _ => session.schedules.list(filter, None, limit).await?,
        };
        let declared = if self.all { Some(Declared::read(session).await?) } else { None };
        let now = session.schedules.store_now().await.unwrap_or_else(|_| clock::now());
        let waits = key_waits(session, &states, now).await?;
        let row = |state: JobState| {
            let is_orphaned = declared.as_ref().is_some_and(|all| all.is_orphaned(&state));
            let state = if is_orphaned { without_next(state) } else { state };
            let waits = waits.contains_key(&state.name);
            Row { word: Word::of(&state, is_orphaned, waits, now), state, is_orphaned }
        };
        let rows = states.into_iter().map(row);
        let is_asked_for = |row: &Row| match row.word {
            _ if !is_found_afterwards => true,
            Word::BadData => is_for_bad_data,
            _ => row.is_orphaned && is_for_orphans,
        };
        Ok((rows.filter(is_asked_for).collect(), now))
    }
}

/// The columns of PerfectSched, under the names that all commands use, with the state.
const COLUMNS: [&str; 10] = [
    "name",
    "kind",
    "state",
    "left",
    "schedule",
    "delay",
    "timezone",
    "scheduled_at",
    "due_at",
    "data",
];

impl Row {
    fn cells(&self, now: Time) -> [String; 10] {
        let Self { state, word, .. } = self;
        let Described { schedule, zone, delay, .. } = describe(state);
        let time = |at: Option<Time>| {
            at.map_or_else(|| "-".into(), |at| at.format("%Y-%m-%d %H:%M:%S +0000").to_string())
        };
        [
            state.name.clone(),
            if state.kind.is_empty() { "-".into() } else { state.kind.clone() },
            word.text().into(),
            left(*word, state.due_at, now),
            schedule,
            delay.as_secs_f64().to_string(),
            zone,
            time(state.next.map(|next| next.scheduled_at)),
            time(state.due_at),
            data(state),
        ]
    }
}
