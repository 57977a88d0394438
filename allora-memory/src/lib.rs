//! allora in process memory.
