//! Element types of tensors, and their exact conversion from and to `f64`.

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

use super::float8::{E4M3, E5M2};
use super::named::named;

named! {
    /// Type of a tensor's elements.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub enum DType {
        F64 = "f64",
        F32 = "f32",
        F16 = "f16",
        BF16 = "bf16",
        /// `float8_e4m3fn` of PyTorch.
        E4M3 = "e4m3",
        /// `float8_e5m2` of PyTorch.
        E5M2 = "e5m2",
        I64 = "i64",
        I32 = "i32",
        I8 = "i8",
        U8 = "u8",
    }
}

impl DType {
    /// Bytes of one element.
    pub fn size(self) -> u64 {
        match self {
            DType::F64 | DType::I64 => 8,
            DType::F32 | DType::I32 => 4,
            DType::F16 | DType::BF16 => 2,
            DType::E4M3 | DType::E5M2 | DType::I8 | DType::U8 => 1,
        }
    }

    /// True if the type is a floating-point type.
    pub fn is_float(self) -> bool {
        matches!(self, DType::F64 | DType::F32 | DType::F16 | DType::BF16) || self.is_float8()
    }

    /// True if the type is a floating-point type of 8 bits.
    pub fn is_float8(self) -> bool {
        matches!(self, DType::E4M3 | DType::E5M2)
    }

    /// Type of the gradient of a tensor of this type: the type itself, or `f32` for 8-bit floats, whose range is too small for
    /// gradients without a scale.
    pub fn gradient(self) -> DType {
        if self.is_float8() { DType::F32 } else { self }
    }

    /// Byte that fills uninitialized memory. As an element it is NaN or -1, which no correct operation produces.
    pub const POISON: u8 = 0xff;

    /// Unit roundoff: half the distance between 1 and the next larger value. Zero for integers.
    pub fn epsilon(self) -> f64 {
        match self {
            DType::F64 => f64::EPSILON / 2.0,
            DType::F32 => f64::from(f32::EPSILON) / 2.0,
            DType::F16 => 2f64.powi(-11),
            DType::BF16 => 2f64.powi(-8),
            DType::E4M3 => 2f64.powi(-4),
            DType::E5M2 => 2f64.powi(-3),
            DType::I64 | DType::I32 | DType::I8 | DType::U8 => 0.0,
        }
    }

    /// Smallest positive normal number. Zero for integers.
    pub fn smallest(self) -> f64 {
        match self {
            DType::F64 => f64::MIN_POSITIVE,
            DType::F32 => f64::from(f32::MIN_POSITIVE),
            DType::F16 => f16::MIN_POSITIVE.to_f64(),
            DType::BF16 => bf16::MIN_POSITIVE.to_f64(),
            DType::E4M3 => E4M3.smallest(),
            DType::E5M2 => E5M2.smallest(),
            DType::I64 | DType::I32 | DType::I8 | DType::U8 => 0.0,
        }
    }

    /// Largest finite number of a floating-point type. Zero for integers.
    pub fn largest(self) -> f64 {
        match self {
            DType::F64 => f64::MAX,
            DType::F32 => f64::from(f32::MAX),
            DType::F16 => f16::MAX.to_f64(),
            DType::BF16 => bf16::MAX.to_f64(),
            DType::E4M3 => E4M3.largest(),
            DType::E5M2 => E5M2.largest(),
            DType::I64 | DType::I32 | DType::I8 | DType::U8 => 0.0,
        }
    }

    /// Loads the element at `bytes[0]`. Every value is exact in `f64`, except for those of `i64` beyond 2^53, which are rounded.
    pub fn load(self, bytes: &[u8]) -> f64 {
        match self {
            DType::F64 => f64::from_le_bytes(take(bytes)),
            DType::F32 => f64::from(f32::from_le_bytes(take(bytes))),
            DType::F16 => f16::from_le_bytes(take(bytes)).to_f64(),
            DType::BF16 => bf16::from_le_bytes(take(bytes)).to_f64(),
            DType::E4M3 => E4M3.load(bytes[0]),
            DType::E5M2 => E5M2.load(bytes[0]),
            DType::I64 => i64::from_le_bytes(take(bytes)) as f64,
            DType::I32 => f64::from(i32::from_le_bytes(take(bytes))),
            DType::I8 => f64::from(bytes[0] as i8),
            DType::U8 => f64::from(bytes[0]),
        }
    }

    /// Loads consecutive elements into `values`, as many as the shorter of the two slices holds.
    pub fn load_all(self, bytes: &[u8], values: &mut [f64]) {
        // Each type has a loop of its own, so that the compiler can vectorize it.
        match self {
            DType::F64 => load_each(bytes, values, |element| DType::F64.load(element), 8),
            DType::F32 => load_each(bytes, values, |element| DType::F32.load(element), 4),
            DType::F16 => load_each(bytes, values, |element| DType::F16.load(element), 2),
            DType::BF16 => load_each(bytes, values, |element| DType::BF16.load(element), 2),
            DType::E4M3 => load_each(bytes, values, |element| DType::E4M3.load(element), 1),
            DType::E5M2 => load_each(bytes, values, |element| DType::E5M2.load(element), 1),
            DType::I64 => load_each(bytes, values, |element| DType::I64.load(element), 8),
            DType::I32 => load_each(bytes, values, |element| DType::I32.load(element), 4),
            DType::I8 => load_each(bytes, values, |element| DType::I8.load(element), 1),
            DType::U8 => load_each(bytes, values, |element| DType::U8.load(element), 1),
        }
    }

    /// Returns the value that [`DType::load`] reads after [`DType::store`] has written this one.
    pub fn round(self, value: f64) -> f64 {
        match self {
            DType::F64 => value,
            DType::F32 => f64::from(value as f32),
            DType::F16 => f16::from_f32(value as f32).to_f64(),
            DType::BF16 => bf16::from_f32(value as f32).to_f64(),
            DType::E4M3 => E4M3.load(E4M3.store(value)),
            DType::E5M2 => E5M2.load(E5M2.store(value)),
            DType::I64 => value as i64 as f64,
            DType::I32 => f64::from(value as i32),
            DType::I8 => f64::from(value as i8),
            DType::U8 => f64::from(value as u8),
        }
    }

    /// Stores `value` at `bytes[0]`. Floats round to nearest even (through `f32` for narrower types, as GPU kernels do);
    /// integers truncate and saturate; NaN becomes 0 in them.
    pub fn store(self, value: f64, bytes: &mut [u8]) {
        match self {
            DType::F64 => bytes[..8].copy_from_slice(&value.to_le_bytes()),
            DType::F32 => bytes[..4].copy_from_slice(&(value as f32).to_le_bytes()),
            DType::F16 => bytes[..2].copy_from_slice(&f16::from_f32(value as f32).to_le_bytes()),
            DType::BF16 => bytes[..2].copy_from_slice(&bf16::from_f32(value as f32).to_le_bytes()),
            DType::E4M3 => bytes[0] = E4M3.store(value),
            DType::E5M2 => bytes[0] = E5M2.store(value),
            DType::I64 => bytes[..8].copy_from_slice(&(value as i64).to_le_bytes()),
            DType::I32 => bytes[..4].copy_from_slice(&(value as i32).to_le_bytes()),
            DType::I8 => bytes[0] = (value as i8) as u8,
            DType::U8 => bytes[0] = value as u8,
        }
    }

    /// Stores consecutive elements, as many as the shorter of the two slices holds, each as [`DType::store`] does.
    pub fn store_all(self, values: &[f64], bytes: &mut [u8]) {
        // Each type has a loop of its own, as in `load_all`.
        match self {
            DType::F64 => store_each(values, bytes, |value, element| DType::F64.store(value, element), 8),
            DType::F32 => store_each(values, bytes, |value, element| DType::F32.store(value, element), 4),
            DType::F16 => store_halves(values, bytes),
            DType::BF16 => store_each(values, bytes, |value, element| DType::BF16.store(value, element), 2),
            DType::E4M3 => store_each(values, bytes, |value, element| DType::E4M3.store(value, element), 1),
            DType::E5M2 => store_each(values, bytes, |value, element| DType::E5M2.store(value, element), 1),
            DType::I64 => store_each(values, bytes, |value, element| DType::I64.store(value, element), 8),
            DType::I32 => store_each(values, bytes, |value, element| DType::I32.store(value, element), 4),
            DType::I8 => store_each(values, bytes, |value, element| DType::I8.store(value, element), 1),
            DType::U8 => store_each(values, bytes, |value, element| DType::U8.store(value, element), 1),
        }
    }

    /// Returns the type of an operation on two values. Two floats give the wider one, or `f32` if they differ but have
    /// equal size. A float and an integer give the float. Different integers give `i64` if one of them is `i64`,
    /// otherwise `i32`.
    pub fn promote(self, other: DType) -> DType {
        use DType::*;
        if self == other {
            return self;
        }
        match (self.is_float(), other.is_float()) {
            (true, false) => self,
            (false, true) => other,
            (true, true) => match (self, other) {
                (F64, _) | (_, F64) => F64,
                (wide, narrow) | (narrow, wide) if narrow.is_float8() && !wide.is_float8() => wide,
                _ => F32,
            },
            (false, false) if self == I64 || other == I64 => I64,
            (false, false) => I32,
        }
    }

    /// Type of elementwise arithmetic: `f32`, or `f64` if `f32` cannot hold the values.
    pub fn compute(self) -> DType {
        match self {
            DType::F64 | DType::I64 | DType::I32 => DType::F64,
            _ => DType::F32,
        }
    }
}

#[inline(always)]
fn load_each(bytes: &[u8], values: &mut [f64], load: impl Fn(&[u8]) -> f64, size: usize) {
    for (value, element) in values.iter_mut().zip(bytes.chunks_exact(size)) {
        *value = load(element);
    }
}

#[inline(always)]
fn store_each(values: &[f64], bytes: &mut [u8], store: impl Fn(f64, &mut [u8]), size: usize) {
    for (value, element) in values.iter().zip(bytes.chunks_exact_mut(size)) {
        store(*value, element);
    }
}

/// Stores `f16` elements in batches: a call per element would test for the CPU's instructions each time.
fn store_halves(values: &[f64], bytes: &mut [u8]) {
    const CHUNK: usize = 64;
    let (mut singles, mut halves) = ([0.0; CHUNK], [f16::ZERO; CHUNK]);
    for (values, bytes) in values.chunks(CHUNK).zip(bytes.chunks_mut(2 * CHUNK)) {
        let count = values.len().min(bytes.len() / 2);
        for (single, value) in singles[..count].iter_mut().zip(values) {
            *single = *value as f32;
        }
        halves[..count].convert_from_f32_slice(&singles[..count]);
        for (half, element) in halves[..count].iter().zip(bytes.chunks_exact_mut(2)) {
            element.copy_from_slice(&half.to_le_bytes());
        }
    }
}

fn take<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&bytes[..N]);
    out
}

impl std::fmt::Display for DType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounding_is_storing_and_loading() {
        let values =
            [0.0, -0.0, 0.1, -2.5, 254.999, 255.5, -129.0, 65519.9, 65520.0, 1e-8, 3e9, 1e39, f64::INFINITY, f64::NAN];
        for dtype in DType::ALL {
            for value in values {
                let mut bytes = [0; 8];
                dtype.store(value, &mut bytes);
                let mut stored = [0; 8];
                dtype.store_all(&[value], &mut stored);
                let size = dtype.size() as usize;
                assert_eq!(stored[..size], bytes[..size], "{dtype} {value}");
                let mut loaded = [0.0];
                dtype.load_all(&bytes, &mut loaded);
                assert_eq!(dtype.round(value).to_bits(), loaded[0].to_bits(), "{dtype} {value}");
                assert_eq!(dtype.load(&bytes).to_bits(), loaded[0].to_bits(), "{dtype} {value}");
            }
        }
    }

    /// Slices of any length load and store as their elements do one by one.
    #[test]
    fn store_all_agrees_with_store() {
        let values: Vec<f64> = (0..300).map(|index| f64::from(index * index - 7_000) * 0.37).collect();
        for dtype in DType::ALL {
            let size = dtype.size() as usize;
            for count in [0, 1, 63, 64, 65, 300] {
                let (mut each, mut all) = (vec![0; count * size], vec![0; count * size]);
                each.chunks_exact_mut(size).zip(&values).for_each(|(bytes, value)| dtype.store(*value, bytes));
                dtype.store_all(&values[..count], &mut all);
                assert_eq!(each, all, "{count} of {dtype}");
            }
        }
    }

    #[test]
    fn integers_saturate() {
        let mut bytes = [0; 8];
        DType::U8.store(300.0, &mut bytes);
        assert_eq!(DType::U8.load(&bytes), 255.0);
        DType::I8.store(-1000.0, &mut bytes);
        assert_eq!(DType::I8.load(&bytes), -128.0);
        DType::I32.store(f64::NAN, &mut bytes);
        assert_eq!(DType::I32.load(&bytes), 0.0);
    }
}
