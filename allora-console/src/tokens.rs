//! Access tokens from a file, which has their hashes and not the tokens.

use crate::{
    access::{Access, Decision, Scope},
    params::unescaped,
};
use allora_core::{Time, check_name};
use axum::http::{HeaderMap, header};
use base64::{Engine, prelude::BASE64_STANDARD};
use sha2::{Digest, Sha256};
use std::{
    collections::BTreeSet,
    fmt::{self, Write},
};
use subtle::{Choice, ConstantTimeEq};

/// The longest `Authorization` that is read, in bytes.
const LONGEST: usize = 1024;

/// The first letters of a token, by which scanners of repositories can tell one.
const MARK: &str = "allora_";

/// The people and programs that may read and act, from a file with one line for each person or program.
///
/// ```text
/// # name  hash of the token, or - for one whom a proxy names  scopes  limits
/// ann     sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08  read,data,run
/// acme    sha256:60303ae22b998861bce3b28f33eec1be758a213c86c93c076dbe9f558c11c752  read  prefix=acme/  until=2027-01-01T00:00:00Z
/// ben     -  admin
/// ```
///
/// The words of a line are separated by blanks. `prefix=`, `kind=` may stand several times; in their values and in names,
/// `%20` stands for a blank and `%25` for a percent sign. A token is 32 random bytes, so a single round of SHA-256 protects
/// it: it cannot be guessed.
#[derive(Clone, Default)]
pub struct Tokens {
    lines: Vec<Line>,
}

#[derive(Clone)]
struct Line {
    /// `None`: a proxy names this reader.
    hash: Option<[u8; 32]>,
    access: Access,
    until: Option<Time>,
}

/// A new token, from [`Tokens::create`]. Its `Debug` does not show it.
#[derive(Clone)]
#[non_exhaustive]
pub struct NewToken {
    /// The token, for its owner alone. The file does not have it.
    pub token: String,
    /// The line for the file.
    pub line: String,
}

/// A line to be [created](Tokens::create).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TokenLine {
    /// The person or program that it is for: 1 to 200 bytes without a colon.
    pub name: String,
    /// The scopes; at least one.
    pub scopes: BTreeSet<Scope>,
    /// The prefixes of the names of jobs to which it is limited. Empty: no limit.
    pub prefixes: BTreeSet<String>,
    /// The kinds of stored schedules to which it is limited. Empty: no limit.
    pub kinds: BTreeSet<String>,
    /// The time at which it ends. Default: never.
    pub until: Option<Time>,
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
            let line = line(text).map_err(|wrong| format!("line {}: {wrong}", i + 1))?;
            if lines.iter().any(|other| other.access.who() == line.access.who()) {
                return Err(format!(
                    "line {}: {:?} has a line before; give each a name of its own",
                    i + 1,
                    line.access.who()
                ));
            }
            lines.push(line);
        }
        Ok(Self { lines })
    }

    /// Makes a token of these random bytes, and the line for it. The same bytes make the same token.
    ///
    /// # Errors
    /// A sentence: a name that cannot be used, or no scope.
    pub fn create(line: &TokenLine, random: [u8; 32]) -> Result<NewToken, String> {
        let mut token = MARK.to_owned();
        hex(&random, &mut token);
        let mut text = written(line, Some(&hash(&token)))?;
        // What is written must be read back as the same.
        self::line(&text)?;
        text.push('\n');
        Ok(NewToken { token, line: text })
    }

    /// Decides by the `Authorization` of a request: `Bearer` with the token, or `Basic` with the name and the token. The
    /// time is the present.
    pub fn decide(&self, headers: &HeaderMap, now: Time) -> Decision {
        let Some((name, token)) = credentials(headers) else { return Decision::Unknown };
        let shown = hash(&token);
        // Every line is compared, and each in the same time, whatever it has in common with the token.
        let mut found = None;
        for line in &self.lines {
            let is_it = line.hash.as_ref().map_or(Choice::from(0), |hash| hash.ct_eq(&shown));
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
        let is_it = |line: &&Line| line.hash.is_none() && line.access.who() == name;
        let line = self.lines.iter().find(is_it).filter(|line| line.is_valid(now));
        Decision::from(line.map(|line| line.access.clone()))
    }

    /// `true` if the file has no line: nobody may read.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }
}

impl Line {
    fn is_valid(&self, now: Time) -> bool {
        self.until.is_none_or(|until| now < until)
    }
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

fn line(text: &str) -> Result<Line, String> {
    let mut words = text.split_whitespace();
    let name = value("name", words.next().unwrap_or_default())?;
    check(&name)?;
    let hash = match words.next() {
        Some("-") => None,
        // The word is not repeated: somebody may have put the token there.
        word => Some(word.and_then(read_hash).ok_or(
            "the second word must be sha256: with 64 hexadecimal digits, or - for a reader whom a proxy names; \
             `allora token` makes such a line",
        )?),
    };
    let mut access = Access::new(name);
    let scopes = words.next().filter(|word| !word.contains('='));
    for word in scopes.ok_or("the third word must be scopes, as read,run")?.split(',') {
        let scope = Scope::from_word(word).ok_or_else(|| {
            let all: Vec<&str> = Scope::ALL.iter().map(|scope| scope.word()).collect();
            format!("there is no scope {word:?}; use {}", all.join(", "))
        })?;
        access = access.with(scope);
    }
    let (mut prefixes, mut kinds, mut until) = (Vec::new(), Vec::new(), None);
    for word in words {
        match word.split_once('=') {
            Some(("prefix", text)) => prefixes.push(value("prefix", text)?),
            Some(("kind", text)) => kinds.push(value("kind", text)?),
            Some(("until", text)) if until.is_none() => {
                let wrong =
                    |_| format!("until={text} is no time; write it as 2027-01-01T00:00:00Z");
                until = Some(text.parse().map_err(wrong)?);
            }
            _ => return Err(format!("{word:?} is no limit; use prefix=, kind= or until=")),
        }
    }
    if !prefixes.is_empty() {
        access = access.only_prefixes(prefixes);
    }
    if !kinds.is_empty() {
        access = access.only_kinds(kinds);
    }
    Ok(Line { hash, access, until })
}

/// A name that `Basic` can have: its first colon ends it.
fn check(name: &str) -> Result<(), String> {
    check_name(name).map_err(|error| error.to_string())?;
    match name.contains(':') {
        true => Err(format!("the name {name:?} has a colon; leave it away")),
        false => Ok(()),
    }
}

/// A word without its escapes. An empty one would be a limit that limits nothing.
fn value(what: &str, word: &str) -> Result<String, String> {
    let value = unescaped(word).filter(|value| !value.is_empty());
    value.ok_or_else(|| format!("the {what} is empty, or not UTF-8 after its escapes"))
}

fn read_hash(word: &str) -> Option<[u8; 32]> {
    let digits = word.strip_prefix("sha256:")?.as_bytes();
    let mut bytes = [0; 32];
    if digits.len() != 2 * bytes.len() {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks(2)) {
        let pair = std::str::from_utf8(pair).ok().filter(|pair| !pair.contains('+'))?;
        *byte = u8::from_str_radix(pair, 16).ok()?;
    }
    Some(bytes)
}

fn written(line: &TokenLine, hash: Option<&[u8; 32]>) -> Result<String, String> {
    check(&line.name)?;
    if line.scopes.is_empty() {
        return Err("a token needs a scope; give one, as read".into());
    }
    let mut text = escaped(&line.name);
    match hash {
        Some(hash) => {
            text.push_str(" sha256:");
            hex(hash, &mut text);
        }
        None => text.push_str(" -"),
    }
    let scopes: Vec<&str> = line.scopes.iter().map(|scope| scope.word()).collect();
    _ = write!(text, " {}", scopes.join(","));
    for (limit, values) in [("prefix", &line.prefixes), ("kind", &line.kinds)] {
        for value in values {
            _ = write!(text, " {limit}={}", escaped(value));
        }
    }
    if let Some(until) = line.until {
        _ = write!(text, " until={}", until.to_rfc3339_opts(chrono::SecondsFormat::AutoSi, true));
    }
    Ok(text)
}

/// A word of a line: without blanks, and without a `#` at its beginning.
fn escaped(text: &str) -> String {
    let mut word = String::new();
    for (i, c) in text.chars().enumerate() {
        match c.is_whitespace() || c == '%' || (i == 0 && (c == '#' || c == '-')) {
            true => c.to_string().bytes().for_each(|byte| _ = write!(word, "%{byte:02X}")),
            false => word.push(c),
        }
    }
    word
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
    use crate::times::at;

    const NOW: &str = "2026-10-26T02:00:00Z";

    fn wanted(name: &str) -> TokenLine {
        TokenLine {
            name: name.into(),
            scopes: [Scope::Read, Scope::Run].into(),
            ..Default::default()
        }
    }

    fn decide(tokens: &Tokens, authorization: &str) -> Option<String> {
        let mut headers = HeaderMap::new();
        headers.insert(header::AUTHORIZATION, authorization.parse().unwrap());
        match tokens.decide(&headers, at(NOW)) {
            Decision::Reader(access) => Some(access.who().to_owned()),
            Decision::Unknown => None,
            Decision::Refused => panic!("a wrong token is asked for again"),
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
        assert_eq!(tokens.decide(&HeaderMap::new(), at(NOW)), Decision::Unknown);
    }

    #[test]
    fn a_line_of_any_name_and_limit_comes_back_as_it_was() {
        let until = at("2026-10-26T03:00:00Z");
        let line = TokenLine {
            name: "#ann b%20".into(),
            prefixes: ["acme eu/".into(), "%".into(), "=".into()].into(),
            kinds: ["mail".into(), "-".into()].into(),
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
        assert_eq!(tokens.decide(&bearer(&new.token), until), Decision::Unknown, "it has ended");
    }

    fn bearer(token: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(header::AUTHORIZATION, format!("Bearer {token}").parse().unwrap());
        headers
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
        let new = Tokens::create(&wanted("ann"), [7; 32]).unwrap();
        let tokens = Tokens::read(&new.line).unwrap();
        let shown = format!("{new:?} {tokens:?}");
        assert_eq!(shown, "NewToken { .. } [\"ann\"]");
    }
}
