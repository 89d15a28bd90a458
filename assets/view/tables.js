// Tables that sort by a click on a column, and that can be copied as CSV or Markdown.

/** Rows that a table shows at first, and that each further step adds. */
const ROWS = 100;

/** Text that a spreadsheet would take for a formula begins with an apostrophe, as in aorta's own CSV. */
const csvCell = (text) => {
  const safe = /^[=+\-@\t\r]/.test(text) && Number.isNaN(Number(text)) ? `'${text}` : text;
  return /[",\n\r]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
};

const markdownCell = (text) => text.replace(/[|\\`*_<>[\]]/g, "\\$&").replaceAll("\n", " ");

/** Whether a row has no value in a column. */
const isAbsent = (value) => value === null || value === undefined || Number.isNaN(value);

/** Compares values of a column: numbers from large to small, texts by letters. */
const compareValues = (a, b) => (typeof a === "number" ? b - a : a < b ? -1 : Number(a > b));

/**
 * A table. A column has a `name`, a `value` of a row to sort by and, for numbers, a `text` of that value. Numbers are
 * sorted from large to small at first. `select` is called with a row that was chosen. `headed` is true below a heading of
 * the same text, so that the caption is for screen readers alone.
 */
class SortedTable {
  constructor(caption, columns, rows, { select, unit, headed } = {}) {
    Object.assign(this, { columns, select, unit: unit ?? "row", rows, sorted: rows, shown: ROWS });
    this.order = null;
    this.body = h("tbody");
    // A column without a name, such as one of drawn bars, is nothing to sort by.
    this.heads = columns.map((column, index) => (column.name === "" ? h("td")
      : h("th", { scope: "col", class: column.text ? "number" : "" }, button(column.name, () => this.sortBy(index)))));
    this.more = h("p", { class: "more" });
    this.element = h("div", { class: "table" },
      h("div", { class: "tools" },
        button("Copy as CSV", () => copy(this.csv(), `${counted(rows.length, this.unit)} as CSV`)),
        button("Copy as Markdown", () => copy(this.markdown(), `${counted(rows.length, this.unit)} as Markdown`))),
      h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": caption },
        h("table", {}, h("caption", { class: headed ? "hidden" : "" }, caption), h("thead", {}, h("tr", {}, this.heads)), this.body)),
      this.more);
    this.draw();
  }

  /** Sorts by a column; a second time in the opposite order. */
  sortBy(index) {
    const down = !(this.order?.index === index && this.order.down);
    this.order = { index, down };
    const { value } = this.columns[index];
    const sign = down ? 1 : -1;
    const keyed = this.rows.map((row) => [value(row), row]);
    // Rows without a value come last in both orders.
    keyed.sort(([a], [b]) => (isAbsent(a) || isAbsent(b) ? isAbsent(a) - isAbsent(b) : sign * compareValues(a, b)));
    this.sorted = keyed.map(([, row]) => row);
    const falling = (column) => (column.text ? down : !down);
    this.heads.forEach((head, at) => {
      if (at === index) head.setAttribute("aria-sort", falling(this.columns[at]) ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    });
    this.draw();
    return this;
  }

  cell(column, row) {
    const value = column.value(row);
    if (isAbsent(value)) return ABSENT;
    return column.text ? column.text(value) : String(value);
  }

  draw() {
    const line = (row) => h("tr", {}, this.columns.map((column, index) => {
      const text = this.cell(column, row);
      const chosen = index === 0 && this.select;
      // A cell of words is as wide as its text, up to a limit, however many columns stand beside it.
      const content = chosen ? button(text, () => this.select(row), { class: "link words" })
        : column.text ? text : h("div", { class: "words" }, text);
      const heads = index === 0 && text !== "";
      return h(heads ? "th" : "td", { class: column.text ? "number" : "", scope: heads ? "row" : null }, content);
    }));
    this.body.replaceChildren(...this.sorted.slice(0, this.shown).map(line));
    const left = this.sorted.length - this.shown;
    const further = (count) => () => {
      this.shown += count;
      this.draw();
    };
    this.more.replaceChildren(...(left <= 0 ? [] : [
      `${this.shown} of ${counted(this.sorted.length, this.unit)} `, button(`Show ${Math.min(ROWS, left)} more`, further(ROWS)),
    ]));
  }

  /** Every row as texts, the names of the columns first. */
  cells() {
    const rows = this.sorted.map((row) => this.columns.map((column) => visible(this.cell(column, row))));
    return [this.columns.map((column) => column.name), ...rows];
  }

  csv() {
    return this.cells().map((row) => row.map(csvCell).join(",")).join("\n") + "\n";
  }

  markdown() {
    const [head, ...rows] = this.cells();
    const line = (cells) => `| ${cells.map(markdownCell).join(" | ")} |\n`;
    const rule = `| ${this.columns.map((column) => (column.text ? "---:" : "---")).join(" | ")} |\n`;
    return line(head) + rule + rows.map(line).join("");
  }
}

/** What operations can be grouped by, each with the values that make a group. */
const GROUPINGS = {
  operation: null,
  statement: ["name", "place", "shape"],
  category: ["category"],
  phase: ["phase"],
  stream: ["stream"],
};

/** The operations of a rank in groups of equal values; each alone without a grouping. */
function groups(rank, grouping) {
  const names = GROUPINGS[grouping];
  if (!names) return Array.from({ length: rank.count }, (_, id) => [id]);
  const columns = names.map((name) => rank.columns[name]);
  // Indices of texts as digits of one number, which has to be exact.
  const base = rank.run.data.texts.length + 1;
  const exact = base ** columns.length <= Number.MAX_SAFE_INTEGER;
  const key = exact ? (id) => columns.reduce((key, column) => key * base + (column[id] ?? -1) + 1, 0)
    : (id) => columns.map((column) => column[id]).join();
  const all = new Map();
  for (let id = 0; id < rank.count; id++) {
    const of = key(id);
    const group = all.get(of);
    if (group) group.push(id);
    else all.set(of, [id]);
  }
  return [...all.values()];
}

/** Sum of a column over operations; null if none has a value. */
function total(ids, column) {
  let sum = null;
  for (let at = 0; at < ids.length; at++) {
    const one = column[ids[at]];
    if (one !== null) sum += one;
  }
  return sum;
}

/** The function with its result for each group of operations kept: a table asks for it several times. */
function kept(value) {
  const known = new Map();
  return (ids) => {
    if (!known.has(ids)) known.set(ids, value(ids));
    return known.get(ids);
  };
}

/** The table of a rank's operations. `select` is called with the number of one. */
function operationsTable(rank, grouping, select) {
  const { columns } = rank;
  const words = (column) => kept((ids) => {
    const first = rank.text(column, ids[0]);
    const same = ids.every((id) => columns[column][id] === columns[column][ids[0]]);
    return same ? first : `${first} and others`;
  });
  const sums = new Map(["time_ns", "alone_ns", "ideal_ns", "bytes", "flops"].map((name) => [name, kept((ids) => total(ids, columns[name]))]));
  const sum = (name) => sums.get(name);
  const works = columns.time_ns.map((time, id) => columns.transfer_ns[id] ?? time);
  const work = kept((ids) => total(ids, works));
  const waits = columns.transfer_ns.map((transfer, id) => (transfer === null ? null : columns.time_ns[id] - transfer));
  const per = (amount) => (ids) => {
    const [of, time] = [amount(ids), work(ids)];
    return of > 0 && time > 0 ? of / time * 1e9 : null;
  };
  // As in the text: operations between ranks have their bus bandwidth.
  const moved = kept((ids) => (ids.every((id) => columns.bus_bytes[id] !== null) ? total(ids, columns.bus_bytes) : sum("bytes")(ids)));
  const stretch = (ids) => {
    const [alone, time] = [sum("alone_ns")(ids), work(ids)];
    return alone > 0 && time !== null ? time / alone - 1 : null;
  };
  const limit = (ids) => {
    const [ideal, time] = [sum("ideal_ns")(ids), work(ids)];
    return ideal !== null && time > 0 ? ideal / time : null;
  };
  const first = grouping === "operation" || grouping === "statement" ? "name" : grouping;
  const one = grouping === "operation";
  const all = [
    { name: first, value: words(first) },
    { name: "count", value: (ids) => ids.length, text: String, without: one },
    { name: "operation", value: words("operation"), without: ["category", "phase", "stream"].includes(grouping) },
    { name: "shape", value: words("shape"), without: ["category", "phase", "stream"].includes(grouping) },
    { name: "stream", value: words("stream"), without: grouping === "stream" },
    { name: "phase", value: words("phase"), without: grouping === "phase" || columns.phase.every((text) => text === null) },
    { name: "place", value: words("place"), without: ["category", "phase", "stream"].includes(grouping) },
    { name: "time", value: sum("time_ns"), text: formatTime },
    { name: "of the iteration", value: (ids) => sum("time_ns")(ids) / rank.iteration, text: formatShare },
    { name: "waiting", value: kept((ids) => total(ids, waits)), text: formatTime, without: columns.transfer_ns.every((time) => time === null) },
    { name: "alone", value: sum("alone_ns"), text: formatTime, without: columns.alone_ns.every((time) => time === null) },
    { name: "stretch", value: stretch, text: formatShare, without: columns.alone_ns.every((time) => time === null) },
    { name: "slack", value: (ids) => columns.slack_ns[ids[0]], text: formatTime, without: !one },
    { name: "bytes", value: sum("bytes"), text: formatBytes },
    { name: "bytes/s", value: per(moved), text: (rate) => formatRate(rate, "B") },
    { name: "FLOP/s", value: per(sum("flops")), text: (rate) => formatRate(rate, "FLOP") },
    { name: "of the limit", value: limit, text: formatShare },
    { name: "limited by", value: words("bound") },
  ];
  const name = grouping === "operation" ? "Operations" : `Operations by ${grouping}`;
  const table = new SortedTable(`${name}, ${rank.label}`, all.filter((column) => !column.without), groups(rank, grouping),
    { select: (ids) => select(ids[0]), unit: one ? "operation" : "group" });
  return table.sortBy(table.columns.findIndex((column) => column.name === "time"));
}

/** The table of a rank's real streams. */
function streamsTable(rank) {
  const busy = (track) => track.spans.covering[track.spans.count];
  const columns = [
    { name: "stream", value: (track) => track.name },
    { name: "queue", value: (track) => (track.info?.threads ? "CPU" : track.info ? String(track.info.queue) : null) },
    { name: "priority", value: (track) => track.info?.priority ?? null },
    { name: "operations", value: (track) => track.spans.count, text: String },
    { name: "busy", value: busy, text: formatTime },
    { name: "of the iteration", value: (track) => busy(track) / rank.iteration, text: formatShare },
  ];
  return new SortedTable(`Streams, ${rank.label}`, columns, rank.tracks, { unit: "stream" });
}
