//! Fields of the file: what was written, where, and whether it is a value the field takes.
//!
//! A value that does not fit is kept as a fault instead of failing the reading, so that all faults
//! of a file are found at once.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use toml::{Spanned, Value};

use super::diagnostic::{Code, Fault, Report, quoted};
use super::source::Span;

/// A type that a field of the configuration can have.
pub(crate) trait Setting: Sized {
    /// Reads what was written.
    fn read(written: &Written) -> Result<Self, Fault>;
    /// Writes it so that [`Setting::read`] gives the same value again.
    fn write(&self) -> Value;
    /// What an editor is told about it.
    fn schema() -> Schema;
}

/// A value as it was written.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Written {
    Text(String),
    Integer(i128),
    Float,
    Flag(bool),
    List,
    Table(BTreeMap<String, Written>),
}

impl Written {
    fn kind(&self) -> &'static str {
        match self {
            Self::Text(_) => "a string",
            Self::Integer(_) => "an integer",
            Self::Float => "a number with a fraction",
            Self::Flag(_) => "true or false",
            Self::List => "a list",
            Self::Table(_) => "a table",
        }
    }

    /// The fault of a value of the wrong type.
    pub(crate) fn instead_of(&self, wanted: &str) -> Fault {
        Fault::new(format!("this is {}, and {wanted} belongs here", self.kind()))
    }

    pub(crate) fn text(&self, wanted: &str) -> Result<&str, Fault> {
        match self {
            Self::Text(text) => Ok(text),
            other => Err(other.instead_of(wanted)),
        }
    }
}

impl<'de> Deserialize<'de> for Written {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(WrittenVisitor)
    }
}

struct WrittenVisitor;

impl<'de> Visitor<'de> for WrittenVisitor {
    type Value = Written;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }
    fn visit_str<E>(self, text: &str) -> Result<Written, E> {
        Ok(Written::Text(text.to_owned()))
    }
    fn visit_i64<E>(self, number: i64) -> Result<Written, E> {
        Ok(Written::Integer(number.into()))
    }
    fn visit_u64<E>(self, number: u64) -> Result<Written, E> {
        Ok(Written::Integer(number.into()))
    }
    fn visit_i128<E>(self, number: i128) -> Result<Written, E> {
        Ok(Written::Integer(number))
    }
    fn visit_u128<E>(self, number: u128) -> Result<Written, E> {
        Ok(Written::Integer(i128::try_from(number).unwrap_or(i128::MAX)))
    }
    fn visit_f64<E>(self, _: f64) -> Result<Written, E> {
        Ok(Written::Float)
    }
    fn visit_bool<E>(self, flag: bool) -> Result<Written, E> {
        Ok(Written::Flag(flag))
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Written, A::Error> {
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Written::List)
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Written, A::Error> {
        let mut table = BTreeMap::new();
        while let Some((name, value)) = map.next_entry()? {
            table.insert(name, value);
        }
        Ok(Written::Table(table))
    }
}

/// One field; absent when nobody wrote it.
#[derive(Debug, Clone)]
pub(crate) struct Field<T>(Option<(Span, Result<T, Fault>)>);

impl<T> Default for Field<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T> Field<T> {
    pub(crate) fn span(&self) -> Option<Span> {
        self.0.as_ref().map(|(span, _)| span.clone())
    }
}

impl<T: Clone> Field<T> {
    /// The value, where it was written and fits; a fault goes to the report.
    pub(crate) fn get(&self, report: &mut Report) -> Option<T> {
        let (span, value) = self.0.as_ref()?;
        match value {
            Ok(value) => Some(value.clone()),
            Err(fault) => {
                report.error(Some(span.clone()), Code::BadValue, fault.clone());
                None
            }
        }
    }

    /// Overwrites `target` with the value, where there is one.
    pub(crate) fn set(&self, target: &mut T, report: &mut Report) {
        if let Some(value) = self.get(report) {
            *target = value;
        }
    }
}

impl<T: Clone + PartialOrd + Setting> Field<T> {
    /// As [`Field::set`]; a value outside the range is a fault.
    pub(crate) fn set_within(
        &self,
        range: std::ops::RangeInclusive<T>,
        target: &mut T,
        report: &mut Report,
    ) {
        let Some(value) = self.get(report) else { return };
        if range.contains(&value) {
            *target = value;
            return;
        }
        let fault = Fault::new(format!("{} is out of range", value.write())).hint(format!(
            "from {} to {}",
            range.start().write(),
            range.end().write()
        ));
        report.error(self.span(), Code::BadValue, fault);
    }
}

impl<'de, T: Setting> Deserialize<'de> for Field<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let written = Spanned::<Written>::deserialize(deserializer)?;
        Ok(Self(Some((written.span(), T::read(written.get_ref())))))
    }
}

impl<T: Setting> JsonSchema for Field<T> {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Field".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        T::schema()
    }
}

/// A field that takes a list.
#[derive(Debug, Clone)]
pub(crate) struct List<T>(Option<(Span, Items<T>)>);

impl<T> Default for List<T> {
    fn default() -> Self {
        Self(None)
    }
}

/// Lists are compared with each request: more entries than this are a mistake.
const LONGEST_LIST: usize = 64;

impl<T> List<T> {
    pub(crate) fn span(&self) -> Option<Span> {
        self.0.as_ref().map(|(span, _)| span.clone())
    }

    /// The span of each entry.
    pub(crate) fn spans(&self) -> Vec<Option<Span>> {
        let fields = self.0.iter().filter_map(|(_, items)| items.0.as_ref().ok()).flatten();
        fields.map(Field::span).collect()
    }
}

impl<T: Setting + Clone + PartialEq> List<T> {
    /// Overwrites `target` with the whole list, where one was written.
    pub(crate) fn set(&self, target: &mut Vec<T>, report: &mut Report) {
        let Some((span, items)) = &self.0 else { return };
        let fields = match &items.0 {
            Ok(fields) => fields,
            Err(fault) => return report.error(Some(span.clone()), Code::WrongType, fault.clone()),
        };
        if fields.len() > LONGEST_LIST {
            let fault = Fault::new(format!("a list of {} entries", fields.len()))
                .hint(format!("at most {LONGEST_LIST}"));
            report.error(Some(span.clone()), Code::BadValue, fault);
            return;
        }
        let mut values: Vec<T> = Vec::new();
        let mut complete = true;
        for field in fields {
            let Some(value) = field.get(report) else {
                complete = false;
                continue;
            };
            if values.contains(&value) {
                let text = value.write().to_string();
                let fault = Fault::new(format!("{} stands twice in the list", quoted(&text)));
                report.error(field.span(), Code::Duplicate, fault);
            } else {
                values.push(value);
            }
        }
        // Half a list would only draw findings that are none.
        if complete {
            *target = values;
        }
    }
}

impl<'de, T: Setting> Deserialize<'de> for List<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let list = Spanned::<Items<T>>::deserialize(deserializer)?;
        Ok(Self(Some((list.span(), list.into_inner()))))
    }
}

/// What stands where a list belongs.
#[derive(Debug, Clone)]
struct Items<T>(Result<Vec<Field<T>>, Fault>);

impl<'de, T: Setting> Deserialize<'de> for Items<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ItemsVisitor(PhantomData))
    }
}

struct ItemsVisitor<T>(PhantomData<T>);

impl<T> ItemsVisitor<T> {
    fn no_list<E>(written: &Written) -> Result<Items<T>, E> {
        let fault = written.instead_of("a list");
        Ok(Items(Err(match written {
            Written::Text(text) => fault.hint(format!("write [\"{}\"]", text.escape_default())),
            _ => fault,
        })))
    }
}

impl<'de, T: Setting> Visitor<'de> for ItemsVisitor<T> {
    type Value = Items<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Items<T>, A::Error> {
        let mut fields = Vec::new();
        while let Some(field) = list.next_element()? {
            fields.push(field);
        }
        Ok(Items(Ok(fields)))
    }
    fn visit_str<E>(self, text: &str) -> Result<Items<T>, E> {
        Self::no_list(&Written::Text(text.to_owned()))
    }
    fn visit_i64<E>(self, number: i64) -> Result<Items<T>, E> {
        Self::no_list(&Written::Integer(number.into()))
    }
    fn visit_bool<E>(self, flag: bool) -> Result<Items<T>, E> {
        Self::no_list(&Written::Flag(flag))
    }
}

impl<T: Setting> JsonSchema for List<T> {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "List".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "array", "items": T::schema(), "maxItems": LONGEST_LIST })
    }
}

/// A value that is one of a few words.
pub(crate) trait Choice: Copy + PartialEq + 'static {
    /// Every word, with what it means.
    const WORDS: &'static [(&'static str, Self)];

    /// The word for it.
    fn word(self) -> &'static str {
        Self::WORDS
            .iter()
            .find(|(_, value)| *value == self)
            .map(|(word, _)| *word)
            .expect("the choice! macro lists every variant")
    }
}

impl<T: Choice> Setting for T {
    fn read(written: &Written) -> Result<Self, Fault> {
        let words = || Self::WORDS.iter().map(|(word, _)| *word);
        let listed = words().map(|word| format!("\"{word}\"")).collect::<Vec<_>>().join(", ");
        let text = written.text("one word").map_err(|fault| fault.hint(listed.clone()))?;
        if let Some((_, value)) = Self::WORDS.iter().find(|(word, _)| *word == text) {
            return Ok(*value);
        }
        let fault = Fault::new(format!("{} is not one of {listed}", quoted(text)));
        Err(match super::diagnostic::nearest(text, words()) {
            Some(word) => fault.hint(format!("did you mean \"{word}\"?")),
            None => fault,
        })
    }
    fn write(&self) -> Value {
        self.word().into()
    }
    fn schema() -> Schema {
        let words: Vec<_> = Self::WORDS.iter().map(|(word, _)| *word).collect();
        json_schema!({ "type": "string", "enum": words })
    }
}

/// Declares an enum whose variants are words of the file.
macro_rules! choice {
    ($(#[$meta:meta])* $name:ident { $($(#[$vmeta:meta])* $variant:ident = $word:literal,)+ }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $name { $($(#[$vmeta])* $variant,)+ }

        impl $crate::config::field::Choice for $name {
            const WORDS: &'static [(&'static str, Self)] = &[$(($word, Self::$variant)),+];
        }

        impl ::std::fmt::Display for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.write_str($crate::config::field::Choice::word(*self))
            }
        }
    };
}
pub(crate) use choice;

impl Setting for bool {
    fn read(written: &Written) -> Result<Self, Fault> {
        match written {
            Written::Flag(flag) => Ok(*flag),
            other => Err(other.instead_of("true or false")),
        }
    }
    fn write(&self) -> Value {
        (*self).into()
    }
    fn schema() -> Schema {
        json_schema!({ "type": "boolean" })
    }
}

impl Setting for u64 {
    fn read(written: &Written) -> Result<Self, Fault> {
        match written {
            Written::Integer(number) => Self::try_from(*number)
                .map_err(|_| Fault::new(format!("{number} is not a number of 0 or more"))),
            other => Err(other.instead_of("an integer")),
        }
    }
    fn write(&self) -> Value {
        i64::try_from(*self).unwrap_or(i64::MAX).into()
    }
    fn schema() -> Schema {
        json_schema!({ "type": "integer", "minimum": 0 })
    }
}
