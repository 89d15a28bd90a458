//! Messages between two processes of a run: frames of bounded length, each authenticated by a seal. A longer message is
//! sent in pieces, so that heartbeats and alarms need not wait for its end.

use std::io::{self, Read, Write};

use super::seal::{Seal, TAG};

/// Bytes of a frame's header: kind, rank, number of the step, and the lengths of its text and its bytes.
const HEAD: usize = 21;

/// Error of a frame with a wrong tag.
pub const UNSEALED: &str = "its messages were altered in transit, or come from another sender";

/// Maximum number of bytes of a frame's text.
const TEXT: usize = 4096;

/// Maximum number of payload bytes of a frame. Small in this file's tests, so that messages have many pieces.
const BYTES: usize = if cfg!(test) { 64 } else { 1 << 20 };

/// Purpose of a frame. Its number is the position in [`KINDS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameKind {
    /// Tells a rank that every rank has joined.
    Begin,
    /// A rank's contribution at one step of the run.
    Message,
    /// The message of a rank that failed at this step.
    Failed,
    /// Rank 0's answer to the contributions of all ranks at a step.
    Answer,
    /// A rank has failed before this step.
    Alarm,
    /// A rank is gone, with the reason.
    Gone,
    /// The sender has finished.
    Bye,
    /// A heartbeat with the sender's progress.
    Heartbeat,
    /// A piece of a longer message; at least one further frame follows.
    Piece,
    /// Rank 0 accepts the sender.
    Welcome,
    /// The listener is rank 0 of another run. Rank 0 of the sender's run may use another port.
    Elsewhere,
    /// Rank 0 rejects the sender, with the reason.
    Refused,
}

/// The kinds of frames, in the order of their numbers.
pub const KINDS: [FrameKind; 12] = [
    FrameKind::Begin,
    FrameKind::Message,
    FrameKind::Failed,
    FrameKind::Answer,
    FrameKind::Alarm,
    FrameKind::Gone,
    FrameKind::Bye,
    FrameKind::Heartbeat,
    FrameKind::Piece,
    FrameKind::Welcome,
    FrameKind::Elsewhere,
    FrameKind::Refused,
];

/// A frame. Fields that its kind does not use are empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    pub kind: FrameKind,
    /// The rank that the frame is about, or its sender.
    pub rank: u32,
    /// Number of the step, counted from 0.
    pub step_number: u64,
    /// Name of the step, or the reason for a failure.
    pub text: String,
    pub bytes: Vec<u8>,
}

impl Frame {
    /// Returns a frame without text and bytes.
    pub fn new(kind: FrameKind, rank: u32, step_number: u64) -> Frame {
        Frame { kind, rank, step_number, text: String::new(), bytes: Vec::new() }
    }

    /// Returns the frame with a text, which is cut to the maximum length.
    pub fn with_text(mut self, text: &str) -> Frame {
        self.text = text.chars().take(TEXT / 4).collect();
        self
    }

    /// Returns the frame with these bytes.
    pub fn with_bytes(self, bytes: Vec<u8>) -> Frame {
        Frame { bytes, ..self }
    }

    /// Splits a frame into pieces of the maximum size, and the frame itself with the remaining bytes at the end.
    pub fn pieces(mut self) -> impl Iterator<Item = Frame> {
        let (rank, step_number) = (self.rank, self.step_number);
        let last = (self.bytes.len().div_ceil(BYTES).max(1) - 1) * BYTES;
        let left = self.bytes.split_off(last);
        let bytes = std::mem::replace(&mut self.bytes, left);
        let piece =
            move |at| Frame::new(FrameKind::Piece, rank, step_number).with_bytes(bytes[at..at + BYTES].to_vec());
        (0..last).step_by(BYTES).map(piece).chain([self])
    }

    /// Writes the frame and its seal by one call. The caller must hold the lock of the connection, so that frames of
    /// several threads do not mix.
    pub fn write(&self, out: &mut impl Write, seal: &mut Seal) -> io::Result<()> {
        if self.bytes.len() > BYTES {
            return Err(io::Error::other(format!("{} bytes exceed the maximum size of a message", self.bytes.len())));
        }
        let mut head = Vec::with_capacity(HEAD);
        head.push(self.kind as u8);
        head.extend(self.rank.to_le_bytes());
        head.extend(self.step_number.to_le_bytes());
        head.extend((self.text.len() as u32).to_le_bytes());
        head.extend((self.bytes.len() as u32).to_le_bytes());
        let body = [&head, self.text.as_bytes(), &self.bytes];
        out.write_all(&[body[0], &seal.tag("head", &[body[0]]), body[1]].concat())?;
        out.write_all(body[2])?;
        out.write_all(&seal.tag("body", &body))?;
        seal.advance();
        out.flush()
    }

    /// Reads a whole frame and checks its seal. The lengths in the header are used only if the header's own tag is
    /// right, and no more memory is allocated than has arrived.
    pub fn read(from: &mut impl Read, seal: &mut Seal) -> io::Result<Frame> {
        let head = array::<HEAD>(from)?;
        if !seal.holds("head", &[&head], &array::<TAG>(from)?) {
            return Err(io::Error::other(UNSEALED));
        }
        let mut rest = head.as_slice();
        let kind = usize::from(array::<1>(&mut rest)?[0]);
        let rank = u32::from_le_bytes(array(&mut rest)?);
        let step_number = u64::from_le_bytes(array(&mut rest)?);
        let lengths = (u32::from_le_bytes(array(&mut rest)?), u32::from_le_bytes(array(&mut rest)?));
        let kind = *KINDS.get(kind).ok_or_else(|| io::Error::other("it sent a message of an unknown kind"))?;
        let text = exactly(from, lengths.0, TEXT)?;
        let bytes = exactly(from, lengths.1, BYTES)?;
        if !seal.holds("body", &[&head, &text, &bytes], &array::<TAG>(from)?) {
            return Err(io::Error::other(UNSEALED));
        }
        seal.advance();
        let text = String::from_utf8(text).map_err(|_| io::Error::other("it sent a text that is not UTF-8"))?;
        Ok(Frame { kind, rank, step_number, text, bytes })
    }
}

fn array<const N: usize>(from: &mut impl Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    from.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// Reads `length` bytes; fails if that exceeds `most`.
pub fn exactly(from: &mut impl Read, length: u32, most: usize) -> io::Result<Vec<u8>> {
    if length as usize > most {
        return Err(io::Error::other(format!("it announced a message of {length} bytes; the maximum is {most}")));
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

    fn seal() -> Seal {
        Seal::new([7; TAG])
    }

    fn written(frames: &[Frame]) -> Vec<u8> {
        let (mut out, mut seal) = (Vec::new(), seal());
        frames.iter().for_each(|frame| frame.write(&mut out, &mut seal).expect("memory takes it"));
        out
    }

    fn read(mut bytes: &[u8]) -> io::Result<Frame> {
        Frame::read(&mut bytes, &mut seal())
    }

    #[test]
    fn a_frame_arrives_as_it_was_sent() {
        for (number, kind) in KINDS.into_iter().enumerate() {
            assert_eq!(kind as usize, number);
            let frame = Frame::new(kind, 7, 1 << 40).with_text("iterations").with_bytes(vec![1, 2, 3]);
            let sent = written(std::slice::from_ref(&frame));
            assert_eq!(read(&sent).unwrap(), frame);
            for length in 0..sent.len() {
                assert!(read(&sent[..length]).is_err(), "{length} bytes of {}", sent.len());
            }
        }
    }

    #[test]
    fn a_long_frame_goes_in_pieces() {
        for length in [0, 1, BYTES - 1, BYTES, BYTES + 1, 3 * BYTES, 10 * BYTES + 7] {
            let bytes: Vec<u8> = (0..length).map(|byte| byte as u8).collect();
            let frame = Frame::new(FrameKind::Message, 7, 3).with_text("iterations").with_bytes(bytes.clone());
            let pieces: Vec<Frame> = frame.pieces().collect();
            assert!(!written(&pieces).is_empty(), "{length} bytes");
            let (last, pieces) = pieces.split_last().expect("there is a last");
            assert_eq!((last.kind, last.text.as_str()), (FrameKind::Message, "iterations"));
            assert!(pieces.iter().all(|piece| piece.kind == FrameKind::Piece));
            let all: Vec<u8> = pieces.iter().chain([last]).flat_map(|piece| piece.bytes.clone()).collect();
            assert_eq!(all, bytes);
        }
        let long = Frame::new(FrameKind::Message, 0, 0).with_bytes(vec![0; BYTES + 1]);
        assert!(long.write(&mut Vec::new(), &mut seal()).is_err(), "it has to go in pieces");
    }

    /// Changing any bit of a frame is detected; a frame is accepted once, in its turn, and under its own key.
    #[test]
    fn an_altered_frame_is_refused() {
        let frames = [1, 2].map(|step_number| {
            Frame::new(FrameKind::Message, 3, step_number).with_text("iterations").with_bytes(vec![9; 40])
        });
        let sent = written(&frames);
        let (first, second) = sent.split_at(sent.len() / 2);
        for bit in 0..first.len() * 8 {
            let mut altered = first.to_vec();
            altered[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(read(&altered).unwrap_err().to_string(), UNSEALED, "bit {bit}");
        }
        let both = |order: &[&[u8]]| {
            let (bytes, mut seal) = (order.concat(), seal());
            let mut from = bytes.as_slice();
            (Frame::read(&mut from, &mut seal).is_ok(), Frame::read(&mut from, &mut seal).is_ok())
        };
        assert_eq!(both(&[first, second]), (true, true));
        assert_eq!(both(&[first, first]), (true, false), "a repeated frame");
        assert!(!both(&[second, first]).0, "frames in another order");
        assert!(Frame::read(&mut &*first, &mut Seal::new([8; TAG])).is_err(), "another key");
    }

    /// A length without a valid tag is ignored, and one that is too large allocates no memory.
    #[test]
    fn a_declared_length_takes_no_memory() {
        let mut long = written(&[Frame::new(FrameKind::Message, 0, 0)]);
        long[17..21].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(read(&long).unwrap_err().to_string(), UNSEALED);
        let tag = seal().tag("head", &[&long[..HEAD]]);
        long[HEAD..HEAD + TAG].copy_from_slice(&tag);
        let told = read(&long).unwrap_err().to_string();
        assert!(told.contains("4294967295 bytes"), "{told}");
    }
}
