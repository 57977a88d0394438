//! Changes that reach three daemons one after the other, some of which are killed on the way: each
//! occurrence is accounted for, and none runs twice.

use crate::{
    shared_store::{SharedStore, on_postgres},
    site::{Daemon, Site, pause},
};
use allora_core::{
    Time,
    backend::{HistoryEntry, Outcome},
};
use chrono::{TimeDelta, Timelike};
use std::{collections::BTreeMap, fs, time::Duration};

/// A line each second, at most once, and one at least once.
const FIRST: &str = "\
ALLORA_SECONDS=1
ALLORA_CATCH_UP=all 1000
ALLORA_NAME=once
* * * * * * echo $ALLORA_SCHEDULED_AT $ALLORA_FENCE >> DIR/once
ALLORA_DELIVERY=at-least-once
ALLORA_LEASE=5s
ALLORA_NAME=least
* * * * * * echo $ALLORA_SCHEDULED_AT $ALLORA_FENCE >> DIR/least
";

/// The machines, each with a crontab of its own.
const MACHINES: [&str; 3] = ["a", "b", "c"];

struct Cluster {
    site: Site,
    store: SharedStore,
    crontab: String,
    zone: &'static str,
    daemons: Vec<Daemon>,
}

impl Cluster {
    fn start(url: Option<String>) -> Self {
        let site = Site::new("").with(&["--lost-after", "5s"]);
        let (mut site, store) = SharedStore::of(site, url);
        // The zone is each daemon's own.
        site.args.drain(2..4);
        let crontab = FIRST.to_owned();
        let mut cluster = Self { site, store, crontab, zone: "UTC", daemons: Vec::new() };
        for machine in MACHINES {
            fs::create_dir(cluster.site.path(machine)).unwrap();
            cluster.write(machine);
            cluster.daemons.push(cluster.daemon(machine));
        }
        cluster
    }

    fn write(&self, machine: &str) {
        self.site.write(&format!("{machine}/jobs"), &self.crontab);
    }

    fn daemon(&self, machine: &str) -> Daemon {
        let crontab = format!("{machine}/jobs");
        let args = ["--zone", self.zone, "--node-name", machine];
        let daemon = self.site.begin_as(self.site.command_for(&crontab, &args));
        daemon.says("has reached its store");
        daemon
    }

    /// Starts one daemon after the other again, with what has changed; the second one is killed.
    fn restart(&mut self) {
        for (index, machine) in MACHINES.into_iter().enumerate() {
            self.write(machine);
            let old = self.daemons.remove(index);
            match index {
                1 => old.kill(),
                _ => old.stop_well(),
            }
            self.daemons.insert(index, self.daemon(machine));
            self.ticks();
        }
    }

    /// Has one daemon after the other read another crontab.
    fn reload(&mut self, crontab: String) {
        self.crontab = crontab;
        for (index, machine) in MACHINES.into_iter().enumerate() {
            self.write(machine);
            let loaded = self.daemons[index].log().matches("crontabs loaded").count();
            self.daemons[index].signal("-HUP");
            self.daemons[index].says_often("crontabs loaded", loaded + 1);
            self.ticks();
        }
    }

    /// Both lines go on.
    fn ticks(&self) {
        self.site.more_lines("once", 1);
        self.site.more_lines("least", 1);
    }

    /// The number of starts of each instant, by what the commands have written.
    fn starts(&self, file: &str) -> BTreeMap<Time, usize> {
        let mut starts = BTreeMap::new();
        for line in self.site.read(file).lines() {
            let at = line.split(' ').next().unwrap().parse().unwrap();
            *starts.entry(at).or_default() += 1;
        }
        starts
    }
}

/// Each instant of all versions of the schedule has one final entry, or lies in one range.
#[track_caller]
fn is_accounted_for(name: &str, starts: &BTreeMap<Time, usize>, past: &[HistoryEntry]) {
    let past: Vec<&HistoryEntry> =
        past.iter().filter(|past| past.name == name && past.is_final()).collect();
    let (first, last) = (*starts.keys().next().unwrap(), *starts.keys().last().unwrap());
    let mut at = first;
    while at <= last {
        let holds = |past: &&&HistoryEntry| {
            let first = past.occurrence.scheduled_at;
            first <= at && at <= past.last.unwrap_or(first)
        };
        let recorded: Vec<&Outcome> = past.iter().filter(holds).map(|past| &past.outcome).collect();
        // The other version of the schedule has the even seconds alone.
        let many = if at.second() % 2 == 0 { 1..=1 } else { 0..=1 };
        assert!(many.contains(&recorded.len()), "{name} at {at}: {recorded:?}");
        let excused = recorded.iter().all(|outcome| matches!(outcome, Outcome::Lost));
        assert!(
            starts.contains_key(&at) || excused,
            "{name} at {at} did not run: {:?}",
            past.iter().filter(holds).collect::<Vec<_>>()
        );
        at += TimeDelta::seconds(1);
    }
}

fn nothing_is_dropped(url: Option<String>) {
    let mut cluster = Cluster::start(url);
    cluster.ticks();
    cluster.zone = "Asia/Tokyo";
    cluster.restart();
    cluster.reload(FIRST.replace("ALLORA_SECONDS=1\n", "ALLORA_SECONDS=1\nALLORA_WINDOW=1h\n"));
    cluster.reload(FIRST.replace("* * * * * *", "*/2 * * * * *"));
    // All are away while occurrences come due, and start with another version.
    for daemon in cluster.daemons.drain(..) {
        daemon.stop_well();
    }
    pause(Duration::from_secs(3));
    FIRST.clone_into(&mut cluster.crontab);
    cluster.zone = "UTC";
    for machine in MACHINES {
        cluster.write(machine);
        cluster.daemons.push(cluster.daemon(machine));
    }
    cluster.restart();
    cluster.ticks();
    let past = cluster.store.stop(std::mem::take(&mut cluster.daemons));
    for file in ["once", "least"] {
        let starts = cluster.starts(file);
        if file == "once" {
            assert!(starts.values().all(|starts| *starts == 1), "twice: {starts:?}");
        }
        is_accounted_for(&format!("jobs:{file}"), &starts, &past);
    }
}

mod changes_that_reach_one_daemon_after_the_other_drop_nothing {
    #[test]
    fn sqlite() {
        super::nothing_is_dropped(None);
    }
    #[test]
    fn postgres() {
        super::on_postgres(super::nothing_is_dropped);
    }
}
