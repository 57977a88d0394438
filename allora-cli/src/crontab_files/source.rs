//! Where crontabs are, and which form each has.

use super::Diagnostic;
use crate::failure::{Failure, Outcome};
use nix::unistd::{Uid, geteuid};
use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

/// The form of a crontab's lines: with or without a user before the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    User,
    System,
}

/// One crontab.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Source {
    pub(crate) path: PathBuf,
    pub(crate) form: Form,
    /// In the folder of the users' crontabs, whose it is.
    pub(crate) owner: Option<String>,
}

/// The folders in which each file is the crontab of the user of its name.
const SPOOLS: [&str; 3] = ["/var/spool/cron/crontabs", "/var/spool/cron/tabs", "/var/spool/cron"];

/// The crontabs of these paths; a folder stands for the files in it.
///
/// # Errors
/// A path that cannot be read, and two crontabs of one name: jobs are named after their file.
pub(crate) fn find(paths: &[PathBuf], form: Option<Form>) -> Outcome<Vec<Source>> {
    let mut sources: Vec<Source> = Vec::new();
    for path in paths {
        let is_folder = fs::metadata(path)
            .map_err(|error| Failure::wrong(format!("{}: {error}", path.display())))?
            .is_dir();
        let files = if is_folder { in_folder(path)? } else { vec![path.clone()] };
        sources.extend(files.into_iter().map(|path| Source::at(path, form)));
    }
    for (index, source) in sources.iter().enumerate() {
        let twin = sources[..index].iter().find(|other| other.label() == source.label());
        if let Some(twin) = twin {
            return Err(Failure::wrong(format!(
                "{} and {} have one name, after which their jobs are named; rename one",
                twin.path.display(),
                source.path.display()
            )));
        }
    }
    Ok(sources)
}

/// The files of a folder that Debian's cron would read: what editors and packages leave behind has
/// a dot or a tilde in its name.
fn in_folder(folder: &Path) -> Outcome<Vec<PathBuf>> {
    let failed = |error| Failure::wrong(format!("{}: {error}", folder.display()));
    let mut files = Vec::new();
    for file in fs::read_dir(folder).map_err(failed)? {
        let path = file.map_err(failed)?.path();
        if is_read(&path) {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// True if cron would read this file of a folder.
fn is_read(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let good = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    !name.is_empty() && name.bytes().all(good) && path.is_file()
}

/// True if an editor or a package manager leaves files of this name.
fn is_left_behind(path: &Path) -> bool {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let of_packages = [".dpkg-", ".ucf-", ".rpm", ".pacnew", ".pacsave"];
    name.starts_with('.')
        || name.ends_with('~')
        || of_packages.iter().any(|part| name.contains(part))
}

/// The files of these folders that are not read because of their names.
pub(crate) fn ignored(paths: &[PathBuf]) -> Vec<Diagnostic> {
    let mut ignored = Vec::new();
    for folder in paths.iter().filter(|path| path.is_dir()) {
        let files = fs::read_dir(folder).into_iter().flatten().flatten();
        let mut files: Vec<PathBuf> = files.map(|file| file.path()).collect();
        files.sort();
        let is_odd = |path: &PathBuf| path.is_file() && !is_read(path) && !is_left_behind(path);
        for path in files.into_iter().filter(is_odd) {
            let what = "not read, as by cron: in a folder, only names of letters, digits, _ and - \
                        are; rename it, or name the file itself";
            ignored.push(Diagnostic { path, line: None, column: None, what: what.into() });
        }
    }
    ignored
}

impl Source {
    /// The form follows from the folder, unless it is given.
    fn at(path: PathBuf, form: Option<Form>) -> Self {
        let full = fs::canonicalize(&path).unwrap_or_else(|_| path.clone());
        let folder = full.parent();
        let named = |path: &Path, name: &str| path.file_name().is_some_and(|file| file == name);
        let is_system = folder.is_some_and(|folder| {
            named(folder, "cron.d") || (named(folder, "etc") && named(&full, "crontab"))
        });
        let in_spool =
            folder.is_some_and(|folder| SPOOLS.iter().any(|spool| folder == Path::new(spool)));
        let owner = (in_spool && form.is_none()).then(|| label(&path));
        let of_folder = if is_system { Form::System } else { Form::User };
        Self { path, form: form.unwrap_or(of_folder), owner }
    }

    /// The prefix of its jobs' names: the file's name, which is the same on every machine.
    pub(crate) fn label(&self) -> String {
        label(&self.path)
    }

    pub(crate) fn diagnostic(&self, line: Option<usize>, what: impl Into<String>) -> Diagnostic {
        Diagnostic { path: self.path.clone(), line, column: None, what: what.into() }
    }

    /// Reads the file.
    ///
    /// # Errors
    /// It cannot be read, or, where the daemon is root's, another user may write it.
    pub(crate) fn text(&self) -> Result<Vec<u8>, Diagnostic> {
        let failed = |error: std::io::Error| self.diagnostic(None, error.to_string());
        let file = fs::File::open(&self.path).map_err(failed)?;
        let meta = file.metadata().map_err(failed)?;
        if !meta.is_file() {
            return Err(self.diagnostic(None, "this is not a file"));
        }
        if geteuid().is_root() {
            self.check_owner(&meta)?;
        }
        let mut text = Vec::new();
        std::io::Read::read_to_end(&mut std::io::BufReader::new(file), &mut text)
            .map_err(failed)?;
        Ok(text)
    }

    /// Rejects, as cron does, a crontab of root's daemon that another user owns or may write: that
    /// user could run commands as root.
    fn check_owner(&self, meta: &fs::Metadata) -> Result<(), Diagnostic> {
        let owner = Uid::from_raw(meta.uid());
        let user = self.owner.as_ref().and_then(|name| nix::unistd::User::from_name(name).ok()?);
        if !owner.is_root() && user.is_none_or(|user| user.uid != owner) {
            let what = format!(
                "the file belongs to the user of number {owner}, and its commands would run as \
                 root; give it to root"
            );
            return Err(self.diagnostic(None, what));
        }
        if meta.mode() & 0o022 != 0 {
            let what = "others than its owner may write it; `chmod go-w` it".to_owned();
            return Err(self.diagnostic(None, what));
        }
        Ok(())
    }
}

/// The beginning of the names of the jobs of a crontab.
pub(crate) fn prefix(path: &Path) -> String {
    format!("{}:", label(path))
}

fn label(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(path: &str, form: Form, owner: Option<&str>) {
        let source = Source::at(path.into(), None);
        assert_eq!((source.form, source.owner.as_deref()), (form, owner), "{path}");
    }

    #[test]
    fn the_form_follows_from_the_folder() {
        check("/etc/crontab", Form::System, None);
        check("/etc/cron.d/php", Form::System, None);
        check("/srv/package/cron.d/php", Form::System, None);
        check("/var/spool/cron/crontabs/www-data", Form::User, Some("www-data"));
        check("/srv/jobs/crontab", Form::User, None);
        check("jobs", Form::User, None);
    }

    #[test]
    fn a_given_form_is_believed() {
        let source = Source::at("/var/spool/cron/crontabs/x".into(), Some(Form::System));
        assert_eq!((source.form, source.owner), (Form::System, None));
    }
}
