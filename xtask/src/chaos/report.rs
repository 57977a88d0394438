//! RELIABILITY.md, from the results of runs.

use super::{
    kinds::{KINDS, injected, waits},
    peers,
    results::Results,
};
use crate::{
    Failure, Outcome,
    command::root,
    figures::{grouped, seconds},
    fuzz, model, mutants,
};
use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
    fs,
};

const PAGE: &str = "RELIABILITY.md";

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
        injected(result)
            .iter()
            .map(|(what, times)| format!("{what} {times}"))
            .collect::<Vec<_>>()
            .join(", "),
    )
}

/// Each kind of fault: how often, in how many stores, and the longest waits of occurrences after it.
fn each_kind(results: &[Value]) -> String {
    let mut table = String::from(
        "\n# Each kind of fault\n\n\
         An occurrence waits from its time to its start. The longest wait is that of the occurrences that were due from a\n\
         second before the fault until twelve seconds after it; other faults came meanwhile, so it may be another one's.\n\n\
         | fault | injected | stores | longest wait after it, median | worst |\n|---|---|---|---|---|\n",
    );
    for (.., kind) in KINDS {
        let with: Vec<&Value> =
            results.iter().filter(|result| !waits(result, kind).is_empty()).collect();
        let stores: BTreeSet<String> = with.iter().map(|one| one["store"].to_string()).collect();
        let mut waits: Vec<i64> = with.iter().flat_map(|result| waits(result, kind)).collect();
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

/// Writes the page from all results, those of the target folder included, which are kept from then on.
pub(super) fn write() -> Outcome {
    let results = Results::with_new()?;
    if results.of("chaos").is_empty() {
        let what = "there is no result; run `cargo xtask chaos --store each --minutes 5` first";
        return Err(Failure::Check(what.into()));
    }
    let page = root().join(PAGE);
    fs::write(&page, whole(&results)).map_err(|cause| super::cannot(&page, &cause))
}

fn whole(results: &Results) -> String {
    text(&results.of("chaos"))
        + &peers::section(&results.of(peers::FOLDER))
        + &simulated(&results.of("sim"))
        + &model::section(&results.of("model"))
        + &fuzz::section(&results.of("fuzz"))
        + &mutants::section(&results.of("mutants"))
}

/// The worlds of the campaign, if any were played.
fn simulated(results: &[Value]) -> String {
    let sum = |name: &str| results.iter().filter_map(|result| result[name].as_f64()).sum::<f64>();
    if results.is_empty() {
        return String::new();
    }
    let whole = |name: &str| grouped(sum(name).round() as u64);
    format!(
        "\n# Simulated clusters\n\n\
         The scheduler itself, on a simulated clock and network: random worlds of nodes that join, leave, crash and\n\
         sleep, with wrong clocks, lost requests and replies, outages of the store, and operators who edit, pause and\n\
         trigger. In each the books must balance: no occurrence runs twice, and each has run or has a reason.\n\n\
         {} worlds, {} hours of clusters, {} runs; {:.2} hours of one processor. Every world held.\n\n\
         {} seeds, which `xtask/reliability.jsonl` has: `cargo xtask sim --hours HOURS --seed SEED` plays one again.\n",
        whole("worlds"),
        whole("hours"),
        whole("runs"),
        sum("processor_seconds") / 3_600.0,
        results.len(),
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
         history, the last ends of killed workers may be among them. A trial that found a defect is not counted: CHANGELOG.md\n\
         has the defects, and the trial was repeated after the repair.\n\n\
         | store | trials | occurrences | twice | lost | explained | cut off | taken over | late, 99 % | latest | workers' faults | servers' faults |\n\
         |---|---|---|---|---|---|---|---|---|---|---|---|\n",
        results.iter().filter_map(|result| result["processors"].as_u64()).max().unwrap_or(1),
        grouped(all("due")),
        grouped(all("twice")),
        grouped(all("lost")),
        grouped(all("excused")),
    );
    let mut stores: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
    for result in results {
        stores.entry(result["store"].as_str().unwrap_or_default()).or_default().push(result);
    }
    for (store, results) in &stores {
        let sum =
            |name: &str| grouped(results.iter().map(|result| number(result, name)).sum::<u64>());
        let late = |name: &str| {
            let all =
                results.iter().filter_map(|result| result["verdict"]["late_ms"][name].as_i64());
            seconds(all.max().unwrap_or(0))
        };
        let mut servers: BTreeMap<&str, u64> = BTreeMap::new();
        for (what, times) in results.iter().filter_map(|one| one["injected"].as_object()).flatten()
        {
            *servers.entry(what).or_default() += times.as_u64().unwrap_or(0);
        }
        let told: Vec<String> =
            servers.iter().map(|(what, times)| format!("{what} {times}")).collect();
        let of_workers = KINDS.iter().filter(|(whose, ..)| whose.contains("worker"));
        let of_workers: usize =
            of_workers.flat_map(|(.., kind)| results.iter().map(|r| waits(r, kind).len())).sum();
        let _ = writeln!(
            page,
            "| {store} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {of_workers} | {} |",
            results.len(),
            sum("due"),
            sum("twice"),
            sum("lost"),
            sum("excused"),
            sum("cut_off"),
            sum("taken_over"),
            late("p99"),
            late("max"),
            if told.is_empty() { "none, it is a file".to_owned() } else { told.join(", ") },
        );
    }
    page += "\n*Cut off* is a run at most once whose worker died: it is recorded as lost in the history, and not run\n\
             again. *Taken over* is a run at least once that another worker began again. *Late* is the time from\n\
             that of an occurrence to its start, outages of the server included; of several trials, that of the worst.\n";
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
    use super::{super::kinds::short, *};
    use serde_json::json;

    /// It is not written by hand.
    #[test]
    fn the_page_is_that_of_the_kept_results() {
        let page = fs::read_to_string(root().join(PAGE)).unwrap();
        assert!(page == whole(&Results::kept().unwrap()), "run `cargo xtask chaos report`");
    }

    #[test]
    fn the_page_adds_up_the_runs_of_a_store() {
        let result = |seed: u64, twice: u64| {
            json!({ "store": "redis", "seed": seed, "revision": "abc", "build": "debug", "at_once": 5, "injected": ["killed", "frozen"], "verdict": {
                "holds": twice == 0, "due": 100, "twice": twice, "lost": 0, "cut_off": 2, "taken_over": 3,
                "seconds": 90, "rate": 20, "late_ms": { "p99": 5, "max": 100 * seed },
                "faults": [
                    { "what": "worker 1 is killed", "longest_ms": 900 },
                    { "what": "the server is killed, and away for 1s", "longest_ms": 1500 + seed },
                    { "what": "the server answers again", "longest_ms": 1 },
                ],
            }})
        };
        let page = text(&[short(&result(7, 0)), short(&result(9, 1))]);
        assert!(page.contains("200 occurrences due, 1 run twice, 0 lost."), "{page}");
        assert!(
            page.contains(
                "| redis | 2 | 200 | 1 | 0 | 0 | 4 | 6 | 0.0 s | 0.9 s | 2 | frozen 2, killed 2 |"
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
        assert!(page.contains("40 worlds, 63 hours of clusters, 1,800 runs; 1.00 hours"), "{page}");
    }
}
