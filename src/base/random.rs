//! A counter-based random generator that gives the same data on every machine.
//!
//! Element `i` of a buffer with seed `s` depends on `s` and `i` alone, so CPU and GPU threads compute the same bits in
//! any order. It uses integer arithmetic and one exact conversion: the sum of four 16-bit fields of a 64-bit hash,
//! which is bell-shaped (Irwin-Hall with n = 4), scaled to a standard deviation of 1. `ops::init` has the same
//! arithmetic as GPU source text.

/// SplitMix64's finalizer (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014), applied to a
/// counter.
pub fn hash(seed: u64, index: u64) -> u64 {
    let mut z = seed
        .wrapping_mul(0xd1b5_4a32_d192_ed03)
        .wrapping_add(index.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Standard deviation of the sum of four uniform 16-bit integers: sqrt(4 * (2^32 - 1) / 12).
pub const SUM_DEVIATION: f32 = 37_837.227;

/// Returns a bell-shaped value with mean 0 and standard deviation 1, between -3.5 and 3.5.
pub fn bell(seed: u64, index: u64) -> f32 {
    let bits = hash(seed, index);
    let sum = (bits & 0xffff) + ((bits >> 16) & 0xffff) + ((bits >> 32) & 0xffff) + (bits >> 48);
    // The sum is below 2^18, so the subtraction is exact; the product rounds once, as on the GPU.
    (sum as f32 - 131_070.0) * (1.0 / SUM_DEVIATION)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_centred_with_unit_deviation() {
        let n = 100_000;
        let values: Vec<f64> = (0..n).map(|i| f64::from(bell(7, i))).collect();
        let mean = values.iter().sum::<f64>() / n as f64;
        let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n as f64;
        assert!(mean.abs() < 0.01, "{mean}");
        assert!((variance - 1.0).abs() < 0.02, "{variance}");
    }

    #[test]
    fn is_pinned() {
        // Values from an independent implementation. A change would invalidate every recorded verification.
        for (seed, index, bits, value) in [
            (1, 0, 0x2d0f_28c7_e7e7_86b2, 0xbece_5129),
            (1, 1, 0x7585_6f74_5165_f252, 0x3e8c_f903),
            (2, 0, 0x3c5b_6687_4b9e_8a84, 0xbf69_c949),
            (7, 123_456_789_012, 0x188b_efc1_6c1c_810e, 0xbd91_ece0),
        ] {
            assert_eq!(hash(seed, index), bits);
            assert_eq!(bell(seed, index).to_bits(), value);
        }
    }
}
