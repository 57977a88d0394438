//! The store a command works on: which one is meant, and how it is opened.

#[cfg(not(all(feature = "redis", feature = "redis-quorum", feature = "etcd")))]
mod absent;
#[cfg(feature = "etcd")]
mod etcd;
mod history;
#[cfg(feature = "redis-quorum")]
mod quorum;
#[cfg(feature = "redis")]
mod redis;
mod sql;

pub(crate) use history::HistoryOptions;

#[cfg(not(feature = "etcd"))]
use absent as etcd;
#[cfg(not(feature = "redis-quorum"))]
use absent as quorum;
#[cfg(not(feature = "redis"))]
use absent as redis;

use crate::{
    config::{self, Environment},
    failure::{Failure, Outcome},
};
use allora_core::{
    Backend,
    backend::{HistoryLimits, is_this_machine},
};
use allora_sql::Url;
use clap::Args;
use nix::unistd::geteuid;
use std::{env, fs, os::unix::fs::DirBuilderExt, path::PathBuf, process::Command, sync::Arc};

/// Which store is meant.
#[derive(Args, Clone)]
pub(crate) struct StoreArgs {
    /// The store: sqlite:FILE, postgres://USER:PASSWORD@HOST/DATABASE, mysql://…, redis://…,
    /// redis-quorum://… or etcd://… [default: the configuration's, or a local SQLite file].
    #[arg(long, env = "ALLORA_URL", hide_env_values = true)]
    url: Option<String>,
    /// The first part of the tables' names; stores of other prefixes are invisible.
    #[arg(long)]
    prefix: Option<String>,
    /// The environment in the configuration file [default: development].
    #[arg(long, short = 'e', env = "ALLORA_ENVIRONMENT")]
    environment: Option<String>,
    /// The configuration file [default: allora.toml, if there is one].
    #[arg(long, short = 'c', env = "ALLORA_CONFIG")]
    config: Option<PathBuf>,
}

impl std::fmt::Debug for StoreArgs {
    /// The URL may hold a password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StoreArgs").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

/// A store that was opened.
pub(crate) type Store = Arc<dyn Backend>;

/// The URL schemes there are.
const SCHEMES: &str = "sqlite, postgres, mysql, redis, rediss, redis+sentinel, redis+cluster, \
                       redis-quorum, rediss-quorum, etcd and etcds";

/// The permission to create tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tables {
    /// Made, or brought up to date, where that is needed; also what only an operator may make: the
    /// quorum of independent servers.
    Initialise,
    /// Made, or brought up to date, where that is needed.
    Make,
    /// There already; what is missing is an error.
    Keep,
}

impl StoreArgs {
    /// The settings of this store in the configuration; empty if there is no file.
    ///
    /// # Errors
    /// A file that cannot be read, or lacks the environment.
    pub(crate) fn settings(&self) -> Outcome<Environment> {
        config::environment(self.config.as_deref(), self.environment.as_deref())
    }

    /// The store as people read it, without secrets. The local file that is used where nothing names a
    /// store is marked.
    ///
    /// # Errors
    /// As [`settings`](Self::settings).
    pub(crate) fn shown(&self) -> Outcome<String> {
        match self.url()? {
            Some(url) => Ok(masked(&url)),
            None => Ok(format!(
                "{} (a file of this machine, since neither --url, ALLORA_URL nor allora.toml names a \
                 store)",
                Url::sqlite(local(false)?)?
            )),
        }
    }

    /// The URL, unless it is the local file that is used where nothing names a store.
    ///
    /// # Errors
    /// As [`settings`](Self::settings).
    pub(crate) fn url(&self) -> Outcome<Option<String>> {
        Ok(match &self.url {
            Some(url) => Some(url.clone()),
            None => self.settings()?.url,
        })
    }

    /// The store at this URL, with the other settings.
    pub(crate) fn with_url(&self, url: String) -> Self {
        Self { url: Some(url), ..self.clone() }
    }

    /// A store of this prefix in the same place.
    pub(crate) fn with_prefix(&self, prefix: &str) -> Self {
        Self { prefix: Some(prefix.to_owned()), ..self.clone() }
    }

    /// The prefix of the command line.
    pub(crate) fn prefix(&self) -> Option<&str> {
        self.prefix.as_deref()
    }

    /// The process of this command, when it is started, finds the same store. A URL may have a password, so it
    /// is not among the arguments, which other users can see.
    pub(crate) fn pass_to(&self, command: &mut Command) {
        let mut add = |name: &str, value: Option<&std::ffi::OsStr>| {
            if let Some(value) = value {
                command.arg(name).arg(value);
            }
        };
        add("--prefix", self.prefix.as_ref().map(AsRef::as_ref));
        add("--environment", self.environment.as_ref().map(AsRef::as_ref));
        add("--config", self.config.as_ref().map(AsRef::as_ref));
        if let Some(url) = &self.url {
            command.env("ALLORA_URL", url);
        }
    }

    /// `true` if the store is on this machine, by its URL.
    ///
    /// # Errors
    /// As [`settings`](Self::settings).
    pub(crate) fn is_local(&self) -> Outcome<bool> {
        let Some(url) = self.url()? else { return Ok(true) };
        let url = masked(&url);
        let Some((_, rest)) = url.split_once("://") else { return Ok(url.starts_with("sqlite:")) };
        let place = rest.split('/').next().unwrap_or_default();
        let hosts = place.rsplit_once('@').map_or(place, |(_, hosts)| hosts);
        let is_local = |host: &str| {
            let host = host.rsplit_once(':').map_or(host, |(host, _)| host);
            host.is_empty() || is_this_machine(host)
        };
        Ok(hosts.split(',').all(is_local))
    }

    /// Removes the store of a prefix that is only this command's, with all that is in it.
    ///
    /// # Errors
    /// As [`open`](Self::open). Stores that have no such call.
    pub(crate) async fn remove(&self) -> Outcome {
        let history = HistoryOptions::default().limits();
        let wanted = Wanted { prefix: self.prefix.clone(), history, tables: Tables::Keep };
        let url = match self.url()? {
            Some(url) => url,
            None => format!("sqlite:{}", local(false)?.display()),
        };
        match scheme(&url)? {
            "sqlite" | "postgres" | "postgresql" | "mysql" | "mariadb" => {
                sql::remove(Url::parse(&url).map_err(Failure::of_input)?, wanted).await
            }
            "etcd" | "etcds" => etcd::remove(&url, wanted).await,
            "redis-quorum" | "rediss-quorum" => quorum::remove(&url, wanted).await,
            _ => redis::remove(&url, wanted).await,
        }
    }

    /// Opens the store, with these limits of its history.
    ///
    /// # Errors
    /// A URL of an unknown scheme, by its name; whatever the store says.
    pub(crate) async fn open(&self, tables: Tables, history: HistoryOptions) -> Outcome<Store> {
        let settings = self.settings()?;
        let wanted = Wanted {
            prefix: self.prefix.clone().or(settings.prefix),
            history: history.or(settings.history).limits(),
            tables,
        };
        let Some(url) = self.url.clone().or(settings.url) else {
            return sql::open(
                Url::sqlite(local(tables != Tables::Keep)?).map_err(Failure::of_input)?,
                wanted,
            )
            .await;
        };
        match scheme(&url)? {
            "sqlite" | "postgres" | "postgresql" | "mysql" | "mariadb" => {
                sql::open(Url::parse(&url).map_err(Failure::of_input)?, wanted).await
            }
            "redis" | "rediss" | "redis+unix" | "redis+sentinel" | "rediss+sentinel"
            | "redis+cluster" | "rediss+cluster" => redis::open(&url, wanted).await,
            "redis-quorum" | "rediss-quorum" => quorum::open(&url, wanted).await,
            "etcd" | "etcds" => etcd::open(&url, wanted).await,
            other => Err(Failure::wrong(format!(
                "the store URL begins with `{other}:`; there are {SCHEMES}"
            ))),
        }
    }
}

/// The settings with which a store is opened.
#[cfg_attr(
    not(all(feature = "redis", feature = "redis-quorum", feature = "etcd")),
    allow(dead_code, reason = "as they are")
)]
struct Wanted {
    prefix: Option<String>,
    history: HistoryLimits,
    tables: Tables,
}

/// The scheme of a URL. What has none may be a password: it is not shown.
fn scheme(url: &str) -> Outcome<&str> {
    let of_scheme = |c: char| c.is_ascii_alphanumeric() || c == '+' || c == '-';
    match url.split_once(':') {
        Some((scheme, _))
            if scheme.len() < 20 && !scheme.is_empty() && scheme.chars().all(of_scheme) =>
        {
            Ok(scheme)
        }
        _ => Err(Failure::wrong(format!("the store URL has no scheme; there are {SCHEMES}"))),
    }
}

/// A URL without its password, and without what stands behind a `?`.
fn masked(url: &str) -> String {
    if let Ok(url) = Url::parse(url) {
        return url.to_string();
    }
    let Some((scheme, rest)) = url.split_once("://") else { return "a store".into() };
    // A password may have a ? or # in it, although that is wrong.
    let until = |text: &str, ends: &[char]| text.split(ends).next().unwrap_or_default().to_owned();
    match rest.rsplit_once('@') {
        None => format!("{scheme}://{}", until(rest, &['?', '#'])),
        Some((login, place)) => {
            let (user, place) = (until(login, &[':', '?', '#']), until(place, &['?', '#']));
            format!("{scheme}://{user}:***@{place}")
        }
    }
}

/// A URL of several servers, in its parts: `SCHEME://[LOGIN@]HOST,HOST[/PATH]`.
#[cfg(any(feature = "redis", feature = "redis-quorum", feature = "etcd"))]
struct Servers<'a> {
    /// With the `@`; empty if there is none.
    login: &'a str,
    hosts: Vec<&'a str>,
    path: &'a str,
}

#[cfg(any(feature = "redis", feature = "redis-quorum", feature = "etcd"))]
impl<'a> Servers<'a> {
    fn of(url: &'a str) -> Outcome<Self> {
        let wrong = |what: &str| Failure::wrong(format!("the store URL {what}"));
        let (_, rest) =
            url.split_once("://").ok_or_else(|| wrong("lacks the // behind its scheme"))?;
        if rest.contains(['?', '#']) || rest.contains(char::is_whitespace) {
            return Err(wrong("has a ?, a # or a blank in it; write %3F, %23 or %20"));
        }
        let (place, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (login, hosts) = match place.rfind('@') {
            Some(at) => place.split_at(at + 1),
            None => ("", place),
        };
        let hosts: Vec<&str> = hosts.split(',').collect();
        if hosts.iter().any(|host| host.is_empty()) {
            return Err(wrong("has an empty host in it; write HOST:PORT, separated by commas"));
        }
        Ok(Self { login, hosts, path })
    }
}

/// The local SQLite file: `allora.db` in the folder that systemd gives the service, in
/// `/var/lib/allora` for root, else in `$XDG_STATE_HOME/allora`, which is `~/.local/state/allora`
/// unless set.
fn local(make: bool) -> Outcome<PathBuf> {
    let set = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let folder = set("STATE_DIRECTORY")
        .or_else(|| geteuid().is_root().then(|| "/var/lib/allora".into()))
        .or_else(|| set("XDG_STATE_HOME").map(|state| state.join("allora")))
        .or_else(|| set("HOME").map(|home| home.join(".local/state/allora")))
        .ok_or_else(|| {
            Failure::wrong("neither HOME nor XDG_STATE_HOME is set; name the store with --url")
        })?;
    if make {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder).map_err(|error| {
            Failure::failed(format!("cannot make the folder {}: {error}", folder.display()))
        })?;
    }
    Ok(folder.join("allora.db"))
}

#[cfg(test)]
mod tests {
    use super::{masked, scheme};

    #[test]
    fn a_store_is_shown_without_its_password() {
        for (url, is) in [
            ("postgres://u:hush@h/d", "postgres://u:***@h/d"),
            ("redis://:hush@h:1/2", "redis://:***@h:1/2"),
            ("redis+cluster://u:hu@sh@a,b", "redis+cluster://u:***@a,b"),
            ("redis-quorum://a,b,c", "redis-quorum://a,b,c"),
            ("etcds://u:hush@h?x=hush", "etcds://u:***@h"),
            ("redis://u:hu#sh@h:1/2", "redis://u:***@h:1/2"),
            ("etcd://u:hu?sh@h", "etcd://u:***@h"),
            ("etcd://h?x=hush", "etcd://h"),
            ("hush", "a store"),
        ] {
            assert_eq!(masked(url), is);
        }
    }

    #[test]
    fn what_has_no_scheme_is_not_shown() {
        assert_eq!(scheme("oracle://u:secret@h/d").unwrap(), "oracle");
        for url in ["secret", "//u:secret@h", "u@x:secret@h/d", ":secret"] {
            let said = format!("{:?}", scheme(url).unwrap_err());
            assert!(!said.contains("secret"), "{url}");
        }
    }

    #[cfg(all(feature = "redis", feature = "redis-quorum", feature = "etcd"))]
    #[test]
    fn any_url_is_taken_apart_or_refused_without_its_password() {
        let seeds = [
            "etcds://u:hunter2@a:1,b:2",
            "redis+sentinel://u:hunter2@a:1,b/main/2",
            "rediss+cluster://:hunter2@a,b",
            "redis-quorum://u:hunter2@a,b,c/2",
            "redis+unix:///run/redis.sock",
            "redis://h/2",
        ];
        crate::foreign::read_each(&seeds, |url| {
            let read = match scheme(url) {
                Ok("etcd" | "etcds") => super::etcd::parts(url).map(drop),
                Ok("redis-quorum" | "rediss-quorum") => super::quorum::each(url).map(drop),
                Ok(_) => super::redis::several(url).map(drop),
                Err(failure) => Err(failure),
            };
            read.map_err(|failure| format!("{failure:?} {}", masked(url)))
        });
    }

    #[cfg(any(feature = "redis", feature = "redis-quorum", feature = "etcd"))]
    #[test]
    fn several_servers_are_told_apart() {
        let servers = super::Servers::of("etcds://u:p@a:1,b:2").unwrap();
        assert_eq!((servers.login, servers.hosts, servers.path), ("u:p@", vec!["a:1", "b:2"], ""));
        let servers = super::Servers::of("redis+sentinel://a:1/main/2").unwrap();
        assert_eq!((servers.login, servers.hosts, servers.path), ("", vec!["a:1"], "main/2"));
        for bad in ["etcd:a", "etcd://", "etcd://a,,b", "etcd://a?b=c", "etcd://a b"] {
            assert!(super::Servers::of(bad).is_err(), "{bad}");
        }
    }
}
