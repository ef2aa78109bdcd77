// Many traces at a glance: a row each, with its report, what its step is made of, and the first finding.
Object.assign(DRAW, { glances: drawGlances });

const GLANCES_AT_FIRST = 100;

function drawGlances(block) {
  const body = make("ul", { class: "glances" });
  const tones = new Map(block.rows.flatMap((row) => (row.bar ? row.bar.parts.map((part) => [part.tone, part.label]) : [])));
  const idleLast = [...tones].sort(([one], [other]) => one.startsWith("c-idle") - other.startsWith("c-idle"));
  const colours = make("div", { class: "legend" }, idleLast.map(([tone, label]) => make("span", null, make("i", { class: tone }), label)));
  const more = make("button", { type: "button", onclick: () => show(block.rows.length) });
  function show(count) {
    body.replaceChildren(...block.rows.slice(0, count).map(glanceRow));
    more.textContent = `Show the other ${block.rows.length - count}`;
    more.hidden = count >= block.rows.length;
  }
  show(Math.min(GLANCES_AT_FIRST, block.rows.length));
  return make("div", null, colours, body, more);
}

function glanceRow(row) {
  const name = row.link ? make("a", { href: row.link }, row.name) : make("b", null, row.name);
  return make("li", null, make("div", { class: "glance-name" }, name, row.bar ? make("span", { class: "muted" }, `: ${row.bar.title}`) : null),
    row.bar ? glanceBar(row) : make("div", { class: "muted" }, "No time on a device to divide."),
    make("div", { class: "glance-finding" }, row.finding ? [row.finding.title, row.finding.gain ? make("span", { class: "muted" }, `: ${row.finding.gain}`) : null] : make("span", { class: "muted" }, "No finding.")));
}

function glanceBar({ name, bar }) {
  const share = (part) => (bar.total ? part.time / bar.total : 0);
  const text = (part) => `${part.label} ${time(part.time)}, ${percent(share(part))}`;
  return make("div", { class: "glance-bar", role: "img", "aria-label": `${name}: ${bar.parts.map(text).join("; ")}` },
    bar.parts.map((part) => make("span", { class: part.tone, style: { width: `${share(part) * 100}%` }, title: text(part) })));
}
