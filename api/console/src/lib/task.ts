// The page's state of one task, and the two pure functions that change it: adopt merges the response of
// GET /v1/tasks/{id}, apply handles one event. Both return a new Run and leave the old one unchanged.
import type { MatchPoint, TaskView, Usage } from './openapi';
import type { Frame } from './sse';

export type Status = TaskView['status'];

const order: Status[] = [
  'PENDING', 'OCR_PENDING', 'SUMMARY_PENDING', 'MATCH_PENDING', 'ANSWER_PENDING', 'STREAMING', 'COMPLETED', 'FAILED', 'CANCELLED',
];

/** isFinal reports whether the status can no longer change. */
export const isFinal = (s: Status) => s === 'COMPLETED' || s === 'FAILED' || s === 'CANCELLED';

/** stopped: it was not reached before the task ended. */
export type Phase = 'waiting' | 'queued' | 'running' | 'done' | 'failed' | 'cancelled' | 'stopped';

export interface Step {
  name: string;
  model: string;
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
  points: MatchPoint[];
  /** The points belong to a lost attempt: the next ones replace them. */
  pointsStale: boolean;
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
  ended: false, points: [], pointsStale: false, notices: [], result: undefined, usage: null, error: null,
  createdAt: 0, endedAt: 0, temporalUrl: '', traceId: '', simulated: false, truncated: false, promptTruncated: false, erased: false, pollAfterMs: 3000,
});

const newStep = (name: string): Step => ({
  name, model: '', queue: '', phase: 'waiting', stage: '', message: '', position: -1, etaSeconds: -1, paused: false, retrying: false,
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
  run.status === 'STREAMING' && run.steps.at(-1)?.phase === 'running' && !answerOf(run) && (!run.points.length || run.pointsStale);

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

/** pointsOf parses points; a later point with the same requirement replaces the earlier one in its place. */
function pointsOf(v: unknown): MatchPoint[] {
  const byRequirement = new Map<string, MatchPoint>();
  for (const p of arr(v).map(obj)) {
    const requirement = str(p.requirement);
    if (requirement !== '') byRequirement.set(requirement, { requirement, matched: p.matched === true, evidence: str(p.evidence) });
  }
  return [...byRequirement.values()];
}

/** resultOf separates an answer's text from its JSON; JSON in a string is parsed. */
function resultOf(v: unknown): { text: string; json: unknown } {
  if (typeof v === 'string') {
    if (/^\s*[[{]/.test(v)) {
      try {
        return { text: '', json: JSON.parse(v) };
      } catch {
        // Not JSON although it looks like it.
      }
    }
    return { text: v, json: undefined };
  }
  if (v === null || v === undefined) return { text: '', json: undefined };
  const o = obj(v);
  const keys = Object.keys(o);
  if (keys.length > 0 && keys.every((k) => ['text', 'json', 'points', 'assetId', 'mediaType'].includes(k))) {
    const inner = 'json' in o ? o.json : undefined;
    return { text: str(o.text), json: inner ?? undefined };
  }
  return { text: '', json: v };
}

// ---- GET /v1/tasks/{id} ---------------------------------------------------------------------------------------

/** later returns the more advanced of two statuses: a status only moves forward, whether it came from an event or a poll. */
const later = (a: Status, b: Status) => (isFinal(a) ? a : order.indexOf(b) > order.indexOf(a) ? b : a);

/** adopt merges a task as returned by the API. Details known from events are kept where the API returns less. */
export function adopt(run: Run, doc: Doc): Run {
  const reported = str(doc.status) as Status;
  const status = order.includes(reported) ? later(run.status, reported) : run.status;
  const index = Math.max(run.current, num(doc.stepIndex));
  const planned = arr(doc.steps).map(obj);
  const steps = (planned.length ? planned : run.steps.map(() => ({}) as Doc)).map((d, i): Step => {
    const old = run.steps[i] ?? newStep(str(d.name));
    return {
      ...old,
      name: str(d.name) || old.name,
      model: str(d.model) || old.model,
      queue: str(d.queue) || old.queue,
      startedAt: old.startedAt || time(d.startedAt),
      endedAt: old.endedAt || time(d.endedAt),
      text: old.text,
      outputAssetId: str(d.outputAssetId) || old.outputAssetId,
    };
  });
  const result = resultOf(doc.result);
  const text = str(doc.text) || result.text;
  const json = result.json;
  const points = pointsOf(doc.points ?? obj(doc.result).points);
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
    points: points.length ? points : run.points,
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
      next = { ...next, pointsStale: true, steps: next.steps.map((s, i) => (i < next.seen ? s : { ...s, text: '' })) };
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

/** stepOf returns the index of the step that an event belongs to, never one before that of the previous event. */
function stepOf(run: Run, ev: Doc): number {
  const find = (name: string) => run.steps.findIndex((s) => s.name === name);
  let i = -1;
  switch (str(ev.status)) {
    case 'OCR_PENDING': i = find('ocr'); break;
    case 'SUMMARY_PENDING': i = find('summary'); break;
    case 'MATCH_PENDING': i = find('match'); break;
    case 'ANSWER_PENDING': i = run.steps.length - 1; break;
  }
  if (i < 0) {
    switch (str(ev.stage)) {
      case 'ocr': i = find('ocr'); break;
      case 'summary': i = find('summary'); break;
      case 'ingest': case 'compare': case 'score': case 'deliver': case 'answer': i = run.steps.length - 1; break;
    }
  }
  return Math.max(run.seen, i);
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
  const said = str(ev.status) as Status;
  if (order.includes(said) && !isFinal(said)) next.status = later(next.status, said);
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
  const points = pointsOf(ev.points);
  if (!points.length) return updated;
  const kept = updated.pointsStale ? [] : updated.points;
  const merged = kept.map((p) => points.find((q) => q.requirement === p.requirement) ?? p);
  merged.push(...points.filter((q) => !kept.some((p) => p.requirement === q.requirement)));
  return { ...updated, points: merged, pointsStale: false };
}

function token(run: Run, ev: Doc): Run {
  const next = at(run, ev);
  const step = next.steps[next.seen];
  if (next.seen === next.steps.length - 1) next.status = later(next.status, 'STREAMING');
  // A message at this stage is about what came before the text, such as that the model is thinking.
  const message = ev.stage === 'answer' ? '' : step.message;
  return update(next, { phase: 'running', stage: stageOf(ev, step), message, retrying: false, text: step.text + str(ev.text) });
}

/** reset discards the text of a lost attempt; the step starts again. In a step that continues, the text was a thought of the model. */
function reset(run: Run, ev: Doc): Run {
  const next = at(run, ev);
  if (ev.status === 'STREAMING') return { ...update(next, { text: '', message: str(ev.message) }), pointsStale: true };
  return {
    ...update(next, { phase: 'queued', ...waitOf({}), text: '', message: '', retrying: false }),
    pointsStale: true,
    notices: [...next.notices, { kind: 'reset', message: str(ev.message) }],
  };
}

function done(run: Run, ev: Doc): Run {
  const known = run.steps.length ? run : { ...run, steps: [newStep('answer')] };
  let next = routing(moveTo(known, known.steps.length - 1, num(ev.ts)), ev);
  const { text, json } = resultOf(ev.result);
  const whole = str(ev.text) || text;
  if (whole) {
    next = withStep(next, next.steps.length - 1, { text: whole });
    // The terminal event contains the whole text, so the gap is closed.
    next.notices = next.notices.filter((n) => n.kind !== 'gap');
  }
  const points = pointsOf(ev.points ?? obj(ev.result).points);
  if (points.length) next.points = points;
  next.pointsStale = false;
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
  return { ...run, steps, status, ended: true, pointsStale: false, endedAt: run.endedAt || ts };
}
