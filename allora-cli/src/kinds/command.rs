//! The kind `command`: a program with its arguments, run without a shell.
//!
//! Anybody who can write to the store decides what runs on nodes that allow it. So the command is a
//! list of arguments, and no shell parses stored text.

use super::data::Fields;
use serde_json::Value;
use std::{path::PathBuf, sync::Arc, time::Duration};

/// So much of the end of the output is kept for the record of a failed run, in bytes.
pub(crate) const TAIL: usize = 700;

/// The command to run.
pub(crate) struct CommandSpec {
    pub(crate) invocation: Invocation,
    pub(crate) stdin: Option<String>,
    pub(crate) environment: Arc<[(String, String)]>,
    /// In which folder; `None`: in `HOME`, or in / if the user has no home.
    pub(crate) folder: Option<PathBuf>,
    /// As whom; `None`: as the daemon.
    pub(crate) user: Option<String>,
    /// It is ended after so long.
    pub(crate) timeout: Option<Duration>,
    /// So much of the end of its output is kept, in bytes.
    pub(crate) kept_output: usize,
}

/// The way in which a command is called.
pub(crate) enum Invocation {
    /// By `$SHELL -c`.
    Shell(String),
    /// A program and its arguments, without any shell.
    Program(String, Vec<String>),
}

/// Reads what to run: `{"command": ["/usr/local/bin/backup", "--all"], "env": {..}, "input": "..",
/// "folder": "..", "timeout": "10m"}`.
///
/// Nothing in it reaches a shell; who wants one calls it: `["sh", "-c", ".."]`.
pub(crate) fn work(data: &Value) -> Result<CommandSpec, String> {
    let mut fields = Fields::of(data)?;
    let command =
        "`command` must be the program and its arguments, as [\"/bin/backup\", \"--all\"]";
    let mut words = match fields.take("command") {
        Some(Value::Array(words)) => words.into_iter(),
        Some(Value::String(line)) if line.contains(char::is_whitespace) => {
            let words: Vec<&str> = line.split_whitespace().collect();
            return Err(format!(
                "`command` is one text with blanks, and no shell reads it; write {}, or [\"sh\", \"-c\", \
                 {}] for a shell",
                Value::from(words),
                Value::from(line.as_str()),
            ));
        }
        Some(program @ Value::String(_)) => vec![program].into_iter(),
        _ => return Err(command.into()),
    };
    let text = |value: Value| match value {
        Value::String(text) if !text.contains('\0') => Ok(text),
        _ => Err(command.to_owned()),
    };
    let program = text(words.next().ok_or(command)?)?;
    if program.is_empty() {
        return Err("`command` names no program".into());
    }
    let args = words.map(text).collect::<Result<Vec<_>, _>>()?;
    let environment = fields.texts("env")?;
    let bad = |(name, value): &&(String, String)| {
        name.is_empty() || name.contains(['=', '\0']) || value.contains('\0')
    };
    if let Some((name, _)) = environment.iter().find(bad) {
        return Err(format!("`env` has {name:?}, which is not a valid name of a variable"));
    }
    let work = CommandSpec {
        invocation: Invocation::Program(program, args),
        stdin: fields.text("input")?,
        environment: environment.into(),
        folder: fields.text("folder")?.map(Into::into),
        user: None,
        timeout: fields.duration("timeout")?,
        kept_output: TAIL,
    };
    fields.end()?;
    Ok(work)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::secrets;
    use serde_json::json;

    #[track_caller]
    fn refused(data: &Value, says: &str) {
        let said = work(data).err().unwrap_or_default();
        assert!(said.contains(says) && !said.is_empty(), "{data}: {said}");
    }

    #[test]
    fn a_program_is_read_word_by_word() {
        let read =
            work(&json!({ "command": ["echo", "$(id)", "; rm"], "timeout": "90s" })).unwrap();
        let Invocation::Program(program, args) = read.invocation else { panic!("a shell") };
        assert_eq!((program.as_str(), args), ("echo", vec!["$(id)".to_owned(), "; rm".into()]));
        assert!(work(&json!({ "command": "/bin/true", "env": { "A": "b" } })).is_ok());
    }

    #[test]
    fn any_data_is_read_or_refused() {
        let seeds = [
            r#"{"command":["echo","$(id)"],"timeout":"90s","env":{"A":"b"},"input":"x","folder":"/tmp"}"#,
            r#"{"command":"/bin/true","env":{"A":{"secret":"NAME"}}}"#,
        ];
        crate::foreign::read_each(&seeds, |text| {
            let data = serde_json::from_str(text).map_err(|error| error.to_string())?;
            work(&secrets::without_values(&data)?)
        });
    }

    #[test]
    fn whatever_else_is_refused_by_name() {
        refused(&json!([]), "not a JSON object");
        refused(&json!({}), "`command`");
        refused(&json!({ "command": [] }), "`command`");
        refused(&json!({ "command": [1] }), "`command`");
        refused(&json!({ "command": "" }), "no program");
        refused(
            &json!({ "command": "echo hi" }),
            r#"write ["echo","hi"], or ["sh", "-c", "echo hi"]"#,
        );
        assert!(work(&json!({ "command": ["/opt/my app/run"] })).is_ok());
        refused(&json!({ "command": ["a\u{0}"] }), "`command`");
        refused(&json!({ "command": "a", "env": { "A=B": "" } }), "`env`");
        refused(&json!({ "command": "a", "env": { "A": 1 } }), "`env`");
        refused(&json!({ "command": "a", "timeout": "soon" }), "`timeout`");
        refused(&json!({ "command": "a", "timeout": "0" }), "`timeout`");
        refused(&json!({ "command": "a", "user": "root" }), "\"user\"");
    }
}
