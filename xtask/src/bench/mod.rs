//! `cargo xtask bench`: the report; `bench NAME`: one bench of the workspace; `bench compare`: two
//! builds.

mod builds;
mod compare;
mod figures;
mod ratio;
mod report;
mod request;

pub(crate) use report::peers;

use crate::{
    Failure, Outcome,
    command::{cargo, run as run_step},
    package,
};

pub(crate) fn run(args: &[String]) -> Outcome {
    match args {
        [first, rest @ ..] if first == "compare" => compare::run(&request::Request::parse(rest)?),
        [name] if !name.starts_with('-') => one(name),
        [name, extra, ..] if !name.starts_with('-') => {
            Err(Failure::Usage(format!("`{extra}` is one argument too many")))
        }
        options => report::run(&report::Request::parse(options)?),
    }
}

fn one(name: &str) -> Outcome {
    let packages = package::all()?;
    let all: Vec<(&str, &str)> = packages
        .iter()
        .flat_map(|package| package.benches.iter().map(|bench| (&*package.name, &**bench)))
        .collect();
    for (package, bench) in named(&all, name)? {
        let args = ["bench", "-p", package, "--bench", bench, "--all-features"];
        run_step(&format!("bench {bench}"), cargo(&args))?;
    }
    Ok(())
}

fn named<'a>(all: &[(&'a str, &'a str)], name: &str) -> Outcome<Vec<(&'a str, &'a str)>> {
    let found: Vec<_> = all.iter().copied().filter(|(_, bench)| *bench == name).collect();
    if found.is_empty() {
        let known: Vec<&str> = all.iter().map(|(_, bench)| *bench).collect();
        let what = format!("no bench is called `{name}`; there is: {}", known.join(", "));
        return Err(Failure::Usage(what));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: &[(&str, &str)] = &[("core", "cron"), ("core", "planner"), ("sql", "claim")];

    #[test]
    fn the_one_that_is_named_is_found() {
        assert_eq!(named(ALL, "claim"), Ok(vec![("sql", "claim")]));
    }

    #[test]
    fn an_unknown_one_is_refused_with_the_known_ones() {
        let Err(Failure::Usage(what)) = named(ALL, "clam") else { panic!("accepted") };
        assert!(what.contains("`clam`") && what.contains("cron, planner, claim"), "{what}");
    }
}
