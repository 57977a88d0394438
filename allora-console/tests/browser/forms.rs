//! Forms and links where no script runs.

use crate::{Browser, RUNTIME, Served, console_of, weekend::Shop};
use allora::{StoredSchedule, backend::JobState};

#[test]
fn searches_filters_pages_and_questions_need_no_script() {
    let shop = Shop::after_its_weekend().unwrap();
    let served = Served::new(shop.console.clone());
    let browser = Browser::without_scripts();
    browser.open(&served.page("/"));
    assert!(!browser.source().contains(">live<"), "a script ran");
    browser.type_into("#find", "backup/db-0\n");
    browser.wait_for("return location.href.endsWith('/jobs?q=backup%2Fdb-0')");
    assert!(browser.source().contains("backup/db-07") && !browser.source().contains("sync.crm"));
    browser.fill(".filter [name=q]", "");
    browser.fill(".filter [name=owner]", "billing");
    browser.follow(".filter button");
    browser.wait_for("return location.search.includes('owner=billing')");
    assert!(browser.source().contains("billing/close") && !browser.source().contains("sync.crm"));
    browser.open(&served.page("/jobs"));
    browser.follow("a[rel=next]");
    browser.wait_for("return location.search.includes('after=')");
    browser.back();
    browser.wait_for("return !location.search.includes('after=')");
    browser.open(&served.page("/job?name=sync.crm"));
    browser.fill("#at", "2026-10-25 03:00");
    browser.fill(".ask [name=zone]", "Europe/Rome");
    browser.follow(".ask button");
    browser.wait_for("return location.hash === '#why'");
    assert!(browser.source().contains("2026-10-25 03:00"), "{}", browser.source());
    browser.open(&served.page("/schedule"));
    browser.fill("[name=text]", "30 2 * * * Europe/Rome");
    browser.follow("main form button");
    browser.wait_for("return document.body.textContent.includes('02:30')");
}

#[test]
fn an_action_needs_no_script_and_is_done_once() {
    let (schedules, router) = console_of(&[StoredSchedule::new("acme/report", "report", "@daily")]);
    let served = Served::new(router);
    let state = || -> JobState { RUNTIME.block_on(schedules.get("acme/report")).unwrap() };
    let browser = Browser::without_scripts();
    browser.open(&served.page("/job?name=acme%2Freport"));
    browser.follow("a[href^='act?do=pause']");
    browser.type_into("[name=note]", "the warehouse moves");
    browser.follow("button.main");
    browser.wait_for("return document.body.textContent.includes('Paused.')");
    let paused = state().paused.unwrap();
    assert!(paused.note.contains("the warehouse moves"), "{}", paused.note);
    // Back at the form: sent again, it pauses no second time.
    browser.back();
    browser.follow("button.main");
    browser.wait_for("return location.pathname === '/job'");
    assert_eq!(state().paused, Some(paused));
    browser.follow("main a[href^='act?do=resume']");
    browser.click("[value=missed]");
    assert_eq!(browser.eval("return document.querySelector('[value=missed]').checked"), true);
    browser.follow("button.main");
    browser.wait_for("return document.body.textContent.includes('Resumed.')");
    assert_eq!(state().paused, None);
    browser.follow("a[href^='act?do=trigger']");
    browser.follow("button.main");
    browser.wait_for("return document.body.textContent.includes('Triggered')");
    browser.back();
    browser.follow("button.main");
    browser.wait_for("return location.pathname === '/job'");
    let waiting = RUNTIME.block_on(schedules.cancel("acme/report")).unwrap();
    assert_eq!(waiting, 1, "one click more is no further run");
    browser.open(&served.page("/jobs?q=acme"));
    browser.follow("a[href^='many?'][href*='do=pause']");
    browser.type_into("[name=typed]", "1");
    browser.type_into("[name=note]", "the warehouse moves again");
    browser.follow("button.main");
    browser.wait_for("return document.body.textContent.includes('1 job changed.')");
    assert!(state().paused.is_some());
    browser.open(&served.page("/audit?what=pause"));
    browser.follow("a[href^='undo?']");
    browser.follow("button.main");
    browser.wait_for("return location.pathname === '/audit'");
    assert_eq!(state().paused, None);
    browser.open(&served.page("/job?name=acme%2Freport"));
    // Without a note it comes back with what was typed.
    browser.follow("a[href^='act?do=backfill']");
    browser.type_into("[name=from]", "2020-01-01 00:00");
    browser.follow("form.filter button");
    assert!(browser.source().contains("2020-01-01"), "{}", browser.source());
}
