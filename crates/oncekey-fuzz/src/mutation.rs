//! Inputs made from seeds by chance, the same for the same number.
//!
//! This is what the tests use: no compiler, no coverage, a few changes at a time. It finds what
//! lies near a seed; libFuzzer finds the rest.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Where the seeds of all targets lie.
#[must_use]
pub fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus")
}

/// The seeds of one target, by name of file.
///
/// # Errors
/// When the folder or a file cannot be read.
pub fn seeds(target: &str) -> io::Result<Vec<(String, Vec<u8>)>> {
    let mut seeds = Vec::new();
    for entry in fs::read_dir(corpus().join(target))? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        seeds.push((name, fs::read(&path)?));
    }
    seeds.sort();
    Ok(seeds)
}

/// An endless line of inputs.
#[derive(Clone, Debug)]
pub struct Mutation<'a> {
    chance: u64,
    seeds: &'a [(String, Vec<u8>)],
    words: &'a [&'a str],
    longest: usize,
}

impl<'a> Mutation<'a> {
    /// Inputs of at most `longest` bytes from `seeds`, which are not empty, and `words`.
    #[must_use]
    pub fn new(
        chance: u64,
        seeds: &'a [(String, Vec<u8>)],
        words: &'a [&'a str],
        longest: usize,
    ) -> Self {
        assert!(!seeds.is_empty(), "nothing to start from");
        Self { chance, seeds, words, longest }
    }

    /// SplitMix64: any start is as good as another.
    fn draw(&mut self) -> u64 {
        self.chance = self.chance.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut drawn = self.chance;
        drawn = (drawn ^ (drawn >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        drawn = (drawn ^ (drawn >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        drawn ^ (drawn >> 31)
    }

    /// A number below `bound`, or 0 where there is none.
    fn below(&mut self, bound: usize) -> usize {
        let drawn = usize::try_from(self.draw() >> 33).expect("31 bits fit");
        drawn.checked_rem(bound).unwrap_or(0)
    }

    fn seed(&mut self) -> &'a [u8] {
        let at = self.below(self.seeds.len());
        &self.seeds[at].1
    }

    /// A range of `length` bytes, mostly short.
    fn range(&mut self, length: usize) -> std::ops::Range<usize> {
        let start = self.below(length + 1);
        let most = if self.below(4) == 0 { length - start } else { 8.min(length - start) };
        start..start + self.below(most + 1)
    }

    fn change(&mut self, input: &mut Vec<u8>) {
        let at = self.below(input.len() + 1);
        match self.below(9) {
            0 if at < input.len() => input[at] ^= 1 << self.below(8),
            1 if at < input.len() => {
                const TELLING: [u8; 12] = *b"\0\x7f\x80\xff\r\n \"\\,:;";
                input[at] = TELLING[self.below(TELLING.len())];
            }
            2 => input.insert(at, self.draw().to_le_bytes()[0]),
            3 => drop(input.drain(self.range(input.len()))),
            4 => {
                let copied = input[self.range(input.len())].to_vec();
                drop(input.splice(at..at, copied));
            }
            5 => {
                let other = self.seed();
                let taken = other[self.range(other.len())].to_vec();
                drop(input.splice(self.range(input.len()), taken));
            }
            6 => {
                // A number of a binary form: small, large, or off by one.
                let value = [0, 1, 16, 255, 256, u32::MAX, 1 << 31][self.below(7)];
                for (place, byte) in input.iter_mut().skip(at).zip(value.to_le_bytes()) {
                    *place = byte;
                }
            }
            _ if !self.words.is_empty() => {
                let word = self.words[self.below(self.words.len())].bytes();
                let end = at + self.below(2) * self.below(9).min(input.len() - at);
                drop(input.splice(at..end, word));
            }
            _ if at < input.len() => input[at] = input[at].wrapping_add(1),
            _ => input.push(b'0'),
        }
    }
}

impl Iterator for Mutation<'_> {
    type Item = Vec<u8>;

    fn next(&mut self) -> Option<Vec<u8>> {
        let mut input = self.seed().to_vec();
        for _ in 0..=self.below(6) {
            self.change(&mut input);
        }
        input.truncate(self.longest);
        Some(input)
    }
}
