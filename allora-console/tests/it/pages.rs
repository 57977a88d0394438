//! Every page on a store in which schedules have run.

use super::{console, get, unescaped, with_store};
use allora::{Memory, Schedules, StoredSchedule, backend::HistoryLimits, runtime::Sim};

/// The address in the first link that begins with this text.
fn link<'a>(page: &'a str, begins: &str) -> &'a str {
    let at = page.find(&format!("href=\"{begins}")).unwrap_or_else(|| panic!("{begins}: {page}"));
    page[at + 6..].split('"').next().unwrap()
}

#[test]
fn every_page_answers() {
    with_store(&["acme/report"], async |schedules| {
        let router = console(schedules);
        for (path, says) in [
            ("/", "Last and next 24 hours"),
            ("/jobs", "acme/report"),
            ("/jobs?sort=next&state=waiting", "acme/report"),
            ("/job?name=acme%2Freport", "Definition"),
            ("/runs", "No failure"),
            ("/runs?outcome=all", "1,204 rows"),
            ("/nodes", "1 live node"),
            ("/schedule", "Try a schedule"),
            ("/schedule?text=0+2+*+*+*+Europe%2FRome", "02:00"),
        ] {
            let answer = get(&router, path).await;
            assert!(answer.status == 200 && answer.body.contains(says), "{path}: {}", answer.body);
            assert!(!answer.body.contains("style="), "{path}");
        }
    });
}

#[test]
fn a_run_is_reached_from_its_job_and_has_its_output() {
    with_store(&["report"], async |schedules| {
        let router = console(schedules);
        let job = get(&router, "/job?name=report").await;
        let run = unescaped(link(&job.body, "run?"));
        let answer = get(&router, &format!("/{run}")).await;
        assert!(answer.status == 200 && answer.body.contains("1,204 rows"), "{}", answer.body);
    });
}

#[test]
fn a_question_about_a_time_is_answered_and_one_that_is_no_time_is_not_lost() {
    with_store(&["report"], async |schedules| {
        let router = console(schedules);
        let answer = get(&router, "/job?name=report&at=1999-01-01+00%3A00").await;
        assert_eq!(answer.status, 200, "{}", answer.body);
        let answer = get(&router, "/job?name=report&at=half+past+two").await;
        assert!(
            answer.status == 200 && answer.body.contains("value=\"half past two\""),
            "{}",
            answer.body
        );
    });
}

#[test]
fn hostile_names_are_text_and_their_links_lead_to_them() {
    let names = [
        "..",
        ".",
        "a?b#c&d=e",
        "100%25 %2F",
        "<img src=x onerror=alert(1)>",
        "\"><script>alert(1)</script>",
        "javascript:alert(1)",
        "'+alert(1)+'",
        "🦀",
    ];
    with_store(&names, async |schedules| {
        let router = console(schedules);
        let list = get(&router, "/jobs").await.body;
        for raw in ["<img", "<script>alert"] {
            assert!(!list.contains(raw), "{raw}");
        }
        let mut links: Vec<&str> = list.split("href=\"").skip(1).collect();
        links.retain(|link| link.starts_with("job?name="));
        assert_eq!(links.len(), names.len());
        for link in links {
            let link = unescaped(link.split('"').next().unwrap());
            let page = get(&router, &format!("/{link}")).await;
            assert_eq!(page.status, 200, "{link}");
            assert!(!page.body.contains("<img") && !page.body.contains("<script>alert"), "{link}");
        }
    });
}

#[test]
fn a_job_that_never_was_is_a_page_in_words() {
    with_store(&[], async |schedules| {
        let router = console(schedules);
        for path in ["/job?name=nobody", "/run?name=nobody&fence=7", "/run?name=nobody&fence=x"] {
            let answer = get(&router, path).await;
            assert!(
                answer.status == 404 && answer.body.contains("nobody"),
                "{path}: {}",
                answer.body
            );
        }
    });
}

#[test]
fn a_page_with_runs_says_that_the_store_keeps_no_successes() {
    let sim = Sim::new(1);
    let limits = HistoryLimits::default().without_successes();
    let schedules = Schedules::on(Memory::new().with_history(limits), sim.node()).unwrap();
    sim.block_on(async {
        schedules.add(&StoredSchedule::new("a", "report", "@every 20s")).await.unwrap();
        let router = console(schedules);
        for path in ["/", "/jobs", "/job?name=a"] {
            let page = get(&router, path).await.body;
            assert!(page.contains("keeps no runs that succeeded"), "{path}: {page}");
        }
    });
}
