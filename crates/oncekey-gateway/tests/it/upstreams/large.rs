//! Answers that are larger than memory should be, or have no end (P3, L1).

use std::time::Duration;

use crate::flood::{peak, scale};
use crate::rig::{After, Connection, Failure, Gateway, Request, Upstream, wait_until};

const MIB: usize = 1 << 20;

fn sized(length: usize) -> Upstream {
    Upstream::start(move |exchange| {
        let piece = vec![b'x'; MIB];
        if !exchange.send(format!("HTTP/1.1 201 X\r\nContent-Length: {length}\r\n\r\n")) {
            return After::Close;
        }
        for _ in 0..length / MIB {
            if !exchange.send(&piece) {
                return After::Close;
            }
        }
        After::Keep
    })
}

#[test]
fn p3_a_hundred_mebibytes_are_streamed_to_the_first_and_omitted_to_the_rest() {
    let length = scale(32, 100) * MIB;
    let upstream = sized(length);
    let gateway = Gateway::to(upstream.address()).start();
    let before = peak(gateway.id());
    let request = Request::post("/export").key("k1").json("{}");
    let mut client = Connection::open(gateway.address()).unwrap();
    client.send(request.bytes()).unwrap();
    let head = client.read_head_to("POST").unwrap();
    assert_eq!((head.status, head.header("content-length")), (201, length.to_string()));
    let mut left = length;
    while left > 0 {
        let piece = client.wire().read_exactly(left.min(MIB)).unwrap();
        assert!(piece.iter().all(|byte| *byte == b'x'));
        left -= piece.len();
    }
    let second = request.reply(gateway.address());
    assert!(second.replayed() && second.body.is_empty(), "{second:?}");
    assert_eq!((second.status, second.header("idempotency-body")), (201, "omitted".into()));
    assert_eq!(upstream.count(), 1);
    let grown = peak(gateway.id()) - before;
    assert!(grown < 24 * MIB as u64, "{grown} bytes for an answer that is streamed");
}

#[test]
fn p3_clients_that_do_not_read_large_answers_take_no_memory() {
    let length = 64 * MIB;
    let upstream = sized(length);
    let gateway = Gateway::to(upstream.address()).start();
    let before = peak(gateway.id());
    let clients: Vec<_> = (0..scale(50, 500))
        .map(|number| {
            let mut client = Connection::open(gateway.address()).unwrap();
            let request = Request::post("/export").key(&format!("k{number}")).json("{}");
            client.send(request.bytes()).unwrap();
            client
        })
        .collect();
    let heads = clients.into_iter().map(|mut client| {
        let head = client.read_head_to("POST").unwrap();
        assert_eq!(head.status, 201);
        client
    });
    let clients: Vec<_> = heads.collect();
    let grown = peak(gateway.id()) - before;
    // Frames in flight, the two sockets' buffers, and what is kept until it is too large.
    assert!(grown < clients.len() as u64 * 4 * MIB as u64, "{grown} bytes");
}

#[test]
fn l1_a_stream_without_end_is_ended_with_its_run_and_unknown() {
    let upstream = Upstream::start(|exchange| {
        let head = "HTTP/1.1 200 X\r\nTransfer-Encoding: chunked\r\n\r\n";
        let piece = [&b"10000\r\n"[..], &vec![b'x'; 64 * 1024], b"\r\n"].concat();
        let mut goes_on = exchange.send(head);
        while goes_on {
            goes_on = exchange.trickle(&piece, piece.len(), Duration::from_millis(2));
        }
        After::Close
    });
    let config = "[upstream]\ntimeout = \"1s\"\n[defaults]\nlease = \"1s\"\nmax_run = \"2s\"\n\
                  in_progress = { wait = \"1s\" }\n";
    let gateway = Gateway::to(upstream.address()).config(config).start();
    let before = peak(gateway.id());
    // One client stays, one leaves in the middle.
    let mut leaving = Connection::open(gateway.address()).unwrap();
    leaving.send(Request::post("/endless").key("leaves").json("{}").bytes()).unwrap();
    assert_eq!(leaving.read_head_to("POST").unwrap().status, 200);
    leaving.leave();
    let stays = Request::post("/endless").key("stays").json("{}");
    match stays.send(gateway.address()) {
        Err(Failure::Cut { reply, .. }) => assert_eq!(reply.status, 200),
        other => panic!("a stream without end has one: {other:?}"),
    }
    wait_until("both are unknown", || gateway.metric("oncekey_became_unknown_total") == Some(2.0));
    for key in ["leaves", "stays"] {
        let again = Request::post("/endless").key(key).json("{}").reply(gateway.address());
        assert_eq!((again.status, &*again.code()), (409, "outcome-unknown"));
    }
    assert_eq!(upstream.count(), 2);
    assert!(peak(gateway.id()) - before < 48 * MIB as u64);
}
