//! The guards: access, headers, methods, and the slash at the end.

use super::{ask, console, get, send, with_store};
use allora_console::{Access, BodyCheck, Console, Decision, Scope};
use axum::{
    Router,
    body::{Body, Bytes},
    http::Request,
};

#[test]
fn without_a_closure_every_page_is_closed_and_the_style_sheet_is_not() {
    with_store(&[], async |schedules| {
        let router = Console::new(schedules).into_router();
        for path in ["/", "/jobs", "/job?name=a", "/events", "/nowhere"] {
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
        let posted = Request::builder().method("POST").header("sec-fetch-site", "same-origin");
        let posted = send(&router, posted.uri("/jobs").body(Body::empty()).unwrap()).await;
        assert!(posted.status == 405 && posted.body.contains("Only GET"), "{}", posted.body);
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

#[test]
fn whoever_is_unknown_is_asked_for_a_password_and_a_worker_reads_nothing() {
    with_store(&[], async |schedules| {
        let unknown = Console::new(schedules.clone()).access(|_| Decision::Unknown).into_router();
        let answer = get(&unknown, "/").await;
        assert_eq!((answer.status, answer.body.contains("Who are you")), (401, true));
        assert!(answer.header("www-authenticate").starts_with("Basic "));
        let worker = |_: &axum::http::request::Parts| Some(Access::new("w").with(Scope::Work));
        let answer = get(&Console::new(schedules).access(worker).into_router(), "/").await;
        assert!(answer.status == 403 && answer.body.contains("read"), "{}", answer.body);
    });
}

#[test]
fn a_decision_may_need_the_body_and_without_that_the_body_is_not_read() {
    with_store(&[], async |schedules| {
        let by_body = |_: &axum::http::request::Parts| {
            Decision::ByBody(BodyCheck::new(|body| match body {
                b"ann" => Decision::Reader(Access::reader("ann")),
                b"late" => Decision::Busy,
                b"again" => Decision::ByBody(BodyCheck::new(|_| Decision::Unknown)),
                _ => Decision::Unproven("it is not ann".into()),
            }))
        };
        let posted = |body| {
            let request = Request::post("/jobs").header("sec-fetch-site", "same-origin");
            request.body(body).unwrap()
        };
        let router = Console::new(schedules.clone()).access(by_body).into_router();
        for (body, status, says) in [
            ("ann", 405, "Only GET"),
            ("late", 503, "again later"),
            ("again", 403, "You may not"),
            ("eve", 401, "The signature is not accepted: it is not ann."),
        ] {
            let answer = send(&router, posted(Body::from(body))).await;
            assert!(answer.status == status && answer.body.contains(says), "{}", answer.body);
            assert_eq!(answer.header("retry-after"), if status == 503 { "1" } else { "" });
        }
        let endless = futures::stream::pending::<Result<Bytes, std::io::Error>>();
        let answer = send(&console(schedules), posted(Body::from_stream(endless))).await;
        assert_eq!(answer.status, 405);
    });
}

#[test]
fn a_foreign_host_or_a_foreign_page_is_refused() {
    with_store(&["report"], async |schedules| {
        let access = Access::reader("ann").with(Scope::Run);
        let console = Console::new(schedules).access(move |_| Some(access.clone()));
        let router = console.allow_actions().hosts(["ops.example"]).into_router();
        for (host, status) in [("ops.example:8443", 200), ("localhost", 200), ("evil.example", 421)]
        {
            for path in ["/jobs", "/console.css"] {
                let request = Request::builder().uri(path).header("host", host);
                let answer = send(&router, request.body(Body::empty()).unwrap()).await;
                assert_eq!(answer.status, status, "{host}{path}");
                assert!(!answer.header("content-security-policy").is_empty(), "{host}");
            }
        }
        assert_eq!(ask(&router, "GET", "/jobs").await.status, 421, "it names no host");
        for (name, value) in [
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-site", "same-site"),
            ("origin", "https://evil.example"),
            ("origin", "null"),
            ("x-nothing", "of all that"),
        ] {
            let request =
                Request::builder().method("POST").uri("/act").header("host", "ops.example");
            let request = request.header(name, value).body(Body::from("do=pause")).unwrap();
            let answer = send(&router, request).await;
            assert!(
                answer.status == 403 && answer.body.contains("Not from this console"),
                "{name} {value}"
            );
        }
    });
}
