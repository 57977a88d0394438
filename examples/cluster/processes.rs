//! Starts machines as processes, kills one, and has judged what they did.

use crate::{
    arguments,
    jobs::{self, Chore, Span},
    log::{self, Line},
    machine::Orders,
    store, table,
    verdict::{Death, Evidence, judge},
};
use allora::{
    Backend, BoxError, Runtime, Time,
    backend::{HistoryQuery, JobState, Page},
    runtime::Tokio,
};
use std::{
    env,
    process::{Child, Command, Stdio},
    time::Duration,
};

/// The settings of the command line.
pub(crate) struct Plan {
    pub(crate) nodes: usize,
    pub(crate) lasts: Duration,
    pub(crate) url: String,
    pub(crate) kill: bool,
}

/// Until the first occurrence: time for a process to start and to register the jobs.
const LEAD: Duration = Duration::from_secs(4);
/// The time until the killed machine is replaced.
const PAUSE: Duration = Duration::from_secs(1);
/// The time limit for the runs that are active at the end.
const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) async fn run(plan: &Plan) -> Result<(), BoxError> {
    let clock = Tokio::current()?;
    // Tables and a file of this run's own: nothing of another run is in the way.
    let id = clock.wall().timestamp();
    let prefix = format!("cluster_{id}");
    let log = env::temp_dir().join(format!("allora-cluster-{id}-{}.log", std::process::id()));
    let store = store::open(&plan.url, &prefix).await?;
    let from = clock.wall() + LEAD;
    let from = from - Duration::from_nanos(from.timestamp_subsec_nanos().into());
    let span = Span { from, until: from + plan.lasts };
    let chores = jobs::all(span)?;
    let orders = Orders { label: String::new(), url: plan.url.clone(), prefix, log, span };
    let mut fleet = Fleet { orders, machines: Vec::new() };
    println!("{} jobs on {} processes, for {:?}", chores.len(), plan.nodes, plan.lasts);
    println!("store: {store:?}");
    println!("log:   {}", fleet.orders.log.display());

    for _ in 0..plan.nodes {
        fleet.start()?;
    }
    clock.sleep_until(at(&clock, from)).await;
    if states(&*store).await?.len() < chores.len() {
        return Err(format!("no process was ready within {LEAD:?}: this machine is busy").into());
    }
    let mut death = None;
    if plan.kill {
        clock.sleep_until(at(&clock, from + plan.lasts / 3)).await;
        death = Some(fleet.kill_busy(&clock, &chores).await?);
        clock.sleep_until(clock.now() + PAUSE).await;
        fleet.start()?;
    }
    clock.sleep_until(at(&clock, span.until)).await;
    let states = completed(&*store, &clock).await?;
    fleet.stop()?;

    let history = store.history().ok_or("the store keeps no history")?;
    let past = history.entries(HistoryQuery::new(usize::MAX)).await?;
    let lines = log::read(&fleet.orders.log)?;
    let evidence = Evidence {
        chores: &chores,
        span,
        lines: &lines,
        past: &past,
        states: &states,
        death: death.as_ref(),
    };
    table::print(&evidence, fleet.machines.len());
    judge(&evidence)
}

/// When that is on the timers' clock.
fn at(clock: &Tokio, wall: Time) -> std::time::Instant {
    clock.now() + (wall - clock.wall()).to_std().unwrap_or_default()
}

async fn states(store: &dyn Backend) -> Result<Vec<JobState>, BoxError> {
    let queries = store.queries().ok_or("the store has no queries")?;
    Ok(queries.list(Page::first(1_000)).await?)
}

/// The records when nothing is under way and nothing is to come.
async fn completed(store: &dyn Backend, clock: &Tokio) -> Result<Vec<JobState>, BoxError> {
    let until = clock.now() + PATIENCE;
    loop {
        let states = states(store).await?;
        let busy = states.iter().find(|state| state.head.is_some() || !state.leases.is_empty());
        match busy {
            None => return Ok(states),
            Some(state) if clock.now() > until => {
                let name = &state.name;
                return Err(format!("{name:?} is not done {PATIENCE:?} after its end").into());
            }
            Some(_) => clock.sleep_until(clock.now() + Duration::from_millis(100)).await,
        }
    }
}

/// The processes; none outlives it.
struct Fleet {
    orders: Orders,
    machines: Vec<Machine>,
}

struct Machine {
    label: String,
    process: Child,
}

impl Fleet {
    fn start(&mut self) -> Result<(), BoxError> {
        self.orders.label = format!("machine-{}", self.machines.len() + 1);
        let process = Command::new(env::current_exe()?)
            .args(arguments::of_machine(&self.orders)?)
            .stdin(Stdio::piped())
            .spawn()?;
        self.machines.push(Machine { label: self.orders.label.clone(), process });
        Ok(())
    }

    /// Kills the process that is in the middle of most runs: until half-time one that runs jobs of
    /// both kinds, then any whose work will have to be done again.
    async fn kill_busy(&mut self, clock: &Tokio, chores: &[Chore]) -> Result<Death, BoxError> {
        let Span { from, until } = self.orders.span;
        loop {
            let now = clock.wall();
            let both = now < from + (until - from) / 2;
            let lines = log::read(&self.orders.log)?;
            let worth = |machine: &Machine| worth_killing(&lines, &machine.label, chores, both);
            let busiest = self.machines.iter_mut().max_by_key(|machine| worth(machine));
            let machine = busiest.ok_or("there are no machines")?;
            if worth(machine) > 0 {
                machine.process.kill()?;
                machine.process.wait()?;
                let at = clock.wall();
                println!("{} killed at {}", machine.label, at.format("%H:%M:%S%.3f"));
                return Ok(Death { label: machine.label.clone(), at });
            }
            if now > until {
                return Err("no machine ran anything that could be interrupted".into());
            }
            clock.sleep_until(clock.now() + Duration::from_millis(20)).await;
        }
    }

    /// Closes every standard input, and waits until all have ended.
    fn stop(&mut self) -> Result<(), BoxError> {
        for machine in &mut self.machines {
            drop(machine.process.stdin.take());
        }
        for machine in &mut self.machines {
            machine.process.wait()?;
        }
        Ok(())
    }
}

/// The number of active runs of the machine; 0 if none of them is at least once, or if jobs of both
/// kinds are wanted and there are not.
fn worth_killing(lines: &[Line], label: &str, chores: &[Chore], both: bool) -> usize {
    let open = log::unfinished(lines, label);
    let leased =
        |line: &&&Line| chores.iter().any(|chore| chore.name == line.job && chore.lease.is_some());
    let again = open.iter().filter(leased).count();
    if again == 0 || both && again == open.len() { 0 } else { open.len() }
}
