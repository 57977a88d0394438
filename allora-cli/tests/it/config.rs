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
    assert!(listed.contains("Asia/Tokyo    2013-01-01 00:00:00 +0000"), "{listed}");
    assert!(listed.ends_with("1 entries.\n"));
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
        (&["list", "-e", "broken"], "environment `broken`: `url` is a text in quotes"),
        (&["list", "-e", "nourl"], "environment `nourl`: it has no `url`"),
        (&["list", "-e", "typo"], "nothing is called `timezome`"),
        (&["list", "-e", "badtype"], "`oracle:`; there are sqlite, postgres, mysql, redis"),
        (&["list", "-c", "missing.toml"], "missing.toml: No such file"),
    ] {
        let said = site.allora(args).refused(1);
        assert!(said.contains(says) && !said.contains("secret"), "{said}");
    }
    site.write("other.toml", "[development]\nurl = \"postgres://u:secret@h/d\n");
    let said = site.allora(&["list", "-c", "other.toml"]).refused(1);
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
