//! Authentication of messages: tags that prove knowledge of the run's secret, and the seal of one direction of a
//! connection.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// Bytes of a tag: an HMAC with SHA-256.
pub const TAG: usize = 32;

/// A message authentication code.
pub type Tag = [u8; TAG];

/// Starts the HMAC of parts under a label. Each part is preceded by its length, so that different lists of parts
/// differ.
fn keyed(key: &[u8], label: &str, parts: &[&[u8]]) -> Hmac<Sha256> {
    let mut mac = Hmac::new_from_slice(key).expect("HMAC takes keys of any length");
    for part in [label.as_bytes()].iter().chain(parts) {
        mac.update(&(part.len() as u64).to_le_bytes());
        mac.update(part);
    }
    mac
}

/// Returns the tag of some parts. The label states the tag's purpose, so that it cannot serve another one.
pub fn tag(key: &[u8], label: &str, parts: &[&[u8]]) -> Tag {
    keyed(key, label, parts).finalize().into_bytes().into()
}

/// True if a received tag is the right one. Takes the same time whether or not it is.
pub fn holds(key: &[u8], label: &str, parts: &[&[u8]], found: &[u8]) -> bool {
    keyed(key, label, parts).verify_slice(found).is_ok()
}

/// The seal of one direction of a connection: its key, and the number of the next frame. The tag of a frame that was
/// altered, repeated, dropped or reordered does not match.
pub struct Seal {
    key: Tag,
    next: u64,
}

impl Seal {
    /// Starts a direction with its key, at frame 0.
    pub fn new(key: Tag) -> Seal {
        Seal { key, next: 0 }
    }

    /// Returns the tag of one part of the next frame. `what` names the part.
    pub fn tag(&self, what: &str, bytes: &[&[u8]]) -> Tag {
        let number = self.next.to_le_bytes();
        tag(&self.key, what, &[&[number.as_slice()], bytes].concat())
    }

    /// True if a part of the next frame has this tag.
    pub fn holds(&self, what: &str, bytes: &[&[u8]], found: &[u8]) -> bool {
        let number = self.next.to_le_bytes();
        holds(&self.key, what, &[&[number.as_slice()], bytes].concat(), found)
    }

    /// Advances to the next frame.
    pub fn advance(&mut self) {
        self.next += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_depends_on_each_of_its_inputs() {
        let whole = tag(b"key", "label", &[b"ab", b"c"]);
        assert!(holds(b"key", "label", &[b"ab", b"c"], &whole));
        let others = [
            tag(b"kez", "label", &[b"ab", b"c"]),
            tag(b"key", "lab", &[b"el", b"ab", b"c"]),
            tag(b"key", "label", &[b"a", b"bc"]),
            tag(b"key", "label", &[b"abc"]),
            tag(b"key", "label", &[b"ab", b"c", b""]),
        ];
        assert!(others.iter().all(|other| *other != whole), "{others:?}");
        assert!(!holds(b"key", "label", &[b"ab", b"c"], &whole[..TAG - 1]), "a part of a tag");
        let mut seal = Seal::new(whole);
        let first = seal.tag("head", &[b"x"]);
        seal.advance();
        assert!(!seal.holds("head", &[b"x"], &first), "the same frame later");
    }

    /// RFC 4231, test case 2, without the lengths that [`keyed`] adds.
    #[test]
    fn the_code_is_that_of_the_standard() {
        let mut mac = Hmac::<Sha256>::new_from_slice(b"Jefe").expect("any key");
        mac.update(b"what do ya want for nothing?");
        let hex: String = mac.finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
    }
}
