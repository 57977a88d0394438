//! Kinds with a selector of nodes: `command@gpu,!spot` runs on nodes with the label `gpu` and without
//! `spot`. As a part of the kind, the selector needs no column, and other nodes do not find the
//! schedule.

use super::{COMMAND, HTTP};
use crate::failure::{Failure, Outcome};
use allora_core::LabelSelector;

/// The kind without its selector.
pub(crate) fn base(kind: &str) -> &str {
    split(kind).map_or(kind, |(base, _)| base)
}

/// The kind with this selector, in place of the one that it has; without any if it is empty.
///
/// # Errors
/// The labels are malformed, or the kind is not one of the daemon's: nodes choose the others
/// themselves.
pub(crate) fn with_labels(kind: &str, labels: &str) -> Outcome<String> {
    let base = base(kind);
    if !matches!(base, COMMAND | HTTP) {
        return Err(Failure::Invalid(format!(
            "--label is only for the kinds {COMMAND} and {HTTP}; a node that runs {kind:?} chooses its \
             kinds in its code"
        )));
    }
    let selector = labels
        .parse()
        .map_err(|error: allora_core::Error| Failure::Invalid(format!("--label: {error}")))?;
    Ok(on_nodes(base, &selector))
}

/// The kind, for these nodes.
pub(crate) fn on_nodes(base: &str, selector: &LabelSelector) -> String {
    if selector.is_empty() { base.to_owned() } else { format!("{base}@{selector}") }
}

/// The kind with its labels ordered, each once: schedules for the same nodes are of one kind.
///
/// # Errors
/// The labels are malformed.
pub(crate) fn canonical(kind: &str) -> Result<String, allora_core::Error> {
    match split(kind) {
        Some((base, labels)) => Ok(on_nodes(base, &labels.parse()?)),
        None => Ok(kind.to_owned()),
    }
}

/// The way to a node that runs schedules of this kind.
pub(crate) fn remedy(kind: &str) -> String {
    let (base, labels) = split(kind).unwrap_or((kind, ""));
    let selector = labels.parse::<LabelSelector>();
    let (COMMAND | HTTP, Ok(selector)) = (base, selector) else {
        return "start one with a handler for it".into();
    };
    let mut remedy = format!("start one with `allora run --stored={base}");
    for label in selector.required() {
        remedy += &format!(" --node-label {label}");
    }
    remedy.push('`');
    let excluded: Vec<&str> = selector.excluded().collect();
    if !excluded.is_empty() {
        remedy += &format!(", without the label {}", excluded.join(" or "));
    }
    remedy
}

/// The kind and the labels of a kind of the daemon's that has labels.
fn split(kind: &str) -> Option<(&str, &str)> {
    kind.split_once('@').filter(|(base, _)| matches!(*base, COMMAND | HTTP))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_labels_are_one_kind() {
        for (kind, is) in [
            ("command", "command"),
            ("command@!spot,gpu,gpu", "command@gpu,!spot"),
            ("http@", "http"),
            ("mail@b,a", "mail@b,a"),
        ] {
            assert_eq!(canonical(kind).unwrap(), is);
        }
        assert!(canonical("command@gpu,!gpu").is_err());
    }

    #[test]
    fn labels_replace_those_of_the_kind() {
        let kind = |kind, labels| with_labels(kind, labels).unwrap();
        assert_eq!(kind("command@big", "!spot,gpu"), "command@gpu,!spot");
        assert_eq!(kind("http@big", ""), "http");
        assert!(with_labels("report", "gpu").is_err() && with_labels("command", "a@b").is_err());
    }

    #[test]
    fn the_remedy_names_the_options_of_a_daemon() {
        for (kind, is) in [
            ("command", "start one with `allora run --stored=command`"),
            (
                "http@big,gpu",
                "start one with `allora run --stored=http --node-label big --node-label gpu`",
            ),
            (
                "command@gpu,!spot",
                "start one with `allora run --stored=command --node-label gpu`, without the label spot",
            ),
            ("report", "start one with a handler for it"),
        ] {
            assert_eq!(remedy(kind), is);
        }
    }
}
