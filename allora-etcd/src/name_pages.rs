//! The ends of the ranges that are read for pages of names.
//!
//! etcd counts every key of a range whatever the limit. So a page is read from a range whose end is
//! a guess: as far ahead as twice the last page reached, and four times as far until the page is
//! full. A wrong guess costs an exchange, or what reading without an end costs. A process that has
//! counted many names, or has guessed often for one page, leaves its guess in etcd, where the next
//! process finds it when it connects.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// The number of bytes of a name that a distance is calculated with.
const WIDTH: usize = 48;

/// The beginning of a name as a number, or the distance between two.
type Number = [u8; WIDTH];

/// The most names that a page may count in vain, and the most ranges that it may be read from, before
/// the guess is stored.
const MAX_COUNTED: i64 = 1_000;
const MAX_RANGES: usize = 8;

/// The pages that were read.
#[derive(Default)]
pub(crate) struct NamePages(Mutex<Option<Pages>>);

#[derive(Clone, Copy)]
struct Pages {
    /// The first name of all pages.
    lowest: Number,
    /// The distance between the first and the last name of the last page.
    distance: Number,
}

/// The ends of the ranges of one page.
pub(crate) struct Ends(Option<Pages>);

impl NamePages {
    fn pages(&self) -> MutexGuard<'_, Option<Pages>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The ends for the next page.
    pub(crate) fn ends(&self) -> Ends {
        let twice = |last: Pages| Some(Pages { distance: doubled(last.distance)?, ..last });
        Ends(self.pages().and_then(twice))
    }

    /// Takes a stored guess. A value that is none is ignored.
    pub(crate) fn learn(&self, stored: &[u8]) {
        let Some((lowest, distance)) = stored.split_at_checked(WIDTH) else { return };
        if let (Ok(lowest), Ok(distance)) = (lowest.try_into(), distance.try_into())
            && distance != [0; WIDTH]
        {
            self.pages().get_or_insert(Pages { lowest, distance });
        }
    }

    /// The guess to store after a page for which so many names were counted, in so many ranges, in
    /// excess of those it has.
    pub(crate) fn to_store(&self, counted: i64, ranges: usize) -> Option<Vec<u8>> {
        let is_wanted = counted > MAX_COUNTED || ranges > MAX_RANGES;
        let pages = self.pages().filter(|_| is_wanted)?;
        Some([pages.lowest, pages.distance].concat())
    }

    /// A page from one name to another was read.
    pub(crate) fn on_page(&self, first: &[u8], last: &[u8]) {
        let (first, distance) = (number(first), minus(number(last), number(first)));
        let mut pages = self.pages();
        let lowest = pages.map_or(first, |pages| pages.lowest.min(first));
        *pages = Some(Pages { lowest, distance }).filter(|_| distance != [0; WIDTH]);
    }
}

impl Ends {
    /// The end of the next range that begins with this name; `None` for the end of all names.
    pub(crate) fn next(&mut self, from: &[u8]) -> Option<Vec<u8>> {
        let Pages { lowest, distance } = self.0?;
        let further = doubled(distance).and_then(doubled);
        self.0 = further.map(|distance| Pages { lowest, distance });
        // Nothing is known of names before the first one: few are added, and seldom.
        let end = plus(number(from).max(lowest), distance)?;
        (end.as_slice() > from).then(|| end.to_vec())
    }
}

fn number(name: &[u8]) -> Number {
    let mut number = [0; WIDTH];
    let used = name.len().min(WIDTH);
    number[..used].copy_from_slice(&name[..used]);
    number
}

fn plus(mut one: Number, other: Number) -> Option<Number> {
    let mut carry = false;
    for (digit, more) in one.iter_mut().zip(other).rev() {
        let (sum, over) = digit.overflowing_add(more);
        let (sum, again) = sum.overflowing_add(u8::from(carry));
        (*digit, carry) = (sum, over || again);
    }
    (!carry).then_some(one)
}

fn doubled(one: Number) -> Option<Number> {
    plus(one, one)
}

/// The difference; `one` is not less than `other`.
fn minus(mut one: Number, other: Number) -> Number {
    let mut borrow = false;
    for (digit, less) in one.iter_mut().zip(other).rev() {
        let (rest, under) = digit.overflowing_sub(less);
        let (rest, again) = rest.overflowing_sub(u8::from(borrow));
        (*digit, borrow) = (rest, under || again);
    }
    one
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads all of these names in pages. Returns the pages, and the numbers of names that were
    /// counted and of ranges that were read after the first page.
    fn read(names: &[String], limit: usize) -> (Vec<Vec<String>>, usize, usize) {
        let pages = NamePages::default();
        let (mut all, mut counted, mut ranges, mut from) = (Vec::new(), 0, 0, Vec::new());
        loop {
            let (mut page, mut ends): (Vec<String>, _) = (Vec::new(), pages.ends());
            loop {
                let to = ends.next(&from);
                let is_in = |name: &&String| {
                    let name = name.as_bytes();
                    name >= &*from && to.as_ref().is_none_or(|to| name < &**to)
                };
                let range: Vec<&String> = names.iter().filter(is_in).collect();
                if !all.is_empty() {
                    (counted, ranges) = (counted + range.len(), ranges + 1);
                }
                page.extend(range.into_iter().take(limit - page.len()).cloned());
                let Some(to) = to.filter(|_| page.len() < limit) else { break };
                from = to;
            }
            let (Some(first), Some(last)) = (page.first(), page.last()) else { break };
            pages.on_page(first.as_bytes(), last.as_bytes());
            from = [last.as_bytes(), &[0]].concat();
            all.push(page);
        }
        (all, counted, ranges)
    }

    #[test]
    fn each_name_is_on_one_page_and_few_are_counted() {
        let numbered = (0..10_000).map(|i| format!("job-{i:06}")).collect();
        let tenants = (0..10_000).map(|i| format!("tenant {}/job {:03}", i / 100 * 37, i % 100));
        let words = (0..10_000_u64).map(|i| format!("{:x}", i.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
        let long = (0..10_000).map(|i| format!("{}{i:06}", "x".repeat(40)));
        for mut names in [numbered, tenants.collect(), words.collect(), long.collect::<Vec<_>>()] {
            names.sort_unstable();
            let (pages, counted, ranges) = read(&names, 100);
            assert_eq!(pages.concat(), names);
            // Without a guess, half a million are counted.
            assert!(counted < 100_000, "{}: {counted}", names[1]);
            assert!(ranges < 100 * 40, "{}: {ranges}", names[1]);
        }
    }

    #[test]
    fn a_stored_guess_is_taken_once_and_only_if_it_is_one() {
        let (one, other) = (NamePages::default(), NamePages::default());
        assert_eq!(one.to_store(5_000, 1), None, "there is none");
        one.on_page(b"job 100", b"job 200");
        assert_eq!((one.to_store(1_000, 8), one.to_store(0, 1)), (None, None), "it was good");
        let stored = one.to_store(1_001, 1).unwrap();
        assert_eq!(one.to_store(0, 9), Some(stored.clone()));
        for damage in [&b""[..], b"x", &[0; 2 * WIDTH], &[7; 2 * WIDTH + 1]] {
            other.learn(damage);
            assert!(other.ends().next(b"").is_none());
        }
        other.learn(&stored);
        let end = other.ends().next(b"").unwrap();
        assert!(*end > b"job 300"[..] && *end < b"job 400"[..], "{end:?}");
        other.learn(&[1; 2 * WIDTH]);
        assert_eq!(other.ends().next(b""), Some(end), "a page of its own is better");
    }

    #[test]
    fn names_that_are_as_long_as_they_may_be_are_found() {
        let names: Vec<String> = (0..300).map(|i| format!("{}{i:06}", "x".repeat(200))).collect();
        assert_eq!(read(&names, 100).0.concat(), names);
        let all_bytes: Vec<String> = ["", "\0", "a", "\u{10ffff}"].map(str::to_owned).into();
        assert_eq!(read(&all_bytes, 1).0.concat(), all_bytes);
    }
}
