// The page's state of one task, and the two pure functions that change it: adopt merges the response of
// GET /v1/tasks/{id}, apply handles one event. Both return a new Run and leave the old one unchanged.
import { writtenIn } from './forwarded';
import type { Item, TaskView, Usage } from './openapi';
import type { Frame } from './sse';

export type Status = TaskView['status'];

/** isFinal reports whether the status can no longer change. */
export const isFinal = (s: Status) => s === 'COMPLETED' || s === 'FAILED' || s === 'CANCELLED';

/** stopped: it was not reached before the task ended. */
export type Phase = 'waiting' | 'queued' | 'running' | 'done' | 'failed' | 'cancelled' | 'stopped';

export interface Step {
  name: string;
  /** The status of the task while this step waits and runs. */
  status: Status;
  /** Of the task's version of the template; undefined if the API returned none. */
  label?: Record<string, string>;
  model: string;
  /** The upstream that answered, once the step is recorded. */
  upstream: string;
  queue: string;
  phase: Phase;
  /** The stage of the last event and its message. */
  stage: string;
  message: string;
  /** How many calls the model serves before, -1 if unknown. */
  position: number;
  /** Estimated time until the call begins, -1 if unknown. */
  etaSeconds: number;
  /** The model is paused: no call begins until it is resumed. */
  paused: boolean;
  /** The last call failed and will be repeated. */
  retrying: boolean;
  /** Milliseconds of the publisher's clock; 0 if unknown. */
  startedAt: number;
  endedAt: number;
  /** The text that the step has written so far. */
  text: string;
  /** The asset id of the step's stored output, if the API returned it. */
  outputAssetId: string;
}

/** An incident that the page shows as a notice. */
export interface Notice {
  kind: 'reset' | 'gap';
  message: string;
}

export interface Run {
  taskId: string;
  serviceId: string;
  template: string;
  locale: string;
  tier: string;
  status: Status;
  steps: Step[];
  /** The index of the task's current step as far as known. */
  current: number;
  /** The index of the step that the events have reached: behind current while a reloaded page replays the stream. */
  seen: number;
  /** The id of the last handled event, after which a new connection resumes. */
  lastId: string;
  /** Whether the terminal event was handled or the task was already final when it was fetched. */
  ended: boolean;
  /** The objects within the answer. */
  items: Item[];
  /** The items belong to a lost attempt: the next ones replace them. */
  itemsStale: boolean;
  notices: Notice[];
  /** The answer of a batch task; undefined if there is none. */
  result: unknown;
  usage: Usage | null;
  error: { code: string; message: string } | null;
  createdAt: number;
  endedAt: number;
  temporalUrl: string;
  traceId: string;
  /** The answer comes from the local simulator, not from a language model. */
  simulated: boolean;
  /** The model reached its token limit: the answer is not complete. */
  truncated: boolean;
  /** The provider of a step read only a part of its prompt. */
  promptTruncated: boolean;
  /** The texts of the task were erased; what this page has read before stays on it. */
  erased: boolean;
  pollAfterMs: number;
}

type Doc = Record<string, unknown>;

export const emptyRun = (taskId: string): Run => ({
  taskId, serviceId: '', template: '', locale: '', tier: '', status: 'PENDING', steps: [], current: 0, seen: 0, lastId: '',
  ended: false, items: [], itemsStale: false, notices: [], result: undefined, usage: null, error: null,
  createdAt: 0, endedAt: 0, temporalUrl: '', traceId: '', simulated: false, truncated: false, promptTruncated: false, erased: false, pollAfterMs: 3000,
});

const newStep = (name: string): Step => ({
  name, status: `${name.toUpperCase()}_PENDING`, model: '', upstream: '', queue: '', phase: 'waiting', stage: '', message: '', position: -1, etaSeconds: -1, paused: false, retrying: false,
  startedAt: 0, endedAt: 0, text: '', outputAssetId: '',
});

/** answerOf returns the text of the last step: the task's answer. */
export const answerOf = (run: Run) => run.steps.at(-1)?.text ?? '';

/** isDowngraded reports whether the task uses the free queue and model, because the credits did not suffice. */
export const isDowngraded = (run: Run) => run.tier === 'free';

/** isBusy reports whether a step of the task may still write. */
export const isBusy = (run: Run) => !isFinal(run.status);

/** isQueued reports whether the current step waits for its model. */
export const isQueued = (run: Run) => isBusy(run) && run.steps[run.current]?.phase === 'queued';

/** isThinking reports whether the call that writes the answer runs, and nothing of the answer has arrived yet. */
const isThinking = (run: Run) =>
  run.status === 'STREAMING' && run.steps.at(-1)?.phase === 'running' && !answerOf(run) && (!run.items.length || run.itemsStale);

/** statusOf returns the word for what the task does now. */
export function statusOf(run: Run): string {
  const step = run.steps[run.current];
  if (isQueued(run)) return step.paused ? 'PAUSED' : 'QUEUED';
  if (isBusy(run) && step?.retrying) return 'RETRYING';
  return isThinking(run) ? 'THINKING' : run.status;
}

/** shownStatus returns the word for a listed task: its status does not distinguish calls that run and wait, nor whole and truncated answers. */
export function shownStatus(task: { status: string; waiting?: { paused?: boolean }; finishReason?: string }): string {
  if (task.status === 'COMPLETED' && task.finishReason === 'length') return 'TRUNCATED';
  if (!task.waiting || isFinal(task.status as Status)) return task.status;
  return task.waiting.paused ? 'PAUSED' : 'QUEUED';
}

/** shortId returns an id, or the two ends of a long one: ids made by the page differ at both, those made by the API at the last one. */
export const shortId = (id: string) => (id.length <= 16 ? id : `${id.slice(0, 6)}…${id.slice(-6)}`);

// ---- reading loosely typed JSON -------------------------------------------------------------------------------

const str = (v: unknown) => (typeof v === 'string' ? v : '');
const num = (v: unknown) => (typeof v === 'number' && Number.isFinite(v) ? v : 0);
const known = (v: unknown) => (typeof v === 'number' ? v : -1);
const obj = (v: unknown): Doc => (v !== null && typeof v === 'object' && !Array.isArray(v) ? (v as Doc) : {});
const arr = (v: unknown): unknown[] => (Array.isArray(v) ? v : []);
const time = (v: unknown) => {
  const ms = typeof v === 'number' ? v : Date.parse(str(v));
  return Number.isFinite(ms) && ms > 0 ? ms : 0;
};

const waitOf = (d: Doc) => ({ position: known(d.position), etaSeconds: known(d.etaSeconds), paused: d.paused === true });

function usageOf(v: unknown): Usage | null {
  const u = obj(v);
  const usage = { inputTokens: num(u.inputTokens), outputTokens: num(u.outputTokens) };
  return usage.inputTokens + usage.outputTokens > 0 ? usage : null;
}

/** itemsOf reads items; one that was sent before in the same form is left out. */
function itemsOf(v: unknown, before: Item[] = []): Item[] {
  const out = [...before];
  const known = new Set(before.map((i) => JSON.stringify(i)));
  for (const d of arr(v).map(obj)) {
    const item: Item = { kind: str(d.kind), value: d.value };
    const text = JSON.stringify(item);
    if (item.kind === '' || known.has(text)) continue;
    known.add(text);
    out.push(item);
  }
  return out;
}

/** resultOf returns the JSON of an answer: beside a text, it has the items only. */
function resultOf(template: string, d: Doc): { text: string; json: unknown; items: Item[] } {
  const text = writtenIn(template, str(d.text));
  const result = d.result ?? undefined;
  return text ? { text, json: undefined, items: itemsOf(obj(result).items) } : { text, json: result, items: [] };
}

// ---- GET /v1/tasks/{id} ---------------------------------------------------------------------------------------

/** isStatus reports whether a value can be a status. */
const isStatus = (s: string): s is Status => /^[A-Z][A-Z0-9_]*$/.test(s);

/**
 * rank orders the statuses of a task: that of a step is behind those of the earlier steps, and before the text that the step writes. What the
 * statuses of steps are called is the template's.
 */
function rank(run: Run, s: Status, step: number): number {
  if (isFinal(s)) return Infinity;
  if (s === 'PENDING') return -1;
  if (s === 'STREAMING') return 2 * step + 1;
  const named = run.steps.findIndex((x) => x.status === s);
  return 2 * (named < 0 ? step : named);
}

/** later returns the more advanced of the run's status and that of a step: a status only moves forward, whether it came from an event or a poll. */
const later = (run: Run, status: Status, step: number) =>
  (isFinal(run.status) || rank(run, status, step) <= rank(run, run.status, run.current) ? run.status : status);

/** adopt merges a task as returned by the API. Details known from events are kept where the API returns less. */
export function adopt(run: Run, doc: Doc): Run {
  const reported = str(doc.status);
  const status = isStatus(reported) ? later(run, reported, num(doc.stepIndex)) : run.status;
  const index = Math.max(run.current, num(doc.stepIndex));
  const planned = arr(doc.steps).map(obj);
  const steps = (planned.length ? planned : run.steps.map(() => ({}) as Doc)).map((d, i): Step => {
    const old = run.steps[i] ?? newStep(str(d.name));
    return {
      ...old,
      name: str(d.name) || old.name,
      status: str(d.status) || old.status,
      label: d.label ? (d.label as Step['label']) : old.label,
      model: str(d.model) || old.model,
      upstream: str(d.upstream) || old.upstream,
      queue: str(d.queue) || old.queue,
      startedAt: old.startedAt || time(d.startedAt),
      endedAt: old.endedAt || time(d.endedAt),
      text: old.text,
      outputAssetId: str(d.outputAssetId) || old.outputAssetId,
    };
  });
  const { text, json, items } = resultOf(str(doc.template) || run.template, doc);
  const links = obj(doc.links);
  let next: Run = {
    ...run, status, steps,
    serviceId: str(doc.serviceId) || run.serviceId,
    template: str(doc.template) || run.template,
    locale: str(doc.locale) || run.locale,
    tier: str(doc.tier) || run.tier,
    traceId: str(doc.traceId) || run.traceId,
    createdAt: time(doc.createdAt) || run.createdAt,
    endedAt: time(doc.endedAt) || run.endedAt,
    temporalUrl: safeUrl(str(links.temporal)) || run.temporalUrl,
    usage: usageOf(doc.usage) ?? run.usage,
    items: items.length ? items : run.items,
    pollAfterMs: num(doc.pollAfterMs) || run.pollAfterMs,
    result: json ?? run.result,
    truncated: run.truncated || doc.finishReason === 'length',
    promptTruncated: run.promptTruncated || doc.promptTruncated === true,
    erased: run.erased || doc.contentErased === true,
    simulated: run.simulated || doc.simulated === true,
  };
  next = moveTo(next, Math.min(index, Math.max(0, steps.length - 1)), 0);
  if (!isFinal(status)) {
    // An event may have reported the start since.
    const waits = doc.waiting && next.steps[next.current]?.phase !== 'running';
    return waits ? withStep(next, next.current, { phase: 'queued', ...waitOf(obj(doc.waiting)) }) : next;
  }
  // The terminal event already contained the whole text.
  if (text && !(run.ended && answerOf(run))) next = withStep(next, next.steps.length - 1, { text });
  const failure = str(doc.errorCode) || str(obj(doc.error).code);
  if (failure && status !== 'COMPLETED') {
    next.error = { code: failure, message: str(doc.errorMessage) || str(obj(doc.error).message) };
  }
  return finish(next, status, next.endedAt);
}

/** safeUrl returns a link only if it is an http or https URL. */
export const safeUrl = (url: string) => (/^(https?:\/\/|\/(?!\/))/i.test(url) ? url : '');

// ---- events ---------------------------------------------------------------------------------------------------

/** parseId parses a stream id `{generation}-{number}`. */
function parseId(id: string): { gen: number; seq: number } | null {
  const m = /^(\d+)-(\d+)$/.exec(id);
  return m ? { gen: Number(m[1]), seq: Number(m[2]) } : null;
}

/**
 * apply handles one event. An event at or before the last handled id is ignored, so a resumed connection may send
 * duplicates. An id of another generation means that the stream was re-created and is replayed from its start. Events
 * after the terminal one are ignored.
 */
export function apply(run: Run, frame: Frame): Run {
  if (run.ended) return run;
  const id = parseId(frame.id);
  const last = parseId(run.lastId);
  let next = run;
  if (id) {
    if (last && id.gen === last.gen && id.seq <= last.seq) return run;
    if (last && id.gen !== last.gen) {
      next = { ...next, itemsStale: true, steps: next.steps.map((s, i) => (i < next.seen ? s : { ...s, text: '' })) };
    }
    next = { ...next, lastId: frame.id };
  }
  let ev: Doc;
  try {
    ev = obj(JSON.parse(frame.data));
  } catch {
    return next;
  }
  switch (frame.event === 'message' ? str(ev.type) : frame.event) {
    case 'queued': return queued(next, ev);
    case 'start': return start(next, ev);
    case 'stage_progress': return progress(next, ev);
    case 'token':
    case 'token_batch': return token(next, ev);
    case 'reset': return reset(next, ev);
    case 'gap': {
      // A re-created stream that starts with its first event has no gap.
      if (id && id.seq === 0) return next;
      return { ...next, notices: [...next.notices.filter((n) => n.kind !== 'gap'), { kind: 'gap', message: str(ev.message) }] };
    }
    case 'done': return done(next, ev);
    case 'error': return failed(next, ev);
    default: return next;
  }
}

function withStep(run: Run, i: number, change: Partial<Step>): Run {
  if (!run.steps[i]) return run;
  return { ...run, steps: run.steps.map((s, k) => (k === i ? { ...s, ...change } : s)) };
}

/**
 * stepOf returns the index of the step that an event belongs to, never one before that of the previous event. The stage of a step is its name;
 * the last one has those of its template, or answer.
 */
function stepOf(run: Run, ev: Doc): number {
  const [status, stage] = [str(ev.status), str(ev.stage)];
  const last = run.steps.length - 1;
  const byStatus = run.steps.findIndex((s, i) => i >= run.seen && s.status === status);
  if (byStatus >= 0) return byStatus;
  if (stage === '' || stage === 'queue') return run.seen;
  const byName = run.steps.findIndex((s, i) => i < last && s.name === stage);
  return Math.max(run.seen, byName >= 0 ? byName : last);
}

/** moveTo makes step i the current one and marks the earlier ones as done, unless the task is already further. */
function moveTo(run: Run, i: number, ts: number): Run {
  const steps = run.steps.map((s, k): Step =>
    k < i && (s.phase !== 'done' || !s.endedAt) ? { ...s, phase: 'done', endedAt: s.endedAt || ts } : s);
  return { ...run, steps, current: Math.max(run.current, i) };
}

/** at moves to the event's step, creates it if the plan is not known yet, and records its start. */
function at(run: Run, ev: Doc): Run {
  const known = run.steps.length ? run : { ...run, steps: [newStep('answer')] };
  const ts = num(ev.ts);
  const i = stepOf(known, ev);
  const next = { ...moveTo(known, i, ts), seen: i };
  const reported = str(ev.status);
  if (isStatus(reported) && !isFinal(reported)) next.status = later(run, reported, i);
  next.serviceId = str(ev.serviceId) || next.serviceId;
  return next.steps[i].startedAt ? next : withStep(next, i, { startedAt: ts });
}

/** update changes the step that the events have reached; a finished step stays finished. */
function update(run: Run, change: Partial<Step>): Run {
  const step = run.steps[run.seen];
  return withStep(run, run.seen, step.phase === 'done' ? { ...change, phase: 'done' } : change);
}

function queued(run: Run, ev: Doc): Run {
  return update(routing(at(run, ev), ev), { phase: 'queued', ...waitOf(ev), message: str(ev.message), retrying: false });
}

/** routing merges the routing fields (queue, model, tier) of an event. */
function routing(run: Run, ev: Doc): Run {
  return {
    ...run,
    tier: str(ev.tier) || run.tier,
    traceId: str(ev.traceId) || run.traceId,
    simulated: run.simulated || ev.simulated === true,
  };
}

function start(run: Run, ev: Doc): Run {
  const next = routing(at(run, ev), ev);
  const step = next.steps[next.seen];
  return update(next, {
    phase: 'running', model: str(ev.model) || step.model, queue: str(ev.queue) || step.queue,
    stage: stageOf(ev, step),
  });
}

const stageOf = (ev: Doc, step: Step) => (str(ev.stage) && ev.stage !== 'queue' ? str(ev.stage) : step.stage);

function progress(run: Run, ev: Doc): Run {
  const next = start(run, ev);
  // The message with which the call of an answer begins says "writing", before the model has sent anything.
  const begins = ev.stage === 'answer' && ev.status === 'STREAMING';
  const updated = update(next, {
    message: begins ? '' : str(ev.message), phase: ev.stage === 'queue' ? 'queued' : 'running', retrying: str(ev.code) !== '',
  });
  if (!arr(ev.items).length) return updated;
  return { ...updated, items: itemsOf(ev.items, updated.itemsStale ? [] : updated.items), itemsStale: false };
}

function token(run: Run, ev: Doc): Run {
  const next = at(run, ev);
  const step = next.steps[next.seen];
  if (next.seen === next.steps.length - 1) next.status = later(run, 'STREAMING', next.seen);
  // A message at this stage is about what came before the text, such as that the model is thinking.
  const message = ev.stage === 'answer' ? '' : step.message;
  return update(next, { phase: 'running', stage: stageOf(ev, step), message, retrying: false, text: step.text + writtenIn(run.template, str(ev.text)) });
}

/** reset discards the text of a lost attempt; the step starts again. In a step that continues, the text was a thought of the model. */
function reset(run: Run, ev: Doc): Run {
  const next = at(run, ev);
  if (ev.status === 'STREAMING') return { ...update(next, { text: '', message: str(ev.message) }), itemsStale: true };
  return {
    ...update(next, { phase: 'queued', ...waitOf({}), text: '', message: '', retrying: false }),
    itemsStale: true,
    notices: [...next.notices, { kind: 'reset', message: str(ev.message) }],
  };
}

function done(run: Run, ev: Doc): Run {
  const known = run.steps.length ? run : { ...run, steps: [newStep('answer')] };
  let next = routing(moveTo(known, known.steps.length - 1, num(ev.ts)), ev);
  const { text, json, items } = resultOf(run.template, ev);
  if (text) {
    next = withStep(next, next.steps.length - 1, { text });
    // The terminal event contains the whole text, so the gap is closed.
    next.notices = next.notices.filter((n) => n.kind !== 'gap');
  }
  if (items.length) next.items = items;
  next.itemsStale = false;
  next.result = json ?? next.result;
  next.usage = usageOf(ev.usage) ?? next.usage;
  next.truncated = next.truncated || ev.finishReason === 'length';
  next.promptTruncated = next.promptTruncated || ev.promptTruncated === true;
  next.simulated = next.simulated || ev.simulated === true;
  return finish(next, 'COMPLETED', num(ev.ts));
}

function failed(run: Run, ev: Doc): Run {
  const code = str(ev.code) || 'internal';
  const next = { ...run, error: { code, message: str(ev.message) } };
  return finish(next, code === 'cancelled' ? 'CANCELLED' : 'FAILED', num(ev.ts));
}

/** finish ends the run: the running step is done, failed or cancelled, and further events are ignored. */
function finish(run: Run, status: Status, ts: number): Run {
  const last: Phase = status === 'COMPLETED' ? 'done' : status === 'FAILED' ? 'failed' : 'cancelled';
  const steps = run.steps.map((s, i): Step => {
    if (s.phase === 'done') return s;
    if (status === 'COMPLETED' || i === run.current) return { ...s, phase: last, endedAt: s.endedAt || ts };
    return i < run.current ? { ...s, phase: 'done', endedAt: s.endedAt || ts } : { ...s, phase: 'stopped' };
  });
  return { ...run, steps, status, ended: true, itemsStale: false, endedAt: run.endedAt || ts };
}
