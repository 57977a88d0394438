//! Where a request comes from: the hosts by whose names the console may be called, and the pages that may change
//! something.

use axum::http::{HeaderMap, HeaderName, Method, Uri, header};
use std::net::IpAddr;

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// The hosts whose names lead here, besides this machine's own. A page of another name could read the console: the
/// name's owner makes it lead here after the page has been loaded (DNS rebinding).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hosts(Vec<String>);

impl Hosts {
    pub(crate) fn new(names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self(names.into_iter().map(Into::into).collect())
    }

    /// `true` if the request names one host, and that is an allowed one, with any port.
    pub(crate) fn allow(&self, uri: &Uri, headers: &HeaderMap) -> bool {
        let Some(host) = host(uri, headers) else { return false };
        let name = name_of(host);
        let is_loopback = name.parse().is_ok_and(|ip: IpAddr| ip.is_loopback());
        let is_named = |own: &String| {
            // An IPv6 address may be given without its brackets.
            let own = if own.parse::<IpAddr>().is_ok() { own } else { name_of(own) };
            name.eq_ignore_ascii_case(own)
        };
        is_loopback || name.eq_ignore_ascii_case("localhost") || self.0.iter().any(is_named)
    }
}

/// The host that the request names, with its port; `None` for none or several.
fn host<'a>(uri: &'a Uri, headers: &'a HeaderMap) -> Option<&'a str> {
    match uri.authority() {
        // HTTP/2, and requests of proxies.
        Some(authority) if !headers.contains_key(header::HOST) => Some(authority.as_str()),
        _ => one(headers, &header::HOST).flatten(),
    }
}

/// The value of a header, if the request has it once and as text. The outer `None`: it has none; the inner one: it
/// cannot be read.
fn one<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<Option<&'a str>> {
    let mut all = headers.get_all(name).iter();
    let first = all.next()?;
    Some(first.to_str().ok().filter(|_| all.next().is_none()))
}

/// The name without its port.
fn name_of(host: &str) -> &str {
    match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    }
}

/// `true` if the request may change something: it comes from a page of the console, or from a program. Browsers add
/// a password to what a foreign page sends, too, so the password alone proves nothing (cross-site request forgery).
///
/// Browsers say where a request comes from: in `Sec-Fetch-Site`, which they leave away only without TLS, and in
/// `Origin`. A program has neither, and shows a token or a signature, which no browser adds by itself.
pub(crate) fn is_own(method: &Method, uri: &Uri, headers: &HeaderMap) -> bool {
    if [Method::GET, Method::HEAD].contains(method) {
        return true;
    }
    if let Some(site) = one(headers, &SEC_FETCH_SITE) {
        return matches!(site, Some("same-origin" | "none"));
    }
    if let Some(origin) = one(headers, &header::ORIGIN) {
        let origin = origin.and_then(|origin| origin.split_once("://")).map(|(_, host)| host);
        let host = host(uri, headers);
        return origin.zip(host).is_some_and(|(origin, host)| origin.eq_ignore_ascii_case(host));
    }
    if headers.contains_key("signature-input") || headers.contains_key("signature") {
        return true;
    }
    let shown = one(headers, &header::AUTHORIZATION).flatten();
    shown.and_then(|shown| shown.get(..7)).is_some_and(|word| word.eq_ignore_ascii_case("bearer "))
}

/// `true` if the request is from no page of another site, although it shows no token that proves it: it says nothing of
/// where it comes from, and browsers ask before they send such a one for a foreign page (CORS preflight). They do so for
/// every method but these three, and for every media type but those of forms.
pub(crate) fn is_of_program(method: &Method, headers: &HeaderMap) -> bool {
    const OF_FORMS: [&str; 3] =
        ["application/x-www-form-urlencoded", "multipart/form-data", "text/plain"];
    if headers.contains_key(SEC_FETCH_SITE) || headers.contains_key(header::ORIGIN) {
        return false;
    }
    let media = one(headers, &header::CONTENT_TYPE).flatten();
    let media = media.map(|media| media.split(';').next().unwrap_or_default().trim());
    ![Method::GET, Method::HEAD, Method::POST].contains(method)
        || media.is_some_and(|media| !OF_FORMS.iter().any(|own| own.eq_ignore_ascii_case(media)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    fn headers(all: &[(&'static str, &'static str)]) -> HeaderMap {
        let pairs = all
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
        let mut headers = HeaderMap::new();
        pairs.for_each(|(name, value)| _ = headers.append(name, value));
        headers
    }

    fn allows(own: &[&str], hosts: &[&'static str]) -> bool {
        let all: Vec<(&str, &str)> = hosts.iter().map(|host| ("host", *host)).collect();
        Hosts::new(own.iter().copied()).allow(&Uri::from_static("/"), &headers(&all))
    }

    #[test]
    fn only_names_of_this_machine_and_those_that_are_given_lead_here() {
        for name in ["localhost", "LOCALHOST:9118", "127.0.0.1", "127.0.0.1:9118", "[::1]:9118"] {
            assert!(allows(&[], &[name]), "{name}");
        }
        let foreign =
            ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example:80", "", ":"];
        for name in foreign.into_iter().chain(["0.0.0.0", "192.168.0.7:9118", "[::]", "::1", "["]) {
            assert!(!allows(&[], &[name]) && !allows(&["ops.example"], &[name]), "{name}");
        }
        assert!(!allows(&[], &[]) && !allows(&[], &["localhost", "evil.example"]));
        assert!(allows(&["ops.example"], &["OPS.example:8443"]));
        assert!(allows(&["ops.example:8443", "[2001:db8::7]"], &["[2001:db8::7]:80"]));
        assert!(
            allows(&["2001:db8::7"], &["[2001:db8::7]"]) && !allows(&["2001:db8::7"], &["2001"])
        );
    }

    #[test]
    fn a_change_comes_from_an_own_page_or_from_a_program_with_a_token() {
        let own = |all: &[(&'static str, &'static str)]| {
            is_own(&Method::POST, &Uri::from_static("/act"), &headers(all))
        };
        for site in ["same-origin", "none"] {
            assert!(own(&[("sec-fetch-site", site)]), "{site}");
        }
        for site in ["cross-site", "same-site", "", "SAME-ORIGIN"] {
            let bearer = ("authorization", "Bearer x");
            assert!(!own(&[("sec-fetch-site", site), bearer]), "{site}");
            assert!(!own(&[("sec-fetch-site", site), ("signature-input", "sig=()")]), "{site}");
        }
        let host = ("host", "ops.example:8443");
        assert!(own(&[host, ("origin", "https://ops.example:8443")]));
        for origin in
            ["null", "https://evil.example", "https://ops.example", "", "ops.example:8443"]
        {
            assert!(!own(&[host, ("origin", origin)]), "{origin}");
        }
        assert!(!own(&[("sec-fetch-site", "same-origin"), ("sec-fetch-site", "cross-site")]));
        assert!(!own(&[host]) && !own(&[host, ("authorization", "Basic YTpi")]));
        assert!(own(&[host, ("authorization", "bearer abc")]));
        assert!(own(&[host, ("signature-input", "sig=()")]), "its signature is checked elsewhere");
        assert!(is_own(&Method::GET, &Uri::from_static("/"), &HeaderMap::new()));
        for method in [Method::OPTIONS, Method::DELETE, Method::PUT] {
            assert!(!is_own(&method, &Uri::from_static("/"), &HeaderMap::new()), "{method}");
        }
    }
    #[test]
    fn a_program_is_known_by_what_no_browser_sends_for_a_foreign_page() {
        let is =
            |method, all: &[(&'static str, &'static str)]| is_of_program(&method, &headers(all));
        let json = ("content-type", "application/json; charset=utf-8");
        assert!(is(Method::POST, &[json]) && is(Method::DELETE, &[]) && is(Method::PATCH, &[]));
        assert!(!is(Method::POST, &[]));
        for form in ["text/plain", "Text/Plain;charset=utf-8", "multipart/form-data; boundary=x"] {
            assert!(!is(Method::POST, &[("content-type", form)]), "{form}");
        }
        for (name, value) in [("origin", "https://ops.example"), ("sec-fetch-site", "cross-site")] {
            assert!(
                !is(Method::POST, &[json, (name, value)]) && !is(Method::PUT, &[(name, value)])
            );
        }
        assert!(!is(
            Method::POST,
            &[("content-type", "application/json"), ("content-type", "text/plain")]
        ));
    }
}
