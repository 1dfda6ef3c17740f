//! A child process whose lines can be waited for; it ends with the value.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

use rustix::process::{Pid, Signal, kill_process};

use super::{Deadline, PATIENCE, wait_for};

/// What one of a process's outputs has said so far.
#[derive(Clone, Default)]
pub(super) struct Lines(Arc<(Mutex<Said>, Condvar)>);

#[derive(Default)]
struct Said {
    lines: Vec<String>,
    ended: bool,
}

impl Lines {
    fn follow(output: impl Read + Send + 'static) -> Self {
        let lines = Self::default();
        let own = lines.clone();
        thread::spawn(move || {
            let mut output = BufReader::new(output);
            let mut line = Vec::new();
            while output.read_until(b'\n', &mut line).is_ok_and(|count| count > 0) {
                let text = String::from_utf8_lossy(&line).trim_end().to_owned();
                own.0.0.lock().unwrap().lines.push(text);
                own.0.1.notify_all();
                line.clear();
            }
            own.0.0.lock().unwrap().ended = true;
            own.0.1.notify_all();
        });
        lines
    }

    pub(super) fn so_far(&self) -> Vec<String> {
        self.0.0.lock().unwrap().lines.clone()
    }

    /// The first line, said already or to come, in which `look` finds something; none if the
    /// output ends or patience does.
    pub(super) fn find<T>(&self, mut look: impl FnMut(&str) -> Option<T>) -> Option<T> {
        let deadline = Deadline::after(PATIENCE);
        let mut looked = 0;
        let mut said = self.0.0.lock().unwrap();
        loop {
            for line in &said.lines[looked..] {
                if let Some(found) = look(line) {
                    return Some(found);
                }
            }
            looked = said.lines.len();
            if said.ended {
                return None;
            }
            said = self.0.1.wait_timeout(said, deadline.left()?).unwrap().0;
        }
    }

    pub(super) fn ended(&self) -> bool {
        self.0.0.lock().unwrap().ended
    }

    /// Every line, once the output has ended.
    pub(super) fn all(&self) -> Vec<String> {
        let _: Option<()> = self.find(|_| None);
        self.so_far()
    }
}

/// A running process.
pub(super) struct Process {
    child: Child,
    pub(super) out: Lines,
    pub(super) err: Lines,
}

impl Process {
    #[track_caller]
    pub(super) fn start(command: &mut Command) -> Self {
        // The other end of its input closes with this process, however that ends.
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child =
            command.spawn().unwrap_or_else(|why| panic!("{command:?} does not start: {why}"));
        let out = Lines::follow(child.stdout.take().expect("it is piped"));
        let err = Lines::follow(child.stderr.take().expect("it is piped"));
        Self { child, out, err }
    }

    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(super) fn signal(&self, signal: Signal) {
        // The child is not reaped before `self` is done with, so the id is still its own.
        let _ = kill_process(Pid::from_child(&self.child), signal);
    }

    /// Ends it as a crash does, and returns when it is gone.
    pub(super) fn kill(&mut self) -> ExitStatus {
        let _ = self.child.kill();
        self.child.wait().expect("it was started")
    }

    pub(super) fn exited(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("it was started")
    }

    #[track_caller]
    pub(super) fn wait_for_exit(&mut self) -> ExitStatus {
        let id = self.id();
        wait_for(&format!("process {id} ends"), || self.exited())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
