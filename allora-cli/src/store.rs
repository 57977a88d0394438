//! The store a command works on: which one is meant, and how it is opened.

use crate::{
    config::{self, Environment},
    failure::{Failure, Outcome},
};
use allora_core::Backend;
use allora_sql::{Sql, Url};
use clap::Args;
use nix::unistd::geteuid;
use std::{
    env, fs,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    sync::Arc,
};

/// Which store is meant.
#[derive(Args, Clone)]
pub(crate) struct Place {
    /// The store: sqlite:FILE, postgres://USER:PASSWORD@HOST/DATABASE or mysql://… [default: the
    /// configuration's, or a local SQLite file].
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

impl std::fmt::Debug for Place {
    /// The URL may hold a password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Place").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

/// A store that was opened.
pub(crate) type Store = Arc<dyn Backend>;

/// The URL schemes there are.
const SCHEMES: &str = "sqlite, postgres and mysql";

/// How many entries of history are kept, unless said otherwise.
pub(crate) const HISTORY: u64 = 10_000;

/// Whether tables may be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tables {
    /// Made, or brought up to date, where that is needed.
    Make,
    /// There already; what is missing is an error.
    Keep,
}

impl Place {
    /// What the configuration says about this store; nothing where there is no file.
    ///
    /// # Errors
    /// A file that cannot be read, or lacks the environment.
    pub(crate) fn settings(&self) -> Outcome<Environment> {
        config::environment(self.config.as_deref(), self.environment.as_deref())
    }

    /// Opens the store; keeps so many entries of history.
    ///
    /// # Errors
    /// A URL of an unknown scheme, by its name; whatever the store says.
    pub(crate) async fn open(&self, tables: Tables, history: Option<u64>) -> Outcome<Store> {
        let settings = self.settings()?;
        let mut builder = Sql::builder().history(history.or(settings.history).unwrap_or(HISTORY));
        if let Some(prefix) = self.prefix.clone().or(settings.prefix) {
            builder = builder.prefix(prefix);
        }
        if tables == Tables::Keep {
            builder = builder.without_migrations();
        }
        let url = match self.url.clone().or(settings.url) {
            Some(url) => {
                check_scheme(&url)?;
                Url::parse(&url)?
            }
            None => Url::sqlite(local(tables == Tables::Make)?)?,
        };
        let shown = url.to_string();
        if tables == Tables::Keep
            && let Some(file) = shown.strip_prefix("sqlite:")
            && !Path::new(file).exists()
        {
            return Err(Failure::failed(format!(
                "there is no store at {shown}; `allora init` makes one"
            )));
        }
        let store = builder.connect_to(url).await.map_err(|error| match Failure::from(error) {
            Failure::Failed(what) if tables == Tables::Keep && what.contains("missing") => {
                Failure::failed(format!("{what}; `allora init` makes what is missing"))
            }
            failure => failure,
        })?;
        Ok(Arc::new(store))
    }
}

fn check_scheme(url: &str) -> Outcome {
    let scheme = url.split_once(':').map(|(scheme, _)| scheme);
    match scheme {
        Some("sqlite" | "postgres" | "postgresql" | "mysql" | "mariadb") => Ok(()),
        Some(other)
            if other.len() < 20
                && other.chars().all(|c| c.is_ascii_alphanumeric() || "+-".contains(c)) =>
        {
            Err(Failure::failed(format!(
                "the store URL begins with `{other}:`; there are {SCHEMES}"
            )))
        }
        _ => Err(Failure::failed(format!("the store URL has no scheme; there are {SCHEMES}"))),
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
            Failure::failed("neither HOME nor XDG_STATE_HOME is set; name the store with --url")
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
    use super::check_scheme;

    #[test]
    fn an_unknown_scheme_is_named_and_nothing_else_of_the_url() {
        let said = |url| format!("{:?}", check_scheme(url).unwrap_err());
        assert!(said("oracle://u:secret@h/d").contains("`oracle:`"));
        for url in ["oracle://u:secret@h/d", "u:secret@h/d", "secret", "//u:secret@h"] {
            assert!(!said(url).contains("secret"), "{url}");
        }
    }
}
