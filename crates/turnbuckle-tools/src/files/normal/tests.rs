//! The normal form, against the kernel's own resolution of paths.

use std::fs;
use std::os::unix::fs::symlink;

use proptest::collection::vec;
use proptest::prelude::*;
use tempfile::TempDir;

use super::*;

fn folder(root: &Path) -> Folder {
    Folder::open(root, Vec::new()).unwrap()
}

#[test]
fn every_spelling_has_one_normal_form() {
    let base = TempDir::new().unwrap();
    let root = base.path().join("base");
    fs::create_dir_all(root.join("a/b")).unwrap();
    fs::write(root.join("a/f"), "").unwrap();
    symlink("a", root.join("dir")).unwrap();
    symlink("dir/f", root.join("file")).unwrap();
    symlink("../dir/b/..", root.join("a/round")).unwrap();
    let folder = folder(&root);
    let to_f = [
        "a/f",
        "./a/f",
        "a//f",
        "a/./f",
        "a/f/",
        "a/f//",
        "a/f/.",
        "a/f/./",
        "a/b/../f",
        "a/../a/f",
        "dir/f",
        "dir/../a/f",
        "file",
        "./file/",
        "a/round/f",
        "dir/round/round/f",
        "a/b/../../dir/b/../f",
    ];
    for spelling in to_f {
        assert_eq!(folder.normal(spelling).ok(), Some(PathBuf::from("a/f")), "{spelling}");
    }
    for (spelling, normal) in
        [("", ""), (".", ""), ("a/..", ""), ("new", "new"), ("dir/new/n", "a/new/n"), ("./ü/", "ü")]
    {
        assert_eq!(folder.normal(spelling).ok(), Some(PathBuf::from(normal)), "{spelling}");
    }
}

#[test]
fn an_absolute_path_inside_is_judged_from_the_folder_on() {
    let base = TempDir::new().unwrap();
    let root = base.path().canonicalize().unwrap().join("base");
    fs::create_dir_all(root.join("a/b")).unwrap();
    fs::create_dir_all(root.join(".turnbuckle")).unwrap();
    fs::create_dir(base.path().join("base2")).unwrap();
    fs::write(root.join("a/f"), "").unwrap();
    symlink(root.join("a/f"), root.join("a/b/link")).unwrap();
    symlink(&root, root.join("a/top")).unwrap();
    symlink(root.join("../base2"), root.join("out")).unwrap();
    symlink(root.join(".turnbuckle"), root.join("own")).unwrap();
    let folder = folder(&root);
    let absolute = |path: &str| format!("{}/{path}", root.display());
    for spelling in ["a/b/link", "a/top/a/f", &absolute("a/f"), &absolute("./a//b/link"), &absolute("a/top/a/b/../f")] {
        assert_eq!(folder.normal(spelling).ok(), Some(PathBuf::from("a/f")), "{spelling}");
    }
    assert_eq!(folder.normal(&absolute("")).ok(), Some(PathBuf::new()));
    assert_eq!(folder.normal(&absolute("new/n")).ok(), Some(PathBuf::from("new/n")));
    for above in [&format!("{}2/f", root.display()), &absolute("../base2"), &absolute("..")] {
        assert!(matches!(folder.normal(above), Err(Refusal::NotBelow { .. })), "{above}");
    }
    assert!(matches!(folder.normal("out"), Err(Refusal::Outside { .. })));
    for own in ["own", &absolute(".turnbuckle/t.db"), &absolute("own/x")] {
        assert!(matches!(folder.normal(own), Err(Refusal::Own { .. })), "{own}");
    }
}

#[test]
fn what_leads_out_or_nowhere_has_none() {
    let base = TempDir::new().unwrap();
    let root = base.path().join("base");
    fs::create_dir_all(root.join("a")).unwrap();
    fs::write(root.join("f"), "").unwrap();
    symlink("../out", root.join("out")).unwrap();
    symlink("/", root.join("top")).unwrap();
    symlink("nowhere", root.join("dangling")).unwrap();
    symlink("round", root.join("round")).unwrap();
    let folder = folder(&root);
    for above in ["..", "../base/f", "a/../..", "/etc/passwd", "/", "a\0b"] {
        assert!(matches!(folder.normal(above), Err(Refusal::NotBelow { .. })), "{above:?}");
    }
    for out in ["out", "out/f", "top", "top/etc", "a/../out"] {
        assert!(matches!(folder.normal(out), Err(Refusal::Outside { .. })), "{out}");
    }
    assert!(matches!(folder.normal("dangling"), Err(Refusal::DanglingLink { .. })));
    assert!(matches!(folder.normal("dangling/new"), Err(Refusal::DanglingLink { .. })));
    assert!(matches!(folder.normal("round"), Err(Refusal::TooManyLinks { .. })));
    assert!(matches!(folder.normal("none/../f"), Err(Refusal::Missing { .. })));
    assert!(matches!(folder.normal("f/../f"), Err(Refusal::NotFolder { .. })));
    assert!(matches!(folder.normal(&"a/".repeat(3000)), Err(Refusal::TooLong { .. })));
    for own in [".turnbuckle", ".turnbuckle/turnbuckle.db", "./.Turnbuckle/x", "a/.turnbuckle/x", ".turnbuckle/../f"] {
        assert!(matches!(folder.normal(own), Err(Refusal::Own { .. })), "{own:?}");
    }
}

/// Names that meet each other often, and everything that is not a name.
fn path() -> impl Strategy<Value = String> {
    let part =
        prop_oneof![4 => "[a-c]", 2 => Just("..".to_owned()), 1 => Just(".".to_owned()), 1 => Just(String::new())];
    vec(part, 1..6).prop_map(|parts| parts.join("/"))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]
    #[test]
    fn the_normal_form_is_the_file_that_the_kernel_finds(
        folders in vec("[a-c](/[a-c]){0,2}", 0..4),
        files in vec("[a-c](/[a-c]){0,2}", 0..3),
        links in vec(("[a-c](/[a-c]){0,2}", path()), 0..5),
        given in path(),
    ) {
        let base = TempDir::new().unwrap();
        let root = base.path().canonicalize().unwrap().join("base");
        fs::create_dir(&root).unwrap();
        // Where something stands already, or the parent is no folder, nothing is made.
        for path in &folders {
            drop(fs::create_dir_all(root.join(path)));
        }
        for path in &files {
            drop(fs::File::create_new(root.join(path)));
        }
        for (path, target) in links.iter().filter(|(_, target)| !target.is_empty() && !target.starts_with('/')) {
            drop(symlink(target, root.join(path)));
        }
        let folder = folder(&root);
        // The kernel refuses `file/` and `file/.`, which the normal form takes for the file.
        let spelled: PathBuf = Path::new(&given).components().collect();
        let kernel = root.join(&spelled).canonicalize();
        match folder.normal(&given) {
            Ok(normal) => {
                let real = root.join(&normal);
                prop_assert!(!given.starts_with('/'));
                prop_assert!(normal.components().all(|part| matches!(part, Component::Normal(_))), "{normal:?}");
                prop_assert_eq!(folder.normal(text_of(&normal).unwrap()).ok(), Some(normal.clone()));
                for above in real.ancestors().take_while(|path| *path != root) {
                    prop_assert!(!above.is_symlink(), "{above:?} is a link");
                }
                match kernel {
                    Ok(found) => prop_assert_eq!(found, real),
                    Err(_) => prop_assert!(!real.exists(), "{given} is {normal:?}, and the kernel finds nothing"),
                }
            }
            Err(Refusal::NotBelow { .. } | Refusal::Outside { .. }) => {}
            Err(refusal) => prop_assert!(kernel.is_err(), "{given}: {refusal}, and the kernel finds {kernel:?}"),
        }
    }
}
