//! Fields that nobody reads.
//!
//! The JSON Schema says which fields each table has. Everything else is reported with the field
//! that was probably meant, and taken out, so that the rest of the file can still be judged.

use serde_json::{Map, Value};
use toml::de::{DeTable, DeValue};

use super::diagnostic::{Code, Fault, Report, nearest, quoted};

/// Takes unknown fields out of the tree, and reports each.
pub(crate) fn prune(tree: &mut DeTable<'_>, schema: &Value, report: &mut Report) {
    prune_table(tree, schema, &Names { root: schema, section: String::new(), list: false }, report);
}

/// The schema of what stands at `path`, if the schema knows it.
pub(crate) fn at_path<'a>(schema: &'a Value, path: &[String]) -> Option<&'a Value> {
    path.iter().try_fold(schema, |schema, name| {
        fields(schema)
            .and_then(|fields| fields.get(name))
            .or_else(|| schema.get("additionalProperties").filter(|open| open.is_object()))
    })
}

struct Names<'a> {
    root: &'a Value,
    section: String,
    /// Whether it is one of a list: `[[route]]`.
    list: bool,
}

fn prune_table(table: &mut DeTable<'_>, schema: &Value, names: &Names<'_>, report: &mut Report) {
    // A table with names of the user's own, or a plain value: the field itself judges it.
    let Some(fields) = fields(schema) else { return };
    let unknown: Vec<String> = table
        .iter()
        .map(|(key, _)| key.get_ref().to_string())
        .filter(|name| !fields.contains_key(name))
        .collect();
    for name in unknown {
        let span = table.get_key_value(name.as_str()).map(|(key, _)| key.span());
        report.error(span, Code::UnknownField, unknown_field(&name, fields, names));
        table.remove(name.as_str());
    }
    let mut emptied = Vec::new();
    for (key, value) in table.iter_mut() {
        let name = key.get_ref().as_ref();
        let section = match names.section.as_str() {
            "" => name.to_owned(),
            outer => format!("{outer}.{name}"),
        };
        let list = matches!(value.get_ref(), DeValue::Array(_));
        let inner = Names { root: names.root, section, list };
        let Some(schema) = fields.get(name) else { continue };
        match (value.get_mut(), schema.get("items")) {
            (DeValue::Table(table), _) if !table.is_empty() => {
                prune_table(table, schema, &inner, report);
                if table.is_empty() {
                    emptied.push(name.to_owned());
                }
            }
            (DeValue::Array(list), Some(items)) => {
                for element in list.iter_mut() {
                    if let DeValue::Table(table) = element.get_mut() {
                        prune_table(table, items, &inner, report);
                    }
                }
            }
            _ => {}
        }
    }
    // Nothing was right in it, which has been said: an empty table would be a second mistake.
    for name in emptied {
        table.remove(name.as_str());
    }
}

fn unknown_field(name: &str, fields: &Map<String, Value>, names: &Names<'_>) -> Fault {
    let fault = match names.section.as_str() {
        "" => Fault::new(format!("unknown field {} at the top of the file", quoted(name))),
        section if names.list => {
            Fault::new(format!("unknown field {} in [[{section}]]", quoted(name)))
        }
        section => Fault::new(format!("unknown field {} in [{section}]", quoted(name))),
    };
    if let Some(meant) = nearest(name, fields.keys().map(String::as_str)) {
        return fault.hint(format!("did you mean `{meant}`?"));
    }
    let elsewhere: Vec<String> = homes(names.root, name);
    if !elsewhere.is_empty() {
        return fault.hint(format!("it belongs in {}", elsewhere.join(" or ")));
    }
    let known: Vec<&str> = fields.keys().map(String::as_str).collect();
    fault.hint(format!("known here: {}", known.join(", ")))
}

/// The sections that have a field of this name.
fn homes(root: &Value, name: &str) -> Vec<String> {
    let Some(sections) = fields(root) else { return Vec::new() };
    let mut homes = Vec::new();
    if sections.contains_key(name) {
        homes.push("the top of the file, before the first [section]".to_owned());
    }
    for (section, schema) in sections {
        let (schema, shown) = match schema.get("items") {
            Some(items) => (items, format!("[[{section}]]")),
            None => (schema, format!("[{section}]")),
        };
        if fields(schema).is_some_and(|fields| fields.contains_key(name)) {
            homes.push(shown);
        }
    }
    homes
}

/// The fields of a table; none for anything else.
fn fields(schema: &Value) -> Option<&Map<String, Value>> {
    if let Some(fields) = schema.get("properties") {
        return fields.as_object();
    }
    let alternatives = schema.get("anyOf")?.as_array()?;
    alternatives.iter().find_map(|one| one.get("properties")?.as_object())
}
