//! The search for the page of the history that is removed next.

/// The most history entries that one transaction removes.
const HISTORY_PAGE: usize = 1_000;

/// The page of the history that was removed last.
#[derive(Clone, Copy, Default)]
pub(crate) struct Page {
    /// No entry has this fence or a lower one.
    removed: i64,
    /// The distance to the page before it.
    span: i64,
}

impl Page {
    /// The page up to this fence, which was removed after this one.
    pub(crate) fn up_to(self, fence: i64) -> Self {
        Self { removed: fence, span: fence.saturating_sub(self.removed) }
    }
}

/// The search for the fence up to which there are some entries, but not too many. etcd counts what
/// is behind a key without limit, so that the search begins where little is.
pub(crate) struct OldestPage {
    /// Nothing is up to this fence.
    none: i64,
    /// Too much is up to this fence: so many entries, if they were counted.
    many: (i64, Option<usize>),
    /// The distance of the first guess; 0 if there is none.
    guess: i64,
    /// No more may be removed.
    excess: usize,
    /// The fence, and the number of entries up to it.
    pub(crate) found: Option<(i64, usize)>,
}

impl OldestPage {
    pub(crate) fn new(last: Page, newest: i64, excess: usize) -> Self {
        let none = if last.removed < newest { last.removed } else { 0 };
        Self { none, many: (newest, None), guess: last.span, excess, found: None }
    }

    /// The next fence to count up to.
    pub(crate) fn next(&mut self) -> Option<i64> {
        let (many, count) = self.many;
        let between = many - self.none;
        if self.found.is_none() && between <= 1 {
            // All of them have one fence: jobs that were claimed in one microsecond.
            let count = count.filter(|count| *count <= self.excess);
            self.found = count.map(|count| (many, count));
            return None;
        }
        if self.found.is_some() {
            return None;
        }
        let guess = std::mem::take(&mut self.guess);
        let guess = if guess > 0 { guess.min(between - 1) } else { between / 2 };
        Some(self.none + guess)
    }

    pub(crate) fn on_count(&mut self, fence: i64, count: usize) {
        match count {
            0 => self.none = fence,
            some if some <= self.excess.min(HISTORY_PAGE) => self.found = Some((fence, some)),
            many => self.many = (fence, Some(many)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The number of the entries that are removed as a page, and of those that are counted for it.
    fn page(last: Page, fences: &[i64], excess: usize) -> (usize, usize) {
        let mut search = OldestPage::new(last, *fences.iter().max().unwrap(), excess);
        let mut counted = 0;
        while let Some(up_to) = search.next() {
            let count = fences.iter().filter(|fence| **fence <= up_to).count();
            counted += count;
            search.on_count(up_to, count);
        }
        (search.found.map_or(0, |(_, count)| count), counted)
    }

    #[test]
    fn a_page_is_found_by_counting_little_more_than_there_is() {
        const NOW: i64 = 1_893_456_000_000_000;
        let fences: Vec<i64> = (0..100_000).map(|i| NOW + i * 1_000).collect();
        let (removed, counted) = page(Page::default(), &fences, 50_000);
        assert!((1..=HISTORY_PAGE).contains(&removed) && counted < 200_000, "{removed} {counted}");
        let last = Page { removed: NOW - 1, span: 900_000 };
        assert_eq!(page(last, &fences, 50_000), (900, 900), "the same distance again");
        assert!(page(last, &fences, 5).0 <= 5, "no more than the excess");
    }

    #[test]
    fn entries_with_one_fence_are_removed_together_if_all_of_them_may_be() {
        let fences: Vec<i64> = [[7; 2_000].as_slice(), &[9; 3]].concat();
        assert_eq!(page(Page::default(), &fences, 2_001).0, 2_000);
        assert_eq!(page(Page::default(), &fences, 1_999).0, 0);
    }

    #[test]
    fn hostile_fences_end_the_search() {
        for fences in [&[i64::MAX, 5, 6][..], &[0, 0, 0], &[7, 7, 7], &[i64::MAX; 9]] {
            assert!(page(Page::default(), fences, 2).0 <= 2, "{fences:?}");
            assert!(page(Page { removed: 6, span: i64::MAX }, fences, 2).0 <= 2, "{fences:?}");
        }
    }
}
