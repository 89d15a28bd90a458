//! Writes a tensor as a NumPy file (format 1.0).

use crate::base::{DType, Dims};

/// NumPy's name of an element type. NumPy has no bf16, so its bits are stored as unsigned integers.
fn descr(dtype: DType) -> &'static str {
    match dtype {
        DType::F64 => "<f8",
        DType::F32 => "<f4",
        DType::F16 => "<f2",
        DType::BF16 => "<u2",
        // The bits, as NumPy has no floats of 8 bits either.
        DType::E4M3 | DType::E5M2 => "|u1",
        DType::I64 => "<i8",
        DType::I32 => "<i4",
        DType::I8 => "|i1",
        DType::U8 => "|u1",
    }
}

/// The file of a tensor whose elements are contiguous in `bytes`.
pub fn npy(dtype: DType, dims: &Dims, bytes: &[u8]) -> Vec<u8> {
    let sizes: String = dims.iter().map(|size| format!("{size},")).collect();
    let mut header = format!("{{'descr': '{}', 'fortran_order': False, 'shape': ({sizes}), }}", descr(dtype));
    // The data begins at a multiple of 64 bytes, after the magic number, version, length and header.
    let before = 10;
    let padding = (64 - (before + header.len() + 1) % 64) % 64;
    header.extend(std::iter::repeat_n(' ', padding));
    header.push('\n');
    let mut file = b"\x93NUMPY\x01\x00".to_vec();
    file.extend((header.len() as u16).to_le_bytes());
    file.extend(header.as_bytes());
    file.extend(bytes);
    file
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_is_padded() {
        let file = npy(DType::F32, &Dims::from([2, 3]), &[0; 24]);
        assert_eq!((file.len() - 24) % 64, 0);
        let header = String::from_utf8_lossy(&file[10..file.len() - 24]).into_owned();
        assert!(header.starts_with("{'descr': '<f4', 'fortran_order': False, 'shape': (2,3,), }"), "{header}");
        assert!(header.ends_with('\n'));
    }
}
