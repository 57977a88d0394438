//! Connecting to one server: shared with `allora-redis-quorum`. No promise is made to other packages.

pub use crate::{
    connect::{VERSION, check_prefix, connection_info, install_crypto, security_warning},
    error::refused,
    server_info::check_version,
};
