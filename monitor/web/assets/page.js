// The status page. Data flows one way: a snapshot from /api/events replaces `shown`, `render` brings the document to it. Nodes are
// kept and only what differs is written, so that focus, scroll and selection stay. Text goes in as text, never as markup.

const SILENT_MS = 9000; // the monitor gives a sign of life every 3 s
const AGAIN_MS = 2000;
const ROWS = 100; // flows drawn at first, and with each press of "more"

const byId = (id) => document.getElementById(id);
let shown = null; // the last snapshot
let skew = 0; // this clock minus the monitor's, seconds
let source = null;
let heard = Date.now();
let lostAt = null;
let rows = ROWS;

// --- words for numbers ------------------------------------------------------------------------------------------

const UNKNOWN = "–";

function size(bytes) {
  if (bytes === null || bytes === undefined) return UNKNOWN;
  let count = bytes;
  for (const unit of ["B", "KiB", "MiB", "GiB"]) {
    if (count < 1000) return `${unit === "B" || count >= 100 ? count.toFixed(0) : count.toFixed(1)}\u00a0${unit}`;
    count /= 1024;
  }
  return `${count.toFixed(1)}\u00a0TiB`;
}

// What a publisher's record of its log holds: its share of the disk it may take, and how far back it reaches.
function relay(held) {
  const reaches = held.begins ? `, ${roughly(now() - held.begins)} of log` : "";
  const state = held.recording ? "" : ", records nothing";
  return `${size(held.bytes)} of ${size(held.budget_bytes)}${reaches}${held.readers ? `, read by ${held.readers}` : ""}${state}`;
}

const rate = (bytes) => (bytes === null || bytes === undefined ? UNKNOWN : `${size(bytes)}/s`);

function span(seconds) {
  if (seconds === null || seconds === undefined) return UNKNOWN;
  if (seconds < 10) return `${seconds.toFixed(1)}\u00a0s`;
  const whole = Math.round(seconds);
  const units = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];
  for (const [i, [name, length]] of units.entries()) {
    if (whole < length) continue;
    const [below, shorter] = units[i + 1] ?? ["", 0];
    const rest = shorter && whole < 10 * length ? Math.floor((whole % length) / shorter) : 0;
    return `${Math.floor(whole / length)}\u00a0${name}${rest ? ` ${rest}\u00a0${below}` : ""}`;
  }
  return `0\u00a0s`;
}

// One unit is enough for how long ago something was.
function roughly(seconds) {
  for (const [name, length] of [["d", 86400], ["h", 3600], ["min", 60]]) {
    if (seconds >= 2 * length) return `${Math.floor(seconds / length)}\u00a0${name}`;
  }
  return `${Math.max(0, Math.floor(seconds))}\u00a0s`;
}

const now = () => Date.now() / 1000 - skew;
const ago = (at) => (now() - at < 1.5 ? "now" : `${roughly(now() - at)} ago`);
const many = (count, one, more = `${one}s`) => `${count.toLocaleString("en")} ${count === 1 ? one : more}`;

// --- writing only what differs ----------------------------------------------------------------------------------

function put(node, text) {
  if (node.textContent !== text) node.textContent = text;
  return node;
}

function attribute(node, name, value) {
  if (value === null || value === undefined || value === false) node.removeAttribute(name);
  else if (node.getAttribute(name) !== String(value)) node.setAttribute(name, String(value));
  return node;
}

function style(node, name, value) {
  if (node.style.getPropertyValue(name) !== value) node.style.setProperty(name, value);
}

function show(node, wanted) {
  if (node.hidden === wanted) node.hidden = !wanted;
  return wanted;
}

function make(tag, classes = "", ...children) {
  const node = document.createElement(tag);
  if (classes) node.className = classes;
  node.append(...children);
  return node;
}

// The children of `parent` become one for each of `items`, in their order; a node stays with its key and moves only if it has to.
function each(parent, items, keyOf, create, update) {
  const kept = parent.nodes ?? (parent.nodes = new Map());
  const keys = new Set(items.map(keyOf));
  for (const [key, node] of kept) {
    if (keys.has(key)) continue;
    node.remove();
    kept.delete(key);
  }
  let next = parent.firstElementChild;
  for (const item of items) {
    const key = keyOf(item);
    let node = kept.get(key);
    if (!node) kept.set(key, (node = create(item)));
    if (node === next) next = next.nextElementSibling;
    else parent.insertBefore(node, next);
    update(node, item);
  }
}

// `text` with its parts in backticks as code.
function prose(node, text) {
  if (node.prose === text) return;
  node.prose = text;
  node.replaceChildren(...text.split("`").map((part, i) => (i % 2 ? make("code", "", part) : part)));
}

function since(node, at) {
  attribute(node, "datetime", new Date((at + skew) * 1000).toISOString());
  attribute(node, "title", new Date((at + skew) * 1000).toLocaleString());
  node.at = at;
  put(node, ago(at));
}

// [name, value, level] as a list of facts; a value may be a time: {at}.
function facts(list, items) {
  each(
    list,
    items.filter(([, value]) => value !== null),
    ([name]) => name,
    ([name]) => make("div", "", make("dt", "", name), make("dd")),
    (node, [name, value, level]) => {
      attribute(node, "class", ["Configuration", "Buffers", "End of log"].includes(name) ? "wide" : null);
      const told = node.lastElementChild;
      attribute(told, "data-level", level && level !== "none" ? level : null);
      if (typeof value === "string") return put(told, value);
      if (!told.firstElementChild) told.append(make("time"));
      return since(told.firstElementChild, value.at);
    },
  );
}

// --- what needs attention ----------------------------------------------------------------------------------------

function verdict() {
  const { problems, attentions, unanswered, publishers } = shown;
  const answered = publishers.some((log) => log.status);
  const parts = [];
  if (problems) parts.push(many(problems, "problem"));
  if (attentions) parts.push(`${attentions} to look at`);
  if (unanswered) parts.push(`${many(unanswered, "publisher")} not answered yet`);
  const text = parts.join(", ") || (answered ? "All is well" : "Nothing runs here");
  const level = problems ? "problem" : attentions ? "attention" : answered && !unanswered ? "none" : "unknown";
  return [shown.drained ? `${text}, host drained` : text, level];
}

function renderConcerns() {
  if (!show(byId("concerns"), shown.concerns.length > 0)) return;
  each(
    byId("concerns-list"),
    shown.concerns.slice(0, 8),
    (concern) => JSON.stringify([concern.about, concern.names[0], concern.text.replace(/\d+/g, "")]),
    () => make("li", "", make("p", "names"), make("p", "what"), make("p", "next", make("span", "who"), " ", make("span"))),
    (node, concern) => {
      attribute(node, "data-level", concern.level);
      const [names, what, next] = node.children;
      const rest = concern.count - concern.names.length;
      put(names, concern.names.join(", ") + (rest > 0 ? ` and ${rest} more` : ""));
      prose(what, concern.code ? `${concern.text} [${concern.code}]` : concern.text);
      put(next.firstElementChild, `${concern.who}:`);
      prose(next.lastElementChild, concern.next);
    },
  );
  const more = shown.concerns.length - 8 + shown.concerns_left_out;
  if (show(byId("concerns-more"), more > 0)) put(byId("concerns-more"), `and ${more} more kinds; the flows below have them all`);
}

// --- logs and their lines -----------------------------------------------------------------------------------------

function createLog() {
  return make(
    "article",
    "log",
    make("div", "log-head", make("div", "log-title", make("h3"), make("p", "phase")), make("dl", "facts")),
    make("ul", "log-concerns"),
    createLine(),
  );
}

function renderLog(node, log) {
  const [head, concerns, line] = node.children;
  const [title, list] = head.children;
  attribute(node, "data-level", log.level);
  put(title.firstElementChild, log.publisher);
  const status = log.status;
  if (status?.standby) put(title.lastElementChild, "stands by");
  else put(title.lastElementChild, log.since ? `${log.phase} for ${roughly(now() - log.since)}` : log.phase);
  const answered = ["Answered", log.answered && now() - log.answered > 5 ? { at: log.answered } : null, "attention"];
  facts(list, [
    ["Process", log.pid === null ? "none" : `${log.pid}`],
    ["Restarts", `${log.restarts}`],
    ...(log.facts ?? []),
    ...(status?.standby
      ? [["Owner", status.standby.owner ?? "none", status.standby.owner ? "none" : "attention"], answered]
      : status
      ? [
          ["Log grows", rate(status.log_bytes_per_s)],
          ["Is read", rate(status.read_bytes_per_s)],
          ["Buffers", `${size(status.buffered_bytes)} of ${size(status.buffer_bytes)}`],
          ...(status.relay ? [["Relay", relay(status.relay), status.relay.recording ? "none" : "attention"]] : []),
          ["Subscribers", status.subscribers_away ? `${status.subscribers}, ${status.subscribers_away} away` : `${status.subscribers}`, status.subscribers_away ? "attention" : "none"],
          ["Flows", `${status.flows}`],
          ["End of log", status.native_log_end ? `${status.log_end} (${status.native_log_end})` : status.log_end ?? UNKNOWN],
          ...(status.term ? [["Term", `${status.term}`]] : []),
          answered,
        ]
      : []),
  ]);
  each(
    concerns,
    log.problem ? [log.problem] : [],
    () => "problem",
    () => make("li"),
    (item, text) => prose(item, text),
  );
  if (show(line, Boolean(status?.line))) renderLine(line, log.publisher, status);
}

// A sink is a process as a publisher is, without a line.
function renderSink(node, sink) {
  const about = [["Application", sink.application || UNKNOWN], ["Store", sink.url || UNKNOWN]];
  if (sink.unverified) about.push(["Unverified", many(sink.unverified, "table"), "attention"]);
  renderLog(node, { ...sink, publisher: sink.sink, status: null, answered: null, facts: about });
}

function createLine() {
  return make("div", "line", make("ul", "lanes"), make("div", "axis"), make("div", "markers"), make("div", "scale"));
}

const percent = (x) => `${(100 * x).toFixed(2)}%`;

function where(caravan) {
  const far = caravan.behind_bytes === null ? "in a former log" : `${size(caravan.behind_bytes)} behind`;
  if (caravan.lead) return caravan.behind_bytes !== null && caravan.behind_bytes < 1 << 20 ? "lead, at the end" : `lead, ${far}`;
  return caravan.arrives_s === null ? `${far}, not gaining` : `${far}, at the end in ${span(Math.ceil(caravan.arrives_s))}`;
}

function renderLine(node, name, status) {
  const [lanes, axis, markers, scale] = node.children;
  const { caravans, ticks, markers: bins } = status.line;
  attribute(lanes, "aria-label", `Caravans of ${name}`);
  each(
    lanes,
    caravans,
    (caravan) => caravan.number,
    () => make("li", "", make("span", "stem"), make("div", "chip", make("span", "unseen", "Caravan "), make("b"), make("span"), make("span", "far"))),
    (item, caravan) => {
      const [stem, chip] = item.children;
      attribute(chip, "data-lead", caravan.lead ? "" : null);
      attribute(chip, "title", caravan.cause);
      item.x = caravan.x;
      style(stem, "left", percent(caravan.x));
      const [, number, load, far] = chip.children;
      put(number, String(caravan.number));
      put(load, `${many(caravan.flows, "flow")}, ${rate(caravan.bytes_per_s)}`);
      put(far, where(caravan));
    },
  );
  const pieces = [
    ...ticks.map((tick) => ({ key: `t${tick.behind_bytes}`, kind: "tick", x: tick.x })),
    ...caravans.map((caravan) => ({ ...caravan, key: `b${caravan.number}`, kind: "band" })),
    ...caravans.map((caravan) => ({ ...caravan, key: `d${caravan.number}`, kind: "dot" })),
  ];
  attribute(axis, "aria-hidden", "true");
  each(
    axis,
    pieces,
    (piece) => piece.key,
    (piece) => make("span", piece.kind),
    (item, piece) => {
      attribute(item, "data-lead", piece.lead ? "" : null);
      style(item, "left", percent(piece.kind === "band" ? piece.buffer_x : piece.x));
      if (piece.kind === "band") style(item, "width", percent(piece.x - piece.buffer_x));
    },
  );
  attribute(markers, "aria-hidden", "true");
  each(
    markers,
    bins,
    (bin) => bin.x,
    () => make("span", "marker"),
    (item, bin) => {
      attribute(item, "data-level", bin.level);
      style(item, "left", percent(bin.x));
      style(item, "height", `${Math.min(1.05, 0.3 + 0.15 * Math.log2(bin.flows)).toFixed(2)}rem`);
    },
  );
  attribute(scale, "aria-hidden", "true");
  each(
    scale,
    [...ticks, { end: true, behind_bytes: 0 }],
    (tick) => tick.behind_bytes,
    (tick) => make("span", tick.end ? "end" : ""),
    (item, tick) => {
      item.x = tick.x;
      put(item, tick.end ? "end of log" : `${size(tick.behind_bytes).replace(".0", "")} behind`);
      if (!tick.end) style(item, "left", percent(tick.x));
    },
  );
  place(node);
}

// What depends on the width in pixels: a chip ends at its mark, reaches to the left, and gets a lane above those whose stems it would
// cover; of the scale's words those are shown that do not touch.
function place(line) {
  const lanes = line.firstElementChild;
  const width = lanes.clientWidth;
  if (!width) return;
  let free = width - 80;
  for (const word of [...line.lastElementChild.children].filter((item) => item.x !== undefined).sort((one, other) => other.x - one.x)) {
    const half = 48;
    const fits = word.x * width + half < free && word.x * width > half;
    style(word, "visibility", fits ? "visible" : "hidden");
    if (fits) free = word.x * width - half;
  }
  const boxes = [...lanes.children]
    .map((item) => ({ chip: item.lastElementChild, stem: item.firstElementChild, x: item.x * width }))
    .sort((one, other) => one.x - other.x);
  for (const box of boxes) box.width = box.chip.offsetWidth;
  const height = boxes[0]?.chip.offsetHeight ?? 0;
  const placed = [];
  for (const box of boxes) {
    box.left = Math.max(0, Math.min(width - box.width, box.x + 12 - box.width));
    box.right = box.left + box.width;
    box.lane = 0;
    const clashes = (other) => other.lane === box.lane && box.left < other.right + 8 && other.left < box.right + 8;
    for (const other of placed) if (box.left < other.x && other.x < box.right) box.lane = Math.max(box.lane, other.lane + 1);
    while (placed.some(clashes)) box.lane += 1;
    placed.push(box);
  }
  const deepest = Math.max(0, ...placed.map((box) => box.lane));
  style(lanes, "height", placed.length ? `${(deepest + 1) * (height + 6)}px` : "0px");
  for (const box of placed) {
    const bottom = box.lane * (height + 6) + 4;
    style(box.chip, "left", `${Math.round(box.left)}px`);
    style(box.chip, "bottom", `${bottom}px`);
    style(box.stem, "height", `calc(0.95rem + ${bottom}px)`);
  }
}

// --- flows --------------------------------------------------------------------------------------------------------

const LEVELS = { problem: 0, attention: 1, none: 2 };
const ORDERS = {
  level: (one, other) => LEVELS[one.level] - LEVELS[other.level],
  lag: (one, other) => (other.lag_s ?? 0) - (one.lag_s ?? 0),
  headroom: (one, other) => (one.headroom_s ?? Infinity) - (other.headroom_s ?? Infinity),
  name: () => 0,
};
const natural = new Intl.Collator("en", { numeric: true });
const byName = (one, other) => natural.compare(one.flow, other.flow);

function chosenFlows() {
  const words = byId("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
  const fits = (flow) => {
    const text = [flow.flow, flow.publisher, state(flow), flow.subscriber, flow.cause, flow.backfill?.text, flow.level].join(" ").toLowerCase();
    return words.every((word) => text.includes(word));
  };
  const order = ORDERS[byId("order").value];
  return shown.flows.filter(fits).sort((one, other) => order(one, other) || byName(one, other));
}

function noFlows() {
  if (shown.publishers.some((log) => log.condition === null)) return "No flow is known: a publisher has not answered yet.";
  const unknown = shown.publishers.find((log) => !["ok", "no_shard"].includes(log.condition.state));
  const log = unknown ?? shown.publishers[0];
  return log ? `No flow is known: ${log.condition.cause}.` : "This host serves no log.";
}

const state = (flow) => flow.state.replaceAll("_", " ");

const CELLS = [
  ["name", ""],
  ["state", ""],
  ["subscriber", "Subscriber"],
  ["lag num", "Lag"],
  ["behind num", "Behind"],
  ["headroom num", "Headroom"],
  ["used", "Credit used"],
  ["caravan num", "Caravan"],
  ["cause", ""],
];

function createFlow() {
  const row = make("tr");
  row.setAttribute("role", "row");
  for (const [classes, label] of CELLS) {
    const cell = row.appendChild(make("td", classes));
    cell.setAttribute("role", "cell");
    if (label) cell.setAttribute("data-label", label);
  }
  const [name, , , , , , used, , cause] = row.children;
  name.append(make("span"), make("span", "from"));
  used.append(make("span", "credit", make("span", "gauge", make("i")), make("span")));
  cause.append(
    make("span"),
    make("span", "backfill", make("span", "gauge", make("i")), make("span")),
    make("span", "next", make("span", "who"), " ", make("span")),
  );
  return row;
}

function renderFlow(row, flow) {
  attribute(row, "data-level", flow.level);
  attribute(row, "data-state", flow.state);
  const [name, stands, subscriber, lag, behind, headroom, used, caravan, cause] = row.children;
  put(name.firstElementChild, flow.flow);
  put(name.lastElementChild, shown.publishers.length > 1 ? flow.publisher : "");
  put(stands, state(flow));
  put(subscriber, flow.subscriber || UNKNOWN);
  attribute(put(lag, span(flow.lag_s)), "title", flow.lag_unknown || null);
  put(behind, size(flow.lag_bytes));
  attribute(put(headroom, span(flow.headroom_s)), "title", flow.headroom_unknown || null);
  const window = flow.in_flight + flow.credit;
  const full = window ? flow.in_flight / window : 0;
  const [gauge, percentage] = used.firstElementChild.children;
  show(gauge, window > 0);
  style(gauge.firstElementChild, "width", percent(full));
  attribute(gauge, "data-full", full > 0.95 ? "" : null);
  put(percentage, window ? `${Math.round(100 * full)}\u00a0%` : UNKNOWN);
  put(caravan, flow.caravan ? `${flow.caravan}${flow.reads_relay ? " (relay)" : ""}` : UNKNOWN);
  const [why, backfill, next] = cause.children;
  prose(why, flow.cause);
  if (show(backfill, flow.backfill !== null)) {
    show(backfill.firstElementChild, flow.backfill.share !== null);
    style(backfill.firstElementChild.firstElementChild, "width", percent(flow.backfill.share ?? 0));
    put(backfill.lastElementChild, flow.backfill.text);
  }
  show(next, Boolean(flow.next));
  put(next.firstElementChild, `${flow.who}:`);
  prose(next.lastElementChild, flow.next);
}

function renderFlows() {
  const chosen = chosenFlows();
  const total = shown.flows.length;
  put(byId("flows-count"), chosen.length === total ? `${total + shown.flows_left_out}` : `${chosen.length} of ${total}`);
  show(byId("flows-table"), chosen.length > 0);
  each(byId("flows-rows"), chosen.slice(0, rows), (flow) => JSON.stringify([flow.publisher, flow.flow]), createFlow, renderFlow);
  const none = byId("flows-none");
  if (show(none, chosen.length === 0)) put(none, total ? "No flow fits the filter." : noFlows());
  const left = byId("flows-left");
  if (show(left, shown.flows_left_out > 0)) {
    put(left, `${shown.flows_left_out} more are not sent to this page, those with problems come first; wormholectl flows lists all`);
  }
  const more = byId("flows-more");
  if (show(more, chosen.length > rows)) put(more, `Show ${Math.min(ROWS, chosen.length - rows)} more of ${chosen.length}`);
}

// --- events -------------------------------------------------------------------------------------------------------

function renderEvents() {
  show(byId("events-none"), shown.events.length === 0);
  const seen = new Map();
  const keyed = shown.events.slice(0, 50).map((event) => {
    const key = JSON.stringify([event.at, event.kind, event.subject, event.text]);
    seen.set(key, (seen.get(key) ?? 0) + 1);
    return { ...event, key: `${key}${seen.get(key)}` };
  });
  each(
    byId("events"),
    keyed,
    (event) => event.key,
    () => make("li", "", make("time"), make("span", "kind"), make("span", "subject"), make("span", "text")),
    (node, event) => {
      attribute(node, "data-level", event.level);
      const [time, kind, subject, text] = node.children;
      since(time, event.at);
      put(kind, event.kind.replaceAll("_", " "));
      put(subject, event.subject || "this host");
      put(text, event.text);
    },
  );
}

// --- the whole ----------------------------------------------------------------------------------------------------

function render() {
  const [text, level] = verdict();
  put(byId("host"), shown.host);
  put(byId("announce"), text);
  attribute(put(byId("verdict"), text), "data-level", level);
  const title = `${shown.problems ? `(${shown.problems}) ` : ""}${shown.host} · Wormhole`;
  if (document.title !== title) document.title = title;
  const away = !["connected", "static"].includes(shown.coordination);
  facts(byId("host-facts"), [
    ["Configuration", shown.configuration || "not read yet"],
    ["ZooKeeper", shown.coordination === "static" ? "not used" : shown.coordination, away ? "attention" : "none"],
    ["Away", away && shown.coordination_since ? { at: shown.coordination_since } : null, "attention"],
    ["Monitor began", { at: shown.started }],
  ]);
  renderConcerns();
  put(byId("logs-count"), String(shown.publishers.length + shown.publishers_left_out));
  show(byId("logs-none"), shown.publishers.length === 0);
  each(byId("logs"), shown.publishers, (log) => log.publisher, createLog, renderLog);
  if (show(byId("logs-more"), shown.publishers_left_out > 0)) put(byId("logs-more"), `and ${shown.publishers_left_out} more`);
  if (show(byId("sinks"), shown.sinks.length > 0)) {
    put(byId("sinks-count"), String(shown.sinks.length + shown.sinks_left_out));
    each(byId("sinks-list"), shown.sinks, (sink) => sink.sink, createLog, renderSink);
    if (show(byId("sinks-more"), shown.sinks_left_out > 0)) put(byId("sinks-more"), `and ${shown.sinks_left_out} more`);
  }
  renderFlows();
  renderEvents();
  put(byId("about"), `Wormhole ${shown.version}. The same as text: wormholectl publishers, flows, caravans. As JSON: /api/status. Metrics: /metrics.`);
}

function contact(name, text) {
  attribute(byId("contact"), "data-state", name);
  put(byId("contact-text"), text);
}

function alive() {
  heard = Date.now();
  if (lostAt !== null) {
    lostAt = null;
    show(byId("lost"), false);
    put(byId("lost-text"), "");
    document.body.classList.remove("stale");
    if (shown) render();
  }
  contact("live", "live");
}

function lose() {
  if (lostAt !== null) return;
  lostAt = Date.now();
  const time = new Date(lostAt).toLocaleTimeString([], { hour12: false });
  put(byId("lost-text"), shown ? `Connection to the monitor lost at ${time}. What you see is from then; trying again.` : `The monitor does not answer since ${time}; trying again.`);
  show(byId("lost"), true);
  document.body.classList.add("stale");
  contact("lost", "not connected");
  attribute(put(byId("verdict"), "How it is now is not known"), "data-level", "unknown");
  tick();
}

function connect() {
  source?.close();
  source = new EventSource("/api/events");
  heard = Date.now();
  source.addEventListener("status", (event) => {
    const told = JSON.parse(event.data);
    if (shown && told.version !== shown.version) return location.reload(); // another monitor, with another page
    shown = told;
    skew = Date.now() / 1000 - shown.at;
    alive();
    render();
  });
  source.addEventListener("beat", alive);
  source.addEventListener("error", () => {
    lose();
    // The browser tries again by itself unless it was refused.
    if (source.readyState === EventSource.CLOSED) setTimeout(reconnect, AGAIN_MS);
  });
}

function reconnect() {
  if (!document.hidden && source?.readyState !== EventSource.OPEN) connect();
}

function tick() {
  for (const time of document.querySelectorAll("time")) if (time.at) put(time, ago(time.at));
  if (lostAt !== null) put(byId("lost-ago"), `(${roughly((Date.now() - lostAt) / 1000)} ago)`);
  if (!document.hidden && Date.now() - heard > SILENT_MS) {
    lose();
    connect();
  }
}

byId("filter").addEventListener("input", () => {
  rows = ROWS;
  if (shown) renderFlows();
});
byId("order").addEventListener("change", () => shown && renderFlows());
byId("flows-more").addEventListener("click", () => {
  rows += ROWS;
  renderFlows();
});
// Nobody looks: the monitor need not send.
document.addEventListener("visibilitychange", () => {
  if (document.hidden) source?.close();
  else connect();
});
new ResizeObserver(() => document.querySelectorAll(".line").forEach(place)).observe(byId("logs"));
setInterval(tick, 1000);
connect();
