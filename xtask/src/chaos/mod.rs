//! `cargo xtask chaos`: `allora prove` on private servers, whose own faults are injected meanwhile.
//!
//! `prove` brings the workers, their faults and the books; this brings the servers, and sees to it that each of
//! their faults has happened.

mod emptied;
mod faults;
mod kinds;
mod peers;
mod planted;
mod report;
mod results;
mod scene;

use crate::{
    Failure, Outcome,
    command::{cargo, root, run as run_step, target},
    services,
};
use fastrand::Rng;
use faults::Fault;
use scene::Scene;
use serde_json::{Value, json};
use std::{
    fs::{self, File},
    io::{Read, Write},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

/// The stores with what serves each, and the first part of its address; SQLite is a file.
const STORES: [(&str, &str); 11] = [
    ("sqlite", "sqlite"),
    ("postgres", "postgres"),
    ("pgbouncer", "postgres"),
    ("mysql", "mysql"),
    ("redis", "redis"),
    ("redis-sentinel", "redis+sentinel"),
    ("redis-cluster", "redis+cluster"),
    ("redis-cluster-replicas", "redis+cluster"),
    ("redis-quorum", "redis-quorum"),
    ("etcd", "etcd"),
    ("etcd-cluster", "etcd"),
];

/// Those of `--store each`, a short mix for every change.
const EACH: [&str; 6] = ["sqlite", "postgres", "mysql", "redis", "redis-quorum", "etcd"];

/// The time before the first fault, and the least and most between the end of one and the next.
const FIRST: Duration = Duration::from_secs(6);
const BETWEEN: (u64, u64) = (3_000, 8_000);

/// The time at the end in which the servers are left alone.
const QUIET: Duration = Duration::from_secs(14);

/// The shortest time in minutes: the longest faults of each kind fit in it, and a busy machine may start a server
/// again in ten seconds.
const SHORTEST: f64 = 1.2;

/// Occurrences each second of the short mix: below 15, jobs in code alone take part.
const PLAIN: u64 = 14;

/// The shortest one with all faults.
const LONGER: f64 = 2.5;

#[derive(Clone, Debug, PartialEq)]
struct Request {
    stores: Vec<&'static str>,
    minutes: f64,
    rate: u64,
    seed: u64,
    is_optimised: bool,
    /// With only those faults that each store has, and that are soon over.
    is_short: bool,
}

/// `cargo xtask chaos --store STORE [..]`, `chaos --peer PEER [..]`, `chaos --planted`, or `chaos report`.
pub(crate) fn run(args: &[String]) -> Outcome {
    if args == ["report"] {
        return report::write();
    }
    if args == ["--planted"] {
        return find_planted();
    }
    if let [word, peer, options @ ..] = args
        && word == "--peer"
    {
        return peers::run(peer, options);
    }
    Request::parse(args)?.run()
}

/// A short mix on each store, all at the same time.
pub(crate) fn each() -> Outcome {
    let stores = EACH.to_vec();
    let minutes = SHORTEST;
    Request { stores, minutes, rate: PLAIN, seed: seed(), is_optimised: false, is_short: true }
        .run()
}

/// Each planted defect must be found, or the trials prove nothing.
pub(crate) fn find_planted() -> Outcome {
    planted::run(&program(false)?, seed())
}

/// The command, built.
fn program(is_optimised: bool) -> Outcome<PathBuf> {
    // With the features of the whole, so that what the tests have compiled is used.
    let words = ["build", "--locked", "--workspace", "--all-features", "--bin", "allora"];
    let mut build = cargo(&words);
    if is_optimised {
        build.arg("--release");
    }
    run_step("the command", build)?;
    Ok(target().join(if is_optimised { "release" } else { "debug" }).join("allora"))
}

/// Another one each time.
fn seed() -> u64 {
    now().unsigned_abs()
}

/// In seconds since 1970.
#[expect(clippy::disallowed_methods, reason = "a chore in real time")]
fn now() -> i64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(1, |now| now.as_secs().cast_signed())
}

impl Request {
    fn parse(args: &[String]) -> Outcome<Self> {
        let mut request = Self {
            stores: Vec::new(),
            minutes: 5.0,
            rate: 50,
            seed: seed(),
            is_optimised: true,
            is_short: false,
        };
        let mut words = args.iter();
        while let Some(word) = words.next() {
            match word.as_str() {
                "--debug" => request.is_optimised = false,
                "--short" => request.is_short = true,
                _ => {}
            }
            if ["--debug", "--short"].contains(&word.as_str()) {
                continue;
            }
            let value = words.next().map(String::as_str);
            let number = |least: f64| {
                let number = value.and_then(|value| value.parse().ok());
                number.filter(|number| *number >= least).ok_or_else(|| {
                    Failure::Usage(format!("{word} needs a number of at least {least}"))
                })
            };
            match word.as_str() {
                "--store" => {
                    for name in value.unwrap_or_default().split(',') {
                        match STORES.iter().find(|(store, _)| *store == name) {
                            Some((store, _)) => request.stores.push(store),
                            None if name == "each" => request.stores.extend(EACH),
                            None => {
                                let known = STORES.map(|(store, _)| store).join(", ");
                                return Err(Failure::Usage(format!(
                                    "--store knows {known} and each, and not `{name}`"
                                )));
                            }
                        }
                    }
                }
                "--minutes" => request.minutes = number(SHORTEST)?,
                "--rate" => request.rate = number(2.0)?.round() as u64,
                "--seed" => request.seed = number(0.0)?.round() as u64,
                _ => return Err(Failure::Usage(format!("chaos knows no `{word}`"))),
            }
        }
        match (request.stores.is_empty(), request.is_short || request.minutes >= LONGER) {
            (true, _) => Err(Failure::Usage("chaos needs --store".into())),
            (_, false) => {
                let what =
                    format!("--minutes needs at least {LONGER} for all faults; or add --short");
                Err(Failure::Usage(what))
            }
            (false, true) => Ok(request),
        }
    }

    /// The build's folder.
    fn build(&self) -> &'static str {
        if self.is_optimised { "release" } else { "debug" }
    }

    /// One thread for each store.
    fn run(&self) -> Outcome {
        let program = program(self.is_optimised)?;
        let title = self.stores.join(", ");
        crate::command::step(&format!(
            "chaos on {title}, {} min, seed {}",
            self.minutes, self.seed
        ));
        let judged: Vec<Outcome> = thread::scope(|scope| {
            let running: Vec<_> =
                self.stores.iter().map(|store| scope.spawn(|| self.on(&program, store))).collect();
            let died = || Err(Failure::Check("a store's thread has died".into()));
            running.into_iter().map(|store| store.join().unwrap_or_else(|_| died())).collect()
        });
        let failed: Vec<String> = judged
            .into_iter()
            .zip(&self.stores)
            .filter_map(|(outcome, store)| match outcome {
                Ok(()) => None,
                Err(Failure::Usage(what) | Failure::Check(what)) => {
                    Some(format!("{store}: {what}"))
                }
            })
            .collect();
        match failed.is_empty() {
            true => Ok(()),
            false => Err(Failure::Check(format!("chaos: {}", failed.join("; ")))),
        }
    }

    fn on(&self, program: &Path, store: &'static str) -> Outcome {
        let folder = target().join("chaos");
        fs::create_dir_all(&folder).map_err(|cause| cannot(&folder, &cause))?;
        let mut scene = Scene::start(store, &folder, self.is_short)?;
        let log = folder.join(format!("{store}.log"));
        let mut prove =
            self.prove(program, &scene, &folder.join(format!("{store}.html")), &log, &[])?;
        let injected = self.inject(&mut scene, &mut prove);
        let verdict = end(prove, injected.is_err()).map_err(|failure| with(failure, &log))?;
        let injected = injected.map_err(|failure| with(failure, &log))?;
        let result = json!({
            "store": store, "seed": self.seed, "injected": injected, "verdict": verdict,
            "revision": revision(), "build": self.build(), "at_once": self.stores.len(),
            "processors": thread::available_parallelism().map_or(1, usize::from),
        });
        let place = folder.join(format!("{store}-{}.json", self.seed));
        fs::write(&place, format!("{result:#}\n")).map_err(|cause| cannot(&place, &cause))?;
        println!("{store}: {}", report::line(&result));
        match report::is_kept(&result) {
            true => Ok(()),
            false => Err(Failure::Check(format!("a promise is broken; see {}", place.display()))),
        }
    }

    /// Starts it, with these words more.
    fn prove(
        &self,
        program: &Path,
        scene: &Scene,
        page: &Path,
        log: &Path,
        words: &[&str],
    ) -> Outcome<Child> {
        let log = File::create(log).map_err(|cause| cannot(log, &cause))?;
        let mut prove = Command::new(program);
        prove.args(["prove", "--yes", "--json", "--without-cases"]).current_dir(root());
        prove.args(["--minutes", &self.minutes.to_string(), "--rate", &self.rate.to_string()]);
        prove.args(["--seed", &self.seed.to_string(), "--report"]).arg(page).args(words);
        // The clock of SQLite and of etcd is the worker's.
        if !self.is_short && !scene.store.starts_with("etcd") && scene.arena.is_some() {
            prove.arg("--clock-library").arg(services::faketime()?);
        }
        prove
            .env("ALLORA_URL", scene.url())
            .env_remove("ALLORA_CONFIG")
            .env_remove("ALLORA_ENVIRONMENT");
        prove.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log);
        prove.spawn().map_err(|cause| Failure::Check(format!("allora prove: {cause}")))
    }

    /// Each fault of the store in turn, at times of the seed, until it is time to be quiet. Returns the faults.
    #[expect(clippy::disallowed_methods, reason = "a chore in real time")]
    fn inject(&self, scene: &mut Scene, prove: &mut Child) -> Outcome<Vec<String>> {
        let faults = Fault::of(scene, self.is_short);
        if faults.is_empty() {
            return Ok(Vec::new());
        }
        let end = Instant::now() + Duration::from_secs_f64(self.minutes * 60.0) - QUIET;
        let mut random = Rng::with_seed(self.seed);
        // A short mix on a busy machine may not come to all of them; each is the first one of some seeds.
        let (first, least_faults) = match self.is_short {
            true => (random.usize(..faults.len()), 1),
            false => (0, faults.len()),
        };
        let mut injected = Vec::new();
        pause(FIRST);
        while Instant::now() < end {
            if let Ok(Some(status)) = prove.try_wait() {
                return Err(Failure::Check(format!("allora prove ended early: {status}")));
            }
            let fault = faults[(first + injected.len()) % faults.len()];
            let mut mark = |what: &str| {
                // If it has ended, the next turn says so.
                let _ = prove.stdin.iter_mut().try_for_each(|pipe| writeln!(pipe, "{what}"));
            };
            let what = fault.inject(scene, &mut random, &mut mark)?;
            scene.arena.as_ref().map_or(Ok(()), services::Arena::wait)?;
            injected.push(what);
            let (least, most) = BETWEEN;
            pause(Duration::from_millis(least + random.u64(..most - least)));
        }
        match injected.len() < least_faults {
            true => Err(Failure::Check(format!(
                "only {} of {least_faults} faults happened; give it more --minutes",
                injected.len(),
            ))),
            false => Ok(injected),
        }
    }
}

/// The verdict, when `prove` has ended; killed if it is of no use any more.
fn end(mut prove: Child, is_useless: bool) -> Outcome<Value> {
    if is_useless {
        let _ = prove.kill();
    }
    let mut said = String::new();
    let mut out = prove.stdout.take().expect("piped");
    let read = out.read_to_string(&mut said);
    let status = prove.wait();
    if is_useless {
        return Ok(Value::Null);
    }
    let status = read.and(status).map_err(|cause| Failure::Check(format!("prove: {cause}")))?;
    serde_json::from_str(&said)
        .map_err(|_| Failure::Check(format!("allora prove gave no verdict: {status}")))
}

/// The failure, with the last words of `prove`.
fn with(failure: Failure, log: &Path) -> Failure {
    let said = fs::read_to_string(log).unwrap_or_default();
    match (failure, said.lines().last()) {
        (Failure::Check(what), Some(last)) => Failure::Check(format!("{what} ({last})")),
        (failure, _) => failure,
    }
}

/// The address as the command reads it.
fn url(store: &str, told: &[String]) -> String {
    let (_, scheme) = STORES.iter().find(|(name, _)| *name == store).expect("one of the table");
    let places: Vec<&str> = told[0]
        .split(',')
        .map(|url| url.split_once("://").map_or(url, |(_, place)| place))
        .collect();
    // A store needs a session of its own, which the pooler lends under this name.
    let places: Vec<String> = match store {
        "pgbouncer" => places.iter().map(|place| place.replace("/postgres", "/session")).collect(),
        _ => places.into_iter().map(str::to_owned).collect(),
    };
    let path = told.get(1).map_or(String::new(), |master| format!("/{master}"));
    format!("{scheme}://{}{path}", places.join(","))
}

/// The commit of this tree.
fn revision() -> String {
    let mut git = Command::new("git");
    git.args(["rev-parse", "--short=10", "HEAD"]).current_dir(root());
    let said = git.output().map(|said| said.stdout).unwrap_or_default();
    String::from_utf8_lossy(&said).trim().to_owned()
}

fn cannot(what: &Path, cause: &std::io::Error) -> Failure {
    Failure::Check(format!("{}: {cause}", what.display()))
}

#[expect(clippy::disallowed_methods, reason = "other processes do the work")]
fn pause(time: Duration) {
    thread::sleep(time);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_command_line_is_refused() {
        for line in ["", "--store oracle", "--store redis --minutes 0.1", "--store redis --fast 1"]
        {
            let words: Vec<String> = line.split_whitespace().map(String::from).collect();
            assert!(matches!(Request::parse(&words), Err(Failure::Usage(_))), "{line}");
        }
    }

    #[test]
    fn addresses_are_those_of_the_command() {
        let told = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        let sentinel = told(&["redis://127.0.0.1:1,redis://127.0.0.1:2", "allora"]);
        assert_eq!(
            url("redis-sentinel", &sentinel),
            "redis+sentinel://127.0.0.1:1,127.0.0.1:2/allora"
        );
        assert_eq!(url("etcd", &told(&["http://127.0.0.1:1"])), "etcd://127.0.0.1:1");
    }
}
