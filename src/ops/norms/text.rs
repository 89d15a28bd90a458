//! Kernel text of norms: pieces of rows, statistics, and values that the threads of a row exchange.

/// Kernel text that reads and adds a piece of two rows and writes the sum. The sum is normalized as it is stored, after
/// rounding.
pub const ADDED: &str = r#"    EACH_PACK(start) { read(from, sx, j, v[k]); }
    C u[K][V];
    EACH_PACK(start) { read(other, sr, j, u[k]); }
    EACH_PACK(start) { EACH { TYPE e; store<C>(e, v[k][i] + u[k][i]); v[k][i] = load<C>(e); } }
    if (live) { EACH_PACK(start) { write_row(kept, st, j, lead, n, v[k]); } }
"#;

/// Kernel text that loads a block's `ROWS` rows of `LENGTH` elements into shared memory in packs of 16 bytes, which may hold
/// elements of several rows. If the norm adds, it loads both inputs, and stores the sum.
pub const STAGE: &str = r#"  const u32 OF_PACK = 16 / sizeof(E), ROUND = 2;
  typedef Pack<E, OF_PACK> Packed;
  __shared__ Packed staged[(ROWS * LENGTH + 2 * OF_PACK - 2) / OF_PACK];
  const u64 begin = (u64)blockIdx.x * (ROWS * LENGTH), behind = rows * LENGTH;
  // Number of elements from the last multiple of 16 bytes to the first row.
  const u32 ahead = ROWS * LENGTH % OF_PACK ? (u32)(begin % OF_PACK) : 0;
  const u32 count = ahead + (behind - begin < ROWS * LENGTH ? (u32)(behind - begin) : ROWS * LENGTH);
  auto put = [&](E* first, u32 i, const Packed& v) {
    const u32 e = i * OF_PACK;
    if (e >= ahead && e + OF_PACK <= count) {
      ((Packed*)first)[i] = v;
    } else {
#pragma unroll
      for (u32 c = 0; c < OF_PACK; c++) if (e + c >= ahead && e + c < count) first[e + c] = v.at[c];
    }
  };
  // A pack never crosses the end of allocated memory.
  for (u32 first = threadIdx.x; first * OF_PACK < count; first += ROUND * BLOCK) {
    Packed held[ROUND], added[ROUND];
#pragma unroll
    for (u32 r = 0; r < ROUND; r++) {
      const u32 i = first + r * BLOCK;
      if (i * OF_PACK >= count) continue;
      held[r] = ((const Packed*)(x + begin - ahead))[i];
      if (ADDS) added[r] = ((const Packed*)(OTHER + begin - ahead))[i];
    }
#pragma unroll
    for (u32 r = 0; r < ROUND; r++) {
      const u32 i = first + r * BLOCK;
      if (i * OF_PACK >= count) continue;
      if (ADDS) {
#pragma unroll
        for (u32 c = 0; c < OF_PACK; c++) store<C>(held[r].at[c], load<C>(held[r].at[c]) + load<C>(added[r].at[c]));
        put(SUM + begin - ahead, i, held[r]);
      }
      staged[i] = held[r];
    }
  }
  __syncthreads();
"#;

/// Kernel text that ends the loop over the rows of a thread, and stores the staged rows.
pub const UNSTAGE: &str = r#"  }
  __syncthreads();
  for (u32 i = threadIdx.x; i * OF_PACK < count; i += BLOCK) put(y + begin - ahead, i, staged[i]);
"#;

/// Kernel text of a row in shared memory, which belongs behind [`HELPERS`]. Each thread reads only the packs that it has copied there. `HELD` is
/// the number of packs of a thread that fit: all of them if a block can have `ROOM` bytes, otherwise those of 48 KiB, and a
/// thread reads its other packs again.
pub const SHARED_ROW: &str = r#"
#if defined(__CUDA_ARCH__) && (__CUDA_ARCH__ == 800 || __CUDA_ARCH__ == 870 || (__CUDA_ARCH__ >= 900 && __CUDA_ARCH__ < 1200))
#define HELD K
#else
#define HELD (ROOM <= 48 << 10 ? K : (48 << 10) / (T * V * sizeof(X)))
#endif
struct SharedRow {
  Pack<X, V>* packs;
  const Pack<X, V>* from;
  struct OfPack {
    Pack<X, V> pack;
    __device__ C operator[](int i) const { return load<C>(pack.at[i]); }
  };
  __device__ OfPack operator[](u32 k) const { return OfPack{k < HELD ? packs[k * T] : from[k * T]}; }
  // Copies a pack without a register for it.
  __device__ void copy(u32 k) {
    if (k >= HELD) return;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" :: "r"((u32)__cvta_generic_to_shared(packs + k * T)), "l"(from + k * T), "n"(sizeof(X) * V) : "memory");
#else
    packs[k * T] = from[k * T];
#endif
  }
  __device__ void wait() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_all;" ::: "memory");
#endif
  }
};
__device__ inline void keep_packed(SharedRow&) {}
"#;

/// Kernel text: functions on a piece of a row, and across the threads of a row. `T` threads share a row; each has `K`
/// packs of `V` elements of a piece. Means of parts are merged by the method of Chan, Golub and LeVeque ("Updating
/// formulae and a pairwise algorithm for computing sample variances", 1979), which keeps the precision of a variance
/// that is small relative to the mean.
pub const HELPERS: &str = r#"
// The packs of a thread are `T` packs apart, so that neighbouring threads read neighbouring packs. A pack is `INSIDE` the
// row or outside of it as a whole; `EVEN` pieces need no check. The position `j` has 64 bits, so that the compiler adds its
// constant part to the address for free.
#define EACH _Pragma("unroll") for (int i = 0; i < V; i++)
#define EACH_HELD _Pragma("unroll") for (u32 k = 0; k < K; k++)
#define INSIDE(start) i64 j = (i64)(start) + lane * V + k * T * V; EVEN || (u32)j < n
#define EACH_PACK(start) EACH_HELD if (INSIDE(start))
// Whether element `i` of the pack at `j` belongs to the row. The first and the last pack of a `SHIFTED` row may be partial.
#define LIVE (!SHIFTED || ((u32)j + i >= lead && (u32)j + i < n))
// Executes a statement for each element of a pack that belongs to the row. Most packs need no comparison for each element.
#define EACH_LIVE(...) \
  if (!SHIFTED || ((u32)j >= lead && (u32)j + V <= n)) { EACH { __VA_ARGS__; } } else { EACH if (LIVE) { __VA_ARGS__; } }

template <typename E> __device__ inline void read(const E* from, i64 step, i64 j, C* v) {
  if (V > 1) {
    Pack<E, V> pack = *(const Pack<E, V>*)(from + j);
    EACH v[i] = load<C>(pack.at[i]);
  } else {
    v[0] = load<C>(from[j * step]);
  }
}

template <typename E> __device__ inline void write(E* to, i64 step, i64 j, const C* v) {
  if (V > 1) {
    Pack<E, V> pack;
    EACH store<C>(pack.at[i], v[i]);
    *(Pack<E, V>*)(to + j) = pack;
  } else {
    store<C>(to[j * step], v[0]);
  }
}

// Writes the elements of a pack that belong to a row. The pack is complete before the branch, or else the compiler writes whole
// packs in pieces too.
template <typename E> __device__ inline void write_row(E* to, i64 step, i64 j, u32 lead, u32 n, const C* v) {
  if (!SHIFTED) return write(to, step, j, v);
  Pack<E, V> pack;
  EACH store<C>(pack.at[i], v[i]);
#if RAGGED
  put_row(to + lead, j - lead, (i64)(n - lead), pack);
#else
  if ((u32)j >= lead && (u32)j + V <= n) {
    *(Pack<E, V>*)(to + j) = pack;
  } else {
    EACH if (LIVE) to[j + i] = pack.at[i];
  }
#endif
}

// Loads the weights of a pack whose neighbours share them, `alike` at a time.
template <typename E> __device__ inline void runs(const E* from, i64 step, i64 j, u32 lead, u32 n, u32 alike, C* v) {
  const u32 first = (u32)j < lead ? lead : (u32)j;
  u32 run = (first - lead) / alike, end = lead + (run + 1) * alike;
  v[0] = load<C>(from[run * step]);
  if (alike >= V) {
    // Two runs at most.
    const C next = (u32)j + V > end && end < n ? load<C>(from[(run + 1) * step]) : v[0];
#pragma unroll
    for (int i = V - 1; i >= 0; i--) v[i] = (u32)j + i < end ? v[0] : next;
    return;
  }
#pragma unroll
  for (int i = 1; i < V; i++) {
    v[i] = v[i - 1];
    if ((u32)j + i == end && end < n) {
      end += alike;
      v[i] = load<C>(from[++run * step]);
    }
  }
}

// Loads the elements of a pack, `W` at a time. They are converted when they are used, so that no load waits for another.
template <int W, typename E> __device__ inline void fetch(const E* from, i64 step, i64 j, HeldPack<E, W> (&p)[V / W]) {
#pragma unroll
  for (int w = 0; w < V / W; w++) p[w] = *(const HeldPack<E, W>*)(from + (W > 1 ? j + w * W : (j + w) * step));
}
template <int W, typename E> __device__ inline C element(const HeldPack<E, W> (&p)[V / W], int i) {
  return load<C>(p[i / W][i % W]);
}

// Loads the weights of those elements of a pack that belong to a row, one by one.
template <typename E> __device__ inline void fetch_row(const E* from, i64 step, i64 j, u32 lead, u32 n, HeldPack<E, 1> (&p)[V]) {
  EACH if (LIVE) p[i].pack.at[0] = from[((i64)j + i - lead) * step];
}

// Packs of a thread whose elements are converted each time they are used, two to a register.
template <typename E> struct Packed {
  Pack<u32, (V + 1) / 2> packs[K];
  struct OfPack {
    const Pack<u32, (V + 1) / 2>& pack;
    __device__ C operator[](int i) const {
      E element;
      element.bits = (unsigned short)(i % 2 ? pack.at[i / 2] >> 16 : pack.at[i / 2]);
      return load<C>(element);
    }
  };
  __device__ OfPack operator[](int k) const { return OfPack{packs[k]}; }
};
// Forces the compiler to convert elements again, instead of holding the values that it has converted before.
template <typename E> __device__ inline void keep_packed(Packed<E>& v) {
#if defined(__CUDA_ARCH__)
  EACH_HELD _Pragma("unroll") for (int w = 0; w < V / 2; w++) asm volatile("" : "+r"(v.packs[k].at[w]));
#endif
}
__device__ inline void keep_packed(C (&)[K][V]) {}

// Statistics of elements of a row: their number, their mean, and the sum of squared differences to the mean; without a
// mean, the sum of squares.
struct Part { C count, mean, squares; };

__device__ inline Part join(Part a, Part b) {
  if (!CENTRED) { a.squares += b.squares; return a; }
  C count = a.count + b.count, share = count > C(0) ? b.count / count : C(0), between = b.mean - a.mean;
  Part all = {count, a.mean + between * share, a.squares + b.squares + between * between * a.count * share};
  return all;
}

__device__ inline Part part_of(const C (&v)[K][V], u32 start, u32 n, u32 lane, u32 lead = 0) {
  Part a = {0, 0, 0};
  if (CENTRED) {
    EACH_PACK(start) { EACH_LIVE(a.mean += v[k][i]; a.count += C(1)) }
    if (a.count > C(0)) a.mean /= a.count;
  }
  EACH_PACK(start) { EACH_LIVE(const C d = v[k][i] - a.mean; a.squares += d * d) }
  return a;
}

// Sums over elements of several pieces: of differences to `shift`, the mean of the first piece, and of their squares. Elements
// as far from their mean as `shift` may be add so much to the squares that these keep their precision.
struct Taken { C shift, sum, squares; u32 count; };

__device__ inline void take(Taken& a, const C (&v)[K][V], u32 start, u32 n, u32 lane, u32 lead) {
  if (CENTRED && start == 0) {
    C sum = 0;
    u32 count = 0;
    EACH_PACK(0) { EACH_LIVE(sum += v[k][i]; count++) }
    if (count > 0) a.shift = sum / C(count);
  }
  EACH_PACK(start) {
    EACH_LIVE(const C d = v[k][i] - a.shift; if (CENTRED) { a.sum += d; a.count++; } a.squares += d * d)
  }
}

__device__ inline Part part_of(const Taken& a) {
  const C mean = a.count > 0 ? a.sum / C(a.count) : C(0), squares = a.squares - a.sum * mean;
  Part part = {C(a.count), a.shift + mean, squares < C(0) ? C(0) : squares};
  return part;
}

__device__ inline Part shuffled(Part a, int mask) {
  if (CENTRED) {
    a.count = SHUFFLE_XOR(a.count, mask);
    a.mean = SHUFFLE_XOR(a.mean, mask);
  }
  a.squares = SHUFFLE_XOR(a.squares, mask);
  return a;
}
__device__ inline C shuffled(C a, int mask) { return SHUFFLE_XOR(a, mask); }

struct Join { __device__ Part operator()(Part a, Part b) const { return join(a, b); } };
struct Sum { __device__ C operator()(C a, C b) const { return a + b; } };

// Combines the values of a row's threads; each thread receives the total. The thread with the lower number is the first
// operand, so both threads of a pair compute the same bits.
template <typename P, typename F> __device__ inline P across(P a, F joined) {
#pragma unroll
  for (int mask = 1; mask < (T < 32 ? T : 32); mask *= 2) {
    P b = shuffled(a, mask);
    a = threadIdx.x & mask ? joined(b, a) : joined(a, b);
  }
  if (T > 32) {
    __shared__ P part[BLOCK / 32];
    u32 warp = threadIdx.x / 32, first = warp - warp % (T > 32 ? T / 32 : 1);
    __syncthreads();
    if (threadIdx.x % 32 == 0) part[warp] = a;
    __syncthreads();
    const u32 other = threadIdx.x % (T > 512 ? 32 : T > 256 ? 16 : T > 128 ? 8 : T > 64 ? 4 : 2);
    a = other < T / 32 ? part[first + other] : P();
#pragma unroll
    for (int mask = 1; mask < T / 32; mask *= 2) {
      P b = shuffled(a, mask);
      a = threadIdx.x & mask ? joined(b, a) : joined(a, b);
    }
  }
  return a;
}

// Statistics of a row in registers, which hold its values or its packed elements.
template <typename R> __device__ inline Part of_row(R& v, u32 n, u32 lane, u32 lead = 0) {
  Part a = Part();
  if (CENTRED) {
    C sum = 0;
    EACH_PACK(0) { EACH_LIVE(sum += v[k][i]) }
    a.mean = across(sum, Sum()) / C(n - lead);
  }
  keep_packed(v);
  EACH_PACK(0) { EACH_LIVE(const C d = v[k][i] - a.mean; a.squares += d * d) }
  a.squares = across(a.squares, Sum());
  keep_packed(v);
  return a;
}
"#;
