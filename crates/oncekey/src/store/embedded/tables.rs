//! The storage engine's tables, compared with their checksums and not opened: opening deletes and
//! cuts off files, and looking must not.
//!
//! ```text
//! keyspaces/ID/current    number of the list in force, and its checksum
//! keyspaces/ID/vN         the list: each table's number and checksum
//! keyspaces/ID/tables/T   a table, written once
//! ```
//!
//! 1. Every byte of every table in force is read, so a damaged file is told by its name.
//! 2. Files that no list names are left over from a crash: they hold nothing.
//! 3. Whether a keyspace is needed at all is not known here. A folder may be one that the engine
//!    was deleting, half gone: the caller must know the names that have to be there.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::{Xxh3Default, xxh3_128};

use super::error::{Damage, Flaw, OpenError};
use super::progress::{Meter, Step, Told};
use super::synced::Table;

/// The keyspace in which the engine keeps the names of the others.
pub(super) const NAMES: u64 = 0;

/// A longer list is none: a table has 33 bytes in it and holds megabytes.
const MAX_LIST: u64 = 64 << 20;

/// Number, checksum, kind of checksum.
const CURRENT: usize = 8 + 16 + 1;

/// The end of a list: magic, version, kind of checksum, checksum, where the contents begin, how
/// long they are.
const TRAILER: usize = 4 + 1 + 1 + 16 + 8 + 8;

/// What was read.
#[derive(Debug, Default)]
pub(super) struct Tables {
    /// How many tables are in force.
    pub(super) count: usize,
    /// Their bytes.
    pub(super) bytes: u64,
    /// What is wrong, by the number of the keyspace.
    pub(super) flaws: BTreeMap<u64, Vec<Flaw>>,
}

/// A table in force.
struct Listed {
    keyspace: u64,
    path: PathBuf,
    checksum: u128,
}

/// Reads and compares all tables below `database`.
pub(super) fn verify(database: &Path, told: Told<'_>) -> Result<Tables, OpenError> {
    let mut found = Tables::default();
    let listed = listed(database, &mut found)?;
    let mut total = 0;
    for table in &listed {
        total += fs::metadata(&table.path).map_or(0, |meta| meta.len());
    }
    found.count = listed.len();
    let mut meter = Meter::new(told, Step::Files, total);
    for table in listed {
        let damage = match checksum(&table.path, &mut meter) {
            Ok((bytes, checksum)) => {
                found.bytes += bytes;
                if checksum == table.checksum {
                    continue;
                }
                Damage::FileChanged
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Damage::FileMissing,
            Err(error) => return Err(OpenError::io(&table.path, error)),
        };
        found.add(table.keyspace, table.path, damage);
    }
    meter.end();
    Ok(found)
}

/// Lists and tables that are missing, and lists that are damaged, of keyspaces that must be there:
/// the engine's own and those that `table` names. Reads no table.
pub(super) fn unlisted(database: &Path, table: Option<&Table>) -> Result<Vec<Flaw>, OpenError> {
    let mut found = Tables::default();
    for Listed { keyspace, path, .. } in listed(database, &mut found)? {
        if !path.exists() {
            found.add(keyspace, path, Damage::FileMissing);
        }
    }
    let names = database.join("keyspaces").join(NAMES.to_string()).join("current");
    if !names.exists() {
        found.flaws.entry(NAMES).or_default().clear();
        found.add(NAMES, names.clone(), Damage::FileMissing);
    }
    let needed = |id: u64| {
        id == NAMES || table.is_some_and(|table| table.keyspaces.iter().any(|it| it.id == id))
    };
    // One without a list is told as a keyspace that is missing.
    let is_told = |flaw: &Flaw| {
        flaw.path != names
            && flaw.path.ends_with("current")
            && matches!(flaw.damage, Damage::FileMissing)
    };
    let flaws = found.flaws.into_iter().filter(|(id, _)| needed(*id)).flat_map(|(_, flaws)| flaws);
    Ok(flaws.filter(|flaw| !is_told(flaw)).collect())
}

impl Tables {
    fn add(&mut self, keyspace: u64, path: PathBuf, damage: Damage) {
        self.flaws.entry(keyspace).or_default().push(Flaw { path, damage });
    }
}

/// The tables in force, of every keyspace whose list can be read.
fn listed(database: &Path, found: &mut Tables) -> Result<Vec<Listed>, OpenError> {
    let folder = database.join("keyspaces");
    let failed = |path: &Path, error| OpenError::io(path, error);
    let mut listed = Vec::new();
    let entries = match fs::read_dir(&folder) {
        Ok(entries) => entries,
        // A store whose first opening did not come that far.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(listed),
        Err(error) => return Err(failed(&folder, error)),
    };
    for entry in entries {
        let path = entry.map_err(|error| failed(&folder, error))?.path();
        if !path.is_dir() {
            continue;
        }
        let name = path.file_name().and_then(|name| name.to_str());
        let Some(keyspace) = name.and_then(|name| name.parse().ok()) else {
            // The engine would give up on it.
            found.add(0, path, Damage::FileUnknown);
            continue;
        };
        match list(&path) {
            Ok(Some(tables)) => listed.extend(tables.into_iter().map(|(number, checksum)| {
                let path = path.join("tables").join(number.to_string());
                Listed { keyspace, path, checksum }
            })),
            Ok(None) => {}
            Err(Unlisted::Io(path, error)) => return Err(failed(&path, error)),
            Err(Unlisted::Damaged(path, damage)) => found.add(keyspace, path, damage),
        }
    }
    Ok(listed)
}

/// Why a keyspace has no list.
enum Unlisted {
    Damaged(PathBuf, Damage),
    Io(PathBuf, io::Error),
}

/// Number and checksum of each table of the keyspace at `path`; `None` where it was never
/// finished, or is gone but for its folder.
fn list(path: &Path) -> Result<Option<Vec<(u64, u128)>>, Unlisted> {
    let name = path.join("current");
    let current = match read(&name) {
        Ok(current) => current,
        Err(Unlisted::Damaged(_, Damage::FileMissing)) if !has_tables(path) => return Ok(None),
        Err(unlisted) => return Err(unlisted),
    };
    let damaged = |name: PathBuf| Unlisted::Damaged(name, Damage::FileChanged);
    let mut bytes = Bytes(&current);
    let (number, checksum, kind) = (bytes.u64(), bytes.u128(), bytes.u8());
    let (Some(number), Some(checksum), Some(0), CURRENT) = (number, checksum, kind, current.len())
    else {
        return Err(damaged(name));
    };
    let name = path.join(format!("v{number}"));
    let list = read(&name)?;
    if xxh3_128(&list) != checksum {
        return Err(damaged(name));
    }
    parse(&list).map(Some).ok_or_else(|| damaged(name))
}

fn has_tables(path: &Path) -> bool {
    fs::read_dir(path.join("tables")).is_ok_and(|mut entries| entries.next().is_some())
}

fn read(name: &Path) -> Result<Vec<u8>, Unlisted> {
    let mut bytes = Vec::new();
    let read = File::open(name).and_then(|file| file.take(MAX_LIST + 1).read_to_end(&mut bytes));
    match read {
        Ok(_) if bytes.len() as u64 <= MAX_LIST => Ok(bytes),
        Ok(_) => Err(Unlisted::Damaged(name.into(), Damage::FileChanged)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(Unlisted::Damaged(name.into(), Damage::FileMissing))
        }
        Err(error) => Err(Unlisted::Io(name.into(), error)),
    }
}

/// The tables that a list names: levels of runs of tables.
fn parse(list: &[u8]) -> Option<Vec<(u64, u128)>> {
    let mut bytes = section(list, b"tables")?;
    let mut tables = Vec::new();
    for _ in 0..bytes.u8()? {
        for _ in 0..bytes.u8()? {
            for _ in 0..bytes.u32()? {
                let (number, kind, checksum) = (bytes.u64()?, bytes.u8()?, bytes.u128()?);
                let _oldest = bytes.u64()?;
                if kind != 0 {
                    return None;
                }
                tables.push((number, checksum));
            }
        }
    }
    Some(tables)
}

/// The part of a list with this name.
fn section<'a>(list: &'a [u8], name: &[u8]) -> Option<Bytes<'a>> {
    let end = list.len().checked_sub(TRAILER)?;
    let mut trailer = Bytes(&list[end..]);
    if trailer.take(6)? != b"SFA!\x01\x00" {
        return None;
    }
    let (_checksum, at) = (trailer.u128()?, trailer.u64()?);
    let mut contents = Bytes(list.get(usize::try_from(at).ok()?..end)?);
    if contents.take(4)? != b"TOC!" {
        return None;
    }
    for _ in 0..contents.u32()? {
        let (at, length, named) = (contents.u64()?, contents.u64()?, contents.u16()?);
        if contents.take(usize::from(named))? == name {
            let at = usize::try_from(at).ok()?;
            let end = at.checked_add(usize::try_from(length).ok()?)?;
            return list.get(at..end).map(Bytes);
        }
    }
    None
}

/// Length and checksum of a file.
fn checksum(path: &Path, meter: &mut Meter<'_>) -> io::Result<(u64, u128)> {
    let mut file = File::open(path)?;
    let (mut hasher, mut length) = (Xxh3Default::new(), 0);
    let mut piece = vec![0; 1 << 18];
    loop {
        let read = match file.read(&mut piece) {
            Ok(0) => return Ok((length, hasher.digest128())),
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        hasher.update(&piece[..read]);
        length += read as u64;
        meter.add(read as u64);
    }
}

/// What is left to be read.
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_le_bytes)
    }

    fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn u128(&mut self) -> Option<u128> {
        self.array().map(u128::from_le_bytes)
    }
}
