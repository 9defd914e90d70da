//! The secret that sessions and links are signed with, and which of them are void before their time.

mod void;

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

use self::void::{Line, Void};
pub(crate) use self::void::{Owner, Seal};

/// The length of a secret, of a signature and of a digest of a token.
pub(crate) const LENGTH: usize = 32;
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

    /// From now on this is void, also for other processes and after a restart where there is a folder. It is written to disk before
    /// this returns, so it is not for a thread that has others waiting.
    pub(crate) fn make_void(&self, seal: &Seal, now: Timestamp) -> Result<(), KeysError> {
        self.note(&[Line::One(*seal)], now)
    }

    /// The same for all sessions of these tokens that last until `until`, or less long.
    pub(crate) fn make_sessions_void(
        &self,
        tokens: &[[u8; LENGTH]],
        until: Timestamp,
        now: Timestamp,
    ) -> Result<(), KeysError> {
        let lines: Vec<_> = tokens.iter().map(|token| Line::All { owner: self.owner(token), until }).collect();
        self.note(&lines, now)
    }

    fn note(&self, ended: &[Line], now: Timestamp) -> Result<(), KeysError> {
        {
            let mut void = self.lock();
            void.forget(now);
            ended.iter().for_each(|line| void.take(line));
        }
        let Some(path) = &self.inner.list else { return Ok(()) };
        let add = || -> io::Result<()> {
            // Processes of the same user write one after the other; a list that is replaced loses no line of another.
            let lock = File::open(path.with_extension("key"))?;
            lock.lock()?;
            let length = void::append(path, ended)?;
            // Requests ask whether they are void meanwhile: nothing is written while they are kept from that.
            let lines = {
                let mut void = self.lock();
                if !void.is_long(length) {
                    return Ok(());
                }
                void.read(path)?;
                void.forget(now);
                void.lines()
            };
            void::replace(path, &lines)?;
            self.lock().was_rewritten(lines.len() as u64);
            Ok(())
        };
        add().map_err(|cause| KeysError::File { what: "writing", path: path.clone(), cause })
    }

    /// Whether this was made void, here or by another process with the same folder. If the list cannot be read, it counts as void.
    pub(crate) fn is_void(&self, seal: &Seal) -> bool {
        let mut void = self.lock();
        if let Some(path) = &self.inner.list
            && let Err(error) = void.read(path)
        {
            tracing::error!(%error, path = %path.display(), "the list of ended sessions cannot be read: none is taken");
            return true;
        }
        void.contains(seal)
    }

    /// By which the list knows the sessions of a token.
    pub(crate) fn owner(&self, token: &[u8; LENGTH]) -> Owner {
        let [a, b, c, d, e, f, g, h, ..] = self.sign("owner", &[token]);
        [a, b, c, d, e, f, g, h]
    }
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

    fn link(id: u8) -> Seal {
        Seal { id: [id; 16], until: LATER, owner: None }
    }

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
        assert!(!other.is_void(&link(1)));
        one.make_void(&link(1), NOW).unwrap();
        assert!(one.is_void(&link(1)) && other.is_void(&link(1)) && !other.is_void(&link(2)));
        assert!(Keys::in_folder(folder.path()).unwrap().is_void(&link(1)));
        other.make_void(&link(2), NOW).unwrap();
        assert!(one.is_void(&link(1)) && one.is_void(&link(2)));
    }

    #[test]
    fn the_list_of_what_is_void_does_not_grow_for_ever_and_loses_nothing_that_counts() {
        let folder = tempfile::tempdir().unwrap();
        let (keys, other) = (Keys::in_folder(folder.path()).unwrap(), Keys::in_folder(folder.path()).unwrap());
        let path = folder.path().join("serve.void");
        other.make_void(&link(1), NOW).unwrap();
        let old = "AAAAAAAAAAAAAAAAAAAAAA 1000\n".repeat(40_000);
        OpenOptions::new().append(true).open(&path).unwrap().write_all(old.as_bytes()).unwrap();
        keys.make_void(&link(2), NOW).unwrap();
        assert!(std::fs::metadata(&path).unwrap().len() < 200);
        for one in [&keys, &other, &Keys::in_folder(folder.path()).unwrap()] {
            assert!(one.is_void(&link(1)) && one.is_void(&link(2)));
        }
    }

    #[test]
    fn a_long_list_is_not_written_anew_with_every_line() {
        let folder = tempfile::tempdir().unwrap();
        let keys = Keys::in_folder(folder.path()).unwrap();
        let path = folder.path().join("serve.void");
        let lives: String =
            (0..40_000u128).map(|n| format!("{} 2000\n", URL_SAFE_NO_PAD.encode(n.to_be_bytes()))).collect();
        std::fs::write(&path, lives).unwrap();
        let file = || std::fs::metadata(&path).unwrap().ino();
        let before = file();
        keys.make_void(&link(1), NOW).unwrap();
        let rewritten = file();
        assert_ne!(before, rewritten, "it is longer than it was ever written");
        for n in 2..10 {
            keys.make_void(&link(n), NOW).unwrap();
            assert!(keys.is_void(&link(n)));
        }
        assert_eq!(file(), rewritten);
    }
}
