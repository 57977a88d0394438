//! Hostile names and texts.

use crate::{Browser, RUNTIME, Served, console_of};
use allora::{
    Memory, Run, Scheduler, Schedules, StoredSchedule, backend::HistoryLimits, schedule::Calendar,
};
use allora_console::{Access, Console, Scope};

fn hostile() -> Vec<String> {
    let mut names: Vec<String> = [
        "..",
        ".",
        "acme/report",
        "a?b#c&d=e",
        "100%25 %2F",
        "<img src=x onerror=document.title='gone'>",
        "\"><script>document.title='gone'</script>",
        "javascript:document.title='gone'",
        "'+alert(1)+'",
        "☃ 🚀 é",
        "{{ 7 * 7 }} ${7*7} {% raw %}",
    ]
    .map(str::to_owned)
    .into();
    names.push("n".repeat(200));
    names
}

#[test]
fn a_hostile_name_is_a_name_and_nothing_else() {
    let names = hostile();
    let jobs: Vec<StoredSchedule> = names
        .iter()
        .map(|name| {
            // A kind and an owner have fewer characters than a name may have.
            StoredSchedule::new(name, "<b>report</b>", "@daily")
                .data_bytes(*b"</script><img src=x onerror=document.title='gone'>")
        })
        .collect();
    let (schedules, router) = console_of(&jobs);
    let served = Served::new(router);
    let note = "<img src=x onerror=document.title='gone'> javascript:alert(1)";
    for name in &names {
        RUNTIME.block_on(schedules.pause(name, note)).unwrap();
    }
    let browser = Browser::start();
    browser.open(&served.page("/jobs"));
    let mut listed: Vec<String> = Vec::new();
    for at in 0..names.len() {
        browser.open(&served.page("/jobs"));
        let link = format!("document.querySelectorAll('td.job a')[{at}]");
        let name = browser.text(&format!("return {link}.textContent"));
        browser.eval(&format!("{link}.click()"));
        browser.wait_for("return !location.pathname.endsWith('/jobs')");
        let head = browser.text("return document.querySelector('h1').textContent");
        assert_eq!(head, name);
        assert!(browser.title().starts_with(&name), "{}", browser.title());
        assert!(browser.text("return document.body.textContent").contains(note), "{name}");
        // The form of the question keeps the name.
        browser.fill("#at", "2026-01-01 00:00");
        browser.follow(".ask button");
        browser.wait_for("return location.search.includes('at=')");
        assert_eq!(browser.text("return document.querySelector('h1').textContent"), name);
        listed.push(name);
    }
    for path in ["/", "/jobs", "/nodes", "/runs?outcome=all"] {
        browser.open(&served.page(path));
        assert_ne!(browser.title(), "gone", "{path}");
        assert_eq!(
            browser.eval("return document.querySelectorAll('main img, main script').length"),
            0
        );
    }
    let mut wanted = names;
    wanted.sort();
    listed.sort();
    assert_eq!(listed, wanted);
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

#[test]
fn hostile_names_of_nodes_labels_and_calendars_are_text() {
    const TAG: &str = "<img src=x onerror=document.title='gone'>";
    // Calendars and labels that are asked for are one word.
    const WORD: &str = "\"><script>document.title='gone'</script>";
    let store = Memory::new().with_history(HistoryLimits::default());
    let _guard = RUNTIME.enter();
    let schedules = Schedules::new(store.clone()).unwrap();
    let scheduler = Scheduler::builder(store)
        .label(TAG)
        .node_labels([TAG, "javascript:alert(1)", "{{ 7 * 7 }}"])
        .kind("report", async |_: Run| {})
        .build()
        .unwrap();
    let handle = scheduler.handle();
    let running = RUNTIME.spawn(scheduler.run());
    let calendar = Calendar::parse(&format!("2025-12-25 # {TAG}")).unwrap();
    RUNTIME.block_on(schedules.upsert_calendar(WORD, &calendar)).unwrap();
    let schedule = format!("0 9 * * *; except calendar:{WORD}");
    for (name, kind) in [("closed", "report".to_owned()), ("elsewhere", format!("report@{WORD}"))] {
        let job = StoredSchedule::new(name, kind, &schedule);
        RUNTIME.block_on(schedules.add(&job)).unwrap();
    }
    let access = Access::reader("ann").with(Scope::Admin);
    let console = Console::new(schedules).handle(handle.clone()).allow_actions();
    let served = Served::new(console.access(move |_| Some(access.clone())).into_router());
    let browser = Browser::start();
    browser.open(&served.page("/nodes"));
    browser.wait_for("return document.body.textContent.includes('1 live node')");
    for (path, says) in [
        ("/nodes", TAG),
        ("/nodes", "{{ 7 * 7 }}"),
        ("/", "2 jobs in all"),
        ("/jobs", WORD),
        ("/runs?outcome=all", "Runs"),
        ("/audit", "Audit"),
        ("/job?name=closed", WORD),
        ("/job?name=closed", TAG),
        ("/job?name=closed&at=2025-12-25+09:00&zone=UTC", WORD),
        ("/job?name=elsewhere", WORD),
        ("/act?do=pause&name=elsewhere", "elsewhere"),
    ] {
        browser.open(&served.page(path));
        let text = browser.text("return document.body.textContent");
        assert!(text.contains(says), "{path}: {text}");
        assert_ne!(browser.title(), "gone", "{path}");
        let made = "return document.querySelectorAll('main img, main script').length";
        assert_eq!(browser.eval(made), 0, "{path}");
    }
    browser.open(&served.page("/schedule"));
    browser.fill("[name=text]", &schedule);
    browser.follow("main form button");
    let kept = browser.text("return document.querySelector('[name=text]').value");
    assert_eq!(kept, schedule);
    assert_ne!(browser.title(), "gone");
    assert_eq!(browser.complaints(), Vec::<String>::new());
    handle.stop();
    RUNTIME.block_on(running).unwrap();
}
