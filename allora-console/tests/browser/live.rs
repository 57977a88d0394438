//! A page that stays open.

use crate::{Browser, RUNTIME, Served, console_of};
use allora::StoredSchedule;

fn job(name: &str) -> StoredSchedule {
    StoredSchedule::new(name, "report", "@daily")
}

#[test]
fn what_changes_appears_without_a_reload_and_what_is_typed_stays() {
    let (schedules, router) = console_of(&[job("first")]);
    let served = Served::new(router);
    let browser = Browser::start();
    browser.open(&served.page("/jobs"));
    browser.eval("window.isTheSame = true");
    browser.type_into(".filter [name=q]", "half a na");
    browser.eval(
        "window.updates = 0; new MutationObserver(() => updates++)\
         .observe(document.querySelector('header'), { childList: true, subtree: true });",
    );
    RUNTIME.block_on(schedules.add(&job("second"))).unwrap();
    browser.wait_for("return document.getElementById('list').textContent.includes('second')");
    // The clock in the head of the page changes with each update.
    browser.wait_for("return updates >= 3");
    let typed = browser.eval(
        "return [isTheSame, document.activeElement.name, document.activeElement.value,\
         document.getElementById('live').textContent]",
    );
    assert_eq!(typed.to_string(), r#"[true,"q","half a na","live"]"#);
}

#[test]
fn a_page_is_held_on_demand_and_says_since_when_it_is_stale() {
    let (schedules, router) = console_of(&[job("first")]);
    let served = Served::new(router.clone());
    let browser = Browser::start();
    browser.open(&served.page("/jobs"));
    browser.wait_for("return document.getElementById('live').textContent === 'live'");
    browser.press(".");
    browser.wait_for("return document.getElementById('live').textContent === 'held'");
    RUNTIME.block_on(schedules.add(&job("second"))).unwrap();
    // A page that comes to the front looks at once, unless it is held.
    browser.eval(
        "window.asked = 0; const send = XMLHttpRequest.prototype.send; \
         XMLHttpRequest.prototype.send = function (...all) { asked++; return send.apply(this, all); };",
    );
    let asked = "document.dispatchEvent(new Event('visibilitychange')); return asked;";
    assert_eq!(browser.eval(asked), 0);
    browser.press(".");
    assert_eq!(browser.eval(asked), 1);
    browser.wait_for("return document.getElementById('list').textContent.includes('second')");
    let address = served.address();
    drop(served);
    browser
        .wait_for("return document.getElementById('live').textContent.startsWith('stale since')");
    assert_eq!(browser.eval("return document.querySelector('td.job a').textContent"), "first");
    let _served = Served::at(address, router);
    browser.wait_for("return document.getElementById('live').textContent === 'live'");
}
