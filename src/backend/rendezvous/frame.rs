//! What goes over a connection between two processes of a run: frames of a bounded length. What is longer goes in pieces, so
//! that signs of life and alarms do not wait for all of it.

use std::io::{self, Read, Write};

/// Bytes of a frame's text at most.
const TEXT: usize = 4096;

/// Bytes that a frame carries at most. Few in this file's tests, so that there are many pieces.
const BYTES: usize = if cfg!(test) { 64 } else { 1 << 20 };

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// All ranks are there.
    Begin,
    /// What a rank says at a place of its run.
    Said,
    /// The same, of a rank that failed there.
    Failed,
    /// What all ranks said.
    All,
    /// Some rank has failed before that place.
    Alarm,
    /// A rank is gone, and why.
    Gone,
    /// The sender is through.
    Bye,
    /// The sender is still there.
    Alive,
    /// A piece of what the sender says: the rest follows.
    Piece,
}

const KINDS: [Kind; 9] =
    [Kind::Begin, Kind::Said, Kind::Failed, Kind::All, Kind::Alarm, Kind::Gone, Kind::Bye, Kind::Alive, Kind::Piece];

/// A frame. What a kind has no use for is empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    pub kind: Kind,
    /// The rank that it is about.
    pub rank: u32,
    /// The number of the place, counted from 0.
    pub turn: u64,
    /// The name of the place, or a reason.
    pub text: String,
    pub bytes: Vec<u8>,
}

impl Frame {
    pub fn new(kind: Kind, rank: u32, turn: u64) -> Frame {
        Frame { kind, rank, turn, text: String::new(), bytes: Vec::new() }
    }

    pub fn with_text(mut self, text: &str) -> Frame {
        self.text = text.chars().take(TEXT / 4).collect();
        self
    }

    pub fn with_bytes(self, bytes: Vec<u8>) -> Frame {
        Frame { bytes, ..self }
    }

    /// The frames that carry this one: pieces, and in the end this frame with what is left.
    pub fn pieces(mut self) -> impl Iterator<Item = Frame> {
        let (rank, turn) = (self.rank, self.turn);
        let last = (self.bytes.len().div_ceil(BYTES).max(1) - 1) * BYTES;
        let left = self.bytes.split_off(last);
        let bytes = std::mem::replace(&mut self.bytes, left);
        let piece = move |at| Frame::new(Kind::Piece, rank, turn).with_bytes(bytes[at..at + BYTES].to_vec());
        (0..last).step_by(BYTES).map(piece).chain([self])
    }

    /// Writes it at once, so that frames of several threads do not mix as long as each holds the writer.
    pub fn write(&self, out: &mut impl Write) -> io::Result<()> {
        if self.bytes.len() > BYTES {
            return Err(io::Error::other(format!("{} bytes are more than may be sent at once", self.bytes.len())));
        }
        let mut head = Vec::with_capacity(64);
        head.push(self.kind as u8);
        head.extend(self.rank.to_le_bytes());
        head.extend(self.turn.to_le_bytes());
        head.extend((self.text.len() as u32).to_le_bytes());
        head.extend((self.bytes.len() as u32).to_le_bytes());
        head.extend(self.text.as_bytes());
        out.write_all(&head)?;
        out.write_all(&self.bytes)?;
        out.flush()
    }

    /// Reads a whole frame. What is no frame is an error, and takes no more memory than has arrived.
    pub fn read(from: &mut impl Read) -> io::Result<Frame> {
        let kind = usize::from(array::<1>(from)?[0]);
        let kind = *KINDS.get(kind).ok_or_else(|| io::Error::other("it sent what is no message of aorta"))?;
        let rank = u32::from_le_bytes(array(from)?);
        let turn = u64::from_le_bytes(array(from)?);
        let (text, bytes) = (u32::from_le_bytes(array(from)?), u32::from_le_bytes(array(from)?));
        let text = String::from_utf8(exactly(from, text, TEXT)?).map_err(io::Error::other)?;
        let bytes = exactly(from, bytes, BYTES)?;
        Ok(Frame { kind, rank, turn, text, bytes })
    }
}

fn array<const N: usize>(from: &mut impl Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    from.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// That many bytes, which are no more than `most`.
pub fn exactly(from: &mut impl Read, length: u32, most: usize) -> io::Result<Vec<u8>> {
    if length as usize > most {
        return Err(io::Error::other(format!("it announced {length} bytes, and {most} are the most")));
    }
    let mut bytes = Vec::new();
    from.take(u64::from(length)).read_to_end(&mut bytes)?;
    if bytes.len() < length as usize {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_arrives_as_it_was_sent() {
        for (number, kind) in KINDS.into_iter().enumerate() {
            assert_eq!(kind as usize, number);
            let frame = Frame::new(kind, 7, 1 << 40).with_text("iterations").with_bytes(vec![1, 2, 3]);
            let mut sent = Vec::new();
            frame.write(&mut sent).unwrap();
            assert_eq!(Frame::read(&mut sent.as_slice()).unwrap(), frame);
            for length in 0..sent.len() {
                assert!(Frame::read(&mut &sent[..length]).is_err(), "{length} bytes of {}", sent.len());
            }
        }
    }

    #[test]
    fn a_long_frame_goes_in_pieces() {
        for length in [0, 1, BYTES - 1, BYTES, BYTES + 1, 3 * BYTES, 10 * BYTES + 7] {
            let bytes: Vec<u8> = (0..length).map(|byte| byte as u8).collect();
            let frame = Frame::new(Kind::Said, 7, 3).with_text("iterations").with_bytes(bytes.clone());
            let pieces: Vec<Frame> = frame.pieces().collect();
            assert!(pieces.iter().all(|piece| piece.write(&mut Vec::new()).is_ok()), "{length} bytes");
            let (last, pieces) = pieces.split_last().expect("there is a last");
            assert_eq!((last.kind, last.text.as_str()), (Kind::Said, "iterations"));
            assert!(pieces.iter().all(|piece| piece.kind == Kind::Piece));
            let all: Vec<u8> = pieces.iter().chain([last]).flat_map(|piece| piece.bytes.clone()).collect();
            assert_eq!(all, bytes);
        }
        let long = Frame::new(Kind::Said, 0, 0).with_bytes(vec![0; BYTES + 1]);
        assert!(long.write(&mut Vec::new()).is_err(), "it has to go in pieces");
    }

    #[test]
    fn what_is_no_frame_is_refused() {
        let refused = |bytes: &[u8]| Frame::read(&mut &*bytes).unwrap_err().to_string();
        assert!(refused(b"GET / HTTP/1.1\r\n\r\n......").contains("no message of aorta"));
        let mut long = Vec::new();
        Frame::new(Kind::Said, 0, 0).write(&mut long).unwrap();
        long[17..21].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(refused(&long).contains("4294967295 bytes"), "{}", refused(&long));
    }
}
