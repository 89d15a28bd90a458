// Charts with two axes, which uPlot draws: it zooms and finds the point at the pointer. Intervals, best values and marks are
// drawn here, and so are the keys and the texts for screen readers.

/** Height of a chart, and the width of all charts side by side on paper, in pixels. */
const PLOT = { height: 300, printed: 660 };

/** Colours of series, by their number; the SVG files have the same. */
const SERIES_COLORS = [1, 2, 3, 4, 6, 5, 7].map((part) => `--part-${part}`);

/** Number of points from which on they are small, and share a colour with their intervals. */
const DENSE = 60;

/** The charts on the page, for changes of the theme and printing. */
const shownPlots = new Set();

const PLOT_HELP = "Drag over a part to zoom; double-click, or press 0, to see everything. ← and → go from point to point.";

/** A round number as text. */
const plotTick = (value, unit) => value === 0 ? "0" : formatQuantity(value, unit);

/** A chart, its legend, and a line that reads out the point at the pointer or the chosen one. */
class PlotView {
  constructor(plot, description) {
    Object.assign(this, { plot, chosen: -1 });
    // uPlot wants one list of places for all series.
    this.x = [...new Set(plot.series.flatMap(({ x }) => x))].sort((a, b) => a - b);
    this.at = plot.series.map(({ x }) => new Map(x.map((place, index) => [place, index])));
    this.readout = h("p", { class: "readout" }, "\u00a0");
    this.frame = h("div", {
      class: "plot", tabindex: 0, role: "img",
      "aria-label": `${description}: ${plot.y.name} over ${plot.x.name}; arrow keys read the points`,
      onkeydown: (event) => this.key(event),
    });
    this.element = h("div", { class: "plot-frame" },
      h("p", { class: "axis-name" }, plot.y.name), this.frame, h("p", { class: "axis-name middle" }, plot.x.name), this.legend(), this.readout);
    new ResizeObserver(() => this.resize()).observe(this.element);
    shownPlots.add(this);
  }

  /** A button for each series, which hides or shows it. */
  legend() {
    const named = this.plot.series.map((series, index) => [series, index]).filter(([{ name }]) => name);
    return named.length > 0 && h("div", { class: "legend", role: "group", "aria-label": "Series" }, named.map(([series, index]) => {
      const mark = h("span", { class: `swatch ${series.style}` });
      if (series.style !== "dashed") mark.style.background = `var(${SERIES_COLORS[series.color]})`;
      const toggle = button(series.name, () => {
        const shows = !this.chart.series[index + 1].show;
        this.chart.setSeries(index + 1, { show: shows });
        toggle.setAttribute("aria-pressed", shows);
      }, { "aria-pressed": "true" });
      toggle.prepend(mark);
      return toggle;
    }));
  }

  color(series) {
    return series.style === "dashed" ? style("--faint") : style(SERIES_COLORS[series.color]);
  }

  options(width) {
    const { x, y, series } = this.plot;
    const axis = ({ unit, ticks }) => ({
      stroke: () => style("--faint"),
      grid: { stroke: () => style("--line"), width: 1 },
      ticks: { stroke: () => style("--line") },
      font: "11px system-ui, sans-serif",
      // uPlot leaves out some texts of a logarithmic axis, which are null then; ours fit.
      filter: (_, places) => places,
      ...(ticks.length > 0 && { splits: (chart) => this.ticks(chart) }),
      values: (_, places) => places.map((place) => ticks.length > 0 ? this.text(place) : plotTick(place, unit)),
    });
    const [least, most] = x.range;
    // The first and the last point keep a distance from the edge.
    const wide = x.spread === "log" ? (most / least) ** 0.04 : (most - least || 1) * 0.04;
    const whole = x.spread === "log" ? [least / wide, most * wide] : [least - wide, most + wide];
    const kind = (one) => one.style === "line" || one.style === "dashed" ? {} : { paths: one.style === "columns" ? uPlot.paths.bars({ size: [0.98, Infinity] }) : () => null };
    return {
      width,
      height: PLOT.height,
      padding: [10, 14, 0, 0],
      legend: { show: false },
      cursor: { drag: { x: true, y: true, uni: 30 }, points: { size: 10 }, y: false },
      select: { show: true },
      scales: {
        x: { time: false, distr: x.spread === "log" ? 3 : 1, range: () => whole },
        y: { range: () => y.range },
      },
      axes: [{ ...axis(x), space: 60, size: 34 }, { ...axis(y), size: 76 }],
      series: [{}, ...series.map((one) => ({
        stroke: () => this.color(one),
        fill: one.style === "columns" ? () => this.color(one) : undefined,
        width: one.style === "columns" ? 0 : 2,
        dash: one.style === "dashed" ? [5, 4] : undefined,
        spanGaps: true,
        points: { show: one.style === "line" || one.style === "points", size: one.x.length > DENSE ? 4 : 9, fill: () => this.color(one) },
        ...kind(one),
      }))],
      hooks: { draw: [(chart) => this.drawMarks(chart)], setCursor: [({ cursor: { idx } }) => this.read(idx)] },
    };
  }

  /** Places of texts below the axis: those within the shown part, at most as many as fit. */
  ticks(chart) {
    const { min, max } = chart.scales.x;
    const inside = this.plot.x.ticks.map(([place]) => place).filter((place) => min <= place && place <= max);
    const longest = Math.max(...this.plot.x.ticks.map(([, text]) => text.length), 1);
    let last = -Infinity;
    return inside.filter((place) => {
      const at = chart.valToPos(place, "x");
      if (at - last < 14 + longest * 6) return false;
      last = at;
      return true;
    });
  }

  /** A place of the horizontal axis as text. */
  text(place) {
    const tick = this.plot.x.ticks.find(([at]) => at === place);
    return visible(tick ? tick[1] : plotTick(place, this.plot.x.unit));
  }

  resize(width = this.element.clientWidth) {
    if (width < 1 || width === this.chart?.width) return;
    if (this.chart) return this.chart.setSize({ width, height: PLOT.height });
    const columns = this.plot.series.map((series, index) => this.x.map((place) => series.y[this.at[index].get(place)] ?? null));
    this.chart = new uPlot(this.options(width), [this.x, ...columns], this.frame);
  }

  recolor() {
    this.chart?.redraw(false, true);
  }

  /** Draws at the width of a page, or of the window again. */
  print(begins) {
    const beside = this.element.parentElement.childElementCount;
    this.resize(begins ? PLOT.printed / beside : undefined);
    this.recolor();
  }

  remove() {
    shownPlots.delete(this);
    this.chart?.destroy();
  }

  /** Intervals, best values and dashed marks with their texts. */
  drawMarks(chart) {
    const { ctx: context, bbox: { left, top, width, height } } = chart;
    const pixels = devicePixelRatio;
    const at = (place, value) => [chart.valToPos(place, "x", true), chart.valToPos(value, "y", true)];
    context.save();
    context.beginPath();
    context.rect(left, top, width, height);
    context.clip();
    this.plot.series.forEach((series, index) => {
      if (!chart.series[index + 1].show) return;
      context.strokeStyle = series.x.length > DENSE ? this.color(series) : style("--text");
      context.lineWidth = 1.5 * pixels;
      context.beginPath();
      series.low.forEach((low, point) => {
        context.moveTo(...at(series.x[point], low));
        context.lineTo(...at(series.x[point], series.high[point]));
      });
      context.stroke();
      if (series.best === null) return;
      context.strokeStyle = style("--text");
      context.beginPath();
      context.arc(...at(series.x[series.best], series.y[series.best]), 8 * pixels, 0, 2 * Math.PI);
      context.stroke();
    });
    context.fillStyle = context.strokeStyle = style("--faint");
    context.font = `${11 * pixels}px system-ui, sans-serif`;
    context.setLineDash([5 * pixels, 4 * pixels]);
    this.plot.marks.forEach(([place, meaning], index) => {
      const [x] = at(place, 0);
      context.beginPath();
      context.moveTo(x, top);
      context.lineTo(x, top + height);
      context.stroke();
      const right = x > left + width / 2;
      context.textAlign = right ? "right" : "left";
      const corner = [x + (right ? -4 : 4) * pixels, top + (12 + 13 * index) * pixels];
      context.save();
      context.setLineDash([]);
      context.strokeStyle = style("--page");
      context.lineWidth = 4 * pixels;
      context.strokeText(visible(meaning), ...corner);
      context.restore();
      context.fillText(visible(meaning), ...corner);
    });
    context.restore();
  }

  /** What each series has at a place: value and interval. */
  reading(index) {
    const { series, y } = this.plot;
    const place = this.x[index];
    const values = series.flatMap((one, number) => {
      const point = this.at[number].get(place);
      if (point === undefined || !this.chart.series[number + 1].show) return [];
      const text = (value) => formatQuantity(value, y.unit);
      const [low, high] = [one.low[point], one.high[point]];
      const interval = low < high ? ` (${text(low)} to ${text(high)})` : "";
      return `${one.name ? `${one.name}: ` : ""}${text(one.y[point])}${interval}${one.best === point ? ", best" : ""}`;
    });
    return `${this.text(place)}: ${values.join("; ")}`;
  }

  read(index) {
    this.readout.textContent = index === null || index === undefined ? "\u00a0" : visible(this.reading(index));
  }

  choose(index) {
    this.chosen = Math.max(0, Math.min(this.x.length - 1, index));
    const place = this.x[this.chosen];
    this.chart.setCursor({ left: this.chart.valToPos(place, "x"), top: 10 });
    announce(this.reading(this.chosen));
  }

  /** Zooms the horizontal axis by a factor around its middle; 0 shows everything. */
  zoom(factor) {
    const { min, max } = this.chart.scales.x;
    if (factor === 0) return this.chart.setData(this.chart.data);
    const log = this.plot.x.spread === "log";
    const [from, to] = log ? [Math.log(min), Math.log(max)] : [min, max];
    const [middle, half] = [(from + to) / 2, (to - from) / 2 / factor];
    const back = (value) => log ? Math.exp(value) : value;
    return this.chart.setScale("x", { min: back(middle - half), max: back(middle + half) });
  }

  key(event) {
    const actions = {
      ArrowRight: () => this.choose(this.chosen + 1),
      ArrowLeft: () => this.choose(this.chosen - 1),
      "+": () => this.zoom(2),
      "-": () => this.zoom(1 / 2),
      0: () => this.zoom(0),
    };
    if (!actions[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    actions[event.key]();
  }
}
