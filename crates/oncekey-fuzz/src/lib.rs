//! What must hold for any bytes that reach a parser.
//!
//! 1. A [`Target`] is a plain function over bytes. It returns whatever the bytes are, or it panics
//!    and says which promise is broken: not only "no panic" but round trips, bounds, and that two
//!    readings of the same bytes agree.
//! 2. libFuzzer (`cargo xtask fuzz NAME`) and the tests (a seeded [`Mutation`]) call the same
//!    functions with the same seeds, which lie in `fuzz/corpus/NAME`. An input that once broke a
//!    promise stays there.
//! 3. A target keeps no state between inputs but for `request`, whose gateway outlives them: there
//!    a key must not run twice over all inputs together.
//!
//! ```
//! for target in oncekey_fuzz::TARGETS {
//!     if target.name == "key" {
//!         (target.check)(b"\"8e03978e-40d5\"");
//!     }
//! }
//! ```

pub mod config;
pub mod journal;
pub mod json;
pub mod key;
pub mod log;
pub mod multipart;
pub mod mutation;
pub mod record;
pub mod request;

pub use mutation::Mutation;

/// One parser, and what must hold for any bytes it is given.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Names the target, and its seeds in `fuzz/corpus`.
    pub name: &'static str,
    /// Panics where a promise is broken.
    pub check: fn(&[u8]),
    /// What the parser knows: chance alone would take long to find it.
    pub words: &'static [&'static str],
    /// The longest input worth trying, in bytes.
    pub longest: usize,
}

/// All of them.
pub const TARGETS: [Target; 8] = [
    Target { name: "key", check: key::check, words: key::WORDS, longest: 600 },
    Target { name: "json", check: json::check, words: json::WORDS, longest: 2000 },
    Target { name: "multipart", check: multipart::check, words: multipart::WORDS, longest: 2000 },
    Target { name: "record", check: record::check, words: &[], longest: 1500 },
    Target { name: "journal", check: journal::check, words: journal::WORDS, longest: 4000 },
    Target { name: "log", check: log::check, words: log::WORDS, longest: 4000 },
    Target { name: "config", check: config::check, words: config::WORDS, longest: 3000 },
    Target { name: "request", check: request::check, words: request::WORDS, longest: 4000 },
];

/// What lies between `|next|`s, `most` parts at most.
fn parts(input: &[u8], most: usize) -> Vec<&[u8]> {
    const NEXT: &[u8] = b"|next|";
    let mut parts = Vec::new();
    let mut rest = input;
    while parts.len() + 1 < most
        && let Some(at) = rest.windows(NEXT.len()).position(|window| window == NEXT)
    {
        parts.push(&rest[..at]);
        rest = &rest[at + NEXT.len()..];
    }
    parts.push(rest);
    parts
}
