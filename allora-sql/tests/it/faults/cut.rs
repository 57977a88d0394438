//! A connection that is cut when the server has answered and the node has not heard it.

use super::node::fleet;
use crate::stores::{Db, Place, on};
use allora_conformance::faults::{Proxy, cut_connections, lost_replies};

/// A line to the place's server, and the place at its end.
pub(super) fn before(place: &Place) -> (Proxy, Place) {
    let (user, rest) = place.url.split_once('@').unwrap();
    let (server, database) = rest.split_once('/').unwrap();
    let proxy = Proxy::new(server.to_owned(), Proxy::NEVER).unwrap();
    let mut through = place.beside_nothing();
    through.url = format!("{user}@127.0.0.1:{}/{database}", proxy.port());
    (proxy, through)
}

/// A claim and a completion, each cut off after every number of replies that it may consist of.
async fn lost_replies_are_resolved(place: Place) {
    let direct = place.open().await;
    let (proxy, through) = before(&place);
    let node = through.builder().connections(1).connect(&through.url).await.unwrap();
    let cuts: Vec<i64> = (0..12).collect();
    let lost = lost_replies(&direct, &node, "job", &cuts, |replies| proxy.cut_after(replies)).await;
    assert!(lost.claims + lost.completions > 0, "{lost:?}");
    // There the reply to a completion is a number of rows only.
    assert!(lost.completions > 0 || !place.url.starts_with("mysql"), "{lost:?}");
}

async fn cut_now_and_then(place: Place) {
    let (proxy, through) = before(&place);
    cut_connections(fleet(through).at_work(), &proxy);
}

mod a_lost_reply_is_resolved_by_claim_id_and_fence {
    use super::*;

    #[test]
    fn postgres() {
        on(Db::Postgres, lost_replies_are_resolved);
    }

    #[test]
    fn mysql() {
        on(Db::MySql, lost_replies_are_resolved);
    }
}

mod nodes_work_over_connections_that_are_cut {
    use super::*;

    #[test]
    fn postgres() {
        on(Db::Postgres, cut_now_and_then);
    }

    #[test]
    fn mysql() {
        on(Db::MySql, cut_now_and_then);
    }
}
