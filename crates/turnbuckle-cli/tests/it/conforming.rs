//! `turnbuckle hooks conform`: both SDKs keep every promise, and a program that breaks one is found out.

use std::path::Path;

use crate::program::{Folder, Ran};

fn sdk(path: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../sdk").join(path).display().to_string()
}

#[test]
fn both_sdks_keep_every_promise() {
    for (program, script) in [("python3", "python/tests/conform.py"), ("node", "typescript/tests/conform.mjs")] {
        let ran = Folder::new().run(&["hooks", "conform", "--", program, &sdk(script)]).exits(0);
        let (findings, totals) = ran.out.trim_end().rsplit_once('\n').unwrap();
        assert!(
            !findings.contains("BROKEN") && findings.lines().all(|line| line.starts_with("ok ")),
            "{program}:\n{}",
            ran.out
        );
        assert!(findings.lines().count() > 10);
        assert_eq!(totals, format!("{} kept, 0 broken, 0 not seen", findings.lines().count()));
        assert!(
            ran.err.contains("  stderr| conform: printed\n"),
            "{program}: what hooks print is on stderr:\n{}",
            ran.err
        );
    }
}

#[test]
fn a_program_under_check_gets_no_key_and_cannot_fill_the_memory() {
    let folder = Folder::new();
    let curious = folder.file(
        "curious.py",
        "import os, sys\nopen('env', 'a').write(' '.join(os.environ))\nwhile True: sys.stdout.write('x' * 65536)\n",
    );
    let mut command = folder.command(&["hooks", "conform", "--", "python3", &curious.display().to_string()]);
    command.env("SOME_API_KEY", "x").env("GITHUB_TOKEN", "x").env("HARMLESS", "x");
    let ran = Ran::of(command).exits(1);
    assert!(ran.out.contains("it wrote a line of more than 4194304 bytes"), "{}", ran.out);
    let env = folder.read("env");
    assert!(env.contains("HARMLESS") && !env.contains("SOME_API_KEY") && !env.contains("GITHUB_TOKEN"), "{env}");
}

#[test]
fn a_program_that_breaks_the_protocol_is_found_out() {
    let folder = Folder::new();
    let talks = folder.file("talks.py", "import sys\nprint('hello')\nsys.stdin.read()\n");
    let ran = folder.run(&["hooks", "conform", "--", "python3", &talks.display().to_string()]).exits(1);
    assert!(
        ran.out.contains("BROKEN  it says which hooks it has: it wrote a line on stdout that is no message"),
        "{}",
        ran.out
    );
    let ran = folder.run(&["hooks", "conform", "--json", "--", "no-such-program"]).exits(1);
    assert!(ran.out.lines().all(|line| line.contains("\"broken\"")), "{}", ran.out);
    let deaf = "import json,sys\nfor line in sys.stdin:\n  m=json.loads(line)\n  if m.get('method')=='initialize': print(json.dumps({'jsonrpc':'2.0','id':m['id'],'result':{'protocol':1,'hooks':[{'name':'x','point':'before_tool'}]}}),flush=True)\n  elif 'id' in m: print(json.dumps({'jsonrpc':'2.0','id':m['id'],'result':{'decision':'sing'}}),flush=True)\n";
    let deaf = folder.file("deaf.py", deaf);
    let ran: Ran = folder.run(&["hooks", "conform", "--", "python3", &deaf.display().to_string()]).exits(1);
    for broken in ["refuses a protocol", "answer makes sense", "a method that there is not", "a hook that there is not"]
    {
        assert!(
            ran.out.lines().any(|line| line.starts_with("BROKEN") && line.contains(broken)),
            "{broken}\n{}",
            ran.out
        );
    }
    assert!(ran.out.contains("ok      it ends when its stdin is closed"), "{}", ran.out);
}

#[test]
fn a_program_that_does_not_start_is_asked_nothing_else_and_its_stderr_is_shown_without_escape_sequences() {
    let folder = Folder::new();
    let broken = folder.file("broken.py", "import sys\nsys.stderr.write('\\x1b[2Jlost\\nit broke\\n')\nsys.exit(3)\n");
    let program = broken.display().to_string();
    let ran = folder.run(&["hooks", "conform", "--", "python3", &program]).exits(1);
    assert_eq!(ran.out.lines().count(), 1, "{}", ran.out);
    assert!(ran.out.starts_with("BROKEN  it says which hooks it has"), "{}", ran.out);
    assert!(ran.err.contains("  stderr| it broke\n") && !ran.err.contains('\x1b'), "{}", ran.err);
    assert!(ran.err.contains("nothing else was checked"), "{}", ran.err);
    let ran = folder.run(&["hooks", "conform", "--json", "--", "python3", &program]).exits(1);
    assert!(ran.out.contains("\"stderr\":[") && ran.out.contains("it broke"), "{}", ran.out);
    assert!(!ran.err.contains("stderr|"), "{}", ran.err);
}
