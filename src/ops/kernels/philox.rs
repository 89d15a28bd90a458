//! Philox4x32-10, the counter-based generator of `torch` and cuRAND (Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as
//! easy as 1, 2, 3", 2011): on the CPU, and as kernel text with the same bits.

/// Returns four random words for a counter value `block`; the seed is the key.
pub fn words(seed: u64, block: u64) -> [u32; 4] {
    let halves = |wide: u64| ((wide >> 32) as u32, wide as u32);
    let (high, low) = halves(block);
    let mut counter = [low, high, 0, 0];
    let (mut key_high, mut key_low) = halves(seed);
    for _ in 0..10 {
        let (high0, low0) = halves(0xd251_1f53 * u64::from(counter[0]));
        let (high1, low1) = halves(0xcd9e_8d57 * u64::from(counter[2]));
        counter = [high1 ^ counter[1] ^ key_low, low1, high0 ^ counter[3] ^ key_high, low0];
        key_low = key_low.wrapping_add(0x9e37_79b9);
        key_high = key_high.wrapping_add(0xbb67_ae85);
    }
    counter
}

/// Uniform random number in [0, 1), a multiple of 2^-24, exact in `f32`. Four consecutive indices share a counter
/// value.
pub fn uniform(seed: u64, index: u64) -> f64 {
    f64::from(words(seed, index / 4)[(index % 4) as usize] >> 8) / f64::from(1 << 24)
}

/// Kernel text of [`uniform`]: `draw` for one index, `draws<W>` for W consecutive indices from a multiple of W.
pub const TEXT: &str = r#"
template <int W> __device__ inline Pack<f32, W> draws(u64 seed, u64 index) {
  u32 c0 = (u32)(index / 4), c1 = (u32)(index / 4 >> 32), c2 = 0, c3 = 0, k0 = (u32)seed, k1 = (u32)(seed >> 32);
#pragma unroll
  for (int round = 0; round < 10; round++) {
    u64 a = 0xd2511f53ull * c0, b = 0xcd9e8d57ull * c2;
    c0 = (u32)(b >> 32) ^ c1 ^ k0, c1 = (u32)b;
    c2 = (u32)(a >> 32) ^ c3 ^ k1, c3 = (u32)a;
    k0 += 0x9e3779b9u, k1 += 0xbb67ae85u;
  }
  Pack<f32, W> v;
#pragma unroll
  for (int i = 0; i < W; i++) {
    u32 lane = W == 4 ? i : (u32)(index % 4) + i;
    v.at[i] = (f32)((lane == 0 ? c0 : lane == 1 ? c1 : lane == 2 ? c2 : c3) >> 8) * 5.9604644775390625e-8f;
  }
  return v;
}
__device__ inline f32 draw(u64 seed, u64 index) { return draws<1>(seed, index).at[0]; }
"#;

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares with known answers of Random123, the authors' implementation.
    #[test]
    fn words_are_those_of_the_paper() {
        assert_eq!(words(0, 0), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
    }

    #[test]
    fn draws_are_uniform() {
        let draws: Vec<f64> = (0..100_000).map(|index| uniform(5, index)).collect();
        assert!(draws.iter().all(|draw| (0.0..1.0).contains(draw)));
        let mean = draws.iter().sum::<f64>() / draws.len() as f64;
        let below = draws.iter().filter(|draw| **draw < 0.1).count();
        assert!((mean - 0.5).abs() < 0.005 && (9_500..10_500).contains(&below), "{mean}, {below}");
    }
}
