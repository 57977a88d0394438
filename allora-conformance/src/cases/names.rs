//! Names, texts, bytes and instants come back as they were given.

use crate::cluster::*;
use allora_core::{
    ErrorKind, MAX_NAME,
    backend::{Action, NewSchedule, NextRun, Operation, Page},
    time::end_of_time,
};
use std::collections::BTreeSet;

/// Pairs and singles that some store takes for the same, for a pattern, or for a part of a command.
const HOSTILE: &[&str] = &[
    "a",
    "A",
    "a.",
    "a b",
    "ab",
    "ß",
    "ss",
    "\u{e9}",
    "e\u{301}",
    "ı",
    "i",
    "I",
    "İ",
    "ﬁ",
    "fi",
    "{",
    "}",
    "{}",
    "a{b}c",
    "{a}",
    ":",
    "a:b",
    "a::b",
    "a:b:c:d:e:f",
    "*",
    "?",
    "[a]",
    "\\",
    "\\\\",
    "/",
    "..",
    "a/b",
    "a//b",
    "a/",
    "job",
    "job2",
    "jo",
    "%",
    "%s",
    "_",
    "$1",
    ":x",
    "%00",
    "\\x00",
    "'; DROP TABLE x; --",
    "'",
    "\"",
    "`",
    "''",
    "con",
    "nul",
    "-rf",
    "--help",
    "@all",
    "null",
    "NULL",
    "0",
    "00",
    "1e400",
    "true",
    "nan",
    "👩‍👩‍👧",
    "🧾",
    "日本",
    "日\u{a0}本",
    "a\u{2009}b",
    "\u{200b}",
];

pub(super) async fn no_two_names_are_the_same(w: &Cluster) {
    let mut long: Vec<String> = HOSTILE.iter().map(|name| (*name).to_owned()).collect();
    long.push("x".repeat(MAX_NAME));
    long.push("x".repeat(MAX_NAME - 1));
    long.push(format!("{}y", "x".repeat(MAX_NAME - 1)));
    long.push("🧾".repeat(MAX_NAME / 4));
    long.push(format!("a{}", "\u{301}".repeat(99)));
    for (i, name) in (0..).zip(&long) {
        w.node().register(t(0), name, t(1_000 + i)).await;
    }
    for (i, name) in (0..).zip(&long) {
        let seen = w.node().read(name).await;
        assert_eq!((&seen.name, seen.due_at), (name, Some(t(1_000 + i))), "{name:?}");
        let claimed =
            w.node().claim(t(5_000), name, once(&seen, 1, Some(t(9_000 + i).into()))).await;
        assert_eq!(won(claimed).occurrence, t(1_000 + i).into(), "{name:?}");
    }
}

pub(super) async fn names_are_listed_in_the_order_of_their_bytes(w: &Cluster) {
    for name in HOSTILE {
        w.node().add(t(0), name, "kind", t(60)).await;
    }
    let sorted: BTreeSet<&str> = HOSTILE.iter().copied().collect();
    let sorted: Vec<&str> = sorted.into_iter().collect();
    assert_eq!(w.node().list(Page::first(1_000)).await, sorted);
    for pair in sorted.windows(2) {
        assert_eq!(w.node().list(Page::first(1).after(pair[0])).await, [pair[1]], "after {pair:?}");
    }
    for prefix in HOSTILE {
        let with: Vec<&&str> = sorted.iter().filter(|name| name.starts_with(prefix)).collect();
        let listed = w.node().list(Page::first(1_000).prefix(prefix)).await;
        assert_eq!(
            listed.iter().map(|name| &**name).collect::<Vec<_>>(),
            with.into_iter().copied().collect::<Vec<_>>(),
            "beginning with {prefix:?}"
        );
    }
}

pub(super) async fn kinds_are_compared_as_bytes(w: &Cluster) {
    for (i, kind) in (0..).zip(HOSTILE) {
        w.node().add(t(0), &format!("job {i}"), kind, t(60)).await;
    }
    for (i, kind) in HOSTILE.iter().enumerate() {
        let (found, _) = w.node().found(&[kind], t(61), 1_000).await;
        assert_eq!(found, [format!("job {i}")], "kind {kind:?}");
        assert_eq!(w.node().list(Page::first(1_000).kind(kind)).await, [format!("job {i}")]);
    }
}

pub(super) async fn a_bad_name_or_kind_is_refused(w: &Cluster) {
    let long = "x".repeat(MAX_NAME + 1);
    for bad in ["", " a", "a ", "a\n", "a\0b", "\u{1b}[31m", "a\u{202e}b", "a\u{2028}b", &long] {
        for (name, kind) in [(bad, "kind"), ("name", bad)] {
            let new = NewSchedule::new(kind, "every 1m", None);
            let refused = w.node().add_one(t(0), name, new).await;
            let error = refused.expect_err("a bad name must be refused");
            assert_eq!(error.kind(), ErrorKind::Invalid, "{bad:?}: {error}");
        }
    }
    assert!(w.node().list(Page::first(9)).await.is_empty());
}

pub(super) async fn data_of_any_bytes_comes_back_whole(w: &Cluster) {
    let any: Vec<u8> = (0..=255).collect();
    let large: Vec<u8> =
        (0..1 << 20).map(|i: u32| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let samples: [&[u8]; 7] =
        [b"", b"\0", b"\xff\xfe", b"{\"n\":9007199254740993}", b"\r\n", &any, &large];
    for (i, data) in samples.into_iter().enumerate() {
        let name = format!("job {i}");
        let new = NewSchedule::new("kind", "every 1m", Some(t(60).into())).data(data);
        let added = fine(w.node().add_one(t(0), &name, new).await);
        assert!(added.data == data, "{name} as added");
        assert!(w.node().shown(&name).await.data == data, "{name} as read");
    }
    for data in samples {
        let generation = w.node().read("job 0").await.generation;
        let edit = edit(generation, None, None, Some(data));
        let edited = fine(w.node().modify(t(1), "job 0", edit).await);
        assert!(edited.data == data && w.node().read("job 0").await.data == data, "as edited");
    }
}

pub(super) async fn too_much_data_is_refused(w: &Cluster) {
    let large = vec![0; (1 << 20) + 1];
    let new = NewSchedule::new("kind", "every 1m", None).data(&large);
    let error = w.node().add_one(t(0), "job", new).await.expect_err("too much data");
    assert_eq!(error.kind(), ErrorKind::Invalid);
    let mine = w.node().add(t(0), "job", "kind", t(60)).await;
    let edit = edit(mine.generation, None, None, Some(&large));
    let error = w.node().modify(t(1), "job", edit).await.expect_err("too much data");
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert_eq!(w.node().read("job").await, mine);
}

pub(super) async fn definitions_come_back_as_they_were_given(w: &Cluster) {
    let long = "0 ".repeat(2_000);
    for definition in ["", " ", "*/5 * * * * Europe/Paris", "é\n'\"\\%s", "'; --", "🧾", &long] {
        let name = format!("job {}", definition.len());
        let act = Action::Register { definition, version: u64::from(u32::MAX), first: None };
        let mine = state(w.node().act(t(0), &name, act).await);
        assert_eq!((&*mine.definition, mine.version), (definition, u64::from(u32::MAX)));
        assert_eq!(w.node().read(&name).await, mine);
    }
}

pub(super) async fn instants_are_exact_to_the_millisecond_up_to_the_year_9999(w: &Cluster) {
    let end = end_of_time();
    let before_end = end - chrono::TimeDelta::milliseconds(1);
    for (i, (at, due_at)) in [
        (ms(1), ms(2)),
        (ms(999), ms(86_400_001)),
        (
            t(253_000_000) + chrono::TimeDelta::milliseconds(123),
            ms(7) + chrono::TimeDelta::days(99_999),
        ),
        (before_end, end),
        (end, end),
    ]
    .into_iter()
    .enumerate()
    {
        let (name, next) = (format!("job {i}"), NextRun { scheduled_at: at, due_at });
        let act = Action::Register { definition: "at", version: 0, first: Some(next) };
        let mine = state(w.node().act(ms(0), &name, act).await);
        assert_eq!((mine.next, mine.due_at), (Some(next), Some(due_at)));
        let almost = due_at - chrono::TimeDelta::milliseconds(1);
        lost(w.node().claim(almost, &name, once(&mine, 1, None)).await);
        let claimed = won(w.node().claim(due_at, &name, once(&mine, 1, None)).await);
        assert_eq!(claimed.occurrence, at.into());
        assert_eq!(w.node().read(&name).await.last_started, Some(at));
    }
}

pub(super) async fn a_large_batch_has_its_replies_by_position(w: &Cluster) {
    let names: Vec<String> = (0..300).rev().map(|i| format!("job {i}")).collect();
    let act = |i: usize| Action::Register {
        definition: "every 1m",
        version: 0,
        first: Some(t(i as i64).into()),
    };
    let operations: Vec<Operation<'_>> =
        names.iter().enumerate().map(|(i, name)| Operation::new(name, act(i))).collect();
    let replies = w.node().replies(t(0), &operations).await;
    for (i, (name, reply)) in names.iter().zip(replies).enumerate() {
        let seen = state(reply);
        assert_eq!((&seen.name, seen.due_at), (name, Some(t(i as i64))));
    }
}
