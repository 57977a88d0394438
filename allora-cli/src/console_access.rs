//! Access to the console that the command serves: for browsers on this machine, or with a token.

use crate::{
    clock,
    failure::{Failure, Outcome},
    server::{Peer, Server},
};
use allora_console::{Access, Console, Decision, Scope, Tokens};
use axum::{
    Router,
    extract::{Request, State},
    http::{HeaderName, StatusCode, header, request::Parts},
    middleware::{self, Next},
    response::{IntoResponse, Response},
};
use clap::Args;
use std::{
    fs,
    io::{self, Read},
    net::IpAddr,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::sync::Semaphore;
use tracing::{error, info};

/// Why there is no console on an address that other machines reach, and what to do.
const NOT_LOCAL: &str = "other machines reach this address, and without access tokens the console and its API are for \
     programs of this machine; add --tokens FILE, or listen on a loopback address, as 127.0.0.1, and use `ssh -L` from \
     elsewhere";

/// The number of pages that are made at a time. Probes are not among them.
const AT_A_TIME: usize = 4;

/// The time that a page may take, with the reading of its form.
const TIME_LIMIT: Duration = Duration::from_secs(30);

/// The number of requests to the API at a time, most of which wait for work or for the end of a run. The server has more
/// connections, so that probes and pages are answered all the same.
const API_AT_A_TIME: usize = 400;

/// The time that a request to the API may take: the longest wait, and the store's time to record an end.
const API_TIME_LIMIT: Duration = Duration::from_secs(90);

/// Access to the console.
#[derive(Clone, Debug, Args)]
pub(crate) struct AccessArgs {
    /// Asks for the tokens or signatures of this file, which `allora token new` makes. Required for an address that
    /// other machines reach, where a proxy must offer TLS: without it, tokens can be read on the way. A file with
    /// signing keys must be readable by its owner alone. HUP reads the file again.
    #[arg(long, value_name = "FILE")]
    tokens: Option<PathBuf>,
    /// Also answers requests under this name. Repeat it for several. The names of this machine alone, and the
    /// address of --listen, are always allowed.
    #[arg(long = "host", value_name = "NAME")]
    hosts: Vec<String>,
    /// Lets readers pause, resume, skip, trigger, cancel, rerun, dismiss, backfill and reset jobs with the scope
    /// `run`, and delete them with `edit`. Without tokens, everybody with an account on this machine may.
    #[arg(long)]
    allow_actions: bool,
    /// Also shows the data of schedules and the output of runs. Every account of this machine can then read them.
    /// With tokens, the scope `data` decides.
    #[arg(long, conflicts_with = "tokens")]
    show_data: bool,
    /// Takes the name of the reader from this header, if the request comes from a --trust-proxy, which must
    /// set it and remove what clients send. The file of tokens has the name with `-` in place of a hash.
    #[arg(long, value_name = "HEADER", requires_all = ["tokens", "trust_proxy"])]
    trust_user_header: Option<HeaderName>,
    /// The address of a proxy whose header is trusted. Repeat it for several.
    #[arg(long, value_name = "ADDRESS", requires = "trust_user_header")]
    trust_proxy: Vec<IpAddr>,
}

impl AccessArgs {
    /// Reads what the options name, before a store is opened. `listen` is the address as it was typed.
    ///
    /// # Errors
    /// Other machines reach the address, and there are no tokens; or their file cannot be read.
    pub(crate) fn checked(&self, server: &Server, listen: &str) -> Outcome<Guard> {
        let own = server.address().ip();
        let own = (!own.is_unspecified()).then(|| own.to_string());
        let hosts = self.hosts.iter().cloned().chain(own).collect();
        let doors = Arc::new(self.doors(server, listen)?);
        Ok(Guard { hosts, allows_actions: self.allow_actions, doors })
    }

    /// The option that was given, if one was: without a console, it means nothing.
    pub(crate) fn given(&self) -> Option<&'static str> {
        let all = [
            (self.tokens.is_some(), "--tokens"),
            (!self.hosts.is_empty(), "--host"),
            (self.allow_actions, "--allow-actions"),
            (self.show_data, "--show-data"),
        ];
        all.into_iter().find_map(|(is_given, name)| is_given.then_some(name))
    }

    fn doors(&self, server: &Server, listen: &str) -> Outcome<Doors> {
        let Some(path) = &self.tokens else {
            if !server.is_local() {
                return Err(Failure::wrong(format!("--listen {listen}: {NOT_LOCAL}")));
            }
            // A process without --workers has no work, so the scope gives nothing there.
            let mut reader = Access::reader("").with(Scope::Work);
            if self.show_data {
                reader = reader.with_data();
            }
            if self.allow_actions {
                reader = reader.with(Scope::Run).with(Scope::Edit);
            }
            return Ok(Doors::Open(reader));
        };
        Ok(Doors::Tokens {
            file: TokenFile::read(path.clone()).map_err(Failure::wrong)?,
            header: self.trust_user_header.clone(),
            proxies: self.trust_proxy.iter().map(IpAddr::to_canonical).collect(),
        })
    }

    /// The end of the line that says what is served.
    pub(crate) fn shown(&self) -> &'static str {
        match (self.allow_actions, self.tokens.is_some()) {
            (false, false) => "read-only",
            (false, true) => "read-only, for those with a token",
            (true, false) => "with actions, for everybody on this machine",
            (true, true) => "with actions, for those with a token",
        }
    }
}

/// Access to the console, ready to decide.
#[derive(Debug)]
pub(crate) struct Guard {
    hosts: Vec<String>,
    allows_actions: bool,
    doors: Arc<Doors>,
}

impl Guard {
    /// The console for those who may use it.
    pub(crate) fn guard(&self, console: Console) -> Router {
        let console = console.hosts(self.hosts.clone());
        let console = if self.allows_actions { console.allow_actions() } else { console };
        let doors = self.doors.clone();
        let turns = Arc::new(Turns::default());
        let console = console.access(move |parts| doors.decide(parts)).into_router();
        console.layer(middleware::from_fn_with_state(turns, some_at_a_time))
    }

    /// Reads the file of tokens again. If it is bad, those that were read before stay in force.
    pub(crate) fn reload(&self) {
        if let Doors::Tokens { file, .. } = &*self.doors {
            file.reload();
        }
    }

    /// The fault of the file of tokens, as a condition of the daemon.
    pub(crate) fn condition(&self) -> Option<String> {
        match &*self.doors {
            Doors::Tokens { file, .. } => file.locked().bad.clone(),
            Doors::Open(_) => None,
        }
    }
}

/// A file of tokens, and what of it is in force.
#[derive(Debug)]
struct TokenFile {
    path: PathBuf,
    state: Mutex<InForce>,
}

#[derive(Debug)]
struct InForce {
    tokens: Arc<Tokens>,
    /// The fault of the present file, if the tokens are of one before.
    bad: Option<String>,
}

impl TokenFile {
    /// # Errors
    /// A sentence with the option and the path.
    fn read(path: PathBuf) -> Result<Self, String> {
        let state = InForce { tokens: Arc::new(tokens(&path)?), bad: None };
        Ok(Self { path, state: Mutex::new(state) })
    }

    fn locked(&self) -> MutexGuard<'_, InForce> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn reload(&self) {
        let read = tokens(&self.path);
        let mut state = self.locked();
        match read {
            Ok(tokens) => {
                info!(target: "allora", path = %self.path.display(), "tokens loaded");
                let tokens = Arc::new(tokens.following(&state.tokens));
                *state = InForce { tokens, bad: None };
            }
            Err(why) => {
                let what = format!("{why}; the tokens that were read before stay in force");
                error!(target: "allora", "{what}");
                state.bad = Some(what);
            }
        }
    }
}

fn tokens(path: &Path) -> Result<Tokens, String> {
    let wrong = |why: String| format!("--tokens {}: {why}", path.display());
    let (text, mode) = text_and_mode(path).map_err(|error| wrong(error.to_string()))?;
    let tokens = Tokens::read(&text).map_err(wrong)?;
    if tokens.is_empty() {
        let none = "it has no line, so nobody could read; add one with `allora token new`";
        return Err(wrong(none.into()));
    }
    if tokens.has_signing_keys() && mode & 0o077 != 0 {
        let path = path.display();
        return Err(wrong(format!(
            "it has signing keys, and its mode {:o} lets others than its owner use it; run `chmod 600 {path}`, and make \
             new keys if somebody may have read them",
            mode & 0o777
        )));
    }
    Ok(tokens)
}

/// The text of a file, and the mode of that same file.
pub(crate) fn text_and_mode(path: &Path) -> io::Result<(String, u32)> {
    let mut file = fs::File::open(path)?;
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    Ok((text, file.metadata()?.mode()))
}

/// The ways in.
#[derive(Debug)]
enum Doors {
    /// Everybody on this machine is this reader.
    Open(Access),
    Tokens {
        file: TokenFile,
        /// The header in which a proxy names the reader.
        header: Option<HeaderName>,
        proxies: Vec<IpAddr>,
    },
}

impl Doors {
    fn decide(&self, parts: &Parts) -> Decision {
        let (file, header, proxies) = match self {
            Self::Open(reader) => return Decision::Reader(reader.clone()),
            Self::Tokens { file, header, proxies } => (file, header, proxies),
        };
        let tokens = file.locked().tokens.clone();
        let now = clock::now();
        let peer = parts.extensions.get::<Peer>().map(|peer| peer.0.to_canonical());
        let is_proxy = peer.is_some_and(|peer| proxies.contains(&peer));
        // From anybody else, the header says nothing.
        if let Some(header) = header.as_ref().filter(|_| is_proxy) {
            let mut names = parts.headers.get_all(header).iter();
            match (names.next(), names.next()) {
                (None, _) => {}
                (Some(name), None) => {
                    let name = name.to_str().unwrap_or_default();
                    return tokens.decide_by_name(name, now);
                }
                (Some(_), Some(_)) => return Decision::Refused,
            }
        }
        tokens.decide(parts, now)
    }
}

#[cfg(test)]
impl Guard {
    /// Everybody may read.
    pub(crate) fn of_test() -> Self {
        let doors = Arc::new(Doors::Open(Access::reader("")));
        Self { hosts: Vec::new(), allows_actions: false, doors }
    }
}

/// The turns of pages, and of requests to the API, which may wait for long.
#[derive(Debug)]
struct Turns {
    pages: Semaphore,
    api: Semaphore,
}

impl Default for Turns {
    fn default() -> Self {
        Self { pages: Semaphore::new(AT_A_TIME), api: Semaphore::new(API_AT_A_TIME) }
    }
}

async fn some_at_a_time(State(turns): State<Arc<Turns>>, request: Request, next: Next) -> Response {
    let path = request.uri().path();
    let is_api = path == "/v1" || path.starts_with("/v1/");
    let busy = |why: &'static str| {
        let (media, text) = match is_api {
            true => ("application/problem+json", problem(why)),
            false => ("text/plain; charset=utf-8", format!("{why}\n")),
        };
        let head = [(header::RETRY_AFTER, "1"), (header::CONTENT_TYPE, media)];
        (StatusCode::SERVICE_UNAVAILABLE, head, text).into_response()
    };
    let (turns, limit) = match is_api {
        true => (&turns.api, API_TIME_LIMIT),
        false => (&turns.pages, TIME_LIMIT),
    };
    let Ok(_turn) = turns.try_acquire() else {
        return busy("too many requests at once; try again");
    };
    let answer = tokio::time::timeout(limit, next.run(request)).await;
    answer.unwrap_or_else(|_| busy("the answer took too long; is the store slow?"))
}

/// An answer for programs, in the form of the API's others.
fn problem(why: &str) -> String {
    let title = "As many callers wait as may";
    serde_json::json!({ "type": "urn:allora:busy", "title": title, "status": 503, "detail": why })
        .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::Request;

    fn decide(doors: &Doors, peer: &str, users: &[&str]) -> Decision {
        let mut request = Request::builder().uri("/");
        for user in users {
            request = request.header("x-user", *user);
        }
        let (mut parts, ()) = request.body(()).unwrap().into_parts();
        parts.extensions.insert(Peer(peer.parse().unwrap()));
        doors.decide(&parts)
    }

    #[tokio::test]
    async fn programs_that_come_while_all_turns_are_taken_get_a_problem_that_they_can_read() {
        let turns = Turns { pages: Semaphore::new(0), api: Semaphore::new(0) };
        let layer = middleware::from_fn_with_state(Arc::new(turns), some_at_a_time);
        let router = axum::Router::<()>::new().layer(layer);
        for (path, media) in [("/v1/jobs", "application/problem+json"), ("/jobs", "text/plain")] {
            let request = Request::builder().uri(path).body(axum::body::Body::empty()).unwrap();
            let answer = tower::ServiceExt::oneshot(router.clone(), request).await.unwrap();
            assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE, "{path}");
            assert_eq!(answer.headers()[header::RETRY_AFTER], "1", "{path}");
            let said = answer.headers()[header::CONTENT_TYPE].to_str().unwrap();
            assert!(said.starts_with(media), "{path}: {said}");
        }
    }

    #[test]
    fn a_header_names_the_reader_only_if_the_proxy_sends_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens");
        fs::write(&path, "ben - admin").unwrap();
        let file = TokenFile::read(path.clone()).unwrap();
        let doors = Doors::Tokens {
            file,
            header: Some(HeaderName::from_static("x-user")),
            proxies: vec!["10.0.0.1".parse().unwrap()],
        };
        for proxy in ["10.0.0.1", "::ffff:10.0.0.1"] {
            let Decision::Reader(ben) = decide(&doors, proxy, &["ben"]) else { panic!("{proxy}") };
            assert_eq!(ben.who(), "ben");
        }
        assert_eq!(decide(&doors, "10.0.0.1", &["eve"]), Decision::Refused);
        assert_eq!(decide(&doors, "10.0.0.1", &["ben", "eve"]), Decision::Refused);
        assert_eq!(decide(&doors, "10.0.0.1", &[]), Decision::Unknown);
        assert_eq!(decide(&doors, "10.0.0.2", &["ben"]), Decision::Unknown);
        // A file that is read again is in force at once, unless it is bad.
        let guard = Guard { hosts: Vec::new(), allows_actions: false, doors: Arc::new(doors) };
        for (text, is_eve_known) in
            [("eve - read", true), ("eve - write", true), ("ben - read", false)]
        {
            fs::write(&path, text).unwrap();
            guard.reload();
            let eve = decide(&guard.doors, "10.0.0.1", &["eve"]);
            assert_eq!(matches!(eve, Decision::Reader(_)), is_eve_known, "{text}");
            let condition = guard.condition().unwrap_or_default();
            assert_eq!(
                condition.contains("line 1: there is no scope \"write\""),
                text.ends_with("write")
            );
        }
    }
}
