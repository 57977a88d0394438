//! The crontabs on disk, and what of them is in force: a new version that is broken changes
//! nothing.

use super::user::Account;
use crate::{
    crontab_files::{self, Defaults, Diagnostic, Form, Line, Reading, Source, find},
    failure::{Failure, Outcome},
};
use std::{collections::BTreeMap, fs, os::unix::fs::MetadataExt, path::PathBuf};

/// The crontabs that a daemon was given.
#[derive(Debug)]
pub(crate) struct Files {
    paths: Vec<PathBuf>,
    form: Option<Form>,
    defaults: Defaults,
    skip_bad_lines: bool,
    known: BTreeMap<PathBuf, Known>,
    /// Why they could not even be found, as it was said last.
    lost: Option<String>,
}

#[derive(Debug)]
struct Known {
    stamp: Option<Stamp>,
    lines: Vec<Line>,
}

/// The metadata of a file that changes when its contents do.
type Stamp = (u64, u64, i64, i64);

/// The result of reading the changed files.
#[derive(Debug, Default)]
pub(crate) struct Reload {
    /// True if a file was added, changed or removed.
    pub(crate) any: bool,
    pub(crate) diagnostics: Vec<Diagnostic>,
    pub(crate) notices: Vec<Diagnostic>,
}

impl Files {
    pub(crate) fn new(
        paths: Vec<PathBuf>,
        form: Option<Form>,
        defaults: Defaults,
        skip_bad_lines: bool,
    ) -> Self {
        Self { paths, form, defaults, skip_bad_lines, known: BTreeMap::new(), lost: None }
    }

    /// The lines in force.
    pub(crate) fn lines(&self) -> Vec<Line> {
        self.known.values().flat_map(|known| known.lines.clone()).collect()
    }

    /// The number of lines of this crontab that are in force.
    pub(crate) fn in_force(&self, path: &PathBuf) -> usize {
        self.known.get(path).map_or(0, |known| known.lines.len())
    }

    /// Reads what is new; with `all`, everything.
    ///
    /// # Errors
    /// A crontab is gone, or two have one name; said once until that changes. What was in force
    /// stays so.
    pub(crate) fn look(&mut self, all: bool) -> Outcome<Reload> {
        let mut news = Reload::default();
        let sources = match find(&self.paths, self.form) {
            Ok(sources) => sources,
            Err(Failure::Failed(what)) if self.lost.as_ref() == Some(&what) && !all => {
                return Ok(news);
            }
            Err(failure) => {
                if let Failure::Failed(what) = &failure {
                    self.lost = Some(what.clone());
                }
                return Err(failure);
            }
        };
        self.lost = None;
        let before = self.known.len();
        self.known.retain(|path, _| sources.iter().any(|source| source.path == *path));
        news.any = self.known.len() != before;
        for source in sources {
            // Before it is read: what is written meanwhile is seen at the next look.
            let stamp = stamp(&source);
            let known = self.known.get(&source.path);
            if known.is_some_and(|known| known.stamp == stamp && !all) {
                continue;
            }
            news.any = true;
            let Reading { lines, diagnostics, notices } = self.read(&source);
            // A file that cannot be read at all has no good lines.
            let skippable = || diagnostics.iter().all(|diagnostic| diagnostic.line.is_some());
            let good = diagnostics.is_empty() || (self.skip_bad_lines && skippable());
            let lines = good.then_some(lines);
            let old = self.known.remove(&source.path).map(|known| known.lines);
            let lines = lines.or(old).unwrap_or_default();
            self.known.insert(source.path, Known { stamp, lines });
            news.diagnostics.extend(diagnostics);
            news.notices.extend(notices);
        }
        Ok(news)
    }

    fn read(&self, source: &Source) -> Reading {
        let mut reading = match source.text() {
            Ok(text) => crontab_files::read(source, &text, &self.defaults),
            Err(diagnostic) => Reading { diagnostics: vec![diagnostic], ..Reading::default() },
        };
        reading.lines.retain(|line| {
            let account = Account::of(line.shell.user.as_deref());
            let diagnostic = account.err().map(|what| source.diagnostic(Some(line.number), what));
            let good = diagnostic.is_none();
            reading.diagnostics.extend(diagnostic);
            good
        });
        reading
    }
}

fn stamp(source: &Source) -> Option<Stamp> {
    let meta = fs::metadata(&source.path).ok()?;
    Some((meta.ino(), meta.size(), meta.mtime(), meta.mtime_nsec()))
}
