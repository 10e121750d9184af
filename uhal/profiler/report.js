"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const at = (id) => document.getElementById(id);
const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// -- numbers ---------------------------------------------------------------------------------------

const three = (value) => value.toFixed(value >= 100 ? 0 : value >= 10 ? 1 : 2);
function time(ns) {
  for (const [unit, factor] of [["s", 1e9], ["ms", 1e6], ["µs", 1e3]])
    if (Math.abs(ns) >= factor) return `${three(ns / factor)} ${unit}`;
  return `${Math.round(ns)} ns`;
}
function size(bytes) {
  for (const [unit, factor] of [["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10]])
    if (bytes >= factor) return `${three(bytes / factor)} ${unit}`;
  return bytes ? `${bytes} B` : "—";
}
const percent = (share) => (share === null ? "—" : `${Math.round(100 * share)} %`);
const or = (value, said) => (value === null ? "—" : said(value));

// -- tables ----------------------------------------------------------------------------------------

// A column: its heading, the value it is sorted by, and its text.
function table(id, rows, columns, sorted) {
  const element = at(id);
  if (!rows.length) {
    element.parentElement.innerHTML = '<p class="empty">None.</p>';
    return;
  }
  let by = sorted, down = true;
  function draw() {
    const order = by === null ? rows : [...rows].sort((a, b) => {
      const [x, y] = [columns[by][1](a), columns[by][1](b)];
      const less = typeof x === "string" ? x.localeCompare(y) : (x ?? -1) - (y ?? -1);
      return down ? -less : less;
    });
    element.textContent = "";
    const head = element.createTHead().insertRow();
    columns.forEach(([name], index) => {
      const cell = document.createElement("th");
      cell.textContent = name;
      cell.scope = "col";
      cell.tabIndex = 0;
      if (index === by) cell.setAttribute("aria-sort", down ? "descending" : "ascending");
      cell.onclick = () => { down = index === by ? !down : true; by = index; draw(); };
      cell.onkeydown = (event) => { if (event.key === "Enter") cell.onclick(); };
      head.append(cell);
    });
    const body = element.createTBody();
    for (const row of order) {
      const line = body.insertRow();
      for (const [, value, said] of columns) {
        const cell = line.insertCell();
        cell.textContent = said ? or(value(row), said) : value(row) ?? "—";
        cell.title = cell.textContent;
      }
    }
  }
  draw();
}

const is_copy = (row) => !["launch", "work"].includes(row.kind);
const spent = (name) => (row) => (row.on_device ? row.on_device[name] : null);
const kernels = data.work.filter((row) => !is_copy(row));
const copies = data.work.filter(is_copy);

table("kernels", kernels, [
  ["Name", (row) => (row.kind === "work" ? `${row.name} (library)` : row.name)],
  ["Calls", (row) => row.calls],
  ["Device", spent("total"), time], ["Mean", spent("mean"), time], ["p50", spent("p50"), time],
  ["p99", spent("p99"), time], ["Launch", (row) => row.host.mean, time],
  ["Bytes", (row) => row.nbytes, size], ["GB/s", (row) => row.gigabytes_per_second, three],
  ["Of copy", (row) => row.share_of_copy, percent], ["Registers", (row) => row.registers],
  ["Occupancy", (row) => row.occupancy, percent], ["On", (row) => row.device],
  ["From", (row) => (row.lines.length ? row.lines[0][0] : "")],
], 2);
if (data.counted.length) {
  at("counted").hidden = false;
  const metric = (name) => (row) => row.metrics[name] ?? null;
  const global = "pipe_lsu_mem_global_op_";
  const tenths = (value) => value.toFixed(1), whole = (value) => Math.round(value).toLocaleString("en");
  table("counts", data.counted, [
    ["Kernel", (row) => row.kernel], ["Launches", (row) => row.launches],
    ["Grid", (row) => row.grid.join("×")], ["Block", (row) => row.block.join("×")],
    ["Sectors a load", metric(`l1tex__average_t_sectors_per_request_${global}ld.ratio`), tenths],
    ["Sectors a store", metric(`l1tex__average_t_sectors_per_request_${global}st.ratio`), tenths],
    ["Coalesced", metric("uhal__coalescing.pct"), (value) => `${Math.round(value)} %`],
    ["Moved", metric("uhal__sectors_per_sector_touched.ratio"), three],
    ["Banks", metric("uhal__bank_factor.ratio"), three],
    ["Lanes", metric("smsp__thread_inst_executed_per_inst_executed.ratio"), tenths],
    ["Instructions", metric("smsp__thread_inst_executed.sum"), whole],
    ["Blocks counted", metric("uhal__counted_blocks.pct"), (value) => `${Math.round(value)} %`],
  ], 10);
  const lines = data.counted.flatMap((one) => one.lines.map((line) => ({ ...line, kernel: one.kernel })));
  table("lines", lines, [
    ["Line", (row) => `${row.file.split("/").pop()}:${row.line}`],
    ["Source", (row) => row.text], ["Kernel", (row) => row.kernel],
    ["Instructions", (row) => row["smsp__thread_inst_executed.sum"], whole],
    ["Sectors", (row) => row["memory_l2_theoretical_sectors_global"], whole],
    ["Fewest", (row) => row["memory_l2_theoretical_sectors_global_ideal"], whole],
    ["Shared turns", (row) => row["memory_l1_wavefronts_shared"], whole],
    ["Fewest", (row) => row["memory_l1_wavefronts_shared_ideal"], whole],
    ["What to do", (row) => row.advice],
  ], 4);
}
table("copies", copies, [
  ["Kind", (row) => row.kind], ["Calls", (row) => row.calls], ["Device", spent("total"), time],
  ["Mean", spent("mean"), time], ["p50", spent("p50"), time], ["p99", spent("p99"), time],
  ["Call", (row) => row.host.mean, time], ["Bytes", (row) => row.nbytes, size],
  ["GB/s", (row) => row.gigabytes_per_second, three], ["On", (row) => row.device],
], 2);
table("ranges", data.ranges, [
  ["Name", (row) => row.path], ["Calls", (row) => row.calls],
  ["Host", (row) => (row.host ? row.host.total : null), time],
  ["Host, mean", (row) => (row.host ? row.host.mean : null), time],
  ["Device", (row) => row.device_total, time], ["Launches", (row) => row.launches],
], null);
table("gaps", data.use.flatMap((use) => use.longest.map((gap) => ({ ...gap, device: use.device }))), [
  ["After", (gap) => gap.after], ["Before", (gap) => gap.before], ["Length", (gap) => gap.length, time],
  ["At", (gap) => gap.begin, time],
  ["Because", (gap) => (gap.host_part * 2 < gap.length ? "the device itself"
    : gap.host_waited ? "the host had waited" : "the host came late")],
  ["On", (gap) => gap.device], ["Next from", (gap) => gap.line],
], 2);
for (const use of data.use) {
  const line = document.createElement("p");
  const span = Math.max(use.last - use.first, 1);
  line.textContent = `${use.device}: at work ${time(use.busy)} of ${time(span)} (${percent(use.busy / span)}); ` +
    `${use.gaps} gaps, ${time(use.idle_host)} for want of work and ${time(use.idle_device)} of the device's own.`;
  at("use").append(line);
}

// -- summary ---------------------------------------------------------------------------------------

const sum = (rows, value) => rows.reduce((total, row) => total + value(row), 0);
const busy = sum(data.use, (use) => use.busy);
const waited = data.events.kind.reduce((total, kind, index) => data.kinds[kind] === "wait"
  ? total + data.events.host_end[index] - data.events.host_begin[index] : total, 0);
for (const [value, name] of [
  [time(data.duration), "profiled"],
  [sum(data.work.filter((row) => row.kind === "launch"), (row) => row.calls).toLocaleString("en"), "launches"],
  [time(busy), "devices at work"],
  [time(waited), "the host waited"],
  [size(Math.max(0, ...data.memory.map((one) => one.peak))), "memory, at most"],
]) {
  const card = document.createElement("div");
  card.className = "card";
  card.append(Object.assign(document.createElement("b"), { textContent: value }),
    Object.assign(document.createElement("span"), { textContent: name }));
  at("cards").append(card);
}
at("facts").textContent = data.devices.map((one) => `${one.name}: ${one.product}` +
  (one.copy_bandwidth ? `, copies ${three(one.copy_bandwidth / 1e9)} GB/s` : "")).join(" · ");
at("footer").textContent = `uhal ${data.uhal} · Python ${data.python} · ${data.machine} · ${data.written}`;
const lost = Object.entries(data.not_noted).map(([kind, count]) => `${count} of kind ${kind}`);
if (lost.length) at("facts").textContent += ` · not noted, beyond the limit: ${lost.join(", ")}`;
for (const [name, words] of Object.entries(data.broken))
  at("facts").textContent += ` · ${name} is broken: ${words}`;
if (data.all_events > data.events.kind.length)
  at("shown").textContent = `The ${data.events.kind.length} longest of ${data.all_events} events are drawn.`;

const most = Math.max(1, ...data.work.map((row) => (row.on_device ? row.on_device.total : 0)));
for (const row of data.work.filter((one) => one.on_device).slice(0, 15)) {
  const line = document.createElement("div");
  line.className = "bar";
  const name = Object.assign(document.createElement("code"), { textContent: row.name, title: row.name });
  const bar = document.createElement("div");
  const fill = document.createElement("i");
  if (is_copy(row)) fill.className = "copy";
  fill.style.width = `${(100 * row.on_device.total) / most}%`;
  bar.append(fill);
  line.append(name, bar, Object.assign(document.createElement("span"),
    { textContent: `${time(row.on_device.total)} · ${percent(busy ? row.on_device.total / busy : null)}` }));
  at("bars").append(line);
}
if (!at("bars").children.length) at("bars").innerHTML = '<p class="empty">No time on a device is known.</p>';

// -- memory ----------------------------------------------------------------------------------------

for (const one of data.memory) {
  const box = document.createElement("div");
  const high = Math.max(1, one.peak), wide = Math.max(1, data.duration);
  let path = "M0,100";
  one.times.forEach((moment, index) => {
    path += `H${((1000 * moment) / wide).toFixed(2)}V${(100 - (95 * one.in_use[index]) / high).toFixed(2)}`;
  });
  box.innerHTML = `<svg viewBox="0 0 1000 100" preserveAspectRatio="none" role="img"
    aria-label="Memory in use over time"><path class="area" d="${path}H1000V100Z"></path></svg>`;
  const text = document.createElement("p");
  text.className = "hint";
  text.textContent = `${one.device}: at most ${size(one.peak)}, after ${time(one.peak_at)}; ` +
    `${one.allocations} allocations, ${one.frees} freed. ` + (one.owners.length ? "Then in use: " : "") +
    one.owners.slice(0, 5).map(([line, bytes, blocks]) => `${size(bytes)} in ${blocks} from ${line || "an unknown line"}`).join("; ");
  box.append(text);
  at("memory").append(box);
}

// -- timeline --------------------------------------------------------------------------------------

const LANE = 22, LABEL = 14, AXIS = 22;
const events = data.events;
const lanes = new Map();
const bars = [];
function lane(key, title, order) {
  if (!lanes.has(key)) lanes.set(key, { title, order, row: 0, deep: 1 });
  return lanes.get(key);
}
events.kind.forEach((number, index) => {
  const kind = data.kinds[number];
  const name = data.names[events.what[index]] || kind;
  const thread = String(events.thread[index]);
  if (kind !== "allocate" && kind !== "free") {
    bars.push({ index, kind, name, begin: events.host_begin[index], end: events.host_end[index], host: true,
      lane: lane(`host ${thread}`, `host · ${data.threads[thread] || `thread ${thread}`}`, `0${thread}`) });
  }
  if (events.device_end[index]) {
    const device = data.devices[events.device[index]].name;
    const key = `${device} ${events.stream[index]}`;
    bars.push({ index, kind, name, begin: events.device_begin[index], end: events.device_end[index], host: false,
      lane: lane(key, `${device} · stream ${events.stream[index]}`, `1${key}`) });
  }
});
// A nested range is drawn below its parent.
bars.sort((a, b) => a.begin - b.begin || b.end - a.end);
const open = new Map();
for (const bar of bars) {
  const stack = open.get(bar.lane) || [];
  while (stack.length && stack[stack.length - 1] <= bar.begin) stack.pop();
  bar.depth = Math.min(stack.length, 5);
  bar.lane.deep = Math.max(bar.lane.deep, bar.depth + 1);
  stack.push(bar.end);
  open.set(bar.lane, stack);
}
const ordered = [...lanes.values()].sort((a, b) => (a.order < b.order ? -1 : 1));
let rows_high = AXIS;
for (const one of ordered) { one.row = rows_high; rows_high += LABEL + one.deep * LANE + 8; }

const canvas = at("timeline"), pen = canvas.getContext("2d"), tip = at("tip");
const whole = [0, Math.max(1, data.duration, ...bars.slice(-1).map((bar) => bar.end))];
let [from, to] = whole;
let hovered = null;
const fill_of = (bar) => bar.kind === "wait" || bar.kind === "resolve" ? color("--wait")
  : bar.kind === "range" ? color("--bar")
  : bar.host ? color("--host") : ["launch", "work", "replay"].includes(bar.kind) ? color("--accent") : color("--copy");
function x_of(moment, width) { return ((moment - from) / (to - from)) * width; }
function draw() {
  const width = canvas.clientWidth, ratio = window.devicePixelRatio || 1;
  canvas.style.height = `${rows_high}px`;
  canvas.width = width * ratio;
  canvas.height = rows_high * ratio;
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, width, rows_high);
  pen.font = "11px system-ui, sans-serif";
  pen.textBaseline = "middle";
  const quiet = color("--quiet"), line = color("--line"), ground = color("--panel"), text = color("--text");
  const fills = {};
  let step = 10 ** Math.floor(Math.log10((to - from) / 2));
  while ((to - from) / step > width / 90) step *= (to - from) / step / 2 > width / 90 ? 5 : 2;
  for (let tick = Math.ceil(from / step) * step; tick <= to; tick += step) {
    const x = x_of(tick, width);
    pen.fillStyle = line;
    pen.fillRect(x, AXIS - 4, 1, rows_high);
    pen.fillStyle = quiet;
    pen.fillText(time(tick), x + 3, 9);
  }
  pen.fillStyle = quiet;
  for (const one of ordered) pen.fillText(one.title, 2, one.row + 6);
  let drawn = new Map();
  for (const bar of bars) {
    if (bar.end < from || bar.begin > to) continue;
    const x = Math.max(0, x_of(bar.begin, width)), right = Math.min(width, x_of(bar.end, width));
    const y = bar.lane.row + LABEL + bar.depth * LANE;
    // Bars thinner than a pixel are drawn once.
    const key = bar.lane.row * 8 + bar.depth;
    if (right - x < 1 && drawn.get(key) >= Math.floor(x)) continue;
    drawn.set(key, Math.floor(x));
    pen.fillStyle = bar === hovered ? text : (fills[bar.kind + bar.host] ??= fill_of(bar));
    pen.fillRect(x, y, Math.max(1, right - x), LANE - 3);
    if (right - x > 34) {
      pen.fillStyle = bar.kind === "range" || bar.kind === "wait" ? text : ground;
      pen.save();
      pen.beginPath();
      pen.rect(x, y, right - x - 3, LANE);
      pen.clip();
      pen.fillText(bar.name, x + 4, y + LANE / 2 - 1);
      pen.restore();
    }
  }
}
function zoom(factor, x) {
  const centre = from + ((to - from) * x) / canvas.clientWidth;
  const reach = Math.min(Math.max((to - from) * factor, 50), whole[1] - whole[0]);
  const share = (centre - from) / (to - from);
  move(centre - reach * share, reach);
}
function move(begin, reach) {
  from = Math.min(Math.max(begin, whole[0]), whole[1] - reach);
  to = from + reach;
  draw();
}
function found(event) {
  const box = canvas.getBoundingClientRect(), width = canvas.clientWidth;
  const x = event.clientX - box.left, y = event.clientY - box.top;
  const moment = from + ((to - from) * x) / width, near = ((to - from) / width) * 2;
  return bars.findLast((bar) => bar.begin - near <= moment && moment <= bar.end + near &&
    y >= bar.lane.row + LABEL + bar.depth * LANE && y < bar.lane.row + LABEL + (bar.depth + 1) * LANE);
}
function tell(event) {
  const bar = found(event) || null;
  if (bar !== hovered) { hovered = bar; draw(); }
  tip.hidden = !bar;
  if (!bar) return;
  const index = bar.index, line = data.lines[events.line[index]], range = data.range_names[events.range[index]];
  tip.textContent = `${bar.name}\n${time(bar.end - bar.begin)} from ${time(bar.begin)}` +
    (events.bytes[index] ? `\n${size(events.bytes[index])}` : "") + (range ? `\nin ${range}` : "") + (line ? `\n${line}` : "");
  const box = at("frame").getBoundingClientRect();
  tip.style.left = `${Math.max(0, Math.min(event.clientX - box.left + 12, box.width - tip.offsetWidth))}px`;
  tip.style.top = `${event.clientY - box.top + 16}px`;
}
canvas.addEventListener("wheel", (event) => {
  event.preventDefault();
  if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) move(from + (event.deltaX / canvas.clientWidth) * (to - from), to - from);
  else zoom(event.deltaY > 0 ? 1.25 : 0.8, event.offsetX);
}, { passive: false });
const fingers = new Map();
canvas.addEventListener("pointerdown", (event) => {
  fingers.set(event.pointerId, event.clientX);
  canvas.setPointerCapture(event.pointerId);
});
canvas.addEventListener("pointermove", (event) => {
  if (!fingers.has(event.pointerId)) return tell(event);
  const before = fingers.get(event.pointerId);
  if (fingers.size === 2) {
    const other = [...fingers].find(([id]) => id !== event.pointerId)[1];
    const gap = Math.max(8, Math.abs(before - other)), now = Math.max(8, Math.abs(event.clientX - other));
    zoom(gap / now, (event.clientX + other) / 2 - canvas.getBoundingClientRect().left);
  } else move(from - ((event.clientX - before) / canvas.clientWidth) * (to - from), to - from);
  fingers.set(event.pointerId, event.clientX);
});
for (const name of ["pointerup", "pointercancel"]) canvas.addEventListener(name, (event) => fingers.delete(event.pointerId));
canvas.addEventListener("pointerleave", () => { tip.hidden = true; hovered = null; draw(); });
canvas.addEventListener("dblclick", () => { [from, to] = whole; draw(); });
new ResizeObserver(draw).observe(at("frame"));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
at("theme").onclick = () => {
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const now = document.documentElement.dataset.theme || (dark ? "dark" : "light");
  document.documentElement.dataset.theme = now === "dark" ? "light" : "dark";
  draw();
};
draw();
