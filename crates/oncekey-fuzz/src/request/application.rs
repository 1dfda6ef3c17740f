//! The application behind the gateway: reads strictly, counts the runs of each record, answers 201.

use std::collections::HashMap;
use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use super::wire::{Flaw, Message, Reader};

/// So many broken promises say enough.
const MOST: usize = 8;

/// A running application; it ends with the process.
pub(super) struct Application {
    address: SocketAddr,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    runs: HashMap<String, usize>,
    broken: Vec<String>,
}

/// What the application answers: enough of the request to know it again.
pub(super) fn echo(request: &Message) -> String {
    let (length, sum) = (request.body.len(), crc32c::crc32c(&request.body));
    format!("{} {length} {sum:08x}", request.method())
}

impl Application {
    pub(super) fn start() -> Arc<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        let application = Arc::new(Self { address, seen: Mutex::default() });
        let own = Arc::clone(&application);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let own = Arc::clone(&own);
                thread::spawn(move || own.serve(stream));
            }
        });
        application
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Which promises were broken until now.
    pub(super) fn broken(&self) -> Vec<String> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).broken.clone()
    }

    fn serve(&self, mut stream: TcpStream) {
        let Ok(input) = stream.try_clone() else { return };
        let mut reader = Reader::new(input);
        loop {
            match reader.request() {
                Ok(request) => {
                    self.judge(&request);
                    let body = echo(&request);
                    let length = body.len();
                    let answer =
                        format!("HTTP/1.1 201 C\r\nContent-Length: {length}\r\n\r\n{body}");
                    if stream.write_all(answer.as_bytes()).is_err() {
                        return;
                    }
                }
                // The gateway closed it, or left in a body whose client left, or the client says
                // that it is going to send more than anybody waits for.
                Err(Flaw::Ended | Flaw::Late | Flaw::TooLong) => return,
                Err(Flaw::Malformed(why)) => {
                    return self.note(format!("malformed at the application: {why}"));
                }
            }
        }
    }

    fn judge(&self, request: &Message) {
        let keyed = matches!(request.method(), "POST" | "PATCH");
        match request.field("idempotency-record") {
            Some(record) => {
                if !keyed || request.count("idempotency-record") > 1 {
                    self.note(format!("a record that is none: {request:?}"));
                }
                let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
                let runs = seen.runs.entry(record.to_owned()).or_default();
                *runs += 1;
                if *runs > 1 {
                    drop(seen);
                    self.note(format!("run twice: {request:?}"));
                }
            }
            None if keyed && request.field("idempotency-key").is_some() => {
                self.note(format!("a key without protection: {request:?}"));
            }
            None => {}
        }
    }

    fn note(&self, what: String) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.broken.len() < MOST {
            seen.broken.push(what);
        }
    }
}
