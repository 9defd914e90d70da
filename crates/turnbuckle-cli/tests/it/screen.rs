//! A terminal, and what the program makes of it.

use std::io::{Read, Write};
use std::process::{Child, Command};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use crate::program::Folder;

/// The program in a terminal of its own.
pub(crate) struct Screen {
    child: Child,
    pub(crate) keys: std::fs::File,
    pieces: Receiver<Vec<u8>>,
    rows: Rows,
}

/// What a terminal makes of the few things that the program says to it.
#[derive(Default)]
struct Rows {
    rows: Vec<Vec<char>>,
    row: usize,
    column: usize,
    /// A sequence that is not complete.
    sequence: Option<String>,
}

impl Rows {
    fn write(&mut self, text: &str) {
        for letter in text.chars() {
            match (self.sequence.take(), letter) {
                (Some(sequence), letter) if letter.is_ascii_alphabetic() => self.obey(&sequence, letter),
                (Some(sequence), letter) => self.sequence = Some(sequence + &letter.to_string()),
                (None, '\u{1b}') => self.sequence = Some(String::new()),
                (None, '\r') => self.column = 0,
                (None, '\n') => self.row += 1,
                // The bell.
                (None, '\u{7}') => {}
                (None, letter) => {
                    self.rows.resize(self.rows.len().max(self.row + 1), Vec::new());
                    let row = &mut self.rows[self.row];
                    row.resize(row.len().max(self.column + 1), ' ');
                    row[self.column] = letter;
                    self.column += 1;
                }
            }
        }
    }

    fn obey(&mut self, sequence: &str, letter: char) {
        let count = sequence.get(1..).and_then(|count| count.parse::<usize>().ok()).unwrap_or(1);
        match letter {
            'J' => {
                self.rows.truncate(self.row + 1);
                if let Some(row) = self.rows.get_mut(self.row) {
                    row.truncate(self.column);
                }
            }
            'A' => self.row = self.row.saturating_sub(count),
            'B' => self.row += count,
            'C' => self.column += count,
            'h' | 'l' => {}
            other => panic!("nobody taught this terminal {sequence}{other}"),
        }
    }

    fn text(&self) -> String {
        self.rows.iter().map(|row| row.iter().collect::<String>() + "\n").collect()
    }
}

impl Screen {
    pub(crate) fn open(folder: &Folder, arguments: &[&str]) -> Self {
        Self::of(folder.command(arguments))
    }

    pub(crate) fn of(mut command: Command) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let side = || std::fs::File::options().read(true).write(true).open(name.to_str().unwrap()).unwrap();
        command.stdin(side()).stdout(side()).stderr(side()).env("TERM", "xterm").env("NO_COLOR", "1");
        let child = command.spawn().unwrap();
        let keys = std::fs::File::from(master);
        let mut reader = keys.try_clone().unwrap();
        let (send, pieces) = channel();
        std::thread::spawn(move || {
            let mut room = [0; 4096];
            while let Ok(length @ 1..) = reader.read(&mut room) {
                if send.send(room[..length].to_vec()).is_err() {
                    return;
                }
            }
        });
        Self { child, keys, pieces, rows: Rows::default() }
    }

    pub(crate) fn types(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits until `text` is on the screen.
    #[track_caller]
    pub(crate) fn shows(&mut self, text: &str) {
        let patience = Instant::now() + Duration::from_secs(20);
        while !self.rows.text().contains(text) {
            let left = patience.saturating_duration_since(Instant::now());
            match self.pieces.recv_timeout(left) {
                Ok(piece) => self.rows.write(&String::from_utf8_lossy(&piece)),
                Err(_) => panic!("{text:?} is not on the screen:\n{}", self.rows.text()),
            }
        }
    }

    /// How often `text` is on the screen now.
    pub(crate) fn count(&self, text: &str) -> usize {
        self.rows.text().matches(text).count()
    }

    pub(crate) fn interrupt(&self) {
        self.signal("-INT");
    }

    pub(crate) fn signal(&self, signal: &str) {
        let pid = self.child.id().to_string();
        assert!(std::process::Command::new("kill").args([signal, &pid]).status().unwrap().success());
    }

    #[track_caller]
    pub(crate) fn exits(mut self, code: i32) {
        let patience = Instant::now() + Duration::from_secs(20);
        while self.child.try_wait().unwrap().is_none() {
            if Instant::now() > patience {
                self.child.kill().unwrap();
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        self.pieces.try_iter().for_each(|piece| self.rows.write(&String::from_utf8_lossy(&piece)));
        assert_eq!(self.child.wait().unwrap().code(), Some(code), "{}", self.rows.text());
    }

    /// Killed, and gone.
    pub(crate) fn exits_by_signal(mut self) {
        assert_eq!(self.child.wait().unwrap().code(), None);
    }
}
