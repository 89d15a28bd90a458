//! The kernel of a norm: the threads of a row have it in registers, or read it twice where it is too long.

use super::super::kernel::{bounds, c_type, geometry_param, geometry_words, index_type, source};
use super::super::occupancy::share;
use super::super::rows::{Rows, Sharing, common_pack};
use super::*;

/// Instructions for each element, with a mean or without, and for each thread: addresses, and what threads tell each other.
const EACH: f64 = 7.0;
const EACH_CENTRED: f64 = 10.0;
const OF_A_THREAD: f64 = 150.0;

/// How threads share rows.
pub struct Split {
    /// The rows of `y`, `x`, and of what is added and its sum, if there are any.
    rows: Rows,
    sharing: Sharing,
}

impl Split {
    pub fn of(spec: &Spec, norm: &Norm, channels: &Channels) -> Split {
        let mut tensors = vec![&spec.outputs[0], &spec.inputs[0]];
        if norm.adds {
            tensors.extend([&spec.inputs[1], &spec.outputs[1]]);
        }
        let rows = Rows::of(&tensors);
        // A pack has one weight, or one for each element.
        let pack = match channels.alike {
            1 => common_pack(&tensors),
            alike => common_pack(&tensors).min(1 << alike.trailing_zeros().min(u64::BITS - 1)),
        };
        // Elements that the registers of a thread hold: 32 floats, or half as many beside those that are added.
        let most = if norm.adds || norm.compute(spec) == DType::F64 { 16 } else { 32 };
        let sharing = Sharing::of(&rows, pack, most);
        Split { rows, sharing }
    }

    fn blocks(&self) -> u64 {
        self.rows.count.div_ceil(self.sharing.block_rows()).max(1)
    }

    pub fn cost(&self, spec: &Spec, norm: &Norm) -> Cost {
        let elements = spec.inputs[0].elements() as f64;
        let threads = (self.rows.count * self.sharing.threads) as f64;
        let each = if norm.centred { EACH_CENTRED } else { EACH };
        let again = if norm.adds { &spec.outputs[1] } else { &spec.inputs[0] };
        Cost {
            instructions: each * elements + OF_A_THREAD * threads,
            special: threads,
            reread: if self.sharing.whole { Traffic::NONE } else { Traffic::of(again.space, again.bytes()) },
            blocks: self.blocks(),
            share: share(self.sharing.block()),
            // A square, an addition, a subtraction and a product for each element, or less.
            ..spec.streaming_cost(4.0 * elements, 1)
        }
    }

    pub fn launch(&self, name: &str, spec: &Spec, norm: &Norm, channels: &Channels) -> Launch {
        let Split { rows, sharing } = self;
        let Sharing { pack, packs, threads, whole } = sharing;
        let compute = norm.compute(spec);
        let (x, y) = (c_type(spec.inputs[0].dtype), c_type(spec.outputs[0].dtype));
        let inputs = spec.inputs.len();
        let mut params = vec![format!("{y}* y"), format!("const {x}* x"), "C eps".to_owned()];
        let eps = spec.attrs.number("eps");
        let eps = Arg::real(compute, eps);
        let mut args = vec![Arg::Operand(inputs as u8), Arg::Operand(0), eps];
        for (step, name) in rows.steps.iter().zip(["sy", "sx", "sr", "st"]) {
            params.push(format!("i64 {name}"));
            args.push(Arg::U64(*step));
        }
        params.extend([geometry_param(&rows.geometry), "u64 rows".to_owned(), "u32 n".to_owned()]);
        let length = Arg::U32(rows.length as u32);
        args.extend([Arg::Words(geometry_words(&rows.geometry)), Arg::U64(rows.count), length]);
        if norm.adds {
            params.extend([format!("const {x}* residual"), format!("{x}* total")]);
            args.extend([Arg::Operand(1), Arg::Operand(inputs as u8 + 1)]);
        }
        for (input, name) in (norm.rows()..inputs).zip(["weight", "bias"]) {
            let tensor = &spec.inputs[input];
            params.extend([format!("const {}* {name}", c_type(tensor.dtype)), format!("i64 {name}_step")]);
            args.extend([Arg::Operand(input as u8), Arg::U64(tensor.strides[0])]);
        }
        let before = format!(
            "{}typedef {} C;\n#define T {threads}\n#define V {pack}\n#define K {packs}\n#define BLOCK {}\n#define EVEN {}\n\
             #define CENTRED {}\n{HELPERS}",
            bounds(sharing.block() as u32),
            c_type(compute),
            sharing.block(),
            rows.length.is_multiple_of(threads * pack * packs),
            norm.centred,
        );
        let index = index_type(rows.count);
        let mut body = format!(
            "  u32 lane = threadIdx.x % T;\n  u64 row = (u64)blockIdx.x * (BLOCK / T) + threadIdx.x / T;\n  \
             bool live = row < rows;\n  {index} at = ({index})(live ? row : 0);\n  \
             const {x}* from = x + g.offset(at, 1);\n  {y}* to = y + g.offset(at, 0);\n"
        );
        if norm.adds {
            body +=
                &format!("  const {x}* other = residual + g.offset(at, 2);\n  {x}* kept = total + g.offset(at, 3);\n");
        }
        let read = match norm.adds {
            false => "    EACH_PACK(start) { read(from, sx, j, v[k]); }\n",
            true => &ADDED.replace("TYPE", x),
        };
        let again = if norm.adds { "read(kept, st, j, v[k])" } else { "read(from, sx, j, v[k])" };
        // The first weight of a row is that of its group.
        let of_group = if channels.groups > 1 { "first_weight + " } else { "" };
        if channels.groups > 1 {
            params.extend(["u64 groups".to_owned(), "u64 each".to_owned()]);
            args.extend([Arg::U64(channels.groups), Arg::U64(channels.each)]);
            body += "  i64 first_weight = (i64)(at % groups * each);\n";
        }
        if channels.alike > 1 {
            params.push("u32 alike".to_owned());
            args.push(Arg::U32(channels.alike as u32));
        }
        // How a weight or a bias is read: one for a pack, or as many at once as lie at a multiple of their size.
        let column = |input: usize, name: &str| {
            let tensor = &spec.inputs[input];
            if channels.alike > 1 {
                let place = format!("({of_group}j / alike) * {name}_step");
                return format!("C {name}s[V]; {name}s[0] = load<C>({name}[{place}]); EACH {name}s[i] = {name}s[0]; ");
            }
            let size = tensor.dtype.size();
            let fits = |width: &u64| {
                let bytes = width * size;
                let begins = channels.groups == 1 || channels.each.is_multiple_of(*width);
                tensor.strides[0] == 1 && bytes <= 16 && begins && u64::from(tensor.align).is_multiple_of(bytes)
            };
            let width =
                std::iter::successors(Some(*pack), |width| (*width > 1).then_some(width / 2)).find(fits).unwrap_or(1);
            format!("C {name}s[V]; columns<{width}>({name}, {name}_step, {of_group}j, {name}s); ")
        };
        let mut result = "      ".to_owned();
        for (input, name) in (norm.rows()..inputs).zip(["weight", "bias"]) {
            result += &column(input, name);
        }
        let weight = if inputs > norm.rows() { " * weights[i]" } else { "" };
        let bias = if inputs > norm.rows() + 1 { " + biass[i]" } else { "" };
        result +=
            &format!("EACH v[k][i] = (v[k][i] - all.mean) * scale{weight}{bias};\n      write(to, sy, j, v[k]);\n");
        // Registers are read again for the squares: two sums take less than means that are joined.
        let finish = "  C scale = f_rsqrt(all.squares / C(n) + eps);\n  if (!live) return;\n";
        body += &match whole {
            true => format!(
                "  C v[K][V];\n  Part all = {{0, 0, 0}};\n  const u32 start = 0;\n{read}    all = of_row(v, n, lane);\n{finish}  \
                 EACH_PACK(0) {{\n{result}  }}\n"
            ),
            false => format!(
                "  C v[K][V];\n  Part all = {{0, 0, 0}};\n  for (u32 start = 0; start < n; start += T * K * V) {{\n{read}    \
                 all = join(all, part_of(v, start, n, lane));\n  }}\n  all = across(all, Join());\n{finish}  for (u32 start = 0; start < n; start += T * K * V) {{\n    \
                 EACH_PACK(start) {{ {again}; }}\n    EACH_PACK(start) {{\n{result}    }}\n  }}\n"
            ),
        };
        Launch::Kernel(Kernel {
            source: source(name, &before, &params, &body),
            grid: Kernel::along_x(self.blocks()),
            block: Kernel::along_x(sharing.block() as u32),
            shared: Shared::Bytes(0),
            args,
        })
    }
}

/// Reads and adds a piece of two rows, and writes the sum. What is normalized is the sum as it is stored.
const ADDED: &str = r#"    EACH_PACK(start) { read(from, sx, j, v[k]); }
    C u[K][V];
    EACH_PACK(start) { read(other, sr, j, u[k]); }
    EACH_PACK(start) { EACH { TYPE e; store<C>(e, v[k][i] + u[k][i]); v[k][i] = load<C>(e); } }
    if (live) { EACH_PACK(start) { write(kept, st, j, v[k]); } }
"#;

/// Functions on a piece of a row, and across the threads of a row. `T` threads share a row, and each has `K` packs of `V`
/// elements of a piece. Means of parts are joined as Chan, Golub and LeVeque do ("Updating formulae and a pairwise
/// algorithm for computing sample variances", 1979): a variance that is small beside the mean keeps its digits.
pub const HELPERS: &str = r#"
// Packs of a thread lie `T` packs apart, so that neighbours read neighbours. `EVEN` pieces need no look at the end.
#define EACH_PACK(start) \
  _Pragma("unroll") for (u32 k = 0; k < K; k++) \
    if (u32 j = (start) + (k * T + lane) * V; EVEN || j < n)
#define EACH _Pragma("unroll") for (int i = 0; i < V; i++)

template <typename E> __device__ inline void read(const E* from, i64 step, u32 j, C* v) {
  if (V > 1) {
    Pack<E, V> pack = *(const Pack<E, V>*)(from + j);
    EACH v[i] = load<C>(pack.at[i]);
  } else {
    v[0] = load<C>(from[j * step]);
  }
}

template <typename E> __device__ inline void write(E* to, i64 step, u32 j, const C* v) {
  if (V > 1) {
    Pack<E, V> pack;
    EACH store<C>(pack.at[i], v[i]);
    *(Pack<E, V>*)(to + j) = pack;
  } else {
    store<C>(to[j * step], v[0]);
  }
}

// Elements of a weight or a bias, of which `W` can be read as one.
template <int W, typename E> __device__ inline void columns(const E* from, i64 step, i64 j, C* v) {
  if (W > 1) {
#pragma unroll
    for (int p = 0; p < V / W; p++) {
      Pack<E, W> pack = *(const Pack<E, W>*)(from + j + p * W);
#pragma unroll
      for (int i = 0; i < W; i++) v[p * W + i] = load<C>(pack.at[i]);
    }
  } else {
    EACH v[i] = load<C>(from[(j + i) * step]);
  }
}

// Elements of a row: how many, their mean, and the sum of the squares of the differences to it. Without a mean, of the
// squares.
struct Part { C count, mean, squares; };

__device__ inline Part join(Part a, Part b) {
  if (!CENTRED) { a.squares += b.squares; return a; }
  C count = a.count + b.count, share = count > C(0) ? b.count / count : C(0), between = b.mean - a.mean;
  Part all = {count, a.mean + between * share, a.squares + b.squares + between * between * a.count * share};
  return all;
}

__device__ inline Part part_of(const C (&v)[K][V], u32 start, u32 n, u32 lane) {
  Part a = {0, 0, 0};
  if (CENTRED) {
    EACH_PACK(start) { EACH { a.mean += v[k][i]; a.count += C(1); } }
    if (a.count > C(0)) a.mean /= a.count;
  }
  EACH_PACK(start) { EACH { C d = v[k][i] - a.mean; a.squares += d * d; } }
  return a;
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

// Joins the sums of a row's threads; each thread gets the total. The thread with the lower number is the first operand, so
// that both threads of a pair get the same bits.
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
    a = threadIdx.x % 32 < T / 32 ? part[first + threadIdx.x % 32] : P();
#pragma unroll
    for (int mask = 1; mask < 32; mask *= 2) {
      P b = shuffled(a, mask);
      a = threadIdx.x & mask ? joined(b, a) : joined(a, b);
    }
  }
  return a;
}

// The mean and the squares of a row that registers hold.
__device__ inline Part of_row(const C (&v)[K][V], u32 n, u32 lane) {
  Part a = Part();
  if (CENTRED) {
    C sum = 0;
    EACH_PACK(0) { EACH sum += v[k][i]; }
    a.mean = across(sum, Sum()) / C(n);
  }
  EACH_PACK(0) { EACH { C d = v[k][i] - a.mean; a.squares += d * d; } }
  a.squares = across(a.squares, Sum());
  return a;
}
"#;
