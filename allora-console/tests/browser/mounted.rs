//! The pages below a path of another service.

use crate::{Browser, Served, console_of, weekend::Shop};
use allora::StoredSchedule;
use axum::{Router, body::Body, http::Request, routing::get};
use std::collections::BTreeSet;
use tower::ServiceExt;

/// Follows the links of the pages from one of them. Returns the addresses of the pages.
fn crawl(browser: &Browser, start: &str, most: usize) -> BTreeSet<String> {
    let (mut seen, mut open) = (BTreeSet::new(), vec![start.to_owned()]);
    while let Some(address) = open.pop().filter(|_| seen.len() < most) {
        browser.open(&address);
        let main = browser.eval("return document.querySelector('main h1')?.textContent ?? null");
        assert!(main.is_string(), "{address} is no page: {}", browser.source());
        // A form that is sent as it stands asks for a page, as a link does.
        let script = "const asked = (form) => \
                      form.action.split('#')[0] + '?' + new URLSearchParams(new FormData(form));\
                      return [...document.links].map((link) => link.href.split('#')[0])\
                      .concat([...document.querySelectorAll('form:not([method=post])')].map(asked))";
        seen.insert(address);
        for link in browser.eval(script).as_array().unwrap() {
            let link = link.as_str().unwrap().to_owned();
            if !seen.contains(&link) {
                open.insert(0, link);
            }
        }
    }
    seen
}

fn check(router: Router, start: &str) {
    let served = Served::new(router);
    let browser = Browser::start();
    let seen = crawl(&browser, &served.page(start), 25);
    let pages = ["", "jobs", "runs", "nodes", "audit", "schedule"];
    for page in pages {
        let address = served.page(&format!("/ops/allora/{page}"));
        assert!(seen.iter().any(|one| one.split('?').next() == Some(&address)), "{page}: {seen:?}");
    }
    let below = served.page("/ops/allora");
    assert!(seen.iter().all(|one| one.starts_with(&below)), "{seen:?}");
    browser.open(&served.page("/ops/allora/jobs"));
    browser.wait_for("return document.getElementById('live').textContent === 'live'");
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

fn shop() -> Router {
    console_of(&[StoredSchedule::new("acme/report", "report", "@daily")]).1
}

#[test]
fn every_link_works_below_a_path_of_a_service() {
    let service = Router::new().route("/", get("the service"));
    check(service.nest_service("/ops/allora", shop()), "/ops/allora");
}

#[test]
fn every_link_works_behind_a_proxy_that_strips_the_path() {
    let console = shop();
    let proxy = Router::new().fallback(async move |request: Request<Body>| {
        let (mut parts, body) = request.into_parts();
        let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
        let path = path.strip_prefix("/ops/allora").unwrap_or("/foreign").to_owned();
        parts.uri = if path.is_empty() { "/".to_owned() } else { path }.parse().unwrap();
        // The whole address, which the request of a proxy does not have.
        parts.extensions.clear();
        console.clone().oneshot(Request::from_parts(parts, body)).await
    });
    check(proxy, "/ops/allora/");
}

#[test]
fn a_shop_has_no_link_to_nowhere() {
    let shop = Shop::after_its_weekend().unwrap();
    let served = Served::new(shop.console.clone());
    let seen = crawl(&Browser::start(), &served.page("/"), 120);
    assert!(seen.len() >= 100, "{}", seen.len());
}
