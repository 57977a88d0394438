//! Results of a line's command.

use crate::site::{Site, lives, patiently};
use std::os::unix::net::UnixDatagram;

#[test]
fn a_command_has_its_input_its_variables_and_its_folder() {
    let site = Site::new(
        "HOME=DIR\nGREETING = \"good day\"\nA_B='x y'\nLOGNAME=somebody\n\
         @every 1s cat > got; echo $GREETING/$A_B >> got; env > env; pwd > pwd; mv got end%first%50\\%%%last\n",
    );
    let daemon = site.start();
    patiently("it has run", || site.path("end").exists());
    assert_eq!(site.read("end"), "first\n50%\n\nlast\ngood day/x y\n");
    assert_eq!(site.read("pwd").trim(), site.path("").to_string_lossy().trim_end_matches('/'));
    let env = site.read("env");
    let has = |line: &str| env.lines().any(|has| has == line);
    assert!(has("PATH=/usr/bin:/bin") && has("SHELL=/bin/sh") && has("ALLORA_ATTEMPT=1"), "{env}");
    assert!(
        env.contains("ALLORA_FENCE=1") && env.contains("ALLORA_OCCURRENCE=allora/jobs:"),
        "{env}"
    );
    // The user's name is what it is, and nothing of the daemon's own environment is seen.
    assert!(!has("LOGNAME=somebody") && !env.contains("CARGO"), "{env}");
    assert_eq!(daemon.stop(), 0);
}

#[test]
fn output_goes_to_the_log_and_the_end_of_a_failed_runs_into_its_record() {
    let site = Site::new("@every 1s echo one; echo two >&2; exit 3\n");
    let daemon = site.start();
    daemon.says(" outcome=failed");
    let log = daemon.log();
    let line = |text: &str| log.lines().find(|line| line.contains(text)).unwrap_or_default();
    assert!(
        line("INFO one ").contains("job=jobs:echo-") && line("INFO one ").contains("stdout"),
        "{log}"
    );
    assert!(line("INFO two ").contains("stderr"), "{log}");
    let failed = line(" outcome=failed");
    assert!(
        failed.contains("exit status: 3; its output ends: ") && failed.contains("two"),
        "{log}"
    );
    assert_eq!(daemon.stop(), 0);
}

#[test]
fn a_command_that_cannot_be_started_is_a_failed_run_and_nothing_else() {
    let site = Site::new(
        "@every 1s echo well >> DIR/well\nHOME=/nowhere\n@every 1s true # lost\n\
         HOME=/\nSHELL=/no/shell\n@every 1s true\n",
    );
    let daemon = site.start();
    daemon.says("cannot start /no/shell in /: No such file");
    daemon.says("cannot start /bin/sh in /nowhere: No such file");
    site.more_lines("well", 2);
    assert_eq!(daemon.stop(), 0);
}

#[test]
fn a_command_that_takes_too_long_is_ended_with_all_it_has_started() {
    let site = Site::new(
        "ALLORA_TIMEOUT=1s\n\
         @every 2s echo $$ >> DIR/polite; sleep 1000\n\
         @every 2s trap '' TERM; (trap '' TERM; sleep 1000) & echo $! >> DIR/stubborn; wait; sleep 1000\n\
         @every 2s setsid sh -c 'echo $$ >> DIR/apart; sleep 1000' & sleep 1000\n",
    )
    .with(&["--kill-after", "1s"]);
    let daemon = site.start();
    daemon.says_often("timed out after 1s, and was ended: signal: 15 (SIGTERM)", 2);
    daemon.says("timed out after 1s, and was killed");
    for file in ["polite", "stubborn", "apart"] {
        let pid = site.read(file).lines().next().unwrap().to_owned();
        patiently("its process is gone", || !lives(&pid));
    }
    assert_eq!(daemon.stop(), 0);
}

#[test]
fn background_processes_of_a_command_stay() {
    let site = Site::new("@every 1s test -e DIR/pid || { sleep 1000 & echo $! > DIR/pid; }\n");
    let daemon = site.start();
    daemon.says(" exit_status=0");
    let pid = site.read("pid");
    assert_eq!(daemon.stop(), 0);
    assert!(lives(&pid));
    crate::site::send("-KILL", pid.trim().parse().unwrap());
}

#[test]
fn root_runs_commands_as_the_user_of_the_line_with_its_groups() {
    if !nix::unistd::geteuid().is_root() {
        crate::site::skipped("not root");
        return;
    }
    // What a loader obeys must reach the command, and not what changes the user before.
    let site = Site::new(
        "HOME=/\nLD_DEBUG=files\nLD_DEBUG_OUTPUT=DIR/loaded\nALLORA_TIMEOUT=50s\n\
         @every 1s nobody { id -un; id -Gn; echo $LOGNAME; pwd; } > DIR/out/id; mv DIR/out/id DIR/out/end\n\
         @every 1s nosuchuser true\n",
    )
    .with(&["--system"]);
    std::fs::create_dir(site.path("out")).unwrap();
    for folder in ["", "out"] {
        open_to_all(&site.path(folder));
    }
    let daemon = site.start();
    patiently("it has run", || site.path("out/end").exists());
    let groups = std::process::Command::new("id").args(["-Gn", "nobody"]).output().unwrap();
    let groups = String::from_utf8(groups.stdout).unwrap();
    assert_eq!(site.read("out/end"), format!("nobody\n{groups}nobody\n/\n"));
    let loaded: Vec<_> = std::fs::read_dir(site.path("")).unwrap().map(Result::unwrap).collect();
    let loaded = loaded.iter().filter(|f| f.file_name().to_string_lossy().starts_with("loaded"));
    for file in loaded {
        let owner = std::os::unix::fs::MetadataExt::uid(&file.metadata().unwrap());
        assert_ne!(owner, 0, "root's process obeyed the crontab's variables");
    }
    assert_eq!(daemon.stop(), 0);
}

fn open_to_all(path: &std::path::Path) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777)).unwrap();
}

#[test]
fn systemd_hears_when_the_daemon_is_ready_and_when_it_stops() {
    let site = Site::new("@daily true\n");
    let socket = UnixDatagram::bind(site.path("notify")).unwrap();
    let mut command = site.command(&[]);
    command.env("NOTIFY_SOCKET", site.path("notify")).stderr(std::process::Stdio::null());
    let mut child = command.spawn().unwrap();
    let next = || loop {
        let mut received = [0; 100];
        let length = socket.recv(&mut received).unwrap();
        if !received.starts_with(b"STATUS=") {
            return received[..length].to_vec();
        }
    };
    assert_eq!(next(), b"READY=1");
    crate::site::send("-TERM", child.id());
    assert!(next().starts_with(b"STOPPING=1\n"));
    assert!(child.wait().unwrap().success());
}

#[test]
fn lines_run_on_every_node_or_on_those_with_a_label_if_they_say_so() {
    let site = Site::new(
        "ALLORA_NODES=every\n@every 1s echo $ALLORA_NODE >> DIR/every\n\
         ALLORA_NODES=one\nALLORA_LABEL=gpu\n@every 1s echo $ALLORA_NODE >> DIR/labelled\n",
    );
    let plain = site.begin(&["--node-name", "plain"]);
    let gpu = site.begin(&["--node-name", "gpu", "--node-label", "ssd", "--node-label", "gpu"]);
    let ran =
        |file: &str, node: &str| site.read(file).lines().filter(|l| l.starts_with(node)).count();
    patiently("both run the first", || ran("every", "plain") >= 2 && ran("every", "gpu") >= 2);
    patiently("one runs the second", || ran("labelled", "gpu") >= 2);
    assert_eq!(ran("labelled", "plain"), 0);
    assert_eq!((plain.stop(), gpu.stop()), (0, 0));
}

#[test]
fn reboot_lines_run_at_the_start_of_the_daemon() {
    // Elsewhere than in the machine's folder for what is gone when it is off.
    let site = Site::new("@reboot echo up >> DIR/up; echo $ALLORA_SCHEDULED_AT\n@daily true\n");
    let daemon = site.start();
    site.more_lines("up", 1);
    assert_eq!(daemon.stop(), 0);
    // The machine has not been started since.
    let daemon = site.start();
    daemon.says("started");
    assert_eq!(daemon.stop(), 0);
    assert_eq!(site.lines("up"), 1);
}
