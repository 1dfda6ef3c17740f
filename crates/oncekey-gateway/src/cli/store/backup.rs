//! `oncekey store backup` and `restore`: a data folder and its copy that vouches for itself.

use std::io;
use std::path::Path;

use oncekey::store::embedded::{self, BackupError, OpenError};
use serde_json::json;

use super::{BackupArgs, Exit, RestoreArgs, Streams, moment, size};
use crate::cli::progress::Bar;

/// What a restored store does not know, for whoever would rather not.
const WARNING: &str = "keys that were used after the backup are new again: a client that repeats \
                       such a request runs its operation a second time";

/// Takes a backup.
pub(super) fn back_up(args: &BackupArgs, streams: &mut Streams<'_>) -> io::Result<Exit> {
    let place = &args.place;
    let folder = match place.folder() {
        Ok(folder) => folder,
        Err(error) => return streams.refuse(place, Exit::Trouble, &error),
    };
    let mut bar = Bar::on_terminal();
    let taken = embedded::backup(&folder, &args.to, &mut |progress| bar.show(progress));
    drop(bar);
    let taken = match taken {
        Ok(taken) => taken,
        Err(error @ BackupError::Store(OpenError::InUse { .. })) => {
            let why = format!(
                "{error}.\nA backup is taken of a store that nobody has open: stop the gateway \
                 first, or take a snapshot of the volume and back that up"
            );
            return streams.refuse(place, Exit::Trouble, &why);
        }
        Err(error) => return streams.refuse(place, exit(&error), &error),
    };
    if place.json {
        streams.answer(&json!({
            "ok": true,
            "folder": folder,
            "to": args.to,
            "taken": moment(taken.taken),
            "files": taken.files,
            "bytes": taken.bytes,
        }))?;
        return Ok(Exit::Done);
    }
    writeln!(
        streams.out,
        "{} is backed up to {}: {} files, {}, taken {}",
        folder.display(),
        args.to.display(),
        taken.files,
        size(taken.bytes),
        moment(taken.taken)
    )?;
    Ok(Exit::Done)
}

/// Makes a data folder from a backup.
pub(super) fn restore(args: &RestoreArgs, streams: &mut Streams<'_>) -> io::Result<Exit> {
    let place = &args.place;
    let folder = match place.folder() {
        Ok(folder) => folder,
        Err(error) => return streams.refuse(place, Exit::Trouble, &error),
    };
    let mut bar = Bar::on_terminal();
    let restored = embedded::restore(&args.from, &folder, &mut |progress| bar.show(progress));
    drop(bar);
    let restored = match restored {
        Ok(restored) => restored,
        Err(error) => return streams.refuse(place, exit(&error), &error),
    };
    if place.json {
        streams.answer(&json!({
            "ok": true,
            "folder": folder,
            "from": args.from,
            "taken": moment(restored.taken),
            "by": restored.by,
            "files": restored.files,
            "bytes": restored.bytes,
            "warning": WARNING,
        }))?;
        return Ok(Exit::Done);
    }
    writeln!(
        streams.out,
        "{} is restored from the backup of {}: {} files, {}",
        Path::display(&folder),
        moment(restored.taken),
        restored.files,
        size(restored.bytes)
    )?;
    writeln!(streams.err, "\nWARNING: {}.", WARNING.to_uppercase())?;
    writeln!(
        streams.err,
        "Where that matters, keep such clients away until what happened since {} is settled.",
        moment(restored.taken)
    )?;
    Ok(Exit::Done)
}

/// What is damaged is a no; everything else is trouble.
fn exit(error: &BackupError) -> Exit {
    match error {
        BackupError::Store(OpenError::Damaged { .. })
        | BackupError::NoBackup { .. }
        | BackupError::Manifest { .. }
        | BackupError::Damaged { .. } => Exit::No,
        _ => Exit::Trouble,
    }
}
