//! The C++ prelude of generated kernels, and functions that assemble kernels.
//!
//! The same text serves CUDA and HIP. It includes no headers: NVRTC has none if only its wheel is installed, and those
//! of hipRTC depend on the version. Therefore the 16-bit types are converted by compiler intrinsics.

use std::sync::Arc;

use crate::base::DType;

use crate::ops::{Arg, Geometry, Kernel, KernelSource, Launch, Shared, Spec};

/// Default number of threads of a block.
pub const BLOCK: u32 = 256;

/// Types and conversions. `C` is the type of the arithmetic. For kernels declared in a file, this is the whole
/// prelude.
pub const TYPES: &str = r#"
typedef unsigned char u8;
typedef signed char i8;
typedef int i32;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;
typedef float f32;
typedef double f64;
struct f16 { unsigned short bits; };
struct bf16 { unsigned short bits; };
struct e4m3 { unsigned char bits; };
struct e5m2 { unsigned char bits; };

#if defined(__HIPCC_RTC__) || defined(__HIP__)
#define WHOLE_CLOCK() wall_clock64()
#define SHUFFLE_XOR(value, mask) __shfl_xor(value, mask)
__device__ inline f32 half_to_float(unsigned short bits) { union { unsigned short u; _Float16 h; } v; v.u = bits; return (f32)v.h; }
__device__ inline unsigned short float_to_half(f32 x) { union { unsigned short u; _Float16 h; } v; v.h = (_Float16)x; return v.u; }
#else
__device__ inline u64 global_timer() { u64 t; asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t)); return t; }
#define WHOLE_CLOCK() global_timer()
#define SHUFFLE_XOR(value, mask) __shfl_xor_sync(0xffffffffu, value, mask)
__device__ inline f32 half_to_float(unsigned short bits) { f32 x; asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits)); return x; }
__device__ inline unsigned short float_to_half(f32 x) { unsigned short bits; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x)); return bits; }
#endif

__device__ inline f32 bits_to_float(u32 bits) { union { u32 u; f32 f; } v; v.u = bits; return v.f; }
// Avoids a division by zero, which would be compiled to a call.
#define INFINITE bits_to_float(0x7f800000u)
__device__ inline u32 float_to_bits(f32 x) { union { u32 u; f32 f; } v; v.f = x; return v.u; }

template <typename C> __device__ inline C load(f64 x) { return (C)x; }
template <typename C> __device__ inline C load(f32 x) { return (C)x; }
template <typename C> __device__ inline C load(f16 x) { return (C)half_to_float(x.bits); }
template <typename C> __device__ inline C load(bf16 x) { return (C)bits_to_float((u32)x.bits << 16); }
__device__ inline f32 e4m3_to_float(u32 bits) {
  const u32 magnitude = bits & 0x7fu;
  const f32 small = (f32)magnitude * bits_to_float((127u - 9u) << 23), normal = bits_to_float((magnitude << 20) + (120u << 23));
  const f32 value = magnitude == 0x7fu ? bits_to_float(0x7fc00000u) : magnitude < 8u ? small : normal;
  return bits & 0x80u ? -value : value;
}
// Returns the bits of an 8-bit float with FRACTION bits of fraction and 2^LEAST as the smallest normal number. Rounds
// to nearest even; values above LARGEST become ABOVE.
template <int FRACTION, int LEAST, u32 LARGEST, u32 ABOVE> __device__ inline u32 float_to_narrow(f32 x) {
  const u32 bits = float_to_bits(x), sign = bits >> 24 & 0x80u, magnitude = bits & 0x7fffffffu, smallest = (u32)(127 + LEAST) << 23;
  const int shift = 23 - FRACTION;
  if (magnitude > 0x7f800000u) return sign | 0x7fu;
  // Adding this number aligns the last bit with the last bit of a subnormal number.
  const u32 place = (u32)(150 + LEAST - FRACTION) << 23;
  const u32 small = float_to_bits(bits_to_float(magnitude) + bits_to_float(place)) - place;
  const u32 normal = ((magnitude + (1u << (shift - 1)) - 1u + (magnitude >> shift & 1u)) >> shift) - (smallest >> shift) + (1u << FRACTION);
  const u32 rounded = magnitude < smallest ? small : normal;
  return sign | (rounded > LARGEST ? ABOVE : rounded);
}
template <typename C> __device__ inline C load(e4m3 x) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  u32 halves;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"((unsigned short)x.bits));
  return (C)half_to_float((unsigned short)halves);
#else
  return (C)e4m3_to_float(x.bits);
#endif
}
// An `e5m2` number is the upper half of an `f16`.
template <typename C> __device__ inline C load(e5m2 x) { return (C)half_to_float((unsigned short)(x.bits << 8)); }
template <typename C> __device__ inline C load(i64 x) { return (C)x; }
template <typename C> __device__ inline C load(i32 x) { return (C)x; }
template <typename C> __device__ inline C load(i8 x) { return (C)x; }
template <typename C> __device__ inline C load(u8 x) { return (C)x; }

template <typename C> __device__ inline void store(f64& to, C x) { to = (f64)x; }
template <typename C> __device__ inline void store(f32& to, C x) { to = (f32)x; }
template <typename C> __device__ inline void store(f16& to, C x) { to.bits = float_to_half((f32)x); }
template <typename C> __device__ inline void store(bf16& to, C x) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(to.bits) : "f"((f32)x));
#else
  u32 bits = float_to_bits((f32)x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) { to.bits = (unsigned short)((bits >> 16) | 0x40u); return; }
  to.bits = (unsigned short)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
#endif
}
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
// The device's conversion saturates. Values that round to more than the largest number become NaN or infinity instead.
template <typename C> __device__ inline void store(e4m3& to, C x) {
  unsigned short two;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(two) : "f"(0.0f), "f"((f32)x));
  to.bits = (unsigned char)(fabsf((f32)x) > 464.0f ? two | 0x7fu : two);
}
template <typename C> __device__ inline void store(e5m2& to, C x) {
  unsigned short two;
  asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(two) : "f"(0.0f), "f"((f32)x));
  to.bits = (unsigned char)(fabsf((f32)x) >= 61440.0f ? (two & 0x80u) | 0x7cu : two);
}
#else
template <typename C> __device__ inline void store(e4m3& to, C x) { to.bits = (unsigned char)float_to_narrow<3, -6, 0x7e, 0x7f>((f32)x); }
template <typename C> __device__ inline void store(e5m2& to, C x) { to.bits = (unsigned char)float_to_narrow<2, -14, 0x7b, 0x7c>((f32)x); }
#endif
// Truncates and saturates; NaN becomes 0. The bounds are exact in either type.
template <typename C> __device__ inline i32 whole(C x, C low, C high, i32 above) {
  return x >= high ? above : x <= low ? (i32)low : x == x ? (i32)x : 0;
}
template <typename C> __device__ inline void store(i64& to, C x) {
  const i64 above = 9223372036854775807ll;
  to = x >= C(9223372036854775808.0) ? above : x <= C(-9223372036854775808.0) ? -above - 1 : x == x ? (i64)x : 0;
}
template <typename C> __device__ inline void store(i32& to, C x) { to = whole(x, C(-2147483648.0), C(2147483648.0), 2147483647); }
template <typename C> __device__ inline void store(i8& to, C x) { to = (i8)whole(x, C(-128.0), C(127.0), 127); }
template <typename C> __device__ inline void store(u8& to, C x) { to = (u8)whole(x, C(0.0), C(255.0), 255); }
#define GLOBAL_INDEX ((u64)blockIdx.x * blockDim.x + threadIdx.x)
"#;

/// Elementwise functions, and iteration over memory.
const FUNCTIONS: &str = r#"
#define UNARY(name, single, twice) \
  __device__ inline f32 f_##name(f32 x) { return single; } \
  __device__ inline f64 f_##name(f64 x) { return twice; }
#define BINARY(name, single, twice) \
  __device__ inline f32 f_##name(f32 x, f32 y) { return single; } \
  __device__ inline f64 f_##name(f64 x, f64 y) { return twice; }
UNARY(abs, fabsf(x), fabs(x))
UNARY(ceil, ceilf(x), ceil(x))
UNARY(cos, cosf(x), cos(x))
UNARY(erf, erff(x), erf(x))
UNARY(exp, expf(x), exp(x))
UNARY(floor, floorf(x), floor(x))
UNARY(gelu, 0.5f * x * (1.0f + erff(x * 0.70710678118654752f)), 0.5 * x * (1.0 + erf(x * 0.70710678118654752)))
UNARY(log, logf(x), log(x))
UNARY(log2, log2f(x), log2(x))
UNARY(negate, -x, -x)
UNARY(not_, x == 0.0f ? 1.0f : 0.0f, x == 0.0 ? 1.0 : 0.0)
UNARY(relu, x < 0.0f ? 0.0f : x, x < 0.0 ? 0.0 : x)
UNARY(round, rintf(x), rint(x))
UNARY(rsqrt, rsqrtf(x), 1.0 / sqrt(x))
UNARY(sigmoid, __fdividef(1.0f, 1.0f + expf(-x)), 1.0 / (1.0 + exp(-x)))
UNARY(silu, __fdividef(x, 1.0f + expf(-x)), x / (1.0 + exp(-x)))
UNARY(sin, sinf(x), sin(x))
UNARY(sqrt, sqrtf(x), sqrt(x))
UNARY(tanh, tanhf(x), tanh(x))
BINARY(add, x + y, x + y)
BINARY(subtract, x - y, x - y)
BINARY(multiply, x * y, x * y)
BINARY(divide, x / y, x / y)
BINARY(remainder, x - y * floorf(x / y), x - y * floor(x / y))
BINARY(max, x > y || !(x == x) ? x : y, x > y || !(x == x) ? x : y)
BINARY(min, x < y || !(x == x) ? x : y, x < y || !(x == x) ? x : y)
BINARY(pow, powf(x, y), pow(x, y))
BINARY(equal, x == y ? 1.0f : 0.0f, x == y ? 1.0 : 0.0)
BINARY(not_equal, x != y ? 1.0f : 0.0f, x != y ? 1.0 : 0.0)
BINARY(less, x < y ? 1.0f : 0.0f, x < y ? 1.0 : 0.0)
BINARY(less_equal, x <= y ? 1.0f : 0.0f, x <= y ? 1.0 : 0.0)
BINARY(greater, x > y ? 1.0f : 0.0f, x > y ? 1.0 : 0.0)
BINARY(greater_equal, x >= y ? 1.0f : 0.0f, x >= y ? 1.0 : 0.0)
BINARY(and_, x != 0.0f && y != 0.0f ? 1.0f : 0.0f, x != 0.0 && y != 0.0 ? 1.0 : 0.0)
BINARY(or_, x != 0.0f || y != 0.0f ? 1.0f : 0.0f, x != 0.0 || y != 0.0 ? 1.0 : 0.0)

// Sizes of an iteration over memory, and the strides of each of N tensors.
template <int RANK, int N> struct Geometry {
  u64 dims[RANK];
  i64 strides[N][RANK];
  // Offset of element `index` in tensor `which`.
  template <typename I> __device__ inline i64 offset(I index, int which) const {
    i64 at = 0;
#pragma unroll
    for (int axis = RANK - 1; axis >= 0; axis--) {
      I rest = axis > 0 ? index / (I)dims[axis] : 0;
      at += (i64)(index - rest * (I)dims[axis]) * strides[which][axis];
      index = rest;
    }
    return at;
  }
  // Computes the offsets in all tensors with one division per dimension.
  template <typename I> __device__ inline void offsets(I index, i64 (&at)[N]) const {
#pragma unroll
    for (int which = 0; which < N; which++) at[which] = 0;
#pragma unroll
    for (int axis = RANK - 1; axis >= 0; axis--) {
      I rest = axis > 0 ? index / (I)dims[axis] : 0;
      I own = index - rest * (I)dims[axis];
#pragma unroll
      for (int which = 0; which < N; which++) at[which] += (i64)own * strides[which][axis];
      index = rest;
    }
  }
};

// V neighbouring elements, which are loaded and stored together.
template <typename T, int V> struct alignas(sizeof(T) * V) Pack { T at[V]; };

#define BOUNDS
"#;

/// Kernel text that defines `exp_below`, the exponential of a difference to a maximum, as a power of two. Its argument is at
/// most zero, so a rounding error of the argument is no larger than that of the difference.
pub const EXP_BELOW: &str = r#"
#if defined(__CUDA_ARCH__)
__device__ inline f32 power_of_two(f32 x) { f32 y; asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x)); return y; }
#else
__device__ inline f32 power_of_two(f32 x) { return exp2f(x); }
#endif
__device__ inline f32 exp_below(f32 x) { return power_of_two(x * 1.4426950408889634f); }
__device__ inline f64 exp_below(f64 x) { return exp(x); }
"#;

/// Kernel text of packs that are loaded before they are used.
pub const HELD_PACK: &str = r#"
// A pack in registers. Elements of two bytes are held two to a register: if a branch loads them, the compiler would hold each in its own.
template <typename E, int N, bool PAIRS = sizeof(E) == 2 && N % 2 == 0> struct HeldPack {
  Pack<E, N> pack;
  __device__ inline E operator[](int i) const { return pack.at[i]; }
};
template <typename E, int N> struct HeldPack<E, N, true> {
  Pack<u32, N / 2> words;
  __device__ inline E operator[](int i) const {
    E x;
    x.bits = (unsigned short)(i % 2 ? words.at[i / 2] >> 16 : words.at[i / 2]);
    return x;
  }
};
"#;

/// Kernel text between the parameters of a generated kernel and its body.
pub const BODY: &str = ") {\n";

/// Returns the kernel text up to the parameters.
pub fn head(name: &str) -> String {
    format!("extern \"C\" __global__ void BOUNDS {name}(")
}

/// Returns the source of a kernel: `before`, then `extern "C" __global__ void <name>(<params>) { <body> }`. `before`
/// may redefine the macro `BOUNDS`, the launch bounds of the kernel.
pub fn source(name: &str, before: &str, params: &[String], body: &str) -> Arc<KernelSource> {
    let (head, params) = (head(name), params.join(", "));
    let text = format!("{TYPES}{FUNCTIONS}\n{before}\n{head}{params}{BODY}{body}}}\n");
    Arc::new(KernelSource { name: name.to_owned(), text, code: None })
}

/// Returns the text with the first string of each pair replaced by the second.
pub fn replaced(text: &str, pairs: &[(&str, &str)]) -> String {
    pairs.iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
}

/// Returns kernel text that sets the launch bounds for blocks of `threads` threads. The compiler then limits the
/// registers of a thread, so that such a block can be launched.
pub fn bounds(threads: u32) -> String {
    format!("#undef BOUNDS\n#define BOUNDS __launch_bounds__({threads})\n")
}

/// A parameter of a kernel: its declaration, such as `u64 count`, and its argument.
pub type Parameter = (String, Arg);

/// Returns a parameter with this declaration.
pub fn param(declaration: impl Into<String>, arg: Arg) -> Parameter {
    (declaration.into(), arg)
}

/// Returns a parameter of type `u32`. The value must be less than 2^32.
pub fn u32_param(name: &str, value: u64) -> Parameter {
    (format!("u32 {name}"), Arg::U32(value as u32))
}

/// Returns a parameter of type `u64`.
pub fn u64_param(name: &str, value: u64) -> Parameter {
    (format!("u64 {name}"), Arg::U64(value))
}

/// Returns a parameter of type `i64`, such as a stride. The value must be less than 2^63.
pub fn i64_param(name: &str, value: u64) -> Parameter {
    (format!("i64 {name}"), Arg::U64(value))
}

/// Returns the parameter for a geometry. A geometry without dimensions becomes one with a single element.
pub fn geometry_param(name: &str, geometry: &Geometry) -> Parameter {
    let declaration = format!("const Geometry<{}, {}> {name}", geometry.dims.len().max(1), geometry.strides.len());
    let words = match geometry.dims.is_empty() {
        true => std::iter::once(1).chain(geometry.strides.iter().map(|_| 0)).collect(),
        false => geometry.words(),
    };
    (declaration, Arg::Words(words))
}

/// Returns a kernel with `blocks` blocks of `threads` threads along x, without dynamic shared memory. The other
/// arguments are those of [`source`].
pub fn kernel(name: &str, before: &str, params: &[Parameter], body: &str, blocks: u64, threads: u32) -> Kernel {
    let (declarations, args): (Vec<String>, Vec<Arg>) = params.iter().cloned().unzip();
    Kernel {
        source: source(name, before, &declarations, body),
        grid: Kernel::along_x(blocks),
        block: Kernel::along_x(threads),
        shared: Shared::Bytes(0),
        args,
        without_clusters: false,
    }
}

/// Returns [`kernel()`] as a launch.
pub fn launch(name: &str, before: &str, params: &[Parameter], body: &str, blocks: u64, threads: u32) -> Launch {
    Launch::Kernel(kernel(name, before, params, body, blocks, threads))
}

/// Type in which a kernel computes: the widest that any operand needs.
pub fn compute_type(spec: &Spec) -> DType {
    let tensors = spec.inputs.iter().chain(&spec.outputs);
    tensors.map(|tensor| tensor.dtype.compute()).fold(DType::F32, DType::promote)
}

/// Name of an element type in kernels, which is its name in the language.
pub fn c_type(dtype: DType) -> &'static str {
    dtype.name()
}

/// Name of the narrowest index type for this number of elements: a 64-bit division takes several times as long as a
/// 32-bit one.
pub fn index_type(elements: u64) -> &'static str {
    if elements <= u64::from(u32::MAX) { "u32" } else { "u64" }
}
