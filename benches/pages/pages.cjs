// How fast a page opens in Chromium without a GPU, and how many frames a second its timeline draws.
//
// NODE_PATH=target/browser/node_modules node benches/pages/pages.cjs CHROMIUM PAGE...
//
// Opens each page three times and takes the slowest. `timeline` is the time from the begin of the navigation until the
// timeline is drawn, `ready` until every table is there and the page takes input. Frames are counted while
// the view moves and zooms a little before each of them, at five lengths of the view: everything, and 1/10 to 1/10000
// of it. `slowest` is the longest time between two frames.

const fs = require("node:fs");
const os = require("node:os");
const { pathToFileURL } = require("node:url");
const puppeteer = require("puppeteer-core");

const RUNS = 3;
const SECONDS = 3;

/** Opens a page and returns the times in seconds until its timeline is visible and until it is ready. */
async function open(page, path) {
  await page.goto(pathToFileURL(path).href, { timeout: 120000 });
  await page.waitForFunction(() => document.documentElement.dataset.ready, { timeout: 120000, polling: 50 });
  // The frame with the tables is on the screen when the next one begins.
  return page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame((now) => {
    const mark = performance.getEntriesByName("timeline")[0];
    done({ timeline: mark ? mark.startTime / 1e3 : now / 1e3, ready: now / 1e3 });
  }))));
}

/** Moves and zooms the timeline by events, as a user does, and counts frames; at a share of the whole view. */
const frames = (page, share) => page.evaluate(async (share, seconds) => {
  const canvas = document.querySelector("canvas");
  const { width } = canvas.getBoundingClientRect();
  const wheel = (options) => {
    const event = new WheelEvent("wheel", { bubbles: true, cancelable: true, ...options });
    // Events made by a program have no place in the element.
    Object.defineProperty(event, "offsetX", { value: width * 0.55 });
    canvas.dispatchEvent(event);
  };
  canvas.dispatchEvent(new KeyboardEvent("keydown", { key: "0" }));
  wheel({ ctrlKey: true, deltaY: 300 * Math.log(share) });
  const frame = () => new Promise((done) => requestAnimationFrame(done));
  await frame();
  const times = [await frame()];
  for (let turn = 0; times.at(-1) - times[0] < seconds * 1e3; turn++) {
    wheel({ shiftKey: true, deltaY: turn % 60 < 30 ? 12 : -12 });
    wheel({ ctrlKey: true, deltaY: turn % 2 ? 6 : -6 });
    times.push(await frame());
  }
  const between = times.slice(1).map((time, at) => time - times[at]);
  return { rate: between.length / (times.at(-1) - times[0]) * 1e3, slowest: Math.max(...between) };
}, share, SECONDS);

async function main([chromium, ...paths]) {
  // Without a GPU, as on a machine that is reached over a network.
  const browser = await puppeteer.launch({ executablePath: chromium, args: ["--no-sandbox", "--disable-gpu"] });
  console.log(`${os.cpus().length} cores of ${os.cpus()[0].model}, ${await browser.version()}`);
  console.log("page                             size   spans  timeline   ready  frames/s at 1, 1/10, 1/100, 1/1000, 1/10000 of the view; slowest");
  for (const path of paths) {
    let worst = { timeline: 0, ready: 0 };
    let page;
    for (let run = 0; run < RUNS; run++) {
      await page?.close();
      page = await browser.newPage();
      await page.setViewport({ width: 1600, height: 1000 });
      const times = await open(page, path);
      if (times.ready > worst.ready) worst = times;
    }
    const spans = await page.evaluate(() => Number(document.documentElement.dataset.spans));
    const rates = [];
    for (const share of [1, 0.1, 0.01, 1e-3, 1e-4]) rates.push(await frames(page, share));
    const size = `${(fs.statSync(path).size / 1e6).toFixed(2)} MB`;
    const name = path.split("/").at(-1);
    console.log([
      name.padEnd(28), size.padStart(8), String(spans).padStart(8), `${worst.timeline.toFixed(2)} s`.padStart(8),
      `${worst.ready.toFixed(2)} s`.padStart(7), " ", rates.map(({ rate }) => rate.toFixed(0)).join(", "),
      `; ${Math.max(...rates.map(({ slowest }) => slowest)).toFixed(0)} ms`,
    ].join(" "));
    await page.close();
  }
  await browser.close();
}

main(process.argv.slice(2)).catch((error) => {
  console.error(error);
  process.exit(1);
});
