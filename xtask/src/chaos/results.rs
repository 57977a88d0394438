//! The results that `RELIABILITY.md` is written from: those of earlier machines, kept in a file beside it, and those
//! of the target folder.

use super::{cannot, kinds::short, revision};
use crate::{
    Failure, Outcome,
    command::{root, target},
};
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

/// The file of the kept results, a line each.
const FILE: &str = "xtask/reliability.jsonl";

/// The chores with results in a folder of the target folder, and whether new results are added to the old ones. The
/// others are about the present code, so that new results take the place of all old ones.
const CHORES: [(&str, bool); 6] = [
    ("chaos", true),
    ("chaos-peers", true),
    ("sim", true),
    ("model", false),
    ("fuzz", false),
    ("mutants", false),
];

/// The results of each chore, each with its name.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Results(BTreeMap<String, BTreeMap<String, Value>>);

impl Results {
    /// The kept ones.
    pub(super) fn kept() -> Outcome<Self> {
        let path = root().join(FILE);
        let text = fs::read_to_string(&path).unwrap_or_default();
        Self::parse(&text).map_err(|cause| wrong(&path, &cause))
    }

    /// Adds those of the target folder, and keeps all of them.
    pub(super) fn with_new() -> Outcome<Self> {
        let mut results = Self::kept()?;
        for (chore, adds_up) in CHORES {
            let new = new(chore)?;
            let own = results.0.entry(chore.to_owned()).or_default();
            if !adds_up && !new.is_empty() {
                own.clear();
            }
            own.extend(new);
        }
        let path = root().join(FILE);
        fs::write(&path, results.text()).map_err(|cause| cannot(&path, &cause))?;
        Ok(results)
    }

    /// Those of this chore, in the order of their names.
    pub(super) fn of(&self, chore: &str) -> Vec<Value> {
        self.0.get(chore).into_iter().flat_map(|own| own.values().cloned()).collect()
    }

    fn parse(text: &str) -> serde_json::Result<Self> {
        let mut results = Self::default();
        for line in text.lines() {
            let (chore, name, result) = serde_json::from_str(line)?;
            results.0.entry(chore).or_default().insert(name, result);
        }
        Ok(results)
    }

    fn text(&self) -> String {
        let each = self.0.iter().flat_map(|(chore, own)| own.iter().map(move |one| (chore, one)));
        each.map(|(chore, (name, result))| format!("{}\n", json!([chore, name, result]))).collect()
    }
}

/// The results of a chore in the target folder, each with the name of its file and with its revision.
fn new(chore: &str) -> Outcome<BTreeMap<String, Value>> {
    let files = fs::read_dir(target().join(chore)).into_iter().flatten().flatten();
    let paths = files.map(|file| file.path());
    let paths: Vec<PathBuf> =
        paths.filter(|path| path.extension().is_some_and(|end| end == "json")).collect();
    let read = |path: PathBuf| {
        let text = fs::read_to_string(&path).map_err(|cause| cannot(&path, &cause))?;
        let mut result: Value =
            serde_json::from_str(&text).map_err(|cause| wrong(&path, &cause))?;
        if chore == "chaos" {
            result = short(&result);
        }
        if let Value::Object(fields) = &mut result {
            fields.entry("revision").or_insert_with(|| revision().into());
        }
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        Ok((name, result))
    };
    paths.into_iter().map(read).collect()
}

fn wrong(path: &Path, cause: &serde_json::Error) -> Failure {
    Failure::Check(format!("{}: {cause}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kept_results_are_read_again() {
        let text = "[\"chaos\",\"redis-7\",{\"due\":5}]\n[\"sim\",\"0\",{\"runs\":9}]\n";
        let results = Results::parse(text).unwrap();
        assert_eq!(results.of("chaos"), [json!({ "due": 5 })]);
        assert!(results.of("fuzz").is_empty());
        assert_eq!(results.text(), text);
    }
}
