//! The data path: raw bytes in, raw bytes out.

mod head;
mod listen;
mod once;
mod rig;
mod stream;
mod upgrade;
