//! The text of a node's record: one line of fields `key=value`. A reader ignores fields that it does
//! not know.

use super::{
    NodeInfo, RunProgress,
    node_info::{LEFT, NAMES},
    program::KEPT,
};
use crate::{
    pattern::Pattern,
    time::{Time, from_millis},
};
use chrono::SecondsFormat;
use std::{collections::BTreeMap, fmt::Write, time::Duration};

/// The largest number of bytes of the kinds, and of each list of labels.
const KINDS: usize = 4_096;
const LABELS: usize = 1_024;

/// The largest number of bytes of the settings, of the progress of runs, and of the prefixes of kept jobs.
const SETTINGS: usize = 1_024;
const PROGRESS: usize = 1_024;
const PREFIXES: usize = 512;

/// The largest number of problems and of examples, and of bytes of each.
const NOTES: usize = 8;
const NOTE: usize = 160;

/// Writes the text. The bounds of [`NodeInfo`] hold for what is written.
pub(crate) fn encode(info: &NodeInfo) -> String {
    let mut text = String::with_capacity(256);
    // The text of every write differs, so that a reply with this text proves the write.
    push(&mut text, "seen", &shown(info.last_seen));
    push(&mut text, "started", &shown(info.started_at));
    push(&mut text, "heartbeat", &info.heartbeat.as_millis().to_string());
    for (key, number) in
        [("concurrency", info.concurrency), ("running", info.running), ("jobs", info.jobs)]
    {
        push(&mut text, key, &number.to_string());
    }
    push(&mut text, "hash", &format!("{:016x}", info.jobs_hash));
    if info.is_stopping {
        push(&mut text, "stopping", "yes");
    }
    // Without it, the reader does not know them.
    if let Some(names) = info.job_names.as_ref().filter(|names| names.len() <= NAMES) {
        push(&mut text, "names", &shown_hashes(names));
    }
    if !info.left_jobs.is_empty() {
        let left = &info.left_jobs[..info.left_jobs.len().min(LEFT)];
        push(&mut text, "leaves", &shown_hashes(left));
    }
    push(&mut text, "format", &info.format.to_string());
    if let Some(version) = &info.version {
        push(&mut text, "version", version);
    }
    let kinds = info.kinds.iter().map(Pattern::word_and_text);
    let labels = info.labels.iter().map(|label| ("label", label.as_str()));
    let needed = info.needed_labels.iter().map(|label| ("needs", label.as_str()));
    let whole = list(&mut text, kinds, KINDS)
        & list(&mut text, labels, LABELS)
        & list(&mut text, needed, LABELS);
    if !(whole && info.is_complete) {
        push(&mut text, "more", "yes");
    }
    if info.kinds_change {
        push(&mut text, "kinds-change", "yes");
    }
    keeps(&mut text, info);
    let settings: Vec<String> =
        info.settings.iter().map(|(name, value)| format!("{name}={value}")).collect();
    // One that has no room is not compared.
    let _ = list(&mut text, settings.iter().map(|one| ("setting", one.as_str())), SETTINGS);
    let shown = |run: &RunProgress| format!("{} {}\n{}", run.fence, run.name, run.text);
    let progress: Vec<String> = info.progress.iter().map(shown).collect();
    // What has no room is not shown.
    let _ = list(&mut text, progress.iter().map(|one| ("progress", one.as_str())), PROGRESS);
    if let Some(name) = &info.unique_name {
        push(&mut text, "name", cut(name));
    }
    for problem in info.problems.iter().take(NOTES) {
        push(&mut text, "problem", cut(problem));
    }
    if info.orphans > 0 {
        push(&mut text, "orphans", &info.orphans.to_string());
    }
    for orphan in info.orphan_examples.iter().take(NOTES) {
        push(&mut text, "orphan", orphan);
    }
    text
}

/// Writes the jobs that the node keeps. If they have no room, it keeps all jobs: every name begins
/// with the empty text.
fn keeps(text: &mut String, info: &NodeInfo) {
    let before = text.len();
    if !info.kept_names.is_empty() {
        let hashes: String = info.kept_names.iter().map(|hash| format!("{hash:08x}")).collect();
        push(text, "kept", &hashes);
    }
    let prefixes = info.kept_prefixes.iter().map(|prefix| ("keeps", prefix.as_str()));
    if !list(text, prefixes, PREFIXES) || info.kept_names.len() > KEPT {
        text.truncate(before);
        push(text, "keeps", "");
    }
}

/// Reads the text of the record of `node`; `None` if it is none. `is_live` is not in it.
pub(crate) fn decode(node: &str, text: &str) -> Option<NodeInfo> {
    let mut info = NodeInfo {
        node: node.to_owned(),
        version: None,
        format: 1,
        kinds: Vec::new(),
        kinds_change: false,
        labels: Vec::new(),
        needed_labels: Vec::new(),
        is_complete: true,
        concurrency: 0,
        running: 0,
        progress: Vec::new(),
        jobs: 0,
        jobs_hash: 0,
        job_names: None,
        kept_names: Vec::new(),
        kept_prefixes: Vec::new(),
        settings: BTreeMap::new(),
        unique_name: None,
        left_jobs: Vec::new(),
        problems: Vec::new(),
        orphans: 0,
        orphan_examples: Vec::new(),
        started_at: Time::UNIX_EPOCH,
        heartbeat: Duration::ZERO,
        last_seen: Time::UNIX_EPOCH,
        is_live: false,
        is_stopping: false,
    };
    let mut has_seen = false;
    for field in text.split(' ') {
        let (key, value) = field.split_once('=')?;
        let value = unescaped(value)?;
        match key {
            "seen" => (info.last_seen, has_seen) = (time(&value)?, true),
            "started" => info.started_at = time(&value)?,
            "heartbeat" => info.heartbeat = Duration::from_millis(value.parse().ok()?),
            "concurrency" => info.concurrency = value.parse().ok()?,
            "running" => info.running = value.parse().ok()?,
            "jobs" => info.jobs = value.parse().ok()?,
            "hash" => info.jobs_hash = u64::from_str_radix(&value, 16).ok()?,
            "names" => info.job_names = Some(hashes(&value)?),
            "leaves" => info.left_jobs = hashes(&value)?,
            "version" => info.version = Some(value),
            "format" => info.format = value.parse().ok()?,
            "label" => info.labels.push(value),
            "needs" => info.needed_labels.push(value),
            "stopping" => info.is_stopping = true,
            "kinds-change" => info.kinds_change = true,
            "more" => info.is_complete = false,
            "kept" => info.kept_names = hashes(&value)?,
            "keeps" => info.kept_prefixes.push(value),
            "setting" => info.settings.extend(
                value.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned())),
            ),
            "progress" => info.progress.push(run_progress(&value)?),
            "name" => info.unique_name = Some(value),
            "problem" => info.problems.push(value),
            "orphans" => info.orphans = value.parse().ok()?,
            "orphan" => info.orphan_examples.push(value),
            _ => info.kinds.extend(Pattern::of_word(key, &value)),
        }
    }
    has_seen.then_some(info)
}

fn run_progress(value: &str) -> Option<RunProgress> {
    let (fence, rest) = value.split_once(' ')?;
    let (name, text) = rest.split_once('\n')?;
    Some(RunProgress { name: name.to_owned(), fence: fence.parse().ok()?, text: text.to_owned() })
}

/// Writes as many fields as have room. Returns `true` if these are all.
fn list<'a>(
    text: &mut String,
    fields: impl Iterator<Item = (&'static str, &'a str)>,
    most: usize,
) -> bool {
    let end = text.len() + most;
    for (key, value) in fields {
        let before = text.len();
        push(text, key, value);
        if text.len() > end {
            text.truncate(before);
            return false;
        }
    }
    true
}

fn push(text: &mut String, key: &str, value: &str) {
    if !text.is_empty() {
        text.push(' ');
    }
    text.push_str(key);
    text.push('=');
    for c in value.chars() {
        if c <= ' ' || c == '%' || c == '\u{7f}' {
            let _ = write!(text, "%{:02x}", c as u32);
        } else {
            text.push(c);
        }
    }
}

fn unescaped(value: &str) -> Option<String> {
    let mut parts = value.split('%');
    let mut text = parts.next()?.to_owned();
    for part in parts {
        let (code, rest) = part.split_at_checked(2)?;
        text.push(char::from(u8::from_str_radix(code, 16).ok()?));
        text.push_str(rest);
    }
    Some(text)
}

/// Hashes of eight digits each.
fn shown_hashes(hashes: &[u32]) -> String {
    hashes.iter().map(|hash| format!("{hash:08x}")).collect()
}

/// Reads hashes of eight digits each.
fn hashes(text: &str) -> Option<Vec<u32>> {
    let digits = text.as_bytes().chunks(8);
    digits.map(|hash| u32::from_str_radix(str::from_utf8(hash).ok()?, 16).ok()).collect()
}

/// The beginning of a text, up to [`NOTE`] bytes.
fn cut(text: &str) -> &str {
    let mut end = text.len().min(NOTE);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

fn shown(at: Time) -> String {
    at.to_rfc3339_opts(SecondsFormat::Millis, true)
}

fn time(text: &str) -> Option<Time> {
    let at = chrono::DateTime::parse_from_rfc3339(text).ok()?;
    from_millis(at.timestamp_millis())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info() -> NodeInfo {
        NodeInfo {
            version: Some("1.2 beta".into()),
            format: 7,
            kinds: vec![
                "report".into(),
                Pattern::prefix("sync. 100%"),
                Pattern::regex("^(sms|fax)$").unwrap(),
                Pattern::labelled("command", ["gpu", "big"]),
                Pattern::labelled("http@v2", [""; 0]),
            ],
            kinds_change: true,
            labels: vec!["gpu".into(), "a=b".into()],
            needed_labels: vec!["tape".into()],
            concurrency: 7,
            running: 2,
            progress: vec![RunProgress {
                name: "acme report".into(),
                fence: 7,
                text: "40 %\nüber".into(),
            }],
            jobs: 3,
            jobs_hash: u64::MAX,
            job_names: Some(vec![7, u32::MAX, 0]),
            kept_names: vec![9, 8],
            kept_prefixes: vec!["bad file:".into()],
            settings: BTreeMap::from([("the zone".into(), "a=b c".into())]),
            unique_name: Some("host 1".into()),
            left_jobs: vec![u32::MAX, 0],
            problems: vec!["job \"x\": two\nlines".into()],
            orphans: 1,
            orphan_examples: vec!["old job".into()],
            started_at: from_millis(1_000).unwrap(),
            heartbeat: Duration::from_secs(15),
            last_seen: from_millis(2_001).unwrap(),
            is_stopping: true,
            ..decode("n", "seen=1970-01-01T00:00:00Z").unwrap()
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let text = encode(&info());
        assert!(!text.contains('\n'), "{text}");
        assert_eq!(decode("n", &text), Some(info()));
    }

    #[test]
    fn fields_of_a_newer_build_are_ignored_and_another_text_is_no_node() {
        let text = encode(&info()) + " colour=green";
        assert_eq!(decode("n", &text), Some(info()));
        for other in ["", "mutex group", "seen=", "jobs=1", "seen=1970-01-01T00:00:00Z jobs=%e"] {
            assert_eq!(decode("n", other), None, "{other}");
        }
    }

    #[test]
    fn any_text_is_refused_or_read_and_written_as_it_was_read() {
        let (text, mut read) = (encode(&info()), 0);
        for text in allora_conformance::mutations(&[text.as_bytes()], 38, 2_000) {
            let node = String::from_utf8(text).ok().and_then(|text| decode("n", &text));
            let Some(node) = node else { continue };
            read += 1;
            // The second writing: the first one sorts the fields, and cuts what is too long.
            let again = decode("n", &encode(&node)).expect("what is written is read");
            assert_eq!(decode("n", &encode(&again)), Some(again), "{node:?}");
        }
        assert!((100..2_000).contains(&read), "{read}");
    }

    #[test]
    fn a_text_has_at_most_sixteen_kibibytes_and_says_if_it_is_not_whole() {
        let many = |what: &str| (0..10_000).map(|n| format!("{what} {n}")).collect::<Vec<_>>();
        let info = NodeInfo {
            kinds: many("kind").into_iter().map(Pattern::from).collect(),
            labels: many("label"),
            needed_labels: many("other"),
            problems: many(&"ü".repeat(5_000)),
            orphan_examples: many("orphan"),
            job_names: Some(vec![u32::MAX; NAMES]),
            kept_names: vec![u32::MAX; KEPT],
            settings: many("setting").into_iter().map(|name| (name, "v".repeat(99))).collect(),
            unique_name: Some("n".repeat(5_000)),
            progress: vec![info().progress[0].clone(); 1_000],
            left_jobs: vec![1; 2 * LEFT],
            ..info()
        };
        let text = encode(&info);
        assert!(text.len() < 16 << 10, "{}", text.len());
        let read = decode("n", &text).unwrap();
        assert!(!read.is_complete && read.handles("anything"), "{read:?}");
        assert_eq!((read.problems.len(), read.orphan_examples.len()), (8, 8));
        for kept in [
            NodeInfo { kept_names: vec![1; KEPT + 1], ..info.clone() },
            NodeInfo { kept_prefixes: many("file"), ..info },
        ] {
            let text = encode(&kept);
            assert!(text.len() < 16 << 10, "{}", text.len());
            assert!(decode("n", &text).unwrap().keeps("any job"));
        }
    }
}
