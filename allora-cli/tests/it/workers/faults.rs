//! Three gateways, three workers in Python and a store that are killed and started again at random, with 200 occurrences
//! each second: every occurrence is accounted for by the history checker.
//!
//! It lasts for 20 s, with `ALLORA_TEST_LONG=1` for five minutes, and otherwise for `ALLORA_TEST_SECONDS`.

use super::{Language, Worker, with_key};
use crate::site::{Daemon, Site, patiently, pause};
use allora_conformance::{
    environment::{free_ports, program},
    history::{Event, Invariant, Violation, What, check, merge_store_history},
};
use allora_core::{
    Backend, CatchUp, Schedules, StoredSchedule, Time,
    backend::{HistoryEntry, HistoryQuery, Outcome},
    stored::Filter,
};
use allora_redis::Redis;
use serde_json::json;
use std::{
    collections::{BTreeMap, BTreeSet},
    env,
    net::TcpStream,
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::Duration,
};

/// The number of jobs of each delivery, which run every second.
const JOBS: usize = 100;

/// The lease of both deliveries, in milliseconds.
const LEASE: i64 = 4_000;

/// The time that each run works, in seconds.
const WORK: f64 = 0.02;

/// A store of the test's own, which keeps all that it has confirmed.
struct Server {
    folder: tempfile::TempDir,
    program: PathBuf,
    port: u16,
    child: Option<Child>,
}

impl Server {
    fn serve(&mut self) {
        let mut command = Command::new(&self.program);
        command.args(["--bind", "127.0.0.1", "--port", &self.port.to_string(), "--save", ""]);
        command.args(["--appendonly", "yes", "--appendfsync", "always"]);
        command.arg("--dir").arg(self.folder.path());
        command.stdin(Stdio::null()).stdout(Stdio::null());
        self.child = Some(command.spawn().unwrap());
        patiently("redis answers", || TcpStream::connect(("127.0.0.1", self.port)).is_ok());
    }

    fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// The result of `read`.
    fn read<T>(&self, read: impl AsyncFn(Redis) -> T) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let builder = Redis::builder().history(10_000);
        runtime.block_on(async { read(builder.connect(self.url()).await.unwrap()).await })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Numbers that look random and follow from a seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below
    }

    fn pause(&mut self, longest: u64) {
        pause(Duration::from_millis(self.roll(longest)));
    }
}

struct Fleet {
    site: Site,
    server: Server,
    ports: [u16; 3],
    gateways: Vec<(usize, Daemon)>,
    workers: Vec<Worker>,
    logs: Vec<PathBuf>,
    kills: [usize; 3],
    /// The times during which the store was down, in milliseconds.
    outages: Vec<(i64, i64)>,
}

fn now() -> i64 {
    #[expect(clippy::disallowed_methods, reason = "the processes go by this clock, too")]
    let now: Time = std::time::SystemTime::now().into();
    now.timestamp_millis()
}

fn time(millis: i64) -> Time {
    Time::from_timestamp_millis(millis).unwrap()
}

impl Fleet {
    /// `None` where Redis or Python is not installed.
    fn start() -> Option<Self> {
        let folder = program("redis", "redis-server", Vec::new())?;
        let [port, ports @ ..] = free_ports::<4>();
        let (program, data) = (folder.join("redis-server"), tempfile::tempdir().unwrap());
        let mut server = Server { folder: data, program, port, child: None };
        server.serve();
        let more = ["--lost-after", "4s", "--heartbeat", "1s", "--log-level", "warn"];
        let mut site = with_key(Site::new("")).with(&more).with(&["--history", "10000"]);
        site.args[1] = server.url();
        let (gateways, workers, logs, outages) = Default::default();
        let kills = [0; 3];
        let mut fleet = Self { site, server, ports, gateways, workers, logs, kills, outages };
        (0..3).for_each(|number| fleet.start_gateway(number));
        for _ in 0..3 {
            fleet.start_worker()?;
        }
        Some(fleet)
    }

    fn start_gateway(&mut self, number: usize) {
        let address = format!("127.0.0.1:{}", self.ports[number]);
        self.gateways.push((number, self.site.begin(&["--listen", &address])));
    }

    /// Each worker prefers another gateway.
    fn start_worker(&mut self) -> Option<()> {
        let log = self.site.path(&format!("worker.{}", self.logs.len()));
        let mut ports = self.ports;
        ports.rotate_left(self.logs.len() % 3);
        self.logs.push(log.clone());
        self.workers.push(Worker::start(Language::Python, &ports, 40, log, None)?);
        Some(())
    }

    /// Adds the jobs, which run once a second from the first of these times to the second.
    fn add(&self, from: i64, until: i64) {
        let data = json!({ "seconds": WORK }).to_string();
        let job = |name: String| {
            let job = StoredSchedule::new(name, "work", "@every 1s").data_bytes(data.clone());
            job.starting(time(from)).ending(time(until)).catch_up(CatchUp::All { limit: 1_000 })
        };
        let lease = Duration::from_millis(LEASE.unsigned_abs());
        self.server.read(async |store| {
            let schedules = Schedules::new(store).unwrap();
            for i in 0..JOBS {
                schedules.add(&job(format!("once/{i}")).at_most_once()).await.unwrap();
                schedules.add(&job(format!("least/{i}")).at_least_once(lease)).await.unwrap();
            }
        });
    }

    /// Kills and starts again, until then.
    fn suffer(&mut self, until: i64) {
        let seed = env::var("ALLORA_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(20);
        let mut dice = Dice(seed);
        while now() < until {
            dice.pause(2_000);
            match dice.roll(10) {
                0..4 => {
                    let victim = usize::try_from(dice.roll(3)).unwrap();
                    drop(self.workers.swap_remove(victim));
                    dice.pause(1_000);
                    self.start_worker().unwrap();
                    self.kills[0] += 1;
                }
                4..8 => {
                    let victim = usize::try_from(dice.roll(3)).unwrap();
                    let (number, daemon) = self.gateways.swap_remove(victim);
                    daemon.kill();
                    dice.pause(1_000);
                    self.start_gateway(number);
                    self.kills[1] += 1;
                }
                _ => {
                    self.server.kill();
                    let down = now();
                    dice.pause(2_000);
                    self.server.serve();
                    self.outages.push((down, now()));
                    self.kills[2] += 1;
                }
            }
        }
    }

    /// The history of each job.
    fn past(&self) -> BTreeMap<String, Vec<HistoryEntry>> {
        self.server.read(async |store| {
            let mut all = BTreeMap::new();
            for name in (0..JOBS).flat_map(|i| [format!("once/{i}"), format!("least/{i}")]) {
                let query = HistoryQuery::new(10_000).name(&name);
                let entries = store.history().unwrap().entries(query).await.unwrap();
                all.insert(name, entries);
            }
            all
        })
    }

    /// The lines of the workers: the starts, and the ends of the work by job and fence.
    fn written(&self) -> (Vec<Event>, BTreeMap<(String, i64), i64>) {
        let (mut starts, mut ends) = (Vec::new(), BTreeMap::new());
        for line in self.logs.iter().flat_map(|log| super::lines(log)) {
            if line["what"] == "start" {
                starts.push(serde_json::from_value(line).unwrap());
            } else {
                let job = line["job"].as_str().unwrap().to_owned();
                ends.insert((job, line["fence"].as_i64().unwrap()), line["at"].as_i64().unwrap());
            }
        }
        (starts, ends)
    }
}

/// The fate of the occurrences from the first to the last.
#[derive(Debug, Default)]
struct Figures {
    occurrences: usize,
    attempts: usize,
    /// Those that ended well more than once.
    duplicates: usize,
    violations: Vec<Violation>,
    /// Attempts whose work went on when the next one of the job began.
    overlaps: usize,
    /// Outcomes by their words.
    outcomes: BTreeMap<String, usize>,
    /// The longest time between two starts of a job, and what of it neither leases nor outages explain, in milliseconds.
    longest_gap: i64,
    unexplained: i64,
}

fn judge(fleet: &Fleet, from: i64, last: i64) -> Figures {
    let (starts, ends) = fleet.written();
    let following = |_: &str, at: i64| (at < last).then_some(at + 1_000);
    let mut figures = Figures::default();
    for (name, past) in fleet.past() {
        let mut events: Vec<Event> =
            starts.iter().filter(|event| event.job == name).cloned().collect();
        events.sort_by_key(|event| event.at);
        figures.attempts += events.len();
        let is_least = name.starts_with("least");
        let merged = merge_store_history(&events, &name, &past);
        let log = [events.clone(), merged].concat();
        let law = Invariant::new(&following).until(last).completed();
        let law = if is_least { law } else { law.at_most_once() };
        figures.violations.extend(check(&log, &law));
        let mut succeeded: BTreeMap<i64, usize> = BTreeMap::new();
        for entry in &past {
            *figures.outcomes.entry(entry.outcome.word().to_owned()).or_default() += 1;
            if entry.outcome == Outcome::Succeeded {
                let at = entry.occurrence.scheduled_at.timestamp_millis();
                *succeeded.entry(at).or_default() += 1;
            }
        }
        figures.occurrences += usize::try_from((last - from) / 1_000 + 1).unwrap();
        figures.duplicates += succeeded.values().filter(|times| **times > 1).count();
        if is_least {
            let all = usize::try_from((last - from) / 1_000 + 1).unwrap();
            let times: Vec<i64> = succeeded.keys().map(|at| (at - from) / 1_000).collect();
            let others = past.iter().filter(|entry| entry.outcome != Outcome::Succeeded);
            let others: Vec<&HistoryEntry> = others.collect();
            assert_eq!(times.len(), all, "{name} succeeded only at {times:?}; {others:?}");
            judge_gaps(&mut figures, fleet, &events, &past, &ends);
        }
    }
    figures
}

/// The times between two starts of a job that runs at least once.
fn judge_gaps(
    figures: &mut Figures,
    fleet: &Fleet,
    starts: &[Event],
    past: &[HistoryEntry],
    ends: &BTreeMap<(String, i64), i64>,
) {
    let fence = |event: &Event| match event.what {
        What::Start { fence, .. } => fence,
        _ => unreachable!("workers write starts"),
    };
    for pair in starts.windows(2) {
        let (before, after) = (&pair[0], &pair[1]);
        if ends.get(&(before.job.clone(), fence(before))).is_some_and(|end| *end > after.at) {
            figures.overlaps += 1;
        }
        let gap = after.at - before.at;
        figures.longest_gap = figures.longest_gap.max(gap);
        // A lease for each attempt that was lost, also for those that were killed before their work began.
        let lost = past.iter().filter(|entry| {
            (fence(before)..fence(after)).contains(&entry.fence)
                && matches!(entry.outcome, Outcome::Expired | Outcome::Retried(_))
        });
        let leases = LEASE * i64::try_from(lost.count()).unwrap();
        let down = |(from, to): &(i64, i64)| (*to.min(&after.at) - *from.max(&before.at)).max(0);
        let outages: i64 = fleet.outages.iter().map(down).sum();
        figures.unexplained = figures.unexplained.max(gap - 1_000 - leases - outages);
    }
}

#[test]
#[expect(clippy::print_stderr, reason = "the figures of a run by hand")]
fn under_kills_of_workers_gateways_and_the_store_every_occurrence_is_accounted_for() {
    let long = env::var("ALLORA_TEST_LONG").is_ok_and(|long| long == "1");
    let seconds = env::var("ALLORA_TEST_SECONDS").ok().and_then(|seconds| seconds.parse().ok());
    let seconds: i64 = seconds.unwrap_or(if long { 300 } else { 20 });
    let Some(mut fleet) = Fleet::start() else { return };
    let from = (now() / 1_000 + 5) * 1_000;
    let last = from + (seconds - 1) * 1_000;
    fleet.add(from, last);
    fleet.suffer(from + seconds * 1_000);
    let unsettled = |fleet: &Fleet| {
        fleet.server.read(async |store| {
            let schedules = Schedules::new(store).unwrap();
            let jobs = schedules.list(Filter::default(), None, 1_000).await.unwrap();
            let open = jobs.iter().filter(|job| job.next.is_some() || !job.leases.is_empty());
            open.map(|job| job.name.clone()).collect::<BTreeSet<String>>()
        })
    };
    patiently("all is settled", || unsettled(&fleet).is_empty());
    let settled = now();
    let figures = judge(&fleet, from, last);
    let kills = fleet.kills;
    eprintln!(
        "{seconds} s, {} occurrences, {} starts; kills: {} of workers, {} of gateways, {} of the store ({} ms down); \
         outcomes {:?}; {} duplicates, {} overlaps, longest gap {} ms, {} ms of it unexplained; settled after {} ms",
        figures.occurrences,
        figures.attempts,
        kills[0],
        kills[1],
        kills[2],
        fleet.outages.iter().map(|(from, to)| to - from).sum::<i64>(),
        figures.outcomes,
        figures.duplicates,
        figures.overlaps,
        figures.longest_gap,
        figures.unexplained,
        settled - last,
    );
    assert_eq!(figures.violations, []);
    assert_eq!((figures.duplicates, figures.overlaps), (0, 0));
    // Next to other tests, a machine may be late by any time.
    assert!(!long || figures.unexplained < LEASE, "{} ms", figures.unexplained);
}
