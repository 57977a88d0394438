//! The free space of the disk of the target folder.

use crate::command::{root, target};
use std::process::Command;

/// The space that is enough for a complete run, in GB. Its builds of examples and tests alone are 4 GB.
const ENOUGH: f64 = 10.0;

/// A warning if the disk may be too small for a complete run. A linker ends with a bus error on a full
/// disk, and names no cause.
pub(crate) fn warning() -> Option<String> {
    let folder = target();
    let mut df = Command::new("df");
    // The target folder itself may not exist yet.
    df.args(["-P", "-k"]).arg(if folder.is_dir() { &*folder } else { root() });
    // A system without this command shows a full disk in another way.
    let printed = df.output().map(|output| output.stdout).unwrap_or_default();
    let free = free(&String::from_utf8_lossy(&printed)).filter(|free| *free < ENOUGH)?;
    Some(format!(
        "the disk of {} has {free:.1} GB free, which may not be enough for a complete run; {ENOUGH} GB \
         are: free some space, or set CARGO_TARGET_DIR to a folder on another disk",
        folder.display()
    ))
}

/// The free space in GB, from the output of `df -P -k`.
fn free(printed: &str) -> Option<f64> {
    let blocks: f64 = printed.lines().nth(1)?.split_whitespace().nth(3)?.parse().ok()?;
    Some(blocks * 1_024.0 / 1e9)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_free_space_is_read() {
        let printed = "Filesystem 1024-blocks Used Available Capacity Mounted on\n\
                       /dev/vda 263174212 26116772 68616912 28% /\n";
        assert_eq!(free(printed).map(|free| free.round()), Some(70.0));
        assert_eq!(free(""), None);
        assert_eq!(free("Filesystem\nnone"), None);
    }
}
