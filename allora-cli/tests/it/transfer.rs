//! Schedules in files: declared sets, exports and imports.

use crate::site::{Site, patiently};
use serde_json::Value;

const FILE: [&str; 2] = ["--url", "sqlite:store.db"];

fn site() -> Site {
    let site = Site::new("");
    site.allora(&[&["init"], &FILE[..]].concat()).fine();
    site
}

fn allora(site: &Site, args: &[&str]) -> String {
    site.allora(&[args, &FILE[..]].concat()).fine()
}

fn show(site: &Site, name: &str, store: &[&str]) -> Value {
    let said = site.allora(&[&["show", name, "--json"], store].concat()).fine();
    serde_json::from_str(&said).unwrap()
}

const DECLARED: &str = r#"[
  {"name": "acme/a", "kind": "command", "schedule": "0 4 * * *", "zone": "Europe/Paris",
   "data": {"command": ["true"]}},
  {"name": "acme/b", "kind": "t", "schedule": "@every 90m", "delay": "30s"}
]"#;

#[test]
fn sync_reconciles_the_store_with_a_file() {
    let site = site();
    site.write("set.json", DECLARED);
    allora(&site, &["add", "other", "t", "@daily", "{}"]);
    let sync = ["sync", "set.json", "--complete", "acme/"];
    let plan = allora(&site, &[&sync[..], &["--dry-run"]].concat());
    let lines: Vec<&str> = plan.lines().collect();
    assert!(
        lines.len() == 3
            && lines[0].starts_with("add acme/a: 0 4 * * *")
            && lines[1].starts_with("add acme/b: @every 90m; "),
        "{plan}"
    );
    assert!(allora(&site, &["list", "--name", "acme/"]).ends_with("0 entries.\n"), "tried only");
    assert_eq!(lines[2], "2 schedules declared: 0 unchanged, 2 would be added.");
    assert_eq!(allora(&site, &sync), plan.replace("would be added", "added"));
    let nothing = "2 schedules declared: 2 unchanged.\n";
    assert_eq!(allora(&site, &sync), nothing, "nothing is left to be done");
    let some = &sync[..2];
    assert_eq!(allora(&site, some), nothing);
    let before = show(&site, "acme/a", &FILE);
    assert_eq!((&before["zone"], &before["kind"]), (&"Europe/Paris".into(), &"command".into()));

    site.write("set.json", &DECLARED.replace("acme/b", "acme/c").replace("0 4 * * *", "0 5 * * *"));
    let plan = allora(&site, &[&sync[..], &["-n"]].concat());
    for says in ["add acme/c: ", "modify acme/a: definition `0 4 ", "orphan acme/b: paused"] {
        assert!(plan.lines().any(|line| line.starts_with(says)), "{plan}");
    }
    allora(&site, &sync);
    assert!(show(&site, "acme/b", &FILE)["paused"].is_object());
    assert!(show(&site, "other", &FILE)["paused"].is_null(), "it is not of the set");
    // Without a grace what is withdrawn goes.
    let said = allora(&site, &[&sync[..], &["--grace", "0"]].concat());
    assert_eq!(said, "delete acme/b\n2 schedules declared: 2 unchanged, 1 deleted.\n");
}

#[test]
fn a_bad_file_changes_nothing_and_says_where() {
    let site = site();
    for (text, says) in [
        (DECLARED.replace("delay", "dealy"), "set.json: unknown field `dealy`"),
        (DECLARED.replace("@every 90m", "@every 90"), "\"acme/b\": "),
        (DECLARED.replace("acme/b", "acme/a"), "declared twice"),
        (
            DECLARED.replace("[\"true\"]", "1"),
            "set.json: \"acme/a\": the data of the kind `command`",
        ),
        (DECLARED.replace("acme/b", "b"), "does not begin with \"acme/\""),
        ("[{".into(), "at line 1 column"),
        ("{".into(), "set.json: one JSON array of all schedules is read here"),
    ] {
        site.write("set.json", &text);
        let said = site.allora(&[&["sync", "set.json", "--complete", "acme/"], &FILE[..]].concat());
        let said = said.refused(2);
        assert!(said.contains(says), "{said}");
    }
    assert!(allora(&site, &["list"]).ends_with("0 entries.\n"));
    let said = site.allora(&[&["sync", "none.json"], &FILE[..]].concat()).refused(2);
    assert!(said.contains("none.json: No such file"), "{said}");
}

#[test]
fn the_configurations_zone_is_for_schedules_that_name_none() {
    let site = site();
    site.write(
        "allora.toml",
        "[development]\nurl = \"sqlite:store.db\"\ntimezone = \"Asia/Tokyo\"\n",
    );
    let text = r#"[{"name": "a", "kind": "t", "schedule": "0 9 * * *"},
        {"name": "b", "kind": "t", "schedule": "0 9 * * *", "zone": "UTC"},
        {"name": "c", "kind": "t", "schedule": "@every 1h"}]"#;
    site.write("set.json", text);
    site.allora(&["sync", "set.json"]).fine();
    let zone = |name| show(&site, name, &[])["zone"].clone();
    assert_eq!([zone("a"), zone("b"), zone("c")], ["Asia/Tokyo", "UTC", "UTC"]);
    let said = site.allora(&["sync", "set.json"]).fine();
    assert_eq!(said, "3 schedules declared: 3 unchanged.\n");
}

/// Exports from SQLite, and imports here.
fn moves_to(store: &[&str]) {
    let site = site();
    allora(
        &site,
        &["add", "job", "command", "@every 1s", r#"{"command": ["false"]}"#, "--attempts", "1"],
    );
    allora(&site, &["add", "later", "t", "0 9 * * *", r#"{"a": 1}"#, "-t", "Asia/Tokyo"]);
    allora(&site, &["pause", "later", "-m", "for repairs"]);
    // A job in code is no stored schedule.
    site.write("jobs", "@daily true\n");
    let daemon = site.begin(&["--stored"]);
    patiently("it has a past", || show(&site, "job", &FILE)["dead"][0].is_object());
    assert_eq!(daemon.stop(), 0);
    let export = allora(&site, &["export"]);
    assert_eq!(export.lines().count(), 2);
    assert_eq!(allora(&site, &["export", "--name", "la"]).lines().count(), 1);
    site.write("export.jsonl", &export);

    site.allora(&[&["init"], store].concat()).fine();
    let said = site.allora(&[&["import", "-n", "export.jsonl"], store].concat()).fine();
    assert_eq!(said, "2 readable, 0 rejected.\n");
    let said = site.allora(&[&["import", "export.jsonl"], store].concat()).fine();
    assert_eq!(said, "2 imported, 0 rejected.\n");
    for name in ["job", "later"] {
        let (old, new) = (show(&site, name, &FILE), show(&site, name, store));
        for same in ["next", "definition", "data", "kind", "paused", "dead", "counters"] {
            assert_eq!(old[same], new[same], "{name}: {same}");
        }
    }
    assert_eq!(site.allora(&[&["export"], store].concat()).fine(), export);

    // Again: what is there stays, and only what is not is added.
    let more = format!(
        "{export}{}\n{{\"name\": 1}}\n",
        export.lines().next().unwrap().replace("\"job\"", "\"new\"")
    );
    site.write("more.jsonl", &more);
    let said = site.allora(&[&["import", "more.jsonl", "--skip-existing"], store].concat());
    assert_eq!((said.code, said.out.as_str()), (1, "1 imported, 2 exist already, 1 rejected.\n"));
    assert!(
        said.err.starts_with("error: more.jsonl:4: ") && said.err.lines().count() == 1,
        "{}",
        said.err
    );
    let said = site.allora(&[&["import", "export.jsonl"], store].concat());
    assert_eq!((said.code, said.out.as_str()), (1, "0 imported, 2 rejected.\n"));
    for name in ["job", "later", "new"] {
        site.allora(&[&["delete", name], store].concat()).fine();
    }
}

mod what_is_exported_goes_on_elsewhere_where_it_was {
    use super::moves_to;
    use crate::site::server;

    fn on(store: &str, variable: &str) {
        let Some(url) = server(store, variable) else { return };
        let url = if store == "etcd" { url.replace("http://", "etcd://") } else { url };
        moves_to(&["--url", &url, "--prefix", &format!("x{:x}", std::process::id())]);
    }

    #[test]
    fn sqlite() {
        moves_to(&["--url", "sqlite:other.db"]);
    }
    #[test]
    fn postgres() {
        on("postgres", "ALLORA_TEST_POSTGRES_URL");
    }
    #[cfg(feature = "redis")]
    #[test]
    fn redis() {
        on("redis", "ALLORA_TEST_REDIS_URL");
    }
    #[cfg(feature = "etcd")]
    #[test]
    fn etcd() {
        on("etcd", "ALLORA_TEST_ETCD_URL");
    }
}

#[test]
fn thousands_are_moved_through_a_pipe() {
    let site = site();
    let one =
        |n: usize| format!(r#"{{"name": "n{n}", "kind": "t", "schedule": "0 {} * * *"}}"#, n % 24);
    let all: Vec<String> = (0..2_345).map(one).collect();
    site.write("set.json", &format!("[{}]", all.join(",")));
    let said = allora(&site, &["sync", "set.json"]);
    assert_eq!(said.lines().count(), 2_346);
    let unchanged = "2345 schedules declared: 2345 unchanged.\n";
    assert_eq!(allora(&site, &["sync", "set.json"]), unchanged);
    let binary = env!("CARGO_BIN_EXE_allora");
    let script = format!(
        "{binary} init --url sqlite:b.db && {binary} export --url sqlite:store.db \
         | {binary} import - --url sqlite:b.db"
    );
    let output = std::process::Command::new("sh")
        .args(["-c", &script])
        .current_dir(site.path(""))
        .output()
        .unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "2345 imported, 0 rejected.\n");
    assert!(
        output.stderr.is_empty(),
        "nothing is shown of the progress where there is no terminal"
    );
}

#[test]
fn a_crontab_becomes_stored_schedules_and_what_has_no_equivalent_is_said() {
    let site = Site::new(
        "A=b\nALLORA_NAME=backup\nALLORA_TIMEOUT=10m\n30 2 * * * echo $A%input\n@reboot up\n\
         ALLORA_NODES=every\n@daily rotate\n",
    );
    site.allora(&["init", "--url", "sqlite:store.db"]).fine();
    let import = |more: &[&str]| {
        let args = ["import", "--from", "crontab", "jobs", "--zone", "Europe/Rome", "--url"];
        site.allora(&[&args[..], &["sqlite:store.db"], more].concat())
    };
    let dry = import(&["--dry-run"]);
    assert_eq!(dry.code, 1, "{dry:?}");
    assert!(dry.out.starts_with("jobs:backup  30 2 * * * Europe/Rome  {"), "{dry:?}");
    assert!(dry.out.ends_with("\n1 would be imported, 2 rejected.\n"), "{dry:?}");
    assert!(dry.err.contains("jobs:5: a stored schedule has no start of a machine"), "{dry:?}");
    assert!(dry.err.contains("jobs:7: a stored schedule runs on one node"), "{dry:?}");
    assert!(site.allora(&["list", "--url", "sqlite:store.db"]).fine().ends_with("0 entries.\n"));
    assert!(import(&[]).out.ends_with("\n1 imported, 2 rejected.\n"));
    let again = import(&["--skip-existing"]);
    assert!(again.out.ends_with("0 imported, 1 exist already, 2 rejected.\n"), "{again:?}");
    let shown = site.allora(&["show", "jobs:backup", "--json", "--url", "sqlite:store.db"]).fine();
    let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
    assert_eq!((&shown["kind"], &shown["zone"]), (&"command".into(), &"Europe/Rome".into()));
    let data = &shown["data"];
    assert_eq!((&data["command"][2], &data["env"]["A"]), (&"echo $A".into(), &"b".into()));
    assert_eq!((&data["input"], &data["timeout"]), (&"input\n".into(), &"10m".into()));
}
