// The data of the page, decoded: runs, their variants, and of each rank its operations and the tracks of its streams.

/** Kinds of operations, each with its colour in the style. The order is that of the legend. */
const KINDS = [
  "matrix", "elementwise", "row-wise", "movement", "copy", "collective", "synthetic", "kernel", "marker",
];

/** Reads the data that the page holds: JSON, compressed, in base64. */
async function readData() {
  const letters = atob(document.getElementById("data").textContent);
  const bytes = new Uint8Array(letters.length);
  for (let at = 0; at < bytes.length; at++) bytes[at] = letters.charCodeAt(at);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return JSON.parse(await new Response(stream).text());
}

/** Index of the first of `count` entries for which `holds` is true; entries behind it have to be true as well. */
function firstWhere(count, holds) {
  let low = 0;
  let high = count;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (holds(middle)) high = middle;
    else low = middle + 1;
  }
  return low;
}

/** Spans in the order of their starts, with what binary searches need. Times are in ns on the page's clock. */
class SpanSet {
  constructor(ids, starts, ends) {
    const count = ids.length;
    Object.assign(this, { ids, starts, ends, count });
    /** Latest end of a span and those before it. */
    this.latest = new Float64Array(count);
    /** Time that the spans before an index cover. */
    this.covering = new Float64Array(count + 1);
    let latest = -Infinity;
    for (let at = 0; at < count; at++) {
      const begin = Math.max(starts[at], latest);
      this.covering[at + 1] = this.covering[at] + Math.max(0, ends[at] - begin);
      latest = Math.max(latest, ends[at]);
      this.latest[at] = latest;
    }
  }

  /** The spans of a rank's operations, which are in the order of their starts. */
  static of(rank, ids) {
    const count = ids.length;
    const [starts, ends] = [new Float64Array(count), new Float64Array(count)];
    for (let at = 0; at < count; at++) {
      starts[at] = rank.start[ids[at]];
      ends[at] = rank.end[ids[at]];
    }
    return new SpanSet(Int32Array.from(ids), starts, ends);
  }

  firstEndingAfter(time) {
    return firstWhere(this.count, (at) => this.latest[at] > time);
  }

  /** The first span from an index on that starts at a time or later; it is usually near. */
  nextStartingFrom(time, low) {
    const { starts, count } = this;
    let step = 1;
    let high = low;
    while (high < count && starts[high] < time) {
      low = high + 1;
      high += step;
      step *= 2;
    }
    high = Math.min(high, count);
    while (low < high) {
      const middle = (low + high) >> 1;
      if (starts[middle] >= time) high = middle;
      else low = middle + 1;
    }
    return low;
  }

  /** Index of a span that runs at a moment; the next one within a tolerance; -1 if there is none. */
  find(time, tolerance) {
    const at = firstWhere(this.count, (at) => this.starts[at] > time);
    if (at > 0 && this.ends[at - 1] >= time - tolerance) return at - 1;
    return at < this.count && this.starts[at] <= time + tolerance ? at : -1;
  }

  /** The spans whose operations are wanted. */
  only(wanted) {
    const at = [];
    for (let index = 0; index < this.count; index++) if (wanted(this.ids[index])) at.push(index);
    return new SpanSet(Int32Array.from(at, (index) => this.ids[index]),
      Float64Array.from(at, (index) => this.starts[index]), Float64Array.from(at, (index) => this.ends[index]));
  }
}

/** A rank of a variant: columns of its operations, with methods that read them, and a track for each of its streams. */
class Rank {
  constructor(run, variant, data) {
    Object.assign(this, { run, variant, data, columns: data.operations });
    this.count = data.operations.name.length;
    // Names are stored as differences.
    let name = 0;
    this.columns.name = Int32Array.from(this.columns.name, (step) => (name += step));
    this.number = data.rank;
    this.several = variant.data.ranks.length > 1;
    const { critical_path: path, split } = data.analysis ?? {};
    this.path = new Set(path?.operations);
    this.chain = new Set(split?.chain);
    /** The operations of this rank for which the other ranks of a collective wait. */
    this.late = new Set((variant.data.skew?.collectives ?? []).filter(({ last }) => last?.rank === data.rank)
      .flatMap(({ ranks, ids }) => ids.filter((_, at) => ranks[at] === data.rank)));
    this.iteration = split?.time_ns ?? data.p50_ns;
    const kinds = new Map();
    this.kinds = new Uint8Array(this.count);
    this.columns.category.forEach((text, id) => {
      if (!kinds.has(text)) kinds.set(text, Math.max(0, KINDS.indexOf(run.data.texts[text])));
      this.kinds[id] = kinds.get(text);
    });
    this.readDependencies();
    this.readSpans();
    this.counters = data.counters.map((counter) => new Counter(this, counter));
  }

  readDependencies() {
    const { after_count: counts, after_distance: distances } = this.columns;
    this.after = new Int32Array(distances.length);
    this.afterStart = new Int32Array(this.count + 1);
    for (let id = 0, at = 0; id < this.count; id++) {
      for (let left = counts[id]; left > 0; left--, at++) this.after[at] = id - distances[at];
      this.afterStart[id + 1] = at;
    }
  }

  readSpans() {
    const { id: ids, start_ns: starts, time_ns: times } = this.data.trace;
    /** Start and end of each operation's span; NaN for one that did not run. */
    this.start = new Float64Array(this.count).fill(NaN);
    this.end = new Float64Array(this.count).fill(NaN);
    const lanes = new Map();
    let [id, start] = [0, this.data.shift_ns];
    for (let at = 0; at < ids.length; at++) {
      id += ids[at];
      start += starts[at];
      this.start[id] = start;
      this.end[id] = start + times[at];
      const lane = this.columns.lane[id];
      if (!lanes.has(lane)) lanes.set(lane, []);
      lanes.get(lane).push(id);
    }
    const sorted = [...lanes].sort(([a], [b]) => a - b);
    this.tracks = sorted.map(([lane, ids]) => new Track(this, lane, SpanSet.of(this, ids)));
    this.trackOf = new Map(this.tracks.map((track) => [track.lane, track]));
  }

  /** A text of an operation; null where it has none. */
  text(column, id) {
    const index = this.columns[column][id];
    return index === null ? null : this.run.data.texts[index];
  }

  name(id) {
    return this.text("name", id);
  }

  /** The operations of the iteration that this one waits for. */
  waitsFor(id) {
    return this.after.subarray(this.afterStart[id], this.afterStart[id + 1]);
  }

  /** Time of the span in which the operation waits for other ranks, before it transfers anything. */
  waiting(id) {
    const transfer = this.columns.transfer_ns[id];
    return transfer === null ? 0 : Math.max(0, this.end[id] - this.start[id] - transfer);
  }

  /** Median time in which the operation works; null where it was not observed. */
  work(id) {
    return this.columns.transfer_ns[id] ?? this.columns.time_ns[id];
  }

  /** How much longer it takes than alone, as a share; null without a run on one stream. */
  stretch(id) {
    const [alone, work] = [this.columns.alone_ns[id], this.work(id)];
    return alone > 0 && work !== null ? work / alone - 1 : null;
  }

  /** The share of the limit that it reaches: its time at the peak of what bounds it over its time. */
  ofLimit(id) {
    const [ideal, work] = [this.columns.ideal_ns[id], this.work(id)];
    return ideal !== null && work > 0 ? ideal / work : null;
  }

  /** `stream`, or `stream, rank 2`, with the marks of the run. */
  get label() {
    const number = this.several ? `, rank ${this.number}` : "";
    return `${this.variant.label}${number}`;
  }
}

/** The operations of one real stream of a rank. */
class Track {
  constructor(rank, lane, spans) {
    Object.assign(this, { rank, lane, spans });
    const known = rank.run.data.program.lanes[lane];
    this.info = known;
    const name = known?.name ?? (spans.count > 0 ? rank.text("stream", spans.ids[0]) : "");
    const shared = known && known.streams.length > 1 ? ` (+${known.streams.length - 1})` : "";
    this.name = `${lane}: ${name}${shared}`;
    /** The part of the spans on the critical path. */
    this.path = spans.only((id) => rank.path.has(id));
    /** The part of the spans that a search has found; null without a search. */
    this.found = null;
  }
}

/** A value over the iteration, from the operations or from the simulator. */
class Counter {
  constructor(rank, { name, unit, at_ns: steps, values }) {
    Object.assign(this, { rank, name, unit, values });
    let at = 0;
    this.starts = Float64Array.from(steps, (step) => (at += step));
    this.most = values.reduce((most, value) => Math.max(most, value), 0);
  }

  /** The value at a moment. */
  at(time) {
    const next = firstWhere(this.starts.length, (at) => this.starts[at] > time);
    return next > 0 ? this.values[next - 1] : 0;
  }

  text(value) {
    return this.unit ? formatRate(value, "B") : digits(value);
  }
}

/** A launch mode of a run. */
class Variant {
  constructor(run, data) {
    Object.assign(this, { run, data });
    this.label = `${run.prefix}${data.launch === "graph" ? "as a graph" : "as streams"}${run.marked}`;
    this.ranks = data.ranks.map((rank) => new Rank(run, this, rank));
  }
}

/** A record. */
class Run {
  constructor(data, index, several) {
    this.data = data;
    /** Why times are not those of the device itself: `simulated`, `emulated`. */
    this.marks = [data.simulated && "simulated", data.emulated && "emulated"].filter(Boolean);
    this.marked = this.marks.map((mark) => `, ${mark}`).join("");
    this.prefix = several ? `${index + 1}. ${data.workload.name}, ` : "";
    this.variants = data.variants.map((variant) => new Variant(this, variant));
  }
}

/** All runs of the page. */
async function readModel() {
  const data = await readData();
  const runs = data.runs.map((run, index) => new Run(run, index, data.runs.length > 1));
  return { ...data, runs, variants: runs.flatMap((run) => run.variants), ranks: runs.flatMap((run) => run.variants.flatMap((variant) => variant.ranks)) };
}
