//! Ballots: the order of the attempts to change a register.

use std::fmt;

/// The number of one attempt. No two attempts have the same one: no two proposers have the same id,
/// and no proposer uses a round twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Ballot {
    pub(crate) round: u64,
    pub(crate) proposer: u64,
}

/// The number of digits of a ballot as text.
pub(crate) const DIGITS: usize = 40;

/// The text that servers store: of fixed width and digits only, so that text order is ballot order
/// in any locale (Lua compares text in the server's locale).
impl fmt::Display for Ballot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:020}{:020}", self.round, self.proposer)
    }
}

impl Ballot {
    /// The ballot in this text; `None` if it is not one.
    pub(crate) fn parse(text: &[u8]) -> Option<Self> {
        let plain = text.len() == DIGITS && text.iter().all(u8::is_ascii_digit);
        let (round, proposer) = std::str::from_utf8(text).ok().filter(|_| plain)?.split_at(20);
        Some(Self { round: round.parse().ok()?, proposer: proposer.parse().ok()? })
    }
}

#[cfg(test)]
mod tests {
    use super::Ballot;

    #[test]
    fn text_is_ordered_as_ballots_are_and_reads_back() {
        let numbers = [0, 1, 9, 10, 1 << 53, u64::MAX - 1, u64::MAX];
        let mut ballots = Vec::new();
        for round in numbers {
            ballots.extend(numbers.map(|proposer| Ballot { round, proposer }));
        }
        for a in &ballots {
            assert_eq!(Ballot::parse(a.to_string().as_bytes()), Some(*a));
            for b in &ballots {
                assert_eq!(a.cmp(b), a.to_string().cmp(&b.to_string()), "{a:?} {b:?}");
            }
        }
    }

    #[test]
    fn what_is_no_ballot_is_refused() {
        let good = Ballot { round: 1, proposer: 2 }.to_string();
        for bad in ["", &good[1..], &format!("0{good}"), &good.replace('2', "x"), &"9".repeat(40)] {
            assert_eq!(Ballot::parse(bad.as_bytes()), None, "{bad}");
        }
    }
}
