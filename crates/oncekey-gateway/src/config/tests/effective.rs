//! The effective configuration reads as itself; the schema knows every field; nothing panics.

use proptest::prelude::*;

use super::super::{Flags, parse, schema};
use super::{SAMPLE, accepted, read};

/// Everything set to something that is not its default.
const EVERYTHING: &str = r##"
namespace = "shop-1"
[server]
listen = "0.0.0.0:1"
header_timeout = "1s"
body_timeout = "2m"
max_header_bytes = "16KiB"
max_request_buffers = "64MiB"
drain_delay = "3s"
drain_timeout = "1h"
[admin]
listen = "[::1]:2"
[upstream]
url = "http://[::1]:3000"
timeout = "1m30s"
connect_timeout = "250ms"
idle_timeout = "9s"
max_idle = 0
[store]
kind = "memory"
max_entries = 5
max_bytes = "300MiB"
reserve = "64MiB"
[tenant]
from = "header:X-Tenant-Id"
trusted_peers = ["10.0.0.0/8", "::1", "192.168.1.7"]
[principal]
headers = ["X-Api-Key"]
cookies = ["session", "SID"]
[cors]
origins = ["https://shop.example", "http://localhost:5173"]
[problem]
type_base = "https://docs.example/problems"
[log]
format = "json"
level = "trace"
[defaults]
profile = "stripe"
mode = "observe"
key = ["body:/a~1b/0", "header:X-Key"]
key_syntax = "strict"
require_key = true
min_key_length = 16
uuid_only = true
max_key_age = "1h"
methods = ["PUT", "DELETE"]
operation = "tenant"
authority = true
fingerprint.mode = "json"
fingerprint.exclude = ["/at", "/\"quoted\""]
fingerprint.headers = ["Accept-Language"]
fingerprint.query = "sorted"
retention = "1d12h"
tombstone = "400d"
lease = "10s"
max_run = "2m"
in_progress = "reject"
on_unknown = "retry"
status = { "5xx" = "retry", "409" = "release", "504" = "keep" }
replay = { allow = ["Set-Cookie"], deny = ["ETag"] }
body = "omit"
max_request_body = "2MiB"
max_response_body = 5
insecure_pass_through = true
[[route]]
match = "POST /api/pay"
profile = "payment"
insecure_pass_through = false
on_unknown = "hold"
tombstone = "off"
operation = "pay"
max_key_age = "retention"
status = { "503" = "release" }
[[route]]
match = "* /api/*"
fingerprint = { include = ["/amount"], exclude = [] }
in_progress = { wait = "500ms" }
[[route]]
match = "DELETE /"
mode = "off"
"##;

fn reads_as_itself(text: &str) {
    let config = accepted(text);
    let effective = config.effective();
    assert_eq!(accepted(&effective), config, "{effective}");
    assert_eq!(accepted(&effective).effective(), effective);
}

#[test]
fn a3_the_effective_configuration_reads_as_itself() {
    reads_as_itself("");
    reads_as_itself(SAMPLE);
    reads_as_itself(EVERYTHING);
    reads_as_itself(
        "[defaults]\nprofile = \"payment\"\nstatus = { \"503\" = \"release\" }\n\
         [[route]]\nmatch = \"POST /a\"\n[[route]]\nmatch = \"POST /b\"\nprofile = \"ietf\"\n\
         [[route]]\nmatch = \"POST /c\"\nprofile = \"payment\"",
    );
}

#[test]
fn a3_the_effective_configuration_writes_every_field() {
    let effective: toml::Table = accepted(EVERYTHING).effective().parse().expect("it is TOML");
    let schema = schema();
    let sections = schema["properties"].as_object().expect("the top is a table");
    for (section, of_section) in sections {
        let (written, fields) = match (&effective[section], of_section.get("items")) {
            (toml::Value::Array(routes), Some(route)) => (&routes[0], &route["properties"]),
            (written, _) => (written, &of_section["properties"]),
        };
        for field in fields.as_object().into_iter().flat_map(|fields| fields.keys()) {
            assert!(written.get(field).is_some(), "[{section}] {field} is not written");
        }
    }
}

#[test]
fn a3_the_schema_describes_every_field() {
    fn walk(path: &str, schema: &serde_json::Value) {
        let Some(fields) = schema.get("properties").and_then(|fields| fields.as_object()) else {
            return;
        };
        for (name, field) in fields {
            let path = format!("{path}.{name}");
            if name != "wait" {
                assert!(field.get("description").is_some(), "{path} has no description");
            }
            assert!(!field.to_string().contains("null"), "{path}: TOML has no null");
            walk(&path, field.get("items").unwrap_or(field));
        }
    }
    let schema = schema();
    assert_eq!(schema["additionalProperties"], false);
    assert_eq!(schema["properties"]["route"]["items"]["required"][0], "match");
    walk("", &schema);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn a3_arbitrary_text_never_panics(text in "\\PC{0,200}|[\\[\\]=\"a-z0-9._\\n{} ,-]{0,200}") {
        drop(read(&text));
    }

    #[test]
    fn a3_arbitrary_values_never_panic(
        field in prop::sample::select(FIELDS),
        value in VALUES,
    ) {
        // Where a value is accepted, the effective configuration reads as itself.
        if let Ok(loaded) = read(&format!("{field} = {value}\n")) {
            prop_assert_eq!(accepted(&loaded.config.effective()), loaded.config);
        }
    }

    #[test]
    fn a5_an_arbitrary_environment_never_panics(
        name in "ONCEKEY_[A-Z_]{0,30}|ONCEKEY__(SERVER|DEFAULTS|ROUTE)__[A-Z_]{0,20}",
        value in "\\PC{0,60}",
    ) {
        let file = Some(("oncekey.toml".into(), SAMPLE.to_owned()));
        drop(parse(file, [(name.into(), value.into())], &Flags::default()));
    }
}

const FIELDS: &[&str] = &[
    "namespace",
    "server",
    "server.listen",
    "server.drain_delay",
    "server.max_header_bytes",
    "server.max_request_buffers",
    "upstream.url",
    "upstream.timeout",
    "upstream.max_idle",
    "store.kind",
    "store.path",
    "store.max_entries",
    "store.max_bytes",
    "store.reserve",
    "tenant.from",
    "tenant.trusted_peers",
    "principal.headers",
    "principal.cookies",
    "cors.origins",
    "problem.type_base",
    "log.level",
    "defaults.profile",
    "defaults.key",
    "defaults.min_key_length",
    "defaults.max_key_age",
    "defaults.methods",
    "defaults.operation",
    "defaults.fingerprint",
    "defaults.fingerprint.exclude",
    "defaults.retention",
    "defaults.tombstone",
    "defaults.in_progress",
    "defaults.in_progress.wait",
    "defaults.status",
    "defaults.status.409",
    "defaults.replay.allow",
    "defaults.max_request_body",
    "route",
    "defaults",
];

/// Text, strings, numbers, quantities, lists, tables.
const VALUES: &str = concat!(
    "\\PC{0,40}|\"[ -~]{0,30}\"|-?[0-9]{1,25}|",
    "\"-?[0-9]{1,22}(ms|s|m|h|d|MiB|)\"|\\[.{0,10}\\]|\\{.{0,10}\\}",
);
