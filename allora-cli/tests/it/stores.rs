//! Operators and daemons on every store that has a server.

use crate::site::{Site, lives, patiently, server};
use serde_json::Value;

/// A site whose store is at this address, under a prefix of its own.
struct Place {
    site: Site,
    at: [String; 4],
}

impl Place {
    fn new(url: &str) -> Self {
        let site = Site::new(
            "ALLORA_NAME=ticks\n@every 1s echo $ALLORA_SCHEDULED_AT >> DIR/ticks\n\
             ALLORA_DELIVERY=at-least-once\nALLORA_LEASE=6s\n@every 1s echo $ALLORA_FENCE >> DIR/fences\n",
        );
        let prefix = format!("s{:x}", std::process::id());
        let at = ["--url", url, "--prefix", &prefix].map(str::to_owned);
        let mut site = site.with(&["--prefix", &prefix, "--lost-after", "6s", "--stored"]);
        url.clone_into(&mut site.args[1]);
        Self { site, at }
    }

    #[track_caller]
    fn say(&self, args: &[&str]) -> String {
        let at = self.at.each_ref().map(String::as_str);
        self.site.allora(&[&args[..1], &at, &args[1..]].concat()).fine()
    }

    #[track_caller]
    fn json(&self, args: &[&str]) -> Vec<Value> {
        let said = self.say(&[args, &["--json"]].concat());
        said.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

fn work_on(url: &str) {
    let place = Place::new(url);
    let Place { site, .. } = &place;
    place.say(&["init"]);
    place.say(&["init"]);
    let well = place.say(&["doctor"]);
    for what in ["store", "rights", "latency", "clock", "history"] {
        assert!(well.lines().any(|line| line.starts_with(&format!("ok  {what}"))), "{well}");
    }

    // What is stored.
    let touch = site.path("touched").display().to_string();
    let data = format!(r#"{{"command": ["sh", "-c", "echo $ALLORA_ATTEMPT >> {touch}"]}}"#);
    let added = place.json(&["add", "job", "command", "0 9 * * *", &data, "-t", "Asia/Tokyo"]);
    assert_eq!((&added[0]["zone"], &added[0]["kind"]), (&"Asia/Tokyo".into(), &"command".into()));
    place.say(&["add", "other", "t", "@daily", "{}", "-d", "30"]);
    assert!(place.say(&["list"]).ends_with("2 entries.\n"));
    let delayed = |args: &[&str], by: &str| {
        let job = place.json(args).remove(0);
        assert!(job["definition"].as_str().unwrap().contains(by), "{job}");
    };
    delayed(&["list", "--kind", "t"], "delay 30s");
    delayed(&["modify", "other", "--delay", "60"], "delay 1m");
    place.say(&["pause", "other", "-m", "for repairs"]);
    assert_eq!(place.json(&["list", "--state", "paused"])[0]["paused"]["note"], "for repairs");
    assert_eq!(place.say(&["next", "job", "-n", "3"]).lines().count(), 3);

    // Two daemons, one of which dies.
    let (one, two) = (site.start(), site.start());
    site.more_lines("ticks", 3);
    site.more_lines("fences", 3);
    place.say(&["trigger", "job", "--id", "mine"]);
    patiently("the trigger has run", || site.read("touched") == "1\n");
    let range = ["--from", "2025-12-31T23:00:00Z", "--until", "2026-01-02T01:00:00Z"];
    assert_eq!(place.say(&[&["backfill", "job"], &range[..]].concat()).lines().count(), 2);
    // Also in the eyes of the store: the daemon that has run it is about to die.
    let ran = || place.json(&["show", "job"])[0]["counters"]["succeeded"] == 3;
    patiently("the past has run", ran);
    assert_eq!(site.lines("touched"), 3);
    one.kill();
    site.more_lines("ticks", 3);
    site.more_lines("fences", 3);
    let tick = place.json(&["list", "--all"]);
    let tick = tick
        .iter()
        .filter_map(|job| job["name"].as_str())
        .find(|name| name.ends_with(":ticks"))
        .unwrap();
    place.say(&["pause", tick]);
    assert!(place.say(&["show", tick]).contains("paused"));
    place.say(&["resume", tick]);
    site.more_lines("ticks", 1);
    assert_eq!(two.stop(), 0);
    let ticks = site.read("ticks");
    let mut once: Vec<&str> = ticks.lines().collect();
    once.sort_unstable();
    once.dedup();
    assert_eq!(once.len(), ticks.lines().count(), "each instant once");
    let fences: Vec<i64> = site.read("fences").lines().map(|line| line.parse().unwrap()).collect();
    assert!(fences.is_sorted_by(|a, b| a < b), "{fences:?}");

    // What is known of it.
    let past = place.json(&["history", "job"]);
    assert!(past.len() == 3 && past.iter().all(|past| past["outcome"] == "succeeded"), "{past:?}");
    assert!(past.iter().any(|past| past["occurrence"]["trigger"] == "mine"), "{past:?}");
    assert!(place.json(&["nodes"]).len() >= 2);
    assert_eq!(place.json(&["show", "job"])[0]["counters"]["succeeded"], 3);
    for name in ["job", "other"] {
        place.say(&["delete", name]);
    }
    assert!(place.say(&["list"]).ends_with("0 entries.\n"));
}

/// Two lines and a stored command of one group, on two daemons.
fn groups_on(url: &str) {
    let site = Site::new(
        "ALLORA_CONCURRENCY_KEY=tapes\nSHELL=/bin/sh\n\
         @every 1s echo + a >> DIR/turns; sleep 0.1; echo - a $ALLORA_MUTEX_FENCE >> DIR/turns\n\
         ALLORA_DELIVERY=at-least-once\n\
         @every 1s echo + b >> DIR/turns; sleep 0.1; echo - b $ALLORA_MUTEX_FENCE >> DIR/turns\n",
    );
    let prefix = format!("g{:x}", std::process::id());
    let mut site = site.with(&["--prefix", &prefix, "--stored"]);
    url.clone_into(&mut site.args[1]);
    let say = |args: &[&str]| {
        let at = ["--url", url, "--prefix", &prefix];
        site.allora(&[&args[..1], &at, &args[1..]].concat()).fine()
    };
    say(&["init"]);
    let turns = site.path("turns").display().to_string();
    let work = format!("echo + c >> {turns}; sleep 0.1; echo - c $ALLORA_MUTEX_FENCE >> {turns}");
    let data = serde_json::json!({ "command": ["sh", "-c", work] }).to_string();
    say(&["add", "c", "command", "@every 1s", &data, "--concurrency-key", "tapes"]);
    assert!(say(&["show", "c"]).contains("concurrency-key tapes"));
    assert!(!say(&["show", "c"]).contains("key held by"));
    let daemons = [site.start(), site.start()];
    site.more_lines("turns", 20);
    let shown = || (say(&["show", "c"]), say(&["show", "c", "--json"]));
    let is_held = |(lines, json): &(String, String)| {
        let json: Value = serde_json::from_str(json).unwrap();
        lines.contains("key held by") && json["concurrency_key"]["leases"][0].is_object()
    };
    assert!((0..300).any(|_| is_held(&shown())), "{:?}", shown());
    site.more_lines("turns", 20);
    assert_eq!(daemons.map(|daemon| daemon.stop()), [0, 0]);
    let turns = site.read("turns");
    let turns: Vec<Vec<&str>> = turns.lines().map(|line| line.split(' ').collect()).collect();
    let mut fences = Vec::new();
    for turn in turns.chunks(2) {
        let [began, ended] = turn else { panic!("{turns:?}") };
        assert!(began[0] == "+" && ended[0] == "-" && began[1] == ended[1], "{turns:?}");
        fences.push(ended[2].parse::<i64>().unwrap());
    }
    assert!(fences.is_sorted_by(|a, b| a < b), "{fences:?}");
    for name in ["a", "b", "c"] {
        assert!(turns.iter().any(|turn| turn[1] == name), "{name}: {turns:?}");
    }
    assert!(say(&["show", "allora:key:tapes"]).contains("concurrency key"));
    assert!(!say(&["list", "--all"]).contains("allora:key:tapes"));
    assert!(say(&["list", "--all", "--name", "allora:key:"]).contains("allora:key:tapes"));
}

/// A store without stored schedules: two daemons run a crontab, and one of them dies.
#[cfg(feature = "redis-quorum")]
fn lines_on(url: &str) {
    let site = Site::new(
        "@every 1s echo $ALLORA_SCHEDULED_AT >> DIR/ticks\n\
         ALLORA_DELIVERY=at-least-once\nALLORA_LEASE=6s\n@every 1s echo $ALLORA_FENCE >> DIR/fences\n",
    );
    let prefix = format!("q{:x}", std::process::id());
    let mut site = site.with(&["--prefix", &prefix, "--lost-after", "6s"]);
    url.clone_into(&mut site.args[1]);
    let at = ["--url", url, "--prefix", &prefix];
    let early = site.allora(&[&["list"], &at[..]].concat()).refused(1);
    assert!(early.contains("`allora init` makes them one"), "{early}");
    for _ in 0..2 {
        site.allora(&[&["init"], &at[..]].concat()).fine();
    }
    for command in [&["list"][..], &["history"], &["doctor"], &["delete", "job"]] {
        let refused = site.allora(&[command, &at].concat()).refused(1);
        assert!(refused.contains("no stored schedules") && refused.contains("etcd"), "{refused}");
    }
    let (one, two) = (site.start(), site.start());
    site.more_lines("ticks", 3);
    site.more_lines("fences", 3);
    one.kill();
    site.more_lines("ticks", 3);
    site.more_lines("fences", 3);
    assert_eq!(two.stop(), 0);
    let ticks = site.read("ticks");
    let mut once: Vec<&str> = ticks.lines().collect();
    once.sort_unstable();
    once.dedup();
    assert_eq!(once.len(), ticks.lines().count(), "each instant once");
    let fences: Vec<i64> = site.read("fences").lines().map(|line| line.parse().unwrap()).collect();
    assert!(fences.is_sorted_by(|a, b| a < b), "{fences:?}");
}

/// A trial of a store without a history, of which nothing stays.
#[cfg(feature = "redis-quorum")]
fn proven_on(url: &str) {
    let site = Site::new("");
    let trial = ["prove", "--url", url, "--minutes", "0.3", "--rate", "20", "--seed", "1"];
    let said = site.allora(&[&trial[..], &["--without-cases", "--json"]].concat());
    let verdict: Value = serde_json::from_str(&said.out).unwrap_or_else(|_| panic!("{said:?}"));
    assert_eq!(
        (said.code, &verdict["twice"], &verdict["lost"]),
        (0, &0.into(), &0.into()),
        "{said:?}"
    );
    assert!(verdict["due"].as_u64() > Some(200), "{verdict:#}");
    assert!(verdict["faults"][0]["what"].as_str().unwrap().contains("is killed"), "{verdict:#}");
    let named = said.err.split(' ').find(|word| word.starts_with("allora_prove_")).unwrap();
    let gone = site.allora(&["list", "--url", url, "--prefix", named]).refused(1);
    assert!(gone.contains("`allora init` makes them one"), "{gone}");
}

/// A command and its child are ended at once by an operator elsewhere. The lease is so long that the
/// daemon learns it from a notification.
fn cancel_on(url: &str) {
    let site = Site::new(
        "@every 1s echo $$ >> DIR/begun; echo it waits; sleep 1000; echo $? >> DIR/ended\n",
    );
    let prefix = format!("c{:x}", std::process::id());
    let mut site = site.with(&["--prefix", &prefix, "--lost-after", "1h"]);
    url.clone_into(&mut site.args[1]);
    let at = ["--url", url, "--prefix", &prefix];
    let say = |args: &[&str]| site.allora(&[&args[..1], &at, &args[1..]].concat()).fine();
    say(&["init"]);
    let daemon = site.start();
    site.more_lines("begun", 1);
    let jobs: Value = serde_json::from_str(&say(&["list", "--all", "--json"])).unwrap();
    let name = jobs["name"].as_str().unwrap();
    daemon.says("it waits");
    say(&["pause", name]);
    assert!(say(&["cancel", name]).contains("being cancelled"));
    patiently("the commands have ended", || !site.read("begun").lines().any(lives));
    let past = || -> Vec<Value> {
        let past = say(&["history", name, "--json"]);
        past.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    patiently("it is recorded", || past().iter().all(|past| past["outcome"] == "cancelled"));
    for past in past() {
        assert_eq!((&past["reason"], &past["output"]), (&"operator".into(), &"it waits".into()));
    }
    assert!(!site.path("ended").exists(), "the shells were ended, too");
    assert_eq!(say(&["cancel", name]), format!("no run of {name:?} is active, and none waits\n"));
    assert_eq!(daemon.stop(), 0);
}

fn on(store: &str, variable: &str, url: impl Fn(&str) -> String) {
    if let Some(given) = server(store, variable) {
        work_on(&url(&given));
        groups_on(&url(&given));
        if store != "mysql" {
            cancel_on(&url(&given));
        }
    }
}

/// Several addresses as one: `SCHEME://HOST,HOST`.
#[cfg(any(feature = "redis", feature = "redis-quorum", feature = "etcd"))]
fn together(scheme: &str, urls: &str) -> String {
    let hosts: Vec<&str> = urls.split(',').map(|url| url.split("://").nth(1).unwrap()).collect();
    format!("{scheme}://{}", hosts.join(","))
}

mod operators_and_daemons_work {
    use super::on;
    #[cfg(any(feature = "redis", feature = "redis-quorum", feature = "etcd"))]
    use super::together;

    #[test]
    fn sqlite_groups() {
        let folder = tempfile::tempdir().unwrap();
        super::groups_on(&format!("sqlite:{}", folder.path().join("store.db").display()));
    }
    #[test]
    fn mysql() {
        on("mysql", "ALLORA_TEST_MYSQL_URL", str::to_owned);
    }
    #[test]
    fn postgres() {
        on("postgres", "ALLORA_TEST_POSTGRES_URL", str::to_owned);
    }
    #[cfg(feature = "redis")]
    #[test]
    fn redis() {
        on("redis", "ALLORA_TEST_REDIS_URL", str::to_owned);
    }
    #[cfg(feature = "redis")]
    #[test]
    fn redis_cluster() {
        on("redis", "ALLORA_TEST_REDIS_CLUSTER_URLS", |urls| together("redis+cluster", urls));
    }
    #[cfg(feature = "redis")]
    #[test]
    fn redis_sentinel() {
        let master = std::env::var("ALLORA_TEST_REDIS_SENTINEL_MASTER").unwrap_or_default();
        on("redis", "ALLORA_TEST_REDIS_SENTINEL_URLS", |urls| {
            format!("{}/{master}", together("redis+sentinel", urls))
        });
    }
    #[cfg(feature = "redis-quorum")]
    #[test]
    fn redis_quorum() {
        let variable = "ALLORA_TEST_REDIS_QUORUM_URLS";
        if let Some(urls) = super::server("redis-quorum", variable) {
            let url = together("redis-quorum", &urls);
            super::lines_on(&url);
            super::proven_on(&url);
        }
    }
    #[cfg(feature = "etcd")]
    #[test]
    fn etcd() {
        on("etcd", "ALLORA_TEST_ETCD_URL", |url| together("etcd", url));
    }
    #[cfg(feature = "etcd")]
    #[test]
    fn etcd_cluster() {
        on("etcd", "ALLORA_TEST_ETCD_CLUSTER_URLS", |urls| together("etcd", urls));
    }
}
