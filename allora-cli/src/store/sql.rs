//! Stores in SQL databases.

use super::{Store, Tables, Wanted};
use crate::failure::{Failure, Outcome};
use allora_sql::{Sql, Url};
use std::{fs, os::unix::fs::OpenOptionsExt, path::Path, sync::Arc};

/// The remedy of the library for tables that a migration makes or repairs.
const MIGRATE: &str = "connect once with migrations on";

/// Opens a store.
///
/// # Errors
/// An error of the database. If the tables must exist and do not: the command that creates them.
pub(super) async fn open(url: Url, wanted: Wanted) -> Outcome<Store> {
    Ok(Arc::new(connect(url, wanted).await?))
}

/// Removes a store.
///
/// # Errors
/// An error of the database.
pub(super) async fn remove(url: Url, wanted: Wanted) -> Outcome {
    Ok(connect(url, wanted).await?.drop_tables().await?)
}

async fn connect(url: Url, wanted: Wanted) -> Outcome<Sql> {
    let Wanted { prefix, history, tables } = wanted;
    let mut builder = Sql::builder().history(history);
    if let Some(prefix) = prefix {
        builder = builder.prefix(prefix);
    }
    let shown = url.to_string();
    if tables == Tables::Keep {
        builder = builder.without_migrations();
        // Connecting would make the file.
        if let Some(file) = shown.strip_prefix("sqlite:")
            && !Path::new(file).exists()
        {
            let what = format!("there is no store at {shown}; `allora init` makes one");
            return Err(Failure::failed(what));
        }
    }
    if let Some(file) = shown
        .strip_prefix("sqlite:")
        .filter(|file| tables != Tables::Keep && !file.starts_with(':'))
    {
        make_private(Path::new(file));
    }
    builder.connect_to(url).await.map_err(|error| match Failure::from(error) {
        Failure::Failed(what) if tables == Tables::Keep && what.contains(MIGRATE) => {
            Failure::failed(what.replacen(MIGRATE, "run `allora init` once", 1))
        }
        failure => failure,
    })
}

/// Makes the file of a new store, which only its owner may read: it has commands and data. SQLite
/// gives its other files the same mode.
fn make_private(file: &Path) {
    // SQLite says what is wrong with the place; a store that is there already is left as it is.
    let _ = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(file);
}
