//! Signatures of requests: RFC 9421 with `hmac-sha256`, and the digest of the body by RFC 9530.
//!
//! The signature is over the *signature base*: a line for each component that it covers, and one for its parameters.

use allora_core::{MAX_NAME, Time};
use axum::{
    extract::OriginalUri,
    http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri, header, request::Parts},
};
use hmac::{Hmac, KeyInit, Mac};
use sfv::{
    BareItem, Dictionary, FieldType, InnerList, Item, Key, KeyRef, ListEntry, Parameters, Parser,
    key_ref,
};
use sha2::{Digest, Sha256};
use std::fmt::{self, Write};

/// The seconds that the clocks of signer and checker may differ, in either direction, with the way in between.
pub(crate) const WINDOW: i64 = 300;

/// The only algorithm.
const ALGORITHM: &str = "hmac-sha256";

const INPUT: HeaderName = HeaderName::from_static("signature-input");
const SIGNATURE: HeaderName = HeaderName::from_static("signature");
const CONTENT_DIGEST: HeaderName = HeaderName::from_static("content-digest");

/// The headers that decide what a request does. A signature must cover those that the request has.
const DECISIVE: [&str; 5] =
    ["content-digest", "content-type", "idempotency-key", "if-match", "if-none-match"];

/// The headers of the kind `http` begin so. A signer covers them, too.
const OWN: &str = "allora-";

/// A name and a secret that a signer and a checker share. Its `Debug` has only the name.
///
/// The key of the HMAC is the text of the secret, byte by byte, as `openssl dgst -sha256 -hmac "$SECRET"` takes it.
///
/// ```
/// use allora_console::SigningKey;
/// use axum::http::Request;
///
/// let key = SigningKey::new("ci", "a long secret that nobody can guess").unwrap();
/// let mut request = Request::put("https://cron.example/v1/job/definition?name=a").body(r#"{"schedule": "@daily"}"#).unwrap();
/// key.sign(&mut request, chrono::DateTime::UNIX_EPOCH, 7).unwrap();
/// assert!(request.headers()["signature-input"].to_str().unwrap().starts_with(
///     r#"sig=("@method" "@path" "@query" "content-digest");created=0;keyid="ci";alg="hmac-sha256";nonce=""#
/// ));
/// ```
#[derive(Clone)]
pub struct SigningKey {
    name: sfv::String,
    mac: Hmac<Sha256>,
}

impl SigningKey {
    /// A key of this name and secret.
    ///
    /// # Errors
    /// A sentence: the name is empty or not of printable ASCII characters, or the secret is empty.
    pub fn new(name: impl Into<String>, secret: impl AsRef<[u8]>) -> Result<Self, String> {
        let (name, secret) = (name.into(), secret.as_ref());
        let wrong = "the name of a signing key must have printable ASCII characters only";
        let name = sfv::String::try_from(name).map_err(|_| wrong)?;
        if name.as_str().is_empty() || secret.is_empty() {
            return Err("a signing key needs a name and a secret".into());
        }
        let mac = Hmac::new_from_slice(secret).map_err(|error| error.to_string())?;
        Ok(Self { name, mac })
    }

    /// The name, by which the checker finds the secret.
    pub fn name(&self) -> &str {
        self.name.as_str()
    }

    /// Signs a request: its method, path, query and body, and of its headers `Content-Type`, `Idempotency-Key`,
    /// `If-Match`, `If-None-Match` and those that begin with `Allora-`. Sets `Signature-Input`, `Signature` and, if
    /// there is a body, `Content-Digest`. `created` is the present; the checker accepts 5 minutes either way. The nonce
    /// must be random: it makes one signature of two that are of the same request and the same second.
    ///
    /// # Errors
    /// A sentence: a header is not of printable ASCII characters.
    pub fn sign<B: AsRef<[u8]>>(
        &self,
        request: &mut Request<B>,
        created: Time,
        nonce: u128,
    ) -> Result<(), String> {
        let body = request.body().as_ref();
        if !body.is_empty() {
            let digest = dictionary_of("sha-256", Sha256::digest(body).to_vec().into())?;
            request.headers_mut().insert(CONTENT_DIGEST, digest);
        }
        let head = Head::of_request(request);
        let mut names = vec!["@method", "@path"];
        names.extend(head.uri.query().map(|_| "@query"));
        let own = head.headers.keys().map(HeaderName::as_str);
        names.extend(own.filter(|name| DECISIVE.contains(name) || name.starts_with(OWN)));
        let text = |text: &str| sfv::String::try_from(text.to_owned()).map(BareItem::String);
        let items = names.into_iter().map(|name| text(name).map(Item::new));
        let wrong = |error: sfv::Error| error.to_string();
        let mut covered = InnerList::new(items.collect::<Result<_, _>>().map_err(wrong)?);
        let created = sfv::Integer::try_from(created.timestamp()).map_err(wrong)?;
        let nonce = text(&format!("{nonce:032x}")).map_err(wrong)?;
        covered.params = Parameters::from_iter([
            (key_ref("created").to_owned(), BareItem::Integer(created)),
            (key_ref("keyid").to_owned(), BareItem::String(self.name.clone())),
            (key_ref("alg").to_owned(), text(ALGORITHM).map_err(wrong)?),
            (key_ref("nonce").to_owned(), nonce),
        ]);
        let signature = self.mac.clone().chain_update(base(head, &covered)?).finalize();
        let signature = signature.into_bytes().to_vec().into();
        let (input, signature) =
            (dictionary_of("sig", covered.into())?, dictionary_of("sig", signature)?);
        request.headers_mut().insert(INPUT, input);
        request.headers_mut().insert(SIGNATURE, signature);
        Ok(())
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SigningKey").field("name", &self.name.as_str()).finish_non_exhaustive()
    }
}

/// The parts of a request's head that can be signed.
#[derive(Clone, Copy)]
pub(crate) struct Head<'a> {
    method: &'a Method,
    uri: &'a Uri,
    headers: &'a HeaderMap,
}

impl<'a> Head<'a> {
    /// With the path as the request has it, also if the router is mounted below another path.
    pub(crate) fn of(parts: &'a Parts) -> Self {
        let uri = parts.extensions.get::<OriginalUri>().map_or(&parts.uri, |whole| &whole.0);
        Self { method: &parts.method, uri, headers: &parts.headers }
    }

    fn of_request<B>(request: &'a Request<B>) -> Self {
        Self { method: request.method(), uri: request.uri(), headers: request.headers() }
    }
}

/// A signature of a request that has all that it must have. Its key and the body are still to be checked.
#[derive(Clone)]
pub(crate) struct Signed {
    /// The name of its key.
    pub(crate) key: String,
    pub(crate) signature: [u8; 32],
    /// The last second in which it is accepted, since 1970 began.
    pub(crate) until: i64,
    base: String,
    digest: Option<[u8; 32]>,
}

impl Signed {
    /// Reads the signature of a request.
    ///
    /// # Errors
    /// The reason for which it is not accepted.
    pub(crate) fn read(head: Head<'_>, now: Time) -> Result<Self, String> {
        let (label, input) = only(head.headers, &INPUT)?;
        let (same, signature) = only(head.headers, &SIGNATURE)?;
        if label != same {
            return Err("Signature-Input and Signature have different labels".into());
        }
        let ListEntry::InnerList(covered) = input else {
            return Err("Signature-Input has no list of components in parentheses".into());
        };
        let signature = bytes(&signature)
            .ok_or("Signature is no HMAC: it must be 32 bytes, as sig=:BASE64:")?;
        let text = |name| covered.params.get(name).and_then(BareItem::as_string);
        let key = text(key_ref("keyid")).ok_or("it has no keyid, the name of its key")?;
        if key.as_str().len() > MAX_NAME {
            return Err("its keyid is longer than a name can be".into());
        }
        let named = covered.params.get(key_ref("alg"));
        if named.is_some_and(|alg| alg.as_string().is_none_or(|alg| alg.as_str() != ALGORITHM)) {
            return Err("its algorithm is another one than hmac-sha256".into());
        }
        let until = until(&covered.params, now.timestamp())?;
        covers_enough(head, &covered)?;
        let is_digest = |item: &Item| component(item) == Ok("content-digest");
        let has_digest = covered.items.iter().any(is_digest);
        Ok(Self {
            key: key.as_str().to_owned(),
            signature,
            until,
            base: base(head, &covered)?,
            digest: has_digest.then(|| digest(head.headers)).transpose()?,
        })
    }

    /// `true` if this key has made it. Takes the same time for every signature.
    pub(crate) fn is_by(&self, key: &SigningKey) -> bool {
        key.mac.clone().chain_update(&self.base).verify_slice(&self.signature).is_ok()
    }

    /// # Errors
    /// The body is another one than the one that was signed.
    pub(crate) fn fits(&self, body: &[u8]) -> Result<(), String> {
        match &self.digest {
            None if body.is_empty() => Ok(()),
            None => Err("it does not cover the body; send Content-Digest, and cover it".into()),
            Some(digest) if digest[..] == Sha256::digest(body)[..] => Ok(()),
            Some(_) => Err("the body is another one than Content-Digest says".into()),
        }
    }
}

/// `true` if the request has a signature, a good or a bad one.
pub(crate) fn is_signed(headers: &HeaderMap) -> bool {
    headers.contains_key(INPUT) || headers.contains_key(SIGNATURE)
}

/// The last second in which the signature is accepted.
fn until(params: &Parameters, now: i64) -> Result<i64, String> {
    let time = |name: &KeyRef| match params.get(name) {
        None => Ok(None),
        Some(value) => match value.as_integer() {
            Some(seconds) => Ok(Some(i64::from(seconds))),
            None => Err(format!("its {} is no number of seconds since 1970", name.as_str())),
        },
    };
    let created = time(key_ref("created"))?.ok_or("it has no created, the time of its making")?;
    let late = now - created;
    if late.abs() > WINDOW {
        let (seconds, word) = (late.abs(), if late > 0 { "behind" } else { "ahead of" });
        return Err(format!(
            "its time is {seconds} s {word} the clock here, and {WINDOW} s are accepted; sign each request when it is \
             sent, and check the clock"
        ));
    }
    let until = time(key_ref("expires"))?.unwrap_or(i64::MAX).min(created + WINDOW);
    if until < now { Err("it has expired".into()) } else { Ok(until) }
}

/// # Errors
/// A part of the request that decides what it does is not covered.
fn covers_enough(head: Head<'_>, covered: &InnerList) -> Result<(), String> {
    let query = head.uri.query().map(|_| "@query");
    let headers = DECISIVE.into_iter().filter(|name| head.headers.contains_key(*name));
    for name in ["@method", "@path"].into_iter().chain(query).chain(headers) {
        if !covered.items.iter().any(|item| component(item) == Ok(name)) {
            return Err(format!("it does not cover {name}, which the request has"));
        }
    }
    Ok(())
}

/// The text that is signed.
fn base(head: Head<'_>, covered: &InnerList) -> Result<String, String> {
    let mut base = String::new();
    for (i, item) in covered.items.iter().enumerate() {
        let name = component(item)?;
        if covered.items[..i].contains(item) {
            return Err(format!("it covers {name} twice"));
        }
        _ = writeln!(base, "\"{name}\": {}", value(head, name)?);
    }
    let params = vec![ListEntry::InnerList(covered.clone())].serialize().unwrap_or_default();
    _ = write!(base, "\"@signature-params\": {params}");
    Ok(base)
}

/// The name of a component.
fn component(item: &Item) -> Result<&str, String> {
    let name = item.bare_item.as_string().ok_or("a component that it covers is no text")?.as_str();
    if !item.params.is_empty() {
        return Err(format!("it covers {name:.40} with parameters, which are not read here"));
    }
    Ok(name)
}

fn value(head: Head<'_>, name: &str) -> Result<String, String> {
    match name {
        "@method" => return Ok(head.method.to_string()),
        "@path" => return Ok(head.uri.path().to_owned()),
        "@query" => return Ok(format!("?{}", head.uri.query().unwrap_or_default())),
        "@authority" => {
            let host = head.uri.authority().map(|authority| authority.as_str().to_owned());
            let host = joined(head.headers, &header::HOST)?.or(host);
            return Ok(host.unwrap_or_default().to_ascii_lowercase());
        }
        _ => {}
    }
    let header = HeaderName::try_from(name).ok().filter(|header| header.as_str() == name);
    let header = header.ok_or_else(|| format!("it covers {name:.40}, which is not read here"))?;
    let value = joined(head.headers, &header)?;
    value.ok_or_else(|| format!("it covers {name:.40}, which the request lacks"))
}

/// The values of a header, as one.
fn joined(headers: &HeaderMap, name: &HeaderName) -> Result<Option<String>, String> {
    let wrong = |_| format!("{name} has characters other than printable ASCII");
    let values = headers.get_all(name).iter().map(|value| value.to_str().map(str::trim));
    let values = values.collect::<Result<Vec<&str>, _>>().map_err(wrong)?;
    Ok((!values.is_empty()).then(|| values.join(", ")))
}

/// The only entry of a dictionary, with its label.
fn only(headers: &HeaderMap, name: &HeaderName) -> Result<(Key, ListEntry), String> {
    let mut all = dictionary(headers, name)?.into_iter();
    match (all.next(), all.next()) {
        (Some(one), None) => Ok(one),
        (None, _) => Err(format!("{name} has no signature")),
        (Some(_), Some(_)) => Err(format!("{name} has two signatures; send one")),
    }
}

/// The dictionary in a header.
fn dictionary(headers: &HeaderMap, name: &HeaderName) -> Result<Dictionary, String> {
    let text = joined(headers, name)?.ok_or_else(|| format!("the request has no {name}"))?;
    Parser::new(&text).parse().map_err(|error| format!("{name} cannot be read: {error}"))
}

/// The SHA-256 digest of the body, as the request has it.
fn digest(headers: &HeaderMap) -> Result<[u8; 32], String> {
    let all = dictionary(headers, &CONTENT_DIGEST)?;
    let digest = all.get(key_ref("sha-256")).and_then(bytes);
    Ok(digest.ok_or("content-digest has no digest sha-256=:BASE64: of 32 bytes")?)
}

fn bytes(entry: &ListEntry) -> Option<[u8; 32]> {
    let ListEntry::Item(item) = entry else { return None };
    item.bare_item.as_byte_sequence()?.try_into().ok()
}

/// A dictionary with one entry, as the value of a header.
fn dictionary_of(label: &'static str, entry: ListEntry) -> Result<HeaderValue, String> {
    let text = Dictionary::from_iter([(key_ref(label).to_owned(), entry)]).serialize();
    HeaderValue::try_from(text.unwrap_or_default()).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::times::at;
    use base64::{Engine, prelude::BASE64_STANDARD};

    /// RFC 9421, B.2.5.
    #[test]
    fn the_example_of_the_rfc_has_the_base_and_the_signature_of_the_rfc() {
        let secret = "uzvJfB4u3N0Jy4T7NZ75MDVcr8zSTInedJtkgcu46YW4XByzNJjxBdtjUkdJPBtbmHhIDi6pcl8jsasjlTMtDQ==";
        let key =
            SigningKey::new("test-shared-secret", BASE64_STANDARD.decode(secret).unwrap()).unwrap();
        let request = Request::post("/foo?param=Value&Pet=dog")
            .header("Host", "example.com")
            .header("Date", "Tue, 20 Apr 2021 02:07:55 GMT")
            .header("Content-Type", "application/json")
            .header(
                "Signature-Input",
                r#"sig-b25=("date" "@authority" "content-type");created=1618884473;keyid="test-shared-secret""#,
            )
            .header("Signature", "sig-b25=:pxcQw6G3AjtMBQjwo8XzkZf/bws5LelbaMk5rGIGtE8=:")
            .body(())
            .unwrap();
        let head = Head::of_request(&request);
        let (_, ListEntry::InnerList(covered)) = only(head.headers, &INPUT).unwrap() else {
            panic!()
        };
        let (_, signature) = only(head.headers, &SIGNATURE).unwrap();
        let base = base(head, &covered).unwrap();
        assert_eq!(
            base,
            r#""date": Tue, 20 Apr 2021 02:07:55 GMT
"@authority": example.com
"content-type": application/json
"@signature-params": ("date" "@authority" "content-type");created=1618884473;keyid="test-shared-secret""#
        );
        let signature = bytes(&signature).unwrap();
        let signed = Signed { key: String::new(), signature, until: 0, base, digest: None };
        assert!(signed.is_by(&key));
        assert!(!signed.is_by(&SigningKey::new("test-shared-secret", "another").unwrap()));
        // It is no request that would be accepted: it leaves open what is done.
        let refused = Signed::read(head, at("2021-04-20T02:07:53Z")).err().unwrap();
        assert_eq!(refused, "it does not cover @method, which the request has");
    }

    #[test]
    fn a_key_has_a_name_that_a_header_can_have_and_shows_no_secret() {
        for (name, secret) in [("", "s"), ("é", "s"), ("a\n", "s"), ("a", "")] {
            assert!(SigningKey::new(name, secret).is_err(), "{name:?}");
        }
        let key = SigningKey::new("a \"b\"", "hunter2").unwrap();
        assert_eq!(format!("{key:?}"), r#"SigningKey { name: "a \"b\"", .. }"#);
    }
}
