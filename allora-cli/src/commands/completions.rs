//! `allora completions`: for shells, with the names of jobs in the store.

use crate::failure::Outcome;
use clap::{Args, Command};
use clap_complete::Shell;
use std::io;

/// Prints completions for a shell: of commands and options, and in bash and fish of the names of jobs,
/// which are read from the store of the configuration or of `ALLORA_URL`.
#[derive(Debug, Args)]
#[command(after_help = "EXAMPLES\n  allora completions bash > /etc/bash_completion.d/allora")]
pub(crate) struct Completions {
    shell: Shell,
}

impl Completions {
    pub(crate) fn run(self, mut command: Command) -> Outcome {
        let named: Vec<String> =
            command.get_subcommands().filter(|c| has_name(c)).map(name).collect();
        let mut text = Vec::new();
        clap_complete::generate(self.shell, &mut command, "allora", &mut text);
        let names = match self.shell {
            Shell::Bash => BASH,
            Shell::Fish => FISH,
            _ => "",
        };
        text.extend_from_slice(names.replace("COMMANDS", &named.join(" ")).as_bytes());
        Ok(io::Write::write_all(&mut io::stdout(), &text)?)
    }
}

/// True if the first argument of a command is the name of a job that exists.
fn has_name(command: &Command) -> bool {
    let first = command.get_positionals().next();
    !command.is_hide_set()
        && command.get_name() != "add"
        && first.is_some_and(|argument| argument.get_id() == "name")
}

fn name(command: &Command) -> String {
    command.get_name().to_owned()
}

/// bash splits words at colons, which the names of lines have: what stands before the last colon stays.
const BASH: &str = r#"
_allora_with_names() {
    _allora "$@"
    case " COMMANDS " in
        *" ${COMP_WORDS[1]} "*) ;;
        *) return ;;
    esac
    local current="${COMP_LINE:0:COMP_POINT}"
    current="${current##*[[:space:]]}"
    [[ $current == -* ]] && return
    local before=""
    [[ $COMP_WORDBREAKS == *:* ]] && before="${current%"${current##*:}"}"
    local name
    while IFS= read -r name; do
        COMPREPLY+=("${name#"$before"}")
    done < <(allora names -- "$current" 2>/dev/null)
}
complete -F _allora_with_names -o bashdefault -o default allora
"#;

const FISH: &str = r#"
complete -c allora -n "__fish_seen_subcommand_from COMMANDS" -f -a "(allora names -- (commandline -ct) 2>/dev/null)"
"#;
