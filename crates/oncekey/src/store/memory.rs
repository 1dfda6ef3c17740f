//! Everything in one process, for tests and single-process services.
/// placeholder
#[derive(Debug)]
pub struct MemoryStore;
