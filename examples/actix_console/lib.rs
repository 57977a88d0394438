//! Empty: without a library cargo takes no package that has only an example.
