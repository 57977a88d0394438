//! The expectations of users of cron daemons that share a Redis, with whole schedulers: Allora of
//! Ruby (A), and the locks on several servers of Redlock and what was written about them (L).
//!
//! `lease::` and `claim::` are cases of the conformance suite, which `conformance` runs on one server,
//! a cluster and sentinels. `quorum::` are tests of `allora-redis-quorum`, whose `conformance` runs the
//! suite on three and five servers. `allora-core` and `allora-cli` stand where no store makes a
//! difference, and name the test there.
//!
//! | row | promise | shown by |
//! |---|---|---|
//! | A1 | every so often, without drift | [`a1_a13_a19_a_job_keeps_its_phase_is_in_time_and_doubles_nothing`] |
//! | A2 | cron with seconds | [`a2_a_job_runs_at_seconds_of_its_cron_text`] |
//! | A3 | `mon#2`, lists, ranges, names; refused if not understood | [`a3_a_nodes_next_instant_follows_from_the_text`], and of the text itself `cron::dialect` in `allora-core` |
//! | A4 | one file, the same on all machines | [`a4_nodes_that_read_one_file_run_its_jobs_once_also_when_they_are_lost_and_come_back`] |
//! | A5 | no leader | [`a5_when_any_node_is_lost_the_others_continue`] |
//! | A6 | on every machine, by choice for each job | [`a6_a_job_for_every_node_runs_on_each_of_them_and_the_others_on_one`] |
//! | A7 | stopped and started again | [`a7_occurrences_missed_while_no_node_ran_run_once_and_the_schedule_continues`], `trace` |
//! | A8 | a start disturbs nothing | `trace::a_start_postpones_nothing_and_runs_nothing_twice` |
//! | A9 | a job that crashes harms no other | [`a9_a_job_that_crashes_is_recorded_and_runs_again_at_its_next_instant`] |
//! | A10 | schedules and stores of one's own | [`a10_a_schedule_and_a_store_may_be_the_users_own`] |
//! | A11 | several installations in one server | [`a11_two_prefixes_on_one_server_are_separate`] |
//! | A12 | what is unused vanishes, and nothing else | `unused::a_job_that_no_code_has_vanishes_and_no_other_does` |
//! | A13 | runs begin within the interval and a second | [`a1_a13_a19_a_job_keeps_its_phase_is_in_time_and_doubles_nothing`] |
//! | A14 | what happens is said, if wanted | [`a14_a_node_emits_its_events`]; as lines: `stop::without_a_log_nothing_is_written` in `allora-cli` |
//! | A15 | a stop lets runs end | [`a15_a_stopped_node_lets_its_run_end_and_claims_nothing_more`]; by signal: `stop` in `allora-cli` |
//! | A16 | the store is away for a while | `faults::outage` |
//! | A17 | the last definition of a name is in force | [`a17_the_last_definition_of_a_name_is_in_force`] |
//! | A18 | url, host, port, database, socket, password | `connect::every_way_to_name_a_server_works`, `connect::a_password_is_asked_for_and_never_shown` |
//! | A19 | a second may slip, and never doubles | [`a1_a13_a19_a_job_keeps_its_phase_is_in_time_and_doubles_nothing`] |
//! | L1 | one of many machines runs it | `quorum::article` (fifty), [`l1_one_of_twenty_machines_runs_each_occurrence`] on one server |
//! | L2 | servers are lost, or hang | `quorum::article`, `quorum::faults` |
//! | L3 | a dead holder's run is another's after its lease | `quorum::holders::a_dead_holders_run_is_run_again_after_its_lease_and_its_completion_is_refused`, `faults::node` |
//! | L4 | late, skewed or stubborn machines run nothing again | `quorum::article`, `quorum::clocks`, [`l4_a_late_or_repeated_claim_finds_that_the_run_was_completed`] |
//! | L5 | already locked | `lease::no_other_node_claims_a_leased_occurrence` |
//! | L5 | extend; extend what is over; what is another's | `lease::an_extended_lease_keeps_other_nodes_away`, `lease::a_late_completion_is_accepted_if_the_run_was_not_taken_over`, `lease::every_end_of_a_run_that_was_taken_over_is_refused` |
//! | L5 | unlock what is over; of a random value | `lease::every_end_of_a_run_that_was_taken_over_is_refused`, `lease::a_fence_that_was_never_given_is_refused` |
//! | L5 | in different processes | [`l5_l6_a_run_is_completed_by_its_fence_from_any_process_and_by_no_older_one`] |
//! | L5 | quorum; split votes | `quorum::faults::without_a_majority_nothing_is_claimed_and_with_it_again_all_goes_on`, `quorum::contention` (a unit test) |
//! | L5 | validity, drift | none is worked out: the servers' clocks decide, `quorum::clocks`; a run is cancelled when no extension was confirmed in time, `lease::a_lease_ends_with_the_last_instant_at_the_latest` |
//! | L6 | a token that grows is checked at the end | [`l5_l6_a_run_is_completed_by_its_fence_from_any_process_and_by_no_older_one`], `quorum::holders`, `lease::fences_grow_through_every_end_of_a_lease` |

use crate::stores::{Kind, Place, pause, runtime, send};
use allora_conformance::faults::{Hooks, Wrapped};
use allora_core::{
    Backend, Event, Handle, Run, Runtime as _, Schedule, Scheduler, SchedulerBuilder, Time,
    backend::{
        Action, Applied, Batch, Claim, Claimed, Completion, Cursor, JobState, NextRun, Operation,
        Outcome, Reply, TimeSource,
    },
    cron, crontab, every, job,
    runtime::Tokio,
};
use allora_redis::Redis;
use std::{
    collections::HashSet,
    future::{Ready, ready},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::task::JoinHandle;

const PERIOD: Duration = Duration::from_millis(200);

/// The runs: job, node, occurrence.
type Runs = Arc<Mutex<Vec<(String, String, i64)>>>;

struct Node {
    handle: Handle,
    runs: JoinHandle<()>,
}

impl Node {
    /// With a job of each sort.
    async fn start(place: &Place, runs: &Runs) -> Self {
        let jobs = |builder: SchedulerBuilder| {
            builder
                .job("one", every(PERIOD), work(runs))
                .add("each", job(every(PERIOD), work(runs)).on_every_node())
                .job("fails", every(PERIOD), async |_: Run| panic!("as jobs do"))
        };
        Self::with(place.connect(Redis::builder()).await.unwrap(), jobs)
    }

    /// With these jobs.
    fn with(store: impl Backend, jobs: impl FnOnce(SchedulerBuilder) -> SchedulerBuilder) -> Self {
        let builder = Scheduler::builder(store).runtime(Tokio::current().unwrap());
        let scheduler = jobs(builder).build().unwrap();
        let handle = scheduler.handle();
        let runs = runtime().spawn(async move {
            scheduler.run().await;
        });
        Self { handle, runs }
    }

    fn name(&self) -> String {
        self.handle.node().to_owned()
    }

    async fn stop(self) {
        self.handle.stop();
        self.runs.await.unwrap();
    }

    /// As when its machine is lost: it says nothing more to anybody.
    async fn lose(self) {
        self.runs.abort();
        let _ = self.runs.await;
    }
}

/// Notes that it ran.
fn work(runs: &Runs) -> impl Fn(Run) -> Ready<()> + Clone + Send + Sync + 'static {
    let runs = runs.clone();
    move |run: Run| {
        let at = run.scheduled_at().timestamp_millis();
        runs.lock().unwrap().push((run.name().to_owned(), run.node().to_owned(), at));
        ready(())
    }
}

/// Occurrences of a job, as often as they ran.
fn of(runs: &Runs, job: &str) -> Vec<i64> {
    runs.lock().unwrap().iter().filter(|run| run.0 == job).map(|run| run.2).collect()
}

async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let runtime = Tokio::current().unwrap();
    let end = runtime.now() + Duration::from_secs(60);
    while !is_so() {
        assert!(runtime.now() < end, "in vain: {what}");
        pause(20).await;
    }
}

fn each_once(runs: &Runs) {
    let ran = of(runs, "one");
    let different: HashSet<i64> = ran.iter().copied().collect();
    assert_eq!(different.len(), ran.len(), "one occurrence ran twice: {ran:?}");
}

fn on_one_server(test: impl AsyncFnOnce(&Place, &Runs)) {
    let Some(place) = Kind::One.place() else { return };
    runtime().block_on(async {
        test(&place, &Runs::default()).await;
        place.clear().await;
    });
}

#[test]
fn a5_when_any_node_is_lost_the_others_continue() {
    on_one_server(async |place, runs| {
        let mut nodes = Vec::new();
        for _ in 0..3 {
            nodes.push(Node::start(place, runs).await);
        }
        for _ in 0..3 {
            nodes.remove(0).lose().await;
            let before = of(runs, "one").len();
            until("the others go on", || of(runs, "one").len() >= before + 3).await;
            nodes.push(Node::start(place, runs).await);
        }
        for node in nodes {
            node.stop().await;
        }
        each_once(runs);
    });
}

#[test]
fn a6_a_job_for_every_node_runs_on_each_of_them_and_the_others_on_one() {
    on_one_server(async |place, runs| {
        let mut nodes = Vec::new();
        for _ in 0..3 {
            nodes.push(Node::start(place, runs).await);
        }
        let names: HashSet<String> = nodes.iter().map(Node::name).collect();
        assert_eq!(names.len(), 3);
        until("it runs on all three", || {
            let runs = runs.lock().unwrap();
            let on: HashSet<&String> =
                runs.iter().filter(|run| run.0 == "each").map(|run| &run.1).collect();
            on.len() == 3 && on.iter().all(|node| names.contains(*node))
        })
        .await;
        until("the other runs, too", || of(runs, "one").len() > 3).await;
        for node in nodes {
            node.stop().await;
        }
        each_once(runs);
    });
}

#[test]
fn a7_occurrences_missed_while_no_node_ran_run_once_and_the_schedule_continues() {
    on_one_server(async |place, runs| {
        let node = Node::start(place, runs).await;
        until("it runs", || of(runs, "one").len() > 2).await;
        node.stop().await;
        let before = of(runs, "one");
        pause(1_500).await;
        let node = Node::start(place, runs).await;
        until("it goes on", || of(runs, "one").len() > before.len() + 3).await;
        node.stop().await;
        let ran = of(runs, "one");
        let period = i64::try_from(PERIOD.as_millis()).unwrap();
        // The occurrences that the stopped node has released run first.
        let passed_over =
            ran[before.len() - 1..].windows(2).any(|two| two[1] - two[0] >= 5 * period);
        assert!(passed_over, "of many that were missed the latest runs: {ran:?}");
        assert!(ran.iter().all(|at| (at - ran[0]) % period == 0), "it keeps its phase: {ran:?}");
        each_once(runs);
    });
}

#[test]
fn a11_two_prefixes_on_one_server_are_separate() {
    on_one_server(async |place, runs| {
        let other = Kind::One.place().unwrap();
        let others = Runs::default();
        let (a, b) = (Node::start(place, runs).await, Node::start(&other, &others).await);
        until("both run", || of(runs, "one").len() > 2 && of(&others, "one").len() > 2).await;
        a.stop().await;
        let before = of(&others, "one").len();
        place.clear().await;
        until("the other goes on", || of(&others, "one").len() > before + 2).await;
        b.stop().await;
        for runs in [runs, &others] {
            each_once(runs);
        }
        other.clear().await;
    });
}

#[test]
fn a1_a13_a19_a_job_keeps_its_phase_is_in_time_and_doubles_nothing() {
    on_one_server(async |place, runs| {
        const EACH: i64 = 100;
        let begun = wall();
        let late: Arc<Mutex<Duration>> = Arc::new(Mutex::new(Duration::MAX));
        let mut nodes = Vec::new();
        for _ in 0..2 {
            let late = late.clone();
            let least = move |event: &Event| {
                if let Event::RunStarted { late: this, .. } = event {
                    let mut late = late.lock().unwrap();
                    *late = (*late).min(*this);
                }
            };
            nodes.push(Node::with(place.open().await, |builder| {
                let every = every(Duration::from_millis(EACH as u64));
                builder.on_event(least).job("one", every, work(runs))
            }));
        }
        until("it ran sixty times", || of(runs, "one").len() >= 60).await;
        for node in nodes {
            node.stop().await;
        }
        each_once(runs);
        let mut ran = of(runs, "one");
        ran.sort_unstable();
        assert!(ran[0] > begun.timestamp_millis(), "the first is after the start");
        assert!(ran.iter().all(|at| (at - ran[0]) % EACH == 0), "no drift: {ran:?}");
        let late = *late.lock().unwrap();
        // A busy machine delays many runs, and a delay of the scheduler's own delays all of them.
        assert!(late <= Duration::from_millis(1_100), "{late:?}");
    });
}

#[test]
fn a2_a_job_runs_at_seconds_of_its_cron_text() {
    on_one_server(async |place, runs| {
        let mut nodes = Vec::new();
        for _ in 0..2 {
            let store = place.open().await;
            let even = cron("*/2 * * * * *").unwrap();
            nodes.push(Node::with(store, |builder| builder.job("one", even, work(runs))));
        }
        until("it runs", || of(runs, "one").len() >= 2).await;
        for node in nodes {
            node.stop().await;
        }
        each_once(runs);
        assert!(of(runs, "one").iter().all(|at| at % 2_000 == 0));
    });
}

#[test]
fn a4_nodes_that_read_one_file_run_its_jobs_once_also_when_they_are_lost_and_come_back() {
    const FILE: &str = "@every 1s first\n@every 1s second\n@hourly third\n";
    on_one_server(async |place, runs| {
        let start = async || {
            let store = place.open().await;
            Node::with(store, |builder| {
                // A node that is lost between a claim and its run keeps the job for so long.
                let mut builder = builder.lost_after(Duration::from_secs(2));
                for entry in crontab::parse(FILE).unwrap() {
                    builder = match entry.when {
                        crontab::When::Every(every) => {
                            builder.job(entry.command, every, work(runs))
                        }
                        crontab::When::Cron(cron) => builder.job(entry.command, cron, work(runs)),
                        _ => unreachable!(),
                    };
                }
                builder
            })
        };
        let mut nodes = vec![start().await, start().await, start().await];
        for lost in [1, 0, 2, 1] {
            let before = of(runs, "second").len();
            until("it runs", || of(runs, "second").len() > before).await;
            nodes.remove(lost).lose().await;
            nodes.push(start().await);
        }
        let often = |job| of(runs, job).len() >= 4;
        until("both run again", || often("first") && often("second")).await;
        for node in nodes {
            node.stop().await;
        }
        for job in ["first", "second"] {
            let ran = of(runs, job);
            assert!(ran.windows(2).all(|two| two[0] < two[1]), "{job}: {ran:?}");
        }
        let third = record(&place.open().await, "third").await;
        assert_eq!(third.next.unwrap().scheduled_at.timestamp() % 3_600, 0);
    });
}

#[test]
fn a3_a_nodes_next_instant_follows_from_the_text() {
    assert!(cron("0 0 * * mon#2,z").is_err(), "nothing is guessed");
    on_one_server(async |place, runs| {
        let texts = ["0 9 * * mon#2", "15,45 8-10 * jan-mar,dec mon-fri"];
        let store = place.open().await;
        let begun = wall();
        let node = Node::with(store.clone(), |builder| {
            let add = |builder: SchedulerBuilder, text| {
                builder.job(text, cron(text).unwrap(), work(runs))
            };
            texts.into_iter().fold(builder, add)
        });
        for text in texts {
            let due = record(&store, text).await.next.unwrap().scheduled_at;
            let is_next = |from| Some(due) == cron(text).unwrap().next_at(from);
            assert!(is_next(begun) || is_next(wall()), "{text}: {due}");
        }
        node.stop().await;
    });
}

#[test]
fn a9_a_job_that_crashes_is_recorded_and_runs_again_at_its_next_instant() {
    on_one_server(async |place, runs| {
        let node = Node::start(place, runs).await;
        until("others run beside it", || of(runs, "one").len() >= 5).await;
        let store = place.open().await;
        while record(&store, "fails").await.counters.failed < 3 {
            pause(20).await;
        }
        node.stop().await;
        let seen = record(&store, "fails").await;
        assert!(matches!(&seen.last, Some(Outcome::Failed(why)) if why.contains("as jobs do")));
    });
}

/// A schedule of the user: the whole periods since 1970.
#[derive(Debug)]
struct Own;

impl Schedule for Own {
    fn next_at(&self, after: Time) -> Option<Time> {
        let period = i64::try_from(PERIOD.as_millis()).unwrap();
        let at = (after.timestamp_millis().div_euclid(period) + 1) * period;
        allora_core::time::from_millis(at)
    }
}

/// A store of the user: counts what goes to the one inside.
#[derive(Debug)]
struct Counting(Arc<AtomicU64>);

#[async_trait::async_trait]
impl Hooks for Counting {
    async fn reschedule(
        &self,
        store: &Arc<dyn Backend>,
        batch: Batch<'_>,
    ) -> allora_core::Result<Applied> {
        self.0.fetch_add(1, Ordering::Relaxed);
        store.reschedule(batch).await
    }
}

#[test]
fn a10_a_schedule_and_a_store_may_be_the_users_own() {
    on_one_server(async |place, runs| {
        let calls: Arc<AtomicU64> = Arc::default();
        let store = Wrapped::around(place.open().await, Counting(calls.clone()));
        let node = Node::with(store, |builder| builder.job("one", Own, work(runs)));
        until("it runs", || of(runs, "one").len() >= 3).await;
        node.stop().await;
        each_once(runs);
        let period = i64::try_from(PERIOD.as_millis()).unwrap();
        assert!(of(runs, "one").iter().all(|at| at % period == 0));
        assert!(calls.load(Ordering::Relaxed) >= 3);
    });
}

#[test]
fn a14_a_node_emits_its_events() {
    on_one_server(async |place, runs| {
        let said: Arc<Mutex<Vec<&str>>> = Arc::default();
        let says = said.clone();
        let node = Node::with(place.open().await, |builder| {
            let builder = builder.job("one", every(PERIOD), work(runs));
            builder.on_event(move |event| {
                says.lock().unwrap().push(match event {
                    Event::Ready { jobs: 1, .. } => "ready",
                    Event::RunStarted { name, .. } if &**name == "one" => "started",
                    Event::RunEnded { outcome: Outcome::Succeeded, .. } => "ran",
                    _ => "else",
                });
            })
        });
        until("it runs", || of(runs, "one").len() >= 2).await;
        node.stop().await;
        let said: Vec<&str> =
            said.lock().unwrap().iter().copied().filter(|word| *word != "else").collect();
        assert_eq!(said[..4], ["ready", "started", "ran", "started"]);
    });
}

#[test]
fn a15_a_stopped_node_lets_its_run_end_and_claims_nothing_more() {
    on_one_server(async |place, runs| {
        let begun: Arc<AtomicU64> = Arc::default();
        let (begins, ends) = (begun.clone(), runs.clone());
        let node = Node::with(place.open().await, |builder| {
            builder.job("one", every(PERIOD), move |run: Run| {
                let (begins, ends) = (begins.clone(), ends.clone());
                async move {
                    begins.fetch_add(1, Ordering::Relaxed);
                    pause(700).await;
                    work(&ends)(run).await;
                }
            })
        });
        until("one runs", || begun.load(Ordering::Relaxed) > 0).await;
        node.stop().await;
        let seen = record(&place.open().await, "one").await;
        assert_eq!(of(runs, "one").len() as u64, begun.load(Ordering::Relaxed));
        assert_eq!(
            (seen.counters.started, seen.leases.len()),
            (seen.counters.succeeded, 0),
            "{seen:?}"
        );
    });
}

#[test]
fn a17_the_last_definition_of_a_name_is_in_force() {
    on_one_server(async |place, runs| {
        let store = place.open().await;
        let hourly = every(Duration::from_secs(3_600));
        let old = Node::with(store.clone(), |builder| builder.job("one", hourly, work(runs)));
        let before = record(&store, "one").await;
        old.stop().await;
        let new =
            Node::with(store.clone(), |builder| builder.job("one", every(PERIOD), work(runs)));
        until("it runs as it was defined last", || of(runs, "one").len() >= 2).await;
        new.stop().await;
        assert_ne!(record(&store, "one").await.definition, before.definition);
        let twice = Scheduler::builder(store).runtime(Tokio::current().unwrap());
        let twice =
            twice.job("one", every(PERIOD), work(runs)).job("one", every(PERIOD), work(runs));
        assert_eq!(twice.build().unwrap_err().kind(), allora_core::ErrorKind::AlreadyExists);
    });
}

#[test]
fn l1_one_of_twenty_machines_runs_each_occurrence() {
    on_one_server(async |place, runs| {
        let mut nodes = Vec::new();
        for _ in 0..20 {
            let store = place.open().await;
            nodes.push(Node::with(store, |builder| builder.job("one", every(PERIOD), work(runs))));
        }
        until("it runs", || of(runs, "one").len() >= 10).await;
        for node in nodes {
            node.stop().await;
        }
        each_once(runs);
    });
}

/// Registers a job that is due at 1 s; returns its fence.
async fn due(store: &Redis) -> i64 {
    let first = Some(at(1).into());
    let register = Action::Register { definition: "d", version: 0, first };
    reply(store, 1, register).await.state().unwrap().fence
}

fn at(seconds: i64) -> Time {
    allora_core::time::from_millis(seconds * 1_000).unwrap()
}

async fn reply(store: &Redis, seconds: i64, action: Action<'_>) -> Reply {
    let now = TimeSource::Fixed(at(seconds));
    send(store, now, Operation::new("one", action)).await.unwrap()
}

/// The state of a job, once a node has registered it.
async fn record(store: &Redis, name: &str) -> JobState {
    loop {
        match send(store, TimeSource::Fixed(wall()), Operation::read(name)).await.unwrap() {
            Reply::State(state) => return *state,
            Reply::Absent => pause(20).await,
            other => panic!("{name}: {other:?}"),
        }
    }
}

async fn complete(store: &Redis, seconds: i64, fence: i64, then: Option<NextRun>) -> Reply {
    let (then, completion) = (Cursor::To(then), Completion::Succeeded);
    reply(store, seconds, Action::Complete { fence, then, completion }).await
}

fn claim(claim_id: u128, fence: i64) -> Action<'static> {
    let lease = Duration::from_secs(3);
    Action::Claim(Claim::at_least_once(claim_id, fence, at(1).into(), lease))
}

async fn claimed(store: &Redis, seconds: i64, claim_id: u128, fence: i64) -> Claimed {
    reply(store, seconds, claim(claim_id, fence)).await.claimed().unwrap()
}

// There, a machine that came nine seconds late, or tried for fifteen seconds, ran it again.
#[test]
fn l4_a_late_or_repeated_claim_finds_that_the_run_was_completed() {
    on_one_server(async |place, _| {
        let (one, two) = (place.open().await, place.open().await);
        let seen = due(&one).await;
        let run = claimed(&one, 1, 1, seen).await;
        assert_eq!(complete(&one, 2, run.fence, Some(at(61).into())).await, Reply::Accepted);
        for seconds in [2, 3, 10, 16] {
            for (id, fence) in [(2, seen), (3, run.fence)] {
                let state = reply(&two, seconds, claim(id, fence)).await.state().unwrap();
                assert_eq!((state.due_at, state.counters.started), (Some(at(61)), 1));
            }
        }
    });
}

#[test]
fn l5_l6_a_run_is_completed_by_its_fence_from_any_process_and_by_no_older_one() {
    on_one_server(async |place, _| {
        let (one, two) = (place.open().await, place.open().await);
        let seen = due(&one).await;
        let dead = claimed(&one, 1, 1, seen).await;
        let run = claimed(&two, 4, 2, dead.fence).await;
        assert!(run.fence > dead.fence && run.occurrence == dead.occurrence);
        assert_eq!(complete(&one, 5, dead.fence, None).await, Reply::LeaseLost);
        // By a process that did not claim it, and after the lease.
        assert_eq!(complete(&one, 9, run.fence, None).await, Reply::Accepted);
        assert_eq!(complete(&two, 9, run.fence, None).await, Reply::Accepted, "a repetition");
    });
}

fn wall() -> Time {
    Tokio::current().unwrap().wall()
}
