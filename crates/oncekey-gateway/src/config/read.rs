//! From text to fields: the file, the environment over it, the flags over both.
//!
//! 1. Each source is parsed by itself; a syntax error names its line.
//! 2. `ONCEKEY__SECTION__FIELD=value` sets `section.field`. The value is TOML where it parses
//!    (`true`, `5`, `["a", "b"]`), and text as it is where it does not, or where the field takes
//!    nothing but text.
//! 3. Settings of a later version and unknown fields are reported and taken out.
//! 4. What is left is deserialised. A table where a list belongs is reported, taken out, and
//!    reading begins again: so every such mistake is found.

use std::path::PathBuf;

use serde::Deserialize;
use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

use super::diagnostic::{Code, Fault, Report, quoted};
use super::file::{self, ConfigFile};
use super::source::{Origin, Sources, Span};
use super::{Flags, known, later};

/// The beginning of a variable that sets a field.
const PREFIX: &str = "ONCEKEY__";
/// A longer value than this is no setting.
const LONGEST_VALUE: usize = 64 * 1024;
/// `ONCEKEY__DEFAULTS__IN_PROGRESS__WAIT`, and no deeper.
const DEEPEST: usize = 4;
/// Each round of reading takes one mistake out; more than these are told in the next run.
const MOST_ROUNDS: usize = 100;

/// A setting from outside the file.
struct Overlay {
    part: usize,
    path: Vec<String>,
}

/// Reads everything; what could not be read is in the report and absent from the result.
pub(crate) fn read(
    file: Option<(PathBuf, String)>,
    environment: &[(String, String)],
    flags: &Flags,
    sources: &mut Sources,
    report: &mut Report,
) -> ConfigFile {
    let file = file.map(|(path, text)| sources.add(Origin::File(path), text));
    let mut overlays = from_environment(environment, sources, report);
    overlays.extend(from_flags(flags, sources));

    let schema = file::schema();
    let mut tree = DeTable::new();
    if let Some(index) = file {
        let (parsed, errors) = DeTable::parse_recoverable(sources.text(index));
        tree = parsed.into_inner();
        for error in &errors {
            let span = error.span().or(Some(0..0));
            let message = error.message().lines().collect::<Vec<_>>().join(": ");
            let fault = Fault::new(format!("this is not TOML: {message}"));
            report.error(span, Code::Syntax, fault);
        }
        if !errors.is_empty() {
            // What a half-understood file seems to say is not worth judging.
            return ConfigFile::default();
        }
    }
    for overlay in &overlays {
        let value = overlay_value(sources, overlay, &schema);
        put(&mut tree, &overlay.path, value, report);
    }
    later::refuse(&mut tree, report);
    known::prune(&mut tree, &schema, report);
    deserialise(tree, report)
}

fn from_environment(
    environment: &[(String, String)],
    sources: &mut Sources,
    report: &mut Report,
) -> Vec<Overlay> {
    let mut overlays = Vec::new();
    let mut named: Vec<&(String, String)> = environment.iter().collect();
    // The order of an environment means nothing; that of the report should.
    named.sort();
    for (name, value) in named {
        let Some(path) = name.strip_prefix(PREFIX) else {
            if name.starts_with("ONCEKEY_") && name != super::secret::VARIABLE {
                let part = sources.add(Origin::Environment(name.clone()), String::new());
                let fault = Fault::new("this variable is read by nobody")
                    .hint("settings are ONCEKEY__SECTION__FIELD, with two underscores each");
                report.warning(Some(sources.whole(part)), fault);
            }
            continue;
        };
        let path: Vec<String> = path.split("__").map(str::to_ascii_lowercase).collect();
        let origin = Origin::Environment(name.clone());
        if path.iter().any(String::is_empty) || path.len() > DEEPEST {
            let part = sources.add(origin, String::new());
            let fault = Fault::new("the variable's name is no path of fields")
                .hint("ONCEKEY__SERVER__LISTEN sets `listen` in [server]");
            report.error(Some(sources.whole(part)), Code::UnknownField, fault);
            continue;
        }
        if value.len() > LONGEST_VALUE {
            let part = sources.add(origin, String::new());
            let fault = Fault::new("the value is too long").hint("use a file");
            report.error(Some(sources.whole(part)), Code::BadValue, fault);
            continue;
        }
        overlays.push(Overlay { part: sources.add(origin, value.clone()), path });
    }
    overlays
}

fn from_flags(flags: &Flags, sources: &mut Sources) -> Vec<Overlay> {
    let given = [
        ("--upstream", &flags.upstream, ["upstream", "url"]),
        ("--listen", &flags.listen, ["server", "listen"]),
        ("--admin", &flags.admin, ["admin", "listen"]),
        ("--data", &flags.data, ["store", "path"]),
    ];
    let mut overlays = Vec::new();
    for (name, value, path) in given {
        if let Some(value) = value {
            let part = sources.add(Origin::Flag(name), value.clone());
            overlays.push(Overlay { part, path: path.map(str::to_owned).to_vec() });
        }
    }
    overlays
}

/// The value of a variable or flag, with spans of the line of all sources.
fn overlay_value<'a>(
    sources: &'a Sources,
    overlay: &Overlay,
    schema: &serde_json::Value,
) -> Spanned<DeValue<'a>> {
    let text = sources.text(overlay.part);
    let span = sources.whole(overlay.part);
    let as_text = || Spanned::new(span.clone(), DeValue::String(text.into()));
    let field = known::at_path(schema, &overlay.path);
    let takes_text = field.and_then(|field| field.get("type")?.as_str()) == Some("string");
    match DeValue::parse(text) {
        Ok(value) if value.get_ref().is_str() || !takes_text => shifted(value, span.start),
        _ => as_text(),
    }
}

/// Moves a value's spans, which count from its own text, to the line of all sources.
fn shifted(value: Spanned<DeValue<'_>>, by: usize) -> Spanned<DeValue<'_>> {
    let span = value.span();
    let moved = match value.into_inner() {
        DeValue::Array(list) => DeValue::Array(
            list.into_iter().map(|element| shifted(element, by)).collect::<DeArray<'_>>(),
        ),
        DeValue::Table(table) => {
            let mut moved = DeTable::new();
            for (key, value) in table {
                let span = key.span();
                let key = Spanned::new(span.start + by..span.end + by, key.into_inner());
                moved.insert(key, shifted(value, by));
            }
            DeValue::Table(moved)
        }
        other => other,
    };
    Spanned::new(span.start + by..span.end + by, moved)
}

/// Sets the field at `path`; tables on the way are made.
fn put<'a>(
    table: &mut DeTable<'a>,
    path: &[String],
    value: Spanned<DeValue<'a>>,
    report: &mut Report,
) {
    let Some((first, rest)) = path.split_first() else { return };
    let span = value.span();
    if rest.is_empty() {
        // Removed first: the key is to bear the new place, not the old one.
        table.remove(first.as_str());
        table.insert(Spanned::new(span, first.clone().into()), value);
        return;
    }
    if table.get(first.as_str()).is_none() {
        let empty = Spanned::new(span.clone(), DeValue::Table(DeTable::new()));
        table.insert(Spanned::new(span.clone(), first.clone().into()), empty);
    }
    match table.get_mut(first.as_str()).map(Spanned::get_mut) {
        Some(DeValue::Table(inner)) => put(inner, rest, value, report),
        _ => {
            let fault = Fault::new(format!("{} is no table to set a field in", quoted(first)))
                .hint("set the whole value, as TOML text");
            report.error(Some(span), Code::WrongType, fault);
        }
    }
}

fn deserialise(mut tree: DeTable<'_>, report: &mut Report) -> ConfigFile {
    for _ in 0..MOST_ROUNDS {
        let whole = Spanned::new(0..0, tree.clone());
        let error = match ConfigFile::deserialize(toml::de::Deserializer::from(whole)) {
            Ok(file) => return file,
            Err(error) => error,
        };
        let message = error.message().lines().collect::<Vec<_>>().join(": ");
        report.error(error.span(), Code::WrongType, Fault::new(message));
        if !error.span().is_some_and(|span| remove(&mut tree, &span)) {
            break;
        }
    }
    ConfigFile::default()
}

/// Removes what stands at a span, a key or a value; whether it was found.
fn remove(table: &mut DeTable<'_>, span: &Span) -> bool {
    let hit = table
        .iter()
        .find(|(key, value)| key.span() == *span || value.span() == *span)
        .map(|(key, _)| key.get_ref().to_string());
    if let Some(name) = hit {
        table.remove(name.as_str());
        return true;
    }
    table.iter_mut().any(|(_, value)| remove_inside(value, span))
}

fn remove_inside(value: &mut Spanned<DeValue<'_>>, span: &Span) -> bool {
    match value.get_mut() {
        DeValue::Table(inner) => remove(inner, span),
        DeValue::Array(list) => {
            let before = list.len();
            let old = std::mem::replace(list, DeArray::new());
            let mut kept: DeArray<'_> =
                old.into_iter().filter(|element| element.span() != *span).collect();
            let found =
                kept.len() < before || kept.iter_mut().any(|element| remove_inside(element, span));
            *list = kept;
            found
        }
        _ => false,
    }
}
