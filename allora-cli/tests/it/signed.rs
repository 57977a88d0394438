//! Signed requests: those that the console accepts, and those that the kind `http` sends.

use crate::{
    listen::{address, send},
    site::{Site, patiently, skipped},
    stored::{Came, server},
};
use allora_console::{Decision, SigningKey, Tokens};
use axum::http::Request;
use serde_json::Value;
use std::{fs, os::unix::fs::PermissionsExt, path::Path, process::Command};

fn now() -> allora_core::Time {
    #[expect(clippy::disallowed_methods, reason = "the daemon goes by this clock, too")]
    std::time::SystemTime::now().into()
}

/// A request that triggers a job, as its bytes.
fn trigger(address: &str, key: &SigningKey, id: &str) -> Vec<u8> {
    let body = format!("do=trigger&name=acme%2Freport&id={id}");
    let mut request = Request::post(format!("http://{address}/act"))
        .header("host", address)
        .header("connection", "close")
        .header("content-type", "application/x-www-form-urlencoded")
        .header("content-length", body.len())
        .body(body)
        .unwrap();
    key.sign(&mut request, now(), 7).unwrap();
    let mut text = "POST /act HTTP/1.1\r\n".to_owned();
    for (name, value) in request.headers() {
        text += &format!("{name}: {}\r\n", value.to_str().unwrap());
    }
    (text + "\r\n" + request.body()).into_bytes()
}

fn with_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// A place with a job, a file of tokens with a signing key, and the key.
fn site() -> (Site, SigningKey, String) {
    let site = Site::new("");
    let url = ["--url", "sqlite:store.db"];
    site.allora(&[&["init"], &url[..]].concat()).fine();
    let job = ["add", "acme/report", "t", "@daily", "{}"];
    site.allora(&[&job, &url[..]].concat()).fine();
    let (line, secret) = site.token(&["ci", "--scope", "run", "--prefix", "acme/", "--signing"]);
    assert!(line.contains(&secret));
    site.write("tokens", &line);
    (site, SigningKey::new("ci", &secret).unwrap(), secret)
}

#[test]
fn a_file_with_signing_keys_that_others_can_read_is_refused() {
    let (site, _, secret) = site();
    for mode in [0o644, 0o640, 0o602] {
        with_mode(&site.path("tokens"), mode);
        let args = [
            "console",
            "--tokens",
            "tokens",
            "--listen",
            "127.0.0.1:0",
            "--url",
            "sqlite:store.db",
        ];
        let said = site.allora(&args).refused(2);
        let says =
            format!("its mode {mode:o} lets others than its owner use it; run `chmod 600 tokens`");
        assert!(said.contains(&says) && !said.contains(&secret), "{said}");
    }
}

#[test]
fn a_signed_request_acts_once_also_after_the_keys_were_read_again() {
    let (site, ci, secret) = site();
    let tokens = site.path("tokens");
    with_mode(&tokens, 0o600);
    let path = tokens.to_str().unwrap();
    let options = ["--listen", "127.0.0.1:0", "--console", "--tokens", path, "--allow-actions"];
    let site = site.with(&options);
    let daemon = site.start();
    let address = address(&daemon.log()).unwrap();
    let first = trigger(&address, &ci, "1");
    let mut acted = String::new();
    patiently("the console has its store", || {
        acted = send(&address, &first);
        !acted.starts_with("HTTP/1.1 503 ")
    });
    assert!(acted.starts_with("HTTP/1.1 303 ") && acted.contains("done=trigger"), "{acted}");
    let again = send(&address, &first);
    assert!(again.starts_with("HTTP/1.1 401 ") && again.contains("was used before"), "{again}");
    let altered = String::from_utf8(trigger(&address, &ci, "2")).unwrap().replace("id=2", "id=3");
    let altered = send(&address, altered.as_bytes());
    assert!(
        altered.starts_with("HTTP/1.1 401 ") && altered.contains("Content-Digest"),
        "{altered}"
    );
    // The file gets another key, and is open to others at first.
    let (line, other) = site.token(&["deploy", "--scope", "run", "--signing"]);
    fs::write(&tokens, fs::read_to_string(&tokens).unwrap() + &line).unwrap();
    with_mode(&tokens, 0o644);
    daemon.signal("-HUP");
    daemon.says("run `chmod 600 ");
    let deploy = SigningKey::new("deploy", other).unwrap();
    assert!(send(&address, &trigger(&address, &deploy, "4")).starts_with("HTTP/1.1 401 "));
    with_mode(&tokens, 0o600);
    daemon.signal("-HUP");
    patiently("the other key is in force", || {
        send(&address, &trigger(&address, &deploy, "4")).starts_with("HTTP/1.1 303 ")
    });
    assert!(send(&address, &first).starts_with("HTTP/1.1 401 "), "it is remembered");
    daemon.says("a signed request is refused: it was used before");
    assert!(!daemon.log().contains(&secret));
    daemon.stop_well();
}

#[test]
fn the_example_of_the_page_signs_with_openssl() {
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/console.md"));
    let page = page.unwrap();
    let example = page.split("```sh\n").find(|block| block.starts_with("method=POST")).unwrap();
    let example = example.split("```").next().unwrap();
    let has = |program: &str| Command::new(program).arg("--version").output().is_ok();
    if !has("curl") || !has("openssl") {
        return skipped("there is no curl or no openssl");
    }
    let (site, _, secret) = site();
    with_mode(&site.path("tokens"), 0o600);
    let path = site.path("tokens").to_str().unwrap().to_owned();
    let options = ["--listen", "127.0.0.1:0", "--console", "--tokens", &path, "--allow-actions"];
    let site = site.with(&options);
    let daemon = site.start();
    let address = address(&daemon.log()).unwrap();
    patiently("the request is accepted", || {
        let mut shell = Command::new("sh");
        shell.args(["-c", example]).env("SECRET", &secret).env("ADDRESS", &address);
        let answer = String::from_utf8(shell.output().unwrap().stdout).unwrap();
        assert!(!answer.contains(" 401 "), "{answer}");
        answer.starts_with("HTTP/1.1 303 ") && answer.contains("done=trigger")
    });
    daemon.stop_well();
}

/// The decision of a receiver that has the key.
fn received(tokens: &Tokens, came: &Came) -> Decision {
    let mut words = came.line.split(' ');
    let request = Request::builder().method(words.next().unwrap()).uri(words.next().unwrap());
    let request =
        came.headers.iter().fold(request, |request, (name, value)| request.header(name, value));
    match tokens.decide(&request.body(()).unwrap().into_parts().0, now()) {
        Decision::ByBody(check) => check.decide(came.body.as_bytes()),
        decision => decision,
    }
}

#[test]
fn a_delivery_is_signed_at_each_attempt_and_its_dead_letter_has_the_last_answer() {
    let site = Site::new("");
    let url = ["--url", "sqlite:store.db"];
    site.allora(&[&["init"], &url[..]].concat()).fine();
    let (line, secret) = site.token(&["allora", "--signing"]);
    let receiver = Tokens::read(&line).unwrap();
    let (hook, came) = server(2);
    let data = format!(
        r#"{{"url": "{hook}?a=b%20c", "body": {{"a": 1}}, "sign": {{"key": "allora", "secret": {{"secret": "hook"}}}}}}"#
    );
    let limits = ["--attempts", "2", "--retry-wait", "100ms", "--max-runs", "2"];
    let job = ["add", "job", "http", "@every 1s", &data];
    site.allora(&[&job, &limits[..], &url].concat()).fine();
    fs::create_dir(site.path("secrets")).unwrap();
    site.write("secrets/hook", &secret);
    let folder = site.path("secrets").display().to_string();
    let daemon = site.begin(&["--stored", "--secrets", &folder]);
    let shown =
        |command: &str| site.allora(&[&[command, "job", "--json"], &url[..]].concat()).fine();
    let job = || serde_json::from_str::<Value>(&shown("show")).unwrap();
    patiently("both are over", || {
        job()["counters"]["succeeded"] == 1 && job()["dead"][0].is_object()
    });
    let came = came.lock().unwrap().clone();
    assert_eq!(came.len(), 3);
    for one in &came {
        let decision = received(&receiver, one);
        assert!(matches!(&decision, Decision::Reader(_)), "{decision:?}: {one:?}");
        let mut forged = one.clone();
        *forged.headers.get_mut("allora-attempt").unwrap() = "9".into();
        assert!(matches!(received(&receiver, &forged), Decision::Unproven(_)));
    }
    let of = |name: &str| came.iter().map(|one| one.headers[name].clone()).collect::<Vec<_>>();
    let (keys, signatures) = (of("idempotency-key"), of("signature"));
    assert!(keys[0] == keys[1] && keys[1] != keys[2] && signatures[0] != signatures[1], "{keys:?}");
    let error = job()["dead"][0]["error"].as_str().unwrap().to_owned();
    assert!(
        error.ends_with("answered with 503 Service Unavailable; its answer begins: come later"),
        "{error}"
    );
    let history = shown("history");
    assert!(history.contains(r#"HTTP/1.1 503 Service Unavailable\ncome later"#), "{history}");
    assert!(history.contains(r#""output":"HTTP/1.1 200 OK""#), "{history}");
    assert!(![shown("show"), history, daemon.log()].concat().contains(&secret));
    assert_eq!(daemon.stop(), 0);
}
