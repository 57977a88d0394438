//! The words with which failed tests panicked, read from the lines of their runner: a long log ends with them.

/// The most lines of one panic.
const LINES: usize = 12;

/// The most lines in all.
const MOST: usize = 80;

/// Panics of failed tests: a runner prints nothing that a passed test has said.
#[derive(Debug, Default)]
pub(crate) struct Panics {
    lines: Vec<String>,
    /// The number of lines that may follow in the last panic.
    left: usize,
}

impl Panics {
    /// Reads the runner's next line.
    pub(crate) fn look(&mut self, line: &str) {
        let line = line.trim();
        if line.contains(" panicked at ") {
            self.left = LINES;
        } else if line.is_empty()
            || ["note: ", "stack backtrace:"].iter().any(|end| line.starts_with(end))
        {
            self.left = 0;
        }
        if self.left > 0 && self.lines.len() < MOST {
            self.left -= 1;
            self.lines.push(line.to_owned());
        }
    }

    pub(crate) fn into_lines(self) -> Vec<String> {
        self.lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_read_to_its_end() {
        let said = "        PASS [   0.021s] a::b
            thread 'pages' (7) panicked at tests/looks.rs:179:5:
            1 defects:
            now, dark: pale
            stack backtrace:
               0: __rustc::rust_begin_unwind

            rest";
        let mut panics = Panics::default();
        said.lines().for_each(|line| panics.look(line));
        let place = "thread 'pages' (7) panicked at tests/looks.rs:179:5:";
        assert_eq!(panics.into_lines(), [place, "1 defects:", "now, dark: pale"]);
    }

    #[test]
    fn many_lines_are_cut_off() {
        let mut panics = Panics::default();
        for _ in 0..100 {
            panics.look("thread 'a' panicked at b:");
            (0..20).for_each(|_| panics.look("c"));
        }
        assert_eq!(panics.into_lines().len(), MOST);
    }
}
