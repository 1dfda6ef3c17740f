//! More of everything than anybody should send: memory stays bounded, what is refused is told so,
//! and other keys go on being answered (X5, X6, C4).
//!
//! The sizes are for a suite; with `ONCEKEY_FLOOD=full` in the environment they are the full ones.

mod clients;
mod uploads;

use std::fs;
use std::thread;
use std::time::Duration;

use crate::rig::{Gateway, wait_until};
use clients::{Application, Probe, reply_to};

/// How much memory a flood may take where request buffers (X6) play no part.
const SPARE: u64 = 300 << 20;

/// How much it may take where they do; heads are a part of what is buffered.
const SPARE_AND_BUFFERS: u64 = SPARE + (256 << 20);

/// A size for the suite, or the full one.
pub(crate) fn scale(suite: usize, full: usize) -> usize {
    if std::env::var("ONCEKEY_FLOOD").is_ok_and(|size| size == "full") { full } else { suite }
}

/// The most memory that a process has had resident so far, in bytes.
pub(crate) fn peak(process: u32) -> u64 {
    status(process, "VmHWM:") * 1024
}

fn status(process: u32, field: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix(field)).expect("the field");
    line.trim().split(' ').next().and_then(|number| number.parse().ok()).expect("a number")
}

fn open_files(process: u32) -> usize {
    fs::read_dir(format!("/proc/{process}/fd")).expect("it runs").count()
}

/// Demands that a flood took no more memory than it may, and says how much it was.
#[allow(clippy::print_stdout)] // A figure for whoever runs the full size by hand.
#[track_caller]
fn within(what: &str, gateway: &Gateway, before: u64, allowed: u64) {
    let grown = peak(gateway.id()) - before;
    println!("{what}: {} MiB more at the peak", grown >> 20);
    assert!(grown < allowed, "{what}: {} MiB more", grown >> 20);
}

#[test]
fn x5_b101_random_keys_at_a_route_that_is_not_there_take_disk_and_no_memory() {
    // Steps: a 404 is an answer like another and is kept, on disk; a route that knows better
    // forgets it at once.
    let application = Application::start();
    let config = "[[route]]\nmatch = \"POST /forgets/*\"\nstatus = { \"404\" = \"release\" }\n";
    let gateway = Gateway::to(application.address()).config(config).start();
    let before = peak(gateway.id());
    let keys = scale(8_000, 1_000_000);
    let probe = Probe::start(&gateway);
    clients::ask_all(&gateway, 64, keys, |key| {
        let path = if key % 8 == 0 { "/forgets/missing" } else { "/missing" };
        format!(
            "POST {path} HTTP/1.1\r\nHost: a\r\nIdempotency-Key: flood-{key}\r\n\
             Content-Length: 2\r\n\r\n{{}}"
        )
    });
    probe.stop();
    within("random keys", &gateway, before, SPARE);
    assert_eq!(gateway.metric("oncekey_records_in_progress"), Some(0.0));
    let again = |path: &str, key: usize| {
        let request = crate::rig::Request::post(path).key(&format!("flood-{key}")).body("{}");
        request.reply(gateway.address()).replayed()
    };
    assert!(again("/missing", 1) && !again("/forgets/missing", 8));
}

#[test]
fn x6_slow_uploads_take_what_they_sent_and_keep_nobody_out() {
    let application = Application::start();
    let config = "[server]\nbody_timeout = \"10m\"\nheader_timeout = \"10m\"\n";
    let gateway = Gateway::to(application.address()).config(config).start();
    let before = peak(gateway.id());
    let count = scale(1_500, 10_000);
    let slow = clients::hold(&gateway, count, |number| {
        let key = format!("POST /pay HTTP/1.1\r\nHost: a\r\nIdempotency-Key: slow-{number}\r\n");
        match number % 4 {
            0 => format!("{key}Content-Length: 1048576\r\n\r\nslow"),
            1 => format!("{key}Transfer-Encoding: chunked\r\n\r\n2\r\nsl\r\n"),
            2 => format!("{key}Content-Length: 100\r\n\r\nslow"),
            // Without a key it is passed on as it comes.
            _ => "POST /pay HTTP/1.1\r\nHost: a\r\nContent-Length: 1048576\r\n\r\nslow".into(),
        }
    });
    let probe = Probe::start(&gateway);
    // They go on, a few bytes at a time.
    for _ in 0..5 {
        slow.send_all(|number| if number % 4 == 1 { "1\r\no\r\n" } else { "o" });
        thread::sleep(Duration::from_millis(200));
    }
    let large = crate::rig::Request::post("/pay").key("large").body(vec![b'x'; 1 << 20]);
    assert_eq!(large.reply(gateway.address()).status, 201);
    probe.stop();
    within("slow uploads", &gateway, before, SPARE_AND_BUFFERS);
    slow.leave();
    wait_until("the uploads' connections are gone", || open_files(gateway.id()) < 200);
    assert_eq!(gateway.metric("oncekey_requests_overloaded_total"), Some(0.0));
}

#[test]
fn x6_heads_that_do_not_end_take_a_bounded_memory_and_keep_nobody_out() {
    let application = Application::start();
    let config = "[server]\nheader_timeout = \"10m\"\n";
    let gateway = Gateway::to(application.address()).config(config).start();
    let before = peak(gateway.id());
    let count = scale(1_500, 10_000);
    let long = format!(
        "POST /pay HTTP/1.1\r\nHost: a\r\nIdempotency-Key: k\r\nX-Long: {}",
        "x".repeat(60 * 1024)
    );
    let slow = clients::hold(&gateway, count, |number| match number % 2 {
        0 => long.clone(),
        _ => "POST /pay HTTP/1.1\r\nHost: a\r\nX-Sl".to_owned(),
    });
    let probe = Probe::start(&gateway);
    for _ in 0..5 {
        slow.send_all(|_| "o");
        thread::sleep(Duration::from_millis(200));
    }
    probe.stop();
    within("endless heads", &gateway, before, SPARE_AND_BUFFERS);
    slow.leave();
    wait_until("their connections are gone", || open_files(gateway.id()) < 200);
    // A whole head of that size is served.
    let whole = format!("{long}\r\nContent-Length: 2\r\n\r\n{{}}");
    assert_eq!(reply_to(&gateway, &whole), 201);
}

#[test]
fn c4_thousands_of_waiters_on_a_few_keys_have_bounds_and_keep_nobody_out() {
    // Steps: on each key one runs, a hundred wait, and the rest are told so at once.
    let (keys, each) = (scale(8, 50), 105);
    let application = Application::start();
    let config = "[defaults]\nin_progress = { wait = \"55s\" }\n";
    let gateway = Gateway::to(application.address()).config(config).start();
    let before = peak(gateway.id());
    let request = |number: usize| {
        format!(
            "POST /held HTTP/1.1\r\nHost: a\r\nIdempotency-Key: hot-{}\r\n\
             Content-Length: 2\r\n\r\n{{}}",
            number % keys
        )
    };
    let waiting = clients::hold(&gateway, keys * each, request);
    let probe = Probe::start(&gateway);
    wait_until("a hundred wait on each key", || {
        gateway.metric("oncekey_waiters") == Some((keys * 100) as f64)
    });
    assert_eq!(application.held(), keys);
    probe.stop();
    within("waiters", &gateway, before, SPARE);
    application.open();
    let statuses = waiting.statuses();
    let told = |status| statuses.iter().filter(|found| **found == status).count();
    assert_eq!((told(201), told(409)), (keys * 101, keys * 4), "{statuses:?}");
    assert_eq!(application.held(), keys);
}

#[test]
fn x6_connections_one_after_another_leave_nothing_behind() {
    let application = Application::start();
    let gateway = Gateway::to(application.address()).start();
    let good = "POST /pay HTTP/1.1\r\nHost: a\r\nIdempotency-Key: same\r\n\
                Content-Length: 2\r\n\r\n{}";
    assert_eq!(reply_to(&gateway, good), 201);
    let (before, files) = (peak(gateway.id()), open_files(gateway.id()));
    let probe = Probe::start(&gateway);
    clients::one_after_another(&gateway, scale(4_000, 100_000), |number| match number % 5 {
        0 => "",
        1 => good,
        2 => "GET /pay HTTP/1.1\r\nHost: a\r\n\r\n",
        3 => "no HTTP at all\r\n\r\n",
        _ => "POST /pay HTTP/1.1\r\nHost: a\r\nIdempotency-Key: same\r\nContent-Length: 9\r\n\r\n{",
    });
    probe.stop();
    within("connections", &gateway, before, 64 << 20);
    wait_until("their files are closed", || open_files(gateway.id()) <= files + 80);
    assert_eq!(reply_to(&gateway, good), 201);
}
