//! What the library promises, tried through its public face.

mod cases;
mod cases_answers;
mod cases_keys;
mod engine;
mod engine_keeper;
mod engine_trouble;
mod faulty;
mod layer;
mod layer_cancel;
mod layer_trouble;
mod rig;
