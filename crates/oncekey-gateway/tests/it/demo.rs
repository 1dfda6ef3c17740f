//! The demo, from the line that starts it to the folder that goes with it.

use std::net::{SocketAddr, TcpListener};
use std::path::Path;

use crate::rig::{Demo, Reply, Request, get, oncekey, post, race};

/// Sends what a printed line sends.
fn send(line: &str) -> Reply {
    let quoted = |option: &str| {
        let (_, rest) = line.split_once(&format!("{option} '")).expect("the option is there");
        rest.split_once('\'').expect("the quote ends").0.to_owned()
    };
    let (_, rest) = line.split_once("http://").expect("there is a URL");
    let (address, path) = rest.split_once('/').expect("the URL has a path");
    let path = format!("/{}", path.split(' ').next().expect("it ends"));
    let address: SocketAddr = address.parse().expect("an address");
    let header = quoted("-H");
    let (name, value) = header.split_once(": ").expect("a header");
    // As curl does with a body that it is given no type for.
    let kind = "application/x-www-form-urlencoded";
    let request = Request::post(&path).header(name, value).header("Content-Type", kind);
    request.body(quoted("-d")).reply(address)
}

fn charges(address: SocketAddr) -> (u64, u64) {
    let ledger = get(address, "/api/ledger").json();
    let count = |name: &str| ledger[name].as_u64().expect("a count");
    (count("requests"), count("charges"))
}

#[test]
fn a1_the_printed_lines_show_replay_mismatch_and_concurrent_duplicates() {
    let demo = Demo::start();
    let gateway = demo.address("Shop");
    let lines = demo.curl_lines();
    assert_eq!(lines.len(), 3, "{}", demo.text());

    let first = send(&lines[0]);
    let again = send(&lines[0]);
    assert_eq!((first.status, first.idempotency().as_str()), (201, "stored"), "{first:?}");
    assert!(again.replayed(), "{again:?}");
    assert_eq!((&first.body, first.header("location")), (&again.body, again.header("location")));
    assert_eq!(charges(gateway), (1, 1));

    let other = send(&lines[1]);
    assert_eq!((other.status, other.code().as_str()), (422, "key-reused"), "{other:?}");
    assert_eq!(charges(gateway), (1, 1));

    let both = race(2, |_| send(&lines[2]));
    assert_eq!(both[0].body, both[1].body);
    assert_eq!(both.iter().filter(|reply| reply.replayed()).count(), 1, "{both:?}");
    assert_eq!(charges(gateway), (2, 2));

    let rows = get(gateway, "/api/ledger").json();
    let record = rows["rows"][0]["record"].as_str().expect("the gateway names the record");
    assert_eq!((record.len(), &rows["rows"][0]["attempt"]), (64, &1.into()));
}

#[test]
fn a1_the_shop_that_fails_dies_or_is_slow_never_charges_twice() {
    let demo = Demo::start();
    let gateway = demo.address("Shop");
    let pay = |key: &str, story: &str| {
        let body = format!(r#"{{"item":"coffee","amount":420,"story":"{story}"}}"#);
        post(gateway, "/api/pay", &[("Idempotency-Key", key)], body)
    };

    let clicks = race(2, |_| pay("fails", "fails"));
    assert!(clicks.iter().all(|reply| reply.status == 500), "{clicks:?}");
    assert_eq!(charges(gateway), (1, 0), "a double click on a failing shop runs once");
    assert_eq!(pay("fails", "fails").status, 201);
    assert_eq!(charges(gateway), (2, 1));

    let died = pay("dies", "crashes");
    assert_eq!((died.status, died.code().as_str()), (504, "outcome-unknown"), "{died:?}");
    let after = pay("dies", "crashes");
    assert_eq!((after.status, after.code().as_str()), (409, "outcome-unknown"), "{after:?}");
    assert_eq!(charges(gateway), (3, 2));

    let slow = pay("slow", "slow");
    assert_eq!((slow.status, slow.code().as_str()), (504, "outcome-unknown"), "{slow:?}");
    let late = pay("slow", "slow");
    assert_eq!((late.status, late.replayed()), (201, true), "{late:?}");
    assert_eq!(charges(gateway), (4, 3));
}

#[test]
fn a1_the_pages_come_through_the_gateway() {
    let demo = Demo::start();
    let direct = demo.address("No gateway");
    // The front page alone tells whether a gateway stands before it.
    assert!(get(demo.address("Shop"), "/").text().contains("You are charged once"));
    assert!(get(direct, "/").text().contains("every click charges again"));
    for path in ["/ledger", "/assets/shop.css", "/assets/pay.js", "/assets/cup.svg"] {
        let page = get(demo.address("Shop"), path);
        assert_eq!((page.status, &page.body), (200, &get(direct, path).body), "{path}");
        assert!(!page.headers.has("idempotency-status"), "{page:?}");
    }
    assert_eq!(get(demo.address("Metrics"), "/metrics").status, 200);
}

#[test]
fn a1_ctrl_c_ends_it_and_its_folder() {
    let demo = Demo::start();
    let text = demo.text();
    let (_, rest) = text.split_once("The records lie in ").expect("the folder is named");
    let folder = Path::new(rest.split(' ').next().expect("it ends")).to_owned();
    assert!(folder.is_dir(), "{}", folder.display());
    let ended = demo.interrupt();
    assert_eq!(ended.code(), Some(0), "{ended:?}");
    assert!(!folder.exists());
}

#[test]
fn a1_a_taken_address_that_was_asked_for_is_refused() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("it is bound").to_string();
    let ended = oncekey(&["demo", "--listen", &address]);
    assert_eq!(ended.code(), Some(3), "{ended:?}");
    assert!(ended.err.contains(&address), "{ended:?}");
}
