//! Three daemons on one crontab, killed and started again at random: what the commands themselves
//! have written down is compared with what the store says.

use crate::{
    shared_store::{SharedStore, on_postgres},
    site::{Daemon, Site, patiently, pause},
};
use allora_core::{
    Time,
    backend::{HistoryEntry, Outcome},
};
use chrono::TimeDelta;
use std::{
    collections::{BTreeMap, BTreeSet},
    env,
    time::Duration,
};

const CRONTAB: &str = "\
ALLORA_CATCH_UP=all 1000
ALLORA_NAME=once
@every 1s W='DIR/once'; echo $ALLORA_SCHEDULED_AT $ALLORA_FENCE $ALLORA_NODE >> $W; sleep 0.2
ALLORA_DELIVERY=at-least-once
ALLORA_LEASE=LASTS
ALLORA_NAME=least
@every 1s W='DIR/least'; echo $ALLORA_SCHEDULED_AT $ALLORA_FENCE $ALLORA_NODE >> $W; sleep 0.2
";

/// The line that a command wrote when it began.
#[derive(Debug)]
struct Began {
    at: Time,
    fence: i64,
    node: String,
}

struct Cluster {
    site: Site,
    store: SharedStore,
    daemons: Vec<Daemon>,
    killed: BTreeSet<String>,
}

/// Numbers that look random and follow from a seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below
    }
}

impl Cluster {
    /// Three daemons that share this store, with leases that last so long; without a URL, an SQLite
    /// file.
    fn start(url: Option<String>, lease: &str) -> Self {
        let site = Site::new(&CRONTAB.replace("LASTS", lease)).with(&["--lost-after", lease]);
        let (site, store) = SharedStore::of(site, url);
        let daemons = (0..3).map(|_| site.start()).collect();
        Self { site, store, daemons, killed: BTreeSet::new() }
    }

    /// Kills daemons and starts others, for so long.
    fn suffer(&mut self, time: Duration) {
        let seed = env::var("ALLORA_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(20);
        let mut dice = Dice(seed);
        let begun = self.began("least").len();
        let enough = begun + usize::try_from(time.as_secs()).unwrap();
        patiently_for(time * 4, || {
            pause(Duration::from_millis(dice.roll(1_200)));
            let victim = usize::try_from(dice.roll(3)).unwrap();
            self.killed.insert(node(&self.daemons[victim]));
            self.daemons.swap_remove(victim).kill();
            // Sometimes two are down.
            pause(Duration::from_millis(dice.roll(600)));
            self.daemons.push(self.site.start());
            self.began("least").len() >= enough
        });
    }

    /// Stops it, and returns the histories of both jobs.
    fn stop(&mut self) -> [Vec<HistoryEntry>; 2] {
        let past = self.store.stop(std::mem::take(&mut self.daemons));
        let (once, least) = past.into_iter().partition(|past| past.name.contains("once"));
        [once, least]
    }

    /// The fences of runs of which a daemon has said that they were not its own any more.
    fn lost(&self) -> BTreeSet<i64> {
        let logs = self.site.logs();
        let said = logs.lines().filter(|line| {
            line.contains("lease was not extended in time") || line.contains("its lease is lost")
        });
        let fence = |line: &str| line.split_once(" fence=")?.1.split(' ').next()?.parse().ok();
        said.filter_map(fence).collect()
    }

    fn began(&self, file: &str) -> Vec<Began> {
        let text = self.site.read(file);
        let began = text.lines().map(|line| {
            let words: Vec<&str> = line.split(' ').collect();
            let (at, fence) = (words[0].parse().unwrap(), words[1].parse().unwrap());
            Began { at, fence, node: words[2].to_owned() }
        });
        began.collect()
    }
}

/// The node's id, from its log.
fn node(daemon: &Daemon) -> String {
    let log = daemon.log();
    let (_, after) = log.split_once(" node=").unwrap();
    after.split_whitespace().next().unwrap().to_owned()
}

#[track_caller]
#[expect(clippy::disallowed_methods, reason = "other processes do the work")]
fn patiently_for(longest: Duration, mut is_so: impl FnMut() -> bool) {
    let begun = std::time::Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < longest.max(Duration::from_secs(120)), "not so in time");
    }
}

/// All instants from the first to the last that began.
fn grid(began: &[Began]) -> Vec<Time> {
    let first = began.iter().map(|began| began.at).min().unwrap();
    let last = began.iter().map(|began| began.at).max().unwrap();
    let seconds = (last - first).num_seconds();
    assert!(began.iter().all(|began| (began.at - first).subsec_nanos() == 0), "off the grid");
    (0..=seconds).map(|n| first + TimeDelta::seconds(n)).collect()
}

/// At most once: each instant began at most once, and what did not is recorded with the reason.
fn judge_once(began: &[Began], past: &[HistoryEntry]) {
    let mut starts: BTreeMap<Time, usize> = BTreeMap::new();
    began.iter().for_each(|began| *starts.entry(began.at).or_default() += 1);
    assert!(starts.values().all(|starts| *starts == 1), "twice: {starts:?}");
    for at in grid(began) {
        let recorded = |past: &&HistoryEntry| {
            past.occurrence.scheduled_at <= at
                && at <= past.last.unwrap_or(past.occurrence.scheduled_at)
        };
        // A node that stops releases what it has claimed and not started, for another node.
        let ended = past.iter().filter(recorded).filter(|past| past.is_final());
        let recorded: Vec<&Outcome> = ended.map(|past| &past.outcome).collect();
        assert_eq!(recorded.len(), 1, "{at}: {recorded:?}");
        let excused = matches!(recorded[0], Outcome::Lost | Outcome::Missed);
        assert!(starts.contains_key(&at) || excused, "{at} did not run: {recorded:?}");
    }
}

/// At least once: each instant began, again only after its daemon was killed or knew that it had
/// lost its lease, as on a machine too busy to extend it in time, and ended once.
fn judge_least(
    began: &[Began],
    past: &[HistoryEntry],
    killed: &BTreeSet<String>,
    lost: &BTreeSet<i64>,
) {
    for at in grid(began) {
        let mut starts: Vec<&Began> = began.iter().filter(|began| began.at == at).collect();
        starts.sort_by_key(|began| began.fence);
        let Some((_last, earlier)) = starts.split_last() else { panic!("{at} never ran") };
        for start in earlier {
            assert!(
                killed.contains(&start.node) || lost.contains(&start.fence),
                "{at} ran again, and nobody was killed or lost it: {starts:?}"
            );
        }
        let ended = past.iter().filter(|past| past.occurrence.scheduled_at == at);
        let ended = ended.filter(|past| past.outcome == Outcome::Succeeded).count();
        assert_eq!(ended, 1, "{at} ended {ended} times");
    }
}

fn without_kills(url: Option<String>) {
    // A lease that ends would let an instant run again.
    let mut cluster = Cluster::start(url, "1m");
    patiently("it runs", || cluster.began("least").len() >= 6 && cluster.began("once").len() >= 6);
    let [once, least] = cluster.stop();
    for (file, past) in [("once", once), ("least", least)] {
        let began = cluster.began(file);
        assert_eq!(began.len(), grid(&began).len(), "each instant once: {began:?}");
        // A daemon that stops releases an occurrence that it has claimed and not begun.
        let is_final = |past: &&HistoryEntry| past.is_final();
        let mut ended = past.iter().filter(is_final).map(|past| &past.outcome);
        assert!(ended.all(|outcome| *outcome == Outcome::Succeeded), "{past:?}");
    }
}

fn with_kills(url: Option<String>) {
    let long = env::var("ALLORA_TEST_LONG").is_ok_and(|long| long == "1");
    let seconds = env::var("ALLORA_TEST_SECONDS").ok().and_then(|seconds| seconds.parse().ok());
    let seconds = seconds.unwrap_or(if long { 300 } else { 12 });
    let mut cluster = Cluster::start(url, "2s");
    patiently("it runs", || !cluster.began("least").is_empty());
    cluster.suffer(Duration::from_secs(seconds));
    cluster.site.more_lines("once", 4);
    let [once, least] = cluster.stop();
    judge_once(&cluster.began("once"), &once);
    judge_least(&cluster.began("least"), &least, &cluster.killed, &cluster.lost());
}

mod three_daemons_run_each_instant_once {
    #[test]
    fn sqlite() {
        super::without_kills(None);
    }
    #[test]
    fn postgres() {
        super::on_postgres(super::without_kills);
    }
}

mod daemons_that_are_killed_lose_nothing_in_silence {
    #[test]
    fn sqlite() {
        super::with_kills(None);
    }
    #[test]
    fn postgres() {
        super::on_postgres(super::with_kills);
    }
}
