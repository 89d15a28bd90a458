// The timeline's picture: which part of time and which rows are visible, and how spans, arrows and marks are drawn.

const ROW = 22;
const HEAD = 22;
/** Height of a counter's row. */
const COUNTER = 34;
const RULER = 26;
/** Room for the names of streams: at most, and as a share of a narrow timeline. */
const NAMES = 170;
const NAMES_SHARE = 0.3;
const FONT = "11px ui-monospace, Menlo, Consolas, monospace";
/** Width of a letter in that font, for labels that have to fit. */
const LETTER = 6.7;
/** A span that is narrower, in pixels, is drawn together with those beside it. */
const NARROW = 1.5;
/** Strengths of colour that tell how much of a column of pixels is covered. */
const SHADES = 5;

/** A stretch of time on the page: from `start` to `end` in ns, between the names of streams and the right edge. */
class View {
  constructor(start, end) {
    Object.assign(this, { start, end, width: 1000 });
  }

  /** Where the names of streams end, in pixels. */
  get left() {
    return Math.min(NAMES, Math.round(this.width * NAMES_SHARE));
  }

  get scale() {
    return (this.width - this.left) / (this.end - this.start);
  }

  x(time) {
    return this.left + (time - this.start) * this.scale;
  }

  time(x) {
    return this.start + (x - this.left) / this.scale;
  }

  /** Zooms by a factor around a moment, which stays where it is. */
  zoom(factor, around) {
    const least = 1;
    const most = 1e18;
    const length = Math.min(most, Math.max(least, (this.end - this.start) / factor));
    const share = (around - this.start) / (this.end - this.start);
    this.start = around - share * length;
    this.end = this.start + length;
  }

  pan(time) {
    this.start += time;
    this.end += time;
  }
}

/** Rows of the timeline from top to bottom: for each rank a head, its tracks, and its counters if they are shown. */
function layOut(ranks, showCounters) {
  const rows = [];
  let y = 0;
  for (const rank of ranks) {
    rows.push({ rank, y, height: HEAD });
    y += HEAD;
    for (const track of rank.tracks) {
      track.y = y;
      rows.push({ rank, track, y, height: ROW });
      y += ROW;
    }
    for (const counter of showCounters ? rank.counters : []) {
      rows.push({ rank, counter, y, height: COUNTER });
      y += COUNTER;
    }
  }
  return { rows, height: y };
}

/** A moment beside a tick: in the unit of the latest one that is visible, with as many places as ticks need. */
function tickText(time, step, latest) {
  const [name, size] = TIME_UNITS.find(([, size]) => latest >= size) ?? TIME_UNITS[TIME_UNITS.length - 1];
  const places = Math.min(9, Math.max(0, -Math.floor(Math.log10(step / size) + 1e-9)));
  const text = (time / size).toFixed(places);
  return `${Number(text) === 0 ? "0" : text} ${name}`;
}

/** Draws the timeline on a canvas. `state` has the view, the rows, and what is selected and found. */
class Painter {
  constructor(canvas) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d", { alpha: false });
    this.readColors();
  }

  readColors() {
    const color = Object.fromEntries(["text", "faint", "line", "page", "panel", "accent", "path", "counter", "dark-text", "light-text"]
      .map((name) => [name, style(`--${name}`)]));
    this.color = color;
    this.fills = KINDS.map((kind) => style(`--kind-${kind}`));
    this.texts = KINDS.map((kind) => (style(`--on-${kind}`) === "light" ? color["light-text"] : color["dark-text"]));
    this.hatch = this.context.createPattern(this.hatchTile(), "repeat");
  }

  /** A tile of diagonal lines over the colour of the page, for time in which nothing but waiting happens. */
  hatchTile() {
    const tile = document.createElement("canvas");
    tile.width = tile.height = 6;
    const context = tile.getContext("2d");
    context.fillStyle = this.color.page;
    context.globalAlpha = 0.75;
    context.fillRect(0, 0, 6, 6);
    context.globalAlpha = 1;
    context.strokeStyle = this.color.text;
    context.beginPath();
    for (const at of [-6, 0, 6]) {
      context.moveTo(at, 6);
      context.lineTo(at + 6, 0);
    }
    context.stroke();
    return tile;
  }

  /** Fits the canvas to its element. Returns whether its size has changed. */
  resize() {
    const ratio = window.devicePixelRatio || 1;
    const { clientWidth: width, clientHeight: height } = this.canvas;
    const [wide, high] = [Math.round(width * ratio), Math.round(height * ratio)];
    if (this.canvas.width !== wide || this.canvas.height !== high) {
      this.canvas.width = wide;
      this.canvas.height = high;
    }
    this.context.setTransform(ratio, 0, 0, ratio, 0, 0);
    Object.assign(this, { width, height });
  }

  paint(state) {
    this.resize();
    const { context, color } = this;
    const { view, rows, scroll } = state;
    view.width = this.width;
    this.left = view.left;
    context.font = FONT;
    context.textBaseline = "middle";
    context.fillStyle = color.page;
    context.fillRect(0, 0, this.width, this.height);
    context.save();
    context.beginPath();
    context.rect(0, RULER, this.width, this.height - RULER);
    context.clip();
    context.translate(0, RULER - scroll);
    const visibleRows = rows.filter((row) => row.y + row.height > scroll && row.y < scroll + this.height - RULER);
    for (const row of visibleRows) {
      if (row.track) this.paintTrack(row.track, state);
      if (row.counter) this.paintCounter(row, view);
    }
    for (const row of visibleRows) this.paintName(row, state);
    context.beginPath();
    context.rect(this.left, scroll, this.width, this.height);
    context.clip();
    this.paintArrows(state);
    context.restore();
    this.paintRuler(view);
  }

  /** The bars of a stream, what is found in a search, the critical path, and the selection. */
  paintTrack(track, { view, selected, showPath }) {
    const { context, color } = this;
    context.fillStyle = color.line;
    context.fillRect(this.left, track.y + ROW - 1, this.width - this.left, 1);
    if (track.found) {
      this.paintSpans(track, track.spans, view, 0.18);
      this.paintSpans(track, track.found, view, 1);
    } else {
      this.paintSpans(track, track.spans, view, 1);
    }
    if (showPath) this.paintStrip(track.path, view, track.y + ROW - 6);
    if (selected?.rank === track.rank && track.rank.columns.lane[selected.id] === track.lane) {
      const [from, to] = [view.x(track.rank.start[selected.id]), view.x(track.rank.end[selected.id])];
      context.strokeStyle = color.text;
      context.lineWidth = 2;
      context.strokeRect(from - 1, track.y + 2, Math.max(3, to - from + 2), ROW - 5);
    }
  }

  /** The area below a counter's values. */
  paintCounter({ counter: { starts, values, most }, y, height }, view) {
    const { context, color } = this;
    const [top, bottom] = [y + 4, y + height - 2];
    context.fillStyle = color.line;
    context.fillRect(this.left, bottom, this.width - this.left, 1);
    context.fillStyle = color.counter;
    const first = Math.max(0, firstWhere(starts.length, (at) => starts[at] > view.start) - 1);
    for (let at = first; at < starts.length && starts[at] < view.end; at++) {
      const from = Math.max(this.left, view.x(starts[at]));
      const to = at + 1 < starts.length ? Math.min(this.width, view.x(starts[at + 1])) : from;
      const tall = (bottom - top) * values[at] / most;
      if (tall > 0) context.fillRect(from, bottom - tall, Math.max(to - from, 0.5), tall);
    }
  }

  /**
   * Calls `wide` for each visible span, and `narrow` for each column of pixels in which spans begin that are too narrow
   * for that, with the share of the column that they cover.
   */
  visit(spans, view, wide, narrow) {
    const { starts, ends, covering, count } = spans;
    const { start, end, scale } = view;
    const perPixel = 1 / scale;
    let at = spans.firstEndingAfter(start);
    while (at < count && starts[at] < end) {
      const from = this.left + (starts[at] - start) * scale;
      const to = this.left + (ends[at] - start) * scale;
      if (to - from >= NARROW) {
        wide(at, Math.max(from, this.left), Math.min(to, this.width));
        at++;
        continue;
      }
      const column = Math.floor(from);
      let next = spans.nextStartingFrom(start + (column + 1 - this.left) * perPixel, at + 1);
      // A wide span that begins in the same column is drawn by itself.
      if (next - 1 > at && (ends[next - 1] - starts[next - 1]) * scale >= NARROW) next--;
      if (column >= this.left) narrow(at, column, (covering[next] - covering[at]) * scale);
      at = next;
    }
  }

  paintSpans(track, spans, view, strength) {
    const { context } = this;
    const { rank, y } = track;
    const [top, height] = [y + 3, ROW - 7];
    // Columns of one look, so that the context changes its colour seldom: by kind, and by how much they cover.
    const looks = new Map();
    this.visit(spans, view, (at, from, to) => {
      const id = spans.ids[at];
      const kind = rank.kinds[id];
      context.globalAlpha = strength;
      context.fillStyle = this.fills[kind];
      // A gap of half a pixel keeps neighbours apart.
      context.fillRect(from, top, Math.max(1, to - from - 0.5), height);
      const waits = rank.waiting(id) * view.scale;
      let works = from;
      if (waits >= 2) {
        works = Math.max(from, Math.min(view.x(spans.starts[at]) + waits, to));
        context.fillStyle = this.hatch;
        context.fillRect(from, top, works - from, height);
      }
      // The name begins where the operation works, if there is room.
      const letters = Math.floor((to - works - 6) / LETTER);
      if (letters >= 2 && strength === 1) {
        const name = visible(rank.name(id));
        context.fillStyle = this.texts[kind];
        context.fillText(name.length > letters ? `${name.slice(0, letters - 1)}…` : name, works + 3, top + height / 2);
      }
      if (rank.late.has(id)) {
        context.fillStyle = this.color.accent;
        context.fillRect(from - 1, top - 3, 4, height + 5);
      }
    }, (at, column, covered) => {
      const look = rank.kinds[spans.ids[at]] * SHADES + Math.min(SHADES - 1, Math.floor(covered * SHADES));
      const columns = looks.get(look);
      if (columns) columns.push(column);
      else looks.set(look, [column]);
    });
    for (const [look, columns] of looks) {
      context.globalAlpha = strength * (0.4 + 0.6 * (look % SHADES) / (SHADES - 1));
      context.fillStyle = this.fills[Math.floor(look / SHADES)];
      for (const column of columns) context.fillRect(column, top, 1, height);
    }
    context.globalAlpha = 1;
  }

  /** A strip below bars of the critical path. */
  paintStrip(spans, view, y) {
    const { context } = this;
    context.fillStyle = this.color.path;
    this.visit(spans, view, (_, from, to) => context.fillRect(from, y, Math.max(1, to - from), 3),
      (_, column) => context.fillRect(column, y, 1, 3));
  }

  /** Arrows from what the selected operation waited for; the last of them to end is drawn thicker. */
  paintArrows({ view, selected, peers }) {
    if (!selected) return;
    const { context, color } = this;
    const { rank, id } = selected;
    const middle = (rank, id) => rank.trackOf.get(rank.columns.lane[id])?.y + ROW / 2;
    const before = [...rank.waitsFor(id)].filter((before) => !Number.isNaN(rank.end[before]));
    const last = Math.max(...before.map((before) => rank.end[before]));
    context.strokeStyle = context.fillStyle = color.accent;
    for (const from of before) {
      const [x0, y0] = [view.x(rank.end[from]), middle(rank, from)];
      const [x1, y1] = [view.x(rank.start[id]), middle(rank, id)];
      context.lineWidth = rank.end[from] === last ? 2.5 : 1;
      const bend = Math.max(12, Math.abs(x1 - x0) / 3);
      context.beginPath();
      context.moveTo(x0, y0);
      context.bezierCurveTo(x0 + bend, y0, x1 - bend, y1, x1, y1);
      context.stroke();
      context.beginPath();
      context.moveTo(x1, y1);
      context.lineTo(x1 - 7, y1 - 4);
      context.lineTo(x1 - 7, y1 + 4);
      context.fill();
    }
    // The same collective on other ranks: a line through their arrivals, and a mark where the last one arrives.
    context.lineWidth = 1.5;
    for (const { rank: other, id: same, late } of peers) {
      const [x, y] = [view.x(other.start[same]), middle(other, same)];
      if (Number.isNaN(x) || y === undefined) continue;
      context.setLineDash([4, 3]);
      context.beginPath();
      context.moveTo(view.x(rank.start[id]), middle(rank, id));
      context.lineTo(x, y);
      context.stroke();
      context.setLineDash([]);
      context.beginPath();
      context.arc(x, y, late ? 6 : 3, 0, 2 * Math.PI);
      if (late) context.stroke();
      else context.fill();
    }
  }

  paintName({ rank, track, counter, y, height }, { selected }) {
    const { context, color } = this;
    const inside = track || counter;
    context.fillStyle = inside ? color.page : color.panel;
    context.fillRect(0, y, inside ? this.left : this.width, height - (inside ? 1 : 0));
    const here = track && selected?.rank === rank && rank.columns.lane[selected.id] === track.lane;
    context.fillStyle = inside && !here ? color.faint : color.text;
    const room = Math.floor(((inside ? this.left : this.width) - 16) / LETTER);
    const write = (words, middle) => {
      const text = visible(words);
      context.fillText(text.length > room ? `${text.slice(0, room - 1)}…` : text, inside ? 14 : 6, middle);
    };
    if (!counter) return write(track ? track.name : rank.label, y + height / 2);
    write(counter.name, y + 10);
    write(`at most ${counter.text(counter.most)}`, y + 24);
  }

  paintRuler(view) {
    const { context, color } = this;
    context.fillStyle = color.panel;
    context.fillRect(0, 0, this.width, RULER);
    const step = roundStep((view.end - view.start) / Math.max(1, (this.width - this.left) / 110));
    for (let at = Math.ceil(view.start / step) * step; at <= view.end; at += step) {
      context.fillStyle = color.line;
      context.fillRect(view.x(at), 0, 1, RULER);
      context.fillStyle = color.faint;
      const text = tickText(at, step, Math.max(Math.abs(view.start), Math.abs(view.end)));
      if (view.x(at) + 6 + text.length * LETTER <= this.width) context.fillText(text, view.x(at) + 4, RULER / 2);
    }
    context.fillStyle = color.panel;
    context.fillRect(0, 0, this.left, RULER);
    context.fillStyle = color.text;
    const length = formatTime(view.end - view.start);
    const text = `${length} in view`;
    context.fillText(6 + text.length * LETTER < this.left ? text : length, 6, RULER / 2);
  }
}
