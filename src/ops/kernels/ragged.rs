//! Kernel text that moves rows in packs of 16 bytes, at any alignment.
//!
//! Each pack of the target takes one store. Its elements are loaded as the two aligned packs of the source that hold
//! them, and shifted into place. Therefore rows of any length move at the same speed.

/// Length of a row in elements from which on positions of packs need 64 bits.
pub const MAX_COLUMN: u64 = 1 << 30;

/// Kernel text that defines `read_row`, `fetch_row`, `put_row` and `lead_of` for packs of `V` elements, 16 bytes in all. The macro
/// `CACHED` is the cache operator of stores, a string; without it, the cache keeps what they write.
pub const RAGGED: &str = r#"
// Number of elements between the last multiple of 16 bytes and `row`.
template <typename Element> __device__ inline u32 lead_of(const Element* row) { return (u32)((u64)row / sizeof(Element) % V); }

// Two neighbouring aligned packs, which hold the V elements of an unaligned one.
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

// Reads the V elements of a row of `n` from element `j` on. Elements outside of the row are zero or come from the memory beside
// it: allocations begin and end at multiples of a pack, and packs without an element of the row are not read.
template <typename Element, typename N> __device__ inline Held<Element> read_row(const Element* row, N j, N n) {
  const int low = j < -V ? V : j < 0 ? (int)-j : 0, high = n - j < V ? (int)(n - j) : V;
  Held<Element> held = {};
  held.shift = (u32)((u64)(row + j) % 16);
  // The compiler would use slower generic loads for a pointer made from an integer.
  const Pack<u32, 4>* from = (const Pack<u32, 4>*)((const u8*)(row + j) - held.shift);
  if (low < high && (int)held.shift + low * (int)sizeof(Element) < 16) held.packs[0] = from[0];
  if (low < high && (int)held.shift + high * (int)sizeof(Element) > 16) held.packs[1] = from[1];
  return held;
}

template <typename Element, typename N> __device__ inline Pack<Element, V> fetch_row(const Element* row, N j, N n) {
  return read_row(row, j, n).elements();
}

#ifndef CACHED
#define CACHED ""
#endif
// Writes 16 bytes by one instruction. The compiler would join an assignment with the stores of single elements in another branch.
__device__ inline void store_words(void* to, const u32 (&w)[4]) {
#if defined(__HIPCC_RTC__) || defined(__HIP__)
  Pack<u32, 4> words = {{w[0], w[1], w[2], w[3]}};
  *(Pack<u32, 4>*)to = words;
#else
  asm volatile("st.global" CACHED ".v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(w[0]), "r"(w[1]), "r"(w[2]), "r"(w[3]) : "memory");
#endif
}

__device__ inline void store_word(void* to, u32 word) {
#if defined(__HIPCC_RTC__) || defined(__HIP__)
  *(u32*)to = word;
#else
  asm volatile("st.global.u32 [%0], %1;" ::"l"(to), "r"(word) : "memory");
#endif
}

// Writes the V elements of a row of `n` from element `j` on, which is aligned to a pack.
template <typename Element, typename N> __device__ inline void put_row(Element* row, N j, N n, const Pack<Element, V>& v) {
  if (j >= 0 && j + V <= n) {
    union Words { Pack<Element, V> elements; u32 w[4]; __device__ Words() {} } words;
    words.elements = v;
    store_words(row + j, words.w);
    return;
  }
  const int low = j < 0 ? (int)-j : 0, high = n - j < V ? (int)(n - j) : V;
  Element* to = row + j;
  // Stores of two bytes or more take fewer instructions than a choice between words and elements.
  if (sizeof(Element) >= 2) {
#pragma unroll
    for (int c = 0; c < V; c++) if (c >= low && c < high) to[c] = v.at[c];
    return;
  }
  // Words that belong to the row as a whole, and elements of the others.
  const int each = 4;
  union Words { Pack<Element, V> elements; u32 w[4]; __device__ Words() {} } words;
  words.elements = v;
#pragma unroll
  for (int w = 0; w < 4; w++) {
    if (w * each >= low && (w + 1) * each <= high) {
      store_word(to + w * each, words.w[w]);
    } else {
#pragma unroll
      for (int c = w * each; c < (w + 1) * each; c++) if (c >= low && c < high) to[c] = v.at[c];
    }
  }
}
"#;
