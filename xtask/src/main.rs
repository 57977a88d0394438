//! Every chore of the project: `cargo xtask help` lists them.
//!
//! Exit codes: 0 all is well, 1 a check failed, 2 the command line is wrong.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command talks to its user")]

mod bench;
mod chaos;
mod ci;
mod command;
mod deny;
mod disk;
mod figures;
mod fuzz;
mod lines;
mod model;
mod mutants;
mod package;
mod panics;
mod publish;
mod release;
mod screenshots;
mod services;
mod sim;
mod stores;
mod test;
mod tidy;
mod totals;
mod versions;

use std::{env, process::ExitCode};

const HELP: &str = "\
cargo xtask COMMAND

  test [--only STORE,..] [--long] [-- FILTER..]
                 every test of the workspace, doctests too; ends with the totals
                 --only   store backends to test (default: all); memory and sqlite need no server
                 --long   the campaigns that take hours, too
  services up [STORE,..]|down|status
                 servers that stay, so that single tests can be run by hand
  versions       the servers that the tests run on; an error if the guide of the stores names
                 others
  tidy           the house rules a machine can check
  lines          the lines of product code of each package
  ci             formatting, tidy, clippy, docs, examples, licences, packages, tests, also those of
                 examples/drivers, a workspace of its own
  fuzz [TARGET..] [--minutes N] [--seconds N]
                 the parsers of foreign text under libFuzzer; fuzz/README.md has the targets
                 --minutes  for each target (default: 5)
  deny [--advisories]
                 the licences, sources and versions of all dependencies, by deny.toml
                 --advisories  known weaknesses as well, from the network
  chaos --store STORE,.. [--minutes N] [--rate N] [--seed S] [--debug] [--short]
                 `allora prove` on private servers that are killed, frozen, restarted and failed
                 over, emptied, without room on their disks (as root) and with clocks that are set;
                 fails if something ran twice or was lost, or a fault did not happen
                 --store   sqlite, postgres, pgbouncer, mysql, redis, redis-sentinel, redis-cluster,
                           redis-cluster-replicas, redis-quorum, etcd, etcd-cluster, or each, all at the
                           same time
                 --minutes (default: 5)
                 --rate    occurrences each second (default: 50)
                 --debug   the build of the tests, as `ci` has it
                 --short   only killed, frozen, restarted and failed over, as `ci` has it
  chaos --peer NAME [--minutes N] [--rate N] [--seed S] [--debug]
                 another scheduler under the faults of --short, on PostgreSQL, for contrast: durare or
                 graphile_worker
  chaos --planted  defects are planted in the workers, and each must be found
  chaos report   writes RELIABILITY.md from the results in the target folder and from those that
                 xtask/reliability.jsonl has kept; keeps the new ones there
  sim [--hours N] [--seed S]
                 simulated clusters in which much goes wrong, until N hours of them have passed
                 (default: 1000); a seed that fails is made small and can be replayed alone
                 --seed   the first; worlds from 4294967296 on have a crowd of jobs (default: 0)
  model          every state of the models of a record, of runs after other jobs, and of the
                 quorum, and every order of what threads share; minutes to an hour
  release        the command, optimised, with the list of its packages for `cargo audit bin`
  mutants [OPTION..]
                 the code that decides what runs, changed in one place at a time: a test must
                 fail; days for all 5000, so with options of cargo-mutants: --shard 1/100 for every
                 hundredth, -F record/claim for a file
  screenshots    the pictures of the console in its README, taken in Chromium
  bench [--quick] [--peers] [--profile] [--rounds N] [--sustained N] [--store STORE,..]
                 the figures, tables and plots of BENCHMARKS.md, benches/TABLES.md and of
                 the guide `production`, on private servers
                 --quick   one round of smaller loads: six minutes after the build
                 --peers   builds and measures other schedulers, too
                 --profile records where the processor time goes; needs `perf` (Debian: linux-perf)
                 --rounds  measurements of each figure (default: 5; quick: 1)
                 --sustained N  schedules of the sustained load (default: 100,000; quick: 20,000)
                 --store   only these stores; prints the tables instead of writing the pages
  bench NAME     one bench of the workspace
  bench compare BASE [--rounds N] [--store STORE,..] [--out FILE] [--fail-below RATIO]
                 the speed of this tree beside that of the git revision BASE, measured in turn; BASE
                 may be the file of a measurement program that was built by hand
                 --rounds      pairs of measurements, 2 or more (default: 20)
                 --store       stores to measure (default: all); mariadb is the server of mysql
                 --out         a JSON file for the raw figures
                 --fail-below  exit code 1 if a figure is worse than this ratio and the 95 %
                               interval of its ratio lies below 1
  publish [--build]
                 a dry run of publishing every package, in a copy, under other names
                 --build  build each from its package alone, too, which takes minutes
  help           this text";

/// Why a chore ended early.
#[derive(Debug, PartialEq)]
enum Failure {
    /// The command line is wrong; says what would be right.
    Usage(String),
    /// A check did not pass, or could not be made.
    Check(String),
}

type Outcome<T = ()> = Result<T, Failure>;

fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    match run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Check(what)) => {
            // The totals stay the last line of standard output.
            if !what.is_empty() {
                eprintln!("error: {what}");
            }
            ExitCode::from(1)
        }
        Err(Failure::Usage(what)) => {
            eprintln!("error: {what}\n\n{HELP}");
            ExitCode::from(2)
        }
    }
}

fn run(args: &[String]) -> Outcome {
    let Some((command, rest)) = args.split_first() else {
        return Err(Failure::Usage("which chore?".into()));
    };
    match command.as_str() {
        "test" => test::run(&test::Request::parse(rest)?).end(),
        "services" => services::run(rest),
        "versions" => none(rest).and_then(|()| versions::run()),
        "model" => none(rest).and_then(|()| model::run()),
        "sim" => sim::run(rest),
        "mutants" => mutants::run(rest),
        "tidy" => none(rest).and_then(|()| tidy::run()),
        "release" => none(rest).and_then(|()| release::run()),
        "screenshots" => none(rest).and_then(|()| screenshots::run()),
        "deny" => deny::run(rest),
        "fuzz" => fuzz::run(rest),
        "lines" => none(rest).and_then(|()| lines::run()),
        "chaos" => chaos::run(rest),
        "ci" => none(rest).and_then(|()| ci::run()),
        "bench" => bench::run(rest),
        "publish" => match rest {
            [] => publish::run(false),
            [option] if option == "--build" => publish::run(true),
            _ => Err(Failure::Usage("publish knows one option: --build".into())),
        },
        "help" | "--help" | "-h" => {
            println!("{HELP}");
            Ok(())
        }
        other => Err(Failure::Usage(format!("no chore is called `{other}`"))),
    }
}

fn none(rest: &[String]) -> Outcome {
    match rest.first() {
        None => Ok(()),
        Some(extra) => Err(Failure::Usage(format!("`{extra}` is one argument too many"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(String::from).collect()
    }

    #[test]
    fn a_wrong_command_line_says_what_is_wrong() {
        for line in [
            "",
            "tset",
            "tidy now",
            "ci --fast",
            "test --only oracle",
            "bench a b",
            "bench --fast",
            "bench compare",
            "chaos",
            "sim --hours many",
            "model all",
        ] {
            assert!(matches!(run(&words(line)), Err(Failure::Usage(_))), "{line}");
        }
    }

    #[test]
    fn help_is_not_an_error() {
        assert_eq!(run(&words("help")), Ok(()));
    }
}
