//! A declared draw, and its values in each iteration.

use std::sync::Arc;

use crate::base::Dims;
use crate::base::units::Dimension;

use super::distribution::{self, CumulativeTable};
use super::value::{Number, NumberOrigin, Scalar, Value};

/// Second seed of distributions that need two uniform numbers for a value.
const SECOND_SEED: u64 = 0x5eed;

/// Steps of computing a table that count as much as one list value.
const STEPS_PER_MEMBER: f64 = 256.0;

/// A declared draw.
#[derive(Debug)]
pub struct Draw {
    pub seed: u64,
    /// Sizes of the lists, the outermost first; empty for a single value.
    pub dims: Dims,
    pub distribution: Distribution,
    /// The iteration that was evaluated last, and its values; `None` before the first.
    pub current: Option<(i64, Value)>,
}

/// The distribution of a draw's values, with checked arguments.
#[derive(Debug)]
pub enum Distribution {
    /// Whole numbers between two bounds, both included.
    Whole(i64, i64, Dimension),
    /// Numbers from the first bound up to the second.
    Between(f64, f64, Dimension),
    Numbers(CumulativeTable),
    Geometric(f64),
    Lognormal(f64, f64),
    Choice(CumulativeTable, Arc<Vec<Value>>),
    /// Rows of a trace. The first iteration uses the row with this index; after the last row follows the first one.
    Trace(u64, Arc<[i64]>),
    /// Counts along the last dimension, with this total.
    Multinomial(i64, Vec<f64>),
}

impl Draw {
    /// Returns the flat values of an iteration.
    pub fn values(&self, iteration: i64) -> Vec<Value> {
        let count = self.dims.elements().unwrap_or(0);
        let first = (iteration as u64).wrapping_mul(count);
        let uniform = |index: u64| distribution::uniform(self.seed, first + index);
        let number = |value, dimension| Value::Number(Number { value, dimension, origin: NumberOrigin::Plain });
        let value = |index: u64| match &self.distribution {
            Distribution::Whole(low, high, dimension) => {
                number(Scalar::Int(distribution::whole(*low, *high, uniform(index))), *dimension)
            }
            Distribution::Between(low, high, dimension) => {
                number(Scalar::Float(low + (high - low) * uniform(index)), *dimension)
            }
            Distribution::Numbers(table) => Value::int(table.at(uniform(index))),
            Distribution::Geometric(success) => Value::int(distribution::geometric(*success, uniform(index))),
            Distribution::Lognormal(mu, sigma) => {
                let angle = distribution::uniform(self.seed ^ SECOND_SEED, first + index);
                Value::Number(Number::float(distribution::lognormal(*mu, *sigma, (uniform(index), angle))))
            }
            Distribution::Choice(table, values) => values[table.at(uniform(index)) as usize].clone(),
            Distribution::Trace(start, rows) => {
                let row = (u128::from(*start) + u128::from(first) + u128::from(index)) % rows.len() as u128;
                Value::int(rows[row as usize])
            }
            Distribution::Multinomial(..) => unreachable!("drawn by rows"),
        };
        match &self.distribution {
            Distribution::Multinomial(total, weights) => (0..count)
                .step_by(weights.len())
                .flat_map(|row| distribution::multinomial(*total, weights, |place| uniform(row + place as u64)))
                .map(Value::int)
                .collect(),
            _ => (0..count).map(value).collect(),
        }
    }

    /// Number of list values that drawing an iteration counts as, for the limit on all lists.
    pub fn members(&self) -> usize {
        let count = self.dims.elements().unwrap_or(0) as f64;
        let steps = match &self.distribution {
            // A table reaches nine standard deviations to both sides.
            Distribution::Multinomial(total, weights) => {
                count / weights.len() as f64 * 18.0 * (*total as f64 * weights.len() as f64).sqrt()
            }
            _ => 0.0,
        };
        (count + steps / STEPS_PER_MEMBER) as usize
    }
}
