//! The guards: access, headers, methods, and the slash at the end.

use super::{ask, console, get, with_store};
use allora_console::{Access, Console};
use axum::Router;

#[test]
fn without_a_closure_every_page_is_closed_and_the_style_sheet_is_not() {
    with_store(&[], async |schedules| {
        let router = Console::new(schedules).into_router();
        for path in ["/", "/jobs", "/job?name=a", "/nowhere"] {
            let answer = get(&router, path).await;
            assert_eq!(answer.status, 403, "{path}");
            assert!(answer.body.contains("Console::access"), "{}", answer.body);
        }
        assert_eq!(get(&router, "/console.css").await.status, 200);
    });
}

#[test]
fn the_closure_decides_by_the_head_of_the_request() {
    with_store(&[], async |schedules| {
        let access = |parts: &axum::http::request::Parts| {
            (parts.uri.path() != "/nodes").then(|| Access::reader("ann"))
        };
        let router = Console::new(schedules).access(access).into_router();
        assert_eq!(get(&router, "/").await.status, 200);
        let refused = get(&router, "/nodes").await;
        assert!(
            refused.status == 403 && refused.body.contains("You may not read"),
            "{}",
            refused.body
        );
    });
}

#[test]
fn every_answer_has_the_strict_headers() {
    with_store(&[], async |schedules| {
        let router = console(schedules);
        for path in ["/", "/console.js", "/nowhere", "/job"] {
            let answer = get(&router, path).await;
            let policy = answer.header("content-security-policy");
            assert!(policy.contains("frame-ancestors 'none'"), "{path}: {policy}");
            assert!(policy.contains("require-trusted-types-for 'script'"), "{path}: {policy}");
            assert_eq!(answer.header("x-content-type-options"), "nosniff", "{path}");
        }
        assert_eq!(get(&router, "/").await.header("cache-control"), "no-store");
    });
}

#[test]
fn other_methods_and_addresses_are_refused_in_words() {
    with_store(&[], async |schedules| {
        let router = console(schedules);
        let posted = ask(&router, "POST", "/jobs").await;
        assert!(
            posted.status == 405 && posted.body.contains("only shows pages"),
            "{}",
            posted.body
        );
        let lost = get(&router, "/jobs/acme").await;
        assert!(lost.status == 404 && lost.body.contains("No such page"), "{}", lost.body);
        for (path, says) in [
            ("/jobs?q=%FF", "not UTF-8"),
            ("/job?name=a&name=b", "twice"),
            ("/job", "no name of a job"),
            ("/?zone=Mars%2FOlympus", "Mars/Olympus"),
            ("/jobs?state=broken", "no state"),
            ("/schedule?count=0", "1 to 100"),
        ] {
            let answer = get(&router, path).await;
            assert!(answer.status == 400 && answer.body.contains(says), "{path}: {}", answer.body);
        }
    });
}

#[test]
fn a_mounted_console_works_with_its_slash_and_leads_to_it() {
    with_store(&["report"], async |schedules| {
        let router = Router::new().nest_service("/ops/allora", console(schedules));
        let without = get(&router, "/ops/allora?zone=UTC").await;
        assert_eq!((without.status, without.header("location")), (308, "./allora/?zone=UTC"));
        for path in ["/ops/allora/", "/ops/allora/jobs", "/ops/allora/console.css"] {
            let answer = get(&router, path).await;
            assert_eq!(answer.status, 200, "{path}");
            let leads = ["href=\"/", "src=\"/", "action=\"/"]
                .into_iter()
                .find(|bad| answer.body.contains(bad));
            assert_eq!(leads, None, "{path}: a link that is not relative");
        }
    });
}
