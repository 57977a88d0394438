//! Stored schedules that the daemon runs without any code: commands and HTTP requests.

use crate::site::{Daemon, Site, patiently};
use serde_json::Value;
use std::{
    collections::HashMap,
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread,
};

const URL: [&str; 2] = ["--url", "sqlite:store.db"];

fn site() -> Site {
    let site = Site::new("");
    site.allora(&[&["init"], &URL[..]].concat()).fine();
    site
}

/// A daemon for the stored schedules of a place, and no crontab.
fn start(site: &Site) -> Daemon {
    let daemon = site.begin(&["--stored"]);
    daemon.says("has reached its store");
    daemon
}

fn add(site: &Site, name: &str, kind: &str, data: &str, more: &[&str]) {
    let data = data.replace("DIR", &site.path("").display().to_string());
    site.allora(&[&["add", name, kind, "@every 1s", &data], &URL[..], more].concat()).fine();
}

fn show(site: &Site, name: &str) -> Value {
    let said = site.allora(&[&["show", name, "--json"], &URL[..]].concat()).fine();
    serde_json::from_str(&said).unwrap()
}

/// A request as it came.
#[derive(Clone, Debug)]
pub(crate) struct Came {
    pub(crate) line: String,
    pub(crate) headers: HashMap<String, String>,
    pub(crate) body: String,
}

/// A server that answers the first `refuses` requests with 503, and the others well.
pub(crate) fn server(refuses: usize) -> (String, Arc<Mutex<Vec<Came>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/hook", listener.local_addr().unwrap());
    let came: Arc<Mutex<Vec<Came>>> = Arc::default();
    let seen = came.clone();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let Some(request) = read(&stream) else { continue };
            let refuse = {
                let mut seen = seen.lock().unwrap();
                seen.push(request);
                seen.len() <= refuses
            };
            let (status, body) = if refuse { ("503 Busy", "come later") } else { ("200 OK", "") };
            let length = body.len();
            let answer = format!(
                "HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
            );
            stream.write_all(answer.as_bytes()).unwrap();
        }
    });
    (url, came)
}

fn read(stream: &TcpStream) -> Option<Came> {
    let mut reader = BufReader::new(stream);
    let mut next = || {
        let mut line = String::new();
        reader.read_line(&mut line).ok().filter(|length| *length > 0)?;
        Some(line.trim_end().to_owned())
    };
    let line = next()?;
    let mut headers = HashMap::new();
    while let Some((name, value)) = next()?.split_once(": ") {
        headers.insert(name.to_lowercase(), value.to_owned());
    }
    let length = headers.get("content-length").and_then(|length| length.parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    reader.read_exact(&mut body).ok()?;
    Some(Came { line, headers, body: String::from_utf8(body).unwrap() })
}

#[test]
fn a_command_is_run_without_a_shell() {
    let site = site();
    let data = r#"{"command": ["sh", "-c", "cat > got; echo \"$1\" $A >> got; mv got end", "-", "$(id); x"],
                   "env": {"A": "b"}, "input": "in\n", "folder": "DIR"}"#;
    add(&site, "job", "command", data, &[]);
    let daemon = start(&site);
    patiently("it has run", || site.path("end").exists());
    assert_eq!(site.read("end"), "in\n$(id); x b\n");
    patiently("it is recorded", || show(&site, "job")["last"]["outcome"] == "succeeded");
    assert_eq!(daemon.stop(), 0);
}

#[test]
fn a_command_that_fails_is_tried_again_and_then_a_dead_letter() {
    let site = site();
    let data = r#"{"command": ["sh", "-c", "echo $ALLORA_ATTEMPT >> DIR/tries; exit 7"]}"#;
    let once = ["--attempts", "2", "--retry-wait", "100ms", "--max-runs", "1"];
    add(&site, "job", "command", data, &once);
    let daemon = start(&site);
    patiently("it is dead", || show(&site, "job")["dead"][0]["error"] == "exit status: 7");
    assert_eq!(site.read("tries"), "1\n2\n");
    let at =
        show(&site, "job")["dead"][0]["occurrence"]["scheduled_at"].as_str().unwrap().to_owned();
    // Run again by hand, its attempts are counted from 1.
    site.allora(&[&["rerun", "job", &at], &URL[..]].concat()).fine();
    patiently("it was tried again", || site.read("tries") == "1\n2\n1\n2\n");
    patiently("it is dead again", || {
        show(&site, "job")["dead"][0]["occurrence"]["scheduled_at"] == at.as_str()
    });
    site.allora(&[&["mark", "job", &at, "--note", "by hand"], &URL[..]].concat()).fine();
    assert_eq!(show(&site, "job")["dead"], Value::Array(vec![]));
    assert_eq!(daemon.stop(), 0);
}

#[test]
fn an_occurrence_is_one_delivery_and_its_retries_have_its_key() {
    let site = site();
    let (url, came) = server(2);
    let data = format!(r#"{{"url": "{url}", "headers": {{"X-Mine": "yes"}}, "body": {{"a": 1}}}}"#);
    add(&site, "hook é", "http", &data, &["--retry-wait", "100ms", "--max-runs", "2"]);
    let daemon = start(&site);
    patiently("both are delivered", || came.lock().unwrap().len() >= 4);
    patiently("it is at its end", || show(&site, "hook é")["counters"]["succeeded"] == 2);
    let came = came.lock().unwrap().clone();
    assert_eq!(came.len(), 4, "two refusals, two deliveries: {came:?}");
    for one in &came {
        assert_eq!(one.line, "POST /hook HTTP/1.1");
        assert_eq!((one.headers["x-mine"].as_str(), one.body.as_str()), ("yes", "{\"a\":1}"));
        assert_eq!(one.headers["content-type"], "application/json");
        assert_eq!(one.headers["allora-job"], "hook %C3%A9");
    }
    let all = |name: &str| came.iter().map(|one| one.headers[name].clone()).collect::<Vec<_>>();
    let keys = all("idempotency-key");
    assert!(keys[0] == keys[1] && keys[1] == keys[2] && keys[2] != keys[3], "{keys:?}");
    assert!(keys[0].contains(&came[0].headers["allora-scheduled-at"][..19]), "{keys:?}");
    assert_eq!(all("allora-attempt"), ["1", "2", "3", "1"]);
    let fences: Vec<i64> = all("allora-fence").iter().map(|fence| fence.parse().unwrap()).collect();
    assert!(fences.is_sorted_by(|a, b| a < b), "{fences:?}");
    daemon.says("answered with 503 Service Unavailable; its answer begins: come later");
    assert_eq!(daemon.stop(), 0);
}

#[test]
fn a_receiver_that_is_not_there_is_a_failed_run() {
    let site = site();
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let data = format!(r#"{{"url": "http://{nobody}/x?key=secret"}}"#);
    add(&site, "job", "http", &data, &["--attempts", "1", "--max-runs", "1"]);
    let daemon = start(&site);
    patiently("it is dead", || show(&site, "job")["dead"][0]["error"].is_string());
    let error = show(&site, "job")["dead"][0]["error"].clone();
    assert!(error.as_str().unwrap().starts_with(&format!("POST http://{nobody}/x: ")), "{error}");
    assert!(!daemon.log().contains("secret"));
    assert_eq!(daemon.stop(), 0);
}

#[test]
fn bad_data_is_refused_when_it_is_stored() {
    let site = site();
    for (kind, data, says) in [
        ("command", "{}", "`command`"),
        ("command", r#"{"command": "a", "shell": "bash"}"#, "\"shell\""),
        ("http", r#"{"url": "file:///etc/passwd"}"#, "`url`"),
        ("http", r#"{"url": "http://h", "method": "FETCH"}"#, "`method`"),
    ] {
        let said = site.allora(&[&["add", "job", kind, "@daily", data], &URL[..]].concat());
        let said = said.refused(2);
        assert!(said.contains(says) && said.contains(kind), "{said}");
    }
    add(&site, "job", "command", r#"{"command": "true"}"#, &[]);
    let said = site.allora(&[&["modify", "job", "--type", "http"], &URL[..]].concat()).refused(2);
    assert!(said.contains("`url`"), "{said}");
}

#[test]
fn kinds_that_the_daemon_does_not_run_stay_for_others() {
    let site = site();
    add(&site, "job", "command", r#"{"command": ["touch", "DIR/touched"]}"#, &[]);
    add(&site, "other", "application", "{}", &[]);
    let daemon = site.begin(&["--stored=http"]);
    daemon.says("has reached its store");
    crate::site::pause(std::time::Duration::from_millis(2_500));
    assert!(!site.path("touched").exists());
    assert_eq!(show(&site, "job")["counters"]["started"], 0);
    assert_eq!(show(&site, "other")["counters"]["started"], 0);
    assert_eq!(daemon.stop(), 0);
}

#[test]
fn a_secret_is_named_in_the_store_and_read_on_the_node_and_others_are_masked() {
    let site = site();
    let (url, came) = server(0);
    let data = format!(
        r#"{{"url": "{url}", "headers": {{"Authorization": {{"secret": "hook"}}, "X-Token": "visible"}}}}"#
    );
    add(&site, "job", "http", &data, &["--max-runs", "1"]);
    std::fs::create_dir(site.path("secrets")).unwrap();
    site.write("secrets/hook", "Bearer of the node\n");
    let list = site.allora(&[&["list"], &URL[..]].concat()).fine();
    assert!(list.contains(r#""X-Token":"***""#) && list.contains(r#"{"secret":"hook"}"#), "{list}");
    assert_eq!(show(&site, "job")["data"]["headers"]["X-Token"], "***");
    let folder = site.path("secrets").display().to_string();
    let daemon = site.begin(&["--stored", "--secrets", &folder]);
    patiently("it is delivered", || !came.lock().unwrap().is_empty());
    let headers = came.lock().unwrap()[0].headers.clone();
    assert_eq!(headers["authorization"], "Bearer of the node");
    assert_eq!(headers["x-token"], "visible");
    assert_eq!(daemon.stop(), 0);
    let wrong = r#"{"url": "http://a.example", "headers": {"A": {"secret": "../etc"}}}"#;
    let said = site.allora(&[&["add", "no", "http", "@daily", wrong], &URL[..]].concat());
    assert!(said.refused(2).contains("nor {\"secret\": \"NAME\"}"));
}

#[test]
fn a_schedule_with_a_label_runs_on_nodes_that_have_it() {
    let site = site();
    let data = r#"{"command": ["sh", "-c", "echo $ALLORA_NODE >> DIR/NAME"]}"#;
    add(&site, "gpu", "command", &data.replace("NAME", "gpu"), &["--label", "gpu"]);
    add(&site, "any", "command", &data.replace("NAME", "any"), &[]);
    assert_eq!(show(&site, "gpu")["kind"], "command@gpu");
    let plain = site.begin(&["--stored", "--node-name", "plain"]);
    plain.says("has reached its store");
    site.more_lines("any", 3);
    assert_eq!(site.lines("gpu"), 0, "no node has the label");
    let gpu = site.begin(&["--stored", "--node-name", "gpu", "--node-label", "gpu"]);
    gpu.says("has reached its store");
    site.more_lines("gpu", 2);
    plain.stop_well();
    // A node with labels runs what needs none, too.
    site.more_lines("any", 2);
    assert!(site.read("gpu").lines().all(|node| node.starts_with("gpu-")), "{}", site.read("gpu"));
    let modify = |label: &str| {
        let said = site.allora(&[&["modify", "gpu", "--label", label], &URL[..]].concat());
        assert_eq!(said.code, 0, "{said:?}");
        show(&site, "gpu")["kind"].clone()
    };
    assert_eq!((modify("big"), modify("")), ("command@big".into(), "command".into()));
    assert_eq!(modify("!spot,gpu,gpu"), "command@gpu,!spot", "equal labels are one kind");
    let add = ["add", "app", "report", "@daily", "{}", "--label", "gpu"];
    let said = site.allora(&[&add, &URL[..]].concat()).refused(2);
    assert!(said.contains("--label is only for the kinds command and http"), "{said}");
    let said = ["add", "bad", "command@gpu", "@daily", "{}"];
    let said = site.allora(&[&said, &URL[..]].concat()).refused(2);
    assert!(
        said.contains("`command` must be the program"),
        "the data of the kind is checked: {said}"
    );
    gpu.stop_well();
}

#[test]
fn a_schedule_runs_on_nodes_with_all_of_its_labels_and_none_that_it_excludes() {
    let site = site();
    let data = r#"{"command": ["sh", "-c", "echo $ALLORA_NODE >> DIR/NAME"]}"#;
    let add_on = |name: &str, labels: &str| {
        add(&site, name, "command", &data.replace("NAME", name), &["--label", labels]);
    };
    add_on("both", "gpu,big,!spot");
    add_on("not_spot", "!spot");
    let begin = |name: &str, labels: &[&str]| {
        let mut args = vec!["--stored", "--node-name", name];
        labels.iter().for_each(|label| args.extend(["--node-label", label]));
        site.begin(&args)
    };
    let daemons = [begin("spot", &["gpu", "big", "spot"]), begin("gpu", &["gpu"])];
    site.more_lines("not_spot", 2);
    assert_eq!(site.lines("both"), 0, "no node has both labels and lacks the third");
    let firm = begin("firm", &["big", "gpu"]);
    site.more_lines("both", 2);
    assert!(
        site.read("both").lines().all(|node| node.starts_with("firm-")),
        "{}",
        site.read("both")
    );
    let ran = site.read("not_spot");
    assert!(ran.lines().all(|node| !node.starts_with("spot-")), "{ran}");
    daemons.into_iter().for_each(Daemon::stop_well);
    firm.stop_well();
}

#[test]
fn a_kind_that_no_live_node_handles_is_reported_when_it_is_added() {
    let site = site();
    let data = r#"{"command": ["true"]}"#;
    let add_with = |name: &str, label: &str| {
        let add = ["add", name, "command", "@daily", data, "--label", label];
        site.allora(&[&add, &URL[..]].concat())
    };
    let said = add_with("early", "gpu");
    assert_eq!((said.code, said.err.as_str()), (0, ""), "no node lives, and so none is missed");
    let daemon = site.begin(&["--stored", "--node-name", "spot", "--node-label", "spot"]);
    daemon.says("has reached its store");
    patiently("the node is in the registry", || {
        let nodes = site.allora(&[&["nodes"], &URL[..]].concat());
        nodes.out.contains("spot")
    });
    let said = add_with("late", "big,!spot");
    assert_eq!(said.code, 0);
    let warning = "warning: no live node handles the kind \"command@big,!spot\"; start one with `allora run \
                   --stored=command --node-label big`, without the label spot\n";
    assert_eq!(said.err, warning);
    assert_eq!(add_with("here", "spot").err, "");
    let why = site.allora(&[&["why", "late"], &URL[..]].concat()).fine();
    assert!(why.contains("--node-label big`, without the label spot"), "{why}");
    daemon.stop_well();
}
