//! Single values: what is read, what is written, what matches.

use std::net::IpAddr;
use std::time::Duration;

use proptest::prelude::*;

use super::super::field::{Setting, Written};
use super::super::net::{Network, TypeBase, UpstreamUrl};
use super::super::quantity::{Delay, Size, duration_text, size_text};
use super::super::{PathPattern, parse};
use super::{accepted, refused};

fn value<T: Setting>(text: &str) -> Option<T> {
    T::read(&Written::Text(text.to_owned())).ok()
}

#[test]
fn t4_durations_are_whole_numbers_with_units() {
    let rows = [
        ("500ms", 500),
        ("30s", 30_000),
        ("15m", 900_000),
        ("24h", 86_400_000),
        ("30d", 30 * 86_400_000),
        ("1h30m", 5_400_000),
        ("1h 30m", 5_400_000),
        (" 1s ", 1_000),
    ];
    for (text, millis) in rows {
        assert_eq!(value(text), Some(Duration::from_millis(millis)), "{text}");
    }
    assert_eq!(value("0s"), Some(Delay(Duration::ZERO)));
    assert_eq!(value::<Duration>("0s"), None);
}

#[test]
fn a3_sizes_are_bytes_or_have_a_unit() {
    for (text, bytes) in [("1MiB", 1 << 20), ("64 KiB", 1 << 16), ("10MB", 10_000_000), ("7", 7)] {
        assert_eq!(value(text), Some(Size(bytes)), "{text}");
    }
    for text in ["", "MiB", "1.5MiB", "-1", "1XB", "99999999999TiB", "1 MiB MiB"] {
        assert_eq!(value::<Size>(text), None, "{text}");
    }
    assert_eq!(size_text(1 << 20), "1MiB");
    assert_eq!(size_text(1_000_001), "1000001B");
}

proptest! {
    #[test]
    fn t4_what_is_written_reads_as_the_same_duration(millis in 1_u64..=315_360_000_000) {
        let duration = Duration::from_millis(millis);
        prop_assert_eq!(value::<Duration>(&duration_text(duration)), Some(duration));
    }

    #[test]
    fn a3_what_is_written_reads_as_the_same_size(bytes in 1_u64..) {
        prop_assert_eq!(value::<Size>(&size_text(bytes)), Some(Size(bytes)));
    }
}

#[test]
fn s3_a_network_contains_its_addresses() {
    let rows = [
        ("10.0.0.0/8", "10.255.0.1", true),
        ("10.0.0.0/8", "11.0.0.0", false),
        ("10.0.0.0/8", "::ffff:10.0.0.1", true),
        ("10.0.0.0/8", "::1", false),
        ("192.168.1.7", "192.168.1.7", true),
        ("192.168.1.7", "192.168.1.8", false),
        ("0.0.0.0/0", "8.8.8.8", true),
        ("::/0", "2001:db8::1", true),
        ("2001:db8::/32", "2001:db8:ffff::1", true),
        ("2001:db8::/32", "2001:db9::1", false),
        ("::1", "::1", true),
    ];
    for (network, peer, inside) in rows {
        let network: Network = value(network).unwrap_or_else(|| panic!("{network}"));
        let peer: IpAddr = peer.parse().expect("an address");
        assert_eq!(network.contains(peer), inside, "{network} {peer}");
    }
}

#[test]
fn a2_an_upstream_is_a_host_and_a_port() {
    let url: UpstreamUrl = value("http://[::1]:3000").expect("an address");
    assert_eq!((url.host(), url.port()), ("::1", 3000));
    assert_eq!(url.authority(), "[::1]:3000");
    let url: UpstreamUrl = value("http://app/").expect("a host");
    assert_eq!(url.to_string(), "http://app:80");
    for text in ["http://", "http://:80", "http://a:", "http://a:0", "http://a:99999", "http://a?b"]
    {
        assert_eq!(value::<UpstreamUrl>(text), None, "{text}");
    }
}

#[test]
fn h_a_type_base_ends_where_a_code_can_begin() {
    let rows = [
        ("https://a.example/p", "https://a.example/p/"),
        ("https://a.example/p#", "https://a.example/p#"),
        ("urn:a", "urn:a:"),
    ];
    for (text, base) in rows {
        assert_eq!(value(text), Some(TypeBase(base.into())), "{text}");
    }
}

#[test]
fn a5_patterns_match_whole_paths_or_everything_below() {
    let rows = [
        ("/a", "/a", true),
        ("/a", "/a/", true),
        ("/a", "/a/b", false),
        ("/a", "/ab", false),
        ("/a/*", "/a/b", true),
        ("/a/*", "/a", false),
        ("/a/*", "/a/", false),
        ("/a/*", "/ab/c", false),
        ("/*", "/", true),
        ("/*", "/a/b", true),
        ("/", "/", true),
        ("/", "/a", false),
        ("/a%2Fb", "/a%2Fb", true),
    ];
    for (pattern, path, matches) in rows {
        let pattern: PathPattern = pattern.parse().expect("a pattern");
        assert_eq!(pattern.matches(path), matches, "{pattern} {path}");
        assert_eq!(pattern.to_string().parse::<PathPattern>().ok(), Some(pattern));
    }
}

#[test]
fn a5_a_covering_pattern_matches_whatever_the_other_does() {
    let patterns = ["/", "/a", "/b", "/a/b", "/*", "/a/*", "/a/b/*", "/ab/*"];
    let paths = ["/", "/a", "/b", "/a/b", "/a/c", "/a/b/c", "/ab", "/ab/c", "/c/d"];
    for wide in patterns {
        for narrow in patterns {
            let (wide, narrow): (PathPattern, PathPattern) =
                (wide.parse().expect("a pattern"), narrow.parse().expect("a pattern"));
            let implied = paths.iter().all(|path| !narrow.matches(path) || wide.matches(path));
            assert_eq!(wide.covers(&narrow), implied, "{wide} over {narrow}");
        }
    }
}

#[test]
fn a5_a_file_may_be_absent() {
    assert!(parse(None, [], &super::Flags::default()).is_ok());
}

#[test]
fn a3_an_upstream_that_is_the_gateway_itself_is_refused() {
    for (listen, url) in [
        ("127.0.0.1:8080", "http://127.0.0.1:8080"),
        ("127.0.0.1:8080", "http://localhost:8080"),
        ("0.0.0.0:8080", "http://127.0.0.1:8080"),
        ("[::1]:8080", "http://[::1]:8080"),
    ] {
        let text = format!("[server]\nlisten = \"{listen}\"\n[upstream]\nurl = \"{url}\"");
        assert!(refused(&text).to_string().contains("is this gateway itself"), "{text}");
    }
    for url in ["http://127.0.0.1:8081", "http://10.0.0.1:8080", "http://app:8080"] {
        accepted(&format!("[upstream]\nurl = \"{url}\""));
    }
}

#[test]
fn x5_a_folder_may_not_be_bounded_below_what_an_idle_one_takes() {
    let refusal = refused("[store]\nmax_bytes = \"255MiB\"").to_string();
    assert!(refusal.contains("at least \"256MiB\""), "{refusal}");
    let config = accepted("[store]\nmax_bytes = \"256MiB\"\nreserve = 1");
    assert_eq!((config.store.max_bytes, config.store.reserve), (Some(256 << 20), Some(1)));
    let memory = accepted("[store]\nkind = \"memory\"\nmax_bytes = \"1MiB\"");
    assert_eq!((memory.store.max_bytes, memory.store.reserve), (Some(1 << 20), None));
}

#[test]
fn o4_a_short_timeout_shortens_the_time_to_connect() {
    let config = accepted("[upstream]\ntimeout = \"1s\"");
    assert_eq!(config.upstream.connect_timeout, Duration::from_secs(1));
    let both = "[upstream]\ntimeout = \"1s\"\nconnect_timeout = \"2s\"";
    assert!(refused(both).to_string().contains("is longer than timeout"));
}
