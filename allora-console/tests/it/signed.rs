//! Signed requests: which ones are accepted, and why others are not.

use super::{Answer, send, with_store};
use allora::{Schedules, Time};
use allora_console::{Console, Scope, SigningKey, TokenLine, Tokens};
use axum::{
    Router,
    body::Body,
    http::{HeaderValue, Request},
};
use base64::{Engine, prelude::BASE64_STANDARD};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use std::sync::{Arc, Mutex};

const NOW: &str = "2026-10-26T02:00:00Z";

/// A request whose answer shows that its sender was let in: there is no such page.
const PAGE: &str = "/page?name=a%20b";

fn at(text: &str) -> Time {
    text.parse().unwrap()
}

/// The key of `ci`, and a file with it, a token and a key that has ended.
fn tokens() -> (SigningKey, Tokens) {
    let line = |name: &str| TokenLine {
        name: name.into(),
        scopes: [Scope::Run].into(),
        ..TokenLine::default()
    };
    let ci = Tokens::create_signing(&line("ci"), [7; 32]).unwrap();
    let ended = TokenLine { until: Some(at(NOW)), ..line("ended") };
    let ended = Tokens::create_signing(&ended, [7; 32]).unwrap();
    let ann = Tokens::create(&line("ann"), [7; 32]).unwrap();
    let file = format!("{}{}{}", ci.line, ended.line, ann.line);
    (SigningKey::new("ci", ci.token).unwrap(), Tokens::read(&file).unwrap())
}

/// A console whose clock stands still, and can be set.
fn console(schedules: Schedules, tokens: Tokens, now: &Arc<Mutex<Time>>) -> Router {
    let now = now.clone();
    let access = move |parts: &_| tokens.decide(parts, *now.lock().unwrap());
    Console::new(schedules).allow_actions().access(access).into_router()
}

/// The answers to these requests, one after the other.
fn answers(requests: Vec<Request<String>>) -> Vec<Answer> {
    let mut answers = Vec::new();
    with_store(&["a"], async |schedules| {
        let router = console(schedules, tokens().1, &Arc::new(Mutex::new(at(NOW))));
        for request in requests {
            answers.push(send(&router, request.map(Body::from)).await);
        }
    });
    answers
}

fn request(method: &str, path: &str, body: &str) -> Request<String> {
    Request::builder().method(method).uri(path).body(body.to_owned()).unwrap()
}

/// A request of `ci` that is good.
fn signed(method: &str, path: &str, body: &str) -> Request<String> {
    let mut request = request(method, path, body);
    if !body.is_empty() {
        request.headers_mut().insert("content-type", HeaderValue::from_static("text/plain"));
    }
    tokens().0.sign(&mut request, at(NOW), 1).unwrap();
    request
}

fn set(request: &mut Request<String>, name: &'static str, value: &str) {
    request.headers_mut().insert(name, HeaderValue::try_from(value).unwrap());
}

/// The request with another text in one of its headers.
fn altered(
    mut request: Request<String>,
    name: &'static str,
    from: &str,
    to: &str,
) -> Request<String> {
    let value = request.headers()[name].to_str().unwrap();
    assert!(value.contains(from), "{value}");
    let value = value.replace(from, to);
    set(&mut request, name, &value);
    request
}

/// Signs by hand, without the code that checks: the names and values of the components, and the parameters.
fn signed_by_hand(request: &mut Request<String>, covered: &[(&str, &str)], params: &str) {
    let names: Vec<String> = covered.iter().map(|(name, _)| format!("\"{name}\"")).collect();
    let input = format!("({}){params}", names.join(" "));
    let lines: String =
        covered.iter().map(|(name, value)| format!("\"{name}\": {value}\n")).collect();
    let secret = format!("allora_{}", "07".repeat(32));
    let mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).unwrap();
    let mac = mac.chain_update(format!("{lines}\"@signature-params\": {input}")).finalize();
    set(request, "signature-input", &format!("sig={input}"));
    let mac = BASE64_STANDARD.encode(mac.into_bytes());
    set(request, "signature", &format!("sig=:{mac}:"));
}

/// Their answers: 404, which those get who were let in.
#[track_caller]
fn accepts(requests: Vec<Request<String>>) {
    for (i, answer) in answers(requests).iter().enumerate() {
        assert!(
            [404, 405].contains(&answer.status),
            "request {i}: {}: {}",
            answer.status,
            answer.body
        );
    }
}

/// Each is refused, with this in its reason.
#[track_caller]
fn refuses(cases: Vec<(&str, Request<String>)>) {
    let (says, requests): (Vec<&str>, Vec<_>) = cases.into_iter().unzip();
    for (says, answer) in says.iter().zip(answers(requests)) {
        let body = super::unescaped(&answer.body);
        assert!(answer.status == 401 && body.contains(says), "{says}: {} {body}", answer.status);
        assert!(!body.contains("0707"), "{body}");
        assert!(answer.header("www-authenticate").starts_with("Basic "));
    }
}

#[test]
fn a_good_signature_is_accepted() {
    let mut later = request("GET", PAGE, "");
    tokens().0.sign(&mut later, at("2026-10-26T02:05:00Z"), 1).unwrap();
    let mut earlier = request("GET", PAGE, "");
    tokens().0.sign(&mut earlier, at("2026-10-26T01:55:00Z"), 1).unwrap();
    let mut with_key = request("POST", "/page", "{}");
    set(&mut with_key, "idempotency-key", "7");
    set(&mut with_key, "allora-job", "a");
    tokens().0.sign(&mut with_key, at(NOW), 1).unwrap();
    accepts(vec![
        signed("GET", "/page", ""),
        signed("GET", PAGE, ""),
        signed("POST", "/page", "a=1"),
        signed("DELETE", PAGE, ""),
        earlier,
        later,
        with_key,
    ]);
}

#[test]
fn a_signature_by_other_code_is_accepted_whatever_else_it_covers() {
    let created = at(NOW).timestamp();
    let must = [("@method", "POST"), ("@path", "/page")];
    let params = format!(";keyid=\"ci\";created={created}");
    let mut least = request("POST", "/page", "");
    signed_by_hand(&mut least, &must, &params);
    let mut most = request("POST", "/page", "{\"hello\": \"world\"}");
    // Its digest in RFC 9530.
    let digest = "sha-256=:X48E9qOokqqrvdts8nOJRJN3OWDUoyWxBf7kbu9DBPE=:";
    for (name, value) in [
        ("date", "Mon, 26 Oct 2026 02:00:00 GMT"),
        ("host", "Ops.Example:80"),
        ("content-digest", digest),
    ] {
        set(&mut most, name, value);
    }
    most.headers_mut().append("x-two", HeaderValue::from_static("a "));
    most.headers_mut().append("x-two", HeaderValue::from_static(" b"));
    let more = [
        ("date", "Mon, 26 Oct 2026 02:00:00 GMT"),
        ("@authority", "ops.example:80"),
        ("@query", "?"),
        ("content-digest", digest),
        ("x-two", "a, b"),
    ];
    let expires = format!("{params};expires={created};tag=\"mine\"");
    signed_by_hand(&mut most, &[&must[..], &more].concat(), &expires);
    accepts(vec![least, most]);
}

#[test]
fn a_request_that_was_altered_is_refused() {
    const NOT_ITS: &str = "no key named \"ci\" has made it for this request";
    let mut method = signed("POST", PAGE, "a=1");
    *method.method_mut() = axum::http::Method::PUT;
    let mut path = signed("GET", PAGE, "");
    *path.uri_mut() = "/other?name=a%20b".parse().unwrap();
    let mut query = signed("GET", PAGE, "");
    *query.uri_mut() = "/page?name=a+b".parse().unwrap();
    let mut more = signed("GET", "/page", "");
    *more.uri_mut() = PAGE.parse().unwrap();
    let mut less = signed("GET", PAGE, "");
    *less.uri_mut() = "/page".parse().unwrap();
    let mut body = signed("POST", PAGE, "a=1");
    *body.body_mut() = "a=2".into();
    let mut cut = signed("POST", PAGE, "a=1");
    cut.body_mut().clear();
    let mut added = signed("POST", PAGE, "");
    *added.body_mut() = "a=1".into();
    let mut digest = signed("POST", PAGE, "a=1");
    let other = signed("POST", PAGE, "a=2").headers()["content-digest"].clone();
    digest.headers_mut().insert("content-digest", other);
    let mut kind = signed("POST", PAGE, "a=1");
    set(&mut kind, "content-type", "text/html");
    let mut header = signed("POST", PAGE, "");
    set(&mut header, "if-match", "*");
    refuses(vec![
        (NOT_ITS, method),
        (NOT_ITS, path),
        (NOT_ITS, query),
        ("does not cover @query", more),
        (NOT_ITS, less),
        ("the body is another one", body),
        ("the body is another one", cut),
        ("does not cover the body", added),
        (NOT_ITS, digest),
        (NOT_ITS, kind),
        ("does not cover if-match", header),
    ]);
}

#[test]
fn a_signature_of_another_time_or_key_is_refused() {
    let of = |key: &SigningKey, at: Time| {
        let mut request = request("GET", PAGE, "");
        key.sign(&mut request, at, 1).unwrap();
        request
    };
    let (ci, secret) = (tokens().0, format!("allora_{}", "07".repeat(32)));
    let by = |name: &str, secret: &str| of(&SigningKey::new(name, secret).unwrap(), at(NOW));
    refuses(vec![
        ("301 s behind the clock", of(&ci, at("2026-10-26T01:54:59Z"))),
        ("301 s ahead of the clock", of(&ci, at("2026-10-26T02:05:01Z"))),
        ("no key named \"eve\"", by("eve", &secret)),
        ("no key named \"ci\"", by("ci", "another secret")),
        ("no key named \"ended\"", by("ended", &secret)),
        ("no key named \"ann\"", by("ann", &secret)),
    ]);
}

#[test]
fn a_signature_that_leaves_something_open_is_refused() {
    let input =
        |from: &str, to: &str| altered(signed("POST", PAGE, "a=1"), "signature-input", from, to);
    let value = |name, from: &str, to: &str| altered(signed("POST", PAGE, "a=1"), name, from, to);
    let mut two = signed("POST", PAGE, "a=1");
    let second = two.headers()["signature-input"].to_str().unwrap().replace("sig=", "b=");
    two.headers_mut().append("signature-input", HeaderValue::try_from(second).unwrap());
    let mut bare = signed("POST", PAGE, "a=1");
    set(&mut bare, "signature-input", "sig=7");
    let without = |name: &str| {
        let mut request = signed("POST", PAGE, "a=1");
        request.headers_mut().remove(name);
        request
    };
    let created = format!("created={}", at(NOW).timestamp());
    refuses(vec![
        ("two signatures", two),
        ("has no signature-input", without("signature-input")),
        ("has no signature", without("signature")),
        ("content-digest, which the request lacks", without("content-digest")),
        ("different labels", value("signature", "sig=", "b=")),
        ("must be 32 bytes", value("signature", "sig=:", "sig=:AAAA")),
        ("signature cannot be read", value("signature", "=:", "=:!")),
        ("signature-input cannot be read", input("(", "((")),
        ("no list of components", bare),
        ("does not cover @method", input("\"@method\" ", "")),
        ("does not cover @path", input("\"@path\" ", "")),
        ("does not cover @query", input("\"@query\" ", "")),
        ("does not cover content-digest", input("\"content-digest\"", "")),
        ("does not cover content-type", input("\"content-type\"", "")),
        ("covers @path twice", input("\"@path\"", "\"@path\" \"@path\"")),
        ("with parameters", input("\"@path\"", "\"@path\" \"x\";sf")),
        ("is no text", input("\"@path\"", "\"@path\" 7")),
        ("covers @status, which is not read", input("\"@path\"", "\"@path\" \"@status\"")),
        ("covers Date, which is not read", input("\"@path\"", "\"@path\" \"Date\"")),
        ("which the request lacks", input("\"@path\"", "\"@path\" \"date\"")),
        ("no created", input(&created, "x=1")),
        ("created is no number", input(&created, "created=\"now\"")),
        ("has expired", input(&created, &format!("{created};expires=1"))),
        ("no keyid", input("keyid=", "id=")),
        ("longer than a name", input("keyid=\"ci\"", &format!("keyid=\"{}\"", "a".repeat(201)))),
        ("no keyid", input("keyid=\"ci\"", "keyid=ci")),
        ("another one than hmac-sha256", input("hmac-sha256", "hmac-sha512")),
        ("no digest sha-256", value("content-digest", "sha-256", "sha-512")),
    ]);
}

#[test]
fn a_signature_is_accepted_once_also_after_the_file_was_read_again() {
    with_store(&["a"], async |schedules| {
        let (first, now) = (tokens().1, Arc::new(Mutex::new(at(NOW))));
        let second = tokens().1.following(&first);
        let routers = [first, second].map(|tokens| console(schedules.clone(), tokens, &now));
        let good = signed("POST", PAGE, "a=1");
        let mut broken = good.clone();
        broken.body_mut().clear();
        let statuses = async |request: &Request<String>, router: &Router| {
            send(router, request.clone().map(Body::from)).await
        };
        // One that did not come as a whole does not use it up.
        assert_eq!(statuses(&broken, &routers[0]).await.status, 401);
        assert_eq!(statuses(&good, &routers[0]).await.status, 404);
        for router in &routers {
            let again = statuses(&good, router).await;
            assert!(
                again.status == 401 && again.body.contains("was used before"),
                "{}",
                again.body
            );
        }
        *now.lock().unwrap() = at("2026-10-26T02:05:01Z");
        assert_eq!(statuses(&good, &routers[0]).await.status, 401);
    });
}

#[test]
fn a_signed_form_acts_and_one_that_is_too_long_is_not_read() {
    with_store(&["a"], async |schedules| {
        let router = console(schedules.clone(), tokens().1, &Arc::new(Mutex::new(at(NOW))));
        let mut form = request("POST", "/act", "do=trigger&name=a&id=7");
        set(&mut form, "content-type", "application/x-www-form-urlencoded");
        tokens().0.sign(&mut form, at(NOW), 1).unwrap();
        let done = send(&router, form.map(Body::from)).await;
        assert!(
            done.status == 303 && done.header("location").contains("done=trigger"),
            "{}",
            done.body
        );
        let long = "a".repeat((1 << 20) + 1);
        let answer = send(&router, signed("POST", "/act", &long).map(Body::from)).await;
        assert!(
            answer.status == 413 && answer.body.contains("longer than is read"),
            "{}",
            answer.body
        );
    });
}

#[test]
fn a_mounted_console_checks_the_path_that_was_sent() {
    with_store(&["a"], async |schedules| {
        let console = console(schedules, tokens().1, &Arc::new(Mutex::new(at(NOW))));
        let router = Router::new().nest_service("/ops/allora", console);
        let answer = send(&router, signed("GET", "/ops/allora/jobs?q=a", "").map(Body::from)).await;
        assert_eq!(answer.status, 200, "{}", answer.body);
    });
}
