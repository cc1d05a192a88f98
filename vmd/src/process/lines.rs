//! Cuts the output of a task into lines, so that the lines of many tasks can be mixed.

use vm_wire::limits::LINE_MAX;

/// The output of a task after its last newline.
#[derive(Debug, Default)]
pub struct LineCutter {
    rest: Vec<u8>,
}

impl LineCutter {
    /// Adds output. Returns the whole lines in it, each at most [`LINE_MAX`] bytes: a longer line
    /// is cut.
    pub fn push(&mut self, mut bytes: &[u8]) -> Vec<Vec<u8>> {
        let mut pieces = Vec::new();
        while !bytes.is_empty() {
            let room = LINE_MAX - self.rest.len();
            let (now, later) = bytes.split_at(bytes.len().min(room));
            bytes = later;
            self.rest.extend_from_slice(now);
            match self.rest.iter().rposition(|byte| *byte == b'\n') {
                Some(end) => {
                    let rest = self.rest.split_off(end + 1);
                    pieces.push(std::mem::replace(&mut self.rest, rest));
                }
                None if self.rest.len() == LINE_MAX => pieces.push(std::mem::take(&mut self.rest)),
                None => {}
            }
        }
        pieces
    }

    /// The last line of a task that writes no more, with a newline added.
    pub fn finish(&mut self) -> Option<Vec<u8>> {
        if self.rest.is_empty() {
            return None;
        }
        self.rest.push(b'\n');
        Some(std::mem::take(&mut self.rest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_lines_come_out_however_they_were_written() {
        let text = b"one\ntwo\n\nthree";
        for cut in 0..text.len() {
            let mut cutter = LineCutter::default();
            let mut pieces = cutter.push(&text[..cut]);
            pieces.extend(cutter.push(&text[cut..]));
            assert!(pieces.iter().all(|piece| piece.ends_with(b"\n")));
            assert_eq!(pieces.concat(), b"one\ntwo\n\n");
            assert_eq!(cutter.finish(), Some(b"three\n".to_vec()));
            assert_eq!(cutter.finish(), None);
        }
    }

    #[test]
    fn a_long_line_is_cut_and_nothing_is_lost() {
        let mut cutter = LineCutter::default();
        let mut text = vec![b'x'; 3 * LINE_MAX + 5];
        text.extend_from_slice(b"\nend\n");
        let mut pieces = Vec::new();
        for part in text.chunks(1000) {
            pieces.extend(cutter.push(part));
        }
        assert!(pieces.iter().all(|piece| piece.len() <= LINE_MAX));
        assert_eq!(pieces.concat(), text);
    }
}
