//! The files for containers: each is read as its tool reads it, and what it starts is what this command
//! and its store understand.

use crate::site::{Site, skipped};
use allora_sql::{Tls, Url};
use serde_json::Value;
use std::{collections::BTreeSet, fs, path::PathBuf, process::Command};

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("packaging").join(name)
}

fn text(name: &str) -> String {
    fs::read_to_string(path(name)).unwrap()
}

/// The documents of a YAML file; `None` where nothing can read them.
fn yaml(name: &str) -> Option<Vec<Value>> {
    let script = "import json, sys, yaml; \
                  print(json.dumps(list(yaml.safe_load_all(open(sys.argv[1])))))";
    if !Command::new("python3")
        .args(["-c", "import yaml"])
        .output()
        .is_ok_and(|o| o.status.success())
    {
        skipped("there is no python3 with yaml");
        return None;
    }
    let output = Command::new("python3").args(["-c", script]).arg(path(name)).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(serde_json::from_slice(&output.stdout).unwrap())
}

fn words(list: &Value) -> Vec<String> {
    list.as_array().unwrap().iter().map(|word| word.as_str().unwrap().to_owned()).collect()
}

/// The command with these arguments reads this crontab without an error.
#[track_caller]
fn starts_with(args: &[String], crontab: &str) {
    let site = Site::new(crontab);
    let args = args.iter().map(String::as_str);
    // The place of the file in the container.
    let mut args: Vec<&str> = args.filter(|arg| !arg.starts_with("/etc/")).collect();
    args.extend(["--check", "jobs"]);
    assert_eq!(site.allora(&args).fine(), "1 job, 0 errors.\n");
}

fn seconds(duration: &str) -> u64 {
    duration.strip_suffix('s').unwrap().parse().unwrap()
}

/// The time that a stop may take by default: the grace period, its last requests, and the last alerts.
#[track_caller]
fn is_enough_to_stop(seconds: u64) {
    assert!(seconds >= 30 + 5 + 10, "{seconds}");
}

#[test]
fn the_compose_file_starts_daemons_that_reach_its_store() {
    // This check needs no reader of YAML.
    let url = text("compose.yaml");
    let url = url.lines().find_map(|line| line.trim().strip_prefix("ALLORA_URL: ")).unwrap();
    let url = Url::parse(url).unwrap();
    assert_eq!(url.tls(), Tls::Off, "the image of PostgreSQL has no TLS");
    let Some(documents) = yaml("compose.yaml") else { return };
    let file = &documents[0];
    let daemon = &file["services"]["allora"];
    let (store, login) = (&file["services"]["store"], &file["services"]["store"]["environment"]);
    assert_eq!(
        daemon["environment"]["ALLORA_URL"],
        format!(
            "postgres://{0}:{1}@store/{0}?tls=off",
            login["POSTGRES_USER"].as_str().unwrap(),
            login["POSTGRES_PASSWORD"].as_str().unwrap(),
        )
    );
    for service in [daemon, store] {
        assert_eq!(service["restart"], "unless-stopped");
    }
    let crontab = file["configs"]["crontab"]["content"].as_str().unwrap();
    assert!(!crontab.contains('$'), "compose would replace it; write $$");
    let args = words(&daemon["command"]);
    starts_with(&args, crontab);
    assert_eq!(daemon["configs"][0]["target"].as_str(), args.last().map(String::as_str));
    assert_eq!(daemon["configs"][0]["source"], "crontab");
    is_enough_to_stop(seconds(daemon["stop_grace_period"].as_str().unwrap()));
    let build = &daemon["build"];
    let top = path(build["context"].as_str().unwrap());
    assert!(top.join(build["dockerfile"].as_str().unwrap()).is_file());
    let of_store = store["volumes"][0].as_str().unwrap().split(':').next().unwrap();
    assert!(file["volumes"].as_object().unwrap().contains_key(of_store));
}

#[test]
fn the_manifest_of_kubernetes_starts_daemons_with_its_crontab() {
    let Some(documents) = yaml("kubernetes.yaml") else { return };
    let of_kind = |kind: &str| documents.iter().find(|one| one["kind"] == kind).unwrap();
    let pod = &of_kind("Deployment")["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    let args = words(&container["args"]);
    starts_with(&args, of_kind("ConfigMap")["data"]["crontab"].as_str().unwrap());
    let folder = container["volumeMounts"][0]["mountPath"].as_str().unwrap();
    assert_eq!(args.last().unwrap(), &format!("{folder}/crontab"));
    assert_eq!(container["volumeMounts"][0]["name"], pod["volumes"][0]["name"]);
    let config = of_kind("ConfigMap")["metadata"]["name"].clone();
    assert_eq!(pod["volumes"][0]["configMap"]["name"], config);
    let port = container["ports"][0]["containerPort"].as_u64().unwrap();
    assert!(args.iter().any(|arg| arg.ends_with(&format!(":{port}"))), "{args:?}");
    is_enough_to_stop(pod["terminationGracePeriodSeconds"].as_u64().unwrap());
    let spec = &of_kind("Deployment")["spec"];
    assert_eq!(spec["selector"]["matchLabels"], spec["template"]["metadata"]["labels"]);
}

#[test]
fn the_image_has_what_the_command_needs() {
    let file = text("Containerfile");
    let cmd = file.lines().find_map(|line| line.strip_prefix("CMD ")).unwrap();
    let args: Vec<String> = serde_json::from_str(cmd).unwrap();
    starts_with(&args, "@daily true\n");
    // A newer C library than that of the machine that built it is fine, an older one is not: both
    // stages are of one Debian.
    let from: Vec<&str> = file.lines().filter_map(|line| line.strip_prefix("FROM ")).collect();
    assert_eq!(from.len(), 2);
    assert!(from.iter().all(|image| image.contains("trixie")), "{from:?}");
    let manifest: toml::Table =
        toml::from_str(&fs::read_to_string(path("../Cargo.toml")).unwrap()).unwrap();
    let rust = manifest["package"]["rust-version"].as_str().unwrap();
    assert!(from[0].contains(&format!("/rust:{rust}-")), "{} is not Rust {rust}", from[0]);
    // The libraries of `debian:trixie-slim`; any other would have to be installed.
    let Ok(ldd) = Command::new("ldd").arg(env!("CARGO_BIN_EXE_allora")).output() else {
        return skipped("there is no ldd");
    };
    let ldd = String::from_utf8_lossy(&ldd.stdout).into_owned();
    let needed: BTreeSet<&str> =
        ldd.lines().filter_map(|line| line.split_whitespace().next()).collect();
    let has = |name: &str| {
        [
            "libc.so",
            "libm.so",
            "libgcc_s.so",
            "libpthread.so",
            "libdl.so",
            "linux-vdso",
            "/lib",
            "ld-",
        ]
        .iter()
        .any(|known| name.starts_with(known))
    };
    assert!(needed.iter().all(|name| has(name)), "{needed:?}");
    // Certificates of authorities, and the zones of machines that have a link to one.
    assert!(file.contains("ca-certificates") && file.contains("tzdata"));
    let named =
        |line: &str| line.strip_prefix("COPY --from=build /allora/target/release/").is_some();
    assert!(file.lines().any(named));
}

#[test]
fn the_unit_gives_a_stop_the_time_that_it_takes() {
    let unit = text("allora.service");
    let stop = unit.lines().find_map(|line| line.strip_prefix("TimeoutStopSec=")).unwrap();
    is_enough_to_stop(stop.parse().unwrap());
}
