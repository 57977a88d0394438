//! Every database works from every runtime.

use crate::stores::Db;

allora_conformance::two_nodes_on_every_runtime! {
    sqlite: Db::Sqlite.place();
    postgres: Db::Postgres.place();
    mysql: Db::MySql.place();
}
