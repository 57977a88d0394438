//! The kinds of faults, and the waits of occurrences after each.

use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The faults of the servers, with how often each happened.
pub(super) fn injected(result: &Value) -> BTreeMap<String, usize> {
    let mut faults = BTreeMap::new();
    for what in result["injected"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        *faults.entry(what.to_owned()).or_default() += 1;
    }
    faults
}

/// Its faults are not those of the other workers.
const REMOTE: &str = "remote worker";

/// Words of a mark, and the kind of fault that begins with it. Of a worker, then of servers.
pub(super) const KINDS: [(&str, &str, &str); 18] = [
    ("worker", "is killed", "worker killed (SIGKILL)"),
    ("worker", "is frozen", "worker frozen (SIGSTOP), up to 9 s"),
    ("worker", "as by a deployment", "worker stopped, as by a deployment"),
    ("worker", "goes back to the release before", "rollback to the release before"),
    ("worker", "loses an answer", "an answer lost, with its connection"),
    ("worker", "fall silent", "connections silent"),
    ("worker", "ms more", "answers late"),
    ("clock of worker", "is set", "clock of a worker wrong by up to an hour"),
    (REMOTE, "is killed", "remote worker killed (SIGKILL)"),
    (REMOTE, "is frozen", "remote worker frozen (SIGSTOP), up to 9 s"),
    ("primary", "is killed", "primary killed, replica promoted"),
    ("server", "is killed", "server killed (SIGKILL)"),
    ("server", "is frozen", "server frozen (SIGSTOP), up to 8 s"),
    ("server", "is restarted", "server restarted"),
    ("disk", "is full", "disk full"),
    ("store", "was emptied", "store emptied"),
    ("server", "has lost its data", "one server of a quorum emptied"),
    ("clock", "ahead", "clock of the server set ahead, and back"),
];

/// A result as it is kept: the waits after each kind of fault in the place of the faults, which are many.
pub(super) fn short(result: &Value) -> Value {
    let mut waits: BTreeMap<&str, Vec<i64>> = BTreeMap::new();
    for mark in result["verdict"]["faults"].as_array().into_iter().flatten() {
        let what = mark["what"].as_str().unwrap_or_default();
        let is_remote = what.contains(REMOTE);
        let is_it = |(whose, words, _): &&(&str, &str, &str)| {
            what.contains(whose) && what.contains(words) && is_remote == (*whose == REMOTE)
        };
        if let (Some((.., kind)), Some(wait)) =
            (KINDS.iter().find(is_it), mark["longest_ms"].as_i64())
        {
            waits.entry(kind).or_default().push(wait);
        }
    }
    let mut short = result.clone();
    short["injected"] = json!(injected(result));
    if let Value::Object(verdict) = &mut short["verdict"] {
        verdict
            .retain(|field, _| !["faults", "cases", "version", "store"].contains(&field.as_str()));
    }
    short["waits"] = json!(waits);
    short
}

/// The waits after the faults of a kind, in milliseconds.
pub(super) fn waits(result: &Value, kind: &str) -> Vec<i64> {
    let waits = result["waits"][kind].as_array().into_iter().flatten();
    waits.filter_map(Value::as_i64).collect()
}
