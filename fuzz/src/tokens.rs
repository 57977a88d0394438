//! The file of access tokens and signing keys.

use crate::text::{is_one_line, text};
use allora_console::{Decision, Scope, TokenLine, Tokens};
use axum::http::{Request, header};

/// Reads a file. No message has the secret of the seeds.
pub(crate) fn file(data: &[u8]) {
    let Some(text) = text(data) else { return };
    match Tokens::read(text) {
        Ok(tokens) => assert!(!format!("{tokens:?}").contains("hmac-sha256:"), "{text:?}"),
        Err(wrong) => is_one_line(&wrong, text),
    }
}

/// Makes a line for a name with limits, from the lines of a text. What is made lets its owner in.
pub(crate) fn line(data: &[u8]) {
    let Some(text) = text(data) else { return };
    let mut words = text.split('\n');
    let mut next = || words.next().unwrap_or_default().to_owned();
    let (name, prefix, kind) = (next(), next(), next());
    let some = |word: String| [word].into_iter().filter(|word| !word.is_empty()).collect();
    let (prefixes, kinds) = (some(prefix), some(kind));
    let line =
        TokenLine { name, scopes: [Scope::Read].into(), prefixes, kinds, ..TokenLine::default() };
    match Tokens::create(&line, [7; 32]) {
        Err(wrong) => is_one_line(&wrong, text),
        Ok(new) => {
            let tokens = Tokens::read(&new.line).expect("a new line is read");
            let request =
                Request::get("/").header(header::AUTHORIZATION, format!("Bearer {}", new.token));
            let (parts, ()) = request.body(()).expect("it is good").into_parts();
            let now = "2026-01-01T00:00:00Z".parse().expect("it is good");
            match tokens.decide(&parts, now) {
                Decision::Reader(access) => assert_eq!(access.who(), line.name),
                other => panic!("{line:?} is written as {:?}, and refused: {other:?}", new.line),
            }
        }
    }
}
