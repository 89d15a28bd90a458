//! Source text of the kernel that adds the parts of tiles that blocks share.

/// Kernel text that adds the parts of each shared tile. A warp adds some of the parts of 16 rows of a tile, one after
/// the other; the sums of `slices` warps are then added in the order of the depth. The number of slices depends only on
/// the number of shared tiles, so that results are reproducible.
pub const JOIN: &str = r#"  const int JOIN_WARPS = JOIN_THREADS / LANES, WORDS = (BLOCKS + 31) / 32;
  const int COUNT = CHUNK < 2 ? CHUNK : 2, CHUNKS = NT / COUNT, PIECES = MT * CHUNKS * WARPS;
  __shared__ u32 marks[WORDS], list[BLOCKS];
  // Sums of all warps, and later their results.
  const int SUMS = COUNT * LANE_ROWS * JOIN_THREADS, RESULTS = JOIN_WARPS * 16 * ROOM_ROW(COUNT) * sizeof(O) / 16;
  __shared__ Pack<f32, 4> memory[SUMS > RESULTS ? SUMS : RESULTS];
  O* room = (O*)memory + threadIdx.x / LANES * (16 * ROOM_ROW(COUNT));
  const Shared* shared = (const Shared*)own_parts(workspace, BLOCKS, false);
  // List of the blocks in which a shared tile begins.
  for (u32 word = threadIdx.x; word < WORDS; word += JOIN_THREADS) marks[word] = 0;
  __syncthreads();
  for (u32 block = threadIdx.x; block < BLOCKS; block += JOIN_THREADS)
    if (shared[block].others > 0) atomicOr(marks + block / 32, 1u << block % 32);
  __syncthreads();
  for (u32 block = threadIdx.x; block < BLOCKS; block += JOIN_THREADS) {
    u32 own = marks[block / 32];
    if (!(own >> block % 32 & 1)) continue;
    u32 rank = __popc(own & (1u << block % 32) - 1);
    for (u32 word = 0; word < block / 32; word++) rank += __popc(marks[word]);
    list[rank] = block;
  }
  u32 pieces = 0;
  for (u32 word = 0; word < WORDS; word++) pieces += __popc(marks[word]) * PIECES;
  __syncthreads();
  u32 slices = 1;
  while (slices < JOIN_WARPS && pieces * slices * 2 <= gridDim.x * JOIN_WARPS) slices *= 2;
  u32 warp = threadIdx.x / LANES, slice = warp % slices, at_once = JOIN_WARPS / slices;
  for (u32 first = blockIdx.x * at_once; first < pieces; first += gridDim.x * at_once) {
    u32 piece = first + warp / slices, of_warp = 0, m = 0, n = 0;
    // Without rows, nothing is written.
    Place place = {};
    Sums sums[COUNT];
    EACH(i, COUNT) EACH(h, LANE_ROWS) EACH(e, 4) sums[i].at[h][e] = 0;
    if (piece < pieces) {
      u32 block = list[piece / PIECES], own = piece % PIECES;
      of_warp = own % WARPS, m = own / WARPS / CHUNKS, n = own / WARPS % CHUNKS * COUNT;
      Shared tile = shared[block];
      u32 count = exist(tile.place, columns, of_warp, m, n) ? tile.others + 1 : 0;
      if (count > 0 && slice == 0) place = tile.place;
#pragma unroll 4
      for (u32 part = count * slice / slices; part < count * (slice + 1) / slices; part++) {
        const Pack<f32, 4>* from = own_parts(workspace, block + part * CLUSTER, part == 0);
        EACH(i, COUNT) EACH(h, LANE_ROWS) {
          Pack<f32, 4> four = from[((m * NT + n + i) * LANE_ROWS + h) * THREADS + of_warp * LANES + lane_of()];
          EACH(e, 4) sums[i].at[h][e] += four.at[e];
        }
      }
    }
    if (slices > 1) {
      __syncthreads();
      EACH(i, COUNT) EACH(h, LANE_ROWS) EACH(e, 4) memory[(i * LANE_ROWS + h) * JOIN_THREADS + threadIdx.x].at[e] = sums[i].at[h][e];
      __syncthreads();
      for (u32 other = 1; slice == 0 && other < slices; other++) {
        EACH(i, COUNT) EACH(h, LANE_ROWS) {
          Pack<f32, 4> four = memory[(i * LANE_ROWS + h) * JOIN_THREADS + threadIdx.x + other * LANES];
          EACH(e, 4) sums[i].at[h][e] += four.at[e];
        }
      }
      __syncthreads();
    }
    store_chunk<COUNT>(c, sc, place, columns, of_warp, m, n, sums, room, true, true);
  }
"#;
