//! The whole suite, on one member and on three.

mod single {
    use crate::stores::{Single, Store};
    allora_conformance::suite!(Store<Single>);
}

mod three {
    use crate::stores::{Store, Three};
    allora_conformance::suite!(Store<Three>);
}
