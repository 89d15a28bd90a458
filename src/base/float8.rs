//! Floating-point numbers of 8 bits, as the Open Compute Project defines them (OCP 8-bit Floating Point Specification,
//! revision 1.0): `e4m3` and `e5m2`.
//!
//! Conversions round to nearest even, as PyTorch's `float8_e4m3fn` and `float8_e5m2` do. A value that is too large for `e4m3`
//! becomes NaN, since that type has no infinity; in `e5m2` it becomes infinite. Nothing saturates.

/// An 8-bit floating-point format.
#[derive(Clone, Copy, Debug)]
pub struct Float8Format {
    /// Bits of the fraction.
    fraction: u32,
    /// Exponent of the smallest normal number.
    least: i32,
    /// Bits of the largest finite number.
    largest: u8,
    /// Bits that a value above `largest` becomes: NaN or infinity.
    above: u8,
}

/// 4 bits of exponent and 3 of fraction: up to 448, without infinities.
pub const E4M3: Float8Format = Float8Format { fraction: 3, least: -6, largest: 0x7e, above: 0x7f };

/// 5 bits of exponent and 2 of fraction: up to 57344, with infinities.
pub const E5M2: Float8Format = Float8Format { fraction: 2, least: -14, largest: 0x7b, above: 0x7c };

const NAN: u8 = 0x7f;
const SIGN: u8 = 0x80;

impl Float8Format {
    /// The smallest positive normal number.
    pub fn smallest(self) -> f64 {
        2f64.powi(self.least)
    }

    /// The largest finite number.
    pub fn largest(self) -> f64 {
        self.load(self.largest)
    }

    /// The value of these bits.
    pub fn load(self, bits: u8) -> f64 {
        let (exponent, fraction) = ((bits & !SIGN) >> self.fraction, bits & ((1 << self.fraction) - 1));
        let value = match bits & !SIGN {
            magnitude if magnitude > self.above => f64::NAN,
            magnitude if magnitude == self.above => {
                if self.above == NAN {
                    f64::NAN
                } else {
                    f64::INFINITY
                }
            }
            _ if exponent == 0 => f64::from(fraction) * 2f64.powi(self.least - self.fraction as i32),
            _ => {
                let whole = f64::from((1 << self.fraction) | fraction);
                whole * 2f64.powi(i32::from(exponent) - 1 + self.least - self.fraction as i32)
            }
        };
        if bits & SIGN == 0 { value } else { -value }
    }

    /// Returns the bits of the nearest value; of two equally near values, those of the one with an even fraction. The
    /// value is rounded to `f32` first, as GPU kernels do.
    pub fn store(self, value: f64) -> u8 {
        let bits = (value as f32).to_bits();
        let sign = (bits >> 24) as u8 & SIGN;
        let magnitude = bits & 0x7fff_ffff;
        if magnitude > 0x7f80_0000 {
            return sign | NAN;
        }
        let smallest = (self.smallest() as f32).to_bits();
        let rounded = if magnitude < smallest {
            // Adding this number aligns the last bit with the last bit of a subnormal number.
            let place = 2f32.powi(23 + self.least - self.fraction as i32);
            (f32::from_bits(magnitude) + place).to_bits() - place.to_bits()
        } else {
            let shift = 23 - self.fraction;
            let even = magnitude + (1 << (shift - 1)) - 1 + ((magnitude >> shift) & 1);
            // The smallest normal number has the exponent 1.
            (even >> shift) - (smallest >> shift) + (1 << self.fraction)
        };
        sign | if rounded > u32::from(self.largest) { self.above } else { rounded as u8 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_round_trips() {
        for format in [E4M3, E5M2] {
            for bits in 0..=u8::MAX {
                let value = format.load(bits);
                let again = format.store(value);
                assert!(again == bits || value.is_nan() && format.load(again).is_nan(), "{format:?} {bits:#x} {value}");
            }
        }
    }

    /// The values of the specification's tables.
    #[test]
    fn values_of_the_specification() {
        assert_eq!(
            [0x7e, 0x08, 0x07, 0x01, 0x80].map(|bits| E4M3.load(bits)),
            [448.0, 0.015625, 0.013671875, 0.001953125, 0.0]
        );
        assert!(E4M3.load(0x7f).is_nan() && E4M3.load(0xff).is_nan());
        assert_eq!(
            [0x7b, 0x04, 0x01, 0xfc].map(|bits| E5M2.load(bits)),
            [57344.0, 2f64.powi(-14), 2f64.powi(-16), f64::NEG_INFINITY]
        );
        assert!((0x7d..=0x7f).all(|bits| E5M2.load(bits).is_nan()));
    }

    #[test]
    fn rounding_to_nearest_even() {
        for (value, bits) in
            [(464.0, 0x7e), (465.0, 0x7f), (1e9, 0x7f), (17.0, 0x58), (19.0, 0x5a), (-0.0009, 0x80), (0.001, 0x01)]
        {
            assert_eq!(E4M3.store(value), bits, "{value}");
        }
        for (value, bits) in [(61439.0, 0x7b), (61440.0, 0x7c), (f64::INFINITY, 0x7c), (1.125, 0x3c), (1.375, 0x3e)] {
            assert_eq!(E5M2.store(value), bits, "{value}");
        }
        assert_eq!(E4M3.store(f64::NEG_INFINITY), 0xff);
    }
}
