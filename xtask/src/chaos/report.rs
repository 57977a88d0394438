//! RELIABILITY.md, from the results of runs.

use super::peers;
use crate::{
    Failure, Outcome,
    command::{root, target},
    fuzz, model, mutants,
};
use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
    fs, thread,
};

/// Nothing ran twice and nothing was lost.
pub(super) fn is_kept(result: &Value) -> bool {
    let verdict = &result["verdict"];
    verdict["holds"] == true && verdict["due"].as_u64() > Some(0)
}

/// A result on one line.
pub(super) fn line(result: &Value) -> String {
    let Value::Object(verdict) = &result["verdict"] else { return "no verdict".into() };
    format!(
        "{} due, {} taken over, {} twice, {} lost, latest {} ms; servers: {}",
        verdict["due"],
        verdict["taken_over"],
        verdict["twice"],
        verdict["lost"],
        verdict["late_ms"]["max"],
        faults(result)
            .iter()
            .map(|(what, times)| format!("{what} {times}"))
            .collect::<Vec<_>>()
            .join(", "),
    )
}

/// The faults of the servers, with how often each happened.
fn faults(result: &Value) -> BTreeMap<String, usize> {
    let mut faults = BTreeMap::new();
    for what in result["injected"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        *faults.entry(what.to_owned()).or_default() += 1;
    }
    faults
}

/// Its faults are not those of the other workers.
const REMOTE: &str = "remote worker";

/// Words of a mark, and the kind of fault that begins with it. Of a worker, then of servers.
const KINDS: [(&str, &str, &str); 18] = [
    ("worker", "is killed", "worker killed (SIGKILL)"),
    ("worker", "is frozen", "worker frozen (SIGSTOP), up to 9 s"),
    ("worker", "as by a deployment", "worker stopped, as by a deployment"),
    ("worker", "goes back to the release before", "rollback to the release before"),
    ("worker", "loses an answer", "an answer lost, with its connection"),
    ("worker", "fall silent", "connections silent"),
    ("worker", "ms more", "answers late"),
    ("clock of worker", "is set", "clock of a worker wrong by up to an hour"),
    (REMOTE, "is killed", "remote worker killed (SIGKILL)"),
    (REMOTE, "is frozen", "remote worker frozen (SIGSTOP), up to 9 s"),
    ("primary", "is killed", "primary killed, replica promoted"),
    ("server", "is killed", "server killed (SIGKILL)"),
    ("server", "is frozen", "server frozen (SIGSTOP), up to 8 s"),
    ("server", "is restarted", "server restarted"),
    ("disk", "is full", "disk full"),
    ("store", "was emptied", "store emptied"),
    ("server", "has lost its data", "one server of a quorum emptied"),
    ("clock", "ahead", "clock of the server set ahead, and back"),
];

/// Each kind of fault: how often, in how many stores, and the longest waits of occurrences after it.
fn each_kind(results: &[Value]) -> String {
    let mut table = String::from(
        "\n# Each kind of fault\n\n\
         An occurrence waits from its time to its start. The longest wait is that of the occurrences that were due from a\n\
         second before the fault until twelve seconds after it; other faults came meanwhile, so it may be another one's.\n\n\
         | fault | injected | stores | longest wait after it, median | worst |\n|---|---|---|---|---|\n",
    );
    for (whose, words, kind) in KINDS {
        let (mut waits, mut stores) = (Vec::new(), BTreeSet::new());
        for result in results {
            let marks = result["verdict"]["faults"].as_array().into_iter().flatten();
            let is_it = |mark: &&Value| {
                mark["what"].as_str().is_some_and(|what| {
                    let is_remote = what.contains(REMOTE);
                    what.contains(whose) && what.contains(words) && is_remote == (whose == REMOTE)
                })
            };
            let of: Vec<i64> =
                marks.filter(is_it).filter_map(|mark| mark["longest_ms"].as_i64()).collect();
            if !of.is_empty() {
                stores.insert(result["store"].to_string());
            }
            waits.extend(of);
        }
        waits.sort_unstable();
        if let (Some(median), Some(worst)) = (waits.get(waits.len() / 2), waits.last()) {
            let (median, worst) = (*median as f64 / 1e3, *worst as f64 / 1e3);
            let (times, stores) = (waits.len(), stores.len());
            let _ =
                writeln!(table, "| {kind} | {times} | {stores} | {median:.1} s | {worst:.1} s |");
        }
    }
    table
}

/// Writes the page from all results in the target folder.
pub(super) fn write() -> Outcome {
    let mut results = results_of("chaos")?;
    if results.is_empty() {
        let what = "there is no result; run `cargo xtask chaos --store each --minutes 5` first";
        return Err(Failure::Check(what.into()));
    }
    results.sort_by_key(|result| (result["store"].to_string(), result["seed"].as_u64()));
    let page = root().join("RELIABILITY.md");
    let written = text(&results)
        + &peers::section(&results_of(peers::FOLDER)?)
        + &simulated(&results_of("sim")?)
        + &model::section(&model::results())
        + &fuzz::section(&results_of("fuzz")?)
        + &mutants::section(&results_of("mutants")?);
    fs::write(&page, written).map_err(|cause| super::cannot(&page, &cause))
}

/// The results in a folder of the target folder.
fn results_of(chore: &str) -> Outcome<Vec<Value>> {
    let mut results: Vec<Value> = Vec::new();
    for entry in fs::read_dir(target().join(chore)).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.extension().is_some_and(|end| end == "json") {
            let text = fs::read_to_string(&path).map_err(|cause| super::cannot(&path, &cause))?;
            let result = serde_json::from_str(&text)
                .map_err(|cause| Failure::Check(format!("{}: {cause}", path.display())))?;
            results.push(result);
        }
    }
    Ok(results)
}

/// The worlds of the campaign, if any were played.
fn simulated(results: &[Value]) -> String {
    let sum = |name: &str| results.iter().filter_map(|result| result[name].as_f64()).sum::<f64>();
    if results.is_empty() {
        return String::new();
    }
    let seeds: Vec<String> = results.iter().map(|result| result["seed"].to_string()).collect();
    format!(
        "\n# Simulated clusters\n\n\
         The scheduler itself, on a simulated clock and network: random worlds of nodes that join, leave, crash and\n\
         sleep, with wrong clocks, lost requests and replies, outages of the store, and operators who edit, pause and\n\
         trigger. In each the books must balance: no occurrence runs twice, and each has run or has a reason.\n\n\
         {:.0} worlds, {:.0} hours of clusters, {:.0} runs; {:.2} hours of one processor. Every world held.\n\n\
         Seeds: {}. Play them again with `cargo xtask sim --hours HOURS --seed SEED`.\n",
        sum("worlds"),
        sum("hours"),
        sum("runs"),
        sum("processor_seconds") / 3_600.0,
        seeds.join(", "),
    )
}

/// The page.
fn text(results: &[Value]) -> String {
    let number = |result: &Value, name: &str| result["verdict"][name].as_u64().unwrap_or(0);
    let all = |name: &str| results.iter().map(|result| number(result, name)).sum::<u64>();
    let mut page = format!(
        "# Reliability\n\n\
         *Written by `cargo xtask chaos report` from the results of `cargo xtask chaos`; not by hand.*\n\n\
         Workers share jobs that are due every second, half of them at most once, half at least once. Every few\n\
         seconds a worker is killed, frozen beyond its lease, replaced by a deployment or a rollback, or loses an answer, its\n\
         connections or its speed; meanwhile the servers are killed, frozen, restarted, failed over, emptied and out of room, and clocks are set. At the end\n\
         the history checker compares what the workers wrote down with what the store recorded: every occurrence\n\
         must have run, or be recorded as cut off, left out or missed, and none may have run twice.\n\n\
         Servers and workers of several stores shared a machine with {} processors, which they kept busy: the lateness is\n\
         also that of the machine.\n\n\
         In all: {} occurrences due, {} run twice, {} lost. {} findings are explained by a store that was emptied, or by its\n\
         clock that was set, and counted apart: what was in an emptied store is gone with it. Of a quorum, which keeps no\n\
         history, the last ends of killed workers may be among them.\n\n\
         | store | runs | occurrences | twice | lost | explained | cut off | taken over | late, 99 % | latest | workers' faults | servers' faults |\n\
         |---|---|---|---|---|---|---|---|---|---|---|---|\n",
        thread::available_parallelism().map_or(1, usize::from),
        all("due"),
        all("twice"),
        all("lost"),
        all("excused"),
    );
    let mut stores: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
    for result in results {
        stores.entry(result["store"].as_str().unwrap_or_default()).or_default().push(result);
    }
    for (store, results) in &stores {
        let sum = |name: &str| results.iter().map(|result| number(result, name)).sum::<u64>();
        let late = |name: &str| {
            results.iter().filter_map(|result| result["verdict"]["late_ms"][name].as_i64()).max()
        };
        let mut servers: BTreeMap<String, usize> = BTreeMap::new();
        for (what, times) in results.iter().flat_map(|result| faults(result)) {
            *servers.entry(what).or_default() += times;
        }
        let of_servers: usize = servers.values().sum();
        let told: Vec<String> =
            servers.iter().map(|(what, times)| format!("{what} {times}")).collect();
        let marks: usize = results
            .iter()
            .filter_map(|result| result["verdict"]["faults"].as_array())
            .flatten()
            .filter(|mark| mark["what"].as_str().is_some_and(|what| what.contains("worker")))
            .count();
        let _ = writeln!(
            page,
            "| {store} | {} | {} | {} | {} | {} | {} | {} | {} ms | {} ms | {marks} | {} |",
            results.len(),
            sum("due"),
            sum("twice"),
            sum("lost"),
            sum("excused"),
            sum("cut_off"),
            sum("taken_over"),
            late("p99").unwrap_or(0),
            late("max").unwrap_or(0),
            if of_servers == 0 { "none, it is a file".to_owned() } else { told.join(", ") },
        );
    }
    page += "\n*Cut off* is a run at most once whose worker died: it is recorded as lost in the history, and not run\n\
             again. *Taken over* is a run at least once that another worker began again. *Latest* is the longest time from\n\
             the time of an occurrence to its start, outages of the server included.\n";
    page += &each_kind(results);
    page += "\n# The runs\n\n| store | minutes | occurrences each second | stores at once | build | seed | revision |\n|---|---|---|---|---|---|---|\n";
    for result in results {
        let seconds = number(result, "seconds");
        let _ = writeln!(
            page,
            "| {} | {}.{} | {} | {} | {} | {} | {} |",
            result["store"].as_str().unwrap_or_default(),
            seconds / 60,
            seconds % 60 * 10 / 60,
            number(result, "rate"),
            result["at_once"],
            result["build"].as_str().unwrap_or_default(),
            result["seed"],
            result["revision"].as_str().unwrap_or_default(),
        );
    }
    page += "\nRun one again with `cargo xtask chaos --store STORE --minutes MINUTES --rate RATE --seed SEED`; the faults\n\
             are the same, their instants differ by what the machine does meanwhile. On a server of yours:\n\
             `allora prove --url URL`, see the guide *Choosing a store*.\n";
    page
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_page_adds_up_the_runs_of_a_store() {
        let result = |seed: u64, twice: u64| {
            json!({ "store": "redis", "seed": seed, "revision": "abc", "build": "debug", "at_once": 5, "injected": ["killed", "frozen"], "verdict": {
                "holds": twice == 0, "due": 100, "twice": twice, "lost": 0, "cut_off": 2, "taken_over": 3,
                "seconds": 90, "rate": 20, "late_ms": { "p99": 5, "max": seed },
                "faults": [
                    { "what": "worker 1 is killed", "longest_ms": 900 },
                    { "what": "the server is killed, and away for 1s", "longest_ms": 1500 + seed },
                    { "what": "the server answers again", "longest_ms": 1 },
                ],
            }})
        };
        let page = text(&[result(7, 0), result(9, 1)]);
        assert!(page.contains("200 occurrences due, 1 run twice, 0 lost."), "{page}");
        assert!(
            page.contains(
                "| redis | 2 | 200 | 1 | 0 | 0 | 4 | 6 | 5 ms | 9 ms | 2 | frozen 2, killed 2 |"
            ),
            "{page}"
        );
        let kinds = page.lines().filter(|line| line.contains("(SIGKILL)")).collect::<Vec<_>>();
        assert_eq!(kinds[0], "| worker killed (SIGKILL) | 2 | 1 | 0.9 s | 0.9 s |");
        assert_eq!(kinds[1], "| server killed (SIGKILL) | 2 | 1 | 1.5 s | 1.5 s |");
        assert!(page.contains("| redis | 1.5 | 20 | 5 | debug | 7 | abc |"), "{page}");
        assert!(is_kept(&result(7, 0)) && !is_kept(&result(7, 1)));
        let world = json!({ "seed": 3, "worlds": 20, "hours": 31.5, "runs": 900, "processor_seconds": 1_800 });
        let page = simulated(&[world.clone(), world]);
        assert!(page.contains("40 worlds, 63 hours of clusters, 1800 runs; 1.00 hours"), "{page}");
    }
}
