//! Philox4x32-7, a counter-based generator (Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", 2011): on the
//! CPU, and as kernel text with the same bits.

/// Number of rounds, each with two words of key: the fewest with which the generator passes the paper's statistical tests (BigCrush).
/// `torch` and cuRAND take ten, which would bound the time of 16-bit types.
pub const ROUNDS: usize = 7;

/// Returns the keys of all rounds, with the first word of each in the lower half. The host computes them, since each thread would repeat the
/// additions.
pub fn keys(seed: u64) -> [u64; ROUNDS] {
    let key = |round: usize| {
        let first = (seed as u32).wrapping_add((round as u32).wrapping_mul(0x9e37_79b9));
        let second = ((seed >> 32) as u32).wrapping_add((round as u32).wrapping_mul(0xbb67_ae85));
        u64::from(second) << 32 | u64::from(first)
    };
    std::array::from_fn(key)
}

/// Returns four random words for a counter value `block`; the seed is the key.
pub fn words(seed: u64, block: u64) -> [u32; 4] {
    let halves = |wide: u64| ((wide >> 32) as u32, wide as u32);
    let (high, low) = halves(block);
    let mut counter = [low, high, 0, 0];
    for (second, first) in keys(seed).map(halves) {
        let (high0, low0) = halves(0xd251_1f53 * u64::from(counter[0]));
        let (high1, low1) = halves(0xcd9e_8d57 * u64::from(counter[2]));
        counter = [high1 ^ counter[1] ^ first, low1, high0 ^ counter[3] ^ second, low0];
    }
    counter
}

/// Number of values of a uniform random number in [0, 1), which are multiples of 2^-24, exact in `f32`.
const VALUES: f64 = (1 << 24) as f64;

/// Smallest random word of an element that is kept if elements with a uniform random number below `share` are not; at most the largest word.
pub fn least_kept(share: f64) -> u32 {
    (((share * VALUES).ceil() as u64) << 8).min(u64::from(u32::MAX)) as u32
}

/// True if the element of this index is kept. Four consecutive indices share a counter value.
pub fn keeps(seed: u64, index: u64, least: u32) -> bool {
    words(seed, index / 4)[(index % 4) as usize] >= least
}

/// Kernel text of [`keeps`], as 1 or 0: `kept` for one index, `all_kept<W>` for W consecutive indices from a multiple of W. A comparison of the
/// words takes fewer instructions than conversions to floats, which would bound the time of 16-bit types.
pub const TEXT: &str = r#"
constexpr int PHILOX_ROUNDS = 7;
struct Keys { u32 at[2 * PHILOX_ROUNDS]; };
template <int W> __device__ inline Pack<f32, W> all_kept(const Keys& keys, u32 least, u64 index) {
  u32 c0 = (u32)(index / 4), c1 = (u32)(index / 4 >> 32), c2 = 0, c3 = 0;
#pragma unroll
  for (int round = 0; round < PHILOX_ROUNDS; round++) {
    u64 a = 0xd2511f53ull * c0, b = 0xcd9e8d57ull * c2;
    c0 = (u32)(b >> 32) ^ c1 ^ keys.at[2 * round], c1 = (u32)b;
    c2 = (u32)(a >> 32) ^ c3 ^ keys.at[2 * round + 1], c3 = (u32)a;
  }
  Pack<f32, W> v;
#pragma unroll
  for (int i = 0; i < W; i++) {
    u32 lane = W == 4 ? i : (u32)(index % 4) + i;
    v.at[i] = (lane == 0 ? c0 : lane == 1 ? c1 : lane == 2 ? c2 : c3) >= least ? 1.0f : 0.0f;
  }
  return v;
}
__device__ inline f32 kept(const Keys& keys, u32 least, u64 index) { return all_kept<1>(keys, least, index).at[0]; }
"#;

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares with known answers of Random123, the authors' implementation.
    #[test]
    fn words_are_those_of_the_paper() {
        assert!(TEXT.contains(&format!("constexpr int PHILOX_ROUNDS = {ROUNDS};")));
        assert_eq!(words(0, 0), [0x5f6f_b709, 0x0d89_3f64, 0x4f12_1f81, 0x4f73_0a48]);
    }

    /// The kept elements are those whose words, as numbers in [0, 1) of 24 bits, are at least the share.
    #[test]
    fn a_share_is_not_kept() {
        for share in [0.0, 1.0 / VALUES, 0.1, 0.5, 1.0 - 1.0 / VALUES].map(|share| f64::from(share as f32)) {
            let least = least_kept(share);
            let is_kept = |index: u64| f64::from(words(5, index / 4)[(index % 4) as usize] >> 8) / VALUES >= share;
            let kept = (0..100_000).filter(|&index| keeps(5, index, least)).count() as f64;
            assert!((0..100_000).all(|index| is_kept(index) == keeps(5, index, least)));
            assert!((kept / 1e5 - (1.0 - share)).abs() < 0.005, "{share}: {kept}");
        }
    }
}
