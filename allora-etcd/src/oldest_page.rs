//! The search for a page of the oldest history entries.

/// The most entries of a page, unless more of them have one fence.
const PAGE: usize = 1_000;

/// The search for the fence up to which there are some entries, but not too many. etcd counts what
/// is behind a key without limit, so that the search begins where little is.
pub(crate) struct OldestPage {
    /// Nothing is up to this fence.
    none: i64,
    /// Too much is up to this fence: so many entries, if they were counted.
    many: (i64, Option<usize>),
    /// The distance of the first guess; 0 if there is none.
    guess: i64,
    found: Option<(i64, usize)>,
}

impl OldestPage {
    /// Of the entries above `none` up to `newest`. `span` is the distance that the last search has
    /// found.
    pub(crate) fn new(none: i64, newest: i64, span: i64) -> Self {
        Self { none, many: (newest, None), guess: span, found: None }
    }

    /// The next fence to count up to.
    pub(crate) fn next(&mut self) -> Option<i64> {
        let (many, count) = self.many;
        let between = many.saturating_sub(self.none);
        if self.found.is_none() && between <= 1 {
            // All of them have one fence: jobs that were claimed in one microsecond.
            self.found = count.map(|count| (many, count));
            return self.found.is_none().then_some(many);
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
            0 if fence < self.many.0 => self.none = fence,
            some if some <= PAGE => self.found = Some((fence, some)),
            many => self.many = (fence, Some(many)),
        }
    }

    /// The fence up to which there are some entries; `None` if there are none.
    pub(crate) fn found(&self) -> Option<i64> {
        self.found.filter(|(_, count)| *count > 0).map(|(fence, _)| fence)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The number of the entries of a page, and of those that are counted for it.
    fn page(none: i64, span: i64, fences: &[i64]) -> (usize, usize) {
        let mut search = OldestPage::new(none, *fences.iter().max().unwrap(), span);
        let (mut counted, mut found) = (0, 0);
        while let Some(up_to) = search.next() {
            let count = fences.iter().filter(|fence| **fence > none && **fence <= up_to).count();
            counted += count;
            search.on_count(up_to, count);
        }
        if let Some(up_to) = search.found() {
            found = fences.iter().filter(|fence| **fence > none && **fence <= up_to).count();
        }
        (found, counted)
    }

    #[test]
    fn a_page_is_found_by_counting_little_more_than_there_is() {
        const NOW: i64 = 1_893_456_000_000_000;
        let fences: Vec<i64> = (0..100_000).map(|i| NOW + i * 1_000).collect();
        let (found, counted) = page(-1, 0, &fences);
        assert!((1..=PAGE).contains(&found) && counted < 200_000, "{found} {counted}");
        assert_eq!(page(NOW - 1, 900_000, &fences), (900, 900), "the same distance again");
    }

    #[test]
    fn entries_with_one_fence_are_one_page() {
        let fences: Vec<i64> = [[7; 2_000].as_slice(), &[9; 3]].concat();
        assert_eq!(page(-1, 0, &fences).0, 2_000);
        assert_eq!(page(7, 0, &fences).0, 3);
        assert_eq!(page(8, 0, &fences).0, 3, "only the newest fence is left");
        assert_eq!(page(9, 0, &fences).0, 0);
    }

    #[test]
    fn hostile_fences_end_the_search() {
        for fences in [&[i64::MAX, 5, 6][..], &[0, 0, 0], &[7, 7, 7], &[i64::MAX; 9]] {
            for none in [-1, 0, 6, i64::MAX] {
                assert!(page(none, i64::MAX, fences).0 <= fences.len(), "{fences:?}");
            }
        }
    }
}
