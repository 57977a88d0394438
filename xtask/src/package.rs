//! The packages of the workspace, as cargo sees them.

use crate::{
    Failure, Outcome,
    command::{cargo, root},
};
use serde_json::Value;

/// One package of the workspace.
#[derive(Debug, PartialEq)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) benches: Vec<String>,
    /// The arguments of each build that is checked: one for a package without features. With features:
    /// none of them, the default ones, all, and each alone, unless some are on by default.
    pub(crate) feature_sets: Vec<Vec<String>>,
}

/// Every package of the workspace, in the order of their names.
///
/// # Errors
/// If cargo cannot read a manifest, or if `Cargo.lock` is not up to date.
pub(crate) fn all() -> Outcome<Vec<Package>> {
    let output = cargo(&["metadata", "--no-deps", "--locked", "--format-version", "1"])
        .current_dir(root())
        .output()
        .map_err(|cause| Failure::Check(format!("cargo metadata did not start: {cause}")))?;
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr);
        return Err(Failure::Check(format!("cargo metadata: {}", why.trim())));
    }
    parse(&output.stdout)
}

fn parse(metadata: &[u8]) -> Outcome<Vec<Package>> {
    let metadata: Value = serde_json::from_slice(metadata)
        .map_err(|cause| Failure::Check(format!("cargo metadata is not JSON: {cause}")))?;
    let mut packages: Vec<Package> = items(&metadata["packages"]).map(package).collect();
    packages.sort_by(|a, b| a.name.cmp(&b.name));
    if packages.is_empty() {
        return Err(Failure::Check("cargo metadata names no package".into()));
    }
    Ok(packages)
}

fn package(metadata: &Value) -> Package {
    let benches = items(&metadata["targets"])
        .filter(|target| items(&target["kind"]).any(|kind| kind == "bench"))
        .map(|target| text(&target["name"]))
        .collect();
    Package { name: text(&metadata["name"]), benches, feature_sets: feature_sets(metadata) }
}

fn feature_sets(metadata: &Value) -> Vec<Vec<String>> {
    let Some(features) = metadata["features"].as_object().filter(|all| !all.is_empty()) else {
        return vec![vec![]];
    };
    let default_adds = features.get("default").is_some_and(|default| items(default).count() > 0);
    let mut named = features.keys().filter(|name| *name != "default").peekable();
    let set = |args: &[&str]| args.iter().map(|arg| (*arg).to_owned()).collect();
    let mut sets = vec![set(&["--no-default-features"])];
    if default_adds {
        sets.push(vec![]);
    }
    if named.peek().is_some() {
        sets.push(set(&["--all-features"]));
    }
    if !default_adds && features.len() > 2 {
        sets.extend(named.map(|name| set(&["--no-default-features", "--features", name])));
    }
    sets
}

fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sets_of(features: &str) -> Vec<String> {
        let text = format!(r#"{{"packages": [{{"name": "p", "features": {features}}}]}}"#);
        let sets = parse(text.as_bytes()).unwrap().remove(0).feature_sets;
        sets.iter().map(|set| set.join(" ")).collect()
    }

    #[test]
    fn only_builds_that_differ_are_made() {
        let (none, all) = ("--no-default-features", "--all-features");
        assert_eq!(sets_of("{}"), [""]);
        assert_eq!(sets_of(r#"{"default": [], "tokio": []}"#), [none, all]);
        assert_eq!(sets_of(r#"{"default": ["tokio"], "tokio": []}"#), [none, "", all]);
        let [a, b] = ["a", "b"].map(|name| format!("{none} --features {name}"));
        assert_eq!(sets_of(r#"{"default": [], "a": [], "b": []}"#), [none, all, &a, &b]);
    }

    #[test]
    fn the_workspace_is_found() {
        let names: Vec<String> = all().unwrap().into_iter().map(|package| package.name).collect();
        assert!(names.contains(&"allora-core".to_owned()), "{names:?}");
        assert!(names.contains(&"xtask".to_owned()), "{names:?}");
    }

    #[test]
    fn what_is_not_metadata_is_an_error() {
        assert!(parse(b"").is_err());
        assert!(parse(b"{}").is_err());
    }
}
