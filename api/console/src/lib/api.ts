// The calls of berth's HTTP API that the page makes, and the problem details of failed calls.
import { at, signalling } from './home';
import type { Provider } from './oidc';
import type { AssetView, EntryView, InvitationView, JoinView, MeOutputBody, RedeemOutputBody, SignIn, SubmitAnswer, SubmitBody, TaskView, Template } from './openapi';
import { Refused } from './sse';

/** What is wrong in a request, and where. */
export interface Mistake { field: string; message: string; file: string; line: number }

/** An error response of the API; status is 0 if the server could not be reached. */
export class Problem extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    /** The path of the invalid field, such as variables.letter; empty if the problem concerns no field. */
    readonly field: string,
    message: string,
    /** Seconds after which to retry; 0 if the response does not state it. */
    readonly retryAfter = 0,
    /** All fields, or places in files, that are wrong. */
    readonly mistakes: Mistake[] = [],
  ) {
    super(message);
  }
}

type Doc = Record<string, unknown>;
const obj = (v: unknown): Doc => (v !== null && typeof v === 'object' && !Array.isArray(v) ? (v as Doc) : {});
const str = (v: unknown) => (typeof v === 'string' ? v : '');
const list = (v: unknown): Doc[] => (Array.isArray(v) ? v.map(obj) : []);

/** foreign returns the code of a response that the API has not sent, but a proxy in front of it. */
function foreign(status: number): string {
  if (status === 413) return 'proxy_limit';
  return status === 502 || status === 503 || status === 504 ? 'proxy' : `http_${status}`;
}

/** problemOf parses problem details (RFC 9457) and returns a generic problem for any other body. */
export function problemOf(status: number, body: string, retryHeader = ''): Problem {
  let doc: Doc = {};
  try {
    doc = obj(JSON.parse(body));
  } catch {
    // The body is a proxy's error page or empty.
  }
  if (!str(doc.code)) return new Problem(status, foreign(status), '', `HTTP ${status}`, Number.parseInt(retryHeader, 10) || 0);
  const first = list(doc.errors)[0] ?? {};
  const field = str(doc.field) || str(first.location) || str(first.field);
  const message = str(doc.detail) || str(first.message) || str(doc.title) || `HTTP ${status}`;
  const retry = typeof doc.retryAfter === 'number' ? doc.retryAfter : Number.parseInt(retryHeader, 10) || 0;
  const mistakes = list(doc.errors).map((e) => ({ field: str(e.field), message: str(e.message), file: str(e.file), line: typeof e.line === 'number' ? e.line : 0 }));
  return new Problem(status, str(doc.code), field.replace(/^(body|request)\./, ''), message, retry, mistakes);
}

/** A client of the API with one token, which may be renewed, or with none for what needs none. */
export class Api {
  constructor(public token: string) {}

  /** The provider with which users sign in; null if there is none, or the server is unreachable. */
  static async provider(): Promise<Provider | null> {
    const none: SignIn = {};
    const { issuer, clientId = '', parameters = {}, token = 'access' } = await new Api('').call<SignIn>('GET', '/v1/sign-in').catch(() => none);
    return issuer ? { issuer, clientId, parameters, token } : null;
  }

  headers(): Record<string, string> {
    return this.token ? { Authorization: `Bearer ${this.token}` } : {};
  }

  /** redeem admits a guest: with a link, or again with its own secret. */
  async redeem(by: { link: string; name: string } | { guest: string }): Promise<RedeemOutputBody> {
    return dialled(await this.call<RedeemOutputBody>('POST', '/v1/invitations', by));
  }

  /** invitation returns what a link, or a guest's own secret, invites to. It does not use the link. */
  invitation(by: { link: string } | { guest: string }): Promise<InvitationView> {
    return this.call('POST', '/v1/invitations/lookup', by);
  }

  /** participate admits the user to a conference as a host. */
  async participate(e164: string, identity: string, name: string): Promise<JoinView> {
    return dialled(await this.call<JoinView>('POST', `/v1/conferences/${encodeURIComponent(e164)}/participants`, { identity, name, role: 'host' }));
  }

  me(): Promise<MeOutputBody> {
    return this.call('GET', '/v1/me');
  }

  /** templates returns those of new tasks, or the deleted ones, which operators see. */
  async templates(which: '' | '?deleted=true' = ''): Promise<Template[]> {
    // The browser asks with the tag of the list that it has: an unchanged one is not sent again.
    return (await this.call<{ templates: Template[] }>('GET', `/v1/templates${which}`, undefined, undefined, undefined, 'no-cache')).templates;
  }

  /** upload stores a file and returns its asset id. */
  async upload(file: File): Promise<string> {
    const form = new FormData();
    form.append('file', file, file.name || 'pasted.png');
    return (await this.call<AssetView>('POST', '/v1/assets', form)).assetId;
  }

  /** submit submits a task and returns its id. It retries once if the response is lost, also between a proxy and the server. */
  async submit(s: SubmitBody): Promise<string> {
    const submit = () => this.call<SubmitAnswer>('POST', '/v1/tasks', s);
    const again = (err: unknown) => {
      if (err instanceof Problem && (err.status === 0 || err.code === 'proxy')) return submit();
      throw err;
    };
    return (await submit().catch(again)).taskId;
  }

  task(id: string, signal?: AbortSignal, query = ''): Promise<TaskView> {
    return this.call('GET', `/v1/tasks/${encodeURIComponent(id)}${query}`, undefined, signal);
  }

  /** text returns a stored text, for example the output of a step. */
  async text(assetId: string): Promise<string> {
    return (await this.content(assetId)).text();
  }

  /** content returns what an asset contains. */
  async content(assetId: string): Promise<Blob> {
    const res = await fetch(at(`/v1/assets/${encodeURIComponent(assetId)}`), { headers: this.headers() });
    if (!res.ok) throw problemOf(res.status, await res.text());
    return res.blob();
  }

  tasks(cursor: string, limit: number, filters: { q?: string; template?: string; status?: string; open?: boolean } = {}) {
    return this.page<TaskView>('/v1/tasks', 'tasks', { ...filters, limit, cursor });
  }

  /** entries lists the changes of the own credits, newest first. */
  entries(cursor: string, limit: number) {
    return this.page<EntryView>('/v1/me/entries', 'entries', { limit, cursor });
  }

  /** erase removes the texts of a task that has ended. */
  async erase(id: string): Promise<void> {
    await this.call('DELETE', `/v1/tasks/${encodeURIComponent(id)}/content`);
  }

  async cancel(id: string, query = ''): Promise<void> {
    await this.call('DELETE', `/v1/tasks/${encodeURIComponent(id)}${query}`);
  }

  /** get reads what an operator sees; empty parameters are left out. */
  async get<T>(path: string, params: Record<string, string | number | boolean | undefined> = {}): Promise<T> {
    const query = new URLSearchParams();
    for (const [k, v] of Object.entries(params)) if (v !== undefined && v !== '' && v !== false) query.set(k, String(v));
    return this.call<T>('GET', query.size ? `${path}?${query}` : path);
  }

  /** page reads a page of a list, which has the given name in the response. */
  async page<T>(path: string, name: string, params: Record<string, string | number | boolean | undefined>): Promise<{ rows: T[]; next: string }> {
    const doc = await this.get<Doc>(path, params);
    return { rows: (Array.isArray(doc[name]) ? doc[name] : []) as T[], next: str(doc.nextCursor) };
  }

  /** send makes a change as an operator. */
  async send(method: string, path: string, body?: unknown, headers?: Record<string, string>): Promise<Doc> {
    return this.call(method, path, body, undefined, headers);
  }

  private async call<T = Doc>(method: string, path: string, body?: unknown, signal?: AbortSignal, more?: Record<string, string>, cache: RequestCache = 'no-store'): Promise<T> {
    const headers = { ...this.headers(), ...more };
    const form = body instanceof FormData;
    if (body !== undefined && !form) headers['Content-Type'] = 'application/json';
    let res: Response;
    let text: string;
    try {
      res = await fetch(at(path), {
        method, headers, signal, cache,
        body: body === undefined ? undefined : form ? body : JSON.stringify(body),
      });
      text = await res.text();
    } catch (err) {
      if (signal?.aborted) throw err;
      throw new Problem(0, 'unreachable', '', 'unreachable');
    }
    if (!res.ok) throw problemOf(res.status, text, res.headers.get('Retry-After') ?? '');
    try {
      return (text ? obj(JSON.parse(text)) : {}) as T;
    } catch {
      throw new Problem(res.status, 'internal', '', 'the answer is not JSON');
    }
  }
}

/** dialled returns an admission with the page's own address of the signalling where the API could only guess it. */
const dialled = <T extends JoinView>(a: T): T => (a.urlFromRequest ? { ...a, url: signalling() } : a);

/** signedOut reports whether the error means that the token was rejected. */
export const signedOut = (err: unknown) =>
  (err instanceof Problem && err.status === 401) || (err instanceof Refused && err.status === 401);

/** newId returns a random UUID (version 4), so that a submission is not treated as a retry of an earlier one. */
export function newId(): string {
  const b = crypto.getRandomValues(new Uint8Array(16));
  b[6] = (b[6] & 0x0f) | 0x40;
  b[8] = (b[8] & 0x3f) | 0x80;
  const hex = [...b].map((x) => x.toString(16).padStart(2, '0')).join('');
  return [hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20), hex.slice(20)].join('-');
}
