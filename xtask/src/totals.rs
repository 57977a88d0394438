//! The numbers of tests that passed and failed, read from the runners' last lines.

use std::fmt;

/// Tests counted over one or more runners.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
}

impl Totals {
    pub(crate) fn add(&mut self, other: Totals) {
        self.passed += other.passed;
        self.failed += other.failed;
    }
}

impl fmt::Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed", self.passed, self.failed)
    }
}

/// A line of `cargo test`: `test result: ok. 3 passed; 0 failed; 0 ignored; …`.
pub(crate) fn from_libtest(line: &str) -> Option<Totals> {
    let (_verdict, counts) = line.strip_prefix("test result: ")?.split_once(". ")?;
    Some(Totals { passed: count(counts, "passed")?, failed: count(counts, "failed")? })
}

/// A line of cargo-nextest: `     Summary [   0.1s] 3 tests run: 2 passed (1 slow), 1 failed, …`.
///
/// Tests that timed out or could not be started are failures; so are those that a stop left
/// unrun (`3/5 tests run`).
pub(crate) fn from_nextest(line: &str) -> Option<Totals> {
    let rest = line.trim_start().strip_prefix("Summary [")?;
    let (_time, rest) = rest.split_once(']')?;
    let (run, counts) = rest.split_once(" run: ")?;
    let (run, _tests) = run.trim_start().split_once(' ')?;
    let unrun = match run.split_once('/') {
        Some((run, all)) => all.parse::<u64>().ok()?.checked_sub(run.parse().ok()?)?,
        None => 0,
    };
    let counted = |word| count(counts, word).unwrap_or(0);
    let failed = counted("failed") + counted("timed out") + counted("exec failed") + unrun;
    Some(Totals { passed: counted("passed"), failed })
}

/// The number before `word` in a list such as `2 passed (1 slow), 1 failed`.
fn count(counts: &str, word: &str) -> Option<u64> {
    counts.split([',', ';']).find_map(|item| {
        let (number, what) = item.trim().split_once(' ')?;
        let what = what.split(" (").next()?;
        (what == word).then(|| number.parse().ok()).flatten()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn totals(passed: u64, failed: u64) -> Option<Totals> {
        Some(Totals { passed, failed })
    }

    #[test]
    fn the_last_line_of_cargo_test_is_read() {
        let ok = "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 7 filtered out; finished in 0.00s";
        let bad = "test result: FAILED. 12 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out";
        assert_eq!(from_libtest(ok), totals(3, 0));
        assert_eq!(from_libtest(bad), totals(12, 2));
    }

    #[test]
    fn the_last_line_of_nextest_is_read() {
        for (line, expected) in [
            ("     Summary [   0.010s] 10 tests run: 10 passed, 0 skipped", totals(10, 0)),
            ("     Summary [   0.010s] 1 test run: 1 passed, 3 skipped", totals(1, 0)),
            (
                "     Summary [ 2.1s] 9 tests run: 5 passed (1 slow, 1 flaky), 2 failed, 1 timed out, 1 exec failed, 0 skipped",
                totals(5, 4),
            ),
            ("     Summary [ 2.1s] 3/5 tests run: 2 passed, 1 failed, 0 skipped", totals(2, 3)),
            ("     Summary [   0.000s] 0 tests run: 0 passed, 4 skipped", totals(0, 0)),
        ] {
            assert_eq!(from_nextest(line), expected, "{line}");
        }
    }

    #[test]
    fn other_lines_are_nobodys_totals() {
        for line in
            ["", "running 3 tests", "3 passed", "Summary", "test result: ok", "test a ... ok"]
        {
            assert_eq!((from_libtest(line), from_nextest(line)), (None, None), "{line}");
        }
    }

    #[test]
    fn they_add_up_and_print_plainly() {
        let mut sum = Totals { passed: 1, failed: 2 };
        sum.add(Totals { passed: 10, failed: 20 });
        assert_eq!(sum.to_string(), "11 passed, 22 failed");
    }
}
