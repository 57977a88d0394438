//! `--workers`: the gateway of this daemon, and the key that signs the tokens of its runs.

use crate::{
    console_access::text_and_mode,
    failure::{Failure, Outcome},
    values::random,
};
use allora_console::Gateway;
use allora_core::runtime::Tokio;
use clap::Args;
use std::path::{Path, PathBuf};
use tracing::warn;

/// Workers in any language.
#[derive(Clone, Debug, Args)]
pub(crate) struct WorkersArgs {
    /// Gives the runs of stored schedules to workers that ask for them over HTTP, on the address of --listen.
    #[arg(long, requires = "listen")]
    pub(crate) workers: bool,
    /// The key that signs the tokens of runs, made by `allora token key`: gateways with the same key accept completions
    /// of each other's runs. Only its owner may be able to read the file [default: a random key, so that completions are
    /// refused elsewhere, and here after a restart].
    #[arg(long, value_name = "FILE", requires = "workers")]
    workers_key: Option<PathBuf>,
}

impl WorkersArgs {
    /// The gateway, if there is to be one.
    ///
    /// # Errors
    /// The file of the key cannot be read, is readable by others, or has no key.
    pub(super) fn gateway(&self, runtime: &Tokio) -> Outcome<Option<Gateway>> {
        if !self.workers {
            return Ok(None);
        }
        let Some(path) = &self.workers_key else {
            let why = "without --workers-key, no other gateway accepts completions of runs that this one gives, nor does \
                       this one after a restart";
            warn!(target: "allora", "{why}");
            return Ok(Some(Gateway::new(&random(runtime))?));
        };
        let wrong =
            |why: String| Failure::wrong(format!("--workers-key {}: {why}", path.display()));
        let key = key(path).map_err(wrong)?;
        let gateway = Gateway::new(key.as_bytes());
        Ok(Some(gateway.map_err(|error| wrong(format!("{error}; `allora token key` makes one")))?))
    }
}

fn key(path: &Path) -> Result<String, String> {
    let (text, mode) = text_and_mode(path).map_err(|error| error.to_string())?;
    if mode & 0o077 != 0 {
        let path = path.display();
        return Err(format!(
            "its mode {:o} lets others than its owner use it; run `chmod 600 {path}`, and make a new key if somebody may \
             have read it",
            mode & 0o777
        ));
    }
    Ok(text.trim().to_owned())
}
