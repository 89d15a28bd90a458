// The facts of an operation, what it waited for, and its place in the source.

/** What is known of an operation, as pairs of a name and a text. */
function facts(rank, id) {
  const { columns } = rank;
  const work = rank.work(id);
  const perSecond = (amount, of) => (amount > 0 && work > 0 ? formatRate(amount / work * 1e9, of) : null);
  const pair = (...texts) => texts.filter(Boolean).join(", ");
  const limit = rank.ofLimit(id);
  const waits = columns.transfer_ns[id] === null ? null : columns.time_ns[id] - columns.transfer_ns[id];
  const across = columns.bus_bytes[id] > 0;
  const ran = !Number.isNaN(rank.start[id]);
  const all = [
    ["operation", pair(rank.text("operation", id), rank.text("category", id))],
    ["shape", rank.text("shape", id)],
    ["stream", pair(rank.text("stream", id), rank.label)],
    ["phase", rank.text("phase", id)],
    ["in this iteration", ran ? `${formatTime(rank.end[id] - rank.start[id])}, from ${formatTime(rank.start[id])}` : "it did not run"],
    ["median time", columns.time_ns[id] === null ? rank.text("refused", id) : formatTime(columns.time_ns[id])],
    ["waits for other ranks", waits === null ? null : formatTime(waits)],
    ["bytes", columns.bytes[id] > 0 ? pair(formatBytes(columns.bytes[id]), across ? null : perSecond(columns.bytes[id], "B")) : null],
    ["bus bandwidth", across ? pair(perSecond(columns.bus_bytes[id], "B"), `${formatBytes(columns.bus_bytes[id])} between ranks`) : null],
    ["arithmetic", perSecond(columns.flops[id], "FLOP")],
    ["share of the limit", limit === null ? null : pair(formatShare(limit), rank.text("bound", id))],
    ["alone", columns.alone_ns[id] === null ? null : formatTime(columns.alone_ns[id])],
    ["stretch", rank.stretch(id) === null ? null : formatShare(rank.stretch(id))],
    ["slack", columns.slack_ns[id] === null ? null : `${formatTime(columns.slack_ns[id])}${rank.path.has(id) ? ", on the critical path" : ""}`],
    ["source", rank.text("place", id)],
  ];
  return all.filter(([, text]) => text !== null && text !== "");
}

const factList = (all) => h("dl", { class: "facts" }, all.map(([name, text]) => [h("dt", {}, name), h("dd", {}, text)]));

/** The last to end of the operations that this one waited for; null if there is none. */
function lastBefore(rank, id) {
  let last = null;
  for (const before of rank.waitsFor(id)) {
    if (!Number.isNaN(rank.end[before]) && (last === null || rank.end[before] > rank.end[last])) last = before;
  }
  return last;
}

/** The operations of other ranks that take part in the same collective or transfer. */
function peersOf(rank, id) {
  const { variant } = rank;
  if (!variant.meetings) {
    // Which collective an operation of a rank belongs to.
    variant.meetings = new Map();
    for (const meeting of variant.data.skew?.collectives ?? []) {
      meeting.ranks.forEach((number, at) => variant.meetings.set(`${number}:${meeting.ids[at]}`, meeting));
    }
  }
  const meeting = variant.meetings.get(`${rank.number}:${id}`);
  if (!meeting) return [];
  const all = meeting.ranks.map((number, at) => ({
    rank: variant.ranks.find((other) => other.number === number),
    id: meeting.ids[at],
    late: meeting.last?.rank === number,
  }));
  return all.filter((other) => other.rank && other.id < other.rank.count && (other.rank !== rank || other.late));
}

/** A place as file, line and column; null if it is none. */
function parsePlace(place) {
  const [, file, line, column] = /^(.*):(\d+):(\d+)$/s.exec(place ?? "") ?? [];
  return file === undefined ? null : { file, line: Number(line), column: Number(column) };
}

/** The panel beside the timeline: facts of the selected operation, links to what it waited for, and its source. */
class Details {
  /** `go` is called with a rank and the number of an operation that was chosen here. */
  constructor(go) {
    this.go = go;
    this.about = h("div", { class: "about" });
    this.source = h("div", { class: "source", tabindex: 0, role: "region", "aria-label": "source" });
    this.element = h("aside", { class: "details empty", "aria-label": "Selected operation" }, this.about, this.source);
    this.show(null);
  }

  show(rank, id) {
    this.element.classList.toggle("empty", !rank);
    if (!rank) {
      this.about.replaceChildren(h("p", { class: "note" }, "Select an operation: its facts, what it waited for and its source appear here."));
      this.source.replaceChildren();
      this.shown = null;
      return;
    }
    const before = [...rank.waitsFor(id)];
    const last = lastBefore(rank, id);
    const waits = before.slice(0, 20).map((from) => {
      const gap = rank.start[id] - rank.end[from];
      const when = Number.isNaN(gap) ? "" : `, ended ${formatTime(gap)} before`;
      return h("li", {}, button(rank.name(from), () => this.go(rank, from), { class: "link" }), `${when}${from === last && before.length > 1 ? ", the last" : ""}`);
    });
    const peers = peersOf(rank, id).filter((peer) => peer.rank !== rank);
    this.about.replaceChildren(h("h3", {}, rank.name(id)), factList(facts(rank, id)),
      h("h4", {}, before.length > 0 ? `Waited for ${counted(before.length, "operation")}` : "Waited for no operation of the iteration"),
      h("ul", {}, waits, before.length > waits.length && h("li", {}, `and ${before.length - waits.length} more`)),
      ...(peers.length === 0 ? [] : [h("h4", {}, "The same on other ranks"),
        h("ul", {}, peers.slice(0, 20).map((peer) => h("li", {}, button(peer.rank.label, () => this.go(peer.rank, peer.id), { class: "link" }), peer.late && ", the last to arrive")))]));
    this.showSource(rank, id);
    announce(`${rank.name(id)}, ${facts(rank, id).map(([name, text]) => `${name} ${text}`).join("; ")}`);
  }

  showSource(rank, id) {
    const place = parsePlace(rank.text("place", id));
    const { sources } = rank.run.data;
    const lines = place && sources.find((source) => source.name === place.file)?.lines;
    if (!lines) {
      const why = sources.length === 0 ? "The record has no sources; one that this version of aorta writes has them." : `The record does not have the text of ${place?.file ?? "the file"}.`;
      this.source.replaceChildren(h("p", { class: "note" }, why));
      this.shown = null;
      return;
    }
    if (this.shown?.rank !== rank || this.shown.file !== place.file) this.drawSource(rank, place.file, lines);
    this.shown.lines.forEach((line, at) => line.classList.toggle("here", at === place.line - 1));
    const line = this.shown.lines[place.line - 1];
    if (line) this.source.scrollTop = line.offsetTop - this.source.clientHeight / 2;
  }

  /** The text of a file, and beside each line the total time of its operations. */
  drawSource(rank, file, texts) {
    const times = new Map();
    const first = new Map();
    const places = new Map();
    for (let id = 0; id < rank.count; id++) {
      const index = rank.columns.place[id];
      if (!places.has(index)) places.set(index, parsePlace(rank.text("place", id)));
      const place = places.get(index);
      if (place?.file !== file) continue;
      times.set(place.line, (times.get(place.line) ?? 0) + (rank.columns.time_ns[id] ?? 0));
      if (!first.has(place.line)) first.set(place.line, id);
    }
    const lines = texts.map((line, at) => {
      const time = times.get(at + 1);
      const row = [h("span", { class: "at" }, at + 1), h("span", { class: "time" }, time ? formatTime(time) : ""), h("code", {}, line)];
      const start = first.get(at + 1);
      return h("div", { class: start === undefined ? "line" : "line used", onclick: start === undefined ? () => {} : () => this.go(rank, start) }, row);
    });
    this.source.replaceChildren(h("p", { class: "file" }, file), ...lines);
    this.shown = { rank, file, lines };
  }
}
