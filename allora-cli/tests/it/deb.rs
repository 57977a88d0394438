//! The package of Debian: built from `[package.metadata.deb]` of the manifest, unpacked into a folder,
//! and run from there as its unit says. With `ALLORA_DEB`, that package is unpacked instead.
//!
//! cargo-deb, which builds the package for users, takes minutes to be compiled: the tree is made here.

use crate::site::{Site, patiently, send, skipped};
use std::{
    env, fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};
use toml::Value;

/// The manifest, whose folder is that of the assets.
fn manifest() -> toml::Table {
    toml::from_str(&fs::read_to_string(own("Cargo.toml")).unwrap()).unwrap()
}

/// A file of the package of the command.
fn own(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// One file of the package: its source, its place, and its mode.
struct Asset {
    from: PathBuf,
    to: PathBuf,
    mode: u32,
}

/// The files of the package. What `deb.sh` makes in `target/package` is in the place.
fn assets(site: &Site) -> Vec<Asset> {
    make_generated(site);
    let manifest = manifest();
    let rows = manifest["package"]["metadata"]["deb"]["assets"].as_array().unwrap();
    rows.iter().flat_map(|row| expanded(site, row)).collect()
}

/// The files of one row, whose last part may begin with `*`.
fn expanded(site: &Site, row: &Value) -> Vec<Asset> {
    let [from, to, mode] = [0, 1, 2].map(|column| row[column].as_str().unwrap());
    assert!(!to.starts_with('/'), "{to}");
    let path = match from.strip_prefix("../") {
        _ if from == "target/release/allora" => env!("CARGO_BIN_EXE_allora").into(),
        Some(generated) => site.path(generated),
        None => own(from),
    };
    let name = path.file_name().unwrap().to_str().unwrap().to_owned();
    let is_it = |file: &str| match name.strip_prefix('*') {
        Some(end) => file.ends_with(end),
        None => file == name,
    };
    let files = fs::read_dir(path.parent().unwrap()).unwrap().map(|file| file.unwrap().path());
    let found: Vec<Asset> = files
        .filter(|file| is_it(file.file_name().unwrap().to_str().unwrap()))
        .map(|from| {
            let name = from.file_name().unwrap();
            let to = if to.ends_with('/') { Path::new(to).join(name) } else { to.into() };
            Asset { to, mode: u32::from_str_radix(mode, 8).unwrap(), from }
        })
        .collect();
    assert!(!found.is_empty(), "{from} is missing");
    found
}

/// Makes what `deb.sh` makes, by its own lines.
fn make_generated(site: &Site) {
    site.allora(&["man", "target/package/man"]).fine();
    fs::create_dir_all(site.path("target/package/completions")).unwrap();
    let script = fs::read_to_string(own("packaging/deb.sh")).unwrap();
    for line in script.lines().filter_map(|line| line.strip_prefix("\"$allora\" completions ")) {
        let (shell, file) = line.split_once(" > \"$out/").unwrap();
        let text = site.allora(&["completions", shell]).fine();
        fs::write(site.path("target/package").join(file.trim_end_matches('"')), text).unwrap();
    }
}

const SCRIPTS: [&str; 3] = ["postinst", "prerm", "postrm"];

/// Builds the package, without its dependencies.
fn build(site: &Site, assets: &[Asset]) -> PathBuf {
    let (tree, manifest) = (site.path("tree"), manifest());
    let place = |from: &Path, to: &Path, mode: u32| {
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::copy(from, to).unwrap();
        fs::set_permissions(to, fs::Permissions::from_mode(mode)).unwrap();
    };
    for Asset { from, to, mode } in assets {
        place(from, &tree.join(to), *mode);
    }
    for script in SCRIPTS {
        place(&own("packaging").join(script), &tree.join("DEBIAN").join(script), 0o755);
    }
    let deb = &manifest["package"]["metadata"]["deb"];
    let files: Vec<&str> =
        deb["conf-files"].as_array().unwrap().iter().map(|file| file.as_str().unwrap()).collect();
    fs::write(tree.join("DEBIAN/conffiles"), files.join("\n") + "\n").unwrap();
    let text = |key: &str| deb[key].as_str().unwrap().to_owned();
    let control = format!(
        "Package: {}\nVersion: {}\nArchitecture: {}\nMaintainer: {} <nobody@localhost>\nSection: {}\n\
         Priority: {}\nDescription: {}\n",
        text("name"),
        env!("CARGO_PKG_VERSION"),
        run(Command::new("dpkg").arg("--print-architecture")).trim(),
        text("maintainer"),
        text("section"),
        text("priority"),
        manifest["package"]["description"].as_str().unwrap(),
    );
    fs::write(tree.join("DEBIAN/control"), control).unwrap();
    let package = site.path("allora.deb");
    run(Command::new("dpkg-deb")
        .args(["--root-owner-group", "-Znone", "--build"])
        .arg(&tree)
        .arg(&package));
    package
}

/// The output of a command that succeeds.
#[track_caller]
fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The words of the unit's `ExecStart`, with the variables that the unit and the configuration set.
fn start_of(root: &Path) -> Vec<String> {
    let unit = fs::read_to_string(root.join("usr/lib/systemd/system/allora.service")).unwrap();
    let setting = |name: &str| {
        let found = unit.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        found.unwrap_or_else(|| panic!("{name} in {unit}"))
    };
    let crontabs = setting("Environment").strip_prefix("CRONTABS=").unwrap();
    assert_eq!(setting("EnvironmentFile"), "-/etc/default/allora");
    let configured = fs::read_to_string(root.join("etc/default/allora")).unwrap();
    assert!(configured.lines().all(|line| line.is_empty() || line.starts_with('#')));
    assert!(configured.contains("\n#CRONTABS=") && configured.contains("\n#ALLORA_URL="));
    let words = setting("ExecStart").split(' ');
    words.map(|word| if word == "$CRONTABS" { crontabs } else { word }.to_owned()).collect()
}

#[test]
fn the_package_has_its_files_and_runs_a_line_as_its_unit_says() {
    if Command::new("dpkg-deb").arg("--version").output().is_err() {
        return skipped("there is no dpkg-deb");
    }
    let site = Site::new("");
    let assets = assets(&site);
    let package = env::var_os("ALLORA_DEB")
        .map_or_else(|| build(&site, &assets), |given| own("..").join(given));
    let root = site.path("root");
    run(Command::new("dpkg-deb").arg("-x").arg(&package).arg(&root));
    for Asset { to, mode, .. } in &assets {
        // cargo-deb compresses the man pages.
        let [plain, packed] = ["", ".gz"].map(|end| format!("{}{end}", root.join(to).display()));
        let found = fs::metadata(plain).or_else(|_| fs::metadata(packed));
        let found = found.unwrap_or_else(|_| panic!("{} is missing", to.display()));
        assert_eq!(found.permissions().mode() & 0o777, *mode, "{}", to.display());
    }
    let control = site.path("control");
    run(Command::new("dpkg-deb").arg("-e").arg(&package).arg(&control));
    let configured = fs::read_to_string(control.join("conffiles")).unwrap();
    for file in ["/etc/default/allora", "/etc/allora/cron.d/jobs"] {
        assert!(configured.lines().any(|line| line == file), "{configured}");
    }
    for script in SCRIPTS {
        let script = control.join(script);
        assert_eq!(fs::metadata(&script).unwrap().permissions().mode() & 0o111, 0o111);
        run(Command::new("sh").arg("-n").arg(script));
    }

    let start = start_of(&root);
    let crontab = root.join("etc/allora/cron.d/jobs");
    let user = run(Command::new("id").arg("-un"));
    let line = format!(
        "* * * * * {} true\n@every 1s {} touch {}\n",
        user.trim(),
        user.trim(),
        site.path("ran").display()
    );
    let text = fs::read_to_string(&crontab).unwrap();
    assert!(text.lines().all(|line| line.starts_with('#')), "{text}");
    fs::write(&crontab, text + &line).unwrap();
    // Absolute paths are those of the package.
    let inside = |word: &String| match word.strip_prefix('/') {
        Some(path) => root.join(path).display().to_string(),
        None => word.clone(),
    };
    let words: Vec<String> = start.iter().map(inside).collect();
    let state = root.join("var/lib/allora");
    fs::create_dir_all(&state).unwrap();
    let mut daemon = Command::new(&words[0])
        .args(&words[1..])
        .env_clear()
        .env("STATE_DIRECTORY", &state)
        .stdin(Stdio::null())
        .stderr(fs::File::create(site.path("log")).unwrap())
        .spawn()
        .unwrap();
    patiently("the line has run", || {
        assert!(daemon.try_wait().unwrap().is_none(), "it has ended: {}", site.read("log"));
        site.path("ran").exists()
    });
    send("-TERM", daemon.id());
    assert!(daemon.wait().unwrap().success(), "{}", site.read("log"));
    assert!(state.join("allora.db").exists());
}

#[test]
fn the_script_that_builds_the_package_is_a_script() {
    let script = own("packaging/deb.sh");
    assert_eq!(fs::metadata(&script).unwrap().permissions().mode() & 0o111, 0o111);
    run(Command::new("sh").arg("-n").arg(script));
}
