//! What goes over a connection between two processes of a run: frames of a bounded length.

use std::io::{self, Read, Write};

/// Bytes of a frame's text at most.
const TEXT: usize = 4096;

/// Bytes that a frame carries at most: the observed iterations of all ranks fit many times.
const BYTES: usize = 1 << 28;

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
}

const KINDS: [Kind; 8] =
    [Kind::Begin, Kind::Said, Kind::Failed, Kind::All, Kind::Alarm, Kind::Gone, Kind::Bye, Kind::Alive];

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

/// Several texts of bytes as one.
pub fn joined(parts: &[Vec<u8>]) -> Vec<u8> {
    let mut all = Vec::with_capacity(parts.iter().map(|part| part.len() + 4).sum());
    for part in parts {
        all.extend((part.len() as u32).to_le_bytes());
        all.extend(part);
    }
    all
}

/// The parts of what [`joined`] made; nothing of what it did not make.
pub fn parted(mut all: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut parts = Vec::new();
    while !all.is_empty() {
        let (length, rest) = all.split_first_chunk::<4>()?;
        let (part, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        parts.push(part.to_vec());
        all = rest;
    }
    Some(parts)
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
    fn what_is_no_frame_is_refused() {
        let refused = |bytes: &[u8]| Frame::read(&mut &*bytes).unwrap_err().to_string();
        assert!(refused(b"GET / HTTP/1.1\r\n\r\n......").contains("no message of aorta"));
        let mut long = Vec::new();
        Frame::new(Kind::Said, 0, 0).write(&mut long).unwrap();
        long[17..21].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(refused(&long).contains("4294967295 bytes"), "{}", refused(&long));
    }

    #[test]
    fn parts_are_found_again() {
        let parts = vec![vec![1, 2], Vec::new(), vec![3]];
        assert_eq!(parted(&joined(&parts)), Some(parts));
        assert_eq!(parted(&[1, 0, 0]), None);
        assert_eq!(parted(&[9, 0, 0, 0, 1]), None);
    }
}
