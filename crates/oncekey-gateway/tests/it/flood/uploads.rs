//! When the room for request bodies is used up (X6).

use crate::rig::{Connection, Failure, Gate, Gateway, Reply, Request, Upstream, wait_until};

const KIB: usize = 1024;

/// An application that holds what is posted to `/held` until the gate opens.
fn held(gate: &Gate) -> Upstream {
    let gate = gate.clone();
    Upstream::start(move |exchange| {
        if exchange.request.target == "/held" {
            exchange.wait(&gate);
        }
        exchange.answer(201, &[], b"done")
    })
}

fn upload(path: &str, key: &str, length: usize) -> Request {
    Request::post(path).key(key).body(vec![b'x'; length])
}

fn sent(gateway: &Gateway, request: &Request) -> Connection {
    let mut connection = Connection::open(gateway.address()).unwrap();
    connection.send(request.bytes()).unwrap();
    connection
}

#[track_caller]
fn is_overloaded(reply: Result<Reply, Failure>) {
    let reply = reply.unwrap();
    assert_eq!((reply.status, &*reply.code()), (503, "overloaded"), "{reply:?}");
    let retry_after: u64 = reply.header("retry-after").parse().unwrap();
    assert!((1..=30).contains(&retry_after), "{reply:?}");
    assert!(!reply.headers.has("idempotency-status"), "{reply:?}");
}

/// Fills the room for large bodies: a run that is held, and one that waits for it and keeps its
/// body, since it may have to run itself.
fn filled(gateway: &Gateway, upstream: &Upstream) -> [Connection; 2] {
    let running = sent(gateway, &upload("/held", "first", 60 * KIB));
    upstream.wait_for_requests(1);
    let waiting = sent(gateway, &upload("/held", "first", 60 * KIB));
    wait_until("one waits", || gateway.metric("oncekey_waiters") == Some(1.0));
    [running, waiting]
}

#[test]
fn x6_without_room_an_upload_is_refused_before_any_claim_and_small_requests_go_on() {
    let gate = Gate::new();
    let upstream = held(&gate);
    // Room for 64 KiB of large bodies, and as much of small ones.
    let config = "[server]\nmax_request_buffers = \"128KiB\"\nbody_timeout = \"1s\"\n\
                  [defaults]\nmax_request_body = \"64KiB\"\nin_progress = { wait = \"55s\" }\n";
    let gateway = Gateway::to(upstream.address()).config(config).start();
    let filling = filled(&gateway, &upstream);
    let (late, chunked) = (upload("/pay", "late", 40 * KIB), vec![b'x'; 40 * KIB]);
    is_overloaded(late.send(gateway.address()));
    let chunked = Request::post("/pay").key("chunked").chunks(&[&chunked[..], &chunked[..9]]);
    is_overloaded(chunked.send(gateway.address()));
    for number in 0..20 {
        let small = upload("/pay", &format!("small-{number}"), 8 * KIB);
        assert_eq!(small.reply(gateway.address()).status, 201);
    }
    assert_eq!(gateway.metric("oncekey_requests_overloaded_total"), Some(2.0));
    assert_eq!(gateway.metric("oncekey_records_in_progress"), Some(1.0));

    gate.open();
    for mut connection in filling {
        assert_eq!(connection.read_reply().unwrap().status, 201);
    }
    for request in [late, chunked] {
        let again = request.reply(gateway.address());
        assert_eq!((again.status, &*again.idempotency()), (201, "stored"));
    }
}

#[test]
fn x6_an_upload_that_waits_for_room_goes_on_when_there_is_some() {
    let gate = Gate::new();
    let upstream = held(&gate);
    let config = "[server]\nmax_request_buffers = \"128KiB\"\n\
                  [defaults]\nmax_request_body = \"64KiB\"\nin_progress = { wait = \"55s\" }\n";
    let gateway = Gateway::to(upstream.address()).config(config).start();
    let filling = filled(&gateway, &upstream);
    let mut waiting = sent(&gateway, &upload("/pay", "second", 60 * KIB));
    let small = upload("/pay", "small", 1).reply(gateway.address());
    assert_eq!((small.status, upstream.count()), (201, 2));
    gate.open();
    assert_eq!(waiting.read_reply().unwrap().idempotency(), "stored");
    assert_eq!((upstream.count(), filling.len()), (3, 2));
}

#[test]
fn x6_uploads_that_break_off_give_their_room_back() {
    let upstream = held(&Gate::new());
    let config = "[server]\nmax_request_buffers = \"128KiB\"\nbody_timeout = \"25s\"\n\
                  [defaults]\nmax_request_body = \"64KiB\"\n";
    let gateway = Gateway::to(upstream.address()).config(config).start();
    for round in 0..20 {
        let whole = upload("/pay", "broken", 60 * KIB).bytes();
        let mut broken = Connection::open(gateway.address()).unwrap();
        broken.send(&whole[..whole.len() - 1]).unwrap();
        if round % 2 == 0 {
            broken.reset()
        } else {
            broken.leave()
        }
        let whole = upload("/pay", &format!("k{round}"), 60 * KIB);
        // Whichever of the two gives way while both are there, the room is free in the end.
        wait_until("it is served", || whole.reply(gateway.address()).status == 201);
    }
    assert_eq!(upstream.count(), 20);
}

#[test]
fn x6_half_read_uploads_that_wait_for_each_other_come_to_an_end() {
    // Steps: sixteen uploads of 64 KiB begin together where one has room. However they meet, those
    // that are refused can come again, and all are served in the end.
    let upstream = held(&Gate::new());
    let config = "[server]\nmax_request_buffers = \"128KiB\"\nbody_timeout = \"20s\"\n\
                  [defaults]\nmax_request_body = \"64KiB\"\n";
    let gateway = Gateway::to(upstream.address()).config(config).start();
    let mut left: Vec<_> = (0..16).map(|n| upload("/pay", &format!("k{n}"), 64 * KIB)).collect();
    wait_until("all are served", || {
        let mut half: Vec<_> = left
            .iter()
            .map(|request| {
                let bytes = request.bytes();
                let mut connection = Connection::open(gateway.address()).unwrap();
                connection.send(&bytes[..30 * KIB]).unwrap();
                (connection, bytes)
            })
            .collect();
        for (connection, bytes) in &mut half {
            // It may have been refused meanwhile.
            let _ = connection.send(&bytes[30 * KIB..]);
        }
        let served = half.into_iter().map(|(mut connection, _)| {
            connection.read_reply().is_ok_and(|reply| reply.status == 201)
        });
        let served: Vec<_> = served.collect();
        let mut served = served.iter();
        left.retain(|_| !served.next().expect("one each"));
        left.is_empty()
    });
    assert_eq!(upstream.count(), 16);
}
