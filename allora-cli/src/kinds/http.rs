//! The kind `http`: one request for each attempt, with an idempotency key and the fence.

use super::data::Fields;
use crate::values::{run_id, shown};
use allora_core::{BoxError, Run};
use serde_json::{Value, json};
use std::time::Duration;
use tracing::debug;
use ureq::{
    Agent,
    http::{HeaderName, HeaderValue, Method, Request as Http, Uri},
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
}

/// The time limit of a request, unless its data sets another.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The longest time that a request may be given: it waits on a thread.
const LONGEST: Duration = Duration::from_secs(3_600);

/// So much of an answer that refuses is kept for the record, in bytes.
const ANSWER: u64 = 500;

/// Reads what to send: `{"url": "https://..", "method": "POST", "headers": {..}, "body": ..,
/// "timeout": "30s"}`.
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
    fields.end()?;
    Ok(Request { method, url, headers, body, timeout })
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

    /// Sends a request, once. Whatever is not answered with a status of 200 to 299 has failed.
    ///
    /// # Cancel safety
    /// When the future is dropped, the request goes on to its end on its thread; whether the
    /// receiver has heard of it is not known. That is what the idempotency key is for.
    pub(crate) async fn deliver(&self, request: Request, run: &Run) -> Result<(), BoxError> {
        let place = format!("{} {}", request.method, without_query(&request.url));
        debug!(target: "allora", job = run.name(), run = run_id(run.name(), run.fence()), "sending {place}");
        let timeout = request.timeout;
        let request = message(request, run)?;
        let agent = self.agent.clone();
        let sent = tokio::task::spawn_blocking(move || {
            let request = agent
                .configure_request(request)
                .timeout_global(Some(timeout))
                .allow_non_standard_methods(true)
                .build();
            let mut answer = agent.run(request).map_err(|error| error.to_string())?;
            let status = answer.status();
            if status.is_success() {
                return Ok(status);
            }
            let said =
                answer.body_mut().with_config().limit(ANSWER).lossy_utf8(true).read_to_string();
            let said = said.unwrap_or_default();
            let said = said.trim();
            let colon = if said.is_empty() { "" } else { ": " };
            Err(format!("answered with {status}{colon}{said}"))
        });
        match sent.await? {
            Ok(status) => {
                debug!(target: "allora", job = run.name(), run = run_id(run.name(), run.fence()), status = status.as_u16(), "answered");
                Ok(())
            }
            Err(error) => Err(format!("{place}: {error}").into()),
        }
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
