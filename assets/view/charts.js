// Tables of times beside the pictures of aorta: the split that adds up, and all series.

/** The parts of an iteration: field, name, meaning. */
const PARTS = [
  ["operations_ns", "operations", "operations that the iteration waited for, as fast as alone"],
  ["stretch_ns", "stretch", "what running beside others adds to them"],
  ["wait_ns", "other ranks", "operations that wait for other ranks"],
  ["engine_ns", "copy engine", "waiting for a copy engine that other copies occupy"],
  ["launch_ns", "launch", "waiting for the host"],
  ["queue_ns", "queue", "waiting behind another stream on the same hardware queue"],
  ["dependency_ns", "dependency", "from the end of a dependency to the start of the next operation"],
  ["idle_ns", "start and end", "before the first operation and behind the last"],
];

/** The verdict on each rank's iteration, and a table of the parts of its split. */
function splitSection(ranks) {
  const known = ranks.filter((rank) => rank.data.analysis);
  if (known.length === 0) return [h("p", {}, "No operation was observed, so nothing says where the time goes.")];
  const cells = known.flatMap((rank) => PARTS.map(([field, name, meaning]) => ({ rank, name, meaning, time: rank.data.analysis.split[field] })));
  const table = new SortedTable("Parts of an iteration, which add up to its time", [
    { name: "iteration", value: (cell) => cell.rank.label },
    { name: "part", value: (cell) => cell.name },
    { name: "time", value: (cell) => cell.time, text: formatTime },
    { name: "removing it saves at most", value: (cell) => cell.time === null ? null : cell.time / cell.rank.data.analysis.split.time_ns, text: formatShare },
    { name: "meaning", value: (cell) => cell.meaning },
  ], cells, { unit: "part" });
  return [
    h("ul", { class: "verdicts" }, verdicts(known).slice(0, 8).map(([{ label, data: { analysis: { verdict, help } } }, others]) =>
      h("li", {}, h("strong", {}, `${label}${others > 0 ? ` and ${counted(others, "more rank")}` : ""}: `), verdict,
        h("span", { class: "help" }, help ? ` — ${help}` : "")))),
    h("ul", { class: "verdicts" }, [...new Set(known.map((rank) => rank.variant))].map(stragglerText).filter(Boolean).map((text) => h("li", {}, text))),
    h("details", {}, h("summary", {}, "Table of the parts"), table.element),
    categoriesTable(known).element,
  ];
}

/** Ranks of a variant with one verdict: the first of them, and the number of the others. */
function verdicts(ranks) {
  const all = new Map();
  for (const rank of ranks) {
    const key = [rank.variant.label, rank.data.analysis.verdict, rank.data.analysis.help].join("\n");
    if (all.has(key)) all.get(key)[1]++;
    else all.set(key, [rank, 0]);
  }
  return [...all.values()];
}

/** Which rank the others wait for most; null where no difference is beyond its error. */
function stragglerText({ label, data: { skew } }) {
  const number = skew?.straggler ?? null;
  if (number === null) return null;
  const behind = skew.balance?.behind;
  const where = behind ? `; it is slower in ${behind.name} (${behind.place}): ${formatTime(behind.time_ns)}, others ${formatTime(behind.others_ns)}` : "";
  return `${label}: the others wait most for rank ${number}${where}`;
}

/** What kinds of operations take, how much of that no computation hides, and their part of the chain. */
function categoriesTable(ranks) {
  const rows = ranks.flatMap((rank) => rank.data.analysis.categories.map((category) => ({ rank, ...category })));
  return new SortedTable("Kinds of operations in that iteration", [
    { name: "iteration", value: ({ rank }) => rank.label },
    { name: "kind", value: ({ category }) => category },
    { name: "operations", value: ({ operations }) => operations, text: String },
    { name: "busy", value: ({ busy_ns: time }) => time, text: formatTime },
    { name: "exposed", value: ({ exposed_ns: time }) => time, text: formatTime },
    { name: "waiting for ranks", value: ({ wait_ns: time }) => time, text: formatTime },
    { name: "waited for", value: ({ chain_ns: time }) => time, text: formatTime },
    { name: "of the iteration", value: ({ rank, chain_ns: time }) => time / rank.data.analysis.split.time_ns, text: formatShare },
  ], rows, { unit: "row" });
}

/** Series of times of a run, by their names. */
const seriesOf = (variant) => [
  [variant.label, variant.data.time],
  [`${variant.label}, ungated`, variant.data.ungated],
  [`${variant.label}, one stream`, variant.data.serial],
  [`${variant.label}, launching`, variant.data.issue],
].filter(([, times]) => times && times.n > 0 && times.p50_ns !== null);

/** A table of all series of times. */
function timesSection(variants) {
  const all = variants.flatMap(seriesOf);
  if (all.length === 0) return [h("p", {}, "The record has no times with statistics.")];
  const columns = [
    { name: "series", value: ([name]) => name },
    { name: "iterations", value: ([, times]) => times.n, text: String },
    { name: "median", value: ([, times]) => times.p50_ns, text: formatTime },
    { name: "95 % interval from", value: ([, times]) => times.p50_low_ns, text: formatTime },
    { name: "to", value: ([, times]) => times.p50_high_ns, text: formatTime },
    { name: "5th percentile", value: ([, times]) => times.p5_ns, text: formatTime },
    { name: "95th percentile", value: ([, times]) => times.p95_ns, text: formatTime },
    { name: "minimum", value: ([, times]) => times.min_ns, text: formatTime },
    { name: "maximum", value: ([, times]) => times.max_ns, text: formatTime },
  ];
  return [new SortedTable("Times of an iteration", columns, all, { unit: "series" }).element];
}
