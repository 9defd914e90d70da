//! What was ended before its time: a list in memory, and a file to which every process of the user adds lines.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use turnbuckle::Timestamp;

use super::SealId;

/// The largest list that is read back. What one token can add to it is limited, so it holds what thousands of them do in a week.
const MAX_LIST: u64 = 8 << 20;
/// Below this length the list is not written anew.
pub(super) const REWRITE_ABOVE: u64 = 1 << 20;
/// How many ended sessions of one token are kept apart. Beyond that all of the token's sessions are over that began before the newest
/// of them.
const MOST_APART: usize = 64;

/// The token that a session began with, as the list has it. Not its digest: a weak token could be found by it.
pub(crate) type Owner = [u8; 8];

/// Something that is signed, and would end by itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seal {
    pub(crate) id: SealId,
    /// When it ends by itself. Sessions last equally long, so this orders them by their beginnings.
    pub(crate) until: Timestamp,
    /// Of sessions.
    pub(crate) owner: Option<Owner>,
}

/// What was ended before its time.
#[derive(Default)]
pub(super) struct Void {
    links: HashMap<SealId, Timestamp>,
    sessions: HashMap<Owner, EndedSessions>,
    /// Which file was read, and how far: one that was replaced is read from the beginning.
    read: (u64, u64),
    /// How long the list was when it was last written anew.
    rewritten: u64,
}

/// Of one token.
struct EndedSessions {
    /// Sessions that would have lasted until then, or less long, are over.
    all_until: Timestamp,
    /// Others that are over.
    apart: HashMap<SealId, Timestamp>,
}

impl Default for EndedSessions {
    fn default() -> Self {
        Self { all_until: Timestamp::from_millis(0), apart: HashMap::new() }
    }
}

impl Void {
    pub(super) fn contains(&self, seal: &Seal) -> bool {
        match seal.owner {
            None => self.links.contains_key(&seal.id),
            Some(owner) => self
                .sessions
                .get(&owner)
                .is_some_and(|ended| seal.until <= ended.all_until || ended.apart.contains_key(&seal.id)),
        }
    }

    pub(super) fn add(&mut self, seal: &Seal) {
        let Some(owner) = seal.owner else {
            self.links.insert(seal.id, seal.until);
            return;
        };
        let ended = self.sessions.entry(owner).or_default();
        if seal.until <= ended.all_until {
            return;
        }
        ended.apart.insert(seal.id, seal.until);
        if ended.apart.len() > MOST_APART {
            ended.all_until = ended.apart.values().copied().max().unwrap_or(ended.all_until);
            ended.apart.clear();
        }
    }

    /// Leaves out what has ended by itself.
    pub(super) fn forget(&mut self, now: Timestamp) {
        self.links.retain(|_, until| *until > now);
        self.sessions.retain(|_, ended| {
            ended.apart.retain(|_, until| *until > now);
            ended.all_until > now || !ended.apart.is_empty()
        });
    }

    /// Reads what was added to the file since the last time.
    pub(super) fn read(&mut self, path: &Path) -> io::Result<()> {
        let mut file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        };
        let about = file.metadata()?;
        if (about.ino(), about.len()) == self.read {
            return Ok(());
        }
        if about.len() > MAX_LIST {
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, "it is too long"));
        }
        let begin = if self.read.0 == about.ino() && self.read.1 <= about.len() { self.read.1 } else { 0 };
        file.seek(SeekFrom::Start(begin))?;
        let mut text = String::new();
        (&mut file).take(MAX_LIST).read_to_string(&mut text)?;
        // A line that is being written has no end yet.
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        text[..whole].lines().filter_map(parsed).for_each(|line| self.take(&line));
        self.read = (about.ino(), begin + whole as u64);
        Ok(())
    }

    pub(super) fn take(&mut self, line: &Line) {
        match line {
            Line::One(seal) => self.add(seal),
            Line::All { owner, until } => {
                let ended = self.sessions.entry(*owner).or_default();
                ended.all_until = ended.all_until.max(*until);
                ended.apart.retain(|_, apart| *apart > *until);
            }
        }
    }

    /// Whether a list of this length has become long since it was last written anew.
    pub(super) fn is_long(&self, length: u64) -> bool {
        length > REWRITE_ABOVE.max(self.rewritten.saturating_mul(2))
    }

    /// The whole list.
    pub(super) fn lines(&self) -> String {
        let one = |id, until, owner| line_of(&Line::One(Seal { id, until, owner }));
        let links = self.links.iter().map(|(id, until)| one(*id, *until, None));
        let sessions = self.sessions.iter().flat_map(|(owner, ended)| {
            let all = line_of(&Line::All { owner: *owner, until: ended.all_until });
            let apart = ended.apart.iter().map(|(id, until)| one(*id, *until, Some(*owner)));
            std::iter::once(all).chain(apart)
        });
        links.chain(sessions).collect()
    }

    pub(super) fn was_rewritten(&mut self, length: u64) {
        self.rewritten = length;
    }
}

/// A line of the file: an id or `-`, an end in milliseconds, and of sessions the owner.
pub(super) enum Line {
    One(Seal),
    /// All sessions of a token that would have lasted until then, or less long.
    All {
        owner: Owner,
        until: Timestamp,
    },
}

fn line_of(line: &Line) -> String {
    let text = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
    match line {
        Line::One(Seal { id, until, owner: None }) => format!("{} {}\n", text(id), until.as_millis()),
        Line::One(Seal { id, until, owner: Some(owner) }) => {
            format!("{} {} {}\n", text(id), until.as_millis(), text(owner))
        }
        Line::All { owner, until } => format!("- {} {}\n", until.as_millis(), text(owner)),
    }
}

fn parsed(line: &str) -> Option<Line> {
    let mut words = line.split(' ');
    let (id, until, owner) = (words.next()?, words.next()?, words.next());
    let until = Timestamp::from_millis(until.parse().ok()?);
    let owner = match owner {
        Some(owner) => Some(Owner::try_from(URL_SAFE_NO_PAD.decode(owner).ok()?).ok()?),
        None => None,
    };
    match (id, owner) {
        ("-", Some(owner)) => Some(Line::All { owner, until }),
        ("-", None) => None,
        (id, owner) => {
            let id = SealId::try_from(URL_SAFE_NO_PAD.decode(id).ok()?).ok()?;
            Some(Line::One(Seal { id, until, owner }))
        }
    }
}

/// Adds what was ended to the file. Returns how long that is then.
pub(super) fn append(path: &Path, lines: &[Line]) -> io::Result<u64> {
    let mut file = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
    file.write_all(lines.iter().map(line_of).collect::<String>().as_bytes())?;
    file.sync_data()?;
    Ok(file.metadata()?.len())
}

/// Puts a list in the place of the file.
pub(super) fn replace(path: &Path, lines: &str) -> io::Result<()> {
    let beside = path.with_extension("void.new");
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&beside)?;
    file.write_all(lines.as_bytes())?;
    file.sync_all()?;
    std::fs::rename(&beside, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(n: u64, owner: u8) -> Seal {
        Seal { id: u128::from(n).to_be_bytes(), until: Timestamp::from_millis(1_000 + n), owner: Some([owner; 8]) }
    }

    #[test]
    fn who_ends_many_sessions_ends_the_older_ones_of_the_same_token_and_no_others() {
        let mut void = Void::default();
        let (first, last) = (session(0, 1), session(MOST_APART as u64 + 1, 1));
        (1..=last.until.as_millis() - 1_000).for_each(|n| void.add(&session(n, 1)));
        assert!(void.contains(&last) && void.contains(&first), "one that began before all of them");
        assert!(!void.contains(&session(MOST_APART as u64 + 2, 1)), "one that began since");
        assert!(!void.contains(&Seal { owner: Some([2; 8]), ..first }));
        let mut again = Void::default();
        void.lines().lines().filter_map(parsed).for_each(|line| again.take(&line));
        assert!(again.contains(&last) && again.contains(&first) && !again.contains(&session(1_000, 1)));
    }

    #[test]
    fn one_token_adds_no_more_than_so_much() {
        let mut void = Void::default();
        (0..100_000).for_each(|n| void.add(&session(n, 1)));
        assert!(void.lines().len() < 64 * MOST_APART, "{}", void.lines().len());
        void.forget(Timestamp::from_millis(1_000_000));
        assert_eq!(void.lines(), "");
    }
}
