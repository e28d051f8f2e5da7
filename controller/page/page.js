// What is on the screen: the part after # names the view, the API behind it gives the data, draw.js makes the elements.
//
//   address -> view -> api/... (with the token) -> elements      news: a stream, else polling -> the same again
//
// The token stays in this tab. A view is drawn anew only where its data changed; the focus stays where it was.

import * as d from "./draw.js";

const TOKEN = "X-Elastic-GPU-Token";
const MANY_NODES = 240;
const POLL_MS = 10000;
const SILENT_MS = 25000;
const main = document.getElementById("main");
const banner = document.getElementById("banner");
const words = document.getElementById("words");
const told = { data: "", view: "", heard: 0, number: -1, silentSince: null, offset: 0, lost: null };

let token = sessionStorage.getItem("token") ?? "";
let turn = 0;

class Refusal extends Error {
  constructor(status, text) {
    super(text);
    this.status = status;
  }
}

// The address

function where() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const parts = path.split("/").filter(Boolean).map(decodeURIComponent);
  return { view: parts[0] ?? "overview", parts: parts.slice(1), query: new URLSearchParams(query ?? "") };
}

const here = () => location.hash || "#/";

function go(parts, query) {
  const text = query ? new URLSearchParams(query).toString() : "";
  location.hash = d.href(...parts).slice(1) + (text ? "?" + text : "");
}

// The API

async function ask(path, query = {}) {
  const body = await asked(path, query);
  heard(body.as);
  return body;
}

async function asked(path, query = {}) {
  const terms = new URLSearchParams(Object.entries(query).filter(([, value]) => value));
  const spaces = sessionStorage.getItem("namespace");
  if (spaces) terms.set("namespace", spaces);
  let answer;
  try {
    answer = await fetch(`api/${path}${terms.size ? "?" + terms : ""}`, { headers: { [TOKEN]: token } });
  } catch {
    throw new Refusal(0, "The controller does not answer.");
  }
  const body = await answer.json().catch(() => ({ error: `The way to the controller answers ${answer.status}.` }));
  if (!answer.ok) throw new Refusal(answer.status, body.error ?? body.message ?? "refused");
  return body;
}

function heard(as) {
  told.heard = Date.now();
  told.offset = Date.parse(as.now) - Date.now();
  told.silentSince = as.silentSince;
  told.number = Math.max(told.number, as.number);
  told.lost = null;
  tell();
}

const now = () => Date.now() + told.offset;

// Live: a stream, then polling, then a banner that says how old the picture is.

async function listen() {
  for (;;) {
    if (!token) return;
    const mine = token;
    try {
      const answer = await fetch("api/news", { headers: { [TOKEN]: token } });
      if (!answer.ok) throw new Error(answer.status);
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      let rest = "";
      for (;;) {
        const { value, done } = await reader.read();
        if (done || mine !== token) break;
        const lines = (rest + value).split("\n\n");
        rest = lines.pop();
        const news = lines.map((line) => JSON.parse(line.slice(6))).at(-1);
        if (!news) continue;
        const fresh = news.number !== told.number;
        told.number = news.number;
        heard(news);
        if (fresh) await show();
      }
    } catch {
      if (mine !== token) return;
      await show();
      await new Promise((done) => setTimeout(done, POLL_MS / 2));
    }
  }
}

function tell() {
  const late = Date.now() - told.heard;
  let text = "";
  if (told.lost || (told.heard && late > SILENT_MS)) {
    const said = told.lost ?? "The controller has not been heard.";
    text = told.heard ? `${said} This is the picture of ${new Date(told.heard).toLocaleTimeString()}.` : said;
  } else if (told.silentSince) {
    const since = Date.parse(told.silentSince);
    const seconds = Math.max(0, Math.round((now() - since) / 1000));
    text = `The API server has not answered for ${seconds} s: this is the picture of ${new Date(since).toLocaleTimeString()}.`;
  }
  banner.hidden = !text;
  if (banner.textContent !== text) banner.textContent = text;
  document.getElementById("moment").textContent = told.heard
    ? `as of ${new Date(now()).toLocaleTimeString()}${text ? " (old, see above)" : ""}, picture ${told.number}` : "";
}

// The views: each has a path to ask, and draws what it got.

const VIEWS = {
  overview: { ask: () => ask("overview"), draw: overview, command: () => "kubectl egpu" },
  node: { ask: ({ parts }) => ask(`nodes/${encodeURIComponent(parts[0])}`), draw: node, command: () => "kubectl egpu cards" },
  pool: { ask: ({ parts }) => ask(`pools/${encodeURIComponent(parts[0])}`), draw: pool, command: () => "kubectl egpu leases" },
  card: {
    ask: ({ parts }) => ask(`cards/${encodeURIComponent(parts[0])}`), draw: card,
    command: ({ parts }) => `kubectl egpu card ${parts[0]}`,
  },
  pods: { ask: ({ query }) => ask("pods", { q: query.get("q") }), draw: pods, command: () => "kubectl egpu pods -A" },
  pod: {
    ask: ({ parts }) => ask(`pods/${parts.map(encodeURIComponent).join("/")}`), draw: pod,
    command: ({ parts }) => `kubectl egpu explain pod/${parts[1]} -n ${parts[0]}`,
  },
  fit: { ask: fitAsk, draw: fitPage, command: fitCommand },
  problems: { ask: () => ask("problems"), draw: problemsPage, command: () => "kubectl egpu status -o wide" },
  search: { ask: ({ query }) => ask("search", { q: query.get("q") }), draw: results, command: () => "kubectl egpu cards" },
};

async function show() {
  const mine = ++turn;
  const at = where();
  const view = VIEWS[at.view];
  document.getElementById("leave").hidden = !token;
  for (const one of document.querySelectorAll("nav a")) {
    one.toggleAttribute("aria-current", one.dataset.view === at.view);
  }
  if (!token) return signIn("");
  if (!view) return put(d.el("p", {}, "There is no such page."), "none");
  if (told.view !== here()) main.classList.remove("gone");
  try {
    const body = await view.ask(at);
    if (mine !== turn) return;
    const text = JSON.stringify(body.data);
    document.getElementById("command").replaceChildren("The same in a terminal: ", d.el("code", {}, d.clean(view.command(at))));
    scope(body.as);
    main.classList.remove("gone");
    if (text === told.data && told.view === here()) return;
    told.data = text;
    put(view.draw(body.data, at), here());
  } catch (error) {
    if (mine === turn) failed(error);
  }
}

function failed(error) {
  if (!(error instanceof Refusal)) throw error;
  if (error.status === 401) return leave(error.message);
  if (error.status === 404 && told.view === here()) {
    main.classList.add("gone");
    banner.hidden = false;
    banner.textContent = "It is gone. This is how it was.";
    return;
  }
  if (error.status === 403 || error.status === 404 || !told.view) {
    put(d.el("p", { class: "warn" }, d.clean(error.message)), here());
    told.data = "";
    return;
  }
  told.lost = d.clean(error.message);
  tell();
}

function put(content, view) {
  const key = document.activeElement?.dataset?.key;
  const moved = told.view !== view;
  const entered = moved ? [] : [...main.querySelectorAll("[name][data-key]")].map((one) => [one.dataset.key, one.value]);
  told.view = view;
  main.replaceChildren(...[content].flat(Infinity).filter(Boolean));
  for (const [field, value] of entered) enter(field, value);
  const again = key && !moved && [...main.querySelectorAll("[data-key]")].find((one) => one.dataset.key === key);
  if (again) again.focus({ preventScroll: true });
  else if (moved && document.activeElement === document.body) main.focus({ preventScroll: true });
  document.title = (main.querySelector("h1")?.textContent ?? "Cards") + " - Elastic GPU";
}

// What somebody has entered and not yet sent stays, if there is still such a field and such a choice.
function enter(key, value) {
  const field = [...main.querySelectorAll("[name][data-key]")].find((one) => one.dataset.key === key);
  if (!field) return;
  const before = field.value;
  field.value = value;
  if (field.value !== value) field.value = before;
}

function scope(as) {
  const place = document.getElementById("scope");
  if (!as.namespaces) {
    place.replaceChildren(`signed in as ${d.clean(as.you)}`);
    return;
  }
  const field = d.el("input", { size: 14, value: sessionStorage.getItem("namespace") ?? "", "aria-label": "Namespaces to name" });
  field.addEventListener("change", () => {
    sessionStorage.setItem("namespace", field.value.trim());
    field.blur();
    show();
  });
  if (place.contains(document.activeElement)) return;
  const seen = as.namespaces.length ? as.namespaces.map(d.clean).join(", ") : "no namespace";
  place.replaceChildren(`signed in as ${d.clean(as.you)}: numbers of the whole cluster, names of ${seen}; name those of `, field);
}

// Signing in

function signIn(said) {
  const field = d.el("textarea", { id: "token", "aria-label": "Token", spellcheck: "false", autocomplete: "none", required: true });
  const form = d.el(
    "form", { class: "entry" },
    d.el("h1", {}, "Sign in"),
    said ? d.el("p", { class: "warn", role: "alert" }, d.clean(said)) : null,
    d.el("p", {}, "The API server decides what you see here. Paste a token that it knows, such as this one makes:"),
    d.el("p", {}, d.el("code", {}, "kubectl create token SERVICEACCOUNT -n NAMESPACE")),
    field,
    d.el("p", {}, d.el("button", { type: "submit" }, "Sign in")),
    d.el("p", { class: "soft" }, "It stays in this tab and goes to this address alone."),
  );
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    token = field.value.trim();
    sessionStorage.setItem("token", token);
    told.view = told.data = "";
    show().then(listen);
  });
  put(form, "sign in");
  field.focus();
}

function leave(said = "") {
  turn += 1; // an answer that is still on its way draws nothing over the form
  token = "";
  sessionStorage.removeItem("token");
  told.view = told.data = "";
  document.getElementById("leave").hidden = true;
  document.getElementById("scope").replaceChildren();
  signIn(said);
}

// Overview

function overview(data, at) {
  if (data.unknown.slices) return d.el("p", { class: "warn" }, "Cards are not known: " + d.clean(data.unknown.slices));
  const total = data.total;
  if (!total.total) {
    return d.el("p", {}, "No node publishes a card. Is the node driver installed, and does it see the cards? ",
      d.el("code", {}, "kubectl get pods -A -l app.kubernetes.io/component=node"));
  }
  const nodes = data.nodes.items.length + data.nodes.more;
  const pools = data.pools.items.length + data.pools.more;
  return [
    d.el("h1", {}, `${d.count(total.total, "card")} on ${d.count(nodes, "node")}${pools ? ` and in ${d.count(pools, "remote pool")}` : ""}`),
    sums(total, at, data),
    tools(data, at),
    d.legend(),
    heat(data, at),
    d.rest(data.nodes.more, "nodes"),
    d.rest(data.pools.more, "remote pools"),
    waiting(data.waiting),
    problemList(data.problems, "Problems"),
    totals(data),
    couldNot(data),
  ];
}

function sums(total, at, data) {
  const chosen = at.query.get("state");
  const counts = [["Free", total.free], ["Partly", total.partly], ["Held", total.held], ["Blocked", total.blocked], ["Unknown", total.unknown]];
  const memory = total.memoryFree === null ? "unknown" : d.size(total.memoryFree);
  return d.el(
    "ul", { class: "sums" },
    counts.map(([state, number]) =>
      d.el("li", {}, d.el("a", {
        href: "#/?" + filtered(at, "state", chosen === state ? "" : state), "data-key": "sum " + state,
        "aria-current": chosen === state ? "true" : null,
      }, d.el("b", {}, number.toLocaleString("en")), state === "Partly" ? "Partly held" : state))),
    d.el("li", {}, d.el("span", {}, d.el("b", {}, memory), "free of " + d.size(total.memory))),
    [["pods", "waiting pods", data.waiting], ["problems", "problems", data.problems]].map(([view, title, found]) =>
      d.el("li", {}, d.el("a", { href: "#/" + view, "data-key": "sum " + view },
        d.el("b", {}, (found.items.length + found.more).toLocaleString("en")), title))),
  );
}

function filtered(at, name, value) {
  const query = new URLSearchParams(at.query);
  if (value) query.set(name, value);
  else query.delete(name);
  return query.toString();
}

function tools(data, at) {
  if (data.models.length < 2) return null;
  const choice = d.el("select", { id: "model", "data-key": "model" },
    d.el("option", { value: "" }, "all models"),
    [...new Set(data.models.map((model) => model.name))].map((name) => {
      const of = data.models.filter((model) => model.name === name).map((model) => model.tally);
      const sum = (what) => of.reduce((total, tally) => total + tally[what], 0);
      return d.el("option", { value: name, selected: at.query.get("model") === name },
        d.clean(name || "unknown"), ` (${sum("free")} of ${sum("total")} free)`);
    }));
  choice.addEventListener("change", () => { location.hash = "/?" + filtered(at, "model", choice.value); });
  return d.el("div", { class: "tools" }, d.el("label", { for: "model" }, "Model"), choice);
}

const IN_STATE = { Free: /a/, Partly: /[b-j]/, Held: /[kT]/, Blocked: /B/, Unknown: /U/ };

function heat(data, at) {
  const model = at.query.get("model");
  const pattern = IN_STATE[at.query.get("state")];
  const chosen = ([, cells, , models]) =>
    (model === null || models.some((index) => data.models[index].name === model)) && (!pattern || pattern.test(cells));
  const rows = data.nodes.items.filter(chosen), pools = data.pools.items.filter(chosen);
  if (!rows.length && !pools.length) {
    return d.el("p", {}, `No node ${data.pools.items.length ? "and no remote pool " : ""}has such cards. `, d.el("a", { href: "#/" }, "Show all"));
  }
  if (rows.length > MANY_NODES) {
    return [
      pools.length ? d.el("div", { class: "map" }, pools.map((row) => poolBox(row, pattern))) : null,
      d.el("p", { class: "soft" }, "One field a node; its cards are on its page."),
      d.el("div", { class: "many", role: "group", "aria-label": "Nodes" }, rows.map(nodeField)),
    ];
  }
  return d.el("div", { class: "map" }, rows.map((row) => nodeBox(row, pattern)), pools.map((row) => poolBox(row, pattern)));
}

function nodeField([name, cells, flags]) {
  const [ready, driver] = flags;
  const letter = average(cells, ready, driver);
  const free = [...cells].filter((one) => one === "a").length;
  const label = `${d.clean(name)}: ${free} of ${cells.length} cards free, ${d.said(letter)}${trouble(ready, driver)}`;
  return d.cell(letter, { href: d.href("node", name), "data-key": "node " + name }, label);
}

// A node in one letter: what is wrong before what is booked.
function average(cells, ready, driver) {
  if (ready === "n" || driver === "n" || cells.includes("T")) return cells.replace(/[BU]/g, "") ? "T" : "B";
  const known = [...cells].filter((one) => one >= "a" && one <= "k").map((one) => one.charCodeAt(0) - 97);
  if (!known.length) return cells.includes("B") ? "B" : "U";
  const mean = known.reduce((sum, one) => sum + one, 0) / known.length;
  return String.fromCharCode(97 + (mean === 0 ? 0 : mean >= 10 ? 10 : Math.min(9, Math.max(1, Math.round(mean)))));
}

const trouble = (ready, driver) =>
  (ready === "n" ? ", node not ready" : "") + (driver === "n" ? ", driver does not answer" : "");

function nodeBox([name, cells, flags], pattern) {
  const [ready, driver] = flags;
  return d.el(
    "section", { class: "node" },
    d.link(["node", name], null, { title: d.clean(name) }),
    ready === "n" ? d.el("span", { class: "bad" }, "not ready ") : null,
    driver === "n" ? d.el("span", { class: "bad" }, "driver silent") : null,
    boxCells("node", name, d.clean(name), cells, pattern),
  );
}

function boxCells(kind, name, said, cells, pattern) {
  return d.el("div", { class: "cells" }, [...cells].map((letter, at) =>
    (!pattern || pattern.test(letter)) &&
    d.cell(letter, { href: d.href(kind, name) + "?card=" + at, "data-key": kind === "node" ? `cell ${name} ${at}` : `cell ${kind}/${name} ${at}` },
      `${said}, card ${at}: ${d.said(letter)}`)).filter(Boolean));
}

function poolBox([name, cells, reachable], pattern) {
  return d.el(
    "section", { class: "node pool" },
    d.link(["pool", name], d.name("pool/" + name), { title: "remote pool " + d.clean(name) }),
    reachable === "n" ? d.el("span", { class: "bad" }, "does not answer") : null,
    boxCells("pool", name, "pool " + d.clean(name), cells, pattern),
  );
}

function waiting(found) {
  if (!found.items.length) return null;
  return d.el("section", {}, d.el("h2", {}, d.el("a", { href: "#/pods" }, d.count(found.items.length + found.more, "pod") + " waiting")),
    d.el("ul", { class: "list" }, found.items.map(podLine)), d.rest(found.more, "waiting pods"));
}

function podLine(pod) {
  return d.el("li", {}, d.link(["pod", pod.namespace, pod.name], d.name(`${pod.namespace}/${pod.name}`)),
    " ", d.age(pod.waitsSince, now()), ": ", d.clean(pod.waiting));
}

function problemList(found, title) {
  const hidden = found.hidden ? d.el("p", { class: "soft" }, `${found.hidden} more are in namespaces that you may not see`) : null;
  const items = found.items.map((one) => d.el("li", {},
    d.el("span", { class: "warn" }, d.clean(one.kind) + " "), about(one), ": ", d.clean(one.message), " ",
    one.since ? d.age(one.since, now()) : null, d.el("br"), d.el("code", {}, d.clean(one.command))));
  return d.el("section", {}, d.el("h2", {}, d.el("a", { href: "#/problems" }, title)),
    items.length ? d.el("ul", { class: "list" }, items) : d.el("p", { class: "good" }, "No problem found."),
    found.more ? d.el("p", { class: "soft" }, `and ${found.more.toLocaleString("en")} more`) : null, hidden);
}

function about(problem) {
  const [kind, ...rest] = problem.about.split(" ");
  const subject = rest.join(" ");
  if (kind === "card" || kind === "node") return [kind + " ", d.link([kind, subject])];
  if (kind === "pod") return ["pod ", d.link(["pod", ...subject.split("/")], d.name(subject))];
  if (kind === "pool" && !subject.includes("/")) return ["pool ", d.link(["pool", subject])];
  return [kind + " ", d.name(subject)];
}

function totals(data) {
  const sum = (title, rows) => rows.length ? d.el("section", {}, d.el("h2", {}, title), d.table(
    [{ title: "Name" }, { title: "Cards", number: true }, { title: "Claims", number: true }, { title: "Pods", number: true, spare: true },
      { title: "Memory", number: true }],
    rows.map((one) => [one.name ? d.name(one.name) : d.none(), one.cards, one.claims, one.pods, d.size(one.memory)]))) : null;
  return [
    d.el("section", {}, d.el("h2", {}, "Models"), d.table(
      [{ title: "Model" }, ...["Cards", "Free", "Partly", "Held", "Blocked"].map((title) => ({ title, number: true })),
        { title: "Memory free", number: true, spare: true }],
      data.models.map(({ name, tally, remote }) => [[name ? d.name(name) : d.unknown(), remote ? " (remote)" : ""], tally.total, tally.free, tally.partly, tally.held,
        tally.blocked, d.size(tally.memoryFree)]))),
    data.classes.length ? d.el("section", {}, d.el("h2", {}, "Classes"), d.table(
      [{ title: "Class" }, { title: "Ready" }, { title: "Matching", number: true }, { title: "Held", number: true },
        { title: "Waiting claims", number: true }],
      data.classes.map((one) => [d.name(one.name), one.ready === "True" ? "yes" : d.el("span", { class: "bad" }, "no: " + d.clean(one.reason)),
        one.matching ?? d.unknown(), one.booked.cards, one.waiting]))) : null,
    sum("Namespaces", data.namespaces),
    data.workloadTypes.some((one) => one.name) ? sum("Workload types", data.workloadTypes) : null,
  ];
}

function couldNot(data) {
  const unknown = Object.entries(data.unknown).map(([kind, why]) => d.el("li", {}, `${kind}: ${d.clean(why)}`));
  const broken = data.unreadable.map((text) => d.el("li", {}, d.clean(text)));
  if (!unknown.length && !broken.length) return null;
  return d.el("section", {}, d.el("h2", {}, "What could not be read"), d.el("ul", { class: "list" }, unknown, broken));
}

// A node, a card, a pod

function booking(card) {
  if (card.booked === null) return d.unknown(card.reason);
  return [d.bar(card.booked), Math.round(card.booked * 100) + " %"];
}

function left(card, name, text) {
  const free = card.free === null ? "unknown" : text(card.free[name]);
  return `${free} free of ${text(card.capacity[name])}`;
}

function who(card) {
  const names = card.holders.flatMap((one) => one.namespace
    ? one.pods.length ? one.pods.map((pod) => d.link(["pod", one.namespace, pod.name], d.name(`${one.namespace}/${pod.name}`)))
      : [d.el("span", { class: "warn" }, d.name(`${one.namespace}/${one.claim}`), " (claim, unused)")]
    : [d.el("span", { class: "soft" }, "someone in another namespace")]);
  return names.length ? names.flatMap((one, at) => (at ? [d.el("br"), one] : [one])) : d.none();
}

const place = (card) => card.remote ? ["pool ", d.link(["pool", card.pool])] : d.link(["node", card.node]);

function cardRows(cards, chosen = null) {
  return d.table(
    [{ title: "" }, { title: "Card" }, { title: "Model", spare: true }, { title: "State" }, { title: "Booked" },
      { title: "Memory free", number: true }, { title: "Pods" }],
    cards.items.map((one, index) => [
      d.el("span", { class: "cell l" + one.level, "aria-hidden": "true" }, d.el("i", {}, d.mark(one.level))),
      d.link(["card", one.name], null, chosen === String(index) ? { "aria-current": "true" } : {}),
      one.model ? d.clean(one.model) : d.unknown(), d.state(one.state, one.reason), booking(one),
      one.free === null ? d.unknown(one.reason) : d.size(one.free.memory), who(one)]));
}

const counts = (tally) => `${tally.total}: ${tally.free} free, ${tally.partly} partly held, ${tally.held} held, ${tally.blocked} blocked`;

function pool(data, at) {
  const { pool: found, cards, leases } = data;
  const hidden = () => d.el("span", { class: "soft" }, "not shown");
  return [
    d.el("h1", {}, "Remote pool ", d.name(found.name)),
    d.facts([
      ["Answers", found.reachable === null ? d.unknown(found.reason) : found.reachable ? "yes"
        : d.el("span", { class: "bad" }, "no: " + d.clean(found.reason))],
      found.since ? ["Since", d.age(found.since, now())] : null,
      ["Cards", counts(found.tally)],
      ["Memory", `${d.size(found.tally.memoryFree)} free of ${d.size(found.tally.memory)}`],
      ["Endpoint", found.endpoint ? d.el("code", {}, d.clean(found.endpoint)) : d.unknown(found.reason)],
      ["Agent", found.version ? d.clean(found.version) : d.unknown()],
      ...found.troubles.map((one) => ["Taint", d.el("span", { class: "bad" }, d.clean(one.taint), ` on ${d.count(one.cards, "card")}`)]),
    ]),
    d.el("h2", {}, "Cards"),
    cards.items.length ? cardRows(cards, at.query.get("card")) : d.el("p", {}, "It lends no card."),
    d.rest(cards.more, "cards"),
    leases.items.length ? [d.el("h2", {}, "Leases"), d.table(
      [{ title: "Card" }, { title: "Claim" }, { title: "Pods" }, { title: "Used on" }, { title: "Phase" }, { title: "Since", number: true }],
      leases.items.map((one) => [
        d.link(["card", one.device]), one.namespace ? d.name(`${one.namespace}/${one.claim}`) : hidden(),
        one.namespace ? one.pods.map((pod, index) => [index ? ", " : "", d.link(["pod", one.namespace, pod], d.name(pod))]) : hidden(),
        d.name(one.node), lease(one), d.age(one.since, now())]))] : null,
    d.rest(leases.more, "leases"),
    data.problems.length ? problemList({ items: data.problems, more: 0, hidden: 0 }, "Problems of this pool") : null,
  ];
}

function lease(one) {
  const end = Date.parse(one.runsOut);
  const left = Number.isNaN(end) ? "" : end > now() ? `, runs out at ${new Date(end).toLocaleTimeString()}` : ", has run out";
  return [d.state(one.phase, one.reason), left];
}

function node(data, at) {
  const { node: found, cards } = data;
  return [
    d.el("h1", {}, "Node ", d.name(found.name)),
    d.facts([
      ["Node ready", found.ready === null ? d.unknown() : found.ready ? "yes" : d.el("span", { class: "bad" }, "no")],
      ["Driver", found.driver === null ? d.unknown() : found.driver ? "answers" : d.el("span", { class: "bad" }, "does not answer")],
      ["Cards", counts(found.tally)],
      ["Memory", `${d.size(found.tally.memoryFree)} free of ${d.size(found.tally.memory)}`],
    ]),
    d.el("h2", {}, "Cards"),
    cards.items.length ? cardRows(cards, at.query.get("card")) : d.el("p", {}, "It publishes no card."),
    d.rest(cards.more, "cards"),
    data.remote.items.length ? [d.el("h2", {}, "Remote cards that are used here"), cardRows(data.remote), d.rest(data.remote.more, "cards")] : null,
    data.problems.length ? problemList({ items: data.problems, more: 0, hidden: 0 }, "Problems of this node") : null,
  ];
}

function card(data) {
  const found = data.card;
  const units = { memory: d.size, cores: (value) => value + " %" };
  return [
    d.el("h1", {}, "Card ", d.name(found.name)),
    d.facts([
      ["State", d.state(found.state, found.reason)],
      ["Booked", booking(found)],
      ...Object.keys(found.capacity).map((name) => [name[0].toUpperCase() + name.slice(1), left(found, name, units[name] ?? String)]),
      [found.remote ? "Place" : "Node", place(found)],
      ["Model", found.model ? d.name(found.model) : d.unknown()],
      ["UUID", found.uuid ? d.el("code", {}, d.clean(found.uuid)) : d.unknown()],
      ["PCI", found.busId ? d.clean(found.busId) : d.unknown()],
      ["NVIDIA driver", found.driverVersion ? d.clean(found.driverVersion) : d.unknown()],
      ...found.taints.map((one) => ["Taint", d.el("span", { class: "bad" }, d.clean(`${one.key}${one.value ? "=" + one.value : ""}:${one.effect}`), " ", one.since ? d.age(one.since, now()) : null)]),
    ]),
    d.el("h2", {}, "Who holds it"),
    holders(found),
    found.remote ? attachments(found) : null,
    data.problems.length ? problemList({ items: data.problems, more: 0, hidden: 0 }, "Problems of this card") : null,
  ];
}

function holders(found) {
  const all = [...found.holders.map((one) => [one, false]), ...found.observers.map((one) => [one, true])];
  if (!all.length) return d.el("p", {}, found.state === "Unknown" ? "Who holds it is not known." : "Nobody holds it.");
  const hidden = () => d.el("span", { class: "soft" }, "not shown");
  return d.table(
    [{ title: "Namespace" }, { title: "Pod" }, { title: "Containers", spare: true }, { title: "Claim" }, { title: "Class", spare: true },
      { title: "Cores", number: true }, { title: "Memory", number: true }, { title: "Held by", spare: true }, { title: "Since", number: true }],
    all.flatMap(([one, observes]) => (one.pods.length ? one.pods : [null]).map((pod) => [
      one.namespace ? d.name(one.namespace) : hidden(),
      pod ? d.link(["pod", one.namespace, pod.name]) : one.namespace ? d.none() : hidden(),
      pod ? (pod.containers === null ? d.unknown() : d.clean(pod.containers.join(", "))) : "",
      one.claim ? d.name(one.claim) : hidden(), d.clean(one.className),
      observes ? "observes" : one.amounts.cores === undefined ? "all" : one.amounts.cores + " %",
      observes ? "" : d.size(one.amounts.memory), one.enforcement ? d.clean(one.enforcement) : d.none(), d.age(one.since, now())])));
}

function attachments(found) {
  const all = [...found.holders.filter((one) => one.attachment), ...found.ending.map((one) => ({ node: "", attachment: one }))];
  if (!all.length) return found.holders.length ? d.el("p", {}, "Its lease is not known.") : null;
  return [
    d.el("h2", {}, "Leases"),
    d.table([{ title: "Phase" }, { title: "Used on" }, { title: "Since", number: true }, { title: "Lease", spare: true }],
      all.map((one) => [lease(one.attachment), one.node ? d.link(["node", one.node]) : d.none(), d.age(one.attachment.since, now()),
        d.name(one.attachment.lease)])),
  ];
}

function pods(data, at) {
  const field = d.el("input", { type: "search", value: at.query.get("q") ?? "", "aria-label": "Only pods with these words", "data-key": "pods" });
  field.addEventListener("change", () => go(["pods"], field.value ? { q: field.value } : null));
  const none = at.query.get("q") ? "No pod has these words in its name, namespace or node." : "No pod has a card or waits for one.";
  return [
    d.el("h1", {}, "Pods with cards, and pods that wait for one"),
    d.el("div", { class: "tools" }, d.el("label", {}, "Filter ", field)),
    data.items.length ? d.table(
      [{ title: "Pod" }, { title: "Phase" }, { title: "Node", spare: true }, { title: "Cards" }, { title: "Memory", number: true }, { title: "Age", number: true, spare: true }],
      data.items.map((one) => [
        d.link(["pod", one.namespace, one.name], d.name(`${one.namespace}/${one.name}`)), d.state(one.phase, one.waiting),
        one.node ? d.link(["node", one.node]) : d.none(), cardsOf(one), d.size(memoryOf(one)), d.age(one.created, now())])) : d.el("p", {}, none),
    d.rest(data.more, "pods"),
  ];
}

const memoryOf = (pod) => pod.cards.filter((one) => !one.observes).reduce((sum, one) => sum + (one.amounts.memory ?? 0), 0);

function cardsOf(pod) {
  if (!pod.cards.length) return d.none();
  return pod.cards.flatMap((one, at) => [at ? d.el("br") : null, d.link(["card", one.card]), one.observes ? " (observes)" : ""]);
}

// What rules out which cards; asked once the page stands, since it is computed anew each time.
function why(found) {
  const place = d.el("div", { class: "soft" }, "Looking at every card …");
  asked(`explain/pod/${encodeURIComponent(found.namespace)}/${encodeURIComponent(found.name)}`).then(
    (told) => place.replaceChildren(
      d.el("p", { class: "warn" }, d.clean(told.sentence)),
      ...told.funnels.map((one) => d.el("ul", { class: "list" }, one.groups.map((group) => d.el("li", {}, d.clean(group.text))))),
      told.changes.length ? d.el("ul", { class: "list" }, told.changes.map((change) => d.el("li", {}, d.clean(change)))) : ""),
    (error) => place.replaceChildren(d.clean(error.message)));
  return place;
}

function pod(data) {
  const found = data.pod;
  return [
    d.el("h1", {}, "Pod ", d.name(`${found.namespace}/${found.name}`)),
    found.waiting ? d.el("section", {},
      d.el("p", { class: "warn" }, "It waits ", d.age(found.waitsSince, now()), ` (${d.clean(found.reason)}): `, d.clean(found.waiting)),
      found.evidence ? d.el("p", { class: "soft" }, `${found.node ? "The kubelet" : "The scheduler"} says: `, d.el("q", {}, d.clean(found.evidence))) : null,
      found.node ? null : why(found)) : null,
    d.facts([
      ["Phase", d.clean(found.phase)],
      ["Node", found.node ? d.link(["node", found.node]) : d.none()],
      ["Workload type", found.workloadType ? d.clean(found.workloadType) : d.none()],
      ["Age", d.age(found.created, now())],
    ]),
    d.el("h2", {}, "Cards"),
    found.cards.length ? d.table(
      [{ title: "Card" }, { title: "Place" }, { title: "Containers" }, { title: "Claim" }, { title: "Cores", number: true }, { title: "Memory", number: true }],
      found.cards.map((one) => [d.link(["card", one.card]), place(one), d.clean(one.containers.join(", ")), d.name(one.claim),
        one.observes ? "observes" : one.amounts.cores === undefined ? "all" : one.amounts.cores + " %", one.observes ? "" : d.size(one.amounts.memory)]))
      : d.el("p", {}, "It has no card."),
    data.claims.length ? [d.el("h2", {}, "Claims"), d.table(
      [{ title: "Claim" }, { title: "State" }, { title: "Class" }, { title: "Age", number: true }],
      data.claims.map((one) => [d.name(one.name), d.state(one.state), d.clean(one.classes.join(", ")), d.age(one.created, now())]))] : null,
    data.problems.length ? problemList({ items: data.problems, more: 0, hidden: 0 }, "Problems of this pod") : null,
  ];
}

// Whether there is room: a question in the address, an answer below the form.

async function fitAsk({ query }) {
  const overview = await ask("overview");
  const data = { classes: overview.data.classes.map((one) => one.name), answer: "" };
  if (query.get("class")) {
    data.answer = await asked("fit", Object.fromEntries(query)).then((told) => told.text, (error) => {
      if (error.status === 400 || error.status === 503) return error.message;
      throw error;
    });
  }
  return { as: overview.as, data };
}

function fitCommand({ query }) {
  const flags = ["class", "count", "cores", "memory"].filter((name) => query.get(name)).map((name) => `--${name} ${query.get(name)}`);
  return ["kubectl egpu fit", ...flags].join(" ");
}

function fitPage(data, at) {
  const value = (name) => at.query.get(name) ?? "";
  const field = (name, title, more) => d.el("label", {}, title + " ",
    d.el("input", { name, value: value(name), size: 8, "data-key": "fit " + name, ...more }));
  const form = d.el(
    "form", { class: "tools" },
    d.el("label", {}, "Class ", d.el("select", { name: "class", "data-key": "fit class" },
      data.classes.map((one) => d.el("option", { value: one, selected: one === value("class") }, d.clean(one))))),
    field("count", "Cards", { type: "number", min: 1 }), field("cores", "Cores, %", { type: "number", min: 0, max: 100 }),
    field("memory", "Memory", { placeholder: "20Gi" }), d.el("button", { type: "submit" }, "Does it fit?"),
  );
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    go(["fit"], [...new FormData(form)].filter(([, text]) => text));
  });
  return [
    d.el("h1", {}, "Is there room?"),
    data.classes.length ? form : d.el("p", {}, "There is no class."),
    data.answer ? d.el("pre", { id: "answer" }, d.lines(data.answer)) : null,
  ];
}

function problemsPage(data) {
  return problemList(data, "Problems");
}

function results(data, at) {
  return [
    d.el("h1", {}, "Found for ", d.name(at.query.get("q") ?? "")),
    data.items.length ? d.el("ul", { class: "list", id: "found" }, data.items.map((one) => d.el("li", {}, found(one)))) : d.el("p", {}, "Nothing has these words in its name."),
    d.rest(data.more, "things"),
  ];
}

function found(one) {
  const full = d.name(one.namespace ? `${one.namespace}/${one.name}` : one.name);
  const tail = [one.state ? ", " + d.clean(one.state) : "", one.at ? [" at ", d.name(one.at)] : ""];
  if (one.kind === "pod") return ["pod ", d.link(["pod", one.namespace, one.name], full), tail];
  if (one.kind === "claim") return ["claim ", one.pods.length ? d.link(["pod", one.namespace, one.pods[0]], full) : full, tail];
  return [one.kind + " ", d.link([one.kind, one.name]), tail];
}

// Keys and the search field

document.getElementById("search").addEventListener("submit", (event) => {
  event.preventDefault();
  if (words.value.trim()) go(["search"], { q: words.value.trim() });
});

document.addEventListener("keydown", (event) => {
  const typing = event.target.matches("input, textarea, select");
  if (event.key === "/" && !typing) {
    event.preventDefault();
    words.focus();
  } else if (event.key === "Escape") {
    if (typing) event.target.blur();
    else if (token && where().view !== "overview") location.hash = "/";
  } else if (event.key.startsWith("Arrow") && !typing) {
    step(event);
  }
});

// Arrows go through the fields of the map and through what a search found: beside, or to the nearest one above or below.
function step(event) {
  const from = event.target.closest(".cell, #found a");
  if (!from) return;
  const all = [...main.querySelectorAll(from.matches(".cell") ? "a.cell" : "#found a")];
  const at = all.indexOf(from);
  const sideways = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  let next = sideways ? all[at + sideways] : null;
  if (!sideways) {
    const down = event.key === "ArrowDown";
    const box = from.getBoundingClientRect();
    let best = Infinity;
    for (const one of down ? all.slice(at + 1) : all.slice(0, at).reverse()) {
      const other = one.getBoundingClientRect();
      const height = down ? other.top - box.top : box.top - other.top;
      if (height < 4) continue;
      if (height > best + 4) break;
      const far = Math.abs(other.left - box.left);
      if (height < best - 4 || far < Math.abs((next ?? one).getBoundingClientRect().left - box.left) || !next) next = one;
      best = Math.min(best, height);
    }
  }
  if (next) {
    event.preventDefault();
    next.focus();
  }
}

document.getElementById("leave").addEventListener("click", () => leave());
window.addEventListener("hashchange", show);
setInterval(tell, 1000);
show().then(listen);
