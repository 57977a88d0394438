//! Hostile names and texts.

use crate::{Browser, RUNTIME, Served, console_of};
use allora::StoredSchedule;

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
        browser.wait_for("return document.body && !location.pathname.endsWith('/jobs')");
        let head = browser.text("return document.querySelector('h1').textContent");
        assert_eq!(head, name);
        assert!(browser.title().starts_with(&name), "{}", browser.title());
        assert!(browser.text("return document.body.textContent").contains(note), "{name}");
        // The form of the question keeps the name.
        browser.fill("#at", "2026-01-01 00:00");
        browser.click(".ask button");
        browser.wait_for(
            "return location.search.includes('at=') && document.querySelector('h1') != null",
        );
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
