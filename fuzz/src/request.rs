//! Requests to the console and its API: their queries, headers, bodies, tokens and signatures.

use allora_console::{Console, Scope, SigningKey, TokenLine, Tokens};
use allora_core::{
    Schedules, StoredSchedule, Time,
    backend::HistoryLimits,
    runtime::{Runtime, Sim},
};
use allora_memory::Memory;
use axum::{
    Router,
    body::{Body, to_bytes},
    http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri, header},
};
use std::sync::LazyLock;
use tower::ServiceExt;

/// The data of the store's schedule: nobody without a token may see it.
const DATA: &str = "hunter2hunter2";

/// Tokens of `ann` and the signing key of `ci`, with all scopes.
static KEYS: LazyLock<(Tokens, String, SigningKey)> = LazyLock::new(|| {
    let line = |name: &str| TokenLine {
        name: name.into(),
        scopes: Scope::ALL.into_iter().collect(),
        ..TokenLine::default()
    };
    let ann = Tokens::create(&line("ann"), [7; 32]).expect("the line is good");
    let ci = Tokens::create_signing(&line("ci"), [8; 32]).expect("the line is good");
    let tokens = Tokens::read(&format!("{}{}", ann.line, ci.line)).expect("the lines are good");
    (tokens, ann.token, SigningKey::new("ci", ci.token).expect("the key is good"))
});

/// Sends a request. The bytes are its head as HTTP/1 has it, without a version, and its body behind an empty
/// line. The header `auth: ann` stands for her token, and `auth: ci` for a signature.
pub(crate) fn request(data: &[u8]) {
    let Some((request, auth)) = read(data) else { return };
    let sim = Sim::new(1);
    let node = sim.node();
    let now = node.wall();
    let Some(request) = proven(request, auth, now) else { return };
    let path = request.uri().path();
    let is_api = path == "/v1" || path.starts_with("/v1/");
    // The description of the API is no secret.
    let is_open = !is_api || path == "/v1/openapi.json";
    let title = format!("{} {} {:?}", request.method(), request.uri(), request.headers());
    let store = Memory::new().with_history(HistoryLimits::default());
    let schedules = Schedules::on(store, node).expect("the store is good");
    sim.block_on(async {
        let stored = StoredSchedule::new("acme/report", "report", "@every 20s").data_bytes(DATA);
        schedules.add(&stored).await.expect("the schedule is good");
        let answer = router(schedules, now).oneshot(request).await;
        let Ok(answer) = answer;
        let (parts, body) = answer.into_parts();
        let status = parts.status.as_u16();
        assert!(status < 500, "{title}: {status}");
        match auth {
            Auth::None => assert!(status != 200 || is_open, "{title}: {status} without a token"),
            Auth::Token | Auth::Signature => assert_ne!(status, 401, "{title}"),
        }
        // A stream has no end.
        if parts.headers.get(header::CONTENT_TYPE).is_some_and(|kind| kind == "text/event-stream") {
            return;
        }
        let body = to_bytes(body, 1 << 24).await.expect("the body ends");
        let body = String::from_utf8_lossy(&body);
        assert!(auth != Auth::None || !body.contains(DATA), "{title}: {status} {body}");
        if is_api && status >= 400 && !body.is_empty() {
            let problem: serde_json::Value = serde_json::from_str(&body)
                .unwrap_or_else(|error| panic!("{title}: {error}: {body}"));
            let says = problem["detail"].as_str().or(problem["title"].as_str());
            assert!(says.is_some_and(|says| !says.is_empty()), "{title}: {body}");
        }
    });
}

/// The proof of the sender of a request.
#[derive(Clone, Copy, PartialEq)]
enum Auth {
    None,
    Token,
    Signature,
}

fn read(data: &[u8]) -> Option<(Request<Vec<u8>>, Auth)> {
    let end = data.windows(2).position(|two| two == b"\n\n");
    let (head, body) = end.map_or((data, &b""[..]), |end| (&data[..end], &data[end + 2..]));
    let mut lines = head.split(|byte| *byte == b'\n');
    let mut first = lines.next()?.splitn(2, |byte| *byte == b' ');
    let method = Method::from_bytes(first.next()?).ok()?;
    let uri = Uri::try_from(first.next()?).ok()?;
    let (mut headers, mut auth) = (HeaderMap::new(), Auth::None);
    for line in lines {
        let colon = line.iter().position(|byte| *byte == b':')?;
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        match (name, value) {
            (b"auth", b"ann") => auth = Auth::Token,
            (b"auth", b"ci") => auth = Auth::Signature,
            _ => {
                let value = HeaderValue::from_bytes(value).ok()?;
                headers.append(HeaderName::from_bytes(name).ok()?, value);
            }
        }
    }
    let mut request = Request::new(body.to_vec());
    (*request.method_mut(), *request.uri_mut(), *request.headers_mut()) = (method, uri, headers);
    Some((request, auth))
}

/// The request with the proof; nothing if the signer refuses it.
fn proven(mut request: Request<Vec<u8>>, auth: Auth, now: Time) -> Option<Request<Body>> {
    let (_, token, key) = &*KEYS;
    match auth {
        Auth::None => {}
        Auth::Token => {
            let token = HeaderValue::try_from(format!("Bearer {token}")).ok()?;
            request.headers_mut().insert(header::AUTHORIZATION, token);
            request.headers_mut().remove("signature-input");
        }
        Auth::Signature => key.sign(&mut request, now, 1).ok()?,
    }
    Some(request.map(Body::from))
}

fn router(schedules: Schedules, now: Time) -> Router {
    // Each request is the first one: none is a replay.
    let tokens = Tokens::clone(&KEYS.0).following(&Tokens::default());
    let access = move |parts: &_| tokens.decide(parts, now);
    Console::new(schedules).allow_actions().access(access).into_router()
}
