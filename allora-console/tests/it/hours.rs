//! The hours on the pages: runs whose entries are gone are there, those of other readers are not.

use super::{console, get, spawn, unescaped, with_store};
use allora::{
    Memory, Run, Scheduler, Schedules, StoredSchedule,
    backend::{HistoryLimits, HistoryQuery},
    runtime::{Runtime, Sim},
};
use allora_console::{Access, Console};

/// The number of the first plot of *Now*; 0 if the page has none.
async fn runs(schedules: &Schedules, access: Access, path: &str) -> u64 {
    let console = Console::new(schedules.clone()).access(move |_| Some(access.clone()));
    let page = get(&console.into_router(), path).await.body;
    let Some((_, plot)) = page.split_once("<h3>Runs</h3>") else {
        assert!(page.contains("No job yet"), "{page}");
        return 0;
    };
    let number = plot.split("<b class=\"n\">").nth(1).unwrap().split('<').next().unwrap();
    number.replace(',', "").parse().unwrap()
}

/// A store that keeps five entries of each job, in which four jobs have run each second for so long.
fn with_busy_store(seconds: i64, test: impl AsyncFnOnce(Schedules)) {
    let sim = Sim::new(1);
    let store = Memory::new().with_history(HistoryLimits::default().per_job(5));
    let node = sim.node();
    let kind = async |_: Run| {};
    let scheduler = Scheduler::builder(store.clone()).kind("report", kind).kind("mail", kind);
    let scheduler = scheduler.runtime(node.clone()).build().unwrap();
    let start = node.wall();
    let schedules = Schedules::on(store, node.clone()).unwrap();
    sim.block_on(async {
        for (name, kind, every) in [
            ("acme/a", "report", "@every 1s"),
            ("acme/m", "mail", "@every 2s"),
            ("beta/b", "report", "@every 3s"),
            ("beta/m", "mail", "@every 5s"),
        ] {
            schedules.add(&StoredSchedule::new(name, kind, every)).await.unwrap();
        }
    });
    spawn(&node, scheduler);
    sim.run_until(start + allora::chrono::TimeDelta::milliseconds(1_000 * seconds + 500));
    sim.block_on(test(schedules));
}

#[test]
fn the_plots_have_the_runs_of_the_reader_whether_their_entries_are_gone_or_not() {
    for seconds in [3, 125, 3_700] {
        with_busy_store(seconds, async |schedules| {
            let mut started = Vec::new();
            for name in ["acme/a", "acme/m", "beta/b", "beta/m"] {
                started.push(schedules.get(name).await.unwrap().counters.started);
            }
            let kept = schedules.history(HistoryQuery::new(1_000)).await.unwrap().len() as u64;
            let [a, am, b, bm] = started[..] else { panic!("{started:?}") };
            assert!(seconds < 125 || kept < (a + am + b + bm) / 2, "{kept} entries are kept");
            let ann = || Access::reader("ann");
            for (access, expected) in [
                (ann(), a + am + b + bm),
                (ann().only_prefixes(["acme/"]), a + am),
                (ann().only_prefixes(["acme/a", "beta/"]), a + b + bm),
                (ann().only_prefixes(["gamma/"]), 0),
                (ann().only_prefixes([""; 0]), 0),
                (ann().only_kinds(["mail"]), am + bm),
                (ann().only_kinds(["mail"]).only_prefixes(["acme/"]), am),
                (ann().only_kinds(["backup"]), 0),
            ] {
                for path in ["/", "/?days=7", "/?days=30"] {
                    let shown = runs(&schedules, access.clone(), path).await;
                    assert_eq!(shown, expected, "{path} of {access:?}");
                }
            }
        });
    }
}

#[test]
fn the_pages_of_a_job_say_how_long_it_takes_and_what_became_of_its_runs() {
    with_busy_store(125, async |schedules| {
        let started = schedules.get("acme/a").await.unwrap().counters.started;
        let router = console(schedules);
        let list = get(&router, "/jobs?q=acme").await.body;
        let runs = format!("The last 24 hours by hour: {started} runs");
        assert!(list.contains(&runs) && list.contains("<path class=\"f-ok\""), "{list}");
        let job = get(&router, "/job?name=acme%2Fa").await.body;
        assert!(job.contains("Usually takes 0 ms. In 30 days"), "{job}");
        let run = job.split("href=\"").find(|link| link.starts_with("run?")).unwrap();
        let run = unescaped(run.split('"').next().unwrap());
        let run = get(&router, &format!("/{run}")).await.body;
        assert!(run.contains("<dt>usually takes</dt><dd>0 ms</dd>"), "{run}");
        assert_eq!(get(&router, "/?days=31").await.status, 400);
    });
}

#[test]
fn a_job_that_was_never_run_has_no_strip() {
    with_store(&[], async |schedules| {
        schedules.add(&StoredSchedule::new("yearly", "report", "@yearly")).await.unwrap();
        let router = console(schedules);
        assert!(!get(&router, "/jobs").await.body.contains("class=\"day\""));
        assert!(!get(&router, "/job?name=yearly").await.body.contains("In 30 days"));
    });
}
