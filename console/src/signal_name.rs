//! Names of signals, as Linux numbers them on every architecture that the machine runs on.

/// The names of the signals 1 to 31, by number.
pub const NAMES: [&str; 31] = [
    "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2",
    "PIPE", "ALRM", "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG",
    "XCPU", "XFSZ", "VTALRM", "PROF", "WINCH", "IO", "PWR", "SYS",
];

/// First and last real-time signal that the C library leaves to programs.
const REAL_TIME: (i32, i32) = (34, 64);

/// The number of a signal given by name or number.
///
/// # Errors
/// A sentence for the user.
pub fn parse(text: &str) -> Result<i32, String> {
    let unknown = || format!("no signal '{text}': give a number from 1 to 64, or a name as TERM");
    if let Ok(number) = text.parse::<i32>() {
        if number == 0 {
            return Err("signal 0 cannot be sent; 'ps' shows which tasks live".to_owned());
        }
        return if (1..=REAL_TIME.1).contains(&number) {
            Ok(number)
        } else {
            Err(unknown())
        };
    }
    let upper = text.to_ascii_uppercase();
    let name = upper.strip_prefix("SIG").unwrap_or(&upper);
    if let Some(index) = NAMES.iter().position(|known| *known == name) {
        return Ok(index as i32 + 1);
    }
    let real_time = match name {
        "RTMIN" => Some(REAL_TIME.0),
        "RTMAX" => Some(REAL_TIME.1),
        _ => match (name.strip_prefix("RTMIN+"), name.strip_prefix("RTMAX-")) {
            (Some(up), _) => up.parse::<u8>().ok().map(|up| REAL_TIME.0 + i32::from(up)),
            (_, Some(down)) => down
                .parse::<u8>()
                .ok()
                .map(|down| REAL_TIME.1 - i32::from(down)),
            _ => None,
        },
    };
    real_time
        .filter(|number| (REAL_TIME.0..=REAL_TIME.1).contains(number))
        .ok_or_else(unknown)
}

/// The name of a signal: `SIGTERM`, `SIGRTMIN+3`; the number if it has no name.
pub fn show(number: i32) -> String {
    match usize::try_from(number - 1)
        .ok()
        .and_then(|index| NAMES.get(index))
    {
        Some(name) => format!("SIG{name}"),
        None if (REAL_TIME.0..=REAL_TIME.1).contains(&number) => {
            format!("SIGRTMIN+{}", number - REAL_TIME.0)
        }
        None => number.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_name_the_same_signals() {
        for (text, number) in [
            ("TERM", libc::SIGTERM),
            ("sigterm", libc::SIGTERM),
            ("15", libc::SIGTERM),
            ("Usr1", libc::SIGUSR1),
            ("SYS", libc::SIGSYS),
            ("WINCH", libc::SIGWINCH),
            ("RTMIN+3", 37),
            ("SIGRTMAX-1", 63),
        ] {
            assert_eq!(parse(text), Ok(number), "{text}");
        }
        assert_eq!(show(15), "SIGTERM");
        assert_eq!(parse(&show(37)), Ok(37));
        for text in ["", "0", "65", "-1", "NOSUCH", "RTMIN+31", "RTMIN+", "SIG"] {
            assert!(parse(text).is_err(), "{text}");
        }
        assert!(parse("0").unwrap_err().contains("'ps'"));
    }
}
