//! `cargo xtask bench [NAME]`: all benches of the workspace, or one; `bench compare`: two builds.

mod builds;
mod compare;
mod figures;
mod ratio;
mod request;

use crate::{
    Failure, Outcome,
    command::{cargo, run as run_step},
    package,
};

pub(crate) fn run(args: &[String]) -> Outcome {
    let only = match args {
        [first, rest @ ..] if first == "compare" => {
            return compare::run(&request::Request::parse(rest)?);
        }
        [] => None,
        [name] => Some(name.as_str()),
        [_, extra, ..] => {
            return Err(Failure::Usage(format!("`{extra}` is one argument too many")));
        }
    };
    let packages = package::all()?;
    let all: Vec<(&str, &str)> = packages
        .iter()
        .flat_map(|package| package.benches.iter().map(|bench| (&*package.name, &**bench)))
        .collect();
    for (package, bench) in chosen(&all, only)? {
        let args = ["bench", "-p", package, "--bench", bench, "--all-features"];
        run_step(&format!("bench {bench}"), cargo(&args))?;
    }
    Ok(())
}

fn chosen<'a>(all: &[(&'a str, &'a str)], only: Option<&str>) -> Outcome<Vec<(&'a str, &'a str)>> {
    if all.is_empty() {
        return Err(Failure::Check("the workspace has no benches".into()));
    }
    let Some(name) = only else { return Ok(all.to_vec()) };
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

    const ALL: &[(&str, &str)] = &[("core", "cron"), ("core", "planner"), ("sql", "take")];

    #[test]
    fn all_or_the_one_that_is_named() {
        assert_eq!(chosen(ALL, None), Ok(ALL.to_vec()));
        assert_eq!(chosen(ALL, Some("take")), Ok(vec![("sql", "take")]));
    }

    #[test]
    fn an_unknown_one_is_refused_with_the_known_ones() {
        let Err(Failure::Usage(what)) = chosen(ALL, Some("teak")) else { panic!("accepted") };
        assert!(what.contains("`teak`") && what.contains("cron, planner, take"), "{what}");
        assert!(matches!(chosen(&[], None), Err(Failure::Check(_))));
    }
}
