//! The crontabs on disk, and what of them is in force: of a file that is bad from the start the good
//! lines, and a new version that is bad changes nothing.

use super::user::Account;
use crate::{
    crontab_files::{self, Defaults, Diagnostic, EnvFile, Form, Line, Reading, Source, find},
    failure::Outcome,
    output::counted,
};
use std::{collections::BTreeMap, env, fs, os::unix::fs::MetadataExt, path::PathBuf};

/// The crontabs that a daemon was given.
#[derive(Debug)]
pub(crate) struct Files {
    paths: Vec<PathBuf>,
    env_files: Vec<PathBuf>,
    form: Option<Form>,
    defaults: Defaults,
    known: BTreeMap<PathBuf, Known>,
    /// Why they could not even be found, as it was said last.
    lost: Option<String>,
    /// The error of the files of variables; those that were read before stay in force.
    bad_variables: Option<Diagnostic>,
}

#[derive(Debug)]
struct Known {
    stamp: Option<Stamp>,
    lines: Vec<Line>,
    /// The errors of the present version.
    bad: Vec<Diagnostic>,
    /// The lines are of a version before.
    is_kept: bool,
}

/// The effect on the jobs of crontabs that are gone, for messages.
const KEPT: &str = "the jobs that were loaded before keep running";

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
        env_files: Vec<PathBuf>,
        form: Option<Form>,
        defaults: Defaults,
    ) -> Self {
        let (known, lost, bad_variables) = (BTreeMap::new(), None, None);
        Self { paths, env_files, form, defaults, known, lost, bad_variables }
    }

    /// True if a line, or this process, has a variable of this name.
    pub(crate) fn have_variable(&self, name: &str) -> bool {
        let is_it = |(own, _): &(String, String)| own == name;
        let mut lines = self.known.values().flat_map(|known| &known.lines);
        env::var_os(name).is_some() || lines.any(|line| line.shell.environment.iter().any(is_it))
    }

    /// The lines in force.
    pub(crate) fn lines(&self) -> Vec<Line> {
        self.known.values().flat_map(|known| known.lines.clone()).collect()
    }

    /// The bad crontabs of which no line is in force.
    pub(crate) fn hopeless(&self) -> Vec<&PathBuf> {
        let hopeless =
            self.known.iter().filter(|(_, known)| known.lines.is_empty() && !known.bad.is_empty());
        hopeless.map(|(path, _)| path).collect()
    }

    /// Each bad crontab as a condition: its first error, and what runs all the same.
    pub(crate) fn conditions(&self) -> Vec<String> {
        let of_file = |known: &Known| {
            let first = known.bad.first()?;
            let others = match known.bad.len() - 1 {
                0 => String::new(),
                others => format!(" ({} more)", counted(others, "error")),
            };
            let which = match known.is_kept {
                true => "of the version before",
                false => "without an error",
            };
            let lines = counted(known.lines.len(), "line");
            Some(format!("crontab {first}{others}; what runs is {lines} {which}"))
        };
        let lost = self.lost.iter().map(|what| format!("crontab {what}; {KEPT}"));
        let variables = self.bad_variables.iter();
        let variables = variables
            .map(|what| format!("{what}; the variables that were read before stay in force"));
        lost.chain(variables).chain(self.known.values().filter_map(of_file)).collect()
    }

    /// The number of errors.
    pub(crate) fn errors(&self) -> usize {
        self.known.values().map(|known| known.bad.len()).sum::<usize>()
            + usize::from(self.lost.is_some())
            + usize::from(self.bad_variables.is_some())
    }

    /// The beginnings of the names of the jobs that bad crontabs may have: what they would run when
    /// they are corrected is no orphan.
    pub(crate) fn bad_prefixes(&self) -> Vec<String> {
        let bad = self.known.iter().filter(|(_, known)| !known.bad.is_empty());
        bad.map(|(path, _)| crontab_files::prefix(path)).collect()
    }

    /// The number of lines and a hash of them, for each crontab by the name of its jobs.
    pub(crate) fn summaries(&self) -> Vec<(String, String)> {
        let of_file = |(path, known): (&PathBuf, &Known)| {
            let lines = known.lines.iter().map(Line::summary).collect::<String>();
            let (name, count) = (crontab_files::prefix(path), counted(known.lines.len(), "line"));
            (name.trim_end_matches(':').to_owned(), format!("{count} ({:08x})", hash(&lines)))
        };
        self.known.iter().map(of_file).collect()
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
            Err(failure) if self.lost.as_deref() == failure.what() && !all => return Ok(news),
            Err(failure) => {
                self.lost = failure.what().map(str::to_owned);
                return Err(failure);
            }
        };
        self.lost = None;
        if all {
            self.bad_variables = match EnvFile::read(&self.env_files) {
                Ok(env_file) => {
                    self.defaults.env_file = env_file;
                    None
                }
                Err(diagnostic) => {
                    news.diagnostics.push(diagnostic.clone());
                    Some(diagnostic)
                }
            };
        }
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
            let old = self.known.remove(&source.path);
            // The version in force stays, because a bad one may lack lines that are meant to run.
            // Of the same text, as many lines are read again as before, with the variables of today.
            let stays =
                |old: &Known| old.is_kept || old.stamp != stamp || lines.len() < old.lines.len();
            let old =
                old.filter(|old| !diagnostics.is_empty() && !old.lines.is_empty() && stays(old));
            let is_kept = old.as_ref().is_some_and(|old| old.is_kept || old.stamp != stamp);
            let (lines, bad) = (old.map_or(lines, |old| old.lines), diagnostics.clone());
            self.known.insert(source.path, Known { stamp, lines, bad, is_kept });
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

/// FNV-1a, the same in every build: by it daemons tell whether they have the same lines.
fn hash(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

fn stamp(source: &Source) -> Option<Stamp> {
    let meta = fs::metadata(&source.path).ok()?;
    Some((meta.ino(), meta.size(), meta.mtime(), meta.mtime_nsec()))
}
