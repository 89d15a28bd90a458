// Elements of the page. Texts become text nodes and attributes, never HTML.

const SVG = "http://www.w3.org/2000/svg";

/** Sets attributes and listeners (`onclick: …`) of an element, and appends its children: elements or texts. */
function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, visible(value));
  }
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : visible(child));
  }
  return element;
}

/** An HTML element: `h("p", { class: "note" }, "text")`. */
const h = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);

/** An SVG element. */
const svg = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

/** A button with a label and what it does. */
const button = (label, onclick, attributes) => h("button", { type: "button", onclick, ...attributes }, label);

/** A choice among options, each `[value, label]`. */
function choice(label, options, onchange) {
  const select = h("select", { onchange: () => onchange(select.value) },
    options.map(([value, text]) => h("option", { value }, text)));
  return h("label", {}, `${label} `, select);
}

/** A section with a heading of its own. */
function section(id, title, ...children) {
  return h("section", { id, "aria-labelledby": `${id}-title` }, h("h2", { id: `${id}-title` }, title), children);
}

/** Says something to users of screen readers. */
function announce(text) {
  document.getElementById("announcement").textContent = visible(text);
}

/** The value of a custom property of the style, such as `--text`. */
const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** Puts a text into the clipboard, also where a page from a file may not use the clipboard's interface. */
async function copy(text, what) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = h("textarea", { "aria-hidden": "true" });
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  announce(`copied ${what}`);
}
