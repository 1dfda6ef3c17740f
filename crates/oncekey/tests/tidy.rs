//! The house rules that a text search can prove.
//!
//! 1. Each rule is a test. It names every file and line that breaks it.
//! 2. Each rule is also shown a text that breaks it and one that does not: a rule that cannot fail
//!    is no rule.
//! 3. Strings and comments are no code: where a rule is about code, they are blanked out first.

#[path = "tidy/rules.rs"]
mod rules;
#[path = "tidy/source.rs"]
mod source;

use std::collections::HashSet;

use rules::Finding;
use source::{Source, blanked, repository, root};

type Rule = fn(&Source) -> Vec<Finding>;

/// Fails with every line of the repository that breaks `rule`.
#[track_caller]
fn holds(rule: Rule) {
    let broken: Vec<String> = repository()
        .iter()
        .flat_map(|source| rule(source).into_iter().map(|found| (source.path.clone(), found)))
        .map(|(path, (line, what))| format!("{path}:{line}: {what}"))
        .collect();
    assert!(broken.is_empty(), "\n{}\n", broken.join("\n"));
}

/// The lines of `text` that break `rule`.
fn seen(rule: Rule, path: &str, text: &str) -> Vec<usize> {
    rule(&Source::new(path, text)).into_iter().map(|(line, _)| line).collect()
}

const SRC: &str = "crates/oncekey/src/a.rs";
const TEST: &str = "crates/oncekey/tests/it/a.rs";

#[test]
fn files_are_short() {
    holds(rules::file_length);
    assert_eq!(seen(rules::file_length, SRC, &"\n".repeat(600)), []);
    assert_eq!(seen(rules::file_length, SRC, &"\n".repeat(601)), [601]);
    assert_eq!(seen(rules::file_length, TEST, &"\n".repeat(1200)), []);
    assert_eq!(seen(rules::file_length, TEST, &"\n".repeat(1201)), [1201]);
}

#[test]
fn functions_are_short() {
    holds(rules::function_length);
    let of = |lines: usize| format!("\nfn long() {{{}}}\n", "\n".repeat(lines - 1));
    assert_eq!(seen(rules::function_length, SRC, &of(70)), []);
    assert_eq!(seen(rules::function_length, SRC, &of(71)), [2]);
    assert_eq!(seen(rules::function_length, TEST, &of(71)), []);
    let in_tests = format!("#[cfg(test)]\nmod tests {{{}}}\n", of(71));
    assert_eq!(seen(rules::function_length, SRC, &in_tests), []);
    assert_eq!(seen(rules::function_length, SRC, &(in_tests + &of(71))), [76]);
}

#[test]
fn braces_in_strings_and_comments_end_no_function() {
    let body = "\"}\"; r#\"\"}\"#; '}'; '\\''; b'}'; /* } /* } */ } */ // }\n".to_owned();
    let text = format!("fn long<'a>(x: &'a str, y: [u8; 3])\n{{\n{body}{}}}\n", "\n".repeat(70));
    assert_eq!(seen(rules::function_length, SRC, &text), [1]);
}

#[test]
fn lines_fit_the_page() {
    holds(rules::columns);
    assert_eq!(seen(rules::columns, SRC, &"a".repeat(100)), []);
    assert_eq!(seen(rules::columns, SRC, &format!("\n{}", "a".repeat(101))), [2]);
}

#[test]
fn sources_are_ascii() {
    holds(rules::ascii);
    assert_eq!(seen(rules::ascii, SRC, "a ~\n"), []);
    assert_eq!(seen(rules::ascii, SRC, "a\n// \u{2192}\n\t\n"), [2, 3]);
}

#[test]
fn names_say_what_they_hold() {
    holds(rules::telling_names);
    assert_eq!(seen(rules::telling_names, "crates/oncekey/src/common.rs", ""), [1]);
    assert_eq!(seen(rules::telling_names, "crates/oncekey/src/utils/a.rs", ""), [1]);
    assert_eq!(seen(rules::telling_names, "crates/oncekey/src/key_helpers.rs", ""), [1]);
    assert_eq!(seen(rules::telling_names, SRC, "\npub(crate) mod misc {\n}"), [2]);
    assert_eq!(seen(rules::telling_names, SRC, "// mod misc;\nmod permission;"), []);
}

#[test]
fn modules_begin_with_what_they_promise() {
    holds(rules::module_docs);
    assert_eq!(seen(rules::module_docs, SRC, "use std::fmt;\n"), [1]);
    assert_eq!(seen(rules::module_docs, TEST, "use std::fmt;\n"), [1]);
    assert_eq!(seen(rules::module_docs, SRC, "//! What it is for.\n"), []);
    assert_eq!(seen(rules::module_docs, "crates/oncekey/src/a_tests.rs", "use a;\n"), []);
}

#[test]
fn nothing_is_left_unfinished() {
    holds(rules::finished);
    let unfinished = format!(
        "// {}: later\n{}\n{}]\n",
        "TO".to_owned() + "DO",
        "to".to_owned() + "do!()",
        "#[ig".to_owned() + "nore"
    );
    assert_eq!(seen(rules::finished, SRC, &unfinished), [1, 2, 3]);
    assert_eq!(seen(rules::finished, "README.md", &unfinished), [1, 2, 3]);
    assert_eq!(seen(rules::finished, SRC, "let ignored = 1;"), []);
}

#[test]
fn only_the_clock_reads_the_time() {
    holds(rules::time);
    let reads = "let a = Instant::now();\nlet b = std::time::SystemTime::now();\n";
    assert_eq!(seen(rules::time, SRC, reads), [1, 2]);
    assert_eq!(seen(rules::time, "crates/oncekey/src/clock.rs", reads), []);
    assert_eq!(seen(rules::time, SRC, "// Instant::now()\nclock.now();\n"), []);
}

#[test]
fn deciding_does_no_io_and_reads_no_clock() {
    holds(rules::borders);
    let path = "crates/oncekey/src/decide.rs";
    let text =
        "use crate::clock::Stamp;\nuse crate::clock::Clock;\nasync fn a() {}\nclock.now();\n";
    assert_eq!(seen(rules::borders, path, text), [2, 3, 4]);
    assert_eq!(seen(rules::borders, path, "std::fs::read(path);\ntokio::spawn(a);\n"), [1, 2]);
}

#[test]
fn stores_know_no_http() {
    holds(rules::borders);
    let text = "//! http::Request\nuse crate::http::Layer;\nuse http::StatusCode;\n";
    assert_eq!(seen(rules::borders, "crates/oncekey/src/store/memory.rs", text), [2, 3, 3]);
    assert_eq!(seen(rules::borders, "crates/oncekey/src/store.rs", text), [2, 3, 3]);
}

#[test]
fn faces_and_engine_know_no_backend() {
    holds(rules::borders);
    let text = "//! fjall\nuse crate::store::Store;\nuse crate::store::MemoryStore;\n";
    assert_eq!(seen(rules::borders, "crates/oncekey/src/http/layer.rs", text), [3]);
    assert_eq!(seen(rules::borders, "crates/oncekey/src/engine/run.rs", text), [3]);
    let in_tests = "#[cfg(test)]\nmod tests {\n    use crate::store::MemoryStore;\n}\n";
    assert_eq!(seen(rules::borders, "crates/oncekey/src/http/layer.rs", in_tests), []);
}

#[test]
fn dependencies_point_one_way() {
    holds(rules::borders);
    let text = "use crate::engine::Engine;\n";
    for lower in ["record", "key", "fingerprint/json"] {
        let path = format!("crates/oncekey/src/{lower}.rs");
        assert_eq!(seen(rules::borders, &path, text), [1], "{path}");
    }
    assert_eq!(seen(rules::borders, SRC, "use oncekey_gateway::cli;\n"), [1]);
}

#[test]
fn channels_are_bounded() {
    holds(rules::bounded);
    let text = "let a = mpsc::channel();\nlet b = tokio::sync::mpsc::unbounded_channel();\n";
    assert_eq!(seen(rules::bounded, SRC, text), [1, 2]);
    assert_eq!(seen(rules::bounded, SRC, "let a = mpsc::channel(16);\n"), []);
}

#[test]
fn no_public_item_exposes_the_embedded_engine() {
    holds(rules::private_engine);
    let text = "pub struct A {\n    pub(crate) a: fjall::Keyspace,\n    b: fjall::Keyspace,\n}\n";
    assert_eq!(seen(rules::private_engine, SRC, text), []);
    assert_eq!(seen(rules::private_engine, SRC, "pub fn a(\n    a: fjall::Keyspace,\n) {}\n"), [1]);
    assert_eq!(seen(rules::private_engine, SRC, "pub struct A {\n    pub a: fjall::A,\n}\n"), [2]);
    assert_eq!(seen(rules::private_engine, SRC, "impl From<fjall::Error> for A {}\n"), [1]);
    let imported = "use fjall::{Keyspace as Space};\npub fn a() -> Space {}\n";
    assert_eq!(seen(rules::private_engine, SRC, imported), [2]);
}

#[test]
fn no_public_item_exposes_the_web_framework_but_in_its_own_file() {
    holds(rules::private_framework);
    let text = "use axum::body::Body as Bytes;\nfn a(b: Bytes) {}\npub fn c(b: Bytes) {}\n";
    assert_eq!(seen(rules::private_framework, SRC, text), [3]);
    assert_eq!(seen(rules::private_framework, SRC, "impl From<axum::Error> for A {}\n"), [1]);
    assert_eq!(seen(rules::private_framework, "crates/oncekey/src/http/axum.rs", text), []);
}

#[test]
fn no_function_takes_a_flag() {
    holds(rules::no_flags);
    assert_eq!(seen(rules::no_flags, SRC, "\nfn a(b: u8, loud: bool) {}\n"), [2]);
    assert_eq!(seen(rules::no_flags, SRC, "fn a(\n    loud: bool,\n) -> bool {}\n"), [1]);
    assert_eq!(seen(rules::no_flags, SRC, "fn a(f: impl Fn(u8) -> bool) -> bool {}\n"), []);
    assert_eq!(seen(rules::no_flags, SRC, "impl B for A {\n    fn b(&self, on: bool) {}\n}\n"), []);
    assert_eq!(seen(rules::no_flags, SRC, "impl A {\n    fn b(&self, on: bool) {}\n}\n"), [2]);
}

#[test]
fn every_crate_inherits_lints_and_licence() {
    holds(rules::manifests);
    let path = "crates/oncekey/Cargo.toml";
    let whole = "[package]\nlicense.workspace = true\n[lints]\nworkspace = true\n";
    assert_eq!(seen(rules::manifests, path, whole), []);
    assert_eq!(seen(rules::manifests, path, "[package]\n"), [1, 1]);
    assert_eq!(seen(rules::manifests, "Cargo.toml", "[workspace]\n"), []);
}

#[test]
fn documents_link_to_what_is_there() {
    let dead = |source: &Source| {
        let folder =
            root().join(&source.path).parent().expect("a file lies in a folder").to_owned();
        let mut links = rules::links(source);
        links.retain(|(_, target)| !folder.join(target).exists());
        links
    };
    holds(dead);
    let text = "[a](Cargo.toml) [b](https://example.org/x)\n[c](no/such/file.md#part) [d](#here)\n";
    assert_eq!(seen(dead, "README.md", text), [2]);
}

#[test]
fn documents_name_tests_that_are_there() {
    let tests: HashSet<String> = repository()
        .iter()
        .flat_map(|source| source.functions().into_iter().map(|function| function.name))
        .collect();
    let missing = |source: &Source| {
        let mut named = rules::tests_named(source);
        named.retain(|(_, name)| !tests.contains(name));
        named
    };
    let broken: Vec<String> = repository()
        .iter()
        .flat_map(|source| missing(source).into_iter().map(|found| (source.path.clone(), found)))
        .map(|(path, (line, name))| format!("{path}:{line}: there is no test {name}"))
        .collect();
    assert!(broken.is_empty(), "\n{}\n", broken.join("\n"));
    let text = "`k4_keys_differ_by_case` `max_entries`\n`x9_no_such_test_is_there`\n";
    let found: Vec<usize> =
        missing(&Source::new("docs/a.md", text)).into_iter().map(|f| f.0).collect();
    assert_eq!(found, [2]);
}

#[test]
fn strings_comments_and_characters_are_no_code() {
    let text =
        "a(\"b\\\"c\", 'd', '\\'', r#\"e\"f\"#) // g\n/* h\n/* i */ j */ k<'l> br\"m\" r#type";
    let code = blanked(text);
    assert_eq!(code.lines().count(), text.lines().count());
    let words: Vec<&str> =
        code.split(|c: char| !c.is_alphanumeric()).filter(|w| !w.is_empty()).collect();
    assert_eq!(words, ["a", "k", "l", "r", "type"]);
}
