//! Durable records in a folder.
/// placeholder
#[derive(Debug)]
pub struct EmbeddedStore;
