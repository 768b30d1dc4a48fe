// The calls of berth's HTTP API that the page makes, and the problem details it answers with when one fails.
import { Refused } from './sse';

/** What one of a template's inputs can be. Exactly one variable of a group is given. */
export interface Variable {
  name: string;
  required: boolean;
  group: string;
  kinds: string[];
}

export interface Template {
  name: string;
  mode: string;
  variables: Variable[];
}

export interface Me {
  userId: string;
  scopes: string[];
}

export interface TaskRow {
  taskId: string;
  template: string;
  status: string;
  locale: string;
  serviceId: string;
  createdAt: string;
  endedAt?: string;
}

export interface Submission {
  /** Made by the page, so that a submission whose answer was lost can be sent again and is still one task. */
  taskId: string;
  serviceId: string;
  template: string;
  locale: string;
  variables: Record<string, string | { assetId: string }>;
}

/** A refusal of the API; status 0 when it could not be reached at all. */
export class Problem extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    /** The field that is wrong, as a path such as variables.resume; empty when none is. */
    readonly field: string,
    message: string,
    /** Seconds after which trying again makes sense; 0 when nothing was said. */
    readonly retryAfter = 0,
  ) {
    super(message);
  }
}

type Doc = Record<string, unknown>;
const obj = (v: unknown): Doc => (v !== null && typeof v === 'object' && !Array.isArray(v) ? (v as Doc) : {});
const str = (v: unknown) => (typeof v === 'string' ? v : '');
const list = (v: unknown): Doc[] => (Array.isArray(v) ? v.map(obj) : []);

/** problemOf reads problem details (RFC 9457), and makes something readable of any other body. */
export function problemOf(status: number, body: string, retryHeader = ''): Problem {
  let doc: Doc = {};
  try {
    doc = obj(JSON.parse(body));
  } catch {
    // A proxy's page, or nothing.
  }
  const first = list(doc.errors)[0] ?? {};
  const field = str(doc.field) || str(first.location) || str(first.field);
  const message = str(doc.detail) || str(first.message) || str(doc.title) || `HTTP ${status}`;
  const retry = typeof doc.retryAfter === 'number' ? doc.retryAfter : Number.parseInt(retryHeader, 10) || 0;
  return new Problem(status, str(doc.code) || `http_${status}`, field.replace(/^(body|request)\./, ''), message, retry);
}

/** Calls the API as the holder of one token. */
export class Api {
  constructor(readonly token: string) {}

  headers(): Record<string, string> {
    return { Authorization: `Bearer ${this.token}` };
  }

  async me(): Promise<Me> {
    const doc = await this.call('GET', '/v1/me');
    const user = str(doc.userId) || str(doc.user) || str(doc.sub) || str(doc.id);
    return { userId: user, scopes: Array.isArray(doc.scopes) ? doc.scopes.filter((s) => typeof s === 'string') : [] };
  }

  async templates(): Promise<Template[]> {
    const doc = await this.call('GET', '/v1/templates');
    return list(doc.templates ?? doc.items).map((t) => ({
      name: str(t.name) || str(t.template),
      mode: str(t.mode),
      variables: list(t.variables).map((v) => ({
        name: str(v.name),
        required: v.required === true,
        group: str(v.group),
        kinds: Array.isArray(v.kinds) ? v.kinds.filter((k) => typeof k === 'string') : ['text'],
      })),
    }));
  }

  /** upload stores a file and answers its asset id. */
  async upload(file: File): Promise<string> {
    const form = new FormData();
    form.append('file', file, file.name || 'pasted.png');
    return str((await this.call('POST', '/v1/assets', form)).assetId);
  }

  /** submit hands a task in and answers its id. A lost reply is asked for once more. */
  async submit(s: Submission): Promise<string> {
    const again = async (err: unknown) => {
      if (err instanceof Problem && err.status === 0) return this.call('POST', '/v1/tasks', s);
      throw err;
    };
    const doc = await this.call('POST', '/v1/tasks', s).catch(again);
    return str(doc.taskId) || s.taskId;
  }

  task(id: string, signal?: AbortSignal): Promise<Doc> {
    return this.call('GET', `/v1/tasks/${encodeURIComponent(id)}`, undefined, signal);
  }

  /** text reads a stored text, for instance what a step wrote. */
  async text(assetId: string): Promise<string> {
    const res = await fetch(`/v1/assets/${encodeURIComponent(assetId)}`, { headers: this.headers() });
    const body = await res.text();
    if (!res.ok) throw problemOf(res.status, body);
    return body;
  }

  async tasks(cursor: string, limit: number): Promise<{ tasks: TaskRow[]; next: string }> {
    const query = new URLSearchParams({ limit: String(limit) });
    if (cursor) query.set('cursor', cursor);
    const doc = await this.call('GET', `/v1/tasks?${query}`);
    const tasks = list(doc.tasks).map((t) => ({
      taskId: str(t.taskId), template: str(t.template), status: str(t.status), locale: str(t.locale),
      serviceId: str(t.serviceId), createdAt: str(t.createdAt), endedAt: str(t.endedAt) || undefined,
    }));
    return { tasks, next: str(doc.nextCursor) };
  }

  async cancel(id: string): Promise<void> {
    await this.call('DELETE', `/v1/tasks/${encodeURIComponent(id)}`);
  }

  private async call(method: string, path: string, body?: unknown, signal?: AbortSignal): Promise<Doc> {
    const headers = this.headers();
    const form = body instanceof FormData;
    if (body !== undefined && !form) headers['Content-Type'] = 'application/json';
    let res: Response;
    let text: string;
    try {
      res = await fetch(path, {
        method, headers, signal, cache: 'no-store',
        body: body === undefined ? undefined : form ? body : JSON.stringify(body),
      });
      text = await res.text();
    } catch (err) {
      if (signal?.aborted) throw err;
      throw new Problem(0, 'unreachable', '', 'unreachable');
    }
    if (!res.ok) throw problemOf(res.status, text, res.headers.get('Retry-After') ?? '');
    try {
      return text ? obj(JSON.parse(text)) : {};
    } catch {
      throw new Problem(res.status, 'internal', '', 'the answer is not JSON');
    }
  }
}

/** signedOut tells a refusal of the token from every other fault. */
export const signedOut = (err: unknown) =>
  (err instanceof Problem && err.status === 401) || (err instanceof Refused && err.status === 401);

/** newId is a random id for a submission that must not be taken for an earlier one (a UUID, version 4). */
export function newId(): string {
  const b = crypto.getRandomValues(new Uint8Array(16));
  b[6] = (b[6] & 0x0f) | 0x40;
  b[8] = (b[8] & 0x3f) | 0x80;
  const hex = [...b].map((x) => x.toString(16).padStart(2, '0')).join('');
  return [hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20), hex.slice(20)].join('-');
}
