//! Jobs in code on many nodes, in virtual time, over one server whose requests and operations take
//! time: the work of the store for each occurrence, the lateness, and the shares of the nodes.
//!
//! `cargo test -p allora-core --test it many_nodes:: -- --nocapture` prints the table, up to 100 nodes
//! with `ALLORA_TEST_LONG=1`. `cargo xtask bench` runs it with the times of a store that it has
//! measured, in `ALLORA_TEST_STORE_COSTS`: microseconds of a round trip, of the server's work for a
//! request, and of that for each operation.

use crate::support::{Lab, Member, Seat, at, ms, secs};
use allora_conformance::faults::{Hooks, Wrapped};
use allora_core::{
    Backend, Result, Run, Runtime, Time,
    backend::{Action, Applied, Batch, Due, DueQuery, Operation, Queries, Reply, TimeSource},
    cron, job,
    runtime::SimNode,
};
use async_trait::async_trait;
use std::{
    collections::{BTreeMap, BTreeSet},
    env, fmt,
    sync::{Arc, LazyLock, Mutex},
    time::{Duration, Instant},
};

const JOBS: usize = 1_000;

/// The first instant at which all nodes have seen each other, in minutes.
const WARM: usize = 2;

/// The first instant at which all nodes trust what they have seen.
const CALM: usize = 4;

/// The number of instants that are measured.
const INSTANTS: usize = 3;

const COSTS: &str = "ALLORA_TEST_STORE_COSTS";

/// The times of one server that serves a request after the other.
struct Costs {
    /// A round trip with its share of a commit that others use, too.
    trip: Duration,
    /// The server's work for a request.
    request: Duration,
    /// The server's work for each operation but reads, which need half of it.
    operation: Duration,
}

static COST: LazyLock<Costs> = LazyLock::new(|| {
    // Without others, those of PostgreSQL.
    let costs = env::var(COSTS).unwrap_or_else(|_| "140 80 6".to_owned());
    let micros: Vec<f64> = costs.split(' ').map(|micros| micros.parse().unwrap()).collect();
    let [trip, request, operation] = micros[..] else { panic!("{COSTS}={costs}: three numbers") };
    let [trip, request, operation] =
        [trip, request, operation].map(|micros| Duration::from_secs_f64(micros / 1e6));
    Costs { trip, request, operation }
});

/// The requests about jobs, since the measurement began.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    calls: usize,
    claims: usize,
    failed: usize,
    reads: usize,
    others: usize,
}

#[derive(Default)]
struct Server {
    busy_until: Option<Instant>,
    tally: Tally,
}

/// One node's way to the server.
struct Metered {
    server: Arc<Mutex<Server>>,
    node: SimNode,
    has_registry: bool,
}

impl fmt::Debug for Metered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Metered")
    }
}

impl Metered {
    async fn sleep(&self, span: Duration) {
        self.node.sleep_until(self.node.now() + span).await;
    }

    /// Waits for the requests before this one, and for this one.
    async fn serve(&self, work: Duration) {
        self.sleep(COST.trip / 2).await;
        let done = {
            let (now, mut server) = (self.node.now(), self.server.lock().unwrap());
            let done = server.busy_until.map_or(now, |busy| busy.max(now)) + work;
            server.busy_until = Some(done);
            done
        };
        self.node.sleep_until(done).await;
    }
}

/// The mark counts, too: nodes read and write it because of jobs.
fn is_of_job(operation: &Operation<'_>) -> bool {
    !operation.name.starts_with("allora:node:")
}

fn work(operation: &Operation<'_>) -> Duration {
    let is_read = matches!(operation.action, Action::Read);
    if is_read { COST.operation / 2 } else { COST.operation }
}

#[async_trait]
impl Hooks for Metered {
    async fn reschedule(&self, store: &Arc<dyn Backend>, batch: Batch<'_>) -> Result<Applied> {
        self.serve(COST.request + batch.operations.iter().map(work).sum::<Duration>()).await;
        let operations = batch.operations;
        let applied = store.reschedule(batch).await?;
        {
            let tally = &mut self.server.lock().unwrap().tally;
            tally.calls += usize::from(operations.iter().any(is_of_job));
            for (operation, reply) in operations.iter().zip(&applied.replies) {
                match operation.action {
                    _ if !is_of_job(operation) => {}
                    Action::Claim(_) => {
                        tally.claims += 1;
                        tally.failed += usize::from(!matches!(reply, Ok(Reply::Claimed(_))));
                    }
                    Action::Read => tally.reads += 1,
                    _ => tally.others += 1,
                }
            }
        }
        self.sleep(COST.trip / 2).await;
        Ok(applied)
    }

    fn has_queries(&self) -> bool {
        self.has_registry
    }

    fn has_notifier(&self) -> bool {
        false
    }

    fn claims_due(&self, _: &dyn Queries) -> bool {
        false
    }

    async fn find_due(
        &self,
        store: &dyn Queries,
        query: DueQuery<'_>,
        time: TimeSource,
    ) -> Result<Due> {
        self.serve(COST.request).await;
        store.find_due(query, time).await
    }
}

/// The load of a node.
#[derive(Clone, Copy)]
struct Load {
    jobs: usize,
    takes: Duration,
    concurrency: usize,
    has_registry: bool,
}

const LOAD: Load =
    Load { jobs: JOBS, takes: Duration::ZERO, concurrency: 1_000, has_registry: true };

/// Nodes with the same jobs, which are due at each full minute.
struct Many {
    lab: Lab,
    members: Vec<Member>,
    server: Arc<Mutex<Server>>,
    runs: Arc<Mutex<Vec<Ran>>>,
}

/// One run: its node, job and scheduled time, and its lateness.
#[derive(Clone)]
struct Ran {
    node: usize,
    job: String,
    at: Time,
    late: Duration,
}

impl Many {
    fn new(seed: u64, nodes: usize, load: Load) -> Self {
        let (lab, server) = (Lab::new(seed), Arc::default());
        let mut many = Self { lab, members: Vec::new(), server, runs: Arc::default() };
        for _ in 0..nodes {
            many.join(load);
        }
        many
    }

    /// Starts one more node.
    fn join(&mut self, load: Load) {
        let Load { jobs, takes, concurrency, has_registry } = load;
        let seat: Seat = self.lab.seat(self.lab.sim.node());
        let (server, node) = (self.server.clone(), seat.node.clone());
        let metered = Metered { server, node, has_registry };
        let store = Wrapped::around(self.lab.store.clone(), metered);
        let mut builder = seat.builder_on(store).concurrency(concurrency);
        for n in 0..jobs {
            let (node, runs) = (seat.node.clone(), self.runs.clone());
            let work = async move |run: Run| {
                let late = (node.wall() - run.scheduled_at()).to_std().unwrap_or_default();
                let (job, at) = (run.name().to_owned(), run.scheduled_at());
                runs.lock().unwrap().push(Ran { node: node.id(), job, at, late });
                if !takes.is_zero() {
                    node.sleep_until(node.now() + takes).await;
                }
            };
            builder = builder.add(format!("job-{n}"), job(cron("* * * * *").unwrap(), work));
        }
        self.members.push(seat.run(builder.build().unwrap()));
    }

    /// Runs until half a minute after the instants of this minute.
    fn until_minute(&self, minute: usize) {
        self.lab.until((minute * 60 + 30) as f64);
    }

    /// The runs since the last call.
    fn take_runs(&self) -> Vec<Ran> {
        std::mem::take(&mut *self.runs.lock().unwrap())
    }

    /// The runs of the occurrences of this minute, of which each job has one.
    #[track_caller]
    fn runs_of(&self, minute: usize) -> Vec<Ran> {
        self.until_minute(minute);
        let mut runs = self.take_runs();
        runs.retain(|ran| ran.at == at(minute as f64 * 60.0));
        let jobs: BTreeSet<&str> = runs.iter().map(|ran| ran.job.as_str()).collect();
        assert_eq!((runs.len(), jobs.len()), (JOBS, JOBS), "each occurrence, once");
        runs
    }

    /// Kills nodes shortly before the instant of this minute.
    fn kill_before(&self, minute: usize, members: &[Member]) {
        self.lab.until(minute as f64 * 60.0 - 5.0);
        members.iter().for_each(|one| one.node.crash());
    }
}

/// The figures of one number of nodes.
#[derive(Debug)]
struct Figures {
    calls: f64,
    operations: f64,
    failed: f64,
    p50: Duration,
    p99: Duration,
    least: usize,
    most: usize,
}

fn measured(seed: u64, nodes: usize, has_registry: bool) -> Figures {
    let many = Many::new(seed, nodes, Load { has_registry, ..LOAD });
    many.until_minute(CALM);
    many.take_runs();
    many.server.lock().unwrap().tally = Tally::default();
    many.until_minute(CALM + INSTANTS);
    let runs = many.take_runs();
    assert_eq!(runs.len(), JOBS * INSTANTS, "each occurrence, once");
    let tally = many.server.lock().unwrap().tally;
    let Tally { calls, claims, failed, reads, others } = tally;
    let mut late: Vec<Duration> = runs.iter().map(|ran| ran.late).collect();
    late.sort_unstable();
    let mut shares: BTreeMap<usize, usize> =
        many.members.iter().map(|one| (one.node.id(), 0)).collect();
    runs.iter().for_each(|ran| *shares.entry(ran.node).or_default() += 1);
    let each = |count: usize| count as f64 / runs.len() as f64;
    Figures {
        calls: each(calls),
        operations: each(claims + reads + others),
        failed: failed as f64 / claims as f64,
        p50: late[late.len() / 2],
        p99: late[late.len() * 99 / 100],
        least: shares.values().min().copied().unwrap() / INSTANTS,
        most: shares.values().max().copied().unwrap() / INSTANTS,
    }
}

#[test]
#[expect(clippy::print_stdout, reason = "the table is a part of the result")]
fn the_work_for_an_occurrence_does_not_grow_with_the_nodes() {
    let long = env::var_os("ALLORA_TEST_LONG").is_some();
    println!(
        "nodes | registry | calls | operations | failed claims | p50 ms | p99 ms | share min–max"
    );
    let figures = |nodes: usize, has_registry: bool| {
        let figures = measured(1, nodes, has_registry);
        let Figures { calls, operations, failed, p50, p99, least, most } = &figures;
        let ms = |span: &Duration| span.as_secs_f64() * 1_000.0;
        println!(
            "{nodes} | {has_registry} | {calls:.3} | {operations:.2} | {:.1} % | {:.1} | {:.1} | \
             {least}–{most}",
            failed * 100.0,
            ms(p50),
            ms(p99)
        );
        figures
    };
    for nodes in [1, 3] {
        figures(nodes, false);
    }
    let many: &[usize] = if long { &[1, 3, 10, 30, 100] } else { &[1, 3, 30] };
    for &nodes in many {
        let Figures { operations, failed, p99, least, most, .. } = figures(nodes, true);
        assert!(failed <= 0.02, "{nodes} nodes: {failed}");
        assert!(operations < 8.0, "{nodes} nodes: {operations}");
        // A slower store makes them later.
        assert!(p99 <= ms(40) || env::var_os(COSTS).is_some(), "{nodes} nodes: {p99:?}");
        if nodes <= 10 {
            assert!(most <= 2 * least, "{nodes} nodes: {least} to {most}");
        }
    }
}

fn latest(runs: &[Ran]) -> Duration {
    runs.iter().map(|ran| ran.late).max().unwrap()
}

#[test]
fn the_jobs_of_a_node_that_was_killed_start_within_milliseconds() {
    let many = Many::new(2, 3, LOAD);
    assert!(latest(&many.runs_of(WARM)) <= ms(10));
    many.kill_before(WARM + 1, &many.members[..1]);
    let runs = many.runs_of(WARM + 1);
    assert!(latest(&runs) <= ms(50), "{:?}", latest(&runs));
    let late = runs.iter().filter(|ran| ran.late >= ms(20)).count();
    assert!((JOBS / 4..JOBS / 2).contains(&late), "{late} jobs were those of the killed node");
}

/// Of 56 orders of three nodes among eight, one has the three dead ones in front, in six ways.
#[test]
fn jobs_whose_first_three_nodes_are_dead_start_half_a_second_later_on_the_first_node_that_checks() {
    let many = Many::new(3, 8, LOAD);
    many.runs_of(WARM);
    many.kill_before(WARM + 1, &many.members[..3]);
    let runs = many.runs_of(WARM + 1);
    let late: Vec<Duration> =
        runs.iter().map(|ran| ran.late).filter(|late| *late > ms(60)).collect();
    assert!((5..60).contains(&late.len()), "{}", late.len());
    // If the first three nodes in the order of that instant are the dead ones, too, the fourth checks.
    let last = ms(500) + ms(1_000) * 3 / 8 + ms(20);
    assert!(late.iter().all(|late| (ms(500)..=last).contains(late)), "{late:?}");
}

#[test]
fn a_node_at_its_capacity_leaves_its_jobs_to_the_next() {
    let load = Load { takes: secs(1), ..LOAD };
    let mut many = Many::new(4, 2, load);
    many.join(Load { concurrency: 10, ..load });
    for minute in WARM..WARM + 3 {
        let runs = many.runs_of(minute);
        assert!(latest(&runs) <= ms(50), "{:?}", latest(&runs));
        let small = runs.iter().filter(|ran| ran.node == many.members[2].node.id()).count();
        assert_eq!(small, 10);
    }
}

#[test]
fn nodes_that_never_read_the_registry_claim_at_once() {
    let many = Many::new(5, 3, Load { has_registry: false, ..LOAD });
    many.runs_of(WARM);
    many.kill_before(WARM + 1, &many.members[..2]);
    assert!(latest(&many.runs_of(WARM + 1)) <= ms(20));
}

#[test]
fn a_node_that_joins_gets_its_share_within_two_minutes() {
    let mut many = Many::new(6, 3, LOAD);
    many.runs_of(WARM);
    many.join(LOAD);
    let joined = many.members[3].node.id();
    let runs = many.runs_of(WARM + 2);
    let share = runs.iter().filter(|ran| ran.node == joined).count();
    assert!((JOBS / 6..JOBS / 3).contains(&share), "{share}");
    assert!(latest(&runs) <= ms(20), "{:?}", latest(&runs));
}
