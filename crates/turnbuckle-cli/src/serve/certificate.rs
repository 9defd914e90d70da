//! The certificate and the key of `[serve]`: read at the start, and again when the files change.

use std::path::PathBuf;

use turnbuckle_server::{Certificate, CertificateError};

use super::{LOOK_EVERY, Never, stamps};
use crate::config::{Found, ServePart};
use crate::logging::CLI;
use crate::output;
use crate::problem::{Problem, with_causes};
use crate::read_file::{CONFIGURATION, read_file};

/// The two files.
pub(super) struct CertificateFiles {
    certificate: Found<PathBuf>,
    key: Found<PathBuf>,
}

impl CertificateFiles {
    /// Those of the configuration; `None` if there is to be no TLS.
    pub(super) fn of(part: &ServePart) -> Result<Option<Self>, Problem> {
        let (found, missing) = match (&part.tls_certificate, &part.tls_key) {
            (None, None) => return Ok(None),
            (Some(certificate), Some(key)) => {
                return Ok(Some(Self { certificate: certificate.clone(), key: key.clone() }));
            }
            (Some(found), None) => (found, "tls_key"),
            (None, Some(found)) => (found, "tls_certificate"),
        };
        let what = format!("`{missing}` is missing in [serve]: TLS needs a certificate and its key");
        Err(Problem::error(what)
            .at(&found.place)
            .hint(format!("add `{missing} = \"FILE.pem\"`, or take this line out")))
    }

    /// Reads both.
    pub(super) fn load(&self) -> Result<Certificate, Problem> {
        let (certificate, key) = self.read()?;
        Certificate::from_pem(certificate.as_bytes(), key.as_bytes()).map_err(|error| self.unusable(&error))
    }

    /// A key that other accounts of this machine can read is not theirs to keep.
    pub(super) fn warning(&self) -> Option<Problem> {
        use std::os::unix::fs::PermissionsExt as _;
        let path = &self.key.value;
        let mode = std::fs::metadata(path).ok()?.permissions().mode();
        let what = format!("the key {} can be read by other accounts of this machine", path.display());
        let hint = format!("`chmod 600 {}`", path.display());
        (mode & 0o077 != 0).then(|| Problem::warning(what).at(&self.key.place).hint(hint))
    }

    fn read(&self) -> Result<(String, String), Problem> {
        let read = |key: &str, found: &Found<PathBuf>| {
            read_file(&found.value, CONFIGURATION).map_err(|error| {
                let what = format!("`{key}` {} cannot be read: {error}", found.value.display());
                Problem::error(what).at(&found.place).hint(error.hint("it is relative to the folder of this file"))
            })
        };
        Ok((read("tls_certificate", &self.certificate)?, read("tls_key", &self.key)?))
    }

    fn unusable(&self, error: &CertificateError) -> Problem {
        let Self { certificate, key } = self;
        let (key_name, found, hint) = match error {
            CertificateError::NoKey => {
                ("tls_key", key, "`openssl pkey -in KEY -out PLAIN.pem` writes it without a password")
            }
            CertificateError::OtherKey => ("tls_key", key, "give the key that the certificate was made for"),
            _ => ("tls_certificate", certificate, "a chain as PEM is needed, the certificate of this server first"),
        };
        let what = format!("`{key_name}` {}: {}", found.value.display(), with_causes(error));
        Problem::error(what).at(&found.place).hint(hint)
    }

    /// Takes another certificate over when the files change, while the server runs.
    pub(super) async fn follow(self, certificate: Certificate) -> Never {
        let files = [self.certificate.value.clone(), self.key.value.clone()];
        // Nothing is known at first: a change between the reading at the start and the first look would be missed.
        let mut known = Vec::new();
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            let now = stamps(&files);
            if now == known {
                continue;
            }
            known = now;
            let replaced = self.read().and_then(|(chain, key)| {
                certificate.replace(chain.as_bytes(), key.as_bytes()).map_err(|error| self.unusable(&error))
            });
            match replaced {
                Ok(()) => tracing::info!(target: CLI, "the certificate was read again"),
                // Of two files that are being replaced one may be the old one: the next look finds both.
                Err(problem) => output::say(&format!("the certificate stays as it was: {problem}")),
            }
        }
    }
}
