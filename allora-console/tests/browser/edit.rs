//! The form of a definition, with and without a script.

use crate::{
    Browser, LOOKS, RUNTIME, Served, console_of,
    looks::{defects, keep_picture},
};
use allora::{StoredSchedule, backend::JobState};

#[test]
fn a_schedule_is_edited_and_taken_back_with_and_without_a_script() {
    let job = StoredSchedule::new("acme/report", "report", "0 2 * * *")
        .in_zone("Europe/Rome")
        .tag("nightly")
        .data_bytes("{\n  \"to\": \"ann@acme.example\"\n}");
    let (schedules, router) = console_of(&[job]);
    let served = Served::new(router);
    let state = || -> JobState { RUNTIME.block_on(schedules.get("acme/report")).unwrap() };
    let data = state().data;
    let mut wrong = Vec::new();
    for (browser, owner) in [(Browser::without_scripts(), "ben"), (Browser::start(), "eve")] {
        // Each page in each look: the widest one last, in which the rest is done.
        let mut seen = |page: &str| {
            for look in LOOKS.into_iter().rev() {
                browser.look(look);
                let found = defects(&browser, look).into_iter();
                wrong.extend(found.map(|what| format!("{page}, {}: {what}", look.name())));
                keep_picture(&browser, page, look);
            }
        };
        browser.open(&served.page("/job?name=acme%2Freport"));
        browser.follow("a[href^='edit?']");
        browser.wait_for("return document.querySelector('#f-schedule') != null");
        seen("edit");
        assert_eq!(browser.eval("return document.querySelector('details').open"), false);
        browser.fill("#f-schedule", "0 25 * * *");
        browser.fill("#f-retry", "3 1m 1h");
        browser.fill("#f-tags", "nightly,billing");
        browser.follow("button.main");
        browser.wait_for("return document.querySelector('mark') != null");
        assert_eq!(browser.text("return document.querySelector('mark').textContent"), "25");
        assert_eq!(browser.text("return document.activeElement.id"), "f-schedule");
        seen("edit-wrong");
        browser.fill("#f-schedule", "30 3 * * MON-FRI\n");
        browser.wait_for("return document.querySelector('ins') != null");
        let changes = browser
            .text("return [...document.querySelectorAll('dt')].map((d) => d.textContent).join()");
        assert_eq!(changes, "schedule,retries,tags");
        assert_eq!(browser.eval("return document.querySelectorAll('td time').length"), 10);
        seen("edit-preview");
        let other = StoredSchedule::of(&state()).unwrap().owner(owner);
        let other = RUNTIME.block_on(schedules.clone().by(owner).modify(&other)).unwrap();
        browser.type_into("[name=note]", "the bank is closed at night\n");
        browser.wait_for(
            "return location.pathname === '/edit' && document.querySelector('#f-owner') != null",
        );
        seen("edit-late");
        browser.fill("#f-owner", owner);
        browser.follow("button.main");
        browser.wait_for("return document.querySelector('[name=note]').type !== 'hidden'");
        assert_eq!(
            browser.text("return document.querySelector('[name=note]').value"),
            "the bank is closed at night"
        );
        browser.follow("button.main");
        browser.wait_for("return location.pathname === '/job'");
        assert!(state().definition.starts_with("30 3 * * MON-FRI; zone Europe/Rome; "));
        assert_eq!(state().data, data);
        browser.follow(".done a");
        browser.wait_for("return location.pathname === '/undo'");
        browser.follow("button.main");
        browser.wait_for("return location.pathname === '/audit'");
        assert_eq!((state().definition, state().data), (other.definition, data.clone()));
    }
    assert!(wrong.is_empty(), "{} defects:\n{}", wrong.len(), wrong.join("\n"));
}
