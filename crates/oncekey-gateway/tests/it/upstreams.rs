//! Applications that misbehave: each answer is told as the rules say, nothing is sent twice, and a
//! connection that brought nonsense is not used again (O4, P3, P4).
//!
//! With `ONCEKEY_FLOOD=full` in the environment the bursts are a hundred thousand requests.

mod large;

use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use crate::flood::{peak, scale};
use crate::rig::{After, Connection, Gateway, Request, Upstream, race};

/// What a client is told of an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    /// 504 `outcome-unknown`, and 409 when it asks again.
    Unknown,
    /// The answer with this status, and again when it asks again.
    Kept(u16),
}
use Told::{Kept, Unknown};

/// Answers the request for each target with the row's bytes and keeps the connection open, so that
/// whatever ends the exchange is the gateway's own judgement.
fn answering(rows: &'static [(&'static str, &'static [u8], Told)]) -> Upstream {
    Upstream::start(move |exchange| {
        let number: usize = exchange.request.target[1..].parse().unwrap_or(usize::MAX);
        match rows.get(number) {
            Some((_, bytes, _)) => exchange.send(bytes),
            None => exchange.send("HTTP/1.1 201 Created\r\nContent-Length: 4\r\n\r\nnext"),
        };
        After::Keep
    })
}

#[track_caller]
fn demand(rows: &'static [(&'static str, &'static [u8], Told)]) {
    let upstream = answering(rows);
    let config = "[upstream]\ntimeout = \"3s\"\n[defaults]\nlease = \"1s\"\nmax_run = \"4s\"\n\
                  in_progress = { wait = \"3s\" }\n";
    let gateway = Gateway::to(upstream.address()).config(config).start();
    let failed = rows.iter().enumerate().filter(|(number, (what, _, told))| {
        let row = || demand_row(&upstream, &gateway, *number, what, *told);
        // Every row that fails is told, not the first alone.
        catch_unwind(AssertUnwindSafe(row)).is_err()
    });
    let failed: Vec<_> = failed.map(|(_, (what, ..))| what).collect();
    assert!(failed.is_empty(), "{failed:?}");
}

fn demand_row(upstream: &Upstream, gateway: &Gateway, number: usize, what: &str, told: Told) {
    let ask = || {
        let request = Request::post(&format!("/{number}")).key("k1").json("{}");
        request.reply(gateway.address())
    };
    let before = upstream.count();
    let (first, second) = (ask(), ask());
    match told {
        Unknown => {
            assert_eq!((first.status, &*first.code()), (504, "outcome-unknown"), "{what}");
            assert_eq!((second.status, &*second.code()), (409, "outcome-unknown"), "{what}");
        }
        Kept(status) => {
            assert_eq!(first.status, status, "{what}: {first:?}");
            assert!(second.replayed() && second.status == status, "{what}: {second:?}");
            assert_eq!(first.body, second.body, "{what}");
        }
    }
    assert_eq!(upstream.count(), before + 1, "{what} was sent twice");
    // Whatever else the application said is nobody's answer.
    let next = Request::post("/next").key(&format!("k{number}")).json("{}");
    let next = next.reply(gateway.address());
    assert_eq!((next.status, next.text()), (201, "next"), "after {what}");
    let seen = upstream.requests().split_off(before);
    if told == Unknown {
        assert_ne!(seen[0].connection, seen[1].connection, "{what}: used again");
    }
}

#[test]
fn o4_an_answer_that_is_no_http_is_unknown_and_its_connection_is_not_used_again() {
    demand(&[
        ("a garbage status line", b"garbage in, garbage out\r\n\r\n", Unknown),
        ("no status", b"HTTP/1.1 \r\nContent-Length: 2\r\n\r\nok", Unknown),
        ("a status of two digits", b"HTTP/1.1 20 X\r\nContent-Length: 2\r\n\r\nok", Unknown),
        ("a status of four digits", b"HTTP/1.1 2000 X\r\nContent-Length: 2\r\n\r\nok", Unknown),
        ("a status below 100", b"HTTP/1.1 099 X\r\nContent-Length: 2\r\n\r\nok", Unknown),
        ("another protocol", b"ICY 200 OK\r\nContent-Length: 2\r\n\r\nok", Unknown),
        ("another version", b"HTTP/3.0 200 OK\r\nContent-Length: 2\r\n\r\nok", Unknown),
        ("a TLS alert", b"\x15\x03\x01\x00\x02\x02\x0a\r\n\r\n", Unknown),
        ("a zero byte", b"HTTP/1.1 201 X\r\nX-A: a\0b\r\nContent-Length: 2\r\n\r\nok", Unknown),
        ("a bare CR", b"HTTP/1.1 201 X\r\nX-A: a\rb\r\nContent-Length: 2\r\n\r\nok", Unknown),
        ("a fold", b"HTTP/1.1 201 X\r\nX-A: a\r\n b\r\nContent-Length: 2\r\n\r\nok", Unknown),
        ("a blank in a name", b"HTTP/1.1 201 X\r\nX A: b\r\nContent-Length: 2\r\n\r\nok", Unknown),
        ("no colon", b"HTTP/1.1 201 X\r\nX-A\r\nContent-Length: 2\r\n\r\nok", Unknown),
        (
            "an upgrade that nobody asked for",
            b"HTTP/1.1 101 X\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n",
            Unknown,
        ),
    ]);
}

#[test]
fn o4_an_answer_whose_end_is_in_doubt_is_unknown() {
    demand(&[
        ("a length that is a word", b"HTTP/1.1 201 X\r\nContent-Length: two\r\n\r\nok", Unknown),
        ("a negative length", b"HTTP/1.1 201 X\r\nContent-Length: -2\r\n\r\nok", Unknown),
        (
            "two lengths",
            b"HTTP/1.1 201 X\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok",
            Unknown,
        ),
        (
            "a length beyond counting",
            b"HTTP/1.1 201 X\r\nContent-Length: 99999999999999999999\r\n\r\nok",
            Unknown,
        ),
        (
            "a size that is none",
            b"HTTP/1.1 201 X\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nok\r\n0\r\n\r\n",
            Unknown,
        ),
        (
            "a size beyond counting",
            b"HTTP/1.1 201 X\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\nok",
            Unknown,
        ),
        (
            "a chunk longer than its size",
            b"HTTP/1.1 201 X\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nok\r\n0\r\n\r\n",
            Unknown,
        ),
        (
            "an extension with a bare LF",
            b"HTTP/1.1 201 X\r\nTransfer-Encoding: chunked\r\n\r\n2;a\nb\r\nok\r\n0\r\n\r\n",
            Unknown,
        ),
    ]);
}

#[test]
fn o4_what_an_application_says_beyond_its_answer_is_nobody_s() {
    // Steps: the answer counts, once; the rest is never taken for the next request's answer.
    demand(&[
        (
            "two answers",
            b"HTTP/1.1 201 X\r\nContent-Length: 2\r\n\r\nok\
              HTTP/1.1 500 X\r\nContent-Length: 4\r\n\r\nevil",
            Kept(201),
        ),
        (
            "more than its length",
            b"HTTP/1.1 201 X\r\nContent-Length: 2\r\n\r\nok and more",
            Kept(201),
        ),
        ("a body of 204", b"HTTP/1.1 204 X\r\nContent-Length: 4\r\n\r\nevil", Kept(204)),
        (
            "more than its last chunk",
            b"HTTP/1.1 201 X\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\nevil",
            Kept(201),
        ),
        (
            "a length beside chunks",
            b"HTTP/1.1 201 X\r\nContent-Length: 40\r\nTransfer-Encoding: chunked\r\n\r\n\
              2\r\nok\r\n0\r\n\r\n",
            Kept(201),
        ),
        (
            "a last 1xx",
            b"HTTP/1.1 103 X\r\nLink: </a>\r\n\r\nHTTP/1.1 201 X\r\nContent-Length: 2\r\n\r\nok",
            Kept(201),
        ),
    ]);
}

#[test]
fn x6_an_answer_s_head_may_be_large_and_has_a_bound() {
    let upstream = Upstream::start(|exchange| {
        let target = exchange.request.target[1..].to_owned();
        let (count, length) = target.split_once('x').unwrap();
        let (count, length): (usize, usize) = (count.parse().unwrap(), length.parse().unwrap());
        let mut head = b"HTTP/1.1 201 X\r\nContent-Length: 2\r\n".to_vec();
        for number in 0..count {
            head.extend(format!("X-{number}: {}\r\n", "v".repeat(length)).bytes());
        }
        head.extend(b"\r\nok");
        if exchange.send(head) { After::Keep } else { After::Close }
    });
    let gateway = Gateway::to(upstream.address()).start();
    let ask = |target: &str| Request::post(target).key("k1").json("{}").reply(gateway.address());
    for (target, count) in [("/99x10", 99), ("/200x10", 200), ("/60x1000", 60), ("/1x60000", 1)] {
        let (first, second) = (ask(target), ask(target));
        assert_eq!((first.status, second.replayed()), (201, true), "{target}");
        for reply in [&first, &second] {
            let names = reply.headers.names();
            let ours = names.iter().filter(|name| name.to_lowercase().starts_with("x-"));
            assert_eq!(ours.count(), count, "{target}");
        }
    }
    for target in ["/2000x10", "/1x200000", "/200x2000"] {
        let (first, second) = (ask(target), ask(target));
        assert_eq!((first.status, &*first.code()), (504, "outcome-unknown"), "{target}");
        assert_eq!((second.status, &*second.code()), (409, "outcome-unknown"), "{target}");
    }
    assert_eq!(upstream.count(), 7);
}

#[test]
fn p4_a_flood_of_interim_answers_is_no_answer_and_takes_no_memory() {
    let upstream = Upstream::start(|exchange| {
        let endless = exchange.request.target == "/endless";
        let many = "HTTP/1.1 102 Processing\r\n\r\n".repeat(1_000);
        let mut rounds = 0;
        while exchange.send(&many) {
            rounds += 1;
            if rounds == 10 && !endless {
                return exchange.answer(201, &[], b"ok");
            }
        }
        After::Close
    });
    // The time-outs are longer than a test waits: what comes, comes at once.
    let config = "[upstream]\ntimeout = \"10m\"\n[defaults]\nmax_run = \"20m\"\n";
    let gateway = Gateway::to(upstream.address()).config(config).start();
    let before = peak(gateway.id());
    let ask = |target: &str| Request::post(target).key("k1").json("{}").reply(gateway.address());
    let endless = ask("/endless");
    assert_eq!((endless.status, &*endless.code()), (504, "outcome-unknown"));
    let many = ask("/many");
    assert_eq!((many.status, &*many.idempotency()), (201, "stored"));
    assert!(peak(gateway.id()) - before < 32 << 20);
    assert_eq!(upstream.count(), 2);
}

#[test]
fn o4_an_early_answer_counts_and_the_rest_of_the_upload_disturbs_nobody() {
    // Steps: the answer comes after the head; then the body is read late, or never.
    let upstream = Upstream::raw(|mut wire, _| {
        while let Ok(head) = wire.read_to(b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&head).to_lowercase();
            let length = head.split("content-length: ").nth(1);
            let length = length.and_then(|rest| rest.split("\r\n").next()?.parse().ok());
            let early = head.contains("/early") || head.contains("/never");
            let answer = "HTTP/1.1 201 X\r\nContent-Length: 2\r\n\r\nok";
            if early && wire.send(answer).is_err() || head.contains("/never") {
                return;
            }
            if wire.read_exactly(length.unwrap_or(0)).is_err() {
                return;
            }
            if !early && wire.send(answer).is_err() {
                return;
            }
        }
    });
    let gateway = Gateway::to(upstream.address()).start();
    let body = vec![b'x'; 1 << 20];
    for number in 0..10 {
        let key = format!("k{number}");
        for path in ["/early", "/never"] {
            let upload = Request::post(path).key(&key).body(&body);
            let (first, second) =
                (upload.reply(gateway.address()), upload.reply(gateway.address()));
            match first.status {
                201 => assert!(second.replayed(), "{path}: {second:?}"),
                // The connection broke while the rest was sent, and took the answer with it.
                504 if path == "/never" => assert_eq!(second.code(), "outcome-unknown"),
                _ => panic!("{path}: {first:?}"),
            }
            let next = Request::post("/next").key(&format!("{key}{path}")).json("{}");
            let next = next.reply(gateway.address());
            assert_eq!((next.status, next.text()), (201, "ok"), "after {path}");
        }
    }
}

#[test]
fn o4_an_application_that_half_closes_or_trickles_is_still_heard() {
    let upstream = Upstream::start(|exchange| {
        let answer = b"HTTP/1.1 201 X\r\nContent-Length: 12\r\n\r\nslow and odd";
        match exchange.request.target.as_str() {
            "/trickle" => {
                let pause = Duration::from_millis(5);
                if exchange.trickle(answer, 1, pause) { After::Keep } else { After::Close }
            }
            // It says that it will not speak any more, after it has answered; and reads on.
            _ => {
                exchange.send(answer);
                let _ = exchange.wire().finish();
                exchange.see_it_leave();
                After::Close
            }
        }
    });
    let gateway = Gateway::to(upstream.address()).start();
    for round in 0..5 {
        for path in ["/trickle", "/half-close"] {
            let request = Request::post(path).key(&format!("k{round}")).json("{}");
            let (first, second) =
                (request.reply(gateway.address()), request.reply(gateway.address()));
            assert_eq!((first.status, first.text()), (201, "slow and odd"), "{path}");
            assert!(second.replayed(), "{path}: {second:?}");
        }
    }
    assert_eq!(upstream.count(), 10);
}

/// An application that closes a connection a second after its last answer, as many do, and says so
/// where it is asked to.
struct Impatient {
    address: std::net::SocketAddr,
    served: Arc<AtomicUsize>,
}

impl Impatient {
    fn start(says: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let served = Arc::<AtomicUsize>::default();
        let count = Arc::clone(&served);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let count = Arc::clone(&count);
                thread::spawn(move || Self::serve(stream, says, &count));
            }
        });
        Self { address, served }
    }

    fn serve(mut stream: TcpStream, says: &str, served: &AtomicUsize) {
        use std::io::Write;
        let answer = format!("HTTP/1.1 201 X\r\n{says}Content-Length: 2\r\n\r\nok");
        let _ = stream.set_nodelay(true);
        let _ = stream.set_read_timeout(Some(Duration::from_secs(1)));
        let mut read = Vec::new();
        let mut piece = [0; 4096];
        loop {
            match stream.read(&mut piece) {
                Ok(count) if count > 0 => read.extend_from_slice(&piece[..count]),
                _ => return,
            }
            if read.ends_with(b"\r\n\r\n{}") {
                read.clear();
                served.fetch_add(1, Ordering::SeqCst);
                if stream.write_all(answer.as_bytes()).is_err() {
                    return;
                }
            }
        }
    }
}

/// Bursts with these pauses between them; how many requests there were.
fn bursts(gateway: &Gateway, requests: usize, pauses: &[u64]) -> usize {
    const WIDE: usize = 32;
    let each = requests.div_ceil(WIDE * pauses.len()).max(1);
    let mut asked = 0;
    for (burst, pause) in pauses.iter().enumerate() {
        let replies = race(WIDE, |client| {
            let mut connection = Connection::open(gateway.address()).unwrap();
            let keys = (0..each).map(|number| format!("{burst}-{client}-{number}"));
            keys.map(|key| connection.ask(&Request::post("/pay").key(&key).body("{}")).unwrap())
                .map(|reply| (reply.status, reply.idempotency()))
                .filter(|told| *told != (201, "stored".to_owned()))
                .collect::<Vec<_>>()
        });
        assert_eq!(replies.concat(), [], "burst {burst}");
        asked += WIDE * each;
        // Not a wait for anything: the silence is what is tested.
        thread::sleep(Duration::from_millis(*pause));
    }
    asked
}

#[test]
fn o4_bursts_on_an_application_that_closes_after_a_second_leave_nothing_unknown() {
    let rounds = scale(1, 20);
    let requests = scale(1_500, 100_000) / 3;
    let cases = [
        // It says when it closes: the gateway is a second earlier.
        ("Keep-Alive: timeout=2\r\n", "", [990, 1_010, 300, 1_000, 0]),
        // It says nothing, and the gateway was told.
        ("", "idle_timeout = \"500ms\"\n", [490, 990, 300, 1_000, 0]),
        // Nobody says anything: connections that were closed are seen to be so.
        ("", "", [1_200, 1_500, 300, 1_200, 0]),
    ];
    for (says, setting, pauses) in cases {
        let impatient = Impatient::start(says);
        let config = format!("[upstream]\nmax_idle = 64\n{setting}");
        let gateway = Gateway::to(impatient.address).config(&config).start();
        let asked = bursts(&gateway, requests, &pauses.repeat(rounds));
        assert_eq!(impatient.served.load(Ordering::SeqCst), asked, "sent twice, or never");
        assert_eq!(gateway.metric("oncekey_became_unknown_total"), Some(0.0));
    }
}
