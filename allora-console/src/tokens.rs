//! Access tokens and signing keys from a file. It has hashes of the tokens, and the secrets of the keys.

use crate::{
    access::{BodyCheck, Decision},
    replays::{Known, Replays},
    signature::{Head, Signed, is_signed},
    token_line::{Line, Proof, TokenLine},
};
use allora_core::Time;
use axum::http::{HeaderMap, header, request::Parts};
use base64::{Engine, prelude::BASE64_STANDARD};
use sha2::{Digest, Sha256};
use std::{
    fmt::{self, Write},
    sync::Arc,
};
use subtle::{Choice, ConstantTimeEq};
use tracing::warn;

/// The longest `Authorization` that is read, in bytes.
const LONGEST: usize = 1024;

/// The first letters of a token or a secret, by which scanners of repositories can tell one.
const MARK: &str = "allora_";

/// The people and programs that may read and act, from a file with one line for each person or program.
///
/// ```text
/// # name  hash of the token, or secret of a signing key, or - for one whom a proxy names  scopes  limits
/// ann     sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08  read,data,run
/// acme    sha256:60303ae22b998861bce3b28f33eec1be758a213c86c93c076dbe9f558c11c752  edit  prefix=acme/  max-jobs=100  shortest-period=5m
/// ci      hmac-sha256:allora_5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03  run  until=2027-01-01T00:00:00Z
/// ben     -  admin
/// ```
///
/// The words of a line are separated by blanks. `prefix=`, `kind=` may stand several times; in their values and in names,
/// `%20` stands for a blank and `%25` for a percent sign. A token is 32 random bytes, so a single round of SHA-256 protects
/// it: it cannot be guessed. The secret of a [signing key](crate::SigningKey) cannot be protected so, because a signature is
/// checked with the secret itself: let only the owner read a file with [such keys](Self::has_signing_keys).
///
/// # Signed requests
/// A request with `Signature-Input` is decided by its signature (RFC 9421, `hmac-sha256`) alone. It must cover `@method`,
/// `@path`, `@query` if the request has one, and those of `content-digest` (`sha-256`, RFC 9530; needed if there is a
/// body), `content-type`, `idempotency-key`, `if-match` and `if-none-match` that it has. It needs the parameters `keyid`,
/// the name of the line, and `created`, which may be 5 minutes from this clock, either way. A signature is accepted once by
/// all clones, and by those that [follow](Self::following). At most 500,000 are remembered; when there are more, further
/// ones are refused, and none is forgotten.
#[derive(Clone, Default)]
pub struct Tokens {
    lines: Vec<Line>,
    replays: Arc<Replays>,
}

/// A new token or signing key, from [`Tokens::create`]. Its `Debug` does not show it.
#[derive(Clone)]
#[non_exhaustive]
pub struct NewToken {
    /// The token, for its owner alone: the file does not have it. Or the secret of the signing key.
    pub token: String,
    /// The line for the file.
    pub line: String,
}

impl Tokens {
    /// Reads a file.
    ///
    /// # Errors
    /// A sentence with the number of the line. It repeats nothing of a line but words that are no secret.
    pub fn read(text: &str) -> Result<Self, String> {
        let mut lines: Vec<Line> = Vec::new();
        for (i, text) in text.lines().enumerate() {
            let text = text.trim();
            if text.is_empty() || text.starts_with('#') {
                continue;
            }
            let line = Line::read(text).map_err(|wrong| format!("line {}: {wrong}", i + 1))?;
            if lines.iter().any(|other| other.access.who() == line.access.who()) {
                return Err(format!(
                    "line {}: {:?} has a line before; give each a name of its own",
                    i + 1,
                    line.access.who()
                ));
            }
            lines.push(line);
        }
        Ok(Self { lines, replays: Arc::default() })
    }

    /// Also refuses the signatures that those have seen: the same file, read before.
    #[must_use]
    pub fn following(self, before: &Self) -> Self {
        Self { replays: before.replays.clone(), ..self }
    }

    /// Makes a token of these random bytes, and the line for it. The same bytes make the same token.
    ///
    /// # Errors
    /// A sentence: a name that cannot be used, or no scope.
    pub fn create(line: &TokenLine, random: [u8; 32]) -> Result<NewToken, String> {
        let token = marked(&random);
        let mut proof = "sha256:".to_owned();
        hex(&hash(&token), &mut proof);
        Ok(NewToken { line: line.written(&proof)? + "\n", token })
    }

    /// As [`create`](Self::create), a signing key: the line has its secret.
    ///
    /// # Errors
    /// As [`create`](Self::create).
    pub fn create_signing(line: &TokenLine, random: [u8; 32]) -> Result<NewToken, String> {
        let token = marked(&random);
        let text = line.written(&format!("hmac-sha256:{token}"))?;
        Ok(NewToken { line: text + "\n", token })
    }

    /// Decides by the signature of a request, or by its `Authorization`: `Bearer` with the token, or `Basic` with the name
    /// and the token. The time is the present. The reason for which a signature is not accepted is logged.
    pub fn decide(&self, request: &Parts, now: Time) -> Decision {
        match is_signed(&request.headers) {
            true => self.decide_signed(request, now).unwrap_or_else(unproven),
            false => self.decide_by_token(&request.headers, now),
        }
    }

    fn decide_signed(&self, request: &Parts, now: Time) -> Result<Decision, String> {
        let signed = Signed::read(Head::of(request), now)?;
        let name = signed.key.clone();
        let key = |line: &&Line| match &line.proof {
            Proof::Signature(key) => key.name() == name && line.is_valid(now),
            Proof::Token(_) | Proof::Proxy => false,
        };
        let line = self.lines.iter().find(key);
        let Some(line) =
            line.filter(|line| matches!(&line.proof, Proof::Signature(key) if signed.is_by(key)))
        else {
            // In the same words, whether there is such a name or not.
            return Err(format!(
                "no key named {name:?} has made it for this request; check the name, the secret, and that method, path, \
                 query and covered headers arrive as they were signed"
            ));
        };
        let (access, replays, now) = (line.access.clone(), self.replays.clone(), now.timestamp());
        Ok(Decision::ByBody(BodyCheck::new(move |body| {
            if let Err(why) = signed.fits(body) {
                return unproven(why);
            }
            match replays.note(&signed.signature, signed.until, now) {
                Known::New => Decision::Reader(access.clone()),
                Known::Seen => {
                    unproven("it was used before; sign each request anew, with a nonce".into())
                }
                Known::Full => Decision::Busy,
            }
        })))
    }

    fn decide_by_token(&self, headers: &HeaderMap, now: Time) -> Decision {
        let Some((name, token)) = credentials(headers) else { return Decision::Unknown };
        let shown = hash(&token);
        // Every line is compared, and each in the same time, whatever it has in common with the token.
        let mut found = None;
        for line in &self.lines {
            let is_it = match &line.proof {
                Proof::Token(hash) => hash.ct_eq(&shown),
                Proof::Signature(_) | Proof::Proxy => Choice::from(0),
            };
            let is_named = name.as_deref().is_none_or(|name| name == line.access.who());
            if bool::from(is_it) && is_named {
                found = Some(line);
            }
        }
        found
            .filter(|line| line.is_valid(now))
            .map_or(Decision::Unknown, |line| Decision::Reader(line.access.clone()))
    }

    /// Decides by the name of a person whom a trusted proxy has authenticated: the lines without a hash. Whoever calls
    /// this must know that the name comes from the proxy.
    pub fn decide_by_name(&self, name: &str, now: Time) -> Decision {
        let is_it = |line: &&Line| matches!(line.proof, Proof::Proxy) && line.access.who() == name;
        let line = self.lines.iter().find(is_it).filter(|line| line.is_valid(now));
        Decision::from(line.map(|line| line.access.clone()))
    }

    /// `true` if the file has no line: nobody may read.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// `true` if the file has secrets of signing keys, so only its owner may be able to read it.
    pub fn has_signing_keys(&self) -> bool {
        self.lines.iter().any(|line| matches!(line.proof, Proof::Signature(_)))
    }
}

fn unproven(why: String) -> Decision {
    warn!(target: "allora", "a signed request is refused: {why}");
    Decision::Unproven(why)
}

/// The name, if there is one, and the token.
fn credentials(headers: &HeaderMap) -> Option<(Option<String>, String)> {
    let mut all = headers.get_all(header::AUTHORIZATION).iter();
    let (first, None) = (all.next()?, all.next()) else { return None };
    let (scheme, rest) =
        first.to_str().ok().filter(|text| text.len() <= LONGEST)?.split_once(' ')?;
    let rest = rest.trim();
    if scheme.eq_ignore_ascii_case("bearer") {
        return Some((None, rest.to_owned()));
    }
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let pair = String::from_utf8(BASE64_STANDARD.decode(rest).ok()?).ok()?;
    let (name, token) = pair.split_once(':')?;
    Some((Some(name.to_owned()), token.to_owned()))
}

fn hash(token: &str) -> [u8; 32] {
    Sha256::digest(token.as_bytes()).into()
}

fn marked(random: &[u8; 32]) -> String {
    let mut token = MARK.to_owned();
    hex(random, &mut token);
    token
}

fn hex(bytes: &[u8], into: &mut String) {
    bytes.iter().for_each(|byte| _ = write!(into, "{byte:02x}"));
}

/// Only names: hashes are no secrets, and yet nobody's concern.
impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.lines.iter().map(|line| line.access.who())).finish()
    }
}

impl fmt::Debug for NewToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewToken").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{access::Scope, times::at};
    use axum::http::Request;
    use std::time::Duration;

    const NOW: &str = "2026-10-26T02:00:00Z";

    fn wanted(name: &str) -> TokenLine {
        TokenLine {
            name: name.into(),
            scopes: [Scope::Read, Scope::Run].into(),
            ..Default::default()
        }
    }

    fn decide(tokens: &Tokens, authorization: &str) -> Option<String> {
        match tokens.decide(&with(authorization), at(NOW)) {
            Decision::Reader(access) => Some(access.who().to_owned()),
            Decision::Unknown => None,
            other => panic!("a wrong token is asked for again: {other:?}"),
        }
    }

    fn basic(name: &str, token: &str) -> String {
        format!("Basic {}", BASE64_STANDARD.encode(format!("{name}:{token}")))
    }

    #[test]
    fn a_token_is_known_by_its_hash_for_programs_and_with_its_name_for_browsers() {
        let ann = Tokens::create(&wanted("ann"), [7; 32]).unwrap();
        let ben = Tokens::create(&wanted("ben"), [8; 32]).unwrap();
        assert!(!ann.line.contains(&ann.token));
        let tokens = Tokens::read(&format!("# both\n\n{}{}", ann.line, ben.line)).unwrap();
        assert_eq!(decide(&tokens, &format!("bearer {}", ann.token)).as_deref(), Some("ann"));
        assert_eq!(decide(&tokens, &basic("ben", &ben.token)).as_deref(), Some("ben"));
        let hash = ann.line.split(' ').nth(1).unwrap();
        for wrong in [
            basic("ann", &ben.token),
            basic("ann", ""),
            basic("", &ann.token),
            format!("Bearer {hash}"),
            format!("Bearer {}x", ann.token),
            format!("Digest {}", ann.token),
            "Basic !".into(),
            "Bearer".into(),
            "Bearer ".into(),
            format!("Bearer {}", "a".repeat(LONGEST)),
        ] {
            assert_eq!(decide(&tokens, &wrong), None, "{wrong}");
        }
        let nobody = Request::new(()).into_parts().0;
        assert_eq!(tokens.decide(&nobody, at(NOW)), Decision::Unknown);
    }

    #[test]
    fn a_line_of_any_name_and_limit_comes_back_as_it_was() {
        let until = at("2026-10-26T03:00:00Z");
        let line = TokenLine {
            name: "#ann b%20".into(),
            prefixes: ["acme eu/".into(), "%".into(), "=".into()].into(),
            kinds: ["mail".into(), "-".into()].into(),
            max_jobs: Some(100),
            shortest_period: Some(Duration::from_secs(300)),
            until: Some(until),
            ..wanted("")
        };
        let new = Tokens::create(&line, [7; 32]).unwrap();
        let tokens = Tokens::read(&new.line).unwrap();
        let Decision::Reader(access) = tokens.decide(&bearer(&new.token), at(NOW)) else {
            panic!()
        };
        assert_eq!(access.who(), "#ann b%20");
        assert!(access.may_see("acme eu/a", "mail") && access.may_see("=", "-"));
        assert!(!access.may_see("acme", "mail") && !access.may_see("acme eu/a", ""));
        assert!(access.may(Scope::Run) && !access.may(Scope::Data));
        assert_eq!(
            access.max_jobs().zip(access.shortest_period()),
            line.max_jobs.zip(line.shortest_period)
        );
        assert!(new.line.contains(" max-jobs=100 shortest-period=5m "), "{}", new.line);
        assert_eq!(tokens.decide(&bearer(&new.token), until), Decision::Unknown, "it has ended");
    }

    fn bearer(token: &str) -> Parts {
        with(&format!("Bearer {token}"))
    }

    fn with(authorization: &str) -> Parts {
        let request = Request::get("/").header(header::AUTHORIZATION, authorization).body(());
        request.unwrap().into_parts().0
    }

    #[test]
    fn a_line_that_cannot_be_read_is_named_and_repeats_no_secret() {
        let hash = format!("sha256:{}", "0".repeat(64));
        for (text, says) in [
            ("ann hunter2 read".to_owned(), "sha256:"),
            ("ann".to_owned(), "sha256:"),
            (format!("ann sha256:{} read", "+1".repeat(32)), "sha256:"),
            (format!("ann {hash}"), "third word"),
            (format!("ann {hash} prefix=a"), "third word"),
            (format!("ann {hash} write"), "no scope \"write\""),
            (format!("ann {hash} read prefix="), "prefix is empty"),
            (format!("ann {hash} read kinds=a"), "no limit"),
            (format!("ann {hash} read until=soon"), "no time"),
            (format!("ann {hash} read prefix=a max-jobs=many"), "0 to 10000"),
            (format!("ann {hash} read prefix=a max-jobs=1 max-jobs=2"), "twice"),
            (format!("ann {hash} read prefix=a shortest-period=0s"), "no period"),
            (format!("ann {hash} read max-jobs=1"), "need a prefix="),
            ("ann hmac-sha256:hunter2 read".into(), "32 to 200 bytes"),
            (format!("é hmac-sha256:{hash} read"), "ASCII"),
            (format!("a:b {hash} read"), "colon"),
            (format!("ann {hash} read\nann - read"), "line 2: \"ann\" has a line before"),
        ] {
            let wrong = Tokens::read(&text).unwrap_err();
            assert!(wrong.contains(says) && wrong.starts_with("line "), "{text}: {wrong}");
            assert!(!wrong.contains("hunter2"), "{wrong}");
        }
        assert!(
            Tokens::create(&TokenLine { scopes: [].into(), ..wanted("ann") }, [7; 32]).is_err()
        );
        assert!(Tokens::create(&wanted("a:b"), [7; 32]).is_err());
    }

    #[test]
    fn a_proxy_names_those_without_a_token_and_nobody_else() {
        let ann = Tokens::create(&wanted("ann"), [7; 32]).unwrap();
        let tokens = Tokens::read(&format!("{}ben - admin\n", ann.line)).unwrap();
        assert!(matches!(tokens.decide_by_name("ben", at(NOW)), Decision::Reader(_)));
        assert_eq!(tokens.decide_by_name("ann", at(NOW)), Decision::Refused);
        assert_eq!(tokens.decide_by_name("", at(NOW)), Decision::Refused);
        assert_eq!(decide(&tokens, &basic("ben", "")), None);
    }

    #[test]
    fn nothing_shows_a_token_or_its_hash() {
        for create in [Tokens::create, Tokens::create_signing] {
            let new = create(&wanted("ann"), [7; 32]).unwrap();
            let tokens = Tokens::read(&new.line).unwrap();
            let shown = format!("{new:?} {tokens:?}");
            assert_eq!(shown, "NewToken { .. } [\"ann\"]");
        }
    }
}
