//! The help of `allora`: its commands in groups, each with a short line.

use clap::Command;
use std::fmt::Write;

/// The groups, in the order in which they are shown. Each command is in one of them.
const GROUPS: &[(&str, &[&str])] = &[
    ("Run crontabs", &["run", "exec", "next"]),
    (
        "Look",
        &[
            "status", "console", "list", "show", "why", "history", "logs", "changes", "stats",
            "nodes", "doctor",
        ],
    ),
    (
        "Steer jobs",
        &[
            "trigger", "backfill", "rerun", "mark", "pause", "resume", "skip", "cancel", "reset",
            "undo",
        ],
    ),
    ("Stored schedules", &["add", "modify", "delete", "sync", "export", "import", "calendar"]),
    ("Set up", &["init", "gc", "prove", "token", "completions", "man"]),
];

/// `command`, with its commands in groups: clap lists them in one.
pub(crate) fn grouped(command: Command) -> Command {
    let mut template = "{about-with-newline}\n{usage-heading} {usage}\n".to_owned();
    for (group, names) in GROUPS {
        let _ = writeln!(template, "\n{group}:");
        for name in *names {
            let about = command.find_subcommand(name).and_then(Command::get_about);
            let about = about.map(ToString::to_string).unwrap_or_default();
            let _ = writeln!(template, "  {name:<11}  {about}");
        }
    }
    template.push_str("\n`allora help COMMAND` explains one.\n");
    template.push_str("\nOptions:\n{options}{after-help}");
    command.help_template(template)
}

#[cfg(test)]
mod tests {
    use super::{GROUPS, grouped};
    use clap::CommandFactory;
    use std::collections::BTreeSet;

    #[test]
    fn each_command_is_in_one_group_with_a_short_line() {
        let command = crate::Allora::command();
        let shown = command.get_subcommands().filter(|command| !command.is_hide_set());
        let shown: BTreeSet<&str> = shown.map(clap::Command::get_name).collect();
        let listed: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| *names).copied().collect();
        assert_eq!(listed.iter().copied().collect::<BTreeSet<_>>(), shown);
        assert_eq!(listed.len(), shown.len(), "a command is in two groups");
        let help = grouped(command).render_help().to_string();
        let too_long: Vec<&str> = help.lines().filter(|line| line.len() > 100).collect();
        assert!(too_long.is_empty(), "{too_long:#?}");
        assert!(help.contains("\nLook:\n  status       Shows "), "{help}");
    }
}
