//! `cargo xtask chaos --peer`: other schedulers under the same faults, for contrast. Nothing that they do fails it.

use super::{Request, cannot, emptied::number, end, revision, scene::Scene, with};
use crate::{
    Failure, Outcome, bench,
    command::{run as run_step, step, target},
    figures::{grouped, seconds},
};
use serde_json::{Value, json};
use std::{collections::BTreeSet, fmt::Write, fs, path::Path, process::Command};

/// The peers, each with a query for the number of runs that its store has not seen finish, its promise and its
/// settings.
const PEERS: [(&str, &str, &str); 2] = [
    (
        "durare",
        "SELECT count(*) FROM dbos.workflow_status WHERE status <> 'SUCCESS'",
        "0.5 promises that a cron tick happens once across any number of executors, and that a step whose\n  \
         result is recorded is not run again. One schedule `* * * * * *` for each job. Each worker has a name\n  \
         that outlives it, and takes up its own runs when it starts again. Missed ticks are backfilled then,\n  \
         too, from the last one that happened: those that all living workers missed before it, while the server\n  \
         was away, are not.",
    ),
    (
        "graphile_worker",
        "SELECT count(*) FROM graphile_worker._private_jobs",
        "0.14 promises no number of runs, and recovers the jobs of workers without a heartbeat if it is told\n  \
         to: here after 5 s, the lease of allora's trials, and without a delay. Its schedules have whole\n  \
         minutes, so all occurrences are in its queue before the trial, each with its time; polled every 250\n  \
         ms. A worker ends itself at an error of the database, and is started again.",
    ),
];

/// Of the results, in the target folder.
pub(super) const FOLDER: &str = "chaos-peers";

/// The faults of the server, all of which must have happened.
const OF_SERVER: usize = 3;

/// `cargo xtask chaos --peer PEER [OPTION..]`.
pub(super) fn run(peer: &str, options: &[String]) -> Outcome {
    let Some((_, unfinished, _)) = PEERS.iter().find(|(known, ..)| *known == peer) else {
        let known = PEERS.map(|(known, ..)| known).join(", ");
        return Err(Failure::Usage(format!("--peer knows {known}, and not `{peer}`")));
    };
    let mut words = ["--store", "postgres", "--short"].map(String::from).to_vec();
    words.extend_from_slice(options);
    let request = Request::parse(&words)?;
    let folder = target().join(FOLDER);
    fs::create_dir_all(&folder).map_err(|cause| cannot(&folder, &cause))?;
    let result = request.try_peer(peer, unfinished, &folder)?;
    let place = folder.join(format!("{peer}-{}.json", request.seed));
    fs::write(&place, format!("{result:#}\n")).map_err(|cause| cannot(&place, &cause))?;
    println!("{result:#}");
    Ok(())
}

impl Request {
    /// The figures of a trial in which all faults have happened.
    fn try_peer(&self, peer: &str, unfinished: &str, folder: &Path) -> Outcome<Value> {
        let program = super::program(self.is_optimised)?;
        let peers = bench::peers()?;
        let peers = peers.display().to_string();
        step(&format!("chaos on {peer}, {} min, seed {}", self.minutes, self.seed));
        let mut scene = Scene::start("postgres", folder, true)?;
        let mut set_up = Command::new(&peers);
        set_up.args(["chaos", peer, "set-up", &self.rate.to_string()]);
        set_up.args([format!("{:.0}", self.minutes * 60.0), scene.url()]);
        run_step("its jobs", set_up)?;
        let log = folder.join(format!("{peer}.log"));
        let page = folder.join(format!("{peer}.html"));
        let words = ["--worker-program", &peers, "chaos", peer, "work"];
        let mut prove = self.prove(&program, &scene, &page, &log, &words)?;
        let injected = self.inject(&mut scene, &mut prove);
        let verdict = end(prove, injected.is_err()).map_err(|failure| with(failure, &log))?;
        let injected = injected.map_err(|failure| with(failure, &log))?;
        if BTreeSet::from_iter(&injected).len() < OF_SERVER {
            let what = "not all faults of the server happened; give it more --minutes";
            return Err(Failure::Check(what.into()));
        }
        let unfinished = scene.arena.as_ref().and_then(|arena| number(arena.port(0), unfinished));
        let unfinished =
            unfinished.ok_or_else(|| Failure::Check(format!("{peer} has no store")))?;
        let number = |name: &str| verdict[name].as_u64().unwrap_or(0);
        let found = |kind: &str| {
            let all = verdict["violations"].as_array().into_iter().flatten();
            all.filter(|one| one.as_str().is_some_and(|one| one.starts_with(kind))).count()
        };
        let marks = verdict["faults"].as_array().into_iter().flatten();
        let of_workers = marks
            .filter_map(|mark| mark["what"].as_str())
            .filter(|what| what.contains("worker") && !what.contains("by itself"));
        Ok(json!({
            "peer": peer, "seed": self.seed, "revision": revision(), "rate": self.rate,
            "seconds": verdict["seconds"], "injected": injected, "worker_faults": of_workers.count(),
            "due": number("due"), "again": number("again"),
            "twice": found("Duplicate"), "finished_twice": found("FinishedTwice"),
            "never_begun": number("due") - number("run"), "unfinished": unfinished,
            "late_ms": verdict["late_ms"], "ended_by_themselves": number("ended_by_themselves"),
        }))
    }
}

/// The section of RELIABILITY.md, if there was a trial.
pub(super) fn section(results: &[Value]) -> String {
    if results.is_empty() {
        return String::new();
    }
    let mut section = String::from(
        "\n# Peers\n\n\
         *Tried by `cargo xtask chaos --peer`, for contrast.* Four workers on PostgreSQL, with the faults that a\n\
         trial of allora has with `--short`: workers killed, frozen, stopped and replaced, their connections cut,\n\
         silent and slow, and the server killed, frozen and restarted. Jobs are due every second, and run for 300\n\
         ms at least once; a worker that ends is started again. An end is recorded when the peer has told the\n\
         worker so. A run whose earlier one has no such end was *cut off and run again*; with such an end, it *ran\n\
         twice*. Three minutes later, with all workers alive, what has not begun is counted as never begun, and\n\
         what its store still has as left there.\n\n\
         | peer | minutes | due | cut off and run again | run twice | both ends recorded | never begun | \
         left in its store | late, 99 % | latest | workers ended by themselves | workers' faults | server's faults |\n\
         |---|---|---|---|---|---|---|---|---|---|---|---|---|\n",
    );
    let mut promises = String::from("\n");
    for (peer, _, said) in PEERS {
        let own: Vec<&Value> = results.iter().filter(|result| result["peer"] == peer).collect();
        if own.is_empty() {
            continue;
        }
        let sum = |name: &str| own.iter().filter_map(|one| one[name].as_u64()).sum::<u64>();
        let late = |part: &str| {
            seconds(own.iter().filter_map(|one| one["late_ms"][part].as_i64()).max().unwrap_or(0))
        };
        let injected = own.iter().filter_map(|one| one["injected"].as_array()).map(Vec::len);
        let _ = writeln!(
            section,
            "| {peer} | {:.1} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
            sum("seconds") as f64 / 60.0,
            grouped(sum("due")),
            grouped(sum("again") - sum("twice")),
            grouped(sum("twice")),
            grouped(sum("finished_twice")),
            grouped(sum("never_begun")),
            grouped(sum("unfinished")),
            late("p99"),
            late("max"),
            sum("ended_by_themselves"),
            sum("worker_faults"),
            injected.sum::<usize>(),
        );
        let _ = writeln!(promises, "- `{peer}` {said}");
    }
    section + &promises
}
