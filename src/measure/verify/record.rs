//! What a verification found, as it is written down.

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct VerificationRecord {
    /// Iterations that were compared.
    pub iterations: u32,
    pub held: bool,
    /// How operations were compared one by one, by the operation's name.
    #[serde(default)]
    pub operations: Vec<CheckedOperations>,
    /// Operations that did not compute what they should have.
    #[serde(default)]
    pub mistakes: Vec<Mistake>,
    /// Launches whose results are overwritten before anything reads them.
    #[serde(default)]
    pub unread: u64,
    pub variants: Vec<VariantVerification>,
}

/// All launches of operations of one name.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct CheckedOperations {
    pub operation: String,
    /// Operations that were compared, each time they ran.
    pub count: u64,
    /// Those of them that were compared by random vectors, and not element by element.
    pub by_vectors: u64,
    /// Elements of their outputs.
    pub elements: u64,
    /// Elements of which nothing can be said: rounding decides what they are.
    pub undecided: u64,
    /// The largest error, in multiples of what rounding explains.
    pub error: f64,
}

/// A launch that did not leave what it should have, given what the device had computed before.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Mistake {
    /// The operation's label or name.
    pub operation: String,
    /// `stream` or `graph`.
    pub launch: String,
    /// Absent where there is only one rank.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rank: Option<u32>,
    pub iteration: u64,
    /// The output with the largest error, as the file names it.
    pub output: String,
    /// The element of it with the largest error.
    pub element: Vec<u64>,
    /// What the device left there, and the reference, as texts: they may be no numbers.
    pub actual: String,
    pub expected: String,
    /// How far they may be apart.
    pub allowed: f64,
    /// The error, in multiples of that.
    pub error: f64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct VariantVerification {
    pub launch: String,
    pub outputs: Vec<OutputVerification>,
    /// Dependencies of which a run showed that what waits did wait; nothing where none could be looked at.
    #[serde(default)]
    pub witnessed: Option<u64>,
    /// Those that did not hold, in words.
    #[serde(default)]
    pub missed: Vec<String>,
}

/// What a memory holds in the end, beside what it held when each operation was compared.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct OutputVerification {
    pub name: String,
    pub shape: String,
    /// 0 where all bits are the same. Else the largest of those of the whole, of a row and of an element; for integers the
    /// share that differs.
    pub error: f64,
    pub bound: f64,
    pub held: bool,
}

impl CheckedOperations {
    /// Adds what another process found.
    pub fn add(&mut self, other: CheckedOperations) {
        self.operation = other.operation;
        self.count += other.count;
        self.by_vectors += other.by_vectors;
        self.elements += other.elements;
        self.undecided += other.undecided;
        self.error = self.error.max(other.error);
    }
}
