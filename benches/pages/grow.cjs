// Writes a page with several times the operations of another one, whose times differ by up to 5 % each.
//
// node benches/pages/grow.cjs PAGE TIMES OUTPUT

const fs = require("node:fs");
const zlib = require("node:zlib");

/** Numbers from 0 to 1, the same in each run. */
function generator(state) {
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
}

/** A column several times; a column of differences gets back to its begin, `step` further, before each turn. */
function repeated(column, times, { differences = false, step = 0 } = {}) {
  const sum = differences ? column.reduce((sum, value) => sum + value, 0) : 0;
  return Array.from({ length: times }, (_, turn) => turn === 0 || !differences ? column
    : [column[0] - sum + step, ...column.slice(1)]).flat();
}

function grow(rank, times) {
  const { operations, trace } = rank;
  const count = operations.name.length;
  const end = trace.start_ns.reduce((sum, value) => sum + value, 0) + (trace.time_ns.at(-1) ?? 0);
  for (const [name, column] of Object.entries(operations)) operations[name] = repeated(column, times, { differences: name === "name" });
  const random = generator(rank.rank);
  const vary = (time) => (time === null ? null : Math.round(time * (1 + random() / 20)));
  for (const name of ["time_ns", "transfer_ns", "alone_ns", "slack_ns"]) operations[name] = operations[name].map(vary);
  trace.id = repeated(trace.id, times, { differences: true, step: count });
  trace.start_ns = repeated(trace.start_ns, times, { differences: true, step: end });
  // Shorter and not longer, since the operations of a stream run one after the other.
  trace.time_ns = repeated(trace.time_ns, times).map((time) => Math.round(time * (1 - random() / 20)));
}

const [path, times, output] = process.argv.slice(2);
const page = fs.readFileSync(path, "utf8");
const [before, rest] = page.split('id="data">');
const end = rest.indexOf("<");
const data = JSON.parse(zlib.inflateSync(Buffer.from(rest.slice(0, end), "base64")));
for (const run of data.runs) for (const variant of run.variants) variant.ranks.forEach((rank) => grow(rank, Number(times)));
const packed = zlib.deflateSync(JSON.stringify(data)).toString("base64");
fs.writeFileSync(output, `${before}id="data">${packed}${rest.slice(end)}`);
