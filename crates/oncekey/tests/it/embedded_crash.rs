//! `kill -9` in the middle of load: what was acknowledged is there.

use std::collections::HashSet;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use oncekey::record::{Retention, Why};
use oncekey::store::embedded::{EmbeddedStore, Options};
use oncekey::store::{Claimed, Store};

use crate::embedded::{DAY, acquire, claim, complete, outcome};

const FOLDER: &str = "ONCEKEY_TEST_CRASH_FOLDER";
const ROUND: &str = "ONCEKEY_TEST_CRASH_ROUND";

/// How many completions a child makes before it is killed.
const COMPLETIONS: usize = 300;

/// Claims and completes for ever, and says so line by line, each after it was acknowledged.
#[test]
fn child_that_is_killed() {
    // It works only where another test runs it, in a process of its own.
    let Some(path) = std::env::var_os(FOLDER) else { return };
    let round = std::env::var(ROUND).unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let store = EmbeddedStore::open(Path::new(&path), Options::default()).unwrap();
        let store = Arc::new(store);
        let tasks: Vec<_> = (0..16)
            .map(|task| {
                let (store, round) = (Arc::clone(&store), round.clone());
                tokio::spawn(async move {
                    for number in 0.. {
                        let key = format!("{round}-{task}-{number}");
                        let lease = acquire(&store, &key).await;
                        say(&format!("claimed {key}"));
                        complete(&store, &lease, &key, Retention::keep(DAY)).await;
                        say(&format!("completed {key}"));
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
    });
}

fn say(line: &str) {
    // One write a line: what was said before the kill is whole.
    std::io::stdout().lock().write_all(format!("{line}\n").as_bytes()).unwrap();
}

#[derive(Default)]
struct Told {
    claimed: HashSet<String>,
    completed: HashSet<String>,
}

impl Told {
    fn note(&mut self, line: &str) {
        if let Some(key) = line.strip_prefix("claimed ") {
            self.claimed.insert(key.into());
        } else if let Some(key) = line.strip_prefix("completed ") {
            self.completed.insert(key.into());
        }
    }
}

/// Runs a child on the folder and kills it in the middle of its work.
fn run_and_kill(path: &Path, round: usize, told: &mut Told) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "embedded_crash::child_that_is_killed", "--nocapture"])
        .env(FOLDER, path)
        .env(ROUND, round.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let enough = told.completed.len() + COMPLETIONS;
    while told.completed.len() < enough {
        told.note(&lines.next().expect("the child works until it is killed").unwrap());
    }
    child.kill().unwrap();
    // What it said before it died counts too.
    lines.map_while(Result::ok).for_each(|line| told.note(&line));
    child.wait().unwrap();
}

#[tokio::test]
async fn u1_what_was_acknowledged_before_a_kill_is_there_afterwards() {
    let folder = tempfile::tempdir().unwrap();
    let mut told = Told::default();
    for round in 0..3 {
        run_and_kill(folder.path(), round, &mut told);
    }
    let store = EmbeddedStore::open(folder.path(), Options::default()).unwrap();
    assert!(told.completed.len() >= 3 * COMPLETIONS);
    for key in &told.completed {
        match store.claim(&claim(key)).await.unwrap() {
            Claimed::Completed { outcome: found, .. } => assert_eq!(found, outcome(key)),
            other => panic!("{key} was completed, and is {other:?}"),
        }
    }
    let (mut unknown, mut unheard) = (0, 0);
    for key in told.claimed.difference(&told.completed) {
        match store.claim(&claim(key)).await.unwrap() {
            Claimed::Unknown { why: Why::ProcessEnded, .. } => unknown += 1,
            // Its completion held, and the child died before it could say so.
            Claimed::Completed { outcome: found, .. } => {
                assert_eq!(found, outcome(key));
                unheard += 1;
            }
            other => panic!("{key} was claimed, and is {other:?}"),
        }
    }
    assert!(unknown + unheard > 0, "the kill came in the middle of work");
}
