//! Jobs that this node last voted on in vain.
//!
//! Who asks for what others hold is told so by a vote as by a look, but a vote that changes nothing
//! overtakes one that does. Repeated as fast as it is answered, it would win for ever, as who has
//! just won waits for nothing, and who was overtaken does. So after such a vote the node looks
//! first, until it has changed something.

use std::{
    collections::HashSet,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// How many jobs are remembered. One that is forgotten is voted on in vain once more.
const MOST: usize = 65_536;

#[derive(Default)]
pub(crate) struct Vain(Mutex<HashSet<String>>);

impl Vain {
    pub(crate) fn has(&self, job: &str) -> bool {
        self.jobs().contains(job)
    }

    pub(crate) fn voted(&self, job: &str, is_changed: bool) {
        let mut jobs = self.jobs();
        if is_changed {
            jobs.remove(job);
        } else if !jobs.contains(job) {
            if jobs.len() >= MOST {
                jobs.clear();
            }
            jobs.insert(job.to_owned());
        }
    }

    fn jobs(&self) -> MutexGuard<'_, HashSet<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::{MOST, Vain};

    #[test]
    fn what_changed_nothing_is_remembered_until_something_changes() {
        let vain = Vain::default();
        assert!(!vain.has("a"));
        vain.voted("a", false);
        assert!(vain.has("a") && !vain.has("b"));
        vain.voted("a", true);
        assert!(!vain.has("a"));
        (0..2 * MOST).for_each(|i| vain.voted(&i.to_string(), false));
        assert!(vain.jobs().len() <= MOST);
    }
}
