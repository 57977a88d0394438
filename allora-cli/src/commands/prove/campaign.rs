//! The campaign: workers, the faults that happen to them, and the settling of the books.

use super::{
    background::Background,
    cases::Cases,
    client::{self, Said, schedules},
    excused::Excuses,
    kept::{self, Kept},
    line,
    node::{LEASE, PERIOD, ProveNode, history},
    remote::{self, ProveRemote},
    verdict::{Mark, Verdict},
    worker_clock::WorkerClock,
};
use crate::{
    clock,
    failure::{Failure, Outcome},
    output::Progress,
    store::{Store, StoreArgs, Tables},
    values::random,
};
use allora_conformance::{
    faults::{
        FaultWorkload, MIXED_RATE, Node, Planted, Proxy, REMOTE, TRIGGERED, claims, is_left_out,
        wall,
    },
    history::{Claims, Event, Summary, Violation, What, trigger_of},
};
use allora_core::{
    backend::{HistoryCursor, HistoryEntry, HistoryQuery},
    runtime::Tokio,
};
use fastrand::Rng;
use std::{
    collections::{BTreeMap, BTreeSet, HashSet, VecDeque},
    env,
    ffi::OsString,
    fs,
    io::{BufRead, stdin},
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    process::Command,
    sync::mpsc::{Receiver, channel},
    thread,
    time::{Duration, Instant},
};

/// The time of the first fault, and the longest and shortest time between two.
const FIRST: Duration = Duration::from_secs(5);
const BETWEEN: (u64, u64) = (4_000, 9_000);

/// The number of remote workers.
const REMOTES: usize = 2;

/// The time after its death at which a worker is replaced.
const REPLACED: Duration = Duration::from_secs(1);

/// The time that each answer takes more on a slow line, and for how long the line is slow.
const SLOWER: Duration = Duration::from_millis(400);
const SLOW: Duration = Duration::from_secs(5);

/// The time without faults at the end, in which the last takeovers happen.
const QUIET: Duration = Duration::from_secs(12);

/// The longest time for the settling of the books, in which the store may be failing over.
const SETTLED: Duration = Duration::from_secs(180);

pub(super) struct Campaign<'a> {
    place: &'a StoreArgs,
    time: Duration,
    rate: usize,
    pairs: usize,
    entries: u64,
    seed: u64,
    random: Rng,
    workload: FaultWorkload,
    plant: Option<Planted>,
    /// The program of the workers and its first words, if they are not of this one.
    program: &'a [OsString],
    keeps_history: bool,
    folder: PathBuf,
    workers: Vec<Worker>,
    /// Those without a store.
    remotes: Vec<Option<Node>>,
    marks: Vec<Mark>,
    /// The number of faults so far.
    faults: usize,
    /// The newest release, and that of the workers which are started now.
    newest: u32,
    release: u32,
    /// The ends of faults, each with its time.
    pending: VecDeque<(Instant, Act)>,
    ended_by_themselves: usize,
}

/// A process, and its line to the store if that can be led through this one.
struct Worker {
    node: Option<Node>,
    line: Option<Proxy>,
    place: StoreArgs,
    clock: Option<WorkerClock>,
}

/// The faults, in the order in which they happen. Those of the line come last.
const FAULTS: [Fault; 10] = [
    Fault::Kill,
    Fault::Freeze,
    Fault::KillRemote,
    Fault::Deploy,
    Fault::RollBack,
    Fault::FreezeRemote,
    Fault::SetClock,
    Fault::Cut,
    Fault::Silence,
    Fault::Slow,
];

/// The offsets to which the clock of a worker is set, in seconds, and for how long.
const OFFSETS: [&str; 4] = ["+7", "-7", "+3600", "-3600"];
const WRONG: Duration = Duration::from_secs(6);

#[derive(Clone, Copy)]
enum Fault {
    Kill,
    Freeze,
    KillRemote,
    FreezeRemote,
    Deploy,
    RollBack,
    SetClock,
    Cut,
    Silence,
    Slow,
}

/// The end of a fault.
#[derive(Clone, Copy)]
enum Act {
    Start(usize),
    StartRemote(usize),
    Thaw(usize),
    ThawRemote(usize),
    Hurry(usize),
    SetRight(usize),
}

impl<'a> Campaign<'a> {
    /// # Errors
    /// If there is no place for the log.
    pub(super) fn new(
        place: &'a StoreArgs,
        time: Duration,
        rate: u64,
        workers: u64,
        seed: u64,
    ) -> Outcome<Self> {
        let folder = env::temp_dir().join(format!("allora-prove-{}", std::process::id()));
        fs::DirBuilder::new().mode(0o700).create(&folder).map_err(|error| {
            Failure::failed(format!("cannot make the folder {}: {error}", folder.display()))
        })?;
        // A low rate is too low for jobs of every kind.
        let rate = usize::try_from(rate).unwrap_or(usize::MAX);
        let is_mixed = rate >= 3 * MIXED_RATE;
        let pairs = (if is_mixed { rate - MIXED_RATE } else { rate }) / 2;
        let workload = FaultWorkload::new(folder.join("log"), PERIOD).pairs(pairs);
        let workers = (0..workers)
            .map(|_| {
                let (line, place) = line::of(place)?;
                Ok(Worker { node: None, line, place, clock: None })
            })
            .collect::<Outcome<_>>()?;
        Ok(Self {
            place,
            time,
            pairs,
            // A takeover adds entries.
            entries: time.as_secs() * 2 + 1_000,
            seed,
            random: Rng::with_seed(seed),
            workload: if is_mixed { workload.mixed() } else { workload },
            plant: None,
            program: &[],
            keeps_history: true,
            rate,
            folder,
            workers,
            remotes: (0..if is_mixed { REMOTES } else { 0 }).map(|_| None).collect(),
            marks: Vec::new(),
            faults: 0,
            newest: 0,
            release: 0,
            pending: VecDeque::new(),
            ended_by_themselves: 0,
        })
    }

    /// The clocks of workers are set, by this library.
    ///
    /// # Errors
    /// If their files cannot be written.
    pub(super) fn clocks(mut self, library: &Path) -> Outcome<Self> {
        for (number, worker) in self.workers.iter_mut().enumerate() {
            let file = self.folder.join(format!("clock-{number}"));
            worker.clock = Some(WorkerClock::new(library, file)?);
        }
        Ok(self)
    }

    /// The workers have this defect.
    pub(super) fn planted(mut self, plant: Option<Planted>) -> Self {
        self.plant = plant;
        self
    }

    /// The workers are processes of this program, with these words.
    pub(super) fn worker_program(mut self, program: &'a [OsString]) -> Self {
        self.program = program;
        self
    }

    /// The store keeps no history and no schedules: the jobs are in code, and the books are those of the workers.
    pub(super) fn without_history(mut self) -> Self {
        self.pairs = self.rate / 2;
        self.workload = FaultWorkload::new(self.workload.path(), PERIOD).pairs(self.pairs);
        self.keeps_history = false;
        self.remotes.clear();
        self
    }

    pub(super) async fn run(mut self, cases: Cases, shown: String) -> Outcome<Verdict> {
        let marks = marks_of_stdin();
        let store = self.place.open(Tables::Keep, history(self.entries)).await?;
        let client = match self.workload.is_mixed() {
            true => {
                let schedules = schedules(&store)?;
                self.workload.store(&schedules, LEASE).await?;
                Some(client::start(schedules, self.workload.clone()))
            }
            false => None,
        };
        let kept = kept::keep(store);
        remote::prepare(&self.gateways(), &random(&Tokio::current()?))?;
        for worker in 0..self.workers.len() {
            self.start(worker)?;
        }
        for number in 0..self.remotes.len() {
            self.start_remote(number)?;
        }
        let (begin, from) = (clock::monotonic(), wall());
        let mut fault_at = begin + FIRST;
        let mut progress = Progress::new("occurrences have run");
        let mut seen = Seen::default();
        while clock::monotonic() < begin + self.time {
            clock::pause(Duration::from_millis(200)).await;
            progress.more(seen.more(&self.workload)?);
            while let Ok(what) = marks.try_recv() {
                self.marks.push(Mark::now(what));
            }
            self.do_pending()?;
            self.replace_ended()?;
            let now = clock::monotonic();
            if now >= fault_at && now + QUIET < begin + self.time {
                self.fault()?;
                let (least, most) = BETWEEN;
                fault_at = now + Duration::from_millis(least + self.random.u64(..(most - least)));
            }
        }
        drop(progress);
        if self.faults == 0 {
            return Err(Failure::failed(
                "no fault happened, so nothing is proven: fewer than two workers were alive",
            ));
        }
        let to = wall();
        let said = client.map_or_else(Said::default, Background::end);
        self.stop().await?;
        let (entries, violations, excused) = self.settle(&said, kept.end()).await?;
        let mut log = self.workload.log();
        if !self.program.is_empty() {
            // Others go on with new occurrences while the books are settled.
            log.retain(|event| scheduled(event).is_none_or(|at| at < to));
        }
        // Where no history has it, the worker that recorded it says so.
        let is_lost = |event: &&Event| matches!(event.what, What::Lost { .. });
        let is_of_remote =
            |event: &Event| event.job == REMOTE && matches!(event.what, What::Start { .. });
        if !self.remotes.is_empty() && !log.iter().any(is_of_remote) {
            return Err(Failure::failed("no remote worker has run anything, so nothing is proven"));
        }
        let verdict = Verdict {
            shown,
            cases,
            seed: self.seed,
            time: self.time,
            rate: self.rate,
            workers: self.workers.len(),
            from,
            to,
            due: self.workload.due(&log),
            triggers: said.triggers.len(),
            edits: said.edits,
            excused,
            cut_off: counted(&entries, "lost") + log.iter().filter(is_lost).count(),
            left_out: counted(&entries, "missed") + counted(&entries, "skipped"),
            rejected: self.workload.reported("LeaseLost"),
            ended_by_themselves: self.ended_by_themselves,
            summary: Summary::of(&log),
            marks: std::mem::take(&mut self.marks),
            violations,
        };
        if verdict.violations.is_empty() {
            // A log that stays harms nothing.
            let _ = fs::remove_dir_all(&self.folder);
        }
        Ok(verdict)
    }

    fn start(&mut self, worker: usize) -> Outcome {
        let Worker { place, clock, .. } = &self.workers[worker];
        let (pairs, entries, release) = (self.pairs, self.entries, self.release);
        let (workload, plant) = (&self.workload, self.plant);
        let gateway = self.gateways().join(worker.to_string());
        let mut command = match self.program.split_first() {
            Some((program, words)) => {
                let mut command = Command::new(program);
                command.args(words).arg(workload.path()).arg(worker.to_string()).args(place.url()?);
                command
            }
            None => ProveNode::command(workload, pairs, entries, release, &gateway, plant, place)?,
        };
        if let Some(clock) = clock {
            clock.set("+0")?;
            clock.give(&mut command);
        }
        let node = Node::spawn(command);
        let failed = |error| Failure::failed(format!("cannot start a worker: {error}"));
        self.workers[worker].node = Some(node.map_err(failed)?);
        Ok(())
    }

    fn start_remote(&mut self, number: usize) -> Outcome {
        let command = ProveRemote::command(self.workload.path(), &self.gateways(), number)?;
        let failed = |error| Failure::failed(format!("cannot start a remote worker: {error}"));
        self.remotes[number] = Some(Node::spawn(command).map_err(failed)?);
        Ok(())
    }

    /// The folder with the addresses of the gateways.
    fn gateways(&self) -> PathBuf {
        self.folder.join("gateways")
    }

    /// One more fault: each in turn, so that a short campaign has them all.
    fn fault(&mut self) -> Outcome {
        let healthy: Vec<usize> =
            (0..self.workers.len()).filter(|one| self.is_healthy(*one)).collect();
        if healthy.len() < 2 {
            return Ok(());
        }
        let chosen = healthy[self.random.usize(..healthy.len())];
        let longer = Duration::from_millis(500 + self.random.u64(..4_000));
        let offset = OFFSETS[self.random.usize(..OFFSETS.len())];
        let now = clock::monotonic();
        let Worker { node, line, clock, .. } = &mut self.workers[chosen];
        let possible = FAULTS.into_iter().filter(|fault| match fault {
            Fault::Kill | Fault::Freeze | Fault::Deploy | Fault::RollBack => true,
            Fault::KillRemote | Fault::FreezeRemote => !self.remotes.is_empty(),
            Fault::SetClock => clock.is_some(),
            Fault::Cut | Fault::Silence | Fault::Slow => line.is_some(),
        });
        let possible: Vec<Fault> = possible.collect();
        let (fault, number) = (possible[self.faults % possible.len()], chosen + 1);
        self.faults += 1;
        let remote = self.faults.checked_rem(self.remotes.len()).unwrap_or_default();
        let (what, end) = match (fault, line) {
            (Fault::KillRemote, _) => {
                self.remotes[remote] = None;
                let what = format!("remote worker {} is killed", remote + 1);
                (what, Some((REPLACED, Act::StartRemote(remote))))
            }
            (Fault::FreezeRemote, _) => {
                self.remotes[remote].iter().for_each(|node| node.signal("-STOP"));
                let long = LEASE + longer;
                let what = format!("remote worker {} is frozen for {long:?}", remote + 1);
                (what, Some((long, Act::ThawRemote(remote))))
            }
            (Fault::Kill, _) => {
                // Dropped, it is killed.
                *node = None;
                (format!("worker {number} is killed"), Some((REPLACED, Act::Start(chosen))))
            }
            (Fault::Freeze, _) => {
                node.iter().for_each(|node| node.signal("-STOP"));
                let long = LEASE + longer;
                (format!("worker {number} is frozen for {long:?}"), Some((long, Act::Thaw(chosen))))
            }
            (Fault::Cut, Some(line)) => {
                line.cut_after(0);
                (format!("worker {number} loses an answer, with its connection"), None)
            }
            (Fault::Silence, Some(line)) => {
                line.fall_silent();
                (format!("the connections of worker {number} fall silent"), None)
            }
            (Fault::Slow, Some(line)) => {
                line.delay(SLOWER);
                let what = format!("answers to worker {number} take {SLOWER:?} more, for {SLOW:?}");
                (what, Some((SLOW, Act::Hurry(chosen))))
            }
            (Fault::SetClock, _) => {
                clock.iter().try_for_each(|clock| clock.set(offset))?;
                let what = format!("the clock of worker {number} is set to {offset} s");
                (what, Some((WRONG, Act::SetRight(chosen))))
            }
            (Fault::RollBack, _) => {
                if let Some(node) = node.take() {
                    thread::spawn(move || node.stop());
                }
                self.release = self.newest.saturating_sub(1);
                let what =
                    format!("worker {number} is stopped, and goes back to the release before");
                (what, Some((REPLACED, Act::Start(chosen))))
            }
            (Fault::Deploy | Fault::Cut | Fault::Silence | Fault::Slow, _) => {
                self.newest += 1;
                self.release = self.newest;
                if let Some(node) = node.take() {
                    thread::spawn(move || node.stop());
                }
                let what = format!("worker {number} is stopped, as by a deployment");
                (what, Some((REPLACED, Act::Start(chosen))))
            }
        };
        self.marks.push(Mark::now(what));
        self.pending.extend(end.map(|(after, act)| (now + after, act)));
        Ok(())
    }

    fn is_healthy(&self, worker: usize) -> bool {
        let is_of = |act: &Act| match act {
            Act::Start(one) | Act::Thaw(one) | Act::Hurry(one) | Act::SetRight(one) => {
                *one == worker
            }
            Act::StartRemote(_) | Act::ThawRemote(_) => false,
        };
        self.workers[worker].node.is_some() && !self.pending.iter().any(|(_, act)| is_of(act))
    }

    fn do_pending(&mut self) -> Outcome {
        let now = clock::monotonic();
        let (done, rest): (VecDeque<_>, _) =
            std::mem::take(&mut self.pending).into_iter().partition(|(at, _)| *at <= now);
        self.pending = rest;
        done.into_iter().try_for_each(|(_, act)| self.act(act))
    }

    fn act(&mut self, act: Act) -> Outcome {
        match act {
            Act::Start(worker) => return self.start(worker),
            Act::StartRemote(number) => return self.start_remote(number),
            Act::ThawRemote(number) => {
                self.remotes[number].iter().for_each(|node| node.signal("-CONT"));
            }
            Act::Thaw(worker) => {
                self.workers[worker].node.iter().for_each(|node| node.signal("-CONT"));
            }
            Act::SetRight(worker) => {
                let Some(clock) = &self.workers[worker].clock else { return Ok(()) };
                clock.set("+0")?;
                if !clock.was_seen_wrong() {
                    return Err(Failure::failed(format!(
                        "the clock of worker {} was not set; is --clock-library the right one?",
                        worker + 1
                    )));
                }
            }
            Act::Hurry(worker) => {
                self.workers[worker].line.iter().for_each(|line| line.delay(Duration::ZERO));
            }
        }
        Ok(())
    }

    /// A worker ends only when it is to.
    fn replace_ended(&mut self) -> Outcome {
        for worker in 0..self.workers.len() {
            if self.workers[worker].node.as_mut().is_some_and(Node::has_ended) {
                self.ended_by_themselves += 1;
                self.marks.push(Mark::now(format!("worker {} ended by itself", worker + 1)));
                self.start(worker)?;
            }
        }
        for number in 0..self.remotes.len() {
            if self.remotes[number].as_mut().is_some_and(Node::has_ended) {
                self.ended_by_themselves += 1;
                self.marks.push(Mark::now(format!("remote worker {} ended by itself", number + 1)));
                self.start_remote(number)?;
            }
        }
        Ok(())
    }

    /// Stops the workers as a deployment does.
    async fn stop(&mut self) -> Outcome {
        for (_, act) in std::mem::take(&mut self.pending) {
            if !matches!(act, Act::Start(_) | Act::StartRemote(_)) {
                self.act(act)?;
            }
        }
        let remotes = self.remotes.iter_mut().filter_map(Option::take);
        let workers = self.workers.iter_mut().filter_map(|worker| worker.node.take());
        let nodes: Vec<Node> = remotes.chain(workers).collect();
        let stopped = tokio::task::spawn_blocking(|| nodes.into_iter().for_each(Node::stop));
        stopped.await.map_err(|_| Failure::failed("a worker did not stop as it should"))
    }

    /// Gives the last leases the time to end, with one worker more, and judges each job.
    async fn settle(
        &mut self,
        said: &Said,
        kept: Kept,
    ) -> Outcome<(Vec<HistoryEntry>, Vec<Violation>, usize)> {
        // A planted defect leaves what is never settled.
        let end = clock::monotonic() + if self.plant.is_none() { SETTLED } else { 2 * QUIET };
        let store = self.place.open(Tables::Keep, history(self.entries)).await?;
        let claimed = last_claimed(&self.workload.log());
        if claimed.is_empty() {
            return Err(Failure::failed("no worker has run anything; see its errors above"));
        }
        let own = |job: &String| trigger_of(job).map_or(job.as_str(), |(job, _)| job).to_owned();
        let mut jobs: BTreeSet<String> = claimed.keys().map(own).collect();
        jobs.extend(said.triggers.first().map(|_| TRIGGERED.to_owned()));
        // Another program's workers may take up their own runs alone, and lose no last words with a connection.
        let is_own = self.program.is_empty();
        (0..if is_own { 1 } else { self.workers.len() }).try_for_each(|one| self.start(one))?;
        if !self.remotes.is_empty() {
            self.start_remote(0)?;
        }
        loop {
            let (mut past, mut is_behind) = (Vec::new(), false);
            for job in jobs.iter().filter(|_| self.keeps_history) {
                let (entries, waits) = entries(&store, job, end).await?;
                past.extend(entries);
                // That of other jobs follows new runs of this one worker.
                is_behind |= waits && job == TRIGGERED;
            }
            let known: HashSet<HistoryCursor> = past.iter().map(HistoryEntry::cursor).collect();
            let gone = kept.iter().filter(|(cursor, _)| !known.contains(cursor));
            past.extend(gone.map(|(_, entry)| entry.clone()));
            let log = self.workload.log();
            let found = self.workload.all_violations(&log, &past, &said.triggers, &claimed);
            let excuses =
                Excuses::of(&self.marks, &Summary::of(&log), self.keeps_history || !is_own);
            let (violations, excused) = excuses.judge(found);
            let is_open = |one: &Violation| {
                matches!(one, Violation::Unsettled { .. } | Violation::Gap { .. })
            };
            let has_open = violations.iter().any(is_open);
            if !has_open || clock::monotonic() >= end {
                self.stop().await?;
                // What waits is not lost.
                return match has_open && is_behind && violations.iter().all(is_open) {
                    true => Err(Failure::failed(format!(
                        "nothing is proven: {SETTLED:?} after the trial, triggers of `{TRIGGERED}` still wait for a \
                         worker; this machine or the store is too busy: use a lower --rate"
                    ))),
                    false => Ok((past, violations, excused)),
                };
            }
            clock::pause(Duration::from_millis(500)).await;
        }
    }
}

/// The lines that people type while it runs.
fn marks_of_stdin() -> Receiver<String> {
    let (sender, receiver) = channel();
    thread::spawn(move || {
        for line in stdin().lock().lines().map_while(Result::ok) {
            if !line.trim().is_empty() && sender.send(line.trim().to_owned()).is_err() {
                return;
            }
        }
    });
    receiver
}

/// The part of the log that has been counted.
#[derive(Default)]
struct Seen(usize);

impl Seen {
    /// The starts since the last call.
    fn more(&mut self, workload: &FaultWorkload) -> Outcome<usize> {
        use std::io::{Read, Seek, SeekFrom};
        let Ok(mut file) = fs::File::open(workload.path()) else { return Ok(0) };
        let mut text = Vec::new();
        let place = u64::try_from(self.0).unwrap_or(u64::MAX);
        file.seek(SeekFrom::Start(place))?;
        file.read_to_end(&mut text)?;
        let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        self.0 += whole;
        let lines = String::from_utf8_lossy(&text[..whole]);
        Ok(lines.lines().filter(|line| line.contains("\"what\":\"start\"")).count())
    }
}

/// The history of a job with its active runs, and whether a trigger of it waits; asked again while the store does
/// not answer.
async fn entries(store: &Store, job: &str, end: Instant) -> Outcome<(Vec<HistoryEntry>, bool)> {
    loop {
        let read = async {
            let (Some(queries), Some(history)) = (store.queries(), store.history()) else {
                return Ok((Vec::new(), false));
            };
            let state = queries.get(job).await?;
            let is_behind = state.head.as_ref().is_some_and(|head| head.trigger.is_some());
            let entries = history.entries(HistoryQuery::new(50_000).name(job)).await?;
            Ok((state.with_active_runs(entries), is_behind))
        };
        match read.await {
            Ok(entries) => return Ok(entries),
            Err(error) if clock::monotonic() >= end => {
                let error: allora_core::Error = error;
                return Err(error.into());
            }
            Err(_) => clock::pause(Duration::from_millis(500)).await,
        }
    }
}

/// The last occurrence of each job that was claimed.
fn last_claimed(log: &[Event]) -> BTreeMap<String, i64> {
    let mut last: BTreeMap<String, i64> = BTreeMap::new();
    for (event, claims) in claims(log) {
        let occurrence = last.entry(event.job.clone()).or_insert(claims.occurrence);
        *occurrence = claims.occurrence.max(*occurrence);
    }
    last
}

/// The occurrence of a claim or run.
fn scheduled(event: &Event) -> Option<i64> {
    match event.what {
        What::Claim(Claims { occurrence, .. })
        | What::Start { occurrence, .. }
        | What::End { occurrence, .. } => Some(occurrence),
        _ => None,
    }
}

/// The occurrences with this outcome, those of ranges included.
fn counted(entries: &[HistoryEntry], word: &str) -> usize {
    let period = i64::try_from(PERIOD.as_millis()).unwrap_or(1);
    let those = entries.iter().filter(|entry| entry.outcome.word() == word && !is_left_out(entry));
    let each = those.map(|entry| {
        let first = entry.occurrence.scheduled_at;
        (entry.last.unwrap_or(first) - first).num_milliseconds() / period + 1
    });
    usize::try_from(each.sum::<i64>()).unwrap_or(0)
}
