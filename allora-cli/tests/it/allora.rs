//! Starting the command, and looking at what it said.

use std::{
    path::Path,
    process::{Command, Output},
};

/// The result of a command: standard output, standard error, exit code.
#[derive(Debug)]
pub(crate) struct Observed {
    pub(crate) out: String,
    pub(crate) err: String,
    pub(crate) code: i32,
}

impl Observed {
    /// It succeeded and complained about nothing.
    #[track_caller]
    pub(crate) fn fine(self) -> String {
        assert_eq!((self.code, self.err.as_str()), (0, ""), "{}", self.out);
        self.out
    }

    /// It failed with this code, and said so on one line of standard error; answers with that.
    #[track_caller]
    pub(crate) fn refused(self, code: i32) -> String {
        assert_eq!(self.code, code, "{self:?}");
        let line = self.err.strip_suffix('\n').unwrap_or_default();
        assert!(line.starts_with("error: ") && !line.contains('\n'), "{self:?}");
        assert_eq!(self.out, "");
        line.to_owned()
    }
}

/// The command with these arguments, and nothing of the tests' environment that it obeys.
pub(crate) fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_allora"));
    command.args(args);
    for name in ["URL", "CONFIG", "ENVIRONMENT", "ACTOR"] {
        command.env_remove(format!("ALLORA_{name}"));
    }
    command.env_remove("STATE_DIRECTORY");
    command
}

/// Runs the command in a folder.
pub(crate) fn allora_in(folder: &Path, args: &[&str]) -> Observed {
    said(&command(args).current_dir(folder).output().unwrap())
}

/// Runs the command.
pub(crate) fn allora(args: &[&str]) -> Observed {
    said(&command(args).output().unwrap())
}

/// Text and code of a command that has ended.
pub(crate) fn said(output: &Output) -> Observed {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    Observed {
        out: text(&output.stdout),
        err: text(&output.stderr),
        code: output.status.code().expect("it was not killed"),
    }
}
