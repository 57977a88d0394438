//! The daemon as a part of the system: as process 1, under systemd, in containers.

use crate::{
    allora::{allora, command},
    site::{Site, patiently, skipped},
};
use std::{
    fs,
    os::unix::{fs::PermissionsExt, net::UnixDatagram},
    path::PathBuf,
    process::{Command, Stdio},
    time::Duration,
};

fn packaging(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("packaging").join(name)
}

/// A process that is killed when the test ends.
struct Killed(std::process::Child);

impl Drop for Killed {
    fn drop(&mut self) {
        // One that has ended already is as dead.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn process_one_reaps_what_commands_leave_behind_and_passes_signals_on() {
    let can = Command::new("unshare").args(["-p", "-f", "--mount-proc", "true"]).output();
    if !can.is_ok_and(|output| output.status.success()) {
        return skipped("no process may have a namespace of its own here");
    }
    // The orphan ends a moment after its parent; then `ps` would show a zombie.
    let site = Site::new(
        "@every 1s (sleep 0.2 &) ; echo tick >> DIR/ticks; \
         cat /proc/[0-9]*/stat | grep -c ') Z ' > DIR/zombies; cp DIR/zombies DIR/zombies.$ALLORA_FENCE\n",
    );
    let inner = site.command(&[]);
    let mut outer = Command::new("unshare");
    outer.args(["-p", "-f", "--mount-proc", "--kill-child"]).arg(inner.get_program());
    outer.args(inner.get_args()).current_dir(site.path(""));
    let stderr = fs::File::create(site.path("log.1")).unwrap();
    outer.stdin(Stdio::null()).stdout(Stdio::null()).stderr(stderr);
    let mut outer = Killed(outer.spawn().unwrap());
    patiently("it has run", || site.lines("ticks") >= 4);
    let counts: Vec<String> = fs::read_dir(site.path(""))
        .unwrap()
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with("zombies."))
        .map(|name| site.read(&name).trim().to_owned())
        .collect();
    assert!(
        counts.iter().filter(|count| *count == "0" || count.is_empty()).count() >= counts.len() - 1,
        "{counts:?}"
    );
    // The child of `unshare` is process 1 there.
    let children = format!("/proc/{0}/task/{0}/children", outer.0.id());
    let first = fs::read_to_string(children).unwrap();
    crate::site::send("-TERM", first.trim().parse().unwrap());
    patiently("it ends", || outer.0.try_wait().unwrap().is_some());
    assert!(outer.0.wait().unwrap().success(), "{}", site.read("log.1"));
    assert!(site.read("log.1").contains("stopping"), "{}", site.read("log.1"));
}

#[test]
fn systemd_gets_states_reloads_and_signs_of_life() {
    let site = Site::new("@daily true\n").with(&["--grace", "10m"]);
    let socket = UnixDatagram::bind(site.path("notify")).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let mut command = site.command(&[]);
    command.env("NOTIFY_SOCKET", site.path("notify")).stderr(Stdio::null());
    command.env("WATCHDOG_USEC", "1000000");
    let mut child = command.spawn().unwrap();
    let until = |wanted: &str| loop {
        let mut received = [0; 200];
        let length = socket.recv(&mut received).unwrap();
        let said = String::from_utf8(received[..length].to_vec()).unwrap();
        if said.starts_with(wanted) {
            return said;
        }
    };
    assert_eq!(until("STATUS="), "STATUS=1 line, 0 running");
    until("READY=1");
    until("WATCHDOG=1");
    until("WATCHDOG=1");
    crate::site::send("-HUP", child.id());
    assert!(until("RELOADING=1").contains("\nMONOTONIC_USEC="));
    until("READY=1");
    crate::site::send("-TERM", child.id());
    // As long as the grace period and the last alerts may take, whatever the unit says.
    assert_eq!(until("STOPPING=1"), "STOPPING=1\nEXTEND_TIMEOUT_USEC=615000000");
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_new_sqlite_store_is_readable_by_its_owner_alone() {
    let site = Site::new("@daily true\n");
    site.allora(&["init", "--url", "sqlite:new.db"]).fine();
    let mode = |name: &str| fs::metadata(site.path(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode("new.db"), 0o600);
    // One that is there keeps what it has.
    fs::set_permissions(site.path("new.db"), fs::Permissions::from_mode(0o640)).unwrap();
    site.allora(&["init", "--url", "sqlite:new.db"]).fine();
    assert_eq!(mode("new.db"), 0o640);
}

#[test]
fn check_finds_unknown_users_marks_and_line_ends_of_windows() {
    let site = Site::new("");
    fs::create_dir(site.path("cron.d")).unwrap();
    site.write("cron.d/php.ini", "this is not read\n");
    site.write(
        "cron.d/jobs",
        "\u{feff}A=1\r\n0 4 * * * no-such-user backup\r\n0 5 * * * root true\r\n",
    );
    let said = site.allora(&["run", "--check", "cron.d"]);
    assert_eq!((said.code, said.out.as_str()), (1, "2 jobs, 1 error.\n"), "{said:?}");
    for part in [
        "error: cron.d/jobs:2: there is no user `no-such-user` on this machine",
        "warning: cron.d/jobs:1: the file begins with a byte order mark",
        "warning: cron.d/jobs:1: the line ends with a carriage return",
        "warning: cron.d/php.ini: not read, as by cron",
    ] {
        assert!(said.err.contains(part), "{part}: {}", said.err);
    }
    let json = site.allora(&["run", "--check", "--json", "cron.d"]);
    let lines: Vec<serde_json::Value> =
        json.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let error = lines.iter().find(|line| line["severity"] == "error").unwrap();
    assert_eq!((&error["file"], &error["line"]), (&"cron.d/jobs".into(), &2.into()));
    let last = lines.last().unwrap();
    assert_eq!((&last["jobs"], &last["errors"], json.code), (&2.into(), &1.into(), 1));
}

#[test]
fn the_unit_is_one_of_systemd() {
    let unit = fs::read_to_string(packaging("allora.service")).unwrap();
    let start =
        unit.lines().find_map(|line| line.strip_prefix("ExecStart=/usr/bin/allora ")).unwrap();
    let mut args: Vec<&str> = start.split(' ').filter(|arg| !arg.starts_with('$')).collect();
    let site = Site::new("@daily true\n");
    args.extend(["--check", "jobs"]);
    site.allora(&args).fine();
    if command(&["--version"]).output().is_err()
        || Command::new("systemd-analyze").arg("--version").output().is_err()
    {
        return skipped("there is no systemd-analyze");
    }
    let here = site.path("allora.service");
    fs::write(&here, unit.replace("/usr/bin/allora", env!("CARGO_BIN_EXE_allora"))).unwrap();
    let said =
        Command::new("systemd-analyze").arg("verify").arg("--man=no").arg(&here).output().unwrap();
    let text = String::from_utf8_lossy(&said.stderr).into_owned();
    let about_it: Vec<&str> = text.lines().filter(|line| line.contains("allora.service")).collect();
    assert!(about_it.is_empty(), "{about_it:?}");
}

#[test]
fn every_command_has_a_man_page() {
    let site = Site::new("");
    site.allora(&["man", "man"]).fine();
    let help = allora(&["--help"]).fine();
    let groups = help.split_once("\n`allora help").unwrap().0;
    let names = groups.lines().filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    let names: Vec<&str> = names.collect();
    assert!(names.len() > 20, "{names:?}");
    for name in names {
        let page = site.read(&format!("man/allora-{name}.1"));
        assert!(page.contains(".SH NAME") && page.contains(".SH OPTIONS"), "{name}: {page}");
    }
    let page = site.read("man/allora.1");
    assert!(page.contains("allora\\-run") && page == allora(&["man"]).fine(), "{page}");
}
