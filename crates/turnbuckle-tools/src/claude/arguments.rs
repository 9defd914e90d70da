//! The words that a program gets from a command for the shell: what the quotes hold, without redirections. While the command is
//! read, it is told of each sign whether it was quoted.

/// A word without its quotes.
#[derive(Clone, Debug, Default)]
pub(super) struct Word {
    pub(super) text: String,
    /// It holds a sign that means something to a shell and was quoted: whoever evaluates the word reads it differently.
    pub(super) has_quoted_signs: bool,
}

/// Whether the shell reads a word that the program does not get.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Redirection {
    #[default]
    None,
    /// Behind `<` or `>`: what comes next is the file.
    Sign,
    /// In the name of the file.
    Target,
}

/// The words of the command under way.
#[derive(Debug, Default)]
pub(super) struct Arguments {
    words: Vec<Word>,
    word: Word,
    is_begun: bool,
    is_quoted: bool,
    redirection: Redirection,
    is_expanded: bool,
}

/// The words of one command.
#[derive(Debug)]
pub(super) struct Given {
    pub(super) words: Vec<Word>,
    /// The shell may put other words into the place of some: a pattern, a list in braces, a home folder, a variable.
    pub(super) is_expanded: bool,
}

impl Arguments {
    /// Whether a word is under way, even an empty one.
    pub(super) fn is_in_word(&self) -> bool {
        self.is_begun
    }

    /// Whether a redirection has no file yet.
    pub(super) fn awaits_target(&self) -> bool {
        self.redirection == Redirection::Sign
    }

    /// Where a quote opens, a word has begun, even if nothing is in it.
    pub(super) fn open_quote(&mut self) {
        self.begin();
        self.is_quoted = true;
    }

    /// A sign in quotes or behind a backslash.
    pub(super) fn push_quoted(&mut self, sign: char) {
        self.open_quote();
        if self.redirection == Redirection::None {
            self.word.has_quoted_signs |= " \t\n'\"\\<>()*?[{~;&|#".contains(sign);
            self.word.text.push(sign);
        }
    }

    /// Any other sign but a blank and `<` and `>`.
    pub(super) fn push(&mut self, sign: char) {
        self.is_expanded |= match sign {
            '*' | '?' | '[' | '{' | '$' | '`' => true,
            // Elsewhere in a word it stands for itself, but for assignments.
            '~' => !self.is_begun || self.word.text.ends_with([':', '=']),
            _ => false,
        };
        self.push_as_is(sign);
    }

    /// A sign that looks like one of a pattern or a list, and stands for itself.
    pub(super) fn push_as_is(&mut self, sign: char) {
        self.begin();
        if self.redirection == Redirection::None {
            self.word.text.push(sign);
        }
    }

    /// The shell puts something into this place that is not known here.
    pub(super) fn expand(&mut self) {
        self.begin();
        self.is_expanded = true;
    }

    /// A blank: only a space and a tab are one.
    pub(super) fn end_word(&mut self) {
        if std::mem::take(&mut self.is_begun) {
            let word = std::mem::take(&mut self.word);
            if std::mem::take(&mut self.redirection) == Redirection::None {
                self.words.push(word);
            }
        }
        self.is_quoted = false;
    }

    /// `<` or `>`. In front of it may be the number of the file that is meant, of at most `digits` digits.
    pub(super) fn redirect(&mut self, digits: usize) {
        let text = &self.word.text;
        let is_number = !self.is_quoted && text.len() <= digits && text.bytes().all(|byte| byte.is_ascii_digit());
        if self.is_begun && is_number {
            self.word = Word::default();
            self.is_begun = false;
        }
        self.end_word();
        self.redirection = Redirection::Sign;
    }

    /// The file of the redirection was read elsewhere.
    pub(super) fn end_redirection(&mut self) {
        self.redirection = Redirection::None;
    }

    /// The command ends, or goes on behind a substitution.
    pub(super) fn take(&mut self) -> Given {
        self.end_word();
        let Self { words, is_expanded, .. } = std::mem::take(self);
        Given { words, is_expanded }
    }

    fn begin(&mut self) {
        self.is_begun = true;
        if self.redirection == Redirection::Sign {
            self.redirection = Redirection::Target;
        }
    }
}
