//! The reader of a page, and the things that this reader may see.

/// The reader of a page, from the closure of [`Console::access`](crate::Console::access).
///
/// ```
/// use allora_console::Access;
///
/// let operator = Access::reader("ann").with_data();
/// assert_eq!(operator.who(), "ann");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    who: String,
    sees_data: bool,
}

impl Access {
    /// May read every page, without the data of schedules and the output of runs. `who` is shown in the
    /// head of the pages; it may be empty.
    pub fn reader(who: impl Into<String>) -> Self {
        Self { who: who.into(), sees_data: false }
    }

    /// May also see the data of schedules and the output of runs.
    #[must_use]
    pub fn with_data(mut self) -> Self {
        self.sees_data = true;
        self
    }

    /// The name of the reader.
    pub fn who(&self) -> &str {
        &self.who
    }

    /// `true` if data and output are shown. Default: `false`.
    pub fn sees_data(&self) -> bool {
        self.sees_data
    }
}
