//! `allora prove`: tries a store with workers that are killed and frozen, and keeps the books.

mod background;
mod campaign;
mod cases;
mod client;
mod excused;
mod interrupt;
mod kept;
mod line;
mod node;
mod remote;
mod report;
mod verdict;
mod worker_clock;

pub(crate) use node::{NODE, ProveNode};
pub(crate) use remote::{ProveRemote, REMOTE_WORKER};

use crate::{
    failure::{Failure, Outcome},
    output::{complain, counted},
    session,
    store::{HistoryOptions, StoreArgs, Tables},
    values::random,
};
use allora_conformance::faults::Planted;
use allora_core::{backend::Page, runtime::Tokio};
use campaign::Campaign;
use cases::Cases;
use clap::{Args, value_parser};
use interrupt::Interrupt;
use std::{
    env,
    ffi::OsString,
    fs,
    io::{self, Write},
    path::PathBuf,
    process::Command,
    time::Duration,
};
use verdict::Verdict;

/// Tries a store: workers are killed and frozen while the books are kept.
///
/// Makes a scratch store beside the others (tables or keys of a new prefix), runs the conformance cases,
/// and then some workers that share jobs due every second. Workers are killed, frozen and replaced; you may
/// restart or fail over the database meanwhile. At the end every occurrence must have run, or be recorded as
/// cut off, and none may have run twice. The scratch store is removed, also after Ctrl-C, and nothing else is
/// touched.
///
/// Each line of the standard input marks the report: type `failover` when you begin one. After you have emptied
/// the store, type `emptied`: what was in it is not called lost then, and a run at least once may be run again.
/// Before you set its clock, type `clock`. The exit code is 0 if nothing ran twice and nothing was lost, otherwise 1.
#[derive(Debug, Args)]
pub(crate) struct Prove {
    /// The time for which workers run, in minutes: 0.3 to 360, also in fractions.
    #[arg(long, default_value = "2", value_parser = minutes, value_name = "MINUTES")]
    minutes: Duration,
    /// The number of occurrences that come due each second.
    #[arg(long, default_value_t = 50, value_parser = value_parser!(u64).range(2..=2_000))]
    rate: u64,
    /// The number of workers, each a process with connections of its own.
    #[arg(long, default_value_t = 4, value_parser = value_parser!(u64).range(2..=32))]
    workers: u64,
    /// The number from which the faults are drawn [default: a random one, which is shown].
    #[arg(long)]
    seed: Option<u64>,
    /// Begins; needed for stores on other machines.
    #[arg(long)]
    yes: bool,
    /// The library libfaketime, by which the clocks of workers are set.
    #[arg(long, hide = true, value_name = "FILE")]
    clock_library: Option<PathBuf>,
    /// Plants a defect in the workers, which the trial must find: the exit code must be 1. Another NAME shows
    /// the list.
    #[arg(long, value_parser = node::planted, value_name = "NAME")]
    plant: Option<Planted>,
    /// Tries another scheduler: this program with these words, a log, the number of a worker and the URL is started
    /// as each worker, and writes to the log what it does. The store is only where it is.
    #[arg(long, hide = true, num_args = 1.., value_name = "WORD")]
    worker_program: Vec<OsString>,
    /// Leaves out the conformance cases, each of which makes a store of its own.
    #[arg(long)]
    without_cases: bool,
    /// Writes a page with a plot of the lateness and the faults.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Prints the verdict as JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    place: StoreArgs,
}

impl Prove {
    pub(crate) fn run(self) -> Outcome {
        if self.place.prefix().is_some() {
            return Err(Failure::wrong(
                "`prove` makes a scratch store of a new prefix and removes it; leave out --prefix",
            ));
        }
        let runtime = session::run(async { Ok(Tokio::current()?) })?;
        let [a, b, c, ..] = random(&runtime);
        let scratch = self.place.with_prefix(&format!("allora_prove_{a:02x}{b:02x}{c:02x}"));
        let seed = self.seed.unwrap_or_else(|| u64::from_be_bytes([0, 0, 0, 0, 0, a, b, c]));
        self.announce(&scratch)?;
        if !self.yes && !self.place.is_local()? {
            return Err(Failure::wrong(
                "the store is on another machine: add --yes to do to it what is said above",
            ));
        }
        if let Some(file) = &self.report {
            // Not at the end, when it would be too late to choose another.
            fs::write(file, "").map_err(|error| {
                Failure::wrong(format!("cannot write {}: {error}", file.display()))
            })?;
        }
        let interrupt = Interrupt::listen()?;
        let begun = session::run(self.open(&scratch));
        let done =
            begun.and_then(|keeps_history| self.prove(&scratch, seed, keeps_history, interrupt));
        // A store that cannot be opened may exist in part.
        match (done, session::run(scratch.remove())) {
            (Err(failure), _) => Err(failure),
            (Ok(_), Err(failure)) => Err(failure),
            (Ok(verdict), Ok(())) => self.tell(&verdict),
        }
    }

    fn announce(&self, scratch: &StoreArgs) -> Outcome {
        let prefix = scratch.prefix().unwrap_or_default();
        let Self { minutes, rate, workers, .. } = self;
        let time = shown(*minutes);
        let cases = match self.without_cases {
            true => String::new(),
            false => format!(
                "first {}, each in a store of its own; then ",
                counted(allora_conformance::names().count(), "conformance case")
            ),
        };
        complain(
            "prove",
            &format!(
                "{}: makes scratch stores with the prefix {prefix} and removes them; {cases}{workers} \
                 workers with up to {} connections, {rate} occurrences and about {} writes each second, \
                 for {time}",
                self.place.shown()?,
                workers * CONNECTIONS,
                rate * 3,
            ),
        );
        Ok(())
    }

    /// Makes the scratch store, which must be new. `true` if it keeps a history.
    async fn open(&self, scratch: &StoreArgs) -> Outcome<bool> {
        let store = scratch.open(Tables::Initialise, HistoryOptions::default()).await?;
        let Some(queries) = store.queries() else {
            complain(
                "prove",
                "this store keeps no history and no stored schedules: only jobs in code run, and what a worker did \
                 in the second in which it is killed counts as excused if nothing else tells it",
            );
            return Ok(false);
        };
        match queries.list(Page::first(1)).await?.is_empty() {
            true => Ok(true),
            false => Err(Failure::failed("the scratch store is not empty, so it is not a new one")),
        }
    }

    fn prove(
        &self,
        scratch: &StoreArgs,
        seed: u64,
        keeps_history: bool,
        interrupt: Interrupt,
    ) -> Outcome<Verdict> {
        let cases = match self.without_cases {
            true => Cases::default(),
            false => cases::run(scratch, &interrupt)?,
        };
        let campaign = Campaign::new(scratch, self.minutes, self.rate, self.workers, seed)?;
        let campaign = campaign.planted(self.plant);
        let is_own = self.worker_program.is_empty();
        let campaign = match keeps_history && is_own {
            true => campaign,
            false => campaign.without_history(),
        };
        let campaign = campaign.worker_program(&self.worker_program);
        let campaign = match &self.clock_library {
            Some(library) => campaign.clocks(library)?,
            None => campaign,
        };
        let shown = self.place.shown()?;
        session::run(async {
            tokio::select! {
                verdict = campaign.run(cases, shown) => verdict,
                failure = interrupt.failure() => Err(failure),
            }
        })
    }

    fn tell(&self, verdict: &Verdict) -> Outcome {
        if let Some(file) = &self.report {
            fs::write(file, report::page(verdict)).map_err(|error| {
                Failure::failed(format!("cannot write {}: {error}", file.display()))
            })?;
        }
        let mut out = io::stdout().lock();
        match self.json {
            true => writeln!(out, "{}", verdict.json())?,
            false => write!(out, "{verdict}")?,
        }
        match verdict.holds() {
            true => Ok(()),
            false => Err(Failure::failed("the store did not keep a promise; see above")),
        }
    }
}

/// One of the hidden commands of this program, for a process of its own.
fn this_program(command: &str) -> Outcome<Command> {
    let program = env::current_exe()
        .map_err(|error| Failure::failed(format!("cannot find this program: {error}")))?;
    let mut process = Command::new(program);
    process.arg(command);
    Ok(process)
}

/// Minutes as people write them.
fn minutes(text: &str) -> Result<Duration, String> {
    let minutes = text.parse::<f64>().ok().filter(|minutes| (0.3..=360.0).contains(minutes));
    let minutes = minutes.ok_or("write minutes from 0.3 to 360, as 2 or 0.5")?;
    Ok(Duration::from_secs_f64((minutes * 60.0).round()))
}

/// A time in whole minutes, or in seconds.
fn shown(time: Duration) -> String {
    match time.as_secs() {
        seconds if seconds.is_multiple_of(60) => format!("{} min", seconds / 60),
        seconds => format!("{seconds} s"),
    }
}

/// About the largest number of connections of a worker.
const CONNECTIONS: u64 = 8;
