//! The gateway as a library, for its binary and its tests: no promise is made about this API.

pub mod admin;
pub mod answer;
pub mod cli;
pub mod config;
pub mod demo;
pub mod entrance;
pub mod files;
pub mod folder;
pub mod gateway;
pub mod listener;
pub mod logs;
pub mod metrics;
pub mod proxy;
pub mod routes;
pub mod serve;
pub mod upstream;
