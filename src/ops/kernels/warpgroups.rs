//! Kernel text of Hopper's warpgroup products (PTX ISA, "wgmma.mma_async").
//!
//! The right factor is in shared memory, the left one there or in registers. Products are asynchronous: threads can
//! compute something else until they wait for the result.

use crate::base::DType;

/// Factors in shared memory, as columns of 64 elements with the swizzle of [`super::mma`], which these instructions
/// support. The text needs [`super::mma::FUNCTIONS`] and the definition of `WARPGROUPS`.
///
/// - `Columns<ROWS, WIDTH>`: consecutive tiles of 64 columns.
/// - `load_in_columns`: copies rows to `Columns`, by `load_rows` or `load_matrix`. It writes nothing behind the last of `WIDTH` columns.
/// - `described<ROWS>`: the matrix descriptor of a factor: its address, the 128-byte swizzle, groups of eight rows, and
///   a stride of `ROWS` rows to the next 64 columns.
/// - `behind`: the descriptor of the factor that begins this number of elements after another, a multiple of eight.
/// - `written_before`: makes writes of threads to shared memory visible to these products.
/// - `multiply_begin`: comes before the products of a group.
/// - `multiply_end`: ends a group of products.
/// - `multiply_wait<N>`: waits until at most `N` groups are in flight.
/// - `settled`: prevents the compiler from moving code that computes these sums behind it, or code that reads them
///   before it.
const FUNCTIONS: &str = r#"
template <int ROWS, int SIZE> struct Columns {
  u16* at;
  __device__ inline Tile<ROWS, 64> operator[](u32 column) const { return {at + column / 64 * (ROWS * 64)}; }
};
__device__ inline u32 left_of(u32 end, u32 from) { return from < end ? end - from : 0; }
template <int LOADERS, bool BY_PACKS, typename T, int ROWS, int SIZE, typename F>
__device__ inline void load_in_columns(const Columns<ROWS, SIZE>& tiles, F row, u32 width, i64 step) {
  u32 first = 0;
  auto part = [&](u32 r) {
    const T* from = row(r);
    return from ? from + first * step : from;
  };
#pragma unroll
  for (; first + 64 <= SIZE; first += 64) load_rows<LOADERS, BY_PACKS, ROWS, 64, T>(tiles[first], part, left_of(width, first), step);
  if (first < SIZE) load_rows<LOADERS, BY_PACKS, ROWS, SIZE % 64 ? SIZE % 64 : 64, T>(tiles[first], part, left_of(width, first), step);
}
template <int LOADERS, bool BY_PACKS, typename T, int ROWS, int SIZE>
__device__ inline void load_in_columns(const Columns<ROWS, SIZE>& tiles, const T* from, i64 stride, u32 rows, u32 width, i64 step) {
  u32 first = 0;
#pragma unroll
  for (; first + 64 <= SIZE; first += 64)
    load_matrix<LOADERS, BY_PACKS>(tiles[first], from + first * step, stride, rows, left_of(width, first), step);
  if (first < SIZE)
    load_matrix<LOADERS, BY_PACKS, SIZE % 64>(tiles[first], from + first * step, stride, rows, left_of(width, first), step);
}
#if WARPGROUPS
template <int ROWS> __device__ inline u64 described(const u16* at) {
  return (u64)(shared_address(at) >> 4 & 0x3fff) | (u64)(ROWS * 128 >> 4) << 16 | (u64)(1024 >> 4) << 32 | 1ull << 62;
}
__device__ inline u64 behind(u64 described, u32 elements) { return described >> 32 << 32 | ((u32)described + elements / 8); }
__device__ inline void written_before() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
__device__ inline void multiply_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void multiply_end() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int N> __device__ inline void multiply_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" :: "n"(N) : "memory");
}
template <int TILES> __device__ inline void settled(Sums (&s)[TILES]) {
#pragma unroll
  for (int n = 0; n < TILES; n++)
#pragma unroll
    for (int i = 0; i < 8; i++) asm volatile("" : "+f"(s[n].at[i / 4][i % 4]) :: "memory");
}
"#;

/// The text of [`FUNCTIONS`] and of products, each by [`product`].
pub fn functions(products: &[String]) -> String {
    format!("{FUNCTIONS}{}#endif\n", products.concat())
}

/// Returns kernel text that defines `name`, a function that adds the product of 64 rows and `columns` columns, 16 terms
/// deep, to sums. If its last argument is false, it sets the sums instead. `left` is true if the left factor is in
/// shared memory in column-major order, false if in row-major order, and `None` if it is in registers. `by_rows` is
/// true if the right factor is in row-major order.
pub fn product(name: &str, dtype: DType, columns: u64, left: Option<bool>, by_rows: bool) -> String {
    let tiles = columns / 16;
    let places = (0..tiles).flat_map(|tile| (0..8).map(move |place| (tile, place)));
    // In the order of the instruction's registers: pairs of columns, of one row and of the row eight below.
    let sums = places.map(|(tile, place)| {
        let (half, row, column) = (place / 4, place / 2 % 2, place % 2);
        format!("\"+f\"(s[{tile}].at[{row}][{}])", half * 2 + column)
    });
    let sums: Vec<String> = sums.collect();
    let count = sums.len();
    let names = |range: std::ops::Range<usize>| range.map(|index| format!("%{index}")).collect::<Vec<_>>().join(", ");
    let registers = "\"r\"(a.at[0]), \"r\"(a.at[1]), \"r\"(a.at[2]), \"r\"(a.at[3])";
    let (parameter, factor, operand, turns) = match left {
        Some(turned) => ("u64 a", format!("%{count}"), "\"l\"(a)", format!("{}, ", u32::from(turned))),
        None => ("const Factor& a", format!("{{{}}}", names(count..count + 4)), registers, String::new()),
    };
    let next = count + if left.is_some() { 1 } else { 4 };
    format!(
        "__device__ inline void {name}(Sums (&s)[{tiles}], {parameter}, u64 b, bool add) {{\n  asm volatile(\"{{\\n.reg .pred \
         p;\\nsetp.ne.b32 p, %{}, 0;\\n\"\n    \"wgmma.mma_async.sync.aligned.m64n{columns}k16.f32.{dtype}.{dtype} {{{}}}, \
         {factor}, %{next}, p, 1, 1, {turns}{};\\n}}\"\n    : {}\n    : {operand}, \"l\"(b), \"r\"((u32)add));\n}}\n",
        next + 1,
        names(0..count),
        u32::from(by_rows),
        sums.join(", "),
        dtype = dtype.name(),
    )
}
