//! The console and images: their summary, their verification, and the restore of their processes.

mod fake;
mod image_save;
mod screen;

use rustix::process::Signal;
use screen::{Guarded, Screen, terminal, text, vm_on};
use serde_json::Value;
use std::{
    fs::{self, File},
    io::{BufRead as _, BufReader, PipeReader, Read, Write as _},
    os::unix::process::ExitStatusExt as _,
    path::{Path, PathBuf},
    process::{ChildStdin, ChildStdout, Command, Output, Stdio},
    sync::OnceLock,
    thread::JoinHandle,
};
use tempfile::TempDir;
use vm_image::format::{
    Codec, FACTS, Facts, ImageReader, PAGES, Plain as _, Prefix, RecordWriter, Section,
};

/// The program that saves itself, and the preloaded library. Both are built once per test process;
/// cargo reports their paths.
fn built() -> &'static [PathBuf; 2] {
    static BUILT: OnceLock<[PathBuf; 2]> = OnceLock::new();
    BUILT.get_or_init(|| {
        let mut build = Command::new(env!("CARGO"));
        build
            .args([
                "build",
                "--package",
                "vm-image",
                "--lib",
                "--example",
                "guest",
            ])
            // In the workspace's folder the library would be replaced by one that was compiled with other
            // features of its dependencies, and other crates of this test run could not be linked.
            .args([
                "--target-dir",
                concat!(env!("CARGO_TARGET_TMPDIR"), "/alone"),
            ])
            .args(["--quiet", "--message-format=json", "--manifest-path"])
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("../Cargo.toml"))
            .stderr(Stdio::inherit());
        if !cfg!(debug_assertions) {
            build.arg("--release");
        }
        let output = build.output().expect("cargo can be run");
        assert!(output.status.success(), "the guest does not build");
        let messages = output.stdout.split(|byte| *byte == b'\n');
        let messages = messages.filter_map(|line| serde_json::from_slice::<Value>(line).ok());
        let files = messages.flat_map(|message| match &message["filenames"] {
            Value::Array(names) => names.clone(),
            _ => Vec::new(),
        });
        let files: Vec<String> = files
            .filter_map(|name| Some(name.as_str()?.to_owned()))
            .collect();
        ["/guest", "/libvm_image.so"].map(|end| {
            let found = files.iter().find(|name| name.ends_with(end));
            PathBuf::from(found.expect("cargo says where it is"))
        })
    })
}

fn guest() -> &'static Path {
    &built()[0]
}

/// A folder with a process in `image`, which had `data` open.
fn saved() -> (TempDir, PathBuf) {
    saved_with(&[])
}

fn saved_with(words: &[&str]) -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let (image, data) = (dir.path().join("image"), dir.path().join("data"));
    fs::write(&data, "something to compute with").unwrap();
    // If the tests run in the background, signals of the terminal are ignored, and the image would
    // record that.
    let output = Command::new("env")
        .arg("--default-signal=INT,QUIT")
        .arg(guest())
        .args([&image, &data])
        .args(words)
        .current_dir(dir.path())
        .stdin(Stdio::piped())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    (dir, image)
}

/// A console whose folder has no daemon.
fn vm(image: &Path, words: &[&str]) -> Command {
    let mut command = screen::vm(&image.with_file_name("no daemon"));
    command.args(words).arg(image);
    command
}

fn output(image: &Path, words: &[&str]) -> Output {
    vm(image, words).output().unwrap()
}

fn json(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).unwrap_or_else(|error| panic!("{error}: {}", text(bytes)))
}

/// A console with pipes that restores the image. The first line of output was read.
fn run(mut console: Command) -> (Guarded, ChildStdin, BufReader<ChildStdout>) {
    let pipes = console.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut console = Guarded::spawn(pipes.stderr(Stdio::inherit()));
    let stdin = console.0.stdin.take().unwrap();
    let mut stdout = BufReader::new(console.0.stdout.take().unwrap());
    let mut line = String::new();
    stdout.read_line(&mut line).unwrap();
    assert_eq!(line, "it with its file is back\n");
    (console, stdin, stdout)
}

/// A pipe with the bytes of an image, and the thread that writes them.
fn fed(image: &Path) -> (PipeReader, JoinHandle<()>) {
    let (reader, mut writer) = std::io::pipe().unwrap();
    let bytes = fs::read(image).unwrap();
    let feeder = std::thread::spawn(move || {
        // The reader may end early.
        let _ = writer.write_all(&bytes);
    });
    (reader, feeder)
}

/// The same image with other facts.
fn with_facts(image: &Path, change: impl Fn(&mut Facts)) {
    let bytes = fs::read(image).unwrap();
    let mut reader = ImageReader::new(&bytes[..]).unwrap();
    let page_size = reader.prefix().page_size;
    let mut writer = RecordWriter::new(Vec::new(), page_size, Codec::Plain).unwrap();
    while let Some((section, content)) = reader.next_section().unwrap() {
        if section.kind == FACTS {
            let mut facts = Facts::from_prefix(content).unwrap();
            change(&mut facts);
            writer.facts(&facts).unwrap();
        } else {
            writer
                .section(section.kind, section.address, content)
                .unwrap();
        }
    }
    fs::write(image, writer.end().unwrap()).unwrap();
}

/// Where the content of the first section of memory begins.
fn memory_at(bytes: &[u8]) -> usize {
    let mut at = Prefix::LEN;
    loop {
        let head = Section::from_prefix(&bytes[at..]).unwrap();
        at += Section::LEN;
        if head.kind == PAGES {
            return at;
        }
        at += head.stored_len as usize;
    }
}

#[test]
fn info_shows_what_was_saved_and_that_this_host_can_restore_it() {
    let (dir, image) = saved();
    let shown = output(&image, &["image", "info"]);
    assert_eq!(text(&shown.stderr), "");
    assert_eq!(shown.status.code(), Some(0));
    let shown = text(&shown.stdout);
    for part in [
        "\ncommand  ",
        "\nthreads  1: guest\n",
        " saved\n",
        "/data, 25 B, at byte 0\n",
        "\nneeds    x86_64, pages of 4096 bytes; x87 sse ",
        "\nhere     it can be restored\n",
    ] {
        assert!(shown.contains(part), "no '{part}' in:\n{shown}");
    }
    assert!(shown.lines().all(|line| !line.ends_with(' ')));

    let value = json(&output(&image, &["--json", "image", "info"]).stdout);
    assert_eq!(value["program"], guest().to_str().unwrap());
    assert_eq!(value["dir"], dir.path().to_str().unwrap());
    assert_eq!(value["image"], image.to_str().unwrap());
    assert_eq!(value["restorable_here"], true);
    assert_eq!(value["reasons"], Value::Array(Vec::new()));
    assert_eq!(value["damage"], Value::Null);
    assert_eq!(value["needs"]["arch"], "x86_64");
    let stored = fs::metadata(&image).unwrap().len();
    assert_eq!(value["pages"]["stored_bytes"], stored);
}

#[test]
fn info_of_a_pipe_shows_the_same() {
    let (_dir, image) = saved();
    let mut console = vm(Path::new("/dev/stdin"), &["--json", "image", "info"]);
    let (reader, mut writer) = std::io::pipe().unwrap();
    let bytes = fs::read(&image).unwrap();
    let feeder = std::thread::spawn(move || writer.write_all(&bytes).unwrap());
    let piped = json(&console.stdin(reader).output().unwrap().stdout);
    feeder.join().unwrap();
    let value = json(&output(&image, &["--json", "image", "info"]).stdout);
    assert_eq!(piped["pages"], value["pages"]);
    assert_eq!(piped["files"], value["files"]);
}

#[test]
fn verify_says_where_an_image_is_damaged() {
    let (_dir, image) = saved();
    let good = output(&image, &["image", "verify"]);
    assert_eq!(good.status.code(), Some(0));
    let shown = text(&good.stdout);
    let data = image.with_file_name("data");
    for part in [
        ": whole, ",
        "\nneeds    x86_64, pages of 4096 bytes; x87 sse ",
        ", group ",
        &format!("\n         {}\n", data.display()),
        &format!("\nwants    {}\n", guest().display()),
        "\nhere     it can be restored\n",
    ] {
        assert!(shown.contains(part), "no '{part}' in:\n{shown}");
    }
    fs::rename(&data, image.with_file_name("moved")).unwrap();
    let lacking = output(&image, &["image", "verify"]);
    assert_eq!(lacking.status.code(), Some(0), "it is whole");
    let shown = text(&lacking.stdout);
    assert!(shown.contains("/data is missing, which"), "{shown}");
    let value = json(&output(&image, &["--json", "image", "verify"]).stdout);
    assert_eq!(value["restorable_here"], false);
    fs::rename(image.with_file_name("moved"), &data).unwrap();
    let mut bytes = fs::read(&image).unwrap();
    let at = memory_at(&bytes);
    bytes[at + 1000] ^= 4;
    fs::write(&image, &bytes).unwrap();
    let bad = output(&image, &["image", "verify"]);
    assert_eq!(bad.status.code(), Some(1));
    let expected = format!("the image is damaged in section 5 (PAGES) at byte {at}");
    assert!(
        text(&bad.stdout).contains(&expected),
        "{}",
        text(&bad.stdout)
    );
    let value = json(&output(&image, &["--json", "image", "verify"]).stdout);
    assert_eq!((&value["whole"], &value["at"]), (&false.into(), &at.into()));

    fs::write(&image, &bytes[..at + 10]).unwrap();
    let bad = output(&image, &["image", "verify"]);
    assert_eq!(bad.status.code(), Some(1));
    let expected = format!("the image ends at byte {}", at + 10);
    assert!(
        text(&bad.stdout).contains(&expected),
        "{}",
        text(&bad.stdout)
    );
    // The heads are undamaged, so `info` still shows the process of the image.
    let info = output(&image, &["image", "info"]);
    assert_eq!(info.status.code(), Some(1));
    assert!(text(&info.stdout).contains("\nthreads  1: guest\n"));
    assert!(text(&info.stdout).contains("\ndamage   the image ends at byte"));

    fs::remove_file(&image).unwrap();
    for action in ["info", "verify"] {
        let none = output(&image, &["image", action]);
        assert_eq!(none.status.code(), Some(1));
        assert!(text(&none.stderr).starts_with("vm: cannot open "));
    }
}

#[test]
fn run_becomes_the_process_with_its_input_output_and_exit_code() {
    let (_dir, image) = saved();
    let (mut console, mut stdin, mut stdout) = run(vm(&image, &["image", "run"]));
    stdin.write_all(b"42\n").unwrap();
    assert_eq!(console.wait().code(), Some(42));
    let mut rest = String::new();
    stdout.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "");
}

#[test]
fn files_and_the_working_folder_are_looked_for_elsewhere() {
    let (dir, image) = saved();
    let other = tempfile::tempdir().unwrap();
    fs::rename(dir.path().join("data"), other.path().join("data")).unwrap();
    let lacking = output(&image, &["image", "run"]);
    assert_eq!(lacking.status.code(), Some(124));
    let map = format!("--map={}={}/", dir.path().display(), other.path().display());
    let (mut console, mut stdin, _stdout) = run(vm(&image, &["image", "run", &map]));
    stdin.write_all(b"42\n").unwrap();
    assert_eq!(console.wait().code(), Some(42));
    let wrong = output(&image, &["image", "run", "--map=data=/there"]);
    assert!(text(&wrong.stderr).contains("is no absolute path"));
}

#[test]
fn a_signal_to_the_console_is_one_to_the_process() {
    let (_dir, image) = saved();
    let (mut console, _stdin, _stdout) = run(vm(&image, &["image", "run"]));
    console.signal(Signal::USR1);
    assert_eq!(console.wait().signal(), Some(libc::SIGUSR1));
}

#[test]
fn at_a_terminal_the_process_has_the_terminal() {
    let (dir, image) = saved();
    let (ours, theirs) = terminal();
    let words = ["image", "run", image.to_str().unwrap()];
    let mut console = vm_on(&theirs, dir.path(), &words);
    let mut screen = Screen::new(ours);
    screen.wait_for("it with its file is back\r\n");
    screen.type_keys("7\r");
    assert_eq!(console.wait().code(), Some(7));
    let mut console = vm_on(&theirs, dir.path(), &words);
    screen.wait_for("it with its file is back\r\n");
    screen.type_keys("\x03");
    assert_eq!(console.wait().signal(), Some(libc::SIGINT));
}

#[test]
fn the_prompt_waits_for_a_restored_process() {
    let (dir, image) = saved();
    let daemon = fake::listen(dir.path(), 1, |_, mut daemon| {
        daemon.greet();
        assert!(daemon.frame().is_none());
    });
    let (ours, theirs) = terminal();
    let mut console = vm_on(&theirs, dir.path(), &[]);
    drop(theirs);
    let mut screen = Screen::new(ours);
    let line = format!("image run {}\r", image.display());
    for (keys, shown) in [
        ("", "vm> "),
        (&line, "it with its file is back\r\n"),
        ("5\r", "vm> "),
        (&line, "it with its file is back\r\n"),
        // Ctrl-C ends the restored process, not the prompt.
        ("\x03", "vm> "),
        ("ima\tver\t", "image verify "),
    ] {
        screen.type_keys(keys);
        screen.wait_for(shown);
    }
    screen.type_keys("\x03");
    screen.wait_for("vm> ");
    screen.type_keys("quit\r");
    assert_eq!(console.wait().code(), Some(0));
    daemon.join().unwrap();
}

#[test]
fn a_script_continues_after_a_restored_process() {
    let (dir, image) = saved();
    let script = dir.path().join("script");
    // The script is longer than the console reads ahead, so that the restored process could read
    // commands by mistake.
    let space = "# nothing\n".repeat(900);
    let lines = format!("image run {0}\n{space}image verify {0}\n", image.display());
    fs::write(&script, lines).unwrap();
    let mut console = screen::vm(dir.path());
    let shown = console
        .stdin(File::open(&script).unwrap())
        .output()
        .unwrap();
    assert_eq!(shown.status.code(), Some(0), "{}", text(&shown.stderr));
    // The restored process found its input at its end: the commands are not its input.
    let shown = text(&shown.stdout);
    assert!(shown.starts_with("it with its file is back\n"), "{shown}");
    assert!(shown.contains(": whole, "), "{shown}");
}

#[test]
fn a_dash_is_standard_input() {
    let (dir, image) = saved();
    let dash = Path::new("-");
    let from_dash = |words: &[&str]| {
        let mut console = screen::vm(dir.path());
        console.args(words).arg(dash);
        console
    };
    // The rest of the pipe, which is empty, is the standard input of the restored process.
    let (reader, feeder) = fed(&image);
    let mut console = from_dash(&["image", "run"]);
    let shown = console.stdin(reader).output().unwrap();
    drop(console);
    feeder.join().unwrap();
    assert_eq!(text(&shown.stdout), "it with its file is back\n");
    assert_eq!(shown.status.code(), Some(0), "{}", text(&shown.stderr));
    let mut console = from_dash(&["image", "verify"]);
    let shown = console.stdin(File::open(&image).unwrap()).output().unwrap();
    assert!(text(&shown.stdout).contains(": whole, "));
    // The commands of a script are not an image.
    let script = dir.path().join("script");
    fs::write(&script, "image run -\n").unwrap();
    let mut console = screen::vm(dir.path());
    let shown = console
        .stdin(File::open(&script).unwrap())
        .output()
        .unwrap();
    assert_eq!(shown.status.code(), Some(2));
    let error = text(&shown.stderr);
    assert!(error.contains("give the image's file"), "{error}");
}

#[test]
fn a_damaged_image_is_not_started() {
    let (_dir, image) = saved();
    let mut bytes = fs::read(&image).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    fs::write(&image, bytes).unwrap();
    let refused = output(&image, &["image", "run"]);
    assert_eq!(refused.status.code(), Some(124));
    assert_eq!(text(&refused.stdout), "");
    assert!(text(&refused.stderr).contains("the image is damaged"));
}

#[test]
fn a_process_whose_file_has_changed_is_not_started() {
    let (dir, image) = saved();
    fs::write(dir.path().join("data"), "SOMETHING to compute with").unwrap();
    {
        let reasons = &json(&output(&image, &["--json", "image", "info"]).stdout)["reasons"];
        let reason = reasons[0].as_str().unwrap();
        assert!(reason.contains("its content is different"), "{reason}");
        let refused = output(&image, &["image", "run"]);
        assert_eq!(refused.status.code(), Some(124));
        assert_eq!(text(&refused.stdout), "");
        let error = text(&refused.stderr);
        assert!(error.contains("cannot be restored here"), "{error}");
        assert!(error.contains("its content is different"), "{error}");
    }
}

#[test]
fn files_are_rolled_back_only_with_the_option() {
    let (dir, image) = saved_with(&["write"]);
    let data = dir.path().join("data");
    let is_back = |words: &[&str]| {
        let console = vm(&image, words).stdin(Stdio::null()).output().unwrap();
        assert_eq!(console.status.code(), Some(0), "{}", text(&console.stderr));
        fs::read_to_string(&data).unwrap()
    };
    fs::write(&data, "something to compute with, and more").unwrap();
    let kept = is_back(&["image", "run"]);
    assert_eq!(kept, "something to compute with, and more");
    let cut = is_back(&["image", "run", "--roll-back-files"]);
    assert_eq!(cut, "something to compute with");
    fs::write(&data, "something else to think of").unwrap();
    let shown = output(&image, &["image", "run"]);
    assert_eq!(shown.status.code(), Some(124));
    let why = text(&shown.stderr);
    assert!(why.contains("data has changed since the save"), "{why}");
    let restored = is_back(&["image", "run", "--roll-back-files"]);
    assert_eq!(restored, "something to compute with");
    fs::write(&data, "something else to think of").unwrap();
    // At the prompt, a separate console process becomes the restored process.
    let mut prompt = screen::vm(&image.with_file_name("no daemon"));
    let prompt = prompt.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut prompt = Guarded::spawn(prompt);
    let line = format!("image run --roll-back-files {}\n", image.display());
    let mut input = prompt.0.stdin.take().unwrap();
    input.write_all(line.as_bytes()).unwrap();
    drop(input);
    assert_eq!(prompt.0.wait().unwrap().code(), Some(0));
    let restored = fs::read_to_string(&data).unwrap();
    assert_eq!(restored, "something to compute with");
}

#[test]
fn the_needs_that_this_host_lacks_are_shown_by_console_and_restorer() {
    type Change = fn(&mut Facts);
    let changes: [(Change, &str); 3] = [
        (
            |facts| facts.cpu.leaf_7_ebx |= 1 << 22,
            "processor lacks leaf 7 ebx bit 22",
        ),
        (
            |facts| facts.cpu.xcr0 |= 1 << 62,
            "state of threads (bit 62 of XCR0)",
        ),
        (
            |facts| facts.cpu.xsave_check ^= 1,
            "keeps the registers of threads at other places",
        ),
    ];
    let (_dir, image) = saved();
    let original = fs::read(&image).unwrap();
    for (change, expected) in changes {
        fs::write(&image, &original).unwrap();
        with_facts(&image, change);
        let info = output(&image, &["--json", "image", "info"]);
        assert_eq!(info.status.code(), Some(0));
        let value = json(&info.stdout);
        assert_eq!(value["restorable_here"], false);
        assert!(value["reasons"][0].as_str().unwrap().contains(expected));
        let refused = output(&image, &["image", "run"]);
        assert_eq!(refused.status.code(), Some(124));
        assert!(text(&refused.stderr).contains("cannot be restored here"));
        assert!(text(&refused.stderr).contains(expected));
        // An image from a pipe cannot be examined before the restore.
        let (reader, feeder) = fed(&image);
        let mut console = vm(Path::new("/dev/stdin"), &["image", "run"]);
        let refused = console.stdin(reader).output().unwrap();
        // The command holds the other end of the pipe.
        drop(console);
        feeder.join().unwrap();
        assert_eq!(refused.status.code(), Some(124));
        let error = text(&refused.stderr);
        assert!(
            error.starts_with("the image cannot be restored: "),
            "{error}"
        );
        assert!(error.contains(expected), "{error}");
    }
}
