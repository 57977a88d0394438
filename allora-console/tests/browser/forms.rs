//! Forms and links where no script runs.

use crate::{Browser, Served, weekend::Shop};

#[test]
fn searches_filters_pages_and_questions_need_no_script() {
    let shop = Shop::after_its_weekend().unwrap();
    let served = Served::new(shop.console.clone());
    let browser = Browser::without_scripts();
    browser.open(&served.page("/"));
    assert!(!browser.source().contains(">live<"), "a script ran");
    browser.type_into("#find", "backup/db-0\n");
    assert!(browser.address().ends_with("/jobs?q=backup%2Fdb-0"), "{}", browser.address());
    assert!(browser.source().contains("backup/db-07") && !browser.source().contains("sync.crm"));
    browser.fill(".filter [name=q]", "");
    browser.fill(".filter [name=owner]", "billing");
    browser.click(".filter button");
    assert!(browser.source().contains("billing/close") && !browser.source().contains("sync.crm"));
    browser.open(&served.page("/jobs"));
    browser.click("a[rel=next]");
    assert!(browser.address().contains("after="), "{}", browser.address());
    browser.back();
    assert!(!browser.address().contains("after="), "{}", browser.address());
    browser.open(&served.page("/job?name=sync.crm"));
    browser.fill("#at", "2026-10-25 03:00");
    browser.fill(".ask [name=zone]", "Europe/Rome");
    browser.click(".ask button");
    assert!(browser.address().ends_with("#why"), "{}", browser.address());
    assert!(browser.source().contains("2026-10-25 03:00"), "{}", browser.source());
    browser.open(&served.page("/schedule"));
    browser.fill("[name=text]", "30 2 * * * Europe/Rome");
    browser.click("main form button");
    assert!(browser.source().contains("02:30"), "{}", browser.source());
}
