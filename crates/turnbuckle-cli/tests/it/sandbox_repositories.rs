//! Submodules and further work trees: git uses their hooks and settings when it is asked about the project, so commands cannot change them.

use std::process::Command;

use tempfile::TempDir;

use crate::sandbox::Desk;

/// A project with the submodule `sub`, as `git submodule add` makes it, and the further work tree `tree`.
fn with_submodule(command: &str) -> Desk {
    let desk = Desk::new(command, "");
    let folder = desk.folder.path();
    let git = |arguments: &[&str]| {
        let mut command = Command::new("git");
        command.args(["-c", "user.name=a", "-c", "user.email=a@b", "-c", "protocol.file.allow=always"]);
        let ran = command.arg("-C").arg(folder).args(arguments).output().unwrap();
        assert!(ran.status.success(), "{arguments:?}: {ran:?}");
    };
    let source = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let source = source.path().to_str().unwrap();
    git(&["init", "-q", source]);
    git(&["-C", source, "commit", "-q", "--allow-empty", "-m", "one"]);
    git(&["init", "-q", "."]);
    git(&["submodule", "--quiet", "add", source, "sub"]);
    git(&["commit", "-qm", "one"]);
    git(&["worktree", "add", "-q", "tree"]);
    desk
}

#[test]
fn a_submodule_and_a_work_tree_get_no_hooks_and_settings_from_a_command() {
    for line in [
        "git -C sub config core.fsmonitor \"$PWD/evil.sh\"",
        "echo x > .git/modules/sub/config",
        "echo x > .git/modules/sub/config.worktree",
        "echo x > .git/modules/sub/hooks/post-checkout",
        "mv .git/modules/sub/config .git/modules/sub/other",
        "mv .git/modules/sub .git/modules/other",
        "mv .git/modules .git/other",
        "echo 'gitdir: ../evil' > sub/.git",
        "rm sub/.git",
        "mv sub other",
        "echo x > .git/worktrees/tree/commondir",
        "echo x > .git/worktrees/tree/config.worktree",
        "mv .git/worktrees/tree .git/worktrees/other",
        "mv .git/worktrees .git/other",
        "echo 'gitdir: ../evil' > tree/.git",
        "mv tree other",
    ] {
        let desk = with_submodule(line);
        let (ok, text) = desk.result();
        assert!(!ok && !text.contains("[changed while"), "{line}: {text}");
    }
}

#[test]
fn work_in_a_submodule_and_a_work_tree_goes_on_as_usual() {
    let line = "for place in sub tree; do (cd $place && echo x > made && git add made && \
                git -c user.name=a -c user.email=a@b commit -qm two && git status --short); done && \
                git -C tree checkout -q --detach && git add sub && git status --short && echo end";
    let (ok, text) = with_submodule(line).result();
    assert!(ok && text.contains("M  sub\n") && text.ends_with("end\n"), "{text}");
}

#[test]
fn a_submodule_that_a_command_makes_is_reported() {
    let line = "git init -q --separate-git-dir .git/modules/new new && git -C new config core.worktree ../../../new";
    let (ok, text) = with_submodule(line).result();
    assert!(ok && text.contains("[changed while a command ran: .git/modules/new, new/.git]"), "{text}");
}
