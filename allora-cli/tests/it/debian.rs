//! System crontabs as Debian's packages write them, run as Debian's cron runs them. What cron gives
//! to a command was read off cron 3.0pl1-162, which ran the same lines beside.

use crate::site::{Site, patiently};
use std::{fs, path::Path};

/// Lines of every shape that the packages of a Debian machine bring.
const SHAPES: &str = "\
# a comment of several words, and a line of nothing but blanks
  \t
SHELL=/bin/sh
PATH=/usr/local/sbin:/usr/local/bin:/sbin:/bin:/usr/sbin:/usr/bin
MAILTO=root

17 *\t* * *\troot\tcd / && run-parts --report /etc/hourly
25 6\t* * *\troot\ttest -x /usr/sbin/other || { cd / && run-parts --report /etc/daily; }
52 6\t1 * *\troot    test -x /usr/sbin/other || { cd / && run-parts --report /etc/monthly; }
30 3 * * 0 root test -e /run/systemd/system || SERVICE_MODE=1 /usr/lib/x86_64-linux-gnu/scrub
09,39 *     * * *     root   [ -x /usr/lib/x/clean ] && if [ ! -d /run/systemd/system ]; then /usr/lib/x/clean; fi
5-55/10 * * * * root command -v collect > /dev/null && collect 1 1
59 23 * * * root command -v collect > /dev/null && collect 60 2
0 */12 * * * root test -x /usr/bin/renew -a \\! -d /run/systemd/system && perl -e 'sleep int(rand(43200))' && renew -q
57 0 * * 0 root if [ -x /usr/share/m/check ] && [ $(date +\\%d) -le 7 ]; then /usr/share/m/check; fi
@reboot   root    /usr/bin/true
@daily  nobody  /usr/bin/true
";

#[test]
fn lines_of_every_shape_are_read() {
    let site = Site::new("");
    fs::create_dir(site.path("cron.d")).unwrap();
    site.write("cron.d/package", SHAPES);
    for not_read in [".placeholder", "package.dpkg-dist", "package~", "a.b"] {
        site.write(&format!("cron.d/{not_read}"), "not a crontab\n");
    }
    let said = site.allora(&["run", "--check", "cron.d", "--zone", "UTC"]);
    assert_eq!((said.code, said.out.as_str()), (0, "11 jobs, 0 errors.\n"), "{}", said.err);
    assert_eq!(said.err.lines().count(), 2, "a word about the mail, and about a.b: {}", said.err);
}

#[test]
fn this_machines_own_crontabs_are_read() {
    let paths = ["/etc/crontab", "/etc/cron.d"].into_iter().filter(|path| Path::new(path).exists());
    let paths: Vec<&str> = paths.collect();
    if paths.is_empty() {
        crate::site::skipped("this machine has no system crontabs");
        return;
    }
    let site = Site::new("");
    let said = site.allora(&[&["run", "--check", "--zone", "UTC"], &paths[..]].concat());
    assert!(said.code == 0 && said.out.ends_with(" 0 errors.\n"), "{said:?}");
}

#[test]
fn a_command_finds_what_it_finds_under_cron() {
    if !nix::unistd::geteuid().is_root() {
        crate::site::skipped("not root");
        return;
    }
    let site = Site::new(
        "SHELL=/bin/sh\nPATH=/usr/local/sbin:/usr/local/bin:/sbin:/bin:/usr/sbin:/usr/bin\n\
         GREETING=\"good day\"\n\
         @every 1s\troot\tcd / && { env; cat; } > DIR/out/1; pwd >> DIR/out/1; mv DIR/out/1 DIR/out/root\n\
         @every 1s nobody { env; pwd; umask; id -Gn; } > DIR/out/2; test -x /no/program || { mv DIR/out/2 DIR/out/nobody; }\n",
    )
    .with(&["--system"]);
    for folder in ["", "out"] {
        let path = site.path(folder);
        fs::create_dir_all(&path).unwrap();
        let all = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        fs::set_permissions(path, all).unwrap();
    }
    let mut command = site.command(&[]);
    command.env("LANG", "C").env("SECRET", "s3ntinel").env_remove("TZ");
    let mut daemon = command.stderr(std::process::Stdio::null()).spawn().unwrap();
    patiently("both have run", || {
        ["out/root", "out/nobody"].iter().all(|file| site.path(file).exists())
    });
    crate::site::send("-TERM", daemon.id());
    assert!(daemon.wait().unwrap().success());

    // Beside what allora tells; USER is not cron's, and harms nobody. The shell sets PWD.
    let env = |file: &str| {
        let text = site.read(file);
        let of_cron = |line: &&str| {
            !line.starts_with("ALLORA_")
                && !line.starts_with("USER=")
                && !line.starts_with("OLDPWD=")
        };
        let mut lines: Vec<String> = text.lines().filter(of_cron).map(str::to_owned).collect();
        lines.sort();
        lines
    };
    let path = "PATH=/usr/local/sbin:/usr/local/bin:/sbin:/bin:/usr/sbin:/usr/bin";
    let nobody = nix::unistd::User::from_name("nobody").unwrap().unwrap();
    let home = nobody.dir.display().to_string();
    let at = if nobody.dir.is_dir() { home.clone() } else { "/".into() };
    let groups = std::process::Command::new("id").args(["-Gn", "nobody"]).output().unwrap();
    let mask = std::process::Command::new("sh").args(["-c", "umask"]).output().unwrap();
    let said =
        |output: std::process::Output| String::from_utf8(output.stdout).unwrap().trim().to_owned();
    let mut expected = vec![
        "GREETING=good day".into(),
        format!("HOME={home}"),
        "LOGNAME=nobody".into(),
        path.into(),
        format!("PWD={at}"),
        "SHELL=/bin/sh".into(),
        at,
        said(mask),
        said(groups),
    ];
    expected.sort();
    assert_eq!(env("out/nobody"), expected);
    let root = nix::unistd::User::from_name("root").unwrap().unwrap();
    let home = format!("HOME={}", root.dir.display());
    let mut expected =
        ["GREETING=good day", &home, "LOGNAME=root", path, "PWD=/", "SHELL=/bin/sh", "/"];
    expected.sort_unstable();
    assert_eq!(env("out/root"), expected);
}
