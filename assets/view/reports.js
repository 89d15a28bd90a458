// Reports of sweeps, suites and comparisons, and galleries: pictures of which a reader chooses one.

/** An element of a picture: tag, class, attributes, text, and what the pointer shows. */
const shape = ([tag, className, attributes, text, title]) =>
  svg(tag, { class: className, ...attributes }, text || null, title && svg("title", {}, title));

/** Width up to which a picture fits the page; a wider one scrolls. */
const PAGE_WIDTH = 760;

/** A picture, drawn from its shapes. */
const drawPicture = ({ width, height, description, shapes }) => svg("svg", {
  viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": description,
  class: width > PAGE_WIDTH ? "picture wide" : "picture",
}, shapes.map(shape));

/** A gallery with controls for its choices. An option that has no picture beside the others says so. */
function gallerySection({ title, notes, choices, pictures }) {
  const byChoice = new Map(pictures.map(([chosen, picture]) => [chosen.join(), picture]));
  const chosen = [...pictures[0][0]];
  const frame = h("div");
  const caption = h("figcaption", {});
  let plots = [];
  const draw = () => {
    const picture = byChoice.get(chosen.join());
    plots.forEach((plot) => plot.remove());
    plots = (picture?.plots ?? []).map((plot) => new PlotView(plot, picture.description));
    frame.replaceChildren(!picture ? h("p", {}, "There is no picture of this choice.")
      : plots.length > 0 ? h("div", { class: "plots" }, plots.map(({ element }) => element))
        : h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": `${title}, picture` }, drawPicture(picture)));
    caption.textContent = picture ? visible(picture.description) : "";
  };
  draw();
  return [
    h("div", { class: "tools" }, choices.map(({ label, options }, at) => {
      const control = choice(label, options.map((option, index) => [index, option]), (index) => {
        chosen[at] = Number(index);
        draw();
        announce(caption.textContent);
      });
      control.querySelector("select").value = String(chosen[at]);
      return control;
    })),
    h("figure", {}, frame, caption),
    notes.map((note) => h("p", { class: "note" }, note)),
    plots.length > 0 && h("p", { class: "note keys-note" }, PLOT_HELP),
  ];
}

/** Factors of prefixes and of units of time, to sort cells by what they say. */
const FACTORS = { ns: 1e-9, µs: 1e-6, ms: 1e-3, s: 1, "%": 1e-2, k: 1e3, M: 1e6, G: 1e9, T: 1e12, P: 1e15,
  KiB: 2 ** 10, MiB: 2 ** 20, GiB: 2 ** 30, TiB: 2 ** 40 };

/** The number that a cell such as `362 µs`, `1.2 GB/s` or `+3 %` begins with; null for words. */
function quantityOf(text) {
  const [, digits, unit] = /^[+×\s]*(-?[\d.]+(?:e-?\d+)?)\s*(\S*)/.exec(text) ?? [];
  if (digits === undefined || Number.isNaN(Number(digits))) return null;
  return Number(digits) * (FACTORS[unit] ?? FACTORS[unit[0]] ?? 1);
}

/** A table of a report, whose cells are texts. Columns of numbers are sorted by the numbers. */
function reportTable(title, { columns, rows }) {
  const column = ({ name, left }, index) => {
    const cells = rows.map((row) => row[index]);
    const numbers = !left && cells.every((cell) => cell === ABSENT || quantityOf(cell) !== null);
    if (!numbers) return { name, value: (row) => row[index] };
    const texts = new Map(cells.map((cell) => [quantityOf(cell), cell]));
    return { name, value: (row) => quantityOf(row[index]), text: (value) => texts.get(value) ?? ABSENT };
  };
  return new SortedTable(title || "Results", columns.map(column), rows, { unit: "row", headed: Boolean(title) }).element;
}

/** A report: its warnings, its result, and its sections. */
function reportSection({ sections, summary, warnings }, number) {
  const parts = sections.map(({ title, lines, table, notes }) => [
    title && h("h3", {}, title),
    lines.map((line) => h("p", { class: "line-of-report" }, line)),
    table && reportTable(title, table),
    notes.length > 0 && h("ul", { class: "note" }, notes.map((note) => h("li", {}, note))),
  ]);
  return section(`report-${number}`, number > 0 ? `Report ${number + 1}` : "Report",
    summary && h("p", { class: "result" }, summary),
    warnings.length > 0 && h("ul", { class: "warnings" }, warnings.map((warning) => h("li", {}, warning))),
    parts);
}
