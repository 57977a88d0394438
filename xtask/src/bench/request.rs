//! The command line of `cargo xtask bench compare`.

use crate::{Failure, Outcome, stores};
use std::path::PathBuf;

/// Two builds to compare.
#[derive(Debug, PartialEq)]
pub(super) struct Request {
    /// The git revision to compare with.
    pub(super) base: String,
    /// Pairs of measurements of each store.
    pub(super) rounds: u32,
    pub(super) stores: Vec<String>,
    /// The file for the raw figures.
    pub(super) out: Option<PathBuf>,
    /// The ratio below which a significant change is a failure.
    pub(super) fail_below: Option<f64>,
}

impl Request {
    /// Reads the words after `cargo xtask bench compare`.
    ///
    /// # Errors
    /// No base, an unknown option or store, or a number out of its range.
    pub(super) fn parse(args: &[String]) -> Outcome<Self> {
        let mut base = None;
        let mut request = Self {
            base: String::new(),
            rounds: 20,
            stores: stores::STORES.iter().map(|store| (*store).to_owned()).collect(),
            out: None,
            fail_below: None,
        };
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            let mut value = || args.next().ok_or_else(|| usage(format!("`{arg}` needs a value")));
            match arg.as_str() {
                "--rounds" => request.rounds = rounds(value()?)?,
                "--store" => request.stores = stores(value()?)?,
                "--out" => request.out = Some(value()?.into()),
                "--fail-below" => request.fail_below = Some(fail_below(value()?)?),
                option if option.starts_with('-') => {
                    return Err(usage(format!("`bench compare` has no option `{option}`")));
                }
                _ if base.is_none() => base = Some(arg.clone()),
                extra => return Err(usage(format!("`{extra}` is one argument too many"))),
            }
        }
        request.base = base.ok_or_else(|| {
            usage("`bench compare` needs the git revision to compare with, as `main`".to_owned())
        })?;
        Ok(request)
    }
}

/// One round has no interval: the spread of the ratios is not known.
fn rounds(text: &str) -> Outcome<u32> {
    text.parse()
        .ok()
        .filter(|rounds| *rounds >= 2)
        .ok_or_else(|| usage(format!("`--rounds {text}`: use a whole number that is 2 or more")))
}

fn fail_below(text: &str) -> Outcome<f64> {
    text.parse().ok().filter(|ratio| *ratio > 0.0 && *ratio <= 1.0).ok_or_else(|| {
        usage(format!("`--fail-below {text}`: use a ratio above 0 that is at most 1, as 0.95"))
    })
}

/// Each store once, by the name that `cargo xtask test --only` has for it.
fn stores(names: &str) -> Outcome<Vec<String>> {
    let mut stores: Vec<String> = Vec::new();
    for name in names.split(',') {
        let store = stores::stores(if name == "mariadb" { "mysql" } else { name })?;
        if !stores.contains(&store) {
            stores.push(store);
        }
    }
    Ok(stores)
}

fn usage(what: String) -> Failure {
    Failure::Usage(what)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Outcome<Request> {
        Request::parse(&line.split_whitespace().map(String::from).collect::<Vec<_>>())
    }

    #[test]
    fn all_stores_are_measured_twenty_times_by_default() {
        let request = parse("HEAD~1").unwrap();
        assert_eq!((request.base.as_str(), request.rounds), ("HEAD~1", 20));
        assert_eq!(request.stores, stores::STORES);
        assert_eq!((request.out, request.fail_below), (None, None));
    }

    #[test]
    fn options_stand_before_and_behind_the_base() {
        let line = "--rounds 4 main --store memory,mariadb,mysql --out a.json --fail-below 0.95";
        let stores = vec!["memory".to_owned(), "mysql".to_owned()];
        assert_eq!(
            parse(line),
            Ok(Request {
                base: "main".into(),
                rounds: 4,
                stores,
                out: Some("a.json".into()),
                fail_below: Some(0.95),
            })
        );
    }

    #[test]
    fn a_wrong_command_line_says_what_is_wrong() {
        for (line, wrong) in [
            ("", "revision"),
            ("--rounds 20", "revision"),
            ("main dev", "`dev`"),
            ("main --quick", "`--quick`"),
            ("main --rounds", "`--rounds`"),
            ("main --rounds 1", "2 or more"),
            ("main --rounds few", "few"),
            ("main --store oracle", "`oracle`"),
            ("main --store memory,", "``"),
            ("main --out", "`--out`"),
            ("main --fail-below 0", "above 0"),
            ("main --fail-below 1.05", "at most 1"),
            ("main --fail-below NaN", "NaN"),
        ] {
            let Err(Failure::Usage(what)) = parse(line) else { panic!("accepted: {line}") };
            assert!(what.contains(wrong), "{line}: {what}");
        }
    }
}
