//! The configuration file and its environments.

use crate::site::Site;

const CONFIG: &str = "\
[development]
url = \"sqlite:dev.db\"

[production]
url = \"sqlite:prod.db\"
prefix = \"ps_prod\"
timezone = \"Asia/Tokyo\"

[broken]
url = 7

[nourl]
prefix = \"x\"

[typo]
url = \"sqlite:typo.db\"
timezome = \"Asia/Tokyo\"

[badtype]
url = \"oracle://u:secret@h/d\"
";

fn site() -> Site {
    let site = Site::new("");
    site.write("allora.toml", CONFIG);
    site
}

#[test]
fn an_environment_has_a_store_and_a_zone_of_its_own() {
    let site = site();
    site.allora(&["init"]).fine();
    site.allora(&["init", "-e", "production"]).fine();
    site.allora(&["add", "-e", "production", "p1", "t", "0 9 * * *", "{}", "-s", "1356966000"])
        .fine();
    let listed = site.allora(&["list", "-e", "production"]).fine();
    assert!(listed.contains("Asia/Tokyo  2013-01-01 00:00:00 +0000"), "{listed}");
    assert!(listed.ends_with("1 entry.\n"));
    assert!(site.allora(&["list"]).fine().ends_with("\n0 entries.\n"));
    // What names a zone itself keeps it, and what follows no wall clock has none.
    site.allora(&["add", "p2", "t", "0 9 * * * UTC", "{}", "-e", "production"]).fine();
    site.allora(&["add", "p3", "t", "@every 1h", "{}", "-e", "production"]).fine();
    site.allora(&["add", "p4", "t", "0 9 * * *", "{}", "-e", "production", "-t", "UTC"]).fine();
    let zones = site.allora(&["list", "-e", "production"]).fine();
    assert_eq!(zones.matches("     UTC ").count(), 3, "{zones}");
}

#[test]
fn a_bad_configuration_is_named_and_no_secret_with_it() {
    let site = site();
    for (args, says) in [
        (
            &["list", "-e", "nosuchenv"][..],
            "allora.toml: there is no environment `nosuchenv`; it has badtype, broken, development",
        ),
        (&["list", "-e", "broken"], "environment `broken`: `url` must be a text in quotes"),
        (&["list", "-e", "nourl"], "environment `nourl`: it has no `url`"),
        (&["list", "-e", "typo"], "unknown key `timezome`"),
        (&["list", "-e", "badtype"], "`oracle:`; there are sqlite, postgres, mysql, redis"),
        (&["list", "-c", "missing.toml"], "missing.toml: No such file"),
    ] {
        let said = site.allora(args).refused(2);
        assert!(said.contains(says) && !said.contains("secret"), "{said}");
    }
    site.write("other.toml", "[development]\nurl = \"postgres://u:secret@h/d\n");
    let said = site.allora(&["list", "-c", "other.toml"]).refused(2);
    assert!(said.contains("other.toml: line 2") && !said.contains("secret"), "{said}");
}

#[test]
fn the_command_line_comes_before_the_environment_and_that_before_the_file() {
    let site = site();
    site.allora(&["init", "--url", "sqlite:mine.db"]).fine();
    assert!(site.path("mine.db").exists() && !site.path("dev.db").exists());
    let mut command = crate::allora::command(&["init"]);
    let command = command.current_dir(site.path("")).env("ALLORA_URL", "sqlite:env.db");
    assert!(command.status().unwrap().success());
    assert!(site.path("env.db").exists() && !site.path("dev.db").exists());
}

#[test]
fn a_section_of_a_command_holds_its_options_and_the_command_line_comes_before_it() {
    let site = Site::new("* * * * * * true\n");
    site.write(
        "allora.toml",
        "[development]\nurl = \"sqlite:dev.db\"\n[development.next]\ncount = 2\nexplain = false\n\
         [development.run]\nseconds = true\nconcurrency = 7\ngrace = \"1s\"\n\
         node_label = [\"gpu\", \"big\"]\nlog-level = \"warn\"\n",
    );
    let next = |more: &[&str]| {
        let said = site.allora(&[&["next", "@daily", "--after", "0"], more].concat());
        said.fine().lines().count()
    };
    assert_eq!((next(&[]), next(&["-n", "1"])), (2, 1));
    let check = ["run", "--check", "jobs"];
    assert_eq!(site.allora(&check).fine(), "1 job, 0 errors.\n", "with six fields");
    let daemon = site.start_configured();
    let nodes = || site.allora(&["nodes", "--json"]).out;
    crate::site::patiently("it has its record", || {
        let nodes = nodes();
        nodes.contains("\"concurrency\":7") && nodes.contains("[\"big\",\"gpu\"]")
            || nodes.contains("[\"gpu\",\"big\"]")
    });
    drop(daemon);
    for (text, says) in [
        ("[development.run]\nconcurency = 7\n", "options of `run`: unknown option `concurency`"),
        ("[development.run]\nurl = \"x\"\n", "options of `run`: unknown option `url`"),
        ("[development.run]\nseconds = 1\n", "`seconds` must be true or false"),
        (
            "[development.run]\nconcurrency = true\n",
            "`concurrency` must be a text in quotes, a number",
        ),
        (
            "[development.run]\ngrace = \"soon\"\n",
            "options of `run`: invalid value 'soon' for '--grace",
        ),
        ("[development.rnu]\nseconds = true\n", "there is no command `rnu`"),
    ] {
        site.write("other.toml", &format!("[development]\nurl = \"sqlite:dev.db\"\n{text}"));
        let said = site.allora(&[&check[..], &["-c", "other.toml"]].concat()).refused(2);
        assert!(
            said.contains("other.toml: environment `development`") && said.contains(says),
            "{said}"
        );
    }
}

#[test]
fn another_format_is_named_with_the_one_that_is_read() {
    let site = Site::new("");
    site.write("allora.yml", "development:\n  url: sqlite:dev.db\n");
    let said = site.allora(&["list", "-c", "allora.yml"]).refused(2);
    assert!(said.contains("allora.yml: this is YAML, and TOML is read here"), "{said}");
    site.write("jobs.yaml", "- name: a\n  kind: command\n");
    let said = site.allora(&["sync", "jobs.yaml", "--url", "sqlite:dev.db"]).refused(2);
    assert!(said.contains("jobs.yaml: this is YAML, and JSON is read here"), "{said}");
    site.write("jobs.jsonl", "{\"name\": \"a\"}\n{\"name\": \"b\"}\n");
    let said = site.allora(&["sync", "jobs.jsonl", "--url", "sqlite:dev.db"]).refused(2);
    assert!(
        said.contains("jobs.jsonl: one JSON array") && said.contains("`allora import`"),
        "{said}"
    );
}
