//! The kind `http`: one request for each attempt, with an idempotency key and the fence.

use super::data::Fields;
use crate::{
    clock,
    values::{run_id, shown},
};
use allora_console::SigningKey;
use allora_core::{
    BoxError, Run,
    runtime::{Runtime, Tokio},
};
use serde_json::{Value, json};
use std::{io::Read, time::Duration};
use tracing::debug;
use ureq::{
    Agent, Body,
    http::{HeaderName, HeaderValue, Method, Request as Http, Response, StatusCode, Uri},
    tls::{Certificate, RootCerts, TlsConfig},
};

/// The request to send.
#[derive(Debug)]
pub(crate) struct Request {
    method: Method,
    url: Uri,
    headers: Vec<(HeaderName, HeaderValue)>,
    /// `None`: what it is a request for.
    body: Option<(&'static str, Vec<u8>)>,
    timeout: Duration,
    /// Signs it.
    sign: Option<SigningKey>,
}

/// An answer, and the beginning of its body.
#[derive(Debug)]
struct Answer {
    /// As `HTTP/1.1 503 Service Unavailable`.
    status_line: String,
    status: StatusCode,
    said: String,
}

/// The time limit of a request, unless its data sets another.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The longest time that a request may be given: it waits on a thread.
const LONGEST: Duration = Duration::from_secs(3_600);

/// So much of an answer is kept for the record, in bytes.
const ANSWER: u64 = 512;

/// The headers that a signature sets.
const OF_SIGNATURE: [&str; 3] = ["content-digest", "signature", "signature-input"];

/// Reads what to send: `{"url": "https://..", "method": "POST", "headers": {..}, "body": ..,
/// "timeout": "30s", "sign": {"key": .., "secret": ..}}`.
pub(crate) fn request(data: &Value) -> Result<Request, String> {
    let mut fields = Fields::of(data)?;
    let url = fields.text("url")?.ok_or("`url` is missing: the address of the request")?;
    let url: Uri = url.parse().map_err(|error| format!("`url` is not a URL: {error}"))?;
    if !matches!(url.scheme_str(), Some("http" | "https")) || url.host().is_none_or(str::is_empty) {
        return Err("`url` must begin with http:// or https:// and a host".into());
    }
    let method = fields.text("method")?.unwrap_or_else(|| "POST".into());
    let method = match method.to_ascii_uppercase().as_str() {
        "GET" => Method::GET,
        "POST" => Method::POST,
        "PUT" => Method::PUT,
        "PATCH" => Method::PATCH,
        "DELETE" => Method::DELETE,
        _ => return Err("`method` must be GET, POST, PUT, PATCH or DELETE".into()),
    };
    let headers = fields.texts("headers")?.into_iter().map(|(name, value)| {
        let wrong = || format!("`headers` has {name:?}, which is not a valid header");
        let header = HeaderName::try_from(name.as_str()).map_err(|_| wrong())?;
        let ours = header.as_str().starts_with("allora-") || header == "idempotency-key";
        if ours || matches!(header.as_str(), "host" | "content-length" | "transfer-encoding") {
            return Err(format!("`headers` has {name:?}, which allora sets for each request"));
        }
        Ok((header, HeaderValue::try_from(value).map_err(|_| wrong())?))
    });
    let headers = headers.collect::<Result<Vec<_>, String>>()?;
    let body = match fields.take("body") {
        None => None,
        Some(Value::String(text)) => Some(("text/plain; charset=utf-8", text.into_bytes())),
        Some(body) => Some(("application/json", body.to_string().into_bytes())),
    };
    let timeout = fields.duration("timeout")?.unwrap_or(TIMEOUT);
    if timeout > LONGEST {
        return Err("`timeout` must be at most 1h".into());
    }
    let sign = signing_key(fields.texts("sign")?)?;
    let is_taken = |(name, _): &&(HeaderName, _)| OF_SIGNATURE.contains(&name.as_str());
    if let (Some(_), Some((name, _))) = (&sign, headers.iter().find(is_taken)) {
        return Err(format!("`headers` has {:?}, which the signature sets", name.as_str()));
    }
    fields.end()?;
    Ok(Request { method, url, headers, body, timeout, sign })
}

/// The key of `{"key": "NAME", "secret": "SECRET"}`.
fn signing_key(fields: Vec<(String, String)>) -> Result<Option<SigningKey>, String> {
    let (mut name, mut secret) = (None, None);
    for (field, value) in fields {
        match field.as_str() {
            "key" => name = Some(value),
            "secret" => secret = Some(value),
            _ => return Err(format!("`sign` has {field:?}; it has `key` and `secret`")),
        }
    }
    match (name, secret) {
        (None, None) => Ok(None),
        (Some(name), Some(secret)) => {
            SigningKey::new(name, secret).map(Some).map_err(|what| format!("`sign`: {what}"))
        }
        _ => Err("`sign` must have `key`, a name, and `secret`, as {\"secret\": \"NAME\"}".into()),
    }
}

/// A client of HTTP that follows no redirect.
pub(crate) fn agent() -> Agent {
    // Certificates of the machine's store that cannot be read are not trusted.
    let trusted = rustls_native_certs::load_native_certs().certs;
    let trusted: Vec<_> =
        trusted.iter().map(|cert| Certificate::from_der(cert).to_owned()).collect();
    let tls = TlsConfig::builder().root_certs(RootCerts::from(trusted)).build();
    let config = Agent::config_builder()
        .tls_config(tls)
        // Another address is another receiver. Only the stored schedule names receivers.
        .max_redirects(0)
        .max_redirects_will_error(false)
        .http_status_as_error(false)
        .user_agent(concat!("allora/", env!("CARGO_PKG_VERSION")))
        .build();
    config.into()
}

/// Sends requests; its connections are used again.
#[derive(Debug)]
pub(crate) struct Client {
    agent: Agent,
}

impl Client {
    pub(crate) fn new() -> Self {
        Self { agent: agent() }
    }

    /// Sends a request, once. Whatever is not answered with a status of 200 to 299 has failed. The output of the run
    /// is the status line and the beginning of the answer.
    ///
    /// # Cancel safety
    /// When the future is dropped, the request goes on to its end on its thread; whether the
    /// receiver has heard of it is not known. That is what the idempotency key is for.
    pub(crate) async fn deliver(&self, request: Request, run: &Run) -> Result<(), BoxError> {
        let place = format!("{} {}", request.method, without_query(&request.url));
        debug!(target: "allora", job = run.name(), run = run_id(run.name(), run.fence()), "sending {place}");
        let (timeout, sign) = (request.timeout, request.sign.clone());
        let mut request = message(request, run)?;
        if let Some(key) = sign {
            let runtime = Tokio::current()?;
            let nonce = [runtime.random(), runtime.random()].map(u128::from);
            key.sign(&mut request, clock::now(), nonce[0] << 64 | nonce[1])?;
        }
        let agent = self.agent.clone();
        let sent = tokio::task::spawn_blocking(move || {
            let request = agent
                .configure_request(request)
                .timeout_global(Some(timeout))
                .allow_non_standard_methods(true)
                .build();
            agent.run(request).map(Answer::read).map_err(|error| error.to_string())
        });
        let answer = sent.await?.map_err(|error| format!("{place}: {error}"))?;
        let Answer { status_line, status, said } = answer;
        run.set_output(format!("{status_line}\n{said}").trim_end());
        if status.is_success() {
            debug!(target: "allora", job = run.name(), run = run_id(run.name(), run.fence()), status = status.as_u16(), "answered");
            return Ok(());
        }
        // The console shows what comes after these words to those alone who may see data.
        let said = if said.is_empty() { said } else { format!("; its answer begins: {said}") };
        Err(format!("{place}: answered with {status}{said}").into())
    }
}

impl Answer {
    fn read(mut answer: Response<Body>) -> Self {
        let status = answer.status();
        let status_line = format!("{:?} {status}", answer.version());
        let mut said = Vec::new();
        // The answer of a request that succeeded may be a stream without an end; it is not waited for.
        if !status.is_success() || answer.body().content_length().is_some() {
            // If reading fails in the middle, the bytes before that are shown.
            _ = answer.body_mut().as_reader().take(ANSWER).read_to_end(&mut said);
        }
        let said = String::from_utf8_lossy(&said).trim().to_owned();
        Self { status_line, status, said }
    }
}

/// The request with what tells its receiver which occurrence it is for.
fn message(request: Request, run: &Run) -> Result<Http<Vec<u8>>, BoxError> {
    let Request { method, url, headers, body, .. } = request;
    let has_body = !matches!(method, Method::GET | Method::DELETE);
    let at = shown(run.scheduled_at());
    let mut message = Http::builder()
        .method(method)
        .uri(url)
        .header("Idempotency-Key", header(&run.occurrence_key())?)
        .header("Allora-Job", header(run.name())?)
        .header("Allora-Scheduled-At", &at)
        .header("Allora-Attempt", run.attempt())
        .header("Allora-Fence", run.fence());
    let default_body = || {
        let about = json!({
            "job": run.name(), "scheduled_at": at, "attempt": run.attempt(), "fence": run.fence(),
            "occurrence": run.occurrence_key(),
        });
        ("application/json", about.to_string().into_bytes())
    };
    let named_type = headers.iter().any(|(name, _)| name == "content-type");
    for (name, value) in headers {
        message = message.header(name, value);
    }
    let body = match (body, has_body) {
        (Some(body), _) => Some(body),
        (None, true) => Some(default_body()),
        (None, false) => None,
    };
    if let (Some((kind, _)), false) = (&body, named_type) {
        message = message.header("Content-Type", *kind);
    }
    Ok(message.body(body.map(|(_, body)| body).unwrap_or_default())?)
}

/// A name as a header may hold it: what is not ASCII, in percent signs.
fn header(text: &str) -> Result<HeaderValue, BoxError> {
    let mut safe = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'%' | 0..=31 | 127.. => safe.push_str(&format!("%{byte:02X}")),
            byte => safe.push(char::from(byte)),
        }
    }
    Ok(HeaderValue::try_from(safe)?)
}

/// Where it goes, for logs: a query may hold a secret, and so may what stands before the host.
fn without_query(url: &Uri) -> String {
    let scheme = url.scheme_str().unwrap_or_default();
    let (host, port) = (url.host().unwrap_or_default(), url.port_u16());
    let port = port.map_or_else(String::new, |port| format!(":{port}"));
    format!("{scheme}://{host}{port}{}", url.path())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_read() {
        let read = request(&json!({ "url": "https://u:pw@h.example:8443/a?key=secret" })).unwrap();
        assert_eq!((read.method, read.timeout), (Method::POST, TIMEOUT));
        assert_eq!(without_query(&read.url), "https://h.example:8443/a");
        let read =
            request(&json!({ "url": "http://h", "method": "get", "headers": { "X-A": "b" } }));
        assert_eq!(read.unwrap().headers.len(), 1);
        let signed = json!({ "url": "http://h", "sign": { "key": "allora", "secret": "hunter2" } });
        let read = request(&signed).unwrap();
        assert_eq!(read.sign.as_ref().map(SigningKey::name), Some("allora"));
        assert!(!format!("{read:?}").contains("hunter2"));
    }

    #[test]
    fn whatever_else_is_refused_by_name() {
        for (data, says) in [
            (json!({}), "`url`"),
            (json!({ "url": "ftp://h" }), "`url`"),
            (json!({ "url": "h/a" }), "`url`"),
            (json!({ "url": "http://h", "method": "HEAD" }), "`method`"),
            (json!({ "url": "http://h", "headers": { "a b": "" } }), "`headers`"),
            (json!({ "url": "http://h", "headers": { "a": "x\r\nb: c" } }), "`headers`"),
            (json!({ "url": "http://h", "headers": { "Idempotency-Key": "1" } }), "`headers`"),
            (json!({ "url": "http://h", "timeout": "2h" }), "`timeout`"),
            (json!({ "url": "http://h", "verb": "GET" }), "\"verb\""),
            (json!({ "url": "http://h", "sign": { "key": "a" } }), "`secret`"),
            (json!({ "url": "http://h", "sign": { "name": "a" } }), "\"name\""),
            (json!({ "url": "http://h", "sign": { "key": "é", "secret": "x" } }), "ASCII"),
            (
                json!({ "url": "http://h", "sign": { "key": "a", "secret": "x" }, "headers": { "Signature": "x" } }),
                "which the signature sets",
            ),
        ] {
            let said = request(&data).unwrap_err();
            assert!(said.contains(says), "{data}: {said}");
        }
    }

    #[test]
    fn any_name_fits_into_a_header() {
        assert_eq!(header("a/é%\u{7f}").unwrap(), "a/%C3%A9%25%7F");
    }
}
