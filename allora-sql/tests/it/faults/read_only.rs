//! A server that takes no writes any more: it was demoted, and another one has its address.

use super::cut::before;
use crate::{
    calls::{STORE, create, get},
    connect::run,
    stores::{Db, Place, on},
};
use allora_core::{ErrorKind, backend::NewSchedule};

/// A trigger that refuses as such a server does.
async fn refuse(place: &Place) {
    if place.url.starts_with("postgres") {
        let function = "CREATE FUNCTION {p}_refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
             RAISE EXCEPTION 'read-only' USING ERRCODE = '25006'; END $$";
        run(place, function).await.unwrap();
        let trigger =
            "CREATE TRIGGER {p}_refuse BEFORE INSERT ON {p}_job EXECUTE FUNCTION {p}_refuse()";
        run(place, trigger).await.unwrap();
    } else {
        let trigger = "CREATE TRIGGER {p}_refuse BEFORE INSERT ON {p}_job FOR EACH ROW \
             SIGNAL SQLSTATE 'HY000' SET MESSAGE_TEXT = 'read-only', MYSQL_ERRNO = 1290";
        run(place, trigger).await.unwrap();
    }
}

async fn connects_again(place: Place) {
    let (proxy, through) = before(&place);
    let sql = through.builder().connections(1).connect(&through.url).await.unwrap();
    let new = NewSchedule::new("k", "d", None);
    create(&sql, "a", new, STORE).await.unwrap();
    let before = proxy.connections();
    refuse(&place).await;
    let error = create(&sql, "b", new, STORE).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    assert_eq!(proxy.connections(), before);
    // The next call may meet the server that has taken over.
    get(&sql, "a").await.unwrap();
    // A probe whether the server refuses connections, and the connection.
    assert_eq!(proxy.connections(), before + 2);
    sql.close().await;
    if place.url.starts_with("postgres") {
        place.clear().await;
        run(&place, "DROP FUNCTION {p}_refuse()").await.unwrap();
    }
}

mod a_connection_to_a_read_only_server_is_not_used_again {
    use super::*;

    #[test]
    fn postgres() {
        on(Db::Postgres, connects_again);
    }

    #[test]
    fn mysql() {
        on(Db::MySql, connects_again);
    }
}
