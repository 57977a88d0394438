//! The store a command works on: which one is meant, and how it is opened.

use crate::failure::{Failure, Outcome};
use allora_core::Backend;
use allora_sql::{Sql, Url};
use clap::Args;
use nix::unistd::geteuid;
use std::{env, fs, os::unix::fs::DirBuilderExt, path::PathBuf, sync::Arc};

/// Which store is meant.
#[derive(Args, Clone)]
pub(crate) struct Place {
    /// The store: sqlite:FILE, postgres://USER:PASSWORD@HOST/DATABASE or mysql://… [default: a
    /// local SQLite file].
    #[arg(long, env = "ALLORA_URL", hide_env_values = true)]
    url: Option<String>,
    /// The first part of the tables' names; stores of other prefixes are invisible.
    #[arg(long)]
    prefix: Option<String>,
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

impl Place {
    /// Opens the store, making its tables where there are none; keeps so many entries of history.
    ///
    /// # Errors
    /// A URL of an unknown scheme, by its name; whatever the store says.
    pub(crate) async fn open(&self, history: u64) -> Outcome<Store> {
        let mut builder = Sql::builder().history(history);
        if let Some(prefix) = &self.prefix {
            builder = builder.prefix(prefix);
        }
        let store = match &self.url {
            Some(url) => {
                check_scheme(url)?;
                builder.connect(url).await?
            }
            None => builder.connect_to(Url::sqlite(local(true)?)?).await?,
        };
        Ok(Arc::new(store))
    }

    /// The store's address for people, without a password.
    pub(crate) fn shown(&self) -> String {
        match &self.url {
            Some(url) => {
                Url::parse(url).map_or_else(|_| "an unknown store".into(), |url| url.to_string())
            }
            None => local(false)
                .map_or_else(|_| "no store".into(), |path| format!("sqlite:{}", path.display())),
        }
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
