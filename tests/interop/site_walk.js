// What a script of site_walk.py calls: it sees and clicks what the page in the frame shows.

const site = document.getElementById("site");
const shown = (query) => [...site.contentDocument.querySelectorAll(query)].filter((one) => one.checkVisibility());
const words = (element) => element.textContent.trim().replace(/\s+/g, " ");
const place = () => site.contentWindow.location.pathname + site.contentWindow.location.hash;

async function until(find, name) {
  for (let turn = 0; turn < 1200; turn++) {
    try {
      const found = find();
      if (found) return found;
    } catch {
      // The page is being replaced.
    }
    await new Promise((done) => setTimeout(done, 50));
  }
  throw new Error(`${place()} has no ${name}, but ${shown("a").map(words).join(" | ")}`);
}

const loaded = () =>
  until(() => site.contentDocument.readyState === "complete" && site.contentDocument.querySelector("h1"), "title");

async function follow(link) {
  const before = place();
  link.click();
  await until(() => place() !== before, "way on");
  await loaded();
}

/** Clicks the first link that has this text. */
async function click(text) {
  await follow(await until(() => shown("a").find((one) => words(one) === text), text));
}

/** Types words into the search, and follows the best of the links that it finds. */
async function search(text) {
  shown(".md-search__button")[0].click();
  const everything = () => [...site.contentDocument.querySelectorAll("*")];
  const opened = await until(() => everything().find((one) => one.shadowRoot?.querySelector("dialog[open]")), "search");
  const inside = (query) => opened.shadowRoot.querySelector(query);
  await until(() => !words(inside("[role=status]")).includes("Loading"), "index");
  const field = inside("input[role=combobox]");
  // The page's script sees what is set as if it were typed.
  Object.getOwnPropertyDescriptor(site.contentWindow.HTMLInputElement.prototype, "value").set.call(field, text);
  field.dispatchEvent(new site.contentWindow.Event("input", { bubbles: true }));
  await follow(await until(() => inside("[role=listbox] a"), `answer to ${text}`));
}

const isEnd = (next, heading) => /^H[1-6]$/.test(next.tagName) && next.tagName <= heading.tagName;

/** Returns the text from the heading that the address names to the next one of its rank, or that of the page. */
function section() {
  const content = site.contentDocument.querySelector("article");
  const name = decodeURIComponent(site.contentWindow.location.hash.slice(1));
  const heading = name && site.contentDocument.getElementById(name);
  if (!heading) return words(content);
  let text = words(heading);
  for (let next = heading.nextElementSibling; next && !isEnd(next, heading); next = next.nextElementSibling)
    text += ` ${words(next)}`;
  return text;
}

/** Goes to a page by its address. */
async function open(address) {
  if (place() !== address) site.contentWindow.location.replace(address);
  await until(() => place() === address, address);
  await loaded();
}

async function run(script) {
  let seen;
  try {
    seen = await script();
  } catch (error) {
    seen = String(error);
  }
  await fetch("/seen", { method: "POST", body: JSON.stringify(seen) });
}
