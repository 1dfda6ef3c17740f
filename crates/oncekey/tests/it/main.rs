//! What the library promises, tried through its public face.

#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

mod bed;
mod cases;
mod cases_answers;
mod cases_crash;
#[cfg(feature = "embedded")]
mod cases_damage;
mod cases_dropped;
mod cases_fence;
mod cases_keys;
mod cases_stores;
mod cases_time;
#[cfg(feature = "conformance")]
mod conformance;
#[cfg(feature = "embedded")]
mod embedded;
#[cfg(feature = "embedded")]
mod embedded_backup;
#[cfg(feature = "embedded")]
mod embedded_check;
#[cfg(feature = "embedded")]
mod embedded_crash;
#[cfg(feature = "embedded")]
mod embedded_format;
#[cfg(feature = "embedded")]
mod embedded_guard;
mod embedded_images;
#[cfg(feature = "embedded")]
mod embedded_log;
mod embedded_lost;
#[cfg(feature = "embedded")]
mod embedded_open;
#[cfg(feature = "embedded")]
mod embedded_sweep;
#[cfg(feature = "embedded")]
mod embedded_time;
mod engine;
mod engine_keeper;
mod engine_trouble;
mod faulty;
mod layer;
mod layer_cancel;
mod layer_drop;
mod layer_panic;
mod layer_trouble;
mod rig;
#[cfg(feature = "embedded")]
mod small_disk;
