//! The record of a verification.

use serde::{Deserialize, Serialize};

/// The result of a verification.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct VerificationRecord {
    /// Number of compared iterations.
    pub iterations: u32,
    /// True if everything that was checked is correct.
    pub held: bool,
    /// Checked operations, by name.
    #[serde(default)]
    pub operations: Vec<CheckedOperations>,
    /// Operations with wrong results.
    #[serde(default)]
    pub mistakes: Vec<WrongLaunch>,
    /// Number of launches whose results are overwritten before anything reads them.
    #[serde(default)]
    pub unread: u64,
    /// Number of launches of kernels without a reference, whose results are not compared with anything.
    #[serde(default)]
    pub taken: u64,
    pub variants: Vec<VariantVerification>,
}

/// The launches of operations that share a name.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct CheckedOperations {
    pub operation: String,
    /// True for a kernel that the file declares.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub declared: bool,
    /// Number of compared launches.
    pub count: u64,
    /// Number of launches compared by random vectors instead of element by element.
    pub by_vectors: u64,
    /// Number of elements of the launches' outputs.
    pub elements: u64,
    /// Number of elements that rounding alone decides, which are not checked.
    pub undecided: u64,
    /// Largest error, in multiples of the allowed error.
    pub error: f64,
}

/// A launch with a wrong result for the inputs that the device itself computed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WrongLaunch {
    /// The operation's label or name.
    pub operation: String,
    /// Launch mode: `stream` or `graph`.
    pub launch: String,
    /// The rank; `None` if there is only one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rank: Option<u32>,
    /// Number of the iteration, from 0; 0 in a block around the iterations.
    pub iteration: u64,
    /// `setup` or `teardown`; `None` in an iteration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block: Option<String>,
    /// Name of the output with the largest error.
    pub output: String,
    /// Index of the element with the largest error.
    pub element: Vec<u64>,
    /// The device's value as text, since it may be NaN or infinite.
    pub actual: String,
    /// The reference value as text.
    pub expected: String,
    /// Allowed difference.
    pub allowed: f64,
    /// Error in multiples of the allowed difference.
    pub error: f64,
}

/// Verification of one launch mode.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct VariantVerification {
    pub launch: String,
    pub outputs: Vec<OutputVerification>,
    /// Number of dependencies that were shown to hold; `None` if none could be checked.
    pub witnessed: Option<u64>,
    /// Violated dependencies, in words.
    #[serde(default)]
    pub missed: Vec<String>,
}

/// Final contents of a memory, compared with those of the verified run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct OutputVerification {
    pub name: String,
    pub shape: String,
    /// Error of the contents: 0 if all bits are equal; otherwise the largest error of the whole, a row or an element; for integers the share
    /// of elements that differ.
    pub error: f64,
    /// Largest allowed error.
    pub bound: f64,
    /// True if the error is within the bound.
    pub held: bool,
}

impl CheckedOperations {
    /// Adds the results of another process.
    pub fn add(&mut self, other: CheckedOperations) {
        self.operation = other.operation;
        self.declared |= other.declared;
        self.count += other.count;
        self.by_vectors += other.by_vectors;
        self.elements += other.elements;
        self.undecided += other.undecided;
        self.error = self.error.max(other.error);
    }
}
