//! What the library promises, tried through its public face.

#[cfg(feature = "conformance")]
mod conformance;
mod faulty;
mod layer;
mod layer_cancel;
mod layer_trouble;
mod rig;
