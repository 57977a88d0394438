//! The text files of the workspace, in memory.

use std::{collections::BTreeSet, fs, io, path::Path};

/// Folders without sources: the folders of cargo and git (a file in a linked work tree), and what
/// tools leave behind.
const SKIPPED: &[&str] = &[".git", "target", "node_modules", ".venv"];

/// A text file; its path is relative to the workspace, with `/` between the parts.
#[derive(Debug)]
pub(crate) struct File {
    pub(crate) path: String,
    pub(crate) text: String,
}

impl File {
    pub(crate) fn is(&self, extension: &str) -> bool {
        self.path.rsplit_once('.').is_some_and(|(_, found)| found == extension)
    }

    /// True if it is in a folder for tests, or is a module of tests.
    pub(crate) fn is_test(&self) -> bool {
        let path = format!("/{}", self.path);
        path.contains("/tests/") || path.ends_with("/tests.rs")
    }

    /// True if people do not edit it.
    pub(crate) fn is_given(&self) -> bool {
        self.path == "Cargo.lock" || self.path.starts_with("LICENSE-")
    }

    /// Its lines, counted from 1, without their line feeds (a carriage return stays).
    pub(crate) fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        let lines = self.text.split('\n').count();
        let whole = if self.text.ends_with('\n') { lines - 1 } else { lines };
        self.text.split('\n').take(whole).enumerate().map(|(index, line)| (index + 1, line))
    }
}

/// Every file, and the names of all files and folders.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    pub(crate) files: Vec<File>,
    names: BTreeSet<String>,
}

impl Tree {
    /// Reads the workspace; what is not UTF-8 has a name only.
    ///
    /// # Errors
    /// If a folder or a file cannot be read.
    pub(crate) fn read(root: &Path) -> io::Result<Self> {
        let mut tree = Self::default();
        tree.read_folder(root, "")?;
        Ok(tree)
    }

    fn read_folder(&mut self, folder: &Path, prefix: &str) -> io::Result<()> {
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let Ok(name) = entry.file_name().into_string() else { continue };
            let kind = entry.file_type()?;
            if SKIPPED.contains(&&*name) {
                continue;
            }
            let path = format!("{prefix}{name}");
            self.names.insert(path.clone());
            if kind.is_dir() {
                self.read_folder(&entry.path(), &format!("{path}/"))?;
            } else if kind.is_file()
                && let Ok(text) = String::from_utf8(fs::read(entry.path())?)
            {
                self.files.push(File { path, text });
            }
        }
        Ok(())
    }

    /// True if there is a file or folder of this name.
    pub(crate) fn has(&self, path: &str) -> bool {
        self.names.contains(path)
    }

    /// True if a file or folder has these last parts of its path.
    pub(crate) fn has_end(&self, parts: &str) -> bool {
        let end = format!("/{parts}");
        self.names.iter().any(|name| name.ends_with(&end))
    }

    /// The files with this extension.
    pub(crate) fn with(&self, extension: &str) -> impl Iterator<Item = &File> {
        self.files.iter().filter(move |file| file.is(extension))
    }

    /// A tree that was never on a disk.
    #[cfg(test)]
    pub(crate) fn of(files: &[(&str, &str)]) -> Self {
        let mut tree = Self::default();
        for (path, text) in files {
            let ends = path.match_indices('/').map(|(end, _)| end).chain([path.len()]);
            tree.names.extend(ends.map(|end| path[..end].to_owned()));
            tree.files.push(File { path: (*path).to_owned(), text: (*text).to_owned() });
        }
        tree
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_workspace_is_read_but_not_what_was_built_from_it() {
        let tree = Tree::read(crate::command::root()).unwrap();
        assert!(tree.has("xtask/src/tidy/tree.rs") && tree.has("xtask/src"));
        assert!(tree.files.iter().any(|file| file.path == "Cargo.toml"));
        assert!(!tree.files.iter().any(|file| file.path.starts_with("target/")));
    }

    #[test]
    fn lines_are_counted_as_editors_do() {
        let count = |text: &str| Tree::of(&[("f", text)]).files[0].lines().count();
        assert_eq!(
            (count(""), count("\n"), count("a"), count("a\n"), count("a\n\n")),
            (1, 1, 1, 1, 2)
        );
    }
}
