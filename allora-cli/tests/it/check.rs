//! Crontabs with which a daemon does not start, and `--check`.

use crate::{allora::allora, site::Site};

/// Fifty lines, the thirtieth of which is bad.
fn one_bad_among_fifty() -> String {
    let good = |n: usize| format!("{} 4 * * * job-{n}\n", n % 60);
    let lines = (1..=50).map(|n| if n == 30 { "0 24 * * * late\n".into() } else { good(n) });
    lines.collect()
}

#[test]
fn every_bad_line_is_reported_with_its_place() {
    let site = Site::new(
        "MAILTO=ops@example.org\n61 * * * * a\n0 0 * * * fine\n0 0 * * Mond b\nALLORA_TIMEOUT=soon\n\
         @daily c\n@daily d\nALLORA_TIMEOUT=1h\nALLORA_TIMOUT=1h\n@daily e\n",
    );
    let said = site.allora(&["run", "--check", "jobs"]);
    assert_eq!((said.code, said.out.as_str()), (1, "1 job, 4 errors.\n"));
    let places: Vec<&str> = said.err.lines().map(|line| line.split(": ").nth(1).unwrap()).collect();
    assert_eq!(places, ["jobs:2:1", "jobs:4:9", "jobs:5", "jobs:9", "jobs:1"], "{}", said.err);
    assert!(said.err.lines().last().unwrap().starts_with("warning: jobs:1: MAILTO"));
}

#[test]
fn all_errors_of_a_line_are_reported() {
    let site = Site::new(
        "ALLORA_TIMEOUT=soon\nALLORA_JITTER=some\n@daily a\nALLORA_TIMEOUT=\nALLORA_JITTER=\n\
         61 24 * 13 * b\n",
    );
    let said = site.allora(&["run", "--check", "jobs"]);
    assert_eq!((said.code, said.out.as_str()), (1, "0 jobs, 5 errors.\n"), "{}", said.err);
    let places: Vec<&str> = said.err.lines().map(|line| line.split(": ").nth(1).unwrap()).collect();
    assert_eq!(places, ["jobs:1", "jobs:2", "jobs:6:1", "jobs:6:4", "jobs:6:9"], "{}", said.err);
}

#[test]
fn a_password_in_a_command_is_neither_in_a_name_nor_in_the_warning_about_it() {
    let site = Site::new("@daily mysql -pHush db\nPGPASSWORD=x\n@daily PGPASSWORD=Hush psql\n");
    let said = site.allora(&["run", "--check", "jobs"]);
    assert_eq!((said.code, said.out.as_str()), (0, "2 jobs, 0 errors.\n"), "{}", said.err);
    for part in
        ["warning: jobs:1: the command has what looks like a password (-p…)", "(PGPASSWORD=…)"]
    {
        assert!(said.err.contains(part), "{}", said.err);
    }
    let next = site.allora(&["next", "--crontab", "jobs", "--zone", "UTC"]).fine();
    assert!(next.contains("jobs:mysql-") && next.contains("jobs:psql-"), "{next}");
    assert!(!said.err.contains("Hush") && !next.contains("Hush"), "{next}{}", said.err);
}

#[test]
fn a_good_crontab_is_counted() {
    let site = Site::new("0 4 * * * a\n@reboot b\n@every 90m c\n");
    assert_eq!(site.allora(&["run", "--check", "jobs"]).fine(), "3 jobs, 0 errors.\n");
    assert_eq!(site.allora(&["run", "--check", "--user", "jobs"]).fine(), "3 jobs, 0 errors.\n");
}

#[test]
fn the_form_follows_from_the_folder_or_the_option() {
    let site = Site::new("0 4 * * * root backup --all\n");
    std::fs::create_dir(site.path("cron.d")).unwrap();
    site.write("cron.d/good", "0 4 * * * root backup --all\n");
    site.write("cron.d/bad", "0 4 * * * *\n");
    site.write("cron.d/good.dpkg-old", "this is not read\n");
    assert_eq!(site.allora(&["run", "--check", "cron.d/good"]).fine(), "1 job, 0 errors.\n");
    let said = site.allora(&["run", "--check", "cron.d"]);
    assert_eq!((said.code, said.out.as_str()), (1, "1 job, 1 error.\n"));
    assert!(said.err.starts_with("error: cron.d/bad:1:11: "), "{}", said.err);
    assert_eq!(site.allora(&["run", "--check", "--system", "jobs"]).fine(), "1 job, 0 errors.\n");
}

#[test]
fn a_daemon_starts_with_the_good_lines_and_not_without_any() {
    let site = Site::new(&one_bad_among_fifty());
    let daemon = site.start();
    assert!(daemon.log().contains("jobs=49"), "{}", daemon.log());
    assert!(daemon.errors().starts_with("error: jobs:30:3: hour: \"24\""), "{}", daemon.errors());
    assert_eq!(daemon.stop(), 0);
    let site = Site::new("0 24 * * * late\n# nothing else\n");
    let output = site.command(&[]).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!((output.status.code(), lines.len()), (Some(2), 2), "{said}");
    assert!(lines[0].starts_with("error: jobs:1:3: hour: \"24\""), "{said}");
    assert_eq!(lines[1], "error: not started: jobs has no good line, see above; correct it");
    assert!(!site.path("store.db").exists(), "and nothing was made");
}

#[test]
fn an_error_at_the_start_is_one_line() {
    let site = Site::new("@daily true\n");
    for (args, code, says) in [
        (&["run", "nothing"][..], 2, "nothing: No such file"),
        (&["run", "--check", "nothing"], 2, "nothing: No such file"),
        (&["run"], 2, "<CRONTABS>"),
        (&["run", "jobs", "--url", "oracle://u:secret@h/d"], 2, "`oracle:`"),
        (
            &["run", "jobs", "--store-wait", "0", "--url", "postgres://u:secret@127.0.0.1:1/d"],
            1,
            "postgres://u:***@",
        ),
        (&["run", "jobs", "--zone", "Mars/Olympus"], 2, "--zone"),
        (&["run", "jobs", "--grace", "soon"], 2, "--grace"),
        (&["run", "jobs", "--at-least-once", "--overlap", "skip"], 2, "overlap"),
        (&["run", "jobs", "--concurrency", "0", "--url", "sqlite:other.db"], 2, "concurrency"),
        (&["run", "jobs", "--system", "--user"], 2, "--user"),
        (&["run", "jobs", "--log-file", "/nowhere/log"], 1, "/nowhere/log"),
        (&["run", "jobs", "./jobs"], 2, "one name"),
    ] {
        let said = site.allora(args).refused(code);
        assert!(said.contains(says) && !said.contains("secret"), "{said}");
    }
}

#[test]
fn roots_daemon_runs_no_crontab_that_others_may_write() {
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    use std::os::unix::fs::PermissionsExt;
    let site = Site::new("@daily true\n");
    let mode =
        |mode| std::fs::set_permissions(site.path("jobs"), std::fs::Permissions::from_mode(mode));
    mode(0o664).unwrap();
    assert!(site.allora(&["run", "--check", "jobs"]).err.contains("chmod go-w"));
    mode(0o644).unwrap();
    assert_eq!(site.allora(&["run", "--check", "jobs"]).code, 0);
}

#[test]
fn one_line_is_tested_without_a_crontab() {
    let test = |line: &str, more: &[&str]| {
        allora(&[&["run", "--zone", "UTC", "--test", line], more].concat())
    };
    let tested = test("30 2 * * 1 backup --all%to here", &[]);
    assert_eq!(tested.code, 0);
    assert!(
        tested.err.contains("a % ends the command, which is \"backup --all\" now"),
        "{tested:?}"
    );
    let said = tested.out;
    assert!(said.starts_with("runs     every Monday at 2:30 UTC\n"), "{said}");
    assert_eq!(said.lines().filter(|line| line.starts_with("next     20")).count(), 3, "{said}");
    assert!(said.ends_with("command  backup --all\ninput    to here\n"), "{said}");
    let said = test("0 4 * * * root true", &["--system"]).fine();
    assert!(said.contains("user     root\ncommand  true\n"), "{said}");
    assert!(test("*/10 * * * * * true", &["--seconds"]).fine().contains("command  true"));
    assert!(test("@reboot true", &[]).fine().starts_with("runs     at the start of the daemon\n"));
    let said = test("61 * * * * true", &[]).refused(1);
    assert!(said.contains("line:1:1: minute: \"61\" is not within 0 to 59"), "{said}");
    assert!(test("# a comment", &[]).refused(1).contains("not the line of a job"));
    assert!(test("* * * * * true", &["jobs"]).refused(2).contains("cannot be used with"));
}

#[test]
fn lines_have_seconds_where_the_option_says_so() {
    let site = Site::new("*/20 * * * * * a\nALLORA_SECONDS=0\n0 4 * * * b\n");
    assert_eq!(site.allora(&["run", "--check", "jobs", "--seconds"]).fine(), "2 jobs, 0 errors.\n");
    assert_eq!(site.allora(&["run", "--check", "jobs"]).code, 1);
    let next =
        ["next", "--crontab", "jobs", "--seconds", "--after", "0", "-n", "2", "--zone", "UTC"];
    let next = site.allora(&next).fine();
    let times: Vec<&str> = next.lines().filter_map(|line| line.split(' ').next()).collect();
    assert_eq!(times, ["1970-01-01T00:00:20Z", "1970-01-01T00:00:40Z"]);
    let name = next.lines().next().unwrap().split("  ").nth(1).unwrap().to_owned();
    assert_eq!(
        site.allora(&["exec", &name, "jobs", "--seconds"]).code,
        127,
        "there is no command a"
    );
}
