// Puts the page together.

/** The names of a run's parameters with their values, in a line. */
const parameters = (run) => Object.entries(run.data.workload.params).map(([name, value]) => `${name} = ${value}`).join(", ");

function header(model) {
  const about = (run) => {
    const { data } = run;
    const first = run.variants[0]?.data.time;
    const facts = [
      ["workload", `${data.workload.name}${data.workload.preset ? `, preset ${data.workload.preset}` : ""}`],
      ["parameters", parameters(run)],
      ["device", data.device.name],
      ["ranks", data.settings.ranks > 1 ? String(data.settings.ranks) : ""],
      ["median", first?.p50_ns ? `${formatTime(first.p50_ns)} ${run.variants[0].label}` : ""],
      ["started", data.started],
      ["aorta", data.aorta],
    ];
    return [
      h("h1", {}, data.workload.name, run.marks.map((mark) => h("strong", { class: "mark" }, mark))),
      data.workload.summary && h("p", { class: "summary" }, data.workload.summary),
      run.data.simulated && h("p", { class: "note" }, "Every time of this run comes from a model of the device, and none from a clock."),
      run.data.emulated && h("p", { class: "note" }, `One rank of ${run.data.emulated} ran; kernels took the place of the others.`),
      factList(facts.filter(([, text]) => text)),
      run.data.warnings.length > 0 && h("ul", { class: "warnings" }, run.data.warnings.map((warning) => h("li", {}, warning))),
    ];
  };
  const title = model.runs.length === 0 && h("div", { class: "run" }, h("h1", {}, model.title));
  return h("header", {}, title, model.runs.map((run) => h("div", { class: "run" }, about(run))), themeButton(model));
}

/** Switches between a dark and a light page; at first it is what the system prefers. */
function themeButton(model) {
  return button("Dark or light", () => {
    const root = document.documentElement;
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    recolor(model);
  }, { class: "theme" });
}

/** Draws what lies on a canvas in the colours of the theme. */
function recolor(model) {
  model.timeline?.recolor();
  shownPlots.forEach((plot) => plot.recolor());
}

/** Draws canvases for paper, in the light theme and at the width of a page, or for the screen again. */
function print(model, begins) {
  const { dataset } = document.documentElement;
  if (begins) {
    dataset.screen = dataset.theme ?? "";
    dataset.theme = "light";
  } else if (dataset.screen) {
    dataset.theme = dataset.screen;
  } else {
    delete dataset.theme;
  }
  model.timeline?.print(begins);
  shownPlots.forEach((plot) => plot.print(begins));
}

/** The tables of operations and streams of a rank that can be chosen. */
function tables(model, select) {
  const ranks = model.ranks.filter((rank) => rank.count > 0);
  if (ranks.length === 0) return [h("p", {}, "The record has no operations.")];
  const place = h("div");
  // An operation in each row is readable only while there are few.
  const chosen = { rank: ranks[0], grouping: ranks[0].count > 200 ? "statement" : "operation" };
  const draw = () => place.replaceChildren(
    operationsTable(chosen.rank, chosen.grouping, (id) => select(chosen.rank, id)).element, streamsTable(chosen.rank).element);
  const names = Object.keys(GROUPINGS).sort((a, b) => (b === chosen.grouping) - (a === chosen.grouping));
  draw();
  return [h("div", { class: "tools" },
    ranks.length > 1 && choice("Iteration", ranks.map((rank, index) => [index, rank.label]), (index) => {
      chosen.rank = ranks[index];
      draw();
    }),
    choice("Rows", names.map((name) => [name, `by ${name}`]), (grouping) => {
      chosen.grouping = grouping;
      draw();
    })), place];
}

/** Words for the verdicts of a record. */
const VERDICTS = { held: "passed", failed: "failed" };

/** Metrics and expectations of each variant. */
function metricsSection(model) {
  const all = model.variants.flatMap((variant) => variant.data.metrics.map((metric) => ({ variant, metric })));
  const expected = model.variants.flatMap((variant) => variant.data.expectations.map((expectation) => ({ variant, expectation })));
  const parts = [];
  if (all.length > 0) parts.push(new SortedTable("Metrics", [
    { name: "metric", value: ({ metric }) => metric.name },
    { name: "run", value: ({ variant }) => variant.label },
    { name: "value", value: ({ metric }) => metric.text },
    { name: "note", value: ({ metric }) => metric.note ?? "" },
  ], all, { unit: "metric" }).element);
  if (expected.length > 0) parts.push(new SortedTable("Expectations", [
    { name: "expectation", value: ({ expectation }) => expectation.text },
    { name: "run", value: ({ variant }) => variant.label },
    { name: "verdict", value: ({ expectation }) => VERDICTS[expectation.verdict] ?? "skipped" },
    { name: "place", value: ({ expectation }) => expectation.place },
  ], expected, { unit: "expectation" }).element);
  return parts;
}

/** What records of older versions, or runs that observed nothing, lack. */
function missing(model) {
  const lacks = model.runs.map((run) => [run, [
    run.variants.every((variant) => variant.ranks.every((rank) => rank.data.trace.id.length === 0)) && "a traced iteration",
    (run.data.sources ?? []).length === 0 && "the sources of its operations",
  ].filter(Boolean)]);
  const said = lacks.filter(([, parts]) => parts.length > 0);
  return said.length > 0 && h("ul", { class: "note" }, said.map(([run, parts]) =>
    h("li", {}, `The record of ${run.data.workload.name} lacks ${parts.join(" and ")}, so the page shows none.`)));
}

/** The timeline of all runs with the facts of the selected operation. */
function timelineSection(model) {
  const details = new Details((rank, id) => timeline.goTo(rank, id));
  const timeline = new Timeline(model, (rank, id) => details.show(rank, id));
  model.timeline = timeline;
  const aligned = model.variants.every((variant) => variant.ranks.length < 2 || variant.ranks.every((rank) => rank.data.clock_error_ns !== null));
  const errors = model.ranks.map((rank) => rank.data.clock_error_ns ?? 0);
  const clock = model.ranks.length < 2 ? null
    : !aligned ? "Ranks have no common clock here: each begins at 0."
      : Math.max(...errors) > 0 ? `The clocks of ranks may differ by ${formatTime(Math.max(...errors))}.` : null;
  return section("timeline", "Timeline of one iteration",
    timeline.empty ? h("p", {}, "The record has no traced iteration.") : h("div", { class: "columns" }, timeline.element, details.element),
    clock && h("p", { class: "note" }, clock));
}

/** The sections of a page of runs, around those of its galleries. */
function runSections(model, gallery) {
  const metrics = metricsSection(model);
  const known = ["split", "times", "samples"];
  return [
    missing(model),
    timelineSection(model),
    section("split", "Where the time goes", gallery("split"), splitSection(model.ranks)),
    section("times", "Times", gallery("times"), timesSection(model.variants), gallery("samples")),
    model.galleries.filter(({ name }) => !known.includes(name)).map(({ name, title }) => section(name, title, gallery(name))),
    section("operations", "Operations and streams"),
    metrics.length > 0 && section("metrics", "Metrics and expectations", metrics),
  ];
}

function build(model) {
  const page = document.getElementById("page");
  const gallery = (name) => model.galleries.filter((gallery) => gallery.name === name).map(gallerySection);
  const runs = model.runs.length > 0;
  page.append(
    h("p", { id: "announcement", class: "hidden", role: "status", "aria-live": "polite" }),
    header(model),
    h("main", {},
      runs ? runSections(model, gallery) : model.galleries.map(({ name, title }) => section(name, title, gallery(name))),
      model.pages.map(reportSection)));
  model.timeline?.recolor();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => recolor(model));
  window.addEventListener("beforeprint", () => print(model, true));
  window.addEventListener("afterprint", () => print(model, false));
  performance.mark("timeline");
  const select = (rank, id) => {
    model.timeline.goTo(rank, id);
    model.timeline.canvas.focus();
    model.timeline.element.scrollIntoView({ block: "nearest" });
  };
  // The timeline is drawn first; tables of many operations take longer.
  setTimeout(() => {
    document.getElementById("operations")?.append(...tables(model, select));
    document.documentElement.dataset.spans = model.ranks.reduce((sum, rank) => sum + rank.data.trace.id.length, 0);
    document.documentElement.dataset.ready = "yes";
  });
}

try {
  build(await readModel());
} catch (error) {
  document.getElementById("page").append(h("p", { class: "warnings" }, `The page could not be shown: ${error.message}. A browser of 2023 or later is needed.`));
  throw error;
}
