// The signed-in user and the current view. A token in the address is stored and immediately removed from the address.
import { Api, Problem, signedOut } from './api';
import type { MeOutputBody } from './openapi';
import { own } from './home';
import * as oidc from './oidc';
import { place as consolePlace } from './ops';

const kept = own('berth.token');
/** The tokens of a sign-in with a provider are kept as long as the tab. */
const keptTokens = own('berth.tokens');

type Trouble = '' | 'wrong' | 'unreachable' | 'failing' | 'rejected' | 'expired' | oidc.SignInError['word'];

class Session {
  api = $state.raw<Api | null>(null);
  me = $state.raw<MeOutputBody | null>(null);
  /** Why no user is signed in: the token was rejected, the server is unreachable or cannot check it, or a sign-in with the provider failed. */
  trouble = $state<Trouble>('');
  /** What the provider or the server stated about it. */
  detail = $state('');
  checking = $state(false);
  /** The provider with which users sign in; null if there is none. */
  provider = $state.raw<oidc.Provider | null>(null);
  /** The tokens of the provider; null after a sign-in by token. */
  private tokens: oidc.Tokens | null = null;
  private renewal?: ReturnType<typeof setTimeout>;

  /** Signs in with the token of `#token=…`, the answer of a provider, or the token of the last visit. */
  async begin() {
    const m = /^#token=([^&]+)/.exec(location.hash);
    const query = new URLSearchParams(location.search);
    const returned = oidc.returned(query);
    if (m || returned) history.replaceState(null, '', m ? location.pathname + location.search + '#/' : location.pathname + location.hash);
    const asked = Api.provider();
    const tokens = sessionStorage.getItem(keptTokens);
    if (m || !(returned || tokens)) {
      const token = m ? decodeURIComponent(m[1]) : localStorage.getItem(kept);
      if (token) await this.signIn(token);
      this.provider = await asked;
      return;
    }
    this.checking = true;
    this.provider = await asked;
    if (returned) await this.complete(query);
    else if (tokens && this.provider) await this.resume(JSON.parse(tokens));
    this.checking = false;
  }

  async signIn(token: string) {
    this.forget();
    const api = new Api(token.trim().replace(/^Bearer\s+/i, ''));
    // A reload before the answer, or after an outage, tries the token again.
    localStorage.setItem(kept, api.token);
    await this.use(api);
    if (!this.api && this.trouble !== 'unreachable' && this.trouble !== 'failing') localStorage.removeItem(kept);
  }

  /** Sends the browser to the provider, which sends it back to the current view. */
  async signInWithProvider() {
    if (!this.provider) return;
    this.checking = true;
    this.fail('');
    await oidc.begin(this.provider, location.hash).catch((err) => this.failed(err));
  }

  private async complete(query: URLSearchParams) {
    this.checking = true;
    try {
      if (!this.provider) throw new oidc.SignInError('oidcState');
      const { hash, ...tokens } = await oidc.finish(this.provider, query);
      if (hash) history.replaceState(null, '', location.pathname + hash);
      dispatchEvent(new HashChangeEvent('hashchange')); // replaceState sends none
      await this.resume(tokens);
    } catch (err) {
      this.failed(err);
    }
  }

  private async resume(tokens: oidc.Tokens) {
    this.forget();
    this.tokens = tokens;
    if (oidc.expiry(tokens.token) < Date.now() && !(await this.renew())) return;
    await this.use(new Api(this.tokens.token));
    if (this.trouble === 'wrong') this.trouble = 'rejected';
    if (this.trouble === 'rejected') this.tokens = null;
    else this.keep();
  }

  /** Keeps the tokens for a reload, and renews them when a fifth of their time is left. */
  private keep() {
    if (!this.tokens) return;
    sessionStorage.setItem(keptTokens, JSON.stringify(this.tokens));
    clearTimeout(this.renewal);
    const left = oidc.expiry(this.tokens.token) - Date.now();
    if (this.tokens.refresh) this.renewal = setTimeout(() => void this.renew(), Math.min(Math.max(left * 0.8, 1000), 2 ** 31 - 1));
  }

  /** Renews the tokens of the provider. Retries while the provider is unreachable, until they expire. */
  private async renew(): Promise<boolean> {
    const { provider, tokens } = this;
    if (!provider || !tokens) return false;
    try {
      if (!tokens.refresh) throw new oidc.SignInError('oidcRefused');
      const renewed = await oidc.renew(provider, tokens.refresh);
      if (this.tokens !== tokens) return false; // signed out meanwhile
      this.tokens = renewed;
      if (this.api) this.api.token = renewed.token;
      this.keep();
      return true;
    } catch (err) {
      if (this.tokens !== tokens) return false;
      const expired = oidc.expiry(tokens.token) <= Date.now();
      if (!expired && err instanceof oidc.SignInError && err.word === 'oidcUnreachable') this.keep();
      else if (expired) this.expire();
      return false;
    }
  }

  private expire() {
    this.signOut();
    this.fail('expired');
  }

  private failed(err: unknown) {
    if (err instanceof oidc.SignInError) this.fail(err.word, err.detail);
    else this.fail('oidcUnreachable', String(err));
  }

  private fail(trouble: Trouble, detail = '') {
    this.trouble = trouble;
    this.detail = detail;
    if (trouble) this.checking = false;
  }

  private async use(api: Api) {
    this.api = null;
    this.me = null;
    this.checking = true;
    this.fail('');
    try {
      this.me = await api.me();
      this.api = api;
    } catch (err) {
      if (err instanceof Problem && err.status === 0) this.trouble = 'unreachable';
      else this.fail(err instanceof Problem && err.status >= 500 ? 'failing' : 'wrong', err instanceof Problem ? err.message : '');
    } finally {
      this.checking = false;
    }
  }

  /** Reads the balance again, which a task may have changed. A failed call keeps the last one. */
  async refresh() {
    const api = this.api;
    const me = await api?.me().catch((err) => void this.noteRefusal(err));
    if (me && this.api === api) this.me = me;
  }

  get operator(): boolean {
    return this.me?.scopes.includes('operator') ?? false;
  }

  /** Whether the token permits tasks of its own: that of an operator may not. */
  get user(): boolean {
    return this.me?.scopes.includes('user') ?? false;
  }

  /** Handles the error of any failed call: a rejected token ends the session. */
  noteRefusal(err: unknown): boolean {
    if (!signedOut(err)) return false;
    const provided = this.tokens !== null;
    this.signOut();
    this.trouble = provided ? 'expired' : 'wrong';
    return true;
  }

  /** Removes every token. */
  private forget() {
    clearTimeout(this.renewal);
    this.tokens = null;
    localStorage.removeItem(kept);
    sessionStorage.removeItem(keptTokens);
  }

  signOut() {
    this.forget();
    this.api = null;
    this.me = null;
    this.fail('');
  }
}

export const session = new Session();

export type Place =
  | { at: 'new' } | { at: 'history'; filters: Record<string, string> } | { at: 'credits' } | { at: 'task'; id: string } | { at: 'console'; parts: string[]; filters: Record<string, string> }
  /** A conference, for its hosts by number and for guests by the secret of their link, which browsers do not send. Without either, the link is incomplete. */
  | { at: 'meeting'; e164: string; link: string }
  | { at: 'nowhere' };

const read = (): Place => {
  const m = /^#\/tasks\/([^/?#]+)$/.exec(location.hash);
  if (m) {
    try {
      return { at: 'task', id: decodeURIComponent(m[1]) };
    } catch {
      return { at: 'nowhere' };
    }
  }
  const host = /^#\/conferences\/([^/?#]+)$/.exec(location.hash);
  if (host) return { at: 'meeting', e164: host[1], link: '' };
  const guest = /^#\/join(?:\/([^?#]*))?$/.exec(location.hash);
  if (guest) return { at: 'meeting', e164: '', link: guest[1] ?? '' };
  const view = consolePlace(location.hash);
  if (view) return { at: 'console', ...view };
  if (location.hash === '#/credits') return { at: 'credits' };
  const list = /^#\/tasks(?:\?(.*))?$/.exec(location.hash);
  if (list) return { at: 'history', filters: Object.fromEntries(new URLSearchParams(list[1] ?? '')) };
  return /^(#\/?)?$|^#token=/.test(location.hash) ? { at: 'new' } : { at: 'nowhere' };
};

class Route {
  place = $state.raw<Place>(read());

  constructor() {
    addEventListener('hashchange', () => {
      if (location.hash.startsWith('#token=')) void session.begin(); // which replaces the address
      const before = this.place;
      this.place = read();
      const filtered = before.at === 'console' && this.place.at === 'console' && before.parts.join() === this.place.parts.join()
        || before.at === 'history' && this.place.at === 'history';
      if (!filtered) scrollTo(0, 0);
    });
  }

  toTask(id: string) {
    location.hash = `#/tasks/${encodeURIComponent(id)}`;
  }

  /** Filters the list of tasks, in place of the list that is shown. Empty filters are left out. */
  toHistory(filters: Record<string, string>) {
    const query = new URLSearchParams(Object.entries(filters).filter(([, v]) => v !== ''));
    location.replace(query.size ? `#/tasks?${query}` : '#/tasks');
  }

  toForm() {
    location.hash = '#/';
  }
}

export const route = new Route();
