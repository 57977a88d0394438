//! The words after `cargo xtask bench`, if it makes a report.

use super::plan::{BURSTS, Size};
use crate::{Failure, Outcome, stores};
use std::{fmt, str::FromStr};

#[derive(Debug, PartialEq)]
pub(crate) struct Request {
    pub(super) size: Size,
    pub(super) rounds: u32,
    pub(super) peers: bool,
    pub(super) profile: bool,
    pub(super) stores: Vec<String>,
}

/// The stores that a report measures.
const STORES: [&str; 6] = ["memory", "sqlite", "postgres", "mysql", "redis", "etcd"];

impl Request {
    /// True if all stores are measured, so that the pages can be written.
    pub(super) fn is_whole(&self) -> bool {
        STORES.iter().all(|store| self.stores.iter().any(|known| known == store))
    }

    /// # Errors
    /// An unknown option or store.
    pub(crate) fn parse(args: &[String]) -> Outcome<Self> {
        let (mut size, mut rounds, mut sustained) = (Size::FULL, None, None);
        let (mut peers, mut profile) = (false, false);
        let mut stores: Vec<String> = STORES.iter().map(|store| (*store).to_owned()).collect();
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            let mut value = || args.next().map_or("", String::as_str);
            match arg.as_str() {
                "--quick" => size = Size::QUICK,
                "--peers" => peers = true,
                "--profile" => profile = true,
                "--rounds" => rounds = Some(parse_number("--rounds", value(), 1)?),
                "--sustained" => {
                    // The bursts are measured in any case.
                    let least = BURSTS[1] + 1;
                    sustained = Some(parse_number("--sustained", value(), least)?);
                }
                "--store" => stores = parse_stores(value())?,
                other => {
                    return Err(Failure::Usage(format!("`bench` has no option `{other}`")));
                }
            }
        }
        size.sustained = sustained.unwrap_or(size.sustained);
        Ok(Self { size, rounds: rounds.unwrap_or(size.rounds()), peers, profile, stores })
    }
}

fn parse_number<T>(option: &str, text: &str, least: T) -> Outcome<T>
where
    T: FromStr + PartialOrd + fmt::Display,
{
    let what = format!("`{option} {text}`: use a whole number, {least} or more");
    text.parse().ok().filter(|number| *number >= least).ok_or(Failure::Usage(what))
}

fn parse_stores(text: &str) -> Outcome<Vec<String>> {
    let store = |name: &str| {
        let name = stores::stores(if name == "mariadb" { "mysql" } else { name })?;
        let wrong = || Failure::Usage(format!("a report does not measure `{name}`"));
        if STORES.contains(&&*name) { Ok(name.clone()) } else { Err(wrong()) }
    };
    text.split(',').map(store).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Outcome<Request> {
        Request::parse(&line.split_whitespace().map(String::from).collect::<Vec<_>>())
    }

    #[test]
    fn a_full_report_of_all_stores_is_the_default() {
        let full = parse("").unwrap();
        assert_eq!((full.size, full.rounds, full.peers), (Size::FULL, 5, false));
        assert_eq!(full.stores, STORES);
        let quick = parse("--quick --peers").unwrap();
        assert_eq!((quick.size, quick.rounds, quick.peers), (Size::QUICK, 1, true));
        assert!(!quick.profile && parse("--profile").unwrap().profile);
        let loaded = parse("--sustained 50000 --quick").unwrap().size;
        assert_eq!(loaded, Size { sustained: 50_000, ..Size::QUICK });
        let some = parse("--rounds 2 --store mariadb,memory").unwrap();
        assert_eq!((some.rounds, some.stores), (2, vec!["mysql".to_owned(), "memory".to_owned()]));
    }

    #[test]
    fn a_wrong_option_is_named() {
        for (line, wrong) in [
            ("--fast", "--fast"),
            ("--rounds 0", "--rounds 0"),
            ("--rounds", "--rounds"),
            ("--sustained many", "--sustained many"),
            ("--sustained 7000", "7001 or more"),
            ("--store oracle", "oracle"),
            ("--store redis-quorum", "redis-quorum"),
        ] {
            let Err(Failure::Usage(what)) = parse(line) else { panic!("accepted: {line}") };
            assert!(what.contains(wrong), "{line}: {what}");
        }
    }
}
