//! Tests of the configuration, by subject.

use super::{Config, Flags, Loaded, Rejected, parse};

mod effective;
mod layers;
mod malformed;
mod overlay;
mod reload;
mod remarks;
mod values;

/// Reads a file of this text, with no environment and no flags.
fn read(text: &str) -> Result<Loaded, Rejected> {
    parse(Some(("oncekey.toml".into(), text.to_owned())), [], &Flags::default())
}

fn accepted(text: &str) -> Config {
    match read(text) {
        Ok(loaded) => loaded.config,
        Err(rejected) => panic!("refused:\n{rejected}\n--- for\n{text}"),
    }
}

fn refused(text: &str) -> Rejected {
    match read(text) {
        Ok(_) => panic!("accepted:\n{text}"),
        Err(rejected) => rejected,
    }
}

/// The sample of the handbook, without the sections of later versions.
const SAMPLE: &str = r#"
[server]
listen = "127.0.0.1:8080"
[admin]
listen = "127.0.0.1:9090"
[upstream]
url = "http://127.0.0.1:3000"
timeout = "30s"
[store]
kind = "embedded"
path = "./oncekey-data"
[tenant]
from = "shared"
[defaults]
retention = "24h"
lease = "30s"
in_progress = { wait = "5s" }
on_unknown = "hold"
[[route]]
match = "POST /api/pay"
profile = "payment"
retention = "15m"
key = ["header:Idempotency-Key", "body:/idempotencyKey"]
status = { "409" = "release" }
"#;
