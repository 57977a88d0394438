//! Crontabs as people and packages write them: what each line means, or where it is wrong.

use super::{BadCrontab, Entry, MAX_LINE, MAX_VARIABLES, When, parse, parse_system};
use crate::{Schedule, Time};

/// The one entry of a file of a user.
fn entry(text: &str) -> Entry {
    let mut entries = parse(text).unwrap_or_else(|bad| panic!("{text:?}: {bad}"));
    assert_eq!(entries.len(), 1, "{text:?}: {entries:?}");
    entries.remove(0)
}

/// The first run after a Thursday's midnight; the text `reboot` for those that have none.
fn first_run(when: &When) -> String {
    let after: Time = "2026-01-01T00:00:00Z".parse().unwrap();
    let next = match when {
        When::Reboot => return "reboot".to_owned(),
        When::Cron(cron) => cron.next_at(after),
        When::Quartz(quartz) => quartz.next_at(after),
        When::Recurrence(rule) => rule.next_at(after),
        When::Every(every) => every.next_at(after),
        When::At(at) => at.next_at(after),
        When::Never(never) => never.next_at(after),
        When::Schedule(schedule) => schedule.next_at(after),
    };
    next.unwrap().format("%m-%d %H:%M").to_string()
}

#[test]
fn lines_of_a_user() {
    for (line, next, command) in [
        ("*/5 * * * * true", "01-01 00:05", "true"),
        ("09,39 * * * * true", "01-01 00:09", "true"),
        ("  \t0\t4  * * *\tbackup  --all ", "01-01 04:00", "backup  --all "),
        ("0 0 * jan-dec sun-sat true", "01-02 00:00", "true"),
        ("0 3 * * 7 true", "01-04 03:00", "true"),
        ("00 03 20,21 * Fri true", "01-02 03:00", "true"),
        ("23 0-23/2 * * * echo 'at the 23rd minute'", "01-01 00:23", "echo 'at the 23rd minute'"),
        ("@daily true", "01-02 00:00", "true"),
        ("@Weekly\ttrue", "01-04 00:00", "true"),
        ("@reboot true", "reboot", "true"),
        ("@REBOOT true", "reboot", "true"),
        ("@every 90m true 1", "01-01 01:30", "true 1"),
        ("@EVERY\t 90m true", "01-01 01:30", "true"),
        ("@every 2w from 2026-01-05T09:00:00Z true", "01-05 09:00", "true"),
        ("@every 1h phase 10m /bin/true", "01-01 00:10", "/bin/true"),
        (
            "@rrule DTSTART:20260102T090000Z RRULE:FREQ=WEEKLY;INTERVAL=2 bin/a RRULE:x",
            "01-02 09:00",
            "bin/a RRULE:x",
        ),
        ("@rrule R/2026-01-02T09:00:00Z/P1M true", "01-02 09:00", "true"),
        ("@every 1h phase 0s true", "01-01 01:00", "true"),
        ("@after_end 90m after -x", "01-01 01:30", "after -x"),
        ("@schedule \"every other friday at 9am from 2026-01-02\" a", "01-02 09:00", "a"),
        ("@Schedule '10 minutes after the end'\ta \"b\"", "01-01 00:10", "a \"b\""),
        ("@schedule \"0 9 3 * *; except SAT SUN; move next\" a", "01-03 09:00", "a"),
        ("@schedule 'first business day of every month at 9:00' a", "01-01 09:00", "a"),
        ("@every 1h /usr/bin/from -c", "01-01 01:00", "/usr/bin/from -c"),
        ("@quartz 0 30 9 ? * 6#1 true", "01-02 09:30", "true"),
        ("0 5 * * * true # nightly", "01-01 05:00", "true # nightly"),
        ("0 5 * * * A=1 true", "01-01 05:00", "A=1 true"),
        ("0 5 * * * root true", "01-01 05:00", "root true"),
        ("0 5 * * * /5 * 3", "01-01 05:00", "/5 * 3"),
        ("0 5 * * * 7z a x", "01-01 05:00", "7z a x"),
        ("0 5 * * * [ -x a ] && a", "01-01 05:00", "[ -x a ] && a"),
        (r"0 5 * * * date +\%d", "01-01 05:00", "date +%d"),
    ] {
        let entry = entry(&format!("{line}\n"));
        assert_eq!((&*first_run(&entry.when), &*entry.command), (next, command), "{line}");
        assert_eq!((entry.line, entry.user, entry.stdin), (1, None, None), "{line}");
    }
}

#[test]
fn what_looks_like_a_start_and_is_none_is_no_command() {
    for (line, column, says) in [
        (
            "@every 2w from /bin/true",
            11,
            "`from` after the period of `@every` is not followed by an",
        ),
        ("@every 2w from", 11, "for a command named `from`, write its path"),
        (
            "@every 1h phase true",
            11,
            "`phase` after the period of `@every` is not followed by a period",
        ),
        ("@every 2w from 2026-01-05 true", 16, "is not an RFC 3339 instant"),
        ("@rrule true", 12, "`@rrule` has no rule"),
        ("@after_end", 11, "`@after_end` has no delay"),
        ("@after_end -5m true", 12, "write a delay after it"),
        ("@schedule every friday true", 11, "no quote follows `@schedule`"),
        ("@schedule", 10, "no quote follows `@schedule`"),
        ("@schedule \"every friday true", 11, "does not end with it"),
        ("@schedule \"@daily\"true", 18, "no blank follows the quotes"),
        ("@schedule \"\" true", 12, "there is nothing in the quotes"),
        ("@schedule \"every day at 25:00\" true", 25, "is not a time of day"),
        ("@schedule \"@daily; except calendar:it\" true", 19, "write its dates"),
        ("@rrule RRULE:FREQ=DAILY true", 24, "has no start to count from"),
        ("@quartz 0 0 9 ? * MON 2027 true", 23, "looks like a seventh time field"),
        ("export A=b", 1, "`export` is a shell's; a crontab's variables have no word in front"),
        ("  export PATH=/bin", 3, "write `PATH=` and the value"),
        ("setenv A b", 1, "write NAME=value"),
        ("0\u{a0}9 * * * true", 2, "a no-break space (U+00A0)"),
        ("0 9 * * *\u{a0}true", 10, "a no-break space (U+00A0)"),
    ] {
        let bad = parse(format!("{line}\n")).expect_err(line);
        let error = &bad.lines()[0];
        assert!(error.to_string().contains(says), "{line}: {error}");
        assert_eq!(error.column(), column, "{line}: {error}");
    }
}

#[test]
fn a_command_that_is_seldom_intended_has_a_warning() {
    let codes = |entry: &Entry| -> Vec<&str> {
        entry.warnings().iter().map(|warning| warning.code).collect()
    };
    for (line, code) in [
        ("0 9 * * * Europe/Rome report", "zone-as-command"),
        ("0 9 * * * UTC report", "zone-as-command"),
        ("* * * * * root report", "user-as-command"),
        ("0 9 * * * dump > dump-$(date +%F)", "cut-at-percent"),
        ("0 9 * * * ls\u{a0}-l", "no-break-space"),
        ("* 2 * * * true", "every-minute"),
        ("@quartz * 0 9 ? * MON true", "every-second"),
    ] {
        assert_eq!(codes(&entry(&format!("{line}\n"))), [code], "{line}");
    }
    for line in ["0 9 * * * bin/report", "0 9 * * * /srv/root/report", r"0 9 * * * date +\%F"] {
        assert_eq!(codes(&entry(&format!("{line}\n"))), [""; 0], "{line}");
    }
    let system = parse_system("* * * * * root true\n").unwrap();
    assert_eq!(codes(&system[0]), [""; 0]);
    let says = |line: &str, part: &str| {
        let message = entry(&format!("{line}\n")).warnings()[0].to_string();
        assert!(message.contains(part), "{message}");
    };
    says("0 9 * * * Europe/Rome report", "write CRON_TZ=Europe/Rome on a line above");
    says("0 9 * * * date +%F", r#"which is "date +" now"#);
    let long = format!("0 9 * * * mysqldump -psecret {} > dump-$(date +%F)", "t".repeat(60));
    assert!(!entry(&format!("{long}\n")).warnings()[0].message.contains("secret"));
}

#[test]
fn lines_of_the_system() {
    for (line, user, command) in [
        (
            "17 *\t* * *\troot\tcd / && run-parts --report /etc/cron.hourly",
            "root",
            "cd / && run-parts --report /etc/cron.hourly",
        ),
        ("09,39 *     * * *     www-data   [ -x a ] && a", "www-data", "[ -x a ] && a"),
        ("@daily DOMAIN\\someone true", "DOMAIN\\someone", "true"),
        ("@every 5m host$ true", "host$", "true"),
        ("@reboot 7up true", "7up", "true"),
        ("0 5 * * * root 5 * 3", "root", "5 * 3"),
    ] {
        let entries =
            parse_system(format!("{line}\n")).unwrap_or_else(|bad| panic!("{line}: {bad}"));
        assert_eq!(
            (entries[0].user.as_deref(), &*entries[0].command),
            (Some(user), command),
            "{line}"
        );
    }
}

#[test]
fn bad_lines_of_a_user() {
    for (line, column, reason) in [
        ("true", 5, "ends after word 1"),
        ("* * * *", 8, "ends after word 4"),
        ("* * * * *", 10, "no command"),
        ("* * * * * \t ", 13, "no command"),
        ("* * * * * %input", 11, "no command"),
        ("61 * * * * true", 1, "minute"),
        ("\t* 24 * * * true", 4, "hour"),
        ("*   *  32\t* * true", 8, "day of month"),
        ("* * * * mond true", 9, "weekday"),
        ("0 0 30 2 * true", 5, "never comes"),
        ("FOO BAR=baz", 12, "ends after word 2"),
        ("0 * * * * * true", 11, "sixth"),
        ("0 0 1 1 * 2026 true", 11, "sixth"),
        ("0 0 1 1 * */2 true", 11, "sixth"),
        ("-* * * * * true", 1, "cronie"),
        ("* * * * * -n true", 11, "flags"),
        ("0~59 * * * * true", 2, "random"),
        ("0 0 ~ * * true", 5, "random"),
        ("@fortnightly true", 1, "macro"),
        ("@every_minute true", 1, "FreeBSD"),
        ("@600 true", 1, "FreeBSD"),
        ("@daily", 7, "no command"),
        ("@reboot ", 9, "no command"),
        ("@every", 7, "no period"),
        ("@every 90m", 11, "no command"),
        ("@every soon true", 8, "period"),
        ("@at soon true", 5, "RFC 3339"),
        ("5=1", 1, "name of a variable"),
        ("  A-B = 1", 3, "name of a variable"),
        ("=1", 1, "name of a variable"),
        ("* = 1", 1, "name of a variable"),
        ("A=\"1", 3, "does not end"),
        ("A = '1' 2", 8, "goes on"),
        ("A=\"1\\\"2\"", 7, "goes on"),
        ("CRON_TZ=Europe/Pariss", 9, "time zone"),
        ("CRON_TZ = \"Nowhere\"", 12, "time zone"),
        ("CRON_TZ=", 9, "time zone"),
        ("* * * * * a\0b", 12, "control character"),
        ("* * * * * a\rb", 12, "control character"),
        ("A=\u{7}", 3, "control character"),
        ("é * * * * true", 1, "ASCII"),
        ("* * * * é true", 9, "ASCII"),
        ("é 0 0 * ~ true", 9, "random"),
    ] {
        let bad = parse(format!("{line}\n")).expect_err(line);
        let found = &bad.lines()[0];
        assert_eq!(
            (bad.lines().len(), found.line(), found.column()),
            (1, 1, column),
            "{line:?}: {bad}"
        );
        assert!(found.reason().contains(reason), "{line:?}: {bad}");
        assert!(!found.remedy().is_empty(), "{line:?}: {bad}");
    }
}

#[test]
fn bad_lines_of_the_system() {
    for (line, column, reason) in [
        ("* * * * *", 10, "neither a user nor a command"),
        ("* * * * * root", 15, "no command"),
        ("* * * * * root  -q true", 17, "flags"),
        ("* * * * * * root true", 11, "sixth"),
        ("* * * * * root:wheel true", 15, "group"),
        ("* * * * * root/daemon true", 15, "group"),
        ("* * * * * /usr/bin/true", 11, "not a user"),
        ("* * * * * -x true", 11, "not a user"),
        ("@daily [ -x a ]", 8, "not a user"),
    ] {
        let bad = parse_system(format!("{line}\n")).expect_err(line);
        let found = &bad.lines()[0];
        assert_eq!((bad.lines().len(), found.column()), (1, column), "{line:?}: {bad}");
        assert!(found.reason().contains(reason), "{line:?}: {bad}");
    }
}

#[test]
fn variables_are_read_as_debian_does() {
    for (line, name, value) in [
        ("  E = bar baz  ", "E", "bar baz"),
        ("E=\"  x \"", "E", "  x "),
        ("'N'='v'", "N", "v"),
        ("\"N\" = v w", "N", "v w"),
        ("MIX=a\"b\"", "MIX", "a\"b\""),
        ("SQ='a \"b\"'", "SQ", "a \"b\""),
        ("MAILTO=", "MAILTO", ""),
        ("MAILTO = \"\"", "MAILTO", ""),
        ("C=x # comment", "C", "x # comment"),
        ("H=$HOME", "H", "$HOME"),
        ("T\t=\ttab\tx\t", "T", "tab\tx"),
        ("P=10%20", "P", "10%20"),
        ("Y=x'", "Y", "x'"),
        ("_1=a=b", "_1", "a=b"),
        ("TZ=Nowhere/Yet", "TZ", "Nowhere/Yet"),
    ] {
        let entry = entry(&format!("{line}\n@daily true\n"));
        assert_eq!(entry.variable(name), Some(value), "{line}");
        assert_eq!(entry.environment.len(), 1, "{line}");
    }
}

#[test]
fn a_variable_holds_for_the_lines_below_it() {
    let entries = parse("A=1\n@daily a\nB=2\nA=3\n@daily b\n").unwrap();
    let of = |index: usize| {
        let all = entries[index].environment.iter();
        all.map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
    };
    assert_eq!((of(0), of(1)), ("A=1".to_owned(), "A=3 B=2".to_owned()));
    assert_eq!(entries[0].variable("B"), None);
}

#[test]
fn each_variable_has_the_number_of_the_line_that_sets_it_last() {
    let entries = parse("# A=0\nA=1\n@daily a\n\n 'B' = 2\r\nA=1\n@daily b\n@daily c\n").unwrap();
    let of = |index: usize| entries[index].environment_lines.to_vec();
    assert_eq!([of(0), of(1), of(2)], [vec![2], vec![6, 5], vec![6, 5]]);
    assert_eq!(entries[0].variable_line("A"), Some(2));
    assert_eq!(entries[1].variable_line("B"), Some(5));
    assert_eq!(entries[0].variable_line("B"), None);
}

#[test]
fn a_bad_line_of_a_variable_does_not_count_as_the_one_that_sets_it() {
    let entries = parse("A=1\nA='x\nA=2\n@daily a\n").unwrap_err().into_entries();
    assert_eq!(entries[0].variable_line("A"), Some(3));
}

#[test]
fn cron_tz_is_the_zone_of_the_schedules_below_it_and_tz_is_not() {
    let text =
        "0 9 * * * a\nTZ=Asia/Tokyo\n0 9 * * * b\nCRON_TZ=Asia/Tokyo\n0 9 * * * c\n@daily d\n";
    let entries = parse(text).unwrap();
    let runs: Vec<String> = entries.iter().map(|entry| first_run(&entry.when)).collect();
    assert_eq!(runs, ["01-01 09:00", "01-01 09:00", "01-02 00:00", "01-01 15:00"]);
    assert_eq!(entries[2].variable("CRON_TZ"), Some("Asia/Tokyo"));
    let names_zone = |entry: &Entry| matches!(&entry.when, When::Cron(cron) if cron.names_zone());
    assert_eq!(entries.iter().map(names_zone).collect::<Vec<_>>(), [false, false, true, true]);
}

/// The lines that are wrong, and the commands of those that are not.
fn sorted(bad: BadCrontab) -> (Vec<usize>, Vec<String>) {
    let lines = bad.lines().iter().map(super::LineError::line).collect();
    (lines, bad.into_entries().into_iter().map(|entry| entry.command).collect())
}

#[test]
fn all_bad_lines_are_reported_and_the_good_ones_are_kept() {
    let bad = parse("@daily a\n\n61 * * * * b\n# c\n@dayly d\n@daily e\n").unwrap_err();
    assert_eq!(bad.to_string().lines().count(), 2);
    assert!(bad.to_string().starts_with("line 3, column 1: minute: \"61\" "), "{bad}");
    assert_eq!(sorted(bad), (vec![3, 5], vec!["a".to_owned(), "e".to_owned()]));
}

#[test]
fn all_errors_of_a_line_are_reported() {
    let bad = parse("A='x\n61 24 1 13 Mond\tb\n0 24 31 2 * c\n").unwrap_err();
    let places: Vec<_> = bad.lines().iter().map(|bad| (bad.line(), bad.column())).collect();
    let expected = [(1, 3), (2, 1), (2, 4), (2, 9), (2, 12), (2, 1), (3, 3), (3, 6), (3, 1)];
    assert_eq!(places, expected, "{bad}");
    let twins = "ALLORA_NAME=a\n@daily a\nALLORA_NAME=a\n61 0 * * * b\n";
    assert_eq!(parse(twins).unwrap_err().lines().len(), 2);
}

#[test]
fn a_job_whose_variable_is_bad_is_not_run_until_it_is_mended() {
    for damaged in ["DIR='x", "DIR=\u{7}", "DIR=x\0", "CRON_TZ=Nowhere"] {
        let name = damaged.split('=').next().unwrap();
        let mended = if name == "DIR" { "DIR=y" } else { "CRON_TZ=UTC" };
        let text =
            format!("@daily a\n{damaged}\n@daily b\nOTHER=1\n@daily c\n{mended}\n@daily d\n");
        let bad = parse(text).unwrap_err();
        assert!(bad.lines()[1].reason().contains(name), "{bad}");
        assert_eq!(sorted(bad), (vec![2, 3, 5], vec!["a".to_owned(), "d".to_owned()]));
    }
}

#[test]
fn a_file_that_may_have_been_cut_short_is_refused() {
    for (text, line, column) in
        [("@daily rm -r /srv/old", 1, 22), ("@daily a\n# comm", 2, 7), ("A=1", 1, 4), ("\n ", 2, 2)]
    {
        let bad = parse(text).expect_err(text);
        let found = &bad.lines()[0];
        assert_eq!((found.line(), found.column()), (line, column), "{text:?}: {bad}");
        assert!(found.reason().contains("cut short"), "{bad}");
    }
    assert!(parse("").unwrap().is_empty());
}

#[test]
fn a_carriage_return_belongs_to_the_line_end() {
    let entry = entry("A=1\r\n\r\n# c\r\n0 5 * * * true%in\r\n");
    assert_eq!((&*entry.command, entry.stdin.as_deref()), ("true", Some("in\n")));
    assert_eq!(entry.variable("A"), Some("1"));
}

#[test]
fn a_comment_may_hold_anything_and_the_rest_is_utf8() {
    assert!(parse(b"# caf\xe9 \0\n").unwrap().is_empty());
    let bad = parse(b"@daily echo caf\xe9\nA=\xe9\n@daily true\n").unwrap_err();
    assert_eq!((bad.lines()[0].column(), bad.lines()[1].column()), (16, 3));
    assert_eq!(sorted(bad), (vec![1, 2, 3], vec![]));
}

#[test]
fn lines_and_environments_have_an_end() {
    let long = |length: usize| format!("@daily {}\n", "x".repeat(length - 7));
    assert!(parse(long(MAX_LINE)).is_ok());
    let bad = parse(long(MAX_LINE + 1)).unwrap_err();
    assert_eq!(bad.lines()[0].column(), MAX_LINE + 1);

    let variables: String = (0..MAX_VARIABLES).map(|number| format!("A{number}=\n")).collect();
    assert!(parse(format!("{variables}A0=1\n@daily true\n")).is_ok());
    assert!(parse(format!("{variables}ONE_MORE=1\n@daily true\n")).is_err());
}

#[test]
fn names_follow_the_line_and_not_its_place() {
    let names = |text: &str| -> Vec<String> {
        parse(text).unwrap().into_iter().map(|entry| entry.name).collect()
    };
    let before = names("0 5 * * * a\n@daily b%c\n");
    assert_eq!(names("# moved\n@daily b%c\nA=1\n\n0\t5 * * *  a\n"), [&*before[1], &*before[0]]);
    assert_ne!(names("0 6 * * * a\n"), before[..1]);
    assert_ne!(names("@daily b%d\n"), before[1..]);
    let equal = names("@daily a\n@daily a\n@daily a\n");
    assert_eq!(equal[1..], [format!("{}-2", equal[0]), format!("{}-3", equal[0])]);
}

#[test]
fn the_correction_of_a_line_does_not_rename_the_others() {
    let name =
        |text: &str| parse(text).unwrap_or_else(BadCrontab::into_entries).pop().unwrap().name;
    assert_eq!(name("A='\n@daily a\nA=1\n@daily a\n"), name("A=2\n@daily a\nA=1\n@daily a\n"));
}

#[test]
fn h_is_spread_by_the_name_of_the_entry() {
    let entries = parse("H H * * * a\nH H * * * b\nH H * * * a\n").unwrap();
    let runs: Vec<String> = entries.iter().map(|entry| first_run(&entry.when)).collect();
    assert!(runs[0] != runs[1] && runs[0] != runs[2], "{runs:?}");
}

#[test]
fn secrets_are_not_shown() {
    let text = "PGPASSWORD='s3cret'\n@daily login%s3cret\nTOKEN=\"s3cret\n@daily x\n";
    let bad = parse(text).unwrap_err();
    assert!(format!("{bad:?}").contains("PGPASSWORD"), "{bad:?}");
    assert!(!format!("{bad:?} {bad}").contains("s3cret"), "{bad:?}");
}

#[test]
fn the_crontab_of_the_examples_is_good() {
    let entries = parse_system(include_str!("../../../examples/crontab")).unwrap();
    assert!(entries.len() >= 15, "{}", entries.len());
    let of = |word: &str| entries.iter().find(|entry| entry.command.contains(word)).unwrap();
    assert!(matches!(of("warm-up").when, When::Reboot));
    assert!(of("checkarray").command.contains("$(date +%d) -le 7"));
    assert_eq!(first_run(&of("certbot").when), "01-01 12:00");
    assert_eq!(of("statement").stdin.as_deref(), Some("period: last month\ncurrency: EUR\n"));
    assert_eq!(of("opening-prices").variable("CRON_TZ"), Some("America/New_York"));
}

#[test]
fn no_bytes_make_it_panic() {
    // Pieces that mean something, in any order, with bytes that mean nothing in between.
    const PIECES: &[&[u8]] = &[
        b"* ",
        b"*/5 ",
        b"0 ",
        b"1-5 ",
        b"H ",
        b"~",
        b"@daily ",
        b"@every ",
        b"90m ",
        b"@reboot ",
        b"root ",
        b"\t",
        b"\n",
        b"\r\n",
        b"%",
        b"\\",
        b"\\%",
        b"A=",
        b"CRON_TZ=",
        b"UTC",
        b"\"",
        b"'",
        b"=",
        b"#",
        b"\0",
        b"\xff",
        "é".as_bytes(),
        b"-n ",
        b"@",
        b"/",
        b",",
        b"L",
        b"(",
        b"true",
    ];
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut draw = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state >> 33).unwrap() % below
    };
    let mut good = 0;
    for _ in 0..20_000 {
        let mut text = Vec::new();
        for _ in 0..draw(24) {
            match draw(12) {
                0 => text.push(u8::try_from(draw(256)).unwrap()),
                _ => text.extend_from_slice(PIECES[draw(PIECES.len())]),
            }
        }
        let entries = [parse(&text), parse_system(&text)];
        for entry in
            entries.into_iter().flat_map(|read| read.unwrap_or_else(BadCrontab::into_entries))
        {
            let bad = |char: char| char.is_control() && char != '\t';
            assert!(
                (1..=200).contains(&entry.name.len()) && !entry.command.contains(bad),
                "{entry:?}"
            );
            assert!(!entry.command.trim().is_empty(), "{entry:?}");
            good += 1;
        }
    }
    assert!(good > 100, "{good}");
}

#[test]
fn seconds_are_a_sixth_field_where_the_crontab_says_so() {
    let entries = crate::crontab::parse(
        "* * * * * before\nALLORA_SECONDS=1\n*/10 * * * * * often --now\n@daily daily\n\
         ALLORA_SECONDS=0\n0 9 * * * after\n",
    )
    .unwrap();
    let read: Vec<(String, &str)> = entries
        .iter()
        .map(|entry| match &entry.when {
            crate::crontab::When::Cron(cron) => (cron.to_string(), entry.command.as_str()),
            other => panic!("{other:?}"),
        })
        .collect();
    let expected = [
        ("* * * * * UTC", "before"),
        ("*/10 * * * * * UTC", "often --now"),
        ("0 0 * * * UTC", "daily"),
        ("0 9 * * * UTC", "after"),
    ];
    assert_eq!(read, expected.map(|(schedule, command)| (schedule.to_owned(), command)));
    let columns = crate::crontab::Columns { seconds: true, ..Default::default() };
    let counts = |text: &str| {
        let entries = crate::crontab::parse_with(text, columns).unwrap();
        entries.into_iter().map(|entry| (entry.command, entry.line)).collect::<Vec<_>>()
    };
    let text =
        "* * * * * * all\nALLORA_SECONDS=0\n* * * * * off\nALLORA_SECONDS=\n* * * * * * on\n";
    let read = [("all", 1), ("off", 3), ("on", 5)].map(|(name, line)| (name.to_owned(), line));
    assert_eq!(counts(text), read);
    let bad = crate::crontab::parse("ALLORA_SECONDS=1\n* * * * *\n").unwrap_err();
    assert!(bad.to_string().contains("write six time fields"), "{bad}");
    let bad = crate::crontab::parse("0 * * * * * true\n").unwrap_err();
    assert!(bad.to_string().contains("ALLORA_SECONDS=1"), "{bad}");
}

#[test]
fn an_instant_is_a_schedule_of_a_line() {
    let entries = crate::crontab::parse("@at 2027-01-01T09:00:00+01:00 echo new year\n").unwrap();
    assert_eq!(entries[0].command, "echo new year");
    let expected = crate::At::parse("2027-01-01T08:00:00Z").unwrap();
    assert_eq!(entries[0].when, crate::crontab::When::At(expected));
    for (line, says) in [
        ("@at\n", "line 1, column 4: `@at` has no instant"),
        ("@at tomorrow true\n", "is not an RFC 3339 instant"),
    ] {
        let bad = crate::crontab::parse(line).unwrap_err().to_string();
        assert!(bad.contains(says), "{bad}");
    }
}

#[test]
fn a_chosen_name_is_of_the_next_line_and_stays_when_that_is_edited() {
    let names = |text: &str| -> Vec<String> {
        parse(text).unwrap().into_iter().map(|entry| entry.name).collect()
    };
    let before = names("ALLORA_NAME=backup\n0 4 * * * dump\n0 5 * * * poll\n");
    let after = names("ALLORA_NAME='backup'\nA=1\n\n0 6 * * * dump --all\n0 5 * * * poll\n");
    assert_eq!((before[0].as_str(), &before), ("backup", &after));
    assert!(before[1].starts_with("poll-"), "{before:?}");
    assert!(names("ALLORA_NAME=a\nALLORA_NAME=\n@daily poll\n")[0].starts_with("poll-"));
    assert_eq!(entry("ALLORA_NAME=a\n@daily poll\n").variable("ALLORA_NAME"), None);
}

#[test]
fn a_name_is_given_once_and_does_not_pass_from_a_bad_line_to_the_next() {
    let bad = parse("ALLORA_NAME=a\n@daily poll\nALLORA_NAME=a\n@daily dump\n").unwrap_err();
    assert_eq!(
        bad.to_string(),
        "line 4, column 1: another line above is named `a`, too; give this line another ALLORA_NAME"
    );
    for line in ["61 * * * * dump", "* * *", "@every"] {
        let bad = parse(format!("ALLORA_NAME=a\n{line}\n@daily poll\n")).unwrap_err();
        assert!(bad.into_entries()[0].name.starts_with("poll-"), "{line}");
    }
    for name in ["a b", "a:b", "a/b", &"x".repeat(201)] {
        let bad = parse(format!("ALLORA_NAME={name}\n")).unwrap_err();
        assert!(bad.to_string().contains("column 13: this cannot be the name of a job"), "{bad}");
    }
}
