// What a kernel's text finds on the CPU: HIP's words for places, barriers and mathematics. It includes no header.
#define __HIPCC_RTC__ 1
#define __HIP__ 1
#define __HIP_PLATFORM_AMD__ 1
#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
// One block at a time runs on a thread of the system.
#define __shared__ static thread_local

struct dim3 { unsigned x, y, z; };

// Where the device's thread is that runs now, and whether each thread of its block has shuffled an odd number of times.
struct HipDoublePlace {
  dim3 thread, block, block_dim, grid_dim;
  void* running;
  unsigned char shuffles[1024];
};
static thread_local HipDoublePlace hip_double_here;
#define threadIdx hip_double_here.thread
#define blockIdx hip_double_here.block
#define blockDim hip_double_here.block_dim
#define gridDim hip_double_here.grid_dim
#define warpSize HIP_DOUBLE_WAVE

// What the library finds by its name; all else stays within this kernel's object, however many have the same names.
#define HIP_DOUBLE_EXPORT __attribute__((visibility("default")))

// What the library does for kernels; it puts its functions here.
struct HipDoubleHost {
  void (*block_barrier)(void* running);
  void (*wave_barrier)(void* running);
  unsigned long long (*clock)();
};
extern "C" {
HIP_DOUBLE_EXPORT HipDoubleHost hip_double_host;
HIP_DOUBLE_EXPORT HipDoublePlace* hip_double_place() { return &hip_double_here; }

float expf(float) noexcept; float exp2f(float) noexcept; float fmaxf(float, float) noexcept; float logf(float) noexcept; float log2f(float) noexcept; float sqrtf(float) noexcept;
float sinf(float) noexcept; float cosf(float) noexcept; float tanhf(float) noexcept; float erff(float) noexcept;
float powf(float, float) noexcept; float rintf(float) noexcept; float floorf(float) noexcept;
float ceilf(float) noexcept; float fabsf(float) noexcept; float fmaf(float, float, float) noexcept;
double exp(double) noexcept; double log(double) noexcept; double log2(double) noexcept; double sqrt(double) noexcept;
double sin(double) noexcept; double cos(double) noexcept; double tanh(double) noexcept; double erf(double) noexcept;
double pow(double, double) noexcept; double rint(double) noexcept; double floor(double) noexcept;
double ceil(double) noexcept; double fabs(double) noexcept; double fma(double, double, double) noexcept;
}

inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline float __fdividef(float x, float y) { return x / y; }
// The compute unit of a block: each has one in turn.
inline unsigned __smid() {
  return (blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z)) % HIP_DOUBLE_UNITS;
}
inline unsigned long long wall_clock64() { return hip_double_host.clock(); }
inline void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
inline void __threadfence_system() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
inline void __threadfence_block() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
inline void __syncthreads() { hip_double_host.block_barrier(hip_double_here.running); }

static thread_local int hip_double_vote;
inline int __syncthreads_or(int mine) {
  __syncthreads();
  hip_double_vote = 0;
  __syncthreads();
  hip_double_vote |= mine != 0;
  __syncthreads();
  return hip_double_vote;
}
inline int __syncthreads_count(int mine) {
  __syncthreads();
  hip_double_vote = 0;
  __syncthreads();
  hip_double_vote += mine != 0;
  __syncthreads();
  return hip_double_vote;
}
inline int __popc(unsigned bits) { return __builtin_popcount(bits); }
inline int __ffsll(long long bits) { return __builtin_ffsll(bits); }

// Shuffles: each thread shows its value to its wave. It shows the next one elsewhere, since others may still read this one.
static thread_local unsigned long long hip_double_shown[2][1024];
inline unsigned hip_double_lane() {
  return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
}
template <typename T> inline T hip_double_shuffle(T mine, unsigned from) {
  static_assert(sizeof(T) <= 8, "values of at most 8 bytes are shuffled");
  unsigned here = hip_double_lane(), size = blockDim.x * blockDim.y * blockDim.z;
  auto& shown = hip_double_shown[hip_double_here.shuffles[here] ^= 1];
  __builtin_memcpy(&shown[here], &mine, sizeof(T));
  hip_double_host.wave_barrier(hip_double_here.running);
  T other = mine;
  if (from < size) __builtin_memcpy(&other, &shown[from], sizeof(T));
  return other;
}
// One bit for each thread of the wave.
inline unsigned long long __ballot(int mine) {
  unsigned here = hip_double_lane(), first = here / HIP_DOUBLE_WAVE * HIP_DOUBLE_WAVE, size = blockDim.x * blockDim.y * blockDim.z;
  auto& shown = hip_double_shown[hip_double_here.shuffles[here] ^= 1];
  shown[here] = mine != 0;
  hip_double_host.wave_barrier(hip_double_here.running);
  unsigned long long votes = 0;
  for (unsigned lane = 0; lane < HIP_DOUBLE_WAVE && first + lane < size; lane++) votes |= shown[first + lane] << lane;
  return votes;
}
// A thread reads within its group of `width` neighbours, or its own value.
template <typename T> inline T hip_double_shuffle_to(T mine, int lane, int width) {
  int here = (int)hip_double_lane(), first = here - here % width;
  return hip_double_shuffle(mine, lane < 0 || lane >= width ? (unsigned)here : (unsigned)(first + lane));
}
template <typename T> inline T __shfl(T mine, int lane, int width = HIP_DOUBLE_WAVE) {
  return hip_double_shuffle_to(mine, lane & (width - 1), width);
}
template <typename T> inline T __shfl_xor(T mine, int mask, int width = HIP_DOUBLE_WAVE) {
  return hip_double_shuffle_to(mine, (int)hip_double_lane() % width ^ mask, width);
}
template <typename T> inline T __shfl_up(T mine, unsigned by, int width = HIP_DOUBLE_WAVE) {
  return hip_double_shuffle_to(mine, (int)hip_double_lane() % width - (int)by, width);
}
template <typename T> inline T __shfl_down(T mine, unsigned by, int width = HIP_DOUBLE_WAVE) {
  return hip_double_shuffle_to(mine, (int)hip_double_lane() % width + (int)by, width);
}

template <typename T> inline T atomicAdd(T* to, T value) { return __atomic_fetch_add(to, value, __ATOMIC_RELAXED); }
template <typename T> inline T atomicOr(T* to, T value) { return __atomic_fetch_or(to, value, __ATOMIC_RELAXED); }
template <typename T> inline T atomicAnd(T* to, T value) { return __atomic_fetch_and(to, value, __ATOMIC_RELAXED); }
template <typename T> inline T atomicMax(T* to, T value) {
  T old = __atomic_load_n(to, __ATOMIC_RELAXED);
  while (old < value && !__atomic_compare_exchange_n(to, &old, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {}
  return old;
}
template <typename T> inline T atomicExch(T* to, T value) { return __atomic_exchange_n(to, value, __ATOMIC_RELAXED); }
template <typename T> inline T atomicCAS(T* to, T old, T value) {
  __atomic_compare_exchange_n(to, &old, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
  return old;
}

// Halves: compilers for the CPU have the type or not, so it is this one.
struct HipDoubleHalf {
  unsigned short bits;
  HipDoubleHalf() = default;
  HipDoubleHalf(float x) {
    unsigned f;
    __builtin_memcpy(&f, &x, 4);
    unsigned sign = f >> 16 & 0x8000u, rest = f & 0x7fffffffu;
    if (rest > 0x7f800000u) { bits = sign | 0x7e00u; return; }
    if (rest >= 0x477ff000u) { bits = sign | 0x7c00u; return; }
    if (rest < 0x38800000u) {
      // A subnormal: adding a half lets the hardware round.
      float y;
      __builtin_memcpy(&y, &rest, 4);
      y += 0.5f;
      unsigned u;
      __builtin_memcpy(&u, &y, 4);
      bits = sign | (u - 0x3f000000u);
      return;
    }
    unsigned odd = rest >> 13 & 1u;
    bits = sign | ((rest - 0x38000000u + 0xfffu + odd) >> 13);
  }
  operator float() const {
    unsigned sign = (bits & 0x8000u) << 16, rest = bits & 0x7fffu, f;
    if (rest >= 0x7c00u) {
      f = sign | 0x7f800000u | (rest & 0x3ffu) << 13;
    } else if (rest < 0x400u) {
      float y = (float)rest * 5.9604644775390625e-8f;
      __builtin_memcpy(&f, &y, 4);
      f |= sign;
    } else {
      f = sign | ((rest << 13) + 0x38000000u);
    }
    float x;
    __builtin_memcpy(&x, &f, 4);
    return x;
  }
};
#define _Float16 HipDoubleHalf

// Four values of a matrix unit's lane, and its products: lane l has row l % 16 of the left factor and column l % 16 of the
// right one, four of each from l / 16 * 4 on, and those rows of the product's column l % 16.
template <typename T> struct HipDoubleFour {
  T at[4];
  T& operator[](int i) { return at[i]; }
};
#define FOUR(T) HipDoubleFour<T>
inline float hip_double_float(HipDoubleHalf x) { return x; }
inline float hip_double_float(short x) {
  unsigned bits = (unsigned)(unsigned short)x << 16;
  float y;
  __builtin_memcpy(&y, &bits, 4);
  return y;
}
template <typename T>
inline HipDoubleFour<float> hip_double_products(HipDoubleFour<T> a, HipDoubleFour<T> b, HipDoubleFour<float> sums) {
  unsigned here = hip_double_lane(), wave = here / 64 * 64, lane = here % 64;
  unsigned long long left, right;
  __builtin_memcpy(&left, &a, 8);
  __builtin_memcpy(&right, &b, 8);
  for (unsigned part = 0; part < 4; part++) {
    HipDoubleFour<T> column, row;
    unsigned long long theirs = hip_double_shuffle(right, wave + part * 16 + lane % 16);
    __builtin_memcpy(&column, &theirs, 8);
    for (unsigned i = 0; i < 4; i++) {
      theirs = hip_double_shuffle(left, wave + part * 16 + lane / 16 * 4 + i);
      __builtin_memcpy(&row, &theirs, 8);
      for (unsigned k = 0; k < 4; k++) sums[i] += hip_double_float(row[k]) * hip_double_float(column[k]);
    }
  }
  return sums;
}
#define __builtin_amdgcn_mfma_f32_16x16x16f16(a, b, c, x, y, z) hip_double_products(a, b, c)
#define __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(a, b, c, x, y, z) hip_double_products(a, b, c)

// How the library calls a kernel: the sizes of its parameters, and a function that takes pointers to them.
struct HipDoubleEntry {
  void (*run)(void** args);
  unsigned count;
  const unsigned* sizes;
};
template <int...> struct HipDoubleSeq {};
template <int N, int... I> struct HipDoubleMake : HipDoubleMake<N - 1, N - 1, I...> {};
template <int... I> struct HipDoubleMake<0, I...> { typedef HipDoubleSeq<I...> type; };
template <typename F, F f> struct HipDoubleCall;
template <typename... A, void (*f)(A...)> struct HipDoubleCall<void (*)(A...), f> {
  static constexpr unsigned sizes[] = {(unsigned)sizeof(A)..., 0};
  template <int... I> static void go(void** args, HipDoubleSeq<I...>) { f(*(A*)args[I]...); }
  static void run(void** args) { go(args, typename HipDoubleMake<sizeof...(A)>::type()); }
  static constexpr HipDoubleEntry entry = {run, sizeof...(A), sizes};
};
#define HIP_DOUBLE_KERNEL(name) \
  extern "C" HIP_DOUBLE_EXPORT const HipDoubleEntry* hip_double_entry_##name() { return &HipDoubleCall<decltype(&name), name>::entry; }
#line 1 "kernel.hip"
