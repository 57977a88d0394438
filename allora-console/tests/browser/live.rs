//! A page that stays open.

use crate::{Browser, RUNTIME, Served, console_of};
use allora::StoredSchedule;
use axum::{
    extract::Request,
    http::StatusCode,
    middleware::{Next, from_fn},
    response::IntoResponse,
};

const NO_TIMERS: &str =
    "for (let id = 0; id < 1000; id++) clearTimeout(id); window.setTimeout = () => 1;";

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
    // Without its timers, the page asks only when it is told to.
    browser.eval(NO_TIMERS);
    for name in ["second", "third", "fourth"] {
        RUNTIME.block_on(schedules.add(&job(name))).unwrap();
        let list = "return document.getElementById('list').textContent";
        browser.wait_for(&format!("{list}.includes('{name}')"));
    }
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
    assert_ne!(browser.eval(asked), 0);
    browser.wait_for("return document.getElementById('list').textContent.includes('second')");
    let address = served.address();
    drop(served);
    browser
        .wait_for("return document.getElementById('live').textContent.startsWith('stale since')");
    assert_eq!(browser.eval("return document.querySelector('td.job a').textContent"), "first");
    let _served = Served::at(address, router);
    browser.wait_for("return document.getElementById('live').textContent === 'live'");
    RUNTIME.block_on(schedules.add(&job("third"))).unwrap();
    browser.wait_for("return document.getElementById('list').textContent.includes('third')");
}

#[test]
fn without_a_stream_the_page_asks_by_itself() {
    let (schedules, router) = console_of(&[job("first")]);
    // As with too many open pages.
    let refuse = async |request: Request, next: Next| match request.uri().path() {
        "/events" => StatusCode::SERVICE_UNAVAILABLE.into_response(),
        _ => next.run(request).await,
    };
    let served = Served::new(router.layer(from_fn(refuse)));
    let browser = Browser::start();
    browser.open(&served.page("/jobs"));
    RUNTIME.block_on(schedules.add(&job("second"))).unwrap();
    browser.wait_for("return document.getElementById('list').textContent.includes('second')");
    browser.wait_for("return document.getElementById('live').textContent === 'live'");
}
