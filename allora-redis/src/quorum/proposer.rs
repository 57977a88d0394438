//! What replies mean, as pure functions: the decisions of whoever changes a register.

use super::{
    ballot::Ballot,
    register::{Known, MOST, Register, Seal},
};

/// One server's answer in one phase.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Reply<T> {
    /// Which server.
    pub(crate) from: usize,
    pub(crate) seal: Seal,
    pub(crate) body: T,
}

/// How many of `n` servers are a majority.
pub(crate) fn majority(n: usize) -> usize {
    n / 2 + 1
}

/// The replies that count: not those from a life that another reply knows to be over.
pub(crate) fn trusted<T>(replies: &[Reply<T>]) -> impl Iterator<Item = &Reply<T>> {
    let latest = latest(replies.iter().map(|reply| &reply.seal));
    replies.iter().filter(move |reply| latest[reply.from] <= reply.seal.incarnation)
}

/// Of each server, the latest life that one of these has heard of.
pub(crate) fn latest<'a>(seals: impl Iterator<Item = &'a Seal>) -> Known {
    seals.fold([0; MOST], |mut latest, seal| {
        for (latest, known) in latest.iter_mut().zip(seal.known) {
            *latest = (*latest).max(known);
        }
        latest
    })
}

/// The value to go on from, when `quorum` servers have promised this ballot; each reply is what
/// the server had before. `Some(None)`: there is none yet.
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

/// Whether `quorum` servers have accepted this ballot; each reply is what was promised before.
pub(crate) fn committed(replies: &[Reply<Option<Ballot>>], ballot: Ballot, quorum: usize) -> bool {
    trusted(replies).filter(|reply| reply.body <= Some(ballot)).count() >= quorum
}

/// The value that `quorum` servers have accepted with the very ballot that they promised last:
/// nobody is about to change it, and it need not be written back. `None` if it is not so; then
/// only a ballot can tell.
///
/// The same accepted ballot is not enough: a server that was admitted again has copied what a
/// minority may have accepted, and what looks like a majority's can be overtaken.
pub(crate) fn quiet<V>(replies: &[Reply<Register<V>>], quorum: usize) -> Option<Option<&V>> {
    let ballot = trusted(replies).map(|reply| reply.body.promised).max()?;
    let is_quiet = |register: &&Register<V>| {
        register.promised == ballot
            && register.accepted.as_ref().map(|(accepted, _)| *accepted) == ballot
    };
    let mut at_rest = trusted(replies).map(|reply| &reply.body).filter(is_quiet).peekable();
    let value = at_rest.peek()?.accepted.as_ref().map(|(_, value)| value);
    (at_rest.count() >= quorum).then_some(value)
}

/// The next life of server `k`, from what `quorum` others know of it.
pub(crate) fn next_life<T>(replies: &[Reply<T>], k: usize, quorum: usize) -> Option<u32> {
    let others: Vec<_> = trusted(replies).filter(|reply| reply.from != k).collect();
    let known = latest(others.iter().map(|reply| &reply.seal));
    (others.len() >= quorum).then(|| known[k].saturating_add(1))
}

/// The lower and the upper median of the servers' clocks. One of three that is wrong is neither;
/// of two, the lower one decides what is due (late rather than early), the upper one when a lease
/// is over.
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
    fn a_reply_from_a_life_that_is_over_does_not_count() {
        let reply = |from, incarnation, known: [u32; 5]| Reply {
            from,
            seal: Seal { incarnation, known },
            body: (),
        };
        let replies = [reply(0, 1, [1, 1, 2, 0, 0]), reply(2, 1, [1; 5]), reply(1, 1, [1; 5])];
        let counted: Vec<usize> = trusted(&replies).map(|reply| reply.from).collect();
        assert_eq!(counted, [0, 1]);
        assert_eq!(next_life(&replies, 2, 2), Some(3));
        assert_eq!(next_life(&replies, 1, 2), None, "two others are not both alive");
    }
}
