//! The parts of a store while it is tried: its servers, or the disk of its file.

use crate::{
    Outcome,
    services::{Arena, Disk, Wanted},
};
use std::path::{Path, PathBuf};

pub(super) struct Scene {
    pub(super) store: &'static str,
    /// None for SQLite.
    pub(super) arena: Option<Arena>,
    /// That of SQLite's file; a server's is the arena's.
    disk: Option<Disk>,
    folder: PathBuf,
}

impl Scene {
    /// Starts the servers; a file of SQLite is to be in this folder.
    pub(super) fn start(store: &'static str, folder: &Path, is_short: bool) -> Outcome<Self> {
        let folder = folder.join(format!("{store}-{}", std::process::id()));
        let wanted = Wanted { disk: !is_short, clock: !is_short && has_clock(store) };
        if store != "sqlite" {
            let arena = Some(Arena::start(store, wanted)?);
            return Ok(Self { store, arena, disk: None, folder });
        }
        std::fs::create_dir_all(&folder).map_err(|cause| super::cannot(&folder, &cause))?;
        let disk = if wanted.disk { Disk::mount(&folder)? } else { None };
        Ok(Self { store, arena: None, disk, folder })
    }

    /// The address as the command reads it.
    pub(super) fn url(&self) -> String {
        match &self.arena {
            None => format!("sqlite:{}", self.folder.join("store.db").display()),
            Some(arena) => super::url(self.store, &arena.told),
        }
    }

    /// The disk that can become full.
    pub(super) fn disk(&self) -> Option<&Disk> {
        self.arena.as_ref().map_or(self.disk.as_ref(), |arena| arena.disk.as_ref())
    }

    /// The log of the servers.
    pub(super) fn log(&self) -> String {
        self.arena.as_ref().map_or(String::new(), Arena::log)
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        if self.arena.is_none() {
            self.disk = None;
            // What stays harms nobody.
            let _ = std::fs::remove_dir_all(&self.folder);
        }
    }
}

/// The servers read their clocks by a library that can be replaced.
pub(super) fn has_clock(store: &str) -> bool {
    matches!(store, "postgres" | "pgbouncer" | "mysql")
}
