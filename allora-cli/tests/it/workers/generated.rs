//! A client that a generator makes of `/v1/openapi.json`, used against a daemon.

use super::with_key;
use crate::{
    listen::{address, send},
    site::{Site, patiently, skipped},
};
use std::{env, fs, path::Path, process::Command};

/// NDJSON is sent as bytes, and what the generator makes is used as it is.
const SETTINGS: &str = "content_type_overrides:
  application/x-ndjson: application/octet-stream
  application/merge-patch+json: application/json
post_hooks: []
";

/// Runs it to a good end, and returns the text that it has printed.
fn good(command: &mut Command) -> String {
    let output = command.env("PYTHONDONTWRITEBYTECODE", "1").output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    said
}

#[test]
fn a_client_made_by_a_generator_edits_runs_and_reads_jobs() {
    let Some(python) = env::var_os("ALLORA_TEST_PYTHON_GENERATOR") else {
        assert!(env::var_os("CI").is_none(), "`cargo xtask test` installs the generator");
        return skipped("ALLORA_TEST_PYTHON_GENERATOR is not set");
    };
    let site = with_key(Site::new("")).with(&["--listen", "127.0.0.1:0", "--allow-actions"]);
    let daemon = site.start();
    let address = address(&daemon.log()).unwrap();
    let request = b"GET /v1/openapi.json HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    let describe = || send(&address, request);
    patiently("the API answers", || describe().starts_with("HTTP/1.1 200 "));
    let description = describe();
    fs::write(site.path("openapi.json"), description.split_once("\r\n\r\n").unwrap().1).unwrap();
    fs::write(site.path("settings.yaml"), SETTINGS).unwrap();
    let mut generate = Command::new(Path::new(&python).with_file_name("openapi-python-client"));
    generate.args(["generate", "--path", "openapi.json", "--config", "settings.yaml"]);
    generate.args(["--meta", "none", "--output-path", "generated"]).current_dir(site.path(""));
    let said = good(&mut generate);
    assert!(!said.contains("Warning"), "{said}");
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/workers/generated.py");
    let mut used = Command::new(&python);
    used.arg(program).arg(site.path("")).arg(format!("http://{address}"));
    assert_eq!(good(&mut used).trim(), "done");
    daemon.stop_well();
}
