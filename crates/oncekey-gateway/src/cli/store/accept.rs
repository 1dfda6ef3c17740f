//! `oncekey store accept-loss`: a person says that it is right to go on without what is missing.
//!
//! 1. What is missing is shown first. Then it is asked, on a terminal; a script says `--yes`.
//! 2. Where nothing is missing, nothing is changed.

use std::fs;
use std::io::{self, BufRead, IsTerminal, Write};
use std::path::Path;

use oncekey::store::embedded::{self, Damage, OpenError};
use serde_json::{Value, json};

use super::{AcceptLossArgs, Exit, Place, Streams};
use crate::cli::progress::Bar;

/// Shows what is missing, asks, and accepts it.
pub(super) fn run(args: &AcceptLossArgs, streams: &mut Streams<'_>) -> io::Result<Exit> {
    let place = &args.place;
    let folder = match place.folder() {
        Ok(folder) => folder,
        Err(error) => return streams.refuse(place, Exit::Trouble, &error),
    };
    if args.reason.trim().is_empty() {
        return streams.refuse(place, Exit::Usage, &"a reason is needed: --reason TEXT");
    }
    let missing = match missing(&folder) {
        Ok(missing) => missing,
        Err(error) => return streams.refuse(place, exit(&error), &error),
    };
    if missing.is_empty() {
        return nothing(place, &folder, streams);
    }
    if !place.json {
        writeln!(streams.out, "Missing from {}:", folder.display())?;
        for damage in &missing {
            writeln!(streams.out, "- {damage}")?;
        }
        writeln!(
            streams.out,
            "\nKeys whose records are gone are new: repeats of them run a second time.\nIf there \
             is a backup, restoring it may lose less or more than this."
        )?;
        streams.out.flush()?;
    }
    if !args.yes {
        if !io::stdin().is_terminal() || place.json {
            let why = "nobody can be asked here: say --yes to go on without what is missing";
            return streams.refuse(place, Exit::Usage, &why);
        }
        if !agreed(streams.err, &mut io::stdin().lock())? {
            writeln!(streams.err, "Nothing was changed.")?;
            return Ok(Exit::No);
        }
    }
    let who = args.who.clone().unwrap_or_else(user);
    let accepted = match embedded::accept_loss(&folder, &who, &args.reason) {
        Ok(accepted) => accepted,
        Err(error) => return streams.refuse(place, exit(&error), &error),
    };
    let entry = last_entry(&folder)?;
    if place.json {
        let damages: Vec<_> = accepted.damages.iter().map(ToString::to_string).collect();
        streams.answer(&json!({
            "ok": true,
            "folder": folder,
            "accepted": damages,
            "copies": accepted.copies,
            "audit": entry,
        }))?;
    } else {
        writeln!(streams.out, "Accepted; the folder opens again. Written down in `audit`:")?;
        writeln!(streams.out, "{entry}")?;
    }
    Ok(Exit::Done)
}

/// What is missing and can be accepted; damage that cannot is an error.
fn missing(folder: &Path) -> Result<Vec<Damage>, OpenError> {
    let scan = embedded::scan(folder)?;
    if !scan.damages.is_empty() {
        return of(folder, scan.damages);
    }
    // What is only seen by those who read everything.
    let mut bar = Bar::on_terminal();
    let report = embedded::check(folder, &mut |progress| bar.show(progress))?;
    of(folder, report.flaws.into_iter().map(|flaw| flaw.damage).collect())
}

fn of(folder: &Path, mut damages: Vec<Damage>) -> Result<Vec<Damage>, OpenError> {
    match damages.iter().position(|damage| !damage.can_be_accepted()) {
        None => Ok(damages),
        Some(at) => {
            let damage = damages.swap_remove(at);
            Err(OpenError::Damaged { path: folder.to_path_buf(), damage })
        }
    }
}

fn nothing(place: &Place, folder: &Path, streams: &mut Streams<'_>) -> io::Result<Exit> {
    if place.json {
        streams.answer(&json!({
            "ok": true,
            "folder": folder,
            "accepted": [],
            "copies": null,
            "audit": null,
        }))?;
    } else {
        writeln!(streams.out, "Nothing is missing from {}: nothing to accept.", folder.display())?;
    }
    Ok(Exit::Done)
}

/// Asks; anything but the whole word is a no.
fn agreed(err: &mut dyn Write, input: &mut dyn BufRead) -> io::Result<bool> {
    write!(err, "Go on without it? Type \"yes\": ")?;
    err.flush()?;
    let mut line = String::new();
    io::Read::take(input, 64).read_line(&mut line)?;
    Ok(line.trim() == "yes")
}

/// Who runs this, as far as the environment says.
fn user() -> String {
    let named = |name| std::env::var(name).ok().filter(|user| !user.is_empty());
    named("SUDO_USER").or_else(|| named("USER")).unwrap_or_else(|| "not named".into())
}

/// The newest entry of the folder's audit file.
fn last_entry(folder: &Path) -> io::Result<Value> {
    let text = fs::read_to_string(folder.join("audit"))?;
    let last = text.lines().last().unwrap_or_default();
    Ok(serde_json::from_str(last).unwrap_or_else(|_| last.into()))
}

fn exit(error: &OpenError) -> Exit {
    match error {
        OpenError::Damaged { .. } => Exit::No,
        _ => Exit::Trouble,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a4_only_the_whole_word_is_a_yes() {
        for (said, meant) in [("yes\n", true), ("yes", true), ("y\n", false), ("", false)] {
            let mut asked = Vec::new();
            let agreed = agreed(&mut asked, &mut said.as_bytes()).unwrap();
            assert_eq!(agreed, meant, "{said:?}");
            assert!(String::from_utf8_lossy(&asked).contains("Go on without it?"));
        }
    }
}
