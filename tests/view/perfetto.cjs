// Opens traces in Perfetto's trace processor, which runs as WebAssembly in Chromium, and prints the rows of queries as
// JSON: a list of results for each trace, each a list of objects. NODE_PATH names the folder with puppeteer-core. FOLDER
// holds Perfetto's page, with engine_bundle.js and trace_processor.wasm. QUERIES is a JSON list of SQL texts.
//
// node perfetto.cjs CHROMIUM FOLDER QUERIES TRACE…

const fs = require("node:fs");
const http = require("node:http");
const path = require("node:path");
const puppeteer = require("puppeteer-core");

/** Serves the files of Perfetto's page at `/`, those of the traces by number at `/trace/N`, and an empty page. */
function serve(folder, traces) {
  const types = { ".js": "text/javascript", ".wasm": "application/wasm" };
  const server = http.createServer(({ url }, response) => {
    const trace = /^\/trace\/(\d+)$/.exec(url);
    const file = trace ? traces[Number(trace[1])] : path.join(folder, path.basename(url));
    if (url === "/empty" || !fs.existsSync(file)) {
      response.writeHead(url === "/empty" ? 200 : 404, { "content-type": "text/html" });
      return response.end("<!doctype html><title>empty</title>");
    }
    response.writeHead(200, { "content-type": types[path.extname(file)] ?? "application/octet-stream" });
    return fs.createReadStream(file).pipe(response);
  });
  return new Promise((done) => server.listen(0, "127.0.0.1", () => done(server)));
}

/** Runs in the browser: loads a trace into a new trace processor, and returns the rows of each query. */
async function ask(address, queries) {
  /** A message as protocol buffers: pairs of a field's number and a number, a text, or bytes. */
  const encode = (fields) => {
    const out = [];
    const varint = (value) => {
      for (; value > 127; value = Math.floor(value / 128)) out.push(value % 128 + 128);
      out.push(value);
    };
    const parts = [];
    for (const [number, value] of fields) {
      if (typeof value === "number") {
        varint(number * 8);
        varint(value);
      } else {
        const bytes = typeof value === "string" ? new TextEncoder().encode(value) : value;
        varint(number * 8 + 2);
        varint(bytes.length);
        parts.push(Uint8Array.from(out.splice(0)), bytes);
      }
    }
    parts.push(Uint8Array.from(out));
    const all = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
    parts.reduce((at, part) => (all.set(part, at), at + part.length), 0);
    return all;
  };
  const reader = (bytes) => {
    let at = 0;
    const varint = () => {
      let [value, shift] = [0n, 0n];
      for (; ; shift += 7n) {
        const byte = bytes[at++];
        value |= BigInt(byte & 127) << shift;
        if (byte < 128) return Number(BigInt.asIntN(64, value));
      }
    };
    const take = (count) => bytes.subarray(at, at += count);
    return { varint, take, more: () => at < bytes.length };
  };
  /** The fields of a message: `[number, value]`, with bytes for texts, messages and packed numbers. */
  const decode = (bytes) => {
    const { varint, take, more } = reader(bytes);
    const fields = [];
    while (more()) {
      const key = varint();
      fields.push([Math.floor(key / 8), key % 8 === 2 ? take(varint()) : key % 8 === 1 ? take(8) : varint()]);
    }
    return fields;
  };
  const texts = new TextDecoder();
  const numbers = (bytes) => {
    const { varint, more } = reader(bytes);
    const all = [];
    while (more()) all.push(varint());
    return all;
  };

  const worker = new Worker("/engine_bundle.js");
  const { port1: port, port2 } = new MessageChannel();
  worker.postMessage(port2, [port2]);
  let [sequence, answered, failed] = [0, null, null];
  worker.onerror = (event) => failed?.(new Error(event.message));
  // A request is one message of a stream; a long answer comes in several messages.
  const request = (method, fields, isLast) => new Promise((done, fail) => {
    const answers = [];
    failed = fail;
    answered = (answer) => {
      answers.push(answer);
      if (isLast(answer)) done(answers);
    };
    sequence += 1;
    port.postMessage(encode([[1, encode([[1, sequence], [2, method], ...fields])]]));
  });
  const field = (fields, number) => fields.find(([own]) => own === number)?.[1];
  let rest = new Uint8Array(0);
  port.onmessage = ({ data }) => {
    rest = Uint8Array.from([...rest, ...data]);
    for (const [, message] of decode(rest)) {
      const answer = decode(message);
      const error = field(answer, 5);
      if (error) failed(new Error(texts.decode(error)));
      else answered(answer);
    }
    rest = new Uint8Array(0);
  };

  const trace = new Uint8Array(await (await fetch(address)).arrayBuffer());
  const [APPEND, FINISH, QUERY] = [1, 2, 3];
  const STEP = 1 << 20;
  for (let at = 0; at < trace.length; at += STEP) {
    const [answer] = await request(APPEND, [[101, trace.subarray(at, at + STEP)]], () => true);
    const error = field(decode(field(answer, 201) ?? new Uint8Array(0)), 2);
    if (error) throw new Error(texts.decode(error));
  }
  await request(FINISH, [], () => true);

  const results = [];
  for (const query of queries) {
    const batches = (answer) => decode(field(answer, 203)).filter(([number]) => number === 3).map(([, batch]) => decode(batch));
    const answers = await request(QUERY, [[103, encode([[1, query]])]],
      (answer) => field(decode(field(answer, 203)), 2) || batches(answer).some((batch) => field(batch, 6)));
    const names = [];
    const rows = [];
    let row = [];
    for (const answer of answers) {
      for (const [number, value] of decode(field(answer, 203))) {
        if (number === 1) names.push(texts.decode(value));
        if (number === 2 && value.length > 0) throw new Error(`${query}: ${texts.decode(value)}`);
      }
      for (const batch of batches(answer)) {
        const whole = numbers(field(batch, 2) ?? new Uint8Array(0));
        const real = field(batch, 3) ?? new Uint8Array(0);
        const reals = [...new Float64Array(real.slice().buffer)];
        const strings = texts.decode(field(batch, 5) ?? new Uint8Array(0)).split("\0");
        for (const kind of numbers(field(batch, 1) ?? new Uint8Array(0))) {
          row.push(kind === 2 ? whole.shift() : kind === 3 ? reals.shift() : kind === 4 ? strings.shift() : null);
          if (row.length === names.length) {
            rows.push(Object.fromEntries(names.map((name, index) => [name, row[index]])));
            row = [];
          }
        }
      }
    }
    results.push(rows);
  }
  worker.terminate();
  return results;
}

async function main([chromium, folder, queries, ...traces]) {
  const server = await serve(folder, traces);
  const browser = await puppeteer.launch({ executablePath: chromium, args: ["--no-sandbox", "--disable-gpu"] });
  const page = await browser.newPage();
  await page.goto(`http://127.0.0.1:${server.address().port}/empty`);
  const results = [];
  for (const number of traces.keys()) results.push(await page.evaluate(ask, `/trace/${number}`, JSON.parse(queries)));
  await browser.close();
  server.close();
  console.log(JSON.stringify(results));
}

main(process.argv.slice(2)).catch((error) => {
  console.error(error);
  process.exit(1);
});
