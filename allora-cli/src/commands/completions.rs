//! `allora completions`: for shells, with the names of jobs in the store.

use crate::failure::Outcome;
use clap::{Arg, Args, Command, ValueHint};
use clap_complete::Shell;
use std::io;

/// Prints completions for a shell.
///
/// They are of commands and options, and in bash, zsh and fish also of the names of jobs, which are
/// read from the store of the configuration or of `ALLORA_URL`.
#[derive(Debug, Args)]
#[command(after_help = "\
EXAMPLES
  allora completions bash > /etc/bash_completion.d/allora
  allora completions zsh > /usr/local/share/zsh/site-functions/_allora
  allora completions fish > ~/.config/fish/completions/allora.fish")]
pub(crate) struct Completions {
    shell: Shell,
}

impl Completions {
    pub(crate) fn run(self, mut command: Command) -> Outcome {
        let named: Vec<String> =
            command.get_subcommands().filter(|c| has_name(c)).map(name).collect();
        if self.shell == Shell::Zsh {
            for name in &named {
                command = command.mut_subcommand(name, |command| command.mut_args(marked));
            }
        }
        let mut text = Vec::new();
        clap_complete::generate(self.shell, &mut command, "allora", &mut text);
        let text = String::from_utf8_lossy(&text).into_owned();
        let with_names = |function: &str| function.replace("COMMANDS", &named.join(" "));
        let text = match self.shell {
            Shell::Bash => text + &with_names(BASH),
            Shell::Fish => text + &with_names(FISH),
            Shell::Zsh => text.replacen('\n', ZSH, 1).replace(MARKED, "_allora_names"),
            _ => text,
        };
        Ok(io::Write::write_all(&mut io::stdout(), text.as_bytes())?)
    }
}

/// True if the first argument of a command is the name of a job that exists.
fn has_name(command: &Command) -> bool {
    let first = command.get_positionals().next();
    !command.is_hide_set()
        && command.get_name() != "add"
        && first.is_some_and(|argument| argument.get_id() == "name")
}

/// The argument, with a mark if it is the name of a job.
fn marked(argument: Arg) -> Arg {
    if argument.get_id() == "name" { argument.value_hint(MARK) } else { argument }
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

/// zsh completes an argument by the function of its hint. No argument is a host: this hint marks names.
const MARK: ValueHint = ValueHint::Hostname;
const MARKED: &str = "_hosts";

/// Stands between the first line, which zsh reads, and the function of the commands.
const ZSH: &str = r#"

_allora_names() {
    local -a names
    names=(${(f)"$(allora names -- "${(Q)PREFIX}" 2>/dev/null)"})
    compadd -a names
}
"#;
