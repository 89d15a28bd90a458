//! Kernel text that moves packs of 16 bytes of rows that begin anywhere in memory.
//!
//! A pack of the target is written as one, and its elements are read as the two aligned packs of the source that hold them,
//! shifted together. So rows whose length no pack divides move as fast as others.

/// Kernel text that defines `read_row`, `fetch_row`, `put_row` and `lead_of` for packs of `V` elements, which make 16 bytes.
pub const RAGGED: &str = r#"
// Elements from the last multiple of 16 bytes to `row`.
template <typename Element> __device__ inline u32 lead_of(const Element* row) { return (u32)((u64)row / sizeof(Element) % V); }

// Two aligned packs that together hold V elements, before the shift.
template <typename Element> struct Held {
  Pack<u32, 4> packs[2];
  u32 shift;
  __device__ inline Pack<Element, V> elements() const {
    union Words { u32 w[8]; Pack<u32, 4> packs[2]; Pack<Element, V> elements; __device__ Words() {} } words;
    words.packs[0] = packs[0];
    words.packs[1] = packs[1];
    if (shift & 8) {
#pragma unroll
      for (int i = 0; i < 6; i++) words.w[i] = words.w[i + 2];
    }
    if (sizeof(Element) < 8 && shift & 4) {
#pragma unroll
      for (int i = 0; i < 5; i++) words.w[i] = words.w[i + 1];
    }
    if (sizeof(Element) < 4) {
#pragma unroll
      for (int i = 0; i < 4; i++) words.w[i] = (u32)(((u64)words.w[i + 1] << 32 | words.w[i]) >> shift % 4 * 8);
    }
    return words.elements;
  }
};

// Reads the elements from `j` on of a row of `n`. Those outside of the row are zero or come from beside it: memory neither
// begins nor ends between two packs, and a pack without any element of the row is not read.
template <typename Element> __device__ inline Held<Element> read_row(const Element* row, i64 j, i64 n) {
  const int low = j < -V ? V : j < 0 ? (int)-j : 0, high = n - j < V ? (int)(n - j) : V;
  Held<Element> held = {};
  held.shift = (u32)((u64)(row + j) % 16);
  // A number that became a pointer would be read as one into any memory, which takes longer.
  const Pack<u32, 4>* from = (const Pack<u32, 4>*)((const u8*)(row + j) - held.shift);
  if (low < high && (int)held.shift + low * (int)sizeof(Element) < 16) held.packs[0] = from[0];
  if (low < high && (int)held.shift + high * (int)sizeof(Element) > 16) held.packs[1] = from[1];
  return held;
}

template <typename Element> __device__ inline Pack<Element, V> fetch_row(const Element* row, i64 j, i64 n) {
  return read_row(row, j, n).elements();
}

// Writes the elements from `j` on, where a pack begins, of a row of `n`.
template <typename Element> __device__ inline void put_row(Element* row, i64 j, i64 n, const Pack<Element, V>& v) {
  if (j >= 0 && j + V <= n) {
    *(Pack<Element, V>*)(row + j) = v;
    return;
  }
  const int low = j < 0 ? (int)-j : 0, high = n - j < V ? (int)(n - j) : V;
  Element* to = row + j;
#pragma unroll
  for (int c = 0; c < V; c++) if (c >= low && c < high) to[c] = v.at[c];
}
"#;
