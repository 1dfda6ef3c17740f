//! JSON pointers (RFC 6901), split into their tokens once.

/// One step of a pointer: the name of a member, or the index of an element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Token {
    name: Vec<u8>,
    index: Option<usize>,
}

impl Token {
    fn parse(text: &str) -> Option<Self> {
        let mut name = Vec::with_capacity(text.len());
        let mut bytes = text.bytes();
        while let Some(byte) = bytes.next() {
            name.push(match byte {
                b'~' => match bytes.next()? {
                    b'0' => b'~',
                    b'1' => b'/',
                    _ => return None,
                },
                plain => plain,
            });
        }
        // Section 4: an index has no sign and no leading zero.
        let plain = text == "0" || text.starts_with(|first: char| matches!(first, '1'..='9'));
        let index = if plain { text.parse().ok() } else { None };
        Some(Self { name, index })
    }

    /// Whether this step leads to the member of that name.
    pub(super) fn is_name(&self, name: &[u8]) -> bool {
        self.name == name
    }

    /// Whether this step leads to the element at that index.
    pub(super) fn is_index(&self, index: usize) -> bool {
        self.index == Some(index)
    }
}

/// The tokens of `pointer`; `None` where it does not follow RFC 6901.
pub(super) fn tokens(pointer: &str) -> Option<Vec<Token>> {
    if pointer.is_empty() {
        return Some(Vec::new());
    }
    pointer.strip_prefix('/')?.split('/').map(Token::parse).collect()
}
