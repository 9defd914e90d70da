//! The secret that sessions and links are signed with, and which of them are void before their time.

use std::collections::HashMap;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use turnbuckle::Timestamp;

/// The length of a secret, of a signature and of a digest of a token.
pub(crate) const LENGTH: usize = 32;
/// The largest list of what is void that is read back: far more than people log out within a week.
const MAX_LIST: u64 = 8 << 20;
/// Beyond this length the list is written anew, without what has ended by itself.
const REWRITE_ABOVE: u64 = 1 << 20;

/// By which a session or a link is told from others.
pub(crate) type SealId = [u8; 16];

/// The secret of a server: it signs the sessions of people who logged in, and the links that answer a call. Clones share it.
///
/// With [`random`](Self::random) sessions and links end with the process. With [`in_folder`](Self::in_folder) they outlive it, and every
/// process of the same user can make links that a server takes.
#[derive(Clone)]
pub struct Keys {
    inner: Arc<Inner>,
}

struct Inner {
    /// Made from the secret. Each signature begins with a clone of it.
    mac: Hmac<Sha256>,
    void: Mutex<Void>,
    /// Where `void` is kept, if anywhere: a line for each entry, added at the end, by any process.
    list: Option<PathBuf>,
}

/// What was ended before its time.
#[derive(Default)]
struct Void {
    /// Until when it must be remembered.
    until: HashMap<SealId, Timestamp>,
    /// Which file was read, and how long it was: a list that was replaced or has grown is read again.
    read: (u64, u64),
}

/// Why there is no secret, or why something could not be made void.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeysError {
    /// The system has no random numbers.
    #[error("random numbers are not to be had")]
    Random(#[source] io::Error),
    /// The secret cannot be used for signatures.
    #[error("the secret cannot be used")]
    Unusable(#[source] turnbuckle::BoxError),
    /// The file could not be read or written.
    #[error("{what} {}", path.display())]
    File {
        /// What was being done.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// Why it failed.
        #[source]
        cause: io::Error,
    },
    /// Others than its owner may read or write the file.
    #[error("{} can be read or written by others: chmod 600", path.display())]
    NotPrivate {
        /// The file.
        path: PathBuf,
    },
    /// The file is there and is not a key.
    #[error("{} is not a key of {LENGTH} bytes", path.display())]
    NotAKey {
        /// The file.
        path: PathBuf,
    },
}

impl Keys {
    /// A secret for this process alone.
    ///
    /// # Errors
    /// If the system has no random numbers.
    pub fn random() -> Result<Self, KeysError> {
        Self::of_secret(random_bytes()?, None)
    }

    /// The secret in `serve.key` of this folder, which is made if it is not there, for its owner alone.
    ///
    /// # Errors
    /// If the file cannot be made or read, or is not a key.
    pub fn in_folder(folder: &Path) -> Result<Self, KeysError> {
        let path = folder.join("serve.key");
        let secret = match read_key(&path)? {
            Some(secret) => secret,
            None => make_key(folder, &path)?,
        };
        Self::of_secret(secret, Some(folder.join("serve.void")))
    }

    fn of_secret(secret: [u8; LENGTH], list: Option<PathBuf>) -> Result<Self, KeysError> {
        let mac = Hmac::new_from_slice(&secret).map_err(|error| KeysError::Unusable(error.into()))?;
        Ok(Self { inner: Arc::new(Inner { mac, void: Mutex::default(), list }) })
    }

    /// The signature of these parts. `purpose` keeps signatures of one kind from being taken for another's.
    pub(crate) fn sign(&self, purpose: &str, parts: &[&[u8]]) -> [u8; LENGTH] {
        let mut mac = self.inner.mac.clone();
        for part in [purpose.as_bytes()].iter().chain(parts) {
            // With its length, so that no two lists of parts are the same bytes.
            mac.update(&(part.len() as u64).to_be_bytes());
            mac.update(part);
        }
        mac.finalize().into_bytes().into()
    }

    /// The payload with its signature, as text for an address or a cookie.
    pub(crate) fn seal(&self, purpose: &str, payload: &[u8]) -> String {
        let signature = self.sign(purpose, &[payload]);
        URL_SAFE_NO_PAD.encode([payload, &signature].concat())
    }

    /// The payload of a text that [`seal`](Self::seal) made for this purpose.
    pub(crate) fn open(&self, purpose: &str, text: &str) -> Option<Vec<u8>> {
        let mut payload = URL_SAFE_NO_PAD.decode(text).ok()?;
        let signature = payload.split_off(payload.len().checked_sub(LENGTH)?);
        is_same(&signature, &self.sign(purpose, &[&payload])).then_some(payload)
    }

    fn lock(&self) -> MutexGuard<'_, Void> {
        self.inner.void.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on this is void, also for other processes and after a restart where there is a folder. `until` is when it would have
    /// ended by itself.
    pub(crate) fn make_void(&self, id: SealId, until: Timestamp, now: Timestamp) -> Result<(), KeysError> {
        {
            let mut void = self.lock();
            void.until.retain(|_, until| *until > now);
            void.until.insert(id, until);
        }
        let Some(path) = &self.inner.list else { return Ok(()) };
        let line = void_line(&id, until);
        let add = || -> io::Result<()> {
            // Processes of the same user write one after the other; a list that is replaced loses no line of another.
            let lock = File::open(path.with_extension("key"))?;
            lock.lock()?;
            let mut file = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
            file.write_all(line.as_bytes())?;
            file.sync_data()?;
            if file.metadata()?.len() > REWRITE_ABOVE {
                self.rewrite_list(path, now)?;
            }
            Ok(())
        };
        add().map_err(|cause| KeysError::File { what: "writing", path: path.clone(), cause })
    }

    /// Leaves out what has ended by itself. The caller holds the lock of the list.
    fn rewrite_list(&self, path: &Path, now: Timestamp) -> io::Result<()> {
        let mut void = self.lock();
        read_list(path, &mut void)?;
        void.until.retain(|_, until| *until > now);
        let lines: String = void.until.iter().map(|(id, until)| void_line(id, *until)).collect();
        let beside = path.with_extension("void.new");
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&beside)?;
        file.write_all(lines.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&beside, path)
    }

    /// Whether this was made void, here or by another process with the same folder. If the list cannot be read, it counts as void.
    pub(crate) fn is_void(&self, id: &SealId) -> bool {
        let mut void = self.lock();
        if let Some(path) = &self.inner.list
            && let Err(error) = read_list(path, &mut void)
        {
            tracing::error!(%error, path = %path.display(), "the list of ended sessions cannot be read: none is taken");
            return true;
        }
        void.until.contains_key(id)
    }
}

/// Reads what was added since the last time.
fn read_list(path: &Path, void: &mut Void) -> io::Result<()> {
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let about = file.metadata()?;
    let length = about.len();
    if (about.ino(), length) == void.read {
        return Ok(());
    }
    if length > MAX_LIST {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "it is too long"));
    }
    let mut text = String::new();
    (&mut file).take(MAX_LIST).read_to_string(&mut text)?;
    for line in text.lines() {
        let Some((id, until)) = line.split_once(' ') else { continue };
        let id = URL_SAFE_NO_PAD.decode(id).ok().and_then(|id| SealId::try_from(id).ok());
        if let (Some(id), Ok(until)) = (id, until.parse()) {
            void.until.insert(id, Timestamp::from_millis(until));
        }
    }
    void.read = (about.ino(), text.len() as u64);
    Ok(())
}

fn void_line(id: &SealId, until: Timestamp) -> String {
    format!("{} {}\n", URL_SAFE_NO_PAD.encode(id), until.as_millis())
}

fn read_key(path: &Path) -> Result<Option<[u8; LENGTH]>, KeysError> {
    let failed = |cause| KeysError::File { what: "reading", path: path.to_owned(), cause };
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    // Whoever can read the key can be anybody.
    if file.metadata().map_err(failed)?.mode() & 0o077 != 0 {
        return Err(KeysError::NotPrivate { path: path.to_owned() });
    }
    let mut bytes = Vec::new();
    file.take(LENGTH as u64 + 1).read_to_end(&mut bytes).map_err(failed)?;
    bytes.try_into().map(Some).map_err(|_| KeysError::NotAKey { path: path.to_owned() })
}

/// Two processes that begin at once agree on one key: it is written beside its place, and put there only if nothing is there.
fn make_key(folder: &Path, path: &Path) -> Result<[u8; LENGTH], KeysError> {
    let failed = |cause| KeysError::File { what: "making", path: path.to_owned(), cause };
    let secret = random_bytes()?;
    let name: [u8; 8] = random_bytes()?;
    let beside = folder.join(format!("serve.key.{}", URL_SAFE_NO_PAD.encode(name)));
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside).map_err(failed)?;
    let linked =
        file.write_all(&secret).and_then(|()| file.sync_all()).and_then(|()| std::fs::hard_link(&beside, path));
    std::fs::remove_file(&beside).map_err(failed)?;
    match linked {
        Ok(()) => Ok(secret),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            read_key(path)?.ok_or_else(|| KeysError::NotAKey { path: path.to_owned() })
        }
        Err(error) => Err(failed(error)),
    }
}

/// Random bytes that nobody can guess.
pub(crate) fn random_bytes<const N: usize>() -> Result<[u8; N], KeysError> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|error| KeysError::Random(io::Error::other(error.to_string())))?;
    Ok(bytes)
}

/// Compares in a time that does not depend on where the two differ.
pub(crate) fn is_same(one: &[u8], other: &[u8]) -> bool {
    use subtle::ConstantTimeEq as _;
    one.ct_eq(other).into()
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keys").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LATER: Timestamp = Timestamp::from_millis(2_000);
    const NOW: Timestamp = Timestamp::from_millis(1_000);

    #[test]
    fn only_what_was_sealed_for_a_purpose_is_opened_for_it() -> Result<(), KeysError> {
        let keys = Keys::random()?;
        let text = keys.seal("session", b"ann");
        assert_eq!(keys.open("session", &text).as_deref(), Some(&b"ann"[..]));
        assert_eq!(keys.open("link", &text), None);
        assert_eq!(Keys::random()?.open("session", &text), None);
        for bad in ["", "a", "====", &text[1..], &format!("{text}A")] {
            assert_eq!(keys.open("session", bad), None, "{bad}");
        }
        Ok(())
    }

    #[test]
    fn a_key_in_a_folder_outlives_the_process_and_is_its_owners_alone() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let text = Keys::in_folder(folder.path()).unwrap().seal("session", b"ann");
        let again = Keys::in_folder(folder.path()).unwrap();
        assert!(again.open("session", &text).is_some());
        let names: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["serve.key"]);
        let mode = std::fs::metadata(folder.path().join("serve.key")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let path = folder.path().join("serve.key");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(matches!(Keys::in_folder(folder.path()), Err(KeysError::NotPrivate { .. })));
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        std::fs::write(path, "short").unwrap();
        assert!(matches!(Keys::in_folder(folder.path()), Err(KeysError::NotAKey { .. })));
    }

    #[test]
    fn what_one_process_makes_void_is_void_for_all() {
        let folder = tempfile::tempdir().unwrap();
        let (one, other) = (Keys::in_folder(folder.path()).unwrap(), Keys::in_folder(folder.path()).unwrap());
        assert!(!other.is_void(&[1; 16]));
        one.make_void([1; 16], LATER, NOW).unwrap();
        assert!(one.is_void(&[1; 16]) && other.is_void(&[1; 16]) && !other.is_void(&[2; 16]));
        assert!(Keys::in_folder(folder.path()).unwrap().is_void(&[1; 16]));
    }

    #[test]
    fn the_list_of_what_is_void_does_not_grow_for_ever_and_loses_nothing_that_counts() {
        let folder = tempfile::tempdir().unwrap();
        let (keys, other) = (Keys::in_folder(folder.path()).unwrap(), Keys::in_folder(folder.path()).unwrap());
        let path = folder.path().join("serve.void");
        other.make_void([1; 16], LATER, NOW).unwrap();
        let old: String = (0..40_000u64).map(|n| void_line(&u128::from(n + 10).to_be_bytes(), NOW)).collect();
        std::fs::OpenOptions::new().append(true).open(&path).unwrap().write_all(old.as_bytes()).unwrap();
        keys.make_void([2; 16], LATER, NOW).unwrap();
        assert!(std::fs::metadata(&path).unwrap().len() < 200);
        for one in [&keys, &other, &Keys::in_folder(folder.path()).unwrap()] {
            assert!(one.is_void(&[1; 16]) && one.is_void(&[2; 16]));
        }
    }
}
