// Three exported models, live. Each card pushes one item at a time into a stream and draws the answers.
"use strict";

const HISTORY = 120; // readings that the chart shows
const AHEAD = 6; // the band is judged by the reading that comes so many later
const READINGS_PER_SECOND = 10;
const SECONDS_SHOWN = { past: 14, future: 8 };
const LANES = { start: "two", work: "one", check: "three", stop: "four" }; // kinds of events, and their colours
const CACHE_BYTES = 2 * 2 * 32 * 4; // keys and values of an item: two layers of width 32, in float32
const LONGEST_FRAME = 0.25; // seconds; a page that was hidden does not catch up

const isStill = matchMedia("(prefers-reduced-motion: reduce)").matches;
const clamp = (value, low, high) => Math.min(high, Math.max(low, value));
const count = (value) => Math.round(value).toLocaleString("en");
const percent = (share) => `${Math.round(100 * share)} %`;

function bytes(value) {
  if (value < 10000) return `${count(value)} bytes`;
  const [size, unit] = value < 1e6 ? [value / 1e3, "kB"] : value < 1e9 ? [value / 1e6, "MB"] : [value / 1e9, "GB"];
  return `${size.toFixed(size < 100 ? 1 : 0)} ${unit}`;
}

function normal() {
  return Math.sqrt(-2 * Math.log(1 - Math.random())) * Math.cos(2 * Math.PI * Math.random());
}

const colours = {};
function readColours() {
  const style = getComputedStyle(document.documentElement);
  for (const name of ["ink", "soft", "line", "main", "band", "warm", "one", "two", "three", "four"]) {
    colours[name] = style.getPropertyValue(`--${name}`).trim();
  }
}

/** A canvas in CSS pixels, sharp on every screen. */
class Sheet {
  constructor(canvas) {
    this.canvas = canvas;
    this.pen = canvas.getContext("2d");
  }

  clear() {
    const ratio = devicePixelRatio || 1;
    const { clientWidth, clientHeight } = this.canvas;
    const [width, height] = [Math.round(clientWidth * ratio), Math.round(clientHeight * ratio)];
    if (this.canvas.width !== width || this.canvas.height !== height) Object.assign(this.canvas, { width, height });
    this.width = clientWidth;
    this.height = clientHeight;
    this.pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.pen.clearRect(0, 0, this.width, this.height);
    this.pen.font = "12px system-ui, sans-serif";
    this.pen.lineJoin = this.pen.lineCap = "round";
    this.pen.setLineDash([]);
    return this.pen;
  }

  line(points, colour, width = 2) {
    this.pen.beginPath();
    points.forEach(([x, y]) => this.pen.lineTo(x, y));
    Object.assign(this.pen, { strokeStyle: colour, lineWidth: width });
    this.pen.stroke();
  }

  area(points, colour) {
    this.pen.beginPath();
    points.forEach(([x, y]) => this.pen.lineTo(x, y));
    this.pen.closePath();
    this.pen.fillStyle = colour;
    this.pen.fill();
  }

  text(words, x, y, { colour = colours.soft, align = "left" } = {}) {
    Object.assign(this.pen, { fillStyle: colour, textAlign: align });
    this.pen.fillText(words, x, y);
  }
}

/** What all cards have: a stream, a count of items, buttons, and four figures. */
class Card {
  constructor(name, stream, itemName) {
    this.manifest = aarenModels[name].manifest;
    this.stream = stream;
    this.root = document.getElementById(name);
    this.sheet = new Sheet(this.root.querySelector("canvas"));
    this.answer = this.root.querySelector(".answer");
    this.items = 0;
    this.isPaused = isStill;
    this.nextMeasure = 0;
    this.figures = {};
    for (const [key, words] of Object.entries({
      items: itemName,
      micros: "microseconds per item",
      ours: "memory of this model, always",
      theirs: "a Transformer's cache by now",
    })) {
      const cell = document.createElement("div");
      cell.className = key;
      const [term, value] = [document.createElement("dt"), document.createElement("dd")];
      term.textContent = words;
      value.textContent = "–";
      cell.append(term, value);
      this.root.querySelector(".figures").append(cell);
      this.figures[key] = value;
    }
    this.root.addEventListener("click", (event) => {
      const button = event.target.closest("button[data-do]");
      if (button) this[button.dataset.do](button);
    });
    this.showPause();
  }

  push(item) {
    this.items += 1;
    this.last = item;
    return this.stream.push(item);
  }

  pause() {
    this.isPaused = !this.isPaused;
    this.showPause();
  }

  showPause() {
    const button = this.root.querySelector("[data-do=pause]");
    if (!button) return;
    button.textContent = this.isPaused ? "Run" : "Pause";
    button.setAttribute("aria-pressed", String(this.isPaused));
  }

  /** Time a branch of the stream for some milliseconds, for a browser's clock is coarse, and go back to its state. */
  measure() {
    const saved = this.stream.state;
    const begin = performance.now();
    let [done, taken] = [0, 0];
    do {
      for (let i = 0; i < 10; i++) this.stream.push(this.following(++done));
      taken = performance.now() - begin;
    } while (taken < 4 && done < 5000);
    this.stream.state = saved;
    this.micros = Math.min(this.micros ?? Infinity, (1000 * taken) / done);
  }

  /** Return an item that may follow the last one, to be timed. */
  following() {
    return this.last;
  }

  showFigures(now) {
    if (this.last && now > this.nextMeasure) {
      this.measure();
      this.nextMeasure = now + 1500;
    }
    const shown = {
      items: count(this.items),
      micros: this.micros === undefined ? "–" : this.micros.toFixed(this.micros < 10 ? 1 : 0),
      ours: bytes(this.stream.state.length),
      theirs: bytes(this.items * CACHE_BYTES),
    };
    for (const [key, words] of Object.entries(shown)) {
      if (this.figures[key].textContent !== words) this.figures[key].textContent = words;
    }
  }
}

/** Bars of probabilities. */
class Bars {
  constructor(root, names) {
    this.rows = names.map((name) => {
      const [label, track, fill, share] = ["span", "div", "div", "span"].map((tag) => document.createElement(tag));
      label.textContent = name;
      track.className = "track";
      fill.className = "fill";
      share.className = "share";
      track.append(fill);
      root.append(label, track, share);
      return { label, fill, share };
    });
    this.show(names.map(() => 0));
  }

  show(shares) {
    const best = Math.max(...shares);
    this.rows.forEach(({ label, fill, share }, place) => {
      fill.style.transform = `scaleX(${shares[place]})`;
      share.textContent = best ? percent(shares[place]) : "";
      for (const part of [label, share]) part.classList.toggle("best", best > 0 && shares[place] === best);
    });
  }

  colour(names) {
    this.rows.forEach(({ fill }, place) => (fill.style.background = `var(--${names[place]})`));
  }
}

// ---- A sensor ----------------------------------------------------------------------------------------------

/** The room that the model knows, from its last known reading on; as Room in examples/models/generators.py. */
class Room {
  constructor({ level, swing, phase, time, drift, cold }) {
    Object.assign(this, { level, swing, phase, time, drift, cold });
  }

  open() {
    this.cold += 3 + 3 * Math.random();
  }

  read() {
    this.drift = 0.98 * this.drift + 0.12 * normal();
    this.cold *= 0.85;
    if (Math.random() < 0.01) this.open();
    const daily = this.swing * Math.sin((2 * Math.PI * this.time++) / 48 + this.phase);
    return this.level + daily + this.drift - this.cold + 0.15 * normal();
  }
}

class SensorCard extends Card {
  constructor(stream) {
    super("sensor", stream, "readings so far");
    this.room = new Room(this.manifest.room);
    this.readings = [];
    this.bands = []; // what was said of readings that have not come yet
    this.inside = this.judged = this.owed = 0;
    for (let i = 0; i < HISTORY; i++) this.take();
  }

  take() {
    const { first_seconds: first, seconds_per_reading: every } = this.manifest;
    const time = first + every * this.room.time; // by the room's clock
    const reading = this.room.read();
    if (this.bands.length === AHEAD) {
      const [low, high] = this.bands.shift();
      this.judged += 1;
      this.inside += low <= reading && reading <= high;
    }
    this.found = this.push({ row: [reading], time });
    this.bands.push([this.found.lower_80[AHEAD - 1], this.found.upper_80[AHEAD - 1]]);
    this.readings.push(reading);
    if (this.readings.length > HISTORY) this.readings.shift();
  }

  cold() {
    this.room.open();
    if (this.isPaused) this.take();
  }

  more(button) {
    const wanted = Number(button?.dataset?.count ?? button);
    for (let i = 0; i < wanted; i++) this.take();
  }

  tick(seconds) {
    if (this.isPaused) return;
    this.owed += seconds * READINGS_PER_SECOND;
    for (; this.owed >= 1; this.owed -= 1) this.take();
  }

  draw() {
    const { sheet, readings } = this;
    const { forecast, lower_80: lower, upper_80: upper } = this.found;
    const pen = sheet.clear();
    const horizon = forecast.length;
    const all = [...readings, ...lower, ...upper];
    const wanted = { low: Math.min(...all) - 0.5, high: Math.max(...all) + 0.5 };
    // The axis follows slowly, or the chart would jump.
    this.axis ??= { ...wanted };
    this.axis.low += (wanted.low - this.axis.low) * (wanted.low < this.axis.low ? 0.5 : 0.03);
    this.axis.high += (wanted.high - this.axis.high) * (wanted.high > this.axis.high ? 0.5 : 0.03);
    const { low, high } = this.axis;
    const [left, bottom] = [34, 20];
    const wide = sheet.width < 500 ? 60 : HISTORY;
    const x = (step) => left + ((step + wide - 1) / (wide - 1 + horizon)) * (sheet.width - left - 6);
    const y = (value) => 8 + ((high - value) / (high - low)) * (sheet.height - bottom - 8);
    const every = high - low > 12 ? 4 : 2;
    for (let tick = Math.ceil(low / every) * every; tick <= high; tick += every) {
      sheet.line([[left, y(tick)], [sheet.width, y(tick)]], colours.line, 1);
      sheet.text(`${tick}°`, left - 6, y(tick) + 4, { align: "right" });
    }
    const ahead = (values) => Array.from(values, (value, step) => [x(step + 1), y(value)]);
    const start = [x(0), y(readings.at(-1))];
    sheet.area([start, ...ahead(lower), ...ahead(upper).reverse()], colours.band);
    sheet.line([start, ...ahead(forecast)], colours.main, 2);
    const seen = readings.slice(-wide);
    sheet.line(seen.map((value, place) => [x(place - seen.length + 1), y(value)]), colours.ink, 1.8);
    pen.beginPath();
    pen.arc(...start, 4, 0, 7);
    pen.fillStyle = colours.ink;
    pen.fill();
    sheet.text("readings", left + 4, sheet.height - 4);
    sheet.text("forecast", sheet.width - 6, sheet.height - 4, { colour: colours.main, align: "right" });
    const [from, middle, to] = [lower, forecast, upper].map((values) => values[AHEAD - 1].toFixed(1));
    const held = this.judged > 200 ? ` · band held ${percent(this.inside / this.judged)} so far` : "";
    this.answer.textContent = `In ${AHEAD} readings: ${middle}° (${from}° to ${to}°)${held}`;
  }
}

// ---- Strokes -----------------------------------------------------------------------------------------------

/** Turns a pointer's points into steps of equal length: direction and turn; as follow in examples/models/generators.py. */
class Pen {
  constructor(spacing) {
    this.spacing = spacing;
  }

  /** Go to a point, in widths of the pad; returns the steps that this completes. */
  go(x, y) {
    const found = [];
    this.at ??= [x, y];
    for (;;) {
      const [dx, dy] = [x - this.at[0], y - this.at[1]];
      const distance = Math.hypot(dx, dy);
      if (distance < this.spacing) return found;
      const heading = [dx / distance, dy / distance];
      this.at = [this.at[0] + this.spacing * heading[0], this.at[1] + this.spacing * heading[1]];
      const [bx, by] = this.before ?? heading;
      this.before = heading;
      found.push([...heading, bx * heading[0] + by * heading[1], bx * heading[1] - by * heading[0]]);
    }
  }
}

class StrokeCard extends Card {
  constructor(stream) {
    super("strokes", stream, "steps of this stroke");
    this.classes = this.manifest.outputs[0].names;
    this.bars = new Bars(this.root.querySelector(".bars"), this.classes);
    this.clear();
    const pad = this.sheet.canvas;
    const place = (event) => {
      const box = pad.getBoundingClientRect();
      return [event.clientX - box.left, event.clientY - box.top];
    };
    pad.addEventListener("pointerdown", (event) => {
      if (!event.isPrimary) return;
      pad.setPointerCapture(event.pointerId);
      this.clear();
      this.isDown = true;
      this.go(...place(event));
    });
    pad.addEventListener("pointermove", (event) => {
      if (!this.isDown || !event.isPrimary) return;
      const seen = event.getCoalescedEvents?.() ?? [];
      for (const one of seen.length ? seen : [event]) this.go(...place(one));
    });
    for (const name of ["pointerup", "pointercancel"]) pad.addEventListener(name, () => (this.isDown = false));
  }

  /** Begin anew: a stroke is a stream of its own. */
  clear() {
    this.stream.reset();
    this.tracer = new Pen(this.manifest.spacing);
    this.points = [];
    this.queue = [];
    this.items = 0;
    this.isDown = false;
    this.probabilities = this.classes.map(() => 0);
  }

  /** Take in a point, in CSS pixels of the pad. */
  go(x, y) {
    this.points.push([x, y]);
    const unit = Math.max(1, Math.min(this.sheet.canvas.clientWidth, 1.4 * this.sheet.canvas.clientHeight));
    for (const sample of this.tracer.go(x / unit, y / unit)) {
      this.probabilities = Array.from(this.push({ sample }).probabilities);
    }
  }

  /** Classify points that are given in widths of the pad; for tests. */
  classify(points) {
    this.clear();
    for (const [x, y] of points) {
      for (const sample of this.tracer.go(x, y)) this.probabilities = Array.from(this.push({ sample }).probabilities);
    }
    return this.label;
  }

  get label() {
    return this.classes[this.probabilities.indexOf(Math.max(...this.probabilities))];
  }

  /** Queue an example, which is drawn as a hand would, point after point. */
  show() {
    this.clear();
    const { clientWidth: width, clientHeight: height } = this.sheet.canvas;
    const size = 0.36 * height;
    const names = ["circle", "triangle", "zigzag", "square", "wave", "line"];
    this.shown = names[(names.indexOf(this.shown) + 1) % names.length];
    const corners = {
      triangle: [0, 1, 2, 3].map((i) => [Math.sin((i * 2 * Math.PI) / 3), -Math.cos((i * 2 * Math.PI) / 3)]),
      square: [[-0.8, -0.8], [0.8, -0.8], [0.8, 0.8], [-0.8, 0.8], [-0.8, -0.8]],
      zigzag: [0, 1, 2, 3, 4, 5].map((i) => [-1.25 + 0.5 * i, i % 2 ? -0.6 : 0.6]),
      line: [[-1.1, 0.5], [1.1, -0.5]],
    }[this.shown];
    const at = (share) => {
      if (this.shown === "circle") return [Math.cos(6.4 * share), Math.sin(6.4 * share)];
      if (this.shown === "wave") return [2.4 * share - 1.2, 0.5 * Math.sin(13 * share)];
      const place = Math.min(share * (corners.length - 1), corners.length - 1.001);
      const [[ax, ay], [bx, by]] = [corners[Math.floor(place)], corners[Math.floor(place) + 1]];
      return [ax + (bx - ax) * (place % 1), ay + (by - ay) * (place % 1)];
    };
    const steps = 70;
    this.queue = Array.from({ length: steps + 1 }, (_, step) => {
      const [x, y] = at(step / steps);
      return [width / 2 + size * x + 0.5 * normal(), height / 2 + size * y + 0.5 * normal()];
    });
  }

  tick() {
    if (this.queue.length) this.go(...this.queue.shift());
  }

  draw() {
    const { sheet } = this;
    sheet.clear();
    if (!this.points.length) {
      sheet.text("draw here", sheet.width / 2, sheet.height / 2, { align: "center" });
    }
    sheet.line(this.points, colours.main, 4);
    this.bars.show(this.probabilities);
    const best = Math.max(...this.probabilities);
    const words = this.items < 5 ? "…" : `${best > 0.6 ? "" : "perhaps "}${this.label} (${percent(best)})`;
    if (this.answer.textContent !== words) this.answer.textContent = words;
  }
}

// ---- A process ---------------------------------------------------------------------------------------------

/** A machine that starts, works three times, checks, and now and then stops; as draw_log in
 * examples/models/generators.py. */
class Machine {
  constructor() {
    this.kind = "stop";
    this.done = 0;
  }

  /** Say what comes after an event, and after how many seconds. */
  following() {
    const gap = { start: 0.8, work: 1, check: 2, stop: 6 }[this.kind] * Math.exp(0.2 * normal());
    if (this.kind === "stop") return ["start", gap];
    if (this.kind === "check") return [Math.random() < 0.3 ? "stop" : "work", gap];
    return [this.done < 3 ? "work" : "check", gap];
  }

  happen(kind) {
    this.done = kind === "work" ? this.done + 1 : 0;
    this.kind = kind;
  }
}

/** The mixture of log-normals that an answer holds. */
class Gap {
  constructor({ log_weights, locations, scales }) {
    this.parts = Array.from(log_weights, (weight, k) => [Math.exp(weight), locations[k], scales[k]]);
  }

  density(gap) {
    const one = ([weight, location, scale]) =>
      (weight * Math.exp(-0.5 * ((Math.log(gap) - location) / scale) ** 2)) / (gap * scale * Math.sqrt(2 * Math.PI));
    return gap > 0 ? this.parts.reduce((sum, part) => sum + one(part), 0) : 0;
  }

  /** Return a quantile of what remains after `passed` seconds without an event, by summing the density. */
  quantile(level, passed = 0) {
    const step = 0.02;
    const grid = Array.from({ length: 1500 }, (_, place) => this.density(passed + (place + 0.5) * step) * step);
    const total = grid.reduce((sum, share) => sum + share, 0);
    let sum = 0;
    const place = grid.findIndex((share) => (sum += share) >= level * total);
    return total > 1e-9 ? Math.max(0, place) * step : NaN;
  }
}

class MachineCard extends Card {
  constructor(stream) {
    super("machines", stream, "events so far");
    this.kinds = this.manifest.outputs.find(({ name }) => name === "mark_probabilities").names;
    this.bars = new Bars(this.root.querySelector(".bars"), Object.keys(LANES));
    this.bars.colour(Object.values(LANES));
    for (const [kind, colour] of Object.entries(LANES)) {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = kind;
      button.style.setProperty("--dot", `var(--${colour})`);
      button.addEventListener("click", () => this.happen(kind, Math.max(this.clock, this.time + 0.05)));
      this.root.querySelector(".kinds").append(button);
    }
    this.machine = new Machine();
    this.past = [];
    this.clock = this.time = 0;
    this.right = this.judged = 0;
    this.happen("start", 0);
    for (let i = 0; i < 12; i++) this.happen(...this.due);
  }

  happen(kind, time) {
    if (this.shares && this.items > 10) {
      this.judged += 1;
      this.right += this.kinds[this.shares.indexOf(Math.max(...this.shares))] === kind;
    }
    const found = this.push({ time: [time], mark: [this.kinds.indexOf(kind)] });
    this.time = time;
    this.clock = Math.max(this.clock, time);
    this.gap = new Gap(found);
    this.shares = Array.from(found.mark_probabilities);
    this.past.push([time, kind]);
    if (this.past.length > 60) this.past.shift();
    this.machine.happen(kind);
    const [next, gap] = this.machine.following();
    this.due = [next, time + gap];
    this.isNew = true;
  }

  following(number) {
    return { time: [this.time + 0.01 * number], mark: this.last.mark };
  }

  more(button) {
    const wanted = Number(button?.dataset?.count ?? button);
    for (let i = 0; i < wanted; i++) this.happen(...this.due);
  }

  tick(seconds) {
    if (this.isPaused) return;
    this.clock += seconds;
    while (this.due[1] <= this.clock) this.happen(...this.due);
  }

  draw() {
    const { sheet } = this;
    const pen = sheet.clear();
    const left = 44;
    const span = SECONDS_SHOWN.past + SECONDS_SHOWN.future;
    const x = (time) => left + ((time - this.clock + SECONDS_SHOWN.past) / span) * (sheet.width - left);
    const lanes = Object.keys(LANES);
    const low = sheet.height - 22;
    const lane = (low - 14) / lanes.length;
    const y = (kind) => low - 8 - (lanes.length - 1 - lanes.indexOf(kind)) * lane;
    for (const kind of lanes) {
      sheet.line([[left, y(kind)], [sheet.width, y(kind)]], colours.line, 1);
      sheet.text(kind, left - 6, y(kind) + 4, { align: "right" });
    }
    // How likely each moment is, per kind: the curve's height on a kind's lane is its share of the density.
    const peak = Math.max(1, ...Array.from({ length: 200 }, (_, place) => this.gap.density(0.05 * (place + 1))));
    const tall = (lane - 6) / peak;
    lanes.forEach((kind) => {
      const share = this.shares[this.kinds.indexOf(kind)];
      if (share < 0.01) return;
      const points = [];
      for (let px = Math.max(left, x(this.time)); px <= sheet.width; px += 2) {
        const time = this.clock - SECONDS_SHOWN.past + ((px - left) / (sheet.width - left)) * span;
        points.push([px, y(kind) - tall * share * Math.min(peak, this.gap.density(time - this.time))]);
      }
      if (points.length < 2) return;
      const colour = colours[LANES[kind]];
      pen.globalAlpha = 0.25;
      sheet.area([[points[0][0], y(kind)], ...points, [points.at(-1)[0], y(kind)]], colour);
      pen.globalAlpha = 1;
      sheet.line(points, colour, 1.5);
    });
    for (const [time, kind] of this.past) {
      if (x(time) < left) continue;
      pen.beginPath();
      pen.arc(x(time), y(kind), 5, 0, 7);
      pen.fillStyle = colours[LANES[kind]];
      pen.fill();
    }
    pen.setLineDash([4, 4]);
    sheet.line([[x(this.clock), 4], [x(this.clock), low]], colours.soft, 1);
    pen.setLineDash([]);
    sheet.text("now", x(this.clock), sheet.height - 6, { align: "center" });
    sheet.text(`${SECONDS_SHOWN.past} s ago`, left, sheet.height - 6);
    sheet.text(`in ${SECONDS_SHOWN.future} s`, sheet.width - 4, sheet.height - 6, { align: "right" });
    if (this.isNew) this.bars.show(lanes.map((kind) => this.shares[this.kinds.indexOf(kind)]));
    this.isNew = false;
    const wait = this.gap.quantile(0.5, this.clock - this.time);
    const best = this.kinds[this.shares.indexOf(Math.max(...this.shares))];
    const when = Number.isNaN(wait) ? "overdue" : `in about ${wait.toFixed(1)} s`;
    const right = this.judged > 9 ? ` · kind right ${percent(this.right / this.judged)}` : "";
    this.answer.textContent = `Next: ${best}, ${when}${right}`;
  }
}

// ---- The page ----------------------------------------------------------------------------------------------

async function main() {
  readColours();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", readColours);
  const cards = {};
  for (const [name, type] of Object.entries({ sensor: SensorCard, strokes: StrokeCard, machines: MachineCard })) {
    cards[name] = new type(await aarenModels[name].load());
  }
  if (!isStill) cards.strokes.show();
  globalThis.aarenDemo = cards;
  let last = performance.now();
  let nextFigures = 0;
  const frame = (now) => {
    const seconds = clamp((now - last) / 1000, 0, LONGEST_FRAME);
    last = now;
    for (const card of Object.values(cards)) {
      card.tick(seconds);
      card.draw();
      if (now > nextFigures) card.showFigures(now);
    }
    if (now > nextFigures) nextFigures = now + 200;
    requestAnimationFrame(frame);
  };
  requestAnimationFrame(frame);
}

main().catch((error) => {
  const words = document.createElement("p");
  words.className = "failed";
  words.textContent = `The models could not be started: ${error.message}. This page needs a browser with WebAssembly and SIMD.`;
  document.querySelector("header").append(words);
  throw error;
});
