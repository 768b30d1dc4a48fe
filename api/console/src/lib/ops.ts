// What the console reads from the API: the shapes of the responses, pages of lists, and the stream of changes.
import type { Api } from './api';
import { isolated } from './names';
import { follow, type Frame, type Link as Connection } from './sse';

export interface Counts { waiting: number; running: number }
export interface Minute { at: string; accepted: number; completed: number; failed: number; cancelled: number; lost: number }
export interface TaskQueue { name: string; model: boolean; pollers: number; backlog: number; backlogAgeMs: number }
export interface Progress { completedAt?: string; late: boolean }
export interface Overview {
  at: string; tasks: Counts; executions: Counts; turns?: number; conferences: Record<string, number>; minutes: Minute[]; stale: boolean;
  taskQueues?: TaskQueue[]; reconciliation: Progress;
  troubles?: { name: string; status: string; since: string; reason?: { code: string; setting?: string; text: string } }[];
  nodes: { ready: number; suspect: number; dead: number; lost: number; cordoned: number; draining: number; leases: number; slots: number; excluded: Record<string, number> };
}
export interface Node {
  nodeId: string; kind: string; hostname?: string; zone?: string; capabilities: string[]; services?: string[]; maxConcurrentJobs: number; generation: number;
  state: string; excluded?: string; cordoned: boolean; drainUntil?: string; pools: string[]; leases: number;
  load: { cpuUsage: number; gpuUsage?: number; memoryUsage: number; currentJobs: number; activeWorkflows: number; latencyMs: number };
  unavailable?: Record<string, string>; registeredAt: string; heartbeatAt: string; lostAt?: string; departure?: string;
}
export interface Switch { from: string; to: string; by: { load?: number; latencyMs?: number }; at: string }
export interface Pool {
  poolId: string; kind?: string; capabilities?: string[]; zone?: string; strategy?: string; tenants?: string[]; defined: boolean; members: number;
  counts?: { free: number; passed: Record<string, number> }; missing?: string[]; strategyNow?: string; switches?: Switch[]; stale: boolean;
}
export interface Limits { cap: number; rpm: number; tpm: number }
export interface Waiting { userId: string; queue: string; model: string; waiting: number }
export interface Model extends Limits {
  name: string; provider: string; configured: Limits; inUse: number; waiting: number; paused: boolean; probing?: boolean; pausedBy?: string; pausedUntil?: string;
  reason?: string; nextGrantMs: number; etaSeconds?: number; queues: { queue: string; weight: number; inUse: number; waiting: number }[]; users: Waiting[];
}
export interface Task {
  userId: string; taskId: string; serviceId: string; template: string; locale: string; tier: string; status: string; createdAt: string; endedAt?: string; waiting?: { position?: number; etaSeconds?: number; paused?: boolean }; finishReason?: string;
  steps: { name: string; queue: string; model: string; state: string }[]; stepIndex: number; usage: { inputTokens: number; outputTokens: number };
  error?: { code: string; message: string }; links: { temporal?: string };
}
export interface Session { sessionId: string; userId: string; tenantId?: string; srcLang: string; tgtLang: string; updatedAt: string }
export interface TurnRow {
  turnId: string; sessionId: string; userId: string; status: string; lost?: boolean; startedAt: string; endedAt?: string; links: { temporal?: string };
}
export interface Job {
  jobId: string; index: number; status: string; nodeId: string; poolId: string; affinity?: string; missed?: string; dispatches: number; text?: string;
  code?: string; message?: string;
}
export interface Turn {
  turnId: string; sessionId: string; userId: string; srcLang: string; tgtLang: string; status: string; reason?: string; affinityNodeId?: string;
  jobs: Job[]; startedAt: string; finalizedAt?: string; links: { temporal?: string };
}
export interface Dispatch {
  jobId: string; index: number; dispatch: number; nodeId: string; generation: number; at: string; startedAt?: string; endedAt?: string; outcome?: string;
  message?: string;
}
export interface Execution {
  executionId: string; userId: string; executor: string; status: string; nodeId?: string; poolId: string; code?: string; message?: string;
  attempts: { nodeId: string; generation: number; error?: string }[]; startedAt: string; endedAt?: string; links: { temporal?: string };
}
export interface Segment { nodeId: string; generation: number; epoch: number; startedAt: string; endedAt?: string; reason?: string; merged?: number }
export interface Order { at: string; command: string; nodeId: string; generation: number; epoch: number; outcome?: string }
export interface Conference {
  e164: string; conferenceId: string; userId: string; title?: string; status: string; waiting?: string; ending?: string; end?: string; endAt: string;
  owner?: { nodeId: string; generation: number; epoch: number }; epoch: number; lostAt?: string; recoverable: boolean; segments: Segment[]; orders: Order[];
  createdAt: string; openedAt?: string; endedAt?: string; links: { temporal?: string };
  info?: { live?: { participants?: { identity: string }[] } };
}
export interface Account { userId: string; tier: string; credits: number }
export interface Entry { entryId: number; kind: string; amount: number; taskId?: string; reason?: string; at: string }
export interface Audit { entryId: number; at: string; userId: string; action: string; taskId?: string; target?: string; status?: number; detail?: unknown; count?: number; lastAt?: string }

/** Returns the result of an operator's action, by the status of its response, for a badge. */
export function actionResult(status: number): { value: string; tone: string } {
  if (status === 0) return { value: 'h_none', tone: 'failed' };
  if (status < 400) return { value: `done: HTTP ${status}`, tone: 'done' };
  return { value: `${status < 500 ? 'h_refused' : 'failed'}: HTTP ${status}`, tone: 'failed' };
}

/** Returns what a row of the audit log states as a text. label returns the text for the name of a field. */
export function auditText(detail: unknown, label: (key: string) => string): string {
  const fields = (o: object, between: string, separator: string) =>
    Object.entries(o).map(([k, x]) => `${label(k)}${between}${text(x)}`).join(separator);
  const text = (v: unknown): string => {
    if (v === null || v === '') return '–';
    if (Array.isArray(v)) return v.map(text).join(v.some((x) => typeof x === 'object') ? ' → ' : ' / ');
    if (typeof v !== 'object') return isolated(String(v));
    const o = v as Record<string, unknown>;
    return typeof o.name === 'string' && typeof o.model === 'string' ? `${o.name} (${o.model})` : fields(o, ' ', ' / ');
  };
  return detail && typeof detail === 'object' ? fields(detail, ': ', ', ') : '';
}

export interface Call {
  taskId: string; userId: string; at: string; model: string; provider: string; queueId: string; inputTokens: number; outputTokens: number; latencyMs: number;
  outcome: string; firstTokenMs?: number; costMicros: number; step: string;
}
export interface Pass {
  passId: string; kind: string; dryRun?: boolean; requested?: boolean; status: string; reason?: string; startedAt: string; endedAt: string; left: number;
  counts: { rule: string; found: number; held: number; repaired: number; failed: number }[] | null;
  findings: { rule: string; subject: string; outcome: string; message?: string }[] | null;
}
export interface Reconciliation extends Progress { rules: { rule: string; finds: string; repairs: string; fullOnly?: boolean }[]; passes: Pass[] }

export interface Link {
  linkId: string; role: string; maxUses: number; uses: number; createdAt: string; createdBy: string; revokedAt?: string;
  /** Only in the response of its creation. */
  secret?: string;
}
export interface Participant { identity: string; name?: string; role: string; linkId?: string; createdAt: string; removedAt?: string; removedBy?: string }

/** A change, as the stream of events reports it. */
export interface Change {
  type: string; ts: number; status?: string; before?: string; reason?: string; nodeId?: string; poolId?: string; model?: string; userId?: string;
  taskId?: string; sessionId?: string; turnId?: string; executionId?: string; e164?: string; passId?: string; found?: number;
}

/** The path of a view: its parts are encoded, and empty filters are left out. */
export function link(parts: string[], filters: Record<string, string> = {}): string {
  const query = new URLSearchParams(Object.entries(filters).filter(([, v]) => v !== ''));
  const path = ['#', 'console', ...parts.map(encodeURIComponent)].join('/');
  return query.size ? `${path}?${query}` : path;
}

/** The view of an address that begins with #/console, with its parts and filters; null for other addresses. */
export function place(hash: string): { parts: string[]; filters: Record<string, string> } | null {
  const m = /^#\/console(?:\/([^?]*))?(?:\?(.*))?$/.exec(hash);
  if (!m) return null;
  const parts = (m[1] ?? '').split('/').filter(Boolean).map((p) => {
    try {
      return decodeURIComponent(p);
    } catch {
      return p;
    }
  });
  return { parts, filters: Object.fromEntries(new URLSearchParams(m[2] ?? '')) };
}

/** How many changes of each type are kept: those of tasks, which are many, do not displace the others. */
const kept = 100;

/**
 * The stream of changes for one operator. A view is notified when something of its types has changed, and reads it again: at most once a second,
 * whatever the number of changes. After a reset every view reads again.
 */
export class Changes {
  private views = new Set<{ types: string[]; read: () => void; timer?: ReturnType<typeof setTimeout>; last: number }>();
  private stop = new AbortController();
  private last = '';

  constructor(
    private api: Api,
    private onChange: (recent: Change[]) => void,
    private onLink: (l: Connection) => void,
    private recent: Change[] = [],
  ) {}

  async run() {
    await follow({
      url: `/v1/events?recent=${kept}`,
      headers: () => this.api.headers(),
      lastId: () => this.last,
      onFrame: (f) => this.take(f),
      onLink: (l) => this.onLink(l),
      ended: () => false,
      poll: async () => {
        if (!globalThis.document?.hidden) this.notify('');
        return 5000;
      },
      signal: this.stop.signal,
    });
  }

  close() {
    this.stop.abort();
    for (const v of this.views) clearTimeout(v.timer);
    this.views.clear();
  }

  take(f: Frame) {
    if (f.id) this.last = f.id;
    let c: Change;
    try {
      c = JSON.parse(f.data) as Change;
    } catch {
      return;
    }
    if (c.type === 'reset') {
      this.notify('');
      return;
    }
    let of = 0;
    this.recent = [c, ...this.recent].filter((r) => r.type !== c.type || ++of <= kept);
    this.onChange(this.recent);
    this.notify(c.type);
  }

  /** Calls read after changes of these types, until the returned function is called. */
  watch(types: string[], read: () => void): () => void {
    const view = { types, read, timer: undefined as ReturnType<typeof setTimeout> | undefined, last: Date.now() };
    this.views.add(view);
    return () => {
      clearTimeout(view.timer);
      this.views.delete(view);
    };
  }

  private notify(type: string) {
    for (const v of this.views) {
      if ((type && !v.types.includes(type)) || v.timer !== undefined) continue;
      v.timer = setTimeout(() => {
        v.timer = undefined;
        v.last = Date.now();
        v.read();
      }, Math.max(150, v.last + 1000 - Date.now()));
    }
  }
}

/** A backlog is attention if it waits for this long: workers usually take work within milliseconds. */
const longBacklog = 10_000;

/**
 * The task queues that need attention: those that no worker polls, and those whose work waits although they are polled. A queue of a model
 * without work is not one of them, because a provider without a key has no worker.
 */
export function queueTrouble(all: TaskQueue[]): { unpolled: TaskQueue[]; slow: TaskQueue[] } {
  return {
    unpolled: all.filter((q) => q.pollers === 0 && (!q.model || q.backlog > 0)),
    slow: all.filter((q) => q.pollers > 0 && q.backlog > 0 && q.backlogAgeMs >= longBacklog),
  };
}

/** The changes without those of single pieces of work, which are many, so that the rare ones stay visible. */
export const rareChanges = (all: Change[]) => all.filter((c) => !['task', 'turn', 'execution'].includes(c.type));

/** When the next call of a model may start: 'blocked' while a limit other than its pace decides, otherwise the milliseconds until then. */
export function nextCall(m: Pick<Model, 'paused' | 'pausedBy' | 'probing' | 'inUse' | 'cap' | 'nextGrantMs'>): number | 'blocked' {
  if (m.paused && m.pausedBy === 'operator') return 'blocked';
  if (m.nextGrantMs <= 0 && (m.inUse >= m.cap || (m.probing && m.inUse > 0))) return 'blocked';
  return Math.max(0, m.nextGrantMs);
}

export interface Recovery { planned: boolean; lostAt: number; recoveredAt: number; from: string; to: string; reason: string; orders: Order[] }

/** recoveries returns the times in which a conference had no unit, or changed it, with the commands that were sent meanwhile. */
export function recoveries(c: Conference): Recovery[] {
  const ms = (s?: string) => (s ? Date.parse(s) : 0);
  const segments = [...(c.segments ?? [])].sort((a, b) => ms(a.startedAt) - ms(b.startedAt));
  return segments.flatMap((s, i): Recovery[] => {
    const next = segments[i + 1];
    if (!s.endedAt || (!next && c.status !== 'awaiting-recovery')) return [];
    const lostAt = ms(s.endedAt);
    const recoveredAt = next ? ms(next.startedAt) : 0;
    return [{
      planned: s.reason === 'drained' || (recoveredAt > 0 && recoveredAt <= lostAt), lostAt, recoveredAt, from: s.nodeId, to: next?.nodeId ?? '', reason: s.reason ?? '',
      orders: (c.orders ?? []).filter((o) => ms(o.at) >= lostAt && (!recoveredAt || ms(o.at) <= recoveredAt)),
    }];
  });
}
