//! `cargo xtask screenshots`: the pictures of the console in its README.

use crate::{
    Outcome,
    command::{cargo, root, run as step},
    services::install,
};

/// Takes them anew, of the shop's weekend, which is the same each time.
///
/// # Errors
/// If the browser cannot be installed, or a page does not appear in it.
pub(crate) fn run() -> Outcome {
    install::browser()?;
    let mut command = cargo(&["test", "-p", "allora-console", "--test", "browser"]);
    command.args(["--", "--exact", "looks::pictures_can_be_taken"]);
    command.env("ALLORA_PICTURES", root().join("allora-console/pictures"));
    step("the pictures of the console", command)
}
