// Values -> elements. Every text goes in as text; names are isolated, and what would not print is spelled out.

const UNPRINTABLE = /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g;
const STATES = { Free: "a", Partly: "f", Held: "k", Blocked: "B", Unknown: "U" };
export const WORDS = {
  a: "free", k: "held", T: "held and tainted", B: "blocked", U: "unknown",
};

export function el(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === true) made.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(name, value);
  }
  made.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== ""));
  return made;
}

export function clean(text) {
  return String(text).replace(UNPRINTABLE, (sign) => "\\u" + sign.charCodeAt(0).toString(16).padStart(4, "0"));
}

// Text of several lines: each cleaned, the breaks kept.
export const lines = (text) => String(text).split("\n").map(clean).join("\n");

export const name = (text) => el("bdi", {}, clean(text));
export const unknown = (why = "not known") => el("span", { class: "soft", title: clean(why) }, "unknown");
export const none = () => el("span", { class: "soft" }, "none");

export function href(...parts) {
  return "#/" + parts.map(encodeURIComponent).join("/");
}

export function link(parts, text, more = {}) {
  return el("a", { href: href(...parts), "data-key": parts.join(" "), ...more }, text ?? name(parts.at(-1)));
}

export function size(bytes) {
  if (bytes === null || bytes === undefined) return "unknown";
  for (const [unit, word] of [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"]]) {
    if (Math.abs(bytes) >= unit) return (bytes / unit).toFixed(1).replace(/\.0$/, "") + " " + word;
  }
  return bytes + " B";
}

export function age(since, now = Date.now()) {
  const then = Date.parse(since);
  if (Number.isNaN(then)) return unknown();
  const seconds = Math.max(0, Math.floor((now - then) / 1000));
  const text =
    seconds < 120 ? seconds + "s" : seconds < 10800 ? Math.floor(seconds / 60) + "m"
      : seconds < 172800 ? Math.floor(seconds / 3600) + "h" : Math.floor(seconds / 86400) + "d";
  return el("time", { datetime: since, title: new Date(then).toLocaleString() }, text);
}

export function count(number, word) {
  return number.toLocaleString("en") + " " + word + (number === 1 ? "" : "s");
}

// What a letter of the heat map says in words.
export function said(letter) {
  return WORDS[letter] ?? (letter.charCodeAt(0) - 97) * 10 + " % booked";
}

export function mark(letter) {
  if (letter === "B") return "x";
  if (letter === "T") return "!";
  if (letter === "U") return "?";
  return letter === "a" || letter === "k" ? "" : String((letter.charCodeAt(0) - 97) * 10);
}

export function cell(letter, attributes, label) {
  return el("a", { class: "cell l" + letter, title: label, "aria-label": label, ...attributes }, el("i", {}, mark(letter)));
}

export function legend() {
  const sample = (letter, text) =>
    el("span", {}, el("span", { class: "cell l" + letter, "aria-hidden": "true" }, el("i", {}, mark(letter))), text);
  return el(
    "div", { class: "legend", "aria-label": "Legend" },
    sample("a", "free"), sample("e", "so many % booked (of memory or cores, whichever is more)"), sample("k", "held"),
    sample("T", "held and tainted"), sample("B", "blocked: nobody can get it"), sample("U", "unknown"),
  );
}

export function bar(part) {
  const tenths = part <= 0 ? 0 : Math.min(10, Math.max(1, Math.floor(part * 10)));
  return el("span", { class: "bar", "aria-hidden": "true" }, el("b", { class: "w" + tenths }));
}

export function state(value, reason) {
  const kind = value === "Blocked" || value === "Pending" || value === "Waiting" ? "warn" : value === "Failed" ? "bad" : "";
  return el("span", { class: kind }, clean(value), reason ? el("span", { class: "soft" }, ": " + clean(reason)) : "");
}

export function levelOf(value) {
  return STATES[value] ?? "U";
}

export function table(columns, rows) {
  const cls = (column) => [column.number ? "n" : "", column.spare ? "spare" : ""].join(" ").trim() || null;
  return el(
    "div", { class: "wide" },
    el(
      "table", {},
      el("thead", {}, el("tr", {}, columns.map((column) => el("th", { scope: "col", class: cls(column) }, column.title)))),
      el("tbody", {}, rows.map((row) => el("tr", {}, row.map((value, at) => el("td", { class: cls(columns[at]) }, value))))),
    ),
  );
}

export function facts(pairs) {
  return el("dl", {}, pairs.filter(Boolean).flatMap(([title, value]) => [el("dt", {}, title), el("dd", {}, value)]));
}

export function rest(more, what) {
  return more ? el("p", { class: "soft" }, `and ${more.toLocaleString("en")} more ${what}: search for them`) : null;
}
