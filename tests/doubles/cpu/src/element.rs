//! Element types of libraries: reading and writing numbers in memory.

/// A type that products and collectives know.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Element {
    I8,
    U8,
    I32,
    U32,
    I64,
    U64,
    F16,
    BF16,
    F32,
    F64,
    E4M3,
    E5M2,
}

impl Element {
    /// `ncclDataType_t`.
    pub fn of_collective(number: i32) -> Option<Element> {
        let all = [
            Element::I8,
            Element::U8,
            Element::I32,
            Element::U32,
            Element::I64,
            Element::U64,
            Element::F16,
            Element::F32,
            Element::F64,
            Element::BF16,
            Element::E4M3,
            Element::E5M2,
        ];
        all.get(usize::try_from(number).ok()?).copied()
    }

    /// `hipDataType`.
    pub fn of_product(number: i32) -> Option<Element> {
        match number {
            0 => Some(Element::F32),
            1 => Some(Element::F64),
            2 => Some(Element::F16),
            3 => Some(Element::I8),
            10 => Some(Element::I32),
            14 => Some(Element::BF16),
            28 => Some(Element::E4M3),
            29 => Some(Element::E5M2),
            _ => None,
        }
    }

    pub fn size(self) -> usize {
        match self {
            Element::I8 | Element::U8 | Element::E4M3 | Element::E5M2 => 1,
            Element::F16 | Element::BF16 => 2,
            Element::I32 | Element::U32 | Element::F32 => 4,
            Element::I64 | Element::U64 | Element::F64 => 8,
        }
    }

    pub fn whole(self) -> bool {
        !matches!(self, Element::F16 | Element::BF16 | Element::F32 | Element::F64) && !self.is_float8()
    }

    pub fn is_float8(self) -> bool {
        matches!(self, Element::E4M3 | Element::E5M2)
    }

    /// Element `index` behind an address, as a double.
    ///
    /// # Safety
    /// It is memory that may be read.
    pub unsafe fn load(self, address: usize, index: usize) -> f64 {
        let at = address + index * self.size();
        // SAFETY: the caller vouches for the memory.
        unsafe {
            match self {
                Element::I8 => f64::from((at as *const i8).read_unaligned()),
                Element::U8 => f64::from((at as *const u8).read_unaligned()),
                Element::I32 => f64::from((at as *const i32).read_unaligned()),
                Element::U32 => f64::from((at as *const u32).read_unaligned()),
                Element::I64 => (at as *const i64).read_unaligned() as f64,
                Element::U64 => (at as *const u64).read_unaligned() as f64,
                Element::F16 => f64::from(half_to_float((at as *const u16).read_unaligned())),
                Element::BF16 => f64::from(f32::from_bits(u32::from((at as *const u16).read_unaligned()) << 16)),
                Element::F32 => f64::from((at as *const f32).read_unaligned()),
                Element::F64 => (at as *const f64).read_unaligned(),
                Element::E4M3 | Element::E5M2 => self.narrow((at as *const u8).read_unaligned()),
            }
        }
    }

    /// Rounds a double and writes it; whole numbers wrap around as the device's do.
    ///
    /// # Safety
    /// It is memory that may be written.
    pub unsafe fn store(self, address: usize, index: usize, value: f64) {
        let at = address + index * self.size();
        // SAFETY: the caller vouches for the memory.
        unsafe {
            match self {
                Element::I8 => (at as *mut i8).write_unaligned(value as i64 as i8),
                Element::U8 => (at as *mut u8).write_unaligned(value as i64 as u8),
                Element::I32 => (at as *mut i32).write_unaligned(value as i64 as i32),
                Element::U32 => (at as *mut u32).write_unaligned(value as i64 as u32),
                Element::I64 => (at as *mut i64).write_unaligned(value as i64),
                Element::U64 => (at as *mut u64).write_unaligned(value as u64),
                Element::F16 => (at as *mut u16).write_unaligned(float_to_half(value as f32)),
                Element::BF16 => (at as *mut u16).write_unaligned(float_to_bfloat(value as f32)),
                Element::F32 => (at as *mut f32).write_unaligned(value as f32),
                Element::F64 => (at as *mut f64).write_unaligned(value),
                Element::E4M3 | Element::E5M2 => (at as *mut u8).write_unaligned(self.nearest(value)),
            }
        }
    }
}

impl Element {
    /// The value of a float of 8 bits.
    fn narrow(self, bits: u8) -> f64 {
        let (fraction, bias, special) = if self == Element::E4M3 { (3, 7, 0x7f) } else { (2, 15, 0x7c) };
        let (magnitude, sign) = (bits & 0x7f, if bits & 0x80 == 0 { 1.0 } else { -1.0 });
        if magnitude >= special {
            return if magnitude == 0x7c { sign * f64::INFINITY } else { f64::NAN };
        }
        let (exponent, rest) = (i32::from(magnitude >> fraction), f64::from(magnitude & ((1 << fraction) - 1)));
        let step = 2f64.powi(exponent.max(1) - bias - fraction);
        let hidden = if exponent == 0 { 0.0 } else { f64::from(1u8 << fraction) };
        sign * step * (hidden + rest)
    }

    /// The float of 8 bits that is nearest, by trying all of them; of two, the even one. NaN or infinity beyond the largest.
    fn nearest(self, value: f64) -> u8 {
        let (sign, last) =
            (if value.is_sign_negative() { 0x80 } else { 0 }, if self == Element::E4M3 { 0x7e } else { 0x7b });
        let size = f64::from(value as f32).abs();
        if size.is_nan() {
            return sign | 0x7f;
        }
        let beyond = self.narrow(last) + (self.narrow(last) - self.narrow(last - 1)) / 2.0;
        if size > beyond || size == beyond && last & 1 == 1 {
            return sign | (last + 1);
        }
        let distance = |bits: &u8| ((self.narrow(*bits) - size).abs(), bits & 1);
        let best = (0..=last).min_by(|a, b| distance(a).partial_cmp(&distance(b)).expect("no NaN"));
        sign | best.expect("there are some")
    }
}

fn half_to_float(bits: u16) -> f32 {
    let (sign, rest) = (u32::from(bits & 0x8000) << 16, u32::from(bits & 0x7fff));
    let magnitude = match rest {
        0..0x400 => (rest as f32 * 2f32.powi(-24)).to_bits(),
        0x400..0x7c00 => (rest << 13) + 0x3800_0000,
        _ => 0x7f80_0000 | (rest & 0x3ff) << 13,
    };
    f32::from_bits(sign | magnitude)
}

fn float_to_half(value: f32) -> u16 {
    let bits = value.to_bits();
    let (sign, rest) = ((bits >> 16 & 0x8000) as u16, bits & 0x7fff_ffff);
    let magnitude = match rest {
        0x7f80_0001.. => 0x7e00,
        // Values that round to 65 536 or more overflow.
        0x477f_f000.. => 0x7c00,
        // A subnormal: adding a half lets the hardware round.
        0..0x3880_0000 => (f32::from_bits(rest) + 0.5).to_bits() - 0x3f00_0000,
        _ => (rest - 0x3800_0000 + 0xfff + (rest >> 13 & 1)) >> 13,
    };
    sign | magnitude as u16
}

fn float_to_bfloat(value: f32) -> u16 {
    let bits = value.to_bits();
    if value.is_nan() {
        return (bits >> 16) as u16 | 0x40;
    }
    ((bits + 0x7fff + (bits >> 16 & 1)) >> 16) as u16
}
