// What the console makes of what it reads from the API: addresses of views, the stream of changes, and what it derives from responses.
import type { Api } from './api';
import { isolated } from './names';
import type { ConferenceOrder, ConferenceView, Model, OperatorEvent, OperatorEventReset, TaskQueueState } from './openapi';
import { follow, type Frame, type Link as Connection } from './sse';

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

/** A change, as the stream of events reports it. */
export type Change = Exclude<OperatorEvent, OperatorEventReset>;

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
    let c: OperatorEvent;
    try {
      c = JSON.parse(f.data) as OperatorEvent;
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
export function queueTrouble(all: TaskQueueState[]): { unpolled: TaskQueueState[]; slow: TaskQueueState[] } {
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

export interface Recovery { planned: boolean; lostAt: number; recoveredAt: number; from: string; to: string; reason: string; orders: ConferenceOrder[] }

/** recoveries returns the times in which a conference had no unit, or changed it, with the commands that were sent meanwhile. */
export function recoveries(c: ConferenceView): Recovery[] {
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
