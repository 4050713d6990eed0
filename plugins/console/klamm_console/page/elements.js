// Makes elements. All text from the server is set as text, never as HTML.

export function el(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (value === true) made.setAttribute(key, "");
    else if (value !== false && value != null) made.setAttribute(key, value);
  }
  for (const child of children.flat()) {
    if (child != null) made.append(child instanceof Node ? child : String(child));
  }
  return made;
}

export function table(caption, columns, rows) {
  const head = columns.map(([title, , kind]) => el("th", { scope: "col", class: kind }, title));
  const body = rows.map((row) => el("tr", {}, columns.map(([, cell, kind]) => el("td", { class: kind }, cell(row)))));
  if (!rows.length) body.push(el("tr", {}, el("td", { colspan: columns.length, class: "dim" }, "none")));
  return el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": caption },
    el("table", {}, el("caption", {}, `${caption} (${rows.length})`), el("thead", {}, el("tr", {}, head)), el("tbody", {}, body)));
}

export const number = (value) => (value == null ? "" : Math.round(value).toLocaleString("en"));
export const bytes = (value) => {
  for (const unit of ["B", "KiB", "MiB", "GiB"]) {
    if (value < 1024 || unit === "GiB") return `${value < 10 && unit !== "B" ? value.toFixed(1) : Math.round(value)} ${unit}`;
    value /= 1024;
  }
};
export const link = (view, name) => el("a", { href: `#${view}/${encodeURIComponent(name)}` }, name || "(empty)");

export const field = (title, name, attributes = {}) =>
  el("label", {}, title, el("input", { name, autocomplete: "off", ...attributes }));

// Options are texts, or pairs of a text and a value.
export const choice = (title, name, options) => el("label", {}, title,
  el("select", { name }, options.map((each) => el("option", { value: [each].flat().at(-1) }, [each].flat()[0]))));

// A form; `send` gets its values by their names.
export function form(send, ...children) {
  const submit = (event) => {
    event.preventDefault();
    send(Object.fromEntries(new FormData(event.target)), event.target);
  };
  return el("form", { onsubmit: submit }, ...children);
}
