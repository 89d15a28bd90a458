// The timeline: a canvas that is moved by pointer, wheel and keys, and the controls above it.

const HELP = [
  ["← →", "the operation before or behind, on the same stream"],
  ["↑ ↓", "the operation beside, on another stream"],
  ["+ −, or Ctrl and wheel", "zoom"],
  ["A D, drag, or Shift and wheel", "move in time"],
  ["F", "zoom to the selected operation"],
  ["0", "show everything"],
  ["P", "critical path on or off"],
  ["C", "counters on or off"],
  ["/", "search"],
  ["N", "next operation that was found"],
  ["W", "select the last operation that the selected one waited for"],
  ["Escape", "select nothing"],
];

/** Number of ranks up to which their counters are shown at first. */
const COUNTED_RANKS = 4;

/** Size of a printed timeline in pixels: a page of A4 or Letter between its margins. */
const PRINTED = { width: 700, height: 880 };

class Timeline {
  /** `select` is called with a rank and the number of the selected operation, or with null. */
  constructor(model, select) {
    Object.assign(this, { model, onselect: select, selected: null, peers: [], showPath: true, scroll: 0, found: [] });
    this.showCounters = model.ranks.length <= COUNTED_RANKS;
    Object.assign(this, layOut(model.ranks, this.showCounters));
    const tracks = model.ranks.flatMap((rank) => rank.tracks).filter((track) => track.spans.count > 0);
    const first = Math.min(...tracks.map((track) => track.spans.starts[0]));
    const last = Math.max(...tracks.map((track) => track.spans.latest[track.spans.count - 1]),
      ...model.ranks.map((rank) => (rank.iteration ?? 0) + rank.data.shift_ns));
    this.empty = tracks.length === 0;
    this.whole = this.empty ? [0, 1] : [Math.min(0, first), Math.max(last, first + 1)];
    this.view = new View(...this.whole);
    this.build();
    this.painter = new Painter(this.canvas);
    this.reset();
    this.listen();
  }

  build() {
    this.canvas = h("canvas", {
      tabindex: 0,
      role: "application",
      "aria-roledescription": "timeline",
      "aria-label": "Timeline of operations by stream; arrow keys go from operation to operation, and the table of operations has the same figures",
    });
    this.spacer = h("div", { class: "spacer" });
    this.scroller = h("div", { class: "scroller", onscroll: () => {
      this.scroll = this.scroller.scrollTop;
      this.draw();
    } }, this.canvas, this.spacer);
    this.fitHeight();
    this.tip = h("div", { class: "tip", hidden: true, "aria-hidden": "true" });
    this.search = h("input", { type: "search", placeholder: "name, shape, stream or place", "aria-label": "Search operations", oninput: () => this.find(this.search.value) });
    this.count = h("span", { class: "count" });
    this.pathBox = h("input", { type: "checkbox", onchange: () => this.showCriticalPath(this.pathBox.checked) });
    this.pathBox.checked = true;
    this.countersBox = h("input", { type: "checkbox", onchange: () => this.setCounters(this.countersBox.checked) });
    this.countersBox.checked = this.showCounters;
    const kinds = new Set(this.model.ranks.flatMap((rank) => [...new Set(rank.kinds)]));
    const swatch = (name) => {
      const box = h("span", { class: `swatch ${name}` });
      box.style.background = `var(--${name})`;
      return box;
    };
    this.element = h("div", { class: "timeline" },
      h("div", { class: "tools" },
        this.search, button("Next", () => this.next()), this.count,
        button("Zoom in", () => this.zoomBy(2)), button("Zoom out", () => this.zoomBy(1 / 2)), button("Everything", () => this.reset()),
        h("label", {}, this.pathBox, " critical path"),
        h("label", {}, this.countersBox, " counters")),
      h("div", { class: "frame" }, this.scroller, this.tip),
      h("ul", { class: "legend" },
        KINDS.filter((_, kind) => kinds.has(kind)).map((kind) => h("li", {}, swatch(`kind-${kind}`), ` ${kind}`)),
        h("li", {}, h("span", { class: "swatch hatched" }), " waiting for other ranks"),
        this.model.ranks.some((rank) => rank.late.size > 0) && h("li", {}, h("span", { class: "swatch late" }), " last rank to arrive at a collective"),
        h("li", {}, swatch("path"), " critical path")),
      h("details", {}, h("summary", {}, "Keys"),
        h("dl", { class: "keys" }, HELP.map(([key, what]) => [h("dt", {}, key), h("dd", {}, what)]))));
  }

  /** Makes room for all rows, of which at most so many pixels are visible at a time. */
  fitHeight(most = 560) {
    this.spacer.style.height = `${this.height + RULER}px`;
    this.scroller.style.height = `${Math.min(this.height + RULER, most)}px`;
  }

  setCounters(show) {
    this.showCounters = this.countersBox.checked = show;
    Object.assign(this, layOut(this.model.ranks, show));
    this.fitHeight();
    this.draw();
  }

  listen() {
    const { canvas } = this;
    canvas.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    canvas.addEventListener("pointerdown", (event) => this.press(event));
    canvas.addEventListener("pointermove", (event) => this.move(event));
    canvas.addEventListener("pointerup", (event) => this.release(event));
    canvas.addEventListener("pointerleave", () => this.hideTip());
    canvas.addEventListener("dblclick", (event) => this.hit(event)?.rank && this.fit());
    canvas.addEventListener("keydown", (event) => this.key(event));
    this.search.addEventListener("keydown", (event) => event.key === "Enter" && this.next());
    new ResizeObserver(() => this.draw()).observe(this.scroller);
  }

  /** Draws before the next frame, however often it is called. */
  draw() {
    this.frame ??= requestAnimationFrame(() => {
      this.frame = null;
      this.painter.paint(this);
    });
  }

  /** Reads the colours of the style again, and draws at once. */
  recolor() {
    this.painter.readColors();
    this.painter.paint(this);
  }

  /** Draws all rows, as far as they fit a page, at the width of a page; afterwards those that fit the screen again. */
  print(begins) {
    this.fitHeight(begins ? PRINTED.height : undefined);
    this.element.style.width = begins ? `${PRINTED.width}px` : "";
    this.recolor();
  }

  reset() {
    [this.view.start, this.view.end] = this.whole;
    this.view.zoom(0.97, (this.whole[0] + this.whole[1]) / 2);
    this.draw();
  }

  zoomBy(factor, around = (this.view.start + this.view.end) / 2) {
    this.view.zoom(factor, around);
    this.draw();
  }

  showCriticalPath(show) {
    this.showPath = this.pathBox.checked = show;
    this.draw();
  }

  wheel(event) {
    const pixels = event.deltaMode === 1 ? 16 : 1;
    if (event.ctrlKey || event.metaKey) {
      this.zoomBy(Math.exp(-event.deltaY * pixels / 300), this.view.time(event.offsetX));
    } else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      this.view.pan((event.deltaX || event.deltaY) * pixels / this.view.scale);
      this.draw();
    } else {
      // The page or the streams scroll.
      return;
    }
    event.preventDefault();
    this.hideTip();
  }

  press(event) {
    if (event.button !== 0) return;
    this.canvas.setPointerCapture(event.pointerId);
    this.drag = { x: event.offsetX, moved: false };
  }

  move(event) {
    if (!this.drag) return this.point(event);
    const far = event.offsetX - this.drag.x;
    if (!this.drag.moved && Math.abs(far) < 4) return;
    this.drag = { x: event.offsetX, moved: true };
    this.view.pan(-far / this.view.scale);
    this.hideTip();
    this.draw();
  }

  release(event) {
    if (this.drag && !this.drag.moved) {
      const hit = this.hit(event);
      this.choose(hit?.rank ?? null, hit?.id);
    }
    this.drag = null;
  }

  /** The operation or the counter below the pointer; null where there is none. */
  hit({ offsetX: x, offsetY: y }) {
    const inside = y - RULER + this.scroll;
    const row = this.rows.find((row) => row.y <= inside && inside < row.y + row.height);
    if (x < this.view.left || y < RULER) return null;
    if (row?.counter) return { counter: row.counter };
    if (!row?.track) return null;
    const { spans, rank } = row.track;
    const at = spans.find(this.view.time(x), 2 / this.view.scale);
    return at < 0 ? null : { rank, id: spans.ids[at] };
  }

  /** Shows the facts of the operation below the pointer. */
  point(event) {
    const hit = this.hit(event);
    if (!hit) return this.hideTip();
    const { rank, id, counter } = hit;
    const time = this.view.time(event.offsetX);
    this.tip.replaceChildren(...(counter
      ? [h("strong", {}, counter.name), factList([["value", counter.text(counter.at(time))], ["at", formatTime(time)]])]
      : [h("strong", {}, rank.name(id)), factList(facts(rank, id))]));
    this.tip.hidden = false;
    const { offsetWidth: width, offsetHeight: height } = this.tip;
    const frame = this.tip.parentElement;
    this.tip.style.left = `${Math.max(0, Math.min(event.offsetX + 14, frame.clientWidth - width - 4))}px`;
    const below = event.offsetY + 18;
    this.tip.style.top = `${below + height < frame.clientHeight + 160 ? below : event.offsetY - height - 8}px`;
  }

  hideTip() {
    this.tip.hidden = true;
  }

  /** Selects an operation; none if the rank is null. */
  choose(rank, id) {
    this.selected = rank && !Number.isNaN(rank.start[id]) ? { rank, id } : null;
    this.peers = this.selected ? peersOf(rank, id) : [];
    this.onselect(rank, id);
    this.draw();
  }

  /** Selects an operation and moves the view to it, if it is not visible. */
  goTo(rank, id) {
    this.choose(rank, id);
    if (!this.selected) return;
    const { view } = this;
    const [start, end] = [rank.start[id], rank.end[id]];
    if (start < view.start || end > view.end) {
      const length = Math.max(view.end - view.start, (end - start) * 1.5);
      view.start = (start + end - length) / 2;
      view.end = view.start + length;
    }
    const { y } = rank.trackOf.get(rank.columns.lane[id]);
    const room = this.scroller.clientHeight - RULER;
    if (y < this.scroll || y + ROW > this.scroll + room) this.scroller.scrollTop = y - room / 2;
    this.draw();
  }

  /** Zooms to the selected operation. */
  fit() {
    if (!this.selected) return;
    const { rank, id } = this.selected;
    const [start, end] = [rank.start[id], rank.end[id]];
    const margin = Math.max(1, (end - start) * 0.5);
    [this.view.start, this.view.end] = [start - margin, end + margin];
    this.draw();
  }

  /** Selects the operation that lies `step` further on the same stream. */
  along(step) {
    if (!this.selected) return this.firstVisible();
    const { rank, id } = this.selected;
    const { spans } = rank.trackOf.get(rank.columns.lane[id]);
    const at = spans.ids.indexOf(id) + step;
    if (at >= 0 && at < spans.count) this.goTo(rank, spans.ids[at]);
  }

  /** Selects the operation at about the same time on the next stream with any, upwards or downwards. */
  across(step) {
    if (!this.selected) return this.firstVisible();
    const { rank, id } = this.selected;
    const tracks = this.model.ranks.flatMap((rank) => rank.tracks).filter((track) => track.spans.count > 0);
    const track = tracks[tracks.indexOf(rank.trackOf.get(rank.columns.lane[id])) + step];
    if (!track) return;
    const { spans } = track;
    const at = Math.max(0, firstWhere(spans.count, (at) => spans.starts[at] > rank.start[id]) - 1);
    this.goTo(track.rank, spans.ids[at]);
  }

  firstVisible() {
    const track = this.model.ranks.flatMap((rank) => rank.tracks).find((track) => track.spans.count > 0);
    if (track) this.goTo(track.rank, track.spans.ids[Math.min(track.spans.count - 1, track.spans.firstEndingAfter(this.view.start))]);
  }

  /** Selects what the selected operation waited for: the last of them to end. */
  waited() {
    if (!this.selected) return;
    const { rank, id } = this.selected;
    const before = lastBefore(rank, id);
    if (before !== null) this.goTo(rank, before);
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const actions = {
      ArrowLeft: () => this.along(-1),
      ArrowRight: () => this.along(1),
      ArrowUp: () => this.across(-1),
      ArrowDown: () => this.across(1),
      "+": () => this.zoomBy(1.5),
      "=": () => this.zoomBy(1.5),
      "-": () => this.zoomBy(1 / 1.5),
      a: () => this.view.pan((this.view.start - this.view.end) / 5),
      d: () => this.view.pan((this.view.end - this.view.start) / 5),
      f: () => this.fit(),
      0: () => this.reset(),
      p: () => this.showCriticalPath(!this.showPath),
      c: () => this.setCounters(!this.showCounters),
      "/": () => this.search.focus(),
      n: () => this.next(),
      w: () => this.waited(),
      Escape: () => this.choose(null),
    };
    const action = actions[event.key] ?? actions[event.key.toLowerCase()];
    if (!action) return;
    event.preventDefault();
    this.hideTip();
    action();
    this.draw();
  }

  /** Shows the operations with a text in their name, kind, shape, stream, phase or place, and the others pale. */
  find(text) {
    const wanted = text.trim().toLowerCase();
    this.found = [];
    for (const rank of this.model.ranks) {
      const holds = rank.run.data.texts.map((text) => wanted !== "" && text.toLowerCase().includes(wanted));
      const columns = ["name", "operation", "category", "phase", "stream", "place", "shape"].map((name) => rank.columns[name]);
      const matches = (id) => columns.some((column) => column[id] !== null && holds[column[id]]);
      for (const track of rank.tracks) {
        track.found = wanted === "" ? null : track.spans.only(matches);
        if (track.found) for (const id of track.found.ids) this.found.push({ rank, id });
      }
    }
    this.found.sort((a, b) => a.rank.start[a.id] - b.rank.start[b.id]);
    this.count.textContent = wanted === "" ? "" : `${counted(this.found.length, "operation")} found`;
    this.at = -1;
    this.draw();
  }

  /** Selects the next operation that was found. */
  next() {
    if (this.found.length === 0) return;
    this.at = (this.at + 1) % this.found.length;
    const { rank, id } = this.found[this.at];
    this.goTo(rank, id);
  }
}
