//! `oncekey store check`: whether everything in a data folder is intact.

use std::io::{self, Write};
use std::path::Path;

use oncekey::store::embedded::{self, Journal, OpenError, Report};
use serde_json::{Value, json};

use super::{Exit, Place, Streams, size};
use crate::cli::progress::Bar;

/// Looks, and says what was found.
pub(super) fn run(place: &Place, streams: &mut Streams<'_>) -> io::Result<Exit> {
    let folder = match place.folder() {
        Ok(folder) => folder,
        Err(error) => return streams.refuse(place, Exit::Trouble, &error),
    };
    let mut bar = Bar::on_terminal();
    let report = embedded::check(&folder, &mut |progress| bar.show(progress));
    drop(bar);
    let report = match report {
        Ok(report) => report,
        Err(error @ OpenError::Damaged { .. }) => return streams.refuse(place, Exit::No, &error),
        Err(error) => return streams.refuse(place, Exit::Trouble, &error),
    };
    if place.json {
        streams.answer(&json(&folder, &report))?;
    } else {
        print(streams.out, &folder, &report)?;
    }
    Ok(if report.is_intact() { Exit::Done } else { Exit::No })
}

fn json(folder: &Path, report: &Report) -> Value {
    let keyspaces: Vec<_> = report
        .keyspaces
        .iter()
        .map(|space| {
            json!({
                "name": space.name,
                "records": space.records,
                "unreadable": space.unreadable,
                "last_batch": space.last_batch,
            })
        })
        .collect();
    let file = |journal: &Journal| {
        json!({
            "file": journal.path,
            "bytes": journal.intact,
            "batches": journal.batches,
            "first": journal.first,
            "last": journal.last,
        })
    };
    let log: Vec<_> = report.log.iter().map(file).collect();
    let journals: Vec<_> = report.journals.iter().map(file).collect();
    let damage: Vec<_> = report
        .flaws
        .iter()
        .map(|flaw| json!({ "path": flaw.path, "what": flaw.damage.to_string() }))
        .collect();
    let ids: Vec<_> = report.unreadable_ids.iter().map(ToString::to_string).collect();
    json!({
        "ok": report.is_intact(),
        "folder": folder,
        "format": report.format,
        "log": log,
        "journals": journals,
        "tables": { "count": report.tables, "bytes": report.table_bytes },
        "records_read": report.records_read,
        "keyspaces": keyspaces,
        "standings": standings(report).into_iter().collect::<serde_json::Map<_, _>>(),
        "unreadable": { "count": report.unreadable, "ids": ids },
        "damage": damage,
    })
}

/// How many records stand where, by the words of the rules.
fn standings(report: &Report) -> [(String, Value); 6] {
    let standings = &report.standings;
    [
        ("in-progress", standings.in_progress),
        ("completed", standings.completed),
        ("retry", standings.retry),
        ("unknown", standings.unknown),
        ("expired", standings.tombstone),
        ("gone", standings.gone),
    ]
    .map(|(name, count)| (name.to_owned(), count.into()))
}

fn print(out: &mut dyn Write, folder: &Path, report: &Report) -> io::Result<()> {
    writeln!(out, "folder    {}", folder.display())?;
    writeln!(out, "format    {}", report.format)?;
    for (name, files) in [("log", &report.log), ("journals", &report.journals)] {
        let bytes = files.iter().map(|journal| journal.intact).sum();
        let batches: u64 = files.iter().map(|journal| journal.batches).sum();
        writeln!(out, "{name:<9} {}, {}, {batches} batches", files.len(), size(bytes))?;
    }
    writeln!(out, "tables    {}, {}", report.tables, size(report.table_bytes))?;
    if report.records_read {
        writeln!(
            out,
            "\n{:<30} {:>12} {:>12} {:>12}",
            "keyspace", "records", "unreadable", "batch"
        )?;
        for space in &report.keyspaces {
            writeln!(
                out,
                "{:<30} {:>12} {:>12} {:>12}",
                space.name, space.records, space.unreadable, space.last_batch
            )?;
        }
        writeln!(out)?;
        for (name, count) in standings(report) {
            let note = match name.as_str() {
                "in-progress" => "  unknown once the gateway starts",
                "expired" => "  over, and still refused",
                "gone" => "  over, and waiting for the sweeper",
                _ => "",
            };
            writeln!(out, "{name:<30} {count:>12}{note}")?;
        }
    } else {
        writeln!(out, "\nThe records were not read: what is damaged does not let them be found.")?;
    }
    if report.is_intact() {
        writeln!(out, "\nEverything is intact.")?;
        return out.flush();
    }
    writeln!(out, "\nDAMAGED")?;
    for flaw in &report.flaws {
        writeln!(out, "- {flaw}")?;
    }
    for id in &report.unreadable_ids {
        writeln!(out, "- the record {id} cannot be read: its key is refused, and no other")?;
    }
    let listed = report.unreadable_ids.len() as u64;
    if report.unreadable > listed {
        writeln!(out, "- and {} more records", report.unreadable - listed)?;
    }
    if report.flaws.iter().any(|flaw| flaw.damage.can_be_accepted()) {
        writeln!(
            out,
            "\nRestore the folder from a backup (oncekey store restore), or go on without what is \
             missing\n(oncekey store accept-loss)."
        )?;
    } else if !report.flaws.is_empty() {
        writeln!(out, "\nRestore the folder from a backup (oncekey store restore).")?;
    }
    out.flush()
}
