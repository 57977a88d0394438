//! Limits: no page has what its reader may not see.

use super::{get, with_idle_store, with_store};
use allora::{Schedules, StoredSchedule};
use allora_console::{Access, Console, Scope};
use axum::Router;

fn router(schedules: &Schedules, access: Access) -> Router {
    let access = access.with(Scope::Admin);
    let console = Console::new(schedules.clone()).allow_actions();
    console.access(move |_| Some(access.clone())).into_router()
}

/// The lists, counts, plots and searches, and the pages of one job.
const PAGES: [&str; 14] = [
    "/",
    "/jobs",
    "/jobs?q=beta",
    "/jobs?kind=report",
    "/jobs?kind=secret",
    "/jobs?sort=next",
    "/jobs?state=waiting",
    "/runs",
    "/runs?outcome=all",
    "/runs?outcome=all&q=beta",
    "/runs?outcome=all&name=beta%2Fb",
    "/nodes",
    "/job?name=beta%2Fb",
    "/act?do=pause&name=beta%2Fb",
];

#[test]
fn a_prefix_hides_all_other_jobs_from_every_page() {
    with_store(&["acme/a", "beta/b"], async |schedules| {
        let all = router(&schedules, Access::reader("ann"));
        assert!(get(&all, "/jobs").await.body.contains("beta/b"));
        let limited = router(&schedules, Access::reader("ann").only_prefixes(["acme/", "gamma/"]));
        for path in PAGES {
            let answer = get(&limited, path).await;
            let is_of_job = path.contains("name=beta");
            let status = if is_of_job && !path.starts_with("/runs") { 404 } else { 200 };
            assert_eq!(answer.status, status, "{path}");
            // The page repeats what was asked for, and nothing else names it.
            let told = answer.body.matches("beta/b").count();
            assert!(told == 0 || is_of_job, "{path}: {}", answer.body);
            assert!(!answer.body.contains("1,204 rows") || path.contains("outcome=all"), "{path}");
        }
        let now = get(&limited, "/").await.body;
        assert!(now.contains("1 job in all") && now.contains("acme/a"), "{now}");
        let runs = get(&limited, "/runs?outcome=all").await.body;
        assert!(runs.contains("acme/a") && !runs.contains("beta"), "{runs}");
        let foreign = get(&limited, "/runs?outcome=all&name=beta%2Fb").await.body;
        assert!(!foreign.contains("1,204 rows"), "{foreign}");
        let job = get(&limited, "/job?name=acme%2Fa").await;
        assert!(job.status == 200 && job.body.contains("Definition"), "{}", job.body);
    });
}

#[test]
fn the_run_of_a_hidden_job_does_not_exist() {
    with_store(&["beta/b"], async |schedules| {
        let all = router(&schedules, Access::reader("ann"));
        let page = get(&all, "/runs?outcome=all").await.body;
        let run = page.split("href=\"").find(|link| link.starts_with("run?")).unwrap();
        let run = format!("/{}", super::unescaped(run.split('"').next().unwrap()));
        assert_eq!(get(&all, &run).await.status, 200);
        let limited = router(&schedules, Access::reader("ann").only_prefixes(["acme/"]));
        assert_eq!(get(&limited, &run).await.status, 404);
    });
}

#[test]
fn a_kind_hides_all_other_kinds() {
    with_store(&["one", "two"], async |schedules| {
        let secret = StoredSchedule::new("three", "secret", "@daily");
        schedules.add(&secret).await.unwrap();
        let limited = router(&schedules, Access::reader("ann").only_kinds(["report", "mail"]));
        for path in PAGES {
            let answer = get(&limited, path).await;
            assert!(!answer.body.contains("three"), "{path}: {}", answer.body);
        }
        let jobs = get(&limited, "/jobs").await.body;
        assert!(
            jobs.contains("2 in all") && jobs.contains("one") && jobs.contains("two"),
            "{jobs}"
        );
        assert_eq!(get(&limited, "/job?name=three").await.status, 404);
        schedules.delete("three").await.unwrap();
        assert_eq!(get(&limited, "/job?name=three").await.status, 404);
        let secrets = router(&schedules, Access::reader("ann").only_kinds(["secret"]));
        assert!(!get(&secrets, "/runs?outcome=all").await.body.contains("1,204 rows"));
        assert_eq!(get(&secrets, "/job?name=one").await.status, 404);
    });
}

#[test]
fn a_list_of_several_prefixes_has_pages_by_name() {
    let names: Vec<String> =
        (0..100).map(|i| format!("{}/{i:02}", ["a", "b", "c"][i % 3])).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    with_store(&names, async |schedules| {
        let limited = router(&schedules, Access::reader("ann").only_prefixes(["c/", "a/", "a/0"]));
        let first = get(&limited, "/jobs").await.body;
        assert!(
            first.contains("50 of more") && first.contains("a/00") && !first.contains(">c/98<")
        );
        let next = first.split("href=\"").find(|link| link.contains("after=")).unwrap();
        let next = super::unescaped(next.split('"').next().unwrap());
        let rest = get(&limited, &format!("/{next}")).await.body;
        assert!(rest.contains("c/98") && !rest.contains(">a/"), "{rest}");
    });
}

#[test]
fn secrets_are_removed_before_they_are_shown() {
    with_store(&["report"], async |schedules| {
        schedules.pause("report", "the key is hunter2").await.unwrap();
        let access = Access::reader("ann").with_data();
        let console = Console::new(schedules).access(move |_| Some(access.clone()));
        let console = console.redact(|job, text| {
            assert_eq!(job, "report");
            text.replace("hunter2", "***").replace("1,204", "***")
        });
        let router = console.into_router();
        for path in ["/", "/job?name=report", "/runs?outcome=all", "/jobs"] {
            let body = get(&router, path).await.body;
            assert!(!body.contains("hunter2") && !body.contains("1,204 rows"), "{path}: {body}");
        }
        assert!(get(&router, "/runs?outcome=all").await.body.contains("*** rows"));
    });
}

#[test]
fn a_large_store_is_counted_by_its_flags_as_far_as_the_reader_may_know() {
    let names: Vec<String> = (0..1_200).map(|i| format!("{}/{i:04}", ["a", "b"][i % 2])).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    with_idle_store(&names, async |schedules| {
        for name in names.iter().take(20) {
            schedules.pause(name, "the disk is full").await.unwrap();
        }
        let page =
            async |access: Access, path: &str| get(&router(&schedules, access), path).await.body;
        let all = page(Access::reader("ann"), "/").await;
        assert!(all.contains("1,200 jobs in all") || all.contains("jobs need you"), "{all}");
        assert!(all.contains(">20</b> paused") && all.contains("of these jobs:"), "{all}");
        let a = page(Access::reader("ann").only_prefixes(["a/"]), "/").await;
        assert!(a.contains(">10</b> paused") && !a.contains("b/0"), "{a}");
        let mail = page(Access::reader("ann").only_kinds(["mail"]), "/").await;
        assert!(!mail.contains("paused</span>") && !mail.contains("a/0"), "{mail}");
        let paused = page(Access::reader("ann").only_prefixes(["b/"]), "/jobs?state=paused").await;
        assert!(paused.contains("10 in all") && !paused.contains(">a/"), "{paused}");
        let none = page(Access::reader("ann"), "/jobs?state=paused&kind=mail").await;
        assert!(none.contains("No job matches"), "{none}");
        let due = page(Access::reader("ann"), "/jobs?state=due").await;
        let overdue = page(Access::reader("ann"), "/jobs?state=overdue").await;
        assert!(due.contains("of more") || overdue.contains("of more"), "{due}");
    });
}
