// Hands the trace to Perfetto's page as its documentation says: open it, send PING until it answers PONG, post the buffer.
const PERFETTO = "https://ui.perfetto.dev";
const PING_MS = 50;
const PATIENCE_MS = 60000;

function drawPerfetto(block) {
  const told = make("p", { role: "status" }, `${(block.size / 1e6).toPrecision(3)} MB, compressed.`);
  const button = make("button", { type: "button", onclick: () => handOver(block, (text) => { told.textContent = text; }) }, "Open in ui.perfetto.dev");
  return make("div", { class: "perfetto" }, make("p", null, button), told);
}

async function handOver(block, tell) {
  const handle = window.open(PERFETTO); // at once, within the click: later the browser would block it
  if (!handle) { tell("The browser did not open the window: allow this page to open windows, and try again."); return; }
  tell("Reading the trace.");
  try {
    const [buffer] = await Promise.all([traceBuffer(), perfettoReady(handle)]);
    handle.postMessage({ perfetto: { buffer, title: block.title, fileName: `${block.title}.json.gz` } }, PERFETTO, [buffer]);
    tell("Handed over.");
  } catch (error) {
    tell(error.message);
  }
}

async function traceBuffer() {
  const answer = await fetch("trace");
  if (!answer.ok) throw new Error(`xsp view did not give the trace (${answer.status}): is it still running?`);
  return answer.arrayBuffer();
}

function perfettoReady(handle) {
  return new Promise((resolve, reject) => {
    const ping = setInterval(() => handle.postMessage("PING", PERFETTO), PING_MS);
    const end = setTimeout(() => finish(() => reject(new Error("Perfetto's page did not answer: is there a network?"))), PATIENCE_MS);
    const listen = (event) => { if (event.source === handle && event.origin === PERFETTO && event.data === "PONG") finish(resolve); };
    function finish(settle) {
      clearInterval(ping);
      clearTimeout(end);
      window.removeEventListener("message", listen);
      settle();
    }
    window.addEventListener("message", listen);
  });
}

Object.assign(DRAW, { perfetto: drawPerfetto });
