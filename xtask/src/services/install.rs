//! Getting a server that is not on this machine.

use super::{Service, says_yes};
use crate::{Failure, Outcome, command};
use std::{fs, path::PathBuf, process::Command};

/// The package of PyPI that makes a client in Python of a description of an API. A version that is tried: another one
/// may call its functions and classes by other names.
const GENERATOR: &str = "openapi-python-client==0.29.1";

/// Installs the service's packages, where we know how and may.
pub(super) fn packages(service: &Service) -> Outcome {
    let Service { store, variables, packages, programs, .. } = service;
    let (package, program) = (packages.join(" "), programs.join(" or "));
    install(
        packages,
        format!(
            "`{program}` is not on this machine: install it (Debian and Ubuntu: {package}), \
             or set {} for a server that tests may use, or leave {store} out with --only",
            variables[0]
        ),
    )
}

/// Installs the browser in which the console is tested, if it is not there.
pub(crate) fn browser() -> Outcome {
    if says_yes(with(&["chromedriver", "--version"])) {
        return Ok(());
    }
    let help = "`chromedriver` is not on this machine, with which the console is tested: install it \
                (Debian: chromium chromium-driver)";
    install(&["chromium", "chromium-driver", "fonts-dejavu-core"], help.to_owned())
}

/// Installs the languages of the clients in `examples/clients`, as far as they are not there.
pub(super) fn languages() -> Outcome {
    for language in ["python3", "ruby"] {
        if !says_yes(with(&[language, "--version"])) {
            let help = format!(
                "`{language}` is not on this machine, but has a client to be tested: install it"
            );
            install(&[language], help)?;
        }
    }
    Ok(())
}

/// The Python that has the generator of clients.
pub(super) fn generator() -> Outcome<PathBuf> {
    Ok(python_package(GENERATOR, &[], "python")?.join("python"))
}

/// The programs of a package of PyPI, given as `name==version`, in a folder beside what cargo builds. With hashes
/// (SHA-256), the downloaded file must have one of them.
pub(crate) fn python_package(wanted: &str, hashes: &[&str], folder: &str) -> Outcome<PathBuf> {
    let folder = command::target().join(folder);
    let programs = folder.join("bin");
    let name = programs.join("python").display().to_string();
    let [package, version] = wanted.split("==").collect::<Vec<_>>()[..] else { unreachable!() };
    let is_there =
        format!("import importlib.metadata as m; assert m.version('{package}') == '{version}'");
    if !says_yes(with(&[&name, "-c", &is_there])) {
        let made =
            ["python3", "-m", "venv", "--clear", &folder.display().to_string()].map(String::from);
        let make = || with(&made.each_ref().map(String::as_str));
        if !says_yes(make()) {
            let help = "`python3 -m venv` fails on this machine: install it (Debian: python3-venv)";
            install(&["python3-venv"], help.to_owned())?;
            command::run("make a folder for Python packages", make())?;
        }
        // Only a file of requirements can have hashes.
        let hashes: String = hashes.iter().map(|hash| format!(" --hash=sha256:{hash}")).collect();
        let file = folder.join("requirements.txt");
        fs::write(&file, format!("{wanted}{hashes}\n"))
            .map_err(|cause| Failure::Check(format!("{}: {cause}", file.display())))?;
        let file = file.display().to_string();
        let words = [&name, "-m", "pip", "install", "--quiet", "-r", &file];
        command::run(&format!("install {wanted}"), with(&words))?;
    }
    Ok(programs)
}

/// The programs of a package of crates.io, given as `name@version`, built once beside what cargo builds.
pub(crate) fn cargo_package(wanted: &str) -> Outcome<PathBuf> {
    let folder = command::target().join("tools").join(wanted.replace('@', "-"));
    let programs = folder.join("bin");
    if !programs.is_dir() {
        let root = folder.display().to_string();
        let install = command::cargo(&["install", "--locked", "--quiet", "--root", &root, wanted]);
        command::run(&format!("install {wanted}, from its sources"), install)?;
    }
    Ok(programs)
}

/// The library by which a program has a clock of its own.
pub(crate) fn faketime() -> Outcome<PathBuf> {
    let find = || {
        let folders = fs::read_dir("/usr/lib").into_iter().flatten().flatten();
        folders.map(|one| one.path().join("faketime/libfaketimeMT.so.1")).find(|path| path.exists())
    };
    if find().is_none() {
        let help = "`libfaketime` is not on this machine, which sets the clocks of servers: install it \
                    (Debian: faketime)";
        install(&["faketime"], help.to_owned())?;
    }
    find().ok_or_else(|| Failure::Check("libfaketime is not where it was looked for".into()))
}

fn install(packages: &[&str], help: String) -> Outcome {
    if !says_yes(with(&["apt-get", "--version"])) {
        return Err(Failure::Check(help));
    }
    let prefix: &[&str] = if is_root() {
        &["env"]
    } else if says_yes(with(&["sudo", "-n", "true"])) {
        &["sudo", "-n", "env"]
    } else {
        return Err(Failure::Check(help));
    };
    let apt = |rest: &[&str]| {
        let words = [prefix, &["DEBIAN_FRONTEND=noninteractive", "apt-get", "-qq"], rest].concat();
        command::run(&format!("install {}", packages.join(" ")), with(&words))
    };
    apt(&["update"])?;
    apt(&[&["install", "-y", "--no-install-recommends"], packages].concat())
}

/// True if we are root: some servers refuse to run so.
pub(super) fn is_root() -> bool {
    number(&["-u"]) == Some(0)
}

/// The ids of a user and its group, or of one that has no rights.
pub(super) fn user(name: &str) -> Outcome<(u32, u32)> {
    let ids = |name: &str| Some((number(&["-u", name])?, number(&["-g", name])?));
    let none = || Failure::Check(format!("there is neither a user {name} nor one called nobody"));
    ids(name).or_else(|| ids("nobody")).ok_or_else(none)
}

fn number(args: &[&str]) -> Option<u32> {
    let told = Command::new("id").args(args).output().ok()?;
    told.status.success().then(|| String::from_utf8_lossy(&told.stdout).trim().parse().ok())?
}

fn with(words: &[&str]) -> Command {
    let mut command = Command::new(words[0]);
    command.args(&words[1..]);
    command
}
