//! The features of a crate, read from its manifest.

/// The names under `[features]`, without `default`.
pub(crate) fn of(manifest: &str) -> Vec<&str> {
    let table = manifest.lines().skip_while(|line| line.trim() != "[features]").skip(1);
    table
        .take_while(|line| !line.starts_with('['))
        .filter(|line| !line.starts_with(['#', ' ', ']']))
        .filter_map(|line| Some(line.split_once('=')?.0.trim()))
        .filter(|name| *name != "default")
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_and_nothing_else() {
        let manifest = "[package]\nname = \"a\"\n[features]\ndefault = [\"x\"]\n# y = 1\nx = []\n\
                        long = [\n    \"dep:b=c\",\n]\n[dependencies]\nd = \"1\"\n";
        assert_eq!(of(manifest), ["x", "long"]);
        assert!(of("[package]\n").is_empty());
    }

    #[test]
    fn the_library_has_the_features_that_the_checks_rely_on() {
        let features = of(include_str!("../../crates/oncekey/Cargo.toml"));
        for name in ["http", "axum", "embedded", "conformance"] {
            assert!(features.contains(&name), "{name} is not among {features:?}");
        }
    }
}
