//! A worker of `allora prove`: a process of its own.

use super::{
    remote::{self, WORK},
    worker_clock::WorkerClock,
};
use crate::{
    clock,
    failure::{Failure, Outcome},
    session,
    store::{HistoryOptions, StoreArgs, Tables},
};
use allora_conformance::faults::{FaultWorkload, Node, Planted, PlantedBackend};
use allora_core::runtime::Tokio;
use clap::Args;
use std::{
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

/// The name of the hidden command.
pub(crate) const NODE: &str = "prove-node";

/// The lease of the runs: after it, the runs of a dead worker are taken over.
pub(super) const LEASE: Duration = Duration::from_secs(5);

/// The time between two occurrences of a job.
pub(super) const PERIOD: Duration = Duration::from_secs(1);

/// The wait before another attempt to connect.
const AGAIN: Duration = Duration::from_millis(500);

#[derive(Debug, Args)]
pub(crate) struct ProveNode {
    /// The file of what the worker does.
    log: PathBuf,
    /// The number of jobs of each delivery.
    pairs: usize,
    /// The number of history entries that each job has.
    entries: u64,
    /// Adds jobs of other kinds.
    #[arg(long)]
    mixed: bool,
    /// The release whose jobs it has.
    #[arg(long, default_value = "0")]
    release: u32,
    /// The file for its address: it is a gateway of remote workers.
    #[arg(long)]
    gateway: Option<PathBuf>,
    /// The defect that it has.
    #[arg(long, value_parser = planted)]
    plant: Option<Planted>,
    #[command(flatten)]
    place: StoreArgs,
}

impl ProveNode {
    /// The command that starts it.
    pub(super) fn command(
        workload: &FaultWorkload,
        pairs: usize,
        entries: u64,
        release: u32,
        gateway: &Path,
        plant: Option<Planted>,
        place: &StoreArgs,
    ) -> Outcome<Command> {
        let mut command = super::this_program(NODE)?;
        command.arg(workload.path());
        command.args([pairs.to_string(), entries.to_string()]);
        command.args(["--release", &release.to_string()]);
        if workload.is_mixed() {
            command.arg("--mixed").arg("--gateway").arg(gateway);
        }
        if let Some(planted) = plant {
            command.args(["--plant", planted.name()]);
        }
        place.pass_to(&mut command);
        Ok(command)
    }

    pub(crate) fn run(self) -> Outcome {
        let stop = Node::stop_request();
        WorkerClock::watch();
        session::run(async {
            let runtime = Tokio::current()?;
            let history = history(self.entries);
            // The store may be failing over.
            let store = loop {
                match self.place.open(Tables::Keep, history).await {
                    Ok(store) => break store,
                    Err(Failure::Unavailable(_)) => clock::pause(AGAIN).await,
                    Err(failure) => return Err(failure),
                }
            };
            let workload =
                FaultWorkload::new(&self.log, PERIOD).pairs(self.pairs).release(self.release);
            let workload = if self.mixed { workload.mixed() } else { workload };
            let builder = match self.plant {
                None => workload.scheduler(store.clone(), runtime, LEASE, WORK),
                Some(planted) => {
                    let store = PlantedBackend::planted(store.clone(), planted);
                    workload.scheduler(store, runtime, LEASE, WORK)
                }
            };
            // Runs that hang must not use up the worker's capacity.
            let builder = builder.concurrency(1_000).grace(Duration::from_secs(2));
            let Some(address) = &self.gateway else {
                builder.build()?.run_until(stop).await;
                return Ok(());
            };
            let gateway = remote::gateway(address)?;
            let scheduler = gateway.handle_on(builder).build()?;
            let served = remote::serve(address, gateway, store, scheduler.handle());
            tokio::select! {
                _ = scheduler.run_until(stop) => Ok(()),
                failed = served => failed,
            }
        })
    }
}

/// So many entries of each job.
pub(super) fn history(entries: u64) -> HistoryOptions {
    HistoryOptions {
        history: Some(entries),
        history_failures: Some(entries),
        ..HistoryOptions::default()
    }
}

/// Reads the name of a defect.
pub(super) fn planted(name: &str) -> Result<Planted, String> {
    let names = || Planted::ALL.map(|(_, name)| name).join(", ");
    Planted::named(name).ok_or_else(|| format!("the defects are {}", names()))
}
