//! allora on etcd.
