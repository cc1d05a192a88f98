//! Counts, saves itself in the middle, and continues to count in the restored process.
use std::{env, fs::File, os::fd::AsFd as _};
use vm_image::{Options, RestoreOptions, Saved, restore, save};

fn main() {
    let args: Vec<String> = env::args().collect();
    if args[1] == "restore" {
        let file = File::open(&args[2]).expect("the image");
        let way = RestoreOptions {
            foreign_vdso: args.len() > 3,
            ..RestoreOptions::default()
        };
        let error = restore(file.as_fd(), way).expect_err("it does not return");
        panic!("{error}");
    }
    let words: Vec<String> = (0..1000).map(|n| n.to_string()).collect();
    let threads: Vec<_> = (0..4)
        .map(|n| {
            std::thread::spawn(move || {
                let mut x = n as u64;
                let t = std::time::Instant::now();
                while t.elapsed().as_millis() < 1500 {
                    x = x.wrapping_mul(6364136223846793005).wrapping_add(1);
                }
                std::thread::sleep(std::time::Duration::from_millis(300));
                n
            })
        })
        .collect();
    std::thread::sleep(std::time::Duration::from_millis(200));
    let file = File::create(&args[2]).expect("a file");
    let forked = args[1] == "fork";
    let saved = save(
        file.as_fd(),
        Options {
            forked,
            ..Options::default()
        },
    );
    match saved {
        Ok(Saved::Whole { bytes, freeze }) => {
            println!("saved {bytes} in {freeze:?}");
        }
        Ok(Saved::Underway(writer)) => {
            println!("saved in {:?}", writer.freeze());
            writer.finish().expect("done");
        }
        Ok(Saved::Restored) => println!("back, pid {}", std::process::id()),
        Err(error) => println!("error {error}"),
    }
    for t in threads {
        println!("joined {}", t.join().unwrap());
    }
    println!("sum {}", words.iter().map(|w| w.len()).sum::<usize>());
}
