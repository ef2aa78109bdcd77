// Columns of the trace viewer: packed in the page or by `xsp view`, typed arrays here; and where each lane's rows begin in them.
const VIEWER_SUMMED = new Set(["lane", "start", "time", "times", "span", "from_lane", "from_time", "to_lane", "to_time"]);
const VIEWER_TIMES = new Set(["start", "duration", "busy", "time", "times", "from_time", "to_time"]);
const VIEWER_MAX_ROWS = 65536; // rows of a lane: lane and row make one key

function bytesOf(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < binary.length; i += 1) bytes[i] = binary.charCodeAt(i);
  return bytes;
}

async function inflated(text) {
  const stream = new Blob([bytesOf(text)]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

// Zigzag LEB128 into `values`; `summed`: each is the difference from the one before. Factors instead of shifts: times have 53 bits.
function readVarints(bytes, values, summed) {
  let at = 0;
  let last = 0;
  for (let i = 0; i < values.length; i += 1) {
    let byte = bytes[at++];
    let coded = byte & 127;
    for (let factor = 128; byte > 127; factor *= 128) {
      byte = bytes[at++];
      coded += (byte & 127) * factor;
    }
    const value = coded % 2 ? -(coded + 1) / 2 : coded / 2;
    last = summed ? last + value : value;
    values[i] = last;
  }
  return values;
}

async function decodedColumn(key, text, count) {
  const values = VIEWER_TIMES.has(key) ? new Float64Array(count) : new Int32Array(count);
  return readVarints(await inflated(text), values, VIEWER_SUMMED.has(key));
}

async function decodedColumns({ count, columns }) {
  const keys = Object.keys(columns);
  const values = await Promise.all(keys.map((key) => decodedColumn(key, columns[key], count)));
  return { count, ...Object.fromEntries(keys.map((key, i) => [key, values[i]])) };
}

// Boxes in order of lane, row and start, with `rows`: first and last index by lane and row; and `reach`: the latest end
// up to each box within its row, which grows, so that what is in view is found by halves even where boxes overlap.
async function decodedBoxes(packed) {
  const boxes = await decodedColumns(packed);
  boxes.row ??= new Int32Array(boxes.count);
  return indexed(boxes);
}

function indexed(boxes) {
  boxes.rows = new Map();
  boxes.reach = new Float64Array(boxes.count);
  let key = -1;
  for (let i = 0; i < boxes.count; i += 1) {
    const own = rowKey(boxes.lane[i], boxes.row[i]);
    const end = boxes.start[i] + boxes.duration[i];
    if (own !== key) boxes.rows.set(own, { first: i, last: i });
    boxes.reach[i] = own === key ? Math.max(end, boxes.reach[i - 1]) : end;
    boxes.rows.get((key = own)).last = i + 1;
  }
  return boxes;
}

const rowKey = (lane, row) => lane * VIEWER_MAX_ROWS + row;

// The first index of [first, last) whose value is beyond `limit`; values grow.
function firstBeyond(values, limit, first, last) {
  let [low, high] = [first, last];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] > limit) high = middle;
    else low = middle + 1;
  }
  return low;
}

// Indexes of the boxes of a row that overlap [from, to), as [first, last).
function boxesBetween(boxes, lane, row, from, to) {
  const range = boxes.rows.get(rowKey(lane, row));
  if (!range) return [0, 0];
  const first = firstBeyond(boxes.reach, from, range.first, range.last);
  return [first, firstBeyond(boxes.start, to, first, range.last)];
}

function boxAt(boxes, i) {
  const merged = boxes.merged?.[i] ?? 0;
  return {
    lane: boxes.lane[i], row: boxes.row[i], start: boxes.start[i], duration: boxes.duration[i], tone: boxes.tone?.[i] ?? -1, merged,
    name: boxes.name?.[i] ?? -1, busy: merged && boxes.busy ? boxes.busy[i] : boxes.duration[i], span: boxes.span?.[i] ?? -1, layer: boxes.layer?.[i] ?? -1,
  };
}
