//! The targets, and how far the figures are from them.

use super::{
    Facts,
    figures::Figures,
    markdown::{self, few_percent, milliseconds, multiple, number, or_dash, percent, rate},
    plan::{
        BURSTS, LISTED, MAIN, NODES, ONE_AND_FOUR, OTHERS, QUEUE_STORE, QUEUES, SCHEDULERS, TIMERS,
    },
    tables::{
        ADDED_ONE_BY_ONE, FAILED_CLAIMS, LATEST, PAGE, STARTED, SYNC, efficiency, history_key,
        killed_key, late_key, lists_key, load_with_history, name, part_of_the_rate, peer_key,
        stored_key, timer_key, worker_key,
    },
};

/// One target.
struct Target {
    what: String,
    limit: f64,
    is_least: bool,
    result: Option<f64>,
    show: fn(f64) -> String,
}

impl Target {
    fn least(what: String, limit: f64, result: Option<f64>, show: fn(f64) -> String) -> Self {
        Self { what, limit, is_least: true, result, show }
    }

    fn most(what: String, limit: f64, result: Option<f64>, show: fn(f64) -> String) -> Self {
        Self { is_least: false, ..Self::least(what, limit, result, show) }
    }

    /// By how much the result is worse than the limit: above 1 it is missed.
    fn factor(&self) -> Option<f64> {
        self.result
            .map(|result| if self.is_least { self.limit / result } else { result / self.limit })
    }

    fn row(self) -> Vec<String> {
        let factor = self.factor();
        let Self { what, limit, is_least, result, show } = self;
        let sign = if is_least { "≥" } else { "≤" };
        let verdict = match factor {
            None => "not measured".to_owned(),
            Some(factor) if factor <= 1.0 => "reached".to_owned(),
            Some(factor) => format!("missed by a factor of {factor:.2}"),
        };
        vec![what, format!("{sign} {}", show(limit)), or_dash(result, show), verdict]
    }
}

/// All targets, with their results.
pub(super) fn table(facts: &Facts, figures: &Figures) -> String {
    let rows = all(facts, figures).into_iter().map(Target::row);
    markdown::table(&["what", "target", "result", "verdict"], rows)
}

/// A sentence about how many are reached.
pub(super) fn summary(facts: &Facts, figures: &Figures) -> String {
    let targets = all(facts, figures);
    let factors: Vec<f64> = targets.iter().filter_map(Target::factor).collect();
    let reached = factors.iter().filter(|factor| **factor <= 1.0).count();
    let unknown = match targets.len() - factors.len() {
        0 => String::new(),
        unknown => format!(", and {unknown} were not measured"),
    };
    format!("{reached} of {} targets are reached{unknown}.", targets.len())
}

fn all(facts: &Facts, figures: &Figures) -> Vec<Target> {
    let mut targets = Vec::new();
    beside_the_peers(facts, figures, &mut targets);
    for store in MAIN {
        more_nodes(facts, figures, store, &mut targets);
        let [small, large] = [BURSTS[0], BURSTS[1]].map(|count| worker_key(store, 1, count));
        let what = format!("{}: one node, 1,000 due at once beside 7,000", name(store));
        targets.push(Target::least(what, 0.85, figures.ratio((&small, &large), "per_s"), percent));
    }
    for store in OTHERS {
        let [one, four] = ONE_AND_FOUR.map(|nodes| worker_key(store, nodes, BURSTS[1]));
        let what = format!("{}: 7,000 due at once, 4 nodes beside one", name(store));
        targets.push(Target::least(what, 1.0, figures.ratio((&four, &one), "per_s"), percent));
    }
    for store in MAIN.into_iter().chain(OTHERS) {
        let count = load_with_history(facts, store);
        for nodes in ONE_AND_FOUR {
            let keys = (history_key(store, nodes, count), worker_key(store, nodes, count));
            let (count, nodes) = (number(count as f64), markdown::nodes(nodes));
            let what = format!("{}: {count} due at once, {nodes}, with a history", name(store));
            let result = figures.ratio((&keys.0, &keys.1), "per_s");
            targets.push(Target::least(what, 0.85, result, percent));
        }
    }
    for (store, client, server) in [("postgres", 8.0, 13.0), ("redis", 8.0, 7.0)] {
        for (who, limit) in [("client", client), ("server", server)] {
            let key = worker_key(store, 1, facts.size.sustained);
            let what = format!("{}: CPU of the {who} per occurrence, µs", name(store));
            let result = figures.median(&key, &format!("{who}_us"));
            targets.push(Target::most(what, limit, result, milliseconds));
        }
    }
    for store in MAIN {
        for (words, nodes, least) in [("one node", 1, 0.85), ("four nodes", 4, 0.9)] {
            let key = worker_key(store, nodes, facts.size.sustained);
            let what = format!("{}: efficiency of {words}, sustained", name(store));
            targets.push(Target::least(what, least, efficiency(facts, figures, &key), percent));
        }
        let most = facts.size.most_stored();
        let result = part_of_the_rate(figures, store, most);
        let what = format!("{}: rate with {} others", name(store), number(most as f64));
        targets.push(Target::least(what, 0.85, result, percent));
        let limit = if store == "postgres" { 2_500.0 } else { 7_000.0 };
        let what = format!("{}: added one by one by 64 callers, per second", name(store));
        let result = figures.median(&stored_key(store, most), ADDED_ONE_BY_ONE);
        targets.push(Target::least(what, limit, result, rate));
    }
    for (store, limit) in [("redis", 10.0), ("postgres", 10.0), ("etcd", 40.0)] {
        let result = figures.median(&late_key(facts, store), "p99_ms_1000");
        let what = format!("{}: p99 lateness of 1,000 at one instant, 3 nodes, ms", name(store));
        targets.push(Target::most(what, limit, result, milliseconds));
    }
    for store in ["redis", "postgres", "etcd"] {
        let result = figures.median(&late_key(facts, store), FAILED_CLAIMS);
        let what = format!("{}: failed claims of jobs in code, 3 nodes", name(store));
        targets.push(Target::most(what, 0.02, result, few_percent));
    }
    for store in MAIN {
        let result = figures.median(&killed_key(store), LATEST);
        let what = format!(
            "{}: latest of 100 starts at one instant, first node killed 100 ms before, ms",
            name(store)
        );
        targets.push(Target::most(what, 50.0, result, milliseconds));
    }
    many_schedules(figures, &mut targets);
    for jobs in TIMERS {
        let [bare, ours] = SCHEDULERS.map(|scheduler| timer_key(facts, scheduler, "at-once", jobs));
        for (figure, what) in [("p99_ms", "p99 lateness"), ("cpu_us", "CPU")] {
            let result = figures.ratio((&ours, &bare), figure);
            let jobs = number(jobs as f64);
            let what = format!("memory, {jobs} at one instant: {what} beside the bare loop");
            targets.push(Target::most(what, 2.0, result, multiple));
        }
    }
    let idle =
        figures.median(&timer_key(facts, "allora", "idle", facts.size.idle()), "bytes_per_job");
    targets.push(Target::most("memory: bytes per idle job".to_owned(), 700.0, idle, number));
    targets
}

/// Started runs beside those of the peers, in one run of the report.
fn beside_the_peers(facts: &Facts, figures: &Figures, targets: &mut Vec<Target>) {
    let (sustained, burst) = (facts.size.sustained, BURSTS[1]);
    let apalis = |store| move |nodes, count| peer_key(store, nodes, count);
    let queue = |nodes, count| peer_key(QUEUES[0], nodes, count);
    let mut beside = |store, peer, key: &dyn Fn(u64, u64) -> String, counts: &[u64], least| {
        for count in counts {
            for (nodes, least) in ONE_AND_FOUR.into_iter().zip(least) {
                // The last acknowledgement of a peer may come after a wait of 30 s.
                let keys = (worker_key(store, nodes, *count), key(nodes, *count));
                let result = figures.ratio((&keys.0, &keys.1), STARTED);
                let (count, nodes) = (number(*count as f64), markdown::nodes(nodes));
                let what = format!(
                    "{}: {count} due at once, {nodes}, started runs, allora : {peer}",
                    name(store)
                );
                targets.push(Target::least(what, least, result, multiple));
            }
        }
    };
    let both = [burst, sustained];
    beside(QUEUE_STORE, QUEUES[0], &queue, &both, [1.2, 1.2]);
    beside(QUEUE_STORE, "apalis", &apalis(QUEUE_STORE), &both, [2.2, 1.3]);
    // More than this burst at once stops the peer.
    beside("redis", "apalis", &apalis("redis"), &[burst], [1.8, 1.3]);
}

/// The worst of all numbers of nodes beside one node.
fn more_nodes(facts: &Facts, figures: &Figures, store: &str, targets: &mut Vec<Target>) {
    for count in BURSTS.into_iter().chain([facts.size.sustained]) {
        let one = worker_key(store, 1, count);
        let ratio = |nodes: &u64| figures.ratio((&worker_key(store, *nodes, count), &one), "per_s");
        let worst = NODES[1..].iter().filter_map(ratio).min_by(f64::total_cmp);
        let count = number(count as f64);
        let what =
            format!("{}: {count} due at once, the worst of 2 to 8 nodes beside one", name(store));
        targets.push(Target::least(what, 0.95, worst, percent));
    }
}

/// Pages of many stored schedules, and their reconciliation.
fn many_schedules(figures: &Figures, targets: &mut Vec<Target>) {
    let many = number(LISTED as f64);
    for store in MAIN.into_iter().chain(OTHERS) {
        let figure = |name| figures.median(&lists_key(store), name);
        let what = format!("{}: a page of 100 among {many} stored schedules, ms", name(store));
        targets.push(Target::most(what, 5.0, figure(PAGE), multiple));
        let what =
            format!("{}: `sync` of {many} unchanged schedules, the slower way, s", name(store));
        let slower = SYNC.into_iter().filter_map(figure).max_by(f64::total_cmp);
        targets.push(Target::most(what, 3.0, slower, multiple));
    }
}

#[cfg(test)]
mod tests {
    use super::super::plan::{Size, cells};
    use super::*;
    use serde_json::Value;

    #[test]
    fn a_verdict_says_by_how_much_a_target_is_missed() {
        let verdict = |target: Target| target.row().remove(3);
        let least = |result| Target::least("rate".into(), 2.0, result, multiple);
        assert_eq!(verdict(least(Some(2.0))), "reached");
        assert_eq!(verdict(least(Some(1.0))), "missed by a factor of 2.00");
        assert_eq!(verdict(least(None)), "not measured");
        let most = Target::most("late".into(), 10.0, Some(15.0), milliseconds);
        assert_eq!(most.row(), ["late", "≤ 10.0", "15.0", "missed by a factor of 1.50"]);
    }

    #[test]
    fn the_summary_counts_what_is_reached_and_what_was_not_measured() {
        let facts = Facts {
            size: Size::FULL,
            rounds: 1,
            machine: Value::Null,
            servers: Value::Null,
            load: 0.0,
        };
        let mut figures = Figures::default();
        for (store, nodes, rate) in
            [("etcd", 1, 1e4), ("etcd", 4, 1e4), ("sqlite", 1, 1e4), ("sqlite", 4, 2e3)]
        {
            let key = worker_key(store, nodes, BURSTS[1]);
            figures.add_numbers(&key, [("per_s".to_owned(), rate)].into());
        }
        let count = all(&facts, &figures).len();
        let expected =
            format!("1 of {count} targets are reached, and {} were not measured.", count - 2);
        assert_eq!(summary(&facts, &figures), expected);
    }

    #[test]
    fn a_report_with_peers_measures_every_target() {
        const NAMES: [&str; 14] = [
            "per_s",
            STARTED,
            "client_us",
            "server_us",
            ADDED_ONE_BY_ONE,
            "p99_ms_1000",
            FAILED_CLAIMS,
            LATEST,
            PAGE,
            SYNC[0],
            SYNC[1],
            "p99_ms",
            "cpu_us",
            "bytes_per_job",
        ];
        let stores: Vec<String> = crate::stores::STORES.iter().map(|&name| name.into()).collect();
        for size in [Size::QUICK, Size::FULL] {
            let mut figures = Figures::default();
            for cell in cells(size, &stores, true) {
                let numbers = NAMES.map(|name| (name.to_owned(), 1.0)).into();
                figures.add_numbers(&cell.key(), numbers);
            }
            let machine = serde_json::json!({ "cores": 2 });
            let facts = Facts { size, rounds: 1, machine, servers: Value::Null, load: 0.0 };
            let table = super::table(&facts, &figures);
            assert!(!table.contains("not measured"), "{table}");
            assert!(!super::table(&facts, &Figures::default()).contains("reached"));
        }
    }

    #[test]
    fn the_rate_beside_others_is_compared_within_a_round() {
        let mut figures = Figures::default();
        for (none, others) in [(10.0, 9.0), (40.0, 20.0), (20.0, 16.0)] {
            for (stored, rate) in [(0, none), (100_000, others)] {
                let numbers = [("per_s".to_owned(), rate)].into();
                figures.add_numbers(&stored_key("redis", stored), numbers);
            }
        }
        assert_eq!(part_of_the_rate(&figures, "redis", 100_000), Some(0.8));
    }
}
