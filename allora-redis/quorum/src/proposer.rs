//! The meaning of replies, as pure functions: a proposer's decisions.

use super::{
    ballot::Ballot,
    register::{IncarnationVector, Known, MOST, Register},
};

/// One server's answer in one phase.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Reply<T> {
    /// The server's number.
    pub(crate) from: usize,
    pub(crate) vector: IncarnationVector,
    pub(crate) body: T,
}

/// The number of servers that is a majority of `n`.
pub(crate) fn majority(n: usize) -> usize {
    n / 2 + 1
}

/// The replies that count: all but those from an incarnation that another reply knows to be over.
pub(crate) fn trusted<T>(replies: &[Reply<T>]) -> impl Iterator<Item = &Reply<T>> {
    let latest = latest(replies.iter().map(|reply| &reply.vector));
    replies.iter().filter(move |reply| latest[reply.from] <= reply.vector.incarnation)
}

/// The servers whose reply does not count although they are members: another server knows a later
/// incarnation of them.
///
/// A node that lets a server rejoin stores the new incarnation on the others first. If that message
/// arrives late, another node may have made the server a member with a lower one.
pub(crate) fn outdated<T>(replies: &[Reply<T>]) -> impl Iterator<Item = usize> {
    let latest = latest(replies.iter().map(|reply| &reply.vector));
    let is_outdated = move |reply: &&Reply<T>| reply.vector.incarnation < latest[reply.from];
    replies.iter().filter(is_outdated).map(|reply| reply.from)
}

/// The latest incarnation of each server that any of these vectors knows.
pub(crate) fn latest<'a>(vectors: impl Iterator<Item = &'a IncarnationVector>) -> Known {
    vectors.fold([0; MOST], |mut latest, vector| {
        for (latest, known) in latest.iter_mut().zip(vector.known) {
            *latest = (*latest).max(known);
        }
        latest
    })
}

/// The value to continue from, once `quorum` servers have promised this ballot. Each reply holds
/// the server's state before the promise. `Some(None)`: there is no value yet.
pub(crate) fn prepared<V>(
    replies: &[Reply<Register<V>>],
    ballot: Ballot,
    quorum: usize,
) -> Option<Option<&V>> {
    let promised: Vec<_> =
        trusted(replies).filter(|reply| reply.body.promised < Some(ballot)).collect();
    if promised.len() < quorum {
        return None;
    }
    let accepted = promised.iter().filter_map(|reply| reply.body.accepted.as_ref());
    Some(accepted.max_by_key(|(ballot, _)| *ballot).map(|(_, value)| value))
}

/// True if `quorum` servers have accepted this ballot. Each reply holds the promise before it.
pub(crate) fn committed(replies: &[Reply<Option<Ballot>>], ballot: Ballot, quorum: usize) -> bool {
    trusted(replies).filter(|reply| reply.body <= Some(ballot)).count() >= quorum
}

/// The value that `quorum` servers have accepted with the very ballot that they promised last: no
/// change is under way, and the value need not be written back. `None` otherwise; then only a
/// ballot can tell.
///
/// Equal accepted ballots are not enough: a server that rejoined has copied values that only a
/// minority may have accepted, so such a majority can be overtaken.
pub(crate) fn stable<V>(replies: &[Reply<Register<V>>], quorum: usize) -> Option<Option<&V>> {
    let ballot = trusted(replies).map(|reply| reply.body.promised).max()?;
    let is_stable = |register: &&Register<V>| {
        register.promised == ballot
            && register.accepted.as_ref().map(|(accepted, _)| *accepted) == ballot
    };
    let mut at_rest = trusted(replies).map(|reply| &reply.body).filter(is_stable).peekable();
    let value = at_rest.peek()?.accepted.as_ref().map(|(_, value)| value);
    (at_rest.count() >= quorum).then_some(value)
}

/// The latest incarnation of server `k`, from the vectors of `quorum` others.
pub(crate) fn latest_incarnation<T>(replies: &[Reply<T>], k: usize, quorum: usize) -> Option<u32> {
    let others: Vec<_> = trusted(replies).filter(|reply| reply.from != k).collect();
    let known = latest(others.iter().map(|reply| &reply.vector));
    (others.len() >= quorum).then(|| known[k])
}

/// The next incarnation of server `k`, from the vectors of `quorum` others.
pub(crate) fn next_incarnation<T>(replies: &[Reply<T>], k: usize, quorum: usize) -> Option<u32> {
    Some(latest_incarnation(replies, k, quorum)?.saturating_add(1))
}

/// The lower and the upper median of the servers' clocks. One wrong clock of three is neither. Of
/// two clocks, the lower one decides what is due (late rather than early), the upper one when a
/// lease ends.
pub(crate) fn medians(mut clocks: Vec<i64>) -> Option<(i64, i64)> {
    clocks.sort_unstable();
    let last = clocks.len().checked_sub(1)?;
    Some((clocks[last / 2], clocks[clocks.len() / 2]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_three_clocks_the_middle_one_decides_and_of_two_the_later_ends_a_lease() {
        assert_eq!(medians(vec![]), None);
        assert_eq!(medians(vec![7]), Some((7, 7)));
        assert_eq!(medians(vec![9, 2]), Some((2, 9)));
        assert_eq!(medians(vec![9, i64::MAX, 2]), Some((9, 9)));
        assert_eq!(medians(vec![5, 1, 4, 2]), Some((2, 4)));
    }

    #[test]
    fn a_majority_is_more_than_half() {
        assert_eq!([3, 5].map(majority), [2, 3]);
    }

    #[test]
    fn a_reply_from_an_incarnation_that_is_over_does_not_count() {
        let reply = |from, incarnation, known: [u32; 5]| Reply {
            from,
            vector: IncarnationVector { incarnation, known },
            body: (),
        };
        let replies = [reply(0, 1, [1, 1, 2, 0, 0]), reply(2, 1, [1; 5]), reply(1, 1, [1; 5])];
        let counted: Vec<usize> = trusted(&replies).map(|reply| reply.from).collect();
        assert_eq!(counted, [0, 1]);
        assert_eq!(outdated(&replies).collect::<Vec<_>>(), [2]);
        assert_eq!(next_incarnation(&replies, 2, 2), Some(3));
        assert_eq!(next_incarnation(&replies, 1, 2), None, "two others are not both alive");
    }
}
