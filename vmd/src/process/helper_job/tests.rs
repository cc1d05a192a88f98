use super::*;
use vm_store::Base;

const APP: Tid = Tid(1 << 40 | 1 << 24 | 1);

fn part() -> Part {
    Part {
        name: "t1.1.image".to_owned(),
        bytes: 1 << 40,
        hash: [0xfe; 16],
        place: "a host, with \"quotes\"".to_owned(),
        stored: 7,
        packed: Some(3),
        base: Some(Base {
            generation: 1,
            epoch: 2,
            bytes: 3,
            packed: None,
        }),
        copy: Some("node2".to_owned()),
    }
}

fn store() -> StoreJob {
    StoreJob {
        root: "/a folder/with 'quotes'\n".into(),
        host: "node1".to_owned(),
        quota: u64::MAX,
    }
}

/// One job of each kind.
fn jobs() -> Vec<HelperJob> {
    let checkpoint = CheckpointJob::new(APP, CheckpointId::new(3, 4));
    let form = Form {
        second: Some("!%=".to_owned()),
        full: true,
        compress: false,
        cached: true,
    };
    vec![
        HelperJob::TransferSender(SenderJob {
            addr: "[::1]:7170".to_owned(),
            ticket: u64::MAX,
            mode: Mode::Plain,
        }),
        HelperJob::TransferReceiver(ReceiverJob {
            ticket: 0,
            mode: Mode::Encrypted,
        }),
        HelperJob::TransferRestorer(RestorerJob {
            roll_back: true,
            folder: Some(RenamedFolder {
                saved: "/there".into(),
                here: "/here".into(),
            }),
        }),
        HelperJob::StoreWriter(WriterJob {
            store: store(),
            checkpoint,
            tid: APP,
            form,
            local: true,
            length: Some(9),
        }),
        HelperJob::StoreReader(ReaderJob {
            root: store().root,
            checkpoint,
            part: part(),
            file: true,
        }),
        HelperJob::StoreTaker(TakerJob {
            store: store(),
            checkpoint,
            part: part(),
        }),
        HelperJob::SuspendedWriter(SuspendedWriterJob {
            store: store(),
            app: APP,
            name: "an image".to_owned(),
        }),
        HelperJob::SuspendedReader(SuspendedReaderJob {
            root: store().root,
            app: APP,
            image: part(),
        }),
        HelperJob::BucketPusher { root: "/s".into() },
        HelperJob::Coordinator {
            app: APP.to_string(),
        },
        HelperJob::LeaseProbe,
        HelperJob::Guardian { daemon: 4_194_304 },
    ]
}

fn read(words: &[&str]) -> Option<anyhow::Result<HelperJob>> {
    HelperJob::from_words(words.iter().map(OsString::from))
}

fn refusal(words: &[&str]) -> String {
    let refused = read(words).expect("a helper's").expect_err("it is broken");
    format!("{refused:#}")
}

#[test]
fn every_job_survives_the_command_line() {
    for job in jobs() {
        let words = job.words();
        assert_eq!(words[1], job.name());
        let read = HelperJob::from_words(words.map(OsString::from));
        let read = read.expect("a helper's").expect("it was just written");
        assert_eq!(read, job);
    }
}

#[test]
fn a_command_line_without_a_helper_job_is_left_to_the_daemon() {
    assert!(read(&[]).is_none());
    assert!(read(&["--detach"]).is_none());
    assert!(read(&["store-writer", "{}"]).is_none());
}

#[test]
fn a_broken_description_is_refused_and_named() {
    for job in jobs() {
        let [helper, name, text] = job.words();
        let cut = &text[..text.len() - 1];
        let said = refusal(&[&helper, &name, cut]);
        assert!(said.contains(&format!("of the job '{name}'")), "{said}");
    }
    let said = refusal(&["helper"]);
    assert!(said.contains("not 0 words"), "{said}");
    let said = refusal(&["helper", "guardian", r#"{"guardian":{"daemon":-1}}"#]);
    assert!(said.contains("invalid value"), "{said}");
    let said = refusal(&[
        "helper",
        "guardian",
        r#"{"guardian":{"daemon":1,"more":2}}"#,
    ]);
    assert!(said.contains("unknown field `more`"), "{said}");
    let said = refusal(&["helper", "guardian", r#"{"polisher":{}}"#]);
    assert!(said.contains("unknown variant `polisher`"), "{said}");
    let said = refusal(&["helper", "store-writer", r#""lease-probe""#]);
    assert!(
        said.contains("description of a job 'lease-probe'"),
        "{said}"
    );
}
