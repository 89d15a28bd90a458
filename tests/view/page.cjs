// Opens a page in Chromium, uses every control, and prints as JSON what happened. NODE_PATH names the folder with
// puppeteer-core and axe-core.
//
// node page.cjs CHROMIUM PAGE

const fs = require("node:fs");
const { pathToFileURL } = require("node:url");
const puppeteer = require("puppeteer-core");

/** Columns and rows of the cells by which a picture on a canvas is compared: each is the mean colour of its part. */
const CELLS = [48, 12];

async function main([chromium, path]) {
  const browser = await puppeteer.launch({ executablePath: chromium, args: ["--no-sandbox", "--disable-gpu"] });
  const page = await browser.newPage();
  await page.setViewport({ width: 1300, height: 900 });
  const [errors, requests] = [[], []];
  page.on("console", (message) => ["error", "warn"].includes(message.type()) && errors.push(message.text()));
  page.on("pageerror", (error) => errors.push(error.message));
  page.on("request", (request) => requests.push(request.url()));
  page.on("dialog", (dialog) => {
    errors.push(`a dialog: ${dialog.message()}`);
    return dialog.dismiss();
  });
  const address = pathToFileURL(path).href;
  await page.goto(address);
  await page.waitForFunction(() => document.documentElement.dataset.ready, { timeout: 50000 });
  const frame = () => page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
  await frame();
  const colors = () => page.evaluate(() => {
    const canvas = document.querySelector("canvas");
    if (!canvas) return 0;
    const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    return new Set(new Uint32Array(data.buffer)).size;
  });
  const text = (selector) => page.$eval(selector, (element) => element.textContent);
  const seen = { colors: await colors(), text: await text("#page"), elements: await page.$$eval("img, iframe, #page script", (all) => all.length) };
  const pictures = () => page.$$eval("svg.picture, .plot", (all) => all.map((picture) => picture.getAttribute("aria-label")));
  seen.pictures = await pictures();
  seen.cells = await page.$$eval("canvas", (all, [columns, rows]) => all.map((canvas) => {
    const small = document.createElement("canvas");
    [small.width, small.height] = [columns, rows];
    const context = small.getContext("2d");
    context.fillStyle = "white";
    context.fillRect(0, 0, columns, rows);
    context.imageSmoothingQuality = "high";
    context.drawImage(canvas, 0, 0, columns, rows);
    const { data } = context.getImageData(0, 0, columns, rows);
    return Array.from({ length: rows }, (_, row) => Array.from({ length: columns }, (_, column) =>
      [0, 1, 2].map((part) => Math.round(data[4 * (row * columns + column) + part] / 17).toString(16)).join("")).join(" "));
  }), CELLS);

  if (await page.$(".timeline canvas")) {
    await page.focus(".timeline canvas");
    for (const key of ["ArrowRight", "ArrowRight", "ArrowDown", "ArrowUp", "f", "w", "+", "-", "a", "d", "p", "p", "c", "c", "0"]) {
      await page.keyboard.press(key);
    }
    await frame();
    seen.selected = await text("#announcement");
    seen.source = await page.$$eval(".line.here", (lines) => lines.map((line) => line.textContent));
    await page.keyboard.press("Escape");
    await page.keyboard.press("/");
    await page.keyboard.type("zzzz");
    seen.found = await text(".count");
    await page.$eval("input[type=search]", (input) => {
      input.value = "";
      input.dispatchEvent(new Event("input"));
    });
    const canvas = await page.$(".timeline canvas");
    const { x, y, width, height } = await canvas.boundingBox();
    await page.mouse.move(x + width / 2, y + height / 3);
    await page.mouse.wheel({ deltaX: 40 });
    await page.mouse.down();
    await page.mouse.move(x + width / 3, y + height / 3, { steps: 3 });
    await page.mouse.up();
  }
  seen.read = [];
  for (const plot of await page.$$(".plot")) {
    await plot.focus();
    for (const key of ["ArrowRight", "ArrowRight", "+", "-", "0", "ArrowLeft"]) await page.keyboard.press(key);
    seen.read.push(await text("#announcement"));
    const { x, y, width, height } = await plot.boundingBox();
    await page.mouse.move(x + width * 0.4, y + height * 0.3);
    await page.mouse.down();
    await page.mouse.move(x + width * 0.7, y + height * 0.6, { steps: 4 });
    await page.mouse.up();
    await frame();
  }
  await page.$$eval("summary", (all) => all.forEach((summary) => summary.click()));
  await page.$$eval("button", (all) => all.forEach((control) => control.click()));
  await page.$$eval("select", (all) => all.forEach((select) => {
    for (const option of select.options) {
      select.value = option.value;
      select.dispatchEvent(new Event("change"));
    }
  }));
  await frame();
  seen.chosen = await pictures();

  seen.violations = [];
  for (const theme of ["light", "dark"]) {
    await page.evaluate((theme) => {
      document.documentElement.dataset.theme = theme;
    }, theme);
    await page.evaluate(fs.readFileSync(require.resolve("axe-core/axe.min.js"), "utf8"));
    const { violations } = await page.evaluate(() => axe.run());
    seen.violations.push(...violations.map(({ id, nodes }) => `${theme}: ${id}: ${nodes.map((node) => node.html).join("; ").slice(0, 300)}`));
  }
  await page.pdf({ format: "A4" });
  await browser.close();
  console.log(JSON.stringify({ ...seen, errors, requests: requests.filter((url) => url !== address) }));
}

main(process.argv.slice(2)).catch((error) => {
  console.error(error);
  process.exit(1);
});
